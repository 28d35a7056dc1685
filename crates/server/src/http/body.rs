//! Bodies of responses and of requests.
//!
//! # Limits
//! Whatever is as long as a client wants is counted in the memory budget: a request's body as it arrives and as it is
//! decoded, and an answer until the client has it. A body that finds no room is answered with 503, one that is longer
//! than its kind may be with 413, in both cases before the rest of it is read. The first 4 KB of each find room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use stoa_database::{BudgetExceeded, OutputPiece, Reservation};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Service;
use super::answering::AnswerBody;
use super::changes::FeedBody;
use super::encoding::{Coding, ZSTD_WINDOW_LOG_MAX};
use super::problem::Problem;
use super::unsent::Unsent;

/// The longest body that is held as a whole, in bytes after decoding: forms, which encode a text in up to three times
/// its length, and documents in parts.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

/// The longest body that is a name or a setting, in bytes after decoding.
pub(super) const NAME_BYTES_MAX: usize = 64 << 10;

/// The capacity of a body when its first bytes have come.
const FIRST_BYTES: usize = 4 << 10;

/// How many bodies are decoded at once. Decoding makes up to a thousand bytes of one.
static DECODING: Semaphore = Semaphore::const_new(2);

/// What a decoder of zstd takes at most, in bytes: its window, blocks, tables.
const ZSTD_BYTES: u64 = (1 << ZSTD_WINDOW_LOG_MAX) + (1 << 20);

/// What a decoder of gzip takes, in bytes.
const GZIP_BYTES: u64 = 64 << 10;

/// A response's body: all at once, or an answer as it comes.
pub(super) enum ResponseBody {
    Whole(Full<Bytes>),
    /// Whole, and long.
    Kept(KeptBody),
    Answer(AnswerBody),
    Feed(FeedBody),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never: Infallible| match never {}),
            Self::Kept(body) => body.poll_frame(context),
            Self::Answer(body) => Pin::new(body).poll_frame(context),
            Self::Feed(body) => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Kept(body) => body.chunks.is_empty(),
            Self::Answer(_) | Self::Feed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Kept(body) => SizeHint::with_exact(body.bytes),
            Self::Answer(_) | Self::Feed(_) => SizeHint::default(),
        }
    }
}

/// The chunks of an answer that is there as a whole.
#[derive(Default)]
pub(super) struct KeptBody {
    chunks: VecDeque<OutputPiece>,
    /// Those of all chunks that were not handed over.
    bytes: u64,
    unsent: Unsent,
}

impl KeptBody {
    pub(super) fn push(&mut self, chunk: OutputPiece) {
        self.bytes += chunk.bytes.len() as u64;
        self.chunks.push_back(chunk);
    }

    /// How many bytes there are.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn poll_frame(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        ready!(self.unsent.poll_room(context));
        let chunk = self.chunks.pop_front();
        Poll::Ready(chunk.map(|chunk| {
            self.bytes -= chunk.bytes.len() as u64;
            Ok(Frame::data(self.unsent.hand_over(chunk)))
        }))
    }
}

/// A response that is there as a whole.
pub(super) fn whole(content_type: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(body.into())));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The coding of a request's body.
///
/// # Errors
/// 415 if it is unknown.
pub(super) fn coding_of(headers: &HeaderMap) -> Result<Coding, Problem> {
    let Some(name) = headers.get(CONTENT_ENCODING) else {
        return Ok(Coding::Identity);
    };
    let coding = name.to_str().ok().and_then(Coding::from_name);
    coding.ok_or_else(|| {
        let mut problem = Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-coding",
            "a request may be encoded with gzip or zstd",
        );
        problem.accept_encoding = true;
        problem
    })
}

/// A request's body, and the memory that it takes.
pub(super) type Held<T> = (T, Reservation);

/// The text of a request's body, decoded.
///
/// # Errors
/// As [`read_bytes`], and 400 if it is not UTF-8.
pub(super) async fn read_text(
    service: &Service,
    headers: &HeaderMap,
    body: Incoming,
    bytes_max: usize,
) -> Result<Held<String>, Problem> {
    let (bytes, memory) = read_bytes(service, headers, body, bytes_max).await?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Problem::bad_request("the request is not UTF-8"))?;
    Ok((text, memory))
}

/// The whole of a request's body, decoded, in at most `bytes_max` bytes.
///
/// # Errors
/// 413 if it is longer, 503 if there is no memory for it, 408 if it has not arrived in time, 415 for an unknown coding, 400
/// if it is damaged.
pub(super) async fn read_bytes(
    service: &Service,
    headers: &HeaderMap,
    mut body: Incoming,
    bytes_max: usize,
) -> Result<Held<Vec<u8>>, Problem> {
    let coding = coding_of(headers)?;
    let patience = service.settings.client_timeout;
    let mut gathered = Gathered::new(service.reservation()?, bytes_max);
    let arriving = async {
        if announced_bytes(headers).is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreadable(&error))?;
            gathered.add(&frame.into_data().unwrap_or_default())?;
        }
        Ok(())
    };
    let arrived = timeout(patience, arriving).await;
    match arrived {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => {
            tokio::spawn(drain(body, patience));
            return Err(problem);
        }
        Err(_) => return Err(slow()),
    }
    if coding == Coding::Identity {
        return Ok((gathered.bytes, gathered.memory));
    }
    let mut decoded = Gathered::new(service.reservation()?, bytes_max);
    let failed = |_| Problem::bad_request("the request could not be decoded");
    let permit = DECODING
        .acquire()
        .await
        .map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "the server ends"))?;
    // Decoding may take long: other connections of this thread go on meanwhile.
    let decoding = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        decoded.decode(coding, &gathered)?;
        Ok((decoded.bytes, decoded.memory))
    });
    decoding.await.map_err(failed)?
}

/// The problem of a body that does not come.
pub(super) fn slow() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "slow-request",
        "the request did not arrive in time; see --client-timeout",
    )
}

/// How much of a body that nobody wants any more is still taken off the socket, in bytes.
const DRAINED_BYTES_MAX: usize = 64 << 20;

/// Takes a body off the socket that nobody wants any more: a client that is busy sending would not see the answer.
pub(super) async fn drain(mut body: Incoming, patience: Duration) {
    let mut drained = 0;
    while drained < DRAINED_BYTES_MAX
        && let Ok(Some(Ok(frame))) = timeout(patience, body.frame()).await
    {
        drained += frame.into_data().map_or(0, |bytes| bytes.len());
    }
}

/// The length of a body as its head says, in bytes as they are sent.
fn announced_bytes(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// What a decoder takes, in bytes.
pub(super) const fn decoder_bytes(coding: Coding) -> u64 {
    match coding {
        Coding::Identity => 0,
        Coding::Gzip => GZIP_BYTES,
        Coding::Zstd => ZSTD_BYTES,
    }
}

/// What is wrong with a body whose next bytes cannot be read.
pub(super) fn unreadable(error: &hyper::Error) -> Problem {
    match std::error::Error::source(error) {
        Some(why) if !error.is_incomplete_message() => Problem::bad_request(format!(
            "the body cannot be read: {why}; nothing was done with it"
        )),
        _ => Problem::bad_request("the request broke off before the end of its body"),
    }
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too-large",
        format!(
            "the request is longer than {bytes_max} bytes, decoded; data of any length goes to /store, /load, or \
             `stoa load`"
        ),
    )
}

/// One part of so many of the memory stays free of what requests bring, so that short ones are answered beside them.
pub(super) const SPARE_PARTS: u64 = 8;

/// So many bytes of a request may take what long ones leave free.
const SHORT_BYTES: u64 = 64 << 10;

/// Reserves more memory for what a request brings. The first [`FIRST_BYTES`] are taken even beyond the limit, by which
/// answers and reads may be for a moment: that a short query is refused for it helps nobody.
///
/// # Errors
/// 503 if there is none.
pub(super) fn reserve(memory: &mut Reservation, bytes: u64) -> Result<(), Problem> {
    let all = memory.bytes() + bytes;
    let reserved = if all <= FIRST_BYTES as u64 {
        memory.grow_anyway(bytes);
        Ok(())
    } else if all <= SHORT_BYTES {
        memory.grow(bytes)
    } else {
        memory.grow_sparing(bytes, SPARE_PARTS)
    };
    reserved.map_err(no_memory)
}

/// The problem of a request for which there is no memory.
fn no_memory(exceeded: BudgetExceeded) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "memory",
        format!(
            "other requests hold the memory that this one needs ({} bytes more; {} of {} are in use): send it again in a \
             moment, or raise --memory",
            exceeded.requested, exceeded.used, exceeded.limit
        ),
    )
}

/// Bytes that are brought into one piece, within a limit and the memory budget.
struct Gathered {
    bytes: Vec<u8>,
    /// For the capacity of `bytes`.
    memory: Reservation,
    bytes_max: usize,
}

impl Gathered {
    fn new(memory: Reservation, bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            memory,
            bytes_max,
        }
    }

    fn add(&mut self, more: &[u8]) -> Result<(), Problem> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        let before = self.bytes.capacity();
        if needed > before {
            let capacity = needed.max(2 * before).max(FIRST_BYTES);
            let capacity = capacity.min(self.bytes_max.max(needed));
            // Both are there while the one is copied into the other.
            reserve(&mut self.memory, capacity as u64)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
            self.memory.shrink(before as u64);
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    fn decode(&mut self, coding: Coding, encoded: &Self) -> Result<(), Problem> {
        let damaged = |_| Problem::bad_request("the request is not what its Content-Encoding says");
        let decoder = decoder_bytes(coding);
        reserve(&mut self.memory, decoder)?;
        let mut reader = coding.reader(encoded.bytes.as_slice()).map_err(damaged)?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        loop {
            piece.clear();
            let limit = PIECE_BYTES as u64;
            let read = reader.by_ref().take(limit).read_to_end(&mut piece);
            if read.map_err(damaged)? == 0 {
                break;
            }
            self.add(&piece)?;
        }
        self.memory.shrink(decoder);
        Ok(())
    }
}

/// So much is decoded at once, in bytes.
const PIECE_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use stoa_database::{Runtime, RuntimeOptions};

    use super::*;

    fn runtime() -> Runtime {
        let options = RuntimeOptions {
            memory_bytes: Some(16 << 20),
            ..RuntimeOptions::default()
        };
        Runtime::new(options).unwrap()
    }

    fn gathered(runtime: &Runtime, bytes_max: usize) -> Gathered {
        Gathered::new(runtime.reservation(), bytes_max)
    }

    #[test]
    fn a_short_body_is_taken_where_others_hold_everything() {
        let runtime = runtime();
        let mut others = runtime.reservation();
        others
            .grow((16 << 20) - runtime.memory_used_bytes())
            .unwrap();
        let mut body = gathered(&runtime, 100_000);
        body.add(&[1; FIRST_BYTES]).unwrap();
        assert_eq!(runtime.memory_used_bytes(), (16 << 20) + FIRST_BYTES as u64);
        assert_eq!(body.add(b"x").unwrap_err().code, "memory");
    }

    #[test]
    fn a_body_is_counted_as_it_arrives() {
        let runtime = runtime();
        let mut body = gathered(&runtime, 100_000);
        for _ in 0..100 {
            body.add(&[1; 1000]).unwrap();
            assert_eq!(runtime.memory_used_bytes(), body.bytes.capacity() as u64);
        }
        assert!(body.bytes.capacity() <= 100_000);
        assert_eq!(body.add(b"x").unwrap_err().code, "too-large");
        drop(body);
        assert_eq!(runtime.memory_used_bytes(), 0);
    }

    #[test]
    fn a_body_without_memory_is_refused() {
        let runtime = runtime();
        let mut body = gathered(&runtime, usize::MAX);
        let refused = loop {
            if let Err(problem) = body.add(&[1; 100_000]) {
                break problem;
            }
        };
        assert_eq!((refused.code, refused.status.as_u16()), ("memory", 503));
        assert!(runtime.memory_used_bytes() <= 16 << 20);
    }

    #[test]
    fn limits_hold_while_a_body_is_decoded() {
        let runtime = runtime();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
        encoder.write_all(&vec![b' '; 64 << 20]).unwrap();
        let mut encoded = gathered(&runtime, 1 << 20);
        encoded.add(&encoder.finish().unwrap()).unwrap();
        let used = runtime.memory_used_bytes();
        for (bytes_max, code) in [(1 << 20, "too-large"), (usize::MAX, "memory")] {
            let mut decoded = gathered(&runtime, bytes_max);
            let problem = decoded.decode(Coding::Gzip, &encoded).unwrap_err();
            assert_eq!(problem.code, code);
            drop(decoded);
            assert_eq!(runtime.memory_used_bytes(), used);
        }
    }
}
