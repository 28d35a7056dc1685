//! Threads that keep an open database: they make commits durable for which nobody waits, write what was
//! committed into the sort orders now and then, copy the log into its archive, and under relaxed durability sync it.
//!
//! # Concurrency
//! They live as long as the database is open, and end with its last clone, after what they are doing.

use std::thread::JoinHandle;

use stoa_quadstore::{CheckpointOptions, QuadStore};
use stoa_storage::Durability;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// A longer log is written into the sort orders when a database is closed, so that the next opening need
/// not read it: it reads about so much in 10 ms.
const LOG_BYTES_AT_CLOSE: u64 = 512 << 10;

/// The threads; ended when this is dropped.
pub(crate) struct Keeper {
    store: QuadStore,
    checkpoint: CheckpointOptions,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the threads of a database that was opened for writing.
    pub(crate) fn start(store: &QuadStore, runtime: &Runtime) -> Result<Self> {
        let mut keeper = Self {
            store: store.clone(),
            checkpoint: runtime.checkpoint_options(),
            threads: Vec::new(),
        };
        keeper.run("stoa keeper", |store| {
            // Readers go before checkpoints.
            stoa_storage::step_back();
            store.keep();
        })?;
        let clock = runtime.clock();
        keeper.run("stoa log", move |store| {
            store.keep_log(&|| clock.monotonic())
        })?;
        if runtime.durability() == Durability::Relaxed {
            keeper.run("stoa sync", QuadStore::keep_synced)?;
        }
        if store.has_archive() {
            keeper.run("stoa archive", QuadStore::keep_archived)?;
        }
        Ok(keeper)
    }

    fn run(&mut self, name: &str, work: impl FnOnce(&QuadStore) + Send + 'static) -> Result<()> {
        let store = self.store.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || work(&store)).map_err(Error::Threads)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.store.stop_keeping();
        let this = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A function that a commit left may have the last clone of the database: its thread ends by itself.
            if thread.thread().id() != this {
                // One that panicked has left nothing behind that matters.
                drop(thread.join());
            }
        }
        let log = self.store.log_info();
        if log.failure.is_none() && log.behind_bytes > LOG_BYTES_AT_CLOSE {
            // What fails here is made good by the next opening.
            drop(self.store.checkpoint_after_others(&self.checkpoint));
        }
    }
}
