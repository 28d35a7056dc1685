//! The public API of Stoa: open, load, query, dump, check.
//!
//! A [`Runtime`] holds what several databases of one process share: the memory budget, the cache and
//! the number of threads. A [`Database`] is a directory. It is loaded with [`Database::load`], asked
//! with [`Database::query`], written out with [`Database::dump`], described by [`Database::info`] and
//! verified by [`Database::check`].
//!
//! Terms are those of [`oxrdf`], which is re-exported.
//!
//! # Concurrency
//! All types are `Send`; `Runtime` and `Database` are cheap to clone and `Sync`. Readers never wait
//! for a load: they go on with the commit they started from.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod database;
mod dump;
mod error;
mod format;
mod info;
pub mod limits;
pub mod load;
mod options;
mod query;
pub mod results;
mod runtime;
mod statistics;

pub use database::Database;
pub use error::{DataError, Error, Result, SyntaxError};
pub use format::{Compression, GraphFormat};
pub use info::{CheckSummary, Info, PartInfo};
pub use load::{Input, LoadSummary, Progress};
pub use options::{
    Access, DumpFormat, ForcedJoin, LoadOptions, OpenOptions, QueryOptions, RuntimeOptions,
};
pub use oxrdf;
pub use query::{CancelHandle, Query, QueryKind, QueryResult, Solution, Solutions, Triples};
pub use runtime::{Clock, Runtime, SystemClock, machine_memory_bytes};
pub use stoa_executor::pool::{PoolFull, PoolLimits, Task, TaskStream, WorkerPool};
