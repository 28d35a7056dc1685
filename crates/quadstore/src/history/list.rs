//! The list of commits, from the records of the log and the roots of bulk loads.

use stoa_storage::{Reservation, RetainedRoot};

use crate::commit::is_of_root;
use crate::commit::record;
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::root::RootPayload;

/// Commits that are held at a time; between two roots there may be millions, which are read again for more.
const HELD: usize = if cfg!(test) { 16 } else { 1 << 16 };

/// What is known of a commit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommitInfo {
    /// Its number.
    pub commit: u64,
    /// Its time, in microseconds since 1970.
    pub time_us: u64,
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
    /// What its author says of it.
    pub message: Option<String>,
    /// Whether it is a bulk load.
    pub is_load: bool,
}

/// The commits that are kept, the newest first, piece by piece.
pub struct CommitList {
    store: QuadStore,
    /// Roots whose commits are still to come, the newest at the end.
    roots: Vec<RetainedRoot>,
    /// The oldest commit that can be read, which is not one of the list.
    oldest: u64,
    /// The newest commit that is still to come.
    end: u64,
    /// What comes next, the newest at the end.
    segment: Vec<CommitInfo>,
    /// The memory of the segment.
    room: Option<Reservation>,
}

impl QuadStore {
    /// Lists the commits after the oldest that can be read, the newest first; if there is a commit to begin
    /// before, only those before it.
    #[must_use]
    pub fn list_commits(&self, before: Option<u64>) -> CommitList {
        let last = self.snapshot().commit();
        let roots = self.0.roots();
        CommitList {
            store: self.clone(),
            oldest: self.0.oldest(&roots, last),
            end: before.map_or(last, |before| last.min(before.saturating_sub(1))),
            roots,
            segment: Vec::new(),
            room: None,
        }
    }
}

impl CommitList {
    /// The next commit; `None` if there is none.
    ///
    /// # Errors
    /// What the files give, and if the memory budget has no room for the commits between two checkpoints.
    #[expect(
        clippy::should_implement_trait,
        reason = "an error ends it, which an iterator does not tell"
    )]
    pub fn next(&mut self) -> Result<Option<CommitInfo>> {
        loop {
            if let Some(info) = self.segment.pop() {
                return Ok(Some(info).filter(|info| info.commit > self.oldest));
            }
            let Some(root) = self.roots.pop() else {
                return Ok(None);
            };
            if self.end <= self.oldest {
                return Ok(None);
            }
            self.end = match self.fill(&root)? {
                Some(end) => {
                    self.roots.push(root);
                    end
                }
                None => root.commit.min(self.end),
            };
        }
    }

    /// Takes the newest commits up to the end that a root ends with, or that stand behind it; the end
    /// of those that are left, if there are more than are held.
    fn fill(&mut self, root: &RetainedRoot) -> Result<Option<u64>> {
        self.room = None;
        let rest = match root.commit < self.end {
            true => self.read(root)?,
            false => None,
        };
        let before = self.roots.last();
        if rest.is_none()
            && root.commit <= self.end
            && before.is_some_and(|before| before.commit < root.commit)
            && let Some(loaded) = self.store.load_of(root)?
        {
            self.segment.insert(0, loaded);
        }
        Ok(rest)
    }

    /// Adds the newest commits that have records behind a root; the last one that is older, if any was left.
    fn read(&mut self, root: &RetainedRoot) -> Result<Option<u64>> {
        let mut records = match self.store.0.records_behind(root) {
            // It has expired meanwhile, and so have all before.
            Err(Error::Storage(stoa_storage::Error::LogReleased { .. })) => return Ok(None),
            records => records?,
        };
        let budget = self.store.0.budget();
        let mut room = budget.try_reserve(0).map_err(stoa_storage::Error::from)?;
        let (mut last, mut rest) = (root.commit, None);
        while let Some(record) = records.next()? {
            if record.commit > self.end {
                break;
            }
            if record.commit <= last || is_of_root(record.kind) {
                // A compaction told it once more; or it is a load, which its root tells.
                continue;
            }
            last = record.commit;
            let head = record::read_head(|bytes| records.read(bytes))?;
            if self.segment.len() >= 2 * HELD {
                for older in self.segment.drain(..HELD) {
                    room.shrink(older.bytes());
                    rest = Some(older.commit);
                }
            }
            let info = CommitInfo {
                commit: record.commit,
                time_us: record.time,
                added: head.added,
                removed: head.removed,
                message: head.message,
                is_load: false,
            };
            room.grow(info.bytes()).map_err(stoa_storage::Error::from)?;
            self.segment.push(info);
            if record.commit == self.end {
                break;
            }
        }
        self.room = Some(room);
        Ok(rest)
    }
}

impl CommitInfo {
    /// The memory that it takes.
    fn bytes(&self) -> u64 {
        let message = self.message.as_ref().map_or(0, String::len);
        u64::try_from(size_of::<Self>() + message).unwrap_or(u64::MAX)
    }
}

impl QuadStore {
    /// The bulk load that a root ends with, if it does.
    pub(super) fn load_of(&self, root: &RetainedRoot) -> Result<Option<CommitInfo>> {
        let Some(found) = self.store().retained_root(root.checkpoint)? else {
            return Ok(None);
        };
        let payload = RootPayload::decode(&found.payload)?;
        Ok(payload.loaded.map(|loaded| CommitInfo {
            commit: root.commit,
            time_us: root.log.time,
            added: loaded.added,
            removed: loaded.removed,
            message: loaded.message,
            is_load: true,
        }))
    }
}
