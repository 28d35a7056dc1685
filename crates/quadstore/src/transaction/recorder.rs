//! `Recorder`: takes down what is read through the handles of a transaction.
//!
//! # Concurrency
//! Under a lock of its own, held while a batch of reads is taken down. What is read after the transaction has
//! ended is not taken down.

use std::sync::PoisonError;

use stoa_storage::sync::Mutex;
use stoa_terms::{GraphSet, IdRange, Kind, Permutation, TermId};

use super::reads::ReadSet;
use crate::dictionary::KeyRange;

/// See the module header.
pub(crate) struct Recorder(Mutex<Option<ReadSet>>);

impl Recorder {
    pub(super) fn new(reads: ReadSet) -> Self {
        Self(Mutex::new(Some(reads)))
    }

    fn with(&self, take_down: impl FnOnce(&mut ReadSet)) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reads) = &mut *reads {
            take_down(reads);
        }
    }

    /// Ends it; what was read so far.
    pub(super) fn finish(&self) -> Option<ReadSet> {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.take()
    }

    /// See [`ReadSet::name_own`].
    pub(super) fn name_own<'a>(&self, terms: impl DoubleEndedIterator<Item = (TermId, &'a [u8])>) {
        self.with(|reads| reads.name_own(terms));
    }

    /// All quads.
    pub(crate) fn everything(&self) {
        self.with(ReadSet::everything);
    }

    /// The quads whose first terms, in the order of a permutation, are these, and the next one in the
    /// ranges.
    pub(crate) fn rows(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) {
        self.with(|reads| reads.rows(permutation, prefix, ranges, graphs));
    }

    /// The quads whose first terms are those of one of the keys, given position by position.
    pub(crate) fn keys(&self, permutation: Permutation, keys: &[&[TermId]], graphs: &GraphSet) {
        self.with(|reads| reads.keys(permutation, keys, graphs));
    }

    /// That the store does not know the term with a key.
    pub(crate) fn missing(&self, kind: Kind, key: &[u8]) {
        self.with(|reads| reads.missing(kind, key));
    }

    /// That the store does not know the triple term with these parts.
    pub(crate) fn missing_triple(&self, parts: [TermId; 3]) {
        self.with(|reads| reads.missing_triple(parts));
    }

    /// The terms of a kind with keys in a range.
    pub(crate) fn key_range(&self, kind: Kind, range: KeyRange) {
        self.with(|reads| reads.key_range(kind, range));
    }

    /// Whether a graph exists.
    pub(crate) fn graph(&self, graph: TermId, exists: bool) {
        self.with(|reads| reads.graph(graph, exists));
    }

    /// Which named graphs there are, ascending.
    pub(crate) fn graphs(&self, names: &[TermId]) {
        self.with(|reads| reads.graph_names(names));
    }
}
