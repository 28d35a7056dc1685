//! Entries of children, inner nodes, and their bytes.
//!
//! # Format
//! docs/format.md#trees

use std::sync::{Arc, OnceLock};

use stoa_storage::{Part, PartRef};

use super::format::{
    CHILD_BYTES, CHILD_CHECKPOINT, CHILD_DISTINCT_ONE, CHILD_DISTINCT_TWO, CHILD_EXTENT_BYTES,
    CHILD_FIRST, CHILD_LAST, CHILD_PART, CHILD_ROWS, NODE_HEADER_BYTES, NODE_MAGIC,
};
use crate::error::{Error, Result};
use crate::segment::Row;

/// What a node says about a child: a segment or a lower node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Child {
    /// The first row below the child.
    pub(crate) first: Row,
    /// The first two columns of the last row below the child.
    pub(crate) last: [u64; 2],
    /// Rows below the child.
    pub(crate) rows: u64,
    /// Distinct values of the first column below the child.
    pub(crate) distinct_one: u64,
    /// Distinct pairs of the first two columns below the child.
    pub(crate) distinct_two: u64,
    /// The header of the segment, or the whole node.
    pub(crate) part: PartRef,
    /// The bytes of the extent, without padding.
    pub(crate) extent_bytes: u32,
    /// The checkpoint in which the child was written.
    pub(crate) checkpoint: u64,
}

impl Child {
    /// Appends the bytes of the entry.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let [a, b, c, d] = self.first;
        let [e, f] = self.last;
        for number in [
            a,
            b,
            c,
            d,
            e,
            f,
            self.rows,
            self.distinct_one,
            self.distinct_two,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.part.encode());
        out.extend_from_slice(&self.extent_bytes.to_le_bytes());
        out.extend_from_slice(&self.checkpoint.to_le_bytes());
    }

    /// The entry in `bytes`; any bytes give one.
    pub(crate) fn decode(bytes: &[u8; CHILD_BYTES]) -> Self {
        let number = |at: usize| {
            bytes
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let extent_bytes = bytes.get(CHILD_EXTENT_BYTES..);
        let extent_bytes = extent_bytes.and_then(<[u8]>::first_chunk);
        let part = bytes.get(CHILD_PART..).and_then(PartRef::decode_from);
        Self {
            first: [0, 8, 16, 24].map(|place| number(CHILD_FIRST + place)),
            last: [0, 8].map(|place| number(CHILD_LAST + place)),
            rows: number(CHILD_ROWS),
            distinct_one: number(CHILD_DISTINCT_ONE),
            distinct_two: number(CHILD_DISTINCT_TWO),
            part: part.unwrap_or(PartRef::NONE),
            extent_bytes: extent_bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)),
            checkpoint: number(CHILD_CHECKPOINT),
        }
    }

    /// The entry for a node over `children`, of which there is at least one.
    pub(crate) fn over(children: &[Self], part: PartRef, checkpoint: u64) -> Option<Self> {
        let (first, last) = (children.first()?, children.last()?);
        let mut entry = Self {
            first: first.first,
            last: last.last,
            rows: 0,
            distinct_one: 0,
            distinct_two: 0,
            part,
            extent_bytes: part.length,
            checkpoint,
        };
        for child in children {
            // Damaged entries may hold any numbers.
            entry.rows = entry.rows.wrapping_add(child.rows);
            entry.distinct_one = entry.distinct_one.wrapping_add(child.distinct_one);
            entry.distinct_two = entry.distinct_two.wrapping_add(child.distinct_two);
        }
        for (before, child) in children.iter().zip(children.iter().skip(1)) {
            let (one, two) = before.shared_with(child);
            entry.distinct_one = entry.distinct_one.wrapping_sub(one);
            entry.distinct_two = entry.distinct_two.wrapping_sub(two);
        }
        Some(entry)
    }

    /// How many distinct values (0 or 1) of the first column, and of the first two, this child and
    /// the one after it both hold.
    pub(crate) fn shared_with(&self, next: &Self) -> (u64, u64) {
        let [first, second] = self.last;
        let [next_first, next_second, ..] = next.first;
        let one = first == next_first;
        (u64::from(one), u64::from(one && second == next_second))
    }
}

/// An inner node in memory.
#[derive(Debug)]
pub(crate) struct Node {
    /// 1 if the children are segments.
    pub(crate) level: u8,
    pub(crate) children: Box<[Child]>,
    /// For each child the rows of the children before it.
    pub(crate) rows_before: Box<[u64]>,
    /// For each child its node as soon as it was read; empty at level 1.
    pub(crate) nodes: Box<[OnceLock<Arc<Self>>]>,
}

impl Node {
    /// The node of `children`.
    pub(crate) fn new(level: u8, children: Vec<Child>) -> Self {
        let mut rows = 0_u64;
        let rows_before = children
            .iter()
            .map(|child| {
                let before = rows;
                rows = rows.saturating_add(child.rows);
                before
            })
            .collect();
        let nodes = if level > 1 {
            children.iter().map(|_| OnceLock::new()).collect()
        } else {
            Box::default()
        };
        Self {
            level,
            children: children.into(),
            rows_before,
            nodes,
        }
    }

    /// The child below which the row of this number lies, counted from 0 below this node; the last child if there are
    /// fewer rows.
    pub(crate) fn child_of_row(&self, number: u64) -> usize {
        let behind = self.rows_before.partition_point(|before| *before <= number);
        behind.saturating_sub(1)
    }

    /// The bytes of a node.
    pub(crate) fn encode(level: u8, children: &[Child]) -> Vec<u8> {
        let count = u16::try_from(children.len()).expect("a node has few children");
        let mut bytes = Vec::with_capacity(NODE_HEADER_BYTES + children.len() * CHILD_BYTES);
        bytes.extend_from_slice(&NODE_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[level, 0]);
        bytes.extend_from_slice(&count.to_le_bytes());
        for child in children {
            child.encode(&mut bytes);
        }
        bytes
    }

    /// The node in `part`, which must be what `entry` of its parent at `level + 1` says.
    pub(crate) fn decode(part: &Part, level: u8, entry: &Child) -> Result<Self> {
        let corrupt =
            |expected: &str, found: &str| Err(Error::corrupt(part.reference(), expected, found));
        let Some((header, entries)) = part.split_first_chunk::<NODE_HEADER_BYTES>() else {
            return corrupt("a node", "fewer bytes");
        };
        let (entries, rest) = entries.as_chunks::<CHILD_BYTES>();
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let mut expected = [0; NODE_HEADER_BYTES];
        let fields = NODE_MAGIC
            .to_le_bytes()
            .into_iter()
            .chain([level, 0])
            .chain(count.to_le_bytes());
        for (place, byte) in expected.iter_mut().zip(fields) {
            *place = byte;
        }
        if *header != expected || !rest.is_empty() || entries.is_empty() {
            return corrupt("a node of the level below its parent", "another header");
        }
        let children: Vec<_> = entries.iter().map(Child::decode).collect();
        if !children.is_sorted_by(|one, next| one.first < next.first) {
            return corrupt("children in ascending order", "another order");
        }
        let rows = children
            .iter()
            .try_fold(0_u64, |sum, child| sum.checked_add(child.rows));
        let first = children.first().map(|child| child.first);
        if rows != Some(entry.rows) || first != Some(entry.first) {
            return corrupt("the rows and first key that its parent names", "others");
        }
        Ok(Self::new(level, children))
    }

    /// The last child whose first row is at most `key` (0 if there is none).
    pub(crate) fn child_before(&self, key: &Row) -> usize {
        self.children
            .partition_point(|child| child.first <= *key)
            .saturating_sub(1)
    }
}
