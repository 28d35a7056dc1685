//! `Prepared`: a transaction that is about to commit.

use crate::delta::Probed;
use crate::snapshot::Snapshot;
use crate::transaction::ReadSet;

/// What a transaction wants committed.
pub(crate) struct Prepared {
    /// What it read, without its own changes.
    pub(crate) base: Snapshot,
    /// The net of all its operations, probed against `base`; new terms have provisional ids, those
    /// that they would get on top of `base`.
    pub(crate) changes: Probed,
    /// Provisional id and key of each new term, in the order in which they got them, so that the parts
    /// of a triple term come before it.
    pub(crate) terms: Vec<(stoa_terms::TermId, Vec<u8>)>,
    /// What must not have changed since; `None` for changes that depend on nothing that was read.
    pub(crate) reads: Option<ReadSet>,
    /// What the list of commits says of it.
    pub(crate) message: Option<String>,
}
