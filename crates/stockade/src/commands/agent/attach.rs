//! `agent attach`: our terminal joined to that of an agent in the background, until the agent ends or the key is pressed.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use stockade_sandbox::drive::size_of_terminal;
use stockade_sandbox::hold;
use stockade_sandbox::signals::Signals;

use super::running;
use crate::Context;
use crate::agent::attendant::{Word, socket_path};
use crate::agent::roll::Roll;
use crate::cli::{LogsArgs, OneAgent};
use crate::failure::Failure;
use crate::terminal::RawTerminal;

/// Ctrl-]: lets go.
const LET_GO: u8 = 0x1d;

pub(super) fn attach(args: &OneAgent, context: &Context) -> Result<ExitCode, Failure> {
    let entry = Roll::open(context)?.find(args.agent.as_str())?;
    if !entry.is_running() {
        return Err(
            Failure::new("attach", format!("agent `{}` does not run", args.agent)).with_hint(format!("stockade agent logs {}", args.agent))
        );
    }
    let socket = socket_path(&context.places()?.runtime, &entry.agent.id);
    if !socket.exists() {
        // It has no terminal; looking on is all there is.
        return running::logs(&LogsArgs { agent: args.agent.clone(), follow: true }, context);
    }
    let stdin = std::io::stdin();
    if !rustix::termios::isatty(stdin.as_fd()) {
        return Err(
            Failure::new("attach", "standard input is no terminal").with_hint(format!("stockade agent logs --follow {}", args.agent))
        );
    }
    let failed = |error: std::io::Error| Failure::new("attach", error.to_string());
    let stream = hold::dial(&socket).map(UnixStream::from).map_err(failed)?;
    let signals = Signals::catch(&[libc::SIGWINCH, libc::SIGTERM, libc::SIGHUP]).map_err(|e| Failure::new("signals", e.to_string()))?;
    context.printer.note("attached; Ctrl-] lets go");
    let raw = RawTerminal::enter(stdin.as_fd())?;
    let ended = join(&stream, &signals).map_err(failed);
    drop(raw);
    match ended? {
        Ended::LetGo => context.printer.note(format!("let go; it runs on: stockade agent attach {}", args.agent)),
        Ended::Agent => context.printer.note("the agent has ended, or let go of you"),
    }
    Ok(ExitCode::SUCCESS)
}

enum Ended {
    LetGo,
    Agent,
}

/// Moves bytes both ways.
fn join(mut stream: &UnixStream, signals: &Signals) -> std::io::Result<Ended> {
    let (mut stdin, mut stdout) = (std::io::stdin(), std::io::stdout());
    let size = || {
        let (rows, columns) = size_of_terminal(rustix::stdio::stdin());
        Word::Size(rows, columns).bytes()
    };
    stream.write_all(&size())?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let terminal = rustix::stdio::stdin();
        let mut all = [
            PollFd::new(stream, PollFlags::IN),
            PollFd::from_borrowed_fd(terminal, PollFlags::IN),
            PollFd::new(signals.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [printed, typed, signalled] = all.each_ref().map(|fd| !fd.revents().is_empty());
        if printed {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(Ended::Agent);
            }
            stdout.write_all(buffer.get(..count).unwrap_or_default())?;
            stdout.flush()?;
        }
        if typed {
            let count = stdin.read(&mut buffer)?;
            let keys = buffer.get(..count).unwrap_or_default();
            let before: Vec<u8> = keys.iter().copied().take_while(|key| *key != LET_GO).collect();
            if !before.is_empty() {
                stream.write_all(&Word::Data(before.clone()).bytes())?;
            }
            if count == 0 || before.len() < count {
                return Ok(Ended::LetGo);
            }
        }
        if signalled {
            while let Some(signal) = signals.next() {
                if signal != libc::SIGWINCH {
                    return Ok(Ended::LetGo);
                }
                stream.write_all(&size())?;
            }
        }
    }
}
