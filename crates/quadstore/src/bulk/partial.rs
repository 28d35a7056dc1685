//! A writer's vocabulary of one epoch, sealed: its terms sorted by kind and key, in memory or in the
//! temporary file, and its quads.
//!
//! Terms with keys are one sorted list a kind: in a file a term is the length that its key shares
//! with the one before, the length of the rest, its local number (four bytes) and the rest. Triple
//! terms are one unsorted list a nesting depth: local number and the three local terms.
#![expect(
    clippy::indexing_slicing,
    reason = "lists have one entry a kind; positions come from the vocabulary itself"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use stoa_terms::{Kind, TermId};

use super::key_sort::sort_by_key;
use super::quad_buffer::LocalTerm;
use super::spill::{BlockRef, SpillFile, Stream, StreamReader, StreamWriter, push_varint};
use super::vocabulary::{RecordPosition, TermTable};
use crate::{Error, Result};

/// The kinds whose terms are merged by their keys.
pub(super) const KEYED_KINDS: [Kind; 5] = [
    Kind::Literal,
    Kind::Iri,
    Kind::NumericLiteral,
    Kind::TemporalLiteral,
    Kind::BlankNode,
];

/// See the module header.
pub(super) struct Partial {
    /// Number of terms; local numbers are below.
    pub(super) terms: u32,
    /// By position in [`KEYED_KINDS`].
    keys: Vec<SortedKeys>,
    /// Triple terms by nesting depth, from 1 on.
    pub(super) triples: BTreeMap<u64, Stream>,
    pub(super) quads: Vec<BlockRef>,
    /// Local terms that occur as predicates, and as graphs.
    pub(super) predicates: Vec<LocalTerm>,
    pub(super) graphs: Vec<LocalTerm>,
    /// Graphs that are to exist even if they hold no quads.
    pub(super) created: Vec<LocalTerm>,
    /// Streams of (local number, id), filled by the merge.
    pub(super) ids: Vec<Stream>,
    /// Bytes of memory that the sorted keys hold.
    pub(super) memory_bytes: usize,
}

enum SortedKeys {
    Memory(Arc<TermTable>, Vec<RecordPosition>),
    File(Stream),
}

/// What a writer hands over with its vocabulary.
pub(super) struct Contents {
    pub(super) quads: Vec<BlockRef>,
    pub(super) predicates: Vec<LocalTerm>,
    pub(super) graphs: Vec<LocalTerm>,
    pub(super) created: Vec<LocalTerm>,
}

impl Partial {
    /// Sorts the terms, and writes them to `file` if they are not to stay in memory.
    pub(super) fn seal(
        mut vocabulary: TermTable,
        contents: Contents,
        keep_in_memory: bool,
        file: &Arc<SpillFile>,
    ) -> Result<Self> {
        vocabulary.drop_table();
        let terms = vocabulary.len();
        let mut positions: [Vec<RecordPosition>; 5] = Default::default();
        let mut triples = BTreeMap::new();
        let mut outcome = Ok(());
        vocabulary.for_each(|position, record| {
            match KEYED_KINDS.iter().position(|&kind| kind == record.kind) {
                Some(list) => positions[list].push(position),
                None if outcome.is_ok() => {
                    outcome = push_triple(&mut triples, record.local, record.key, file);
                }
                None => {}
            }
        });
        outcome?;
        for list in &mut positions {
            sort_by_key(list, &vocabulary);
        }
        let triples = triples
            .into_iter()
            .map(|(depth, writer): (u64, StreamWriter)| Ok((depth, writer.finish()?)))
            .collect::<Result<_>>()?;
        let mut memory_bytes = 0;
        let keys = if keep_in_memory {
            memory_bytes = vocabulary.memory_bytes();
            let vocabulary = Arc::new(vocabulary);
            positions
                .into_iter()
                .map(|list| SortedKeys::Memory(Arc::clone(&vocabulary), list))
                .collect()
        } else {
            positions
                .iter()
                .map(|list| Ok(SortedKeys::File(write_keys(list, &vocabulary, file)?)))
                .collect::<Result<_>>()?
        };
        Ok(Self {
            terms,
            keys,
            triples,
            quads: contents.quads,
            predicates: contents.predicates,
            graphs: contents.graphs,
            created: contents.created,
            ids: Vec::new(),
            memory_bytes,
        })
    }

    /// A cursor at the first key of `KEYED_KINDS[list]`. The list is given up: it is read once.
    pub(super) fn take_cursor(&mut self, list: usize) -> Result<KeyCursor> {
        let empty = SortedKeys::Memory(Arc::new(TermTable::new(0)), Vec::new());
        let keys = self.keys.get_mut(list).map_or(empty, |keys| {
            std::mem::replace(
                keys,
                SortedKeys::Memory(Arc::new(TermTable::new(0)), Vec::new()),
            )
        });
        let mut cursor = KeyCursor {
            source: match keys {
                SortedKeys::Memory(vocabulary, positions) => Source::Memory {
                    vocabulary,
                    positions: positions.into_iter(),
                    current: 0,
                },
                SortedKeys::File(stream) => Source::File {
                    reader: stream.reader(),
                    key: Vec::new(),
                },
            },
            local: 0,
            at_end: false,
        };
        cursor.advance()?;
        Ok(cursor)
    }

    /// The id of each local number, as far as the merge has written them.
    pub(super) fn read_ids(&self) -> Result<Vec<TermId>> {
        let mut ids = vec![TermId::UNBOUND; self.terms as usize];
        for stream in &self.ids {
            let mut reader = stream.reader();
            while reader.has_more()? {
                let local = u32::from_le_bytes(reader.read_array()?);
                let id = u64::from_le_bytes(reader.read_array()?);
                let slot = ids.get_mut(local as usize).ok_or(UNKNOWN)?;
                *slot = TermId::from_bits(id);
            }
        }
        Ok(ids)
    }
}

pub(super) const UNKNOWN: Error = Error::Internal("a local term is not in its vocabulary");

/// The id of a local term, given those of its epoch's vocabulary.
pub(super) fn resolve(term: LocalTerm, ids: &[TermId]) -> Result<TermId> {
    match term.split() {
        Err(id) => Ok(id),
        Ok(number) => match ids.get(number as usize) {
            Some(&id) if !id.is_unbound() => Ok(id),
            _ => Err(UNKNOWN),
        },
    }
}

/// Appends a pair to a stream of ids.
pub(super) fn write_id(writer: &mut StreamWriter, local: u32, id: TermId) -> Result<()> {
    let mut record = [0; 12];
    record[..4].copy_from_slice(&local.to_le_bytes());
    record[4..].copy_from_slice(&id.to_bits().to_le_bytes());
    writer.write(&record)
}

fn push_triple(
    triples: &mut BTreeMap<u64, StreamWriter>,
    local: u32,
    key: &[u8],
    file: &Arc<SpillFile>,
) -> Result<()> {
    let (parts, _) = key.as_chunks::<8>();
    let depth = parts
        .iter()
        .map(|&part| LocalTerm::from_bits(u64::from_le_bytes(part)).depth() + 1)
        .max()
        .unwrap_or(1);
    let writer = triples
        .entry(depth)
        .or_insert_with(|| StreamWriter::new(file, false));
    writer.write(&local.to_le_bytes())?;
    writer.write(key)
}

/// The next triple term of a stream: its local number and its parts.
pub(super) fn read_triple(reader: &mut StreamReader) -> Result<Option<(u32, [LocalTerm; 3])>> {
    if !reader.has_more()? {
        return Ok(None);
    }
    let local = u32::from_le_bytes(reader.read_array()?);
    let mut parts = [LocalTerm::from_bits(0); 3];
    for part in &mut parts {
        *part = LocalTerm::from_bits(u64::from_le_bytes(reader.read_array()?));
    }
    Ok(Some((local, parts)))
}

fn write_keys(
    positions: &[RecordPosition],
    vocabulary: &TermTable,
    file: &Arc<SpillFile>,
) -> Result<Stream> {
    let mut writer = StreamWriter::new(file, true);
    let mut head = Vec::new();
    let mut previous: &[u8] = &[];
    for &position in positions {
        let record = vocabulary.record(position);
        let shared = record
            .key
            .iter()
            .zip(previous)
            .take_while(|(a, b)| a == b)
            .count();
        let rest = &record.key[shared..];
        head.clear();
        push_varint(&mut head, shared as u64);
        push_varint(&mut head, rest.len() as u64);
        head.extend_from_slice(&record.local.to_le_bytes());
        writer.write(&head)?;
        writer.write(rest)?;
        previous = record.key;
    }
    writer.finish()
}

/// Reads the keys of one kind in ascending order.
pub(super) struct KeyCursor {
    source: Source,
    local: u32,
    at_end: bool,
}

enum Source {
    Memory {
        vocabulary: Arc<TermTable>,
        positions: std::vec::IntoIter<RecordPosition>,
        current: RecordPosition,
    },
    File {
        reader: StreamReader,
        key: Vec<u8>,
    },
}

impl KeyCursor {
    /// The current key; `None` behind the last.
    pub(super) fn key(&self) -> Option<&[u8]> {
        if self.at_end {
            return None;
        }
        Some(match &self.source {
            Source::Memory {
                vocabulary,
                current,
                ..
            } => vocabulary.key(*current),
            Source::File { key, .. } => key,
        })
    }

    /// The local number of the current key.
    pub(super) fn local(&self) -> u32 {
        self.local
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memory {
                vocabulary,
                positions,
                current,
            } => match positions.next() {
                Some(position) => {
                    *current = position;
                    self.local = vocabulary.record(position).local;
                }
                None => self.at_end = true,
            },
            Source::File { reader, key } => {
                if !reader.has_more()? {
                    self.at_end = true;
                    return Ok(());
                }
                let too_long = |_| Error::Internal("a key in a temporary file is too long");
                let shared = usize::try_from(reader.read_varint()?).map_err(too_long)?;
                let rest = usize::try_from(reader.read_varint()?).map_err(too_long)?;
                self.local = u32::from_le_bytes(reader.read_array()?);
                key.truncate(shared);
                reader.read_onto(rest, key)?;
            }
        }
        Ok(())
    }
}
