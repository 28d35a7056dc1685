//! The feed of changes: each commit as RDF Patch, one after the other.

use std::task::Waker;

use stoa_quadstore::{CommitChanges, CommitInfo, Feed};

use crate::database::Database;
use crate::error::Result;
use crate::history::time_text;
use crate::patch::{PatchLines, head};

/// Changes that are written at a time; a feed whose client reads nothing holds as many.
const BATCH_CHANGES: usize = 512;

/// Commits that are told one after the other, piece by piece.
pub struct ChangeFeed {
    database: Database,
    feed: Feed,
    lines: PatchLines,
    /// The commit at work.
    current: Option<CommitChanges>,
}

/// What a step of a feed has written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FeedStep {
    /// The first lines of the patch of this commit.
    Begun(Box<CommitInfo>),
    /// More lines of it.
    More,
    /// The last line of it.
    Ended,
    /// Nothing: there is no further commit yet.
    Waits,
}

impl Database {
    /// Follows the commits after `since`.
    ///
    /// # Errors
    /// `NoSuchCommit` if there is none with that number, or what came after it is not kept any more.
    pub fn changes(&self, since: u64) -> Result<ChangeFeed> {
        Ok(ChangeFeed {
            feed: self.store().feed(since)?,
            database: self.clone(),
            lines: PatchLines::new(self),
            current: None,
        })
    }
}

impl ChangeFeed {
    /// Appends the next lines to `out`. Each line is one of RDF Patch; a patch ends with `TC .`.
    ///
    /// # Errors
    /// `NoSuchCommit` if the next commit is not kept any more, and what the disk gives. After `MemoryExceeded` between
    /// commits the step may be taken again.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<FeedStep> {
        let Some(current) = &mut self.current else {
            let Some(next) = self.feed.next_commit()? else {
                return Ok(FeedStep::Waits);
            };
            let info = next.info.clone();
            let head = head(self.database.store(), info.commit, info.commit - 1);
            let time = time_text(info.time_us);
            out.extend_from_slice(head.as_bytes());
            let time =
                format!("H time \"{time}\"^^<http://www.w3.org/2001/XMLSchema#dateTime> .\nTX .\n");
            out.extend_from_slice(time.as_bytes());
            self.current = Some(next);
            return Ok(FeedStep::Begun(Box::new(info)));
        };
        if let Some(changes) = self.lines.free() {
            current.next(BATCH_CHANGES, changes)?;
        }
        if self.lines.write(current.snapshot(), out)?.is_empty() {
            self.current = None;
            out.extend_from_slice(b"TC .\n");
            return Ok(FeedStep::Ended);
        }
        Ok(FeedStep::More)
    }

    /// Whether a commit was told in part.
    #[must_use]
    pub fn is_within_commit(&self) -> bool {
        self.current.is_some()
    }

    /// Gives back the memory that makes steps faster: there will be none for a while.
    pub fn rest(&mut self) {
        self.feed.rest();
        if let Some(current) = &mut self.current {
            current.rest();
        }
        self.lines.rest();
    }

    /// Whether there is a commit to be told; if not, `waker` is woken once there is one, and maybe before.
    #[must_use]
    pub fn wake_at_commit(&self, waker: &Waker) -> bool {
        let told = self.feed.told();
        self.current.is_some() || self.database.store().wake_after(told, waker)
    }
}
