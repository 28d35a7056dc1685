//! Exact numbers of rows, and estimates of distinct values.
//!
//! # Invariants
//! 1. Numbers of rows count every graph; a caller with a partial graph set must know that it hides
//!    nothing (`Snapshot::count`).

#![expect(
    clippy::indexing_slicing,
    reason = "indexes of children come from the node that is indexed"
)]

use stoa_storage::Store;
use stoa_terms::TermId;

use super::node::{Child, Node};
use super::tree::{LeafCursor, Tree, child_node};
use crate::error::{Error, Result};
use crate::segment::Row;
use crate::segment::reader::{Group, Header};

/// The number of rows between `low` and `high`, of which the first `depth` columns count: behind
/// them `low` is 0 and `high` the largest number.
pub(crate) fn rows_between(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
) -> Result<u64> {
    if depth == 0 {
        return Ok(tree.rows());
    }
    let mut cursor = LeafCursor::new();
    cursor.seek(store, tree, low)?;
    let Some(leaf) = cursor.leaf() else {
        return Ok(0);
    };
    let before_low = cursor.rows_before();
    let mut ranks = LeafRanks::new(store, leaf.clone());
    let start = before_low.saturating_add(ranks.rank(low, depth, false)?);
    cursor.seek(store, tree, high)?;
    let Some(leaf) = cursor.leaf() else {
        return Ok(0);
    };
    if *leaf != ranks.leaf {
        ranks = LeafRanks::new(store, leaf.clone());
    }
    let rank = ranks.rank(high, depth, true)?;
    let end = cursor.rows_before().saturating_add(rank);
    Ok(end.saturating_sub(start))
}

/// Finds how many rows of one leaf are below a key; keeps what it has read.
struct LeafRanks<'a> {
    store: &'a Store,
    leaf: Child,
    header: Option<Header>,
    group: Option<(usize, Group)>,
}

impl<'a> LeafRanks<'a> {
    fn new(store: &'a Store, leaf: Child) -> Self {
        Self {
            store,
            leaf,
            header: None,
            group: None,
        }
    }

    /// The number of rows whose first `depth` columns are below those of `key`, or at most equal to
    /// them if `after`.
    fn rank(&mut self, key: &Row, depth: usize, after: bool) -> Result<u64> {
        if *key < self.leaf.first {
            return Ok(0);
        }
        if self.leaf.last < [key[0], key[1]] {
            return Ok(self.leaf.rows);
        }
        let header = match &mut self.header {
            Some(header) => header,
            None => {
                let part = self.store.read_one(&self.leaf.part)?;
                self.header.insert(Header::new(part)?)
            }
        };
        let index = header.group_before(key);
        let rows = header.group_rows(index);
        let group = match &mut self.group {
            Some((open, group)) if *open == index => group,
            slot => {
                let part = self.store.read_one(&header.group(index))?;
                let group = Group::new(part, rows, Vec::new())?;
                &mut slot.insert((index, group)).1
            }
        };
        let key = key.map(TermId::from_bits);
        let found = group.search(&key[..depth], after, 0, rows)?;
        let before = index * crate::segment::format::GROUP_ROWS;
        u64::try_from(before + found).map_err(|_| Error::Internal("more rows than a segment has"))
    }
}

/// Which distinct values are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Distinct {
    /// Values of the first column.
    One,
    /// Pairs of values of the first two columns.
    Two,
}

/// An estimate of the distinct values between the rows `low` and `high`, of which the first `depth`
/// columns count; exact for what whole leaves hold.
pub(crate) fn distinct(
    store: &Store,
    tree: &Tree,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    distinct_in(store, &tree.above, low, high, depth, what)
}

fn distinct_in(
    store: &Store,
    node: &Node,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    let mut sum = 0_u64;
    let mut before: Option<&Child> = None;
    for index in node.child_before(low)..node.children.len() {
        let child = &node.children[index];
        if child.first > *high {
            break;
        }
        let whole = *low <= child.first && child.last < [high[0], high[1]]
            || *low <= child.first && depth <= 2 && child.last <= [high[0], high[1]];
        let here = if whole {
            match what {
                Distinct::One => child.distinct_one,
                Distinct::Two => child.distinct_two,
            }
        } else if node.level > 1 {
            let below = child_node(store, node, index)?;
            distinct_in(store, &below, low, high, depth, what)?
        } else {
            share(store, child, low, high, depth, what)?
        };
        if here == 0 {
            continue;
        }
        if let Some(before) = before {
            let (one, two) = before.shared_with(child);
            sum = sum.saturating_sub(match what {
                Distinct::One => one,
                Distinct::Two => two,
            });
        }
        sum = sum.saturating_add(here);
        before = Some(child);
    }
    Ok(sum)
}

/// The distinct values of a leaf that is only partly inside, in proportion to its rows inside.
fn share(
    store: &Store,
    leaf: &Child,
    low: &Row,
    high: &Row,
    depth: usize,
    what: Distinct,
) -> Result<u64> {
    let mut ranks = LeafRanks::new(store, leaf.clone());
    let start = ranks.rank(low, depth, false)?;
    let end = ranks.rank(high, depth, true)?;
    let inside = end.saturating_sub(start);
    if inside == 0 {
        return Ok(0);
    }
    let all = match what {
        Distinct::One => leaf.distinct_one,
        Distinct::Two => leaf.distinct_two,
    };
    let part = u128::from(all) * u128::from(inside) / u128::from(leaf.rows.max(1));
    Ok(u64::try_from(part).unwrap_or(u64::MAX).clamp(1, inside))
}
