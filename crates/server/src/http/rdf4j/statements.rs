//! Statements of a repository: read, replaced, added, removed, counted, and updated.

use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Response, StatusCode};
use stoa_database::{CancelHandle, GraphFormat, StatementPattern, TransactionOptions};

use super::upload::Upload;
use super::values::Parameters;
use super::{Request, done, text};
use crate::http::answering::{Work, choose};
use crate::http::body::ResponseBody;
use crate::http::parameters::split_content_type;
use crate::http::problem::Problem;
use crate::http::route::{joined, run};
use crate::http::upload::write_with_body;
use crate::http::writing::write;

/// Formats of statements; those with graphs come first.
const FORMATS: [(&str, GraphFormat); 7] = [
    ("application/n-quads", GraphFormat::NQuads),
    ("text/x-nquads", GraphFormat::NQuads),
    ("application/trig", GraphFormat::TriG),
    ("application/ld+json", GraphFormat::JsonLd),
    ("text/turtle", GraphFormat::Turtle),
    ("application/n-triples", GraphFormat::NTriples),
    ("application/rdf+xml", GraphFormat::RdfXml),
];

/// Answers what is asked of `/statements`.
pub(super) async fn statements(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let parameters = Parameters::of(request.query())?;
    let method = request.incoming.method().clone();
    if method == Method::GET || method == Method::HEAD {
        let cancel = CancelHandle::new();
        let format = format(&request)?;
        let dump = request
            .database
            .statements(&parameters.pattern(), format, &cancel)?;
        let work = Work::Dump(Box::new(dump), format);
        return run(request.service, request.client, work, cancel).await;
    }
    request.check_writer()?;
    if method == Method::DELETE {
        let database = request.database.clone();
        let summary = write(request.service, move || {
            let mut transaction = database.begin(&TransactionOptions::default())?;
            transaction.remove_statements(&parameters.pattern(), &CancelHandle::new())?;
            Ok(transaction.commit()?)
        })
        .await?;
        return Ok(done(StatusCode::NO_CONTENT, &summary));
    }
    let content_type = joined(request.incoming.headers(), &CONTENT_TYPE)?.unwrap_or_default();
    let (media_type, _) = split_content_type(&content_type);
    let is_update = parameters.has_update
        || media_type == "application/sparql-update"
        || media_type == "application/x-www-form-urlencoded";
    if method == Method::POST && is_update {
        return Err(no_update());
    }
    load(request, parameters, method == Method::PUT).await
}

/// The format of statements that the client wants.
pub(super) fn format(request: &Request<'_>) -> Result<GraphFormat, Problem> {
    let accept = joined(request.incoming.headers(), &ACCEPT)?;
    choose(accept.as_deref(), &FORMATS)
}

/// Adds a document, after what it replaces is removed.
async fn load(
    request: Request<'_>,
    parameters: Parameters,
    replaces: bool,
) -> Result<Response<ResponseBody>, Problem> {
    let graphs = parameters.graphs();
    let Request {
        incoming,
        service,
        name,
        database,
        ..
    } = request;
    let (head, body) = incoming.into_parts();
    let upload = Upload::of(&head.headers, parameters, &service.labels, name)?;
    let database = database.clone();
    let summary = write_with_body(service, &head.headers, body, move |reader| {
        let mut transaction = database.begin(&TransactionOptions::default())?;
        if replaces {
            let all = StatementPattern {
                graphs,
                ..StatementPattern::default()
            };
            transaction.remove_statements(&all, &upload.cancel)?;
        }
        upload.add(&mut transaction, reader)?;
        Ok(transaction.commit()?)
    })
    .await?;
    Ok(done(StatusCode::NO_CONTENT, &summary))
}

pub(super) fn no_update() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "unsupported",
        "not supported yet: SPARQL Update",
    )
}

/// How many statements there are.
pub(super) async fn size(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let graphs = Parameters::of(request.query())?.graphs();
    let database = request.database.clone();
    let quads = write(request.service, move || {
        Ok(database.count_statements(&graphs)?)
    })
    .await?;
    Ok(text(quads.to_string()))
}
