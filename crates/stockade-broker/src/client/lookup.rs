//! What egress asks: the current value of a secret of a sandbox. Needs no runtime; its futures may be awaited in any.
//!
//! Values whose uses are not counted are kept until they are no longer fresh, so that a kept-alive connection costs the broker one question a
//! minute. A value is never handed out after its end, and nothing is kept of a sandbox that was forgotten.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use super::owner::unfit;
use super::waiting::{Arrival, Waiting};
use super::{ClientError, introduce};
use crate::broker::{Keep, Pass, SandboxLabel};
use crate::budget::Bytes;
use crate::shared::lock;
use crate::talk::frame;
use crate::talk::message::{Ask, Reply, Role};
use crate::{SecretName, SecretValue};

/// How many values are kept; beyond that all are forgotten and asked for again.
const MAX_HELD: usize = 4096;

/// A value and for how long it is good.
#[derive(Debug, Clone)]
pub struct Held {
    /// The value.
    pub value: Arc<SecretValue>,
    /// After this it is worthless.
    pub expires: Option<SystemTime>,
    /// Whether bytes that are sent with it must be told; [`Lookup::spend`] asks the broker only then.
    pub bytes: Bytes,
    fresh_until: SystemTime,
}

/// A connection as egress. Cheap to share; dropped, it closes.
#[derive(Debug)]
pub struct Lookup {
    shared: Arc<Shared>,
    /// Kept apart so that dropping it wakes the reader.
    stream: UnixStream,
}

#[derive(Debug)]
struct Shared {
    writer: Mutex<UnixStream>,
    questions: Mutex<Questions>,
    held: RwLock<HashMap<SandboxLabel, HashMap<SecretName, Held>>>,
}

#[derive(Debug, Default)]
struct Questions {
    next: u32,
    open: HashMap<u32, Arc<Waiting>>,
    /// Set once the broker is gone.
    over: Option<ClientError>,
}

impl Lookup {
    /// Begins the conversation; blocks for the welcome. Answers are read in a thread of its own.
    ///
    /// Over a socket that others can reach, `pass` says for which sandbox.
    pub fn connect(stream: UnixStream, pass: Option<Pass>) -> Result<Self, ClientError> {
        let gone = |error: std::io::Error| ClientError::Gone(error.to_string());
        let mut stream = stream;
        introduce(&mut stream, Role::Egress { pass })?;
        let (mut reader, writer) = (stream.try_clone().map_err(gone)?, stream.try_clone().map_err(gone)?);
        let shared = Arc::new(Shared { writer: Mutex::new(writer), questions: Mutex::default(), held: RwLock::default() });
        let for_reader = Arc::clone(&shared);
        let read = move || for_reader.end(&for_reader.read(&mut reader));
        std::thread::Builder::new().name("secrets".to_owned()).spawn(read).map_err(gone)?;
        Ok(Self { shared, stream })
    }

    /// The value of a sandbox's secret, for one request.
    pub async fn value(&self, sandbox: &SandboxLabel, name: &SecretName) -> Result<Arc<SecretValue>, ClientError> {
        self.held(sandbox, name).await.map(|held| held.value)
    }

    /// As [`Self::value`], with its end.
    pub async fn held(&self, sandbox: &SandboxLabel, name: &SecretName) -> Result<Held, ClientError> {
        if let Some(held) = self.shared.at_hand(sandbox, name, SystemTime::now()) {
            return Ok(held);
        }
        let question = self.shared.ask(|id| Ask::Value { id, sandbox: sandbox.clone(), name: name.clone() })?;
        let reply = Arrival(Arc::clone(&question.waiting)).await?;
        self.shared.take(sandbox, name, reply)
    }

    /// As [`Self::value`], blocking.
    pub fn value_blocking(&self, sandbox: &SandboxLabel, name: &SecretName) -> Result<Arc<SecretValue>, ClientError> {
        if let Some(held) = self.shared.at_hand(sandbox, name, SystemTime::now()) {
            return Ok(held.value);
        }
        let question = self.shared.ask(|id| Ask::Value { id, sandbox: sandbox.clone(), name: name.clone() })?;
        let reply = question.waiting.wait()?;
        self.shared.take(sandbox, name, reply).map(|held| held.value)
    }

    /// Tells how many bytes were sent with a secret. Fails when that was the last: the next request must not have it. Costs nothing where
    /// bytes have no limit and the value is at hand.
    pub async fn spend(&self, sandbox: &SandboxLabel, name: &SecretName, bytes: u64) -> Result<(), ClientError> {
        if self.shared.at_hand(sandbox, name, SystemTime::now()).is_some_and(|held| held.bytes == Bytes::Free) {
            return Ok(());
        }
        let question = self.shared.ask(|id| Ask::Spend { id, sandbox: sandbox.clone(), name: name.clone(), bytes })?;
        match Arrival(Arc::clone(&question.waiting)).await? {
            Reply::Done { .. } => Ok(()),
            other => {
                self.shared.drop_value(sandbox, name);
                Err(unfit(other))
            }
        }
    }

    /// Forgets what is kept of a sandbox that has ended.
    pub fn forget(&self, sandbox: &SandboxLabel) {
        self.shared.held.write().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A question that was asked; its place is given up when nobody waits any more.
struct Question<'a> {
    shared: &'a Shared,
    id: u32,
    waiting: Arc<Waiting>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        lock(&self.shared.questions).open.remove(&self.id);
    }
}

impl Shared {
    fn ask(&self, question: impl FnOnce(u32) -> Ask) -> Result<Question<'_>, ClientError> {
        let waiting = Arc::new(Waiting::default());
        let id = {
            let mut questions = lock(&self.questions);
            if let Some(over) = &questions.over {
                return Err(over.clone());
            }
            questions.next = questions.next.wrapping_add(1);
            let id = questions.next;
            questions.open.insert(id, Arc::clone(&waiting));
            id
        };
        let asked = Question { shared: self, id, waiting };
        // Questions are small, and the broker always reads: this does not block a runtime.
        frame::write(&mut *lock(&self.writer), &question(id).encode())?;
        Ok(asked)
    }

    fn read(&self, reader: &mut UnixStream) -> ClientError {
        loop {
            let reply = match frame::read(reader) {
                Ok(Some(body)) => Reply::decode(&body),
                Ok(None) => return ClientError::Gone("it closed the connection".to_owned()),
                Err(error) => Err(error),
            };
            match reply {
                Err(error) => return error.into(),
                Ok(reply) => match reply.id().map(|id| lock(&self.questions).open.remove(&id)) {
                    None => return ClientError::Unfit,
                    // Nobody waits any more; the value is wiped here.
                    Some(None) => {}
                    Some(Some(waiting)) => waiting.answer(Ok(reply)),
                },
            }
        }
    }

    fn end(&self, why: &ClientError) {
        let open = {
            let mut questions = lock(&self.questions);
            questions.over = Some(why.clone());
            std::mem::take(&mut questions.open)
        };
        for waiting in open.into_values() {
            waiting.answer(Err(why.clone()));
        }
    }

    fn at_hand(&self, sandbox: &SandboxLabel, name: &SecretName, now: SystemTime) -> Option<Held> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.get(sandbox)?.get(name).filter(|held| now < held.fresh_until && held.expires.is_none_or(|end| now < end)).cloned()
    }

    fn take(&self, sandbox: &SandboxLabel, name: &SecretName, reply: Reply) -> Result<Held, ClientError> {
        let (value, expires, fresh_until, keep, bytes) = match reply {
            Reply::Value { value, expires, fresh_until, keep, bytes, .. } => (value, expires, fresh_until, keep, bytes),
            other => {
                self.drop_value(sandbox, name);
                return Err(unfit(other));
            }
        };
        let held = Held { value: Arc::new(value), expires, bytes, fresh_until };
        if keep == Keep::UntilStale {
            let mut all = self.held.write().unwrap_or_else(PoisonError::into_inner);
            if all.values().map(HashMap::len).sum::<usize>() >= MAX_HELD {
                all.clear();
            }
            all.entry(sandbox.clone()).or_default().insert(name.clone(), held.clone());
        }
        Ok(held)
    }

    fn drop_value(&self, sandbox: &SandboxLabel, name: &SecretName) {
        let mut all = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(secrets) = all.get_mut(sandbox) {
            secrets.remove(name);
        }
    }
}
