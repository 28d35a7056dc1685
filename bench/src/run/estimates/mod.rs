//! `stoa-bench estimates`: how far the planner's estimates are from what operators give, over all queries of the benchmarks.
//!
//! Each query is asked for with EXPLAIN ANALYZE, which updates do not have: the pattern of an update is asked for as the query
//! that the server runs for it ([`wheres`]), and nothing is changed. A run is about one dataset; results of several are told
//! together. The q-error of an operator is how many times the larger of estimate and
//! rows is the smaller, both at least 1; [`analysis`] tells which operators have one.

mod analysis;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::drawn::{Draw, Template, without_repeats};
use super::endpoint::{Connection, Failure, Measured, agent, transfer};
use super::report::parse_duration;
use super::statistics::quantile;
use super::updates::wheres;
use super::{append_lines, progress_bar, tpcc};
use crate::tpcc::Scale;
use analysis::{LeftOut, is_root_of_joins, left_out, parse};
use report::{json_lines, outcomes_in, table};

/// What the project wants: the median below the first, the 95th of a hundred below the second.
const MEDIAN_MAX: f64 = 2.0;
const P95_MAX: f64 = 20.0;

/// What `stoa-bench estimates` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Stoa's endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL", required_unless_present = "results")]
    url: Option<String>,
    #[command(flatten)]
    draw: Draw,
    /// Warehouses, if the data are tpcc's: the queries of its transactions and the patterns of its updates
    #[arg(long, value_name = "N", group = "data", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    warehouses: Option<u64>,
    /// Items that the warehouses were generated with
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(20..=100_000))]
    items: u64,
    /// Customers of each district that the warehouses were generated with
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(10..=3_000))]
    customers: u64,
    /// How long a query may take until its last byte
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// Append the figures as lines of JSON: of the run, of each query, and of each operator
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Ask nothing, but tell what earlier runs have written by --output, as if they were one
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["url", "data", "output"])]
    results: Vec<PathBuf>,
}

/// An operator that was run to its end.
#[derive(Clone, Debug, PartialEq)]
struct Estimate {
    text: String,
    /// Which of the template's queries it is of.
    draw: usize,
    estimated: f64,
    rows: f64,
    q: f64,
    is_root_of_joins: bool,
}

/// What became of a template's queries.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// The benchmark that they are of.
    set: String,
    name: String,
    queries: usize,
    estimates: Vec<Estimate>,
    left_out: BTreeMap<LeftOut, usize>,
    /// What went wrong, for each query that has no answer.
    failures: Vec<String>,
}

/// Figures of some operators' q-errors.
#[derive(Clone, Debug, Default, PartialEq)]
struct Summary {
    count: usize,
    median: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    max: Option<f64>,
}

/// Tells all estimates, which it asks for or reads; gives whether every query was answered and the targets are met.
///
/// # Errors
/// When queries cannot be drawn or made, results cannot be read, or the output cannot be written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn estimates(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut outcomes = Vec::new();
    match &arguments.url {
        Some(url) => outcomes = arguments.asked(url)?,
        None => {
            for path in &arguments.results {
                outcomes.extend(outcomes_in(path)?);
            }
        }
    }
    for outcome in &outcomes {
        if let Some(failure) = outcome.failures.first() {
            let (name, failures) = (&outcome.name, outcome.failures.len());
            eprintln!("query {name}: {failures} failed, the first: {failure}");
        }
    }
    print!("{}", table(&outcomes));
    if let Some(path) = &arguments.output {
        append_lines(path, json_lines(arguments, &outcomes).into_iter())?;
    }
    let answered = outcomes.iter().all(|it| it.failures.is_empty());
    Ok(answered && summary(&outcomes, |_| true).meets_targets())
}

impl Arguments {
    /// All queries on the data, those of updates' patterns among them.
    fn templates(&self, url: &str) -> anyhow::Result<Vec<Template>> {
        let draw = &self.draw;
        if let Some(warehouses) = self.warehouses {
            let scale = Scale {
                warehouses,
                items: self.items,
                customers: self.customers,
            };
            return tpcc::queries(url, scale, (draw.seed, draw.draws), self.timeout);
        }
        let mut templates = draw
            .templates(url)
            .context("of what data the endpoint is, --warehouses N may say as well")?;
        for mut template in draw.updates()? {
            let queries: anyhow::Result<Vec<_>> =
                template.queries.iter().map(|text| wheres(text)).collect();
            template.queries = queries?.concat();
            without_repeats(&mut template.queries);
            templates.push(template);
        }
        Ok(templates)
    }

    /// Asks for the estimates of all queries.
    fn asked(&self, url: &str) -> anyhow::Result<Vec<Outcome>> {
        let templates = self.templates(url)?;
        let asker = Asker {
            agent: agent(Connection::Keep, Some(self.timeout)),
            url: url.to_owned(),
        };
        let count: usize = templates.iter().map(|it| it.queries.len()).sum();
        let bar = progress_bar("queries", count as u64);
        let mut outcomes = Vec::new();
        for template in &templates {
            let mut outcome = Outcome::new(&template.set, &template.name);
            for query in &template.queries {
                outcome.add(asker.analyze(query));
                bar.inc(1);
            }
            outcomes.push(outcome);
        }
        bar.finish_and_clear();
        Ok(outcomes)
    }
}

struct Asker {
    agent: ureq::Agent,
    url: String,
}

impl Asker {
    /// What EXPLAIN ANALYZE says of a query.
    fn analyze(&self, query: &str) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        let request = self.agent.post(&self.url);
        let answer = request.header("Accept", "application/json").send_form([
            ("query", query),
            ("explain", "analyze"),
            ("plan", "fresh"),
        ]);
        let is_answer = |status: &ureq::http::StatusCode| *status == ureq::http::StatusCode::OK;
        transfer(answer, is_answer, Some(&mut body), &mut Measured::default())?;
        Ok(body)
    }
}

impl Outcome {
    fn new(set: &str, name: &str) -> Self {
        Self {
            set: set.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Adds what one query came to.
    fn add(&mut self, answer: Result<Vec<u8>, Failure>) {
        let draw = self.queries;
        self.queries += 1;
        let operators = match answer {
            Ok(body) => parse(&body).map_err(|error| format!("{error:#}")),
            Err(Failure::TimeOut) => Err("time-out".to_owned()),
            Err(Failure::Error(message)) => Err(message),
        };
        let operators = match operators {
            Ok(operators) => operators,
            Err(message) => return self.failures.push(message),
        };
        for (operator, why) in operators.iter().zip(left_out(&operators)) {
            match why {
                Some(why) => *self.left_out.entry(why).or_default() += 1,
                None => self.estimates.push(Estimate {
                    text: operator.text.clone(),
                    draw,
                    estimated: operator.estimated,
                    rows: operator.rows,
                    q: operator.q_error(),
                    is_root_of_joins: is_root_of_joins(&operators, operator),
                }),
            }
        }
    }

    /// The operator whose estimate is the farthest off; the lowest one where several are, since others inherit from it.
    fn worst(&self) -> Option<&Estimate> {
        let estimates = self.estimates.iter();
        estimates.max_by(|left, right| left.q.total_cmp(&right.q))
    }
}

impl Summary {
    fn new(errors: impl Iterator<Item = f64>) -> Self {
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        Self {
            count: errors.len(),
            median: quantile(&errors, 0.5),
            p90: quantile(&errors, 0.9),
            p95: quantile(&errors, 0.95),
            max: errors.last().copied(),
        }
    }

    fn meets_targets(&self) -> bool {
        self.median.is_some_and(|it| it < MEDIAN_MAX) && self.p95.is_some_and(|it| it < P95_MAX)
    }
}

/// Figures of the operators of all queries that `wanted` chooses.
fn summary(outcomes: &[Outcome], wanted: impl Fn(&Estimate) -> bool) -> Summary {
    let estimates = outcomes.iter().flat_map(|it| &it.estimates);
    Summary::new(estimates.filter(|it| wanted(it)).map(|it| it.q))
}
