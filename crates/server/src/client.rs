//! What a command sends to a server that is running. Here, one request whose body is made while it is sent; in `ask`,
//! one whose answer is taken while it comes.
//!
//! The server is asked first whether it wants the body (`Expect: 100-continue`), so that a client which may not
//! write learns it before it has sent anything. A body that is dropped before its end breaks the connection
//! off, and the server keeps nothing of it.
//!
//! # Limits
//! [`PIECES_MAX`] pieces wait to be sent.

mod ask;
mod note;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use stoa_database::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::fetch::{Target, connector};

pub(crate) use ask::{Ask, Failure, Taker, ask, query_of};
pub(crate) use note::notes;

/// Pieces between those who make them and the socket.
const PIECES_MAX: usize = 8;

/// How long one address is tried.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// How long a server is given to say whether it wants the body; old ones say nothing and wait for it.
const EXPECT_TIME: Duration = Duration::from_secs(2);

/// How often a thread that waits for an answer looks whether it is to go on.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The address of a database on a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServerUrl(Target);

impl ServerUrl {
    /// Reads the address of a database, such as `http://127.0.0.1:7878/` or `https://example.org/people/`; that
    /// of its SPARQL endpoint is taken, too.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut target = Target::parse(text.trim())?;
        if target.path.contains('?') {
            return Err("the address of a server has no query".to_owned());
        }
        let path = target.path.trim_end_matches('/');
        target.path = path.strip_suffix("/sparql").unwrap_or(path).to_owned();
        Ok(Self(target))
    }

    /// For messages.
    pub(crate) fn text(&self) -> String {
        self.0.url()
    }

    /// An address below that of the database.
    fn below(&self, rest: &str) -> Target {
        let mut target = self.0.clone();
        target.path = format!("{}{rest}", self.0.path);
        target
    }
}

/// What goes to the server.
enum Piece {
    Bytes(Bytes),
    End,
}

/// A request that is being sent.
pub(crate) struct Upload {
    pieces: mpsc::Sender<Piece>,
    answer: Mutex<Receiver<Result<Value, String>>>,
    /// Dropped to break the request off.
    _stop: oneshot::Sender<()>,
}

impl Upload {
    /// Connects, sends the head of a POST, and, where a type says that there is a body, waits until the server
    /// wants it.
    ///
    /// # Errors
    /// Why it does not, for the user.
    pub(crate) fn start(
        server: &ServerUrl,
        path: &str,
        content_type: Option<&'static str>,
        token: Option<&str>,
    ) -> Result<Self, String> {
        let target = server.below(path);
        let head = head(&target, content_type, token)?;
        let (pieces, receiver) = mpsc::channel(PIECES_MAX);
        let (wanted, is_wanted) = channel();
        let (gate, opened) = oneshot::channel();
        let body = Pieces {
            receiver,
            gate: content_type.map(|_| opened),
        };
        let mut request = head.body(body).map_err(|error| error.to_string())?;
        let gate = Mutex::new(Some((gate, wanted)));
        let open = Arc::new(move || {
            let gate = gate.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((gate, wanted)) = gate {
                gate.send(()).unwrap_or_default();
                wanted.send(()).unwrap_or_default();
            }
        });
        let on_continue = Arc::clone(&open);
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                on_continue();
            }
        });
        let (tell, answer) = channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        std::thread::Builder::new()
            .name("stoa-upload".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let patience = async {
                        tokio::time::sleep(EXPECT_TIME).await;
                        open();
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        _ = stopped => {}
                        () = patience => {}
                        answer = exchange(&target, request) => tell.send(answer).unwrap_or_default(),
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(|error| error.to_string())?;
        // Ends when the server wants the body, or when there is an answer and everything is dropped.
        if content_type.is_some() && is_wanted.recv().is_err() {
            return Err(match answer.recv() {
                Ok(Err(reason)) => reason,
                Ok(Ok(_)) | Err(_) => "it answered before it had the request".to_owned(),
            });
        }
        Ok(Self {
            pieces,
            answer: Mutex::new(answer),
            _stop: stop,
        })
    }

    /// Sends a piece of the body; waits while the server is behind.
    ///
    /// # Errors
    /// If the server takes no more; [`Upload::finish`] tells why.
    pub(crate) fn send(&self, piece: Vec<u8>) -> io::Result<()> {
        let sent = self.pieces.blocking_send(Piece::Bytes(Bytes::from(piece)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the server takes no more"))
    }

    /// Ends the body and waits for the answer; `None` if `interrupted` was set first.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub(crate) fn finish(self, interrupted: &AtomicBool) -> Result<Option<Value>, String> {
        self.pieces.blocking_send(Piece::End).unwrap_or_default();
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        while !interrupted.load(Ordering::Relaxed) {
            match answer.recv_timeout(INTERRUPT_POLL) {
                Ok(answer) => return answer.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the connection failed".to_owned());
                }
            }
        }
        Ok(None)
    }
}

fn head(
    target: &Target,
    content_type: Option<&'static str>,
    token: Option<&str>,
) -> Result<Builder, String> {
    let mut head = begun(Method::POST, target, token)?;
    if let Some(content_type) = content_type {
        head = head.header(CONTENT_TYPE, content_type);
        head = head.header(EXPECT, "100-continue");
    }
    Ok(head)
}

/// What all requests begin with.
fn begun(method: Method, target: &Target, token: Option<&str>) -> Result<Builder, String> {
    let mut head = Request::builder()
        .method(method)
        .uri(&target.path)
        .header(HOST, target.authority())
        .header(USER_AGENT, concat!("stoa/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|_| "the token is not ASCII".to_owned())?;
        bearer.set_sensitive(true);
        head = head.header(AUTHORIZATION, bearer);
    }
    Ok(head)
}

/// The body: what comes through the channel, once the gate is open.
struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    gate: Option<oneshot::Receiver<()>>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(gate) = &mut self.gate {
            if Pin::new(gate).poll(context).is_pending() {
                return Poll::Pending;
            }
            self.gate = None;
        }
        self.receiver.poll_recv(context).map(|piece| match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => None,
            None => Some(Err(io::Error::other("the request was given up"))),
        })
    }
}

/// Sends the request and reads the whole answer.
async fn exchange(target: &Target, request: Request<Pieces>) -> Result<Value, String> {
    let response = respond(target, request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await;
    let bytes = body.map_err(|error| format!("its answer broke off: {error}"))?;
    let answer: Option<Value> = serde_json::from_slice(&bytes.to_bytes()).ok();
    if status.is_success() {
        return answer.ok_or_else(|| "its answer is not JSON: it is no Stoa of today".to_owned());
    }
    let detail = answer.as_ref().and_then(|answer| answer.get("detail"));
    Err(match detail.and_then(Value::as_str) {
        Some(detail) => detail.to_owned(),
        None => format!("it answers {status}"),
    })
}

/// Sends the request and reads the head of the answer.
async fn respond<B>(target: &Target, request: Request<B>) -> Result<Response<Incoming>, String>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = connect(target).await?;
    if !target.is_tls {
        return transmit(stream, request).await;
    }
    let name = ServerName::try_from(target.host.clone())
        .map_err(|error| format!("{} is no host for TLS: {error}", target.host))?;
    let stream = connector()?
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS with {} failed: {error}", target.host))?;
    transmit(stream, request).await
}

async fn transmit<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<B>,
) -> Result<Response<Incoming>, String>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let broken = |error: hyper::Error| match std::error::Error::source(&error) {
        Some(source) => format!("the connection failed: {error}: {source}"),
        None => format!("the connection failed: {error}"),
    };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    // Ends with the runtime; its failure is told by the answer.
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    sender.send_request(request).await.map_err(broken)
}

async fn connect(target: &Target) -> Result<TcpStream, String> {
    let addresses = lookup_host((target.host.as_str(), target.port))
        .await
        .map_err(|error| format!("{} is not found: {error}", target.host))?;
    let mut failure = format!("{} has no address", target.host);
    for address in addresses {
        failure = match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => format!("{address} cannot be reached: {error}"),
            Err(_) => format!("{address} cannot be reached in time"),
        };
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::ServerUrl;

    #[test]
    fn addresses_of_databases_are_read() {
        for (text, path) in [
            ("http://127.0.0.1:7878", "/load"),
            ("http://127.0.0.1:7878/", "/load"),
            ("http://localhost:7878/sparql", "/load"),
            ("https://example.org/people/", "/people/load"),
            ("https://example.org/people/sparql", "/people/load"),
        ] {
            assert_eq!(ServerUrl::parse(text).unwrap().below("/load").path, path);
        }
        for wrong in ["", "db", "ftp://a/", "http://a/?x", "http://u@a/"] {
            assert!(ServerUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
