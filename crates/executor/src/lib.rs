//! Vectored execution of physical plans.
//!
//! An `Execution` turns a plan into batches of term ids, step by step; operators are resumable
//! state machines that never wait. What all operators of a query share is a [`QueryContext`].

#![deny(unsafe_code)]

pub mod aggregate;
pub mod batch;
pub mod context;
pub mod error;
pub mod expression;
mod local_terms;
pub mod memory;
pub mod pool;
mod table;

pub use batch::{BATCH_ROWS, Batch, Step};
pub use context::{Clock, Computed, QueryContext, QuerySettings};
pub use error::{Error, Result};
