//! The table of computed terms: records, the index that finds them, and what both take.
//!
//! # Limits
//! Makes room by putting records on disk, and the table of the index if it is as large as these. Where there are hardly
//! any records, the table goes alone.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use rapidhash::v3::rapidhash_v3;
use stoa_terms::{Kind, TermId};

use super::GROUP_BYTES;
use super::index::Index;
use super::records::{Found, Records, kind_of, record_bytes};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// How much is written at once: others wait meanwhile.
const SPILLED_BYTES: usize = 16 << 20;

/// A table of the index of so many bytes goes to disk with whatever records do: others wait while it is sorted.
const TABLE_BYTES_MAX: usize = 32 << 20;

/// What a blank node with a label costs beside the label.
const LABEL_BYTES: usize = size_of::<(TermId, Box<str>, TermId)>() + 1;

/// See the module header.
pub(super) struct Table {
    pub(super) records: Records,
    pub(super) index: Index,
    /// Another one whenever something went to disk.
    pub(super) version: u64,
    /// Blank nodes by the solution and the string that BNODE gave them for.
    labelled: HashMap<(TermId, Box<str>), TermId, RandomState>,
    labels_bytes: usize,
    /// For what can go to disk.
    memory: Memory,
    /// For what stays: labels, and what is needed to find what is on disk.
    kept: Memory,
}

/// A term that is looked for.
pub(super) struct Wanted {
    /// Which result it belongs to.
    pub(super) row: usize,
    pub(super) kind: Kind,
    pub(super) hash: u64,
    /// Where its key stands.
    place: Range<usize>,
    pub(super) found: Option<TermId>,
}

impl Wanted {
    /// One whose key stands at `place` of `keys`.
    pub(super) fn new(row: usize, kind: Kind, keys: &[u8], place: Range<usize>) -> Self {
        let bytes = keys.get(place.clone()).unwrap_or_default();
        // Literals of different kinds never have one key, but an IRI may be spelt like a literal.
        let hash = rapidhash_v3(bytes) ^ u64::from(kind == Kind::Iri);
        Self {
            row,
            kind,
            hash,
            place,
            found: None,
        }
    }

    pub(super) fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        keys.get(self.place.clone()).unwrap_or_default()
    }

    /// What its record takes.
    pub(super) const fn bytes(&self) -> usize {
        record_bytes(self.place.end - self.place.start)
    }
}

impl Table {
    /// `memory` is for what can go to disk, `kept` for what cannot.
    pub(super) fn new(memory: Memory, kept: Memory) -> Self {
        Self {
            records: Records::default(),
            index: Index::default(),
            version: 0,
            labelled: HashMap::default(),
            labels_bytes: 0,
            memory,
            kept,
        }
    }

    /// The blank node that BNODE gave for a string in a solution, or this one.
    pub(super) fn labelled(
        &mut self,
        solution: TermId,
        label: &str,
        new: impl FnOnce() -> TermId,
    ) -> Result<TermId> {
        self.labels_bytes += label.len();
        self.keep()?;
        let node = self.labelled.entry((solution, label.into()));
        Ok(*node.or_insert_with(new))
    }

    /// The id of a term if its record is in memory; visits those that may be its id and have their records on disk.
    pub(super) fn search(
        &self,
        wanted: &Wanted,
        keys: &[u8],
        mut on_disk: impl FnMut(TermId),
    ) -> Option<TermId> {
        let mut ids = self.index.in_table(wanted.hash);
        ids.find(|id| {
            if kind_of(*id) != Some(wanted.kind) {
                return false;
            }
            match self.records.get(*id) {
                Found::Held(key) => key == wanted.key(keys),
                Found::OnDisk(_) => {
                    on_disk(*id);
                    false
                }
                Found::Nowhere => false,
            }
        })
    }

    /// The id of a term that has no record on disk, and for which there is room.
    pub(super) fn insert(&mut self, wanted: &Wanted, keys: &[u8]) -> Result<TermId> {
        if let Some(id) = self.search(wanted, keys, |_| ()) {
            return Ok(id);
        }
        let id = self.records.push(wanted.kind, wanted.key(keys))?;
        self.index.insert(wanted.hash, id);
        Ok(id)
    }

    /// Makes room for some terms; false if something went to disk for that, so that they have to be looked for again.
    pub(super) fn make_room(
        &mut self,
        context: &QueryContext,
        counters: &Arc<Counters>,
        terms: &[Wanted],
    ) -> Result<bool> {
        self.keep()?;
        let bytes = terms.iter().map(Wanted::bytes).sum();
        let needed = self.bytes_with(bytes, terms.len());
        let spill = context.settings().spill.as_ref();
        let rows_min = spill.map_or(usize::MAX, |spill| spill.rows_min);
        let (records, used) = self.records.unwritten();
        if spill.is_none() || records < rows_min && used < GROUP_BYTES {
            if spill.is_none() || self.index.is_table_empty() || self.memory.take(needed) {
                return self.memory.require(needed).map(|()| true);
            }
            // Most records went to disk a moment ago, and the table that finds them has to grow.
            self.flush_index(context, counters)?;
            return Ok(false);
        }
        // As for an operator that holds rows enough.
        if context.may_hold(&mut self.memory, needed, usize::MAX)? {
            return Ok(true);
        }
        self.version += 1;
        let is_greater = self.index.table_bytes() >= used.min(TABLE_BYTES_MAX);
        self.records.spill(SPILLED_BYTES, context, counters)?;
        if is_greater {
            self.flush_index(context, counters)?;
        }
        let left = self.bytes_with(0, 0);
        self.memory.shrink_to(left);
        Ok(false)
    }

    /// Puts the table of the index on disk. What stays of it in memory is paid for out of what it took, so that nobody
    /// comes between.
    fn flush_index(&mut self, context: &QueryContext, counters: &Arc<Counters>) -> Result<()> {
        self.version += 1;
        self.index.flush(context, counters)?;
        let freed = self.memory.split_off(self.bytes_with(0, 0));
        self.kept.join(freed);
        self.keep()?;
        self.kept.shrink_to(self.kept_bytes());
        Ok(())
    }

    /// What records in memory and the table of the index take with so many more records.
    fn bytes_with(&self, bytes: usize, records: usize) -> u64 {
        let held = self.records.held_bytes() + self.records.more_for(bytes, records);
        (held + self.index.table_bytes_with(records)) as u64
    }

    /// Reserves what stays in memory whatever goes to disk.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.kept.require(self.kept_bytes())
    }

    fn kept_bytes(&self) -> u64 {
        let labels = (self.labelled.len() + 1) * LABEL_BYTES + self.labels_bytes;
        // Tables double, so up to twice the bytes are taken.
        (2 * labels + self.records.places_bytes() + self.index.runs_bytes()) as u64
    }
}

/// Takes out the terms that were found.
pub(super) fn give_found(terms: &mut Vec<Wanted>, ids: &mut [TermId]) {
    terms.retain(|one| {
        if let (Some(found), Some(id)) = (one.found, ids.get_mut(one.row)) {
            *id = found;
        }
        one.found.is_none()
    });
}
