//! Exact numbers of rows and estimates of distinct values, in every scheme.

use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::composed::Places;
use super::ways::{graph_first, only_graph, pairs, stored_prefix};
use super::{Snapshot, Visible};
use crate::error::Result;
use crate::permutation::count::{Distinct, distinct, rows_between};
use crate::permutation::{Intervals, Tree};
use crate::read::{Columns, Count, QuadColumns, ScanSpec};
use crate::root::TreeName;

/// Under a graph set that may hide rows, so many are counted one by one; more are estimated.
const COUNTED_ROWS: u64 = 4096;
/// With more predicates than this, rows of a range of nodes are not counted under each of them.
const PREDICATES_COUNTED: usize = 1024;

impl Snapshot {
    /// The number of rows that start with `prefix` (at most four ids) and whose next position lies
    /// in one of `ranges` (ascending, disjoint; empty means all); triples that several graphs of the
    /// set hold count once.
    ///
    /// Exact unless the set of graphs may hide many rows: then an upper bound.
    pub fn count(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<Count> {
        let exact = |rows| Ok(Count { rows, exact: true });
        let filter = match self.visible(graphs, false)? {
            Visible::Nothing => return exact(0),
            Visible::Rows(filter) => filter,
        };
        let graph = only_graph(&filter);
        if let Some(graph) = graph
            && self.has_graph_first()
            && prefix.len() + usize::from(!ranges.is_empty()) <= 3
            && let Some(stored) = graph_first(permutation, prefix.len())
        {
            let places = Places::between(permutation, stored);
            let intervals = Intervals::new(&stored_prefix(places, &[graph], prefix), ranges)?;
            return exact(self.count_rows(self.tree(stored), &intervals)?);
        }
        let (all, all_exact) = self.rows_of(permutation, prefix, ranges)?;
        if filter.passes_all() || all == 0 {
            return Ok(Count {
                rows: all,
                exact: all_exact,
            });
        }
        let inside = self.quads_in(graphs)?.unwrap_or(all).min(all);
        let small = match graph {
            Some(graph) => inside <= COUNTED_ROWS && self.has_few_subjects(graph, all)?,
            None => false,
        };
        if all > COUNTED_ROWS && !small {
            return Ok(Count {
                rows: inside,
                exact: false,
            });
        }
        let spec = ScanSpec {
            permutation,
            prefix: prefix.to_vec(),
            ranges: ranges.to_vec(),
            graphs: graphs.clone(),
            columns: Columns::NONE,
            with_graph: false,
        };
        let mut way = self.way(&spec, filter)?;
        let (mut rows, mut out) = (0, QuadColumns::default());
        while way.next(1024, &mut out, None)? {
            rows += out.rows as u64;
            out.clear();
        }
        exact(rows)
    }

    /// The number of quads, in all graphs, whose first position lies in a range.
    pub(crate) fn count_all(&self, permutation: Permutation, range: IdRange) -> Result<u64> {
        Ok(self.rows_of(permutation, &[], &[range])?.0)
    }

    /// The rows of a prefix and ranges in all graphs, and whether that is exact; else an upper bound.
    pub(super) fn rows_of(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
    ) -> Result<(u64, bool)> {
        let stored = self.stored(permutation);
        if stored == permutation || prefix.len() >= 2 {
            let places = Places::between(permutation, stored);
            let intervals = Intervals::new(&stored_prefix(places, &[], prefix), ranges)?;
            return Ok((self.count_rows(self.tree(stored), &intervals)?, true));
        }
        let tree = self.tree(stored);
        let mut rows = 0;
        if let [node] = prefix {
            for predicate in self.predicates_of(permutation, *node, ranges)? {
                rows += self.count_rows(tree, &Intervals::new(&[predicate, *node], &[])?)?;
            }
            return Ok((rows, true));
        }
        if ranges.is_empty() {
            return Ok((self.quads(), true));
        }
        let predicates = self.leading(TreeName::Psog, &[], PREDICATES_COUNTED)?;
        let Some(predicates) = predicates else {
            return Ok((self.quads(), false));
        };
        for predicate in predicates {
            let prefix = [TermId::from_bits(predicate)];
            rows += self.count_rows(tree, &Intervals::new(&prefix, ranges)?)?;
        }
        Ok((rows, true))
    }

    /// The predicates of a node, in the lean scheme.
    fn predicates_of(
        &self,
        permutation: Permutation,
        node: TermId,
        ranges: &[IdRange],
    ) -> Result<Vec<TermId>> {
        let intervals = Intervals::new(&[node], ranges)?;
        let columns = Columns::of(&[1]);
        let tree = self.tree(pairs(permutation));
        let filter = crate::permutation::RowFilter::ALL;
        let mut reader = self.reader(tree, columns, filter, intervals);
        let mut out = QuadColumns::default();
        while reader.next(out.rows + 4096, &mut out, None)? {}
        let [_, predicates, ..] = out.columns;
        Ok(predicates)
    }

    pub(super) fn count_rows(&self, tree: &Tree, intervals: &Intervals) -> Result<u64> {
        let (store, depth) = (self.store(), intervals.depth);
        let mut rows = 0_u64;
        for index in 0..intervals.lows.len() {
            let Some((low, high)) = intervals.get(index) else {
                break;
            };
            rows += rows_between(store, tree, &low, &high, depth)?;
        }
        Ok(rows)
    }

    /// An estimate of how many distinct values the `positions` (1 or 2) after `prefix` take, in all
    /// graphs together.
    pub fn distinct(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        positions: usize,
    ) -> Result<u64> {
        let stored = self.stored(permutation);
        let what = match prefix.len() + positions {
            _ if positions == 0 => return Ok(1),
            1 => Distinct::One,
            2 => Distinct::Two,
            _ => return Ok(self.rows_of(permutation, prefix, &[])?.0),
        };
        // In the lean scheme the pairs have what a node begins.
        let name = match stored == permutation {
            true => TreeName::from(stored),
            false => pairs(permutation),
        };
        let tree = self.tree(name);
        let intervals = Intervals::new(prefix, &[])?;
        match intervals.get(0) {
            Some((low, high)) => distinct(self.store(), tree, &low, &high, intervals.depth, what),
            None => Ok(0),
        }
    }
}
