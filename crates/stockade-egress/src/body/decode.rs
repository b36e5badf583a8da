//! Content decoding (gzip, deflate, br, zstd) so that answers can be searched, in bounded memory however much an encoder packed.
//!
//! The decoders are pulled: they read from a queue that says "not yet" when it is empty, and write into a buffer of fixed size.

use std::io::{self, BufRead, Read};

use bytes::{Buf as _, Bytes};

/// What is decoded at one time.
const PIECE: usize = 16 << 10;
/// zstd windows larger than this (8 MiB, as RFC 9659 asks of HTTP) are refused.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
/// What `Accept-Encoding` may still say where answers are searched.
pub(crate) const DECODABLE: &[&str] = &["gzip", "x-gzip", "deflate", "br", "zstd", "identity"];

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// None.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950 in practice.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Reads `Content-Encoding`; `None` for what cannot be decoded, several codings too.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Decodes one body.
pub(crate) struct Decoder {
    kind: Kind,
    buffer: Box<[u8]>,
}

enum Kind {
    Gzip(Box<flate2::bufread::MultiGzDecoder<Queue>>),
    Deflate(Box<flate2::bufread::ZlibDecoder<Queue>>),
    Brotli(Box<brotli_decompressor::Decompressor<Queue>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Queue>>),
}

impl Decoder {
    /// `None` for what needs no decoding.
    pub(crate) fn new(coding: Coding) -> io::Result<Option<Self>> {
        let queue = Queue::default();
        let kind = match coding {
            Coding::Identity => return Ok(None),
            Coding::Gzip => Kind::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(queue))),
            Coding::Deflate => Kind::Deflate(Box::new(flate2::bufread::ZlibDecoder::new(queue))),
            Coding::Brotli => Kind::Brotli(Box::new(brotli_decompressor::Decompressor::new(queue, 4096))),
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(queue)?;
                decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
                Kind::Zstd(Box::new(decoder))
            }
        };
        Ok(Some(Self { kind, buffer: vec![0; PIECE].into_boxed_slice() }))
    }

    /// Adds encoded bytes; the last piece is followed by [`Decoder::end`].
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.queue().waiting = piece;
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self) {
        self.queue().ended = true;
    }

    /// The next decoded piece; `None` when more bytes are needed, or at the end.
    pub(crate) fn pull(&mut self) -> io::Result<Option<Bytes>> {
        let read = match &mut self.kind {
            Kind::Gzip(decoder) => decoder.read(&mut self.buffer),
            Kind::Deflate(decoder) => decoder.read(&mut self.buffer),
            Kind::Brotli(decoder) => decoder.read(&mut self.buffer),
            Kind::Zstd(decoder) => decoder.read(&mut self.buffer),
        };
        match read {
            Ok(0) => Ok(None),
            Ok(count) => Ok(self.buffer.get(..count).map(Bytes::copy_from_slice)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn queue(&mut self) -> &mut Queue {
        match &mut self.kind {
            Kind::Gzip(decoder) => decoder.get_mut(),
            Kind::Deflate(decoder) => decoder.get_mut(),
            Kind::Brotli(decoder) => decoder.get_mut(),
            Kind::Zstd(decoder) => decoder.get_mut(),
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoder")
    }
}

/// Encoded bytes that wait; empty means "not yet" until the end.
#[derive(Debug, Default)]
struct Queue {
    waiting: Bytes,
    ended: bool,
}

impl Read for Queue {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), available.get(..count)) {
            to.copy_from_slice(from);
        }
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Queue {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.waiting.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.waiting)
    }

    fn consume(&mut self, count: usize) {
        self.waiting.advance(count.min(self.waiting.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn decode(coding: Coding, bytes: &[u8], cut: usize) -> io::Result<Vec<u8>> {
        let mut decoder = Decoder::new(coding)?.unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(cut) {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(piece) = decoder.pull()? {
                out.extend_from_slice(&piece);
            }
        }
        decoder.end();
        while let Some(piece) = decoder.pull()? {
            out.extend_from_slice(&piece);
        }
        Ok(out)
    }

    #[test]
    fn codings_are_decoded_however_they_are_cut() {
        let text: Vec<u8> = (0..40_000_u32).flat_map(|number| format!("{number} ").into_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&text).unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&text).unwrap();
        let encoded = [
            (Coding::Gzip, gzip.finish().unwrap()),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Zstd, zstd::encode_all(text.as_slice(), 3).unwrap()),
        ];
        for (coding, bytes) in encoded {
            for cut in [1, 100, 1 << 20] {
                assert!(decode(coding, &bytes, cut).unwrap() == text, "{coding:?} {cut}");
            }
        }
        // Made by another program (Node), since nothing here encodes brotli.
        let brotli = [
            0x1b, 0x1d, 0x00, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x55, 0x86, 0xd6, 0x6c, 0x20, 0x69, 0x6f, 0xd3, 0x10, 0x49, 0xe6, 0xa9,
            0x03, 0x52, 0x1a, 0xf1, 0x78, 0xd1, 0x0c,
        ];
        for cut in [1, 5, 100] {
            assert_eq!(decode(Coding::Brotli, &brotli, cut).unwrap(), b"hello hello hello hello brotli");
        }
    }

    #[test]
    fn a_live_piece_comes_out_at_once() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"data: one\n\n").unwrap();
        gzip.flush().unwrap();
        let mut decoder = Decoder::new(Coding::Gzip).unwrap().unwrap();
        decoder.push(Bytes::copy_from_slice(gzip.get_ref()));
        assert_eq!(decoder.pull().unwrap().unwrap(), "data: one\n\n");
        assert_eq!(decoder.pull().unwrap(), None);
    }

    #[test]
    fn a_bomb_comes_out_in_bounded_pieces() {
        let bomb = zstd::encode_all(io::repeat(0).take(64 << 20), 19).unwrap();
        assert!(bomb.len() < 16 << 10);
        let mut decoder = Decoder::new(Coding::Zstd).unwrap().unwrap();
        decoder.push(Bytes::from(bomb));
        decoder.end();
        let mut total = 0;
        while let Some(piece) = decoder.pull().unwrap() {
            assert!(piece.len() <= PIECE);
            total += piece.len();
        }
        assert_eq!(total, 64 << 20);
    }

    #[test]
    fn broken_bytes_are_an_error() {
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            assert!(decode(coding, b"certainly nothing encoded at all", 7).is_err(), "{coding:?}");
        }
    }
}
