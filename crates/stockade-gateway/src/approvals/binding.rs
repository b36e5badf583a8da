//! What a request is bound to: everything that makes a call what it is, in one digest, and the text of it that a person is shown.
//!
//! The digest is keyed with a secret of the store: values of variables go into it, and nobody should be able to guess those from it. Lengths and
//! names go in with every part, so that no two calls look alike.

use std::path::PathBuf;

use aws_lc_rs::hmac;
use sha2::{Digest as _, Sha256};
use stockade_core::escape::reveal;

/// The form of the digest.
const FORM: &[u8] = b"stockade approval binding 1";
/// The longest line that stands for a whole call in a list.
const MOST_TITLE: usize = 120;

/// Everything that makes a call what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Who asks, as Cedar writes it.
    pub principal: String,
    /// What for.
    pub wanted: Wanted,
    /// What it does: `read`, `write` or `destructive`.
    pub effect: String,
    /// The programs that would run, as they were found: the one that is started first.
    pub programs: Vec<BoundFile>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// All variables that it gets.
    pub environment: Vec<Variable>,
    /// What it reads from its standard input.
    pub input: Input,
    /// Files that its words name.
    pub operands: Vec<BoundFile>,
    /// Secrets that it may use, and where.
    pub credentials: Vec<String>,
    /// The digest of all rules that were evaluated.
    pub policy: String,
    /// The whole configuration of the sandbox, as canonical text.
    pub sandbox: String,
    /// The same for people: what, and what it is.
    pub surroundings: Vec<(String, String)>,
    /// Why a person is asked.
    pub because: Vec<String>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A program and its arguments.
    Program(Vec<Vec<u8>>),
    /// A script, and what runs it.
    Script {
        /// As it was written.
        script: Vec<u8>,
        /// As it is executed.
        argv: Vec<Vec<u8>>,
    },
    /// A capability, what it is given, and what that comes to.
    Capability {
        /// Its name.
        name: String,
        /// The pack it is from, and who vouches for it.
        pack: String,
        /// Its inputs, as JSON.
        inputs: String,
        /// As it is executed.
        argv: Vec<Vec<u8>>,
    },
    /// A file, without a program.
    File {
        /// What is done to it: `reads`, `lists` or `writes`.
        verb: &'static str,
        /// Where it is inside.
        path: Vec<u8>,
        /// What it is to hold from then on.
        contents: Option<Vec<u8>>,
    },
}

/// A file that a call depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundFile {
    /// Where it really is, links followed.
    pub path: PathBuf,
    /// What is in it.
    pub contents: Contents,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Bytes of this SHA-256.
    Sha256(String),
    /// A directory; what is in it is not looked at.
    Directory,
    /// A device, a pipe or a socket.
    Special,
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Whether a person is shown the value.
    pub visibility: Visibility,
}

/// How much of a variable a person is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Name and value: whoever asks chose it.
    Whole,
    /// Nothing: every call of this person has it.
    Usual,
}

/// What a call reads from its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Nothing,
    /// A terminal: what a person types.
    Terminal,
    /// These bytes.
    Bytes {
        /// How many.
        length: u64,
        /// Their digest.
        sha256: String,
    },
}

impl Bound {
    /// The digest of all of it.
    pub(super) fn digest(&self, key: &[u8]) -> String {
        // Nothing is left out: a new field does not compile until it is bound.
        let Self {
            principal,
            wanted,
            effect,
            programs,
            cwd,
            environment,
            input,
            operands,
            credentials,
            policy,
            sandbox,
            surroundings,
            because,
        } = self;
        let mut frame = Frame::new(key);
        frame.part("principal", [principal.as_bytes()]);
        match wanted {
            Wanted::Program(argv) => frame.part("program", argv),
            Wanted::Script { script, argv } => {
                frame.part("script", [script]);
                frame.part("argv", argv);
            }
            Wanted::Capability { name, pack, inputs, argv } => {
                frame.part("capability", [name.as_bytes(), pack.as_bytes(), inputs.as_bytes()]);
                frame.part("argv", argv);
            }
            Wanted::File { verb, path, contents } => {
                frame.part("file", [verb.as_bytes(), path]);
                frame.part("contents", contents);
            }
        }
        frame.part("effect", [effect.as_bytes()]);
        for (name, files) in [("programs", programs), ("operands", operands)] {
            let words = |file: &BoundFile| [file.path.as_os_str().as_encoded_bytes().to_vec(), file.contents.word().into_bytes()];
            frame.part(name, files.iter().flat_map(words));
        }
        frame.part("cwd", [cwd.as_os_str().as_encoded_bytes()]);
        frame.part("environment", environment.iter().flat_map(|variable| [variable.name.as_bytes(), variable.value.as_slice()]));
        match input {
            Input::Nothing => frame.part("input", ["nothing"]),
            Input::Terminal => frame.part("input", ["terminal"]),
            Input::Bytes { length, sha256 } => frame.part("input", [length.to_string(), sha256.clone()]),
        }
        frame.part("credentials", credentials);
        frame.part("policy", [policy]);
        frame.part("sandbox", [sandbox]);
        frame.part("surroundings", surroundings.iter().flat_map(|(what, how)| [what, how]));
        frame.part("because", because);
        hex(frame.0.sign().as_ref())
    }

    /// What a person is to see: one fact per line, each word of an argument list on a line of its own, so that no word can look like two.
    pub fn shown(&self) -> String {
        let mut lines = Vec::new();
        let mut fact = |what: &str, how: String| lines.push(format!("{what:<12}{how}"));
        fact("who", reveal(self.principal.as_bytes()));
        match &self.wanted {
            Wanted::Program(argv) => words(&mut fact, "runs", argv),
            Wanted::Script { script, .. } => lines_of(&mut fact, "script", script),
            Wanted::Capability { name, pack, inputs, argv } => {
                fact("capability", format!("{} ({})", reveal(name.as_bytes()), reveal(pack.as_bytes())));
                fact("inputs", reveal(inputs.as_bytes()));
                words(&mut fact, "runs", argv);
            }
            Wanted::File { verb, path, contents } => {
                fact(verb, reveal(path));
                if let Some(contents) = contents {
                    lines_of(&mut fact, "contents", contents);
                }
            }
        }
        fact("effect", self.effect.clone());
        for file in &self.programs {
            fact("program", file.shown());
        }
        fact("in", reveal(self.cwd.as_os_str().as_encoded_bytes()));
        for (what, how) in &self.surroundings {
            fact(what, reveal(how.as_bytes()));
        }
        for variable in self.environment.iter().filter(|variable| variable.visibility == Visibility::Whole) {
            fact("variable", format!("{}={}", reveal(variable.name.as_bytes()), reveal(&variable.value)));
        }
        for credential in &self.credentials {
            fact("secret", reveal(credential.as_bytes()));
        }
        match &self.input {
            Input::Nothing => {}
            Input::Terminal => fact("input", "what is typed at the terminal".to_owned()),
            Input::Bytes { length, sha256 } => fact("input", format!("{length} bytes, sha256 {sha256}")),
        }
        for file in &self.operands {
            fact("file", file.shown());
        }
        for reason in &self.because {
            fact("because", reveal(reason.as_bytes()));
        }
        lines.join("\n")
    }

    /// The call in one line, cut where it is long.
    pub fn title(&self) -> String {
        let whole = match &self.wanted {
            Wanted::Program(argv) => argv.iter().map(|word| reveal(word)).collect::<Vec<_>>().join(" "),
            Wanted::Script { script, .. } => reveal(script),
            Wanted::Capability { name, inputs, .. } => format!("{} {}", reveal(name.as_bytes()), reveal(inputs.as_bytes())),
            Wanted::File { verb, path, .. } => format!("{verb} {}", reveal(path)),
        };
        let mut title: String = whole.chars().take(MOST_TITLE).collect();
        if title.len() < whole.len() {
            title.push('…');
        }
        title
    }
}

impl BoundFile {
    fn shown(&self) -> String {
        format!("{} ({})", reveal(self.path.as_os_str().as_encoded_bytes()), self.contents.word())
    }
}

impl Contents {
    fn word(&self) -> String {
        match self {
            Self::Sha256(sha256) => format!("sha256 {sha256}"),
            Self::Directory => "a directory, whose contents may change".to_owned(),
            Self::Special => "no plain file".to_owned(),
        }
    }
}

fn words(fact: &mut impl FnMut(&str, String), what: &str, argv: &[Vec<u8>]) {
    for (at, word) in argv.iter().enumerate() {
        fact(if at == 0 { what } else { "" }, format!("| {}", reveal(word)));
    }
}

/// Text as it is, line by line.
fn lines_of(fact: &mut impl FnMut(&str, String), what: &str, text: &[u8]) {
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        fact(if at == 0 { what } else { "" }, format!("| {}", reveal(line)));
    }
}

/// The digest of what a person is shown.
pub(super) fn shown_sha256(shown: &str) -> String {
    hex(&Sha256::digest(shown))
}

struct Frame(hmac::Context);

impl Frame {
    fn new(key: &[u8]) -> Self {
        let mut frame = Self(hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key)));
        frame.item(FORM);
        frame
    }

    fn part<Item: AsRef<[u8]>>(&mut self, name: &str, items: impl IntoIterator<Item = Item>) {
        let items: Vec<Item> = items.into_iter().collect();
        self.item(name.as_bytes());
        self.0.update(&(items.len() as u64).to_le_bytes());
        for item in &items {
            self.item(item.as_ref());
        }
    }

    fn item(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
