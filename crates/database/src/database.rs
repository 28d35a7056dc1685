//! A database: a directory that is opened, loaded, asked, dumped and checked.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oxrdf::NamedNode;
use stoa_quadstore::{ARCHIVE_EVERY, QuadStore};
use stoa_storage::{Disk, Identity, IoMode, RealDisk, Store, StructureCounts};

use crate::dataset_statistics::DatasetStatistics;
use crate::dump::{Dump, DumpScope};
use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::info::{CheckSummary, Info, LogInfo};
use crate::keeper::Keeper;
use crate::load::{self, LoadSummary, Progress};
use crate::options::{Access, DumpFormat, LoadOptions, OpenOptions, QueryOptions};
use crate::places::is_within;
use crate::query::{CancelHandle, PlanCache, PlanCounts, Query, QueryResult};
use crate::repeat::Turns;
use crate::runtime::Runtime;
use crate::state::State;
use crate::statements::{StatementGraphs, StatementPattern};

/// An open database. Cheap to clone; the last clone closes it.
///
/// ```
/// use stoa_database::{
///     Access, Database, Input, LoadOptions, OpenOptions, QueryOptions, QueryResult, Runtime,
///     RuntimeOptions,
/// };
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("db");
/// let runtime = Runtime::new(RuntimeOptions::default())?;
/// let options = OpenOptions { access: Access::Exclusive, create: true };
/// let database = Database::open(&runtime, &path, &options)?;
///
/// let turtle = "@prefix : <http://example.org/> . :alice :knows :bob . :bob :age 42 .";
/// let summary = database.load(
///     LoadOptions {
///         inputs: vec![Input::from_bytes("people.ttl", turtle)],
///         ..LoadOptions::default()
///     },
///     &(),
/// )?;
/// assert_eq!(summary.quads_new, 2);
///
/// let text = "SELECT ?age { ?person <http://example.org/knows> ?friend .
///                           ?friend <http://example.org/age> ?age }";
/// let QueryResult::Solutions(solutions) = database.query(text, &QueryOptions::default())? else {
///     unreachable!("a SELECT has solutions");
/// };
/// for solution in solutions {
///     let solution = solution?;
///     assert_eq!(
///         solution.get("age").unwrap().to_string(),
///         "\"42\"^^<http://www.w3.org/2001/XMLSchema#integer>"
///     );
/// }
/// # Ok::<_, stoa_database::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    store: QuadStore,
    is_new: bool,
    /// None if the database was opened for reading.
    keeper: Option<Keeper>,
    turns: Turns,
    plans: Arc<PlanCache>,
}

/// What [`Database::checkpoint`] did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CheckpointSummary {
    /// The last commit that the sort orders hold now.
    pub commit: u64,
    /// Whether there was anything to write.
    pub written: bool,
    /// Bytes of the log's files.
    pub log_bytes: u64,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("location", &self.shared.store.store().location())
            .field("commit", &self.shared.store.snapshot().commit())
            .finish_non_exhaustive()
    }
}

/// Where the log of a database is copied, and how often.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArchiveOptions {
    /// The folder.
    pub folder: PathBuf,
    /// How old a commit may become before it is copied; 60 s by default.
    pub every: Duration,
    /// How many bytes may wait where the folder cannot be written; beyond that the archive has a gap, which a backup bridges.
    /// By default a tenth of what is free on the device.
    pub backlog_bytes: Option<u64>,
}

impl ArchiveOptions {
    /// Copies into a folder, as often as by default.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            every: ARCHIVE_EVERY,
            backlog_bytes: None,
        }
    }
}

impl Database {
    /// Opens the database in the folder `path`, or creates it there if the options say so and the
    /// folder is absent or empty. Its parent must exist.
    ///
    /// # Errors
    /// `NotADatabase` or `ForeignFiles` if there is something else, `Locked` if another process has
    /// it open in a way that does not go together, `Format`, and what the disk gives.
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let disk = RealDisk::with_io(path.as_ref(), IoMode::default(), runtime.io());
        Self::open_on(runtime, Arc::new(disk), options)
    }

    /// As [`Database::open`], and copies the log into a folder, which is made if it is absent: each file when it is
    /// full, what there is of the last one now and then, and all of it when the database is closed. With a backup and
    /// all files of the log behind it, a restore gives every commit since.
    ///
    /// # Errors
    /// As [`Database::open`], and `Log` if the folder has files of another database under the names that
    /// this one's take, or lies within the folder of the database.
    pub fn open_archiving(
        runtime: &Runtime,
        path: impl AsRef<Path>,
        options: &OpenOptions,
        archive: &ArchiveOptions,
    ) -> Result<Self> {
        let disk = |path: &Path| Arc::new(RealDisk::with_io(path, IoMode::default(), runtime.io()));
        if is_within(&archive.folder, path.as_ref()) {
            let (archive, database) = (archive.folder.display(), path.as_ref().display());
            return Err(Error::Log {
                message: format!(
                    "the archive {archive} would be lost with the database {database}, in whose folder it is; give a \
                     folder on another disk"
                ),
            });
        }
        let folder: Arc<dyn Disk> = disk(&archive.folder);
        let archive = Some((folder, archive));
        Self::open_with(runtime, disk(path.as_ref()), options, archive)
    }

    /// As [`Database::open`], on any disk; for tests with a simulated one.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_on(runtime: &Runtime, disk: Arc<dyn Disk>, options: &OpenOptions) -> Result<Self> {
        Self::open_with(runtime, disk, options, None)
    }

    fn open_with(
        runtime: &Runtime,
        disk: Arc<dyn Disk>,
        options: &OpenOptions,
        archive: Option<(Arc<dyn Disk>, &ArchiveOptions)>,
    ) -> Result<Self> {
        if options.create && options.access == Access::Shared {
            return Err(Error::ReadOnly);
        }
        let access = match options.access {
            Access::Shared => stoa_storage::Access::Shared,
            Access::Exclusive => stoa_storage::Access::Exclusive,
        };
        let opened = Store::open(Arc::clone(&disk), runtime.cache(), access);
        let mut store_options = runtime.store_options();
        if let Some((folder, archive)) = archive {
            store_options.archive = Some(folder);
            store_options.archive_every = archive.every;
            store_options.archive_backlog = archive.backlog_bytes;
        }
        let (store, is_new) = match opened {
            Err(stoa_storage::Error::NotADatabase { .. }) if options.create => {
                let id = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
                let store = Store::create(disk, runtime.cache(), Identity::new(id))?;
                (QuadStore::open_with(store, store_options)?, true)
            }
            opened => (QuadStore::open_with(opened?, store_options)?, false),
        };
        let keeper = match options.access {
            Access::Shared => None,
            Access::Exclusive => Some(Keeper::start(&store, runtime)?),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                runtime: runtime.clone(),
                store,
                is_new,
                keeper,
                turns: Turns::default(),
                plans: Arc::new(PlanCache::new(runtime.memory())),
            }),
        })
    }

    /// The runtime it was opened in.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// The quads below.
    pub(crate) fn store(&self) -> &QuadStore {
        &self.shared.store
    }

    /// The quads below; for tests that change them without a load.
    #[doc(hidden)]
    #[must_use]
    pub fn quad_store(&self) -> &QuadStore {
        &self.shared.store
    }

    /// The state as it is now.
    pub(crate) fn now(&self) -> State {
        State::of(&self.shared.runtime, self.shared.store.snapshot()).with_plans(&self.shared.plans)
    }

    /// How often plans of earlier queries were used again, and what is kept of them.
    #[must_use]
    pub fn plan_counts(&self) -> PlanCounts {
        self.shared.plans.counts()
    }

    /// What those who commit transactions meet at.
    pub(crate) fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    /// Whether [`Database::open`] created it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.shared.is_new
    }

    /// Removes the files of a database that [`Database::open`] has just made, so that its folder is empty again.
    ///
    /// # Errors
    /// `InvalidOption` if the database was there before, has a commit, or is still in use through another clone;
    /// nothing is removed then. What the disk gives.
    pub fn discard(self) -> Result<()> {
        let refused = |reason: &str| {
            Err(Error::InvalidOption {
                option: "discard",
                reason: reason.to_owned(),
            })
        };
        if !self.is_new() || self.commit() != 0 {
            return refused("only a new database without a commit can be discarded");
        }
        let Some(shared) = Arc::into_inner(self.shared) else {
            return refused("the database is in use");
        };
        // The thread that writes checkpoints ends first.
        drop(shared.keeper);
        Ok(shared.store.store().remove_files()?)
    }

    /// The number of the last commit.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.shared.store.snapshot().commit()
    }

    /// How many quads all graphs hold.
    #[must_use]
    pub fn quads(&self) -> u64 {
        self.shared.store.snapshot().quads()
    }

    /// Loads files into the database as one commit: all of them or, after an error, nothing.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// # std::fs::write(folder.path().join("bad.nt"), "<http://a/s> <http://a/p> .\n").unwrap();
    /// let options = LoadOptions {
    ///     inputs: vec![folder.path().join("bad.nt").into()],
    ///     graph: Some("http://example.org/graph".to_owned()),
    ///     ..LoadOptions::default()
    /// };
    /// let Err(Error::Data(error)) = database.load(options, &()) else {
    ///     unreachable!("the object is missing");
    /// };
    /// assert_eq!((error.line, error.column), (1, 27));
    /// assert_eq!(database.quads(), 0);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `Data` for a damaged file, `Input` for one that cannot be read, `UnknownFormat`, `Cancelled`,
    /// `ReadOnly`, and what the disk gives.
    pub fn load(&self, options: LoadOptions, progress: &dyn Progress) -> Result<LoadSummary> {
        if self.shared.store.store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        load::load(&self.shared.runtime, &self.shared.store, &options, progress)
    }

    /// Answers a query. Solutions and triples are computed while they are taken, all over the state
    /// that the database has now, or had at the moment that the options name.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let Err(Error::Syntax(error)) = database.query("SELECT ?x {\n ?x ?y }", &QueryOptions::default())
    /// else {
    ///     unreachable!("an object is missing");
    /// };
    /// assert_eq!(
    ///     error.to_string(),
    ///     "syntax error at line 2, column 8: unexpected }: its triple has no object\n   ?x ?y }\n         ^"
    /// );
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `Syntax`, `Unsupported`, `LimitExceeded`, `NoSuchCommit` before it runs; `Timeout`, `Cancelled`,
    /// `MemoryExceeded` and what the disk gives while it does.
    pub fn query(&self, text: &str, options: &QueryOptions) -> Result<QueryResult> {
        QueryResult::new(self.prepare(text, options)?)
    }

    /// Parses and plans a query, for writers of results.
    ///
    /// # Errors
    /// `Syntax`, `Unsupported`, `LimitExceeded`, and what the disk gives.
    pub fn prepare(&self, text: &str, options: &QueryOptions) -> Result<Query> {
        let Some(at) = &options.at else {
            return self.now().prepare(text, options);
        };
        let clock = self.runtime().clock();
        let begun = clock.monotonic();
        let state = self.state(Some(at), options.timeout, &options.cancel)?;
        let spent = clock.monotonic().saturating_sub(begun);
        state.prepare(text, &options.after(spent))
    }

    /// Writes all quads to `out`; returns how many.
    ///
    /// # Errors
    /// `Output` if `out` fails, `Cancelled`, and what the disk gives.
    pub fn dump(
        &self,
        format: DumpFormat,
        out: &mut dyn Write,
        cancel: &CancelHandle,
    ) -> Result<u64> {
        self.now().dump(format, out, cancel)
    }

    /// Begins a dump that is written piece by piece: of everything in a format that has graphs, or of
    /// one graph in any. A graph that does not exist is empty; see [`Database::graph_exists`].
    ///
    /// # Errors
    /// `InvalidOption` if the format has no graphs but the dump has, and what the disk gives.
    pub fn start_dump(
        &self,
        format: GraphFormat,
        scope: &DumpScope,
        cancel: &CancelHandle,
    ) -> Result<Dump> {
        self.now().start_dump(format, scope, cancel)
    }

    /// Begins to write the quads of a pattern, piece by piece. A format without graphs leaves them out.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn statements(
        &self,
        pattern: &StatementPattern,
        format: GraphFormat,
        cancel: &CancelHandle,
    ) -> Result<Dump> {
        self.now().statements(pattern, format, cancel)
    }

    /// How many quads some graphs hold; one that several graphs hold counts in each.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn count_statements(&self, graphs: &StatementGraphs) -> Result<u64> {
        self.now().count_statements(graphs)
    }

    /// Whether a named graph holds quads or was created empty.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn graph_exists(&self, graph: &NamedNode) -> Result<bool> {
        self.now().graph_exists(graph)
    }

    /// Counts quads by graph, predicate and class.
    ///
    /// # Errors
    /// `Cancelled`, and what the disk gives.
    pub fn statistics(&self, cancel: &CancelHandle) -> Result<DatasetStatistics> {
        DatasetStatistics::of(&self.shared.store.snapshot(), cancel)
    }

    /// What is in the database and how it lies on disk.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn info(&self) -> Result<Info> {
        Info::of(&self.shared.store)
    }

    /// Writes what was committed since the last checkpoint into the sort orders and the dictionary, so that
    /// the log before it is not needed any more. Queries and commits go on meanwhile. This is done in the
    /// background as well, when log or memory ask for it.
    ///
    /// # Errors
    /// `ReadOnly`, and what the disk gives; the database is then as it was.
    pub fn checkpoint(&self) -> Result<CheckpointSummary> {
        let store = &self.shared.store;
        if store.store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        let options = self.shared.runtime.checkpoint_options();
        let written = store.checkpoint_after_others(&options)?;
        let log = store.log_info();
        Ok(CheckpointSummary {
            commit: log.checkpoint_commit,
            written,
            log_bytes: log.file_bytes,
        })
    }

    /// The memory that holds what was committed since the last checkpoint, in bytes.
    #[must_use]
    pub fn delta_bytes(&self) -> u64 {
        self.shared.store.snapshot().delta().memory_bytes()
    }

    /// Copies what was committed so far into the archive; does nothing without one.
    ///
    /// # Errors
    /// What the disk gives. Nothing is lost then: the log keeps what the archive does not have.
    pub fn archive(&self) -> Result<()> {
        Ok(self.shared.store.archive()?)
    }

    /// The write-ahead log, and what is kept for readers of earlier commits.
    #[must_use]
    pub fn log_info(&self) -> LogInfo {
        self.shared.store.log_info()
    }

    /// What was looked up and read since the database was opened, by name: of each sort order that is kept, and of the
    /// pairs and the list of graphs beside them; of the `dictionary`; and of `other`: that is what checkpoints, loads
    /// and checks read to go through all of it.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let names: Vec<_> = database.structures().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["PSOG", "POSG", "SPOG", "OPSG", "GS", "graphs", "dictionary", "other"]);
    /// # Ok::<_, Error>(())
    /// ```
    #[must_use]
    pub fn structures(&self) -> Vec<(&'static str, StructureCounts)> {
        self.shared.store.structures()
    }

    /// Verifies every checksum, that all permutations hold the same quads, and that every term
    /// resolves both ways. What is damaged is listed in the summary.
    ///
    /// # Errors
    /// `Cancelled`, and what the disk gives, but for damage.
    pub fn check(&self, progress: &dyn Progress, cancel: &CancelHandle) -> Result<CheckSummary> {
        CheckSummary::of(&self.shared.store, progress, cancel)
    }
}
