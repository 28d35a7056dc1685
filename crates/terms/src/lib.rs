//! Term ids, inline values, and the order and equality of values.

mod id;
mod permutation;

pub use id::{IdRange, Kind, TermId};
pub use permutation::{GraphSet, Permutation, Position};
