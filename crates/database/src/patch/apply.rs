//! Applies patches, and undoes commits, which is the same: the patch that leads back is applied.
//!
//! # Concurrency
//! Rows are not read before they are applied, so that a patch is in conflict with nobody. Where each row must have an
//! effect, the quads are read and the transaction is repeated after a conflict. A stream that is not short goes into a
//! temporary file first, so that it can be read again.
//!
//! # Limits
//! What a patch changes is held in memory until its commit, or, beyond a part of it, goes through a bulk update. In this
//! rows of one quad that are far apart end an operation ([`Seen`](crate::load::seen::Seen)).

use std::io::Cursor;
use std::sync::Arc;

use stoa_quadstore::{ChangeCounts, CommitOptions};
use stoa_storage::Access;

use super::rows::{PatchReader, Rows};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::load::Input;
use crate::load::alone::Kept;
use crate::load::line::{Failure, count_lines};
use crate::load::patient::Halt;
use crate::load::pieces::Pieces;
use crate::load::source::{self, Source};
use crate::load::spooled::Spooled;
use crate::load::store::line_bytes_max;
use crate::moment::Moment;
use crate::query::CancelHandle;
use crate::transaction::CommitSummary;
use crate::update::Destination;

/// How a patch is applied.
#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    /// Whether every row must have an effect: a quad that is added must not be there, one that is removed must. If one
    /// has none, nothing is changed.
    pub strict: bool,
    /// What the list of commits says of it.
    pub message: Option<String>,
    /// Ends it from another thread.
    pub cancel: CancelHandle,
}

/// What a patch did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PatchSummary {
    /// The number of the commit. If there was nothing to do, that of the last one that was seen.
    pub commit: u64,
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
    /// Rows without effect: they add what is there, or remove what is not.
    pub unchanged: u64,
    /// Rows about prefixes, which are no part of the data.
    pub prefixes: u64,
    /// When the commit was made, as in [`CommitSummary`].
    pub time_us: u64,
}

impl PatchSummary {
    fn of(rows: &Rows, commit: &CommitSummary) -> Self {
        Self {
            commit: commit.commit,
            added: commit.added,
            removed: commit.removed,
            unchanged: rows.changes.saturating_sub(rows.effects),
            prefixes: rows.prefixes,
            time_us: commit.time_us,
        }
    }
}

impl Database {
    /// Applies an RDF Patch, as [`Database::diff`] writes it, as one commit: all of it or, after an error, nothing.
    /// Labels of blank nodes are those that answers show, unless the patch names another database in its headers:
    /// then those that it adds are new ones.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let patch = "TX .\nA <http://a/s> <http://a/p> \"o\" .\nD <http://a/s> <http://a/p> \"x\" .\nTC .\n";
    /// let input = Input::from_bytes("one.rdfp", patch);
    /// let done = database.apply_patch(&input, &PatchOptions::default())?;
    /// assert_eq!((done.added, done.removed, done.unchanged), (1, 0, 1));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `Data` with line and column, `Input`, `PatchConflict` if the options are strict, `Conflict`, `Cancelled`,
    /// `MemoryExceeded`, `ReadOnly`, and what the disk gives.
    pub fn apply_patch(&self, input: &Input, options: &PatchOptions) -> Result<PatchSummary> {
        if self.store().store().access() == Access::Shared {
            return Err(Error::ReadOnly);
        }
        let again = self.readable_again(input, options)?;
        self.commit_rows(options, options.strict, &mut |reader| {
            self.read_source(&single(&again())?, reader, &options.cancel)
        })
    }

    /// Makes an input one that can be read any number of times. A path may be that of a pipe.
    fn readable_again(
        &self,
        input: &Input,
        options: &PatchOptions,
    ) -> Result<Box<dyn Fn() -> Input + Send + Sync>> {
        if let Input::Path(path) = input
            && path.is_file()
        {
            let input = input.clone();
            return Ok(Box::new(move || input.clone()));
        }
        let source = single(input)?;
        let halt = halt(&options.cancel);
        let opened = source.open_raw(&halt);
        let kept = opened.and_then(|reader| Kept::begin(self.runtime(), reader));
        let mut kept = kept.map_err(|error| source.unreadable(error))?;
        let name = source.name.clone();
        if let Some(bytes) = kept.whole() {
            return Ok(Box::new(move || {
                Input::from_reader(&name, Cursor::new(Arc::clone(&bytes)))
            }));
        }
        let space = self.store().store().temp_space();
        let spooled = Spooled::write(&space, &name, &mut kept).map_err(|error| match error {
            Error::Input { source: error, .. } => source.unreadable(error),
            error => error,
        })?;
        Ok(Box::new(move || Input::from_reader(&name, spooled.again())))
    }

    /// Undoes commits by a new one: what they added is removed, what they removed is added. If one of these quads is
    /// not as the commit left it, since a later commit has changed it, nothing is done; with `force` all else is
    /// undone.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// database.set_retention(Retention::All)?;
    /// database.update("INSERT DATA { <http://a/s> <http://a/p> 1, 2 }", &UpdateOptions::default())?;
    /// database.update("DELETE DATA { <http://a/s> <http://a/p> 2 }", &UpdateOptions::default())?;
    /// let refused = database.revert(&[1], false, &PatchOptions::default());
    /// assert!(matches!(refused, Err(Error::PatchConflict { quads: 1, .. })));
    /// let done = database.revert(&[1, 2], false, &PatchOptions::default())?;
    /// assert_eq!((done.commit, database.quads()), (3, 0));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchCommit` if a commit, or what was before it, is not kept; `PatchConflict`; and as
    /// [`Database::apply_patch`]. What the options say of `strict` does not matter.
    pub fn revert(
        &self,
        commits: &[u64],
        force: bool,
        options: &PatchOptions,
    ) -> Result<PatchSummary> {
        if self.store().store().access() == Access::Shared {
            return Err(Error::ReadOnly);
        }
        let mut newest_first = commits.to_vec();
        newest_first.sort_unstable_by(|one, two| two.cmp(one));
        newest_first.dedup();
        for commit in &newest_first {
            self.verify_revertible(*commit)?;
        }
        let mut options = options.clone();
        options.message.get_or_insert_with(|| {
            let numbers: Vec<String> = newest_first.iter().map(u64::to_string).collect();
            format!("revert {}", numbers.join(" "))
        });
        let undone = self.commit_rows(&options, !force, &mut |reader| {
            for commit in &newest_first {
                self.read_backwards(*commit, reader, &options.cancel)?;
            }
            Ok(())
        });
        undone.map_err(|error| match error {
            Error::PatchConflict {
                quads, examples, ..
            } => Error::PatchConflict {
                is_revert: true,
                quads,
                examples,
            },
            other => other,
        })
    }

    /// Refuses a commit that was not made, or whose effect is not known any more.
    fn verify_revertible(&self, commit: u64) -> Result<()> {
        if commit == 0 {
            return Err(Error::InvalidOption {
                option: "COMMIT",
                reason: "0 is the new database; there is nothing to undo".to_owned(),
            });
        }
        self.commit_of(&Moment::Commit(commit))
            .and_then(|_| self.commit_of(&Moment::Commit(commit - 1)))
            .map(drop)
            .map_err(|error| match error {
                Error::NoSuchCommit {
                    is_expired: true, ..
                } => Error::NoSuchCommit {
                    is_expired: true,
                    message: format!(
                        "commit {commit} cannot be undone: what was before it is not kept any more; the oldest commit \
                         that can be undone is {}, and --retain says what is kept",
                        self.oldest_commit().saturating_add(1)
                    ),
                },
                other => other,
            })
    }

    /// Commits what `read` hands to its reader: in a transaction, which is done again after a conflict, or, where the
    /// changes take too much memory, in bulk.
    fn commit_rows(
        &self,
        options: &PatchOptions,
        is_strict: bool,
        read: Read<'_>,
    ) -> Result<PatchSummary> {
        let mut taken_back = Vec::new();
        let commit = CommitOptions {
            message: options.message.clone(),
        };
        let in_memory = self.transact_with(&commit, &mut |transaction| {
            let destination = transaction.inner();
            self.read_rows(destination, (is_strict, &mut taken_back), options, read)
        });
        match in_memory {
            Err(Error::MemoryExceeded { .. }) => {}
            done => return done.map(|(rows, summary)| PatchSummary::of(&rows, &summary)),
        }
        loop {
            let known = taken_back.len();
            let done = self.in_bulk(&options.cancel.go_on(), commit.message.clone(), |update| {
                let mut rows = None;
                update.load(&mut |destination| {
                    let state = (is_strict, &mut taken_back);
                    rows = Some(self.read_rows(destination, state, options, read)?);
                    Ok((ChangeCounts::default(), 0))
                })?;
                rows.ok_or_else(|| Error::Internal("a patch that was not read".to_owned()))
            });
            // Else rows have to be left out that were found to be taken back.
            if taken_back.len() == known {
                return done.map(|(rows, summary)| PatchSummary::of(&rows, &summary));
            }
        }
    }

    /// Reads patches into a transaction or a bulk update.
    fn read_rows(
        &self,
        destination: &mut (dyn Destination + Send),
        (is_strict, taken_back): (bool, &mut Vec<u64>),
        options: &PatchOptions,
        read: Read<'_>,
    ) -> Result<Rows> {
        let runtime = self.runtime().clone();
        let id = self.store().store().identity().database_id;
        let mut reader = PatchReader::new(
            &runtime,
            destination,
            (id, is_strict),
            taken_back,
            &options.cancel,
        )?;
        read(&mut reader)?;
        let rows = reader.finish();
        if rows.unmet > 0 {
            return Err(Error::PatchConflict {
                is_revert: false,
                quads: rows.unmet,
                examples: rows.examples,
            });
        }
        Ok(rows)
    }

    fn read_source(
        &self,
        source: &Source,
        reader: &mut PatchReader<'_>,
        cancel: &CancelHandle,
    ) -> Result<()> {
        let stream = source.open(Arc::default(), &halt(cancel))?;
        let mut pieces = Pieces::new(stream, line_bytes_max(self.runtime().memory_bytes()));
        let (mut piece, mut last_line) = (Vec::new(), 1);
        while let Some(place) = pieces.next(&mut piece)? {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            last_line = place.line + count_lines(&piece);
            let read = reader.read(&piece);
            read.map_err(|failure| placed(source, place.line, failure))?;
        }
        let ended = reader.end_patch();
        ended.map_err(|failure| placed(source, last_line, failure))
    }

    /// Reads the patch that undoes a commit.
    fn read_backwards(
        &self,
        commit: u64,
        reader: &mut PatchReader<'_>,
        cancel: &CancelHandle,
    ) -> Result<()> {
        let (from, to) = (Moment::Commit(commit), Moment::Commit(commit - 1));
        let mut patch = self.diff(&from, &to, cancel)?;
        let mut lines = Vec::new();
        let mut more = true;
        while more {
            lines.clear();
            more = patch.step(&mut lines)?;
            reader.read(&lines).map_err(own)?;
        }
        reader.end_patch().map_err(own)
    }
}

/// Hands the rows of patches to a reader; called again after a conflict, and where they go in bulk.
type Read<'a> = &'a mut (dyn FnMut(&mut PatchReader<'_>) -> Result<()> + Send);

fn halt(cancel: &CancelHandle) -> Halt {
    Halt {
        cancel: cancel.clone(),
        failed: CancelHandle::new(),
    }
}

/// The one file or stream that an input stands for.
fn single(input: &Input) -> Result<Source> {
    if let Input::Path(path) = input
        && path.is_dir()
    {
        return Err(Error::InvalidOption {
            option: "PATCH",
            reason: format!("{} is a folder; name its files", path.display()),
        });
    }
    let sources = source::expand(std::slice::from_ref(input), &())?;
    let source = sources.into_iter().next();
    source.ok_or_else(|| Error::Internal("an input without a source".to_owned()))
}

/// The error of a failure in a piece that begins with the line `first`.
fn placed(source: &Source, first: u64, failure: Failure) -> Error {
    match failure {
        Failure::Syntax {
            line,
            column,
            reason,
        } => source.damaged(first + line, column, reason),
        Failure::Sink {
            line,
            error: Error::Unsupported(reason),
        } => source.damaged(first + line, 1, reason),
        Failure::Sink { line, error } => source.refused(first + line, error),
    }
}

/// The error of a failure in a patch that this database has written itself.
fn own(failure: Failure) -> Error {
    match failure {
        Failure::Sink { error, .. } => error,
        Failure::Syntax { reason, .. } => Error::Internal(format!("a patch of our own: {reason}")),
    }
}
