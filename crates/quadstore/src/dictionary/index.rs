//! The paged index of a partition's blocks: a small tree, by key and by ordinal at once.
//!
//! A leaf page has a record for each block, an inner page one for each page below: the ordinal of
//! the first entry, where the block or page lies, and a separator, the shortest string that is
//! greater than all keys before and not greater than the first key. Separators are cut at
//! [`SEPARATOR_BYTES_MAX`]; a cut one is only a lower bound, and a key that begins with it has to be
//! compared with the first key itself.
//!
//! Looking up a batch goes down level by level, with one read for each level.
//!
//! # Format
//! docs/format.md#dictionary-index

use std::cmp::Ordering;
use std::ops::Range;

use stoa_storage::{Checkpoint, Part, PartRef, Store};

use super::format::{
    INDEX_HEADER_BYTES, INDEX_KEY_CUT, INDEX_PAGE_BYTES, INDEX_RECORD_BYTES, SEPARATOR_BYTES_MAX,
    take,
};
use crate::error::{Error, Result};

/// Complete pages are written together when they reach this size.
const WRITE_BYTES: usize = 1 << 20;
/// Deeper trees are damaged ones: pages have two records or more.
pub(crate) const HEIGHT_MAX: u8 = 40;

/// A block, or a page of the index, as a record shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Child {
    /// The ordinal of its first entry.
    pub(crate) first: u64,
    pub(crate) part: PartRef,
}

/// What a record of the index is made of.
pub(crate) struct IndexEntry {
    pub(crate) child: Child,
    pub(crate) separator: Box<[u8]>,
    /// Whether the separator was cut.
    pub(crate) is_cut: bool,
}

/// The separator before `first`, the first key of a block that follows `last`; empty before the
/// first block of all.
pub(crate) fn separator(last: &[u8], first: &[u8]) -> (Box<[u8]>, bool) {
    let shared = super::entries::shared_prefix(last, first);
    let length = (shared + 1).min(first.len());
    let cut = length.min(SEPARATOR_BYTES_MAX);
    let separator = first.get(..cut).unwrap_or(first);
    (separator.into(), cut < length)
}

/// Where the tree of an index is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Index {
    pub(crate) root: PartRef,
    /// The levels of pages, at least 1.
    pub(crate) height: u8,
    /// The number of entries in all blocks.
    pub(crate) entries: u64,
}

/// A page of the index in memory; all that it holds is checked when it is opened.
pub(crate) struct Page {
    part: Part,
    count: usize,
}

impl Page {
    pub(crate) fn open(part: Part, level: u8) -> Result<Self> {
        let reference = part.reference();
        let mut header: &[u8] = &part;
        let input = &mut header;
        let found = (|| {
            let [found_level, zero] = take::<2>(input)?;
            let count = u16::from_le_bytes(take(input)?);
            let key_bytes = u32::from_le_bytes(take(input)?);
            (zero == 0).then_some((found_level, usize::from(count), key_bytes as usize))
        })();
        let Some((found_level, count, key_bytes)) = found else {
            return Err(damaged(reference, "another header"));
        };
        if found_level != level || count == 0 {
            return Err(damaged(reference, "another level, or no records"));
        }
        if header.len() != count * INDEX_RECORD_BYTES + key_bytes {
            return Err(damaged(reference, "another length"));
        }
        Ok(Self { part, count })
    }

    /// Checks that the records ascend, which searching takes for granted.
    pub(crate) fn verify(&self) -> Result<()> {
        let mut end = 0;
        let mut first = None;
        for index in 0..self.count {
            let (Some(next), Some((key_end, _))) = (self.first(index), self.key_end(index)) else {
                return Err(self.damaged("too few records"));
            };
            let ascends = first.is_none_or(|first| first < next);
            let keys = self.part.len() - INDEX_HEADER_BYTES - self.count * INDEX_RECORD_BYTES;
            if key_end < end || key_end > keys || !ascends {
                return Err(self.damaged("records out of order"));
            }
            end = key_end;
            first = Some(next);
        }
        Ok(())
    }

    fn damaged(&self, found: &str) -> Error {
        damaged(self.part.reference(), found)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The bytes of the record at `index`: the first ordinal, the part of the child, where its separator ends.
    fn record(&self, index: usize) -> Option<&[u8; INDEX_RECORD_BYTES]> {
        let start = INDEX_HEADER_BYTES + index * INDEX_RECORD_BYTES;
        self.part.get(start..)?.first_chunk()
    }

    /// The first ordinal of the child at `index`.
    fn first(&self, index: usize) -> Option<u64> {
        let first = self.record(index)?.first_chunk()?;
        Some(u64::from_le_bytes(*first))
    }

    /// Where the separator before child `index` ends among all, and whether it was cut.
    fn key_end(&self, index: usize) -> Option<(usize, bool)> {
        let end = u32::from_le_bytes(*self.record(index)?.last_chunk()?);
        Some(((end & !INDEX_KEY_CUT) as usize, end & INDEX_KEY_CUT != 0))
    }

    /// The child at `index`, below `len()`.
    pub(crate) fn child(&self, index: usize) -> Result<Child> {
        let child = || {
            let mut record: &[u8] = self.record(index)?;
            Some(Child {
                first: u64::from_le_bytes(take(&mut record)?),
                part: PartRef::decode(&take(&mut record)?),
            })
        };
        child().ok_or_else(|| self.damaged("too few records"))
    }

    /// The separator before child `index` and whether it was cut.
    fn separator(&self, index: usize) -> Option<(&[u8], bool)> {
        let (end, is_cut) = self.key_end(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => self.key_end(before)?.0,
            None => 0,
        };
        let keys = INDEX_HEADER_BYTES + self.count * INDEX_RECORD_BYTES;
        Some((self.part.get(keys + start..keys + end)?, is_cut))
    }

    /// The last child whose first ordinal is at most `ordinal`, which is not before `from`.
    fn find_ordinal(&self, ordinal: u64, from: Option<usize>) -> Result<usize> {
        self.find_last(from, &mut |index| {
            Ok(self.first(index).is_some_and(|first| first <= ordinal))
        })
    }

    /// The last child whose first key is at most `key`, or the first child; it is not before `from`.
    fn find_key(
        &self,
        key: &[u8],
        from: Option<usize>,
        resolve: &mut impl FnMut(u64) -> Result<Ordering>,
    ) -> Result<usize> {
        self.find_last(from, &mut |index| {
            let (separator, is_cut) = self
                .separator(index)
                .ok_or_else(|| self.damaged("a separator beyond the page"))?;
            if is_cut && key.starts_with(separator) {
                return Ok(resolve(self.child(index)?.first)? != Ordering::Greater);
            }
            Ok(separator <= key)
        })
    }

    /// The last child for which `is_at_most` holds, which does for all before it. From the one that was found
    /// last on, if there is one, in steps that double, since what is looked up together is often near.
    fn find_last(
        &self,
        from: Option<usize>,
        is_at_most: &mut impl FnMut(usize) -> Result<bool>,
    ) -> Result<usize> {
        let (mut low, mut high) = (from.unwrap_or(0), self.count);
        if from.is_some() {
            let mut step = 1;
            while low + step < self.count && is_at_most(low + step)? {
                low += step;
                step *= 2;
            }
            high = high.min(low + step);
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if is_at_most(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

fn damaged(part: PartRef, found: &str) -> Error {
    Error::corrupt(part, "a page of the dictionary's index", found)
}

/// A block and the queries (a range of the batch) that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) block: Child,
    pub(crate) queries: Range<usize>,
}

impl Index {
    /// The blocks of these ascending ordinals, all of which exist.
    pub(crate) fn locate_ordinals(&self, store: &Store, ordinals: &[u64]) -> Result<Vec<Located>> {
        self.descend(store, ordinals.len(), |page, query, from| {
            let ordinal = ordinals.get(query).copied().unwrap_or(u64::MAX);
            page.find_ordinal(ordinal, from)
        })
    }

    /// For each of these ascending keys the block that would hold it. `resolve(key, ordinal)`
    /// compares the entry of an ordinal, the first of its block, with the key at an index.
    pub(crate) fn locate_keys(
        &self,
        store: &Store,
        keys: &[&[u8]],
        mut resolve: impl FnMut(usize, u64) -> Result<Ordering>,
    ) -> Result<Vec<Located>> {
        self.descend(store, keys.len(), |page, query, from| {
            let key = keys.get(query).copied().unwrap_or(&[]);
            page.find_key(key, from, &mut |ordinal| resolve(query, ordinal))
        })
    }

    fn descend(
        &self,
        store: &Store,
        queries: usize,
        mut find: impl FnMut(&Page, usize, Option<usize>) -> Result<usize>,
    ) -> Result<Vec<Located>> {
        let mut frontier = vec![Located {
            block: Child {
                first: 0,
                part: self.root,
            },
            queries: 0..queries,
        }];
        if queries == 0 {
            return Ok(Vec::new());
        }
        for level in (0..self.height).rev() {
            let parts: Vec<PartRef> = frontier.iter().map(|at| at.block.part).collect();
            let mut next: Vec<Located> = Vec::with_capacity(frontier.len());
            for (part, at) in store.read(&parts)?.into_iter().zip(frontier) {
                let page = Page::open(part, level)?;
                let mut last = None;
                for query in at.queries {
                    let found = find(&page, query, last)?;
                    match next.last_mut() {
                        Some(located) if last == Some(found) => located.queries.end = query + 1,
                        _ => {
                            let block = page.child(found)?;
                            // What numbers are made of must stay in their range.
                            if block.first >= self.entries {
                                return Err(page.damaged("an entry beyond the last"));
                            }
                            next.push(Located {
                                block,
                                queries: query..query + 1,
                            });
                        }
                    }
                    last = Some(found);
                }
            }
            frontier = next;
        }
        Ok(frontier)
    }

    /// The leaf page that holds `ordinal`.
    pub(crate) fn leaf(&self, store: &Store, ordinal: u64) -> Result<Page> {
        let mut part = self.root;
        for level in (1..self.height).rev() {
            let page = Page::open(store.read_one(&part)?, level)?;
            part = page.child(page.find_ordinal(ordinal, None)?)?.part;
        }
        Page::open(store.read_one(&part)?, 0)
    }

    /// Calls `visit` with each page of the tree and its level, and with each block as level `None`.
    pub(crate) fn visit(
        &self,
        store: &Store,
        visit: &mut impl FnMut(PartRef, Option<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut level_parts = vec![self.root];
        for level in (0..self.height).rev() {
            let mut next = Vec::new();
            for part in level_parts {
                visit(part, Some(level))?;
                let page = Page::open(store.read_one(&part)?, level)?;
                page.verify()?;
                for index in 0..page.len() {
                    let child = page.child(index)?.part;
                    if level == 0 {
                        visit(child, None)?;
                    } else {
                        next.push(child);
                    }
                }
            }
            level_parts = next;
        }
        Ok(())
    }
}

/// A page that is being filled.
#[derive(Default)]
struct OpenPage {
    records: Vec<u8>,
    keys: Vec<u8>,
    count: u16,
    /// Of the first record: it becomes the separator of the page.
    head: Option<IndexEntry>,
}

/// One level of a tree that is being written: the open page, and complete ones that wait.
#[derive(Default)]
struct Level {
    open: OpenPage,
    /// Complete pages, and for each its first ordinal, separator, length.
    waiting: Vec<u8>,
    pages: Vec<(IndexEntry, usize)>,
}

/// Writes the tree of an index from the bottom to the top, as blocks come.
pub(crate) struct IndexWriter<'a, 'b> {
    checkpoint: &'a Checkpoint<'b>,
    levels: Vec<Level>,
    bytes: u64,
}

impl<'a, 'b> IndexWriter<'a, 'b> {
    pub(crate) fn new(checkpoint: &'a Checkpoint<'b>) -> Self {
        Self {
            checkpoint,
            levels: Vec::new(),
            bytes: 0,
        }
    }

    /// Appends a block, whose ordinals and keys are above all before.
    pub(crate) fn push(&mut self, entry: IndexEntry) -> Result<()> {
        self.push_at(0, entry)
    }

    fn push_at(&mut self, level: usize, entry: IndexEntry) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let Some(at) = self.levels.get_mut(level) else {
            return Err(Error::Internal("a level of the index is missing"));
        };
        let size = at.open.records.len() + at.open.keys.len() + INDEX_HEADER_BYTES;
        // Two records a page at least: otherwise the tree would not grow narrower.
        let is_full = at.open.count >= 2
            && size + INDEX_RECORD_BYTES + entry.separator.len() > INDEX_PAGE_BYTES;
        if is_full {
            at.close(level)?;
            if at.waiting.len() >= WRITE_BYTES {
                self.write_pages(level)?;
            }
        }
        if let Some(at) = self.levels.get_mut(level) {
            at.open.push(entry)?;
        }
        Ok(())
    }

    /// Writes the complete pages of a level and appends them to the level above.
    fn write_pages(&mut self, level: usize) -> Result<()> {
        let Some(at) = self.levels.get_mut(level) else {
            return Ok(());
        };
        let waiting = std::mem::take(&mut at.waiting);
        let pages = std::mem::take(&mut at.pages);
        if pages.is_empty() {
            return Ok(());
        }
        let extent = self.checkpoint.write_extent(&waiting)?;
        self.bytes += waiting.len() as u64;
        let mut rest = waiting.as_slice();
        let mut offset = 0;
        for (mut entry, length) in pages {
            let (page, after) = rest
                .split_at_checked(length)
                .ok_or(Error::Internal("pages of the index are shorter than noted"))?;
            rest = after;
            entry.child.part = PartRef::of(extent, offset, page);
            offset +=
                u32::try_from(length).map_err(|_| Error::Internal("an index page is too long"))?;
            self.push_at(level + 1, entry)?;
        }
        Ok(())
    }

    /// The index of all blocks, with `entries` entries, and its bytes; `None` if there are none.
    pub(crate) fn finish(mut self, entries: u64) -> Result<(Option<Index>, u64)> {
        let mut level = 0;
        while level < self.levels.len() {
            let is_top = level + 1 == self.levels.len();
            let Some(at) = self.levels.get_mut(level) else {
                break;
            };
            at.close(level)?;
            if is_top && at.pages.len() == 1 {
                let root = self.checkpoint.write_part(&at.waiting)?;
                self.bytes += at.waiting.len() as u64;
                let height = u8::try_from(level + 1)
                    .map_err(|_| Error::Internal("the index is too high"))?;
                let index = Index {
                    root,
                    height,
                    entries,
                };
                return Ok((Some(index), self.bytes));
            }
            self.write_pages(level)?;
            level += 1;
        }
        Ok((None, 0))
    }
}

impl OpenPage {
    fn push(&mut self, entry: IndexEntry) -> Result<()> {
        self.keys.extend_from_slice(&entry.separator);
        let end = u32::try_from(self.keys.len())
            .map_err(|_| Error::Internal("the keys of an index page are too long"))?;
        let cut = if entry.is_cut { INDEX_KEY_CUT } else { 0 };
        self.records
            .extend_from_slice(&entry.child.first.to_le_bytes());
        self.records.extend_from_slice(&entry.child.part.encode());
        self.records.extend_from_slice(&(end | cut).to_le_bytes());
        self.count = self
            .count
            .checked_add(1)
            .ok_or(Error::Internal("an index page has too many records"))?;
        if self.head.is_none() {
            self.head = Some(entry);
        }
        Ok(())
    }
}

impl Level {
    /// Moves the open page, if it has records, to those that wait.
    fn close(&mut self, level: usize) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        let Some(head) = open.head else {
            return Ok(());
        };
        let level = u8::try_from(level)
            .ok()
            .filter(|level| *level < HEIGHT_MAX)
            .ok_or(Error::Internal("the index is too high"))?;
        let key_bytes = u32::try_from(open.keys.len())
            .map_err(|_| Error::Internal("the keys of an index page are too long"))?;
        let before = self.waiting.len();
        self.waiting.extend_from_slice(&[level, 0]);
        self.waiting.extend_from_slice(&open.count.to_le_bytes());
        self.waiting.extend_from_slice(&key_bytes.to_le_bytes());
        self.waiting.extend_from_slice(&open.records);
        self.waiting.extend_from_slice(&open.keys);
        self.pages.push((head, self.waiting.len() - before));
        Ok(())
    }
}
