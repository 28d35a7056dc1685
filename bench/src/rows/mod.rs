//! `stoa-bench explore-rows`: whether answers have as many rows as those of the original benchmark.
//!
//! The original's means come from one dataset, so a dataset is what is sampled: how many features products have, and which
//! vendors are in which country, is drawn once for each and moves the means of some queries more than all mixes on it.
//! Several datasets give the mean and the spread between datasets; what another single dataset, with the original's number
//! of executions, may be off by follows from these.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// What `stoa-bench explore-rows` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of products of the data
    #[arg(long, value_name = "N")]
    products: u64,
    /// The original's figures: lines of products, query, executions and mean rows, with tabs between
    #[arg(long, value_name = "FILE")]
    expected: PathBuf,
    /// What `run explore --output` has written, a file for each dataset; two or more
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    results: Vec<PathBuf>,
}

/// Deviations that a mean may be off by.
const DEVIATIONS: f64 = 3.0;
/// The original's means have two digits behind the point.
const ROUNDING: f64 = 0.005;

/// What the original's runs gave for a query.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    query: String,
    executions: f64,
    mean: f64,
}

/// The rows of one query's answers on one dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rows {
    executions: f64,
    mean: f64,
    /// Between executions.
    variance: f64,
}

/// A query of all datasets beside the original.
#[derive(Clone, Debug)]
struct Line {
    query: String,
    mean: f64,
    /// The deviation between the means of datasets, that of their samples of mixes included.
    spread: f64,
    /// How far the original's mean is expected from ours: a standard deviation.
    deviation: f64,
    original: f64,
}

impl Line {
    /// How many rows the original is away.
    fn off(&self) -> f64 {
        (self.mean - self.original).abs()
    }

    fn within(&self) -> bool {
        self.off() <= DEVIATIONS * self.deviation + ROUNDING
    }
}

/// Prints the comparison as a table; gives whether every query is within [`DEVIATIONS`].
///
/// # Errors
/// When a file cannot be read, or a query is missing or has failed in it.
#[expect(clippy::print_stdout, reason = "the table is the output")]
pub(crate) fn explore_rows(arguments: &Arguments) -> anyhow::Result<bool> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let expected = expected(&read(&arguments.expected)?, arguments.products)?;
    let texts: Vec<String> = arguments
        .results
        .iter()
        .map(|path| read(path))
        .collect::<anyhow::Result<_>>()?;
    let mut lines = Vec::new();
    for query in expected {
        let datasets: Vec<Rows> = arguments
            .results
            .iter()
            .zip(&texts)
            .map(|(path, text)| {
                rows(text, &query.query).with_context(|| format!("in {}", path.display()))
            })
            .collect::<anyhow::Result<_>>()?;
        lines.push(compared(&query, &datasets));
    }
    print!("{}", table(&lines));
    Ok(lines.iter().all(Line::within))
}

/// The original's figures for data of this size.
fn expected(text: &str, products: u64) -> anyhow::Result<Vec<Expected>> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [size, query, executions, mean] = cells[..] else {
            bail!("no line of four cells: {line}");
        };
        if size.parse() == Ok(products) {
            found.push(Expected {
                query: query.to_owned(),
                executions: executions.parse().with_context(|| line.to_owned())?,
                mean: mean.parse().with_context(|| line.to_owned())?,
            });
        }
    }
    if found.is_empty() {
        bail!("there are no figures of the original for {products} products");
    }
    Ok(found)
}

/// The rows of a query, of the lines that a run has written.
fn rows(text: &str, query: &str) -> anyhow::Result<Rows> {
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| format!("line {line}"))?;
        if value.get("kind").and_then(Value::as_str) != Some("query")
            || value.get("query").and_then(Value::as_str) != Some(query)
        {
            continue;
        }
        let figure = |name: &str| {
            let number = value.get(name).and_then(Value::as_f64);
            number.with_context(|| format!("query {query} has no {name}"))
        };
        if figure("errors")? + figure("time_outs")? + figure("wrong")? > 0.0 {
            bail!("query {query} has executions without a right answer");
        }
        let executions = figure("count")?;
        return Ok(Rows {
            executions,
            mean: figure("rows_mean")?,
            variance: figure("rows_standard_error")?.powi(2) * executions,
        });
    }
    bail!("query {query} is missing")
}

fn compared(expected: &Expected, datasets: &[Rows]) -> Line {
    let mean = mean(datasets.iter().map(|it| it.mean));
    let count = datasets.iter().map(|_| 1.0).sum::<f64>();
    let squares: f64 = datasets.iter().map(|it| (it.mean - mean).powi(2)).sum();
    let between = squares / (count - 1.0).max(1.0);
    // What the means of datasets differ by because only some mixes were run on each.
    let sampling = self::mean(datasets.iter().map(|it| it.variance / it.executions));
    let variance = self::mean(datasets.iter().map(|it| it.variance));
    // Our mean, then the original's dataset, then its mixes.
    let deviation = (between.max(sampling) / count
        + (between - sampling).max(0.0)
        + variance / expected.executions)
        .sqrt();
    Line {
        query: expected.query.clone(),
        mean,
        spread: between.sqrt(),
        deviation,
        original: expected.mean,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

fn table(lines: &[Line]) -> String {
    let mut out =
        "| query | mean rows | between datasets | expected deviation | original | off by | |\n\
                   |---|---:|---:|---:|---:|---:|---|\n"
            .to_owned();
    for line in lines {
        let deviations = if line.deviation > 0.0 {
            format!("{:.1} of it", line.off() / line.deviation)
        } else {
            format!("{:.2} rows", line.off())
        };
        let verdict = if line.within() { "within" } else { "OFF" };
        // Writing to a string cannot fail.
        writeln!(
            out,
            "| Q{} | {:.2} | {:.2} | {:.2} | {:.2} | {deviations} | {verdict} |",
            line.query, line.mean, line.spread, line.deviation, line.original,
        )
        .unwrap_or_default();
    }
    out
}
