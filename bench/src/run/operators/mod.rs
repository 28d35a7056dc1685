//! `stoa-bench run operators`: a query for each operator and situation, made from the statistics of whatever data there are.
//!
//! The set of queries is made once and saved, so that each engine gets the same. A query whose answer is wrong, cut off, or
//! empty where the statistics say that it cannot be, has no time.

mod profile;
mod queries;
mod set;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::answer::Answer;
use super::check::{Verdict, check, not_again};
use super::clients::restarted;
use super::endpoint::{Connection, Endpoint, Failure, Measured, Tail};
use super::meter::Process;
use super::report::parse_duration;
use profile::{Asker, Profile};
use queries::Builder;
use set::{Entry, Expect, Set};

/// What `stoa-bench run operators` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL")]
    url: String,
    /// The file of queries: read if it is there, else made from the endpoint's data and written. Another engine gets the same
    /// queries by the same file
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Only queries whose name begins with this, such as join/
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
    /// Executions that are not timed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    warm_up: u64,
    /// Executions that are timed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: u64,
    /// A connection for each query, or one for all
    #[arg(long, value_enum, default_value = "keep")]
    connection: Connection,
    /// How long a query may take until its last byte
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// The server's process on this machine, for its time on processors and memory
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// An endpoint with the same data whose answers are trusted
    #[arg(long, value_name = "URL")]
    check: Option<String>,
    /// After a time-out run this, which ends the server, starts it again, and prints its URL and process: many servers go on
    /// with a query that nobody waits for
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Append the figures as lines of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What became of a query.
#[derive(Debug)]
struct Outcome<'a> {
    entry: &'a Entry,
    /// Milliseconds, ascending; empty if the query has no time.
    times: Vec<f64>,
    rows: u64,
    bytes: u64,
    server_ms: Option<f64>,
    state: State,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Answered as expected, and not compared.
    Answered,
    /// Answered as the trusted endpoint does.
    Right,
    /// The trusted endpoint could not be asked: why.
    NotVerified(String),
    Skipped(String),
    TimeOut,
    Error(String),
    /// Cut off, empty where it cannot be, or otherwise than the trusted endpoint's.
    Wrong(String),
}

/// Runs all queries; gives whether each was answered and none of the answers is wrong.
///
/// # Errors
/// When no queries can be made, or a file cannot be read or written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let set = queries(arguments)?;
    let (count, skipped) = set.counts();
    eprintln!(
        "{count} queries, {skipped} situations that the data do not have; set {}",
        set.hash()
    );
    let chosen = set.entries.iter().filter(|entry| {
        let only = arguments.only.as_deref().unwrap_or("");
        entry.name.starts_with(only)
    });
    let chosen: Vec<&Entry> = chosen.collect();
    let bar = super::progress_bar("queries", chosen.len() as u64);
    let mut outcomes = Vec::new();
    let mut arguments = arguments.clone();
    for entry in chosen {
        bar.set_message(entry.name.clone());
        let outcome = outcome(&arguments, entry);
        if let (State::TimeOut, Some(command)) = (&outcome.state, &arguments.restart) {
            let (url, process) = restarted(command)?;
            arguments.url = url;
            arguments.server_pid = arguments.server_pid.map(|_| process.0);
        }
        outcomes.push(outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print!("{}", table(&set, &outcomes));
    if let Some(path) = &arguments.output {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let mut file = file.with_context(|| format!("writing {}", path.display()))?;
        for line in json_lines(&arguments, &set, &outcomes) {
            writeln!(file, "{line}").with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(outcomes.iter().all(|it| !it.state.failed()))
}

/// # Errors
/// When the file is damaged, or the endpoint does not answer.
fn queries(arguments: &Arguments) -> anyhow::Result<Set> {
    if let Some(path) = arguments.queries.as_ref().filter(|path| path.exists()) {
        return Set::load(path);
    }
    let set = made(&arguments.url)?;
    if let Some(path) = &arguments.queries {
        set.save(path)?;
    }
    Ok(set)
}

/// Names and texts of the queries of a file; without one those that are frozen for BSBM with so many products; if there are
/// none, such as are made from the endpoint's data.
///
/// # Errors
/// When the file is damaged, or the endpoint does not answer.
pub(super) fn texts(
    url: &str,
    products: u64,
    file: Option<&Path>,
) -> anyhow::Result<Vec<(String, String)>> {
    let set = match file {
        Some(path) => Set::load(path)?,
        None => match Set::frozen(products)? {
            Some(set) => set,
            None => made(url)?,
        },
    };
    let entries = set.entries.into_iter();
    Ok(entries
        .filter_map(|entry| Some((entry.name, entry.query.ok()?)))
        .collect())
}

/// Makes queries from the endpoint's data.
fn made(url: &str) -> anyhow::Result<Set> {
    let endpoint = Endpoint::new(url, Connection::Keep, None);
    let asker = Asker(&endpoint);
    let profile = Profile::ask(&asker).context("asking for the statistics of the data")?;
    Builder::set(&asker, &profile).context("making queries")
}

impl From<Verdict> for State {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Right => Self::Right,
            Verdict::Wrong(how) => Self::Wrong(how),
            Verdict::Unknown(why) => Self::NotVerified(why),
        }
    }
}

impl State {
    fn failed(&self) -> bool {
        matches!(self, Self::TimeOut | Self::Error(_) | Self::Wrong(_))
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Right => "right",
            Self::NotVerified(_) => "not verified",
            Self::Skipped(_) => "skipped",
            Self::TimeOut => "time-out",
            Self::Error(_) => "error",
            Self::Wrong(_) => "wrong",
        }
    }

    fn why(&self) -> &str {
        match self {
            Self::NotVerified(why) | Self::Skipped(why) | Self::Error(why) | Self::Wrong(why) => {
                why
            }
            Self::Answered | Self::Right | Self::TimeOut => "",
        }
    }
}

fn outcome<'a>(arguments: &Arguments, entry: &'a Entry) -> Outcome<'a> {
    let mut outcome = Outcome {
        entry,
        times: Vec::new(),
        rows: 0,
        bytes: 0,
        server_ms: None,
        state: State::Answered,
    };
    let query = match &entry.query {
        Ok(query) => query,
        Err(reason) => {
            outcome.state = State::Skipped(reason.clone());
            return outcome;
        }
    };
    outcome.state = timed(arguments, query, &mut outcome);
    if let (State::Answered, Some(trusted)) = (&outcome.state, &arguments.check) {
        outcome.state = verified(arguments, entry, query, outcome.rows, trusted);
    }
    if outcome.state.failed() {
        outcome.times.clear();
    }
    outcome.times.sort_by(f64::total_cmp);
    outcome
}

fn timed(arguments: &Arguments, query: &str, outcome: &mut Outcome<'_>) -> State {
    let endpoint = Endpoint::new(
        &arguments.url,
        arguments.connection,
        Some(arguments.timeout),
    );
    let server = arguments.server_pid.map(Process);
    let mut before = None;
    for run in 0..arguments.warm_up + arguments.runs {
        if run == arguments.warm_up {
            before = server.and_then(Process::time);
        }
        let (measured, state) = once(&endpoint, query, outcome.entry, run == 0);
        if state != State::Answered {
            return state;
        }
        if run == 0 {
            (outcome.rows, outcome.bytes) = (measured.rows, measured.bytes);
        } else if measured.rows != outcome.rows {
            let (now, then) = (measured.rows, outcome.rows);
            return State::Wrong(format!("{then} rows, and {now} when asked again"));
        }
        if run >= arguments.warm_up {
            outcome.times.push(measured.time.as_secs_f64() * 1e3);
        }
    }
    let after = server.and_then(Process::time);
    #[expect(clippy::cast_precision_loss, reason = "a count of executions")]
    let runs = arguments.runs as f64;
    let spent = after
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    outcome.server_ms = spent.map(|it| it.as_secs_f64() * 1e3 / runs);
    State::Answered
}

/// One execution, and what is wrong with its answer: with the whole of it where it is read, else with its end and rows.
fn once(endpoint: &Endpoint, query: &str, entry: &Entry, read: bool) -> (Measured, State) {
    let (mut body, mut tail) = (Vec::new(), Tail::default());
    let read = read && !entry.large;
    let measured = endpoint.ask(query, Some(if read { &mut body } else { &mut tail }));
    let state = match &measured.failure {
        Some(Failure::TimeOut) => State::TimeOut,
        Some(Failure::Error(message)) => State::Error(message.clone()),
        None if read => match Answer::parse(&body) {
            Ok(answer) => unexpected(entry.expect, &answer),
            Err(error) => Some(format!("{error:#}")),
        }
        .map_or(State::Answered, State::Wrong),
        None if !tail.whole() => State::Wrong("the answer ends before its last tag".to_owned()),
        None => match entry.expect {
            Expect::Rows(rows) if rows != measured.rows => {
                State::Wrong(format!("{} rows, expected {rows}", measured.rows))
            }
            _ => State::Answered,
        },
    };
    (measured, state)
}

/// How an answer is not what the statistics say.
fn unexpected(expect: Expect, answer: &Answer) -> Option<String> {
    let empty = match answer {
        Answer::Boolean(value) => !value,
        Answer::Graph(triples) => triples.is_empty(),
        Answer::Solutions { rows, .. } => rows.is_empty(),
    };
    let rows = match answer {
        Answer::Solutions { rows, .. } => rows.as_slice(),
        _ => &[],
    };
    match expect {
        Expect::Any => None,
        Expect::Some => empty.then(|| "empty, where it cannot be".to_owned()),
        Expect::Rows(expected) => (rows.len() as u64 != expected)
            .then(|| format!("{} rows, expected {expected}", rows.len())),
        Expect::Count => {
            let first = rows
                .first()
                .and_then(|row| row.first())
                .and_then(Option::as_ref);
            let number = match first {
                Some(oxrdf::Term::Literal(literal)) => super::answer::number(literal),
                _ => None,
            };
            match number {
                Some(number) if number >= 1.0 && rows.len() == 1 => None,
                Some(number) => Some(format!("{number}, where it must be at least 1")),
                None => Some("no number".to_owned()),
            }
        }
    }
}

/// Compares with the trusted endpoint.
fn verified(arguments: &Arguments, entry: &Entry, query: &str, rows: u64, trusted: &str) -> State {
    let tested = Endpoint::new(&arguments.url, Connection::Keep, Some(arguments.timeout));
    let trusted = Endpoint::new(trusted, Connection::Keep, Some(arguments.timeout));
    if entry.large {
        // A cut without an order may keep any rows.
        let cut = query.contains("LIMIT");
        return match (stream::rows(&tested, query), stream::rows(&trusted, query)) {
            (Err(error), _) => not_again(&error).into(),
            (_, Err(error)) => State::NotVerified(format!("{error:#}")),
            (Ok(found), Ok(expected)) if found.count != expected.count => {
                State::Wrong(format!("{} rows, expected {}", found.count, expected.count))
            }
            (Ok(found), Ok(expected)) if found != expected && !cut => {
                State::Wrong("as many rows, but others".to_owned())
            }
            _ => State::Right,
        };
    }
    let timed = Measured {
        rows,
        ..Measured::default()
    };
    check(query, &timed, &tested, &trusted).into()
}

fn median(times: &[f64]) -> Option<f64> {
    times.get(times.len() / 2).copied()
}

#[expect(clippy::cast_precision_loss, reason = "counts of queries")]
fn geometric<'a>(outcomes: impl Iterator<Item = &'a Outcome<'a>>) -> Option<f64> {
    let logs: Vec<f64> = outcomes
        .filter_map(|it| median(&it.times))
        .map(f64::ln)
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn table(set: &Set, outcomes: &[Outcome<'_>]) -> String {
    let mut out = format!(
        "{:<34} {:>10} {:>10} {:>10} {:>9} {:>9}  {}\n",
        "query", "median ms", "min ms", "server ms", "rows", "KB", "answer"
    );
    for outcome in outcomes {
        let ms = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
        let answer = match outcome.state.why() {
            "" => outcome.state.word().to_owned(),
            why => format!(
                "{}: {}",
                outcome.state.word(),
                why.lines().next().unwrap_or("")
            ),
        };
        // Writing to a string cannot fail.
        writeln!(
            out,
            "{:<34} {:>10} {:>10} {:>10} {:>9} {:>9}  {answer}",
            outcome.entry.name,
            ms(median(&outcome.times)),
            ms(outcome.times.first().copied()),
            ms(outcome.server_ms),
            outcome.rows,
            outcome.bytes / 1_000,
        )
        .unwrap_or_default();
    }
    let of = |wanted: fn(&State) -> bool| outcomes.iter().filter(|it| wanted(&it.state)).count();
    writeln!(
        out,
        "\n{} answered, {} timed out, {} failed, {} wrong, {} skipped; geometric mean of the medians {:.3} ms; set {}",
        outcomes.iter().filter(|it| !it.times.is_empty()).count(),
        of(|it| *it == State::TimeOut),
        of(|it| matches!(it, State::Error(_))),
        of(|it| matches!(it, State::Wrong(_))),
        of(|it| matches!(it, State::Skipped(_))),
        geometric(outcomes.iter()).unwrap_or(f64::NAN),
        set.hash(),
    )
    .unwrap_or_default();
    out
}

/// One object for the run and one for each query, with the names that the other mixes use.
fn json_lines(arguments: &Arguments, set: &Set, outcomes: &[Outcome<'_>]) -> Vec<Value> {
    let memory = arguments.server_pid.and_then(|pid| Process(pid).resident());
    let mut lines = vec![json!({
        "kind": "run",
        "workload": "operators",
        "url": arguments.url,
        "set": set.hash(),
        "triples": set.triples,
        "runs": arguments.runs,
        "timeout_s": arguments.timeout.as_secs_f64(),
        "geometric_ms": geometric(outcomes.iter()),
        "server_memory": memory.map(|it| it.0),
        "server_memory_peak": memory.map(|it| it.1),
    })];
    lines.extend(outcomes.iter().map(|it| {
        json!({
            "kind": "query",
            "query": it.entry.name,
            "count": it.times.len(),
            "p50_ms": median(&it.times),
            "min_ms": it.times.first(),
            "max_ms": it.times.last(),
            "server_ms": it.server_ms,
            "rows": it.rows,
            "bytes": it.bytes,
            "answer": it.state.word(),
            "why": it.state.why(),
        })
    }));
    lines
}
