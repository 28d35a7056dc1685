//! The list of commits, from the records of the log and the roots of bulk loads.

use stoa_storage::{LogReader, RetainedRoot};

use crate::commit::record::{self, Head};
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::root::RootPayload;

/// Bytes of a record that are read at a time for its beginning.
const HEAD_BYTES: usize = 256;

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

impl QuadStore {
    /// Tells `each` of the commits after the oldest that can be read, the newest first, until it returns
    /// `false`.
    ///
    /// # Errors
    /// What the files give, and what `each` does.
    pub fn commits(&self, each: &mut dyn FnMut(CommitInfo) -> Result<bool>) -> Result<()> {
        let last = self.snapshot().commit();
        let roots = self.0.roots();
        let oldest = self.0.oldest(&roots, last);
        let mut end = last;
        for (index, root) in roots.iter().enumerate().rev() {
            // Between two roots there are no more than what a checkpoint has room for.
            let mut segment = Vec::new();
            if root.commit < end {
                self.segment(root, end, &mut segment)?;
            }
            let before = index.checked_sub(1).and_then(|before| roots.get(before));
            if before.is_some_and(|before| before.commit < root.commit)
                && let Some(loaded) = self.load_of(root)?
            {
                segment.insert(0, loaded);
            }
            for info in segment.into_iter().rev() {
                if info.commit <= oldest || !each(info)? {
                    return Ok(());
                }
            }
            end = root.commit.min(end);
            if end <= oldest {
                break;
            }
        }
        Ok(())
    }

    /// Adds the commits that have records behind a root, up to `end`.
    fn segment(&self, root: &RetainedRoot, end: u64, segment: &mut Vec<CommitInfo>) -> Result<()> {
        let mut records = match self.0.records_behind(root) {
            // It has expired meanwhile, and so have all before.
            Err(Error::Storage(stoa_storage::Error::LogReleased { .. })) => return Ok(()),
            records => records?,
        };
        while let Some(record) = records.next()? {
            if record.commit > end {
                break;
            }
            let head = read_head(&mut records)?;
            segment.push(CommitInfo {
                commit: record.commit,
                time_us: record.time,
                added: head.added,
                removed: head.removed,
                message: head.message,
                is_load: false,
            });
            if record.commit == end {
                break;
            }
        }
        Ok(())
    }

    /// The bulk load that a root ends with, if it does.
    pub(super) fn load_of(&self, root: &RetainedRoot) -> Result<Option<CommitInfo>> {
        let Some(found) = self.store().retained_root(root.checkpoint)? else {
            return Ok(None);
        };
        let payload = RootPayload::decode(&found.payload)?;
        Ok(payload.loaded.map(|added| CommitInfo {
            commit: root.commit,
            time_us: root.log.time,
            added,
            removed: 0,
            message: None,
            is_load: true,
        }))
    }
}

/// Reads the beginning of the record at which `records` stands.
fn read_head(records: &mut LogReader) -> Result<Head> {
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        bytes.resize(start + HEAD_BYTES.max(start), 0);
        let read = records.read(bytes.get_mut(start..).unwrap_or_default())?;
        bytes.truncate(start + read);
        if let Some(head) = record::decode_head(&bytes) {
            return Ok(head);
        }
        if read == 0 {
            return Err(Error::Corruption {
                structure: "log",
                expected: "the changes of a commit".to_owned(),
                found: format!("{} other bytes", bytes.len()),
            });
        }
    }
}
