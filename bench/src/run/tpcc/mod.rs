//! `stoa-bench run tpcc-rdf`: the five transactions of TPC-C on a graph of warehouses.
//!
//! Clients go from one transaction to the next without a pause. In the end the server is started again, if there is a command
//! for that; the new orders that the clients were told to be done are looked for, those that are there count, and the consistency
//! conditions are checked.
//!
//! # References
//! TPC Benchmark C, revision 5.11, clauses 2, 3.3 and 5; no result of it, as it has other rules for terminals and times.

mod asked;
mod by_update;
mod conditions;
mod inputs;
mod interactive;
mod reads;
mod record;
mod report;
mod session;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use indicatif::ProgressBar;

use super::clients::{restarted, since_1970};
use super::cold::shell;
use super::endpoint::{Connection, Failure, UpdateForm};
use super::meter::{Process, Server};
use super::report::parse_duration;
use super::{append_lines, progress_bar};
use crate::bsbm::date;
use crate::bsbm::random::{Random, Stream};
use crate::tpcc::laws::Constants;
use crate::tpcc::{self, DISTRICTS, Scale};
pub(super) use asked::queries;
use inputs::{Input, Kind, Terminal};
use record::{Record, Said};
use report::Report;
use session::{Ask, Session, Target};

/// What `stoa-bench run tpcc-rdf` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    scale: Scale,
    /// Clients, spread over the warehouses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: u64,
    /// How long orders count, after the warm-up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// How long clients are at work before that
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Transactions of each client, in place of a time; all of them count
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warm_up", "checkpoint"])]
    count: Option<u64>,
    /// Each transaction as one update, with what it must know asked for before; or as a transaction of the RDF4J protocol
    #[arg(long, value_enum, default_value = "update")]
    transactions: Mode,
    /// Where the RDF4J protocol has the data, such as http://127.0.0.1:7878/repositories/NAME
    #[arg(
        long,
        value_name = "URL",
        required_if_eq("transactions", "interactive")
    )]
    repository: Option<String>,
    /// Where updates go, if not to the endpoint itself
    #[arg(long, value_name = "URL")]
    update_url: Option<String>,
    /// How updates are sent
    #[arg(long, value_enum, default_value = "body")]
    update_form: UpdateForm,
    /// The same seed gives the same transactions
    #[arg(long, value_name = "SEED", default_value_t = 808_080)]
    seed: u64,
    /// A connection for each request, or one for each client
    #[arg(long, value_enum, default_value = "keep")]
    connection: Connection,
    /// How long a request may take until its last byte, such as 60s; without it, for ever
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// The server's process on this machine, for its time on processors and memory
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Run this three times while orders count, such as what has the server make a checkpoint
    #[arg(long, value_name = "COMMAND")]
    checkpoint: Option<String>,
    /// Run this in the end, which ends the server, starts it again, and prints its URL and process: only orders that are there
    /// afterwards count
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Append the figures as lines of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How transactions are done.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Mode {
    /// SPARQL Update
    Update,
    /// begin, queries, an update, commit
    Interactive,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Committed,
    /// As one of a hundred orders has to.
    RolledBack,
}

/// A transaction that was tried until it was done or failed.
#[derive(Debug)]
struct Sample {
    kind: Kind,
    /// Since the run began.
    end: Duration,
    time: Duration,
    /// How often another transaction was in its way.
    repeats: u64,
    result: Result<Outcome, Failure>,
}

/// What clients have done.
#[derive(Debug, Default)]
struct Work {
    samples: Vec<Sample>,
    record: Record,
    /// Until the last client had ended.
    wall: Duration,
    server_time: Option<Duration>,
    server_memory: Option<(u64, u64)>,
}

/// How often a transaction of the database is tried again.
const REPEATS_MAX: u64 = 1_000;
/// A client gives up after as many failures, one behind the other.
const FAILURES_MAX: u64 = 20;
/// Checkpoints while orders count.
const CHECKPOINTS: u32 = 3;

/// Runs all; gives whether every transaction was done, no order is lost, and the conditions hold.
///
/// # Errors
/// When the data are others, a command fails, or the endpoint does not answer in the end.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let target = arguments.target();
    validate(&Session::new(&target), arguments.scale)?;
    let driver = Driver::new(arguments, target);
    let bar = progress_bar("seconds", driver.counts.end.as_secs());
    let work = driver.run(&bar);
    bar.finish_and_clear();
    let mut last = driver.target.clone();
    last.timeout = None;
    if let Some(command) = &arguments.restart {
        last.url = restarted(command)?.0;
    }
    let session = Session::new(&last);
    let there = record::marks(&session, &driver.name).map_err(|failure| told(&failure))?;
    let violations = conditions::check(&session, arguments.scale);
    let report = Report {
        arguments,
        survival: work.record.survival(&there, &driver.counts),
        violations: violations.map_err(|failure| told(&failure))?,
        counts: driver.counts.clone(),
        work,
    };
    for line in report.complaints() {
        eprintln!("{line}");
    }
    print!("{}", report.table());
    if let Some(path) = &arguments.output {
        append_lines(path, report.json_lines().into_iter())?;
    }
    Ok(report.whole())
}

fn told(failure: &Failure) -> anyhow::Error {
    match failure {
        Failure::TimeOut => anyhow!("the endpoint did not answer in time"),
        Failure::Error(message) => anyhow!("{message}"),
    }
}

impl Arguments {
    fn target(&self) -> Target {
        Target {
            url: self.url.clone(),
            updates: session::updates(&self.url, self.update_url.as_deref(), self.update_form),
            repository: self.repository.clone(),
            connection: self.connection,
            timeout: self.timeout,
        }
    }
}

/// # Errors
/// When the data are not those of this many warehouses.
fn validate(session: &Session, scale: Scale) -> anyhow::Result<()> {
    let last = scale.warehouses;
    let customer = |number| tpcc::customer(last, DISTRICTS, number);
    let there = [
        tpcc::warehouse(last),
        tpcc::item(scale.items),
        customer(scale.customers),
    ];
    let not_there = [
        tpcc::warehouse(last + 1),
        tpcc::item(scale.items + 1),
        customer(scale.customers + 1),
    ];
    let rows = session.rows(&format!(
        "SELECT DISTINCT ?x {{ VALUES ?x {{ {} {} }} ?x ?p ?o }}",
        there.join(" "),
        not_there.join(" ")
    ));
    let rows = rows.map_err(|failure| told(&failure))?;
    let found: Result<Vec<String>, Failure> = rows.iter().map(|row| row.written("x")).collect();
    let found = found.map_err(|failure| told(&failure))?;
    if let Some(missing) = there.iter().find(|node| !found.contains(node)) {
        bail!("{missing} is not there: `generate tpcc --warehouses {last}` makes the data");
    }
    if let Some(more) = not_there.iter().find(|node| found.contains(node)) {
        bail!("{more} is there: the data are those of more warehouses, items or customers");
    }
    Ok(())
}

/// What all clients share.
#[derive(Debug)]
struct Driver<'a> {
    arguments: &'a Arguments,
    target: Target,
    constants: Constants,
    /// What the marks of this run begin with.
    name: String,
    epoch: Instant,
    /// When orders count.
    counts: Range<Duration>,
    /// Clients that are at work.
    active: AtomicU64,
}

impl<'a> Driver<'a> {
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn new(arguments: &'a Arguments, target: Target) -> Self {
        let counts = match arguments.count {
            Some(_) => Duration::ZERO..Duration::MAX,
            None => arguments.warm_up..arguments.warm_up + arguments.duration,
        };
        Self {
            arguments,
            target,
            constants: Constants::of_a_run(&mut Random::new(arguments.seed, Stream::Terminal, 0)),
            name: format!("r{:x}p{:x}", since_1970().as_millis(), std::process::id()),
            epoch: Instant::now(),
            counts,
            active: AtomicU64::new(arguments.clients),
        }
    }

    fn run(&self, bar: &ProgressBar) -> Work {
        let server = Server::new(self.arguments.server_pid.map(Process));
        let mut work = Work::default();
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.arguments.clients)
                .map(|number| scope.spawn(move || self.client(number)))
                .collect();
            if let Some(command) = &self.arguments.checkpoint {
                scope.spawn(move || self.checkpoints(command));
            }
            self.wait(self.counts.start, bar);
            server.begin();
            self.wait(self.counts.end, bar);
            work.server_time = server.spent();
            work.server_memory = server.resident();
            for client in clients {
                let (samples, record) = client.join().unwrap_or_default();
                work.samples.extend(samples);
                work.record.join(record);
            }
            work.wall = self.epoch.elapsed();
        });
        work
    }

    /// Waits until a time since the run began, or until all clients have ended.
    fn wait(&self, until: Duration, bar: &ProgressBar) {
        const STEP: Duration = Duration::from_millis(100);
        loop {
            let rest = until.saturating_sub(self.epoch.elapsed());
            if rest.is_zero() || self.active.load(Ordering::Relaxed) == 0 {
                return;
            }
            bar.set_position(self.epoch.elapsed().as_secs());
            std::thread::sleep(rest.min(STEP));
        }
    }

    /// Runs the command at equal distances while orders count.
    #[expect(clippy::print_stderr, reason = "the run goes on without them")]
    fn checkpoints(&self, command: &str) {
        let hidden = ProgressBar::hidden();
        for number in 1..=CHECKPOINTS {
            let length = self.counts.end.saturating_sub(self.counts.start);
            self.wait(
                self.counts.start + length * number / (CHECKPOINTS + 1),
                &hidden,
            );
            if self.active.load(Ordering::Relaxed) == 0 {
                return;
            }
            if let Err(error) = shell(command) {
                eprintln!("{error:#}");
            }
        }
    }

    fn client(&self, number: u64) -> (Vec<Sample>, Record) {
        let session = Session::new(&self.target);
        let arguments = self.arguments;
        let (scale, seed) = (arguments.scale, arguments.seed);
        let mut terminal = Terminal::new(scale, self.constants, &self.name, number, seed);
        let (mut samples, mut record) = (Vec::new(), Record::default());
        let (mut done, mut failures) = (0, 0);
        loop {
            let start = self.epoch.elapsed();
            let over = match arguments.count {
                Some(count) => done >= count,
                None => start >= self.counts.end,
            };
            if over || failures >= FAILURES_MAX {
                break;
            }
            let (kind, input) = terminal.next(&now());
            let (result, repeats) = self.tried(&session, &input);
            let end = self.epoch.elapsed();
            if let Input::NewOrder(order) = &input {
                record.add(&order.mark, said(&result, end));
            }
            done += 1;
            failures = if result.is_err() { failures + 1 } else { 0 };
            samples.push(Sample {
                kind,
                end,
                time: end.saturating_sub(start),
                repeats,
                result,
            });
        }
        self.active.fetch_sub(1, Ordering::Relaxed);
        (samples, record)
    }

    /// Does what a client asks for, part by part, each again as long as others are in its way; gives how often they were.
    fn tried(&self, session: &Session, input: &Input) -> (Result<Outcome, Failure>, u64) {
        let (mut all, mut last) = (0, Ok(Outcome::Committed));
        for part in input.parts() {
            let (result, repeats) = self.tried_part(session, &part);
            all += repeats;
            last = result;
            if last.is_err() {
                break;
            }
        }
        (last, all)
    }

    fn tried_part(&self, session: &Session, part: &Input) -> (Result<Outcome, Failure>, u64) {
        let mut repeats = 0;
        loop {
            let result = match self.arguments.transactions {
                Mode::Update => by_update::perform(session, part),
                Mode::Interactive => interactive::perform(session, part),
            };
            match &result {
                Err(failure) if failure.is_conflict() && repeats < REPEATS_MAX => repeats += 1,
                _ => return (result, repeats),
            }
        }
    }
}

fn said(result: &Result<Outcome, Failure>, end: Duration) -> Said {
    match result {
        Ok(Outcome::Committed) => Said::Done(end),
        Ok(Outcome::RolledBack) => Said::NotDone,
        Err(failure) if failure.is_conflict() => Said::NotDone,
        Err(_) => Said::Nothing,
    }
}

/// The time as a dateTime writes it.
fn now() -> String {
    let seconds = since_1970().as_secs();
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let mut day = Vec::new();
    date::write(i64::try_from(days).unwrap_or(0), &mut day);
    format!(
        "{}T{:02}:{:02}:{:02}Z",
        String::from_utf8_lossy(&day),
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}
