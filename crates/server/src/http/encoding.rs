//! Content codings: gzip and zstd, chosen by the client, applied while an answer is written.
//!
//! # References
//! RFC 9110 sections 8.4 and 12.5.3; RFC 1952; RFC 8878; RFC 9659.

use std::io::{self, BufRead, Read, Write as _};

use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

use super::accept::quality;

/// Answers shorter than this are sent as they are: the head of the response is longer.
pub(super) const ENCODED_BYTES_MIN: usize = 1 << 10;

/// So much is handed on without being copied.
const MOVED_BYTES: usize = 32 << 10;
/// Encoders hold back at most this much of what they were given before it is flushed out.
const FLUSH_BYTES: usize = 64 << 10;

/// Fast levels: on a local network the processor is what is short.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// The largest window of zstd that is decoded, as the exponent of two: RFC 9659 allows no larger one in HTTP. A decoder
/// holds one.
pub(super) const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How bytes are encoded on their way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Coding {
    #[default]
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// The name in headers; `None` for identity, which is not named.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "identity" | "" => Self::Identity,
            "gzip" | "x-gzip" => Self::Gzip,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// What a client wants by its `Accept-Encoding`, and whether it takes short answers as they are;
    /// without one, no coding. `None` if it takes nothing that there is.
    pub(super) fn negotiate(accept: Option<&str>) -> Option<(Self, bool)> {
        let Some(accept) = accept else {
            return Some((Self::Identity, true));
        };
        let takes_plain = quality(accept, "identity") != Some(0);
        let wanted = |name: &str| quality(accept, name).unwrap_or(0);
        let (zstd, gzip) = (wanted("zstd"), wanted("gzip").max(wanted("x-gzip")));
        // Named codings are wanted more than none, unless the client says otherwise.
        let plain = quality(accept, "identity").filter(|_| accept.contains("identity"));
        let best = zstd.max(gzip);
        let coding = if best == 0 || plain.is_some_and(|plain| plain > best) {
            Self::Identity
        } else if zstd >= gzip {
            Self::Zstd
        } else {
            Self::Gzip
        };
        (takes_plain || coding != Self::Identity).then_some((coding, takes_plain))
    }

    /// Decodes what `bytes` gives as it is read.
    pub(super) fn reader<'a>(
        self,
        bytes: impl BufRead + Send + 'a,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Identity => Box::new(bytes),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }
}

/// Encodes an answer piece by piece.
pub(super) struct Encoder {
    inner: Inner,
    /// Bytes that went in since the last flush.
    held: usize,
    /// Whether the first piece is still to come; it is flushed at once.
    fresh: bool,
}

enum Inner {
    Identity,
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(Box<ZstdEncoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// # Errors
    /// If the encoder cannot be set up, for want of memory.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        let inner = match coding {
            Coding::Identity => Inner::Identity,
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Inner::Gzip(Box::new(GzEncoder::new(Vec::new(), level)))
            }
            Coding::Zstd => Inner::Zstd(Box::new(ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?)),
        };
        Ok(Self {
            inner,
            held: 0,
            fresh: true,
        })
    }

    /// Takes all of `plain` and appends what is ready to `out`. The first piece, and whatever was
    /// held back when nothing came, goes out at once, so that a reader sees rows as they are found.
    ///
    /// # Errors
    /// Never for reasons of the data.
    pub(super) fn push(&mut self, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<()> {
        if matches!(self.inner, Inner::Identity) {
            match out.is_empty() && plain.len() >= MOVED_BYTES {
                true => std::mem::swap(out, plain),
                false => out.append(plain),
            }
            return Ok(());
        }
        let is_idle = plain.is_empty();
        self.held += plain.len();
        let flush = self.held > 0 && (self.fresh || is_idle || self.held >= FLUSH_BYTES);
        match &mut self.inner {
            Inner::Identity => {}
            Inner::Gzip(encoder) => {
                encoder.write_all(plain)?;
                if flush {
                    encoder.flush()?;
                }
                out.append(encoder.get_mut());
            }
            Inner::Zstd(encoder) => {
                encoder.write_all(plain)?;
                if flush {
                    encoder.flush()?;
                }
                out.append(encoder.get_mut());
            }
        }
        if flush {
            (self.held, self.fresh) = (0, false);
        }
        plain.clear();
        Ok(())
    }

    /// Appends the end of the encoded stream.
    ///
    /// # Errors
    /// Never for reasons of the data.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match std::mem::replace(&mut self.inner, Inner::Identity) {
            Inner::Identity => {}
            Inner::Gzip(encoder) => out.append(&mut encoder.finish()?),
            Inner::Zstd(encoder) => out.append(&mut encoder.finish()?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses() {
        for (accept, coding) in [
            (None, Coding::Identity),
            (Some("gzip, deflate, br, zstd"), Coding::Zstd),
            (Some("gzip, deflate"), Coding::Gzip),
            (Some("gzip;q=1.0, zstd;q=0.5"), Coding::Gzip),
            (Some("gzip;q=0"), Coding::Identity),
            (Some("identity, gzip;q=0.5"), Coding::Identity),
            (Some("br"), Coding::Identity),
            (Some("*"), Coding::Zstd),
            (Some(""), Coding::Identity),
        ] {
            assert_eq!(
                Coding::negotiate(accept),
                Some((coding, true)),
                "{accept:?}"
            );
        }
        for (accept, expected) in [
            ("identity;q=0", None),
            ("*;q=0", None),
            ("br, *;q=0", None),
            ("identity;q=0, br", None),
            ("gzip, identity;q=0", Some((Coding::Gzip, false))),
            ("gzip, *;q=0", Some((Coding::Gzip, false))),
            ("*, identity;q=0", Some((Coding::Zstd, false))),
            ("identity, *;q=0", Some((Coding::Identity, true))),
        ] {
            assert_eq!(Coding::negotiate(Some(accept)), expected, "{accept}");
        }
    }

    #[test]
    fn pieces_come_back_whole_and_the_first_at_once() {
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            let mut encoder = Encoder::new(coding).unwrap();
            let (mut encoded, mut whole) = (Vec::new(), Vec::new());
            for piece in 0..50 {
                let mut plain = format!("row {piece} of an answer, ")
                    .repeat(100)
                    .into_bytes();
                whole.extend_from_slice(&plain);
                encoder.push(&mut plain, &mut encoded).unwrap();
                if piece == 0 {
                    let mut first = vec![0; whole.len()];
                    coding
                        .reader(encoded.as_slice())
                        .unwrap()
                        .read_exact(&mut first)
                        .unwrap();
                    assert_eq!(first, whole, "{coding:?}");
                }
            }
            encoder.finish(&mut encoded).unwrap();
            let mut decoded = Vec::new();
            coding
                .reader(encoded.as_slice())
                .unwrap()
                .read_to_end(&mut decoded)
                .unwrap();
            assert_eq!(decoded, whole, "{coding:?}");
        }
    }
}
