//! Vectored execution of physical plans.
//!
//! An `Execution` turns a plan into batches of term ids, step by step; operators are resumable
//! state machines that never wait. What all operators of a query share is a [`QueryContext`].

#![deny(unsafe_code)]

pub mod admission;
mod aggregate;
pub mod batch;
mod construct;
pub mod context;
mod demand;
mod describe;
pub mod error;
pub mod execution;
pub mod expression;
mod function;
pub mod helpers;
mod local_terms;
pub mod memory;
pub mod meters;
mod operator;
pub mod pool;
pub mod profile;
pub mod service;
pub mod spill;
mod steps;
mod table;
pub mod turns;

pub use admission::Admission;
pub use batch::{BATCH_ROWS, Batch, Step};
pub use context::{Clock, Computed, QueryContext, QuerySettings};
pub use error::{Error, Result};
pub use execution::{Execution, Shape};
pub use expression::{NumberCache, NumberCounts};
pub use function::regex::{PatternError, check as check_pattern};
pub use meters::Meters;
pub use operator::{AdjacencyCache, AdjacencyCounts};
pub use profile::{Adjacency, OperatorProfile};
