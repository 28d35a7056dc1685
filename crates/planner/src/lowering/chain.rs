//! Estimates of chains whose patterns have constants: how many different terms these range over.

use stoa_terms::Position;

use super::Lowering;
use super::part::{Joining, Part, PartSource};
use crate::access_path::{constants, positions_of};
use crate::error::Error;
use crate::join_order::Item;

impl Lowering<'_> {
    /// Where patterns with a constant meet, one by its object and one by its subject, neither ranges over all that the
    /// predicate of the other one has. The terms of each are some of those that both predicates have, about all of
    /// the predicate that has fewer: so many the pattern of that one is taken to range over.
    pub(super) fn meet_in_chains(
        &self,
        parts: &[Part],
        joining: &Joining,
        items: &mut [Item],
    ) -> Result<(), Error> {
        for variable in joining.chained.iter() {
            let ends = parts.iter().enumerate().filter_map(|(number, part)| {
                let PartSource::Pattern(pattern) = &part.source else {
                    return None;
                };
                let position = positions_of(pattern, variable).next()?;
                match (constants(pattern), position) {
                    ([None, Some(predicate), Some(_)], Position::Subject)
                    | ([Some(_), Some(predicate), None], Position::Object) => {
                        Some((number, predicate, position, &pattern.graphs))
                    }
                    _ => None,
                }
            });
            let ends: Vec<_> = ends.collect();
            let is_end = |wanted| ends.iter().any(|(_, _, position, _)| *position == wanted);
            if !is_end(Position::Subject) || !is_end(Position::Object) {
                continue;
            }
            let mut least: Option<(f64, usize)> = None;
            for (number, predicate, position, graphs) in ends {
                let (_, subjects, objects) = self.cache.predicate(Some(predicate), graphs)?;
                let terms = if position == Position::Subject {
                    subjects
                } else {
                    objects
                };
                least = least
                    .filter(|(known, _)| *known <= terms)
                    .or(Some((terms, number)));
            }
            let item = least.and_then(|(terms, number)| Some((terms, items.get_mut(number)?)));
            if let Some((terms, item)) = item {
                let mut known = item.distinct.iter_mut();
                if let Some((_, distinct)) = known.find(|(other, _)| *other == variable) {
                    *distinct = distinct.max(terms);
                }
            }
        }
        Ok(())
    }
}
