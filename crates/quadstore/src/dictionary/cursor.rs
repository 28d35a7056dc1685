//! Goes through all keys of a kind in order.
//!
//! Blocks are read ahead, thirty-two at a time, and do not enter the cache of decoded blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use stoa_terms::TermId;

use super::block::Block;
use super::index::{Child, Index, Page};
use super::partition::{PartitionReader, Source, Wanted, read_blocks_keeping};
use crate::error::{Error, Result};

/// Ids that are asked for together.
const IDS_AHEAD: u64 = 4096;
/// Blocks that are read by one call.
const READ_AHEAD: usize = 32;

/// The blocks of an index, in order.
struct BlockStream {
    partition: Arc<PartitionReader>,
    index: Index,
    page: Option<(Page, usize)>,
    ready: VecDeque<(Child, Arc<Block>)>,
    /// The number that the next block must begin with.
    next: u64,
}

impl BlockStream {
    fn new(partition: &Arc<PartitionReader>, index: Index) -> Self {
        Self {
            partition: Arc::clone(partition),
            index,
            page: None,
            ready: VecDeque::new(),
            next: 0,
        }
    }

    /// The next block, `None` at the end.
    fn next(&mut self, source: &Source) -> Result<Option<(Child, Arc<Block>)>> {
        if self.ready.is_empty() && self.next < self.index.entries {
            self.fill(source)?;
        }
        let Some((child, block)) = self.ready.pop_front() else {
            return Ok(None);
        };
        if child.first != self.next {
            return Err(Error::corrupt(
                child.part,
                format!("a block from entry {}", self.next),
                format!("one from entry {}", child.first),
            ));
        }
        self.next += block.entries.len() as u64;
        if self.next > self.index.entries {
            return Err(Error::corrupt(
                child.part,
                format!("{} entries in all", self.index.entries),
                format!("{} or more", self.next),
            ));
        }
        Ok(Some((child, block)))
    }

    fn fill(&mut self, source: &Source) -> Result<()> {
        let (page, mut at) = match self.page.take() {
            Some((page, at)) if at < page.len() => (page, at),
            _ => {
                let page = self.index.leaf(&source.store, self.next)?;
                page.verify()?;
                (page, 0)
            }
        };
        let end = (at + READ_AHEAD).min(page.len());
        let mut children = Vec::with_capacity(end - at);
        while at < end {
            children.push(page.child(at)?);
            at += 1;
        }
        let whole = |child| Wanted::whole(&self.partition, child);
        let wanted: Vec<_> = children.iter().map(whole).collect();
        let blocks = read_blocks_keeping(source, &wanted, false)?;
        self.ready.extend(children.into_iter().zip(blocks));
        self.page = Some((page, at));
        Ok(())
    }
}

/// The keys of one partition.
struct PartitionCursor {
    partition: Arc<PartitionReader>,
    blocks: BlockStream,
    texts: Option<BlockStream>,
    current: Option<(Child, Arc<Block>)>,
    /// The entry of the current block that `key` is of.
    entry: usize,
    text: Option<(Child, Arc<Block>)>,
    next_text: u64,
    visible: Vec<u8>,
    key: Vec<u8>,
    id: TermId,
    /// Ids of this entry and those that follow, the next one last.
    ids: Vec<TermId>,
}

impl PartitionCursor {
    fn new(partition: &Arc<PartitionReader>) -> Self {
        let descriptor = &partition.descriptor;
        Self {
            partition: Arc::clone(partition),
            blocks: BlockStream::new(partition, descriptor.index),
            texts: descriptor
                .texts
                .map(|texts| BlockStream::new(partition, texts)),
            current: None,
            entry: 0,
            text: None,
            next_text: 0,
            visible: Vec::new(),
            key: Vec::new(),
            id: TermId::UNBOUND,
            ids: Vec::new(),
        }
    }

    /// Goes to the next key; `false` at the end.
    fn advance(&mut self, source: &Source) -> Result<bool> {
        let more = self
            .current
            .as_ref()
            .is_some_and(|(_, block)| self.entry + 1 < block.entries.len());
        if more {
            self.entry += 1;
        } else {
            self.current = self.blocks.next(source)?;
            self.entry = 0;
            self.visible.clear();
        }
        let Some((child, block)) = &self.current else {
            return Ok(false);
        };
        block.entries.advance(self.entry, &mut self.visible);
        self.key.clear();
        self.key.extend_from_slice(&self.visible);
        if self.ids.is_empty() {
            // Cursors go through all entries, so the next ones are those that are wanted.
            let ordinal = child.first + self.entry as u64;
            let end = self.partition.descriptor.count.min(ordinal + IDS_AHEAD);
            let ordinals: Vec<u64> = (ordinal..end).collect();
            self.ids = self.partition.ids(source, &ordinals)?;
            self.ids.reverse();
        }
        self.id = self.ids.pop().unwrap_or_default();
        if let Some((place, _)) = block.entries.long(self.entry) {
            let text = block.first_text.saturating_add(place as u64);
            if text != self.next_text {
                return Err(Error::corrupt(
                    child.part,
                    format!("text {}", self.next_text),
                    format!("text {text}"),
                ));
            }
            self.append_text(source)?;
        }
        Ok(true)
    }

    /// Appends the next text to the key.
    fn append_text(&mut self, source: &Source) -> Result<()> {
        let is_done = self.text.as_ref().is_none_or(|(child, block)| {
            child.first + block.entries.len() as u64 <= self.next_text
        });
        if is_done {
            self.text = match &mut self.texts {
                Some(texts) => texts.next(source)?,
                None => None,
            };
        }
        let Some((child, block)) = &self.text else {
            let root = self.partition.descriptor.index.root;
            return Err(Error::corrupt(
                root,
                "a text for each long key",
                "too few texts",
            ));
        };
        let index = super::partition::entry_index(child, block, self.next_text)?;
        block.entries.visible_into(index, &mut self.key);
        self.next_text += 1;
        Ok(())
    }
}

/// All keys of a kind, ascending, over all partitions.
pub(crate) struct KeyCursor {
    source: Source,
    cursors: Vec<PartitionCursor>,
    /// The cursor whose key was given last.
    last: Option<usize>,
    started: bool,
}

impl KeyCursor {
    pub(super) fn new(source: &Source, partitions: &[Arc<PartitionReader>]) -> Self {
        Self {
            source: source.clone(),
            cursors: partitions.iter().map(PartitionCursor::new).collect(),
            last: None,
            started: false,
        }
    }

    /// The next key and its id.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], TermId)>> {
        if !self.started {
            self.started = true;
            let mut at = 0;
            while let Some(cursor) = self.cursors.get_mut(at) {
                if cursor.advance(&self.source)? {
                    at += 1;
                } else {
                    self.cursors.swap_remove(at);
                }
            }
        } else if let Some(last) = self.last
            && let Some(cursor) = self.cursors.get_mut(last)
            && !cursor.advance(&self.source)?
        {
            self.cursors.swap_remove(last);
        }
        let least = self
            .cursors
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.key.cmp(&b.1.key));
        self.last = least.map(|(index, _)| index);
        Ok(least.map(|(_, cursor)| (cursor.key.as_slice(), cursor.id)))
    }
}
