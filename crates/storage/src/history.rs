//! Retained roots: those of earlier checkpoints that can still be read.
//!
//! They follow each other without a gap up to the one before the current root. What checkpoint *k* freed is
//! used by roots before *k* alone, so that it is free once all of these have expired: the retained
//! root *k* - 1 carries it. A retained root is written by the checkpoint after it, with the payload that its
//! slot had; the current root points to a directory of all. Roots expire from the oldest on, by a checkpoint
//! that says from which one on they stay ([`crate::Checkpoint::retain_from`]).
//!
//! # Format
//! docs/format.md#retained-roots
//!
//! # Limits
//! About 100 bytes of memory for each retained root; the ranges that it carries are read when it expires.

#[cfg(test)]
mod tests;

use crate::bytes::{Decoder, put};
use crate::error::Result;
use crate::extent::{ExtentId, PartRef};
use crate::format::{
    EXTENT_PAGE_MASK, FREE_LIST_ENTRY_BYTES, HISTORY_CHECKPOINT, HISTORY_COMMIT,
    HISTORY_COMMIT_TIME, HISTORY_ENTRY_BYTES, HISTORY_LOG_OPENING, HISTORY_LOG_POSITION,
    HISTORY_PAGES, HISTORY_PART, PAGE_BYTES, RETAINED_COUNT, RETAINED_PAYLOAD_LENGTH,
    RETAINED_RANGES, ROOT_PAYLOAD_BYTES_MAX,
};
use crate::free_space::PageRange;
use crate::log::{LogMark, Lsn};
use crate::meters::{ReadCounts, Structure};
use crate::store::{Deferred, Inner, Root, Store};
use std::sync::Arc;

/// A root of an earlier checkpoint that can be read ([`Store::retained_root`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RetainedRoot {
    /// The number of the commit that the checkpoint ended with.
    pub commit: u64,
    /// The number of the checkpoint.
    pub checkpoint: u64,
    /// Where the log goes on behind that commit.
    pub log: LogMark,
}

/// A retained root as the writer knows it.
#[derive(Clone)]
pub(crate) struct Retained {
    pub(crate) root: RetainedRoot,
    /// The pages that only it and roots before it use.
    pub(crate) pages: u64,
    /// Its payload and these pages.
    pub(crate) part: PartRef,
    /// What readers of the root hold.
    pub(crate) pin: Arc<()>,
}

/// What becomes of retained roots with a checkpoint.
pub(crate) struct HistoryChange {
    /// What each of the oldest gives free, which expire.
    pub(crate) expired: Vec<Vec<PageRange>>,
    /// The root before the checkpoint, if it stays.
    pub(crate) added: Option<Retained>,
    /// The new directory.
    pub(crate) directory: PartRef,
    /// Extents of expired roots and of the directory before.
    pub(crate) own: Vec<PageRange>,
}

impl Store {
    /// The retained roots, the oldest first; the current one is not among them.
    #[must_use]
    pub fn retained(&self) -> Vec<RetainedRoot> {
        let writer = self.inner.lock_writer();
        writer.retained.iter().map(|one| one.root).collect()
    }

    /// The root of a checkpoint if it is the current one or retained; as long as it is held, the extents
    /// stay that it uses.
    ///
    /// [`crate::Error::Corruption`] if it is damaged.
    pub fn retained_root(&self, checkpoint: u64) -> Result<Option<Root>> {
        // Keeps what the roots of this moment are written in.
        let current = self.root();
        if current.checkpoint == checkpoint {
            return Ok(Some(current));
        }
        let found = {
            let writer = self.inner.lock_writer();
            let mut retained = writer.retained.iter();
            retained
                .find(|one| one.root.checkpoint == checkpoint)
                .cloned()
        };
        let Some(found) = found else { return Ok(None) };
        let part = self.read_one(&found.part)?;
        let (_, payload) = decode_root(&part, &found.part)?;
        Ok(Some(Root {
            commit: found.root.commit,
            checkpoint,
            log: found.root.log,
            payload: payload.into(),
            pin: found.pin,
            list_pin: Arc::new(()),
        }))
    }

    /// The position from which the log is needed: behind the commit of the oldest root.
    #[must_use]
    pub fn log_needed(&self) -> Lsn {
        let current = self.root().log.position;
        let writer = self.inner.lock_writer();
        let oldest = writer.retained.first();
        oldest.map_or(current, |one| one.root.log.position.min(current))
    }

    /// The checkpoints of the retained roots, each with the bytes that only it and roots before it use.
    #[must_use]
    pub fn retained_root_bytes(&self) -> Vec<(u64, u64)> {
        let writer = self.inner.lock_writer();
        let retained = writer.retained.iter();
        retained
            .map(|one| (one.root.checkpoint, one.pages * PAGE_BYTES))
            .collect()
    }

    /// Whether less than a tenth of the device is free; not if that cannot be told.
    #[must_use]
    pub fn is_device_full(&self) -> bool {
        let disk = &self.inner.disk;
        match (disk.free_bytes(), disk.total_bytes()) {
            (Ok(free), Ok(total)) => free < total / 10,
            _ => false,
        }
    }

    /// The bytes in data files that only retained roots use.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        let writer = self.inner.lock_writer();
        let pages: u64 = writer.retained.iter().map(|one| one.pages).sum();
        pages * PAGE_BYTES
    }
}

impl Inner {
    /// The pages that a retained root carries.
    pub(crate) fn retained_ranges(&self, part: &PartRef) -> Result<Vec<PageRange>> {
        let counts = &mut ReadCounts::default();
        let bytes = self.read_one(part, Structure::OTHER, counts)?;
        Ok(decode_root(&bytes, part)?.0)
    }

    /// What is to be given free, now or once its readers are gone, when retained roots expire.
    pub(crate) fn expire(&self, expired: Vec<Vec<PageRange>>) {
        let mut writer = self.lock_writer();
        let count = expired.len().min(writer.retained.len());
        let gone: Vec<Retained> = writer.retained.drain(..count).collect();
        for (one, ranges) in gone.into_iter().zip(expired) {
            writer.deferred.push(Deferred {
                root: Arc::downgrade(&one.pin),
                ranges,
            });
        }
    }
}

/// The pages of an extent that holds one part.
pub(crate) fn pages_of(part: &PartRef) -> PageRange {
    PageRange {
        first: part.extent,
        pages: u64::from(part.length).div_ceil(PAGE_BYTES).max(1),
    }
}

/// Ascending ranges with neighbours made one.
pub(crate) fn joined(ranges: &[PageRange]) -> Vec<PageRange> {
    let mut joined: Vec<PageRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end() == range.first.to_u64() => last.pages += range.pages,
            _ => joined.push(*range),
        }
    }
    joined
}

/// A retained root: the pages that it carries, and its payload.
pub(crate) fn encode_root(ranges: &[PageRange], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; RETAINED_RANGES];
    let (count, length) = (ranges.len() as u64, payload.len() as u64);
    put(&mut bytes, RETAINED_COUNT, &count.to_le_bytes());
    put(&mut bytes, RETAINED_PAYLOAD_LENGTH, &length.to_le_bytes());
    for range in ranges {
        bytes.extend_from_slice(&range.first.to_u64().to_le_bytes());
        bytes.extend_from_slice(&range.pages.to_le_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// The pages and the payload of a retained root; `part` says where the bytes were.
pub(crate) fn decode_root(bytes: &[u8], part: &PartRef) -> Result<(Vec<PageRange>, Vec<u8>)> {
    let decoded = (|| {
        let mut decoder = Decoder::new(bytes);
        let count = usize::try_from(decoder.u64()?).ok()?;
        let length = usize::try_from(decoder.u64()?).ok()?;
        if count > bytes.len() / FREE_LIST_ENTRY_BYTES || length > ROOT_PAYLOAD_BYTES_MAX {
            return None;
        }
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            let range = PageRange {
                first: ExtentId::from_u64(decoder.u64()?),
                pages: decoder.u64()?,
            };
            if range.first.page().checked_add(range.pages)? > EXTENT_PAGE_MASK {
                return None;
            }
            ranges.push(range);
        }
        let payload = decoder.bytes(length)?.to_vec();
        decoder.array::<1>().is_none().then_some((ranges, payload))
    })();
    decoded.ok_or_else(|| part.corruption("a retained root", "something else"))
}

/// The directory of retained roots.
pub(crate) fn encode_directory(retained: &[Retained]) -> Vec<u8> {
    let mut bytes = vec![0; retained.len() * HISTORY_ENTRY_BYTES];
    for (one, entry) in retained
        .iter()
        .zip(bytes.chunks_exact_mut(HISTORY_ENTRY_BYTES))
    {
        let RetainedRoot {
            commit,
            checkpoint,
            log,
        } = one.root;
        put(entry, HISTORY_CHECKPOINT, &checkpoint.to_le_bytes());
        put(entry, HISTORY_COMMIT, &commit.to_le_bytes());
        let position = log.position.to_u64();
        put(entry, HISTORY_LOG_POSITION, &position.to_le_bytes());
        put(entry, HISTORY_COMMIT_TIME, &log.time.to_le_bytes());
        put(entry, HISTORY_PAGES, &one.pages.to_le_bytes());
        put(entry, HISTORY_LOG_OPENING, &log.opening.to_le_bytes());
        put(entry, HISTORY_PART, &one.part.encode());
    }
    bytes
}

/// The retained roots before the checkpoint `current`, of files with `pages` pages; `part` says where the bytes were.
pub(crate) fn decode_directory(
    bytes: &[u8],
    part: &PartRef,
    (current, pages): (u64, u64),
) -> Result<Vec<Retained>> {
    let entries = bytes.chunks_exact(HISTORY_ENTRY_BYTES);
    let whole = entries.remainder().is_empty();
    let decoded: Option<Vec<Retained>> = entries.map(decode_entry).collect();
    let follows = |retained: &Vec<Retained>| {
        let numbers = retained.iter().map(|one| one.root.checkpoint);
        let first = current.saturating_sub(retained.len() as u64);
        first > 0 && numbers.eq(first..current)
    };
    // No page is of two roots.
    let fits = |retained: &Vec<Retained>| {
        let mut each = retained.iter().map(|one| one.pages);
        let sum = each.try_fold(0, u64::checked_add);
        sum.is_some_and(|sum| sum <= pages)
    };
    decoded
        .filter(|retained| whole && follows(retained) && fits(retained))
        .ok_or_else(|| {
            part.corruption(
                format!("the retained roots before checkpoint {current}"),
                "others",
            )
        })
}

fn decode_entry(entry: &[u8]) -> Option<Retained> {
    let mut decoder = Decoder::new(entry);
    let (checkpoint, commit) = (decoder.u64()?, decoder.u64()?);
    let (position, time) = (Lsn::new(decoder.u64()?), decoder.u64()?);
    let pages = decoder.u64()?;
    let opening = decoder.u32()?;
    Some(Retained {
        root: RetainedRoot {
            commit,
            checkpoint,
            log: LogMark {
                position,
                opening,
                time,
            },
        },
        pages,
        part: PartRef::decode(&decoder.array()?),
        pin: Arc::new(()),
    })
}
