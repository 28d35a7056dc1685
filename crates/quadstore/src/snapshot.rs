//! `Snapshot`: what one reader sees of the quads; everything is read through it.

use std::sync::Arc;

use stoa_storage::Store;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::read::{Count, GraphEntry, LookupRows, LookupSpec, QuadColumns, ScanSpec};

/// The state of a store at one commit. Cloning it is cheap; it does not change.
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<State>);

/// What the handles of one snapshot share.
pub(crate) struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) dictionary: Arc<Dictionary>,
    pub(crate) commit: u64,
}

impl Snapshot {
    /// The number of the commit that this snapshot shows.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.0.commit
    }

    /// The dictionary of this snapshot.
    pub(crate) fn dictionary(&self) -> &Dictionary {
        &self.0.dictionary
    }

    /// The files below this snapshot.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// Starts a scan.
    pub fn scan(&self, spec: &ScanSpec) -> Result<Scan> {
        let _ = spec;
        Err(Error::Internal("not built yet"))
    }

    /// Prepares look-ups of batches of keys.
    pub fn lookup(&self, spec: &LookupSpec) -> Result<Lookup> {
        let _ = spec;
        Err(Error::Internal("not built yet"))
    }

    /// The number of rows that start with `prefix` (at most four ids) and whose next position lies
    /// in one of `ranges` (ascending, disjoint; empty means all).
    pub fn count(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<Count> {
        let _ = (permutation, prefix, ranges, graphs);
        Err(Error::Internal("not built yet"))
    }

    /// An estimate of how many distinct values the `positions` (1 or 2) after `prefix` take.
    pub fn distinct(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        positions: usize,
    ) -> Result<u64> {
        let _ = (permutation, prefix, positions);
        Err(Error::Internal("not built yet"))
    }

    /// The graphs that hold quads or were created empty, ascending by id.
    pub fn graphs(&self) -> Result<Vec<GraphEntry>> {
        Err(Error::Internal("not built yet"))
    }

    /// The number of quads.
    #[must_use]
    pub fn quads(&self) -> u64 {
        0
    }
}

/// A scan that can be resumed.
pub struct Scan {
    #[expect(dead_code, reason = "not built yet")]
    snapshot: Snapshot,
}

impl Scan {
    /// Clears `out` and fills it with at most `max_rows` further rows, sorted by the permutation.
    /// Returns `false` at the end. There may be fewer rows than asked for, even none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut QuadColumns) -> Result<bool> {
        let _ = (max_rows, out);
        Err(Error::Internal("not built yet"))
    }
}

/// Vectored look-up of batches of keys.
pub struct Lookup {
    #[expect(dead_code, reason = "not built yet")]
    snapshot: Snapshot,
}

impl Lookup {
    /// Takes a batch of keys: one slice of ids for each position of the key, all of one length.
    pub fn start(&mut self, keys: &[&[TermId]]) -> Result<()> {
        let _ = keys;
        Err(Error::Internal("not built yet"))
    }

    /// Clears `out` and fills it with at most `max_rows` further rows, in the order of the sorted
    /// keys. Returns `false` at the end of the batch. There may be fewer rows than asked for, even
    /// none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut LookupRows) -> Result<bool> {
        let _ = (max_rows, out);
        Err(Error::Internal("not built yet"))
    }
}
