//! GPSO and GPOS of a load: from new quads, or from all there are, to the two trees.
//!
//! Quads come in the order of PSOG: as they take effect in it where the trees exist already, else from
//! the whole of it. They are sorted externally into both orders, then merged; so are those that are
//! removed.
//!
//! # Limits
//! Two sort buffers of `GRAPH_FIRST_SHARE` percent of the memory each, and two of `REPLACED_SHARE` percent if
//! quads are removed (`limits.rs`).

use std::sync::Arc;

use stoa_terms::{Permutation, TermId};

use super::packing::Wide;
use super::quad_sort::{MergedRuns, RunBuilder};
use super::replaced::{RemovedRows, merge_both};
use super::spill::SpillFile;
use super::{Shared, limits};
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::quad_store::{Commit, Merged};
use crate::read::{Columns, QuadColumns};
use crate::root::TreeName;
use crate::segment::Row;
use crate::{Error, Result, Snapshot};

/// Quads that are read or merged at a time.
const BATCH_QUADS: usize = 8192;

/// Collects quads for the two permutations.
pub(super) struct GraphFirst {
    added: Sorting,
    /// If any may be removed.
    removed: Option<Sorting>,
}

/// Quads on their way into both orders.
struct Sorting {
    by_subject: RunBuilder<Wide>,
    by_object: RunBuilder<Wide>,
}

impl Sorting {
    fn new(shared: &Shared, capacity: usize) -> Result<Self> {
        let file = SpillFile::new(&shared.space)?;
        Ok(Self {
            by_subject: RunBuilder::new(&file, capacity),
            by_object: RunBuilder::new(&file, capacity),
        })
    }
}

impl GraphFirst {
    /// Nothing collected yet; `removes` says whether quads may be removed.
    pub(super) fn new(shared: &Shared, removes: bool) -> Result<Self> {
        let (memory_bytes, key_bytes) = (shared.options.memory_bytes, size_of::<Wide>());
        let capacity = limits::graph_first_capacity(memory_bytes, key_bytes);
        let removed = removes.then(|| {
            let capacity = limits::replaced_capacity(memory_bytes, key_bytes);
            Sorting::new(shared, capacity)
        });
        Ok(Self {
            added: Sorting::new(shared, capacity)?,
            removed: removed.transpose()?,
        })
    }

    /// All quads of a PSOG that was just merged.
    pub(super) fn of_tree(shared: &Shared, snapshot: &Snapshot, psog: Arc<Tree>) -> Result<Self> {
        let mut all = Self::new(shared, false)?;
        let progress = &shared.options.progress;
        progress.phase("sorting by graph", Some(psog.rows()));
        let mut reader = RowReader::new(
            snapshot.store().reading(TreeName::Psog.structure(), None),
            psog,
            Columns::ALL,
            RowFilter::ALL,
            Intervals::new(&[], &[])?,
        );
        let (mut out, mut done) = (QuadColumns::default(), 0);
        while reader.next(BATCH_QUADS, &mut out, None)? {
            shared.check_cancelled()?;
            let [p, s, o, g] = &out.columns;
            for (((p, s), o), g) in p.iter().zip(s).zip(o).zip(g) {
                all.push([p, s, o, g].map(|id| id.to_bits()), false)?;
            }
            done += out.rows as u64;
            progress.advance(done);
            out.clear();
        }
        Ok(all)
    }

    /// Adds a row of PSOG that is new there, or was `deleted`.
    pub(super) fn push(&mut self, [p, s, o, g]: Row, deleted: bool) -> Result<()> {
        let sorting = match (deleted, &mut self.removed) {
            (false, _) => &mut self.added,
            (true, Some(removed)) => removed,
            (true, None) => return Err(Error::Internal("a deletion of a load that only adds")),
        };
        sorting.by_subject.push([g, p, s, o], nothing_derived)?;
        sorting.by_object.push([g, p, o, s], nothing_derived)
    }

    /// Merges what was collected.
    pub(super) fn merge(self, shared: &Shared, commit: &Commit<'_>) -> Result<[Merged; 2]> {
        let (by_subject, by_object) = match self.removed {
            Some(removed) => (Some(removed.by_subject), Some(removed.by_object)),
            None => (None, None),
        };
        let builders = [
            (Permutation::Gpso, self.added.by_subject, by_subject),
            (Permutation::Gpos, self.added.by_object, by_object),
        ];
        let [gpso, gpos] = builders.map(|(permutation, added, removed)| {
            move || {
                let (runs, _) = added.finish(nothing_derived);
                let mut runs = MergedRuns::new(runs, &mut || shared.check_cancelled())?;
                let mut keys = Vec::with_capacity(BATCH_QUADS);
                let mut read = |quads: &mut Vec<[TermId; 4]>| {
                    shared.check_cancelled()?;
                    keys.clear();
                    quads.clear();
                    runs.read(BATCH_QUADS, &mut keys)?;
                    quads.extend(keys.iter().map(|key| key.map(TermId::from_bits)));
                    Ok(())
                };
                let Some(removed) = removed else {
                    return commit.merge(permutation, &mut read, &mut |_, _| Ok(()));
                };
                let removed =
                    RemovedRows::sorted(&shared.options.cancel, removed.finish(nothing_derived).0)?;
                let tree = permutation.into();
                merge_both(commit, tree, &mut read, removed, &mut |_, _| Ok(()))
            }
        });
        if shared.options.threads < 2 {
            return Ok([gpso()?, gpos()?]);
        }
        std::thread::scope(|scope| {
            let other = scope.spawn(gpos);
            let gpso = gpso();
            let gpos = other.join().unwrap_or(Err(Error::Internal(
                "a thread that merged a permutation ended early",
            )));
            Ok([gpso?, gpos?])
        })
    }
}

/// Neither order follows from the other.
fn nothing_derived(_: &[Wide], _: &mut Vec<Wide>) {}
