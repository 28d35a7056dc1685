//! The progress of a load: a bar on a terminal, now and then a plain line elsewhere.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
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
        let seconds = now.saturating_sub(state.started).as_secs_f64().max(0.001);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            if state.reading {
                bar.set_message(format!(
                    "{} triples, {}/s",
                    count(quads),
                    rate(quads, seconds)
                ));
            }
            return;
        }
        if now.saturating_sub(state.last_line) < LINE_INTERVAL {
            return;
        }
        state.last_line = now;
        let mut text = state.phase.clone();
        if let Some(total) = state.total.filter(|&total| total > 0) {
            let share = (to_f64(done) / to_f64(total)).clamp(0.0, 1.0);
            text += &format!(": {:.0} %", share * 100.0);
            if share > 0.0 {
                text += &format!(", {:.0} s left", seconds / share - seconds);
            }
        } else {
            text += &format!(
                ": {}",
                if state.reading {
                    bytes(done)
                } else {
                    count(done)
                }
            );
        }
        if state.reading {
            text += &format!(", {} triples, {}/s", count(quads), rate(quads, seconds));
        }
        drop(state);
        self.line(&text);
    }

    fn note(&self, text: &str) {
        self.line(&format!("note: {text}"));
    }
}
