//! Statements of a repository: read and counted.

use hyper::Response;
use hyper::header::ACCEPT;
use stoa_database::{CancelHandle, GraphFormat};

use super::values::Parameters;
use super::{Request, text};
use crate::http::answering::{Work, choose};
use crate::http::body::ResponseBody;
use crate::http::problem::Problem;
use crate::http::route::{joined, run};
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
    let cancel = CancelHandle::new();
    let format = format(&request)?;
    let dump = request
        .database
        .statements(&parameters.pattern(), format, &cancel)?;
    let work = Work::Dump(Box::new(dump), format);
    run(request.service, request.client, work, cancel).await
}

/// The format of statements that the client wants.
fn format(request: &Request<'_>) -> Result<GraphFormat, Problem> {
    let accept = joined(request.incoming.headers(), &ACCEPT)?;
    choose(accept.as_deref(), &FORMATS)
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
