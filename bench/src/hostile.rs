//! `stoa-bench hostile`: many hostile requests at once against a server, while one client asks one-row queries.
//!
//! Each hostile client sends one kind of request after the other: bodies that never end, small bodies that unpack to large
//! ones, long texts, queries with large rows and values, answers and feeds that nobody reads, loads that come slowly. It keeps
//! the connection for a moment, then leaves. The driver makes the data that the queries need, so the database should be an
//! empty one that may be thrown away.
//!
//! Told are the times of the one-row queries and the peak of the server's resident memory; the exit code is 1 if either is
//! beyond its limit.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a driver that prints its result and measures time"
)]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::run::Process;

/// What is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address and port of the server, such as 127.0.0.1:7878
    address: String,
    /// The process of the server
    #[arg(long)]
    server_pid: u32,
    /// How many hostile clients there are
    #[arg(long, default_value_t = 60)]
    clients: usize,
    /// For how many seconds they go on
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only kinds with this in their names
    #[arg(long, default_value = "")]
    only: String,
    /// The most resident memory of the server, in MB
    #[arg(long, default_value_t = 282)]
    resident_max: u64,
    /// The most milliseconds that 99 of 100 one-row queries take
    #[arg(long, default_value_t = 50)]
    p99_max: u64,
}

/// How long a hostile client waits for each piece of an answer before it leaves.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a client takes the answer.
#[derive(Clone, Copy, Debug)]
enum Taking {
    All,
    /// The first bytes only; then it waits for a while.
    Nothing,
}

/// A kind of hostile request.
struct Kind {
    name: &'static str,
    bytes: Vec<u8>,
    taking: Taking,
}

/// Runs the attack; says whether the limits held.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let address = arguments.address.as_str();
    fill(address)?;
    let kinds: Vec<Kind> = kinds()?
        .into_iter()
        .filter(|kind| kind.name.contains(&arguments.only))
        .collect();
    if kinds.is_empty() {
        bail!("no kind has '{}' in its name", arguments.only);
    }
    let process = Process(arguments.server_pid);
    let quiet = one_row_queries(address, Instant::now() + Duration::from_secs(3));
    let is_over = AtomicBool::new(false);
    let outcomes = Mutex::new(BTreeMap::new());
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let beside = std::thread::scope(|scope| {
        for client in 0..arguments.clients {
            let (kinds, is_over, outcomes) = (&kinds, &is_over, &outcomes);
            scope.spawn(move || attack(address, kinds, client, is_over, outcomes));
        }
        let times = one_row_queries(address, until);
        is_over.store(true, Ordering::Relaxed);
        times
    });
    let quiet = Times::of(quiet?);
    let beside = Times::of(beside?);
    let outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for ((kind, outcome), count) in outcomes {
        println!("{kind:28} {outcome:24} {count}");
    }
    let (now, peak) = process
        .resident()
        .context("the process cannot be looked at")?;
    println!("one-row queries alone:  {quiet}");
    println!("one-row queries beside: {beside}");
    println!(
        "resident: {} MB at its peak, {} MB now",
        peak >> 20,
        now >> 20
    );
    Ok(peak <= arguments.resident_max << 20
        && beside.p99 <= Duration::from_millis(arguments.p99_max))
}

/// Data for the queries: many small literals and some large ones, each part a commit.
fn fill(address: &str) -> anyhow::Result<()> {
    let small: String = (0..60_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> \"a text of some length, {n}\" .\n"))
        .collect();
    let large = "long ".repeat(20_000);
    let mut parts = vec![small];
    for part in 0..20 {
        let lines = (0..20)
            .map(|n| format!("<http://a/d{part}-{n}> <http://a/text> \"{large}{part}-{n}\" .\n"));
        parts.push(lines.collect());
    }
    for part in parts {
        let request = post(
            "/store?default",
            "application/n-triples",
            "identity",
            part.as_bytes(),
        );
        let answer = exchange(address, &request)?;
        if !answer.starts_with(b"HTTP/1.1 2") {
            bail!(
                "the data could not be stored: {}",
                String::from_utf8_lossy(&answer)
            );
        }
    }
    Ok(())
}

fn exchange(address: &str, request: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).context("cannot connect")?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Asks one-row queries one after the other, each by a connection of its own.
fn one_row_queries(address: &str, until: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    while Instant::now() < until {
        let number = times.len() * 7_919 % 60_000;
        let query = format!("SELECT ?o {{ <http://a/s{number}> <http://a/p> ?o }}");
        let request = post(
            "/sparql",
            "application/sparql-query",
            "identity",
            query.as_bytes(),
        );
        let begun = Instant::now();
        let answer = exchange(address, &request)?;
        times.push(begun.elapsed());
        if !answer.starts_with(b"HTTP/1.1 200") {
            bail!(
                "a one-row query failed: {}",
                String::from_utf8_lossy(&answer)
            );
        }
    }
    Ok(times)
}

/// The times of queries.
struct Times {
    count: usize,
    median: Duration,
    p99: Duration,
    most: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(place).copied().unwrap_or_default()
        };
        Self {
            count: times.len(),
            median: at(50),
            p99: at(99),
            most: at(100),
        }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{} of them, median {:.2} ms, p99 {:.2} ms, most {:.2} ms",
            self.count,
            milliseconds(self.median),
            milliseconds(self.p99),
            milliseconds(self.most)
        )
    }
}

/// How often each kind ended in each way.
type Outcomes = Mutex<BTreeMap<(&'static str, String), u64>>;

fn attack(address: &str, kinds: &[Kind], first: usize, is_over: &AtomicBool, outcomes: &Outcomes) {
    let mut all = kinds.iter().cycle().skip(first);
    while !is_over.load(Ordering::Relaxed)
        && let Some(kind) = all.next()
    {
        let outcome = once(address, kind, is_over);
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry((kind.name, outcome)).or_default() += 1;
    }
}

/// Sends a request of a kind; tells the status of the answer, or why there is none.
fn once(address: &str, kind: &Kind, is_over: &AtomicBool) -> String {
    let stream = TcpStream::connect(address).and_then(|stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    });
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return format!("no connection: {}", error.kind()),
    };
    // The server may refuse the rest.
    drop(stream.write_all(&kind.bytes));
    let mut head = [0; 12];
    let mut outcome = match stream.read_exact(&mut head) {
        Ok(()) => String::from_utf8_lossy(&head).into_owned(),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer yet".to_owned(),
            kind => kind.to_string(),
        },
    };
    let mut buffer = vec![0; 64 << 10];
    match kind.taking {
        Taking::All => {
            while !is_over.load(Ordering::Relaxed) && matches!(stream.read(&mut buffer), Ok(1..)) {}
        }
        Taking::Nothing => {
            outcome.push_str(", not read");
            std::thread::sleep(PATIENCE);
        }
    }
    outcome
}

fn post(target: &str, media_type: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {media_type}\r\n\
         Content-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn get(target: &str, version: &str) -> Vec<u8> {
    format!("GET {target} HTTP/{version}\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// The same without its last byte.
fn unfinished(mut request: Vec<u8>) -> Vec<u8> {
    request.pop();
    request
}

fn gzip(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// Every kind.
#[expect(clippy::too_many_lines, reason = "an entry for each kind")]
fn kinds() -> anyhow::Result<Vec<Kind>> {
    const QUERY: &str = "application/sparql-query";
    const UPDATE: &str = "application/sparql-update";
    const FORM: &str = "application/x-www-form-urlencoded";
    const TRIPLES: &str = "application/n-triples";
    let query = |text: &str| post("/sparql", QUERY, "identity", text.as_bytes());
    let update = |text: &str| post("/sparql", UPDATE, "identity", text.as_bytes());
    let concatenations: String = (0..1_000)
        .map(|n| format!("(GROUP_CONCAT(?o) AS ?g{n}) "))
        .collect();
    let numbers: String = (0..1_000_000).map(|n| format!("{n} ")).collect();
    let few: String = (0..5_000).map(|n| format!("{n} ")).collect();
    let mut doubled = "BIND('0123456789' AS ?x0) ".to_owned();
    for n in 0..24 {
        doubled += &format!("BIND(CONCAT(?x{n}, ?x{n}) AS ?x{}) ", n + 1);
    }
    let spaces = vec![b' '; 15 << 20];
    let lines = "<http://a/h> <http://a/p> <http://a/o> .\n".repeat(150_000);
    let commit: String = (0..4_000)
        .map(|n| format!("<http://a/c> <http://a/p> '{}{n}' . ", "x".repeat(1_000)))
        .collect();
    let (all, texts) = (
        "SELECT * { ?s ?p ?o }",
        "SELECT ?d ?t { ?d <http://a/text> ?t }",
    );
    let sparql = "/sparql?query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let kind = |name, bytes, taking| Kind {
        name,
        bytes,
        taking,
    };
    let (takes, stops) = (Taking::All, Taking::Nothing);
    Ok(vec![
        kind(
            "M1 concatenations",
            query(&format!("SELECT {concatenations} {{ ?s ?p ?o }}")),
            takes,
        ),
        kind(
            "M2 one long value, often",
            query(&format!(
                "SELECT ?g ?x {{ {{ SELECT (GROUP_CONCAT(?o) AS ?g) {{ ?s <http://a/p> ?o }} }} VALUES ?x {{ {few}}} }}"
            )),
            takes,
        ),
        kind("M3 long literals", query(texts), takes),
        kind("M3 long literals, unread", query(texts), stops),
        kind("M3 dump, unread", get("/store", "1.1"), stops),
        kind(
            "M4 gzip of a query",
            post("/sparql", QUERY, "gzip", &gzip(&spaces)?),
            takes,
        ),
        kind(
            "M4 gzip beyond the limit",
            post("/sparql", QUERY, "gzip", &gzip(&vec![b' '; 64 << 20])?),
            takes,
        ),
        kind(
            "M4 gzip of a form",
            post("/sparql", FORM, "gzip", &gzip(&vec![b'+'; 60 << 20])?),
            takes,
        ),
        kind(
            "M4 zstd of an update",
            post(
                "/sparql",
                UPDATE,
                "zstd",
                &zstd::bulk::compress(&spaces, 19)?,
            ),
            takes,
        ),
        kind(
            "M4 unfinished query",
            unfinished(post("/sparql", QUERY, "identity", &spaces)),
            stops,
        ),
        kind(
            "M4 unfinished form",
            unfinished(post("/sparql", FORM, "identity", &vec![b'+'; 60 << 20])),
            stops,
        ),
        kind("M4 HTTP/1.0, unread", get(sparql, "1.0"), stops),
        kind("M4 HTTP/1.1, unread", query(all), stops),
        kind("M5 feed, unread", get("/changes?since=0", "1.1"), stops),
        kind(
            "M5 commit of 4 MB",
            update(&format!("INSERT DATA {{ {commit} }}")),
            takes,
        ),
        kind(
            "M6 a million values",
            query(&format!("SELECT * {{ VALUES ?x {{ {numbers}}} }}")),
            takes,
        ),
        kind(
            "M6 many operations",
            update(&"CLEAR SILENT GRAPH <http://a/g> ; ".repeat(300_000)),
            takes,
        ),
        kind(
            "M6 doubled texts",
            query(&format!("SELECT (STRLEN(?x24) AS ?n) {{ {doubled} }}")),
            takes,
        ),
        kind(
            "M7 small load",
            post(
                "/load",
                TRIPLES,
                "identity",
                b"<http://a/l> <http://a/p> 1 .\n",
            ),
            takes,
        ),
        kind(
            "M7 long load",
            post("/load", TRIPLES, "identity", lines.as_bytes()),
            takes,
        ),
        kind(
            "M7 unfinished load",
            unfinished(post("/load", TRIPLES, "identity", lines.as_bytes())),
            stops,
        ),
        kind("query of signs", query(&"(".repeat(15 << 20)), takes),
        kind("update of signs", update(&"{ ".repeat(7 << 20)), takes),
        kind("log, unread", get("/log", "1.1"), stops),
        kind("patch, unread", get("/diff?from=0&to=10", "1.1"), stops),
        kind(
            "cross product sorted",
            query("SELECT * { ?a ?b ?c . ?d ?e ?f } ORDER BY ?c ?f LIMIT 100000"),
            stops,
        ),
    ])
}
