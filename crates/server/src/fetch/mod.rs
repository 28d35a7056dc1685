//! Requests to other machines, for SERVICE and LOAD.
//!
//! One thread moves the bytes of all requests. The body of an answer goes through a small channel to
//! a thread that parses it; while the query is behind, that thread waits, the channel fills, and
//! nothing more is read from the socket. A query that ends drops its requests with their connections.
//!
//! # Limits
//! [`REQUESTS_MAX`] requests at once, of all queries; others wait for their turn. [`TIME_MAX`], or what
//! the query has left; a document may take longer, as long as it keeps coming. [`REDIRECTS_MAX`] redirects.
//! [`RESPONSE_BYTES_MAX`] of an answer, before and after decompression; a document may have any length.

mod allow;
mod exchange;

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use stoa_database::federation::{Fetch, FetchMethod, FetchRequest, Response};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use allow::Allowed;
pub(crate) use allow::{Prefix, Target};
use exchange::Answered;
pub(crate) use exchange::connector;

/// Requests that are under way at once.
const REQUESTS_MAX: usize = 48;

/// Threads that parse answers and resolve names: more than requests, so that none waits for another.
const THREADS_MAX: usize = 2 * REQUESTS_MAX;

/// How long a request may take, its answer included.
const TIME_MAX: Duration = Duration::from_secs(600);

/// How many redirects are followed.
const REDIRECTS_MAX: usize = 5;

/// The largest answer.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// Pieces of an answer between the socket and the parser.
const PIECES: usize = 4;

/// Asks what the operator allows. Dropping it ends all requests.
#[derive(Debug)]
pub(crate) struct Fetcher {
    shared: Arc<Shared>,
    handle: Handle,
    /// Dropped to end the thread.
    _stop: oneshot::Sender<()>,
}

struct Shared {
    allowed: Allowed,
    turns: Semaphore,
    /// Made for the first request that needs it.
    tls: OnceLock<Result<TlsConnector, String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Starts the thread. `option` is what prefixes are given with, for messages.
    pub(crate) fn start(prefixes: Vec<Prefix>, option: &'static str) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .thread_name("stoa-fetch-reader")
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("stoa-fetch".to_owned())
            .spawn(move || {
                // Ends when the sender is dropped.
                runtime.block_on(stopped).unwrap_or_default();
                runtime.shutdown_background();
            })?;
        Ok(Self {
            shared: Arc::new(Shared {
                allowed: Allowed::new(prefixes, option),
                turns: Semaphore::new(REQUESTS_MAX),
                tls: OnceLock::new(),
            }),
            handle,
            _stop: stop,
        })
    }
}

impl Fetch for Fetcher {
    fn fetch(&self, request: FetchRequest, response: Response) {
        let shared = Arc::clone(&self.shared);
        self.handle.spawn(async move {
            let demand = response.demand();
            tokio::select! {
                () = std::future::poll_fn(|context| demand.poll_lost(context)) => {}
                () = run(&shared, request, response) => {}
            }
        });
    }
}

/// A request from its turn to the last byte of its answer.
async fn run(shared: &Shared, request: FetchRequest, response: Response) {
    let time = request
        .time_left
        .map_or(TIME_MAX, |left| left.min(TIME_MAX));
    let deadline = Instant::now() + time;
    let asked = timeout_at(deadline, async {
        let turn = shared.turns.acquire().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((turn, exchange::ask(shared, &request).await?))
    });
    match asked.await {
        Err(_) => response.fail("it does not answer in time"),
        Ok(Err(reason)) => response.fail(reason),
        Ok(Ok((turn, answered))) => {
            // Where time is up, the parser finds that the answer breaks off.
            match request.method {
                FetchMethod::Get => deliver(answered, response, u64::MAX).await,
                FetchMethod::Post => {
                    let delivering = deliver(answered, response, RESPONSE_BYTES_MAX);
                    timeout_at(deadline, delivering).await.unwrap_or_default();
                }
            }
            drop(turn);
        }
    }
}

/// Hands an answer of at most `bytes_max` to a thread that parses it.
async fn deliver(answered: Answered, response: Response, bytes_max: u64) {
    let Answered {
        content_type,
        is_gzip,
        mut body,
        connection: _connection,
    } = answered;
    let (pieces, receiver) = mpsc::channel(PIECES);
    let reading = tokio::task::spawn_blocking(move || {
        let plain = Pieces {
            receiver,
            piece: Bytes::new(),
            is_ended: false,
        };
        let content_type = content_type.as_deref();
        if is_gzip {
            let bounded = Bounded::new(MultiGzDecoder::new(plain), bytes_max);
            response.read(content_type, bounded);
        } else {
            response.read(content_type, Bounded::new(plain, bytes_max));
        }
    });
    loop {
        let piece = match timeout(TIME_MAX, body.frame()).await {
            Err(_) => Err(io::Error::other("it does not go on in time")),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(io::Error::other(error)),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(Some(data)),
                Err(_) => continue,
            },
        };
        let is_last = !matches!(piece, Ok(Some(_)));
        if pieces.send(piece).await.is_err() || is_last {
            break;
        }
    }
    drop(pieces);
    // It tells the query itself.
    reading.await.unwrap_or_default();
}

/// The pieces of an answer as a thread reads them.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Option<Bytes>>>,
    piece: Bytes,
    is_ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.is_ended {
            match self.receiver.blocking_recv() {
                Some(Ok(Some(piece))) => self.piece = piece,
                Some(Ok(None)) => self.is_ended = true,
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::other("it broke off")),
            }
        }
        let count = self.piece.len().min(out.len());
        let piece = self.piece.split_to(count);
        if let Some(out) = out.get_mut(..count) {
            out.copy_from_slice(&piece);
        }
        Ok(count)
    }
}

/// A reader that fails when it has given as much as it may.
struct Bounded<R> {
    input: R,
    left: u64,
}

impl<R: Read> Bounded<R> {
    const fn new(input: R, bytes_max: u64) -> Self {
        Self {
            input,
            left: bytes_max,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.left = u64::try_from(count)
            .ok()
            .and_then(|count| self.left.checked_sub(count))
            .ok_or_else(|| {
                let megabytes = RESPONSE_BYTES_MAX >> 20;
                io::Error::other(format!("it is larger than {megabytes} MB"))
            })?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_large_is_an_error() {
        let mut bounded = Bounded::new(io::repeat(b' '), RESPONSE_BYTES_MAX);
        let copied = io::copy(&mut bounded, &mut io::sink()).unwrap_err();
        assert_eq!(copied.to_string(), "it is larger than 256 MB");
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let (pieces, receiver) = mpsc::channel(2);
        pieces
            .try_send(Ok(Some(Bytes::from_static(b"abc"))))
            .unwrap();
        drop(pieces);
        let mut reader = Pieces {
            receiver,
            piece: Bytes::new(),
            is_ended: false,
        };
        let mut out = Vec::new();
        assert!(reader.read_to_end(&mut out).is_err());
        assert_eq!(out, b"abc");
    }
}
