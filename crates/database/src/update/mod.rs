//! SPARQL Update: requests that are transactions of their own, and requests within one.
//!
//! `query/update.rs` parses a request; [`run`] does its operations: what the pattern of DELETE and INSERT gives is
//! filled into their templates as ids ([`template`]), terms that the store does not know get private ids
//! ([`ids`]), and the transaction is handed what to remove and to add.
//!
//! A request whose changes take more than a part of the memory is run again in bulk ([`in_bulk`]), so that it may have any
//! size.
//!
//! A LOAD that stands alone streams its document, which may have any length ([`load_alone`]).
//!
//! A request that is in conflict with what was committed meanwhile is repeated (`repeat.rs`); what it got from
//! elsewhere is kept ([`kept`]).
//!
//! # References
//! SPARQL 1.1 Update; SPARQL 1.2 Update.

mod destination;
mod graphs;
mod ids;
mod in_bulk;
mod kept;
mod load_alone;
mod pending;
mod run;
mod targets;
mod template;

use std::sync::Arc;
use std::time::Duration;

use stoa_quadstore::{ChangeCounts, CommitOptions, Submitted, TransactionOptions};
use stoa_storage::nonblocking;

pub(crate) use destination::Destination;
pub(crate) use ids::Ids;
pub(crate) use pending::{Pending, is_beyond_memory, reserve, verify_share};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::load::{Input, load_into};
use crate::options::{DocumentOptions, UpdateOptions};
use crate::query::{Operation, with_request};
use crate::running::Listed;
use crate::transaction::{CommitSummary, Transaction};
use kept::Kept;
use load_alone::LoadAlone;
use run::Run;
use targets::Targets;

/// The part of the memory that the changes of a request may take; with more it goes through temporary files.
pub(crate) const CHANGES_SHARE: u64 = 8;

/// An update that is decided: only the disk can fail it now. It becomes durable whether or not somebody waits.
#[must_use = "it is not known to be durable, and readers may not see it"]
pub struct SubmittedUpdate {
    outcome: Outcome,
    /// Keeps it in the list of what is running until it is durable.
    listed: Listed,
}

/// What became of a request.
enum Outcome {
    /// Its commit is decided, and durable soon.
    Submitted(Submitted),
    /// Its commit is durable.
    Done(UpdateSummary),
}

impl SubmittedUpdate {
    /// Waits until it is durable.
    ///
    /// # Errors
    /// `RefusesWrites`, and what the disk gives: it is not known then whether it will be found when the database
    /// is opened again.
    pub fn wait(self) -> Result<UpdateSummary> {
        let Self {
            outcome,
            mut listed,
        } = self;
        let durable = match outcome {
            Outcome::Submitted(submitted) => submitted.wait().map(Into::into).map_err(Error::from),
            Outcome::Done(summary) => Ok(summary),
        };
        if durable.is_err() {
            listed.ends_by_error();
        }
        durable
    }

    /// Calls `done` with what [`SubmittedUpdate::wait`] would give: at once, or later on a thread of the database.
    /// It must not wait for anybody; other commits wait for it.
    ///
    /// A single client is served soonest where this thread makes the update durable itself. Within
    /// [`nonblocking::run`](crate::nonblocking::run) it does so only while the database has no thread for it: when it
    /// has just been opened, or is about to be closed.
    pub fn then(self, done: impl FnOnce(Result<UpdateSummary>) + Send + 'static) {
        let Self {
            outcome,
            mut listed,
        } = self;
        match outcome {
            Outcome::Done(summary) => {
                drop(listed);
                done(Ok(summary));
            }
            Outcome::Submitted(submitted) => submitted.then(move |committed| {
                if committed.is_err() {
                    listed.ends_by_error();
                }
                drop(listed);
                done(committed.map(Into::into).map_err(Into::into));
            }),
        }
    }
}

/// What an update did.
pub type UpdateSummary = CommitSummary;

impl Database {
    /// Runs an update request as one transaction: all of it or, after an error, nothing. It sees what it
    /// did itself, and nothing that others commit meanwhile; if that matters, it is run again.
    ///
    /// ```
    /// use stoa_database::{
    ///     Access, Database, OpenOptions, QueryOptions, QueryResult, Runtime, RuntimeOptions, UpdateOptions,
    /// };
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("db");
    /// let runtime = Runtime::new(RuntimeOptions::default())?;
    /// let options = OpenOptions { access: Access::Exclusive, create: true };
    /// let database = Database::open(&runtime, &path, &options)?;
    ///
    /// let text = "PREFIX : <http://example.org/>
    ///             INSERT DATA { :alice :knows :bob , :carol } ;
    ///             DELETE { ?a :knows ?b } INSERT { ?b :knows ?a } WHERE { ?a :knows ?b FILTER(?b != :bob) }";
    /// let summary = database.update(text, &UpdateOptions::default())?;
    /// assert_eq!((summary.added, summary.removed), (2, 0));
    ///
    /// let ask = "ASK { <http://example.org/carol> ?knows <http://example.org/alice> }";
    /// let answer = database.query(ask, &QueryOptions::default())?;
    /// assert!(matches!(answer, QueryResult::Boolean(true)));
    /// # Ok::<_, stoa_database::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Syntax`, `Unsupported`, `LimitExceeded`, `InvalidOption` before it runs; `NoSuchGraph`, `GraphExists`,
    /// `LoadOff`, `Load`, `ServiceOff`, `Service`, `Data`, `Timeout`, `Cancelled`, `MemoryExceeded`, `NotAdmitted` while it
    /// does; `ReadOnly`, `RefusesWrites`, and what the disk gives.
    pub fn update(&self, text: &str, options: &UpdateOptions) -> Result<UpdateSummary> {
        self.submit_update(text, options)?.wait()
    }

    /// As [`Database::update`], but returns when the commit is decided; no thread need wait for the disk then.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let insert = "INSERT DATA { <http://a/s> <http://a/p> 1 }";
    /// let submit = || database.submit_update(insert, &UpdateOptions::default());
    /// // On a thread that must not block: what cannot be done without is done elsewhere.
    /// let submitted = match nonblocking::run(submit) {
    ///     Some(submitted) => submitted?,
    ///     None => std::thread::scope(|scope| scope.spawn(submit).join().unwrap())?,
    /// };
    /// let (tell, told) = std::sync::mpsc::channel();
    /// submitted.then(move |outcome| tell.send(outcome).unwrap());
    /// assert_eq!(told.recv().unwrap()?.added, 1);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::update`].
    pub fn submit_update(&self, text: &str, options: &UpdateOptions) -> Result<SubmittedUpdate> {
        if self.store().store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        let runtime = self.runtime();
        let started = runtime.clock().monotonic();
        let mut listed = Listed::new(runtime, text, true, &options.cancel);
        let submitted = with_request(
            text,
            options.base.as_deref(),
            &options.bindings,
            (runtime.memory(), |text, tokens| {
                listed.has_shape(text, tokens);
            }),
            |operations| {
                check_dataset(operations, options)?;
                let targets = Targets::of(options);
                if let [
                    Operation::Load {
                        silent,
                        source,
                        destination,
                    },
                ] = operations
                {
                    let load = LoadAlone {
                        database: self,
                        options,
                        started,
                    };
                    let destination = targets.added_to(destination);
                    nonblocking::check()?;
                    let loaded = load.run(*silent, source, destination);
                    return loaded.map(Outcome::Done);
                }
                let kept = Kept::new(runtime);
                let asked = Asked {
                    database: self,
                    operations,
                    options,
                    started,
                    kept: &kept,
                    targets: &targets,
                    listed: &listed,
                };
                match asked.run_in_memory() {
                    Err(error) if is_beyond_memory(&error) => {
                        nonblocking::check()?;
                        asked.run_in_bulk().map(Outcome::Done)
                    }
                    submitted => submitted.map(Outcome::Submitted),
                }
            },
        );
        listed.ends_as(&submitted);
        submitted.map(|outcome| SubmittedUpdate { outcome, listed })
    }
}

/// A request that is a transaction of its own.
struct Asked<'a> {
    database: &'a Database,
    operations: &'a [Operation],
    options: &'a UpdateOptions,
    /// When it was begun, on the clock of the runtime.
    started: Duration,
    kept: &'a Arc<Kept>,
    targets: &'a Targets,
    listed: &'a Listed,
}

impl Asked<'_> {
    /// Runs it in a transaction, which is repeated after a conflict.
    fn run_in_memory(&self) -> Result<Submitted> {
        let runtime = self.database.runtime();
        let begin = TransactionOptions {
            unvalidated: run::is_blind(self.operations),
        };
        let go_on = || run::check(runtime, self.options, self.started);
        self.database.repeat(&go_on, |attempt| {
            self.kept.begin_run();
            let mut transaction = self.database.store().begin(begin.clone())?;
            let bytes_max = runtime.memory_bytes() / CHANGES_SHARE;
            let mut run = self.run(&mut transaction, bytes_max);
            run.operations(self.operations)?;
            run.check()?;
            let message = self.options.message.clone();
            let submitted = attempt.submit(transaction, CommitOptions { message });
            submitted.map_err(pending::named)
        })
    }

    fn run<'a>(&'a self, destination: &'a mut dyn Destination, changes_bytes_max: u64) -> Run<'a> {
        Run {
            runtime: self.database.runtime(),
            options: self.options,
            destination,
            changes_bytes_max,
            kept: self.kept,
            started: self.started,
            targets: self.targets,
            counts: none(),
            listed: self.listed,
        }
    }
}

impl Transaction {
    /// Runs an update request within the transaction, which sees what it did; after an error the
    /// transaction is as it was before. The message of the options is not looked at.
    ///
    /// The counts add up over the operations: a quad that one adds and another removes is in both.
    ///
    /// # Errors
    /// As [`Database::update`], but for those of the commit.
    pub fn update(&mut self, text: &str, options: &UpdateOptions) -> Result<ChangeCounts> {
        let runtime = self.runtime().clone();
        let started = runtime.clock().monotonic();
        let options = &options.apart();
        let mut listed = Listed::new(&runtime, text, true, &options.cancel);
        let counts = with_request(
            text,
            options.base.as_deref(),
            &options.bindings,
            (runtime.memory(), |text, tokens| {
                listed.has_shape(text, tokens);
            }),
            |operations| {
                check_dataset(operations, options)?;
                let targets = Targets::of(options);
                let kept = Kept::new(&runtime);
                let savepoint = self.inner().savepoint();
                let mut run = Run {
                    runtime: &runtime,
                    options,
                    destination: self.inner(),
                    changes_bytes_max: u64::MAX,
                    kept: &kept,
                    started,
                    targets: &targets,
                    counts: none(),
                    listed: &listed,
                };
                match run.operations(operations) {
                    Ok(()) => Ok(run.counts),
                    Err(error) => {
                        self.inner().roll_back_to(savepoint);
                        Err(error)
                    }
                }
            },
        );
        listed.ends_as(&counts);
        counts
    }
}

impl Transaction {
    /// Adds the quads of a document to the transaction, or removes them; it is parsed while it is read.
    /// After an error the transaction is as it was before.
    ///
    /// ```
    /// use stoa_database::{
    ///     Access, Database, DocumentOptions, GraphFormat, Input, OpenOptions, Runtime, RuntimeOptions,
    ///     TransactionOptions,
    /// };
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("db");
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let options = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, &path, &options)?;
    /// let mut transaction = database.begin(&TransactionOptions::default())?;
    /// let turtle = DocumentOptions { format: Some(GraphFormat::Turtle), ..DocumentOptions::default() };
    /// let text = "@prefix : <http://example.org/> . :alice :knows :bob , :carol .";
    /// let counts = transaction.load(Input::from_bytes("a request", text), &turtle)?;
    /// assert_eq!((counts.added, counts.removed), (2, 0));
    /// assert_eq!(transaction.commit()?.added, 2);
    /// # Ok::<_, stoa_database::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Data` with line and column for a damaged document, `Input` for one that cannot be read, `UnknownFormat`,
    /// `InvalidOption`, `Cancelled`, `MemoryExceeded` if it is too large for a transaction, and what the disk
    /// gives.
    pub fn load(&mut self, input: Input, options: &DocumentOptions) -> Result<ChangeCounts> {
        self.load_counted(input, options).map(|(counts, _)| counts)
    }

    /// As [`Transaction::load`]; says, too, how many quads the document has.
    pub(crate) fn load_counted(
        &mut self,
        input: Input,
        options: &DocumentOptions,
    ) -> Result<(ChangeCounts, u64)> {
        let runtime = self.runtime().clone();
        let savepoint = self.inner().savepoint();
        let loaded = load_into(&runtime, self.inner(), input, options);
        if loaded.is_err() {
            self.inner().roll_back_to(savepoint);
        }
        loaded
    }
}

fn none() -> ChangeCounts {
    ChangeCounts {
        added: 0,
        removed: 0,
    }
}

/// The protocol lets a dataset be told once only (SPARQL 1.1 Protocol, 2.2.3).
fn check_dataset(operations: &[Operation], options: &UpdateOptions) -> Result<()> {
    let is_read = !options.using_graphs.is_empty() || !options.using_named_graphs.is_empty();
    let (option, what) = if is_read {
        ("using-graph-uri", "what it reads")
    } else if options.insert_graph.is_some() {
        ("insert-graph-uri", "where it writes")
    } else if !options.remove_graphs.is_empty() {
        ("remove-graph-uri", "where it writes")
    } else {
        return Ok(());
    };
    if run::has_dataset(operations) {
        return Err(Error::InvalidOption {
            option,
            reason: format!("the update says itself {what}, by USING or WITH"),
        });
    }
    Ok(())
}
