//! One request over HTTP/1.1, redirects followed by hand, so that each target is checked.
//!
//! # References
//! RFC 9110, section 15.4 (redirection).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, LOCATION, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use stoa_database::federation::{FetchMethod, FetchRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::allow::Target;
use super::{REDIRECTS_MAX, Shared};

/// How long one address is tried.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A successful answer, its body still to come.
pub(super) struct Answered {
    pub(super) content_type: Option<String>,
    pub(super) is_gzip: bool,
    pub(super) body: Incoming,
    /// Keeps the connection going.
    pub(super) connection: Connection,
}

/// The task that serves a connection, which ends with it.
pub(super) struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks, and follows redirects. Fails with a reason for the user.
pub(super) async fn ask(shared: &Shared, request: &FetchRequest) -> Result<Answered, String> {
    let mut target = Target::parse(&request.url)?;
    let mut method = match request.method {
        FetchMethod::Get => Method::GET,
        FetchMethod::Post => Method::POST,
    };
    for _ in 0..=REDIRECTS_MAX {
        let (response, connection) = send(shared, &target, &method, request).await?;
        let status = response.status();
        let text = |name: HeaderName| {
            let value = response.headers().get(name);
            value.and_then(|v| v.to_str().ok()).map(str::to_owned)
        };
        if status.is_success() {
            let coding = text(CONTENT_ENCODING).map(|coding| coding.to_ascii_lowercase());
            let is_gzip = match coding.as_deref() {
                None | Some("" | "identity") => false,
                Some("gzip" | "x-gzip") => true,
                Some(other) => return Err(format!("its answer has the encoding {other}")),
            };
            return Ok(Answered {
                content_type: text(CONTENT_TYPE),
                is_gzip,
                body: response.into_body(),
                connection,
            });
        }
        if !is_redirect(status) {
            return Err(format!("it answers {status}"));
        }
        let location = text(LOCATION).ok_or_else(|| format!("it answers {status} to nowhere"))?;
        let base = oxiri::Iri::parse(target.url()).map_err(|error| error.to_string())?;
        let next = base
            .resolve(&location)
            .map_err(|error| format!("it answers {status} to {location}: {error}"))?;
        target = Target::parse(next.as_str())
            .map_err(|reason| format!("it answers {status}, but {reason}"))?;
        if status == StatusCode::SEE_OTHER {
            method = Method::GET;
        }
    }
    Err(format!("it redirects more than {REDIRECTS_MAX} times"))
}

const fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// One request to one target, if it may be asked.
async fn send(
    shared: &Shared,
    target: &Target,
    method: &Method,
    request: &FetchRequest,
) -> Result<(Response<Incoming>, Connection), String> {
    let is_named = shared.allowed.check(target)?;
    let stream = connect(shared, target, is_named).await?;
    let body = match *method {
        Method::GET => Bytes::new(),
        _ => Bytes::from(request.body.clone()),
    };
    let mut head = Request::builder()
        .method(method)
        .uri(&target.path)
        .header(HOST, target.authority())
        .header(USER_AGENT, concat!("stoa/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, request.accept)
        .header(ACCEPT_ENCODING, "gzip");
    if method == Method::POST {
        head = head.header(CONTENT_TYPE, request.content_type);
    }
    let message = head
        .body(Full::new(body))
        .map_err(|error| format!("{} cannot be asked: {error}", target.url()))?;
    if !target.is_tls {
        return transmit(stream, message).await;
    }
    let name = ServerName::try_from(target.host.clone())
        .map_err(|error| format!("{} is no host for TLS: {error}", target.host))?;
    let connector = shared.tls.get_or_init(connector).clone()?;
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS with {} failed: {error}", target.host))?;
    transmit(stream, message).await
}

async fn transmit(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    message: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Connection), String> {
    let broken = |error: hyper::Error| match std::error::Error::source(&error) {
        Some(source) => format!("the connection failed: {error}: {source}"),
        None => format!("the connection failed: {error}"),
    };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    let connection = Connection(tokio::spawn(async move {
        // Its failure is told by the body.
        connection.await.unwrap_or_default();
    }));
    let response = sender.send_request(message).await.map_err(broken)?;
    Ok((response, connection))
}

/// Connects to the first address that may be asked and answers.
async fn connect(shared: &Shared, target: &Target, is_named: bool) -> Result<TcpStream, String> {
    let addresses = lookup_host((target.host.as_str(), target.port))
        .await
        .map_err(|error| format!("{} is not found: {error}", target.host))?;
    let mut failure = format!("{} has no address", target.host);
    for address in addresses {
        let allowed = shared.allowed.check_address(target, address, is_named);
        let connected = match allowed {
            Ok(()) => connect_to(address).await,
            Err(reason) => Err(reason),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(reason) => failure = reason,
        }
    }
    Err(failure)
}

async fn connect_to(address: SocketAddr) -> Result<TcpStream, String> {
    match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("{address} cannot be reached: {error}")),
        Err(_) => Err(format!("{address} cannot be reached in time")),
    }
}

/// TLS with the certificates that the system trusts.
pub(crate) fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("this system has no certificates to trust, which https needs".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
