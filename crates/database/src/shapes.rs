//! What queries and updates took, summed by their shape (`query/shape_text.rs`).
//!
//! # Concurrency
//! One lock around the sums, taken once when a query ends.
//!
//! # Limits
//! At most [`SHAPES_MAX`] shapes are kept, each with 4 KB of text; the one that was not seen for longest goes, and what
//! went is summed.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::ReadCounts;
use stoa_storage::sync::Mutex;

use crate::limits::SHAPES_MAX;
use crate::query::shape_text;
use crate::runtime::Runtime;

/// What all runs of the queries, or updates, of one shape took.
#[derive(Clone, Debug, Default)]
pub struct QueryShape {
    /// The text with `_` for constants, but for predicates and classes; of what is longer than 2,000 bytes that of the
    /// beginning.
    pub shape: String,
    /// The text of the run that took longest, cut off after 2,000 bytes.
    pub example: String,
    /// Whether it is an update.
    pub is_update: bool,
    /// How often it was run: how many runs ended.
    pub count: u64,
    /// How many of them ended with an error.
    pub errors: u64,
    /// How many solutions or triples came out; of an update, those of the patterns of its operations, which all that
    /// follows but times is of.
    pub rows: u64,
    /// From being asked until the last of the answer was taken, or an update was durable.
    pub time: Duration,
    /// The longest of these times.
    pub time_max: Duration,
    /// From the text to the plan; a part of `time`. Of an update that is run again after a conflict all runs count.
    pub planning: Duration,
    /// How long operators were at work or waited; a part of `time`, which has the writing of the answer besides.
    pub running: Duration,
    /// How long runs waited for memory that others held, before they began.
    pub waited: Duration,
    /// What was looked up and read, as [`crate::Query::reads`].
    pub reads: ReadCounts,
    /// How many bytes operators put into temporary files.
    pub spilled_bytes: u64,
    /// The most memory that the operators of a run had reserved at one time, in bytes.
    pub memory_peak_bytes: u64,
    /// The most threads that were at work for a run at one time.
    pub threads: u64,
}

/// The shapes that a runtime keeps, and what became of the others.
#[derive(Clone, Debug, Default)]
pub struct QueryShapes {
    /// Those that took most time first.
    pub shapes: Vec<QueryShape>,
    /// How many shapes were dropped to make room; one that came again is counted again.
    pub dropped: u64,
    /// How many runs these had.
    pub dropped_count: u64,
    /// The time of these runs.
    pub dropped_time: Duration,
}

/// What one run took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) is_error: bool,
    pub(crate) rows: u64,
    pub(crate) planning: Duration,
    pub(crate) running: Duration,
    pub(crate) waited: Duration,
    pub(crate) reads: ReadCounts,
    pub(crate) spilled_bytes: u64,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) threads: u64,
}

impl Ended {
    /// Adds what one part of a run took that comes after the others.
    pub(crate) fn add(&mut self, part: &Self) {
        self.rows += part.rows;
        self.planning += part.planning;
        self.running += part.running;
        self.waited += part.waited;
        self.reads = self.reads.plus(part.reads);
        self.spilled_bytes += part.spilled_bytes;
        self.memory_peak_bytes = self.memory_peak_bytes.max(part.memory_peak_bytes);
        self.threads = self.threads.max(part.threads);
    }
}

/// The sums of a runtime.
#[derive(Default)]
pub(crate) struct Shapes {
    hasher: RandomState,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_key: HashMap<(u64, bool), Entry, RandomState>,
    /// How many runs were added.
    added: u64,
    dropped: u64,
    dropped_count: u64,
    dropped_time: Duration,
}

struct Entry {
    sums: QueryShape,
    /// The number of the last run.
    last: u64,
}

impl Shapes {
    /// What keys are made with.
    pub(crate) const fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Adds a run of the shape with this key that took `time`; `text` may be cut off.
    pub(crate) fn add(
        &self,
        (key, is_update): (u64, bool),
        text: &str,
        time: Duration,
        ended: &Ended,
    ) {
        let mut kept = self.lock();
        kept.added += 1;
        let last = kept.added;
        if let Some(entry) = kept.by_key.get_mut(&(key, is_update)) {
            entry.last = last;
            entry.sums.add(text, time, ended);
            return;
        }
        drop(kept);
        let mut sums = QueryShape {
            shape: shape_text::written(text),
            is_update,
            ..QueryShape::default()
        };
        let mut kept = self.lock();
        // Somebody else may have come first with it.
        if let Some(entry) = kept.by_key.get_mut(&(key, is_update)) {
            entry.sums.add(text, time, ended);
            return;
        }
        sums.add(text, time, ended);
        kept.make_room();
        kept.by_key.insert((key, is_update), Entry { sums, last });
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while the sums are not whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn make_room(&mut self) {
        if self.by_key.len() < SHAPES_MAX {
            return;
        }
        let oldest = self.by_key.iter().min_by_key(|(_, entry)| entry.last);
        let oldest = oldest.map(|(key, _)| *key);
        if let Some(gone) = oldest.and_then(|key| self.by_key.remove(&key)) {
            self.dropped += 1;
            self.dropped_count += gone.sums.count;
            self.dropped_time += gone.sums.time;
        }
    }
}

impl QueryShape {
    fn add(&mut self, text: &str, time: Duration, ended: &Ended) {
        if self.count == 0 || time > self.time_max {
            self.time_max = time;
            text.clone_into(&mut self.example);
        }
        self.count += 1;
        self.errors += u64::from(ended.is_error);
        self.rows += ended.rows;
        self.time += time;
        self.planning += ended.planning;
        self.running += ended.running;
        self.waited += ended.waited;
        self.reads = self.reads.plus(ended.reads);
        self.spilled_bytes += ended.spilled_bytes;
        self.memory_peak_bytes = self.memory_peak_bytes.max(ended.memory_peak_bytes);
        self.threads = self.threads.max(ended.threads);
    }
}

impl Runtime {
    /// What the queries and updates of all databases took that have ended, summed by their shape. Queries that were only
    /// explained are not among them, nor what is wrong by its text.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// for name in ["alice", "bob"] {
    ///     let text = format!("ASK {{ ?s <http://a/name> \"{name}\" }}");
    ///     drop(database.query(&text, &QueryOptions::default())?);
    /// }
    /// let told = runtime.query_shapes();
    /// assert_eq!(told.shapes[0].shape, "ASK { ?s <http://a/name> _ }");
    /// assert_eq!(told.shapes[0].count, 2);
    /// # Ok::<_, Error>(())
    /// ```
    #[must_use]
    pub fn query_shapes(&self) -> QueryShapes {
        let kept = self.shapes().lock();
        let mut told = QueryShapes {
            shapes: kept
                .by_key
                .values()
                .map(|entry| entry.sums.clone())
                .collect(),
            dropped: kept.dropped,
            dropped_count: kept.dropped_count,
            dropped_time: kept.dropped_time,
        };
        drop(kept);
        told.shapes
            .sort_by(|one, other| other.time.cmp(&one.time).then(one.shape.cmp(&other.shape)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_for_longest_goes_and_is_told() {
        let shapes = Shapes::default();
        let add = |key: u64| {
            let text = format!("ASK {{ ?s <p{key}> {key} }}");
            shapes.add(
                (key, false),
                &text,
                Duration::from_secs(1),
                &Ended::default(),
            );
        };
        let most = SHAPES_MAX as u64;
        (0..most).for_each(add);
        // The first is seen again; the next two go.
        add(0);
        add(most);
        add(most + 1);
        let kept = shapes.lock();
        assert_eq!(kept.by_key.len(), SHAPES_MAX);
        assert_eq!((kept.dropped, kept.dropped_count), (2, 2));
        assert_eq!(kept.dropped_time, Duration::from_secs(2));
        for (key, is_kept) in [(0, true), (1, false), (2, false), (3, true), (most, true)] {
            assert_eq!(kept.by_key.contains_key(&(key, false)), is_kept, "{key}");
        }
        let first = &kept.by_key.get(&(0, false)).unwrap().sums;
        assert_eq!(first.count, 2);
        assert_eq!(first.shape, "ASK { ?s <p0> _ }");
    }

    #[test]
    fn runs_add_up() {
        let shapes = Shapes::default();
        let run = |seconds, is_error, memory_peak_bytes, threads| {
            let ended = Ended {
                is_error,
                rows: 3,
                planning: Duration::from_secs(1),
                memory_peak_bytes,
                threads,
                ..Ended::default()
            };
            let text = format!("ASK {{ ?s ?p {seconds} }}");
            shapes.add((1, false), &text, Duration::from_secs(seconds), &ended);
        };
        run(3, false, 10, 1);
        run(5, true, 30, 2);
        run(4, false, 20, 1);
        let kept = shapes.lock();
        let sums = &kept.by_key.get(&(1, false)).unwrap().sums;
        assert_eq!((sums.count, sums.errors, sums.rows), (3, 1, 9));
        assert_eq!((sums.time.as_secs(), sums.time_max.as_secs()), (12, 5));
        assert_eq!(sums.planning.as_secs(), 3);
        assert_eq!((sums.memory_peak_bytes, sums.threads), (30, 2));
        assert_eq!(sums.example, "ASK { ?s ?p 5 }");
    }
}
