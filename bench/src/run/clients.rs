//! Clients that take whole mixes from one queue and send their queries and updates one after the other.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};

use super::endpoint::{Connection, Endpoint, Failure, Measured, Updates};
use super::meter::{Process, Server};
use super::workload::{WARM_UP, Workload};

/// How a run is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) clients: u64,
    /// Mixes that are not counted, each with parameters of its own.
    pub(crate) warm_up: u64,
    pub(crate) mixes: u64,
    pub(crate) connection: Connection,
    pub(crate) timeout: Option<Duration>,
    pub(crate) server: Option<Process>,
    /// No mix is begun after this time, neither of the warm-up nor of those that count.
    pub(crate) at_most: Option<Duration>,
    /// A command that ends the server and starts it again, run after each time-out: many servers go on with a query that
    /// nobody waits for. It prints the URL and the process. For one client.
    pub(crate) restart: Option<String>,
    /// Where the updates of a mix that writes go.
    pub(crate) updates: Option<Updates>,
}

/// One execution of a query or an update.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) mix: u64,
    /// Place within the mix, from 0.
    pub(crate) place: usize,
    pub(crate) template: usize,
    /// When it began, since the clock was started.
    pub(crate) start: Duration,
    pub(crate) measured: Measured,
}

/// Everything that a run gave.
#[derive(Debug)]
pub(crate) struct Run {
    /// In order of mix and place.
    pub(crate) samples: Vec<Sample>,
    /// Mixes that were run.
    pub(crate) mixes: u64,
    /// Where the server answers in the end.
    pub(crate) url: String,
    /// When all clients were warm, since 1970.
    pub(crate) began: Duration,
    /// From then until the last answer.
    pub(crate) wall: Duration,
    /// What the server's process used in that time.
    pub(crate) server_time: Option<Duration>,
    /// The part of it for updates, which one client alone can tell.
    pub(crate) update_time: Option<Duration>,
    /// Resident memory of the server at the end and at its peak, bytes.
    pub(crate) server_memory: Option<(u64, u64)>,
}

/// What all clients share.
#[derive(Debug)]
struct Shared<'a> {
    workload: &'a Workload,
    plan: &'a Plan,
    epoch: Instant,
    server: Server,
    url: Mutex<String>,
    update_time: Mutex<Option<Duration>>,
}

/// Runs all mixes; `progress` is told of each that is done.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn run(workload: &Workload, plan: &Plan, progress: &(dyn Fn() + Sync)) -> Run {
    let next = [AtomicU64::new(0), AtomicU64::new(0)];
    let warm = Barrier::new(usize::try_from(plan.clients + 1).unwrap_or(2));
    let started = Barrier::new(usize::try_from(plan.clients + 1).unwrap_or(2));
    let shared = Shared {
        workload,
        plan,
        epoch: Instant::now(),
        server: Server::new(plan.server),
        url: Mutex::new(plan.url.clone()),
        update_time: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let client = || {
            let mut endpoint = shared.endpoint();
            let [warm_up, counted] = &next;
            let mut samples = Vec::new();
            shared.take(warm_up, plan.warm_up, |mix| {
                shared.ask(&mut endpoint, WARM_UP + mix, &mut Vec::new());
                progress();
            });
            warm.wait();
            started.wait();
            let mixes = shared.take(counted, plan.mixes, |mix| {
                shared.ask(&mut endpoint, mix, &mut samples);
                progress();
            });
            (mixes, samples)
        };
        let clients: Vec<_> = (0..plan.clients).map(|_| scope.spawn(client)).collect();
        warm.wait();
        shared.server.begin();
        let began = since_1970();
        let begin = shared.epoch.elapsed();
        started.wait();
        let (mut mixes, mut samples) = (0, Vec::new());
        for client in clients {
            let (run, asked) = client.join().unwrap_or_default();
            mixes += run;
            samples.extend(asked);
        }
        let wall = shared.epoch.elapsed().saturating_sub(begin);
        samples.sort_by_key(|sample| (sample.mix, sample.place));
        for sample in &mut samples {
            sample.start = sample.start.saturating_sub(begin);
        }
        Run {
            samples,
            mixes,
            url: shared.url(),
            began,
            wall,
            server_time: shared.server.spent(),
            update_time: *locked(&shared.update_time),
            server_memory: shared.server.resident(),
        }
    })
}

impl Shared<'_> {
    fn url(&self) -> String {
        locked(&self.url).clone()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::new(&self.url(), self.plan.connection, self.plan.timeout)
    }

    /// Takes numbers below `end` from a queue that others take from, too, until the time is over; gives how many.
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn take(&self, next: &AtomicU64, end: u64, mut work: impl FnMut(u64)) -> u64 {
        let start = Instant::now();
        let mut taken = 0;
        while self
            .plan
            .at_most
            .is_none_or(|at_most| start.elapsed() < at_most)
        {
            let mix = next.fetch_add(1, Ordering::Relaxed);
            if mix >= end {
                break;
            }
            work(mix);
            taken += 1;
        }
        taken
    }

    fn ask(&self, endpoint: &mut Endpoint, mix: u64, samples: &mut Vec<Sample>) {
        // What the server had used when the updates of the mix began.
        let mut before_updates = None;
        for (place, instance) in self.workload.mix(mix).into_iter().enumerate() {
            match (before_updates, instance.writes) {
                (None, true) => before_updates = self.alone(),
                (Some(before), false) => {
                    self.add_update_time(before);
                    before_updates = None;
                }
                _ => {}
            }
            let start = self.epoch.elapsed();
            let mut measured = match &self.plan.updates {
                Some(updates) if instance.writes => endpoint.update(updates, &instance.query),
                _ => endpoint.ask(&instance.query, None),
            };
            if let (Some(Failure::TimeOut), Some(command)) = (&measured.failure, &self.plan.restart)
            {
                match self.restart(command) {
                    Ok(()) => *endpoint = self.endpoint(),
                    Err(error) => measured.failure = Some(Failure::Error(format!("{error:#}"))),
                }
            }
            samples.push(Sample {
                mix,
                place,
                template: instance.template,
                start,
                measured,
            });
        }
        if let Some(before) = before_updates {
            self.add_update_time(before);
        }
    }

    /// What the server has used, where no other client asks it for something else.
    fn alone(&self) -> Option<Duration> {
        let alone = self.plan.clients == 1;
        alone.then(|| self.server.spent()).flatten()
    }

    fn add_update_time(&self, before: Duration) {
        let spent = self.server.spent().unwrap_or_default();
        let mut sum = locked(&self.update_time);
        *sum = Some(sum.unwrap_or_default() + spent.saturating_sub(before));
    }

    fn restart(&self, command: &str) -> anyhow::Result<()> {
        self.server.leave();
        let (url, process) = restarted(command)?;
        self.server.replace(process);
        *locked(&self.url) = url;
        Ok(())
    }
}

/// The time of the clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(super) fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command that starts a server and prints its URL and its process.
///
/// # Errors
/// When it fails, or prints something else.
pub(crate) fn restarted(command: &str) -> anyhow::Result<(String, Process)> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stderr(Stdio::inherit())
        .output()
        .context("running sh")?;
    if !output.status.success() {
        bail!("`{command}` failed: {}", output.status);
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut words = printed.split_whitespace();
    let (url, process) = (words.next(), words.next());
    let process = process.and_then(|word| word.parse().ok());
    let (url, process) = url
        .zip(process)
        .with_context(|| format!("`{command}` printed no URL and process: {printed}"))?;
    Ok((url.to_owned(), Process(process)))
}
