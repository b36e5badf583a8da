//! Calls that wait for a person, so that they can run when one says yes. In memory alone: after a restart nothing is left to be run, and the agent
//! has to call again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stockade_gateway::approvals::{MOST_PENDING, RequestId};

use super::tools::Order;
use crate::engine::asker::Asker;

/// The calls of all agents of a server; each is at most as long as what a person can be shown.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<VecDeque<(RequestId, Asker, Order)>>);

impl Held {
    /// Keeps a call until its request is decided. Of more than can wait, the oldest are forgotten: they can be repeated.
    pub(super) fn keep(&self, id: RequestId, asker: &Asker, order: Order) {
        let mut calls = self.calls();
        calls.retain(|(known, _, _)| *known != id);
        while calls.len() >= usize::try_from(MOST_PENDING).unwrap_or(usize::MAX) {
            calls.pop_front();
        }
        calls.push_back((id, asker.clone(), order));
    }

    /// Takes a call of this agent out: nobody else gets it.
    pub(super) fn take(&self, id: &RequestId, asker: &Asker) -> Option<Order> {
        let mut calls = self.calls();
        let at = calls.iter().position(|(known, owner, _)| known == id && owner == asker)?;
        calls.remove(at).map(|(_, _, order)| order)
    }

    /// A thread that failed while it had the lock left whole values.
    fn calls(&self) -> MutexGuard<'_, VecDeque<(RequestId, Asker, Order)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::asker::AgentName;

    #[test]
    fn a_call_is_its_agents_and_is_taken_once() {
        let held = Held::default();
        let agent = |name: &str| Asker::Agent(AgentName::new(name, "main"));
        let id = |number: i64| RequestId::parse(&format!("{number:012x}")).unwrap();
        held.keep(id(0), &agent("a"), Order::Status);
        held.keep(id(0), &agent("a"), Order::Status);
        assert_eq!(held.take(&id(0), &agent("b")), None);
        assert_eq!((held.take(&id(0), &agent("a")), held.take(&id(0), &agent("a"))), (Some(Order::Status), None));
        for number in 0..=MOST_PENDING {
            held.keep(id(number), &agent("a"), Order::Status);
        }
        assert_eq!((held.take(&id(0), &agent("a")), held.take(&id(1), &agent("a"))), (None, Some(Order::Status)));
    }
}
