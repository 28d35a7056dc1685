//! `stoa-bench run inserts`: how many commits and quads a second an endpoint takes, beside what the disk allows.
//!
//! Rounds, in each of which first small appends to a file are made durable one by one, then each number of clients sends
//! `INSERT DATA` requests, all for the same time: what the disk does in one minute and not in the next one meets both.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::append_lines;
use super::endpoint::{Connection, Endpoint, Failure, UpdateForm, Updates};
use super::meter::{Process, Server};
use super::report::parse_duration;

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
    /// A folder on the disk of the database: in each round small appends to a file there are made durable, too
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
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
    /// A connection for each request, or one for each client
    #[arg(long, value_enum, default_value = "keep")]
    connection: Connection,
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
/// Bytes of an append beside: about what a record of one quad takes.
const APPEND_BYTES: usize = 200;

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
        run: since_1970(),
    };
    let mut rates = Vec::new();
    for _ in 0..arguments.rounds {
        if let Some(folder) = &arguments.beside {
            rates.push(appends(folder, arguments.duration)?);
        }
        for clients in &arguments.clients {
            writer.run += 1;
            rates.push(writer.round(*clients, &server));
        }
    }
    for rate in &rates {
        if let Some(failure) = &rate.first_failure {
            eprintln!("{failure}");
        }
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

/// Makes appends durable, one after the other.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn appends(folder: &Path, duration: Duration) -> anyhow::Result<Rate> {
    let path = folder.join(format!("stoa-bench-{}", std::process::id()));
    let work = || {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let (start, mut rate) = (Instant::now(), Rate::default());
        while start.elapsed() < duration {
            let before = start.elapsed();
            file.write_all(&[7; APPEND_BYTES])?;
            file.sync_data()?;
            rate.times.push((start.elapsed() - before).as_secs_f64());
            rate.done += 1;
        }
        rate.seconds = start.elapsed().as_secs_f64();
        Ok::<_, std::io::Error>(rate)
    };
    let rate = work();
    let removed = std::fs::remove_file(&path);
    let mut rate = rate.with_context(|| format!("writing {}", path.display()))?;
    removed.with_context(|| format!("removing {}", path.display()))?;
    rate.times.sort_by(f64::total_cmp);
    Ok(rate)
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

    fn client(&self, client: u64, start: Instant) -> Rate {
        let arguments = self.arguments;
        let endpoint = Endpoint::new(
            &arguments.url,
            arguments.connection,
            Some(arguments.timeout),
        );
        let url = arguments.update_url.as_ref().unwrap_or(&arguments.url);
        let updates = Updates {
            url: url.clone(),
            form: arguments.update_form,
        };
        let mut rate = Rate::default();
        for number in 0..arguments.count.unwrap_or(u64::MAX) {
            if arguments.count.is_none() && start.elapsed() >= arguments.duration {
                break;
            }
            let measured = endpoint.update(&updates, &self.request(client, number));
            match measured.failure {
                None => {
                    rate.done += 1;
                    rate.times.push(measured.time.as_secs_f64());
                }
                Some(failure) => {
                    rate.failures += 1;
                    rate.first_failure.get_or_insert_with(|| match failure {
                        Failure::TimeOut => "a request took longer than --timeout".to_owned(),
                        Failure::Error(message) => message,
                    });
                    // A server that refuses everything is not to be asked as fast as it can refuse.
                    if rate.failures == 100 {
                        break;
                    }
                }
            }
        }
        rate
    }

    /// New quads: of each subject a type, a text, a number, a link and a date.
    fn request(&self, client: u64, number: u64) -> String {
        let run = self.run;
        let mut text = "INSERT DATA {\n".to_owned();
        for quad in 0..self.arguments.quads {
            let of_request = self.arguments.quads.div_ceil(QUADS_OF_SUBJECT);
            let place = number * of_request + quad / QUADS_OF_SUBJECT;
            let subject = self.subject(client, place);
            let mark = format!("{run}-{client}-{place}");
            let rest = match quad % QUADS_OF_SUBJECT {
                0 => format!("<urn:stoa-bench:text> \"what was written as {mark}\""),
                1 => format!("<urn:stoa-bench:number> {}", place * 7 + run),
                2 => "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:stoa-bench:Thing>"
                    .to_owned(),
                3 => format!("<urn:stoa-bench:link> <urn:stoa-bench:{mark}>"),
                _ => format!("<urn:stoa-bench:mark> \"{mark}\""),
            };
            text.push_str(&format!("<{subject}> {rest} .\n"));
        }
        text.push('}');
        text
    }

    /// The subject with a number: one that there is, as often as was asked for, or a new one.
    fn subject(&self, client: u64, place: u64) -> String {
        let seed = client << 40 | place;
        let mixed = (seed ^ self.run << 20)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
        let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16;
        if mixed % 100 < self.arguments.existing.unwrap_or(0) {
            let count = self.subjects.len().max(1) as u64;
            let index = usize::try_from(mixed / 100 % count).unwrap_or(0);
            if let Some(subject) = self.subjects.get(index) {
                return subject.clone();
            }
        }
        format!("urn:stoa-bench:{}-{client}-{place}", self.run)
    }
}

impl Rate {
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

/// Microseconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn since_1970() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use super::super::tests::{serve, status};
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            arguments: Arguments,
        }
        let words = [&["inserts"], words].concat();
        let command = <Command as clap::Parser>::try_parse_from(words);
        command.unwrap().arguments
    }

    fn writer(arguments: &Arguments) -> Writer<'_> {
        Writer {
            arguments,
            subjects: vec!["urn:old:1".to_owned(), "urn:old:2".to_owned()],
            run: 7,
        }
    }

    #[test]
    fn requests_are_updates_whose_quads_differ() {
        let arguments = arguments(&["http://x/", "--quads", "12"]);
        let writer = writer(&arguments);
        let mut quads = BTreeSet::new();
        for (client, number) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let request = writer.request(client, number);
            spargebra::SparqlParser::new()
                .parse_update(&request)
                .unwrap();
            let lines = request.lines().filter(|line| line.ends_with(" ."));
            quads.extend(lines.map(str::to_owned));
        }
        assert_eq!(quads.len(), 48);
        assert!(!quads.iter().any(|quad| quad.contains("urn:old")));
    }

    #[test]
    fn as_many_subjects_are_there_already_as_was_asked_for() {
        let words = ["http://x/", "--subjects", "f", "--existing", "30"];
        let arguments = arguments(&words);
        let writer = writer(&arguments);
        let subjects = (0..2_000).map(|place| writer.subject(3, place));
        let old = subjects
            .filter(|subject| subject.starts_with("urn:old"))
            .count();
        assert!((500..700).contains(&old), "{old}");
    }

    #[test]
    fn requests_are_counted_in_place_of_a_time() {
        let url = serve(|_| status("204 No Content", ""));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        let words = [
            "--clients",
            "3",
            "--rounds",
            "1",
            "--count",
            "4",
            "--connection",
            "each",
        ];
        let output = ["--output", path.to_str().unwrap()];
        assert!(run(&arguments(&[&[url.as_str()], &words[..], &output].concat())).unwrap());
        let line: Value = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        assert_eq!(line["requests"], 12);
    }

    #[test]
    fn rounds_of_appends_and_clients_are_told_apart() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let url = {
            let received = Arc::clone(&received);
            serve(move |request| {
                let mut received = received.lock().unwrap();
                received.push(request.body.clone());
                match received.len() {
                    3 => status("500 No", ""),
                    _ => status("204 No Content", ""),
                }
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        let beside = folder.path().to_str().unwrap().to_owned();
        let arguments = arguments(&[
            &url,
            "--clients",
            "1,2",
            "--rounds",
            "2",
            "--duration",
            "30ms",
            "--connection",
            "each",
            "--beside",
            &beside,
            "--output",
            path.to_str().unwrap(),
        ]);
        assert!(!run(&arguments).unwrap(), "one request failed");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| line.parse().unwrap()).collect();
        let clients: Vec<_> = lines.iter().map(|line| line["clients"].as_u64()).collect();
        assert_eq!(clients, [None, Some(1), Some(2), None, Some(1), Some(2)]);
        let sum = |name: &str| -> u64 {
            let of_clients = lines.iter().filter(|line| line["kind"] == "inserts");
            of_clients.map(|line| line[name].as_u64().unwrap()).sum()
        };
        let received = received.lock().unwrap();
        assert_eq!(sum("failures"), 1);
        assert_eq!(sum("requests") + 1, received.len() as u64);
        let different: BTreeSet<&String> = received.iter().collect();
        assert_eq!(different.len(), received.len());
        // What was appended is gone.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
