//! `GraphMask`: the graphs that were cleared as a whole.
//!
//! CLEAR and DROP do not name the quads that they remove. A commit names the graphs instead, and a version of the
//! delta hides what its root holds in them. Readers take the mask into account where they read rows of a tree; the
//! next checkpoint removes the rows.
//!
//! # Invariants
//! 1. `Some` and `AllBut` hold ascending ids without repetition. `Some` of no graph is the only mask of nothing.
//!    (The constructors sort; test `masks_are_sets`.)

use stoa_terms::{GraphSet, TermId};

/// A set of graphs whose quads are hidden, or are to be removed all at once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GraphMask {
    /// These graphs.
    Some(Vec<TermId>),
    /// All graphs but these.
    AllBut(Vec<TermId>),
}

impl Default for GraphMask {
    /// The mask of no graph.
    fn default() -> Self {
        Self::NONE
    }
}

impl From<&GraphSet> for GraphMask {
    fn from(graphs: &GraphSet) -> Self {
        match graphs {
            GraphSet::Default => Self::some([TermId::DEFAULT_GRAPH]),
            GraphSet::One(graph) => Self::some([*graph]),
            GraphSet::Some(graphs) => Self::some(graphs.iter().copied()),
            GraphSet::All => Self::AllBut(Vec::new()),
            GraphSet::Named => Self::all_but([TermId::DEFAULT_GRAPH]),
            GraphSet::AllBut(graphs) => Self::all_but(graphs.iter().copied()),
        }
    }
}

impl GraphMask {
    /// The mask of no graph.
    pub const NONE: Self = Self::Some(Vec::new());

    /// The mask of these graphs, in any order.
    #[must_use]
    pub fn some(graphs: impl IntoIterator<Item = TermId>) -> Self {
        Self::Some(ascending(graphs))
    }

    /// The mask of all graphs but these, which come in any order.
    #[must_use]
    pub fn all_but(graphs: impl IntoIterator<Item = TermId>) -> Self {
        Self::AllBut(ascending(graphs))
    }

    /// Whether it is the mask of no graph.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Some(graphs) if graphs.is_empty())
    }

    /// Whether the graph belongs to it.
    #[must_use]
    pub fn contains(&self, graph: TermId) -> bool {
        match self {
            Self::Some(graphs) => graphs.binary_search(&graph).is_ok(),
            Self::AllBut(graphs) => graphs.binary_search(&graph).is_err(),
        }
    }

    /// The same set of graphs for a scan.
    #[must_use]
    pub fn to_graph_set(&self) -> GraphSet {
        match self {
            Self::Some(graphs) => GraphSet::Some(graphs.clone()),
            Self::AllBut(graphs) if graphs.is_empty() => GraphSet::All,
            Self::AllBut(graphs) => GraphSet::AllBut(graphs.clone()),
        }
    }

    /// The graphs of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let without = |one: &[TermId], other: &Self| {
            let kept = one.iter().filter(|graph| !other.contains(**graph));
            Self::AllBut(kept.copied().collect())
        };
        match (self, other) {
            (Self::Some(one), Self::Some(two)) => Self::some(one.iter().chain(two).copied()),
            (Self::AllBut(kept), other) | (other, Self::AllBut(kept)) => without(kept, other),
        }
    }

    /// The graphs of this one that the other does not have.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let filtered = |graphs: &[TermId], is_kept: &dyn Fn(TermId) -> bool| {
            let kept = graphs.iter().copied().filter(|graph| is_kept(*graph));
            Self::Some(kept.collect())
        };
        match (self, other) {
            (Self::Some(graphs), other) => filtered(graphs, &|graph| !other.contains(graph)),
            (one, Self::AllBut(kept)) => filtered(kept, &|graph| one.contains(graph)),
            (Self::AllBut(but), Self::Some(masked)) => {
                Self::all_but(but.iter().chain(masked).copied())
            }
        }
    }

    /// Whether all graphs of a set belong to it. May say no where only the catalogue of graphs could tell.
    #[must_use]
    pub fn covers(&self, graphs: &GraphSet) -> bool {
        Self::from(graphs).minus(self).is_none()
    }

    /// Whether a graph of a set may belong to it. Says no only if none does.
    #[must_use]
    pub fn overlaps(&self, graphs: &GraphSet) -> bool {
        let graphs = Self::from(graphs);
        // What `graphs` has in common with this one is what it has not without it.
        !graphs.minus(&graphs.minus(self)).is_none()
    }

    /// What the list takes besides the value itself, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.listed())
    }

    /// The graphs that are named, whether they belong to it or are the only ones that do not.
    pub(crate) fn listed(&self) -> &[TermId] {
        match self {
            Self::Some(graphs) | Self::AllBut(graphs) => graphs,
        }
    }

    /// The mask with other ids in the place of those that `id` knows.
    #[must_use]
    pub(crate) fn renumbered(&self, id: impl Fn(TermId) -> TermId) -> Self {
        match self {
            Self::Some(graphs) => Self::some(graphs.iter().map(|graph| id(*graph))),
            Self::AllBut(graphs) => Self::all_but(graphs.iter().map(|graph| id(*graph))),
        }
    }
}

fn ascending(graphs: impl IntoIterator<Item = TermId>) -> Vec<TermId> {
    let mut graphs: Vec<TermId> = graphs.into_iter().collect();
    graphs.sort_unstable();
    graphs.dedup();
    graphs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stoa_terms::Kind;

    use super::*;

    fn graph(number: u8) -> TermId {
        match number {
            0 => TermId::DEFAULT_GRAPH,
            number => TermId::new(Kind::Iri, u64::from(number)),
        }
    }

    fn masks() -> impl Strategy<Value = GraphMask> {
        let graphs = prop::collection::vec((0..6_u8).prop_map(graph), 0..5);
        (graphs, any::<bool>()).prop_map(|(graphs, all)| match all {
            true => GraphMask::all_but(graphs),
            false => GraphMask::some(graphs),
        })
    }

    proptest! {
        #[test]
        fn masks_are_sets(one in masks(), two in masks()) {
            // Graph 9 stands for all that nobody names.
            let all = || (0..6).chain([9]).map(graph);
            for graph in all() {
                let (in_one, in_two) = (one.contains(graph), two.contains(graph));
                prop_assert_eq!(one.union(&two).contains(graph), in_one || in_two);
                prop_assert_eq!(one.minus(&two).contains(graph), in_one && !in_two);
                prop_assert_eq!(one.to_graph_set().contains(graph), in_one);
            }
            let set = two.to_graph_set();
            prop_assert_eq!(GraphMask::from(&set), two.clone());
            prop_assert_eq!(one.is_none(), !all().any(|graph| one.contains(graph)));
            let covered = all().all(|graph| one.contains(graph) || !set.contains(graph));
            prop_assert_eq!(one.covers(&set), covered);
            let common = all().any(|graph| one.contains(graph) && set.contains(graph));
            prop_assert_eq!(one.overlaps(&set), common);
        }
    }
}
