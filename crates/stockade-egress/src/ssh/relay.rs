//! Bytes between a program inside and a command at a host, counted, bounded and held back by whoever is slower.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client};
use stockade_core::escape::escape;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::frame::{self, Heard, Said};
use super::session::Session;
use crate::record::Record;
use crate::sandbox::Sandbox;
use crate::secrets::binding::Bound;

/// The number of what a command writes to its standard error.
const STDERR: u32 = 1;
/// What shells say of a program that a signal ended.
const BY_SIGNAL: u32 = 128;
/// How long a last word may take to be taken in.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Passes bytes until the command, the program or the sandbox ends.
pub(super) async fn relay<S>(sandbox: &Sandbox, bound: &Bound, record: &Record, session: Session, inside: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_inside, mut to_inside) = tokio::io::split(inside);
    let ((mut from_host, to_host), kept) = session.split();
    let last = Last::default();
    let ended = tokio::select! {
        ended = to_host_until_gone(sandbox, bound, record, &mut from_inside, &to_host, &last) => ended,
        ended = to_inside_until_done(record, &mut from_host, &mut to_inside, &last) => ended,
        () = last.idle(sandbox.rules.limits.idle) => End::Broken("nothing was said for too long".to_owned()),
        () = sandbox.closed() => End::Gone,
    };
    // The host is let go first: whoever inside is slow to hear the end does not hold it.
    drop((kept, from_host, to_host));
    let word = async {
        match &ended {
            End::Exit(code) => frame::write(&mut to_inside, Heard::Exit, &code.to_be_bytes()).await?,
            End::Broken(why) => {
                record.note(why.as_str());
                frame::write(&mut to_inside, Heard::Broken, why.as_bytes()).await?;
            }
            End::Gone => {}
        }
        to_inside.shutdown().await
    };
    // What the command said before its end may still wait to be read, and that is not broken off.
    let patience = if matches!(ended, End::Exit(_)) { sandbox.rules.limits.idle } else { LAST_WORD };
    tokio::select! {
        _ = tokio::time::timeout(patience, word) => {}
        () = sandbox.closed() => {}
    }
}

/// How it ended.
enum End {
    /// The command did, with this code.
    Exit(u32),
    /// Somebody broke it off.
    Broken(String),
    /// The program inside did, or the sandbox.
    Gone,
}

/// Never ends while the program is there: what it says after a command ended is nobody's.
async fn to_host_until_gone(
    sandbox: &Sandbox,
    bound: &Bound,
    record: &Record,
    inside: &mut (impl AsyncRead + Unpin),
    host: &ChannelWriteHalf<client::Msg>,
    last: &Last,
) -> End {
    let mut listens = true;
    loop {
        let Ok(said) = frame::read(inside).await else { return End::Gone };
        last.now();
        if !listens {
            continue;
        }
        let passed = match said {
            Said::End => host.eof().await,
            Said::Input(bytes) => {
                let count = bytes.len() as u64;
                let counted = sandbox.count_sent(count).and_then(|()| bound.count_bytes(count));
                if let Err(refusal) = counted {
                    record.refuse(&refusal);
                    return End::Broken(refusal.to_string());
                }
                record.add_sent(count);
                host.data_bytes(bytes).await
            }
        };
        last.now();
        listens = passed.is_ok();
    }
}

async fn to_inside_until_done(record: &Record, host: &mut ChannelReadHalf, inside: &mut (impl AsyncWrite + Unpin), last: &Last) -> End {
    let mut code = None;
    loop {
        let message = host.wait().await;
        last.now();
        let (kind, bytes) = match message {
            Some(ChannelMsg::Data { data }) => (Heard::Output, data),
            Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => (Heard::Errors, data),
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                code = Some(exit_status);
                continue;
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                record.note(format!("the command at the host was ended by {}", escape(&format!("{signal_name:?}"))));
                code = Some(BY_SIGNAL);
                continue;
            }
            Some(ChannelMsg::Close) | None => break,
            Some(_) => continue,
        };
        record.add_received(bytes.len() as u64);
        if frame::write(inside, kind, &bytes).await.is_err() {
            return End::Gone;
        }
        last.now();
    }
    code.map_or_else(|| End::Broken("the host ended the session without an end of the command".to_owned()), End::Exit)
}

/// When something was last said.
struct Last(Mutex<Instant>);

impl Default for Last {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Last {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    /// Waits until nothing was said for so long.
    async fn idle(&self, most: Duration) {
        loop {
            let since = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).elapsed();
            match most.checked_sub(since) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                Some(_) | None => return,
            }
        }
    }
}
