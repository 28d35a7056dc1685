//! An update whose changes memory does not hold: gathered in temporary files, merged like a bulk load.
//!
//! ```text
//! operation   removed quads --> sorted runs of each order  -\
//!             added quads   --> a bulk load's writer        -> merged into trees that no root shows yet
//! next one    reads these trees
//! commit      what all of it came to: the difference to the state before, where it is not known already
//! ```
//!
//! Within an operation all removals come before all additions, whatever the order in which they are handed over. Terms
//! that are not known get their ids in the merge, as those of a load do. A graph is cleared by laying a mask over the
//! trees, which are merged with it as by a checkpoint.
//!
//! # Concurrency
//! Holds the quad store's writer lock from the beginning to the commit: nobody commits meanwhile, so what was read
//! still holds at the commit. Readers go on.
//!
//! # Limits
//! While quads are handed over: vocabularies take `TERMS_SHARE` percent of the memory, two sort buffers
//! `UPDATE_REMOVED_SHARE` percent each. Then as a bulk load.
#![expect(
    clippy::indexing_slicing,
    reason = "arrays with one entry a permutation, indexed by its number"
)]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::sync::Mutex;
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use super::change_file::ChangeWriter;
use super::commit::{self, Extras, Wanted, of_load};
use super::packing::{Orders, Packing as _, Whole, Wide};
use super::quad_sort::{Run, RunBuilder};
use super::spill::SpillFile;
use super::{BulkCommit, BulkLoad, BulkOptions, BulkSummary, BulkWriter, LocalTerm, limits};
use crate::delta::{Changes, CheckpointOptions, GraphChange, GraphMask, NewTerm, NewTerms};
use crate::dictionary::triple_parts;
use crate::history::Difference;
use crate::quad_store::{Commit, Derived, Merged, next_commit};
use crate::transaction::ChangeCounts;
use crate::{Error, QuadStore, Result, Snapshot};

/// Changes that are told at a time.
const BATCH_CHANGES: usize = 8192;

/// See the module header. Dropping it leaves the store as it was.
pub struct BulkUpdate<'a> {
    store: &'a QuadStore,
    options: BulkOptions,
    /// What there was before.
    before: Snapshot,
    /// What the archive of the log gets, if there is one.
    changes: Option<Mutex<ChangeWriter>>,
    /// What was wanted last of graphs as such.
    graphs: BTreeMap<TermId, bool>,
    operation: Option<Operation>,
    /// How often trees were merged, and what the last merge changed.
    merges: u64,
    counts: ChangeCounts,
    quads_read: u64,
    terms_new: u64,
    temp_peak_bytes: u64,
    commit: Commit<'a>,
}

impl QuadStore {
    /// Begins an update that may change more than memory holds, once the commits and loads before it are over. No other
    /// commit is made before it is committed or dropped.
    ///
    /// # Errors
    /// If files cannot be read or written; [`Error::Cancelled`].
    pub fn bulk_update(&self, options: BulkOptions) -> Result<BulkUpdate<'_>> {
        let mut commit = commit::begin(self, &options)?;
        commit.keep_freed();
        commit.set_memory(options.memory_bytes);
        let number = next_commit(commit.snapshot())?;
        Ok(BulkUpdate {
            store: self,
            before: commit.snapshot().unlisted(),
            changes: self.0.new_changes(of_load(number))?.map(Mutex::new),
            options,
            graphs: BTreeMap::new(),
            operation: None,
            merges: 0,
            counts: ChangeCounts::default(),
            quads_read: 0,
            terms_new: 0,
            temp_peak_bytes: 0,
            commit,
        })
    }
}

impl BulkUpdate<'_> {
    /// What the operation reads: the state before it. It must not be read any more once the operation has ended.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.commit.snapshot().clone()
    }

    /// The store that it belongs to, which knows nothing of it before the commit.
    #[must_use]
    pub fn store(&self) -> &QuadStore {
        self.store
    }

    /// Drops the changes of the operation.
    pub fn drop_operation(&mut self) {
        self.operation = None;
    }

    /// Adds to the changes of the operation. Ids are those of its snapshot, or private ones of `terms`.
    ///
    /// # Errors
    /// If a temporary file cannot be written, a term cannot be looked up, or the update was cancelled; the update
    /// cannot be committed then.
    pub fn change(&mut self, terms: &NewTerms, changes: &Changes) -> Result<()> {
        if !changes.cleared.is_none() {
            return Err(Error::Internal(
                "graphs are cleared by an operation of their own",
            ));
        }
        let operation = match &mut self.operation {
            Some(operation) => operation,
            none => none.insert(Operation::begin(
                self.store,
                &self.options,
                self.commit.snapshot(),
            )?),
        };
        operation.remove(terms, &changes.removed)?;
        operation.add(terms, changes)
    }

    /// Ends the operation, and removes all quads of some graphs, then makes graphs exist or not, as one of its own.
    ///
    /// # Errors
    /// As [`BulkUpdate::end_operation`].
    pub fn clear(&mut self, graphs: &GraphSet, then: Vec<GraphChange>) -> Result<ChangeCounts> {
        let ended = self.end_operation()?;
        let snapshot = self.commit.snapshot();
        let changes = Changes {
            cleared: GraphMask::from(graphs),
            graphs: then,
            ..Changes::default()
        };
        let mut effective = snapshot.probe(&changes)?.effective();
        snapshot.count_cleared(&mut effective)?;
        if effective.is_empty() {
            return Ok(ended);
        }
        let delta = snapshot.delta_with(&effective)?;
        self.commit.lay(delta);
        let (merged, derived, dictionary) = self.commit.merge_delta(&CheckpointOptions {
            threads: self.options.threads,
            memory_bytes: self.options.memory_bytes,
            cancel: Arc::clone(&self.options.cancel),
        })?;
        let graphs = changes.graphs.iter();
        self.graphs
            .extend(graphs.map(|change| (change.graph, change.created)));
        let counts = ChangeCounts {
            added: 0,
            removed: effective.removed_count(),
        };
        self.go_on(merged, derived, dictionary, counts)?;
        Ok(ChangeCounts {
            added: ended.added,
            removed: ended.removed + counts.removed,
        })
    }

    /// Ends the operation: its changes are merged, and the next one sees them. Tells which of them had an effect.
    ///
    /// # Errors
    /// If files cannot be read or written, or the update was cancelled; the update cannot be committed then.
    pub fn end_operation(&mut self) -> Result<ChangeCounts> {
        let Some(operation) = self.operation.take() else {
            return Ok(ChangeCounts::default());
        };
        let (load, wanted) = operation.finish()?;
        let extras = Extras {
            changes: self.changes.as_ref(),
            again: None,
            wanted: Some(wanted),
        };
        let shared = &*load.shared;
        let built = commit::build_over(
            self.store,
            shared,
            &mut self.commit,
            BulkCommit::default(),
            extras,
        )?;
        self.graphs.extend(built.created);
        self.quads_read += shared.quads_read.load(Ordering::Acquire);
        self.terms_new += built.terms_new;
        self.temp_peak_bytes = self.temp_peak_bytes.max(shared.space.peak_bytes());
        self.commit.hold_blank_nodes(built.next_blank_node)?;
        let first = built.merged.first();
        let counts = first.map(|one| ChangeCounts {
            added: one.inserted,
            removed: one.deleted,
        });
        let counts = counts.unwrap_or_default();
        self.go_on(built.merged, built.derived, built.dictionary, counts)?;
        Ok(counts)
    }

    /// Makes everything visible and durable as one commit. If nothing was to be changed there is none.
    ///
    /// # Errors
    /// As [`BulkUpdate::end_operation`], and if the message is longer than [`BulkCommit::MESSAGE_BYTES_MAX`]; the store
    /// is as it was then.
    pub fn commit(mut self, message: Option<String>) -> Result<BulkSummary> {
        self.end_operation()?;
        BulkCommit::verify_message(message.as_deref())?;
        if self.merges == 0 {
            return Ok(self.summary());
        }
        let counts = match self.changes.is_some() || self.merges > 1 {
            true => self.tell()?,
            false => self.counts,
        };
        if let Some(changes) = self.changes.take() {
            let changes = changes.into_inner().unwrap_or_else(PoisonError::into_inner);
            self.commit.set_changes(changes.finish()?);
        }
        self.check_cancelled()?;
        self.options.progress.phase("committing", None);
        let summary = self.summary();
        self.commit.set_message(message);
        let done = self.commit.finish_built((counts.added, counts.removed))?;
        Ok(BulkSummary {
            quads_new: done.added,
            quads_removed: done.removed,
            commit: done.commit,
            time_us: done.time_us,
            ..summary
        })
    }

    /// What is known before the commit.
    fn summary(&self) -> BulkSummary {
        BulkSummary {
            quads_read: self.quads_read,
            quads_new: 0,
            quads_removed: 0,
            terms_new: self.terms_new,
            commit: self.before.commit(),
            time_us: 0,
            temp_peak_bytes: self.temp_peak_bytes,
        }
    }

    fn check_cancelled(&self) -> Result<()> {
        match self.options.cancel.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Builds on upon trees that were merged, which changed so much.
    fn go_on(
        &mut self,
        merged: Vec<Merged>,
        derived: Derived,
        dictionary: Vec<u8>,
        counts: ChangeCounts,
    ) -> Result<()> {
        self.counts = counts;
        self.merges += 1;
        self.commit.go_on(merged, derived, dictionary)
    }

    /// Counts what all operations together came to, and tells it to the change file, if there is one.
    fn tell(&self) -> Result<ChangeCounts> {
        self.options.progress.phase("counting changes", None);
        let changes = self.changes.as_ref();
        let mut file =
            changes.map(|changes| changes.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(file) = &mut file {
            let graphs: Vec<(TermId, bool)> = self.graphs.iter().map(|(a, b)| (*a, *b)).collect();
            file.graphs(&graphs)?;
        }
        let mut difference = Difference::of(&self.before, self.commit.snapshot().clone())?;
        let (mut counts, mut batch) = (ChangeCounts::default(), Vec::new());
        loop {
            self.check_cancelled()?;
            difference.next(BATCH_CHANGES, &mut batch)?;
            if batch.is_empty() {
                return Ok(counts);
            }
            for change in &batch {
                match change.is_removed {
                    true => counts.removed += 1,
                    false => counts.added += 1,
                }
                if let Some(file) = &mut file {
                    let row = Permutation::Psog.permute(change.quad).map(TermId::to_bits);
                    file.row(&row, change.is_removed)?;
                }
            }
            self.options.progress.advance(counts.added + counts.removed);
        }
    }
}

/// The changes of one operation.
struct Operation {
    load: BulkLoad,
    added: BulkWriter,
    removed: [(Orders, RunBuilder<Wide>); 2],
    is_removing: bool,
    /// Graphs that are to exist only as long as they hold quads.
    uncreated: Vec<TermId>,
    snapshot: Snapshot,
}

impl Operation {
    fn begin(store: &QuadStore, options: &BulkOptions, snapshot: &Snapshot) -> Result<Self> {
        let load = store.bulk_load(options.clone())?;
        let spill = SpillFile::new(&load.shared.space)?;
        let capacity = limits::update_removed_capacity(options.memory_bytes, size_of::<Wide>());
        Ok(Self {
            added: load.writer(),
            load,
            removed: Orders::ALL.map(|order| (order, RunBuilder::new(&spill, capacity))),
            is_removing: false,
            uncreated: Vec::new(),
            snapshot: snapshot.clone(),
        })
    }

    /// Removes quads. One with a term that the store does not know is not there.
    fn remove(&mut self, terms: &NewTerms, quads: &[[TermId; 4]]) -> Result<()> {
        if quads.is_empty() {
            return Ok(());
        }
        self.load.shared.check_cancelled()?;
        let known = Known::of(&self.snapshot, terms, quads)?;
        for quad in quads {
            let [Some(s), Some(p), Some(o), Some(g)] = quad.map(|id| known.id(id)) else {
                continue;
            };
            self.is_removing = true;
            for (order, builder) in &mut self.removed {
                let key = Whole.pack(order.node_first(), [s, p, o, g]);
                builder.push(key, |from, to| Whole.derive(*order, from, to))?;
            }
        }
        Ok(())
    }

    /// Adds quads, and takes down what is wanted of graphs as such.
    fn add(&mut self, terms: &NewTerms, changes: &Changes) -> Result<()> {
        let mut writing = Writing {
            writer: &mut self.added,
            snapshot: &self.snapshot,
            store: &self.load.store,
            terms,
            blank_nodes: HashMap::default(),
            locals: HashMap::default(),
            epoch: 0,
        };
        for quad in &changes.added {
            writing.begin();
            let [s, p, o, g] = quad.map(|id| writing.local(id));
            writing.writer.quad(s?, p?, o?, g?)?;
        }
        for change in &changes.graphs {
            if change.created {
                writing.begin();
                let graph = writing.local(change.graph)?;
                writing.writer.create_graph(graph)?;
            } else if change.graph.kind() != Kind::Local {
                self.uncreated.push(change.graph);
            }
        }
        Ok(())
    }

    /// The load of what is added, and what else is wanted.
    fn finish(self) -> Result<(BulkLoad, Wanted)> {
        self.added.finish()?;
        let mut removed: [Vec<Run<Wide>>; 4] = [const { Vec::new() }; 4];
        for (order, builder) in self.removed {
            let (runs, derived) = builder.finish(|from, to| Whole.derive(order, from, to));
            removed[order.node_first() as usize] = runs;
            removed[order.predicate_first() as usize] = derived;
        }
        let wanted = Wanted {
            removed: self.is_removing.then_some(removed),
            uncreated: self.uncreated,
        };
        Ok((self.load, wanted))
    }
}

/// The ids of private terms that the store knows.
struct Known<'a> {
    snapshot: &'a Snapshot,
    terms: &'a NewTerms,
    ids: HashMap<TermId, Option<TermId>, RandomState>,
}

impl<'a> Known<'a> {
    /// Those that quads name.
    fn of(snapshot: &'a Snapshot, terms: &'a NewTerms, quads: &[[TermId; 4]]) -> Result<Self> {
        let mut known = Self {
            snapshot,
            terms,
            ids: HashMap::default(),
        };
        let mut private: Vec<TermId> = quads.iter().flatten().copied().filter(is_private).collect();
        private.sort_unstable();
        private.dedup();
        let (mut keyed, mut keys) = (Vec::new(), Vec::new());
        for id in &private {
            if let Some(NewTerm::Keyed(kind, key)) = terms.get(*id)
                && *kind != Kind::Triple
            {
                keyed.push(*id);
                keys.push((*kind, &**key));
            }
        }
        known
            .ids
            .extend(keyed.into_iter().zip(snapshot.key_ids(&keys)?));
        for id in private {
            known.find(id)?;
        }
        Ok(known)
    }

    /// Looks a term up, as deep as triple terms are nested.
    fn find(&mut self, id: TermId) -> Result<Option<TermId>> {
        if !is_private(&id) {
            return Ok(Some(id));
        }
        if let Some(known) = self.ids.get(&id) {
            return Ok(*known);
        }
        let found = match self.terms.get(id) {
            Some(NewTerm::Keyed(Kind::Triple, key)) => {
                let [s, p, o] = triple_parts(key).unwrap_or_default();
                match (self.find(s)?, self.find(p)?, self.find(o)?) {
                    (Some(s), Some(p), Some(o)) => self.snapshot.triple_id([s, p, o])?,
                    _ => None,
                }
            }
            Some(NewTerm::Keyed(kind, key)) => {
                let found = self.snapshot.key_ids(&[(*kind, key)])?;
                found.into_iter().next().flatten()
            }
            Some(NewTerm::Blank | NewTerm::Numbered(_)) => None,
            None => return Err(UNKNOWN),
        };
        self.ids.insert(id, found);
        Ok(found)
    }

    /// The id of a term that was found.
    fn id(&self, id: TermId) -> Option<TermId> {
        match is_private(&id) {
            true => self.ids.get(&id).copied().flatten(),
            false => Some(id),
        }
    }
}

/// Terms on their way to the writer of a load.
struct Writing<'a> {
    writer: &'a mut BulkWriter,
    snapshot: &'a Snapshot,
    store: &'a QuadStore,
    terms: &'a NewTerms,
    blank_nodes: HashMap<TermId, TermId, RandomState>,
    /// What terms are called in an epoch of the writer.
    locals: HashMap<TermId, LocalTerm, RandomState>,
    epoch: u64,
}

impl Writing<'_> {
    /// Forgets what is void; before each quad.
    fn begin(&mut self) {
        let epoch = self.writer.epoch();
        if self.epoch != epoch {
            self.locals.clear();
            self.epoch = epoch;
        }
    }

    fn local(&mut self, id: TermId) -> Result<LocalTerm> {
        if !is_private(&id) {
            return Ok(BulkWriter::inline(id));
        }
        if let Some(known) = self.locals.get(&id) {
            return Ok(*known);
        }
        let local = match self.terms.get(id) {
            Some(NewTerm::Keyed(Kind::Triple, key)) => {
                let parts = triple_parts(key).unwrap_or_default();
                self.triple(parts)?
            }
            Some(NewTerm::Keyed(kind, key)) => self.writer.intern(*kind, key)?,
            Some(NewTerm::Numbered(number)) => self.writer.blank(0, &number.to_be_bytes())?,
            Some(NewTerm::Blank) => {
                let (store, node) = (self.store, self.blank_nodes.entry(id));
                BulkWriter::inline(*node.or_insert_with(|| store.blank_node()))
            }
            None => return Err(UNKNOWN),
        };
        self.locals.insert(id, local);
        Ok(local)
    }

    /// A triple term. Triple terms in it that the store knows are taken apart: the merge tells two new ones apart by how
    /// deep they go.
    fn triple(&mut self, parts: [TermId; 3]) -> Result<LocalTerm> {
        let [s, p, o] = parts.map(|part| match part.kind() {
            Kind::Triple => {
                let parts = self.snapshot.triple(part)?;
                self.triple(parts)
            }
            _ => self.local(part),
        });
        self.writer.triple(s?, p?, o?)
    }
}

fn is_private(id: &TermId) -> bool {
    id.kind() == Kind::Local
}

const UNKNOWN: Error = Error::Internal("a private id of other terms");
