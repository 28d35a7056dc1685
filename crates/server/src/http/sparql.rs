//! Requests of the SPARQL Protocol, and its query operation; that of updates is in `updating`.
//!
//! # References
//! SPARQL 1.1 Protocol section 2.

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};
use stoa_database::limits::{QUERY_BYTES_MAX, UPDATE_BYTES_MAX};
use stoa_database::results::ResultFormat;
use stoa_database::{CancelHandle, Database, GraphFormat};
use tokio::time::Instant;

use super::Service;
use super::answering::{QueryRequest, QuerySource, Work, options};
use super::body::{BODY_BYTES_MAX, Held, ResponseBody, read_text, reserve, whole};
use super::description;
use super::memento::Asked;
use super::parameters::{Parameters, split_content_type};
use super::problem::Problem;
use super::route::{Client, joined, run};
use super::updating::update;

/// Answers a query, runs an update, or describes the service where there is neither.
pub(super) async fn sparql(
    request: hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    let mut accept = joined(request.headers(), &ACCEPT)?;
    let endpoint = client.endpoint.clone();
    let is_get = request.method() != Method::POST;
    let asked = Asked::of(&request, client)?;
    let headers = request.headers().clone();
    let (mut parameters, memory) = parameters(request, service).await?;
    if let Some(text) = parameters.update.take() {
        service.settings.check_write(&headers)?;
        return update((text, memory), &parameters, endpoint, service, database).await;
    }
    let cancel = CancelHandle::new();
    let Some(text) = parameters.query.take() else {
        if !is_get {
            return Err(Problem::bad_request(
                "there is neither a query nor an update: send query=... or update=..., or the text itself by POST \
                 as application/sparql-query or application/sparql-update",
            ));
        }
        if let Some(name) = &parameters.format {
            let format = GraphFormat::from_name(name);
            accept =
                Some(format.map_or_else(|| name.clone(), |format| format.media_type().to_owned()));
        }
        if accept
            .as_deref()
            .is_some_and(|accept| accept.contains("text/html"))
        {
            return Ok(to_page());
        }
        let work = description::work(
            database.clone(),
            endpoint,
            accept.as_deref(),
            &service.settings,
            cancel.clone(),
        )?;
        return run(service, client, work, cancel).await;
    };
    parameters.check_query()?;
    let format = wanted_format(&parameters, &mut accept)?;
    let work = Work::Prepare(Box::new(QueryRequest {
        source: QuerySource::Database(database.clone()),
        asked: asked.at(parameters.at),
        explain: parameters.explain,
        text,
        options: options(&parameters, endpoint, &service.settings, cancel.clone()),
        arrived: Instant::now(),
        format,
        accept,
        failed: Vec::new(),
        is_short: parameters.is_short(),
        memory: Some(memory),
    }));
    run(service, client, work, cancel).await
}

/// The format that a parameter names. Media types in it go before the header `Accept`.
///
/// # Errors
/// 400 for a name that is none.
pub(super) fn wanted_format(
    parameters: &Parameters,
    accept: &mut Option<String>,
) -> Result<Option<ResultFormat>, Problem> {
    let Some(name) = &parameters.format else {
        return Ok(None);
    };
    if name.contains(',') {
        *accept = Some(name.clone());
        return Ok(None);
    }
    let format = ResultFormat::from_name(name).ok_or_else(|| {
        Problem::bad_request(format!(
            "the parameter format does not know '{name}': it takes json, xml, csv and tsv for solutions, ttl, nt, nq, \
             trig, rdf and jsonld for graphs, or media types as Accept has them"
        ))
    })?;
    Ok(Some(format))
}

/// A browser that opens the endpoint wants the query page, which stands beside it.
fn to_page() -> Response<ResponseBody> {
    let mut response = whole("text/plain; charset=utf-8", "the query page is at ./\n");
    *response.status_mut() = StatusCode::SEE_OTHER;
    response
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static("./"));
    response
}

/// The parameters of a request by GET, POST of a form, or POST of the query or update itself.
async fn parameters(
    request: hyper::Request<Incoming>,
    service: &Service,
) -> Result<Held<Parameters>, Problem> {
    let mut parameters = Parameters::default();
    let query = request.uri().query().unwrap_or("").to_owned();
    parameters.add_form(&query)?;
    match *request.method() {
        Method::GET | Method::HEAD => {
            if parameters.update.is_some() {
                return Err(Problem::bad_request("an update is sent by POST"));
            }
            return Ok((parameters, service.reservation()?));
        }
        Method::POST => {}
        _ => return Err(Problem::method_not_allowed("GET, HEAD, POST, OPTIONS")),
    }
    let content_type = joined(request.headers(), &CONTENT_TYPE)?.unwrap_or_default();
    let (media_type, charset) = split_content_type(&content_type);
    if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-charset",
            "a request is sent in UTF-8",
        ));
    }
    let direct = match media_type.as_str() {
        "application/x-www-form-urlencoded" => None,
        "application/sparql-query" => Some("query"),
        "application/sparql-update" => {
            // Who may not write is told so before anything is read.
            service.settings.check_write(request.headers())?;
            Some("update")
        }
        _ => {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "send application/x-www-form-urlencoded, application/sparql-query or application/sparql-update",
            ));
        }
    };
    let (head, body) = request.into_parts();
    let bytes_max = match direct {
        None => BODY_BYTES_MAX,
        Some("query") => QUERY_BYTES_MAX,
        Some(_) => UPDATE_BYTES_MAX,
    };
    let (body, mut memory) = read_text(service, &head.headers, body, bytes_max).await?;
    if direct.is_some() {
        parameters.bytes += body.len();
    }
    let before = match direct {
        None => {
            // What is decoded is no longer than what is encoded, and both are there for a moment.
            let encoded = memory.bytes();
            reserve(&mut memory, body.len() as u64)?;
            parameters.add_form(&body)?;
            drop(body);
            memory.shrink(encoded);
            return Ok((parameters, memory));
        }
        Some("query") => parameters.query.replace(body),
        Some(_) => parameters.update.replace(body),
    };
    match before {
        Some(_) => Err(Problem::bad_request("the query or update is given twice")),
        None => Ok((parameters, memory)),
    }
}
