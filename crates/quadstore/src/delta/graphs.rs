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
    let mut changes: Vec<GraphDelta> = changes.copied().collect();
    net_in_place(&mut changes);
    changes
}

/// As [`net_graphs`]; sorting takes as much memory again.
pub(super) fn net_in_place(changes: &mut Vec<GraphDelta>) {
    // Stable: the order of time remains among those of a graph.
    changes.sort_by_key(|change| change.graph);
    changes.dedup_by(|later, change| {
        let is_same = later.graph == change.graph;
        if is_same {
            change.follow(later);
        }
        is_same
    });
}
