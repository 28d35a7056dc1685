//! A database: a directory that is opened, loaded, asked, dumped and checked.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};
use crate::info::{CheckSummary, Info};
use crate::load::{LoadSummary, Progress};
use crate::options::{DumpFormat, LoadOptions, OpenOptions, QueryOptions};
use crate::query::{CancelHandle, Query, QueryResult};
use crate::runtime::Runtime;

/// An open database. Cheap to clone; the last clone closes it.
#[derive(Clone, Debug)]
pub struct Database {
    runtime: Runtime,
}

impl Database {
    /// Opens the database in the folder `path`, or creates it there if the options say so and the
    /// folder is absent or empty. Its parent must exist.
    ///
    /// # Errors
    /// `NotADatabase` if there is something else, `Locked` if another process has it open in a way
    /// that does not go together, and what the disk gives.
    pub fn open(
        _runtime: &Runtime,
        _path: impl AsRef<Path>,
        _options: &OpenOptions,
    ) -> Result<Self> {
        Err(Error::Unsupported("open".into()))
    }

    /// The runtime it was opened in.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Whether [`Database::open`] created it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        false
    }

    /// Loads files into the database as one commit: all of them or, after an error, nothing.
    ///
    /// # Errors
    /// `Data` for a damaged file, `Input` for one that cannot be read, `UnknownFormat`, `Cancelled`,
    /// and what the disk gives.
    pub fn load(&self, _options: LoadOptions, _progress: &dyn Progress) -> Result<LoadSummary> {
        Err(Error::Unsupported("load".into()))
    }

    /// Answers a query.
    ///
    /// # Errors
    /// `Syntax`, `Unsupported`, `LimitExceeded` before it runs; `Timeout`, `Cancelled`,
    /// `MemoryExceeded` and what the disk gives while it does.
    pub fn query(&self, text: &str, options: &QueryOptions) -> Result<QueryResult> {
        let _query = self.prepare(text, options)?;
        Err(Error::Unsupported("query".into()))
    }

    /// Parses and plans a query, for writers of results.
    ///
    /// # Errors
    /// `Syntax`, `Unsupported`, `LimitExceeded`, and what the disk gives.
    pub fn prepare(&self, _text: &str, _options: &QueryOptions) -> Result<Query> {
        Err(Error::Unsupported("query".into()))
    }

    /// Writes all quads to `out`; returns how many.
    ///
    /// # Errors
    /// `Output` if `out` fails, `Cancelled`, and what the disk gives.
    pub fn dump(
        &self,
        _format: DumpFormat,
        _out: &mut dyn Write,
        _cancel: &CancelHandle,
    ) -> Result<u64> {
        Err(Error::Unsupported("dump".into()))
    }

    /// What is in the database and how it lies on disk.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn info(&self) -> Result<Info> {
        Err(Error::Unsupported("info".into()))
    }

    /// Verifies every checksum, that all permutations hold the same quads, and that every term
    /// resolves both ways. What is damaged is listed in the summary.
    ///
    /// # Errors
    /// `Cancelled`, and what the disk gives, but for damage.
    pub fn check(&self, _progress: &dyn Progress, _cancel: &CancelHandle) -> Result<CheckSummary> {
        Err(Error::Unsupported("check".into()))
    }
}
