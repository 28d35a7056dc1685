//! `/log`: the commits that are kept, the newest first; `/diff`: what changed between two moments.
//!
//! Both are written piece by piece in the worker pool, as answers of queries are. `/log?limit=N` is a page;
//! with `before=M`, the last commit of that page, it is the next one.

use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use stoa_database::{CancelHandle, CommitList, Database, Error};

use super::Service;
use super::answering::{Opened, Work, choose};
use super::body::ResponseBody;
use super::parameters::{check_once, moment, pairs, unknown};
use super::problem::Problem;
use super::route::{Client, joined, run};
use super::writing::STOA_COMMIT;
use crate::commit_table::{CommitTable, TableFormat};

/// The oldest commit that can be read.
const STOA_OLDEST_COMMIT: HeaderName = HeaderName::from_static("stoa-oldest-commit");

/// What is kept of earlier commits.
const STOA_RETENTION: HeaderName = HeaderName::from_static("stoa-retention");

/// Commits that are written at a time.
const BATCH_COMMITS: usize = 256;

/// The media type of RDF Patch.
pub(super) const PATCH: &str = "application/rdf-patch";

/// A list of commits that is being written.
pub(super) struct CommitAnswer {
    list: CommitList,
    table: CommitTable,
    /// How many may still come.
    left: u64,
    has_begun: bool,
    cancel: CancelHandle,
}

impl CommitAnswer {
    /// Appends the next piece; returns whether there is more.
    ///
    /// # Errors
    /// `Cancelled`, and what the disk gives.
    pub(super) fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.table.begin(out).map_err(Error::Output)?;
        }
        for _ in 0..BATCH_COMMITS {
            let info = match self.left {
                0 => None,
                _ => self.list.next()?,
            };
            let Some(info) = info else {
                self.table.end(out).map_err(Error::Output)?;
                return Ok(false);
            };
            self.left -= 1;
            self.table.add(&info.into(), out).map_err(Error::Output)?;
        }
        Ok(true)
    }
}

/// Answers `GET /log`.
pub(super) async fn log(
    request: &hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    let (mut limit, mut before, mut named) = (u64::MAX, None, None);
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    check_once(&pairs, &[])?;
    for (name, value) in pairs {
        match name.as_str() {
            "limit" => limit = number(&name, &value)?,
            "before" => before = Some(number(&name, &value)?),
            "format" | "output" => named = Some(value),
            _ => {
                return Err(unknown(
                    &name,
                    "/log takes limit, before and format (or output)",
                ));
            }
        }
    }
    let format = match named {
        Some(name) => TableFormat::ALL
            .into_iter()
            .find(|format| format.name() == name || format.media_type() == name)
            .ok_or_else(|| {
                Problem::bad_request("the parameter format is one of json, csv, tsv and table")
            })?,
        None => {
            let accept = joined(request.headers(), &ACCEPT)?;
            let offers = TableFormat::ALL.map(|format| (format.media_type(), format));
            choose(accept.as_deref(), &offers)?
        }
    };
    let (database, cancel) = (database.clone(), CancelHandle::new());
    let to_list = cancel.clone();
    let work = Work::Open(Some(Box::new(move || {
        let mut headers = HeaderMap::new();
        headers.insert(STOA_COMMIT, HeaderValue::from(database.commit()));
        headers.insert(
            STOA_OLDEST_COMMIT,
            HeaderValue::from(database.oldest_commit()),
        );
        let retention = HeaderValue::from_str(&database.retention().to_string());
        headers.extend(retention.map(|retention| (STOA_RETENTION, retention)));
        let answer = CommitAnswer {
            list: database.list_commits(before),
            table: CommitTable::new(format),
            left: limit,
            has_begun: false,
            cancel: to_list,
        };
        Ok(Opened {
            work: Work::Commits(Box::new(answer)),
            content_type: content_type(format),
            headers,
        })
    })));
    run(service, client, work, cancel).await
}

const fn content_type(format: TableFormat) -> &'static str {
    match format {
        TableFormat::Table => "text/plain; charset=utf-8",
        TableFormat::Csv => "text/csv; charset=utf-8; header=present",
        TableFormat::Tsv => "text/tab-separated-values; charset=utf-8; header=present",
        TableFormat::Json => format.media_type(),
    }
}

fn number(name: &str, value: &str) -> Result<u64, Problem> {
    let number = value.trim().parse();
    number.map_err(|_| Problem::bad_request(format!("the parameter {name} is a number")))
}

/// Answers `GET /diff`.
pub(super) async fn diff(
    request: &hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    let (mut from, mut to) = (None, None);
    let pairs = pairs(request.uri().query().unwrap_or(""))?;
    check_once(&pairs, &[])?;
    for (name, value) in pairs {
        match name.as_str() {
            "from" => from = Some(moment(&name, &value)?),
            "to" => to = Some(moment(&name, &value)?),
            _ => return Err(unknown(&name, "/diff takes from and to")),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err(Problem::bad_request(
            "say between which moments, each the number of a commit or a time: /diff?from=17&to=23",
        ));
    };
    let (database, cancel) = (database.clone(), CancelHandle::new());
    let to_compare = cancel.clone();
    let work = Work::Open(Some(Box::new(move || {
        let patch = database.diff(&from, &to, &to_compare)?;
        Ok(Opened {
            work: Work::Patch(Box::new(patch)),
            content_type: PATCH,
            headers: HeaderMap::new(),
        })
    })));
    run(service, client, work, cancel).await
}
