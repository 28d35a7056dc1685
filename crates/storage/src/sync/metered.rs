//! Locks that count; they give the guards of the standard library.

use std::any::type_name;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    LockResult, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    TryLockResult, WaitTimeoutResult,
};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use super::LockCounts;

/// The counts of one kind of access to locks of one name.
struct Meter {
    name: &'static str,
    kind: &'static str,
    acquisitions: AtomicU64,
    contended: AtomicU64,
    waited_ns: AtomicU64,
}

/// By name and kind.
type Meters = HashMap<(String, &'static str), &'static Meter, RandomState>;

/// There are as many as there are places where locks are made, so they are never given back.
static METERS: std::sync::Mutex<Option<Meters>> = std::sync::Mutex::new(None);

/// All counts, the longest waited for first.
pub(super) fn counts() -> Vec<LockCounts> {
    let meters = METERS.lock().unwrap_or_else(PoisonError::into_inner);
    let all = meters.iter().flat_map(HashMap::values);
    let mut counts: Vec<_> = all.map(|meter| meter.counts()).collect();
    drop(meters);
    counts.retain(|counts| counts.acquisitions > 0);
    counts.sort_by(|one, other| {
        let by_wait = other.waited.cmp(&one.waited);
        by_wait.then_with(|| (one.name, one.kind).cmp(&(other.name, other.kind)))
    });
    counts
}

/// The meter of what protects a `T` and is made at a place.
fn meter<T: ?Sized>(kind: &'static str, place: &Location<'_>) -> &'static Meter {
    let of_type = type_name::<T>();
    let name = match of_type.contains("stoa_") {
        true => of_type.to_owned(),
        false => format!("{of_type} of {}:{}", place.file(), place.line()),
    };
    let mut meters = METERS.lock().unwrap_or_else(PoisonError::into_inner);
    let meters = meters.get_or_insert_default();
    meters
        .entry((name, kind))
        .or_insert_with_key(|(name, kind)| {
            Box::leak(Box::new(Meter {
                name: Box::leak(name.clone().into_boxed_str()),
                kind,
                acquisitions: AtomicU64::new(0),
                contended: AtomicU64::new(0),
                waited_ns: AtomicU64::new(0),
            }))
        })
}

impl Meter {
    fn counts(&self) -> LockCounts {
        LockCounts {
            name: self.name,
            kind: self.kind,
            acquisitions: self.acquisitions.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed),
            waited: Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)),
        }
    }

    /// Takes a lock that is free, or waits for it.
    fn take<G>(
        &self,
        tried: TryLockResult<G>,
        lock: impl FnOnce() -> LockResult<G>,
    ) -> LockResult<G> {
        self.acquisitions.fetch_add(1, Ordering::Relaxed);
        match tried {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                self.contended.fetch_add(1, Ordering::Relaxed);
                self.timed(lock)
            }
        }
    }

    /// Counts an attempt that does not wait.
    fn try_to<G>(&self, tried: TryLockResult<G>) -> TryLockResult<G> {
        let counter = match &tried {
            Err(TryLockError::WouldBlock) => &self.contended,
            _ => &self.acquisitions,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        tried
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the time decides nothing, and locks are made where there is no clock"
    )]
    fn timed<T>(&self, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = wait();
        let waited_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        done
    }
}

/// [`std::sync::Mutex`], counted.
pub struct Mutex<T> {
    meter: &'static Meter,
    lock: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// As [`std::sync::Mutex::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self {
            meter: meter::<T>("mutex", Location::caller()),
            lock: std::sync::Mutex::new(value),
        }
    }

    /// As [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.meter.take(self.lock.try_lock(), || self.lock.lock())
    }

    /// As [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.meter.try_to(self.lock.try_lock())
    }

    /// As [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.lock.get_mut()
    }

    /// As [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.lock.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lock.fmt(f)
    }
}

/// [`std::sync::RwLock`], counted.
pub struct RwLock<T> {
    reads: &'static Meter,
    writes: &'static Meter,
    lock: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// As [`std::sync::RwLock::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self {
            reads: meter::<T>("read", Location::caller()),
            writes: meter::<T>("write", Location::caller()),
            lock: std::sync::RwLock::new(value),
        }
    }

    /// As [`std::sync::RwLock::read`].
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.reads.take(self.lock.try_read(), || self.lock.read())
    }

    /// As [`std::sync::RwLock::write`].
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.writes
            .take(self.lock.try_write(), || self.lock.write())
    }

    /// As [`std::sync::RwLock::try_read`].
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.reads.try_to(self.lock.try_read())
    }

    /// As [`std::sync::RwLock::try_write`].
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.writes.try_to(self.lock.try_write())
    }

    /// As [`std::sync::RwLock::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.lock.get_mut()
    }

    /// As [`std::sync::RwLock::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.lock.into_inner()
    }
}

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lock.fmt(f)
    }
}

/// [`std::sync::Condvar`], counted. What is waited for is work or room as a rule, and no contention.
pub struct Condvar {
    meter: &'static Meter,
    condition: std::sync::Condvar,
}

impl Condvar {
    /// As [`std::sync::Condvar::new`].
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        Self {
            meter: meter::<std::sync::Condvar>("condition", Location::caller()),
            condition: std::sync::Condvar::new(),
        }
    }

    /// As [`std::sync::Condvar::wait`].
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.waits(|| self.condition.wait(guard))
    }

    /// As [`std::sync::Condvar::wait_while`].
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.waits(|| self.condition.wait_while(guard, waits))
    }

    /// As [`std::sync::Condvar::wait_timeout`].
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.waits(|| self.condition.wait_timeout(guard, time))
    }

    /// As [`std::sync::Condvar::wait_timeout_while`].
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.waits(|| self.condition.wait_timeout_while(guard, time, waits))
    }

    /// As [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        self.condition.notify_one();
    }

    /// As [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        self.condition.notify_all();
    }

    fn waits<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.meter.acquisitions.fetch_add(1, Ordering::Relaxed);
        self.meter.timed(wait)
    }
}

impl Default for Condvar {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.condition.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What only these tests protect; the name has the path of the crate.
    #[derive(Debug, Default)]
    struct Protected(u64);

    #[derive(Debug, Default)]
    struct Shared(u64);

    struct Waited;

    fn of(name: &str, kind: &str) -> LockCounts {
        let counts = counts();
        let found = counts
            .iter()
            .find(|counts| counts.name.ends_with(name) && counts.kind == kind);
        *found.unwrap()
    }

    #[test]
    fn acquisitions_and_waits_are_counted_by_name() {
        let mutex = Mutex::new(Protected(0));
        for _ in 0..3 {
            mutex.lock().unwrap().0 += 1;
        }
        let counts = of("::tests::Protected", "mutex");
        assert_eq!((counts.acquisitions, counts.contended), (3, 0));
        assert_eq!(counts.waited, Duration::ZERO);

        // Another lock of the same name.
        let other = Mutex::<Protected>::default();
        drop(other.try_lock().unwrap());
        assert_eq!(of("::tests::Protected", "mutex").acquisitions, 4);

        // Somebody waits: the lock is given back once its wait was counted.
        let guard = mutex.lock().unwrap();
        assert!(mutex.try_lock().is_err());
        assert_eq!(of("::tests::Protected", "mutex").contended, 1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| mutex.lock().unwrap().0);
            while of("::tests::Protected", "mutex").contended < 2 {
                std::thread::yield_now();
            }
            drop(guard);
            assert_eq!(waiter.join().unwrap(), 3);
        });
        let counts = of("::tests::Protected", "mutex");
        assert_eq!((counts.acquisitions, counts.contended), (6, 2));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what is tested is the time")]
    fn waits_are_timed() {
        let meter = meter::<Waited>("mutex", Location::caller());
        meter.timed(|| {
            let begun = Instant::now();
            while begun.elapsed().is_zero() {}
        });
        assert!(meter.counts().waited > Duration::ZERO);
    }

    #[test]
    fn readers_and_writers_are_told_apart() {
        let lock = RwLock::<Shared>::default();
        drop((lock.read().unwrap(), lock.read().unwrap()));
        lock.write().unwrap().0 = 1;
        assert_eq!(of("::tests::Shared", "read").acquisitions, 2);
        let writes = of("::tests::Shared", "write");
        assert_eq!((writes.acquisitions, writes.contended), (1, 0));
    }

    #[test]
    fn what_has_no_name_is_known_by_its_place() {
        let (mutex, condition) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let guard = mutex.lock().unwrap();
            scope.spawn(|| {
                // Taken once the other one waits.
                *mutex.lock().unwrap() = true;
                condition.notify_all();
            });
            let done = condition.wait_while(guard, |done| !*done);
            assert!(*done.unwrap());
        });
        let counts = counts();
        let here = |kind: &str| {
            let mut own = counts.iter().filter(|counts| counts.kind == kind);
            own.any(|counts| counts.name.contains("metered.rs:") && counts.acquisitions > 0)
        };
        assert!(here("mutex") && here("condition"), "{counts:?}");
    }
}
