//! What egress is told when it starts, and what it answers. Both ends are ours, so anything unexpected ends the conversation.
//!
//! ```text
//!  owner: order (a letter)        egress: word (one line of JSON) …
//! ```

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stockade_broker::broker::Pass;
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_core::reach::Reach;
use stockade_sandbox::letter;

use super::deliver::{AgentKey, DeskKind};
use super::login;

/// Another version is another program: the owner executes its own.
pub(crate) const VERSION: u16 = 4;
/// The longest word.
const MAX_BYTES: u32 = 4 << 20;

/// What egress is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// See [`VERSION`].
    pub(crate) version: u16,
    /// Whose way out it is.
    pub(crate) sandbox: SandboxId,
    /// What may be reached.
    pub(crate) reach: Reach,
    /// One for each secret, in their order.
    pub(crate) secrets: Vec<Substitute>,
    /// Where the certificate authority lives.
    pub(crate) authority: PathBuf,
    /// Files that the machine's roots may be in, besides the usual ones.
    pub(crate) roots: Vec<PathBuf>,
    /// One for each login, in their order.
    #[serde(default)]
    pub(crate) logins: Vec<login::Places>,
    /// What is said to the broker first, where its socket is not egress's alone.
    #[serde(default)]
    pub(crate) pass: Option<Pass>,
    /// What programs inside may ask for.
    #[serde(default)]
    pub(crate) desk: Option<Desk>,
    /// What the agent of SSH signs with.
    #[serde(default)]
    pub(crate) agent: Vec<AgentKey>,
    /// Authorities that some hosts' certificates may be of besides the machine's.
    #[serde(default)]
    pub(crate) trust: Vec<Trust>,
}

/// What programs inside may ask for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Desk {
    /// Whoever asks must show this.
    pub(crate) token: String,
    /// Which secrets, by their place in the order, and as what.
    pub(crate) entries: Vec<(usize, DeskKind)>,
}

/// Authorities for some hosts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trust {
    /// Which hosts.
    pub(crate) hosts: Vec<HostPattern>,
    /// The certificates, in PEM.
    pub(crate) certificates: String,
}

/// What stands for a secret, and how much of it there is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Substitute {
    /// The placeholder.
    pub(crate) placeholder: String,
    /// In so many requests.
    pub(crate) max_uses: Option<u64>,
    /// With so many bytes of body.
    pub(crate) max_bytes: Option<u64>,
    /// For so long.
    pub(crate) max_seconds: Option<u64>,
    /// Where in a request it is replaced, besides header values.
    pub(crate) places: Vec<Part>,
    /// What happens when it is on its way elsewhere.
    pub(crate) misuse: Misuse,
    /// What it is.
    pub(crate) form: Form,
}

/// What a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// Text that takes the place of its placeholder.
    Text,
    /// Keys of AWS: requests are signed anew.
    Aws,
    /// A key for SSH: sessions are opened with it.
    Ssh,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// The query of the target.
    Query,
    /// The body.
    Body,
}

/// What happens after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Misuse {
    /// Nothing.
    Refuse,
    /// The alarm is raised, and everything in the sandbox ends.
    End,
}

/// What egress says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum Word {
    /// Connections are taken.
    Ready {
        /// The authority's certificate.
        certificate: String,
    },
    /// They never will be.
    Failed {
        /// Why.
        message: String,
    },
    /// It is over.
    End {
        /// The hosts that were let through and that no pattern names.
        missing: Vec<HostPattern>,
    },
}

/// Sends an order and what belongs to it.
pub(crate) fn send(stream: &UnixStream, order: &Order, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    letter::send(stream, order, descriptors)
}

/// Receives an order.
pub(crate) fn receive(stream: &UnixStream) -> std::io::Result<(Order, Vec<OwnedFd>)> {
    let (order, descriptors): (Order, _) = letter::receive(stream)?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    if order.version != VERSION {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok((order, descriptors))
}

/// Says a word.
pub(crate) fn say(stream: &UnixStream, word: &Word) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut stream = stream;
    stream.write_all(&line)
}

/// Hears the next word; waits as long as the stream's own time limit says.
pub(crate) fn hear(stream: &UnixStream) -> std::io::Result<Word> {
    let mut line = Vec::new();
    // Nothing follows a word before the owner did something, so nothing is lost in the buffer.
    BufReader::new(stream.take(u64::from(MAX_BYTES))).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn orders_and_words_arrive_as_they_were_sent() {
        let (owner, egress) = UnixStream::pair().unwrap();
        let order = Order {
            version: VERSION,
            sandbox: SandboxId::from_parts(1, 2),
            reach: Reach::default(),
            secrets: vec![Substitute {
                placeholder: "p".repeat(16),
                max_uses: Some(1),
                max_bytes: None,
                max_seconds: None,
                places: vec![Part::Query, Part::Body],
                misuse: Misuse::End,
                form: Form::Aws,
            }],
            authority: "/a".into(),
            roots: Vec::new(),
            logins: Vec::new(),
            pass: Some([7; 16]),
            desk: Some(Desk { token: "t".repeat(32), entries: vec![(0, DeskKind::Kubernetes)] }),
            agent: vec![AgentKey { secret: 0, host_keys: vec![vec![7]], user: "git".into() }],
            trust: vec![Trust { hosts: vec![HostPattern::parse("k.example:6443").unwrap()], certificates: "c".into() }],
        };
        send(&owner, &order, &[owner.as_fd(), egress.as_fd()]).unwrap();
        let (got, descriptors) = receive(&egress).unwrap();
        assert_eq!((format!("{got:?}"), descriptors.len()), (format!("{order:?}"), 2));
        say(&egress, &Word::Ready { certificate: "a\nb".into() }).unwrap();
        assert!(matches!(hear(&owner).unwrap(), Word::Ready { certificate } if certificate == "a\nb"));
        drop((egress, descriptors));
        assert!(hear(&owner).is_err());
    }

    #[test]
    fn other_versions_and_endless_orders_are_refused() {
        let (owner, egress) = UnixStream::pair().unwrap();
        (&owner).write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(receive(&egress).is_err());
        let (owner, egress) = UnixStream::pair().unwrap();
        let text =
            r#"{"version":1,"sandbox":"x","reach":{"hosts":[],"secrets":[],"unlisted":"refuse"},"secrets":[],"authority":"/","roots":[]}"#;
        (&owner).write_all(&(text.len() as u32).to_be_bytes()).unwrap();
        (&owner).write_all(text.as_bytes()).unwrap();
        assert!(receive(&egress).is_err());
    }
}
