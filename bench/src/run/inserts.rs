//! `stoa-bench run inserts`: how many commits and quads a second an endpoint takes, beside what the disk allows.
//!
//! Rounds, in each of which before each number of clients a command measures what the disk allows (bench/fsync.c), then
//! the clients send `INSERT DATA` requests: what the disk does in one minute and not in the next one meets both.
//!
//! Each answer is checked: all quads of a request are new, so that as many must have been added.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::append_lines;
use super::clients::since_1970;
use super::endpoint::{Failure, UpdateForm, Updates};
use super::meter::{Process, Server};
use super::report::parse_duration;
use super::wire::Wire;

/// What `stoa-bench run inserts` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL")]
    url: String,
    /// Numbers of clients, one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,16", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: Vec<u64>,
    /// Quads of a request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    quads: u64,
    /// How long each number of clients is at work in a round
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// Requests of each client in a round, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    count: Option<u64>,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Run this before each number of clients of each round: what makes small appends durable on the disk of the database and
    /// writes the microseconds of each on a line, such as 'fsync FOLDER 200 5' (bench/fsync.c)
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,
    /// IRIs of subjects that there are already, one a line
    #[arg(long, value_name = "FILE", requires = "existing")]
    subjects: Option<PathBuf>,
    /// How many of a hundred subjects are of those
    #[arg(long, value_name = "PERCENT", requires = "subjects", value_parser = clap::value_parser!(u64).range(1..=100))]
    existing: Option<u64>,
    /// Where updates go, if not to the endpoint itself
    #[arg(long, value_name = "URL")]
    update_url: Option<String>,
    /// How updates are sent
    #[arg(long, value_enum, default_value = "body")]
    update_form: UpdateForm,
    /// How long a request may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// The server's process on this machine, for its time on processors and memory
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Append the figures as lines of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Quads that have one subject.
const QUADS_OF_SUBJECT: u64 = 5;
/// A client that fails so often gives up: a server that refuses everything is not to be asked as fast as it can refuse.
const FAILURES_MAX: u64 = 100;

/// What was done within a time.
#[derive(Clone, Debug, Default)]
struct Rate {
    /// None of the appends beside.
    clients: Option<u64>,
    done: u64,
    seconds: f64,
    failures: u64,
    first_failure: Option<String>,
    /// Time of the server on processors, seconds.
    server: Option<f64>,
    /// Seconds of each request, ascending.
    times: Vec<f64>,
}

/// Runs the rounds; gives whether every request was answered.
///
/// # Errors
/// When the subjects cannot be read, the folder beside cannot be written, or the output cannot be written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let subjects = match &arguments.subjects {
        Some(path) => subjects(path)?,
        None => Vec::new(),
    };
    let server = Server::new(arguments.server_pid.map(Process));
    if arguments.server_pid.is_some() && server.resident().is_none() {
        bail!("there is no process with the id of --server-pid");
    }
    let mut writer = Writer {
        arguments,
        subjects,
        run: u64::try_from(since_1970().as_micros()).unwrap_or(0),
    };
    let mut rates = Vec::new();
    for _ in 0..arguments.rounds {
        for clients in &arguments.clients {
            if let Some(command) = &arguments.beside {
                rates.push(appends(command)?);
            }
            writer.run += 1;
            rates.push(writer.round(*clients, &server));
        }
    }
    for failure in rates.iter().filter_map(|rate| rate.first_failure.as_ref()) {
        eprintln!("{failure}");
    }
    print!("{}", table(arguments, &rates));
    if let Some(path) = &arguments.output {
        append_lines(path, lines(arguments, &rates, &server).into_iter())?;
    }
    Ok(rates.iter().all(|rate| rate.failures == 0))
}

fn subjects(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let iris = text.lines().map(|line| line.trim_matches(['<', '>', ' ']));
    let iris: Vec<String> = iris
        .filter(|iri| iri.contains(':'))
        .map(str::to_owned)
        .collect();
    if iris.is_empty() {
        bail!("{} has no IRIs", path.display());
    }
    Ok(iris)
}

/// Runs a command that makes appends durable one after the other, and writes the microseconds of each.
fn appends(command: &str) -> anyhow::Result<Rate> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stderr(Stdio::inherit())
        .output()
        .context("running sh")?;
    if !output.status.success() {
        bail!("`{command}` failed: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = |line: &str| line.trim().parse().map(|micros: f64| micros / 1e6);
    let times: Result<Vec<f64>, _> = text.lines().map(seconds).collect();
    let mut times =
        times.with_context(|| format!("`{command}` did not write microseconds alone"))?;
    if times.is_empty() {
        bail!("`{command}` wrote nothing");
    }
    times.sort_by(f64::total_cmp);
    Ok(Rate {
        done: times.len() as u64,
        seconds: times.iter().sum(),
        times,
        ..Rate::default()
    })
}

/// What requests are made of.
struct Writer<'a> {
    arguments: &'a Arguments,
    subjects: Vec<String>,
    /// A number that no round before had.
    run: u64,
}

impl Writer<'_> {
    /// Lets clients write for the time of a round.
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn round(&self, clients: u64, server: &Server) -> Rate {
        server.begin();
        let start = Instant::now();
        let of_clients: Vec<Rate> = std::thread::scope(|scope| {
            let work = |client| scope.spawn(move || self.client(client, start));
            let threads: Vec<_> = (0..clients).map(work).collect();
            let rates = threads.into_iter().map(|thread| thread.join());
            rates.filter_map(Result::ok).collect()
        });
        let mut rate = Rate {
            clients: Some(clients),
            seconds: start.elapsed().as_secs_f64(),
            server: server.spent().map(|time| time.as_secs_f64()),
            ..Rate::default()
        };
        for of_client in of_clients {
            rate.done += of_client.done;
            rate.failures += of_client.failures;
            rate.first_failure = rate.first_failure.or(of_client.first_failure);
            rate.times.extend(of_client.times);
        }
        rate.times.sort_by(f64::total_cmp);
        rate
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn client(&self, client: u64, start: Instant) -> Rate {
        let arguments = self.arguments;
        let url = arguments.update_url.as_ref().unwrap_or(&arguments.url);
        let updates = Updates {
            url: url.clone(),
            form: arguments.update_form,
        };
        let mut rate = Rate::default();
        let mut wire = match Wire::new(&updates, Some(arguments.timeout)) {
            Ok(wire) => wire,
            Err(failure) => {
                rate.fail(failure);
                return rate;
            }
        };
        let mut text = String::new();
        for number in 0..arguments.count.unwrap_or(u64::MAX) {
            let is_over = arguments.count.is_none() && start.elapsed() >= arguments.duration;
            if is_over || rate.failures >= FAILURES_MAX {
                break;
            }
            self.request(client, number, &mut text);
            let before = Instant::now();
            let answer = wire.update(&text);
            let time = before.elapsed();
            match answer.map(|reply| reply.added) {
                Ok(Some(added)) if added != arguments.quads => rate.fail(Failure::Error(format!(
                    "{added} quads were added by a request with {} new ones",
                    arguments.quads
                ))),
                Ok(_) => {
                    rate.done += 1;
                    rate.times.push(time.as_secs_f64());
                }
                Err(failure) => rate.fail(failure),
            }
        }
        rate
    }

    /// New quads: of each subject a text, a number, a type, a link and a mark. Subjects that are there already may be drawn
    /// several times, so that all that is said of them has a mark.
    fn request(&self, client: u64, number: u64, text: &mut String) {
        let run = self.run;
        text.clear();
        text.push_str("INSERT DATA {\n");
        for quad in 0..self.arguments.quads {
            let of_request = self.arguments.quads.div_ceil(QUADS_OF_SUBJECT);
            let place = number * of_request + quad / QUADS_OF_SUBJECT;
            let mark = Mark(run, client, place);
            let old = self.old_subject(client, place);
            // Writing to a string cannot fail.
            match old {
                Some(subject) => write!(text, "<{subject}> "),
                None => write!(text, "<urn:stoa-bench:{mark}> "),
            }
            .unwrap_or_default();
            match (quad % QUADS_OF_SUBJECT, old) {
                (0, _) => write!(text, "<urn:stoa-bench:text> \"what was written as {mark}\""),
                (1, None) => write!(text, "<urn:stoa-bench:number> {}", place * 7 + run),
                (1, Some(_)) => write!(text, "<urn:stoa-bench:note> \"{mark}\""),
                (2, None) => write!(
                    text,
                    "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:stoa-bench:Thing>"
                ),
                (2, Some(_)) => write!(text, "<urn:stoa-bench:seen> \"{mark}\""),
                (3, _) => write!(text, "<urn:stoa-bench:link> <urn:stoa-bench:to-{mark}>"),
                _ => write!(text, "<urn:stoa-bench:mark> \"{mark}\""),
            }
            .unwrap_or_default();
            text.push_str(" .\n");
        }
        text.push('}');
    }

    /// The subject with a number if it is one that there is, as often as was asked for.
    fn old_subject(&self, client: u64, place: u64) -> Option<&str> {
        let seed = client << 40 | place;
        let mixed = (seed ^ self.run << 20)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
        let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16;
        if mixed % 100 >= self.arguments.existing.unwrap_or(0) {
            return None;
        }
        let count = self.subjects.len().max(1) as u64;
        let index = usize::try_from(mixed / 100 % count).unwrap_or(0);
        self.subjects.get(index).map(String::as_str)
    }
}

/// What no other subject of any run is called: run, client and place.
#[derive(Clone, Copy)]
struct Mark(u64, u64, u64);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(run, client, place) = self;
        write!(f, "{run}-{client}-{place}")
    }
}

impl Rate {
    fn fail(&mut self, failure: Failure) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| match failure {
            Failure::TimeOut => "a request took longer than --timeout".to_owned(),
            Failure::Error(message) => message,
        });
    }

    fn a_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let done = self.done as f64;
        done / self.seconds.max(1e-9)
    }

    /// Milliseconds that a share of the requests took at most.
    fn quantile_ms(&self, share: f64) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let place = (share * self.times.len() as f64) as usize;
        let last = self.times.len().checked_sub(1)?;
        self.times.get(place.min(last)).map(|time| time * 1e3)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A line for what was done beside and for each number of clients: medians of the rounds.
fn table(arguments: &Arguments, rates: &[Rate]) -> String {
    let mut out = format!(
        "{:>8} {:>12} {:>12} {:>8} {:>8} {:>8} {:>14} {:>7}\n",
        "clients",
        "requests/s",
        "quads/s",
        "p50 ms",
        "p99 ms",
        "of disk",
        "server us each",
        "failed"
    );
    let beside = || rates.iter().filter(|rate| rate.clients.is_none());
    let allowed = median(beside().map(Rate::a_second).collect());
    let kinds = arguments.clients.iter().copied().map(Some);
    let kinds = beside().next().map(|_| None).into_iter().chain(kinds);
    for kind in kinds {
        let of_kind: Vec<&Rate> = rates.iter().filter(|rate| rate.clients == kind).collect();
        let of = |figure: &dyn Fn(&Rate) -> Option<f64>| {
            let values: Vec<f64> = of_kind.iter().filter_map(|rate| figure(rate)).collect();
            match values.is_empty() {
                true => "-".to_owned(),
                false => format!("{:.2}", median(values)),
            }
        };
        let name = kind.map_or_else(|| "(fsync)".to_owned(), |clients| clients.to_string());
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let quads = arguments.quads as f64;
        let quads = |rate: &Rate| rate.clients.map(|_| rate.a_second() * quads);
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let server = |rate: &Rate| Some(rate.server? * 1e6 / rate.done.max(1) as f64);
        let failures: u64 = of_kind.iter().map(|rate| rate.failures).sum();
        out.push_str(&format!(
            "{name:>8} {:>12} {:>12} {:>8} {:>8} {:>8} {:>14} {failures:>7}\n",
            of(&|rate| Some(rate.a_second())),
            of(&quads),
            of(&|rate| rate.quantile_ms(0.5)),
            of(&|rate| rate.quantile_ms(0.99)),
            of(&|rate| Some(rate.a_second() / allowed).filter(|share| share.is_finite())),
            of(&server),
        ));
    }
    out
}

fn lines(arguments: &Arguments, rates: &[Rate], server: &Server) -> Vec<Value> {
    let each = |rate: &Rate| {
        json!({
            "kind": if rate.clients.is_some() { "inserts" } else { "appends" },
            "url": arguments.url,
            "clients": rate.clients,
            "quads": arguments.quads,
            "existing_percent": arguments.existing.unwrap_or(0),
            "requests": rate.done,
            "seconds": rate.seconds,
            "requests_a_second": rate.a_second(),
            "p50_ms": rate.quantile_ms(0.5),
            "p99_ms": rate.quantile_ms(0.99),
            "max_ms": rate.quantile_ms(1.0),
            "failures": rate.failures,
            "server_cpu_s": rate.server,
            "server_peak_bytes": server.resident().map(|it| it.1),
        })
    };
    rates.iter().map(each).collect()
}

#[cfg(test)]
mod tests;
