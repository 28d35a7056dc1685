//! A store in memory, an evaluator of expressions, an interpreter of physical plans that checks
//! what they promise, and an evaluator of the algebra after the letter of the specification.
#![expect(
    clippy::indexing_slicing,
    reason = "helpers of tests, which fail by panicking"
)]

pub(crate) mod algebra;
pub(crate) mod generator;
pub(crate) mod interpret;
pub(crate) mod path;
pub(crate) mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;

use oxrdf::Term;
use stoa_planner::{Statistics, StatisticsError, SubjectGroup, SubjectSets};
use stoa_terms::{GraphSet, IdRange, Kind, Position, TermId, inline};

/// Quads of ids: subject, predicate, object, graph.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) quads: Vec<[TermId; 4]>,
    ids: BTreeMap<String, (TermId, Term)>,
    /// How often each kind of question was asked.
    pub(crate) asked: RefCell<usize>,
}

impl Store {
    pub(crate) fn id(&mut self, term: &Term) -> TermId {
        if let Some(id) = inline_id(term) {
            return id;
        }
        let next = self.ids.len() as u64;
        self.ids
            .entry(term.to_string())
            .or_insert_with(|| {
                let kind = match term {
                    Term::NamedNode(_) => Kind::Iri,
                    _ => Kind::Literal,
                };
                (TermId::new(kind, next), term.clone())
            })
            .0
    }

    pub(crate) fn insert(
        &mut self,
        subject: &Term,
        predicate: &Term,
        object: &Term,
        graph: Option<&Term>,
    ) {
        let quad = [
            self.id(subject),
            self.id(predicate),
            self.id(object),
            graph.map_or(TermId::DEFAULT_GRAPH, |graph| self.id(graph)),
        ];
        if !self.quads.contains(&quad) {
            self.quads.push(quad);
        }
    }

    pub(crate) fn term(&self, id: TermId) -> Term {
        if let Some(literal) = inline::decode(id) {
            return literal.into();
        }
        self.ids
            .values()
            .find(|(other, _)| *other == id)
            .map(|(_, term)| term.clone())
            .expect("an id of the store")
    }

    pub(crate) fn known(&self, term: &Term) -> Option<TermId> {
        inline_id(term).or_else(|| self.ids.get(&term.to_string()).map(|(id, _)| *id))
    }

    /// Named graphs, ascending.
    pub(crate) fn graphs(&self) -> Vec<TermId> {
        let mut graphs: Vec<_> = self.quads.iter().map(|quad| quad[3]).collect();
        graphs.retain(|graph| *graph != TermId::DEFAULT_GRAPH);
        graphs.sort_unstable();
        graphs.dedup();
        graphs
    }

    pub(crate) fn matching<'a>(
        &'a self,
        triple: [Option<TermId>; 3],
        graphs: &'a GraphSet,
    ) -> impl Iterator<Item = [TermId; 4]> + 'a {
        self.quads.iter().copied().filter(move |quad| {
            graphs.contains(quad[3])
                && triple
                    .iter()
                    .zip(quad)
                    .all(|(wanted, id)| wanted.is_none_or(|wanted| wanted == *id))
        })
    }
}

fn inline_id(term: &Term) -> Option<TermId> {
    match term {
        Term::Literal(literal) => inline::encode_literal(literal.as_ref()),
        _ => None,
    }
}

impl Statistics for Store {
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
        Ok(self.known(term))
    }

    fn count(
        &self,
        triple: [Option<TermId>; 3],
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        assert!(!matches!(triple, [Some(_), None, Some(_)]), "no prefix");
        *self.asked.borrow_mut() += 1;
        Ok(self.matching(triple, graphs).count() as u64)
    }

    fn count_ranges(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        *self.asked.borrow_mut() += 1;
        Ok(self
            .matching(triple, graphs)
            .filter(|quad| {
                ranges
                    .iter()
                    .any(|range| range.contains(quad[position as usize]))
            })
            .count() as u64)
    }

    fn distinct(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        *self.asked.borrow_mut() += 1;
        let mut values: Vec<_> = self
            .matching(triple, graphs)
            .map(|quad| quad[position as usize])
            .collect();
        values.sort_unstable();
        values.dedup();
        Ok(values.len() as u64)
    }

    fn sample(
        &self,
        triple: [Option<TermId>; 3],
        within: Option<(Position, &[IdRange])>,
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, StatisticsError> {
        let is_within = |quad: &[TermId; 4]| {
            within.is_none_or(|(position, ranges)| {
                let id = quad[position as usize];
                ranges
                    .iter()
                    .any(|range| (range.first..=range.last).contains(&id))
            })
        };
        let matching = self.matching(triple, graphs).filter(is_within);
        let mut triples: Vec<_> = matching.map(|[s, p, o, _]| [s, p, o]).collect();
        triples.sort_unstable();
        triples.dedup();
        let all = triples.len();
        let drawn = all.min(most);
        let places = (0..drawn).map(|number| (2 * number + 1) * all / (2 * drawn));
        Ok(Some(places.map(|place| triples[place]).collect()))
    }

    fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
        _: &dyn Fn() -> bool,
    ) -> Result<Vec<(TermId, u64)>, StatisticsError> {
        let mut counts: BTreeMap<TermId, u64> = BTreeMap::new();
        for quad in self.matching([None, Some(predicate), None], graphs) {
            *counts.entry(quad[position as usize]).or_default() += 1;
        }
        let mut top: Vec<_> = counts.into_iter().filter(|(_, rows)| *rows > 1).collect();
        top.sort_by_key(|(term, rows)| (std::cmp::Reverse(*rows), *term));
        Ok(top)
    }

    fn subject_sets(
        &self,
        predicates: &[TermId],
        graphs: &GraphSet,
        _: usize,
    ) -> Result<Option<SubjectSets>, StatisticsError> {
        let mut subjects: BTreeMap<TermId, Vec<u64>> = BTreeMap::new();
        for [subject, predicate, ..] in self.matching([None; 3], graphs) {
            if let Ok(place) = predicates.binary_search(&predicate) {
                let quads = subjects.entry(subject).or_default();
                quads.resize(predicates.len(), 0);
                quads[place] += 1;
            }
        }
        let groups = subjects.into_values().map(|quads| SubjectGroup {
            has: (0..)
                .zip(&quads)
                .fold(0, |has, (bit, quads)| has | u64::from(*quads > 0) << bit),
            subjects: 1,
            quads,
        });
        Ok(Some(SubjectSets {
            groups: groups.collect(),
            ..SubjectSets::default()
        }))
    }

    fn quads(&self) -> u64 {
        self.quads.len() as u64
    }

    fn named_graphs(&self) -> u64 {
        self.graphs().len() as u64
    }
}
