//! The public API of Stoa: open, load, query, update, dump, check.
//!
//! A [`Runtime`] holds what several databases of one process share: the memory budget, the cache and
//! the number of threads. A [`Database`] is a directory. It is loaded with [`Database::load`], asked
//! with [`Database::query`], changed with [`Database::update`], written out with [`Database::dump`], described
//! by [`Database::info`] and verified by [`Database::check`].
//!
//! Terms are those of [`oxrdf`], which is re-exported.
//!
//! # Example
//! ```
//! use stoa_database::{
//!     Access, CancelHandle, Database, DumpFormat, Input, LoadOptions, OpenOptions, QueryOptions,
//!     QueryResult, Runtime, RuntimeOptions,
//! };
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("db");
//! let runtime = Runtime::new(RuntimeOptions::default())?;
//! let writing = OpenOptions { access: Access::Exclusive, create: true };
//! let database = Database::open(&runtime, &path, &writing)?;
//!
//! // Files, folders, `-` for standard input, or bytes from anywhere.
//! let quads = "<http://example.org/s> <http://example.org/p> \"1\" <http://example.org/g> .\n";
//! let options = LoadOptions {
//!     inputs: vec![Input::from_bytes("example.nq", quads)],
//!     ..LoadOptions::default()
//! };
//! database.load(options, &())?;
//!
//! // Graphs can be asked one by one, or all together as the default graph.
//! let union = QueryOptions { default_graph_union: true, ..QueryOptions::default() };
//! let construct = "CONSTRUCT { ?o <http://example.org/of> ?s } { ?s ?p ?o FILTER(isIRI(?o)) }";
//! if let QueryResult::Graph(triples) = database.query(construct, &union)? {
//!     assert_eq!(triples.count(), 0);
//! }
//! assert!(matches!(database.query("ASK { ?s ?p ?o }", &union)?, QueryResult::Boolean(true)));
//!
//! let mut dump = Vec::new();
//! database.dump(DumpFormat::NQuads, &mut dump, &CancelHandle::new())?;
//! assert_eq!(dump, quads.as_bytes());
//! # Ok::<_, stoa_database::Error>(())
//! ```
//!
//! # Concurrency
//! All types are `Send`; `Runtime` and `Database` are cheap to clone and `Sync`. Readers never wait
//! for a load: they go on with the commit they started from.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod background;
mod backup;
mod database;
mod dataset_statistics;
mod dump;
mod error;
pub mod federation;
mod feed;
mod format;
mod history;
mod info;
mod keeper;
pub mod limits;
pub mod load;
mod moment;
mod note;
mod options;
mod patch;
mod places;
mod query;
mod repeat;
pub mod results;
mod running;
mod runtime;
mod shapes;
mod state;
mod statements;
mod statistics;
mod transaction;
mod update;
mod xml_characters;

pub use background::in_background;
pub use backup::{
    BackupOptions, BackupSummary, CompactOptions, CompactSummary, KeptSummary, RestoreOptions,
    RestoreSummary,
};
pub use database::{ArchiveOptions, CheckpointSummary, Database};
pub use dataset_statistics::{DatasetStatistics, Partitions};
pub use dump::{Dump, DumpScope};
pub use error::{DataError, Error, Result, SyntaxError};
pub use feed::{ChangeFeed, FeedStep};
pub use format::{Compression, GraphFormat};
pub use history::{CommitInfo, CommitList, Retention, time_text};
pub use info::{ArchiveInfo, CheckSummary, DeltaInfo, Info, LogInfo, PartInfo, SetsInfo};
pub use load::{AloneOptions, ConvertSummary, Input, LoadSummary, Progress, Skipped};
pub use moment::{Moment, MomentError};
pub use note::{Note, NoteKind, Place};
pub use options::{
    Access, DirectionForm, DocumentOptions, DumpFormat, Durability, ForcedChoices, ForcedJoin,
    IoCalls, JsonLdOptions, LoadOptions, OpenOptions, QueryOptions, Rewrites, RuntimeOptions,
    Scheme, UpdateOptions,
};
pub use oxrdf;
pub use patch::{Patch, PatchOptions, PatchSummary};
pub use query::{
    Analysis, CancelHandle, PlanCounts, PlanOrigin, Query, QueryKind, QueryResult, Solution,
    Solutions, Triples, name_differences,
};
pub use running::{RunningQuery, Taken};
pub use runtime::{Clock, Runtime, SystemClock, machine_memory_bytes};
pub use shapes::{QueryShape, QueryShapes};
pub use state::State;
pub use statements::{StatementGraphs, StatementPattern};
pub use stoa_executor::pool::{
    OutputPiece, PoolFull, PoolLimits, Progress as TaskProgress, TRIALS_MAX, Task, TaskStream,
    WorkerPool,
};
pub use stoa_executor::{AdjacencyCounts, Batch, NumberCounts, Step};
pub use stoa_storage::nonblocking;
pub use stoa_storage::{BudgetExceeded, ReadCounts, Reservation, StructureCounts, sync};
pub use transaction::{ChangeCounts, CommitSummary, Transaction, TransactionOptions};
pub use update::{SubmittedUpdate, UpdateSummary};
