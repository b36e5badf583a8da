//! Processes that write at the same time: each has its turn.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::fs::FlockOperation;
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Durability, Ledger, Options, Weight};

use crate::killing::{given_directory, inner_half};
use crate::support::{intent, open, outcome, verified};

/// The file that whoever writes has locked.
const HOLD: &str = "turn";
/// More than anybody waits here, on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(20);

/// One that writes calls until it is killed, and says so after each.
struct Writer {
    process: Child,
    calls: Receiver<()>,
}

impl Writer {
    fn start(directory: &Path) -> Self {
        let words = ["--ignored", "--exact", "line::writes_without_a_pause"];
        let mut process = inner_half(words, directory).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (tell, calls) = channel();
        std::thread::spawn(move || lines.filter(|line| line == "wrote").try_for_each(|_| tell.send(())));
        Self { process, calls }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn while_another_process_has_its_turn_nobody_writes_and_afterwards_everybody_does() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    let hold = std::fs::File::open(root.path().join(HOLD)).unwrap();
    rustix::fs::flock(&hold, FlockOperation::LockExclusive).unwrap();
    let writers = [Writer::start(root.path()), Writer::start(root.path())];
    for writer in &writers {
        assert_eq!(writer.calls.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    }
    // Whoever reads does not wait.
    assert_eq!(verified(root.path()), 0);
    rustix::fs::flock(&hold, FlockOperation::Unlock).unwrap();
    for _ in 0..20 {
        for writer in &writers {
            writer.calls.recv_timeout(LONG).expect("each writes on");
        }
    }
    drop(writers);
    drop(open(root.path()));
    verified(root.path());
}

/// As a daemon with many callers does: the next transaction begins when the last one ends.
#[test]
#[ignore = "started by another test, which kills it"]
fn writes_without_a_pause() {
    let options = Options { durability: Durability::Always, ..Options::default() };
    let ledger = Ledger::open(&given_directory(), options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0.. {
                    let begun = intent(number);
                    ledger.append(&begun, Weight::Effect, &Redactor::none()).unwrap();
                    ledger.append(&outcome(&begun, number), Weight::Effect, &Redactor::none()).unwrap();
                    // The harness buffers its own output; answers go out at once.
                    let mut out = std::io::stdout();
                    writeln!(out, "\nwrote").unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}
