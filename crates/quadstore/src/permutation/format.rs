//! The layout of inner nodes and of the roots of trees, in numbers.
//!
//! # Format
//! docs/format.md#trees

use stoa_storage::PartRef;

/// The first four bytes of an inner node, little-endian: `NOD1`.
pub(crate) const NODE_MAGIC: u32 = u32::from_le_bytes(*b"NOD1");
/// Bytes of a node before its entries.
pub(crate) const NODE_HEADER_BYTES: usize = 8;
/// Where the level stands in a node.
pub(crate) const NODE_LEVEL: usize = 4;
/// Where the number of children stands in a node.
pub(crate) const NODE_COUNT: usize = 6;
/// Children of a full node; so many that it fills four pages.
pub(crate) const NODE_CHILDREN: usize = 156;
/// The largest height of a tree: more than 2^64 rows at half full nodes.
pub(crate) const HEIGHT_MAX: u8 = 12;

/// Where the first row of a child stands in its entry.
pub(crate) const CHILD_FIRST: usize = 0;
/// Where the first two columns of the last row stand.
pub(crate) const CHILD_LAST: usize = 32;
/// Where the number of rows stands.
pub(crate) const CHILD_ROWS: usize = 48;
/// Where the number of distinct first values stands.
pub(crate) const CHILD_DISTINCT_ONE: usize = 56;
/// Where the number of distinct pairs of the first two stands.
pub(crate) const CHILD_DISTINCT_TWO: usize = 64;
/// Where the reference to the segment's header or to the node stands.
pub(crate) const CHILD_PART: usize = 72;
/// Where the length of the extent stands.
pub(crate) const CHILD_EXTENT_BYTES: usize = 92;
/// Where the checkpoint that wrote the child stands.
pub(crate) const CHILD_CHECKPOINT: usize = 96;
/// Bytes of the entry of a child.
pub(crate) const CHILD_BYTES: usize = 104;

/// Where the height of a tree stands in its root.
pub(crate) const TREE_HEIGHT: usize = 0;
/// Where a tree's root says whether there is a top.
pub(crate) const TREE_PRESENT: usize = 1;
/// Where the entry of the top stands in a tree's root.
pub(crate) const TREE_TOP: usize = 4;
/// Bytes of a tree's root.
pub(crate) const TREE_ROOT_BYTES: usize = TREE_TOP + CHILD_BYTES;

const _: () = assert!(
    NODE_HEADER_BYTES + NODE_CHILDREN * CHILD_BYTES <= 4 * 4096,
    "a node fits four pages"
);
const _: () = assert!(
    CHILD_EXTENT_BYTES == CHILD_PART + PartRef::BYTES,
    "a part reference fits"
);
const _: () = assert!(
    NODE_LEVEL == 4 && NODE_COUNT == NODE_LEVEL + 2 && NODE_HEADER_BYTES == NODE_COUNT + 2,
    "`Node::encode` writes its fields one after the other"
);
const _: () = assert!(
    TREE_HEIGHT == 0 && TREE_PRESENT == 1 && TREE_TOP == 4,
    "`TreeRoot::encode` writes its fields one after the other"
);
