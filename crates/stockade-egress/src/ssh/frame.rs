//! What goes over the upgraded connection: a byte that says what it is, four of length, and the bytes.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest frame from a sandbox.
const MAX_FRAME: usize = 64 << 10;
/// The longest part of what a host said at one time that goes into one frame.
const PIECE: usize = 32 << 10;

/// What a program inside says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Bytes of its standard input.
    Input(Bytes),
    /// There is no more of it.
    End,
}

/// What a program inside hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Output = 1,
    Errors = 2,
    Exit = 3,
    Broken = 4,
}

/// Reads one; an error where the connection ends.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Said> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await? as usize;
    let mut bytes = match (kind, length) {
        (0, 1..=MAX_FRAME) => vec![0; length],
        (1, 0) => return Ok(Said::End),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    stream.read_exact(&mut bytes).await?;
    Ok(Said::Input(bytes.into()))
}

/// Writes as many as it takes.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), kind: Heard, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        stream.write_u8(kind as u8).await?;
        stream.write_u32(piece.len() as u32).await?;
        stream.write_all(piece).await?;
    }
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_whole_or_not_at_all() {
        let mut good = &[0, 0, 0, 0, 2, b'a', b'b', 1, 0, 0, 0, 0][..];
        assert_eq!(read(&mut good).await.unwrap(), Said::Input(Bytes::from_static(b"ab")));
        assert_eq!(read(&mut good).await.unwrap(), Said::End);
        for mut bad in [&b""[..], &[0, 0, 0, 0, 0], &[1, 0, 0, 0, 1, 7], &[0, 0, 1, 0, 1, 7], &[2, 0, 0, 0, 0], &[0, 0, 0, 0, 2, 7]] {
            assert!(read(&mut bad).await.is_err());
        }
        let mut out = Vec::new();
        write(&mut out, Heard::Output, &vec![7; PIECE + 1]).await.unwrap();
        assert_eq!((out.len(), &out[..5]), (PIECE + 1 + 10, &[1, 0, 0, 0x80, 0][..]));
    }
}
