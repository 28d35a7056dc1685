//! A run as a table for people and as lines of JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::clients::{Plan, Run};
use super::statistics::{Scores, Summary};
use super::workload::Workload;

/// A run with its figures.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) plan: &'a Plan,
    pub(crate) run: &'a Run,
    pub(crate) summaries: Vec<Summary>,
    pub(crate) scores: Scores,
}

impl Report<'_> {
    /// The table: a line for each template that was run, then the scores.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "{:>5} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>7} {:>6}\n",
            "query",
            "count",
            "mean ms",
            "geo ms",
            "p50",
            "p95",
            "p99",
            "rows",
            "KB each",
            "timeout",
            "failed",
        );
        for summary in self.used() {
            let ms = |seconds: Option<f64>| {
                seconds.map_or_else(|| "-".to_owned(), |it| format!("{:.2}", it * 1e3))
            };
            let rows = summary.rows().map_or(0.0, |(mean, _)| mean);
            #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
            let each = summary.bytes as f64 / 1e3 / summary.count().max(1) as f64;
            // Writing to a string cannot fail.
            writeln!(
                out,
                "{:>5} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10.2} {:>8.1} {:>7} {:>6}",
                summary.name,
                summary.count(),
                ms(summary.mean()),
                ms(summary.geometric()),
                ms(summary.quantile(0.5)),
                ms(summary.quantile(0.95)),
                ms(summary.quantile(0.99)),
                rows,
                each,
                summary.time_outs,
                summary.errors + summary.wrong,
            )
            .unwrap_or_default();
        }
        out.push('\n');
        for (name, value) in self.figures() {
            writeln!(out, "{name:<28} {value}").unwrap_or_default();
        }
        out
    }

    fn used(&self) -> impl Iterator<Item = &Summary> {
        let summaries = self.summaries.iter();
        summaries.filter(|summary| summary.count() + summary.failures() > 0)
    }

    fn figures(&self) -> Vec<(&'static str, String)> {
        let seconds = self.run.wall.as_secs_f64();
        let mut figures = vec![
            ("wall", format!("{seconds:.2} s")),
            (
                "query mixes an hour",
                format!("{:.0}", self.scores.mixes_an_hour),
            ),
            (
                "power (BIBM)",
                self.scores.power.map_or_else(
                    || "none: a query has no answer".to_owned(),
                    |it| format!("{it:.1}"),
                ),
            ),
            (
                "throughput (BIBM)",
                format!("{:.1}", self.scores.throughput),
            ),
        ];
        if let Some(each) = self.server_ms_a_mix() {
            figures.push(("server CPU a mix", format!("{each:.2} ms")));
        }
        if let Some(each) = self.ms_a_mix(self.run.update_time) {
            figures.push(("of it for its updates", format!("{each:.2} ms")));
        }
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        if let Some((now, peak)) = self.run.server_memory {
            let text = format!(
                "{:.0} MB now, {:.0} MB peak",
                now as f64 / 1e6,
                peak as f64 / 1e6
            );
            figures.push(("server memory", text));
        }
        figures
    }

    fn server_ms_a_mix(&self) -> Option<f64> {
        self.ms_a_mix(self.run.server_time)
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of mixes")]
    fn ms_a_mix(&self, time: Option<Duration>) -> Option<f64> {
        Some(time?.as_secs_f64() * 1e3 / self.plan.mixes.max(1) as f64)
    }

    /// One object for the run, one for each template, one for each failed execution.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let plan = self.plan;
        let mut lines = vec![json!({
            "kind": "run",
            "workload": self.workload.label(),
            "url": plan.url,
            "clients": plan.clients,
            "warm_up": plan.warm_up,
            "mixes": plan.mixes,
            "connection": format!("{:?}", plan.connection).to_lowercase(),
            "timeout_s": plan.timeout.map(|it| it.as_secs_f64()),
            "wall_s": self.run.wall.as_secs_f64(),
            "mixes_an_hour": self.scores.mixes_an_hour,
            "power": self.scores.power,
            "throughput": self.scores.throughput,
            "server_cpu_s": self.run.server_time.map(|it| it.as_secs_f64()),
            "server_cpu_ms_a_mix": self.server_ms_a_mix(),
            "update_cpu_ms_a_mix": self.ms_a_mix(self.run.update_time),
            "server_resident_bytes": self.run.server_memory.map(|it| it.0),
            "server_peak_bytes": self.run.server_memory.map(|it| it.1),
        })];
        lines.extend(self.used().map(query_line));
        lines
    }

    /// One object for each execution.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Value> {
        self.run.samples.iter().map(|sample| {
            let server = sample.measured.server;
            let template = self.workload.templates.get(sample.template);
            json!({
                "kind": "sample",
                "query": template.map(|template| template.name.as_str()),
                "mix": sample.mix,
                "place": sample.place,
                "start_s": sample.start.as_secs_f64(),
                "at_us": micros(self.run.began + sample.start),
                "ms": sample.measured.time.as_secs_f64() * 1e3,
                "server_ms": server.map(|it| it.as_secs_f64() * 1e3),
                "rows": sample.measured.rows,
                "bytes": sample.measured.bytes,
                "failure": sample.measured.failure.as_ref().map(|it| format!("{it:?}")),
            })
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The object of a template.
pub(super) fn query_line(summary: &Summary) -> Value {
    let ms = |seconds: Option<f64>| seconds.map(|it| it * 1e3);
    json!({
        "kind": "query",
        "query": summary.name,
        "count": summary.count(),
        "mean_ms": ms(summary.mean()),
        "geometric_ms": ms(summary.geometric()),
        "min_ms": ms(summary.quantile(0.0)),
        "p25_ms": ms(summary.quantile(0.25)),
        "p50_ms": ms(summary.quantile(0.5)),
        "p75_ms": ms(summary.quantile(0.75)),
        "p95_ms": ms(summary.quantile(0.95)),
        "p99_ms": ms(summary.quantile(0.99)),
        "max_ms": ms(summary.quantile(1.0)),
        "server_p50_ms": ms(summary.server_quantile(0.5)),
        "server_p99_ms": ms(summary.server_quantile(0.99)),
        "rows_mean": summary.rows().map(|it| it.0),
        "rows_standard_error": summary.rows().map(|it| it.1),
        "rows_min": summary.row_range().map(|it| it.0),
        "rows_max": summary.row_range().map(|it| it.1),
        "bytes": summary.bytes,
        "time_outs": summary.time_outs,
        "errors": summary.errors,
        "wrong": summary.wrong,
        "right": summary.right,
        "not_verified": summary.unknown,
    })
}

/// Seconds of a text such as `60s`, `500ms` or `2m`.
///
/// # Errors
/// A text that is none of these, as a message.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text} is no time such as 60s, 500ms or 2m"))?;
    match text.get(digits.len()..) {
        Some("ms") => Ok(Duration::from_millis(number)),
        Some("s" | "") => Ok(Duration::from_secs(number)),
        Some("m") => Ok(Duration::from_secs(number * 60)),
        _ => Err(format!("{text} is no time such as 60s, 500ms or 2m")),
    }
}
