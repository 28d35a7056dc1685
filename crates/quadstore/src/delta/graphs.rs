//! What a delta changes about graphs.

use crate::read::GraphEntry;
use stoa_terms::TermId;

/// What changed about one graph.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GraphDelta {
    pub(crate) graph: u64,
    /// Quads that it gained; negative if it lost some.
    pub(crate) gained: i64,
    /// Whether it now exists even if it is empty, where that was said.
    pub(crate) created: Option<bool>,
}

impl GraphDelta {
    /// No change.
    pub(crate) const fn none(graph: u64) -> Self {
        Self {
            graph,
            gained: 0,
            created: None,
        }
    }

    /// Adds a later change of the same graph.
    pub(crate) fn follow(&mut self, later: &Self) {
        self.gained = self.gained.saturating_add(later.gained);
        self.created = later.created.or(self.created);
    }

    /// What becomes of a graph with so many quads, that exists if it is empty or does not; `None` if it
    /// does not exist any more.
    pub(crate) fn apply(&self, quads: u64, created: bool) -> Option<GraphEntry> {
        let quads = quads.saturating_add_signed(self.gained);
        (quads > 0 || self.created.unwrap_or(created)).then_some(GraphEntry {
            graph: TermId::from_bits(self.graph),
            quads,
        })
    }
}

/// Changes in the order of time as one for each graph, ascending.
pub(crate) fn net_graphs<'a>(changes: impl Iterator<Item = &'a GraphDelta>) -> Vec<GraphDelta> {
    let mut sorted: Vec<GraphDelta> = changes.copied().collect();
    // Stable: the order of time remains among those of a graph.
    sorted.sort_by_key(|change| change.graph);
    let mut net: Vec<GraphDelta> = Vec::with_capacity(sorted.len());
    for change in sorted {
        match net.last_mut().filter(|last| last.graph == change.graph) {
            Some(last) => last.follow(&change),
            None => net.push(change),
        }
    }
    net
}
