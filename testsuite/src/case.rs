//! `.test` files: data, queries and what they must answer, updates and what they must change, as text.
//!
//! ```text
//! # What the file shows.
//!
//! data ttl [<http://example.org/graph>]
//! :a :p 1 .
//!
//! query [ordered]
//! SELECT ?o { :a :p ?o }
//! ----
//! ?o
//! 1
//!
//! update
//! DELETE WHERE { :a :p ?o }
//! ----
//! 0 added, 1 removed
//! ```
//!
//! Sections end at an empty line; all data is loaded first, the others follow in their order. All know the
//! prefixes of [`PREFIXES`]. What is expected of a query is a header of variables and rows of terms in Turtle, separated by tabs or two blanks
//! (`-` where unbound), or `true`, `false`, `error: part of the message`, or `graph` and Turtle.
//! `ordered` makes the order of rows count. Every file runs in every [`Configuration`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use oxrdf::{Dataset, GraphName, Quad, Term};
use stoa_database::{ForcedChoices, GraphFormat, QueryOptions, Rewrites, Scheme, UpdateOptions};

use crate::answer::{answer, done};
use crate::compare::{self, Answer, Rules, Solutions};
use crate::oracle::differential::switch_off;
use crate::over_delta;
use crate::scratch::Scratch;

/// What data and queries are prefixed with.
pub const PREFIXES: [(&str, &str); 5] = [
    ("", "http://example.org/"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
];

/// How a file is run.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// What messages call it.
    pub name: &'static str,
    /// Rows of a batch.
    pub batch_rows: Option<usize>,
    /// Whether there is but one thread.
    pub one_thread: bool,
    /// Whether plans are not optimized.
    pub naive: bool,
    /// What the planner is not left to choose by cost.
    pub forced: ForcedChoices,
    /// Rewrites that are left out.
    pub without: Rewrites,
    /// Whether hash joins have key filters wherever they can.
    pub key_filters: bool,
    /// Whether merge joins send scans over rows wherever they can.
    pub leaps: bool,
    /// After how many rows joins by look-ups go over to hash joins.
    pub switch_after_rows: Option<u64>,
    /// After how many rows what conditions on texts gave is kept for terms.
    pub term_memo_after_rows: Option<u64>,
    /// Whether nothing is done that can be switched off.
    pub all_off: bool,
    /// Whether the database is opened again before each query.
    pub reopen: bool,
    /// Whether the data is loaded in three parts.
    pub three_parts: bool,
    /// Whether the database has the lean scheme.
    pub lean: bool,
    /// Whether there is a checkpoint after each update.
    pub checkpoints: bool,
    /// Whether half of the data is in the delta, and some that was loaded is removed there.
    pub over_delta: bool,
}

/// What a run of a file showed, for configurations to prove themselves.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Queries that were answered.
    pub queries: usize,
    /// Updates that were run.
    pub updates: usize,
    /// Checkpoints after updates.
    pub checkpoints: usize,
    /// The largest batch.
    pub largest_batch: usize,
    /// The plans, one after another.
    pub plans: String,
    /// How many loads there were.
    pub loads: usize,
    /// Changes that deltas had.
    pub delta_changes: usize,
    /// How many databases have the lean scheme.
    pub lean_databases: usize,
    /// How often a database was opened.
    pub opened: usize,
    /// How many rows key filters dropped.
    pub dropped: u64,
    /// How often merge joins sent scans over rows.
    pub leaps: u64,
    /// How many joins by look-ups went over to hash joins.
    pub switched: u64,
    /// For how many rows what a condition gives was known.
    pub known: u64,
    /// The numbers of threads that databases had.
    pub threads: BTreeSet<usize>,
}

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Case {
    path: PathBuf,
    data: Vec<Data>,
    queries: Vec<Query>,
}

/// What a section is that has an expectation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Query { ordered: bool },
    Update,
}

#[derive(Clone, Debug)]
struct Data {
    format: GraphFormat,
    graph: Option<String>,
    text: String,
}

#[derive(Clone, Debug)]
struct Query {
    line: usize,
    text: String,
    kind: Kind,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Expected {
    Answer(Answer),
    Changed(String),
    Error(String),
}

impl Case {
    /// Reads a file.
    ///
    /// # Errors
    /// If it does not follow the format.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut case = Self {
            path: path.to_path_buf(),
            data: Vec::new(),
            queries: Vec::new(),
        };
        let mut lines = text.lines().zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut section = String::new();
            let mut expected: Option<String> = None;
            while let Some((line, _)) = lines.next_if(|(line, _)| !line.is_empty()) {
                match &mut expected {
                    None if line == "----" => expected = Some(String::new()),
                    Some(text) => writeln!(text, "{line}")?,
                    None => writeln!(section, "{line}")?,
                }
            }
            let place = || format!("{}:{number}", path.display());
            let mut words = line.split_whitespace();
            match (words.next(), expected) {
                (Some("data"), None) => {
                    let format = words.next().and_then(GraphFormat::from_name);
                    let graph = words
                        .next()
                        .map(|iri| iri.trim_matches(['<', '>']).to_owned());
                    case.data.push(Data {
                        format: format.with_context(place)?,
                        graph,
                        text: section,
                    });
                }
                (Some("query"), Some(expected)) => case.queries.push(Query {
                    line: number,
                    text: prologue(false) + &section,
                    kind: Kind::Query {
                        ordered: words.next() == Some("ordered"),
                    },
                    expected: parse_expected(&expected).with_context(place)?,
                }),
                (Some("update"), Some(expected)) => case.queries.push(Query {
                    line: number,
                    text: prologue(false) + &section,
                    kind: Kind::Update,
                    expected: match expected.strip_prefix("error:") {
                        Some(part) => Expected::Error(part.trim().to_owned()),
                        None => Expected::Changed(expected.trim().to_owned()),
                    },
                }),
                _ => bail!(
                    "{}: neither `data FORMAT`, nor `query` or `update` with `----`",
                    place()
                ),
            }
        }
        Ok(case)
    }

    /// Runs the file.
    ///
    /// # Errors
    /// The first query whose answer is not the expected one.
    pub fn run(&self, configuration: &Configuration, seen: &mut Seen) -> anyhow::Result<()> {
        let mut scratch = Scratch::with_threads(if configuration.one_thread { 1 } else { 2 });
        if configuration.lean {
            scratch = scratch.with_scheme(Scheme::Lean);
        }
        self.load(&scratch, configuration, seen)
            .with_context(|| format!("{} ({})", self.path.display(), configuration.name))?;
        let info = scratch.database().info()?;
        // A snapshot that is kept would keep the database open.
        seen.delta_changes += {
            let snapshot = scratch.database().quad_store().snapshot();
            snapshot.delta().changes()
        };
        seen.lean_databases += usize::from(info.scheme == Scheme::Lean);
        seen.threads.insert(scratch.database().runtime().threads());
        for query in &self.queries {
            if configuration.reopen {
                scratch.reopen();
            }
            self.ask(&scratch, query, configuration, seen)
                .with_context(|| {
                    format!(
                        "{}:{} ({})",
                        self.path.display(),
                        query.line,
                        configuration.name
                    )
                })?;
        }
        seen.opened += scratch.opened();
        Ok(())
    }

    fn load(
        &self,
        scratch: &Scratch,
        configuration: &Configuration,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        for data in &self.data {
            let turtle = matches!(data.format, GraphFormat::Turtle | GraphFormat::TriG);
            let head = if turtle {
                prologue(true)
            } else {
                String::new()
            };
            let mut parts = vec![head.clone()];
            if configuration.three_parts {
                parts = vec![head; 3];
            }
            // Only lines that end a statement can be cut after; blank nodes would come apart.
            let whole = data.text.contains("_:") || data.format == GraphFormat::TriG;
            let count = parts.len();
            let mut at = 0;
            for line in data.text.lines() {
                parts[at % count].push_str(line);
                parts[at % count].push('\n');
                if line.trim_end().ends_with('.') && !whole {
                    at += 1;
                }
            }
            for part in parts {
                if configuration.over_delta {
                    let base = "http://example.org/";
                    let graph = data.graph.as_deref();
                    over_delta::load(scratch, (&part, data.format, base, graph))?;
                    continue;
                }
                scratch.load(
                    part,
                    data.format,
                    Some("http://example.org/"),
                    data.graph.as_deref(),
                )?;
                seen.loads += 1;
            }
        }
        Ok(())
    }

    fn ask(
        &self,
        scratch: &Scratch,
        query: &Query,
        configuration: &Configuration,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let Kind::Query { ordered } = query.kind else {
            return change(scratch, query, configuration, seen);
        };
        let options = options(configuration);
        if options.timed
            && let Ok(prepared) = scratch.database().prepare(&query.text, &options)
        {
            let done = done(prepared).unwrap_or_default();
            seen.dropped += done.dropped;
            seen.leaps += done.leaps;
            seen.switched += done.switched;
            seen.known += done.known;
        }
        let actual = scratch
            .database()
            .prepare(&query.text, &options)
            .and_then(|prepared| {
                seen.plans += &prepared.explain();
                answer(prepared, &mut seen.largest_batch)
            });
        seen.queries += 1;
        match (&query.expected, actual) {
            (Expected::Error(part), Err(error)) => {
                let message = error.to_string();
                if message.contains(part) {
                    Ok(())
                } else {
                    bail!("another error: {message}")
                }
            }
            (Expected::Error(part), Ok(_)) => bail!("no error, expected: {part}"),
            (Expected::Answer(_), Err(error)) => Err(error.into()),
            (Expected::Changed(_), _) => bail!("a query changes nothing"),
            (Expected::Answer(expected), Ok(actual)) => {
                let rules = Rules {
                    ordered,
                    ..Rules::default()
                };
                compare::answers(expected, &actual, rules).map_err(anyhow::Error::msg)
            }
        }
    }
}

/// How queries are run, and the patterns of updates.
fn options(configuration: &Configuration) -> QueryOptions {
    let mut options = QueryOptions {
        batch_rows: configuration.batch_rows,
        naive: configuration.naive,
        forced: configuration.forced,
        without: configuration.without,
        key_filter_rows_min: configuration.key_filters.then_some(0),
        leap_rows_min: configuration.leaps.then_some(0),
        // The first ranges have one row.
        range_rows: configuration.forced.ranges.map(|_| 1),
        switch_after_rows: configuration.switch_after_rows,
        term_memo_after_rows: configuration.term_memo_after_rows,
        timed: configuration.key_filters
            || configuration.leaps
            || configuration.switch_after_rows.is_some()
            || configuration.term_memo_after_rows.is_some()
            || configuration.all_off,
        ..QueryOptions::default()
    };
    if configuration.all_off {
        switch_off(&mut options);
    }
    options
}

/// Runs an update.
fn change(
    scratch: &Scratch,
    update: &Query,
    configuration: &Configuration,
    seen: &mut Seen,
) -> anyhow::Result<()> {
    let options = UpdateOptions {
        patterns: Some(Box::new(options(configuration))),
        ..UpdateOptions::default()
    };
    seen.updates += 1;
    let done = scratch.database().update(&update.text, &options);
    match (&update.expected, done) {
        (Expected::Error(part), Err(error)) if error.to_string().contains(part) => Ok(()),
        (Expected::Error(part), Ok(_)) => bail!("no error, expected: {part}"),
        (_, Err(error)) => Err(error.into()),
        (Expected::Changed(expected), Ok(done)) => {
            let told = format!("{} added, {} removed", done.added, done.removed);
            if told != *expected {
                bail!("{told}, expected: {expected}");
            }
            if configuration.checkpoints {
                scratch.database().checkpoint()?;
                seen.checkpoints += 1;
            }
            Ok(())
        }
        (Expected::Answer(_), Ok(_)) => bail!("an update has no answer"),
    }
}

fn prologue(turtle: bool) -> String {
    let mut text = String::new();
    for (prefix, namespace) in PREFIXES {
        if turtle {
            text += &format!("@prefix {prefix}: <{namespace}> .\n");
        } else {
            text += &format!("PREFIX {prefix}: <{namespace}>\n");
        }
    }
    text
}

fn parse_expected(text: &str) -> anyhow::Result<Expected> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or("");
    if let Some(part) = first.strip_prefix("error:") {
        return Ok(Expected::Error(part.trim().to_owned()));
    }
    Ok(Expected::Answer(match first {
        "true" => Answer::Boolean(true),
        "false" => Answer::Boolean(false),
        "graph" => {
            let rest: Vec<&str> = lines.collect();
            Answer::Graph(Box::new(turtle(&rest.join("\n"))?))
        }
        header => {
            let variables: Vec<String> = header
                .split_whitespace()
                .map(|name| name.trim_start_matches('?').to_owned())
                .collect();
            let mut rows = Vec::new();
            for line in lines {
                let cells = split_cells(line);
                let expected = variables.len();
                if cells.len() != expected && !(expected == 0 && line.trim() == "()") {
                    bail!("{} cells, expected {expected}: {line}", cells.len());
                }
                let cells = if expected == 0 { Vec::new() } else { cells };
                rows.push(
                    cells
                        .iter()
                        .map(|cell| term(cell))
                        .collect::<anyhow::Result<_>>()?,
                );
            }
            Answer::Solutions(Solutions { variables, rows })
        }
    }))
}

/// The cells of a row: separated by tabs or at least two blanks.
fn split_cells(line: &str) -> Vec<String> {
    let line = line.replace('\t', "  ");
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .map(str::to_owned)
        .collect()
}

fn term(cell: &str) -> anyhow::Result<Option<Term>> {
    if cell == "-" {
        return Ok(None);
    }
    let dataset = turtle(&format!("[] rdf:value {cell} ."))?;
    let quad = dataset.iter().next().context("no term")?;
    Ok(Some(quad.object.into_owned()))
}

fn turtle(text: &str) -> anyhow::Result<Dataset> {
    oxttl::TurtleParser::new()
        .for_slice(&format!("{}{text}", prologue(true)))
        .map(|triple| {
            let t = triple.with_context(|| text.to_owned())?;
            Ok(Quad::new(
                t.subject,
                t.predicate,
                t.object,
                GraphName::DefaultGraph,
            ))
        })
        .collect()
}
