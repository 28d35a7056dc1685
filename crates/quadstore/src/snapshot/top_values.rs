//! The most frequent subjects and objects of a predicate, for estimates.

use stoa_storage::ReadCounts;
use stoa_terms::{GraphSet, Permutation, Position, TermId};

use super::ways::{graph_first, only_graph};
use super::{Snapshot, Visible};
use crate::error::Result;
use crate::permutation::{FREQUENT, Intervals, behind, rows_between, top_values};
use crate::root::TreeName;

/// How many rows of each batch of the delta are looked at.
const DRAWN_OF_BATCH: usize = 64;

impl Snapshot {
    /// The terms that many quads with a predicate have at a position, subject or object, and how many quads have each, the most
    /// frequent ones first. Of those that had more than a 64th of the quads in the last checkpoint none is missing, nor of
    /// those that have got as much since then. Not recorded as read.
    ///
    /// Counts are exact, but for sets of graphs that hide some quads: then they are of all graphs, as upper bounds. `None`
    /// where that would not stand for the quads: if more than a tenth of them came or went after the last checkpoint, or
    /// fewer than half of all are in the graphs.
    ///
    /// What the last checkpoint had is looked for once and kept until the next one. That may take some hundred reads, between
    /// which `go_on` is asked; `None` as well once it says no.
    ///
    /// # Errors
    /// If the trees cannot be read.
    pub fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(TermId, u64)>>> {
        let permutation = match position {
            Position::Subject => Permutation::Psog,
            Position::Object => Permutation::Posg,
            Position::Predicate | Position::Graph => return Ok(None),
        };
        let Visible::Rows(filter) = self.visible(graphs, false)? else {
            return Ok(None);
        };
        let graph = only_graph(&filter).filter(|_| self.has_graph_first());
        let first = graph.and_then(|graph| Some((graph, graph_first(permutation, 1)?)));
        let (stored, prefix) = match first {
            Some((graph, stored)) => (stored, vec![graph, predicate]),
            None => {
                let inside = self.quads_in(graphs)?;
                if inside.is_none_or(|inside| inside < self.0.quads / 2) || self.hides_some() {
                    return Ok(None);
                }
                (permutation, vec![predicate])
            }
        };
        let intervals = Intervals::new(&prefix, &[])?;
        if self.is_mostly_new(stored, &intervals)? {
            return Ok(None);
        }
        let graph = first.map(|(graph, _)| graph);
        let Some(mut top) = self.top_rows((stored.into(), graph), &prefix, go_on)? else {
            return Ok(None);
        };
        top.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let top = top.into_iter().filter(|(_, rows)| *rows > 0);
        let terms = top.map(|(value, rows)| (TermId::from_bits(value), rows));
        Ok(Some(terms.collect()))
    }

    /// The values that many rows of a tree have behind a prefix, and how many rows have each.
    fn top_rows(
        &self,
        (name, graph): (TreeName, Option<TermId>),
        prefix: &[TermId],
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(u64, u64)>>> {
        let (store, tree) = (&self.tree_store(name), self.tree_of(name, graph));
        let count_lookups = |lookups: usize| {
            store.add(&ReadCounts {
                rnd: lookups as u64,
                ..ReadCounts::default()
            });
        };
        let mut key = [0; 2];
        for (slot, id) in key.iter_mut().zip(prefix) {
            *slot = id.to_bits();
        }
        let in_root = tree.top_values(key, || {
            let found = top_values(store, tree, prefix, go_on)?;
            Ok(found.map(|(top, lookups)| {
                count_lookups(lookups);
                top
            }))
        })?;
        let Some(in_root) = in_root else {
            return Ok(None);
        };
        let (mut top, delta) = (in_root.to_vec(), self.delta());
        let intervals = Intervals::new(prefix, &[])?;
        let Some((low, high)) = intervals.get(0).filter(|_| !delta.is_empty()) else {
            return Ok(Some(top));
        };
        for (value, rows) in &mut top {
            if let Some((low, high)) = behind(prefix, *value)?.get(0) {
                *rows = rows.saturating_add_signed(delta.net_rows(name, &low, &high));
            }
        }
        let all = self.count_rows(name, &intervals)?;
        let column = prefix.len();
        for value in delta.repeated(name, (&low, &high), column, DRAWN_OF_BATCH) {
            if top.iter().any(|(known, _)| *known == value) {
                continue;
            }
            let intervals = behind(prefix, value)?;
            let Some((low, high)) = intervals.get(0) else {
                continue;
            };
            let net = delta.net_rows(name, &low, &high);
            if net.max(0).unsigned_abs().saturating_mul(FREQUENT) > all {
                let rows = rows_between(store, tree, &low, &high, intervals.depth)?;
                count_lookups(1);
                top.push((value, rows.saturating_add_signed(net)));
            }
        }
        Ok(Some(top))
    }
}
