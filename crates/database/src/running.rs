//! Queries and updates that are running: what a runtime tells of them, and how one is ended from outside.
//!
//! # Concurrency
//! One lock around the list, taken when a query begins and ends, and for as long as the list is copied.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use stoa_executor::QueryContext;
use stoa_storage::sync::Mutex;
use stoa_storage::{ReadCounts, nonblocking};

use crate::error::Error;
use crate::query::shape_text;
use crate::query::{CancelHandle, Token};
use crate::runtime::Runtime;
use crate::shapes::Ended;

/// So many bytes of a text are kept at most.
const TEXT_BYTES_MAX: usize = 2_000;

/// A query or an update that is running, or waits for who takes its answer.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// By which [`Runtime::end_query`] knows it; numbers ascend, and none comes twice in a process.
    pub id: u64,
    /// The text, cut off after 2,000 bytes.
    pub text: String,
    /// Whether it is an update.
    pub is_update: bool,
    /// How long ago it was asked.
    pub running: Duration,
    /// Whether it waits for memory that others hold.
    pub is_waiting: bool,
    /// What it takes, an update for all the patterns that it has run so far; `None` as long as a query is being planned.
    pub taken: Option<Taken>,
}

/// What a running query or update takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Taken {
    /// How long planning took.
    pub planning: Duration,
    /// What it has looked up and read, as [`crate::Query::reads`].
    pub reads: ReadCounts,
    /// The memory that operators have reserved now, in bytes; of an update also what changes take that are gathered.
    pub memory_bytes: u64,
    /// The most memory that they had reserved at one time, in bytes, and of an update the most that gathered changes took beside.
    pub memory_peak_bytes: u64,
    /// How many bytes went into temporary files.
    pub spilled_bytes: u64,
    /// How many threads were at work at one time at most.
    pub threads: u64,
}

/// The list of a runtime.
#[derive(Default)]
pub(crate) struct RunningQueries {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    last_id: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

struct Entry {
    text: String,
    is_update: bool,
    /// On the clock of the runtime.
    begun: Duration,
    cancel: CancelHandle,
    progress: Mutex<Progress>,
}

/// What is known of how far it is.
#[derive(Default)]
struct Progress {
    /// What those of an update's patterns took that have ended, also in runs that had to be begun anew.
    ended: Ended,
    /// What runs now.
    current: Option<Planned>,
    /// What the changes take that it has gathered, in bytes, and the most that they took.
    changes_bytes: u64,
    changes_peak_bytes: u64,
}

/// What is known of a query, or of a pattern, once it is planned.
struct Planned {
    context: Weak<QueryContext>,
    planning: Duration,
    planning_reads: ReadCounts,
}

/// Keeps a query in the list.
pub(crate) struct Listed {
    runtime: Runtime,
    id: u64,
    entry: Arc<Entry>,
    /// The key of the shape, once that is known.
    shape: OnceLock<u64>,
    /// What it took; `None` as long as it is not known, and for what is not to be summed.
    ended: Option<Ended>,
}

impl Listed {
    /// A query or an update that begins now.
    pub(crate) fn new(
        runtime: &Runtime,
        text: &str,
        is_update: bool,
        cancel: &CancelHandle,
    ) -> Self {
        let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX));
        let entry = Arc::new(Entry {
            text: text.unwrap_or_default().to_owned(),
            is_update,
            begun: runtime.clock().monotonic(),
            cancel: cancel.clone(),
            progress: Mutex::default(),
        });
        let mut list = runtime.running_queries().lock();
        list.last_id += 1;
        let id = list.last_id;
        list.entries.insert(id, Arc::clone(&entry));
        drop(list);
        Self {
            runtime: runtime.clone(),
            id,
            entry,
            shape: OnceLock::new(),
            ended: None,
        }
    }

    /// Its text, of which no more than the beginning is kept.
    pub(crate) fn text(&self) -> &str {
        &self.entry.text
    }

    /// Its text has these tokens.
    pub(crate) fn has_shape(&self, text: &str, tokens: &[Token]) {
        let hasher = self.runtime.shapes().hasher();
        let known = self.shape.set(shape_text::key(text, tokens, hasher));
        debug_assert!(known.is_ok(), "a text has one shape");
    }

    /// It has ended, but for what is left to be dropped. What a thread refused that must not block is done once more, and
    /// counts then.
    pub(crate) fn ends(&mut self, ended: Ended) {
        if nonblocking::check_nothing_refused().is_ok() {
            self.ended = Some(ended);
        }
    }

    /// It had ended, and failed all the same, as what it changed was to be made durable.
    pub(crate) fn ends_by_error(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.is_error = true;
        }
    }

    /// It ended with an error, having taken this. What was wrong with it as it was asked is no run.
    pub(crate) fn fails(&mut self, error: &Error, took: Ended) {
        let is_wrong = matches!(
            error,
            Error::Syntax(_)
                | Error::Unsupported(_)
                | Error::LimitExceeded { .. }
                | Error::InvalidOption { .. }
        );
        if !is_wrong {
            self.ends(Ended {
                is_error: true,
                ..took
            });
        }
    }

    /// An update has ended, with this.
    pub(crate) fn ends_as<T>(&mut self, outcome: &Result<T, Error>) {
        let took = self.entry.progress().ended;
        match outcome {
            Ok(_) => self.ends(took),
            Err(error) => self.fails(error, took),
        }
    }

    /// It is planned, or the next pattern of it, in this time and with these reads from disk, and runs in this context.
    pub(crate) fn runs_in(
        &self,
        context: &Arc<QueryContext>,
        planning: Duration,
        planning_reads: ReadCounts,
    ) {
        self.entry.progress().current = Some(Planned {
            context: Arc::downgrade(context),
            planning,
            planning_reads,
        });
    }

    /// The changes that an update has gathered take so many bytes.
    pub(crate) fn holds(&self, bytes: u64) {
        let mut progress = self.entry.progress();
        progress.changes_bytes = bytes;
        progress.changes_peak_bytes = progress.changes_peak_bytes.max(bytes);
    }

    /// A pattern of an update has ended, having taken this.
    pub(crate) fn has_taken(&self, took: &Ended) {
        let mut progress = self.entry.progress();
        progress.current = None;
        progress.ended.add(took);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut list = self.runtime.running_queries().lock();
        list.entries.remove(&self.id);
        drop(list);
        if let (Some(key), Some(ended)) = (self.shape.get(), &self.ended) {
            let now = self.runtime.clock().monotonic();
            let time = now.saturating_sub(self.entry.begun);
            let Entry {
                text, is_update, ..
            } = &*self.entry;
            let shapes = self.runtime.shapes();
            shapes.add((*key, *is_update), text, time, ended);
        }
    }
}

impl RunningQueries {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing panics while the list is not whole.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// The queries and updates of all databases that are running, the oldest first.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let mut query = database.prepare("SELECT * { ?s ?p ?o }", &QueryOptions::default())?;
    /// let running = runtime.queries();
    /// assert_eq!(running[0].text, "SELECT * { ?s ?p ?o }");
    /// assert!(!runtime.holds_memory(&CancelHandle::new()));
    /// assert!(runtime.end_query(running[0].id));
    /// assert!(matches!(query.next(), Err(Error::Cancelled)));
    /// drop(query);
    /// assert!(runtime.queries().is_empty());
    /// # Ok::<_, Error>(())
    /// ```
    #[must_use]
    pub fn queries(&self) -> Vec<RunningQuery> {
        let entries = self.running_queries().lock().entries.clone();
        let now = self.clock().monotonic();
        let admission = self.admission();
        let all = entries.iter().map(|(id, entry)| RunningQuery {
            id: *id,
            text: entry.text.clone(),
            is_update: entry.is_update,
            running: now.saturating_sub(entry.begun),
            is_waiting: admission.is_waiting(&entry.cancel.flag()),
            taken: entry.taken(),
        });
        all.collect()
    }

    /// Whether the query with this cancel handle runs and has memory for which others could be waiting: reserved by its
    /// operators, or granted before it began.
    #[must_use]
    pub fn holds_memory(&self, cancel: &CancelHandle) -> bool {
        let entries = self.running_queries().lock().entries.clone();
        let is_its = |entry: &&Arc<Entry>| cancel.ends(&entry.cancel);
        entries.values().find(is_its).is_some_and(|entry| {
            let progress = entry.progress();
            let context = progress.current.as_ref();
            let context = context.and_then(|planned| planned.context.upgrade());
            context.is_some_and(|context| {
                context.meters().memory_bytes() > 0 || context.grant_bytes() > 0
            })
        })
    }

    /// Makes a query or an update end with `Cancelled` soon; false if none of this number is running. An update is ended by
    /// the cancel handle of its options, which stays cancelled, unless it belongs to a transaction, which goes on; one whose
    /// commit is decided is not ended any more.
    #[must_use]
    pub fn end_query(&self, id: u64) -> bool {
        let entry = self.running_queries().lock().entries.get(&id).cloned();
        entry.is_some_and(|entry| {
            entry.cancel.cancel();
            true
        })
    }
}

impl Entry {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics while it is not whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` for a query that is not planned, or has just ended.
    fn taken(&self) -> Option<Taken> {
        let progress = self.progress();
        let ended = &progress.ended;
        let mut taken = self.is_update.then_some(Taken {
            planning: ended.planning,
            reads: ended.reads,
            memory_bytes: progress.changes_bytes,
            memory_peak_bytes: ended.memory_peak_bytes.max(progress.changes_peak_bytes),
            spilled_bytes: ended.spilled_bytes,
            threads: ended.threads,
        });
        if let Some(planned) = &progress.current
            && let Some(context) = planned.context.upgrade()
        {
            let meters = context.meters();
            let reads = context.snapshot().reads().plus(planned.planning_reads);
            taken = Some(Taken {
                planning: ended.planning + planned.planning,
                reads: ended.reads.plus(reads),
                memory_bytes: meters.memory_bytes() + progress.changes_bytes,
                memory_peak_bytes: ended
                    .memory_peak_bytes
                    .max(meters.memory_peak_bytes() + progress.changes_peak_bytes),
                spilled_bytes: ended.spilled_bytes + meters.spilled_bytes(),
                threads: ended.threads.max(meters.threads_peak()),
            });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RuntimeOptions;

    #[test]
    fn changes_that_are_gathered_are_told() {
        let runtime = Runtime::new(RuntimeOptions::default()).expect("a runtime");
        let cancel = CancelHandle::new();
        let listed = Listed::new(&runtime, "CLEAR ALL", true, &cancel);
        let told = || {
            let running = runtime.queries();
            let taken = running.first().and_then(|one| one.taken);
            taken.map(|taken| (taken.memory_bytes, taken.memory_peak_bytes))
        };
        listed.holds(4_096);
        assert_eq!(told(), Some((4_096, 4_096)));
        listed.holds(0);
        assert_eq!(told(), Some((0, 4_096)));
        drop(listed);
        assert_eq!(told(), None);
    }
}
