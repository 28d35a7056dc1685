//! Quads at evenly spaced places, for estimates.

use stoa_storage::ReadCounts;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::composed::Places;
use super::ways::{graph_first, only_graph, stored_prefix};
use super::{Snapshot, Visible};
use crate::error::Result;
use crate::permutation::{Intervals, sample};

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
        let rows = sample(store, self.tree(stored), &intervals, most)?;
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
            visible.is_none_or(|graphs| graphs.contains(*graph))
        };
        let quads: Vec<[TermId; 4]> = quads.filter(is_visible).collect();
        Ok((quads.len() * 2 >= drawn).then_some(quads))
    }

    /// Whether the delta adds or removes more than a tenth as many rows as the intervals have.
    fn is_mostly_new(&self, name: Permutation, intervals: &Intervals) -> Result<bool> {
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
