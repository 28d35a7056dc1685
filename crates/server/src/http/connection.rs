//! One connection: HTTP/1.1 over a socket that gives up on clients that take nothing.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use stoa_database::CancelHandle;
use stoa_database::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::Service;
use super::clients::{ClientAddress, ClientPlace};
use super::reactor::Open;
use super::reads::{BUFFER_BYTES_MAX, ReadBytes, SHORT_READ_BYTES};
use super::route;

/// A client that takes nothing is cut off after one part of so many of `--client-timeout` where its query holds memory for
/// which others wait. Several such answers of one client share that time, so that many of them keep nobody long.
const SHORT_OF_MEMORY_PART: u32 = 12;

/// How often a pending write is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What the operator is told of a client that is cut off so.
const TAKEN_FOR_OTHERS: &str = "an answer was broken off: its client took nothing of it, while other queries waited for the \
     memory that it held";

/// Serves one client until it closes the connection, breaks the protocol, or takes nothing for too
/// long.
pub(super) async fn serve(stream: TcpStream, service: Arc<Service>, _open: Open) {
    // Small answers must not wait for the acknowledgement of earlier ones.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    // Who has gone already is answered by nobody.
    let Ok(peer) = stream.peer_addr() else {
        return;
    };
    let Ok(memory) = service.reservation() else {
        return;
    };
    let connection = Arc::new(Connection {
        address: ClientAddress::of(peer.ip()),
        answer: Mutex::new(None),
        reads: ReadBytes::new(memory),
    });
    let stream = PatientStream::new(stream, Arc::clone(&service), Arc::clone(&connection));
    let head_timeout = service.settings.head_timeout;
    let answer = service_fn(move |incoming| {
        let (service, connection) = (Arc::clone(&service), Arc::clone(&connection));
        connection.reads.has_come();
        async move {
            let answer = route::answer(incoming, &connection, &service).await;
            connection.reads.is_awaited();
            answer
        }
    });
    let outcome = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    // A client that broke off, or an answer that had to be broken off: there is nobody to tell.
    drop(outcome);
}

/// What requests and socket of a connection know of each other.
pub(super) struct Connection {
    pub(super) address: ClientAddress,
    /// Ends the query whose answer is being sent.
    answer: Mutex<Option<CancelHandle>>,
    reads: ReadBytes,
}

impl Connection {
    /// Notes which query is answered from now on.
    pub(super) fn answers(&self, cancel: &CancelHandle) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.clone());
    }

    /// Whether the query that is being answered holds memory for which others wait.
    fn keeps_others_waiting(&self, service: &Service) -> bool {
        let Some(runtime) = service.databases.runtime() else {
            return false;
        };
        if runtime.queries_waiting() == 0 {
            return false;
        }
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer
            .as_ref()
            .is_some_and(|cancel| runtime.holds_memory(cancel))
    }
}

/// A socket whose writes fail when the other side takes nothing for a time, and sooner where others wait for what its
/// query holds; its reads are counted ([`ReadBytes`]).
struct PatientStream {
    stream: TcpStream,
    service: Arc<Service>,
    connection: Arc<Connection>,
    pending: Option<Pending>,
}

/// A write that the other side does not take.
struct Pending {
    since: Instant,
    /// Over when it is to be looked at.
    look: Pin<Box<Sleep>>,
    /// Counts it among those of its client, from the first look on.
    stalled: Option<ClientPlace>,
}

impl PatientStream {
    fn new(stream: TcpStream, service: Arc<Service>, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            service,
            connection,
            pending: None,
        }
    }

    /// Passes the outcome of a write on, or an error if it has been pending for too long.
    fn judge<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.pending = None;
            return outcome;
        }
        let patience = self.service.settings.client_timeout;
        let interval = LOOK.min(patience);
        let pending = self.pending.get_or_insert_with(|| {
            let now = Instant::now();
            Pending {
                since: now,
                look: Box::pin(tokio::time::sleep_until(now + interval)),
                stalled: None,
            }
        });
        while pending.look.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let spent = now.saturating_duration_since(pending.since);
            if spent >= patience {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if pending.stalled.is_none() {
                let place = self.service.stalled.take(self.connection.address);
                pending.stalled = place.ok();
            }
            let count = pending.stalled.as_ref().map_or(1, ClientPlace::count);
            let share = u32::try_from(count).unwrap_or(u32::MAX).max(1);
            let is_late = spent >= patience / SHORT_OF_MEMORY_PART / share;
            if is_late && self.connection.keeps_others_waiting(&self.service) {
                (self.service.settings.tell)(TAKEN_FOR_OTHERS);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            pending.look.as_mut().reset(now + interval);
        }
        Poll::Pending
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        let most = self.connection.reads.may_read(room);
        if most < room {
            let mut piece = [0; SHORT_READ_BYTES];
            let piece = piece.get_mut(..most).unwrap_or_default();
            let mut piece = ReadBuf::new(piece);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece))?;
            buffer.put_slice(piece.filled());
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        }
        let bytes = room - buffer.remaining();
        Poll::Ready(self.connection.reads.add(bytes, most))
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
