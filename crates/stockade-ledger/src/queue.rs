//! Those who wait: to be written, and then for the disk. Both go on at the same time, each by one of the callers, for all who wait for it.
//!
//! ```text
//!  waiting ──▶ one caller writes: links, signs, adds, commits ──▶ written ──▶ one caller waits for the disk ──▶ answered
//! ```
//!
//! While the disk is busy the writer keeps its transaction open and takes along whoever comes. Nobody is woken who has nothing to do.
//! What is written, and how, is none of this file's business.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::error::LedgerError;
use crate::ledger::Appended;
use crate::seal::Pending;
use crate::writer::Sync;

/// The most receipts of one transaction.
const MOST_TOGETHER: usize = 256;
/// How long a transaction is kept open at most for a disk that is busy: others who write the ledger wait meanwhile.
const MOST_OPEN: Duration = Duration::from_millis(20);

/// What became of a receipt.
pub(crate) type Answer = Result<Appended, LedgerError>;

/// The callers of one open ledger.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Told to the writer that keeps its transaction open.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Ticket>>,
    written: Vec<(Arc<Ticket>, Answer)>,
    is_writing: bool,
    is_syncing: bool,
    is_gathering: bool,
    /// How many have no answer yet.
    inside: usize,
    /// How many there were when the disk answered last: about as many will come again.
    company: usize,
    /// How long the disk took last.
    disk: Duration,
}

/// A receipt on its way.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) pending: Pending,
    pub(crate) sync: Sync,
    caller: Thread,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
enum Progress {
    Waiting,
    Taken,
    Answered(Answer),
    /// The caller has its answer.
    Gone,
}

/// What a caller has to do next.
pub(crate) enum Step<'a> {
    /// Write what waits.
    Write(Turn<'a>),
    /// Wait for the disk.
    Sync(Watch<'a>),
    /// Nothing any more.
    Done(Answer),
}

impl Queue {
    /// Puts a receipt in the queue.
    pub(crate) fn enter(&self, pending: Pending, sync: Sync) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket { pending, sync, caller: std::thread::current(), progress: Mutex::new(Progress::Waiting) });
        let mut state = held(&self.state);
        state.waiting.push_back(Arc::clone(&ticket));
        state.inside += 1;
        let is_gathering = state.is_gathering;
        drop(state);
        if is_gathering {
            self.news.notify_one();
        }
        ticket
    }

    /// Waits until there is something to do for this caller.
    pub(crate) fn step(&self, ticket: &Ticket) -> Step<'_> {
        loop {
            let mut state = held(&self.state);
            let mut progress = held(&ticket.progress);
            match std::mem::replace(&mut *progress, Progress::Gone) {
                Progress::Answered(answer) => return Step::Done(answer),
                Progress::Gone => return Step::Done(Err(failed())),
                Progress::Waiting => {
                    *progress = Progress::Waiting;
                    if !state.is_writing {
                        state.is_writing = true;
                        let present = state.waiting.len();
                        return Step::Write(Turn { queue: self, taken: Vec::new(), present, is_for_disk: false });
                    }
                }
                Progress::Taken => {
                    *progress = Progress::Taken;
                    if !state.is_syncing && !state.written.is_empty() {
                        state.is_syncing = true;
                        let written = std::mem::take(&mut state.written);
                        return Step::Sync(Watch { queue: self, written, begin: Instant::now() });
                    }
                }
            }
            drop((progress, state));
            std::thread::park();
        }
    }
}

/// One's turn to write. Given up however it ends, so that nobody waits for one who panicked.
pub(crate) struct Turn<'a> {
    queue: &'a Queue,
    taken: Vec<Arc<Ticket>>,
    /// How many waited when it began.
    present: usize,
    is_for_disk: bool,
}

impl Turn<'_> {
    /// The next receipt for the transaction under way; `None` when it is time to commit.
    pub(crate) fn next(&mut self) -> Option<Arc<Ticket>> {
        let mut state = held(&self.queue.state);
        let (mut end_of_busy, mut end_of_free) = (None, None);
        loop {
            let many = self.taken.len();
            if many >= MOST_TOGETHER || (self.is_for_disk && !state.is_syncing && many >= state.company.max(1)) {
                return None;
            }
            if let Some(ticket) = state.waiting.pop_front() {
                *held(&ticket.progress) = Progress::Taken;
                self.is_for_disk |= ticket.sync == Sync::Disk;
                self.taken.push(Arc::clone(&ticket));
                return Some(ticket);
            }
            if !self.is_for_disk {
                return None;
            }
            // Those who were just answered are about to come again; it pays to take them along.
            let (end, patience) =
                if state.is_syncing { (&mut end_of_busy, MOST_OPEN) } else { (&mut end_of_free, (state.disk / 2).min(MOST_OPEN)) };
            let now = Instant::now();
            let left = end.get_or_insert(now + patience).saturating_duration_since(now);
            if left.is_zero() {
                state.company = state.inside;
                return None;
            }
            state.is_gathering = true;
            state = self.queue.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.is_gathering = false;
        }
    }

    /// Takes the answers of a transaction that was committed, in the order of [`Self::next`]: some are given at once, some wait for the disk.
    pub(crate) fn committed(&mut self, answers: Vec<Answer>) {
        let mut told = Vec::new();
        let mut state = held(&self.queue.state);
        for (ticket, answer) in self.taken.drain(..).zip(answers) {
            if ticket.sync == Sync::Disk && answer.is_ok() {
                state.written.push((ticket, answer));
            } else {
                state.inside = state.inside.saturating_sub(1);
                told.push(ticket.answer(answer));
            }
        }
        drop(state);
        told.iter().for_each(Thread::unpark);
    }

    /// Gives everybody in the batch the same error. Where it did not even begin, those who waited for it: they would each try it again, one after the
    /// other, and the last would have no answer for as many times as long.
    pub(crate) fn refused(&mut self, error: &LedgerError) {
        if self.taken.is_empty() {
            let mut state = held(&self.queue.state);
            let many = self.present.min(state.waiting.len());
            self.taken.extend(state.waiting.drain(..many));
        }
        self.give(error);
    }

    fn give(&mut self, error: &LedgerError) {
        let answers = self.taken.iter().map(|_| Err(error.clone())).collect();
        self.committed(answers);
    }

    /// Has another caller wait for the disk: this one has more to do.
    pub(crate) fn leave_disk_to_others(&self) {
        let other =
            held(&self.queue.state).written.iter().map(|(ticket, _)| &ticket.caller).find(|caller| caller.id() != current()).cloned();
        if let Some(other) = other {
            other.unpark();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Only a panic leaves any.
        self.give(&failed());
        let mut state = held(&self.queue.state);
        state.is_writing = false;
        let next = state.waiting.front().map(|ticket| ticket.caller.clone());
        // This caller may have its own answer already.
        let watch = state.written.first().filter(|_| !state.is_syncing).map(|(ticket, _)| ticket.caller.clone());
        drop(state);
        next.iter().chain(watch.iter().filter(|caller| caller.id() != current())).for_each(Thread::unpark);
    }
}

/// One's turn to wait for the disk. Given up however it ends, as a turn to write is.
pub(crate) struct Watch<'a> {
    queue: &'a Queue,
    written: Vec<(Arc<Ticket>, Answer)>,
    begin: Instant,
}

impl Watch<'_> {
    /// Answers all that were written before the disk was asked.
    pub(crate) fn synced(mut self, result: &Result<(), LedgerError>) {
        self.answer(result);
    }

    fn answer(&mut self, result: &Result<(), LedgerError>) {
        let mut state = held(&self.queue.state);
        state.is_syncing = false;
        state.disk = self.begin.elapsed();
        state.company = state.inside;
        state.inside = state.inside.saturating_sub(self.written.len());
        let next = state.written.first().map(|(ticket, _)| ticket.caller.clone());
        let is_gathering = state.is_gathering;
        drop(state);
        if is_gathering {
            self.queue.news.notify_one();
        }
        let callers: Vec<Thread> =
            self.written.drain(..).map(|(ticket, answer)| ticket.answer(result.clone().and(answer))).chain(next).collect();
        callers.iter().filter(|caller| caller.id() != current()).for_each(Thread::unpark);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // Only a panic leaves any.
        if !self.written.is_empty() {
            self.answer(&Err(failed()));
        }
    }
}

impl Ticket {
    /// Leaves the answer; returns who is to be woken for it.
    fn answer(&self, answer: Answer) -> Thread {
        *held(&self.progress) = Progress::Answered(answer);
        self.caller.clone()
    }
}

fn current() -> std::thread::ThreadId {
    std::thread::current().id()
}

/// What is said where a caller panicked that wrote for others.
fn failed() -> LedgerError {
    LedgerError::Content("the writer failed".to_owned())
}

/// A lock, whatever became of those who held it: what it guards is changed in whole steps.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::receipt::{Draft, Kind, ReceiptId};
    use crate::redact::Redactor;

    fn pending() -> Pending {
        Pending::new(&Draft::new(ReceiptId::new(), Kind::Denied), &Redactor::none()).unwrap()
    }

    /// Takes what waits, as a transaction would; the numbers are those of a counter.
    fn write(turn: &mut Turn<'_>, counter: &AtomicU64) {
        let mut answers = Vec::new();
        while turn.next().is_some() {
            answers.push(Ok(Appended { seq: counter.fetch_add(1, Ordering::SeqCst), digest: [0; 32] }));
        }
        turn.committed(answers);
    }

    #[test]
    fn what_must_be_on_the_disk_is_answered_by_the_disk_alone() {
        let (queue, counter) = (Queue::default(), AtomicU64::new(0));
        let (light, heavy) = (queue.enter(pending(), Sync::Process), queue.enter(pending(), Sync::Disk));
        let Step::Write(mut turn) = queue.step(&heavy) else { panic!("nobody writes") };
        write(&mut turn, &counter);
        drop(turn);
        assert!(matches!(queue.step(&light), Step::Done(Ok(_))));
        assert!(matches!(*held(&heavy.progress), Progress::Taken), "no answer yet");
        let Step::Sync(watch) = queue.step(&heavy) else { panic!("nobody waits for the disk") };
        watch.synced(&Err(LedgerError::Content("the disk failed".to_owned())));
        assert!(matches!(queue.step(&heavy), Step::Done(Err(_))));
        assert_eq!(held(&queue.state).inside, 0);
    }

    #[test]
    fn what_is_written_while_the_disk_is_busy_waits_for_the_next_time() {
        let (queue, counter) = (Queue::default(), AtomicU64::new(0));
        let first = queue.enter(pending(), Sync::Disk);
        let Step::Write(mut turn) = queue.step(&first) else { panic!("nobody writes") };
        write(&mut turn, &counter);
        drop(turn);
        let Step::Sync(watch) = queue.step(&first) else { panic!("nobody waits for the disk") };
        let second = queue.enter(pending(), Sync::Disk);
        let Step::Write(mut turn) = queue.step(&second) else { panic!("nobody writes") };
        write(&mut turn, &counter);
        drop(turn);
        watch.synced(&Ok(()));
        assert!(matches!(queue.step(&first), Step::Done(Ok(_))));
        assert!(matches!(*held(&second.progress), Progress::Taken), "the disk was asked before it was written");
        let Step::Sync(watch) = queue.step(&second) else { panic!("nobody waits for the disk") };
        watch.synced(&Ok(()));
        assert!(matches!(queue.step(&second), Step::Done(Ok(_))));
    }

    /// Each would otherwise wait as long as the one before, and those who came first for ever.
    #[test]
    fn where_nothing_could_begin_all_who_waited_are_answered() {
        let queue = Queue::default();
        let tickets = [(); 3].map(|()| queue.enter(pending(), Sync::Disk));
        let Step::Write(mut turn) = queue.step(&tickets[1]) else { panic!("nobody writes") };
        let late = queue.enter(pending(), Sync::Disk);
        turn.refused(&LedgerError::Content("it is held".to_owned()));
        drop(turn);
        for ticket in &tickets {
            assert!(matches!(queue.step(ticket), Step::Done(Err(_))));
        }
        assert!(matches!(queue.step(&late), Step::Write(_)), "one who came later may find it free");
        assert_eq!(held(&queue.state).inside, 1);
    }

    #[test]
    fn one_who_panics_holds_nobody_up() {
        let queue = Queue::default();
        let (first, second) = (queue.enter(pending(), Sync::Disk), queue.enter(pending(), Sync::Disk));
        let Step::Write(mut turn) = queue.step(&first) else { panic!("nobody writes") };
        assert!(turn.next().is_some());
        drop(turn);
        assert!(matches!(queue.step(&first), Step::Done(Err(_))));
        let Step::Write(mut turn) = queue.step(&second) else { panic!("nobody writes") };
        write(&mut turn, &AtomicU64::new(0));
        drop(turn);
        let Step::Sync(watch) = queue.step(&second) else { panic!("nobody waits for the disk") };
        drop(watch);
        assert!(matches!(queue.step(&second), Step::Done(Err(_))));
        assert!(!held(&queue.state).is_syncing && !held(&queue.state).is_writing);
    }

    #[test]
    fn everybody_is_answered_once_whatever_they_wait_for() {
        const CALLERS: u64 = 12;
        const EACH: u64 = 300;
        let (queue, counter, seen) = (Queue::default(), AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (queue, counter, seen) = (&queue, &counter, &seen);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let sync = if (caller + number) % 3 == 0 { Sync::Process } else { Sync::Disk };
                        let ticket = queue.enter(pending(), sync);
                        let answer = loop {
                            match queue.step(&ticket) {
                                Step::Write(mut turn) => write(&mut turn, counter),
                                Step::Sync(watch) => {
                                    std::thread::sleep(Duration::from_micros(number % 50));
                                    watch.synced(&Ok(()));
                                }
                                Step::Done(answer) => break answer,
                            }
                        };
                        held(seen).push(answer.unwrap().seq);
                    }
                });
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..CALLERS * EACH).collect::<Vec<_>>());
        let state = held(&queue.state);
        assert!(state.inside == 0 && state.written.is_empty() && state.waiting.is_empty());
    }
}
