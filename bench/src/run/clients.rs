//! Clients that take whole mixes from one queue and ask for their queries one after the other.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::endpoint::{Connection, Endpoint, Measured};
use super::meter::Process;
use super::workload::Workload;

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
}

/// One execution of a query.
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
    /// From the moment that all clients were warm until the last answer.
    pub(crate) wall: Duration,
    /// What the server's process used in that time.
    pub(crate) server_time: Option<Duration>,
    /// Resident memory of the server at the end and at its peak, bytes.
    pub(crate) server_memory: Option<(u64, u64)>,
}

/// Warm-up mixes have numbers from here on, so that their parameters are their own.
const WARM_UP: u64 = 1 << 32;

/// Runs all mixes; `progress` is told of each that is done.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn run(workload: &Workload, plan: &Plan, progress: &(dyn Fn() + Sync)) -> Run {
    let next = [AtomicU64::new(0), AtomicU64::new(0)];
    let warm = Barrier::new(usize::try_from(plan.clients + 1).unwrap_or(2));
    let started = Barrier::new(usize::try_from(plan.clients + 1).unwrap_or(2));
    let epoch = Instant::now();
    std::thread::scope(|scope| {
        let client = || {
            let endpoint = Endpoint::new(&plan.url, plan.connection, plan.timeout);
            let [warm_up, counted] = &next;
            let mut samples = Vec::new();
            take(warm_up, plan.warm_up, |mix| {
                ask(workload, &endpoint, WARM_UP + mix, epoch, &mut Vec::new());
                progress();
            });
            warm.wait();
            started.wait();
            take(counted, plan.mixes, |mix| {
                ask(workload, &endpoint, mix, epoch, &mut samples);
                progress();
            });
            samples
        };
        let clients: Vec<_> = (0..plan.clients).map(|_| scope.spawn(client)).collect();
        warm.wait();
        let before = plan.server.and_then(Process::time);
        let begin = epoch.elapsed();
        started.wait();
        let mut samples = Vec::new();
        for client in clients {
            samples.extend(client.join().unwrap_or_default());
        }
        let wall = epoch.elapsed().saturating_sub(begin);
        let after = plan.server.and_then(Process::time);
        samples.sort_by_key(|sample| (sample.mix, sample.place));
        for sample in &mut samples {
            sample.start = sample.start.saturating_sub(begin);
        }
        Run {
            samples,
            wall,
            server_time: after
                .zip(before)
                .map(|(after, before)| after.saturating_sub(before)),
            server_memory: plan.server.and_then(Process::resident),
        }
    })
}

/// Takes numbers below `end` from a queue that others take from, too.
fn take(next: &AtomicU64, end: u64, mut work: impl FnMut(u64)) {
    loop {
        let mix = next.fetch_add(1, Ordering::Relaxed);
        if mix >= end {
            return;
        }
        work(mix);
    }
}

fn ask(
    workload: &Workload,
    endpoint: &Endpoint,
    mix: u64,
    epoch: Instant,
    samples: &mut Vec<Sample>,
) {
    for (place, instance) in workload.mix(mix).into_iter().enumerate() {
        let start = epoch.elapsed();
        let measured = endpoint.ask(&instance.query, None);
        samples.push(Sample {
            mix,
            place,
            template: instance.template,
            start,
            measured,
        });
    }
}
