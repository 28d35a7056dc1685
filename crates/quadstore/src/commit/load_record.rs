//! The records of bulk loads and of compactions: that one was made, and which change file tells what it wrote.
//!
//! The root is durable before its record is appended, and no commit comes between. So what has a record is part of the
//! database; the next opening appends a record that a crash has kept away.
//!
//! The record of a compaction has the commit that its root holds, and its numbering. Commits that were made beside it
//! stand before it, with the new ids as well as with the old ones.
//!
//! # Format
//! docs/format.md#commit-records

use stoa_storage::{ChangeFileSummary, ChangesOf, NewRecord};

use super::record::{Head, put, put_head, take, take_head};
use crate::root::{SCHEME_FULL, SCHEME_LEAN, Scheme};

/// The kind of a log record that is a bulk load.
pub(crate) const RECORD_LOAD: u32 = 2;
/// The kind of a log record that is a compaction.
pub(crate) const RECORD_COMPACTION: u32 = 3;

/// Whether the record of a kind tells of what a root made durable, and is nothing to be made again on top of it.
pub(crate) fn is_of_root(kind: u8) -> bool {
    [RECORD_LOAD, RECORD_COMPACTION].contains(&kind.into())
}

/// What the record of a load or a compaction tells. A compaction adds all quads, to nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LoadRecord {
    pub(crate) head: Head,
    pub(crate) scheme: Scheme,
    /// The first number that no blank node has after it.
    pub(crate) next_blank_node: u64,
    /// Of its change file.
    pub(crate) file: ChangeFileSummary,
}

impl LoadRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(&mut out, &self.head);
        let scheme = match self.scheme {
            Scheme::Full => SCHEME_FULL,
            Scheme::Lean => SCHEME_LEAN,
        };
        put(&mut out, scheme.into());
        put(&mut out, self.next_blank_node);
        put(&mut out, self.file.bytes);
        put(&mut out, self.file.digest.into());
        out
    }

    /// The record with a payload; `None` if it is none.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let record = Self {
            head: take_head(&mut rest)?,
            scheme: match u32::try_from(take(&mut rest)?).ok()? {
                SCHEME_FULL => Scheme::Full,
                SCHEME_LEAN => Scheme::Lean,
                _ => return None,
            },
            next_blank_node: take(&mut rest)?,
            file: ChangeFileSummary {
                bytes: take(&mut rest)?,
                digest: u32::try_from(take(&mut rest)?).ok()?,
            },
        };
        rest.is_empty().then_some(record)
    }
}

/// The record of what a change file tells, with a payload.
pub(crate) fn of_changes(of: ChangesOf, payload: &[u8]) -> NewRecord<'_> {
    let [kind, ..] = match of.numbering {
        None => RECORD_LOAD,
        Some(_) => RECORD_COMPACTION,
    }
    .to_le_bytes();
    NewRecord {
        kind,
        commit: of.commit,
        payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::record::decode_head;

    #[test]
    fn a_record_comes_back_and_other_bytes_are_none() {
        for (scheme, message) in [(Scheme::Full, None), (Scheme::Lean, Some("a message"))] {
            let record = LoadRecord {
                head: Head {
                    numbering: 3,
                    message: message.map(str::to_owned),
                    added: 1 << 40,
                    removed: 7,
                },
                scheme,
                next_blank_node: 300,
                file: ChangeFileSummary {
                    bytes: u64::MAX,
                    digest: u32::MAX,
                },
            };
            let mut payload = record.encode();
            assert_eq!(LoadRecord::decode(&payload), Some(record.clone()));
            assert_eq!(decode_head(&payload), Some(record.head));
            for length in 0..payload.len() {
                assert_eq!(LoadRecord::decode(&payload[..length]), None, "{length}");
            }
            payload.push(0);
            assert_eq!(LoadRecord::decode(&payload), None);
        }
    }
}
