//! Frames: a length and that many bytes.

use std::io::{self, Read, Write};

use zeroize::Zeroizing;

use super::MAX_FRAME;

/// A frame that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream failed, or ended within a frame.
    #[error("the connection broke")]
    Io(#[from] io::Error),
    /// A length beyond the most.
    #[error("a message of {0} bytes is too long")]
    TooLong(u64),
    /// A body that is no message.
    #[error("a malformed message: {0}")]
    Malformed(&'static str),
}

/// Reads the next frame's body; `None` at the stream's end.
pub fn read(stream: &mut impl Read) -> Result<Option<Zeroizing<Vec<u8>>>, FrameError> {
    let mut length = [0; 4];
    let mut have = 0;
    while let Some(rest) = length.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length as u64));
    }
    let mut body = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Writes one frame at once.
pub fn write(stream: &mut impl Write, body: &[u8]) -> Result<(), FrameError> {
    let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
    let length = length.ok_or(FrameError::TooLong(body.len() as u64))?;
    let mut frame = Zeroizing::new(Vec::with_capacity(4 + body.len()));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_broken_ones_are_errors() {
        let mut stream = Vec::new();
        write(&mut stream, b"one").unwrap();
        write(&mut stream, b"").unwrap();
        let mut reader = stream.as_slice();
        assert_eq!(read(&mut reader).unwrap().unwrap().as_slice(), b"one");
        assert_eq!(read(&mut reader).unwrap().unwrap().as_slice(), b"");
        assert!(read(&mut reader).unwrap().is_none());
        for cut in 1..7 {
            assert!(matches!(read(&mut &stream[..cut]), Err(FrameError::Io(_))), "{cut}");
        }
        assert!(matches!(read(&mut &b"\xff\xff\xff\xff"[..]), Err(FrameError::TooLong(_))));
        assert!(matches!(write(&mut Vec::new(), &vec![0; MAX_FRAME + 1]), Err(FrameError::TooLong(_))));
    }
}
