//! Encoding of wire values: little-endian integers, length-prefixed byte strings and lists.
//!
//! Owns how every message becomes bytes and back. Decoding is strict: a short buffer, trailing
//! bytes, an unknown variant or a list longer than [`MAX_ITEMS`] is an error, never a default.
//! It allocates no more than the bytes it was given can justify.

use std::fmt;

/// The most items any list on the wire may have.
pub const MAX_ITEMS: usize = 65_536;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The buffer ended before the value did.
    Short,
    /// Bytes were left over after the value.
    Trailing(usize),
    /// A variant number that this version does not know.
    UnknownVariant(&'static str, u8),
    /// A list or string is longer than allowed.
    TooLong(&'static str),
    /// A boolean that is neither 0 nor 1.
    BadBool(u8),
    /// Text that is not UTF-8.
    BadText,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("message ends too early"),
            Self::Trailing(n) => write!(f, "{n} bytes after the end of the message"),
            Self::UnknownVariant(what, n) => write!(f, "unknown {what} number {n}"),
            Self::TooLong(what) => write!(f, "{what} is too long"),
            Self::BadBool(n) => write!(f, "boolean has value {n}"),
            Self::BadText => f.write_str("text is not UTF-8"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A value that can cross the wire.
pub trait Wire: Sized {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes the value from the front of `input`.
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError>;
}

/// Encodes a value into a fresh buffer.
pub fn to_bytes<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Decodes a value that must fill the whole buffer.
pub fn from_bytes<T: Wire>(mut bytes: &[u8]) -> Result<T, DecodeError> {
    let value = T::decode(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(DecodeError::Trailing(bytes.len())) }
}

fn take<'a>(input: &mut &'a [u8], n: usize) -> Result<&'a [u8], DecodeError> {
    let (head, tail) = input.split_at_checked(n).ok_or(DecodeError::Short)?;
    *input = tail;
    Ok(head)
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let bytes = take(input, size_of::<$t>())?;
                Ok(<$t>::from_le_bytes(bytes.try_into().map_err(|_| DecodeError::Short)?))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i32, i64);

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(DecodeError::BadBool(n)),
        }
    }
}

/// A byte string; paths, arguments and data are bytes on Linux, not text.
#[derive(Clone, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<T: AsRef<[u8]>> From<T> for Bytes {
    fn from(value: T) -> Self {
        Self(value.as_ref().to_vec())
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        out.extend_from_slice(&self.0);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let len = u32::decode(input)? as usize;
        Ok(Self(take(input, len)?.to_vec()))
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::from_utf8(Bytes::decode(input)?.0).map_err(|_| DecodeError::BadText)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for item in self {
            item.encode(out);
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let len = u32::decode(input)? as usize;
        if len > MAX_ITEMS {
            return Err(DecodeError::TooLong("list"));
        }
        // Every item takes at least one byte, so the input itself bounds the reservation.
        let mut items = Self::with_capacity(len.min(input.len()));
        for _ in 0..len {
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(if bool::decode(input)? { Some(T::decode(input)?) } else { None })
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        take(input, N)?.try_into().map_err(|_| DecodeError::Short)
    }
}

/// Declares a struct and its encoding, field by field in order.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $t:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $t),* }
        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Wire::encode(&self.$field, out);)*
            }
            fn decode(input: &mut &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &input;
                Ok(Self { $($field: $crate::codec::Wire::decode(input)?),* })
            }
        }
    };
}

/// Declares an enum of struct-like variants, each with a fixed number on the wire.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $num:literal = $variant:ident { $($(#[$fmeta:meta])* $field:ident : $t:ty),* $(,)? }),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant { $($(#[$fmeta])* $field: $t),* }),* }
        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($num);
                        $($crate::codec::Wire::encode($field, out);)*
                    })*
                }
            }
            fn decode(input: &mut &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Wire>::decode(input)? {
                    $($num => Ok(Self::$variant { $($field: $crate::codec::Wire::decode(input)?),* }),)*
                    n => Err($crate::codec::DecodeError::UnknownVariant(stringify!($name), n)),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Exec, Reply, Request, Stdio, Stream};
    use crate::plan::{Access, Execution, Item, Source};

    fn request() -> Request {
        Request::Run {
            exec: Exec {
                argv: vec!["sh".into(), "-c".into(), b"\xff\x00".into()],
                env: vec![("PATH".into(), "/bin".into())],
                cwd: "/".into(),
                stdio: Stdio::Pty { rows: 24, cols: 80 },
            },
        }
    }

    #[test]
    fn messages_round_trip() {
        let bytes = to_bytes(&request());
        assert_eq!(from_bytes::<Request>(&bytes), Ok(request()));
        let reply = Reply::Data { stream: Stream::Errors {}, bytes: vec![7; 1000].into() };
        assert_eq!(from_bytes::<Reply>(&to_bytes(&reply)), Ok(reply));
        let item = Item::Overlay {
            lower: Source::Passed { index: 3 },
            layer: Source::Scratch { name: "x".into(), mode: 0o755 },
            target: "/w".into(),
            access: Access::ReadWrite {},
            execution: Execution::Denied {},
        };
        assert_eq!(from_bytes::<Item>(&to_bytes(&item)), Ok(item));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_error_or_another_message() {
        let bytes = to_bytes(&request());
        for end in 0..bytes.len() {
            assert!(from_bytes::<Request>(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                // It must not panic, take long, or give back the same message.
                assert_ne!(from_bytes::<Request>(&changed), Ok(request()), "flipped at {at}");
            }
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(from_bytes::<Request>(&longer), Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn lists_cannot_claim_more_than_they_bring() {
        let huge = u32::MAX.to_le_bytes();
        assert_eq!(from_bytes::<Vec<Bytes>>(&huge), Err(DecodeError::TooLong("list")));
        assert_eq!(from_bytes::<Bytes>(&huge), Err(DecodeError::Short));
        assert_eq!(from_bytes::<Vec<u64>>(&60_000u32.to_le_bytes()), Err(DecodeError::Short));
        assert_eq!(from_bytes::<bool>(&[2]), Err(DecodeError::BadBool(2)));
        assert_eq!(from_bytes::<String>(&[1, 0, 0, 0, 0xff]), Err(DecodeError::BadText));
        assert_eq!(from_bytes::<Stream>(&[9]), Err(DecodeError::UnknownVariant("Stream", 9)));
    }
}
