//! A question whose answer is still to come: awaited by a task of any runtime, or by a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::ClientError;
use crate::shared::lock;
use crate::talk::message::Reply;

/// Where an answer arrives.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<Reply, ClientError>>,
    waker: Option<Waker>,
}

impl Waiting {
    /// Puts the answer there.
    pub(super) fn answer(&self, answer: Result<Reply, ClientError>) {
        let waker = {
            let mut state = lock(&self.state);
            state.answer = Some(answer);
            state.waker.take()
        };
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Blocks until it is there.
    pub(super) fn wait(&self) -> Result<Reply, ClientError> {
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Resolves to the answer.
#[derive(Debug)]
pub(super) struct Arrival(pub(super) Arc<Waiting>);

impl Future for Arrival {
    type Output = Result<Reply, ClientError>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0.state);
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(answer);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
