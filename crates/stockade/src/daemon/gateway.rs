//! One visitor: reads what is asked for, does it by the engine, and answers. A visitor that goes takes its program with it.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stockade_sandbox::drive::Ending;
use stockade_sandbox::letter;
use stockade_sandbox::signals::{Sender, Signals};
use stockade_store::places::Places;

use super::Standing;
use super::proof::{self, Earlier};
use super::protocol::{Answer, Ask, Signalled, VERSION, What};
use super::warm::{self, Guess};
use crate::assemble::{self, Assembled};
use crate::cli::{Cli, RunArgs, Verb};
use crate::commands::run::{self, Told};
use crate::context::{Context, Environment};
use crate::engine::{self, Asks, Call, Came, End, Subject};
use crate::receipts::Capture;
use crate::visitor::Visitor;

/// How long a visitor may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the receipt of a run says that did not end by itself.
const CUT: &str = "cancelled: the daemon was told to end, and everything in the sandbox was killed";

/// How a visitor's program ends before its time.
pub(super) struct Stopping<'a> {
    /// Sends it signals.
    pub(super) stop: &'a Arc<Sender>,
    /// Where they arrive.
    pub(super) signals: &'a Signals,
    /// Whether the daemon's own end is why.
    pub(super) cut: &'a AtomicBool,
}

/// Does what one visitor asks for.
pub(super) fn attend(stream: &UnixStream, places: &Places, standing: &Arc<Standing>, stopping: &Stopping<'_>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some((ask, streams)) = letter::receive::<Ask>(stream)? else { return Ok(()) };
    stream.set_read_timeout(None)?;
    if ask.version != VERSION {
        let why = format!("the daemon is {VERSION}; start it anew");
        return letter::send(stream, &Answer::Yourself { why }, &[]);
    }
    match ask.what {
        What::Prove => letter::send(stream, &Answer::Proved { tried: proof::attempts(places, &Earlier::default()) }, &[]),
        What::Run { words, directory, variables } => {
            let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(streams) else {
                return letter::send(stream, &Answer::Yourself { why: "three streams belong to a run".to_owned() }, &[]);
            };
            let visitor = Arc::new(Visitor::new(stdin, stdout, stderr));
            let guess = Guess::at(&(&words, &directory, &variables), Some(standing));
            let environment = Environment::of_visitor(variables, directory);
            let watcher = watch(stream, stopping.stop)?;
            let (answer, told) = match Cli::read(&words) {
                Ok(Cli { verb: Verb::Run(args), output }) => {
                    let context = Context::of_visitor(output, environment, Arc::clone(&visitor), Arc::clone(standing));
                    do_run(&args, places, stopping, guess, &context, &visitor)
                }
                Ok(_) | Err(_) => (yourself("this is no run"), None),
            };
            let answered = letter::send(stream, &answer, &[]);
            // The visitor has its answer; the rest is cleared away meanwhile.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = watcher.join();
            if let Some(Told { remains, book, .. }) = told {
                // What fails is found by the next sweep.
                let _ = remains.map(stockade_sandbox::once::Remains::clear);
                book.close().tidy();
            }
            answered
        }
    }
}

fn yourself(why: &str) -> Answer {
    Answer::Yourself { why: why.to_owned() }
}

/// Passes signals on, and kills what runs when the visitor goes.
fn watch(stream: &UnixStream, stop: &Arc<Sender>) -> std::io::Result<std::thread::JoinHandle<()>> {
    let (stream, stop) = (stream.try_clone()?, Arc::clone(stop));
    std::thread::Builder::new().name("stockade-visitor".into()).spawn(move || {
        while let Ok(Some((Signalled { signal }, _))) = letter::receive::<Signalled>(&stream) {
            if run::SIGNALS.contains(&signal) {
                stop.send(signal);
            }
        }
        stop.send(libc::SIGKILL);
    })
}

/// Runs it, or finds that the visitor has to.
fn do_run(
    args: &RunArgs,
    places: &Places,
    stopping: &Stopping<'_>,
    guess: Guess,
    context: &Context,
    visitor: &Visitor,
) -> (Answer, Option<Told>) {
    if context.places().ok() != Some(places) {
        return (yourself("the daemon has other places"), None);
    }
    if args.sandbox.env.iter().any(|variable| variable.value.is_none()) {
        return (yourself("a variable is to be passed on by its name"), None);
    }
    // What cannot be put together is told by whoever asked, in the same words.
    let Ok(assembled) = assemble::assemble(&args.sandbox, context) else { return (yourself("it cannot be put together"), None) };
    if let Some(why) = unfit(&assembled, args) {
        return (yourself(why), None);
    }
    let subject = args.shell.as_ref().map_or(Subject::Program(&args.program), Subject::Script);
    let call = Call { assembled, subject, refused: None, capture: Capture::of(context), asks: Asks::Elsewhere };
    let declined = Cell::new(None);
    let came = engine::invoke_in(
        call,
        context,
        |assembled| {
            let ground = warm::take(assembled, guess, context).inspect_err(|failure| declined.set(Some(failure.message.clone())))?;
            visitor.release();
            context.printer.detail("the daemon has a sandbox ready");
            Ok(Some(ground))
        },
        |assembled, perform| {
            let (mut done, remains) = run::in_streams(&assembled.spec, context, |streams| perform(streams, Some(stopping.signals)))?;
            if done.outcome.ending == Ending::Signal(libc::SIGKILL) && stopping.cut.load(Ordering::SeqCst) {
                done.violations.push(CUT.to_owned());
            }
            Ok((done, remains))
        },
    );
    if let Some(why) = declined.take() {
        return (Answer::Yourself { why }, None);
    }
    if let Ok(Came { end: End::Elsewhere, .. }) = &came {
        return (yourself("a person must be asked"), None);
    }
    visitor.release();
    match came.and_then(|came| run::tell(came, context)) {
        Ok(told) => (Answer::Done { code: told.code }, Some(told)),
        Err(failure) => {
            context.printer.failure(&failure);
            (Answer::Done { code: failure.kind.code() }, None)
        }
    }
}

/// Why a run cannot be served here.
fn unfit(assembled: &Assembled, args: &RunArgs) -> Option<&'static str> {
    if args.shell.is_none() && args.program.first().is_none_or(|program| program.is_empty()) {
        return Some("the program's name is empty");
    }
    if assembled.keeping.is_witnessed() {
        return Some("its receipts are witnessed");
    }
    warm::unfit(assembled)
}
