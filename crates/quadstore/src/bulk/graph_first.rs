//! GPSO and GPOS of a load: from new quads, or from all there are, to the two trees.
//!
//! Quads come in the order of PSOG: as they take effect in it where the trees exist already, else from
//! the whole of it. They are sorted externally into both orders, then merged.
//!
//! # Limits
//! Two sort buffers of `GRAPH_FIRST_SHARE` percent of the memory each (`limits.rs`).

use std::sync::Arc;

use stoa_terms::{Permutation, TermId};

use super::packing::Wide;
use super::quad_sort::{MergedRuns, RunBuilder};
use super::spill::SpillFile;
use super::{Shared, limits};
use crate::permutation::{Intervals, RowFilter, RowReader, Tree};
use crate::quad_store::{Commit, Merged};
use crate::read::{Columns, QuadColumns};
use crate::segment::Row;
use crate::{Error, Result, Snapshot};

/// Quads that are read or merged at a time.
const BATCH_QUADS: usize = 8192;

/// Collects quads for the two permutations.
pub(super) struct GraphFirst {
    by_subject: RunBuilder<Wide>,
    by_object: RunBuilder<Wide>,
}

impl GraphFirst {
    /// Nothing collected yet.
    pub(super) fn new(shared: &Shared) -> Result<Self> {
        let capacity = limits::graph_first_capacity(shared.options.memory_bytes, size_of::<Wide>());
        let file = SpillFile::new(&shared.space)?;
        Ok(Self {
            by_subject: RunBuilder::new(&file, capacity),
            by_object: RunBuilder::new(&file, capacity),
        })
    }

    /// All quads of a PSOG that was just merged.
    pub(super) fn of_tree(shared: &Shared, snapshot: &Snapshot, psog: Arc<Tree>) -> Result<Self> {
        let mut all = Self::new(shared)?;
        let progress = &shared.options.progress;
        progress.phase("sorting by graph", Some(psog.rows()));
        let mut reader = RowReader::new(
            Arc::clone(snapshot.store()),
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
                all.push([p, s, o, g].map(|id| id.to_bits()))?;
            }
            done += out.rows as u64;
            progress.advance(done);
            out.clear();
        }
        Ok(all)
    }

    /// Adds a row of PSOG.
    pub(super) fn push(&mut self, [p, s, o, g]: Row) -> Result<()> {
        self.by_subject.push([g, p, s, o], nothing_derived)?;
        self.by_object.push([g, p, o, s], nothing_derived)
    }

    /// Merges what was collected.
    pub(super) fn merge(self, shared: &Shared, commit: &Commit<'_>) -> Result<[Merged; 2]> {
        let builders = [
            (Permutation::Gpso, self.by_subject),
            (Permutation::Gpos, self.by_object),
        ];
        let [gpso, gpos] = builders.map(|(permutation, builder)| {
            move || {
                let (runs, _) = builder.finish(nothing_derived);
                let mut runs = MergedRuns::new(runs)?;
                let mut keys = Vec::with_capacity(BATCH_QUADS);
                let mut read = |quads: &mut Vec<[TermId; 4]>| {
                    shared.check_cancelled()?;
                    keys.clear();
                    quads.clear();
                    runs.read(BATCH_QUADS, &mut keys)?;
                    quads.extend(keys.iter().map(|key| key.map(TermId::from_bits)));
                    Ok(())
                };
                commit.merge(permutation, &mut read, &mut |_, _| Ok(()))
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
