//! How a quad pattern lies on a permutation: what scans and look-ups compare and give back.

use stoa_planner::physical::{PatternTerm, QuadPattern, Variable};
use stoa_quadstore::{Columns, QuadColumns};
use stoa_terms::{Permutation, Position, TermId};

use crate::error::{Error, Result};

/// The terms of a pattern in the order of a permutation.
pub(super) struct Layout {
    /// `None` for a graph that is not asked for.
    terms: [Option<PatternTerm>; 4],
}

impl Layout {
    pub(super) fn new(pattern: &QuadPattern, permutation: Permutation) -> Self {
        let [subject, predicate, object] = pattern.triple;
        Self {
            terms: permutation.order().map(|position| match position {
                Position::Subject => Some(subject),
                Position::Predicate => Some(predicate),
                Position::Object => Some(object),
                Position::Graph => pattern.graph_variable.map(PatternTerm::Variable),
            }),
        }
    }

    /// The term at a place; `None` for a graph that is not asked for, and behind the last place.
    pub(super) fn term(&self, place: usize) -> Option<PatternTerm> {
        self.terms.get(place).copied().flatten()
    }

    /// The terms in the first `length` places.
    pub(super) fn first(&self, length: usize) -> Result<Vec<PatternTerm>> {
        self.terms
            .get(..length)
            .and_then(|terms| terms.iter().copied().collect())
            .ok_or(Error::Internal(
                "a key of more positions than the pattern has",
            ))
    }

    /// The constants in the first `length` places.
    pub(super) fn prefix(&self, length: usize) -> Result<Vec<TermId>> {
        let terms = self.first(length)?.into_iter();
        let ids = terms.map(|term| match term {
            PatternTerm::Constant(id) => Ok(id),
            PatternTerm::Variable(_) => Err(Error::Internal("a prefix with a variable")),
        });
        ids.collect()
    }

    /// Places from `start` on that hold constants, to be compared row by row.
    pub(super) fn constants(&self, start: usize) -> Vec<(usize, TermId)> {
        self.places(start)
            .filter_map(|(place, term)| match term {
                PatternTerm::Constant(id) => Some((place, id)),
                PatternTerm::Variable(_) => None,
            })
            .collect()
    }

    /// Places from `start` on that hold variables.
    pub(super) fn variables(&self, start: usize) -> Vec<(usize, Variable)> {
        self.places(start)
            .filter_map(|(place, term)| match term {
                PatternTerm::Constant(_) => None,
                PatternTerm::Variable(variable) => Some((place, variable)),
            })
            .collect()
    }

    /// Pairs of places from `start` on that hold one variable and must be equal.
    pub(super) fn repetitions(&self, start: usize) -> Vec<(usize, usize)> {
        let variables = self.variables(start);
        let mut pairs = Vec::new();
        for (index, (place, variable)) in variables.iter().enumerate() {
            let first = variables
                .iter()
                .take(index)
                .find(|(_, other)| other == variable);
            if let Some((first, _)) = first {
                pairs.push((*first, *place));
            }
        }
        pairs
    }

    fn places(&self, start: usize) -> impl Iterator<Item = (usize, PatternTerm)> {
        self.terms
            .iter()
            .enumerate()
            .skip(start)
            .filter_map(|(place, term)| Some((place, (*term)?)))
    }
}

/// What is compared row by row.
pub(super) struct Residual {
    pub(super) constants: Vec<(usize, TermId)>,
    pub(super) repetitions: Vec<(usize, usize)>,
}

impl Residual {
    pub(super) fn new(layout: &Layout, start: usize) -> Self {
        Self {
            constants: layout.constants(start),
            repetitions: layout.repetitions(start),
        }
    }

    /// The places that are compared.
    pub(super) fn columns(&self, mut columns: Columns) -> Columns {
        for (place, _) in &self.constants {
            columns = columns.with(*place);
        }
        for (first, second) in &self.repetitions {
            columns = columns.with(*first).with(*second);
        }
        columns
    }

    /// Which rows pass; `None` if all do because nothing is compared.
    pub(super) fn filter(&self, quads: &QuadColumns) -> Option<Vec<bool>> {
        if self.constants.is_empty() && self.repetitions.is_empty() {
            return None;
        }
        let mut keep = vec![true; quads.rows];
        for (place, constant) in &self.constants {
            for (keep, id) in keep.iter_mut().zip(place_of(quads, *place)) {
                *keep &= id == constant;
            }
        }
        for (first, second) in &self.repetitions {
            let pairs = place_of(quads, *first).iter().zip(place_of(quads, *second));
            for (keep, (first, second)) in keep.iter_mut().zip(pairs) {
                *keep &= first == second;
            }
        }
        Some(keep)
    }
}

/// The column at a place of a permutation.
pub(super) fn place_of(quads: &QuadColumns, place: usize) -> &[TermId] {
    quads.columns.get(place).map_or(&[], Vec::as_slice)
}
