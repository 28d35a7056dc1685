//! The planner's view of a snapshot, and what it was told, for the notes on a query and for who uses the plan again.

mod prefixes;

use std::cell::RefCell;

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use stoa_executor::expression::CompiledExpression;
use stoa_executor::{Batch, QueryContext, QuerySettings};
use stoa_planner::expression::Expression;
use stoa_planner::physical::Variable;
use stoa_planner::{
    PrefixRanges, Reading, Statistics, StatisticsError, SubjectGroup, SubjectSets, TextOf,
};
use stoa_quadstore::{Count, Snapshot};
use stoa_storage::nonblocking;
use stoa_terms::section::untold;
use stoa_terms::{GraphSet, IdRange, Kind, Permutation, Position, TermId};

use crate::error::Result;

/// Answers the planner from a snapshot. Which terms there are decides what a query gives, so that is
/// recorded where the snapshot records; counts only decide how, and are not, but for the one of an empty
/// graph.
pub(crate) struct SnapshotStatistics<'a> {
    snapshot: &'a Snapshot,
    counted: Snapshot,
    /// What was asked, if it is kept.
    known: Option<RefCell<Known>>,
    /// What conditions and functions are tried with, if they may be.
    settings: Option<QuerySettings>,
}

#[derive(Default)]
struct Known {
    ids: HashMap<Term, Option<TermId>, RandomState>,
    /// How many quads match, in those graphs where there are most.
    counts: HashMap<[Option<TermId>; 3], u64, RandomState>,
    /// How many match in some graphs.
    exact: HashMap<([Option<TermId>; 3], GraphSet), u64, RandomState>,
    /// Each count that was asked for.
    counted: Vec<Counted>,
    /// What functions of constants gave.
    computed: Vec<Term>,
    /// Where the texts are that were asked for.
    prefixes: Vec<Prefix>,
}

/// Where terms with a text are, on which what a plan gives relies.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    text: String,
    of: TextOf,
    answer: PrefixRanges,
}

impl Prefix {
    /// What it takes, about, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + size_of_val(self.answer.ranges.as_slice())
    }
}

/// A number that a plan relies on.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// What was counted.
    pub(crate) question: Question,
    /// The number.
    pub(crate) answer: u64,
}

/// What may be counted.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Subject, predicate and object, `None` for any.
    pub(crate) triple: [Option<TermId>; 3],
    /// In which graphs.
    pub(crate) graphs: GraphSet,
    /// What of the matches.
    pub(crate) of: Of,
}

/// What of some quads is counted.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// All of them.
    Quads,
    /// Those with a term at the position that lies in one of the ranges.
    Ranges(Position, Vec<IdRange>),
    /// The different terms at the position.
    Distinct(Position),
    /// Those with a term at the position whose id does not tell its order.
    Untold(Position),
}

impl<'a> SnapshotStatistics<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            counted: snapshot.unrecorded(),
            known: None,
            settings: None,
        }
    }

    /// One that tries conditions with these settings.
    pub(crate) fn trying(self, settings: QuerySettings) -> Self {
        Self {
            settings: Some(settings),
            ..self
        }
    }

    /// One that keeps what it has answered.
    pub(crate) fn keeping(snapshot: &'a Snapshot) -> Self {
        Self {
            known: Some(RefCell::default()),
            ..Self::new(snapshot)
        }
    }

    /// The numbers that were asked for, if they are kept.
    pub(crate) fn take_counted(&self) -> Vec<Counted> {
        let known = self.known.as_ref();
        known.map_or_else(Vec::new, |known| {
            std::mem::take(&mut known.borrow_mut().counted)
        })
    }

    /// Where the texts are that were asked for, if that is kept.
    pub(crate) fn take_prefixes(&self) -> Vec<Prefix> {
        let known = self.known.as_ref();
        known.map_or_else(Vec::new, |known| {
            std::mem::take(&mut known.borrow_mut().prefixes)
        })
    }

    /// Whether texts are where they were.
    pub(crate) fn is_as_it_was(&self, prefix: &Prefix) -> Result<bool> {
        let now = prefixes::ranges(&self.counted, &prefix.text, prefix.of)?;
        Ok(now == prefix.answer)
    }

    /// The terms that were asked for and are not there, if that is kept.
    pub(crate) fn absent(&self) -> Vec<Term> {
        let Some(known) = &self.known else {
            return Vec::new();
        };
        let known = known.borrow();
        let absent = known.ids.iter().filter(|(_, id)| id.is_none());
        absent.map(|(term, _)| term.clone()).collect()
    }

    /// The terms that functions of constants gave, if they are kept.
    pub(crate) fn computed(&self) -> Vec<Term> {
        let known = self.known.as_ref();
        known.map_or_else(Vec::new, |known| known.borrow().computed.clone())
    }

    /// The answer to a question, as it is now.
    pub(crate) fn answer(
        &self,
        Question { triple, graphs, of }: &Question,
    ) -> std::result::Result<u64, StatisticsError> {
        match of {
            Of::Quads => self.count(*triple, graphs),
            Of::Ranges(position, ranges) => self.count_ranges(*triple, *position, ranges, graphs),
            Of::Distinct(position) => self.distinct(*triple, *position, graphs),
            Of::Untold(position) => self.untold(*triple, *position, graphs),
        }
    }

    /// As the store says it: who asked must be able to tell its errors.
    fn count_quads(
        &self,
        triple: [Option<TermId>; 3],
        graphs: &GraphSet,
    ) -> std::result::Result<u64, stoa_quadstore::Error> {
        let (permutation, prefix) = prefix(triple, None);
        let rows = self.counted.count(permutation, &prefix, &[], graphs)?.rows;
        if rows == 0 && triple == [None; 3] {
            // That a graph is empty is taken as a fact, not as an estimate.
            self.snapshot.count(permutation, &prefix, &[], graphs)?;
        }
        Ok(rows)
    }

    fn keep(&self, triple: [Option<TermId>; 3], graphs: &GraphSet, of: Of, answer: u64) {
        if let Some(known) = &self.known {
            let graphs = graphs.clone();
            let question = Question { triple, graphs, of };
            known
                .borrow_mut()
                .counted
                .push(Counted { question, answer });
        }
    }

    /// The snapshot that is asked.
    pub(crate) const fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    /// The snapshot, unrecorded.
    pub(crate) const fn unrecorded(&self) -> &Snapshot {
        &self.counted
    }

    /// The ids of terms; nothing is recorded.
    pub(crate) fn ids(&self, terms: &[Term]) -> Result<Vec<Option<TermId>>> {
        if let Some(known) = &self.known {
            let known = known.borrow();
            let ids = terms.iter().map(|term| known.ids.get(term).copied());
            if let Some(ids) = ids.collect() {
                return Ok(ids);
            }
        }
        Ok(self.counted.term_ids(terms)?)
    }

    /// The id of a term; nothing is recorded.
    pub(crate) fn id(&self, term: &Term) -> Result<Option<TermId>> {
        let known = self.known.as_ref();
        match known.and_then(|known| known.borrow().ids.get(term).copied()) {
            Some(id) => Ok(id),
            None => Ok(self.counted.term_id(term.as_ref())?),
        }
    }

    /// About how many quads match, in some graphs; nothing is recorded.
    pub(crate) fn about(&self, triple: [Option<TermId>; 3]) -> Result<u64> {
        let known = self.known.as_ref();
        if let Some(rows) = known.and_then(|known| known.borrow().counts.get(&triple).copied()) {
            return Ok(rows);
        }
        let (permutation, prefix) = prefix(triple, None);
        let count = self
            .counted
            .count(permutation, &prefix, &[], &GraphSet::All)?;
        self.keep(triple, &GraphSet::All, Of::Quads, count.rows);
        Ok(count.rows)
    }
}

impl Statistics for SnapshotStatistics<'_> {
    fn term_id(&self, term: &Term) -> std::result::Result<Option<TermId>, StatisticsError> {
        let id = self.snapshot.term_id(term.as_ref())?;
        if let Some(known) = &self.known {
            known.borrow_mut().ids.insert(term.clone(), id);
        }
        Ok(id)
    }

    fn term_ids(
        &self,
        terms: &[Term],
    ) -> std::result::Result<Vec<Option<TermId>>, StatisticsError> {
        if let Some(known) = &self.known {
            let known = known.borrow();
            let ids = terms.iter().map(|term| known.ids.get(term).copied());
            if let Some(ids) = ids.collect() {
                return Ok(ids);
            }
        }
        let ids = self.snapshot.term_ids(terms)?;
        if let Some(known) = &self.known {
            let pairs = terms.iter().cloned().zip(ids.iter().copied());
            known.borrow_mut().ids.extend(pairs);
        }
        Ok(ids)
    }

    fn count(
        &self,
        triple: [Option<TermId>; 3],
        graphs: &GraphSet,
    ) -> std::result::Result<u64, StatisticsError> {
        let known = self.known.as_ref();
        let question = (triple, graphs.clone());
        let rows = match known.and_then(|known| known.borrow().exact.get(&question).copied()) {
            Some(rows) => rows,
            None => self.count_quads(triple, graphs)?,
        };
        if let Some(known) = known {
            let mut known = known.borrow_mut();
            known.exact.insert(question, rows);
            let most = known.counts.entry(triple).or_default();
            *most = rows.max(*most);
        }
        self.keep(triple, graphs, Of::Quads, rows);
        Ok(rows)
    }

    fn count_ranges(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> std::result::Result<u64, StatisticsError> {
        let (permutation, prefix) = prefix(triple, Some(position));
        let next = permutation.order().get(prefix.len()).copied();
        let counted = if next == Some(position) { ranges } else { &[] };
        let count = self.counted.count(permutation, &prefix, counted, graphs)?;
        let of = Of::Ranges(position, ranges.to_vec());
        self.keep(triple, graphs, of, count.rows);
        Ok(count.rows)
    }

    fn untold(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> std::result::Result<u64, StatisticsError> {
        let (permutation, prefix) = prefix(triple, Some(position));
        let mut ranges = untold().to_vec();
        let iris = self.counted.key_sections(Kind::Iri);
        if iris.len() > 1 || !iris.iter().all(|section| section.is_ordered) {
            ranges.insert(0, IdRange::of_kind(Kind::Iri));
        }
        let is_next = permutation.order().get(prefix.len()).copied() == Some(position);
        let counted = if is_next { ranges.as_slice() } else { &[] };
        let count = self.counted.count(permutation, &prefix, counted, graphs)?;
        self.keep(triple, graphs, Of::Untold(position), count.rows);
        Ok(count.rows)
    }

    fn distinct(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> std::result::Result<u64, StatisticsError> {
        let (permutation, prefix) = prefix(triple, Some(position));
        let place = permutation.order().iter().position(|p| *p == position);
        let rows = self.count(triple, graphs)?;
        let distinct = match place {
            Some(place) if place == prefix.len() => {
                self.counted.distinct(permutation, &prefix, 1)?
            }
            // Behind another free position: at most one for each row.
            _ => rows,
        };
        let distinct = distinct.min(rows);
        self.keep(triple, graphs, Of::Distinct(position), distinct);
        Ok(distinct)
    }

    fn sample(
        &self,
        triple: [Option<TermId>; 3],
        within: Option<(Position, &[IdRange])>,
        graphs: &GraphSet,
        most: usize,
    ) -> std::result::Result<Option<Vec<[TermId; 3]>>, StatisticsError> {
        let (position, ranges) = within.map_or((None, &[][..]), |(position, ranges)| {
            (Some(position), ranges)
        });
        let (permutation, prefix) = prefix(triple, position);
        if permutation.order().get(prefix.len()).copied() != position && !ranges.is_empty() {
            return Ok(None);
        }
        let quads = self
            .counted
            .sample(permutation, &prefix, ranges, graphs, most)?;
        let triples = quads.map(|quads| {
            let triples = quads
                .into_iter()
                .map(|[subject, predicate, object, _]| [subject, predicate, object]);
            triples.collect()
        });
        Ok(triples)
    }

    fn partners(
        &self,
        triples: &[[Option<TermId>; 3]],
        graphs: &GraphSet,
    ) -> std::result::Result<Vec<u64>, StatisticsError> {
        rows_of(triples, |permutation, prefix| {
            self.counted.count(permutation, prefix, &[], graphs)
        })
    }

    fn partners_at_most(
        &self,
        triples: &[[Option<TermId>; 3]],
        graphs: &GraphSet,
    ) -> std::result::Result<Vec<u64>, StatisticsError> {
        rows_of(triples, |permutation, prefix| {
            self.counted.count_at_most(permutation, prefix, graphs)
        })
    }

    fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
        go_on: &dyn Fn() -> bool,
    ) -> std::result::Result<Vec<(TermId, u64)>, StatisticsError> {
        let found = self
            .counted
            .top_values(predicate, position, graphs, go_on)?;
        Ok(found.unwrap_or_default())
    }

    fn subject_sets(
        &self,
        predicates: &[TermId],
        graphs: &GraphSet,
        most: usize,
    ) -> std::result::Result<Option<SubjectSets>, StatisticsError> {
        let found = self.counted.subject_sets(predicates, graphs, most)?;
        Ok(found.map(|found| SubjectSets {
            groups: found.groups.into_iter().map(group).collect(),
            others: found.others,
            others_with: found.others_with,
        }))
    }

    fn holds(
        &self,
        conditions: &[&Expression],
        variables: &[Variable],
        columns: &[Vec<TermId>],
    ) -> std::result::Result<Option<Vec<bool>>, StatisticsError> {
        let (Some(settings), Some(_)) = (&self.settings, columns.first()) else {
            return Ok(None);
        };
        let context = QueryContext::new(self.counted.clone(), settings.clone());
        match all_hold(conditions, variables, columns, &context) {
            Ok(holds) => Ok(Some(holds)),
            Err(stoa_executor::Error::Quadstore(error)) => Err(error.into()),
            // Whoever runs the query is told the others.
            Err(_) => Ok(None),
        }
    }

    fn value(&self, call: &Expression) -> std::result::Result<Option<Term>, StatisticsError> {
        let Some(settings) = &self.settings else {
            return Ok(None);
        };
        let context = QueryContext::new(self.counted.clone(), settings.clone());
        let value = CompiledExpression::constant(call, &context);
        // What was refused on this thread is done once more elsewhere, and may look like an error of the function.
        nonblocking::check_nothing_refused().map_err(stoa_quadstore::Error::from)?;
        match value {
            Ok(Some(term)) if text_bytes(&term) <= COMPUTED_BYTES_MAX => {
                if let Some(known) = &self.known {
                    known.borrow_mut().computed.push(term.clone());
                }
                Ok(Some(term))
            }
            Ok(_) => Ok(None),
            Err(stoa_executor::Error::Quadstore(error)) => Err(error.into()),
            // Whoever runs the query is told the others.
            Err(_) => Ok(None),
        }
    }

    fn reading(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        graphs: &GraphSet,
    ) -> std::result::Result<Reading, StatisticsError> {
        use stoa_quadstore::Reading as Stored;
        Ok(match self.counted.reading(permutation, prefix, graphs)? {
            Stored::Stored(tree) => Reading::Stored(tree),
            Stored::Composed(trees) => Reading::Composed(trees),
            Stored::Filtered(tree) => Reading::Filtered(tree),
        })
    }

    /// Terms that come later may lie elsewhere, so what is asked is recorded.
    fn prefix_ranges(
        &self,
        prefix: &str,
        of: TextOf,
    ) -> std::result::Result<Option<PrefixRanges>, StatisticsError> {
        let answer = prefixes::ranges(self.snapshot, prefix, of)?;
        if let Some(known) = &self.known {
            known.borrow_mut().prefixes.push(Prefix {
                text: prefix.to_owned(),
                of,
                answer: answer.clone(),
            });
        }
        Ok(Some(answer))
    }

    fn has_graph_first(&self) -> bool {
        self.counted.has_graph_first()
    }

    fn quads(&self) -> u64 {
        self.counted.quads()
    }
}

fn group(group: stoa_quadstore::SubjectGroup) -> SubjectGroup {
    SubjectGroup {
        has: group.has,
        subjects: group.subjects,
        quads: group.quads,
    }
}

/// A longer text that a function gives for constants is computed when the query runs, within its memory, and is no part of
/// the plan.
const COMPUTED_BYTES_MAX: usize = 1024;

fn text_bytes(term: &Term) -> usize {
    match term {
        Term::NamedNode(iri) => iri.as_str().len(),
        Term::Literal(literal) => literal.value().len(),
        Term::BlankNode(_) | Term::Triple(_) => 0,
    }
}

/// For each row whether all conditions hold in it.
fn all_hold(
    conditions: &[&Expression],
    variables: &[Variable],
    columns: &[Vec<TermId>],
    context: &QueryContext,
) -> stoa_executor::Result<Vec<bool>> {
    let batch = Batch::from_columns(columns.to_vec());
    let mut all = vec![true; batch.rows];
    for condition in conditions {
        let compiled = CompiledExpression::compile(condition, variables, context)?;
        for (all, one) in all.iter_mut().zip(compiled.filter(&batch, context)?) {
            *all &= one;
        }
    }
    Ok(all)
}

/// How many quads match each of some triples, by a count of those with a prefix.
fn rows_of(
    triples: &[[Option<TermId>; 3]],
    count: impl Fn(Permutation, &[TermId]) -> stoa_quadstore::Result<Count>,
) -> std::result::Result<Vec<u64>, StatisticsError> {
    let counts = triples.iter().map(|triple| {
        let (permutation, prefix) = prefix(*triple, None);
        Ok(count(permutation, &prefix)?.rows)
    });
    counts.collect()
}

/// The permutation that has the given positions as a prefix, `next` after them if that is possible,
/// and the prefix.
fn prefix(
    [subject, predicate, object]: [Option<TermId>; 3],
    next: Option<Position>,
) -> (Permutation, Vec<TermId>) {
    use Permutation::{Opsg, Posg, Psog, Spog};
    let permutation = match (subject, predicate, object) {
        (None, None, None) => match next {
            Some(Position::Predicate) => Psog,
            Some(Position::Object) => Opsg,
            _ => Spog,
        },
        (Some(_), _, None) => Spog,
        (None, _, Some(_)) if predicate.is_none() || next.is_none() => Opsg,
        (None, Some(_), None) if next == Some(Position::Object) => Posg,
        (None, Some(_), None) => Psog,
        (None, _, Some(_)) => Posg,
        (Some(_), Some(_), Some(_)) => Spog,
        // No permutation has subject and object side by side; the subject alone is an upper bound.
        (Some(_), None, Some(_)) => Spog,
    };
    let quad = [subject, predicate, object, None];
    let prefix = permutation
        .order()
        .iter()
        .map_while(|position| quad.get(*position as usize).copied().flatten())
        .collect();
    (permutation, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_permutation() {
        let id = |n| Some(TermId::new(Kind::Iri, n));
        let (s, p, o) = (id(1), id(2), id(3));
        for (triple, next, name, length) in [
            ([None, None, None], None, "SPOG", 0),
            ([None, None, None], Some(Position::Predicate), "PSOG", 0),
            ([None, None, None], Some(Position::Object), "OPSG", 0),
            ([s, None, None], Some(Position::Predicate), "SPOG", 1),
            ([None, p, None], Some(Position::Subject), "PSOG", 1),
            ([None, p, None], Some(Position::Object), "POSG", 1),
            ([None, None, o], Some(Position::Predicate), "OPSG", 1),
            ([s, p, None], Some(Position::Object), "SPOG", 2),
            ([None, p, o], Some(Position::Subject), "POSG", 2),
            ([None, p, o], None, "OPSG", 2),
            ([s, p, o], None, "SPOG", 3),
            ([s, None, o], None, "SPOG", 1),
        ] {
            let (permutation, prefix) = prefix(triple, next);
            assert_eq!(
                (permutation.name(), prefix.len()),
                (name, length),
                "{triple:?} {next:?}"
            );
        }
    }
}
