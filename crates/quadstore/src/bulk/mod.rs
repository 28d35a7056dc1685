//! Bulk load: from the terms and quads of several parsing threads to one new commit.
//!
//! ```text
//! parsing threads      BulkWriter: keys -> local numbers    (hash table, arena; spilled when full)
//!                                  quads of local numbers   -> temporary file
//! commit   1. terms    merge of all partial vocabularies    -> dictionary, ids of local numbers
//!          2. quads    blocks of quads -> ids -> sort keys  -> sorted runs, four permutations
//!          3. merge    runs of a permutation                -> its tree; four at a time
//!                      new quads, where graphs share subjects -> GPSO and GPOS
//!                      quads of graphs that are replaced -> removals beside what is new
//!          4. runs     earlier partitions of the dictionary -> fewer, now and then
//!          5. root     one storage checkpoint makes all of it visible, or nothing
//! ```
//!
//! # Limits
//! Vocabularies take `TERMS_SHARE` percent of the memory while reading, sort buffers `SORT_SHARE`
//! percent afterwards (both in `limits.rs`); the rest is for the caller's buffers and the writers of
//! dictionary and permutations. Cancellation is checked once a few thousand quads or terms.
//!
//! # Concurrency
//! Writers share counters, the list of sealed vocabularies and two temporary files. Committing takes
//! the quad store's writer lock; reading takes none.

mod again;
mod change_file;
mod commit;
mod graph_first;
mod key_sort;
mod limits;
mod loser_tree;
pub(crate) mod merge_runs;
mod merge_terms;
mod packing;
mod partial;
mod quad_buffer;
mod quad_sort;
mod replaced;
mod spill;
#[cfg(test)]
mod tests;
mod update;
mod vocabulary;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use stoa_storage::TempSpace;
use stoa_storage::sync::Mutex;
use stoa_terms::GraphSet;

use crate::quad_store::Commit;
use crate::root::LOAD_MESSAGE_BYTES_MAX;
use crate::{Error, QuadStore, Result, Scheme, Snapshot};
pub(crate) use again::{build_again, load_again};
pub(crate) use change_file::ChangeWriter;
#[cfg(test)]
pub(crate) use change_file::{CHANGES_GRAPHS, CHANGES_ROWS, CHANGES_TERMS};
pub(crate) use commit::of_load;
use partial::Partial;
pub use quad_buffer::LocalTerm;
use spill::SpillFile;
pub use update::BulkUpdate;
pub use writer::BulkWriter;

/// How a bulk load is to be done.
#[derive(Clone)]
pub struct BulkOptions {
    /// The peak resident size of the process to keep to, in bytes.
    pub memory_bytes: u64,
    /// The scheme of a store that holds nothing yet; by default the full one. What a store has stays.
    pub scheme: Option<Scheme>,
    /// Threads to work with; also the number of writers that share the memory.
    pub threads: usize,
    /// Told how far the load has come.
    pub progress: Arc<dyn BulkProgress>,
    /// Ends the load with [`Error::Cancelled`] soon after it was set.
    pub cancel: Arc<AtomicBool>,
}

/// Told how far a bulk load has come; called from any of its threads.
pub trait BulkProgress: Send + Sync {
    /// A phase begins: `reading`, `writing terms`, `sorting quads`, `writing quads`, where graphs share
    /// subjects `sorting by graph`, where there were many loads `merging terms`, of an update `counting changes`, and
    /// `committing`.
    /// `total` is what [`BulkProgress::advance`] will have counted to at its end (terms for `writing
    /// terms`, else quads), if that is known.
    fn phase(&self, name: &str, total: Option<u64>);

    /// So many terms or quads of the phase are done, all in all. With several threads a smaller
    /// number may come after a larger one.
    fn advance(&self, done: u64);
}

/// How a bulk load is committed.
#[derive(Default)]
pub struct BulkCommit<'a> {
    /// What the list of commits says of it, in at most [`BulkCommit::MESSAGE_BYTES_MAX`] bytes.
    pub message: Option<String>,
    /// Which graphs are replaced: what they hold and the load does not bring goes with the same commit,
    /// and they exist afterwards only if they hold quads or the load creates them. Asked of the state on
    /// which the load is committed.
    pub replaced: Option<&'a GraphsOf<'a>>,
}

impl BulkCommit<'_> {
    /// The longest message.
    pub const MESSAGE_BYTES_MAX: usize = LOAD_MESSAGE_BYTES_MAX;

    /// Refuses a message that a root does not hold.
    ///
    /// # Errors
    /// If it is longer than [`BulkCommit::MESSAGE_BYTES_MAX`].
    pub fn verify_message(message: Option<&str>) -> Result<()> {
        let found = message.map_or(0, str::len);
        if found <= LOAD_MESSAGE_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Storage(stoa_storage::Error::LimitExceeded {
            what: "length of the message of a load in bytes",
            limit: LOAD_MESSAGE_BYTES_MAX as u64,
            found: found as u64,
        }))
    }
}

/// Graphs of a state.
pub type GraphsOf<'a> = dyn Fn(&Snapshot) -> Result<GraphSet> + Sync + 'a;

/// What a bulk load did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BulkSummary {
    /// Quads that the writers were given, duplicates included.
    pub quads_read: u64,
    /// Quads that the store did not hold before.
    pub quads_new: u64,
    /// Quads that it replaced: that are not there any more.
    pub quads_removed: u64,
    /// Terms that the dictionary did not hold before, triple terms included, blank nodes and inline
    /// values not.
    pub terms_new: u64,
    /// The commit that made the quads visible.
    pub commit: u64,
    /// Its time, in microseconds since 1970.
    pub time_us: u64,
    /// The most bytes that temporary files took at one time.
    pub temp_peak_bytes: u64,
}

/// A bulk load that was begun: hands out writers, then commits what they wrote. Dropping it leaves
/// the store as it was.
pub struct BulkLoad {
    store: QuadStore,
    shared: Arc<Shared>,
}

/// What the writers of a load share.
struct Shared {
    options: BulkOptions,
    space: TempSpace,
    terms_file: Arc<SpillFile>,
    quads_file: Arc<SpillFile>,
    /// Bytes that all vocabularies may take, and those of one writer.
    terms_bytes: usize,
    writer_bytes: usize,
    /// Bytes that vocabularies take, as last reported.
    used_bytes: AtomicUsize,
    quads_read: AtomicU64,
    /// Writers that were not finished.
    writers: AtomicUsize,
    sealed: Mutex<Vec<Partial>>,
}

impl Shared {
    fn check_cancelled(&self) -> Result<()> {
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    fn add(&self, partial: Partial) {
        self.sealed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(partial);
    }
}

impl QuadStore {
    /// Begins a bulk load. Several may be written to at the same time; they commit one by one.
    ///
    /// # Errors
    /// If temporary files cannot be made; [`Error::OtherScheme`].
    pub fn bulk_load(&self, options: BulkOptions) -> Result<BulkLoad> {
        self.scheme(options.scheme)?;
        let space = self.store().temp_space();
        space.reset_peak();
        let terms_bytes = limits::terms_bytes(options.memory_bytes);
        let shared = Shared {
            terms_file: SpillFile::new(&space)?,
            quads_file: SpillFile::new(&space)?,
            space,
            terms_bytes,
            writer_bytes: terms_bytes / options.threads.max(1),
            used_bytes: AtomicUsize::new(0),
            quads_read: AtomicU64::new(0),
            writers: AtomicUsize::new(0),
            sealed: Mutex::new(Vec::new()),
            options,
        };
        shared.options.progress.phase("reading", None);
        Ok(BulkLoad {
            store: self.clone(),
            shared: Arc::new(shared),
        })
    }
}

/// Writes a load into trees that `over`, which was begun, builds upon next.
pub(crate) fn build_over(store: &QuadStore, load: &BulkLoad, over: &mut Commit<'_>) -> Result<()> {
    let built = commit::build_over(
        store,
        &load.shared,
        over,
        BulkCommit::default(),
        commit::Extras::default(),
    )?;
    over.go_on(built.merged, built.derived, built.dictionary)
}

impl BulkLoad {
    /// A writer for one parsing thread. Make as many as [`BulkOptions::threads`] says and use each
    /// for many files: what a writer holds is sorted when it is finished.
    #[must_use]
    pub fn writer(&self) -> BulkWriter {
        BulkWriter::new(Arc::clone(&self.shared))
    }

    /// Makes everything that the writers wrote visible and durable, all of it or nothing.
    ///
    /// # Errors
    /// If a writer was not finished, the load was cancelled, or files cannot be read or written; the
    /// store is then as it was.
    pub fn commit(self) -> Result<BulkSummary> {
        self.commit_with(BulkCommit::default())
    }

    /// The same with a message, or in the place of what some graphs hold.
    ///
    /// # Errors
    /// As [`BulkLoad::commit`], and if the message is too long.
    pub fn commit_with(self, options: BulkCommit<'_>) -> Result<BulkSummary> {
        BulkCommit::verify_message(options.message.as_deref())?;
        commit::commit(&self.store, &self.shared, options)
    }
}
