//! The sort orders in which quads are kept, and sets of graphs.
//!
//! Named here because planner and quadstore both speak of them; where they lie on disk is the
//! quadstore's affair.

use crate::TermId;

/// One position of a quad.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Position {
    /// The subject.
    Subject = 0,
    /// The predicate.
    Predicate = 1,
    /// The object.
    Object = 2,
    /// The graph.
    Graph = 3,
}

/// One sort order of quads that holds every quad.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Permutation {
    /// Predicate, subject, object, graph: scans of a predicate, joins on subjects.
    Psog = 0,
    /// Predicate, object, subject, graph: look-ups and ranges of objects.
    Posg = 1,
    /// Subject, predicate, object, graph: all of a subject together.
    Spog = 2,
    /// Object, predicate, subject, graph: all that points at an object together.
    Opsg = 3,
    /// Graph, predicate, subject, object: one graph among many that share subjects.
    Gpso = 4,
    /// Graph, predicate, object, subject: the same by objects.
    Gpos = 5,
}

impl Permutation {
    /// The permutations of the default scheme.
    pub const ALL: [Self; 4] = [Self::Psog, Self::Posg, Self::Spog, Self::Opsg];

    /// Those that go with them where graphs share subjects.
    pub const GRAPH_FIRST: [Self; 2] = [Self::Gpso, Self::Gpos];

    /// The positions of a quad in the order in which this permutation sorts by them.
    #[must_use]
    pub const fn order(self) -> [Position; 4] {
        use Position::{Graph, Object, Predicate, Subject};
        match self {
            Self::Psog => [Predicate, Subject, Object, Graph],
            Self::Posg => [Predicate, Object, Subject, Graph],
            Self::Spog => [Subject, Predicate, Object, Graph],
            Self::Opsg => [Object, Predicate, Subject, Graph],
            Self::Gpso => [Graph, Predicate, Subject, Object],
            Self::Gpos => [Graph, Predicate, Object, Subject],
        }
    }

    /// `SPOG` and the like, as EXPLAIN and `stoa info` print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Psog => "PSOG",
            Self::Posg => "POSG",
            Self::Spog => "SPOG",
            Self::Opsg => "OPSG",
            Self::Gpso => "GPSO",
            Self::Gpos => "GPOS",
        }
    }

    /// Brings `[subject, predicate, object, graph]` into the order of this permutation.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a quad has a term at each position"
    )]
    pub const fn permute(self, quad: [TermId; 4]) -> [TermId; 4] {
        let order = self.order();
        [
            quad[order[0] as usize],
            quad[order[1] as usize],
            quad[order[2] as usize],
            quad[order[3] as usize],
        ]
    }
}

/// The graphs that a scan reads. Triples that several of them hold are returned once.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum GraphSet {
    /// The unnamed default graph alone.
    Default,
    /// One graph, by its id.
    One(TermId),
    /// These graphs, ascending, without repetition.
    Some(Vec<TermId>),
    /// All graphs, the default graph included.
    All,
    /// All named graphs.
    Named,
    /// All graphs, the default graph included, but for these (ascending, without repetition).
    AllBut(Vec<TermId>),
}

impl GraphSet {
    /// Whether the set is written down with the id of a graph, as one that belongs to it or as one that does not.
    #[must_use]
    pub fn is_named_by(&self, graph: TermId) -> bool {
        match self {
            Self::One(one) => graph == *one,
            Self::Some(some) | Self::AllBut(some) => some.contains(&graph),
            Self::Default | Self::All | Self::Named => false,
        }
    }

    /// Whether quads of `graph` belong to the set.
    #[must_use]
    pub fn contains(&self, graph: TermId) -> bool {
        match self {
            Self::Default => graph == TermId::DEFAULT_GRAPH,
            Self::One(one) => graph == *one,
            Self::Some(some) => some.binary_search(&graph).is_ok(),
            Self::All => true,
            Self::Named => graph != TermId::DEFAULT_GRAPH,
            Self::AllBut(but) => but.binary_search(&graph).is_err(),
        }
    }
}
