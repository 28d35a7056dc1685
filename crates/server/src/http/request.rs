//! From a request to its response: addresses, methods, bodies.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, VARY};
use hyper::{Method, Response, StatusCode};
use stoa_database::CancelHandle;
use stoa_database::results::ResultFormat;

use super::Service;
use super::answering::{AnswerBody, QueryTask, Request, options};
use super::parameters::Parameters;
use super::problem::Problem;

/// The longest body of a request, in bytes; a query that long is far beyond what people write.
const BODY_BYTES_MAX: usize = 64 << 20;

const PAGE: &str = include_str!("page.html");

/// A response's body: all at once, or an answer as it comes.
pub(super) enum ResponseBody {
    Whole(Full<Bytes>),
    Answer(AnswerBody),
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
            Self::Answer(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Answer(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Answer(_) => SizeHint::default(),
        }
    }
}

/// Answers one request; what goes wrong becomes a problem document.
pub(super) async fn answer(
    request: hyper::Request<Incoming>,
    service: &Arc<Service>,
) -> Result<Response<ResponseBody>, Infallible> {
    let response = match route(request, service).await {
        Ok(response) => response,
        Err(problem) => problem.response().map(ResponseBody::Whole),
    };
    Ok(response)
}

async fn route(
    request: hyper::Request<Incoming>,
    service: &Arc<Service>,
) -> Result<Response<ResponseBody>, Problem> {
    let method = request.method().clone();
    match request.uri().path() {
        "/sparql" => sparql(request, service).await,
        "/" => only_get(&method).map(|()| whole("text/html; charset=utf-8", PAGE)),
        "/health" => only_get(&method).map(|()| whole("text/plain; charset=utf-8", "ok\n")),
        path => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-address",
            format!("there is nothing at {path}: queries go to /sparql"),
        )),
    }
}

fn only_get(method: &Method) -> Result<(), Problem> {
    if method == Method::GET || method == Method::HEAD {
        Ok(())
    } else {
        Err(Problem::method_not_allowed("GET, HEAD"))
    }
}

fn whole(content_type: &'static str, body: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(Bytes::from_static(
        body.as_bytes(),
    ))));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The SPARQL Protocol's query operation.
async fn sparql(
    request: hyper::Request<Incoming>,
    service: &Arc<Service>,
) -> Result<Response<ResponseBody>, Problem> {
    let headers = request.headers();
    let accept = joined(headers, &ACCEPT)?;
    let wants_page = accept
        .as_deref()
        .is_some_and(|accept| accept.contains("text/html"));
    let parameters = parameters(request).await?;
    if parameters.update {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "unsupported",
            "not supported yet: SPARQL Update",
        ));
    }
    let Some(text) = parameters.query.clone() else {
        if wants_page {
            let mut response = whole("text/plain; charset=utf-8", "the query page is at /\n");
            *response.status_mut() = StatusCode::SEE_OTHER;
            response
                .headers_mut()
                .insert(LOCATION, HeaderValue::from_static("/"));
            return Ok(response);
        }
        return Err(Problem::bad_request("the parameter query is missing"));
    };
    let format = match &parameters.format {
        None => None,
        Some(name) => Some(ResultFormat::from_name(name).ok_or_else(|| {
            Problem::bad_request(format!("the parameter format does not know '{name}'"))
        })?),
    };
    let cancel = CancelHandle::new();
    run(
        service,
        Request {
            database: service.database.clone(),
            text,
            options: options(&parameters, &service.settings, cancel.clone()),
            format,
            accept,
        },
        cancel,
    )
    .await
}

/// Runs the query in the pool. The response begins with the first chunk of the answer, so what goes
/// wrong before it is a problem document with a status of its own.
async fn run(
    service: &Arc<Service>,
    request: Request,
    cancel: CancelHandle,
) -> Result<Response<ResponseBody>, Problem> {
    let (task, content_type) = QueryTask::new(request);
    let mut stream = service.pool.submit(task).map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many queries are running and waiting; try again in a moment",
        )
    })?;
    // Dropped with this future when the client goes away while it waits.
    let guard = CancelOnDrop(Some(cancel));
    let first = poll_fn(|context| stream.poll_chunk(context))
        .await
        .transpose()?;
    let cancel = guard.disarm();
    let content_type = *content_type.lock().unwrap_or_else(PoisonError::into_inner);
    let body = ResponseBody::Answer(AnswerBody::new(first, stream, cancel));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let content_type = content_type.unwrap_or("application/octet-stream");
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

struct CancelOnDrop(Option<CancelHandle>);

impl CancelOnDrop {
    fn disarm(mut self) -> CancelHandle {
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

/// The parameters of a query request by GET, POST of a form, or POST of the query itself.
async fn parameters(request: hyper::Request<Incoming>) -> Result<Parameters, Problem> {
    let mut parameters = Parameters::default();
    let query = request.uri().query().unwrap_or("").to_owned();
    parameters.add_form(&query)?;
    match *request.method() {
        Method::GET | Method::HEAD => {
            if parameters.update {
                return Err(Problem::bad_request("an update is sent by POST"));
            }
            return Ok(parameters);
        }
        Method::POST => {}
        _ => return Err(Problem::method_not_allowed("GET, HEAD, POST")),
    }
    let content_type = joined(request.headers(), &CONTENT_TYPE)?.unwrap_or_default();
    let media_type = content_type
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    let is_query = match media_type.as_str() {
        "application/x-www-form-urlencoded" => false,
        "application/sparql-query" => true,
        "application/sparql-update" => {
            parameters.update = true;
            return Ok(parameters);
        }
        _ => {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "send application/x-www-form-urlencoded or application/sparql-query",
            ));
        }
    };
    let body = read_body(request.into_body()).await?;
    if is_query {
        if parameters.query.replace(body).is_some() {
            return Err(Problem::bad_request("the query is given twice"));
        }
    } else {
        parameters.add_form(&body)?;
    }
    Ok(parameters)
}

async fn read_body(body: Incoming) -> Result<String, Problem> {
    let bytes = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                format!("a request has at most {BODY_BYTES_MAX} bytes"),
            ));
        }
        Err(_) => return Err(Problem::bad_request("the request broke off")),
    };
    String::from_utf8(Vec::from(bytes))
        .map_err(|_| Problem::bad_request("the request is not UTF-8"))
}

/// The values of a header that may occur several times, joined by commas.
fn joined(
    headers: &HeaderMap,
    name: &hyper::header::HeaderName,
) -> Result<Option<String>, Problem> {
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
