//! The progress of a load: a bar on a terminal, now and then a plain line elsewhere.

use std::io::IsTerminal as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stoa_database::sync::Mutex;
use stoa_database::{Clock, Progress};

use super::output::say;
use super::sizes::{bytes, count, rate, to_f64};

/// How often a plain line is written.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Draws what a load tells.
pub(super) struct Drawn {
    clock: Arc<dyn Clock>,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: String,
    total: Option<u64>,
    started: Duration,
    last_line: Duration,
    reading: bool,
}

impl State {
    fn seconds(&self, now: Duration) -> f64 {
        now.saturating_sub(self.started).as_secs_f64().max(0.001)
    }

    fn speed(&self, now: Duration, quads: u64) -> String {
        let rate = rate(quads, self.seconds(now));
        format!("{} triples, {rate}/s", count(quads))
    }

    /// The plain line that is due now, if one is: phase, how much is done, what time is left.
    fn line(&mut self, now: Duration, done: u64, quads: u64) -> Option<String> {
        if now.saturating_sub(self.last_line) < LINE_INTERVAL {
            return None;
        }
        self.last_line = now;
        let mut line = format!("{}: ", self.phase);
        match self.total.filter(|&total| total > 0) {
            Some(total) => {
                let share = (to_f64(done) / to_f64(total)).clamp(0.0, 1.0);
                line += &format!("{:.0} %", share * 100.0);
                if share > 0.0 {
                    let seconds = self.seconds(now);
                    line += &format!(", {:.0} s left", seconds / share - seconds);
                }
            }
            None if self.reading => line += &bytes(done),
            None => line += &count(done),
        }
        if self.reading {
            line += &format!(", {}", self.speed(now, quads));
        }
        Some(line)
    }
}

impl Drawn {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            // Drawn before the first phase is told, so it must not look like a full bar.
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            clock,
            bar,
            state: Mutex::default(),
        }
    }

    /// Takes the bar off the terminal.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(text),
        }
    }
}

impl Progress for Drawn {
    fn phase(&self, name: &str, total: Option<u64>) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = name == "reading";
        *state = State {
            phase: name.to_owned(),
            total,
            started: now,
            last_line: now,
            reading,
        };
        drop(state);
        match &self.bar {
            Some(bar) => {
                let template = if total.is_some() {
                    "{prefix:16} [{bar:30}] {percent:>3} %  {msg}  {elapsed} elapsed, {eta} left"
                } else {
                    "{prefix:16} {spinner} {msg}  {elapsed} elapsed"
                };
                let style = ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> ");
                bar.set_style(style);
                bar.set_prefix(name.to_owned());
                bar.set_length(total.unwrap_or(0));
                bar.reset();
            }
            None => self.line(name),
        }
    }

    fn advance(&self, done: u64, quads: u64) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            if state.reading {
                bar.set_message(state.speed(now, quads));
            }
            return;
        }
        let line = state.line(now, done, quads);
        drop(state);
        if let Some(line) = line {
            self.line(&line);
        }
    }

    fn note(&self, text: &str) {
        self.line(&format!("note: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: &str, total: Option<u64>) -> State {
        State {
            phase: phase.to_owned(),
            total,
            reading: phase == "reading",
            ..State::default()
        }
    }

    #[test]
    fn plain_lines_come_now_and_then_and_tell_what_is_left() {
        let at = Duration::from_secs;
        let mut reading = state("reading", Some(1_000));
        assert_eq!(reading.line(at(4), 10, 10), None);
        let line = reading.line(at(10), 250, 5_000_000).unwrap();
        assert_eq!(
            line,
            "reading: 25 %, 30 s left, 5,000,000 triples, 500,000/s"
        );
        assert_eq!(reading.line(at(14), 300, 6_000_000), None);
        assert!(
            reading
                .line(at(15), 0, 0)
                .unwrap()
                .starts_with("reading: 0 %, 0 triples")
        );
        // A stream has no end that is known.
        let line = state("reading", None).line(at(5), 2 << 20, 100);
        assert_eq!(line.unwrap(), "reading: 2.0 MiB, 100 triples, 20/s");
        let line = state("sorting quads", None).line(at(5), 7_000, 0);
        assert_eq!(line.unwrap(), "sorting quads: 7,000");
        // More than was expected is no reason to go beyond the end.
        let line = state("writing quads", Some(10)).line(at(5), 20, 0);
        assert_eq!(line.unwrap(), "writing quads: 100 %, 0 s left");
    }
}
