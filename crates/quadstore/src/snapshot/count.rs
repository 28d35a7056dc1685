//! Exact numbers of rows and estimates of distinct values, in every scheme.

use stoa_storage::ReadCounts;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::composed::Places;
use super::ways::{graph_first, only_graph, pairs, stored_prefix};
use super::{Snapshot, Visible};
use crate::error::Result;
use crate::permutation::Counted;
use crate::permutation::Intervals;
use crate::permutation::count::{Distinct, counted_distinct, distinct, rows_between};
use crate::read::{Columns, Count, QuadColumns, ScanSpec};
use crate::root::TreeName;
use crate::segment::Row;

/// Under a graph set that may hide rows, so many are counted one by one; more are estimated.
const COUNTED_ROWS: u64 = 4096;
/// With more predicates than this, rows of a range of nodes are not counted under each of them.
const PREDICATES_COUNTED: usize = 1024;
/// So many rows of each batch of the delta are looked at for an estimate of distinct values, and so
/// many of the values that they have are looked for in the root.
const DISTINCT_SAMPLED: usize = 1024;
const DISTINCT_PROBED: usize = 16;

/// Whether a tree begins with the predicate: of these there are few, and their counts are kept.
const fn is_by_predicate(name: TreeName) -> bool {
    matches!(name, TreeName::Psog | TreeName::Posg)
}

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
        self.count_reading((permutation, prefix, ranges), graphs, COUNTED_ROWS)
    }

    /// As [`count`](Self::count) without ranges, but rows are never read to tell which ones the set of graphs hides: then an
    /// upper bound, from the index alone.
    pub fn count_at_most(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        graphs: &GraphSet,
    ) -> Result<Count> {
        self.count_reading((permutation, prefix, &[]), graphs, 0)
    }

    /// Up to so many rows are read.
    fn count_reading(
        &self,
        (permutation, prefix, ranges): (Permutation, &[TermId], &[IdRange]),
        graphs: &GraphSet,
        read_max: u64,
    ) -> Result<Count> {
        if let Some(recorder) = self.recorder() {
            recorder.rows(permutation, prefix, ranges, graphs);
        }
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
            return exact(self.count_rows(stored, &intervals)?);
        }
        let (all, all_exact) = self.rows_of(permutation, prefix, ranges)?;
        if filter.passes_all() && !self.hides_some() || all == 0 {
            return Ok(Count {
                rows: all,
                exact: all_exact,
            });
        }
        let inside = self.quads_in(graphs)?;
        let is_whole = graph.is_some() || !filter.merge_graphs;
        if let (Some(inside), true, [], []) = (inside, is_whole, prefix, ranges) {
            return exact(inside);
        }
        let inside = inside.unwrap_or(all).min(all);
        let small = match graph {
            Some(graph) => inside <= read_max && self.has_few_subjects(graph, all)?,
            None => false,
        };
        if all > read_max && !small {
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

    /// The number of quads, in all graphs, whose first position lies in a range; those that are hidden while others are not
    /// count as well.
    pub(crate) fn count_all(&self, permutation: Permutation, range: IdRange) -> Result<u64> {
        Ok(self.rows_of(permutation, &[], &[range])?.0)
    }

    /// The rows of a prefix and ranges in all graphs, and whether that is exact; else an upper bound. Rows of some graphs that
    /// are hidden are counted as well.
    pub(crate) fn rows_of(
        &self,
        permutation: Permutation,
        prefix: &[TermId],
        ranges: &[IdRange],
    ) -> Result<(u64, bool)> {
        let stored = self.stored(permutation);
        if stored == permutation || prefix.len() >= 2 {
            let places = Places::between(permutation, stored);
            let intervals = Intervals::new(&stored_prefix(places, &[], prefix), ranges)?;
            return Ok((self.count_rows(stored, &intervals)?, true));
        }
        let mut rows = 0;
        if let [node] = prefix {
            for predicate in self.predicates_of(permutation, *node, ranges)? {
                rows += self.count_rows(stored, &Intervals::new(&[predicate, *node], &[])?)?;
            }
            return Ok((rows, true));
        }
        if ranges.is_empty() {
            return Ok((self.0.quads, true));
        }
        let predicates = self.leading(TreeName::Psog, &[], PREDICATES_COUNTED)?;
        let Some(predicates) = predicates else {
            return Ok((self.0.quads, false));
        };
        for predicate in predicates {
            let prefix = [TermId::from_bits(predicate)];
            rows += self.count_rows(stored, &Intervals::new(&prefix, ranges)?)?;
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
        let tree = pairs(permutation);
        let filter = crate::permutation::RowFilter::ALL;
        let mut reader = self.reader(tree, columns, filter, intervals);
        let mut out = QuadColumns::default();
        while reader.next(out.rows + 4096, &mut out, None)? {}
        let [_, predicates, ..] = out.columns;
        Ok(predicates)
    }

    /// The rows of a tree in intervals: exact for quads; for pairs at most so many.
    pub(super) fn count_rows(
        &self,
        name: impl Into<TreeName>,
        intervals: &Intervals,
    ) -> Result<u64> {
        let name = name.into();
        let (store, depth) = (&self.tree_store(name), intervals.depth);
        let delta = self.delta();
        let is_by_graph = matches!(name, TreeName::Gs | TreeName::Gpso | TreeName::Gpos);
        let (mut rows, mut net) = (0_u64, 0_i64);
        let mut lookups = 0;
        for index in 0..intervals.lows.len() {
            let Some((low, high)) = intervals.get(index) else {
                break;
            };
            let graph = TermId::from_bits(low[0]);
            let tree = self.tree_of(
                name,
                Some(graph).filter(|_| is_by_graph && low[0] == high[0]),
            );
            let mut count = || {
                lookups += 1;
                rows_between(store, tree, &low, &high, depth)
            };
            rows += match depth {
                1 if is_by_predicate(name) && low[0] == high[0] => {
                    tree.counted(low[0], Counted::Rows, count)?
                }
                _ => count()?,
            };
            if !delta.is_empty() {
                net += delta.net_rows(name, &low, &high);
            }
        }
        store.add(&ReadCounts {
            rnd: lookups,
            ..ReadCounts::default()
        });
        Ok(rows.saturating_add_signed(net))
    }

    /// An estimate of how many distinct values the `positions` (1 or 2) after `prefix` take, in all
    /// graphs together; not recorded as read.
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
            _ => return self.rows_at_most(permutation, prefix),
        };
        // In the lean scheme the pairs have what a node begins.
        let name = match stored == permutation {
            true => TreeName::from(stored),
            false => pairs(permutation),
        };
        let tree = self.tree(name);
        let intervals = Intervals::new(prefix, &[])?;
        let Some((low, high)) = intervals.get(0) else {
            return Ok(0);
        };
        let depth = intervals.depth;
        let store = &self.tree_store(name);
        let in_root = match depth {
            1 if is_by_predicate(name) => tree.counted(low[0], Counted::Distinct(what), || {
                counted_distinct(store, tree, &low, &high, depth, what)
            })?,
            _ => distinct(store, tree, &low, &high, depth, what)?,
        };
        if self.delta().is_empty() {
            return Ok(in_root);
        }
        let rows = self.rows_at_most(permutation, prefix)?;
        let columns = prefix.len() + positions;
        let (in_delta, samples) =
            self.delta()
                .distinct(name, (&low, &high), columns, DISTINCT_SAMPLED);
        let new = self.share_of_new(name, in_delta, &samples, columns)?;
        Ok(in_root.saturating_add(new).clamp(u64::from(rows > 0), rows))
    }

    /// The rows of a prefix in all graphs, as a bound of estimates; where some rows are hidden and few are left, of these alone.
    fn rows_at_most(&self, permutation: Permutation, prefix: &[TermId]) -> Result<u64> {
        if self.hides_some() {
            let all = (permutation, prefix, &[][..]);
            let count = self.unrecorded();
            return Ok(count.count_reading(all, &GraphSet::All, COUNTED_ROWS)?.rows);
        }
        Ok(self.rows_of(permutation, prefix, &[])?.0)
    }

    /// How many of the values that the delta has are not in the root, judged by some of them: rows
    /// whose first `columns` count.
    fn share_of_new(
        &self,
        name: TreeName,
        values: u64,
        samples: &[Row],
        columns: usize,
    ) -> Result<u64> {
        let probed = samples.len().min(DISTINCT_PROBED);
        let Some(step) = samples.len().checked_div(probed) else {
            return Ok(0);
        };
        let store = &self.tree_store(name);
        let mut new = 0_u64;
        for sample in samples.iter().step_by(step).take(probed) {
            let (mut low, mut high) = ([0; 4], [u64::MAX; 4]);
            for ((low, high), value) in low.iter_mut().zip(&mut high).zip(sample).take(columns) {
                (*low, *high) = (*value, *value);
            }
            let rows = rows_between(store, self.tree(name), &low, &high, columns)?;
            new += u64::from(rows == 0);
        }
        Ok(values.saturating_mul(new) / probed as u64)
    }
}
