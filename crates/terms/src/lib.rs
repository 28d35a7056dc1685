//! Term ids, inline values, and the order and equality of values.

pub mod datatype;
#[cfg(test)]
mod format_document;
mod id;
pub mod inline;
pub mod key;
mod permutation;
pub mod range;
pub mod section;
pub mod value;

pub use id::{IdRange, Kind, TermId};
pub use permutation::{GraphSet, Permutation, Position};
