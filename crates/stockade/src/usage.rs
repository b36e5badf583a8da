//! What happens when the command line asks for help or makes no sense.
//!
//! Help and version go to stdout with code 0. Anything else is a failure of the step `arguments` with code 125, because a
//! caller must be able to tell a bad flag from a program that itself ended with clap's usual 2.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use stockade_core::escape::escape;

use crate::cli::{Cli, ColorWish, OutputFlags};
use crate::context::Environment;
use crate::failure::{Failure, FailureKind};
use crate::printer::Printer;

/// Prints what clap has to say and gives the exit code.
pub(crate) fn answer(error: &clap::Error, argv: &[OsString], environment: &Environment) -> ExitCode {
    let printer = Printer::new(early_flags(argv), environment);
    let page = || error.render().ansi().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match printer.page(&page()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(&printer),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !printer.is_json() => {
            printer.page_aside(&page());
            ExitCode::from(FailureKind::Broken.code())
        }
        _ => failure_of(error, argv).report(&printer),
    }
}

/// Tells the caller about a panic, in the form that the command line asked for; the hook has told stderr the details.
pub(crate) fn answer_panic(argv: &[OsString], environment: &Environment) -> ExitCode {
    let failure =
        Failure::new("stockade", "stopped because of a bug in stockade itself").with_hint("please report it with the message above");
    failure.report(&Printer::new(early_flags(argv), environment))
}

/// The output flags of a command line that was not parsed, or could not be: what is before `--` and looks like one.
pub(crate) fn early_flags(argv: &[OsString]) -> OutputFlags {
    let before: Vec<&OsStr> = argv.iter().skip(1).map(OsString::as_os_str).take_while(|word| *word != "--").collect();
    let color = before.iter().enumerate().find_map(|(index, word)| match word.to_str()?.strip_prefix("--color")? {
        "" => before.get(index + 1)?.to_str(),
        rest => rest.strip_prefix('='),
    });
    let color = match color {
        Some("always") => ColorWish::Always,
        Some("never") => ColorWish::Never,
        Some(_) | None => ColorWish::Auto,
    };
    OutputFlags { json: before.iter().any(|word| *word == "--json"), quiet: false, verbose: false, color }
}

/// clap's words, cut into message and hint. They repeat what was written, so they are escaped.
fn failure_of(error: &clap::Error, argv: &[OsString]) -> Failure {
    let rendered = error.render().to_string();
    let command = command_of(argv);
    if let Some(failure) = without_values(error, &command) {
        return failure;
    }
    let tip = rendered.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    // clap proposes `-- --flag` for every unknown flag, which would hand it to the program.
    let tip = tip.filter(|tip| !tip.starts_with("to pass "));
    let hint = match (missing_program(error, &command), tip) {
        (Some(hint), _) => hint,
        (None, Some(tip)) => format!("{tip}; see `{command} --help`"),
        (None, None) => format!("see `{command} --help`"),
    };
    Failure::new("arguments", escape(&message_of(error, &rendered))).with_hint(escape(&hint))
}

/// What was written where a secret is named is not repeated: it may be the secret itself.
fn without_values(error: &clap::Error, command: &str) -> Option<Failure> {
    let about = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(about)) => about.as_str(),
        _ => "",
    };
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::TooManyValues | ErrorKind::InvalidUtf8 if command == "stockade secret set" => {
            let hint =
                "the value is read from standard input, so that no list of processes shows it: gh auth token | stockade secret set NAME";
            Some(Failure::new("arguments", "`stockade secret set` takes the name of a secret and no other argument").with_hint(hint))
        }
        ErrorKind::ValueValidation if about.starts_with("--secret ") => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let failure = Failure::new("arguments", format!("invalid value for `--secret`: {}", escape(&why)));
            Some(failure.with_hint(format!("see `{command} --help`")))
        }
        _ => None,
    }
}

fn message_of(error: &clap::Error, rendered: &str) -> String {
    if matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return "a command is missing".to_owned();
    }
    let paragraph: Vec<&str> = rendered.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = paragraph.join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// The command that was being parsed: as many words of the command line as name one.
fn command_of(argv: &[OsString]) -> String {
    let root = Cli::command();
    let mut command = &root;
    let mut path = String::from("stockade");
    for word in argv.iter().skip(1).take_while(|word| *word != "--") {
        if let Some(verb) = command.find_subcommand(word) {
            path.push(' ');
            path.push_str(verb.get_name());
            command = verb;
        }
    }
    path
}

/// People write `stockade run ls`; say where the `--` goes.
fn missing_program(error: &clap::Error, command: &str) -> Option<String> {
    let example = match command {
        "stockade run" => "stockade run --",
        "stockade sandbox exec" => "stockade sandbox exec SANDBOX --",
        _ => return None,
    };
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if !word.starts_with('-') => {
            Some(format!("put `--` before the program: {example} {word} ..."))
        }
        (ErrorKind::MissingRequiredArgument, _) => Some(format!("say what to run: {example} PROGRAM ARGS...")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn check(line: &str, message: &str, hint: &str) {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let failure = failure_of(&Cli::try_parse_from(&argv).unwrap_err(), &argv);
        assert_eq!(failure, Failure::new("arguments", message).with_hint(hint), "{line}");
    }

    #[test]
    fn messages_and_hints() {
        check("stockade run --frob -- x", "unexpected argument '--frob' found", "see `stockade run --help`");
        check(
            "stockade run --shel x",
            "unexpected argument '--shel' found",
            "a similar argument exists: '--shell'; see `stockade run --help`",
        );
        check(
            "stockade sandbox lst",
            "unrecognized subcommand 'lst'",
            "a similar subcommand exists: 'list'; see `stockade sandbox --help`",
        );
        check("stockade --json", "a command is missing", "see `stockade --help`");
        check("stockade config", "a command is missing", "see `stockade config --help`");
        check(
            "stockade sandbox use x\u{202e}",
            "invalid value 'x\\u{202e}' for '<BACKEND>' [possible values: auto, jail, docker, gvisor, microvm, shuru, e2b, kubernetes, local]",
            "see `stockade sandbox use --help`",
        );
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        for line in [
            "stockade secret set A hunter2",
            "stockade secret set A --hunter2",
            "stockade run --secret hunter2 -- x",
            "stockade run --secret A=hunter2@x -- x",
        ] {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let failure = failure_of(&Cli::try_parse_from(&argv).unwrap_err(), &argv);
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        }
    }

    #[test]
    fn a_forgotten_program_or_dashes() {
        check("stockade run ls -la", "unexpected argument 'ls' found", "put `--` before the program: stockade run -- ls ...");
        let missing = "the following required arguments were not provided: <PROGRAM|--shell <SCRIPT>>";
        check("stockade run", missing, "say what to run: stockade run -- PROGRAM ARGS...");
        check("stockade run --json --", missing, "say what to run: stockade run -- PROGRAM ARGS...");
        let exec = "put `--` before the program: stockade sandbox exec SANDBOX -- ls ...";
        check("stockade sandbox exec box ls", "unexpected argument 'ls' found", exec);
    }

    #[test]
    fn early_flags_stop_at_the_dashes() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let flags = early_flags(&words("stockade run --bad --json --color never -- --color=always"));
        assert_eq!((flags.json, flags.color), (true, ColorWish::Never));
        let flags = early_flags(&words("stockade run --bad -- --json --color=always"));
        assert_eq!((flags.json, flags.color), (false, ColorWish::Auto));
    }
}
