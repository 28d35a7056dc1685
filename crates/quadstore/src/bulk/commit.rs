//! The end of a bulk load: terms to ids, quads to sorted runs, runs to trees, one checkpoint.
#![expect(
    clippy::indexing_slicing,
    reason = "arrays with one entry a permutation, indexed by the permutation's number"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_storage::{ChangesOf, Checkpoint};
use stoa_terms::{Permutation, TermId};

use super::again::Again;
use super::change_file::ChangeWriter;
use super::graph_first::GraphFirst;
use super::merge_runs::MergeRuns;
use super::merge_terms::{Merge, MergedTerms};
use super::packing::{Compact, Orders, Packing, Whole, Wide};
use super::partial::{Partial, resolve};
use super::quad_buffer::for_each_quad;
use super::quad_sort::{MergedRuns, Run, RunBuilder};
use super::replaced::Replaced;
use super::spill::{BlockRef, SpillFile};
use super::{BulkCommit, BulkOptions, BulkSummary, GraphsOf, Shared, limits};
use crate::dictionary::{Dictionary, Partition};
use crate::quad_store::{Commit, Derived, Left, Merged, next_commit};
use crate::root::TreeName;
use crate::segment::Row;
use crate::{CheckpointOptions, Error, QuadStore, Result, Scheme};

/// Quads that are handed to the merge at a time.
const BATCH_QUADS: usize = 8192;
/// Trees that are merged side by side: those of the permutations or, in their place, of pairs.
const TREES: usize = Permutation::ALL.len();

pub(super) fn commit(
    store: &QuadStore,
    shared: &Shared,
    options: BulkCommit<'_>,
) -> Result<BulkSummary> {
    if shared.writers.load(Ordering::Acquire) != 0 {
        return Err(Error::Internal("a writer of the load was not finished"));
    }
    shared.check_cancelled()?;
    let mut commit = begin(store, &shared.options)?;
    let number = next_commit(commit.snapshot())?;
    let changes = store.0.new_changes(of_load(number))?.map(Mutex::new);
    let extras = Extras {
        changes: changes.as_ref(),
        ..Extras::default()
    };
    let built = build_over(store, shared, &mut commit, options, extras)?;
    if let Some(changes) = changes {
        let changes = changes.into_inner().unwrap_or_else(PoisonError::into_inner);
        commit.set_changes(changes.finish()?);
    }
    finish(shared, commit, built)
}

/// The load that is a commit.
pub(crate) const fn of_load(commit: u64) -> ChangesOf {
    ChangesOf {
        commit,
        numbering: None,
    }
}

/// What few loads have.
#[derive(Default)]
pub(super) struct Extras<'a> {
    /// Is told what the load changes.
    pub(super) changes: Option<&'a Mutex<ChangeWriter>>,
    /// What the change file of the load tells, if it is made again.
    pub(super) again: Option<Again>,
    /// What an update wants besides the quads that it adds. Of its changes only new terms are told.
    pub(super) wanted: Option<Wanted>,
}

/// What an operation of an update wants besides the quads that it adds.
pub(super) struct Wanted {
    /// The quads that it removes in each order, by its number, if there are any.
    pub(super) removed: Option<[Vec<Run<Wide>>; 4]>,
    /// Graphs that are to exist only as long as they hold quads.
    pub(super) uncreated: Vec<TermId>,
}

/// The trees of a load, and what else its root is to hold.
pub(super) struct Built {
    pub(super) merged: Vec<Merged>,
    pub(super) derived: Derived,
    pub(super) dictionary: Vec<u8>,
    pub(super) next_blank_node: u64,
    pub(super) terms_new: u64,
    /// Graphs that are to exist though empty, or not.
    pub(super) created: Vec<(TermId, bool)>,
}

/// Writes what the writers wrote over what `commit` builds upon.
pub(super) fn build_over(
    store: &QuadStore,
    shared: &Shared,
    commit: &mut Commit<'_>,
    options: BulkCommit<'_>,
    extras: Extras<'_>,
) -> Result<Built> {
    let mut partials = std::mem::take(&mut *lock(&shared.sealed));
    commit.set_memory(shared.options.memory_bytes);
    // Beyond a thread for each tree, the others help these.
    commit.set_helpers(shared.options.threads.saturating_sub(TREES) / TREES);
    let changes = extras.changes.filter(|_| extras.wanted.is_none());
    let Prepared {
        terms,
        replaced,
        is_told,
        created,
    } = prepare(
        store,
        shared,
        commit,
        &mut partials,
        (options.replaced, extras),
    )?;
    let (predicates, graphs) = announced(&partials)?;
    commit.set_message(options.message);
    commit.create_graphs(created.clone());
    let compact = Compact::new(terms.next_blank_node, terms.next_iri, predicates, graphs);
    let by_graph = match commit.snapshot().has_graph_first() {
        true => Some(Mutex::new(GraphFirst::new(shared, replaced.is_some())?)),
        false => None,
    };
    let trees = Trees {
        shared,
        commit,
        by_graph: by_graph.as_ref(),
        changes,
        replaced: replaced.as_ref(),
        done: AtomicU64::new(0),
    };
    let mut merged = match compact {
        Some(compact) => trees.merge(&compact, &partials)?,
        None => trees.merge(&Whole, &partials)?,
    };
    let left = match replaced {
        Some(_) if is_told => Left::Written,
        Some(replaced) => Left::Told(replaced.remains(shared)?),
        None => Left::Shown,
    };
    let derived = commit.derive_with(&mut merged, left)?;
    let by_graph = by_graph.map(|by| by.into_inner().unwrap_or_else(PoisonError::into_inner));
    let by_graph = match (by_graph, merged.first()) {
        (None, Some(psog)) if derived.shares_subjects => {
            Some(GraphFirst::of_tree(shared, commit.snapshot(), psog.tree())?)
        }
        (by_graph, _) => by_graph,
    };
    if let Some(by_graph) = by_graph {
        merged.extend(by_graph.merge(shared, commit)?);
    }
    shared.check_cancelled()?;
    let dictionary = commit.snapshot().dictionary();
    let mut partitions = merge_partitions(shared, dictionary, commit.checkpoint())?;
    partitions.extend(terms.partitions);
    shared.options.progress.phase("committing", None);
    let dictionary = dictionary.add(partitions, commit.checkpoint())?;
    Ok(Built {
        merged,
        derived,
        dictionary,
        next_blank_node: terms.next_blank_node,
        terms_new: terms.terms_new,
        created,
    })
}

/// What is known of a load before its quads are merged.
struct Prepared {
    terms: MergedTerms,
    replaced: Option<Replaced>,
    /// Whether a change file tells what is removed.
    is_told: bool,
    /// As for [`created`].
    created: Vec<(TermId, bool)>,
}

/// Gives terms their ids, and finds what is removed; or takes both from the change file.
fn prepare(
    store: &QuadStore,
    shared: &Shared,
    commit: &Commit<'_>,
    partials: &mut [Partial],
    (replaced, extras): (Option<&GraphsOf<'_>>, Extras<'_>),
) -> Result<Prepared> {
    if let Some(again) = extras.again {
        let replaced = again.removed.map(|runs| Replaced::told(shared, runs));
        let replaced = replaced.transpose()?;
        return Ok(Prepared {
            is_told: replaced.is_some(),
            terms: again.terms,
            replaced,
            created: again.graphs,
        });
    }
    let ids_file = SpillFile::new(&shared.space)?;
    let mut terms = Merge {
        shared,
        dictionary: commit.snapshot().dictionary(),
        checkpoint: commit.checkpoint(),
        ids_file: &ids_file,
        next_blank_node: commit.next_blank_node(),
        take_blank_nodes: &|count| store.take_blank_nodes(count),
        changes: extras.changes,
    }
    .run(partials)?;
    if let Some(wanted) = extras.wanted {
        // Blank nodes were numbered while quads were handed over, too.
        terms.next_blank_node = store.take_blank_nodes(0).max(terms.next_blank_node);
        let replaced = wanted.removed.map(|runs| Replaced::told(shared, runs));
        let replaced = replaced.transpose()?;
        return Ok(Prepared {
            is_told: replaced.is_some(),
            created: created(partials, wanted.uncreated)?,
            terms,
            replaced,
        });
    }
    let replaced = replaced.map(|graphs| {
        let graphs = graphs(commit.snapshot())?;
        Replaced::new(shared, commit.snapshot(), graphs)
    });
    let replaced = replaced.transpose()?;
    let uncreated = match &replaced {
        Some(replaced) => replaced.uncreated(commit.snapshot())?,
        None => Vec::new(),
    };
    let created = created(partials, uncreated)?;
    if let Some(changes) = extras.changes {
        lock(changes).graphs(&created)?;
    }
    Ok(Prepared {
        terms,
        replaced,
        is_told: false,
        created,
    })
}

/// Begins the commit, once what is in no checkpoint yet is in one.
pub(super) fn begin<'a>(store: &'a QuadStore, asked: &BulkOptions) -> Result<Commit<'a>> {
    let options = CheckpointOptions {
        threads: asked.threads,
        memory_bytes: asked.memory_bytes,
        cancel: Arc::clone(&asked.cancel),
    };
    loop {
        if asked.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match store.begin_commit(asked.scheme) {
            Ok(Some(commit)) => return Ok(commit),
            Ok(None) => drop(store.checkpoint_after_others(&options)?),
            // A compaction is about to end, and there is no delta to wait for.
            Err(Error::Storage(stoa_storage::Error::CheckpointRunning)) => {
                store.0.keeper.wait_for_checkpoint();
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn finish(shared: &Shared, commit: Commit<'_>, built: Built) -> Result<BulkSummary> {
    let Built {
        merged,
        derived,
        dictionary,
        next_blank_node,
        terms_new,
        ..
    } = built;
    let done = commit.finish(merged, derived, dictionary, next_blank_node)?;
    Ok(BulkSummary {
        quads_read: shared.quads_read.load(Ordering::Acquire),
        quads_new: done.added,
        quads_removed: done.removed,
        terms_new,
        commit: done.commit,
        time_us: done.time_us,
        temp_peak_bytes: shared.space.peak_bytes(),
    })
}

/// Merges the partitions that earlier loads left, if they have become many.
fn merge_partitions(
    shared: &Shared,
    dictionary: &Dictionary,
    checkpoint: &Checkpoint<'_>,
) -> Result<Vec<Partition>> {
    let terms = MergeRuns::terms(dictionary);
    if terms == 0 {
        return Ok(Vec::new());
    }
    let progress = &shared.options.progress;
    progress.phase("merging terms", Some(terms));
    let merge = MergeRuns {
        dictionary,
        checkpoint,
        space: &shared.space,
        memory_bytes: shared.options.memory_bytes,
        threads: shared.options.threads.saturating_sub(1),
        step: &mut |done| {
            progress.advance(done);
            shared.check_cancelled()
        },
    };
    merge.run()
}

/// The ids of all predicates and of all graphs, with repeats.
fn announced(partials: &[Partial]) -> Result<(Vec<TermId>, Vec<TermId>)> {
    let (mut predicates, mut graphs) = (Vec::new(), Vec::new());
    for partial in partials {
        let ids = partial.read_ids()?;
        for (from, to) in [
            (&partial.predicates, &mut predicates),
            (&partial.graphs, &mut graphs),
        ] {
            for &term in from {
                to.push(resolve(term, &ids)?);
            }
            to.sort_unstable();
            to.dedup();
        }
    }
    Ok((predicates, graphs))
}

/// The graphs that are to exist even if they are empty, and those that exist only as long as they hold quads.
fn created(partials: &[Partial], uncreated: Vec<TermId>) -> Result<Vec<(TermId, bool)>> {
    let mut created = Vec::new();
    for partial in partials.iter().filter(|one| !one.created.is_empty()) {
        let ids = partial.read_ids()?;
        for &term in &partial.created {
            created.push((resolve(term, &ids)?, true));
        }
    }
    created.extend(uncreated.into_iter().map(|graph| (graph, false)));
    // Of a graph that is in both, `true` comes first and counts.
    created.sort_unstable_by_key(|(graph, created)| (*graph, !*created));
    created.dedup_by_key(|(graph, _)| *graph);
    Ok(created)
}

/// The trees that quads are merged into.
struct Trees<'a> {
    shared: &'a Shared,
    commit: &'a Commit<'a>,
    /// Is told what changes, if there are trees by graph.
    by_graph: Option<&'a Mutex<GraphFirst>>,
    /// Is told the same, if there is a change file.
    changes: Option<&'a Mutex<ChangeWriter>>,
    replaced: Option<&'a Replaced>,
    /// Quads that were merged, each once for every tree.
    done: AtomicU64,
}

/// A permutation, and the tree that its quads, or their pairs, go into.
type Job = (Permutation, TreeName);

impl Trees<'_> {
    /// Sorts all quads and merges them into the trees of the scheme, in the order of their names.
    fn merge<P: Packing>(&self, packing: &P, partials: &[Partial]) -> Result<Vec<Merged>> {
        let total = self.shared.quads_read.load(Ordering::Acquire);
        let progress = &self.shared.options.progress;
        progress.phase("sorting quads", Some(total));
        let runs = sort_quads(packing, self.shared, partials, total)?;
        let runs = runs.map(Mutex::new);
        progress.phase("writing quads", Some(total));
        let (pairs, permutations) = match self.commit.scheme() {
            Scheme::Full => ([].as_slice(), Permutation::ALL.as_slice()),
            Scheme::Lean => (
                [
                    (Permutation::Spog, TreeName::Sp),
                    (Permutation::Opsg, TreeName::Op),
                ]
                .as_slice(),
                Scheme::Lean.permutations(),
            ),
        };
        let mut jobs: Vec<Job> = permutations
            .iter()
            .map(|one| (*one, (*one).into()))
            .collect();
        if self.replaced.is_some() {
            // Whether a pair is left is asked of the new permutations.
            let mut merged = self.merge_all(packing, &jobs, &runs, &[])?;
            merged.extend(self.merge_all(packing, pairs, &runs, &merged)?);
            return Ok(merged);
        }
        jobs.extend(pairs);
        self.merge_all(packing, &jobs, &runs, &[])
    }

    /// Merges several trees side by side; `before` are those that were merged already.
    fn merge_all<P: Packing>(
        &self,
        packing: &P,
        jobs: &[Job],
        runs: &[Mutex<Vec<Run<P::Key>>>; TREES],
        before: &[Merged],
    ) -> Result<Vec<Merged>> {
        let outcomes: [_; TREES] = std::array::from_fn(|_| Mutex::new(None));
        let next_job = AtomicUsize::new(0);
        let work = || {
            loop {
                let at = next_job.fetch_add(1, Ordering::AcqRel);
                let Some(job) = jobs.get(at) else { break };
                let runs = std::mem::take(&mut *lock(&runs[job.0 as usize]));
                let outcome = self.merge_runs(packing, *job, runs, before);
                if outcome.is_err() {
                    next_job.store(TREES, Ordering::Release);
                }
                *lock(&outcomes[at]) = Some(outcome);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.shared.options.threads.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        // A tree that was not begun after a failure has no outcome.
        let (mut merged, mut failure) = (Vec::with_capacity(TREES), None);
        for outcome in outcomes.into_iter().take(jobs.len()) {
            match outcome.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(Ok(tree)) => merged.push(tree),
                // After a failed write the store refuses those of other threads: the cause says more.
                Some(Err(error)) if failure.as_ref().is_none_or(is_refusal) => {
                    failure = Some(error)
                }
                Some(Err(_)) | None => {}
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if merged.len() < jobs.len() {
            return Err(Error::Internal("a tree was not merged"));
        }
        Ok(merged)
    }

    /// Merges the runs of a permutation into its tree, or into that of its pairs.
    fn merge_runs<P: Packing>(
        &self,
        packing: &P,
        (from, into): Job,
        runs: Vec<Run<P::Key>>,
        before: &[Merged],
    ) -> Result<Merged> {
        let mut runs = MergedRuns::new(runs, &mut || self.shared.check_cancelled())?;
        let mut keys = Vec::with_capacity(BATCH_QUADS);
        let mut read = |quads: &mut Vec<[TermId; 4]>| {
            self.shared.check_cancelled()?;
            keys.clear();
            quads.clear();
            runs.read(BATCH_QUADS, &mut keys)?;
            packing.unpack(from, &keys, quads);
            let more = quads.len() as u64;
            let all = self.done.fetch_add(more, Ordering::AcqRel) + more;
            self.shared.options.progress.advance(all / TREES as u64);
            Ok(())
        };
        if TreeName::from(from) != into {
            return match self.replaced {
                None => self.commit.merge_pairs_of_nodes(into, &mut read),
                Some(replaced) => {
                    let predicate_first = match from {
                        Permutation::Spog => before.first(),
                        _ => before.get(1),
                    };
                    let quads = predicate_first.map(Merged::tree);
                    let quads = quads.ok_or(Error::Internal("pairs before their permutation"))?;
                    replaced.merge_pairs_of_nodes(self.commit, (from, into), &mut read, &quads)
                }
            };
        }
        // Nobody else takes the lock before the merge is over.
        let mut by_graph = self.by_graph.filter(|_| into == TreeName::Psog).map(lock);
        let mut changes = self.changes.filter(|_| into == TreeName::Psog).map(lock);
        let mut effects = |row: &Row, deleted: bool| {
            if let Some(changes) = &mut changes {
                changes.row(row, deleted)?;
            }
            match &mut by_graph {
                Some(by_graph) => by_graph.push(*row, deleted),
                None => Ok(()),
            }
        };
        match self.replaced {
            None => self.commit.merge(from, &mut read, &mut effects),
            Some(replaced) => replaced.merge(self.commit, from, &mut read, &mut effects),
        }
    }
}

/// The runs of each permutation, by its number.
type AllRuns<K> = [Vec<Run<K>>; 4];

/// Gives quads their ids and sorts them by each permutation.
fn sort_quads<P: Packing>(
    packing: &P,
    shared: &Shared,
    partials: &[Partial],
    total: u64,
) -> Result<AllRuns<P::Key>> {
    let threads = shared.options.threads.max(1);
    let ids_bytes = partials
        .iter()
        .map(|partial| u64::from(partial.terms) * 8)
        .max();
    let capacity = limits::sort_capacity(
        shared.options.memory_bytes,
        ids_bytes.unwrap_or(0),
        size_of::<P::Key>(),
        threads * Permutation::ALL.len(),
        total,
    );
    let file = SpillFile::new(&shared.space)?;
    let queue = Mutex::new(Queue::new(partials));
    let done = AtomicU64::new(0);
    let work = || sort_blocks(packing, shared, &queue, &file, capacity, &done);
    let outcomes = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut outcomes = vec![work()];
        outcomes.extend(others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or(Err(Error::Internal("a sorting thread ended early")))
        }));
        outcomes
    });
    let mut all: AllRuns<P::Key> = [const { Vec::new() }; 4];
    for outcome in outcomes {
        for (runs, added) in all.iter_mut().zip(outcome?) {
            runs.extend(added);
        }
    }
    Ok(all)
}

/// One thread's part of [`sort_quads`].
fn sort_blocks<P: Packing>(
    packing: &P,
    shared: &Shared,
    queue: &Mutex<Queue<'_>>,
    file: &Arc<SpillFile>,
    capacity: usize,
    done: &AtomicU64,
) -> Result<AllRuns<P::Key>> {
    let mut builders = Orders::ALL.map(|order| (order, RunBuilder::new(file, capacity)));
    let (mut scratch, mut block) = (Vec::new(), Vec::new());
    loop {
        shared.check_cancelled()?;
        let Some((reference, ids)) = lock(queue).next()? else {
            break;
        };
        shared
            .quads_file
            .read(reference, &mut scratch, &mut block)?;
        let mut quads = 0;
        for_each_quad(&block, &ids.0, |quad| {
            let codes = packing.codes(quad)?;
            for (order, builder) in &mut builders {
                builder.push(packing.pack(order.node_first(), codes), |from, to| {
                    packing.derive(*order, from, to);
                })?;
            }
            quads += 1;
            Ok(())
        })?;
        let all = done.fetch_add(quads, Ordering::AcqRel) + quads;
        shared.options.progress.advance(all);
    }
    let mut all: AllRuns<P::Key> = [const { Vec::new() }; 4];
    for (order, builder) in builders {
        shared.check_cancelled()?;
        let (runs, derived) = builder.finish(|from, to| packing.derive(order, from, to));
        all[order.node_first() as usize] = runs;
        all[order.predicate_first() as usize] = derived;
    }
    Ok(all)
}

/// The id of each local number of a partial vocabulary.
#[derive(Default)]
struct Ids(Vec<TermId>);

/// The blocks of quads that are still to be sorted.
struct Queue<'a> {
    partials: std::slice::Iter<'a, Partial>,
    blocks: std::slice::Iter<'a, BlockRef>,
    ids: Arc<Ids>,
}

impl<'a> Queue<'a> {
    fn new(partials: &'a [Partial]) -> Self {
        Self {
            partials: partials.iter(),
            blocks: [].iter(),
            ids: Arc::default(),
        }
    }

    /// The next block, and the ids of the local numbers in it.
    fn next(&mut self) -> Result<Option<(BlockRef, Arc<Ids>)>> {
        loop {
            if let Some(&block) = self.blocks.next() {
                return Ok(Some((block, Arc::clone(&self.ids))));
            }
            let Some(partial) = self.partials.next() else {
                return Ok(None);
            };
            // The old ids go before the new ones come.
            self.ids = Arc::default();
            self.ids = Arc::new(Ids(partial.read_ids()?));
            self.blocks = partial.quads.iter();
        }
    }
}

/// Whether a write was refused because another one had failed.
const fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Storage(stoa_storage::Error::RefusesWrites { .. })
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
