//! `query`: one query, its answer on standard output.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    CancelHandle, Database, GraphFormat, OpenOptions, QueryKind, QueryOptions, Runtime,
    RuntimeOptions, Step,
};

use super::arguments::{self, DefaultGraph, Explain};
use super::commands::folder;
use super::output::say;
use super::remote::Remote;
use crate::memory::{exceeded, limit_memory};

/// Output is handed to the operating system in pieces of about this size.
const WRITE_BYTES: usize = 1 << 16;

pub(super) fn query(
    arguments: arguments::Query,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let text = match (&arguments.query, &arguments.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_text(path, "a query")?,
        (None, None) => anyhow::bail!("give a query, or a file of one with -f"),
    };
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.query(text, &arguments, interrupted);
    }
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: arguments.limits.memory.map(limit_memory).transpose()?,
        fetch: arguments
            .limits
            .fetch()
            .context("cannot start the thread for SERVICE")?,
        io: arguments.place.io,
        ..RuntimeOptions::default()
    })?;
    let database = Database::open(&runtime, folder(&arguments.place)?, &OpenOptions::default())?;
    let options = QueryOptions {
        base: arguments.base,
        at: arguments.at,
        timeout: arguments.limits.timeout,
        default_graph_union: arguments.limits.default_graph == DefaultGraph::Union,
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
        timed: arguments.explain == Some(Explain::Analyze),
        ..QueryOptions::default()
    };
    let query = database
        .prepare(&text, &options)
        .map_err(|error| as_file(error, arguments.query.as_deref()))?;
    for note in query.notes() {
        say(&note.to_string());
    }
    let mut stdout = std::io::stdout().lock();
    if let Some(explain) = arguments.explain {
        let json = arguments.format == Some(ResultFormat::Solutions(SolutionsFormat::Json));
        let (shown, ended) = explained(query, explain, json);
        stdout
            .write_all(shown.as_bytes())
            .context("cannot write to standard output")?;
        return match ended {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(with_memory(error, arguments.limits.memory)),
        };
    }
    let format = arguments
        .format
        .unwrap_or_else(|| default_format(query.kind()));
    let mut answer = Answer::new(query, format)?;
    let mut out = Vec::with_capacity(2 * WRITE_BYTES);
    loop {
        let step = answer.step(&mut out);
        // What came before an error is written, too: the reader sees where it broke off.
        if out.len() >= WRITE_BYTES || !matches!(step, Ok(true)) {
            stdout
                .write_all(&out)
                .context("cannot write to standard output")?;
            out.clear();
        }
        match step {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(with_memory(error, arguments.limits.memory)),
        }
    }
    stdout.flush().context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The plan of a query, after running it if that is wanted, and the error that ended it. What was done until then is in
/// the plan.
fn explained(
    mut query: stoa_database::Query,
    explain: Explain,
    json: bool,
) -> (String, stoa_database::Result<()>) {
    let ended = loop {
        if explain != Explain::Analyze {
            break Ok(());
        }
        match query.next() {
            Ok(Step::Done) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    match (query.analysis(), json) {
        (Ok(analysis), true) => (format!("{}\n", analysis.to_json()), ended),
        (Ok(analysis), false) => (analysis.to_string(), ended),
        (Err(error), _) => (String::new(), ended.and(Err(error))),
    }
}

/// Names the memory that was given, if that is what an error is about.
pub(super) fn with_memory(error: stoa_database::Error, memory: Option<u64>) -> anyhow::Error {
    match memory.and_then(|_| exceeded(&error)) {
        Some(message) => anyhow::Error::msg(message),
        None => error.into(),
    }
}

/// Tells who gave the name of a file in place of a query how to give a file.
fn as_file(error: stoa_database::Error, query: Option<&str>) -> anyhow::Error {
    let file = query.filter(|text| Path::new(text).is_file());
    match (&error, file) {
        (stoa_database::Error::Syntax(_), Some(file)) => {
            anyhow::anyhow!("'{file}' is a file and no query: ask it with -f {file}")
        }
        _ => error.into(),
    }
}

/// A table and Turtle for people, TSV and N-Triples for programs.
fn default_format(kind: QueryKind) -> ResultFormat {
    let terminal = std::io::stdout().is_terminal();
    match (kind, terminal) {
        (QueryKind::Graph, true) => ResultFormat::Graph(GraphFormat::Turtle),
        (QueryKind::Graph, false) => ResultFormat::Graph(GraphFormat::NTriples),
        (_, true) => ResultFormat::Solutions(SolutionsFormat::Table),
        (_, false) => ResultFormat::Solutions(SolutionsFormat::Tsv),
    }
}

/// Reads a text such as `a query` from a file.
pub(super) fn read_text(path: &Path, what: &str) -> anyhow::Result<String> {
    let (name, bytes) = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        ("standard input".to_owned(), read.map(|_| bytes))
    } else {
        (path.display().to_string(), std::fs::read(path))
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{name}: {what} is text in UTF-8, which ends at byte {at}")
    })
}
