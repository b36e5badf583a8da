//! Sends one thing after the other: each is tried a few times, ever more slowly, and given up then. What was given up is counted and told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use stockade_http::{Metrics, Outward, Post};
use tokio::runtime::Runtime;

use super::ending::Ending;
use super::way::Way;
use crate::failure::Failure;
use crate::printer::Printer;

/// How long is waited before each try.
const PAUSES: [Duration; 4] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];
/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// People are told of what was given up no more often than this.
const QUIET: Duration = Duration::from_mins(1);

/// Sends things of one kind.
pub(super) struct Courier {
    what: Outward,
    /// Where it goes out.
    pub(super) way: Arc<Way>,
    /// When it is over.
    pub(super) ending: Arc<Ending>,
    runtime: Runtime,
    metrics: Arc<Metrics>,
    printer: Printer,
    /// What nobody was told of yet.
    untold: u64,
    last_told: Option<Instant>,
}

/// What one try came to.
enum Tried {
    Taken,
    /// It may go better next time.
    Failed(String),
    /// It will not.
    Refused(String),
}

impl Courier {
    /// One that sends things of this kind.
    pub(super) fn new(what: Outward, way: Arc<Way>, ending: Arc<Ending>, metrics: Arc<Metrics>, printer: Printer) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new("outbound", format!("starting the runtime: {error}")))?;
        Ok(Self { what, way, ending, runtime, metrics, printer, untold: 0, last_told: None })
    }

    /// Sends what is made anew for each try. Whatever comes of it, it is over then.
    pub(super) fn deliver(&mut self, make: impl Fn(&Way) -> Result<Post, String>) {
        let mut why = "the server ends".to_owned();
        for pause in PAUSES {
            self.ending.pause(pause);
            let Some(patience) = self.ending.within(PATIENCE) else { break };
            match self.attempt(&make, patience) {
                Tried::Taken => {
                    self.metrics.sent(self.what);
                    return;
                }
                Tried::Failed(reason) => why = reason,
                Tried::Refused(reason) => {
                    why = reason;
                    break;
                }
            }
        }
        self.give_up(1, &why);
    }

    /// Counts what is not sent, and says so now and then.
    pub(super) fn give_up(&mut self, count: u64, why: &str) {
        self.metrics.dropped(self.what, count);
        self.untold = self.untold.saturating_add(count);
        self.complain(why);
    }

    /// Says what is wrong, now and then.
    pub(super) fn complain(&mut self, why: &str) {
        if self.last_told.is_some_and(|last| last.elapsed() < QUIET) {
            return;
        }
        self.last_told = Some(Instant::now());
        let (count, what) = (std::mem::take(&mut self.untold), self.what.name());
        let words = if count == 0 { format!("`{what}`: {why}") } else { format!("{count} of `{what}` given up: {why}") };
        self.printer.warning(format!("outbound: {words}"));
    }

    fn attempt(&self, make: &impl Fn(&Way) -> Result<Post, String>, patience: Duration) -> Tried {
        let post = match make(&self.way) {
            Ok(post) => post,
            Err(why) => return Tried::Failed(why),
        };
        let answer = self.runtime.block_on(async {
            let stream = self.way.connect().map_err(|error| format!("egress is gone: {error}"))?;
            let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| error.to_string())?;
            post.send(stream, patience).await.map_err(|error| error.to_string())
        });
        match answer {
            Ok(status) if status.is_success() => Tried::Taken,
            Ok(status) if is_passing(status) => Tried::Failed(format!("the answer is {}", status.as_u16())),
            Ok(status) => Tried::Refused(format!("the answer is {}", status.as_u16())),
            Err(why) => Tried::Failed(why),
        }
    }
}

/// Whether a status says that it may go better later. A redirect does not: it is not followed.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
}
