//! `stoa-bench compare-samples`: the same requests twice, with and without something that goes on beside them.
//!
//! Reads what `run --samples` has appended, rounds of one file against those of the other in their order. With `--during`,
//! what counts are requests that met one of the times in that file, and the same requests of the other round. Times
//! are those that the server tells of itself (`Server-Timing`) where it told all of them, else the client's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::run::{append_lines, quantile};

/// What `stoa-bench compare-samples` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// What `run --samples --output` has written while nothing else went on
    #[arg(value_name = "QUIET")]
    quiet: PathBuf,
    /// The same of the same requests while something did
    #[arg(value_name = "BUSY")]
    busy: PathBuf,
    /// When it went on: lines of JSON with `from_us` and `to_us`, microseconds since 1970; without it, always
    #[arg(long, value_name = "FILE")]
    during: Option<PathBuf>,
    /// Append the figures as lines of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Round, mix and place.
type Key = (u64, u64, u64);

/// An execution with an answer.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    query: String,
    /// When it began, microseconds since 1970.
    at_us: f64,
    ms: f64,
    server_ms: Option<f64>,
}

/// Times of one query in both, ascending, milliseconds.
#[derive(Clone, Debug, Default)]
struct Pair {
    quiet: Vec<f64>,
    busy: Vec<f64>,
}

/// Compares; gives whether there was anything to compare.
///
/// # Errors
/// When a file cannot be read or written, or is no such file.
#[expect(clippy::print_stdout, reason = "the table is the output")]
pub(crate) fn compare(arguments: &Arguments) -> anyhow::Result<bool> {
    let quiet = samples(&arguments.quiet)?;
    let busy = samples(&arguments.busy)?;
    let during = match &arguments.during {
        Some(path) => Some(times(path)?),
        None => None,
    };
    let (pairs, by_server) = pairs(&quiet, &busy, during.as_deref());
    if pairs.is_empty() {
        bail!("no request is in both files and met one of the times");
    }
    print!("{}", table(&pairs, by_server));
    if let Some(path) = &arguments.output {
        append_lines(path, lines(&pairs, by_server).into_iter())?;
    }
    Ok(true)
}

/// The lines of JSON of a file.
fn values(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let values: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    values.with_context(|| format!("{} has other lines than JSON", path.display()))
}

/// The executions of all rounds of a file that have an answer.
fn samples(path: &Path) -> anyhow::Result<BTreeMap<Key, Sample>> {
    let (mut samples, mut round) = (BTreeMap::new(), 0);
    for value in values(path)? {
        let kind = value.get("kind").and_then(Value::as_str);
        round += u64::from(kind == Some("run"));
        let has_failed = value.get("failure").is_some_and(|it| !it.is_null());
        if kind != Some("sample") || has_failed {
            continue;
        }
        let number = |name: &str| value.get(name).and_then(Value::as_f64);
        let whole = |name: &str| value.get(name).and_then(Value::as_u64);
        let read = || {
            let sample = Sample {
                query: value.get("query")?.as_str()?.to_owned(),
                at_us: number("at_us")?,
                ms: number("ms")?,
                server_ms: number("server_ms"),
            };
            Some(((round, whole("mix")?, whole("place")?), sample))
        };
        let (key, sample) = read().with_context(|| format!("in {}: {value}", path.display()))?;
        samples.insert(key, sample);
    }
    Ok(samples)
}

/// Beginnings and ends, microseconds since 1970.
fn times(path: &Path) -> anyhow::Result<Vec<(f64, f64)>> {
    let time = |value: Value| {
        let number = |name: &str| value.get(name).and_then(Value::as_f64);
        let both = number("from_us").zip(number("to_us"));
        both.with_context(|| format!("in {}: {value}", path.display()))
    };
    values(path)?.into_iter().map(time).collect()
}

/// The times of each query that count, and of `all`; and whether they are the server's.
fn pairs(
    quiet: &BTreeMap<Key, Sample>,
    busy: &BTreeMap<Key, Sample>,
    during: Option<&[(f64, f64)]>,
) -> (BTreeMap<String, Pair>, bool) {
    let meets = |sample: &Sample| {
        let end = sample.at_us + sample.ms * 1e3;
        during.is_none_or(|times| {
            let mut times = times.iter();
            times.any(|(from, to)| sample.at_us <= *to && end >= *from)
        })
    };
    let both = || {
        let busy = busy.iter().filter(|(_, sample)| meets(sample));
        busy.filter_map(|(key, busy)| Some((quiet.get(key)?, busy)))
    };
    let by_server = both().all(|(one, two)| one.server_ms.is_some() && two.server_ms.is_some());
    let time = |sample: &Sample| match sample.server_ms {
        Some(time) if by_server => time,
        _ => sample.ms,
    };
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    for (one, two) in both() {
        for name in [two.query.as_str(), "all"] {
            let pair = pairs.entry(name.to_owned()).or_default();
            pair.quiet.push(time(one));
            pair.busy.push(time(two));
        }
    }
    for pair in pairs.values_mut() {
        pair.quiet.sort_by(f64::total_cmp);
        pair.busy.sort_by(f64::total_cmp);
    }
    (pairs, by_server)
}

impl Pair {
    /// A quantile of both, and how many times as long the second is.
    fn quantiles(&self, share: f64) -> [f64; 3] {
        let [quiet, busy] =
            [&self.quiet, &self.busy].map(|times| quantile(times, share).unwrap_or(f64::NAN));
        [quiet, busy, busy / quiet]
    }
}

fn clock(by_server: bool) -> &'static str {
    if by_server { "server" } else { "client" }
}

fn table(pairs: &BTreeMap<String, Pair>, by_server: bool) -> String {
    let mut out = format!(
        "times by the clock of the {}, ms\n{:>5} {:>7} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6}\n",
        clock(by_server),
        "query",
        "count",
        "p50 quiet",
        "p50 busy",
        "ratio",
        "p99 quiet",
        "p99 busy",
        "ratio"
    );
    for (name, pair) in pairs {
        let [quiet, busy, ratio] = pair.quantiles(0.5);
        let [quiet_99, busy_99, ratio_99] = pair.quantiles(0.99);
        let count = pair.busy.len();
        // Writing to a string cannot fail.
        writeln!(
            out,
            "{name:>5} {count:>7} {quiet:>10.3} {busy:>10.3} {ratio:>6.2} {quiet_99:>10.3} {busy_99:>10.3} {ratio_99:>6.2}"
        )
        .unwrap_or_default();
    }
    out
}

fn lines(pairs: &BTreeMap<String, Pair>, by_server: bool) -> Vec<Value> {
    let line = |(name, pair): (&String, &Pair)| {
        let [quiet, busy, _] = pair.quantiles(0.5);
        let [quiet_99, busy_99, ratio_99] = pair.quantiles(0.99);
        json!({
            "kind": "beside",
            "query": name,
            "clock": clock(by_server),
            "count": pair.busy.len(),
            "quiet_p50_ms": quiet,
            "busy_p50_ms": busy,
            "quiet_p99_ms": quiet_99,
            "busy_p99_ms": busy_99,
            "p99_ratio": ratio_99,
        })
    };
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"kind": "run"}"#;

    fn sample(query: &str, place: u64, at: u64, ms: f64, server: Option<f64>) -> String {
        let value = json!({"kind": "sample", "query": query, "mix": 0, "place": place, "at_us": at, "ms": ms,
            "server_ms": server, "failure": null});
        value.to_string()
    }

    /// The figures of files with these lines.
    fn compared(quiet: &[String], busy: &[String], during: &str) -> anyhow::Result<Vec<Value>> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("quiet"), quiet.join("\n"))?;
        std::fs::write(path("busy"), busy.join("\n"))?;
        std::fs::write(path("during"), during)?;
        compare(&Arguments {
            quiet: path("quiet"),
            busy: path("busy"),
            during: (!during.is_empty()).then(|| path("during")),
            output: Some(path("output")),
        })?;
        values(&path("output"))
    }

    #[test]
    fn requests_are_compared_with_themselves_while_something_went_on() {
        let run = RUN.to_owned();
        let quiet = [
            run.clone(),
            sample("1", 0, 0, 2.0, Some(1.0)),
            sample("2", 1, 0, 9.0, Some(8.0)),
            run.clone(),
            sample("1", 0, 0, 2.0, Some(2.0)),
        ];
        let busy = [
            run.clone(),
            sample("1", 0, 5_000, 4.0, Some(3.0)),
            // Over before the first time begins, and not in the other file.
            sample("2", 1, 1_000, 2.0, Some(8.0)),
            sample("3", 2, 5_000, 9.0, Some(8.0)),
            run,
            sample("1", 0, 30_000, 9.0, Some(8.0)),
        ];
        let during = "{\"from_us\": 4000, \"to_us\": 6000}\n{\"from_us\": 38000, \"to_us\": 39000}";
        let lines = compared(&quiet, &busy, during).unwrap();
        let names: Vec<_> = lines.iter().map(|line| line["query"].as_str()).collect();
        assert_eq!(names, [Some("1"), Some("all")]);
        assert_eq!(lines[0]["count"], 2);
        assert_eq!(lines[0]["clock"], "server");
        assert_eq!(
            (&lines[0]["quiet_p99_ms"], &lines[0]["busy_p99_ms"]),
            (&json!(2.0), &json!(8.0))
        );
        assert_eq!(lines[1]["p99_ratio"], 4.0);
        assert_eq!(compared(&quiet, &busy, "").unwrap()[2]["count"], 3);
        assert!(compared(&quiet, &busy, "{\"from_us\": 1, \"to_us\": 2}").is_err());
        assert!(compared(&quiet, &busy, "{\"from_us\": 1}").is_err());
        assert!(compared(&quiet, &["no JSON".to_owned()], "").is_err());
    }

    #[test]
    fn without_the_servers_clock_the_clients_counts() {
        let quiet = [sample("1", 0, 0, 2.0, None)];
        let busy = [sample("1", 0, 0, 3.0, Some(1.0))];
        let lines = compared(&quiet, &busy, "").unwrap();
        assert_eq!(
            (&lines[0]["clock"], &lines[0]["p99_ratio"]),
            (&json!("client"), &json!(1.5))
        );
    }
}
