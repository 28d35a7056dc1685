//! Puts inner nodes over a list of leaves and kept subtrees.
//!
//! # Invariants
//! 1. Every node but the last of its level has at least half of the children of a full one: too few
//!    children take in those of the kept node after them.

use super::format::HEIGHT_MAX;
use super::merge::MergeOptions;
use super::node::{Child, Node};
use super::tree::TreeRoot;
use crate::error::{Error, Result};

/// A piece of the new tree, in key order.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// The segment that was cut with this number.
    New(usize),
    /// A subtree of the old tree: a segment at level 0, else a node.
    Kept {
        /// The level of the subtree.
        level: u8,
        /// Its entry.
        child: Child,
    },
}

/// Builds the inner nodes over `items`; `leaves` are the new segments by their number.
pub(super) fn build(
    options: MergeOptions<'_>,
    items: Vec<Item>,
    mut leaves: Vec<Option<Child>>,
) -> Result<TreeRoot> {
    let mut subtrees = Vec::with_capacity(items.len());
    for item in items {
        subtrees.push(match item {
            Item::Kept { level, child } => (level, child),
            Item::New(index) => {
                let child = leaves.get_mut(index).and_then(Option::take);
                (
                    0,
                    child.ok_or(Error::Internal("a segment was not written"))?,
                )
            }
        });
    }
    for level in 1..=HEIGHT_MAX + 1 {
        if let [(height, child)] = subtrees.as_slice() {
            return shrink(options, *height, child.clone());
        }
        if subtrees.is_empty() {
            return Ok(TreeRoot::default());
        }
        subtrees = Level::new(options, level).build(subtrees)?;
    }
    Err(Error::Internal("a tree higher than any"))
}

/// Takes nodes with one child off the top.
fn shrink(options: MergeOptions<'_>, mut height: u8, mut top: Child) -> Result<TreeRoot> {
    while height > 0 {
        let node = Node::decode(&options.store.read_one(&top.part)?, height, &top)?;
        let [only] = &*node.children else {
            break;
        };
        let bytes = u64::from(top.extent_bytes);
        options.checkpoint.free(top.part.extent, bytes);
        top = only.clone();
        height -= 1;
    }
    Ok(TreeRoot {
        height,
        top: Some(top),
    })
}

/// One level of nodes that is being built.
struct Level<'a> {
    options: MergeOptions<'a>,
    level: u8,
    /// Children that are in no node yet.
    pending: Vec<Child>,
    out: Vec<(u8, Child)>,
}

impl<'a> Level<'a> {
    fn new(options: MergeOptions<'a>, level: u8) -> Self {
        Self {
            options,
            level,
            pending: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Puts everything below the level into nodes of it.
    fn build(mut self, subtrees: Vec<(u8, Child)>) -> Result<Vec<(u8, Child)>> {
        for (level, child) in subtrees {
            self.add(level, child)?;
        }
        self.flush()?;
        Ok(self.out)
    }

    fn add(&mut self, level: u8, child: Child) -> Result<()> {
        if level < self.level {
            self.pending.push(child);
            let full = self.options.limits.node_children;
            if self.pending.len() >= full + full / 2 {
                let rest = self.pending.split_off(full);
                self.write()?;
                self.pending = rest;
            }
            return Ok(());
        }
        if self.pending.is_empty() || self.pending.len() >= self.options.limits.node_children / 2 {
            self.flush()?;
            self.out.push((level, child));
            return Ok(());
        }
        // Too few for a node: they take in the children of this one.
        let part = self.options.store.read_one(&child.part)?;
        let node = Node::decode(&part, level, &child)?;
        let bytes = u64::from(child.extent_bytes);
        self.options.checkpoint.free(child.part.extent, bytes);
        for below in node.children {
            self.add(level - 1, below)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.len() > self.options.limits.node_children {
            let rest = self.pending.split_off(self.pending.len() / 2);
            self.write()?;
            self.pending = rest;
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        self.write()
    }

    /// Makes a node of the pending children.
    fn write(&mut self) -> Result<()> {
        let children = std::mem::take(&mut self.pending);
        let bytes = Node::encode(self.level, &children);
        let part = self.options.checkpoint.write_part(&bytes)?;
        let entry = Child::over(&children, part, self.options.number)
            .ok_or(Error::Internal("a node without children"))?;
        self.out.push((self.level, entry));
        Ok(())
    }
}
