//! Quads at evenly spaced places, for estimates; and terms at one, to cut a scan into pieces.

use stoa_storage::ReadCounts;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::composed::Places;
use super::ways::{graph_first, only_graph, stored_prefix};
use super::{Snapshot, Visible};
use crate::error::Result;
use crate::permutation::{Intervals, row_at, sample};

impl Snapshot {
    /// Up to `most` of the quads that start with `prefix` (at most four ids) and whose next position lies in one of
    /// `ranges` (ascending, disjoint; empty means all), at evenly spaced places of the permutation; all of them if there
    /// are no more. Each quad is subject, predicate, object and graph. Not recorded as read.
    ///
    /// Quads that came after the last checkpoint are not among them, and such as were removed since may be; of those drawn
    /// from several graphs only the ones in the set are given, so that these may be fewer though there are more.
    ///
    /// `None` where that would not stand for the quads: if more than a tenth of them came or went after the last checkpoint, if
    /// most that are drawn are of graphs outside of the set, or if no tree has them in that order.
    ///
    /// # Errors
    /// If the trees cannot be read.
    pub fn sample(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 4]>>> {
        let filter = match self.visible(graphs, false)? {
            Visible::Nothing => return Ok(Some(Vec::new())),
            Visible::Rows(filter) => filter,
        };
        let graph = only_graph(&filter).filter(|_| self.has_graph_first());
        let first = graph.and_then(|graph| Some((graph, graph_first(permutation, prefix.len())?)));
        let (stored, before, visible) = match &first {
            Some((graph, stored)) => (*stored, std::slice::from_ref(graph), None),
            None => (self.stored(permutation), &[][..], filter.graphs.as_ref()),
        };
        let depth = before.len() + prefix.len() + usize::from(!ranges.is_empty());
        if depth > 4 || (stored != permutation && first.is_none() && prefix.len() < 2) {
            return Ok(None);
        }
        let places = Places::between(permutation, stored);
        let intervals = Intervals::new(&stored_prefix(places, before, prefix), ranges)?;
        if self.is_mostly_new(stored, &intervals)? {
            return Ok(None);
        }
        let store = &self.tree_store(stored);
        let tree = self.tree_of(stored, first.map(|(graph, _)| graph));
        let rows = sample(store, tree, &intervals, most, &|| true)?.unwrap_or_default();
        store.add(&ReadCounts {
            rnd: rows.len() as u64,
            ..ReadCounts::default()
        });
        let drawn = rows.len();
        let order = stored.order();
        let quads = rows.into_iter().map(|row| {
            let mut quad = [TermId::UNBOUND; 4];
            for (position, value) in order.into_iter().zip(row) {
                if let Some(slot) = quad.get_mut(position as usize) {
                    *slot = TermId::from_bits(value);
                }
            }
            quad
        });
        let is_visible = |quad: &[TermId; 4]| {
            let [.., graph] = quad;
            let is_hidden = self.hides_some() && self.delta().mask().contains(*graph);
            !is_hidden && visible.is_none_or(|graphs| graphs.contains(*graph))
        };
        let quads: Vec<[TermId; 4]> = quads.filter(is_visible).collect();
        Ok((quads.len() * 2 >= drawn).then_some(quads))
    }

    /// The term right behind `prefix` about `number` rows behind the first of the quads that start with `prefix` and
    /// have a term of `range` there, or, `from_end`, before the last of them; that of the last (first) one if there are
    /// fewer. Not recorded as read.
    ///
    /// Quads of other graphs are counted, and what changed after the last checkpoint is not. `None` if there are none
    /// then, or if no tree has them in that order.
    ///
    /// # Errors
    /// If the trees cannot be read.
    pub fn term_near(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        range: IdRange,
        graphs: &GraphSet,
        (number, from_end): (u64, bool),
    ) -> Result<Option<TermId>> {
        let Visible::Rows(filter) = self.visible(graphs, false)? else {
            return Ok(None);
        };
        let graph = only_graph(&filter).filter(|_| self.has_graph_first());
        let first = graph.and_then(|graph| Some((graph, graph_first(permutation, prefix.len())?)));
        let (stored, before) = match &first {
            Some((graph, stored)) => (*stored, std::slice::from_ref(graph)),
            None => (self.stored(permutation), &[][..]),
        };
        let Some(position) = permutation.order().get(prefix.len()).copied() else {
            return Ok(None);
        };
        let is_composed = stored != permutation && first.is_none() && prefix.len() < 2;
        if is_composed || before.len() + prefix.len() >= 4 {
            return Ok(None);
        }
        let places = Places::between(permutation, stored);
        let intervals = Intervals::new(&stored_prefix(places, before, prefix), &[range])?;
        let store = &self.tree_store(stored);
        let tree = self.tree_of(stored, first.map(|(graph, _)| graph));
        let row = row_at(store, tree, &intervals, number, from_end)?;
        store.add(&ReadCounts {
            rnd: 1,
            ..ReadCounts::default()
        });
        let mut columns = stored.order().into_iter().zip(row.unwrap_or_default());
        let found = columns.find(|(other, _)| *other == position);
        Ok(found
            .filter(|_| row.is_some())
            .map(|(_, id)| TermId::from_bits(id)))
    }

    /// Whether the delta adds or removes more than a tenth as many rows as the intervals have.
    pub(super) fn is_mostly_new(&self, name: Permutation, intervals: &Intervals) -> Result<bool> {
        let delta = self.delta();
        if delta.is_empty() {
            return Ok(false);
        }
        let mut changed = 0_u64;
        for index in 0..intervals.lows.len() {
            if let Some((low, high)) = intervals.get(index) {
                changed = changed.saturating_add(delta.changed_rows(name.into(), &low, &high));
            }
        }
        Ok(changed.saturating_mul(10) > self.count_rows(name, intervals)?)
    }
}
