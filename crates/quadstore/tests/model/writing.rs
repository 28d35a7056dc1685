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
    Changes, CheckpointOptions, CommitOptions, Committed, NewTerms, QuadStore, Result, Snapshot,
    TransactionOptions,
};
use stoa_terms::{GraphSet, TermId};

use super::model::{Model, ModelQuad, ModelTerm, Random};
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
    write_as(store, read, (removed, added), "a message")
}

/// The same with a message.
pub(crate) fn write_as(
    store: &QuadStore,
    read: &Snapshot,
    (removed, added): (&[ModelQuad], &[ModelQuad]),
    message: &str,
) -> Result<Committed> {
    let (new, changes) = changes(read, removed, added)?;
    store.write(read, &new, &changes, Some(message))
}

/// Changes of quads, as they are named, with the ids of what was read.
pub(crate) fn changes(
    read: &Snapshot,
    removed: &[ModelQuad],
    added: &[ModelQuad],
) -> Result<(NewTerms, Changes)> {
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
        ..Changes::default()
    };
    Ok((new, changes))
}

/// The graphs that a clearing means.
#[derive(Clone, Debug)]
pub(crate) enum Clearing {
    Some(Vec<ModelTerm>),
    AllBut(Vec<ModelTerm>),
}

impl Clearing {
    /// One of a graph that there is, of named ones, or of all.
    pub(crate) fn of(model: &Model, random: &mut Random) -> Self {
        let graphs: BTreeSet<&ModelTerm> = model.iter().map(|[.., graph]| graph).collect();
        let some = graphs.iter().filter(|_| random.below(3) == 0);
        let some: Vec<ModelTerm> = some.map(|graph| (*graph).clone()).collect();
        match random.below(6) {
            0 => Self::AllBut(Vec::new()),
            1 => Self::AllBut(vec![ModelTerm::DefaultGraph]),
            2 => Self::AllBut(some),
            3 => Self::Some(vec![ModelTerm::DefaultGraph]),
            _ => Self::Some(some),
        }
    }

    pub(crate) fn clears(&self, [.., graph]: &ModelQuad) -> bool {
        match self {
            Self::Some(graphs) => graphs.contains(graph),
            Self::AllBut(graphs) => !graphs.contains(graph),
        }
    }

    /// The same for a store. Graphs that it does not know hold nothing.
    pub(crate) fn graph_set(&self, read: &Snapshot) -> Result<GraphSet> {
        let ids = |graphs: &[ModelTerm]| {
            let mut ids = Vec::new();
            for graph in graphs {
                match graph {
                    ModelTerm::DefaultGraph => ids.push(TermId::DEFAULT_GRAPH),
                    graph => ids.extend(read.term_ids(&[term(graph)])?.into_iter().flatten()),
                }
            }
            ids.sort_unstable();
            Ok::<_, stoa_quadstore::Error>(ids)
        };
        Ok(match self {
            Self::Some(graphs) => GraphSet::Some(ids(graphs)?),
            Self::AllBut(graphs) => GraphSet::AllBut(ids(graphs)?),
        })
    }
}

/// Commits that graphs are cleared and then quads are added, which are told in this order.
pub(crate) fn clear(
    store: &QuadStore,
    clearing: &Clearing,
    added: &[ModelQuad],
) -> Result<Committed> {
    let mut transaction = store.begin(TransactionOptions::default())?;
    let graphs = clearing.graph_set(&transaction.snapshot())?;
    transaction.clear(&graphs, Vec::new(), &|| true)?;
    let (new, changes) = changes(&transaction.snapshot().unrecorded(), &[], added)?;
    transaction.change(&new, &changes)?;
    let message = Some("a message".to_owned());
    transaction.commit(CommitOptions { message })
}
