//! Bulk loads into a database that is served, where a document of any size becomes one commit, and
//! checkpoints.
//!
//! What is loaded is sorted into temporary files and merged into the database at once, while queries and
//! transactions go on; only commits wait for the merge. A client that goes away before it has its answer
//! ends the load, unless it is being committed.
//!
//! # Limits
//! A load takes a [`MEMORY_SHARE`]th of the server's memory.

use hyper::Response;
use hyper::body::Incoming;
use serde_json::json;
use stoa_database::{CancelHandle, CommitSummary, Database, Input, LoadOptions, LoadSummary};

use super::Service;
use super::body::{ResponseBody, whole};
use super::parameters::{check_once, pairs, unknown};
use super::problem::Problem;
use super::route::CancelOnDrop;
use super::upload::{BODY, format_of, write_with_body};
use super::writing::{mark, write};

/// The part of the memory that one load takes.
const MEMORY_SHARE: u64 = 4;

/// Answers POST to `/load`.
pub(super) async fn load(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.writers.check(request.headers())?;
    let cancel = CancelHandle::new();
    let mut options = LoadOptions {
        memory_bytes: Some(database.runtime().memory_bytes() / MEMORY_SHARE),
        reserve: true,
        cancel: cancel.clone(),
        ..LoadOptions::default()
    };
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    check_once(&pairs, &[])?;
    for (name, value) in pairs {
        match name.as_str() {
            "graph" => options.graph = Some(value),
            "base" => options.base = Some(value),
            _ => return Err(unknown(&name, "a load takes graph and base")),
        }
    }
    let (head, body) = request.into_parts();
    options.format = Some(format_of(&head.headers)?);
    let database = database.clone();
    let guard = CancelOnDrop::new(cancel);
    let summary = write_with_body(service, &head.headers, body, move |reader| {
        options.inputs = vec![Input::from_reader(BODY, reader)];
        Ok(database.load(options, &())?)
    })
    .await?;
    drop(guard.disarm());
    Ok(told(&summary))
}

/// Answers POST to `/checkpoint`: writes what was committed since the last checkpoint into the sort orders.
pub(super) async fn checkpoint(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.writers.check(request.headers())?;
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
    let mut response = whole("application/json", format!("{told}\n"));
    let changed = CommitSummary {
        commit: summary.commit,
        added: summary.quads_new,
        removed: 0,
        time_us: 0,
    };
    mark(response.headers_mut(), &changed);
    response
}
