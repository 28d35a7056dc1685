//! Documents that are a commit of their own, of any length: what PUT and POST bring, and a LOAD that stands
//! alone.
//!
//! ```text
//! short           kept -> transaction, which is repeated after a conflict, and is given up where it takes
//!                 too much memory
//! long, given up  -> bulk load: parsed into temporary files, then merged in one commit
//! ```
//!
//! A bulk load reads its document while this arrives if no other one does so; else the document goes into a temporary file
//! first, and the load waits for its turn ([`LoadTurn`]).
//!
//! Both ways do the same: empty the graphs that are replaced, add the quads, and let a graph exist if the
//! document has none.
//!
//! # Limits
//! A short document has at most a [`SHORT_SHARE`]th of the memory, and at most [`SHORT_BYTES_MAX`], which is
//! reserved as it arrives. A bulk load has the share of its turn.

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use oxrdf::NamedNode;
use stoa_quadstore::CommitOptions;
use stoa_storage::{Access, Reservation};

use super::spooled::Spooled;
use super::store::{Beside, load_with, threads_within};
use super::{Input, LoadSummary, LoadTurn, Skipped};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::options::{DocumentOptions, LoadOptions};
use crate::runtime::Runtime;
use crate::statements::StatementGraphs;
use crate::transaction::{CommitSummary, Transaction};

/// The part of the memory that a document may have to be taken as short.
const SHORT_SHARE: u64 = 32;
/// A longer document goes into temporary files whatever the memory, in bytes.
const SHORT_BYTES_MAX: u64 = 8 << 20;
/// One part of so many of the memory stays free of documents that arrive, for queries.
const SPARE_PARTS: u64 = 8;
/// Bytes of a document that are asked for at once.
const READ_BYTES: u64 = 64 << 10;

/// How a document becomes a commit of its own.
#[derive(Clone, Debug, Default)]
pub struct AloneOptions {
    /// How it is read. Its quads are added, and its blank nodes are new, whatever `remove` and
    /// `keep_blank_nodes` say.
    pub document: DocumentOptions,
    /// Graphs whose quads go unless the document brings them; named ones exist afterwards only if they
    /// hold quads or are created.
    pub replaces: Option<StatementGraphs>,
    /// A graph that is to exist even if the document adds nothing.
    pub creates: Option<NamedNode>,
    /// What the list of commits says of it; of a long document at most 1,024 bytes.
    pub message: Option<String>,
}

impl Database {
    /// Adds a document to the database as one commit, or puts it in the place of graphs: all of it or, after
    /// an error, nothing. It may have any length: a long one goes the way of [`Database::load`]. `name` is
    /// what messages call it, and may end in an extension.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let graph = oxrdf::NamedNode::new_unchecked("http://example.org/graph");
    /// let options = AloneOptions {
    ///     document: DocumentOptions {
    ///         graph: Some(graph.clone().into()),
    ///         ..DocumentOptions::default()
    ///     },
    ///     replaces: Some(StatementGraphs::Only(vec![graph.clone().into()])),
    ///     creates: Some(graph),
    ///     ..AloneOptions::default()
    /// };
    /// let put = |text: &'static str| database.load_alone("a.ttl", text.as_bytes(), &options);
    /// let first = put("@prefix : <http://a/> . :s :p 1, 2, 3 .")?;
    /// assert_eq!((first.commit, first.added, first.removed), (1, 3, 0));
    /// let second = put("@prefix : <http://a/> . :s :p 3, 4 .")?;
    /// assert_eq!((second.commit, second.added, second.removed), (2, 1, 2));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `Data` with line and column for a damaged document, `Input` for one that cannot be read, `UnknownFormat`,
    /// `InvalidOption`, `NamesGraphs`, `Cancelled`, `NotAdmitted` if others have the memory for too long, `LimitExceeded` for the
    /// message of a long document, `ReadOnly`, `RefusesWrites`, `DiskFull` and what else the disk gives.
    pub fn load_alone(
        &self,
        name: &str,
        reader: impl Read + Send + 'static,
        options: &AloneOptions,
    ) -> Result<CommitSummary> {
        let (summary, time_us) = self.load_counted(name, reader, options)?;
        Ok(CommitSummary {
            commit: summary.commit,
            added: summary.quads_new,
            removed: summary.quads_removed,
            terms: summary.terms_new,
            time_us,
        })
    }

    /// As [`Database::load_alone`]; tells what a load tells.
    ///
    /// # Errors
    /// As [`Database::load_alone`].
    pub fn load_document(
        &self,
        name: &str,
        reader: impl Read + Send + 'static,
        options: &AloneOptions,
    ) -> Result<LoadSummary> {
        let loaded = self.load_counted(name, reader, options);
        loaded.map(|(summary, _)| summary)
    }

    /// Gives the time of the commit, too, in microseconds since 1970; 0 if there was nothing to do.
    fn load_counted(
        &self,
        name: &str,
        reader: impl Read + Send + 'static,
        options: &AloneOptions,
    ) -> Result<(LoadSummary, u64)> {
        if self.store().store().access() == Access::Shared {
            return Err(Error::ReadOnly);
        }
        let kept = Kept::begin(self.runtime(), reader).map_err(|source| Error::Input {
            input: name.to_owned(),
            source,
        })?;
        if kept.is_whole {
            match self.load_short(name, &kept.bytes, options) {
                Err(Error::MemoryExceeded { .. }) => {}
                outcome => return outcome,
            }
        }
        self.load_long(name, kept, options)
    }

    /// Loads a document that is kept in a transaction, which is done again if it is in conflict.
    fn load_short(
        &self,
        name: &str,
        bytes: &Arc<[u8]>,
        options: &AloneOptions,
    ) -> Result<(LoadSummary, u64)> {
        let document = DocumentOptions {
            remove: false,
            keep_blank_nodes: false,
            ..options.document.clone()
        };
        let mut work = |transaction: &mut Transaction| {
            if let Some(graphs) = &options.replaces {
                transaction.clear_graphs(graphs)?;
            }
            let input = Input::from_reader(name, Cursor::new(Arc::clone(bytes)));
            let (counts, quads_read) = transaction.load_counted(input, &document)?;
            if let Some(graph) = &options.creates
                && counts.added == 0
            {
                transaction.create_graph(graph)?;
            }
            Ok(quads_read)
        };
        let message = options.message.clone();
        let (quads_read, committed) = self.transact_with(&CommitOptions { message }, &mut work)?;
        let summary = LoadSummary {
            inputs: 1,
            bytes_read: bytes.len() as u64,
            quads_read,
            quads_new: committed.added,
            quads_removed: committed.removed,
            terms_new: committed.terms,
            commit: committed.commit,
            temp_peak_bytes: 0,
            skipped: Skipped::default(),
        };
        Ok((summary, committed.time_us))
    }

    /// Loads a document of any length in bulk.
    fn load_long(
        &self,
        name: &str,
        mut kept: Kept,
        options: &AloneOptions,
    ) -> Result<(LoadSummary, u64)> {
        let runtime = self.runtime();
        let document = &options.document;
        let (turn, input) = match LoadTurn::stream(runtime) {
            Some(turn) => (turn, Input::from_reader(name, kept)),
            None => {
                let space = self.store().store().temp_space();
                let spooled = Spooled::write(&space, name, &mut kept)?;
                // What waits holds no memory.
                drop(kept);
                let turn = LoadTurn::wait(runtime, &document.cancel)?;
                (turn, Input::from_reader(name, spooled))
            }
        };
        let load = LoadOptions {
            inputs: vec![input],
            format: document.format,
            base: document.base.clone(),
            memory_bytes: Some(turn.memory_bytes()),
            threads: Some(threads_within(runtime, turn.memory_bytes())),
            cancel: document.cancel.clone(),
            ..LoadOptions::default()
        };
        let beside = Beside {
            graph: document.graph.as_ref(),
            refuse_graphs: document.refuse_graphs,
            replaces: options.replaces.as_ref(),
            creates: options.creates.as_ref(),
            message: options.message.as_deref(),
            may_be_none: true,
        };
        let loaded = load_with(runtime, self.store(), &load, &beside, &());
        drop(turn);
        loaded
    }
}

/// A document whose beginning is kept.
pub(crate) struct Kept {
    bytes: Arc<[u8]>,
    taken: usize,
    reservation: Option<Reservation>,
    /// What comes behind.
    rest: Box<dyn Read + Send>,
    /// Whether nothing does.
    is_whole: bool,
}

impl Kept {
    /// Reads as much as a short document has.
    pub(crate) fn begin(
        runtime: &Runtime,
        mut rest: impl Read + Send + 'static,
    ) -> io::Result<Self> {
        let bytes_max = (runtime.memory_bytes() / SHORT_SHARE).min(SHORT_BYTES_MAX);
        let mut reservation = runtime.memory().nothing();
        let (mut bytes, mut is_whole) = (Vec::new(), false);
        while bytes.len() as u64 <= bytes_max && !is_whole {
            // Three times while they are brought into one piece. Without room the document is taken as long.
            if reservation
                .grow_sparing(3 * READ_BYTES, SPARE_PARTS)
                .is_err()
            {
                break;
            }
            is_whole = rest.by_ref().take(READ_BYTES).read_to_end(&mut bytes)? == 0;
        }
        let bytes: Arc<[u8]> = bytes.into();
        reservation.resize(bytes.len() as u64).unwrap_or_default();
        Ok(Self {
            bytes,
            taken: 0,
            reservation: Some(reservation),
            rest: Box::new(rest),
            is_whole,
        })
    }

    /// The whole document, if it is short.
    pub(crate) fn whole(&self) -> Option<Arc<[u8]>> {
        self.is_whole.then(|| Arc::clone(&self.bytes))
    }
}

impl Read for Kept {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut kept = self.bytes.get(self.taken..).unwrap_or(&[]);
        if kept.is_empty() {
            self.bytes = Arc::new([]);
            self.taken = 0;
            self.reservation = None;
            return self.rest.read(out);
        }
        let taken = kept.read(out)?;
        self.taken += taken;
        Ok(taken)
    }
}
