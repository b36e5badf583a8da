//! A queue with an end: who puts something in never waits, and what does not fit is counted.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Things that wait to be sent.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    most: usize,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    waiting: VecDeque<T>,
    dropped: u64,
}

impl<T> Queue<T> {
    /// An empty one that holds so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, inner: Mutex::new(Inner { waiting: VecDeque::new(), dropped: 0 }) }
    }

    /// Puts one in, where there is room.
    pub(crate) fn push(&self, one: T) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.waiting.len() < self.most {
            inner.waiting.push_back(one);
        } else {
            inner.dropped = inner.dropped.saturating_add(1);
        }
    }

    /// Takes out the first so many.
    pub(super) fn take(&self, most: usize) -> Vec<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let most = most.min(inner.waiting.len());
        inner.waiting.drain(..most).collect()
    }

    /// How many did not fit since this was asked last.
    pub(super) fn dropped(&self) -> u64 {
        std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let queue = Queue::new(3);
        (0..5).for_each(|one| queue.push(one));
        assert_eq!((queue.take(2), queue.dropped(), queue.dropped()), (vec![0, 1], 2, 0));
        queue.push(9);
        assert_eq!((queue.take(9), queue.take(9)), (vec![2, 9], vec![]));
    }
}
