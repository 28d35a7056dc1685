//! Bulk loads into a database that is served, where a document of any size becomes one commit, and
//! checkpoints.
//!
//! What is loaded is sorted into temporary files and merged into the database at once, while queries and
//! transactions go on; only commits wait for the merge. A client that goes away before it has its answer
//! ends the load, unless it is being committed.
//!
//! # Limits
//! A short document becomes a transaction and takes a few times its length of memory. A longer one becomes a bulk load,
//! which waits for its turn where others hold the memory (crates/database/src/load/turns.rs).

use hyper::Response;
use hyper::body::Incoming;
use serde_json::json;
use stoa_database::oxrdf::{GraphName, NamedNode};
use stoa_database::{
    AloneOptions, CancelHandle, CommitSummary, Database, DocumentOptions, LoadSummary,
};

use super::Service;
use super::body::{ResponseBody, whole};
use super::parameters::{check_once, pairs, unknown};
use super::problem::Problem;
use super::route::CancelOnDrop;
use super::upload::{BODY, format_of, write_with_body};
use super::writing::{self, write};

/// Answers POST to `/load`.
pub(super) async fn load(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let cancel = CancelHandle::new();
    let mut document = DocumentOptions {
        cancel: cancel.clone(),
        ..DocumentOptions::default()
    };
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    check_once(&pairs, &[])?;
    for (name, value) in pairs {
        match name.as_str() {
            "graph" => document.graph = Some(graph(&value)?),
            "base" => document.base = Some(value),
            _ => return Err(unknown(&name, "a load takes graph and base")),
        }
    }
    let (head, body) = request.into_parts();
    document.format = Some(format_of(&head.headers)?);
    let database = database.clone();
    let guard = CancelOnDrop::new(cancel);
    let summary = write_with_body(service, &head.headers, body, move |reader| {
        let options = AloneOptions {
            document,
            ..AloneOptions::default()
        };
        Ok(database.load_document(BODY, reader, &options)?)
    })
    .await?;
    drop(guard.disarm());
    Ok(told(&summary))
}

fn graph(iri: &str) -> Result<GraphName, Problem> {
    match NamedNode::new(iri) {
        Ok(graph) => Ok(GraphName::NamedNode(graph)),
        Err(error) => Err(Problem::bad_request(format!(
            "the parameter graph: '{iri}' is not an absolute IRI: {error}"
        ))),
    }
}

/// Answers POST to `/checkpoint`: writes what was committed since the last checkpoint into the sort orders.
pub(super) async fn checkpoint(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let database = database.clone();
    let summary = write(service, move || Ok(database.checkpoint()?)).await?;
    let told = json!({"commit": summary.commit, "written": summary.written});
    Ok(whole("application/json", format!("{told}\n")))
}

fn told(summary: &LoadSummary) -> Response<ResponseBody> {
    let told = json!({
        "commit": summary.commit,
        "quads_read": summary.quads_read,
        "quads_new": summary.quads_new,
        "terms_new": summary.terms_new,
        "temp_peak_bytes": summary.temp_peak_bytes,
    });
    let changed = CommitSummary {
        commit: summary.commit,
        added: summary.quads_new,
        terms: summary.terms_new,
        ..CommitSummary::default()
    };
    writing::told(&told, &changed)
}
