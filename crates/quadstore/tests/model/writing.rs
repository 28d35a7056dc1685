//! Commits of quads as the model names them.
#![expect(
    clippy::indexing_slicing,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oxrdf::Term;
use stoa_quadstore::{
    Changes, CheckpointOptions, Committed, NewTerms, QuadStore, Result, Snapshot,
};
use stoa_terms::TermId;

use super::model::{ModelQuad, ModelTerm};
use super::terms::term;

/// Checkpoints of a test.
pub(crate) fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions {
        threads: 1,
        memory_bytes: 64 << 20,
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// Commits quads, as they are named, on top of what was read.
pub(crate) fn write(
    store: &QuadStore,
    read: &Snapshot,
    removed: &[ModelQuad],
    added: &[ModelQuad],
) -> Result<Committed> {
    let mut new = NewTerms::default();
    let models: BTreeSet<&ModelTerm> = removed.iter().chain(added).flatten().collect();
    let models: Vec<_> = models
        .into_iter()
        .filter(|term| **term != ModelTerm::DefaultGraph)
        .collect();
    let terms: Vec<Term> = models.iter().copied().map(term).collect();
    let found = new.ids(read, &terms)?;
    let mut ids: BTreeMap<_, _> = models.into_iter().zip(found).collect();
    ids.insert(&ModelTerm::DefaultGraph, TermId::DEFAULT_GRAPH);
    let quads = |quads: &[ModelQuad]| {
        let quad = |quad: &ModelQuad| quad.each_ref().map(|term| ids[term]);
        quads.iter().map(quad).collect()
    };
    let changes = Changes {
        removed: quads(removed),
        added: quads(added),
        graphs: Vec::new(),
    };
    store.write(read, &new, &changes, Some("a message"))
}
