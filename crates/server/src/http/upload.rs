//! Bodies of any length, handed piece by piece to a thread that reads them.
//!
//! The reactor takes pieces off the socket and puts them into a bounded channel; the thread reads
//! from it as from a file. So a body needs the memory of a few pieces. Each is counted in the memory budget until it is read;
//! a client whose piece finds no room is not read from until there is some.

use std::io::{self, BufReader, Read};
use std::pin::pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use stoa_database::{GraphFormat, Reservation};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::Service;
use super::body::{coding_of, decoder_bytes, drain, reserve, slow, unreadable};
use super::parameters::split_content_type;
use super::problem::Problem;
use super::route::joined;
use super::writing::write_arriving;

/// Pieces that wait to be read.
const PIECES_MAX: usize = 1;

/// How often a piece that finds no memory looks again.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What messages call a body.
pub(super) const BODY: &str = "the request";

/// The format of a body, as its head says.
///
/// # Errors
/// 415 if it says none that is known.
pub(super) fn format_of(headers: &HeaderMap) -> Result<GraphFormat, Problem> {
    let content_type = joined(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let (media_type, charset) = split_content_type(&content_type);
    if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-charset",
            "a request is sent in UTF-8",
        ));
    }
    // Only media types have a slash: short names are for people.
    GraphFormat::from_name(&media_type)
        .filter(|_| media_type.contains('/'))
        .ok_or_else(|| unknown_media_type(BODY))
}

/// The 415 of a document in no format.
pub(super) fn unknown_media_type(name: &str) -> Problem {
    let names: Vec<&str> = GraphFormat::ALL
        .iter()
        .map(|format| format.media_type())
        .collect();
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        format!(
            "the format of {name} is not known: say it with Content-Type, one of {}",
            names.join(", ")
        ),
    )
}

/// Says of a conflict what the client can do: the server has not kept the body that it would need.
pub(super) fn again(mut problem: Problem) -> Problem {
    if matches!(problem.code, "conflict" | "snapshot-expired") {
        problem.detail += "; the same request can be sent again";
    }
    problem
}

/// What comes through the channel; if it breaks off without an end, the client has gone.
enum Piece {
    Bytes(Bytes, Reservation),
    End,
}

/// Does work that reads the body of a request, decoded, on a thread for writers.
///
/// # Errors
/// What the work gives; 408, 415 and 400 for a body that is slow, in an unknown coding, or breaks off; 503 if there is no
/// memory, or too many bodies are read already.
pub(super) async fn write_with_body<T: Send + 'static>(
    service: &Service,
    headers: &HeaderMap,
    body: Incoming,
    work: impl FnOnce(Box<dyn Read + Send>) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let coding = coding_of(headers)?;
    let mut memory = service.reservation()?;
    let patience = service.settings.client_timeout;
    if let Err(problem) = reserve(&mut memory, decoder_bytes(coding)) {
        tokio::spawn(drain(body, patience));
        return Err(problem);
    }
    let room = memory.split(0);
    let (sender, receiver) = channel(PIECES_MAX);
    let pieces = Pieces {
        receiver,
        piece: Bytes::new(),
        memory: None,
        is_over: false,
    };
    let working = write_arriving(service, move || {
        let _memory = memory;
        let reader = coding.reader(BufReader::new(pieces)).map_err(|_| {
            Problem::bad_request("the request is not what its Content-Encoding says")
        })?;
        work(reader)
    });
    let mut feeding = Box::pin(feed(body, sender, room, patience));
    let mut working = pin!(working);
    tokio::select! {
        biased;
        fed = &mut feeding => {
            let done = working.await;
            // What the work says of a body that broke off is less to the point.
            fed.and(done)
        }
        done = &mut working => {
            // Nobody wants the rest; a client that is busy sending sees the answer only if it is taken off.
            tokio::spawn(async move { feeding.await.unwrap_or_default() });
            done
        }
    }
}

/// Moves a body into the channel, to its end or as long as somebody reads.
async fn feed(
    mut body: Incoming,
    sender: Sender<Piece>,
    mut room: Reservation,
    patience: Duration,
) -> Result<(), Problem> {
    loop {
        let Ok(frame) = tokio::time::timeout(patience, body.frame()).await else {
            return Err(slow());
        };
        let bytes = match frame {
            None => {
                drop(sender.send(Piece::End).await);
                return Ok(());
            }
            Some(Err(error)) => return Err(unreadable(&error)),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let memory = reserved(&mut room, bytes.len() as u64, patience).await?;
        if sender.send(Piece::Bytes(bytes, memory)).await.is_err() {
            drain(body, patience).await;
            return Ok(());
        }
    }
}

/// Reserves memory for a piece that is there, and waits for it a while if others have it.
async fn reserved(
    room: &mut Reservation,
    bytes: u64,
    patience: Duration,
) -> Result<Reservation, Problem> {
    let until = Instant::now() + patience;
    loop {
        match reserve(room, bytes) {
            Ok(()) => return Ok(room.split(bytes)),
            Err(problem) if Instant::now() >= until => return Err(problem),
            Err(_) => tokio::time::sleep(LOOK_INTERVAL).await,
        }
    }
}

/// The pieces as one stream.
struct Pieces {
    receiver: Receiver<Piece>,
    piece: Bytes,
    /// The memory of `piece`.
    memory: Option<Reservation>,
    is_over: bool,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.is_over {
            match self.receiver.blocking_recv() {
                Some(Piece::Bytes(bytes, memory)) => {
                    (self.piece, self.memory) = (bytes, Some(memory));
                }
                Some(Piece::End) => self.is_over = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the request broke off",
                    ));
                }
            }
        }
        let mut rest: &[u8] = &self.piece;
        let taken = rest.read(out)?;
        drop(self.piece.split_to(taken));
        if self.piece.is_empty() {
            self.piece = Bytes::new();
            self.memory = None;
        }
        Ok(taken)
    }
}
