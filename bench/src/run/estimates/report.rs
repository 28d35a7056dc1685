//! The figures of estimates as a table for people and as lines of JSON for programs, which can be read again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::analysis::LeftOut;
use super::{Arguments, Estimate, MEDIAN_MAX, Outcome, P95_MAX, Summary, summary};

impl Summary {
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

/// The name of the operator, as it begins its text.
fn name(estimate: &Estimate) -> &str {
    estimate.text.split(' ').next().unwrap_or("")
}

/// All operators, roots of joins, each set where there are several, and each kind of operator.
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
    let mut sets: Vec<&str> = outcomes.iter().map(|it| it.set.as_str()).collect();
    sets.sort_unstable();
    sets.dedup();
    if sets.len() > 1 {
        summaries.extend(sets.into_iter().map(|set| {
            let of_set = outcomes.iter().filter(|it| it.set == set);
            let errors = of_set.flat_map(|it| &it.estimates).map(|it| it.q);
            (format!("set {set}"), Summary::new(errors))
        }));
    }
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

pub(super) fn table(outcomes: &[Outcome]) -> String {
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
pub(super) fn json_lines(arguments: &Arguments, outcomes: &[Outcome]) -> Vec<Value> {
    let kinds = summaries(outcomes).into_iter();
    let kinds: serde_json::Map<String, Value> =
        kinds.map(|(name, it)| (name, it.to_json())).collect();
    let mut lines = vec![json!({
        "kind": "run",
        "workload": "estimates",
        "url": arguments.url,
        "products": arguments.draw.products,
        "edges": arguments.draw.edges,
        "people": arguments.draw.people,
        "warehouses": arguments.warehouses,
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
            "set": outcome.set,
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
                members.insert("set".to_owned(), json!(outcome.set));
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

    fn from_json(line: &Value) -> Option<Self> {
        Some(Self {
            text: line.get("operator")?.as_str()?.to_owned(),
            draw: usize::try_from(line.get("draw")?.as_u64()?).ok()?,
            estimated: line.get("estimated_rows")?.as_f64()?,
            rows: line.get("rows")?.as_f64()?,
            q: line.get("q")?.as_f64()?,
            is_root_of_joins: line.get("root_of_joins")?.as_bool()?,
        })
    }
}

/// Reads what [`json_lines`] has written.
///
/// # Errors
/// When the file cannot be read, or has other lines.
pub(super) fn outcomes_in(path: &Path) -> anyhow::Result<Vec<Outcome>> {
    let named = || format!("reading {}", path.display());
    let text = fs::read_to_string(path).with_context(named)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut read = || {
            let line: Value = serde_json::from_str(line).ok()?;
            match line.get("kind")?.as_str()? {
                "run" if line.get("workload")?.as_str()? == "estimates" => (),
                "query" => outcomes.push(outcome(&line)?),
                // It stands behind its query.
                "operator" => {
                    let estimate = Estimate::from_json(&line)?;
                    outcomes.last_mut()?.estimates.push(estimate);
                }
                _ => return None,
            }
            Some(())
        };
        let what = "is not what `stoa-bench estimates --output` writes";
        read().with_context(|| format!("{}, line {number}: {what}", path.display()))?;
    }
    Ok(outcomes)
}

/// What a line about a query says, without its operators.
fn outcome(line: &Value) -> Option<Outcome> {
    let text = |key: &str| line.get(key)?.as_str().map(str::to_owned);
    let mut left_out = BTreeMap::new();
    for (name, count) in line.get("left_out")?.as_object()? {
        let why = LeftOut::ALL.into_iter().find(|it| it.to_string() == *name);
        left_out.insert(why?, usize::try_from(count.as_u64()?).ok()?);
    }
    let failures = line.get("failures")?.as_array()?.iter();
    Some(Outcome {
        set: text("set")?,
        name: text("name")?,
        queries: usize::try_from(line.get("queries")?.as_u64()?).ok()?,
        estimates: Vec::new(),
        left_out,
        failures: failures
            .map(|it| it.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
    })
}
