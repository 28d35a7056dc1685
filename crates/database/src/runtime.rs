//! What several databases of one process share: memory budget, cache, threads, clock, randomness.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oxsdatatypes::{DateTime, DayTimeDuration, Decimal};
use stoa_executor::helpers::Helpers;
use stoa_executor::pool::{PoolLimits, Task, WorkerPool};
use stoa_executor::service::ServiceClient;
use stoa_executor::{AdjacencyCache, AdjacencyCounts, Admission, NumberCache, NumberCounts};
use stoa_quadstore::{CheckpointOptions, QuadStoreOptions, Retention};
use stoa_storage::{Cache, Durability, LogOptions, MemoryBudget, Reservation};

use crate::error::{Error, Result};
use crate::federation::{Federation, Fetch};
use crate::limits::MEMORY_WAIT;
use crate::load::LoadTurns;
use crate::options::{IoCalls, RuntimeOptions};
use crate::running::RunningQueries;
use crate::shapes::Shapes;

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

/// The least memory that a runtime works with, in bytes.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

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
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    memory: MemoryBudget,
    admission: Arc<Admission>,
    load_turns: LoadTurns,
    adjacencies: Arc<AdjacencyCache>,
    numbers: Arc<NumberCache>,
    cache: Arc<Cache>,
    threads: usize,
    helpers: Arc<Helpers>,
    durability: Durability,
    io: IoCalls,
    clock: Arc<dyn Clock>,
    seed: AtomicU64,
    services: Option<Arc<dyn ServiceClient>>,
    load: Option<Arc<dyn Fetch>>,
    running: RunningQueries,
    shapes: Shapes,
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
        let memory_bytes = options
            .memory_bytes
            .unwrap_or_else(|| machine_memory_bytes() / 4);
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::InvalidOption {
                option: "--memory",
                reason: format!("at least {} MB are needed", MEMORY_BYTES_MIN >> 20),
            });
        }
        let memory = MemoryBudget::new(memory_bytes);
        let cache_bytes = options.cache_bytes.unwrap_or(memory_bytes / 2);
        let threads = options.threads.unwrap_or_else(cores).max(1);
        let wait = options.memory_wait.unwrap_or(MEMORY_WAIT);
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            shared: Arc::new(Shared {
                admission: Arc::new(Admission::new(&memory, wait_ns)),
                load_turns: LoadTurns::new(wait),
                adjacencies: AdjacencyCache::new(&memory),
                numbers: NumberCache::new(&memory),
                cache: Cache::new(&memory, cache_bytes.min(memory_bytes)),
                memory,
                threads,
                helpers: Arc::new(Helpers::new(threads - 1)),
                durability: options.durability,
                io: options.io,
                clock,
                seed: AtomicU64::new(seed),
                services: options
                    .fetch
                    .map(|fetch| Arc::new(Federation { fetch }) as Arc<dyn ServiceClient>),
                load: options.load,
                running: RunningQueries::default(),
                shapes: Shapes::default(),
            }),
        })
    }

    /// The memory that all databases of the runtime may take together, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shared.memory.limit()
    }

    /// The memory that is in use now, caches included, in bytes.
    #[must_use]
    pub fn memory_used_bytes(&self) -> u64 {
        self.shared.memory.used()
    }

    /// A reservation of nothing, which grows within the memory that all databases of the runtime may take: for what a
    /// caller holds itself, such as requests and answers.
    #[must_use]
    pub fn reservation(&self) -> Reservation {
        self.shared.memory.nothing()
    }

    /// Starts worker threads, as many as the limits say, whose output is counted in the memory of the runtime.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn worker_pool<T: Task>(&self, limits: PoolLimits) -> std::io::Result<WorkerPool<T>> {
        WorkerPool::new(limits, self.executor_clock(), self.shared.memory.clone())
    }

    /// How many threads work at once.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// The threads that help long queries: one less than work at once.
    pub(crate) fn helpers(&self) -> Arc<Helpers> {
        Arc::clone(&self.shared.helpers)
    }

    /// The calls by which files of databases are read.
    pub(crate) fn io(&self) -> IoCalls {
        self.shared.io
    }

    /// The source of time.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// What an acknowledged commit survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.shared.durability
    }

    /// How databases make checkpoints.
    pub(crate) fn checkpoint_options(&self) -> CheckpointOptions {
        CheckpointOptions {
            threads: self.threads(),
            memory_bytes: self.memory_bytes(),
            cancel: Arc::default(),
        }
    }

    /// How databases are opened.
    pub(crate) fn store_options(&self) -> QuadStoreOptions {
        let clock = self.clock();
        QuadStoreOptions {
            log: LogOptions {
                durability: self.durability(),
                ..LogOptions::default()
            },
            now: Arc::new(move || u64::try_from(clock.now().as_micros()).unwrap_or(u64::MAX)),
            checkpoint: self.checkpoint_options(),
            retention_of_new: Retention::Auto,
            ..QuadStoreOptions::default()
        }
    }

    pub(crate) fn running_queries(&self) -> &RunningQueries {
        &self.shared.running
    }

    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shared.shapes
    }

    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.shared.memory
    }

    /// How many queries and updates wait for memory that others hold.
    #[must_use]
    pub fn queries_waiting(&self) -> usize {
        self.shared.admission.waiting()
    }

    /// Where bulk loads wait for memory.
    pub(crate) fn load_turns(&self) -> &LoadTurns {
        &self.shared.load_turns
    }

    /// Where queries wait for that.
    pub(crate) fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.shared.admission)
    }

    /// Triples along paths that queries have read into memory for those after them, and how often they were found.
    #[must_use]
    pub fn adjacency_counts(&self) -> AdjacencyCounts {
        self.shared.adjacencies.counts()
    }

    /// Where these are.
    pub(crate) fn adjacencies(&self) -> Arc<AdjacencyCache> {
        Arc::clone(&self.shared.adjacencies)
    }

    /// Numbers that queries have made of texts for those after them, such as `xsd:float(STR(?price))`.
    #[must_use]
    pub fn number_counts(&self) -> NumberCounts {
        self.shared.numbers.counts()
    }

    /// Where these are.
    pub(crate) fn numbers(&self) -> Arc<NumberCache> {
        Arc::clone(&self.shared.numbers)
    }

    /// What asks the endpoints of SERVICE.
    pub(crate) fn services(&self) -> Option<Arc<dyn ServiceClient>> {
        self.shared.services.clone()
    }

    /// What fetches the documents of LOAD.
    pub(crate) fn documents(&self) -> Option<Arc<dyn Fetch>> {
        self.shared.load.clone()
    }

    pub(crate) fn cache(&self) -> Arc<Cache> {
        Arc::clone(&self.shared.cache)
    }

    /// The source of time as the executor and its worker pool want it.
    #[must_use]
    pub fn executor_clock(&self) -> Arc<dyn stoa_executor::Clock> {
        Arc::new(ExecutorClock(self.clock()))
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

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("memory_bytes", &self.memory_bytes())
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

/// A [`Clock`] in the executor's form.
struct ExecutorClock(Arc<dyn Clock>);

impl stoa_executor::Clock for ExecutorClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The moment so long after 1970-01-01T00:00:00Z, to the millisecond, in UTC.
pub(crate) fn date_time(since_1970: Duration) -> DateTime {
    /// Parsed once: this is called for each query.
    static BEGINNING: LazyLock<DateTime> =
        LazyLock::new(|| "1970-01-01T00:00:00Z".parse().expect("it is a date"));
    // Both have room for twenty digits of seconds.
    i128::try_from(since_1970.as_millis())
        .ok()
        .and_then(|milliseconds| Decimal::new(milliseconds, 3).ok())
        .map(DayTimeDuration::new)
        .and_then(|passed| BEGINNING.checked_add_day_time_duration(passed))
        .expect("all seconds of a duration are a decimal, with those before 1970 as well")
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
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let date = date_time(Duration::from_secs(seconds));
            assert_eq!(date.to_string(), text);
        }
        let date = date_time(Duration::from_millis(1_234_567));
        assert_eq!(date.to_string(), "1970-01-01T00:20:34.567Z");
    }

    #[test]
    fn too_little_memory_is_refused() {
        let error = Runtime::new(RuntimeOptions {
            memory_bytes: Some(1 << 20),
            ..RuntimeOptions::default()
        });
        assert_eq!(
            error.unwrap_err().to_string(),
            "--memory: at least 16 MB are needed"
        );
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
