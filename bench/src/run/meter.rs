//! What a server's process has used: time on processors, and memory.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A process of this machine, by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub(crate) u32);

/// Ticks of a process a second, as Linux counts them for programs.
const TICKS: u64 = 100;

impl Process {
    /// Time on processors so far, of all threads.
    ///
    /// The scheduler's own count of each thread, in nanoseconds; but that of ended threads is gone, so that the count
    /// of the whole process, in ticks, is taken where it is ahead by more than its own coarseness.
    pub(crate) fn time(self) -> Option<Duration> {
        let mut threads = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.0)).ok()? {
            let file = task.ok()?.path().join("schedstat");
            let line = fs::read_to_string(file).unwrap_or_default();
            let first = line.split_whitespace().next();
            threads += first.and_then(|word| word.parse().ok()).unwrap_or(0_u64);
        }
        let ticks = self.ticks()?;
        let whole = Duration::from_millis(ticks * 1_000 / TICKS);
        let threads = Duration::from_nanos(threads);
        let coarseness = Duration::from_millis(20 * 1_000 / TICKS);
        Some(if whole > threads + coarseness {
            whole
        } else {
            threads
        })
    }

    fn ticks(self) -> Option<u64> {
        let line = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name, in parentheses, may hold anything.
        let mut fields = line.rsplit_once(')')?.1.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some(user + system)
    }

    /// Resident memory now and at its peak, bytes.
    pub(crate) fn resident(self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kilobytes * 1024)
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }
}

/// The server of a run, whose process may be replaced by another in its course.
#[derive(Debug)]
pub(crate) struct Server(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    /// What the process had used when it began to count.
    since: Duration,
    /// What earlier processes used while they counted.
    ended: Duration,
}

impl Server {
    pub(crate) fn new(process: Option<Process>) -> Self {
        let server = Self(Mutex::default());
        server.lock().process = process;
        server
    }

    /// From now on its time counts.
    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        state.since = state.now().unwrap_or_default();
        state.ended = Duration::ZERO;
    }

    /// To be called before its process is ended.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        state.ended = state.spent().unwrap_or_default();
        state.since = Duration::MAX;
    }

    /// To be called when another process has taken its place: what that one used to start does not count.
    pub(crate) fn replace(&self, process: Process) {
        let mut state = self.lock();
        if state.process.is_some() {
            state.process = Some(process);
            state.since = state.now().unwrap_or_default();
        }
    }

    /// Time on processors since [`Server::begin`]; none without a process.
    pub(crate) fn spent(&self) -> Option<Duration> {
        self.lock().spent()
    }

    pub(crate) fn resident(&self) -> Option<(u64, u64)> {
        self.lock().process.and_then(Process::resident)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now(&self) -> Option<Duration> {
        self.process.and_then(Process::time)
    }

    fn spent(&self) -> Option<Duration> {
        let process = self.now()?.saturating_sub(self.since);
        Some(self.ended + process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_replaced_processes_counts_on() {
        let server = Server::new(Some(Process(std::process::id())));
        server.begin();
        let mut sum = 0_u64;
        while server.spent().unwrap() < Duration::from_millis(30) {
            sum = (0..100_000).fold(sum, |sum, value| sum.wrapping_mul(31) + value);
        }
        server.leave();
        let spent = server.spent().unwrap();
        assert!(spent >= Duration::from_millis(30), "{sum}");
        server.replace(Process(std::process::id()));
        assert!(server.spent().unwrap() >= spent);
        assert!(Server::new(None).spent().is_none());
    }

    #[test]
    fn work_of_this_process_is_seen() {
        let process = Process(std::process::id());
        let before = process.time().unwrap();
        let mut sum = 0_u64;
        while process.time().unwrap() < before + Duration::from_millis(50) {
            sum = (0..100_000).fold(sum, |sum, value| sum.wrapping_mul(31) + value);
        }
        assert!(process.resident().unwrap().1 > 0, "{sum}");
        assert!(Process(u32::MAX).time().is_none());
    }
}
