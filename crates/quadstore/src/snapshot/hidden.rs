//! What a snapshot hides of its root: the quads of graphs that were cleared since the checkpoint.
//!
//! How many quads that are is known from the catalogue of graphs; no quad is read for it.

use std::sync::Arc;

use stoa_terms::TermId;

use super::Snapshot;
use crate::delta::{Delta, GraphMask};
use crate::error::Result;
use crate::permutation::{Hidden, Tree};
use crate::root::TreeName;

/// A checkpoint is not made for fewer hidden quads than this.
const HIDDEN_MOST: u64 = 1 << 20;

/// How much of the root the delta hides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hides {
    Nothing,
    /// The quads of some graphs, while there are others.
    Some,
    /// All quads.
    All,
}

impl Hides {
    /// What hides so many quads of a root and leaves `visible` ones.
    pub(super) fn of(hidden: u64, visible: u64) -> Self {
        match (hidden, visible) {
            (0, _) => Self::Nothing,
            (_, 0) => Self::All,
            _ => Self::Some,
        }
    }
}

impl Snapshot {
    /// As [`Self::tree`], for rows of one graph alone.
    pub(crate) fn tree_of(&self, name: impl Into<TreeName>, graph: Option<TermId>) -> &Arc<Tree> {
        match graph.is_some_and(|graph| self.0.delta.mask().contains(graph)) {
            true => &self.0.base.no_tree,
            false => self.tree(name),
        }
    }

    /// Whether quads of the root are hidden because their graphs were cleared.
    pub(crate) fn hides_some(&self) -> bool {
        self.0.hides == Hides::Some
    }

    /// Whether so much of the root is hidden that a checkpoint, which reads what is left, is worth the space that it frees.
    pub(crate) fn hides_most(&self) -> bool {
        let [psog, ..] = &self.0.base.trees;
        let hidden = self.0.delta.hidden();
        hidden >= HIDDEN_MOST && hidden > psog.rows() / 2
    }

    /// Whether all quads of the root are.
    pub(crate) fn hides_all(&self) -> bool {
        self.0.hides == Hides::All
    }

    /// How many quads of the root are in graphs that the delta does not hide yet.
    pub(crate) fn hidden_by(&self, graphs: &GraphMask) -> Result<u64> {
        let [psog, ..] = &self.0.base.trees;
        let sum = |graphs: &[TermId]| {
            let quads = graphs.iter().map(|graph| self.root_quads_of(*graph));
            quads.sum::<Result<u64>>()
        };
        let visible = psog.rows().saturating_sub(self.0.delta.hidden());
        Ok(match graphs.minus(self.0.delta.mask()) {
            GraphMask::Some(graphs) => sum(&graphs)?,
            // The delta hides graphs outside of the mask only.
            GraphMask::AllBut(but) => {
                let masked = self.0.delta.mask();
                let kept: Vec<TermId> = but
                    .into_iter()
                    .filter(|graph| !masked.contains(*graph))
                    .collect();
                visible.saturating_sub(sum(&kept)?)
            }
        })
    }

    /// The same root under what was committed above the version that it holds: counts what is hidden of it.
    pub(crate) fn relaid(&self, mut delta: Delta, commit: u64) -> Result<Self> {
        if !delta.mask().is_none() {
            delta.set_hidden(self.checkpointed().hidden_by(delta.mask())?);
        }
        Ok(self.with_delta(delta, commit))
    }

    /// The version of the delta in which graphs are cleared.
    pub(crate) fn delta_cleared(&self, graphs: &GraphMask) -> Result<Delta> {
        let (budget, graph_first) = (self.store().cache().budget(), self.has_graph_first());
        let hidden = self.hidden_by(graphs)?;
        self.0.delta.cleared(graphs, hidden, graph_first, budget)
    }

    /// The number of quads in some graphs.
    pub(crate) fn quads_of_all(&self, graphs: &GraphMask) -> Result<u64> {
        let sum = |graphs: &[TermId]| {
            let quads = graphs.iter().map(|graph| self.quads_of(*graph));
            quads.sum::<Result<u64>>()
        };
        Ok(match graphs {
            GraphMask::Some(graphs) => sum(graphs)?,
            GraphMask::AllBut(but) => self.0.quads.saturating_sub(sum(but)?),
        })
    }

    /// What is hidden of a tree from a scan that `filter` lets pass.
    pub(super) fn hidden_in(&self, name: TreeName) -> Option<Hidden> {
        if !self.hides_some() {
            return None;
        }
        let place = match name {
            TreeName::Gs | TreeName::Gpso | TreeName::Gpos => 0,
            TreeName::Graphs | TreeName::Sp | TreeName::Op => return None,
            _ => 3,
        };
        Some(Hidden {
            mask: Arc::clone(self.0.delta.mask()),
            place,
        })
    }
}
