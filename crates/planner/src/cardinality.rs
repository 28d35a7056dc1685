//! How many solutions a part of a query has: exact counts of prefixes, distinct counts, and guesses
//! where there is neither.
//!
//! Every question is put to the store once a query.

use std::cell::RefCell;

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use stoa_terms::{GraphSet, IdRange, Permutation, Position, TermId};

use crate::Stop;
use crate::access_path::{Access, constants, predicate_only, term_at};
use crate::cost;
use crate::error::Error;
use crate::expression::{Comparison, Expression, Function};
use crate::lowering::Followed;
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::statistics::{PrefixRanges, Reading, Statistics, SubjectSets};
use crate::text_prefix::TextOf;

type Triple = [Option<TermId>; 3];
type Map<K, V> = RefCell<HashMap<K, V, RandomState>>;

/// Answers of the store, kept for one query.
pub(crate) struct Cache<'a> {
    statistics: &'a dyn Statistics,
    stop: Option<&'a Stop>,
    terms: Map<Term, Option<TermId>>,
    counts: Map<(Triple, GraphSet), f64>,
    distinct: Map<(Triple, Position, GraphSet), f64>,
    group_sizes: Map<(Triple, Position, GraphSet), Vec<f64>>,
    readings: Map<Scanned, Reading>,
    subject_sets: Map<(Vec<TermId>, GraphSet), SubjectSets>,
    top_values: Map<(TermId, Position, GraphSet), Vec<(TermId, u64)>>,
    prefixes: Map<(String, TextOf), Option<PrefixRanges>>,
    reaches: Map<Followed, Option<f64>>,
}

/// A permutation, the terms that are fixed in it, and graphs.
pub(crate) type Scanned = (Permutation, Vec<TermId>, GraphSet);

impl<'a> Cache<'a> {
    pub(crate) fn new(statistics: &'a dyn Statistics, stop: Option<&'a Stop>) -> Self {
        Self {
            statistics,
            stop,
            terms: RefCell::default(),
            counts: RefCell::default(),
            distinct: RefCell::default(),
            group_sizes: RefCell::default(),
            readings: RefCell::default(),
            subject_sets: RefCell::default(),
            top_values: RefCell::default(),
            prefixes: RefCell::default(),
            reaches: RefCell::default(),
        }
    }

    /// Fails if planning should end; to be called by whatever is done many times.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.stop {
            Some(stop) if stop.is_stopped() => Err(Error::Stopped),
            _ => Ok(()),
        }
    }

    /// Looks up terms in one batch.
    pub(crate) fn prefetch(&self, mut terms: Vec<Term>) -> Result<(), Error> {
        let mut known = self.terms.borrow_mut();
        terms.retain(|term| !known.contains_key(term));
        if terms.is_empty() {
            return Ok(());
        }
        let ids = self.statistics.term_ids(&terms)?;
        known.extend(terms.into_iter().zip(ids));
        Ok(())
    }

    /// How a scan is read.
    pub(crate) fn reading(&self, pattern: &QuadPattern, access: Access) -> Result<Reading, Error> {
        let key = scanned(pattern, access.permutation, access.prefix_length);
        if let Some(&reading) = self.readings.borrow().get(&key) {
            return Ok(reading);
        }
        let reading = self.statistics.reading(key.0, &key.1, &key.2)?;
        self.readings.borrow_mut().insert(key, reading);
        Ok(reading)
    }

    /// What [`Self::reading`] was asked for.
    pub(crate) fn into_readings(self) -> HashMap<Scanned, Reading, RandomState> {
        self.readings.into_inner()
    }

    /// What a scan costs of which `rows` quads are used.
    pub(crate) fn scan_cost(
        &self,
        pattern: &QuadPattern,
        access: Access,
        rows: f64,
    ) -> Result<f64, Error> {
        let read = match self.reading(pattern, access)? {
            Reading::Stored(_) => rows * cost::SCAN_ROW,
            Reading::Composed(_) => rows * cost::COMPOSED_ROW,
            Reading::Filtered(_) => {
                let mut triple = constants(pattern);
                if let [Some(_), None, object @ Some(_)] = &mut triple {
                    *object = None;
                }
                self.count(triple, &GraphSet::All)?.max(rows) * cost::SCAN_ROW
            }
        };
        Ok(cost::SCAN_START + read)
    }

    /// Whether ids of the terms at a position, the next one after the constants in some permutation, tell their order.
    pub(crate) fn tells_order(
        &self,
        pattern: &QuadPattern,
        position: Position,
    ) -> Result<bool, Error> {
        let triple = constants(pattern);
        let untold = self.statistics.untold(triple, position, &pattern.graphs)?;
        Ok(untold == 0)
    }

    /// Whether there are permutations that begin with the graph.
    pub(crate) fn has_graph_first(&self) -> bool {
        self.statistics.has_graph_first()
    }

    /// Whether quads may have to be read to tell which ones a set of graphs has.
    pub(crate) fn hides_rows(&self, graphs: &GraphSet) -> bool {
        match graphs {
            GraphSet::All => false,
            GraphSet::Default | GraphSet::One(_) if self.has_graph_first() => false,
            _ => self.statistics.named_graphs() > 0,
        }
    }

    /// The id of a term, `None` if no quad holds it.
    pub(crate) fn term_id(&self, term: &Term) -> Result<Option<TermId>, Error> {
        if let Some(&id) = self.terms.borrow().get(term) {
            return Ok(id);
        }
        let id = self.statistics.term_id(term)?;
        self.terms.borrow_mut().insert(term.clone(), id);
        Ok(id)
    }

    /// What a function gives for constants, if that can be told.
    pub(crate) fn value(&self, call: &Expression) -> Result<Option<Term>, Error> {
        self.check()?;
        Ok(self.statistics.value(call)?)
    }

    pub(crate) fn quads(&self) -> f64 {
        float(self.statistics.quads())
    }

    pub(crate) fn named_graphs(&self) -> f64 {
        float(self.statistics.named_graphs()).max(1.0)
    }

    /// How many quads match, of which subject and object are not given without a predicate.
    pub(crate) fn count(&self, triple: Triple, graphs: &GraphSet) -> Result<f64, Error> {
        let key = (triple, graphs.clone());
        if let Some(&count) = self.counts.borrow().get(&key) {
            return Ok(count);
        }
        self.check()?;
        let count = float(self.statistics.count(triple, graphs)?);
        self.counts.borrow_mut().insert(key, count);
        Ok(count)
    }

    /// Up to `most` matches of a pattern, drawn evenly: from those alone that have a term in one of the ranges at the
    /// position, where these are given. `None` if none can be drawn so.
    pub(crate) fn sample(
        &self,
        pattern: &QuadPattern,
        within: Option<(Position, &[IdRange])>,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, Error> {
        let triple = constants(pattern);
        Ok(self
            .statistics
            .sample(triple, within, &pattern.graphs, most)?)
    }

    /// Up to `most` matches of a triple, drawn evenly; `None` if none can be drawn so.
    pub(crate) fn drawn(
        &self,
        triple: Triple,
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, Error> {
        Ok(self.statistics.sample(triple, None, graphs, most)?)
    }

    /// How many terms a path leads to, which `find` finds out once a query.
    pub(crate) fn reach(
        &self,
        followed: Followed,
        find: impl FnOnce() -> Result<Option<f64>, Error>,
    ) -> Result<Option<f64>, Error> {
        if let Some(&known) = self.reaches.borrow().get(&followed) {
            return Ok(known);
        }
        let found = find()?;
        self.reaches.borrow_mut().insert(followed, found);
        Ok(found)
    }

    /// Which of some predicates subjects have together, if that is known and takes no more than so many steps.
    pub(crate) fn subject_sets(
        &self,
        predicates: &[TermId],
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<SubjectSets>, Error> {
        let key = (predicates.to_vec(), graphs.clone());
        if let Some(known) = self.subject_sets.borrow().get(&key) {
            return Ok(Some(known.clone()));
        }
        self.check()?;
        let found = self.statistics.subject_sets(predicates, graphs, most)?;
        if let Some(sets) = &found {
            self.subject_sets.borrow_mut().insert(key, sets.clone());
        }
        Ok(found)
    }

    /// For each row, given by columns, whether all conditions hold in it; `None` if that cannot be told.
    pub(crate) fn holds(
        &self,
        conditions: &[&Expression],
        variables: &[Variable],
        columns: &[Vec<TermId>],
    ) -> Result<Option<Vec<bool>>, Error> {
        Ok(self.statistics.holds(conditions, variables, columns)?)
    }

    /// How many quads match each of some triples, on which a plan does not rely.
    pub(crate) fn partners(
        &self,
        triples: &[Triple],
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, Error> {
        Ok(self.statistics.partners(triples, graphs)?)
    }

    /// As [`partners`](Self::partners), or upper bounds where the graphs hide some.
    pub(crate) fn partners_at_most(
        &self,
        triples: &[Triple],
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, Error> {
        Ok(self.statistics.partners_at_most(triples, graphs)?)
    }

    /// The terms that many quads with a predicate have at a position, and how many quads have each.
    pub(crate) fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
    ) -> Result<Vec<(TermId, u64)>, Error> {
        let key = (predicate, position, graphs.clone());
        if let Some(known) = self.top_values.borrow().get(&key) {
            return Ok(known.clone());
        }
        let go_on = || self.check().is_ok();
        let statistics = &self.statistics;
        let found = statistics.top_values(predicate, position, graphs, &go_on)?;
        self.check()?;
        self.top_values.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// Where the terms are whose text begins with something, if that is known.
    pub(crate) fn prefix_ranges(
        &self,
        prefix: &str,
        of: TextOf,
    ) -> Result<Option<PrefixRanges>, Error> {
        let key = (prefix.to_owned(), of);
        if let Some(known) = self.prefixes.borrow().get(&key) {
            return Ok(known.clone());
        }
        self.check()?;
        let found = self.statistics.prefix_ranges(prefix, of)?;
        self.prefixes.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// How many quads match a pattern, not regarding that one variable may stand in two places.
    pub(crate) fn pattern_rows(&self, pattern: &QuadPattern) -> Result<f64, Error> {
        let triple = constants(pattern);
        if let [Some(subject), None, Some(object)] = triple {
            let of_subject = self.count([Some(subject), None, None], &pattern.graphs)?;
            let of_object = self.count([None, None, Some(object)], &pattern.graphs)?;
            let both = of_subject * of_object / self.quads().max(1.0);
            return Ok(both.max(1.0).min(of_subject).min(of_object));
        }
        self.count(triple, &pattern.graphs)
    }

    /// How many quads match a pattern whose term at `position`, which comes after the constants in
    /// some permutation, lies in `ranges`.
    pub(crate) fn range_rows(
        &self,
        pattern: &QuadPattern,
        position: Position,
        ranges: &[IdRange],
    ) -> Result<f64, Error> {
        if ranges.is_empty() {
            return Ok(0.0);
        }
        let triple = constants(pattern);
        let count = self
            .statistics
            .count_ranges(triple, position, ranges, &pattern.graphs)?;
        Ok(float(count))
    }

    /// How many different terms a variable of a pattern ranges over. `rows` is what the pattern has.
    ///
    /// Where a predicate and another term are fixed, that lies between what matches and what would
    /// match with the predicate alone: two such patterns on one variable are neither independent of
    /// each other nor is one contained in the other.
    pub(crate) fn pattern_distinct(
        &self,
        pattern: &QuadPattern,
        position: Position,
        rows: f64,
    ) -> Result<f64, Error> {
        if position == Position::Graph {
            return Ok(self.named_graphs().min(rows));
        }
        let triple = constants(pattern);
        if let ([None, Some(_), Some(_)], Position::Subject)
        | ([Some(_), Some(_), None], Position::Object) = (triple, position)
        {
            let [_, predicate, _] = triple;
            let all = self.distinct([None, predicate, None], position, &pattern.graphs)?;
            return Ok((rows * all).sqrt().max(rows));
        }
        let asked = match triple {
            [None, None, None] => true,
            [Some(_), None, None] | [None, None, Some(_)] => position == Position::Predicate,
            _ => predicate_only(&triple),
        };
        if !asked {
            return Ok(rows);
        }
        Ok(self.distinct(triple, position, &pattern.graphs)?.min(rows))
    }

    /// For a sample of the quads that match a pattern, how many have the same term at `position`.
    pub(crate) fn group_sizes(
        &self,
        pattern: &QuadPattern,
        position: Position,
    ) -> Result<Vec<f64>, Error> {
        let key = (constants(pattern), position, pattern.graphs.clone());
        if let Some(sizes) = self.group_sizes.borrow().get(&key) {
            return Ok(sizes.clone());
        }
        self.check()?;
        let sizes = self.statistics.group_sizes(key.0, key.1, &key.2)?;
        let sizes: Vec<f64> = sizes.into_iter().map(float).collect();
        self.group_sizes.borrow_mut().insert(key, sizes.clone());
        Ok(sizes)
    }

    /// Quads with a predicate, `None` for any, and how many different subjects and objects they
    /// have.
    pub(crate) fn predicate(
        &self,
        predicate: Option<TermId>,
        graphs: &GraphSet,
    ) -> Result<(f64, f64, f64), Error> {
        let triple = [None, predicate, None];
        let rows = self.count(triple, graphs)?;
        let subjects = self.distinct(triple, Position::Subject, graphs)?.min(rows);
        let objects = self.distinct(triple, Position::Object, graphs)?.min(rows);
        Ok((rows, subjects, objects))
    }

    fn distinct(
        &self,
        triple: Triple,
        position: Position,
        graphs: &GraphSet,
    ) -> Result<f64, Error> {
        let key = (triple, position, graphs.clone());
        if let Some(&distinct) = self.distinct.borrow().get(&key) {
            return Ok(distinct);
        }
        let distinct = float(self.statistics.distinct(triple, position, graphs)?).max(1.0);
        self.distinct.borrow_mut().insert(key, distinct);
        Ok(distinct)
    }
}

/// What is asked of the store for a scan.
pub(crate) fn scanned(
    pattern: &QuadPattern,
    permutation: Permutation,
    prefix_length: usize,
) -> Scanned {
    let prefix = permutation.order().into_iter().take(prefix_length);
    let prefix = prefix.map_while(|position| match term_at(pattern, position) {
        Some(PatternTerm::Constant(id)) => Some(id),
        _ => None,
    });
    (permutation, prefix.collect(), pattern.graphs.clone())
}

/// A count as a number to reckon with.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Whether one variable stands in two places of a pattern.
pub(crate) fn repeats(pattern: &QuadPattern) -> bool {
    let [a, b, c] = &pattern.triple;
    let same = |x: &PatternTerm, y: &PatternTerm| matches!(x, PatternTerm::Variable(_)) && x == y;
    let with_graph = |x: &PatternTerm| match (x, pattern.graph_variable) {
        (PatternTerm::Variable(variable), Some(graph)) => *variable == graph,
        _ => false,
    };
    same(a, b) || same(a, c) || same(b, c) || pattern.triple.iter().any(with_graph)
}

/// The share of solutions that a condition is guessed to keep.
pub(crate) fn selectivity(condition: &Expression) -> f64 {
    match condition {
        // All but what is no number, and errors.
        Expression::Compare(Comparison::Equal, left, right) if left == right => 1.0,
        Expression::Compare(Comparison::Equal | Comparison::SameTerm, _, _) => 0.05,
        Expression::Compare(Comparison::NotEqual, _, _) => 0.9,
        Expression::Compare(_, _, _) => 0.35,
        Expression::Bound(_) => 0.8,
        Expression::Not(inner) => (1.0 - selectivity(inner)).max(0.05),
        Expression::And(parts) => parts.iter().map(selectivity).product::<f64>().max(0.001),
        Expression::Or(parts) => {
            let none: f64 = parts.iter().map(|part| 1.0 - selectivity(part)).product();
            1.0 - none
        }
        Expression::In(_, list) => {
            let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
            (0.05 * f64::from(length)).min(0.9)
        }
        Expression::Call(
            Function::Regex
            | Function::Contains
            | Function::StrStarts
            | Function::StrEnds
            | Function::LangMatches,
            _,
        ) => 0.15,
        _ => 0.5,
    }
}
