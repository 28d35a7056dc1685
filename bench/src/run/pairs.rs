//! `stoa-bench pairs`: two servers with the same data are asked the same queries in turns.
//!
//! Two builds, or two settings of one build, on a machine that is not quiet: what disturbs one answer of a pair is
//! likely to disturb the other, and the median over some pairs leaves out what disturbed one alone.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::drawn::{Draw, Template};
use super::endpoint::{Connection, Endpoint, Failure, Measured};
use super::meter::Process;
use super::report::parse_duration;
use super::statistics::quantile;
use super::{append_lines, progress_bar};

/// What `stoa-bench pairs` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The endpoint whose times are divided, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "FIRST")]
    first: String,
    /// The endpoint by whose times they are divided
    #[arg(value_name = "SECOND")]
    second: String,
    #[command(flatten)]
    draw: Draw,
    /// Only templates whose names begin with this, such as bi/ or group/; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Pairs of each template, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pairs: u64,
    /// Templates that take less at the first endpoint are left out of the sums, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    at_least: Option<Duration>,
    /// How long a query may take until its last byte
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// The first server's process on this machine, for its time on processors
    #[arg(long, value_name = "PID")]
    first_pid: Option<u32>,
    /// The second server's process
    #[arg(long, value_name = "PID")]
    second_pid: Option<u32>,
    /// Append the figures as lines of JSON: of the run, and of each template
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One of the two servers.
struct Side {
    endpoint: Endpoint,
    process: Option<Process>,
}

/// What one server took for the queries of a template, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    /// From before the connections were opened until the last bytes were read.
    wall: f64,
    /// Of the server on processors, if its process is known.
    cpu: Option<f64>,
    rows: u64,
}

/// The pairs of a template.
#[derive(Debug, Default)]
struct Outcome {
    name: String,
    pairs: Vec<[Spent; 2]>,
    /// Why there are no more.
    failure: Option<String>,
}

/// Medians over the pairs: of the first server, of the second, and of the first by the second.
type Medians = [Option<f64>; 3];

/// Asks all pairs; gives whether every query was answered, by both with as many rows.
///
/// # Errors
/// When queries cannot be drawn or made, a process is not there, or the output cannot be written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn pairs(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut templates = arguments.draw.templates(&arguments.first)?;
    if !arguments.only.is_empty() {
        let wanted = |name: &str| arguments.only.iter().any(|it| name.starts_with(it));
        templates.retain(|template| wanted(&template.name));
    }
    let side = |url: &str, pid: Option<u32>| {
        let process = pid.map(Process);
        if let Some(process) = process {
            let time = process.time();
            time.with_context(|| format!("there is no process {} here", process.0))?;
        }
        anyhow::Ok(Side {
            endpoint: Endpoint::new(url, Connection::Keep, Some(arguments.timeout)),
            process,
        })
    };
    let sides = [
        side(&arguments.first, arguments.first_pid)?,
        side(&arguments.second, arguments.second_pid)?,
    ];
    let bar = progress_bar("templates", templates.len() as u64);
    let mut outcomes = Vec::new();
    for template in &templates {
        outcomes.push(Outcome::of(template, &sides, arguments.pairs));
        bar.inc(1);
    }
    bar.finish_and_clear();
    for outcome in &outcomes {
        if let Some(failure) = &outcome.failure {
            eprintln!("{}: {failure}", outcome.name);
        }
    }
    print!("{}", table(&outcomes, arguments.at_least));
    if let Some(path) = &arguments.output {
        append_lines(path, json_lines(arguments, &outcomes).into_iter())?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.failure.is_none()))
}

impl Side {
    fn ask(&self, template: &Template) -> Result<Spent, String> {
        let before = self.process.and_then(Process::time);
        let mut spent = Spent::default();
        for query in &template.queries {
            let measured: Measured = self.endpoint.ask(query, None);
            match measured.failure {
                None => {}
                Some(Failure::TimeOut) => return Err("time-out".to_owned()),
                Some(Failure::Error(message)) => return Err(message),
            }
            spent.wall += measured.time.as_secs_f64();
            spent.rows += measured.rows;
        }
        let after = self.process.and_then(Process::time);
        spent.cpu = before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before).as_secs_f64());
        Ok(spent)
    }
}

impl Outcome {
    /// Asks both sides so many times, each of them first in every other pair.
    fn of(template: &Template, sides: &[Side; 2], pairs: u64) -> Self {
        let mut outcome = Self {
            name: template.name.clone(),
            ..Self::default()
        };
        for number in 0..=pairs {
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            let mut pair = [Spent::default(); 2];
            for index in order {
                let (Some(side), Some(spent)) = (sides.get(index), pair.get_mut(index)) else {
                    continue;
                };
                match side.ask(template) {
                    Ok(now) => *spent = now,
                    Err(message) => {
                        let which = ["first", "second"].get(index).unwrap_or(&"");
                        outcome.failure = Some(format!("{which}: {message}"));
                        return outcome;
                    }
                }
            }
            let [first, second] = pair;
            if first.rows != second.rows {
                let (first, second) = (first.rows, second.rows);
                outcome.failure = Some(format!("{first} rows and {second}"));
                return outcome;
            }
            if number > 0 {
                outcome.pairs.push(pair);
            }
        }
        outcome
    }

    /// Of what `figure` takes from one side.
    fn medians(&self, figure: impl Fn(&Spent) -> Option<f64>) -> Medians {
        let of = |value: fn(f64, f64) -> f64| {
            let pairs = self.pairs.iter();
            let values = pairs.map(|[first, second]| Some(value(figure(first)?, figure(second)?)));
            let mut values: Vec<f64> = values.collect::<Option<_>>()?;
            values.sort_by(f64::total_cmp);
            quantile(&values, 0.5)
        };
        [
            of(|first, _| first),
            of(|_, second| second),
            of(|first, second| first / second),
        ]
    }

    fn wall(&self) -> Medians {
        self.medians(|spent| Some(spent.wall))
    }

    fn cpu(&self) -> Medians {
        self.medians(|spent| spent.cpu)
    }

    /// Whether it takes so long at the first server that it counts.
    fn counts(&self, at_least: Option<Duration>) -> bool {
        let least = at_least.map_or(0.0, |it| it.as_secs_f64());
        self.failure.is_none() && self.wall()[0].is_some_and(|wall| wall >= least)
    }
}

/// Median and geometric mean of ratios.
fn summary(ratios: impl Iterator<Item = f64>) -> (usize, Option<f64>, Option<f64>) {
    let mut ratios: Vec<f64> = ratios.filter(|it| it.is_finite() && *it > 0.0).collect();
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    let logarithms: f64 = ratios.iter().map(|it| it.ln()).sum();
    let mean = (count > 0).then(|| (logarithms / count as f64).exp());
    (count, quantile(&ratios, 0.5), mean)
}

fn table(outcomes: &[Outcome], at_least: Option<Duration>) -> String {
    let mut out = format!(
        "{:<34} {:>5} {:>11} {:>11} {:>7} {:>11} {:>11} {:>7}\n",
        "query", "pairs", "first ms", "second ms", "ratio", "CPU ms", "CPU ms", "ratio"
    );
    let shown = |value: Option<f64>, factor: f64, digits: usize| match value {
        Some(value) => format!("{:.digits$}", value * factor),
        None => "-".to_owned(),
    };
    for outcome in outcomes {
        let ([first, second, ratio], cpu) = (outcome.wall(), outcome.cpu());
        // Writing to a string cannot fail.
        writeln!(
            out,
            "{:<34} {:>5} {:>11} {:>11} {:>7} {:>11} {:>11} {:>7}",
            outcome.name,
            outcome.pairs.len(),
            shown(first, 1e3, 2),
            shown(second, 1e3, 2),
            shown(ratio, 1.0, 2),
            shown(cpu[0], 1e3, 2),
            shown(cpu[1], 1e3, 2),
            shown(cpu[2], 1.0, 2),
        )
        .unwrap_or_default();
    }
    for (label, of) in [
        ("time", Outcome::wall as fn(&Outcome) -> Medians),
        ("CPU", Outcome::cpu),
    ] {
        let counted = outcomes.iter().filter(|it| it.counts(at_least));
        let (count, median, mean) = summary(counted.filter_map(|it| of(it)[2]));
        writeln!(
            out,
            "first by second, {label}: median {}, geometric mean {} of {count}",
            shown(median, 1.0, 3),
            shown(mean, 1.0, 3),
        )
        .unwrap_or_default();
    }
    out
}

/// One object for the run and one for each template.
fn json_lines(arguments: &Arguments, outcomes: &[Outcome]) -> Vec<Value> {
    let counted = |of: fn(&Outcome) -> Medians| {
        let counted = outcomes
            .iter()
            .filter(|it| it.counts(arguments.at_least))
            .filter_map(|it| of(it)[2]);
        let (count, median, mean) = summary(counted);
        json!({ "templates": count, "median": median, "geometric_mean": mean })
    };
    let mut lines = vec![json!({
        "kind": "run",
        "workload": "pairs",
        "first": arguments.first,
        "second": arguments.second,
        "products": arguments.draw.products,
        "edges": arguments.draw.edges,
        "people": arguments.draw.people,
        "seed": arguments.draw.seed,
        "draws": arguments.draw.draws,
        "at_least_seconds": arguments.at_least.map(|it| it.as_secs_f64()),
        "time": counted(Outcome::wall),
        "cpu": counted(Outcome::cpu),
    })];
    lines.extend(outcomes.iter().map(|outcome| {
        let seconds = |index: usize| -> Vec<f64> {
            let pairs = outcome.pairs.iter();
            pairs
                .filter_map(|pair| Some(pair.get(index)?.wall))
                .collect()
        };
        json!({
            "kind": "query",
            "name": outcome.name,
            "first_seconds": seconds(0),
            "second_seconds": seconds(1),
            "ratio": outcome.wall()[2],
            "cpu": outcome.cpu(),
            "failure": outcome.failure,
        })
    }));
    lines
}
