//! Compaction: all quads and terms written anew, densely, and nothing else kept.
//!
//! The quads of a checkpoint are read in one of its orders, their terms by batches from the dictionary, and
//! given to a bulk load that begins with nothing (`feed`). So terms that no quad names are left out, ids are
//! given anew and ascend with the terms, and every segment is full. Blank nodes keep their numbers, and graphs
//! that exist though empty do so. What was committed meanwhile is carried over (`carry`). Then one checkpoint
//! puts the new trees and the new dictionary in the place of the old ones; until then everything is as it was.
//! It is no commit: the store holds what it held, under another numbering of its terms.
//!
//! The new extents are written behind the old ones. Once nobody reads these, a second pass writes
//! everything once more to the front, and the files become as short as what they hold. Where earlier commits
//! are kept the old extents are theirs, and there is one pass.
//!
//! # Concurrency
//! Readers go on, with the old ids until they take another snapshot. Commits and checkpoints go on beside it;
//! at the end commits wait for a moment (`carry`). Where the log has an archive, a change file tells what was
//! written (`tell`). A transaction that began before that is told to begin anew:
//! the ids that it knows are others now. One compaction at a time; others wait.
//!
//! # Limits
//! Memory as a bulk load, of which a quarter is left for the local terms of known ids.

mod carry;
mod feed;
mod tell;

use std::sync::Arc;

use stoa_storage::{ChangeFileReader, ExtentId, LogMark};

use crate::backup::extents;
use crate::bulk::{self, BulkOptions};
use crate::commit::LoadRecord;
use crate::delta::{CheckpointOptions, Delta};
use crate::error::Result;
use crate::quad_store::{QuadStore, Switch};
use crate::snapshot::Base;
use crate::sync::lock;
use carry::Carry;
use feed::feed;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CompactSummary {
    /// The number of the last commit that was made before it was over.
    pub commit: u64,
    /// The quads of the store.
    pub quads: u64,
    /// Terms before and after, those that are not in the dictionary yet included.
    pub terms: [u64; 2],
    /// Bytes of the data files before and after.
    pub data_bytes: [u64; 2],
    /// Passes that were made: 1 if somebody reads the old extents, or earlier commits are kept, so that the
    /// files stay long.
    pub passes: u32,
}

impl QuadStore {
    /// Writes everything anew, densely, without terms that no quad names; see the module header.
    ///
    /// # Errors
    /// If files cannot be read or written, the memory budget does not allow for what is committed meanwhile, or
    /// the compaction was cancelled: nothing is changed then, but that a first pass may have been made.
    pub fn compact(&self, options: &BulkOptions) -> Result<CompactSummary> {
        let terms = |info: &crate::Info| {
            let written = info.dictionary.iter().map(|(_, terms, _)| terms);
            written.sum::<u64>() + info.delta.terms
        };
        let _alone = lock(&self.0.compacting);
        let before = self.info()?;
        let mut summary = CompactSummary::default();
        loop {
            summary.commit = self.compact_once(options)?;
            summary.passes += 1;
            let store = self.store();
            store.reclaim();
            let is_free = store.free_bytes() > store.data_bytes() / 4;
            let is_read = store.held_back_bytes() > 0 || !store.retained().is_empty();
            if summary.passes == 2 || is_read || !is_free {
                break;
            }
        }
        let after = self.info()?;
        summary.quads = after.quads;
        summary.terms = [terms(&before), terms(&after)];
        summary.data_bytes = [before.data_bytes, after.data_bytes];
        Ok(summary)
    }

    fn compact_once(&self, options: &BulkOptions) -> Result<u64> {
        let checkpoint = CheckpointOptions {
            threads: options.threads,
            memory_bytes: options.memory_bytes,
            cancel: Arc::clone(&options.cancel),
        };
        // What it does not hold is carried over quad by quad.
        self.checkpoint_after_others(&checkpoint)?;
        let old = self.0.newest().checkpointed().unlisted();
        let mut commit = self.begin_compaction(&old)?;
        let load = self.bulk_load(BulkOptions {
            memory_bytes: options.memory_bytes - options.memory_bytes / 4,
            scheme: None,
            ..options.clone()
        })?;
        feed(&old, &load)?;
        bulk::build_over(self, &load, &mut commit)?;
        drop(load);
        Carry::new(self, commit, old, checkpoint, options).finish()
    }

    /// Puts what the change file of a compaction tells in the place of what the store holds, which is the same under
    /// other ids: its commits end behind `mark`. For a store that is being restored.
    ///
    /// # Errors
    /// If files cannot be read or written, or the file tells something else.
    pub(crate) fn compact_again(
        &self,
        file: ChangeFileReader,
        told: &LoadRecord,
        mark: LogMark,
        options: BulkOptions,
    ) -> Result<()> {
        let old = self.0.newest().unlisted();
        let mut over = self.begin_compaction(&old)?;
        let expected = told.head.numbering;
        let found = over.snapshot().numbering();
        if found != expected {
            let expected = format!("numbering {expected} after a compaction");
            return Err(file.damaged(expected, format!("{found}")).into());
        }
        bulk::build_again(self, file, told, &mut over, options)?;
        over.hold_blank_nodes(told.next_blank_node)?;
        over.keep_others_out()?;
        let commit = old.commit();
        let switch = Switch {
            commit,
            mark,
            replaced: whole_extents(&old.0.base)?,
            changes: None,
            delta: Delta::default(),
            last: commit,
            end: mark,
        };
        over.switch(self.0.committing(), switch)
    }
}

/// The extents below a root, each with its length in bytes.
fn whole_extents(base: &Base) -> Result<Vec<(ExtentId, u64)>> {
    let mut all = extents(base)?;
    all.sort_unstable_by_key(|extent| extent.part.extent);
    let of_one = all.chunk_by(|one, other| one.part.extent == other.part.extent);
    let lengths = of_one.filter_map(|parts| {
        let ends = parts.iter().map(|part| {
            let end = u64::from(part.part.offset) + u64::from(part.part.length);
            end.max(part.bytes.into())
        });
        Some((parts.first()?.part.extent, ends.max()?))
    });
    Ok(lengths.collect())
}
