//! The end of a bulk load: terms to ids, quads to sorted runs, runs to trees, one checkpoint.
#![expect(
    clippy::indexing_slicing,
    reason = "arrays with one entry a permutation, indexed by the permutation's number"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stoa_storage::Checkpoint;
use stoa_terms::{Permutation, TermId};

use super::graph_first::GraphFirst;
use super::merge_runs::MergeRuns;
use super::merge_terms::Merge;
use super::packing::{Compact, Orders, Packing, Whole};
use super::partial::{Partial, resolve};
use super::quad_buffer::for_each_quad;
use super::quad_sort::{MergedRuns, Run, RunBuilder};
use super::spill::{BlockRef, SpillFile};
use super::{BulkSummary, Shared, limits};
use crate::dictionary::{Dictionary, Partition};
use crate::quad_store::{Commit, Derived, Merged};
use crate::root::TreeName;
use crate::{CheckpointOptions, Error, QuadStore, Result, Scheme};

/// Quads that are handed to the merge at a time.
const BATCH_QUADS: usize = 8192;
/// Trees that are merged side by side: those of the permutations or, in their place, of pairs.
const TREES: usize = Permutation::ALL.len();

pub(super) fn commit(store: &QuadStore, shared: &Shared) -> Result<BulkSummary> {
    if shared.writers.load(Ordering::Acquire) != 0 {
        return Err(Error::Internal("a writer of the load was not finished"));
    }
    shared.check_cancelled()?;
    let mut commit = begin(store, shared)?;
    let built = build_over(store, shared, &mut commit)?;
    finish(shared, commit, built)
}

/// The trees of a load, and what else its root is to hold.
pub(super) struct Built {
    pub(super) merged: Vec<Merged>,
    pub(super) derived: Derived,
    pub(super) dictionary: Vec<u8>,
    next_blank_node: u64,
    terms_new: u64,
}

/// Writes what the writers wrote over what `commit` builds upon.
pub(super) fn build_over(
    store: &QuadStore,
    shared: &Shared,
    commit: &mut Commit<'_>,
) -> Result<Built> {
    let mut partials = std::mem::take(&mut *lock(&shared.sealed));
    // Beyond a thread for each tree, the others help these.
    commit.set_helpers(shared.options.threads.saturating_sub(TREES) / TREES);
    let ids_file = SpillFile::new(&shared.space)?;
    let terms = Merge {
        shared,
        dictionary: commit.snapshot().dictionary(),
        checkpoint: commit.checkpoint(),
        ids_file: &ids_file,
        next_blank_node: commit.next_blank_node(),
        take_blank_nodes: &|count| store.take_blank_nodes(count),
    }
    .run(&mut partials)?;
    let (predicates, graphs) = announced(&partials)?;
    commit.create_graphs(created(&partials)?);
    let compact = Compact::new(terms.next_blank_node, terms.next_iri, predicates, graphs);
    let by_graph = match commit.snapshot().has_graph_first() {
        true => Some(Mutex::new(GraphFirst::new(shared)?)),
        false => None,
    };
    let mut merged = match compact {
        Some(compact) => merge_quads(&compact, shared, &partials, commit, by_graph.as_ref())?,
        None => merge_quads(&Whole, shared, &partials, commit, by_graph.as_ref())?,
    };
    let derived = commit.derive(&mut merged)?;
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
    })
}

/// Begins the commit, once what is in no checkpoint yet is in one.
fn begin<'a>(store: &'a QuadStore, shared: &Shared) -> Result<Commit<'a>> {
    let options = CheckpointOptions {
        threads: shared.options.threads,
        memory_bytes: shared.options.memory_bytes,
        cancel: Arc::clone(&shared.options.cancel),
    };
    loop {
        match store.begin_commit(shared.options.scheme) {
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

fn finish(shared: &Shared, commit: Commit<'_>, built: Built) -> Result<BulkSummary> {
    let Built {
        merged,
        derived,
        dictionary,
        next_blank_node,
        terms_new,
    } = built;
    let quads_new = merged.first().map_or(0, |psog| psog.inserted);
    let number = commit.finish(merged, derived, dictionary, next_blank_node)?;
    Ok(BulkSummary {
        quads_read: shared.quads_read.load(Ordering::Acquire),
        quads_new,
        terms_new,
        commit: number,
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

/// The ids of the graphs that are to exist even if they are empty.
fn created(partials: &[Partial]) -> Result<Vec<TermId>> {
    let mut created = Vec::new();
    for partial in partials.iter().filter(|one| !one.created.is_empty()) {
        let ids = partial.read_ids()?;
        for &term in &partial.created {
            created.push(resolve(term, &ids)?);
        }
    }
    Ok(created)
}

/// Sorts all quads and merges them into the trees of the scheme, in the order of their names; tells
/// the new ones to `by_graph`.
fn merge_quads<P: Packing>(
    packing: &P,
    shared: &Shared,
    partials: &[Partial],
    commit: &Commit<'_>,
    by_graph: Option<&Mutex<GraphFirst>>,
) -> Result<Vec<Merged>> {
    let total = shared.quads_read.load(Ordering::Acquire);
    let progress = &shared.options.progress;
    progress.phase("sorting quads", Some(total));
    let runs = sort_quads(packing, shared, partials, total)?;
    progress.phase("writing quads", Some(total));
    let names = match commit.scheme() {
        Scheme::Full => [
            TreeName::Psog,
            TreeName::Posg,
            TreeName::Spog,
            TreeName::Opsg,
        ],
        Scheme::Lean => [TreeName::Psog, TreeName::Posg, TreeName::Sp, TreeName::Op],
    };
    let jobs = runs.map(|runs| Mutex::new(Some(runs)));
    let outcomes = [const { Mutex::new(None) }; TREES];
    let next_job = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let work = || {
        loop {
            let job = next_job.fetch_add(1, Ordering::AcqRel);
            let Some(&name) = names.get(job) else { break };
            let runs = lock(&jobs[job]).take().unwrap_or_default();
            let from = Permutation::ALL[job];
            let outcome = merge_runs(packing, (from, name), runs, shared, commit, by_graph, &done);
            if outcome.is_err() {
                next_job.store(TREES, Ordering::Release);
            }
            *lock(&outcomes[job]) = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..shared.options.threads.min(TREES) {
            scope.spawn(work);
        }
        work();
    });
    // The first failure is told; a tree that was not begun after it has no outcome.
    let (mut merged, mut missing) = (Vec::with_capacity(TREES), false);
    for outcome in outcomes {
        match outcome.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(outcome) => merged.push(outcome?),
            None => missing = true,
        }
    }
    if missing {
        return Err(Error::Internal("a tree was not merged"));
    }
    Ok(merged)
}

/// Merges the runs of a permutation into its tree, or into that of its pairs.
fn merge_runs<P: Packing>(
    packing: &P,
    (from, into): (Permutation, TreeName),
    runs: Vec<Run<P::Key>>,
    shared: &Shared,
    commit: &Commit<'_>,
    by_graph: Option<&Mutex<GraphFirst>>,
    done: &AtomicU64,
) -> Result<Merged> {
    let mut runs = MergedRuns::new(runs)?;
    let mut keys = Vec::with_capacity(BATCH_QUADS);
    let mut read = |quads: &mut Vec<[TermId; 4]>| {
        shared.check_cancelled()?;
        keys.clear();
        quads.clear();
        runs.read(BATCH_QUADS, &mut keys)?;
        packing.unpack(from, &keys, quads);
        let all = done.fetch_add(quads.len() as u64, Ordering::AcqRel) + quads.len() as u64;
        shared.options.progress.advance(all / TREES as u64);
        Ok(())
    };
    if TreeName::from(from) != into {
        return commit.merge_pairs_of_nodes(into, &mut read);
    }
    if let Some(by_graph) = by_graph.filter(|_| into == TreeName::Psog) {
        // Nobody else takes the lock before the merge is over.
        let mut by_graph = lock(by_graph);
        return commit.merge(from, &mut read, &mut |row, _| by_graph.push(*row));
    }
    commit.merge(from, &mut read, &mut |_, _| Ok(()))
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
