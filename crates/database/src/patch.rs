//! What leads from one commit to another, as RDF Patch.
//!
//! A patch is text: headers (`H`), the beginning of a transaction (`TX`), quads that were removed (`D`) and
//! added (`A`) in the syntax of N-Quads, and its end (`TC`). Blank nodes have the labels that they have
//! in all answers of the database. `apply` reads it.
//!
//! # References
//! RDF Patch, <https://afs.github.io/rdf-patch/>

mod apply;
mod rows;
#[cfg(test)]
mod tests;

pub use apply::{PatchOptions, PatchSummary};

use stoa_quadstore::{Difference, QuadChange, QuadStore, Snapshot};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::history::commit_of;
use crate::moment::Moment;
use crate::query::CancelHandle;
use crate::results::pieces::Pieces;
use crate::results::{GraphWriter, TermViews};

/// Changes that are written at a time.
const BATCH_CHANGES: usize = 2048;

/// A patch that is written piece by piece.
pub struct Patch {
    difference: Difference,
    cancel: CancelHandle,
    lines: PatchLines,
    /// What comes first, until it was written.
    head: Option<String>,
    /// How many quads were added and removed so far.
    counts: (u64, u64),
}

impl Database {
    /// What leads from one commit to another, which may be the earlier one: the quads that only one of them
    /// has. What both share is not read. If the database was compacted in between, what changed before that comes
    /// first, and a quad that changed on both sides comes twice.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// database.set_retention(Retention::All)?;
    /// let inputs = vec![Input::from_bytes("one.ttl", "<http://a/s> <http://a/p> 1 .")];
    /// database.load(LoadOptions { inputs, ..LoadOptions::default() }, &())?;
    /// let mut patch = database.diff(&Moment::Commit(0), &Moment::Commit(1), &CancelHandle::new())?;
    /// let mut text = Vec::new();
    /// while patch.step(&mut text)? {}
    /// let text = String::from_utf8(text).unwrap();
    /// assert!(text.contains("A <http://a/s> <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n"));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchCommit` if one of them is not there, `Cancelled`, and what the disk gives.
    pub fn diff(&self, from: &Moment, to: &Moment, cancel: &CancelHandle) -> Result<Patch> {
        let store = self.store();
        let (from, to) = (commit_of(store, from)?, commit_of(store, to)?);
        Ok(Patch {
            difference: store.difference(from, to, &|| cancel.is_cancelled())?,
            cancel: cancel.clone(),
            lines: PatchLines::new(self),
            head: Some(head(store, to, from)),
            counts: (0, 0),
        })
    }
}

impl Patch {
    /// Appends the next lines to `out`; `false` once all are written.
    ///
    /// # Errors
    /// `Cancelled`, and what the disk gives.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(b"TX .\n");
        }
        if let Some(changes) = self.lines.free() {
            self.difference.next(BATCH_CHANGES, changes)?;
        }
        let written = self.lines.write(self.difference.snapshot(), out)?;
        let removed = written.iter().filter(|change| change.is_removed);
        let removed = removed.count() as u64;
        self.counts.0 += written.len() as u64 - removed;
        self.counts.1 += removed;
        if written.is_empty() {
            out.extend_from_slice(b"TC .\n");
            return Ok(false);
        }
        Ok(true)
    }

    /// How many quads were added so far.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.counts.0
    }

    /// How many quads were removed so far.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.counts.1
    }
}

/// The headers of a patch that leads to `id` from `previous`.
pub(crate) fn head(store: &QuadStore, id: u64, previous: u64) -> String {
    let database = store.store().identity().database_id;
    let name = |commit: u64| format!("<urn:stoa:{database:032x}:{commit}>");
    format!("H id {} .\nH prev {} .\n", name(id), name(previous))
}

/// Writes changes as lines of a patch, in pieces that fit ([`crate::results::pieces`]).
pub(crate) struct PatchLines {
    writer: GraphWriter,
    views: TermViews,
    pieces: Pieces,
    changes: Vec<QuadChange>,
    /// How many of them are written.
    written: usize,
}

impl PatchLines {
    /// Without changes.
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            writer: GraphWriter::new(GraphFormat::NQuads),
            views: TermViews::default(),
            pieces: Pieces::within(database.runtime().memory()),
            changes: Vec::new(),
            written: 0,
        }
    }

    /// Where the next changes go, once all are written.
    pub(crate) fn free(&mut self) -> Option<&mut Vec<QuadChange>> {
        let is_free = self.written == self.changes.len();
        if is_free {
            self.written = 0;
            self.changes.clear();
        }
        is_free.then_some(&mut self.changes)
    }

    /// Gives back the memory of the terms that were written last.
    pub(crate) fn rest(&mut self) {
        self.pieces.rest(&mut self.views);
    }

    /// Appends lines of the next changes, one at least if there are some, and gives these; their terms are read from
    /// `snapshot`.
    pub(crate) fn write(
        &mut self,
        snapshot: &Snapshot,
        out: &mut Vec<u8>,
    ) -> Result<&[QuadChange]> {
        let left = self.changes.get(self.written..).unwrap_or_default();
        if left.is_empty() {
            return Ok(left);
        }
        let ids = |count: usize| left.iter().take(count).flat_map(|change| change.quad);
        let count = (left.len(), 4);
        let decoded = self.pieces.load(&mut self.views, count, ids, snapshot)?;
        let before = out.len();
        let bytes_max = before + self.pieces.room(&self.views);
        let mut lines = 0;
        for (row, change) in left.iter().take(decoded).enumerate() {
            line(&mut self.writer, &self.views, (row, change), out)?;
            lines += 1;
            if out.len() >= bytes_max {
                break;
            }
        }
        let bytes = out.len().saturating_sub(before);
        self.pieces.wrote(&self.views, lines, bytes)?;
        self.pieces.end(&mut self.views);
        let written = self.written;
        self.written += lines;
        Ok(self.changes.get(written..self.written).unwrap_or_default())
    }
}

/// The line of a change, whose terms are in this row.
fn line(
    writer: &mut GraphWriter,
    views: &TermViews,
    (row, change): (usize, &QuadChange),
    out: &mut Vec<u8>,
) -> Result<()> {
    let first = row * 4;
    let terms = (
        views.get(first)?,
        views.get(first + 1)?,
        views.get(first + 2)?,
    );
    let (Some(subject), Some(predicate), Some(object)) = terms else {
        return Err(Error::Internal("a quad without a term".to_owned()));
    };
    let graph = views.get(first + 3)?;
    out.extend_from_slice(if change.is_removed { b"D " } else { b"A " });
    writer.quad([&subject, &predicate, &object], graph.as_ref(), out)
}
