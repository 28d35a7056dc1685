//! From single times to the figures of a run.

use std::time::Duration;

use super::check::Verdict;
use super::endpoint::{Failure, Measured};

/// Times and answers of one template.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) name: String,
    /// Seconds of executions with an answer, ascending.
    times: Vec<f64>,
    /// Seconds of those whose server says how long it took, ascending.
    server_times: Vec<f64>,
    /// Seconds of all executions, those without an answer included.
    pub(crate) spent: f64,
    rows: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) time_outs: u64,
    pub(crate) errors: u64,
    /// Executions whose answer proved wrong.
    pub(crate) wrong: u64,
    /// Executions whose answer proved right.
    pub(crate) right: u64,
    /// Executions whose answer could not be verified.
    pub(crate) unknown: u64,
}

impl Summary {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Adds an execution and the verdict about its answer, if it was verified; a wrong one has no time.
    pub(crate) fn add(&mut self, measured: &Measured, verdict: Option<&Verdict>) {
        self.spent += measured.time.as_secs_f64();
        match (&measured.failure, verdict) {
            (Some(Failure::TimeOut), _) => self.time_outs += 1,
            (Some(Failure::Error(_)), _) => self.errors += 1,
            (None, Some(Verdict::Wrong(_))) => self.wrong += 1,
            (None, verdict) => {
                match verdict {
                    Some(Verdict::Right) => self.right += 1,
                    Some(_) => self.unknown += 1,
                    None => {}
                }
                self.times.push(measured.time.as_secs_f64());
                let server = measured.server.map(|time| time.as_secs_f64());
                self.server_times.extend(server);
                self.rows.push(measured.rows);
                self.bytes += measured.bytes;
            }
        }
    }

    /// To be called when all is added, before any figure is asked for.
    pub(crate) fn finish(&mut self) {
        self.times.sort_by(f64::total_cmp);
        self.server_times.sort_by(f64::total_cmp);
    }

    /// Executions with an answer.
    pub(crate) fn count(&self) -> u64 {
        self.times.len() as u64
    }

    /// Executions without one.
    pub(crate) fn failures(&self) -> u64 {
        self.time_outs + self.errors + self.wrong
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        mean(self.times.iter().copied())
    }

    /// The geometric mean of the times.
    pub(crate) fn geometric(&self) -> Option<f64> {
        mean(self.times.iter().map(|time| time.ln())).map(f64::exp)
    }

    /// The smallest time that at least `share` of the executions do not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.times, share)
    }

    /// The same of the times that the server tells.
    pub(crate) fn server_quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.server_times, share)
    }

    /// Mean rows of an answer, and the standard error of that mean.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of rows are far below 2^53"
    )]
    pub(crate) fn rows(&self) -> Option<(f64, f64)> {
        let rows = || self.rows.iter().map(|&rows| rows as f64);
        let mean_rows = mean(rows())?;
        let variance = mean(rows().map(|rows| (rows - mean_rows).powi(2)))?;
        Some((mean_rows, (variance / self.rows.len() as f64).sqrt()))
    }

    /// The fewest and the most rows of an answer.
    pub(crate) fn row_range(&self) -> Option<(u64, u64)> {
        let least = self.rows.iter().min()?;
        Some((*least, *self.rows.iter().max()?))
    }
}

/// The scores of a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    /// Query mixes an hour: of the clients' own time with one client, of the clock's with several.
    pub(crate) mixes_an_hour: f64,
    /// BIBM: scale * 3600 / geometric mean over the templates of their geometric means; none if a
    /// template has no time.
    pub(crate) power: Option<f64>,
    /// BIBM: scale * 3600 * executions / time of the clock.
    pub(crate) throughput: f64,
}

/// BIBM's scale factor 1, products.
pub(crate) const SCALE_ONE: u64 = 284_826;

impl Scores {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(crate) fn new(
        summaries: &[Summary],
        mixes: u64,
        clients: u64,
        wall: Duration,
        products: u64,
    ) -> Self {
        let spent: f64 = summaries.iter().map(|summary| summary.spent).sum();
        let wall = wall.as_secs_f64();
        let scale = products as f64 / SCALE_ONE as f64;
        let executions: u64 = summaries.iter().map(Summary::count).sum();
        let used = summaries
            .iter()
            .filter(|summary| summary.count() + summary.failures() > 0);
        let logs: Option<Vec<f64>> = used
            .map(|summary| summary.geometric().map(f64::ln))
            .collect();
        let power = logs
            .and_then(|logs| mean(logs.into_iter()))
            .map(|log| scale * 3600.0 / log.exp());
        Self {
            mixes_an_hour: 3600.0 * mixes as f64 / if clients == 1 { spent } else { wall },
            power,
            throughput: scale * 3600.0 * executions as f64 / wall,
        }
    }
}

/// The smallest of ascending values that at least `share` of them do not exceed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counts of executions are small"
)]
pub(crate) fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(milliseconds: &[u64]) -> Summary {
        let mut summary = Summary::new("1");
        for &time in milliseconds {
            let measured = Measured {
                time: Duration::from_millis(time),
                rows: time,
                bytes: 1,
                server: Some(Duration::from_millis(time) / 2),
                failure: None,
            };
            summary.add(&measured, Some(&Verdict::Right));
        }
        summary.finish();
        summary
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} {right}");
    }

    #[test]
    fn figures_of_a_template() {
        let summary = summary(&[100, 1, 10, 1]);
        assert_eq!(summary.count(), 4);
        near(summary.mean().unwrap(), 0.028);
        near(
            summary.geometric().unwrap(),
            (0.001_f64 * 0.001 * 0.01 * 0.1).powf(0.25),
        );
        near(summary.quantile(0.5).unwrap(), 0.001);
        near(summary.quantile(0.75).unwrap(), 0.01);
        near(summary.quantile(0.99).unwrap(), 0.1);
        near(summary.server_quantile(0.75).unwrap(), 0.005);
        assert_eq!(summary.row_range(), Some((1, 100)));
        let (rows, error) = summary.rows().unwrap();
        near(rows, 28.0);
        near(error, (1_741.5_f64 / 4.0).sqrt());
    }

    #[test]
    fn failures_have_no_time() {
        let mut summary = summary(&[10]);
        let failed = |failure| Measured {
            time: Duration::from_secs(60),
            failure,
            ..Measured::default()
        };
        summary.add(&failed(Some(Failure::TimeOut)), None);
        summary.add(&failed(Some(Failure::Error(String::new()))), None);
        let wrong = Verdict::Wrong(String::new());
        summary.add(&failed(None), Some(&wrong));
        assert_eq!((summary.count(), summary.failures()), (1, 3));
        assert_eq!((summary.right, summary.unknown), (1, 0));
        near(summary.mean().unwrap(), 0.01);
        near(summary.spent, 180.01);
        // A template of nothing but failures leaves no power.
        let mut none = Summary::new("2");
        none.add(&failed(None), Some(&wrong));
        let wall = Duration::from_secs(2);
        let scores = |summaries: &[Summary]| Scores::new(summaries, 10, 2, wall, 284_826);
        assert!(scores(&[summary.clone(), none]).power.is_none());
        let scores = scores(&[summary]);
        near(scores.power.unwrap(), 360_000.0);
        near(scores.mixes_an_hour, 18_000.0);
        near(scores.throughput, 1_800.0);
    }
}
