//! One query or update of a SPARQL endpoint: how long it took, how much came, and whether it is whole.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::{Response, StatusCode};

/// Whether each query has a connection of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Connection {
    /// One connection for each query, as the original driver has it
    #[default]
    Each,
    /// A client keeps its connection
    Keep,
}

/// What was measured of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// From before the connection is opened until the last byte was read.
    pub(crate) time: Duration,
    /// Solutions, where a query's answer is in XML.
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// What the server says that it took until its answer began, where it says so (`Server-Timing`).
    pub(crate) server: Option<Duration>,
    pub(crate) failure: Option<Failure>,
}

/// Why a request has no answer that counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    TimeOut,
    /// A status of failure, a broken connection, or an answer that says that it is cut off.
    Error(String),
}

/// How updates are sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum UpdateForm {
    /// As the body of a POST, application/sparql-update
    #[default]
    Body,
    /// In the field `update` of a form
    Update,
    /// In the field `query` of a form, as Virtuoso takes them
    Query,
}

/// Where updates go, and how.
#[derive(Clone, Debug)]
pub(crate) struct Updates {
    pub(crate) url: String,
    pub(crate) form: UpdateForm,
}

impl Failure {
    /// Whether another transaction was in the way, so that this one may be tried again: status 409, or a deadlock, which
    /// has no status of its own.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::TimeOut => false,
            Self::Error(message) => {
                message.starts_with("status 409") || message.to_lowercase().contains("deadlock")
            }
        }
    }
}

/// A SPARQL endpoint, asked by one client.
#[derive(Debug)]
pub(crate) struct Endpoint {
    agent: ureq::Agent,
    url: String,
}

/// Media types for SELECT and ASK, and for CONSTRUCT and DESCRIBE, as the original driver asks for them.
const ACCEPT: &str = "application/sparql-results+xml, application/rdf+xml;q=0.9";

/// Queries above this size are sent as a form, because servers limit the length of URLs.
const LONG_BYTES: usize = 5_000;

impl Endpoint {
    pub(crate) fn new(url: &str, connection: Connection, timeout: Option<Duration>) -> Self {
        Self {
            agent: agent(connection, timeout),
            url: url.to_owned(),
        }
    }

    /// Sends a query and reads its answer to the end; what was read goes to `body`, if there is one.
    pub(crate) fn ask(&self, query: &str, body: Option<&mut dyn Write>) -> Measured {
        timed(|measured| {
            let answer = if query.len() > LONG_BYTES {
                let request = self.agent.post(&self.url).header("Accept", ACCEPT);
                request.send_form([("query", query)])
            } else {
                let request = self.agent.get(&self.url).header("Accept", ACCEPT);
                request.query("query", query).call()
            };
            transfer(answer, |status| *status == StatusCode::OK, body, measured)
        })
    }

    /// Sends an update and reads what is said about it; that has no rows.
    pub(crate) fn update(&self, updates: &Updates, text: &str) -> Measured {
        let mut measured = timed(|measured| {
            let request = self.agent.post(&updates.url);
            let answer = match updates.form {
                UpdateForm::Body => request.content_type("application/sparql-update").send(text),
                UpdateForm::Update => request.send_form([("update", text)]),
                UpdateForm::Query => request.send_form([("query", text)]),
            };
            // There may be nothing to say: 204.
            transfer(answer, StatusCode::is_success, None, measured)
        });
        measured.rows = 0;
        measured
    }
}

pub(super) fn agent(connection: Connection, timeout: Option<Duration>) -> ureq::Agent {
    let idle = match connection {
        Connection::Each => 0,
        Connection::Keep => 1,
    };
    ureq::Agent::config_builder()
        .timeout_global(timeout)
        .max_idle_connections(idle)
        .max_idle_connections_per_host(idle)
        .http_status_as_error(false)
        .accept_encoding("identity")
        .user_agent("stoa-bench")
        .build()
        .new_agent()
}

/// Measures the time of a request.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(work: impl FnOnce(&mut Measured) -> Result<(), Failure>) -> Measured {
    let start = Instant::now();
    let mut measured = Measured::default();
    if let Err(failure) = work(&mut measured) {
        measured.failure = Some(failure);
    }
    measured.time = start.elapsed();
    measured
}

/// Reads an answer to its end; what was read goes to `body`, if there is one.
pub(super) fn transfer(
    answer: Result<Response<Body>, ureq::Error>,
    is_answer: fn(&StatusCode) -> bool,
    mut body: Option<&mut dyn Write>,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let mut answer = answer.map_err(|error| failure(&error))?;
    let cut = answer.headers().contains_key("X-SPARQL-MaxRows");
    let timing = answer.headers().get("Server-Timing");
    measured.server = timing.and_then(|it| server_time(it.to_str().ok()?));
    let solutions = answer
        .headers()
        .get("Content-Type")
        .and_then(|it| it.to_str().ok())
        .is_some_and(|it| it.starts_with("application/sparql-results+xml"));
    let mut tail = Tail::default();
    let status = answer.status();
    let mut reader = answer.body_mut().as_reader();
    if !is_answer(&status) {
        let mut message = String::new();
        reader
            .take(400)
            .read_to_string(&mut message)
            .unwrap_or_default();
        return Err(Failure::Error(format!(
            "status {status}: {}",
            message.trim()
        )));
    }
    let mut rows = Rows::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(read_failure(&error)),
        };
        let read = buffer.get(..count).unwrap_or(&[]);
        measured.bytes += count as u64;
        rows.count(read);
        tail.add(read);
        if let Some(body) = &mut body {
            body.write_all(read)
                .map_err(|error| Failure::Error(error.to_string()))?;
        }
    }
    measured.rows = rows.total;
    // An error after the status is text in the midst of the answer, or an early end.
    if solutions && !tail.whole() {
        let message = "the answer ends before its last tag";
        return Err(Failure::Error(message.to_owned()));
    }
    if cut {
        return Err(Failure::Error("the endpoint cut the answer off".to_owned()));
    }
    Ok(())
}

/// The time of the first metric that has one, of a field `Server-Timing` such as `answer;dur=12.5`, milliseconds.
fn server_time(field: &str) -> Option<Duration> {
    let mut parameters = field.split([',', ';']).map(str::trim);
    let milliseconds = parameters.find_map(|it| it.strip_prefix("dur="))?;
    let seconds = milliseconds.parse::<f64>().ok()? / 1e3;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The last bytes of an answer.
#[derive(Debug, Default)]
pub(crate) struct Tail(Vec<u8>);

impl Tail {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        const KEPT: usize = 64;
        let start = bytes.len().saturating_sub(KEPT);
        self.0.extend_from_slice(bytes.get(start..).unwrap_or(&[]));
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
    }

    /// Whether the answer ended with its last tag.
    pub(crate) fn whole(&self) -> bool {
        let end = self.0.trim_ascii_end();
        end.ends_with(b"sparql>") || end.ends_with(b"RDF>")
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn failure(error: &ureq::Error) -> Failure {
    match error {
        ureq::Error::Timeout(_) => Failure::TimeOut,
        ureq::Error::Io(error) => read_failure(error),
        other => Failure::Error(other.to_string()),
    }
}

fn read_failure(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::TimedOut {
        return Failure::TimeOut;
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(ureq::Error::Timeout(_)) => Failure::TimeOut,
        _ => Failure::Error(error.to_string()),
    }
}

/// Counts the elements `result` of an answer that comes in pieces.
#[derive(Debug, Default)]
struct Rows {
    /// How much of [`ROW`] the bytes before the next one are.
    matched: usize,
    total: u64,
}

/// How a row begins; the byte behind it tells `<result>` from `<results>`.
const ROW: &[u8] = b"<result";

impl Rows {
    fn count(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let Some((&byte, behind)) = rest.split_first() {
            if self.matched == 0 {
                let Some(at) = memchr::memchr(b'<', rest) else {
                    return;
                };
                rest = rest.get(at + 1..).unwrap_or(&[]);
                self.matched = 1;
                continue;
            }
            rest = behind;
            if let Some(&expected) = ROW.get(self.matched) {
                self.matched = match byte {
                    _ if byte == expected => self.matched + 1,
                    b'<' => 1,
                    _ => 0,
                };
            } else {
                self.total += u64::from(byte != b's');
                self.matched = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_its_end_shows() {
        let mut tail = Tail::default();
        tail.add(&[b'x'; 500]);
        assert!(!tail.whole());
        for byte in b"</sparql>\n" {
            tail.add(&[*byte]);
        }
        assert!(tail.whole());
    }

    #[test]
    fn what_the_server_says_of_its_time_is_read() {
        let time = |milliseconds: u64| Some(Duration::from_micros(milliseconds * 1_000 + 500));
        assert_eq!(server_time("answer;dur=12.5"), time(12));
        assert_eq!(
            server_time("miss, db;desc=\"x\";dur=3.5, all;dur=9"),
            time(3)
        );
        for none in [
            "",
            "cache",
            "answer;dur=soon",
            "answer;dur=-1",
            "a;dur=1e99",
        ] {
            assert_eq!(server_time(none), None, "{none}");
        }
    }

    #[test]
    fn rows_are_counted_across_pieces() {
        let answer =
            b"<sparql><head/><results><result><x>&lt;result</x></result><result/></results>";
        for size in 1..answer.len() {
            let mut rows = Rows::default();
            answer.chunks(size).for_each(|piece| rows.count(piece));
            assert_eq!(rows.total, 2, "{size}");
        }
    }
}
