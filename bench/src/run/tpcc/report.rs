//! A run of transactions as a table for people and as lines of JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{CONDITIONS, Violation};
use super::inputs::Kind;
use super::record::Survival;
use super::{Arguments, Mode, Outcome, Sample, Work};
use crate::run::endpoint::Measured;
use crate::run::report::query_line;
use crate::run::statistics::Summary;

/// A run with its figures.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) work: Work,
    pub(super) survival: Survival,
    pub(super) violations: Vec<Violation>,
    /// When transactions count.
    pub(super) counts: Range<Duration>,
}

/// Violations that are written out.
const VIOLATIONS_TOLD: usize = 20;

/// The figures of one of the five.
struct Line {
    summary: Summary,
    repeats: u64,
    rolled_back: u64,
}

impl Report<'_> {
    /// Whether every transaction was done, no order is lost, and the conditions hold.
    pub(super) fn whole(&self) -> bool {
        let survival = &self.survival;
        let mut samples = self.work.samples.iter();
        samples.all(|sample| sample.result.is_ok())
            && survival.lost.is_empty()
            && survival.unexpected.is_empty()
            && self.violations.is_empty()
    }

    fn counted(&self) -> impl Iterator<Item = &Sample> {
        let samples = self.work.samples.iter();
        samples.filter(|sample| self.counts.contains(&sample.end))
    }

    fn lines(&self) -> Vec<Line> {
        let lines = Kind::ALL.iter().map(|(kind, name, _)| {
            let mut line = Line {
                summary: Summary::new(name),
                repeats: 0,
                rolled_back: 0,
            };
            for sample in self.counted().filter(|sample| sample.kind == *kind) {
                let measured = Measured {
                    time: sample.time,
                    failure: sample.result.clone().err(),
                    ..Measured::default()
                };
                line.summary.add(&measured, None);
                line.repeats += sample.repeats;
                line.rolled_back += u64::from(sample.result == Ok(Outcome::RolledBack));
            }
            line.summary.finish();
            line
        });
        lines.collect()
    }

    /// How long transactions count.
    fn time(&self) -> Duration {
        let end = self.counts.end.min(self.work.wall);
        end.saturating_sub(self.counts.start)
    }

    /// New orders that were done while they counted and are there in the end, a minute.
    #[expect(clippy::cast_precision_loss, reason = "a count of orders")]
    fn new_orders_a_minute(&self) -> f64 {
        let seconds = self.time().as_secs_f64();
        if seconds > 0.0 {
            self.survival.counted as f64 * 60.0 / seconds
        } else {
            0.0
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of transactions")]
    fn server_ms_a_transaction(&self) -> Option<f64> {
        let time = self.work.server_time?.as_secs_f64();
        let count = self.counted().count().max(1);
        Some(time * 1e3 / count as f64)
    }

    /// For each of the five the first that failed, then the first of all that is lost or wrong.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut failed: BTreeMap<Kind, (u64, String)> = BTreeMap::new();
        for sample in &self.work.samples {
            if let Err(failure) = &sample.result {
                let first = || (0, format!("{failure:?}"));
                failed.entry(sample.kind).or_insert_with(first).0 += 1;
            }
        }
        let mut lines = Vec::new();
        for (kind, name, _) in Kind::ALL {
            if let Some((count, first)) = failed.get(&kind) {
                lines.push(format!("{name}: {count} failed, the first: {first}"));
            }
        }
        let survival = &self.survival;
        for (what, marks) in [
            ("acknowledged orders are lost", &survival.lost),
            (
                "orders are there that were not acknowledged, or are there twice",
                &survival.unexpected,
            ),
        ] {
            if let Some(first) = marks.first() {
                lines.push(format!("{} {what}, such as {first}", marks.len()));
            }
        }
        for number in 1..=CONDITIONS.len() {
            let mut violations = self.violations.iter().filter(|(of, _)| *of == number);
            if let Some((_, first)) = violations.next() {
                let count = 1 + violations.count();
                lines.push(format!(
                    "condition {number} is violated {count} times, such as: {first}"
                ));
            }
        }
        lines
    }

    /// The table: a line for each of the five, then the figures of the whole.
    pub(super) fn table(&self) -> String {
        let mut out = format!(
            "{:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>11} {:>6}\n",
            "transaction",
            "count",
            "mean ms",
            "p50",
            "p95",
            "p99",
            "repeats",
            "rolled back",
            "failed",
        );
        for line in self.lines() {
            let summary = &line.summary;
            let ms = |seconds: Option<f64>| {
                seconds.map_or_else(|| "-".to_owned(), |it| format!("{:.2}", it * 1e3))
            };
            // Writing to a string cannot fail.
            writeln!(
                out,
                "{:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>11} {:>6}",
                summary.name,
                summary.count(),
                ms(summary.mean()),
                ms(summary.quantile(0.5)),
                ms(summary.quantile(0.95)),
                ms(summary.quantile(0.99)),
                line.repeats,
                line.rolled_back,
                summary.failures(),
            )
            .unwrap_or_default();
        }
        out.push('\n');
        for (name, value) in self.figures() {
            writeln!(out, "{name:<28} {value}").unwrap_or_default();
        }
        out
    }

    fn figures(&self) -> Vec<(String, String)> {
        let survival = &self.survival;
        let when = if self.arguments.restart.is_some() {
            "there after the restart"
        } else {
            "there in the end, without a restart"
        };
        let (there, missing) = survival.unanswered;
        let mut figures = vec![
            (
                "transactions count for",
                format!("{:.1} s", self.time().as_secs_f64()),
            ),
            (
                "new orders a minute",
                format!("{:.0}, {when}", self.new_orders_a_minute()),
            ),
            ("new orders acknowledged", survival.done.to_string()),
            ("of these lost", survival.lost.len().to_string()),
            ("there unexpectedly", survival.unexpected.len().to_string()),
            (
                "without an answer",
                format!("{there} there, {missing} not there"),
            ),
        ];
        if let Some(each) = self.server_ms_a_transaction() {
            figures.push(("server CPU a transaction", format!("{each:.2} ms")));
        }
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        if let Some((now, peak)) = self.work.server_memory {
            let (now, peak) = (now as f64 / 1e6, peak as f64 / 1e6);
            figures.push((
                "server memory",
                format!("{now:.0} MB now, {peak:.0} MB peak"),
            ));
        }
        let mut figures: Vec<(String, String)> = figures
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        for (number, condition) in (1..).zip(CONDITIONS) {
            let violations = self.violations.iter().filter(|(of, _)| *of == number);
            let verdict = match violations.count() {
                0 => format!("holds: {condition}"),
                count => format!("VIOLATED {count} times: {condition}"),
            };
            figures.push((format!("condition {number}"), verdict));
        }
        figures
    }

    /// One object for the run, one for each of the five.
    pub(super) fn json_lines(&self) -> Vec<Value> {
        let arguments = self.arguments;
        let survival = &self.survival;
        let violations = self.violations.iter().take(VIOLATIONS_TOLD);
        let violations: Vec<String> = violations
            .map(|(condition, how)| format!("{condition}: {how}"))
            .collect();
        let mut lines = vec![json!({
            "kind": "run",
            "workload": "tpcc-rdf",
            "url": arguments.url,
            "transactions": match arguments.transactions {
                Mode::Update => "update",
                Mode::Interactive => "interactive",
            },
            "warehouses": arguments.scale.warehouses,
            "items": arguments.scale.items,
            "customers": arguments.scale.customers,
            "clients": arguments.clients,
            "time_s": self.time().as_secs_f64(),
            "new_orders_a_minute": self.new_orders_a_minute(),
            "restarted": arguments.restart.is_some(),
            "new_orders_acknowledged": survival.done,
            "new_orders_lost": survival.lost.len(),
            "new_orders_unexpected": survival.unexpected.len(),
            "new_orders_unanswered_there": survival.unanswered.0,
            "new_orders_unanswered_not_there": survival.unanswered.1,
            "violations": self.violations.len(),
            "first_violations": violations,
            "server_cpu_s": self.work.server_time.map(|it| it.as_secs_f64()),
            "server_cpu_ms_a_transaction": self.server_ms_a_transaction(),
            "server_resident_bytes": self.work.server_memory.map(|it| it.0),
            "server_peak_bytes": self.work.server_memory.map(|it| it.1),
        })];
        lines.extend(self.lines().into_iter().map(|line| {
            let mut value = query_line(&line.summary);
            if let Value::Object(fields) = &mut value {
                fields.insert("repeats".to_owned(), line.repeats.into());
                fields.insert("rolled_back".to_owned(), line.rolled_back.into());
            }
            value
        }));
        lines
    }
}
