//! What was committed beside a compaction, carried over into the new numbering.
//!
//! ```text
//! rounds        the difference between what was carried and the newest snapshot, quads and graphs, is
//!               merged into the new trees; commits and checkpoints go on, until a round finds little
//! last round    the same without other checkpoints; the root of the switch will hold that commit
//! telling       where the log has an archive: the new trees into a change file; commits go on
//! records       the commits after it are translated one by one, appended to the log once more with the
//!               new ids, and make a delta over the new trees; commits go on
//! switch        without commits: the last records, the log synced, the root written, the new snapshot shown
//! ```
//!
//! Terms are carried by what they are: their keys are read by the old ids, and looked up in the new dictionary or
//! added to it. Blank nodes and inline values have the same ids in both.
//!
//! # Invariants
//! 1. The root of the switch names a commit and the position in the log behind it, as any root does. The
//!    commits behind it stand there with the ids of the old numbering and, later, with those of the new one:
//!    each root finds its own ([`crate::commit::Place`]), so that a crash before the root is durable leaves the
//!    old store with all commits, and one after it the new store with all commits (tests/compact.rs).
//! 2. No checkpoint and no bulk load comes between the last round and the switch: every commit between has
//!    a record.
//!
//! # Limits
//! What is carried at a time takes a part of the memory; where the budget does not allow for it, half of it is
//! tried. The delta of the last round and of the records is there twice until the switch.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::{ChangeFileSummary, ChangesOf, ExtentId, LogMark, Lsn, NewChangeFile};
use stoa_terms::{Kind, Permutation, TermId};

use super::feed::{BATCH_TERMS, is_stored};
use super::tell::tell;
use super::whole_extents;
use crate::bulk::BulkOptions;
use crate::commit::{PAYLOAD_BYTES_KEPT, Running, is_of_root, record};
use crate::delta::{CheckpointOptions, Cleared, Delta, EffectiveChanges, GraphChange, NewTerms};
use crate::error::{Error, Result};
use crate::history::{Difference, QuadChange};
use crate::quad_store::{Commit, QuadStore, Switch};
use crate::read::TermTexts;
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// So few changes are not worth another round.
const CHANGES_FEW: u64 = 4096;
/// After so many rounds the rest is carried, however much that is: more comes as fast as it is carried.
const ROUNDS_MAX: usize = 6;
/// So few commits are translated while others wait.
const COMMITS_FEW: u64 = 8;
/// Memory for each change that is carried, in bytes; its terms come on top.
const CHANGE_BYTES: u64 = 256;
/// Changes that are carried at a time.
const CHANGES_AT_ONCE: std::ops::RangeInclusive<u64> = 1024..=1 << 20;

/// A change file, and what the log is to tell of it.
type Told = (NewChangeFile, ChangeFileSummary);

/// A compaction whose trees hold what an earlier snapshot shows.
pub(super) struct Carry<'a> {
    store: &'a QuadStore,
    commit: Commit<'a>,
    /// What the new trees hold, as the store shows it.
    old: Snapshot,
    checkpoint: CheckpointOptions,
    options: &'a BulkOptions,
    at_once: usize,
    /// Whether others wait for the end; behind `commit`, which is to be dropped before.
    running: Option<Running<'a>>,
}

impl<'a> Carry<'a> {
    pub(super) fn new(
        store: &'a QuadStore,
        commit: Commit<'a>,
        old: Snapshot,
        checkpoint: CheckpointOptions,
        options: &'a BulkOptions,
    ) -> Self {
        let at_once = options.memory_bytes / 8 / CHANGE_BYTES;
        let at_once = at_once.clamp(*CHANGES_AT_ONCE.start(), *CHANGES_AT_ONCE.end());
        Self {
            store,
            commit,
            old,
            checkpoint,
            options,
            at_once: usize::try_from(at_once).unwrap_or(usize::MAX),
            running: None,
        }
    }

    /// Carries over what is to be carried, and puts the new trees in the place of the old ones; returns
    /// the last commit that they show.
    pub(super) fn finish(mut self) -> Result<u64> {
        for _ in 0..ROUNDS_MAX {
            self.options.progress.phase("carrying commits", None);
            let newest = self.store.0.newest().unlisted();
            if self.carry_to(newest)? <= CHANGES_FEW {
                break;
            }
        }
        // Most of it, so that little is left when others wait.
        self.commit.checkpoint().sync_data()?;
        let (running, newest, mark) = self.keep_others_out()?;
        // Until what was written is given back, if this fails.
        self.running = Some(running);
        self.carry_to(newest)?;
        self.commit.hold_blank_nodes(self.old.next_blank_node())?;
        let replaced = whole_extents(&self.old.0.base)?;
        self.commit.checkpoint().sync_data()?;
        let changes = self.tell()?;
        let (rest, commit) = (self.rest(mark), self.old.commit());
        let Self {
            store,
            commit: over,
            options,
            running: _running,
            ..
        } = self;
        options.progress.phase("carrying records", None);
        rest.finish(store, over, (commit, mark), (replaced, changes))
    }

    /// Lets no other checkpoint begin from now on; gives the newest snapshot, over the root that will be
    /// replaced, and where the log goes on behind it.
    fn keep_others_out(&mut self) -> Result<(Running<'a>, Snapshot, LogMark)> {
        let inner = &*self.store.0;
        loop {
            inner.check_writable()?;
            if self.options.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            {
                let _committing = inner.committing();
                let (newest, mark) = inner.newest_and_mark();
                match self.commit.keep_others_out() {
                    Ok(())
                        if newest.0.base.root.checkpoint
                            == self.store.store().root().checkpoint =>
                    {
                        return Ok((inner.keeper.running(), newest.unlisted(), mark));
                    }
                    // The root of another one is there, and the snapshot of it not yet.
                    Ok(()) if inner.keeper.is_running() => self.commit.let_others_in(),
                    Ok(()) => return Err(Error::Internal("a root that was not taken into use")),
                    Err(stoa_storage::Error::CheckpointRunning) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            inner.keeper.wait_for_checkpoint();
        }
    }

    /// Merges what leads from `old` to `newest` into the new trees; returns how many changes these are.
    fn carry_to(&mut self, newest: Snapshot) -> Result<u64> {
        let mut graphs = graph_changes(&self.old, &newest)?;
        let mut difference = Difference::of(&self.old, newest.clone())?;
        let (mut carried, mut changes) = (graphs.len() as u64, Vec::new());
        loop {
            difference.next(self.at_once, &mut changes)?;
            if changes.is_empty() && graphs.is_empty() {
                break;
            }
            carried += changes.len() as u64;
            self.merge(&newest, &changes, &std::mem::take(&mut graphs))?;
        }
        self.old = newest;
        Ok(carried)
    }

    /// Merges changes into the new trees, whose terms `newest` knows; by halves if they take too much memory.
    fn merge(
        &mut self,
        newest: &Snapshot,
        changes: &[QuadChange],
        graphs: &[GraphChange],
    ) -> Result<()> {
        match self.delta(newest, changes, graphs) {
            Err(Error::Storage(stoa_storage::Error::Memory(_))) if changes.len() > 1 => {
                let (one, two) = changes.split_at(changes.len() / 2);
                self.merge(newest, one, graphs)?;
                self.merge(newest, two, &[])
            }
            delta => {
                self.commit.lay(delta?);
                let (merged, derived, dictionary) = self.commit.merge_delta(&self.checkpoint)?;
                self.commit.go_on(merged, derived, dictionary)
            }
        }
    }

    /// The delta over the new trees that changes make.
    fn delta(
        &self,
        newest: &Snapshot,
        changes: &[QuadChange],
        graphs: &[GraphChange],
    ) -> Result<Delta> {
        let rows = |is_removed: bool| -> Vec<Row> {
            let rows = changes
                .iter()
                .filter(|change| change.is_removed == is_removed);
            rows.map(|change| Permutation::Psog.permute(change.quad).map(TermId::to_bits))
                .collect()
        };
        let (added, removed) = (rows(false), rows(true));
        let over = self.commit.snapshot();
        let nothing = Cleared::default();
        let changes = translate(newest, over, [&added, &removed], graphs, (&nothing, 0))?;
        over.delta_with(&changes)
    }

    /// Tells the archive of the log, if there is one, what the new trees hold.
    fn tell(&self) -> Result<Option<Told>> {
        let new = self.commit.snapshot();
        let file = self.store.0.new_changes(ChangesOf {
            commit: self.old.commit(),
            numbering: Some(new.numbering()),
        })?;
        let Some(file) = file else { return Ok(None) };
        self.options.progress.phase("writing for the archive", None);
        tell(new, file, &self.options.cancel)
    }

    fn rest(&self, mark: LogMark) -> Rest {
        Rest {
            new: self
                .commit
                .snapshot()
                .with_delta(Delta::default(), self.old.commit()),
            position: mark.position,
            end: mark,
        }
    }
}

/// The commits behind the root of the switch.
struct Rest {
    /// The new trees, and a delta that those of them make which were translated.
    new: Snapshot,
    /// Behind the last record that was read.
    position: Lsn,
    /// Behind the last one that was appended.
    end: LogMark,
}

impl Rest {
    /// Translates all that is left, and puts the new trees in the place of the old ones. They hold the commit
    /// that is given, behind which the log goes on at the mark.
    fn finish(
        mut self,
        store: &QuadStore,
        over: Commit<'_>,
        (commit, mark): (u64, LogMark),
        (replaced, changes): (Vec<(ExtentId, u64)>, Option<Told>),
    ) -> Result<u64> {
        for _ in 0..ROUNDS_MAX {
            if self.translate(store)? <= COMMITS_FEW {
                break;
            }
        }
        let committing = store.0.committing();
        self.translate(store)?;
        let newest = store.0.mark();
        let end = if newest.position < self.end.position {
            self.end
        } else {
            newest
        };
        let last = self.new.commit();
        over.switch(
            committing,
            Switch {
                commit,
                mark,
                replaced,
                changes,
                delta: self.new.delta().clone(),
                last,
                end,
            },
        )?;
        Ok(last)
    }

    /// Translates the commits up to the newest one; returns how many.
    fn translate(&mut self, store: &QuadStore) -> Result<u64> {
        let inner = &*store.0;
        let (newest, mark) = inner.newest_and_mark();
        let before = self.new.commit();
        if newest.commit() == before {
            return Ok(0);
        }
        inner.log()?.sync_to(mark.position)?;
        let mut records = inner.records(self.position)?;
        let mut payload = Vec::new();
        while self.new.commit() < newest.commit()
            && let Some(found) = records.next()?
        {
            self.position = found.mark().position;
            if is_of_root(found.kind) {
                continue;
            }
            let _room = inner.read_payload(&mut records, &found, &mut payload)?;
            let decoded = record::decode(found.kind, &payload);
            let decoded = decoded.ok_or(Error::Internal("a record that cannot be read again"))?;
            if decoded.head.numbering != newest.numbering() {
                // One of those that were appended here.
                continue;
            }
            if found.commit != self.new.commit() + 1 {
                return Err(Error::Internal(
                    "a commit without a record beside a compaction",
                ));
            }
            self.append(store, &newest, &decoded, found.commit)?;
            if payload.capacity() > PAYLOAD_BYTES_KEPT {
                payload = Vec::new();
            }
        }
        if self.new.commit() < newest.commit() {
            return Err(Error::Internal("a log that ends before a commit"));
        }
        Ok(self.new.commit() - before)
    }

    /// Appends a commit to the log once more with the new ids, and lays it over the new trees.
    fn append(
        &mut self,
        store: &QuadStore,
        newest: &Snapshot,
        told: &record::Record,
        commit: u64,
    ) -> Result<()> {
        let inner = &*store.0;
        let graphs: Vec<GraphChange> = told.changes.graphs().collect();
        let rows = [told.changes.added_rows(), told.changes.removed_rows()];
        let next_blank_node = told.changes.next_blank_node();
        let cleared = (told.changes.clearing(), next_blank_node);
        let changes = translate(newest, &self.new, rows, &graphs, cleared)?;
        let delta = self.new.delta_with(&changes)?;
        let room = inner.budget().try_reserve(record::bytes_max(&changes));
        let _room = room.map_err(stoa_storage::Error::from)?;
        let message = told.head.message.as_deref();
        let payload = record::encode(&changes, message, self.new.numbering());
        let record = record::of_commit(commit, &changes, &payload);
        self.end = inner.log()?.append(&[record], inner.now())?.mark;
        self.new = self.new.with_delta(delta, commit);
        Ok(())
    }
}

/// The graphs that exist though empty in one of two snapshots only, as what leads from one to the other.
fn graph_changes(old: &Snapshot, new: &Snapshot) -> Result<Vec<GraphChange>> {
    let named = |snapshot: &Snapshot| snapshot.delta().graphs().into_iter();
    let mut graphs: Vec<TermId> = named(old)
        .chain(named(new))
        .filter(|change| change.created.is_some())
        .map(|change| TermId::from_bits(change.graph))
        .collect();
    if old.0.base.root.checkpoint != new.0.base.root.checkpoint {
        for snapshot in [old.checkpointed(), new.checkpointed()] {
            graphs.extend(snapshot.graphs()?.into_iter().map(|entry| entry.graph));
        }
    }
    graphs.sort_unstable();
    graphs.dedup();
    let mut changes = Vec::new();
    for graph in graphs {
        let created = new.is_created(graph)?;
        if graph != TermId::DEFAULT_GRAPH && created != old.is_created(graph)? {
            changes.push(GraphChange { graph, created });
        }
    }
    Ok(changes)
}

/// Changes whose terms are those of `from`, with the ids that `to` has for them or that new ones get there.
/// Rows are in PSOG; those that are added come first.
fn translate(
    from: &Snapshot,
    to: &Snapshot,
    rows: [&[Row]; 2],
    graphs: &[GraphChange],
    (cleared, next_blank_node): (&Cleared, u64),
) -> Result<EffectiveChanges> {
    let mut translation = Translation {
        from,
        to,
        known: HashMap::default(),
        new: NewTerms::default(),
    };
    let named = graphs.iter().map(|change| change.graph);
    let named = named.chain(cleared.graphs.listed().iter().copied());
    let ids = rows.iter().flat_map(|rows| rows.as_flattened());
    let ids = ids.copied().map(TermId::from_bits).chain(named);
    translation.learn(ids.collect())?;
    let Translation { known, new, .. } = translation;
    let resolved = new.resolve(to, to)?;
    let id = |id: TermId| resolved.id(known.get(&id).copied().unwrap_or(id));
    let rows = rows.map(|rows| {
        let rows = rows.iter();
        let rows = rows.map(|row| row.map(|bits| id(TermId::from_bits(bits)).to_bits()));
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable();
        rows
    });
    let graphs = graphs.iter().map(|change| GraphChange {
        graph: id(change.graph),
        ..*change
    });
    let graphs: Vec<GraphChange> = graphs.collect();
    let [added, removed] = rows;
    let masked = cleared.graphs.renumbered(id);
    let cleared = Cleared {
        hidden: to.hidden_by(&masked)?,
        graphs: masked,
        ..cleared.clone()
    };
    let terms = resolved.into_new();
    let changes = EffectiveChanges::of_rows(added, removed, &graphs, terms, next_blank_node);
    let changes = changes.ok_or(Error::Internal("changes that two terms become one in"))?;
    Ok(changes.after_clearing(cleared))
}

/// Ids of one numbering and those of another.
struct Translation<'a> {
    from: &'a Snapshot,
    to: &'a Snapshot,
    /// The id in `to`, or the private one of a new term.
    known: HashMap<TermId, TermId, RandomState>,
    new: NewTerms,
}

impl Translation<'_> {
    fn id(&self, id: TermId) -> TermId {
        self.known.get(&id).copied().unwrap_or(id)
    }

    /// Finds the terms of ids, in which there may be others and repeats.
    fn learn(&mut self, mut ids: Vec<TermId>) -> Result<()> {
        ids.retain(|id| is_stored(*id) && !self.known.contains_key(id));
        ids.sort_unstable();
        ids.dedup();
        let triples = ids.extract_if(.., |id| id.kind() == Kind::Triple);
        let triples: Vec<TermId> = triples.collect();
        let mut texts = TermTexts::default();
        for ids in ids.chunks(BATCH_TERMS) {
            texts.clear();
            self.from.texts(ids, &mut texts)?;
            let keys = ids.iter().enumerate();
            let keys: Vec<(Kind, &[u8])> = keys
                .map(|(index, id)| (id.kind(), texts.get(index)))
                .collect();
            let found = self.to.key_ids(&keys)?;
            for ((id, (kind, key)), found) in ids.iter().zip(&keys).zip(found) {
                let other = match found {
                    Some(other) => other,
                    None => self.new.intern(*kind, key)?,
                };
                self.known.insert(*id, other);
            }
        }
        if triples.is_empty() {
            return Ok(());
        }
        let parts = self.from.triples(&triples)?;
        // Goes as deep as triple terms are nested.
        self.learn(parts.as_flattened().to_vec())?;
        for (id, parts) in triples.iter().zip(parts) {
            let parts = parts.map(|part| self.id(part));
            let is_known = parts.iter().all(|part| part.kind() != Kind::Local);
            let found = match is_known {
                true => self.to.triple_id(parts)?,
                false => None,
            };
            let other = match found {
                Some(other) => other,
                None => self.new.triple(parts)?,
            };
            self.known.insert(*id, other);
        }
        Ok(())
    }
}
