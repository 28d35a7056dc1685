//! Rows of a tree that a reader leaves out because their graphs were cleared.
//!
//! What a delta adds to a cleared graph is no row of the tree, and is read. Where the graph is the first column and all
//! intervals at work are of cleared graphs, the reader has an empty tree instead, so that it reads nothing of this one.

use std::sync::Arc;

use stoa_terms::TermId;

use super::RowReader;
use crate::delta::GraphMask;
use crate::permutation::tree::{LeafCursor, Tree};
use crate::segment::Row;

/// The graphs whose rows are hidden.
pub(crate) struct Hidden {
    pub(crate) mask: Arc<GraphMask>,
    /// The column of the graph.
    pub(crate) place: usize,
}

/// How a reader hides rows.
pub(super) struct Hiding {
    hidden: Hidden,
    tree: Arc<Tree>,
    no_tree: Arc<Tree>,
}

impl Hiding {
    pub(super) fn place(&self) -> usize {
        self.hidden.place
    }

    pub(super) fn hides(&self, graph: TermId) -> bool {
        self.hidden.mask.contains(graph)
    }
}

impl RowReader {
    /// Hides rows of the tree; `no_tree` is empty.
    pub(crate) fn hiding(mut self, hidden: Hidden, no_tree: &Arc<Tree>) -> Self {
        self.hiding = Some(Box::new(Hiding {
            hidden,
            tree: Arc::clone(&self.tree),
            no_tree: Arc::clone(no_tree),
        }));
        self.choose_tree();
        self
    }

    /// Chooses the tree for the intervals at work.
    pub(super) fn choose_tree(&mut self) {
        let Some(hiding) = &self.hiding else { return };
        let intervals = &self.intervals;
        let is_hidden = |index| {
            let bounds = intervals.get(index);
            bounds.is_some_and(|(low, high)| {
                low[0] == high[0] && hiding.hides(TermId::from_bits(low[0]))
            })
        };
        let all_hidden = hiding.hidden.place == 0 && (0..intervals.lows.len()).all(is_hidden);
        let tree = match all_hidden {
            true => &hiding.no_tree,
            false => &hiding.tree,
        };
        if !Arc::ptr_eq(tree, &self.tree) {
            self.tree = Arc::clone(tree);
            self.cursor = LeafCursor::new();
        }
    }

    /// Whether a row is hidden where the tree has it.
    pub(super) fn is_hidden(&self, row: &Row) -> bool {
        let hiding = self.hiding.as_ref();
        hiding.is_some_and(|hiding| hiding.hides(TermId::from_bits(row[hiding.place()])))
    }
}
