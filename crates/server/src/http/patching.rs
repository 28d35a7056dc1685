//! `POST /apply`: an RDF Patch as one commit; `POST /revert`: a commit that undoes others; `POST /forget`: earlier
//! commits are given free.
//!
//! The first two answer with what was changed, as JSON and in the head. A client that goes away before the commit is decided
//! ends the work.

use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use serde_json::json;
use stoa_database::{CancelHandle, CommitSummary, Database, Input, PatchOptions, PatchSummary};

use super::Service;
use super::body::{ResponseBody, whole};
use super::commits::PATCH;
use super::parameters::{moment, pairs, split_content_type};
use super::problem::Problem;
use super::route::{CancelOnDrop, joined};
use super::upload::{BODY, again, write_with_body};
use super::writing::{self, write};

/// Answers POST to `/apply`.
pub(super) async fn apply(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let cancel = CancelHandle::new();
    let mut options = PatchOptions {
        cancel: cancel.clone(),
        ..PatchOptions::default()
    };
    for (name, value) in pairs(request.uri().query().unwrap_or(""))? {
        match name.as_str() {
            "strict" => options.strict = flag(&name, &value)?,
            "message" => options.message = Some(value),
            _ => {
                return Err(Problem::bad_request(format!(
                    "the parameter {name} is not known here: a patch takes strict and message"
                )));
            }
        }
    }
    let (head, body) = request.into_parts();
    let content_type = joined(&head.headers, &CONTENT_TYPE)?.unwrap_or_default();
    if split_content_type(&content_type).0 != PATCH {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            format!("a patch is sent with Content-Type: {PATCH}; documents go to /load and /store"),
        ));
    }
    let database = database.clone();
    let guard = CancelOnDrop::new(cancel);
    let summary = write_with_body(service, &head.headers, body, move |reader| {
        let input = Input::from_reader(BODY, reader);
        Ok(database.apply_patch(&input, &options)?)
    })
    .await
    .map_err(again)?;
    drop(guard.disarm());
    Ok(told(&summary))
}

/// Answers POST to `/revert`.
pub(super) async fn revert(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let cancel = CancelHandle::new();
    let mut options = PatchOptions {
        cancel: cancel.clone(),
        ..PatchOptions::default()
    };
    let (mut commits, mut force) = (Vec::new(), false);
    for (name, value) in pairs(request.uri().query().unwrap_or(""))? {
        match name.as_str() {
            "commit" => commits.push(value.trim().parse().map_err(|_| {
                Problem::bad_request("the parameter commit is the number of a commit")
            })?),
            "force" => force = flag(&name, &value)?,
            "message" => options.message = Some(value),
            _ => {
                return Err(Problem::bad_request(format!(
                    "the parameter {name} is not known here: revert takes commit, force and message"
                )));
            }
        }
    }
    if commits.is_empty() {
        return Err(Problem::bad_request(
            "say which commits are to be undone: /revert?commit=17, or several: /revert?commit=17&commit=18",
        ));
    }
    let database = database.clone();
    let guard = CancelOnDrop::new(cancel);
    let work = move || Ok(database.revert(&commits, force, &options)?);
    let summary = write(service, work).await?;
    drop(guard.disarm());
    Ok(told(&summary))
}

/// Answers POST to `/forget`.
pub(super) async fn forget(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    let before = match pairs.as_slice() {
        [(name, value)] if name == "before" => moment(name, value)?,
        _ => {
            return Err(Problem::bad_request(
                "say before which commit or time what was is forgotten: /forget?before=17",
            ));
        }
    };
    let database = database.clone();
    let oldest = write(service, move || Ok(database.forget_before(&before)?)).await?;
    let told = json!({"oldest": oldest});
    Ok(whole("application/json", format!("{told}\n")))
}

/// A parameter that is on or off; its name alone turns it on.
fn flag(name: &str, value: &str) -> Result<bool, Problem> {
    match value {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::bad_request(format!(
            "the parameter {name} is true or false"
        ))),
    }
}

fn told(summary: &PatchSummary) -> Response<ResponseBody> {
    let told = json!({
        "commit": summary.commit,
        "added": summary.added,
        "removed": summary.removed,
        "unchanged": summary.unchanged,
        "prefixes": summary.prefixes,
    });
    let changed = CommitSummary {
        commit: summary.commit,
        added: summary.added,
        removed: summary.removed,
        time_us: summary.time_us,
        ..CommitSummary::default()
    };
    writing::told(&told, &changed)
}
