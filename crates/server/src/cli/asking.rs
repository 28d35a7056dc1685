//! `query`, `update`, `dump`, `log` and `diff` that a running server carries out: what it answers goes to standard
//! output while it comes, in the formats that these commands have for a folder.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use hyper::header::HeaderMap;
use serde_json::Value;
use stoa_database::{DumpFormat, Error, Place, UpdateSummary};

use super::arguments::{DefaultGraph, Diff, Dump, Explain, Log, Query, QueryLimits, Update};
use super::history::{list_format, say_compared, say_listed};
use super::output::say;
use super::remote::Remote;
use super::update::{Request, told};
use crate::client::{Ask, Failure, Taker, ask, notes, query_of};
use crate::commit_table::{CommitRow, CommitTable};

const NO_OUTPUT: &str = "cannot write to standard output";

/// The longest answer to an update, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What a server refused.
#[derive(Debug)]
pub(super) struct Refused {
    text: String,
    /// Whether the command was used wrongly.
    pub(super) is_usage: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}

impl Remote<'_> {
    pub(super) fn query(
        &self,
        text: String,
        arguments: &Query,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        let mut parameters = of_limits(&arguments.limits)?;
        parameters.extend(arguments.base.clone().map(|base| ("baseURI", base)));
        parameters.extend(arguments.at.map(|at| ("at", at.to_string())));
        let format = arguments.format.map(|format| format.to_string());
        parameters.extend(format.map(|format| ("format", format)));
        parameters.extend(arguments.explain.map(|explain| match explain {
            Explain::Plan => ("explain", "plan".to_owned()),
            Explain::Analyze => ("explain", "analyze".to_owned()),
        }));
        // As for a folder: a table and Turtle for people, TSV and N-Triples for programs.
        let accept = match std::io::stdout().is_terminal() {
            true => "text/plain, text/turtle",
            false => "text/tab-separated-values, application/n-triples",
        };
        let request = Ask {
            path: format!("/sparql{}", query_of(&parameters)),
            accept: Some(accept),
            body: Some(("application/sparql-query", text.clone())),
        };
        let mut copy = Copy {
            query: Some(&text),
            ..Copy::default()
        };
        let done = self.ask(request, interrupted, &mut copy);
        if let Err(Failure::Refused {
            plan: Some(plan), ..
        }) = &done
        {
            copy.piece(plan.as_bytes())?;
        }
        done.map_err(|failure| match (&failure, &arguments.query) {
            (Failure::Refused { code, .. }, Some(file))
                if code == "syntax" && Path::new(file).is_file() =>
            {
                anyhow::anyhow!("'{file}' is a file and no query: ask it with -f {file}")
            }
            _ => self.failure(failure),
        })?;
        copy.finish()
    }

    pub(super) fn update(
        &self,
        requests: &[Request<'_>],
        arguments: &Update,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        refuse(&[
            ("--allow-load", !arguments.documents.allow_load.is_empty()),
            ("--archive-log", arguments.archive_log.is_some()),
            ("--retain", arguments.retain.retain.is_some()),
            ("--durability", arguments.durability.is_some()),
        ])?;
        let mut parameters = of_limits(&arguments.limits)?;
        parameters.extend(arguments.base.clone().map(|base| ("baseURI", base)));
        parameters.extend(arguments.message.clone().map(|text| ("message", text)));
        for (file, text) in requests {
            let request = Ask {
                path: format!("/sparql{}", query_of(&parameters)),
                accept: None,
                body: Some(("application/sparql-update", text.clone())),
            };
            let mut answer = Whole::default();
            let done = self.ask(request, interrupted, &mut answer);
            let done = done.map_err(|failure| {
                if matches!(failure, Failure::Interrupted) {
                    say("the server has the whole request and may have done it");
                }
                let is_syntax =
                    matches!(&failure, Failure::Refused { code, .. } if code == "syntax");
                let error = self.failure(failure);
                match file {
                    Some(file) => error.context(file.display().to_string()),
                    None if is_syntax && Path::new(text).is_file() => {
                        anyhow::anyhow!("'{text}' is a file and no update: run it with -f {text}")
                    }
                    None => error,
                }
            });
            done?;
            let summary = answer
                .summary()
                .ok_or_else(|| self.failed("its answer is not that of an update"))?;
            say(&told(*file, &summary));
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn dump(
        &self,
        arguments: &Dump,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        refuse(&[("--memory", arguments.memory.is_some())])?;
        let format = match arguments.format {
            DumpFormat::NQuads => "nq",
            DumpFormat::TriG => "trig",
            DumpFormat::JsonLd => "jsonld",
        };
        let mut parameters = vec![("format", format.to_owned())];
        parameters.extend(arguments.at.map(|at| ("at", at.to_string())));
        let mut copy = Copy::default();
        self.get("/store", &parameters, interrupted, &mut copy)?;
        copy.finish()
    }

    pub(super) fn log(
        &self,
        arguments: &Log,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        let mut parameters = vec![("format", "json".to_owned())];
        parameters.extend(arguments.limit.map(|limit| ("limit", limit.to_string())));
        let mut list = List {
            table: CommitTable::new(list_format(arguments.format)),
            has_begun: false,
            line: Vec::new(),
            commits: 0,
            oldest: 0,
            retention: String::new(),
        };
        self.get("/log", &parameters, interrupted, &mut list)?;
        list.end()?;
        let listed = list.table.count();
        if arguments.limit.is_none_or(|limit| listed < limit) {
            say_listed(listed, list.commits, list.oldest, &list.retention);
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn diff(
        &self,
        arguments: &Diff,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        let parameters = [
            ("from", arguments.from.to_string()),
            ("to", arguments.to.to_string()),
        ];
        let mut copy = Copy::default();
        self.get("/diff", &parameters, interrupted, &mut copy)?;
        let (added, removed) = (copy.added, copy.removed);
        let code = copy.finish()?;
        say_compared(added, removed);
        Ok(code)
    }

    fn get(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        interrupted: &AtomicBool,
        taker: &mut dyn Taker,
    ) -> anyhow::Result<()> {
        let request = Ask {
            path: format!("{path}{}", query_of(parameters)),
            accept: None,
            body: None,
        };
        let done = self.ask(request, interrupted, taker);
        done.map_err(|failure| self.failure(failure))
    }

    fn ask(
        &self,
        request: Ask,
        interrupted: &AtomicBool,
        taker: &mut dyn Taker,
    ) -> Result<(), Failure> {
        ask(
            self.server,
            request,
            self.token.as_deref(),
            interrupted,
            taker,
        )
    }

    /// The error that tells of a failure.
    fn failure(&self, failure: Failure) -> anyhow::Error {
        match failure {
            Failure::Refused { code, detail, .. } => {
                let is_usage = matches!(code.as_str(), "bad-request" | "not-acceptable");
                let text = format!("{}: {detail}", self.server.text());
                Refused { text, is_usage }.into()
            }
            Failure::Broken(reason) => self.failed(&reason),
            Failure::NotTaken(error) => error,
            Failure::Interrupted => Error::Cancelled.into(),
        }
    }
}

/// What a request says of limits.
///
/// # Errors
/// If there are some that only `serve` has.
fn of_limits(limits: &QueryLimits) -> Result<Vec<(&'static str, String)>, Error> {
    refuse(&[
        ("--memory", limits.memory.is_some()),
        ("--allow-service", !limits.allow_service.is_empty()),
    ])?;
    let mut parameters = Vec::new();
    if let Some(timeout) = limits.timeout {
        parameters.push(("timeout", timeout.as_secs_f64().to_string()));
    }
    if limits.default_graph == DefaultGraph::Union {
        parameters.push(("default-graph", "union".to_owned()));
    }
    Ok(parameters)
}

/// Refuses options that are a server's own.
fn refuse(options: &[(&'static str, bool)]) -> Result<(), Error> {
    match options.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::InvalidOption {
            option,
            reason: format!("a server is told by `stoa serve {option}`"),
        }),
    }
}

/// Writes what comes to standard output, and the notes before it to standard error.
#[derive(Default)]
struct Copy<'a> {
    /// What the notes are about.
    query: Option<&'a str>,
    /// Lines of a patch that begin with A and with D.
    added: u64,
    removed: u64,
    is_within_line: bool,
}

impl Copy<'_> {
    fn finish(self) -> anyhow::Result<ExitCode> {
        std::io::stdout().flush().context(NO_OUTPUT)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Taker for Copy<'_> {
    fn head(&mut self, headers: &HeaderMap) {
        let Some(query) = self.query else { return };
        for note in notes(headers) {
            let place = note.place;
            let place =
                place.and_then(|[line, column, length]| Place::find(query, line, column, length));
            say(&match place {
                None => format!("note: {}", note.message),
                Some(place) => format!(
                    "note at line {}, column {}: {}\n{}",
                    place.line,
                    place.column,
                    note.message,
                    place.caret_text()
                ),
            });
        }
    }

    fn piece(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_within_line {
                self.added += u64::from(line.first() == Some(&b'A'));
                self.removed += u64::from(line.first() == Some(&b'D'));
            }
            self.is_within_line = line.last() != Some(&b'\n');
        }
        std::io::stdout().write_all(bytes).context(NO_OUTPUT)
    }
}

/// A short answer.
#[derive(Default)]
struct Whole(Vec<u8>);

impl Whole {
    /// What an update did.
    fn summary(&self) -> Option<UpdateSummary> {
        let answer: Value = serde_json::from_slice(&self.0).ok()?;
        let number = |name: &str| answer.get(name)?.as_u64();
        Some(UpdateSummary {
            commit: number("commit")?,
            added: number("added")?,
            removed: number("removed")?,
            ..UpdateSummary::default()
        })
    }
}

impl Taker for Whole {
    fn head(&mut self, _: &HeaderMap) {}

    fn piece(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let room = ANSWER_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().take(room));
        Ok(())
    }
}

/// A list of commits that comes as JSON and goes out as it is wanted.
struct List {
    table: CommitTable,
    has_begun: bool,
    /// The beginning of a line whose end is still to come.
    line: Vec<u8>,
    commits: u64,
    oldest: u64,
    retention: String,
}

impl List {
    fn end(&mut self) -> anyhow::Result<()> {
        self.take_line()?;
        let mut out = std::io::stdout().lock();
        self.table.end(&mut out).context(NO_OUTPUT)?;
        out.flush().context(NO_OUTPUT)
    }

    fn take_line(&mut self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.has_begun {
            self.has_begun = true;
            self.table.begin(&mut out).context(NO_OUTPUT)?;
        }
        let row = CommitRow::parse(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        let row = row.map_err(|reason| {
            anyhow::anyhow!("the server's list of commits cannot be read: {reason}")
        })?;
        match row {
            Some(row) => self.table.add(&row, &mut out).context(NO_OUTPUT),
            None => Ok(()),
        }
    }
}

impl Taker for List {
    fn head(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name).and_then(|text| text.parse().ok());
        self.commits = number("stoa-commit").unwrap_or_default();
        self.oldest = number("stoa-oldest-commit").unwrap_or_default();
        self.retention = text("stoa-retention").unwrap_or_default().to_owned();
    }

    fn piece(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(line);
            if line.last() == Some(&b'\n') {
                self.take_line()?;
            }
        }
        Ok(())
    }
}
