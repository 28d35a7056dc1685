//! Documents that are a commit of their own, of any length: what PUT and POST bring, and a LOAD that stands
//! alone.
//!
//! ```text
//! short           kept -> transaction, which is repeated after a conflict, and is given up where it takes
//!                 too much memory
//! long, given up  -> bulk load: parsed into temporary files, then merged in one commit
//! ```
//!
//! Both ways do the same: empty the graphs that are replaced, add the quads, and let a graph exist if the
//! document has none.
//!
//! # Limits
//! A short document has at most a [`SHORT_SHARE`]th of the memory, and at most [`SHORT_BYTES_MAX`], which is
//! reserved. A bulk load reserves one of [`MEMORY_SHARES`].

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use oxrdf::NamedNode;
use stoa_quadstore::CommitOptions;
use stoa_storage::{Access, Reservation};

use super::Input;
use super::store::{Beside, load_with, reserve, threads_within};
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
/// Bytes of a document that are asked for at once.
const READ_BYTES: u64 = 64 << 10;
/// The parts of the memory that a bulk load takes, the first that is free.
const MEMORY_SHARES: [u64; 3] = [4, 8, 16];

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
    /// `InvalidOption`, `NamesGraphs`, `Cancelled`, `MemoryExceeded` if others have the memory, `LimitExceeded` for the
    /// message of a long document, `ReadOnly`, `RefusesWrites`, `DiskFull` and what else the disk gives.
    pub fn load_alone(
        &self,
        name: &str,
        reader: impl Read + Send + 'static,
        options: &AloneOptions,
    ) -> Result<CommitSummary> {
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
    ) -> Result<CommitSummary> {
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
            let added = transaction.load(input, &document)?.added;
            if let Some(graph) = &options.creates
                && added == 0
            {
                transaction.create_graph(graph)?;
            }
            Ok(())
        };
        let message = options.message.clone();
        self.transact_with(&CommitOptions { message }, &mut work)
            .map(|((), summary)| summary)
    }

    /// Loads a document of any length in bulk.
    fn load_long(&self, name: &str, kept: Kept, options: &AloneOptions) -> Result<CommitSummary> {
        let runtime = self.runtime();
        let (memory_bytes, reserved) = share(runtime)?;
        let document = &options.document;
        let load = LoadOptions {
            inputs: vec![Input::from_reader(name, kept)],
            format: document.format,
            base: document.base.clone(),
            memory_bytes: Some(memory_bytes),
            threads: Some(threads_within(runtime, memory_bytes)),
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
        let (summary, time_us) = load_with(runtime, self.store(), &load, &beside, &())?;
        drop(reserved);
        Ok(CommitSummary {
            commit: summary.commit,
            added: summary.quads_new,
            removed: summary.quads_removed,
            time_us,
        })
    }
}

/// Reserves memory for a bulk load; gives how much it may take, in bytes.
fn share(runtime: &Runtime) -> Result<(u64, Reservation)> {
    let shares = MEMORY_SHARES.map(|share| runtime.memory_bytes() / share);
    let mut failure = None;
    for bytes in shares {
        match reserve(runtime, bytes) {
            Ok(reserved) => return Ok((bytes, reserved)),
            Err(error) => failure = Some(error),
        }
    }
    let none = || Error::Internal("a load without a share of the memory".to_owned());
    Err(failure.unwrap_or_else(none))
}

/// A document whose beginning is kept.
struct Kept {
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
    fn begin(runtime: &Runtime, mut rest: impl Read + Send + 'static) -> io::Result<Self> {
        let bytes_max = (runtime.memory_bytes() / SHORT_SHARE).min(SHORT_BYTES_MAX);
        let mut reservation = runtime.memory().nothing();
        let (mut bytes, mut is_whole) = (Vec::new(), false);
        while bytes.len() as u64 <= bytes_max && !is_whole {
            // Twice while they are brought into one piece. Without room the document is taken as long.
            if reservation.grow(2 * READ_BYTES).is_err() {
                break;
            }
            is_whole = rest.by_ref().take(READ_BYTES).read_to_end(&mut bytes)? == 0;
        }
        Ok(Self {
            bytes: bytes.into(),
            taken: 0,
            reservation: Some(reservation),
            rest: Box::new(rest),
            is_whole,
        })
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
