//! Terms that a query computed and that no dictionary holds, under ids local to the query.
//!
//! A local id's payload is the number of an entry, or, with its highest bit set, the number of a
//! blank node, of which nothing is kept. Within a query equal terms have equal ids: a term is first
//! searched among the local ones, then in the dictionary, and only then becomes local. As the
//! snapshot does not change, a term that is local once is in no dictionary later.
//!
//! # Concurrency
//! One lock around the table; the dictionary is read without it. Two workers that miss the same
//! term both come back to insert it, and the second one finds the entry of the first.
//!
//! # Limits
//! Entries count against the memory budget; the error names the operator that computed the term.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLockReadGuard};

use hashbrown::{HashMap, HashTable};
use oxrdf::{BlankNode, NamedNode, NamedOrBlankNode, Term, Triple};
use rapidhash::fast::RandomState;
use rapidhash::v3::rapidhash_v3;
use stoa_quadstore::{Snapshot, TermTexts};
use stoa_storage::sync::RwLock;
use stoa_terms::{Kind, TermId, inline, key};

use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::memory::{Memory, UNNAMED};

/// Set in the payload of a blank node.
const BLANK_NODE_BIT: u64 = 1 << (TermId::PAYLOAD_BITS - 1);

/// Prefix of the labels of new blank nodes; those of stored ones begin with `b`.
const BLANK_NODE_LABEL: char = 'q';

/// What one entry costs beside its bytes: the entry and its slot in the table.
const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<u32>();

/// What a blank node with a label costs beside the label.
const LABEL_BYTES: usize = size_of::<(TermId, Box<str>, TermId)>() + 1;

pub(crate) struct LocalTerms {
    table: RwLock<Table>,
    blank_nodes: AtomicU64,
}

#[derive(Clone)]
enum Entry {
    /// A term by its dictionary key, in [`Table::keys`].
    Keyed(Kind, KeyPlace),
    Triple([TermId; 3]),
}

/// Where a key stands: its chunk, and its bytes in there.
#[derive(Clone, Copy)]
struct KeyPlace {
    chunk: u32,
    start: u32,
    length: u32,
}

/// Keys one behind the other in chunks, so that none is moved when more come.
#[derive(Default)]
struct KeyChunks {
    chunks: Vec<Vec<u8>>,
    /// The capacity of all chunks.
    bytes: usize,
}

/// A chunk is a quarter of what is there, within these bounds, or as large as one key.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// So many bytes of keys are taken before they are reserved.
const FREE_BYTES: usize = 256 << 10;

struct Table {
    entries: Vec<Entry>,
    keys: KeyChunks,
    /// Numbers of entries by the hash of kind and key, or of the triple.
    index: HashTable<u32>,
    /// Blank nodes by the solution and the string that BNODE gave them for.
    labelled: HashMap<(TermId, Box<str>), TermId, RandomState>,
    labels_bytes: usize,
    memory: Memory,
}

/// Terms that were not found among the local ones.
#[derive(Default)]
struct Missing {
    /// Which result each belongs to, and its kind and key.
    places: Vec<(usize, Kind, Range<usize>)>,
    keys: Vec<u8>,
}

/// The computed terms while they are read.
pub(crate) struct LocalKeys<'a>(RwLockReadGuard<'a, Table>);

impl LocalKeys<'_> {
    /// The key of a computed term, empty for blank nodes and triple terms.
    pub(crate) fn get(&self, id: TermId) -> &[u8] {
        self.0.key(id)
    }
}

impl KeyChunks {
    fn get(&self, place: KeyPlace) -> &[u8] {
        let start = place.start as usize;
        self.chunks
            .get(place.chunk as usize)
            .and_then(|chunk| chunk.get(start..start + place.length as usize))
            .unwrap_or_default()
    }

    /// The capacity of the chunk that a key of `length` bytes needs, 0 if it fits into the last one.
    fn more_for(&self, length: usize) -> usize {
        let spare = self
            .chunks
            .last()
            .map_or(0, |last| last.capacity() - last.len());
        match length <= spare {
            true => 0,
            false => (self.bytes / 4)
                .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
                .max(length),
        }
    }

    fn push(&mut self, key: &[u8]) -> Option<KeyPlace> {
        let more = self.more_for(key.len());
        if more > 0 || self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(more));
            self.bytes += more;
        }
        let chunk = u32::try_from(self.chunks.len() - 1).ok()?;
        let last = self.chunks.last_mut()?;
        let place = KeyPlace {
            chunk,
            start: u32::try_from(last.len()).ok()?,
            length: u32::try_from(key.len()).ok()?,
        };
        last.extend_from_slice(key);
        Some(place)
    }
}

impl LocalTerms {
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            table: RwLock::new(Table {
                entries: Vec::new(),
                keys: KeyChunks::default(),
                index: HashTable::new(),
                labelled: HashMap::default(),
                labels_bytes: 0,
                memory,
            }),
            blank_nodes: AtomicU64::new(0),
        }
    }

    pub(crate) fn new_blank_node(&self) -> TermId {
        let number = self.blank_nodes.fetch_add(1, Ordering::Relaxed);
        TermId::new(
            Kind::Local,
            (number & (BLANK_NODE_BIT - 1)) | BLANK_NODE_BIT,
        )
    }

    /// [`QueryContext::labelled_blank_node`]
    pub(crate) fn labelled_blank_node(&self, solution: TermId, label: &str) -> Result<TermId> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.labels_bytes += label.len();
        table.reserve(0)?;
        let key = (solution, label.into());
        let node = table.labelled.entry(key);
        Ok(*node.or_insert_with(|| self.new_blank_node()))
    }

    /// The kind of the term behind a local id.
    pub(crate) fn kind(&self, id: TermId) -> Kind {
        if is_blank_node(id) {
            return Kind::BlankNode;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        match table.entry(id) {
            Some(Entry::Keyed(kind, _)) => *kind,
            Some(Entry::Triple(_)) => Kind::Triple,
            None => Kind::Local,
        }
    }

    /// The parts of a local triple term, `None` for any other id.
    pub(crate) fn triple(&self, id: TermId) -> Option<[TermId; 3]> {
        if id.kind() != Kind::Local {
            return None;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        match table.entry(id) {
            Some(Entry::Triple(parts)) => Some(*parts),
            _ => None,
        }
    }

    /// [`QueryContext::texts`] for those of the ids that are local; the text of the first one of
    /// `ids` stands at `first`.
    pub(crate) fn texts(
        &self,
        ids: &[TermId],
        first: usize,
        out: &mut TermTexts,
        meter: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut metered = out.memory_bytes();
        for (row, id) in ids.iter().enumerate() {
            if id.kind() != Kind::Local {
                continue;
            }
            out.set(first + row, table.key(*id));
            if out.memory_bytes() > metered {
                metered = out.memory_bytes();
                meter(metered)?;
            }
        }
        Ok(())
    }

    pub(crate) fn keys(&self) -> LocalKeys<'_> {
        LocalKeys(self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// [`QueryContext::term`]
    pub(crate) fn term(&self, context: &QueryContext, id: TermId) -> Result<Option<Term>> {
        if id == TermId::UNBOUND || id == TermId::DEFAULT_GRAPH {
            return Ok(None);
        }
        if is_blank_node(id) {
            let number = id.payload() & (BLANK_NODE_BIT - 1);
            let label = format!("{BLANK_NODE_LABEL}{number}");
            return Ok(Some(BlankNode::new_unchecked(label).into()));
        }
        if id.kind() == Kind::Local {
            let entry = {
                let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
                match table.entry(id) {
                    Some(Entry::Keyed(kind, _)) => {
                        let term = key::decode_term(*kind, table.key(id));
                        return term
                            .map(Some)
                            .map_err(|_| Error::Internal("a computed term has a broken key"));
                    }
                    Some(entry) => Some(entry.clone()),
                    None => None,
                }
            };
            return match entry {
                Some(Entry::Triple(parts)) => triple_term(context, parts).map(Some),
                _ => Err(Error::Internal("an id of another query")),
            };
        }
        if id.kind() == Kind::Triple {
            // Not left to the snapshot, so that depth is bounded by one function.
            return triple_term(context, context.snapshot().triple(id)?).map(Some);
        }
        Ok(Some(context.snapshot().term(id)?))
    }

    /// [`QueryContext::resolve`]
    pub(crate) fn resolve(
        &self,
        context: &QueryContext,
        computed: Vec<Computed>,
    ) -> Result<Vec<TermId>> {
        let mut ids = vec![TermId::UNBOUND; computed.len()];
        let mut missing = Missing::default();
        let mut memory = context.memory(UNNAMED);
        for (row, (computed, id)) in computed.into_iter().zip(&mut ids).enumerate() {
            match computed {
                Computed::Unbound => (),
                Computed::Id(known) => *id = known,
                Computed::Triple(parts) => *id = self.resolve_triple(context.snapshot(), parts)?,
                Computed::Term(Term::Triple(triple)) => {
                    *id = self.resolve_triple_term(context, *triple)?;
                }
                Computed::Term(term) => {
                    *id = self.search(row, &term, &mut missing)?;
                    if missing.keys.capacity() > FREE_BYTES {
                        memory.require(missing.keys.capacity() as u64)?;
                    }
                }
            }
        }
        if !missing.places.is_empty() {
            self.resolve_missing(context.snapshot(), &missing, &mut ids)?;
        }
        Ok(ids)
    }

    /// The id of an IRI or a literal if no dictionary is needed for it, else it is noted as missing.
    fn search(&self, row: usize, term: &Term, missing: &mut Missing) -> Result<TermId> {
        let start = missing.keys.len();
        let kind = match term {
            Term::NamedNode(iri) => {
                missing.keys.extend_from_slice(iri.as_str().as_bytes());
                Kind::Iri
            }
            Term::Literal(literal) => {
                if let Some(id) = inline::encode_literal(literal.as_ref()) {
                    return Ok(id);
                }
                key::literal_key(literal.as_ref(), &mut missing.keys)
            }
            Term::BlankNode(_) | Term::Triple(_) => {
                return Err(Error::Internal("a blank node was computed by its label"));
            }
        };
        let bytes = missing.keys.get(start..).unwrap_or_default();
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = table.find_keyed(kind, bytes) {
            missing.keys.truncate(start);
            return Ok(id);
        }
        missing.places.push((row, kind, start..missing.keys.len()));
        Ok(TermId::UNBOUND)
    }

    fn resolve_missing(
        &self,
        snapshot: &Snapshot,
        missing: &Missing,
        ids: &mut [TermId],
    ) -> Result<()> {
        let key = |range: &Range<usize>| missing.keys.get(range.clone()).unwrap_or_default();
        let keys: Vec<_> = missing
            .places
            .iter()
            .map(|(_, kind, range)| (*kind, key(range)))
            .collect();
        let found = snapshot.key_ids(&keys)?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for ((row, kind, range), found) in missing.places.iter().zip(found) {
            let bytes = key(range);
            let id = match found {
                Some(id) => id,
                None => table.insert_keyed(*kind, bytes)?,
            };
            if let Some(place) = ids.get_mut(*row) {
                *place = id;
            }
        }
        Ok(())
    }

    fn resolve_triple(&self, snapshot: &Snapshot, parts: [TermId; 3]) -> Result<TermId> {
        // What is local is in no dictionary, so neither is a triple term with it.
        if parts.iter().all(|part| part.kind() != Kind::Local)
            && let Some(id) = snapshot.triple_id(parts)?
        {
            return Ok(id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert_triple(parts)
    }

    fn resolve_triple_term(&self, context: &QueryContext, triple: Triple) -> Result<TermId> {
        let parts = vec![
            Computed::Term(triple.subject.into()),
            Computed::Term(triple.predicate.into()),
            Computed::Term(triple.object),
        ];
        let ids = self.resolve(context, parts)?;
        match ids.as_slice() {
            &[subject, predicate, object] => {
                self.resolve_triple(context.snapshot(), [subject, predicate, object])
            }
            _ => Err(Error::Internal("three parts gave another number of ids")),
        }
    }
}

impl Table {
    fn entry(&self, id: TermId) -> Option<&Entry> {
        self.entries.get(usize::try_from(id.payload()).ok()?)
    }

    fn key(&self, id: TermId) -> &[u8] {
        match self.entry(id) {
            Some(Entry::Keyed(_, place)) => self.keys.get(*place),
            _ => &[],
        }
    }

    fn find_keyed(&self, kind: Kind, key: &[u8]) -> Option<TermId> {
        let number = self.index.find(hash_keyed(kind, key), |number| {
            self.entry_is(*number, kind, key)
        })?;
        Some(TermId::new(Kind::Local, u64::from(*number)))
    }

    fn entry_is(&self, number: u32, kind: Kind, key: &[u8]) -> bool {
        match self.entries.get(number as usize) {
            Some(Entry::Keyed(other, place)) => *other == kind && self.keys.get(*place) == key,
            _ => false,
        }
    }

    fn insert_keyed(&mut self, kind: Kind, key: &[u8]) -> Result<TermId> {
        if let Some(id) = self.find_keyed(kind, key) {
            return Ok(id);
        }
        self.reserve(self.keys.more_for(key.len()))?;
        let place = self
            .keys
            .push(key)
            .ok_or(Error::LimitExceeded("a computed term is longer than 4 GB"))?;
        self.insert(hash_keyed(kind, key), Entry::Keyed(kind, place))
    }

    fn insert_triple(&mut self, parts: [TermId; 3]) -> Result<TermId> {
        let hash = hash_triple(parts);
        let found = self.index.find(hash, |number| {
            matches!(self.entries.get(*number as usize), Some(Entry::Triple(other)) if *other == parts)
        });
        if let Some(number) = found {
            return Ok(TermId::new(Kind::Local, u64::from(*number)));
        }
        self.reserve(0)?;
        self.insert(hash, Entry::Triple(parts))
    }

    fn reserve(&mut self, key_bytes: usize) -> Result<()> {
        let entries = (self.entries.len() + 1) * ENTRY_BYTES;
        let labels = (self.labelled.len() + 1) * LABEL_BYTES + self.labels_bytes;
        // Vectors double, so up to twice the bytes are taken; keys never move.
        let bytes = self.keys.bytes + key_bytes + 2 * (entries + labels);
        self.memory
            .require(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    fn insert(&mut self, hash: u64, entry: Entry) -> Result<TermId> {
        let number = u32::try_from(self.entries.len())
            .map_err(|_| Error::LimitExceeded("a query can compute at most 2^32 terms"))?;
        self.entries.push(entry);
        let Self {
            entries,
            keys,
            index,
            ..
        } = self;
        index.insert_unique(hash, number, |number| match entries.get(*number as usize) {
            Some(Entry::Keyed(kind, place)) => hash_keyed(*kind, keys.get(*place)),
            Some(Entry::Triple(parts)) => hash_triple(*parts),
            None => 0,
        });
        Ok(TermId::new(Kind::Local, u64::from(number)))
    }
}

fn is_blank_node(id: TermId) -> bool {
    id.kind() == Kind::Local && id.payload() & BLANK_NODE_BIT != 0
}

fn hash_keyed(kind: Kind, key: &[u8]) -> u64 {
    // Literals of different kinds never have one key, but an IRI may be spelt like a literal.
    rapidhash_v3(key) ^ u64::from(kind == Kind::Iri)
}

fn hash_triple(parts: [TermId; 3]) -> u64 {
    crate::table::hash_ids(&parts)
}

fn triple_term(context: &QueryContext, parts: [TermId; 3]) -> Result<Term> {
    let broken = Error::Internal("a triple term with a part that does not fit");
    let [subject, predicate, object] = parts;
    let subject: NamedOrBlankNode = match context.term(subject)? {
        Some(Term::NamedNode(iri)) => iri.into(),
        Some(Term::BlankNode(node)) => node.into(),
        _ => return Err(broken),
    };
    let predicate: NamedNode = match context.term(predicate)? {
        Some(Term::NamedNode(iri)) => iri,
        _ => return Err(broken),
    };
    let object = context.term(object)?.ok_or(broken)?;
    Ok(Triple::new(subject, predicate, object).into())
}
