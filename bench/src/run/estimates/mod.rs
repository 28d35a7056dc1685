//! `stoa-bench estimates`: how far the planner's estimates are from what operators give, over all queries on BSBM.
//!
//! Each query is asked for with EXPLAIN ANALYZE. The q-error of an operator is how many times the larger of estimate and
//! rows is the smaller, both at least 1; [`analysis`] tells which operators have one.

mod analysis;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::drawn::Draw;
use super::endpoint::{Connection, Failure, Measured, agent, transfer};
use super::report::parse_duration;
use super::statistics::quantile;
use super::{append_lines, progress_bar};
use analysis::{LeftOut, is_root_of_joins, left_out, parse};

/// What the project wants: the median below the first, the 95th of a hundred below the second.
const MEDIAN_MAX: f64 = 2.0;
const P95_MAX: f64 = 20.0;

/// What `stoa-bench estimates` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Stoa's endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    draw: Draw,
    /// How long a query may take until its last byte
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// Append the figures as lines of JSON: of the run, of each query, and of each operator
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
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
#[derive(Debug, Default)]
struct Outcome {
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

/// Asks for all estimates; gives whether every query was answered and the targets are met.
///
/// # Errors
/// When queries cannot be drawn or made, or the output cannot be written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn estimates(arguments: &Arguments) -> anyhow::Result<bool> {
    let templates = arguments.draw.templates(&arguments.url)?;
    let asker = Asker {
        agent: agent(Connection::Keep, Some(arguments.timeout)),
        url: arguments.url.clone(),
    };
    let count: usize = templates.iter().map(|it| it.queries.len()).sum();
    let bar = progress_bar("queries", count as u64);
    let mut outcomes = Vec::new();
    for template in &templates {
        let mut outcome = Outcome::new(&template.name);
        for query in &template.queries {
            outcome.add(asker.analyze(query));
            bar.inc(1);
        }
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
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
    fn new(name: &str) -> Self {
        Self {
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

    fn to_json(&self) -> Value {
        json!({
            "operators": self.count,
            "median": self.median,
            "p90": self.p90,
            "p95": self.p95,
            "max": self.max,
        })
    }
}

/// Figures of the operators of all queries that `wanted` chooses.
fn summary(outcomes: &[Outcome], wanted: impl Fn(&Estimate) -> bool) -> Summary {
    let estimates = outcomes.iter().flat_map(|it| &it.estimates);
    Summary::new(estimates.filter(|it| wanted(it)).map(|it| it.q))
}

/// The name of the operator, as it begins its text.
fn name(estimate: &Estimate) -> &str {
    estimate.text.split(' ').next().unwrap_or("")
}

/// All operators, roots of joins, and each kind of operator.
fn summaries(outcomes: &[Outcome]) -> Vec<(String, Summary)> {
    let estimates = outcomes.iter().flat_map(|it| &it.estimates);
    let mut names: Vec<&str> = estimates.map(name).collect();
    names.sort_unstable();
    names.dedup();
    let mut summaries = vec![
        ("all operators".to_owned(), summary(outcomes, |_| true)),
        (
            "roots of joins".to_owned(),
            summary(outcomes, |it| it.is_root_of_joins),
        ),
    ];
    let each = names.into_iter();
    summaries.extend(each.map(|kind| (kind.to_owned(), summary(outcomes, |it| name(it) == kind))));
    summaries
}

/// A figure to three digits.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "{:<34} {:>7} {:>9} {:>8} {:>7} {:>7} {:>7}  {}\n",
        "query", "queries", "operators", "left out", "median", "p95", "max", "worst"
    );
    for outcome in outcomes {
        let summary = Summary::new(outcome.estimates.iter().map(|it| it.q));
        let worst = outcome.worst().map_or_else(String::new, |worst| {
            let text: String = worst.text.chars().take(100).collect();
            let (estimated, rows) = (worst.estimated, worst.rows);
            format!("{estimated:.1} estimated, {rows} rows: {text}")
        });
        let failed = match outcome.failures.len() {
            0 => String::new(),
            failures => format!("{failures} failed; "),
        };
        // Writing to a string cannot fail.
        writeln!(
            out,
            "{:<34} {:>7} {:>9} {:>8} {:>7} {:>7} {:>7}  {failed}{worst}",
            outcome.name,
            outcome.queries,
            summary.count,
            outcome.left_out.values().sum::<usize>(),
            figure(summary.median),
            figure(summary.p95),
            figure(summary.max),
        )
        .unwrap_or_default();
    }
    out.push_str(&totals(outcomes));
    out
}

/// What stands below the table: figures of all queries, what was left out, and whether the targets are met.
fn totals(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "\n{:<34} {:>9} {:>7} {:>7} {:>7} {:>7}\n",
        "", "operators", "median", "p90", "p95", "max"
    );
    for (name, it) in summaries(outcomes) {
        let (median, p90) = (figure(it.median), figure(it.p90));
        let (p95, max) = (figure(it.p95), figure(it.max));
        writeln!(
            out,
            "{name:<34} {:>9} {median:>7} {p90:>7} {p95:>7} {max:>7}",
            it.count
        )
        .unwrap_or_default();
    }
    let left_out = LeftOut::ALL.iter().map(|why| {
        let of_each = outcomes.iter().filter_map(|it| it.left_out.get(why));
        format!("{} {why}", of_each.sum::<usize>())
    });
    let left_out = left_out.collect::<Vec<_>>().join(", ");
    writeln!(out, "\nleft out: {left_out}").unwrap_or_default();
    let all = summary(outcomes, |_| true);
    let met = |value: Option<f64>, below: f64| match value {
        Some(value) if value < below => "met",
        _ => "missed",
    };
    writeln!(
        out,
        "targets over all operators: median below {MEDIAN_MAX} {}, p95 below {P95_MAX} {}",
        met(all.median, MEDIAN_MAX),
        met(all.p95, P95_MAX),
    )
    .unwrap_or_default();
    out
}

/// One object for the run, one for each query, and one for each operator that counts.
fn json_lines(arguments: &Arguments, outcomes: &[Outcome]) -> Vec<Value> {
    let kinds = summaries(outcomes).into_iter();
    let kinds: serde_json::Map<String, Value> =
        kinds.map(|(name, it)| (name, it.to_json())).collect();
    let mut lines = vec![json!({
        "kind": "run",
        "workload": "estimates",
        "url": arguments.url,
        "products": arguments.draw.products,
        "seed": arguments.draw.seed,
        "draws": arguments.draw.draws,
        "summaries": kinds,
        "met": summary(outcomes, |_| true).meets_targets(),
    })];
    for outcome in outcomes {
        let summary = Summary::new(outcome.estimates.iter().map(|it| it.q));
        let left_out = outcome.left_out.iter();
        let left_out: serde_json::Map<String, Value> = left_out
            .map(|(why, count)| (why.to_string(), json!(count)))
            .collect();
        lines.push(json!({
            "kind": "query",
            "name": outcome.name,
            "queries": outcome.queries,
            "summary": summary.to_json(),
            "left_out": left_out,
            "failures": outcome.failures,
            "worst": outcome.worst().map(Estimate::to_json),
        }));
        lines.extend(outcome.estimates.iter().map(|estimate| {
            let mut line = estimate.to_json();
            if let Value::Object(members) = &mut line {
                members.insert("kind".to_owned(), json!("operator"));
                members.insert("name".to_owned(), json!(outcome.name));
            }
            line
        }));
    }
    lines
}

impl Estimate {
    fn to_json(&self) -> Value {
        json!({
            "operator": self.text,
            "draw": self.draw,
            "estimated_rows": self.estimated,
            "rows": self.rows,
            "q": self.q,
            "root_of_joins": self.is_root_of_joins,
        })
    }
}
