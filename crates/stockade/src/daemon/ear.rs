//! A second socket of the daemon, for another user who alone approves: it knows four questions about requests and nothing else.
//!
//! ```text
//!  the approver (another uid) ── list · show · approve, signed · deny ──▶ the daemon of whoever asked ──▶ its store, its receipts
//! ```
//!
//! The machine's credential says who that is and where sockets lie: a directory of root's, in which nobody takes another's name. Only that user can
//! connect: an access control list on the socket says so to the kernel, because a confined daemon of an ordinary user lives in a user namespace and sees
//! every other uid as one and the same. A yes is a signature over what was shown, so this process can neither make one up nor change one.

use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use stockade_core::escape::escape;
use stockade_gateway::approvals::{ApprovalError, Distant, Method, RequestId, Signed, State};
use stockade_gateway::approver::Credential;
use stockade_ledger::receipt::Approval;
use stockade_sandbox::letter;
use stockade_store::person;

use crate::Context;
use crate::approver::{self, now};
use crate::commands::approvals::{failure, store};
use crate::failure::Failure;
use crate::receipts::decided;

const STEP: &str = "approver's socket";
/// Where the kernel keeps access control lists.
const ACL: &str = "system.posix_acl_access";
/// How long one conversation may wait for the other side.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the end is looked for.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// What the approver asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum Question {
    /// What waits.
    List {},
    /// One request, whole.
    Show {
        /// Which.
        id: String,
    },
    /// Yes, once.
    Approve {
        /// To what exactly.
        signed: Signed,
    },
    /// No.
    Deny {
        /// To which.
        id: String,
    },
}

/// What they are told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum Told {
    /// Requests as they stand.
    Requests {
        /// The oldest first.
        requests: Vec<Distant>,
    },
    /// It was not done.
    Refused {
        /// Why.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

/// The socket, while it is there.
pub(crate) struct Ear {
    listener: UnixListener,
    path: PathBuf,
    approver: u32,
}

/// Somebody listens, until the value goes.
pub(crate) struct Listening {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Ear {
    /// Makes the socket, where the machine names another user as approver.
    pub(crate) fn open(context: &Context) -> Result<Option<Self>, Failure> {
        let credential = Credential::load(context.places()?).map_err(|error| approver::failure(&error))?;
        let Some((approver, directory)) = credential.as_ref().and_then(|one| Some((one.approver_uid()?, one.sockets()?))) else {
            return Ok(None);
        };
        check(directory)?;
        let path = socket(directory, rustix::process::geteuid().as_raw());
        let failed = |error: std::io::Error| Failure::new(STEP, format!("`{}`: {error}", escape(&path.to_string_lossy())));
        // The daemon's lock is ours, so one of ours that is there is nobody's. Another's cannot be removed here, and then nothing is bound.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        // Until then nobody else could: a new socket is its owner's alone to write to. The two users need not share a group.
        let allowed = rustix::fs::setxattr(&path, ACL, &only(approver), rustix::fs::XattrFlags::empty());
        allowed.map_err(|errno| {
            let _ = std::fs::remove_file(&path);
            failed(errno.into()).with_hint("the directory must be on a file system with access control lists, such as tmpfs")
        })?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Some(Self { listener, path, approver }))
    }

    /// Listens from now on, in a thread of its own, to one at a time.
    pub(crate) fn listen(self, context: &Context) -> Result<Listening, Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, path) = (Arc::clone(&over), self.path.clone());
        let context = context.in_directory(PathBuf::from("/"));
        let thread = std::thread::Builder::new().name("stockade-approver".into()).spawn(move || self.attend(&ended, &context));
        let thread = thread.map_err(|error| Failure::new(STEP, format!("starting a thread: {error}")))?;
        Ok(Listening { over, thread: Some(thread), path })
    }

    fn attend(&self, over: &AtomicBool, context: &Context) {
        while !over.load(Ordering::SeqCst) {
            let mut ready = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
            let _ = rustix::event::poll(&mut ready, Some(&LOOK));
            let Ok((stream, _)) = self.listener.accept() else { continue };
            if self.may_be(&stream) {
                // One that goes away in between asks again.
                let _ = self.converse(&stream, context);
            }
        }
    }

    /// Whether it can be the approver. Root may connect to anything, so where this process can tell users apart, it does.
    fn may_be(&self, stream: &UnixStream) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(stream);
        let sees_users = rustix::process::geteuid().is_root();
        peer.is_ok_and(|peer| !sees_users || peer.uid.as_raw() == self.approver)
    }

    fn converse(&self, stream: &UnixStream, context: &Context) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        while let Some((question, _)) = letter::receive::<Question>(stream)? {
            let told = match self.answer(&question, context) {
                Ok(requests) => Told::Requests { requests },
                Err(Failure { message, hint, .. }) => Told::Refused { message, hint },
            };
            letter::send(stream, &told, &[])?;
        }
        Ok(())
    }

    fn answer(&self, question: &Question, context: &Context) -> Result<Vec<Distant>, Failure> {
        let Some(mut store) = store(context)? else { return Ok(Vec::new()) };
        let told = |error: ApprovalError| failure(&error);
        let find = |id: &str| RequestId::parse(id).ok_or_else(|| failure(&ApprovalError::NoRequest(escape(id))));
        match question {
            Question::List {} => {
                let waiting = store.pending(now()).map_err(told)?;
                Ok(waiting.iter().map(|request| Distant::from(request).brief()).collect())
            }
            Question::Show { id } => Ok(vec![Distant::from(&store.request(&find(id)?, now()).map_err(told)?)]),
            Question::Approve { signed } => {
                // Read anew: an administrator may have named somebody else meanwhile.
                let credential = Credential::load(context.places()?).map_err(|error| approver::failure(&error))?;
                let credential = credential.filter(|one| one.approver_uid() == Some(self.approver));
                let credential = credential.ok_or_else(|| Failure::new(STEP, "somebody else approves by now"))?;
                let by = person::name_of(self.approver);
                if signed.by != by {
                    return Err(told(ApprovalError::Foreign("it says that somebody else gave it")));
                }
                let request = store.request(&find(&signed.id)?, now()).map_err(told)?;
                let approval = Approval { by, method: Method::OtherUid.name().to_owned(), shown_sha256: request.shown_sha256.clone() };
                let words = [request.id.as_str(), "--once"];
                let after = decided("approvals.approve", &words, approval, &request.receipt, context, || {
                    store.approve_signed(signed, &credential, now()).map_err(told)
                })?;
                Ok(vec![Distant::from(&after)])
            }
            Question::Deny { id } => {
                let (id, by, method) = (find(id)?, person::name_of(self.approver), Method::OtherUid);
                let request = store.request(&id, now()).map_err(told)?;
                if !matches!(request.state, State::Pending | State::Approved) {
                    return Err(told(ApprovalError::Decided { id: request.id, state: request.state }));
                }
                let approval = Approval { by: by.clone(), method: method.name().to_owned(), shown_sha256: request.shown_sha256.clone() };
                let after = decided("approvals.deny", &[id.as_str()], approval, &request.receipt, context, || {
                    store.deny(&id, &by, method, now()).map_err(told)
                })?;
                Ok(vec![Distant::from(&after)])
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where requests of this user are shown.
pub(crate) fn socket(directory: &Path, uid: u32) -> PathBuf {
    directory.join(format!("{uid}.sock"))
}

/// The list that lets one user write to a socket, and nobody else: not its owner, no group, no others. The kernel's own form, version 2.
fn only(uid: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    const READ_WRITE: u16 = 6;
    // Tag, rights and whose: the owner, that user, the group, the mask, others.
    let entries = [(0x01, 0, NOBODY), (0x02, READ_WRITE, uid), (0x04, 0, NOBODY), (0x10, READ_WRITE, NOBODY), (0x20, 0_u16, NOBODY)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, whose) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(rights.to_le_bytes());
        list.extend(u32::to_le_bytes(whose));
    }
    list
}

/// A directory of root's in which nobody can take away, or take, what is another's.
pub(crate) fn check(directory: &Path) -> Result<(), Failure> {
    let shown = escape(&directory.to_string_lossy());
    let hint = format!("as root: install -d -m 1777 {shown}");
    let refused = |why: &str| Failure::new(STEP, format!("`{shown}` {why}")).with_hint(hint.clone());
    let found = std::fs::symlink_metadata(directory).map_err(|error| refused(&format!("cannot be used: {error}")))?;
    if !found.is_dir() || found.uid() != 0 {
        return Err(refused("is no directory of root's"));
    }
    let (others_write, sticky) = (found.mode() & 0o022 != 0, found.mode() & 0o1000 != 0);
    if others_write && !sticky {
        return Err(refused("lets others remove what is not theirs"));
    }
    Ok(())
}
