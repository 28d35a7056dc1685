//! From a request to its response: addresses, methods, and what all responses have in common.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName,
    HeaderValue, LOCATION, TRANSFER_ENCODING, VARY,
};
use hyper::{Method, Response, StatusCode, Version};
use stoa_database::CancelHandle;
use tokio::time::Instant;

use super::Service;
use super::answering::{AnswerBody, AnswerTask, Work};
use super::body::{KeptBody, ResponseBody, whole};
use super::changes::changes;
use super::commits::{diff, log};
use super::connection::Connection;
use super::cors::Asked;
use super::databases::Resource;
use super::encoding::Coding;
use super::keeping::{backup, compact};
use super::loading::{checkpoint, load};
use super::memento::refuse_at;
use super::page;
use super::parameters::refuse_all;
use super::patching::{apply, forget, revert};
use super::problem::Problem;
use super::rdf4j;
use super::reactor;
use super::sparql::sparql;
use super::status::{self, status};
use super::store::{change, store};
use super::timing;

/// The longest answer to a client of HTTP/1.0, in bytes: there a connection that breaks off cannot be
/// told from the end, so an answer is made whole before it is sent.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// A whole answer from this length on is counted in the memory budget until it is sent.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// What of a request decides how its answer travels.
pub(super) struct Client {
    /// The coding that the client wants.
    coding: Coding,
    /// Whether it takes short answers as they are.
    takes_plain: bool,
    pub(super) connection: Arc<Connection>,
    /// The address that was asked, without parameters and without a slash that means nothing, as the client names
    /// this server.
    pub(super) endpoint: String,
}

/// Answers one request; what goes wrong becomes a problem document.
pub(super) async fn answer(
    request: hyper::Request<Incoming>,
    connection: &Arc<Connection>,
    service: &Arc<Service>,
) -> Result<Response<ResponseBody>, Infallible> {
    let started = Instant::now();
    let asked = Asked::by(&request);
    let is_old = request.version() < Version::HTTP_11;
    let is_rdf4j = request.uri().path().starts_with("/repositories/");
    let mut outcome = route(request, connection, service).await;
    if is_old && let Ok(response) = outcome {
        outcome = buffered(response).await;
    }
    let mut response = outcome.unwrap_or_else(|problem| {
        let response = if is_rdf4j {
            problem.rdf4j_response()
        } else {
            problem.response()
        };
        response.map(ResponseBody::Whole)
    });
    service
        .settings
        .origins
        .mark(&asked, response.headers_mut());
    page::mark(response.headers_mut());
    timing::mark(response.headers_mut(), started.elapsed());
    Ok(response)
}

#[expect(clippy::too_many_lines, reason = "an arm for each address")]
async fn route(
    request: hyper::Request<Incoming>,
    connection: &Arc<Connection>,
    service: &Service,
) -> Result<Response<ResponseBody>, Problem> {
    let host = service.settings.hosts.check(&request)?;
    check_transfer(request.headers())?;
    check_expectations(request.headers())?;
    if request.method() == Method::CONNECT {
        return Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "not-a-proxy",
            "this server opens no connections to others: queries go to /sparql by GET or POST",
        ));
    }
    let asked = request.uri().path().to_owned();
    if asked == "*" && request.method() == Method::OPTIONS {
        return Ok(options("GET, HEAD, PUT, POST, DELETE, OPTIONS"));
    }
    let Some((path, database, resource)) = service.databases.resolve(&asked) else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-address",
            format!(
                "there is nothing at {asked}: queries go to {}",
                service.databases.addresses()
            ),
        ));
    };
    let allow = match resource {
        Resource::Sparql => "GET, HEAD, POST, OPTIONS",
        Resource::Load
        | Resource::Apply
        | Resource::Revert
        | Resource::Forget
        | Resource::Checkpoint
        | Resource::Backup
        | Resource::Compact => "POST, OPTIONS",
        Resource::Store { .. } => "GET, HEAD, PUT, POST, DELETE, OPTIONS",
        Resource::Repository { part, .. } => part.allow(),
        Resource::RunningQuery(_) => "DELETE, OPTIONS",
        _ => "GET, HEAD, OPTIONS",
    };
    let method = request.method().clone();
    if method == Method::OPTIONS {
        return Ok(options(allow));
    }
    if !allow.split(", ").any(|allowed| allowed == method.as_str()) {
        return Err(Problem::method_not_allowed(allow));
    }
    let reads = matches!(method, Method::GET | Method::HEAD);
    let may_query = match resource {
        Resource::Sparql => true,
        Resource::Repository { part, .. } => part == rdf4j::Part::Queries,
        _ => false,
    };
    if !reads && !may_query {
        refuse_at(request.uri().query().unwrap_or(""))?;
    }
    if resource.has_no_parameters() {
        refuse_all(request.uri().query().unwrap_or(""))?;
    }
    let client = Client::of(&request, connection, host, path)?;
    match (resource, database) {
        (Resource::Sparql, Some(database)) => sparql(request, &client, service, database).await,
        (Resource::Changes, Some(database)) => changes(&request, &client, service, database),
        (Resource::Log, Some(database)) => log(&request, &client, service, database).await,
        (Resource::Diff, Some(database)) => diff(&request, &client, service, database).await,
        (Resource::Apply, Some(database)) => apply(request, service, database).await,
        (Resource::Revert, Some(database)) => revert(request, service, database).await,
        (Resource::Forget, Some(database)) => forget(request, service, database).await,
        (Resource::Load, Some(database)) => load(request, service, database).await,
        (Resource::Checkpoint, Some(database)) => checkpoint(request, service, database).await,
        (Resource::Backup, Some(database)) => backup(request, service, database).await,
        (Resource::Compact, Some(database)) => compact(request, service, database).await,
        (Resource::Store { below }, Some(database)) if !reads => {
            change(request, &client, service, database, below).await
        }
        (Resource::Store { below }, Some(database)) => {
            store(&request, &client, service, database, below).await
        }
        (Resource::Repository { name, part }, Some(database)) => {
            let request = rdf4j::Request {
                incoming: request,
                client: &client,
                service,
                name,
                database,
            };
            rdf4j::repository(request, part).await
        }
        (Resource::Repositories, _) => rdf4j::repositories(request, &client, service).await,
        (Resource::Protocol, _) => Ok(rdf4j::protocol()),
        (Resource::AddSlash, _) => redirect(&format!("{path}/")),
        (Resource::Health, _) => Ok(whole("text/plain; charset=utf-8", "ok\n")),
        (Resource::Status, _) => {
            let may_write = service.settings.writers.check(request.headers()).is_ok();
            let status = status(&service.databases, may_write);
            Ok(whole("application/json", status))
        }
        (Resource::RunningQuery(number), _) => {
            service.settings.writers.check(request.headers())?;
            status::end(&service.databases, number)?;
            let mut response = whole("text/plain; charset=utf-8", "");
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        (Resource::List, _) => Ok(page::list(service)),
        (
            Resource::Page
            | Resource::Sparql
            | Resource::Changes
            | Resource::Log
            | Resource::Diff
            | Resource::Apply
            | Resource::Revert
            | Resource::Forget
            | Resource::Load
            | Resource::Checkpoint
            | Resource::Backup
            | Resource::Compact
            | Resource::Store { .. }
            | Resource::Repository { .. },
            _,
        ) => Ok(page::page()),
    }
}

/// Refuses transfer codings beside one `chunked`: they would be left undone, and proxies may read them otherwise.
fn check_transfer(headers: &HeaderMap) -> Result<(), Problem> {
    match joined(headers, &TRANSFER_ENCODING)? {
        Some(codings) if !codings.trim().eq_ignore_ascii_case("chunked") => Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "transfer-coding",
            "the only Transfer-Encoding of a request is chunked, once; compress it with Content-Encoding",
        )),
        _ => Ok(()),
    }
}

/// Refuses what a client expects beside being told to go on with its body, which is done anyway (RFC 9110, 10.1.1).
fn check_expectations(headers: &HeaderMap) -> Result<(), Problem> {
    match joined(headers, &EXPECT)? {
        Some(expected) if !expected.trim().eq_ignore_ascii_case("100-continue") => {
            Err(Problem::new(
                StatusCode::EXPECTATION_FAILED,
                "expectation",
                "the only Expect that can be met is 100-continue",
            ))
        }
        _ => Ok(()),
    }
}

/// What may be done with an address.
fn options(allow: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    response
}

fn redirect(to: &str) -> Result<Response<ResponseBody>, Problem> {
    let to = HeaderValue::from_str(to)
        .map_err(|_| Problem::bad_request("the address has bytes that are not ASCII"))?;
    let mut response = whole("text/plain; charset=utf-8", "");
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

impl Client {
    /// `host` is how the client names this server, and `path` what it asks.
    fn of(
        request: &hyper::Request<Incoming>,
        connection: &Arc<Connection>,
        host: Option<String>,
        path: &str,
    ) -> Result<Self, Problem> {
        let accepted = joined(request.headers(), &ACCEPT_ENCODING)?;
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        let Some((coding, takes_plain)) = Coding::negotiate(accepted.as_deref()) else {
            let mut problem = Problem::new(
                StatusCode::NOT_ACCEPTABLE,
                "coding-not-acceptable",
                "an answer can be had as it is, with gzip or with zstd; Accept-Encoding takes none of them",
            );
            problem.accept_encoding = true;
            return Err(problem);
        };
        Ok(Self {
            coding,
            takes_plain,
            connection: Arc::clone(connection),
            endpoint: format!("http://{host}{path}"),
        })
    }
}

/// Does the work in the pool; begins it here if it is short. The response begins with the first chunk of the
/// answer, so what goes wrong before it is a problem document with a status of its own.
pub(super) async fn run(
    service: &Service,
    client: &Client,
    work: Work,
    cancel: CancelHandle,
) -> Result<Response<ResponseBody>, Problem> {
    let may_begin = work.may_begin();
    let (task, head) = AnswerTask::new(work, client.coding, client.takes_plain);
    let begun = match may_begin {
        true => reactor::busy(|| service.pool.start(task, reactor::slice_ns())),
        false => service.pool.submit(task),
    };
    let mut stream = begun.map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many queries are running and waiting; try again in a moment",
        )
    })?;
    client.connection.answers(&cancel);
    // Dropped with this future when the client goes away while it waits.
    let guard = CancelOnDrop::new(cancel);
    let first = poll_fn(|context| stream.poll_chunk(context))
        .await
        .transpose()?;
    let cancel = guard.disarm();
    let head = std::mem::take(&mut *head.lock().unwrap_or_else(PoisonError::into_inner));
    let body = match stream.is_over() {
        // Its length goes before it.
        true => match first {
            Some(first) if first.bytes.len() >= COUNTED_BYTES_MIN => {
                let mut kept = KeptBody::default();
                kept.push(first);
                ResponseBody::Kept(kept)
            }
            first => ResponseBody::Whole(Full::from(first.map_or(Vec::new(), |first| first.bytes))),
        },
        false => ResponseBody::Answer(AnswerBody::new(
            first,
            stream,
            cancel,
            service.settings.tell,
        )),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(head.content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if let Some(coding) = head.coding.name() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    // Values of the same name go side by side.
    for (name, value) in &head.headers {
        headers.append(name, value.clone());
    }
    Ok(response)
}

/// Cancels work whose client goes away while it waits.
pub(super) struct CancelOnDrop(Option<CancelHandle>);

impl CancelOnDrop {
    pub(super) fn new(cancel: CancelHandle) -> Self {
        Self(Some(cancel))
    }

    pub(super) fn disarm(mut self) -> CancelHandle {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

/// Waits for the whole of an answer, so that its length goes before it.
async fn buffered(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, Problem> {
    let (head, body) = response.into_parts();
    let body = match body {
        ResponseBody::Answer(answer) => ResponseBody::Kept(answer.kept(KEPT_BYTES_MAX).await?),
        // A feed has no end that could be mistaken.
        body => body,
    };
    Ok(Response::from_parts(head, body))
}

/// The values of a header that may occur several times, joined by commas.
pub(super) fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let mut joined: Option<String> = None;
    for value in headers.get_all(name) {
        let value = value
            .to_str()
            .map_err(|_| Problem::bad_request(format!("the header {name} is not ASCII")))?;
        joined =
            Some(joined.map_or_else(|| value.to_owned(), |before| format!("{before}, {value}")));
    }
    Ok(joined)
}
