//! `/changes`: the feed of changes as server-sent events.
//!
//! One event a commit: its id is the number of the commit, its data a patch. A client that comes again says which
//! commit it had last, by `since=N` or by the header `Last-Event-ID`, and gets all that came after it, or
//! an error if some of that is not kept any more. While there is nothing to tell a comment is sent now and then.
//!
//! # Concurrency
//! The log is read on a blocking thread, a piece at a time, when the client has taken the one before. While there
//! is no commit nothing runs; whoever publishes one wakes the feed.
//!
//! # References
//! HTML, section 9.2: server-sent events.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Response;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use stoa_database::{ChangeFeed, Database, Error, FeedStep};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::Service;
use super::body::ResponseBody;
use super::clients::ClientPlace;
use super::parameters::{check_once, pairs, unknown};
use super::problem::Problem;
use super::route::{Client, joined};

/// How often something is sent at least.
const ALIVE: Duration = Duration::from_secs(15);
/// A piece ends once it has so many bytes.
const PIECE_BYTES: usize = 64 << 10;

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
    let place = service.feeds.take(client.connection.address)?;
    let alive = ALIVE.min(service.settings.client_timeout / 2);
    let body = FeedBody {
        state: State::Ready(Box::new(feed)),
        sleep: Box::pin(tokio::time::sleep(alive)),
        alive,
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
    _place: ClientPlace,
}

/// What a feed has come to, and the text of events.
type Piece = (Box<ChangeFeed>, Result<String, Error>);

enum State {
    /// There may be something to tell.
    Ready(Box<ChangeFeed>),
    /// The next piece is being made.
    Running(JoinHandle<Piece>),
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
                    let piece = tokio::task::spawn_blocking(move || next_piece(feed));
                    self.state = State::Running(piece);
                }
                State::Running(mut piece) => {
                    let Poll::Ready(done) = Pin::new(&mut piece).poll(context) else {
                        self.state = State::Running(piece);
                        return Poll::Pending;
                    };
                    let (feed, text) = match done {
                        Ok(done) => done,
                        Err(error) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                    };
                    match text {
                        Ok(text) if text.is_empty() => self.state = State::Waiting(feed),
                        Ok(text) => {
                            self.state = State::Ready(feed);
                            return self.frame(text);
                        }
                        // The client is told; coming again it gets an answer that says the same.
                        Err(error) => {
                            let text = format!("event: error\ndata: {error}\n\n");
                            return self.frame(text);
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
                    return self.frame(":\n\n".to_owned());
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn frame(&mut self, text: String) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = tokio::time::Instant::now() + self.alive;
        self.sleep.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

/// The next piece of the events; empty if there is nothing to tell.
fn next_piece(mut feed: Box<ChangeFeed>) -> Piece {
    let mut text = String::new();
    let mut lines = Vec::new();
    while text.len() < PIECE_BYTES {
        lines.clear();
        let step = match feed.step(&mut lines) {
            Ok(step) => step,
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
    (feed, Ok(text))
}

/// Each line as one of the data of an event.
fn add_data(lines: &[u8], text: &mut String) {
    for line in String::from_utf8_lossy(lines).lines() {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
}
