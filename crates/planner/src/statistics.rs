//! What the planner asks of a store: ids of terms, counts of quads, numbers of distinct values.

use oxrdf::Term;
use stoa_terms::{GraphSet, IdRange, Permutation, Position, TermId};

pub use crate::error::StatisticsError;
use crate::expression::Expression;
use crate::physical::Variable;
use crate::text_prefix::TextOf;

/// How the quads of a scan are read; what from in words for EXPLAIN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// As they stand in this sort order.
    Stored(&'static str),
    /// Put together from these sort orders.
    Composed(&'static str),
    /// From this sort order, leaving out quads of other graphs.
    Filtered(&'static str),
}

/// How many groups are looked at by [`Statistics::group_sizes`].
const GROUPS_SAMPLED: usize = 16;

/// Which of some predicates subjects have together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubjectSets {
    /// Subjects that have at least two of the predicates, by which ones they have.
    pub groups: Vec<SubjectGroup>,
    /// Subjects that are in no group whatever they have, since that is not known.
    pub others: u64,
    /// For each predicate how many of the others have it, and how many quads they have with it; empty if there are no
    /// others.
    pub others_with: Vec<(u64, u64)>,
}

/// Subjects that have the same of some predicates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubjectGroup {
    /// A bit for each predicate, the first one the lowest: whether the subjects have it.
    pub has: u64,
    /// How many there are.
    pub subjects: u64,
    /// For each predicate their quads with it.
    pub quads: Vec<u64>,
}

/// Where terms are whose text begins with something.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PrefixRanges {
    /// Ids, outside of which no term that a quad holds has such a text; ascending, disjoint, and so few that each can be
    /// counted and read by itself.
    pub ranges: Vec<IdRange>,
    /// Whether every term of the ranges has such a text, or, of strings, every one that is a string.
    pub is_exact: bool,
}

/// Ids and counts of one snapshot. A triple is given as subject, predicate and object, `None` for
/// any term. Every answer of a count may be an estimate; plans are right whatever it says.
pub trait Statistics {
    /// The id of a term, `None` if no quad can hold it.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError>;

    /// The ids of several terms; one batch of reads where the store can.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    fn term_ids(&self, terms: &[Term]) -> Result<Vec<Option<TermId>>, StatisticsError> {
        terms.iter().map(|term| self.term_id(term)).collect()
    }

    /// How many quads match. Never asked with subject and object but no predicate, which is a
    /// prefix of no permutation.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn count(&self, triple: [Option<TermId>; 3], graphs: &GraphSet)
    -> Result<u64, StatisticsError>;

    /// How many quads match whose term at `position`, which is `None` in `triple`, lies in one of
    /// `ranges` (ascending, disjoint). The position is the next one after the given ones in some
    /// permutation.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn count_ranges(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        let _ = (position, ranges);
        Ok(self.count(triple, graphs)?.div_ceil(3))
    }

    /// How many quads match whose term at `position`, as in [`Self::count_ranges`], has an id that does not tell where
    /// it stands in the order of ORDER BY (`stoa_terms::section`).
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn untold(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        let _ = (triple, position, graphs);
        Ok(0)
    }

    /// How many different terms stand at `position`, which is `None` in `triple`, among the quads
    /// that match.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn distinct(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError>;

    /// Up to `most` triples that match and whose term at the position, if one is given, lies in one of the ranges
    /// (ascending, disjoint; empty means all), drawn at even distances in an order by that position; all of them if there
    /// are no more, but for some that may be missing, of other graphs or of late. The position is one that may follow the given ones in some permutation. `None` if none can be drawn
    /// so.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn sample(
        &self,
        triple: [Option<TermId>; 3],
        within: Option<(Position, &[IdRange])>,
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, StatisticsError> {
        let _ = (triple, within, graphs, most);
        Ok(None)
    }

    /// How many quads match each triple, as [`count`](Self::count) tells it; asked for triples that were drawn, on which
    /// a plan does not rely.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn partners(
        &self,
        triples: &[[Option<TermId>; 3]],
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, StatisticsError> {
        triples
            .iter()
            .map(|triple| self.count(*triple, graphs))
            .collect()
    }

    /// As [`partners`](Self::partners), but rows are not read to tell which ones the graphs hide: then an upper bound.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn partners_at_most(
        &self,
        triples: &[[Option<TermId>; 3]],
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, StatisticsError> {
        self.partners(triples, graphs)
    }

    /// Which of these predicates (2 to 64 different ones, ascending) subjects have together; `None` if that is not
    /// known, or would take more than `most` steps of about 10 nanoseconds. What was committed of late may be counted on top of
    /// that, once for all who ask.
    ///
    /// # Errors
    /// If the sets cannot be read.
    fn subject_sets(
        &self,
        predicates: &[TermId],
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<SubjectSets>, StatisticsError> {
        let _ = (predicates, graphs, most);
        Ok(None)
    }

    /// The terms that many quads with a predicate have at a position, subject or object, and how many quads have each, the
    /// most frequent ones first: every term that several quads have, and more than a 64th of them. Nothing where that is not known.
    /// `go_on` is asked now and then; what comes once it says no means nothing.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<(TermId, u64)>, StatisticsError> {
        let _ = (predicate, position, graphs, go_on);
        Ok(Vec::new())
    }

    /// For some of the quads that match, drawn at even distances in an order by `position`, which is `None` in `triple`,
    /// how many have the same term there. So a term that many quads have is among them for sure. Nothing where that is
    /// not known.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn group_sizes(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, StatisticsError> {
        let drawn = self.sample(triple, Some((position, &[])), graphs, GROUPS_SAMPLED)?;
        let Some(drawn) = drawn.filter(|_| position != Position::Graph) else {
            return Ok(Vec::new());
        };
        let groups = drawn.into_iter().map(|found| {
            let mut group = triple;
            if let (Some(slot), Some(term)) = (
                group.get_mut(position as usize),
                found.get(position as usize),
            ) {
                *slot = Some(*term);
            }
            group
        });
        self.partners(&groups.collect::<Vec<_>>(), graphs)
    }

    /// For each row whether all conditions hold in it; rows are given by columns, one for each variable. `None` if that
    /// cannot be told while a query is planned.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    fn holds(
        &self,
        conditions: &[&Expression],
        variables: &[Variable],
        columns: &[Vec<TermId>],
    ) -> Result<Option<Vec<bool>>, StatisticsError> {
        let _ = (conditions, variables, columns);
        Ok(None)
    }

    /// What a function gives for constants, which is the same whenever and by whomever it is called; `None` for an
    /// error, and if it cannot be told while a query is planned.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    fn value(&self, call: &Expression) -> Result<Option<Term>, StatisticsError> {
        let _ = call;
        Ok(None)
    }

    /// Where the terms are whose text begins with `prefix`; `None` if that is not known. What is read by it is right for
    /// this snapshot alone.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    fn prefix_ranges(
        &self,
        prefix: &str,
        of: TextOf,
    ) -> Result<Option<PrefixRanges>, StatisticsError> {
        let _ = (prefix, of);
        Ok(None)
    }

    /// How many quads there are in all.
    fn quads(&self) -> u64;

    /// How a scan of a permutation is read whose first positions are these terms.
    ///
    /// # Errors
    /// If the indexes cannot be read.
    fn reading(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        graphs: &GraphSet,
    ) -> Result<Reading, StatisticsError> {
        let _ = (prefix, graphs);
        Ok(Reading::Stored(permutation.name()))
    }

    /// Whether quads can be looked up by graph, then predicate: in GPSO and GPOS.
    fn has_graph_first(&self) -> bool {
        false
    }

    /// How many named graphs there are.
    fn named_graphs(&self) -> u64 {
        16
    }
}
