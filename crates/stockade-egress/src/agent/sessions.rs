//! Sessions of SSH that pass by: what each host said in the clear at the beginning, for as long as its connection is open.
//!
//! A key exchange ends with the host's signature over the session's identifier, and that still travels in the clear. Whoever shows this very
//! signature to the agent talks of a session that this sandbox has with that host. Nothing is decrypted, and nothing is kept afterwards.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use memchr::memmem;
use stockade_core::host::HostName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::push_string;
use crate::refusal::Refusal;

/// The most sessions at one time.
const MAX_SESSIONS: usize = 64;
/// What is kept of each: a version, a list of algorithms and a key exchange, several times over.
const MAX_SAID: usize = 16 << 10;

/// Those of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Vec<Weak<Session>>>);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) host: HostName,
    pub(crate) port: u16,
    said: Mutex<Vec<u8>>,
}

impl Sessions {
    /// Listens to what a host says; no more than it is let, and only while the stream is there.
    pub(crate) fn overhear<S>(&self, host: &HostName, port: u16, inner: S) -> Result<Overheard<S>, Refusal> {
        let mut sessions = lock(&self.0);
        sessions.retain(|session| session.strong_count() > 0);
        if sessions.len() >= MAX_SESSIONS {
            return Err(Refusal::Limit { what: format!("{MAX_SESSIONS} sessions of SSH at one time") });
        }
        let session = Arc::new(Session { host: host.clone(), port, said: Mutex::default() });
        sessions.push(Arc::downgrade(&session));
        Ok(Overheard { inner, session })
    }

    /// The session in whose beginning a host showed this key and then this signature.
    pub(crate) fn find(&self, host_key: &[u8], signature: &[u8]) -> Option<Weak<Session>> {
        let written = |bytes| {
            let mut string = Vec::new();
            push_string(&mut string, bytes);
            string
        };
        let (host_key, signature) = (written(host_key), written(signature));
        let is_it = |session: &Session| {
            let said = lock(&session.said);
            let after = memmem::find(&said, &host_key).and_then(|at| said.get(at + host_key.len()..));
            after.is_some_and(|rest| memmem::find(rest, &signature).is_some())
        };
        let sessions = lock(&self.0);
        sessions.iter().find(|session| session.upgrade().is_some_and(|session| is_it(&session))).cloned()
    }
}

/// The host's side of a connection.
#[derive(Debug)]
pub(crate) struct Overheard<S> {
    inner: S,
    session: Arc<Session>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let mut said = lock(&this.session.said);
        let new = buffer.filled().get(before..).unwrap_or_default();
        let room = MAX_SAID.saturating_sub(said.len()).min(new.len());
        said.extend_from_slice(new.get(..room).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn host() -> HostName {
        HostName::parse("forge.example").unwrap()
    }

    /// What a host says: its key, something, and its signature.
    fn exchange() -> Vec<u8> {
        let mut said = b"SSH-2.0-OpenSSH_9.2\r\n\0\0\0\x40".to_vec();
        for part in [&b"host key"[..], b"ephemeral", b"signature"] {
            push_string(&mut said, part);
        }
        said
    }

    #[tokio::test]
    async fn a_session_is_known_by_what_its_host_signed_while_it_is_open() {
        let sessions = Sessions::default();
        let said = exchange();
        let mut stream = sessions.overhear(&host(), 22, said.as_slice()).unwrap();
        assert!(sessions.find(b"host key", b"signature").is_none(), "nothing was said yet");
        stream.read_exact(&mut vec![0; said.len() - 1]).await.unwrap();
        assert!(sessions.find(b"host key", b"signature").is_none(), "not all of it");
        stream.read_u8().await.unwrap();
        let found = sessions.find(b"host key", b"signature").unwrap();
        assert_eq!(found.upgrade().map(|session| (session.host.clone(), session.port)), Some((host(), 22)));
        // Another's, a part of it, and the wrong way round.
        for (key, signature) in [("host keys", "signature"), ("host", "signature"), ("host key", "sign"), ("signature", "host key")] {
            assert!(sessions.find(key.as_bytes(), signature.as_bytes()).is_none(), "{key} {signature}");
        }
        drop(stream);
        assert!(found.upgrade().is_none() && sessions.find(b"host key", b"signature").is_none(), "it is over");
    }

    #[tokio::test]
    async fn what_comes_late_is_not_kept() {
        let sessions = Sessions::default();
        let said = [vec![b'x'; MAX_SAID], exchange()].concat();
        let mut stream = sessions.overhear(&host(), 22, said.as_slice()).unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(sessions.find(b"host key", b"signature").is_none());
        assert_eq!(lock(&stream.session.said).len(), MAX_SAID);
    }

    #[test]
    fn sessions_are_counted_and_make_room() {
        let sessions = Sessions::default();
        let mut open: Vec<_> = (0..MAX_SESSIONS).map(|_| sessions.overhear(&host(), 22, ()).unwrap()).collect();
        assert!(matches!(sessions.overhear(&host(), 22, ()), Err(Refusal::Limit { .. })));
        open.pop();
        assert!(sessions.overhear(&host(), 22, ()).is_ok());
    }
}
