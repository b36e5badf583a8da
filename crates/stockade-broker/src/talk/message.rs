//! The messages, and their bodies. Pure; every field is checked on the way in.

use std::time::SystemTime;

use stockade_core::credential::Class;
use zeroize::Zeroizing;

use super::codec::{Reader, Writer};
use super::frame::FrameError;
use crate::binding::{MAX_HOSTS, SecretBinding};
use crate::broker::{After, Fact, Keep, MAX_SECRETS, Pass, SandboxLabel, Wish};
use crate::budget::Bytes;
use crate::sign::{MAX_MESSAGE, SIGNATURE};
use crate::ticket::{KEY, MAX_PURPOSE, Ticket};
use crate::{HostPattern, SecretName, SecretValue};

/// The longest placeholder or message to a person.
const MAX_TEXT: usize = stockade_core::secret::MAX_VALUE;

/// What the other end is to the broker. Fixed for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Registers sandboxes and gets placeholders; never a value. The first says whose tickets are taken.
    Owner {
        /// With which key tickets are checked; only over the connection that the broker was started with.
        key: Option<[u8; KEY]>,
    },
    /// Gets values of registered sandboxes.
    Egress {
        /// Of one sandbox, where the connection came over a socket that others can reach.
        pass: Option<Pass>,
    },
}

/// Whether the last of some pieces is a whole, or the beginning of something longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Nothing follows.
    Whole,
    /// More of it follows.
    Beginning,
}

/// What the broker is asked.
#[derive(Debug)]
pub enum Ask {
    /// First on every connection.
    Hello {
        /// The protocol.
        version: u16,
        /// What the other end is.
        role: Role,
    },
    /// Owner: a sandbox is to have secrets.
    Register {
        /// Of this question; its answer has the same.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// What the call is.
        purpose: String,
        /// What the gateway signed for it.
        ticket: Ticket,
        /// What it is to have.
        wishes: Vec<Wish>,
    },
    /// Owner: a sandbox has ended.
    Release {
        /// Of this question.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
    },
    /// Owner: take the values of a sandbox's secrets out of some pieces of text or bytes.
    Redact {
        /// Of this question.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// Whether the last piece is a whole.
        extent: Extent,
        /// The pieces.
        pieces: Vec<Vec<u8>>,
    },
    /// Owner: sign a message with a secret.
    Sign {
        /// Of this question.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// Which secret.
        name: SecretName,
        /// The message.
        message: Vec<u8>,
    },
    /// Egress: the value of a secret, for one use.
    Value {
        /// Of this question.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// Which secret.
        name: SecretName,
    },
    /// Egress: bytes were sent with a secret.
    Spend {
        /// Of this question.
        id: u32,
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// Which secret.
        name: SecretName,
        /// How many.
        bytes: u64,
    },
}

/// What the broker answers.
#[derive(Debug)]
pub enum Reply {
    /// To `Hello`.
    Welcome {
        /// The protocol.
        version: u16,
    },
    /// To `Register`: each secret's placeholder, in the order of the wishes.
    Registered {
        /// Of the question.
        id: u32,
        /// For whoever asks for the values.
        pass: Pass,
        /// The placeholders, and what receipts say of each.
        placeholders: Vec<(String, Fact)>,
    },
    /// To `Value`.
    Value {
        /// Of the question.
        id: u32,
        /// The value.
        value: SecretValue,
        /// When it is worthless.
        expires: Option<SystemTime>,
        /// When to ask again.
        fresh_until: SystemTime,
        /// Whether it may be kept until then.
        keep: Keep,
        /// Whether bytes that are sent with it must be told.
        bytes: Bytes,
    },
    /// To `Redact`.
    Redacted {
        /// Of the question.
        id: u32,
        /// Each piece without its secrets; `None` for one that had none.
        pieces: Vec<Option<Vec<u8>>>,
        /// How much of the last piece was dealt with.
        taken: u32,
        /// What was taken out, and how often.
        counts: Vec<(SecretName, u64)>,
    },
    /// To `Sign`.
    Signed {
        /// Of the question.
        id: u32,
        /// The signature.
        signature: [u8; SIGNATURE],
    },
    /// To `Release` and `Spend`.
    Done {
        /// Of the question.
        id: u32,
    },
    /// To anything.
    Refused {
        /// Of the question.
        id: u32,
        /// Why, for programs.
        why: Refusal,
        /// Why, for people; holds no value.
        message: String,
        /// What to do about it; may be empty.
        hint: String,
    },
}

/// Why the broker refused, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The sandbox is not known, or known already.
    Sandbox,
    /// The sandbox does not have that secret, or may not bind it there.
    NotBound,
    /// The source gave no value.
    NoValue,
    /// A provider has looked at what it was asked with, and refuses it.
    Provider,
    /// The budget is used up.
    UsedUp,
    /// The role may not ask that.
    Role,
    /// Too much at once.
    Busy,
}

const REFUSALS: [Refusal; 7] =
    [Refusal::Sandbox, Refusal::NotBound, Refusal::NoValue, Refusal::UsedUp, Refusal::Role, Refusal::Busy, Refusal::Provider];

impl Ask {
    /// The body of a frame.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Hello { version, role } => {
                let head = Writer::new(1, 0).short(*version);
                match role {
                    Role::Owner { key: None } => head.byte(1),
                    Role::Owner { key: Some(key) } => head.byte(2).bytes(key),
                    Role::Egress { pass: None } => head.byte(3),
                    Role::Egress { pass: Some(pass) } => head.byte(4).bytes(pass),
                }
            }
            Self::Register { id, sandbox, purpose, ticket, wishes } => {
                let room = wishes.iter().map(room_of).sum();
                let head = Writer::new(2, room).word(*id).bytes(sandbox.as_str().as_bytes()).bytes(purpose.as_bytes());
                wishes.iter().fold(head.bytes(&ticket.0).short(wishes.len() as u16), write_wish)
            }
            Self::Release { id, sandbox } => Writer::new(3, 0).word(*id).bytes(sandbox.as_str().as_bytes()),
            Self::Redact { id, sandbox, extent, pieces } => {
                let extent = match extent {
                    Extent::Whole => 1,
                    Extent::Beginning => 2,
                };
                let room = pieces.iter().map(|piece| piece.len() + 4).sum();
                let head = Writer::new(6, room).word(*id).bytes(sandbox.as_str().as_bytes()).byte(extent).short(pieces.len() as u16);
                pieces.iter().fold(head, |writer, piece| writer.long_bytes(piece))
            }
            Self::Sign { id, sandbox, name, message } => {
                let head = Writer::new(7, message.len() + 4).word(*id).bytes(sandbox.as_str().as_bytes());
                head.bytes(name.as_str().as_bytes()).long_bytes(message)
            }
            Self::Value { id, sandbox, name } => {
                Writer::new(4, 0).word(*id).bytes(sandbox.as_str().as_bytes()).bytes(name.as_str().as_bytes())
            }
            Self::Spend { id, sandbox, name, bytes } => {
                Writer::new(5, 0).word(*id).bytes(sandbox.as_str().as_bytes()).bytes(name.as_str().as_bytes()).long(*bytes)
            }
        }
        .end()
    }

    /// Reads the body of a frame.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        let ask = match reader.byte()? {
            1 => {
                let version = reader.short()?;
                let role = match reader.byte()? {
                    1 => Role::Owner { key: None },
                    2 => Role::Owner { key: Some(exactly(&mut reader)?) },
                    3 => Role::Egress { pass: None },
                    4 => Role::Egress { pass: Some(exactly(&mut reader)?) },
                    _ => return Err(FrameError::Malformed("an unknown role")),
                };
                Self::Hello { version, role }
            }
            2 => {
                let (id, sandbox) = (reader.word()?, label(&mut reader)?);
                let (purpose, ticket) = (reader.text()?.to_owned(), Ticket(exactly(&mut reader)?));
                let count = usize::from(reader.short()?);
                if count > MAX_SECRETS {
                    return Err(FrameError::Malformed("more secrets than a sandbox may have"));
                }
                if purpose.len() > MAX_PURPOSE {
                    return Err(FrameError::Malformed("more words than a call has"));
                }
                let wishes = (0..count).map(|_| read_wish(&mut reader)).collect::<Result<_, _>>()?;
                Self::Register { id, sandbox, purpose, ticket, wishes }
            }
            3 => Self::Release { id: reader.word()?, sandbox: label(&mut reader)? },
            4 => Self::Value { id: reader.word()?, sandbox: label(&mut reader)?, name: name(&mut reader)? },
            5 => Self::Spend { id: reader.word()?, sandbox: label(&mut reader)?, name: name(&mut reader)?, bytes: reader.long()? },
            6 => Self::Redact {
                id: reader.word()?,
                sandbox: label(&mut reader)?,
                extent: match reader.byte()? {
                    1 => Extent::Whole,
                    2 => Extent::Beginning,
                    _ => return Err(FrameError::Malformed("neither a whole nor a beginning")),
                },
                pieces: {
                    let count = reader.short()?;
                    (0..count).map(|_| reader.long_bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?
                },
            },
            7 => {
                let (id, sandbox, name, message) = (reader.word()?, label(&mut reader)?, name(&mut reader)?, reader.long_bytes()?);
                if message.len() > MAX_MESSAGE {
                    return Err(FrameError::Malformed("more than is signed"));
                }
                Self::Sign { id, sandbox, name, message: message.to_vec() }
            }
            _ => return Err(FrameError::Malformed("an unknown question")),
        };
        reader.end().map(|()| ask)
    }
}

impl Reply {
    /// The body of a frame.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Welcome { version } => Writer::new(1, 0).short(*version),
            Self::Registered { id, pass, placeholders } => {
                let head = Writer::new(2, 0).word(*id).bytes(pass).short(placeholders.len() as u16);
                placeholders.iter().fold(head, |writer, (placeholder, fact)| {
                    let writer = writer.bytes(placeholder.as_bytes()).bytes(fact.adapter.as_bytes());
                    let writer = writer.bytes(fact.scope.as_deref().unwrap_or_default().as_bytes()).time(fact.expires);
                    writer
                        .byte(match fact.after {
                            After::Stays => 1,
                            After::GivenBack => 2,
                        })
                        .bytes(fact.note.as_deref().unwrap_or_default().as_bytes())
                })
            }
            Self::Value { id, value, expires, fresh_until, keep, bytes } => {
                let keep = match keep {
                    Keep::UntilStale => 1,
                    Keep::Once => 2,
                };
                let bytes = match bytes {
                    Bytes::Free => 1,
                    Bytes::Counted => 2,
                };
                let head = Writer::new(3, value.expose().len()).word(*id).bytes(value.expose());
                head.time(*expires).time(Some(*fresh_until)).byte(keep).byte(bytes)
            }
            Self::Redacted { id, pieces, taken, counts } => {
                let room = pieces.iter().flatten().map(|piece| piece.len() + 4).sum();
                let head = Writer::new(6, room).word(*id).word(*taken).short(pieces.len() as u16);
                let pieces = pieces.iter().fold(head, |writer, piece| match piece {
                    None => writer.byte(0),
                    Some(piece) => writer.byte(1).long_bytes(piece),
                });
                counts
                    .iter()
                    .fold(pieces.short(counts.len() as u16), |writer, (name, count)| writer.bytes(name.as_str().as_bytes()).long(*count))
            }
            Self::Signed { id, signature } => Writer::new(7, 0).word(*id).bytes(signature),
            Self::Done { id } => Writer::new(4, 0).word(*id),
            Self::Refused { id, why, message, hint } => {
                let why = REFUSALS.iter().position(|refusal| refusal == why).unwrap_or_default() as u8;
                Writer::new(5, 0).word(*id).byte(why).bytes(message.as_bytes()).bytes(hint.as_bytes())
            }
        }
        .end()
    }

    /// Reads the body of a frame.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        let reply = match reader.byte()? {
            1 => Self::Welcome { version: reader.short()? },
            2 => {
                let (id, pass) = (reader.word()?, exactly(&mut reader)?);
                let count = usize::from(reader.short()?);
                if count > MAX_SECRETS {
                    return Err(FrameError::Malformed("more placeholders than a sandbox may have"));
                }
                let one = |reader: &mut Reader<'_>| Ok((placeholder(reader)?, fact(reader)?));
                let placeholders = (0..count).map(|_| one(&mut reader)).collect::<Result<_, FrameError>>()?;
                Self::Registered { id, pass, placeholders }
            }
            3 => Self::Value {
                id: reader.word()?,
                value: SecretValue::new(reader.bytes()?.to_vec()).map_err(|_| FrameError::Malformed("a value that is none"))?,
                expires: reader.time()?,
                fresh_until: reader.time()?.ok_or(FrameError::Malformed("a value without a time to ask again"))?,
                keep: match reader.byte()? {
                    1 => Keep::UntilStale,
                    2 => Keep::Once,
                    _ => return Err(FrameError::Malformed("an unknown way to keep a value")),
                },
                bytes: match reader.byte()? {
                    1 => Bytes::Free,
                    2 => Bytes::Counted,
                    _ => return Err(FrameError::Malformed("an unknown way to count bytes")),
                },
            },
            4 => Self::Done { id: reader.word()? },
            5 => Self::Refused {
                id: reader.word()?,
                why: REFUSALS.get(usize::from(reader.byte()?)).copied().ok_or(FrameError::Malformed("an unknown refusal"))?,
                message: text(&mut reader)?,
                hint: text(&mut reader)?,
            },
            6 => {
                let (id, taken) = (reader.word()?, reader.word()?);
                let count = reader.short()?;
                let piece = |reader: &mut Reader<'_>| match reader.byte()? {
                    0 => Ok(None),
                    1 => reader.long_bytes().map(|piece| Some(piece.to_vec())),
                    _ => Err(FrameError::Malformed("neither a piece nor none")),
                };
                let pieces = (0..count).map(|_| piece(&mut reader)).collect::<Result<_, _>>()?;
                let count = usize::from(reader.short()?);
                if count > MAX_SECRETS {
                    return Err(FrameError::Malformed("more secrets than a sandbox may have"));
                }
                let counts = (0..count).map(|_| Ok((name(&mut reader)?, reader.long()?))).collect::<Result<_, FrameError>>()?;
                Self::Redacted { id, pieces, taken, counts }
            }
            7 => Self::Signed {
                id: reader.word()?,
                signature: reader.bytes()?.try_into().map_err(|_| FrameError::Malformed("a signature that is none"))?,
            },
            _ => return Err(FrameError::Malformed("an unknown answer")),
        };
        reader.end().map(|()| reply)
    }

    /// The question that this answers; `None` for `Welcome`.
    pub fn id(&self) -> Option<u32> {
        match self {
            Self::Welcome { .. } => None,
            Self::Registered { id, .. }
            | Self::Redacted { id, .. }
            | Self::Signed { id, .. }
            | Self::Value { id, .. }
            | Self::Done { id }
            | Self::Refused { id, .. } => Some(*id),
        }
    }
}

fn room_of(wish: &Wish) -> usize {
    let hosts: usize = wish.binding.hosts().iter().map(|host| host.to_string().len() + 2).sum();
    let behind: usize = wish.behind.iter().map(|(name, value)| name.as_str().len() + value.expose().len() + 8).sum();
    wish.binding.name().as_str().len() + hosts + wish.caller.as_ref().map_or(0, |value| value.expose().len()) + behind + 18
}

fn write_wish(writer: Writer, wish: &Wish) -> Writer {
    let hosts = wish.binding.hosts();
    let writer = writer.bytes(wish.binding.name().as_str().as_bytes()).short(hosts.len() as u16);
    let writer = hosts.iter().fold(writer, |writer, host| writer.bytes(host.to_string().as_bytes()));
    let writer = writer.byte(match wish.class {
        Class::ProxyOnly => 1,
        Class::Reference => 2,
    });
    let writer = match &wish.caller {
        None => writer.byte(0),
        Some(value) => writer.byte(1).bytes(value.expose()),
    };
    let writer = writer.short(wish.behind.len() as u16);
    wish.behind.iter().fold(writer, |writer, (name, value)| writer.bytes(name.as_str().as_bytes()).bytes(value.expose()))
}

fn read_wish(reader: &mut Reader<'_>) -> Result<Wish, FrameError> {
    let secret = name(reader)?;
    let count = usize::from(reader.short()?);
    if count > MAX_HOSTS {
        return Err(FrameError::Malformed("more hosts than a secret may have"));
    }
    let host = |reader: &mut Reader<'_>| HostPattern::parse(reader.text()?).map_err(|_| FrameError::Malformed("a host that is none"));
    let hosts = (0..count).map(|_| host(reader)).collect::<Result<Vec<_>, _>>()?;
    let binding = SecretBinding::new(secret, hosts).map_err(|_| FrameError::Malformed("a secret without hosts"))?;
    let class = match reader.byte()? {
        1 => Class::ProxyOnly,
        2 => Class::Reference,
        _ => return Err(FrameError::Malformed("an unknown class of delivery")),
    };
    let caller = match reader.byte()? {
        0 => None,
        1 => Some(value(reader)?),
        _ => return Err(FrameError::Malformed("neither a value nor none")),
    };
    let count = usize::from(reader.short()?);
    if count > MAX_SECRETS {
        return Err(FrameError::Malformed("more values behind a secret than it may have"));
    }
    let behind = (0..count).map(|_| Ok((name(reader)?, value(reader)?))).collect::<Result<Vec<_>, FrameError>>()?;
    Ok(Wish { binding, caller, class, behind })
}

fn value(reader: &mut Reader<'_>) -> Result<SecretValue, FrameError> {
    SecretValue::new(reader.bytes()?.to_vec()).map_err(|_| FrameError::Malformed("a value that is none"))
}

fn exactly<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], FrameError> {
    reader.bytes()?.try_into().map_err(|_| FrameError::Malformed("a field of another length"))
}

fn fact(reader: &mut Reader<'_>) -> Result<Fact, FrameError> {
    let (adapter, scope) = (text(reader)?, text(reader)?);
    let expires = reader.time()?;
    let after = match reader.byte()? {
        1 => After::Stays,
        2 => After::GivenBack,
        _ => return Err(FrameError::Malformed("an unknown end of a credential")),
    };
    let note = text(reader)?;
    Ok(Fact { adapter, scope: (!scope.is_empty()).then_some(scope), expires, after, note: (!note.is_empty()).then_some(note) })
}

fn label(reader: &mut Reader<'_>) -> Result<SandboxLabel, FrameError> {
    reader.text()?.parse().map_err(|_| FrameError::Malformed("a sandbox that is none"))
}

fn name(reader: &mut Reader<'_>) -> Result<SecretName, FrameError> {
    reader.text()?.parse().map_err(|_| FrameError::Malformed("a name that is none"))
}

fn placeholder(reader: &mut Reader<'_>) -> Result<String, FrameError> {
    let text = reader.text()?;
    // What is put in a sandbox's environment has the form of a value.
    SecretValue::new(text.as_bytes().to_vec()).map_err(|_| FrameError::Malformed("a placeholder that is none"))?;
    Ok(text.to_owned())
}

fn text(reader: &mut Reader<'_>) -> Result<String, FrameError> {
    let text = reader.text()?;
    if text.len() > MAX_TEXT { Err(FrameError::Malformed("text that is too long")) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn value() -> SecretValue {
        SecretValue::new(b"ghp_0123456789abcdef".to_vec()).unwrap()
    }

    fn asks() -> Vec<Ask> {
        let (sandbox, name): (SandboxLabel, SecretName) = ("0123456789abcdef".parse().unwrap(), "TOKEN".parse().unwrap());
        let wish = |text: &str, caller| Wish { binding: text.parse().unwrap(), caller, class: Class::Reference, behind: Vec::new() };
        let behind = vec![(name.clone(), value()), ("OTHER".parse().unwrap(), value())];
        let wishes = vec![wish("A@a.com,*.b.com:8443", Some(value())), wish("B@[::1]:80", None), Wish { behind, ..wish("C@c.com", None) }];
        vec![
            Ask::Hello { version: 1, role: Role::Owner { key: None } },
            Ask::Hello { version: 1, role: Role::Owner { key: Some([7; KEY]) } },
            Ask::Hello { version: 9, role: Role::Egress { pass: None } },
            Ask::Hello { version: 9, role: Role::Egress { pass: Some([8; 16]) } },
            Ask::Register {
                id: 7,
                sandbox: sandbox.clone(),
                purpose: "git.log".into(),
                ticket: Ticket([3; crate::ticket::TICKET]),
                wishes,
            },
            Ask::Release { id: 8, sandbox: sandbox.clone() },
            Ask::Redact {
                id: 11,
                sandbox: sandbox.clone(),
                extent: Extent::Beginning,
                pieces: vec![Vec::new(), b"\xff x".to_vec(), vec![7; 300]],
            },
            Ask::Sign { id: 12, sandbox: sandbox.clone(), name: name.clone(), message: b"msg_1.1.{}".to_vec() },
            Ask::Value { id: 9, sandbox: sandbox.clone(), name: name.clone() },
            Ask::Spend { id: 10, sandbox, name, bytes: u64::MAX },
        ]
    }

    fn replies() -> Vec<Reply> {
        let at = UNIX_EPOCH + Duration::from_secs(5);
        let given = |expires, keep| Reply::Value { id: 3, value: value(), expires, fresh_until: at, keep, bytes: Bytes::Counted };
        vec![
            Reply::Welcome { version: 1 },
            Reply::Registered {
                id: 1,
                pass: [5; 16],
                placeholders: vec![
                    ("x".repeat(16), Fact { adapter: "secret".into(), ..Fact::default() }),
                    (
                        "y".repeat(40),
                        Fact {
                            adapter: "vault".into(),
                            scope: Some("arn".into()),
                            expires: Some(at),
                            after: After::GivenBack,
                            note: Some("late".into()),
                        },
                    ),
                ],
            },
            given(None, Keep::UntilStale),
            given(Some(at), Keep::Once),
            Reply::Redacted {
                id: 6,
                pieces: vec![None, Some(b"[redacted:A]".to_vec())],
                taken: 12,
                counts: vec![("A".parse().unwrap(), 2)],
            },
            Reply::Signed { id: 7, signature: [9; SIGNATURE] },
            Reply::Done { id: 4 },
            Reply::Refused { id: 5, why: Refusal::Busy, message: "no".into(), hint: String::new() },
            Reply::Refused { id: 8, why: Refusal::Provider, message: "no".into(), hint: String::new() },
        ]
    }

    /// Every message comes back, and no cut or longer form of it is taken.
    fn check<T>(
        bodies: impl Iterator<Item = Zeroizing<Vec<u8>>>,
        again: impl Fn(&[u8]) -> Result<T, FrameError>,
        encode: impl Fn(&T) -> Zeroizing<Vec<u8>>,
    ) {
        for body in bodies {
            assert_eq!(encode(&again(&body).unwrap()), body);
            for cut in 0..body.len() {
                assert!(again(&body[..cut]).is_err(), "{cut} of {body:?}");
            }
            assert!(again(&[body.as_slice(), b"x"].concat()).is_err());
        }
    }

    #[test]
    fn messages_come_back_and_nothing_else_is_taken() {
        check(asks().iter().map(Ask::encode), Ask::decode, Ask::encode);
        check(replies().iter().map(Reply::encode), Reply::decode, Reply::encode);
    }

    #[test]
    fn no_message_shows_a_value() {
        for shown in [format!("{:?}", asks()), format!("{:?}", replies())] {
            assert!(!shown.contains("ghp_"), "{shown}");
        }
    }
}
