//! What several databases of one process share: memory budget, cache, threads, clock, randomness.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::options::RuntimeOptions;

/// A source of time. Passed in so that a run can be replayed.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01T00:00:00Z.
    fn now(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the source of time")]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the source of time")]
    fn now(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// What several databases of one process share. Cheap to clone.
///
/// ```
/// use stoa_database::{Runtime, RuntimeOptions};
///
/// let runtime = Runtime::new(RuntimeOptions {
///     memory_bytes: Some(256 << 20),
///     threads: Some(2),
///     ..RuntimeOptions::default()
/// })?;
/// assert_eq!(runtime.memory_bytes(), 256 << 20);
/// assert_eq!(runtime.threads(), 2);
/// # Ok::<_, stoa_database::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory_bytes: u64,
    threads: usize,
    clock: Arc<dyn Clock>,
    seed: AtomicU64,
}

impl Runtime {
    /// A runtime of its own.
    ///
    /// # Errors
    /// `InvalidOption` if an option cannot be used.
    pub fn new(options: RuntimeOptions) -> Result<Self> {
        let clock = options
            .clock
            .unwrap_or_else(|| Arc::new(SystemClock::new()));
        let seed = options.seed.unwrap_or_else(|| seed_of_the_machine(&*clock));
        Ok(Self {
            shared: Arc::new(Shared {
                memory_bytes: options
                    .memory_bytes
                    .unwrap_or_else(|| machine_memory_bytes() / 4),
                threads: options.threads.unwrap_or_else(cores).max(1),
                clock,
                seed: AtomicU64::new(seed),
            }),
        })
    }

    /// The memory that all databases of the runtime may take together, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shared.memory_bytes
    }

    /// How many threads work at once.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// The source of time.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// The next number of the runtime's sequence of random numbers.
    #[must_use]
    pub fn random(&self) -> u64 {
        // splitmix64: any seed gives a full sequence, and threads need no lock.
        let mut z = self
            .shared
            .seed
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Mixes the time with the keys that the standard library draws for its hash maps.
fn seed_of_the_machine(clock: &dyn Clock) -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u128(clock.now().as_nanos());
    hasher.finish()
}

/// The memory of the machine, or of the control group that the process runs in if that is less, in
/// bytes. 4 GiB where the machine does not tell.
#[must_use]
pub fn machine_memory_bytes() -> u64 {
    const UNKNOWN_BYTES: u64 = 4 << 30;
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of_meminfo(&text))
        .unwrap_or(UNKNOWN_BYTES);
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    })
    .fold(machine, u64::min)
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24689192 kB\nMemFree:  1 kB\n";
        assert_eq!(total_of_meminfo(text), Some(24_689_192 * 1024));
        assert_eq!(total_of_meminfo("MemTotal: many kB"), None);
        assert_eq!(total_of_meminfo(""), None);
        assert!(machine_memory_bytes() > 0);
    }

    #[test]
    fn a_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let options = RuntimeOptions {
                seed: Some(seed),
                ..RuntimeOptions::default()
            };
            let runtime = Runtime::new(options).unwrap();
            [runtime.random(), runtime.random(), runtime.random()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}
