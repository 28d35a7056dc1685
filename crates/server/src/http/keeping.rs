//! Backups and compactions of a database that is served, for those who may write.
//!
//! A backup writes files, so it goes only into a folder that `--backup-dir` names, under a name without
//! slashes. Queries and commits go on beside both.

use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde_json::json;
use stoa_database::{BackupOptions, CancelHandle, CompactOptions, Database, in_background};

use super::Service;
use super::body::{ResponseBody, whole};
use super::databases::is_name;
use super::parameters::pairs;
use super::problem::Problem;
use super::route::CancelOnDrop;
use super::writing::write;

/// Answers POST to `/backup?name=NAME`, with `history=false` for one without earlier commits.
pub(super) async fn backup(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let Some(folder) = &service.settings.backup_dir else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "backup-off",
            "no backups are made here: serve --backup-dir FOLDER lets those who may write ask for them",
        ));
    };
    let (mut name, mut options) = (None, BackupOptions::default());
    for (key, value) in pairs(request.uri().query().unwrap_or(""))? {
        match (key.as_str(), value.as_str()) {
            ("name", given) if is_name(given) && name.is_none() => name = Some(value),
            ("history", "true") => options.history = true,
            ("history", "false") => options.history = false,
            _ => name = Some(String::new()),
        }
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Err(Problem::bad_request(
            "give the name of a folder for backups, of at most 128 letters, digits, - _ and ., as /backup?name=NAME; \
             history=false leaves earlier commits out",
        ));
    };
    let (target, database) = (folder.join(name), database.clone());
    let guard = CancelOnDrop::new(options.cancel.clone());
    let summary = write(service, move || {
        Ok(in_background(|| database.backup(target, &options, &()))??)
    })
    .await?;
    drop(guard.disarm());
    let told = json!({
        "number": summary.number,
        "commit": summary.commit,
        "extent_bytes": summary.extent_bytes,
        "log_bytes": summary.log_bytes,
        "kept_bytes": summary.kept_bytes,
    });
    Ok(whole("application/json", format!("{told}\n")))
}

/// Answers POST to `/compact`.
pub(super) async fn compact(
    request: hyper::Request<Incoming>,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let (database, cancel) = (database.clone(), CancelHandle::new());
    let options = CompactOptions {
        memory_bytes: None,
        reserve: true,
        cancel: cancel.clone(),
    };
    let guard = CancelOnDrop::new(cancel);
    let summary = write(service, move || {
        Ok(in_background(|| database.compact(&options))??)
    })
    .await?;
    drop(guard.disarm());
    let told = json!({
        "commit": summary.commit,
        "quads": summary.quads,
        "terms": summary.terms,
        "data_bytes": summary.data_bytes,
        "passes": summary.passes,
    });
    Ok(whole("application/json", format!("{told}\n")))
}
