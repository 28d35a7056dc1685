//! The root of a tree, its inner nodes in memory, and descents.
//!
//! Inner nodes are read when they are first needed and then shared, decoded, by all readers of a
//! snapshot, until it is dropped: about 120 bytes for 16K rows.
//!
//! Counts of rows that begin with one value are kept once they were asked for: those of a predicate are asked for by
//! nearly every query that names it. So are the values that many rows have behind a prefix.
//!
//! # Concurrency
//! Readers share nodes without locks; two that read the same node at the same time both decode it
//! and keep one. The counts and values that are kept have locks, which are held for a look-up.

use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::Store;
use stoa_storage::sync::Mutex;

use super::count::Distinct;
use super::format::{HEIGHT_MAX, TREE_ROOT_BYTES, TREE_TOP};
use super::node::{Child, Node};
use crate::error::{Error, Result};
use crate::segment::Row;

/// Where a tree lies on disk.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TreeRoot {
    /// Levels of inner nodes; 0 if the top is a segment.
    pub(crate) height: u8,
    /// The segment or node at the top; `None` if the tree is empty.
    pub(crate) top: Option<Child>,
}

impl TreeRoot {
    /// Appends the bytes of the root.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + TREE_ROOT_BYTES;
        out.extend_from_slice(&[self.height, u8::from(self.top.is_some()), 0, 0]);
        if let Some(top) = &self.top {
            top.encode(out);
        }
        out.resize(end, 0);
    }

    /// The root in `bytes`; `None` if they are not one.
    pub(crate) fn decode(bytes: &[u8; TREE_ROOT_BYTES]) -> Option<Self> {
        let (head, entry) = bytes.split_first_chunk::<TREE_TOP>()?;
        match *head {
            [0, 0, 0, 0] => Some(Self::default()),
            [height, 1, 0, 0] if height <= HEIGHT_MAX => Some(Self {
                height,
                top: Some(Child::decode(entry.first_chunk()?)),
            }),
            _ => None,
        }
    }
}

/// A tree that is being read.
#[derive(Debug)]
pub(crate) struct Tree {
    /// A node, not on disk, whose one child is the top; without children if the tree is empty.
    pub(crate) above: Arc<Node>,
    /// By the first value of the rows and what is counted of them.
    counts: Mutex<HashMap<(u64, Counted), u64, RandomState>>,
    /// By prefix the values that many rows have behind it.
    top_values: Mutex<HashMap<[u64; 2], ValueList, RandomState>>,
}

/// Values, and how many rows have each.
type ValueList = Arc<[(u64, u64)]>;

/// What is counted of the rows that begin with one value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Counted {
    Rows,
    Distinct(Distinct),
}

/// How many counts of a tree are kept; when there are so many, all are forgotten.
const COUNTS_MAX: usize = 4_096;
/// And so many lists of values, of 64 each at most.
const LISTS_MAX: usize = 512;

impl Tree {
    /// The tree at `root`; reads nothing.
    pub(crate) fn new(root: &TreeRoot) -> Self {
        let children = root.top.iter().cloned().collect();
        Self {
            above: Arc::new(Node::new(root.height + 1, children)),
            counts: Mutex::default(),
            top_values: Mutex::default(),
        }
    }

    /// A count of the rows that begin with `first`: the one that is kept, or what `count` gives.
    pub(crate) fn counted(
        &self,
        first: u64,
        what: Counted,
        count: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let counts = || self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = counts().get(&(first, what)) {
            return Ok(*known);
        }
        let found = count()?;
        // Of what does not occur there is no end.
        if found > 0 {
            let mut counts = counts();
            if counts.len() >= COUNTS_MAX {
                counts.clear();
            }
            counts.insert((first, what), found);
        }
        Ok(found)
    }

    /// Values that many of the rows with a prefix have behind it, each with the number of its rows: those that are kept, or
    /// what `take` gives; `None` if that is none.
    pub(crate) fn top_values(
        &self,
        prefix: [u64; 2],
        take: impl FnOnce() -> Result<Option<Vec<(u64, u64)>>>,
    ) -> Result<Option<ValueList>> {
        let lists = || {
            let lists = self.top_values.lock();
            lists.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = lists().get(&prefix) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(found) = take()? else {
            return Ok(None);
        };
        let found: ValueList = found.into();
        let mut lists = lists();
        if lists.len() >= LISTS_MAX {
            lists.clear();
        }
        lists.insert(prefix, Arc::clone(&found));
        Ok(Some(found))
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.above.children.first().map_or(0, |top| top.rows)
    }
}

/// The node of a child of `node`, which is above level 1; read if it was not yet.
pub(crate) fn child_node(store: &Store, node: &Node, index: usize) -> Result<Arc<Node>> {
    let (Some(child), Some(slot)) = (node.children.get(index), node.nodes.get(index)) else {
        return Err(Error::Internal(
            "a node was asked for a child it does not have",
        ));
    };
    if let Some(loaded) = slot.get() {
        return Ok(Arc::clone(loaded));
    }
    let part = store.read_one(&child.part)?;
    let loaded = Node::decode(&part, node.level - 1, child)?;
    Ok(Arc::clone(slot.get_or_init(|| Arc::new(loaded))))
}

/// A place among the leaves of a tree.
///
/// Moves to a key from where it is: up only as far as the key is outside of the node, then down.
pub(crate) struct LeafCursor {
    /// From the node above the top down to level 1: nodes and the child taken in each. Empty before
    /// the first `seek`, and if the tree is empty.
    path: Vec<(Arc<Node>, usize)>,
}

impl LeafCursor {
    /// A cursor that stands nowhere yet.
    pub(crate) fn new() -> Self {
        Self { path: Vec::new() }
    }

    /// The leaf under the cursor.
    pub(crate) fn leaf(&self) -> Option<&Child> {
        let (node, index) = self.path.last()?;
        node.children.get(*index)
    }

    /// The first row of the next leaf; `None` if there is none.
    pub(crate) fn next_first(&self) -> Option<Row> {
        let mut levels = self.path.iter().rev();
        levels.find_map(|(node, index)| Some(node.children.get(index + 1)?.first))
    }

    /// The rows in the leaves before this one.
    pub(crate) fn rows_before(&self) -> u64 {
        self.path
            .iter()
            .filter_map(|(node, index)| node.rows_before.get(*index))
            .fold(0, |sum: u64, rows| sum.saturating_add(*rows))
    }

    /// Moves to the last leaf whose first row is at most `key`, or to the first leaf.
    pub(crate) fn seek(&mut self, store: &Store, tree: &Tree, key: &Row) -> Result<()> {
        // The lowest node that holds the key: between the first row of the child taken above it and
        // that of the child after it.
        let mut depth = 0;
        for (level, (node, index)) in self.path.iter().enumerate() {
            depth = level;
            let inside = |child: Option<&Child>, is_next: bool| match child {
                Some(child) if is_next => *key < child.first,
                Some(child) => child.first <= *key,
                None => is_next,
            };
            let found = inside(node.children.get(*index), false)
                && inside(node.children.get(index + 1), true);
            // The last child of a node ends where the parent's next child begins, which the levels
            // above have checked.
            if !found {
                break;
            }
        }
        self.path.truncate(depth + 1);
        match self.path.last_mut() {
            Some((node, index)) => *index = node.child_before(key),
            None if tree.above.children.is_empty() => return Ok(()),
            None => self.path.push((Arc::clone(&tree.above), 0)),
        }
        self.descend(store, |node| node.child_before(key))
    }

    /// Moves to the leaf that holds the row of this number, from 0; to the last leaf if there are fewer rows.
    pub(crate) fn seek_row(&mut self, store: &Store, tree: &Tree, number: u64) -> Result<()> {
        self.path.clear();
        if tree.above.children.is_empty() {
            return Ok(());
        }
        self.path.push((Arc::clone(&tree.above), 0));
        let mut left = number;
        self.descend(store, |node| {
            let index = node.child_of_row(left);
            left = left.saturating_sub(node.rows_before.get(index).copied().unwrap_or_default());
            index
        })
    }

    /// Moves to the next leaf; `false`, and nowhere, if there is none.
    pub(crate) fn advance(&mut self, store: &Store) -> Result<bool> {
        while let Some((node, index)) = self.path.last_mut() {
            if *index + 1 < node.children.len() {
                *index += 1;
                self.descend(store, |_| 0)?;
                return Ok(true);
            }
            self.path.pop();
        }
        Ok(false)
    }

    fn descend(&mut self, store: &Store, mut choose: impl FnMut(&Node) -> usize) -> Result<()> {
        while let Some((node, index)) = self.path.last() {
            if node.level == 1 {
                break;
            }
            let below = child_node(store, node, *index)?;
            let index = choose(&below);
            self.path.push((below, index));
        }
        Ok(())
    }
}
