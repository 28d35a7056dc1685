//! `QuadStore`: opens a store of quads and hands out snapshots of it.

use std::sync::Arc;

use stoa_storage::Store;

use crate::check::CheckReport;
use crate::error::{Error, Result};
use crate::info::Info;
use crate::snapshot::Snapshot;

/// A store of quads. Cloning it is cheap.
#[derive(Clone)]
pub struct QuadStore(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    current: Snapshot,
}

impl QuadStore {
    /// Makes an empty store of quads in a store that was just created.
    pub fn create(store: Store) -> Result<Self> {
        let _ = store;
        Err(Error::Internal("not built yet"))
    }

    /// Opens the quads of a store.
    pub fn open(store: Store) -> Result<Self> {
        let _ = store;
        Err(Error::Internal("not built yet"))
    }

    /// The state after the last commit.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.current.clone()
    }

    /// The files below.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// Reads everything and reports what is wrong.
    pub fn check(&self) -> Result<CheckReport> {
        Err(Error::Internal("not built yet"))
    }

    /// What the store holds and how many bytes each part takes.
    pub fn info(&self) -> Result<Info> {
        Err(Error::Internal("not built yet"))
    }
}
