//! `stockade-verify --key PUBLIC.pem [--key …] [--witness NAME=PUBLIC.pem] FILE`: checks an export and says what it holds, or what broke.
//!
//! Exit code 0: everything holds. 1: something does not, and it is named. 125: it could not be checked.

use std::io::{BufReader, Read as _};
use std::process::ExitCode;

use stockade_verify::export::{self, CheckError, Extent, Summary};
use stockade_verify::key::{MAX_KEY_TEXT, PublicKey};
use stockade_verify::note::Note;

const USAGE: &str = "usage: stockade-verify --key PUBLIC.pem [--key PUBLIC.pem]… [--witness NAME=PUBLIC.pem]… FILE\n\
FILE is an export of receipts (`stockade receipts export`); `-` reads standard input.";
const BROKEN: u8 = 1;
const NOT_CHECKED: u8 = 125;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return say(&mut std::io::stdout(), USAGE, 0);
    }
    match run(&words) {
        Ok(text) => say(&mut std::io::stdout(), &text, 0),
        Err((code, text)) => say(&mut std::io::stderr(), &text, code),
    }
}

fn say(stream: &mut impl std::io::Write, text: &str, code: u8) -> ExitCode {
    match writeln!(stream, "{text}").and_then(|()| stream.flush()) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::from(NOT_CHECKED),
    }
}

type Failure = (u8, String);

fn run(words: &[String]) -> Result<String, Failure> {
    let misuse = |problem: String| (NOT_CHECKED, format!("error: {problem}\n{USAGE}"));
    let (mut keys, mut witnesses, mut file) = (Vec::new(), Vec::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--key" => keys.push(read_key(words.next().ok_or_else(|| misuse("`--key` needs a file".to_owned()))?)?),
            "--witness" => {
                let pair = words.next().and_then(|pair| pair.split_once('='));
                let (name, path) = pair.ok_or_else(|| misuse("`--witness` needs NAME=FILE".to_owned()))?;
                witnesses.push((name.to_owned(), read_key(path)?));
            }
            other if other.starts_with("--") => return Err(misuse(format!("unknown option `{other}`"))),
            other if file.is_none() => file = Some(other.to_owned()),
            other => return Err(misuse(format!("one file at a time, and `{other}` is a second"))),
        }
    }
    let file = file.ok_or_else(|| misuse("no file is named".to_owned()))?;
    if keys.is_empty() {
        return Err(misuse("no key is given; a key is never taken from the file it is to check".to_owned()));
    }
    let input: Box<dyn std::io::Read> = if file == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&file).map_err(|error| (NOT_CHECKED, format!("error: cannot open `{file}`: {error}")))?)
    };
    let summary = export::check(BufReader::with_capacity(1 << 20, input), &keys).map_err(|error| match error {
        CheckError::Broken(broken) => (BROKEN, format!("BROKEN: {broken}")),
        CheckError::Read(error) => (NOT_CHECKED, format!("error: cannot read `{file}`: {error}")),
    })?;
    let mut text = describe(&summary);
    let note = Note::parse(&summary.note).map_err(|bad| (BROKEN, format!("BROKEN: line 1 (header): {bad}")))?;
    for (name, key) in witnesses {
        let time = note.cosigned_by(&name, &key).map_err(|bad| (BROKEN, format!("BROKEN: line 1 (header): witness `{name}`: {bad}")))?;
        text.extend(["\nwitnessed by ", &name, " at ", &time.to_string(), " (seconds since 1970)"]);
    }
    Ok(text)
}

fn describe(summary: &Summary) -> String {
    let Summary { origin, count, size, extent, key_id, .. } = summary;
    match extent {
        Extent::All => format!("ok: all {count} receipts of {origin} hold, signed with key {key_id}"),
        Extent::Some => {
            format!("ok: {count} receipts out of {size} of {origin} hold, signed with key {key_id}; what was left out is not seen")
        }
    }
}

fn read_key(path: &str) -> Result<PublicKey, Failure> {
    let fail = |problem: String| (NOT_CHECKED, format!("error: key `{path}`: {problem}"));
    let file = std::fs::File::open(path).map_err(|error| fail(format!("cannot open it: {error}")))?;
    let mut text = String::new();
    let most = u64::try_from(MAX_KEY_TEXT).unwrap_or(u64::MAX);
    file.take(most).read_to_string(&mut text).map_err(|error| fail(format!("cannot read it: {error}")))?;
    PublicKey::parse(&text).map_err(|bad| fail(bad.to_string()))
}
