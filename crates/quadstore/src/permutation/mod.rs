//! Permutations: copy-on-write B+-trees whose leaves are segments.
//!
//! A tree keeps rows of four numbers, sorted and without repetition. Besides the sort orders of
//! quads, the graph-subject pairs and the graph catalogue are such trees. Leaves and inner nodes are
//! extents that never change; a merge writes new ones for what it touches and shares the rest.
//!
//! - `node`: entries of children and inner nodes, their bytes.
//! - `tree`: the root of a tree, inner nodes in memory, descents.
//! - `intervals`: which rows are wanted.
//! - `reader`: rows in key intervals, for scans and look-ups.
//! - `count`: exact numbers of rows, estimates of distinct values.
//! - `sample`: rows at evenly spaced places, or at one.
//! - `top_values`: values that many rows have.
//! - `merge`, `build`: sorted changes into a new tree; the one write primitive.
//!
//! # Format
//! docs/format.md#trees

mod build;
pub(crate) mod count;
pub(crate) mod format;
mod intervals;
mod key_order;
pub(crate) mod merge;
pub(crate) mod node;
pub(crate) mod reader;
mod sample;
mod top_values;
pub(crate) mod tree;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use count::rows_between;
pub(crate) use intervals::Intervals;
pub(crate) use merge::{ChangeBatch, Changes, Effects, MergeOptions, TreeLimits, merge};
pub(crate) use reader::{Hidden, RowFilter, RowReader};
pub(crate) use sample::{middle, row_at, sample};
pub(crate) use top_values::{FREQUENT, behind, met_twice, top_values};
pub(crate) use tree::{Counted, Tree, TreeRoot};
