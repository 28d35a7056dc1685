//! `/changes`: the feed of changes as server-sent events.
//!
//! One event a commit: its id is the number of the commit, its data a patch. A client that comes again says which
//! commit it had last, by `since=N` or by the header `Last-Event-ID`, and gets all that came after it, or
//! an error if some of that is not kept any more. While there is nothing to tell a comment is sent now and then.
//!
//! # Concurrency
//! A blocking thread reads the log, a piece at a time, once the client has the piece before; [`STEPS_MAX`] threads do so
//! for all feeds. While there is no commit nothing runs; whoever publishes one wakes the feed.
//!
//! # Limits
//! [`FEEDS_MAX`] feeds. Each holds one piece, and the rows of the commit at work as its record has them; both are counted in
//! the memory budget.
//! A feed that finds no room tells its client to wait, as if there were nothing to tell, and looks again later.
//!
//! # References
//! HTML, section 9.2: server-sent events.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use stoa_database::{ChangeFeed, Database, Error, FeedStep, OutputPiece, Reservation, Runtime};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::Service;
use super::body::{ResponseBody, SPARE_PARTS};
use super::clients::ClientPlace;
use super::parameters::{check_once, pairs, unknown};
use super::problem::Problem;
use super::route::{Client, joined};
use super::unsent::Unsent;

/// How many feeds there are at once.
const FEEDS_MAX: usize = 500;

/// How many of them read the log at once.
const STEPS_MAX: usize = 2;

/// What is reserved for a piece while it is made, in bytes.
const PIECE_ROOM: u64 = 4 * PIECE_BYTES as u64;

/// How often something is sent at least.
const ALIVE: Duration = Duration::from_secs(15);

/// What is sent then: a comment, without the empty line that would end an event of which a part was sent.
const COMMENT: &str = ":\n";

/// A piece ends once it has so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The places of a server for feeds.
pub(crate) struct FeedPlaces {
    open: Arc<Semaphore>,
    steps: Arc<Semaphore>,
}

impl Default for FeedPlaces {
    fn default() -> Self {
        Self {
            open: Arc::new(Semaphore::new(FEEDS_MAX)),
            steps: Arc::new(Semaphore::new(STEPS_MAX)),
        }
    }
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Answers `GET /changes`.
pub(super) fn changes(
    request: &hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    let mut since = None;
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    check_once(&pairs, &[])?;
    for (name, value) in pairs {
        match name.as_str() {
            "since" => since = Some(commit(&value)?),
            _ => return Err(unknown(&name, "/changes takes since")),
        }
    }
    // What a browser had last goes before what its page asked for at first.
    if let Some(id) = joined(request.headers(), &LAST_EVENT_ID)? {
        since = Some(commit(&id)?);
    }
    let feed = database.changes(since.unwrap_or_else(|| database.commit()))?;
    let client_place = service.feeds.take(client.connection.address)?;
    let places = &service.feed_places;
    let place = Arc::clone(&places.open).try_acquire_owned().map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            format!("{FEEDS_MAX} feeds of changes are open, no more are served; try again later"),
        )
    })?;
    let alive = ALIVE.min(service.settings.client_timeout / 2);
    let body = FeedBody {
        state: State::Ready(Box::new(feed)),
        sleep: Box::pin(tokio::time::sleep(alive)),
        alive,
        unsent: Unsent::default(),
        steps: Arc::clone(&places.steps),
        runtime: database.runtime().clone(),
        _client_place: client_place,
        _place: place,
    };
    let mut response = Response::new(ResponseBody::Feed(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn commit(text: &str) -> Result<u64, Problem> {
    let commit = text.trim().parse();
    commit.map_err(|_| Problem::bad_request("the parameter since is the number of a commit"))
}

/// The events as they come.
pub(super) struct FeedBody {
    state: State,
    /// Over when something is to be sent.
    sleep: Pin<Box<Sleep>>,
    alive: Duration,
    _client_place: ClientPlace,
    unsent: Unsent,
    steps: Arc<Semaphore>,
    runtime: Runtime,
    _place: OwnedSemaphorePermit,
}

/// What a feed has come to, and the text of events.
type Piece = (Box<ChangeFeed>, Result<OutputPiece, Error>);

/// Waits until the log may be read.
type Turn = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

enum State {
    /// There may be something to tell.
    Ready(Box<ChangeFeed>),
    /// Others read the log.
    Queued(Box<ChangeFeed>, Turn),
    /// The next piece is being made.
    Running(JoinHandle<Piece>),
    /// There is no memory for the next piece.
    Short(Box<ChangeFeed>),
    /// There is nothing to tell.
    Waiting(Box<ChangeFeed>),
    Ended,
}

impl FeedBody {
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ready(feed) => {
                    // A client that takes nothing has no further piece made.
                    if self.unsent.poll_sent(context).is_pending() {
                        self.state = State::Ready(feed);
                        return Poll::Pending;
                    }
                    let turn = Box::pin(Arc::clone(&self.steps).acquire_owned());
                    self.state = State::Queued(feed, turn);
                }
                State::Queued(feed, mut turn) => {
                    let Poll::Ready(turn) = turn.as_mut().poll(context) else {
                        self.state = State::Queued(feed, turn);
                        return Poll::Pending;
                    };
                    let mut room = self.runtime.reservation();
                    self.state = match room.grow_sparing(PIECE_ROOM, SPARE_PARTS) {
                        Err(_) => State::Short(feed),
                        Ok(()) => State::Running(tokio::task::spawn_blocking(move || {
                            let _turn = turn;
                            next_piece(feed, room)
                        })),
                    };
                }
                State::Short(feed) => {
                    if self.sleep.as_mut().poll(context).is_pending() {
                        self.state = State::Short(feed);
                        return Poll::Pending;
                    }
                    self.state = State::Ready(feed);
                    return self.comment();
                }
                State::Running(mut piece) => {
                    let Poll::Ready(done) = Pin::new(&mut piece).poll(context) else {
                        self.state = State::Running(piece);
                        return Poll::Pending;
                    };
                    let (feed, piece) = match done {
                        Ok(done) => done,
                        Err(error) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                    };
                    match piece {
                        Ok(piece) if piece.bytes.is_empty() => self.state = State::Waiting(feed),
                        Err(error) if may_be_asked_again(&feed, &error) => {
                            self.state = State::Short(feed);
                        }
                        Ok(piece) => {
                            self.state = State::Ready(feed);
                            return self.frame(piece);
                        }
                        // The client is told; coming again it gets an answer that says the same.
                        Err(error) => {
                            let text = format!("event: error\ndata: {error}\n\n");
                            return self.frame(self.chunk(text));
                        }
                    }
                }
                State::Waiting(feed) => {
                    if feed.wake_at_commit(context.waker()) {
                        self.state = State::Ready(feed);
                        continue;
                    }
                    self.state = State::Waiting(feed);
                    if self.sleep.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    return self.comment();
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Says that there is somebody still.
    fn comment(&mut self) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.frame(self.chunk(COMMENT.to_owned()))
    }

    /// A short text.
    fn chunk(&self, text: String) -> OutputPiece {
        OutputPiece {
            bytes: text.into_bytes(),
            memory: self.runtime.reservation(),
            has_room: true,
        }
    }

    fn frame(&mut self, piece: OutputPiece) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = tokio::time::Instant::now() + self.alive;
        self.sleep.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(self.unsent.hand_over(piece)))))
    }
}

/// Whether the next commit was not read for lack of memory that others have.
fn may_be_asked_again(feed: &ChangeFeed, error: &Error) -> bool {
    match error {
        Error::MemoryExceeded {
            requested_bytes,
            limit_bytes,
            ..
        } => requested_bytes < limit_bytes && !feed.is_within_commit(),
        _ => false,
    }
}

/// The next piece of the events; empty if there is nothing to tell. `memory` becomes what it takes.
fn next_piece(mut feed: Box<ChangeFeed>, mut memory: Reservation) -> Piece {
    let mut text = String::new();
    let mut lines = Vec::new();
    while text.len() < PIECE_BYTES {
        lines.clear();
        let step = match feed.step(&mut lines) {
            Ok(step) => step,
            Err(error) if !text.is_empty() && may_be_asked_again(&feed, &error) => break,
            Err(error) => return (feed, Err(error)),
        };
        match step {
            FeedStep::Waits => break,
            FeedStep::Begun(info) => {
                text.push_str(&format!("id: {}\nevent: commit\n", info.commit));
                add_data(&lines, &mut text);
            }
            FeedStep::More => add_data(&lines, &mut text),
            FeedStep::Ended => {
                add_data(&lines, &mut text);
                text.push('\n');
            }
        }
    }
    // Its client may take long over this piece.
    feed.rest();
    let (taken, reserved) = (text.capacity() as u64, memory.bytes());
    match taken.checked_sub(reserved) {
        // A single long term makes a piece longer than it should be.
        Some(more) => memory.grow_anyway(more),
        None => memory.shrink(reserved - taken),
    }
    let piece = OutputPiece {
        bytes: text.into_bytes(),
        memory,
        has_room: true,
    };
    (feed, Ok(piece))
}

/// Each line as one of the data of an event.
fn add_data(lines: &[u8], text: &mut String) {
    for line in String::from_utf8_lossy(lines).lines() {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
}
