//! Databases for one test, in memory where the machine has a RAM disk.

use std::path::Path;
use std::sync::Arc;

use stoa_database::federation::Fetch;
use stoa_database::{
    Access, Database, DumpFormat, GraphFormat, Input, LoadOptions, LoadSummary, OpenOptions,
    Runtime, RuntimeOptions, Scheme,
};
use tempfile::TempDir;

/// A database that vanishes with the value.
pub struct Scratch {
    runtime: Runtime,
    database: Option<Database>,
    scheme: Option<Scheme>,
    opened: usize,
    folder: TempDir,
}

/// A temporary folder, in memory where there is a RAM disk: an fsync of a real disk takes
/// milliseconds.
///
/// # Panics
/// If no folder can be made.
#[must_use]
pub fn folder() -> TempDir {
    let ram = Path::new("/dev/shm");
    let made = if ram.is_dir() {
        TempDir::new_in(ram)
    } else {
        TempDir::new()
    };
    made.expect("a temporary folder can be made")
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// An empty database with 256 MiB of memory, two threads and a fixed seed.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::with_threads(2)
    }

    /// As [`Scratch::new`], with a number of threads.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self::with_options(RuntimeOptions {
            threads: Some(threads),
            ..RuntimeOptions::default()
        })
    }

    /// As [`Scratch::new`], with something that asks the endpoints of SERVICE.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn with_fetch(fetch: Arc<dyn Fetch>) -> Self {
        Self::with_options(RuntimeOptions {
            threads: Some(2),
            fetch: Some(fetch),
            ..RuntimeOptions::default()
        })
    }

    fn with_options(options: RuntimeOptions) -> Self {
        let runtime = Runtime::new(RuntimeOptions {
            memory_bytes: Some(256 << 20),
            seed: Some(1),
            ..options
        })
        .expect("a runtime can be made");
        let mut scratch = Self {
            runtime,
            database: None,
            scheme: None,
            opened: 0,
            folder: folder(),
        };
        scratch.open();
        scratch
    }

    /// The same with a scheme for the first load.
    #[must_use]
    pub fn with_scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = Some(scheme);
        self
    }

    fn open(&mut self) {
        let options = OpenOptions {
            access: Access::Exclusive,
            create: true,
        };
        let path = self.folder.path().join("db");
        let database = Database::open(&self.runtime, path, &options);
        self.database = Some(database.expect("a scratch database opens"));
        self.opened += 1;
    }

    /// How often the database was opened.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Closes the database and opens it again.
    ///
    /// # Panics
    /// If it does not open.
    pub fn reopen(&mut self) {
        self.database = None;
        self.open();
    }

    /// The database.
    ///
    /// # Panics
    /// Never: it is open but for a moment within `reopen`.
    #[must_use]
    pub fn database(&self) -> &Database {
        self.database.as_ref().expect("it is open")
    }

    /// Loads text in a format, its triples into `graph` if one is given.
    ///
    /// # Errors
    /// As [`Database::load`].
    pub fn load(
        &self,
        bytes: impl Into<Vec<u8>>,
        format: GraphFormat,
        base: Option<&str>,
        graph: Option<&str>,
    ) -> stoa_database::Result<LoadSummary> {
        let options = LoadOptions {
            inputs: vec![Input::from_bytes("test data", bytes)],
            format: Some(format),
            base: base.map(str::to_owned),
            graph: graph.map(str::to_owned),
            scheme: self.scheme,
            ..LoadOptions::default()
        };
        self.database().load(options, &())
    }

    /// All quads as N-Quads.
    ///
    /// # Errors
    /// As [`Database::dump`].
    pub fn dump(&self, format: DumpFormat) -> stoa_database::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.database()
            .dump(format, &mut out, &stoa_database::CancelHandle::new())?;
        Ok(out)
    }
}
