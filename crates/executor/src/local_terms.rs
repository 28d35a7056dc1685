//! Terms that a query computed and that no dictionary holds, under ids local to the query.
//!
//! A local id's payload tells where the term's record is, and the kind of the term; or, with its highest bit set, it is
//! the number of a blank node, of which nothing is kept. Within a query equal terms have equal ids: a term is first
//! searched among the local ones, then in the dictionary, and only then becomes local. As the
//! snapshot does not change, a term that is local once is in no dictionary later.
//!
//! What memory does not hold goes to disk (docs/design/0047-computed-terms.md): records as they are (`records`), and when
//! it is the greater part also the table that finds them (`index`).
//!
//! # Concurrency
//! One lock around the table; the dictionary, and what is on disk, is read without it. Whoever wants to insert terms has
//! looked for them before, and looks again if something went to disk since: the table has a version. Two workers that
//! miss the same term both come back to insert it, and the second one finds the record of the first. Runs of the index
//! are merged under a lock of its own, taken before that of the table, or left if somebody has it.
//!
//! # Limits
//! What is in memory counts against the budget. On disk a term takes some 14 bits of memory.

mod index;
mod records;
mod table;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use oxrdf::{BlankNode, NamedNode, NamedOrBlankNode, Term, Triple};
use stoa_quadstore::TermTexts;
use stoa_storage::sync::{Mutex, RwLock};
use stoa_terms::{Kind, TermId, inline, key};

use self::index::IndexMerging;
pub(crate) use self::records::HeldKeys;
use self::records::{Found, RecordReader, kind_of};
use self::table::{Table, Wanted, give_found};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::memory::{Memory, UNNAMED};
use crate::profile::Counters;

/// Set in the payload of a blank node.
const BLANK_NODE_BIT: u64 = 1 << (TermId::PAYLOAD_BITS - 1);

/// Prefix of the labels of new blank nodes; those of stored ones begin with `b`.
const BLANK_NODE_LABEL: char = 'q';

/// So many bytes of keys are taken before they are reserved: terms get their ids when there are as many.
const FREE_BYTES: usize = 256 << 10;

/// So many bytes of records are added at once; and the table holds as many before it goes to disk.
const GROUP_BYTES: usize = 64 << 10;

/// What the first computed terms take, before any go to disk, merging those that did, and what finds these.
pub(crate) const COMPUTED_BYTES: u64 = 6 * GROUP_BYTES as u64;

/// After how many terms that are looked for on disk it is asked whether the query has ended.
const CHECKED_EACH: usize = 256;

/// How many ids of runs are merged for each that is new, so that runs never become many.
const MERGED_EACH: usize = 8;

pub(crate) struct LocalTerms {
    table: RwLock<Table>,
    /// Runs of the index that somebody merges, those of higher levels first.
    merging: Mutex<Vec<IndexMerging>>,
    /// No operator's.
    counters: Arc<Counters>,
    blank_nodes: AtomicU64,
}

/// Terms that are looked for.
#[derive(Default)]
struct Missing {
    terms: Vec<Wanted>,
    keys: Vec<u8>,
}

/// The kind of the term behind a local id.
pub(crate) fn kind(id: TermId) -> Kind {
    match is_blank_node(id) {
        true => Kind::BlankNode,
        false => kind_of(id).unwrap_or(Kind::Local),
    }
}

impl LocalTerms {
    /// None yet. `memory` is for what can go to disk, `kept` for what cannot.
    pub(crate) fn new(memory: Memory, kept: Memory) -> Self {
        Self {
            table: RwLock::new(Table::new(memory, kept)),
            merging: Mutex::new(Vec::new()),
            counters: Arc::default(),
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
        let mut table = self.write();
        table.labelled(solution, label, || self.new_blank_node())
    }

    /// The parts of a local triple term, `None` for any other id.
    pub(crate) fn triple(&self, id: TermId) -> Result<Option<[TermId; 3]>> {
        if id.kind() != Kind::Local || kind(id) != Kind::Triple {
            return Ok(None);
        }
        let broken = Error::Internal("a computed triple term has a broken key");
        self.with_key(id, triple_parts)?.ok_or(broken).map(Some)
    }

    /// [`QueryContext::texts`] for those of the ids that are local; the text of the first one of
    /// `ids` stands at `first`.
    pub(crate) fn texts(
        &self,
        context: &QueryContext,
        ids: &[TermId],
        first: usize,
        out: &mut TermTexts,
        meter: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut on_disk = Vec::new();
        let mut metered = out.memory_bytes();
        let mut meter = |bytes: usize| match bytes > metered {
            true => {
                metered = bytes;
                meter(bytes)
            }
            false => Ok(()),
        };
        let file = {
            let table = self.read();
            for (row, id) in ids.iter().enumerate() {
                if id.kind() != Kind::Local {
                    continue;
                }
                let is_text = !matches!(kind(*id), Kind::Triple | Kind::BlankNode);
                match is_text.then(|| table.records.get(*id)) {
                    Some(Found::Held(key)) => {
                        make_room(out, key.len(), &mut meter)?;
                        out.set(first + row, key);
                    }
                    Some(Found::OnDisk(offset)) => on_disk.push((offset, row)),
                    Some(Found::Nowhere) => return Err(Error::Internal("an id of another query")),
                    None => out.set(first + row, &[]),
                }
                meter(out.memory_bytes())?;
            }
            match (on_disk.is_empty(), table.records.file()) {
                (false, Some(file)) => Arc::clone(file),
                _ => return Ok(()),
            }
        };
        on_disk.sort_unstable();
        let mut reader = RecordReader::new(&file);
        for (number, (offset, row)) in on_disk.iter().enumerate() {
            if number.is_multiple_of(CHECKED_EACH) {
                context.check()?;
            }
            let next = on_disk.iter().skip(number).map(|(offset, _)| *offset);
            let length = reader.length(next)?;
            if length > GROUP_BYTES {
                // What is read, and its copy.
                meter(out.memory_bytes() + 2 * length)?;
            }
            make_room(out, length, &mut meter)?;
            out.set(first + row, reader.key(*offset, length)?);
            meter(out.memory_bytes())?;
        }
        Ok(())
    }

    /// Keys of some ids that stay in memory, `None` if those of some are on disk.
    pub(crate) fn hold(&self, ids: impl Iterator<Item = TermId>) -> Option<HeldKeys> {
        self.read().records.hold(ids)
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
            return match kind(id) {
                Kind::Triple => triple_term(context, context.triple(id)?).map(Some),
                kind => {
                    let term = self.with_key(id, |key| key::decode_term(kind, key))?;
                    term.map(Some)
                        .map_err(|_| Error::Internal("a computed term has a broken key"))
                }
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
        for (row, computed) in computed.into_iter().enumerate() {
            let known = match computed {
                Computed::Unbound => None,
                Computed::Id(known) => Some(known),
                Computed::Triple(parts) => Some(self.resolve_triple(context, parts)?),
                Computed::Term(Term::Triple(triple)) => {
                    Some(self.resolve_triple_term(context, *triple)?)
                }
                Computed::Term(term) => {
                    let bytes = missing.keys.len() + text_bytes(&term);
                    if bytes > FREE_BYTES {
                        // Before the text is copied, and without more than it takes.
                        memory.require(bytes as u64)?;
                        missing.keys.reserve_exact(bytes - missing.keys.len());
                    }
                    missing.add(row, &term)?
                }
            };
            if let (Some(known), Some(id)) = (known, ids.get_mut(row)) {
                *id = known;
            }
            if missing.keys.len() >= FREE_BYTES {
                memory.require(missing.keys.capacity() as u64)?;
                self.settle(context, &mut missing, &mut ids)?;
                missing = Missing::default();
                memory.release();
            }
        }
        self.settle(context, &mut missing, &mut ids)?;
        Ok(ids)
    }

    /// Gives terms their ids.
    fn settle(
        &self,
        context: &QueryContext,
        missing: &mut Missing,
        ids: &mut [TermId],
    ) -> Result<()> {
        let Missing { terms, keys } = missing;
        if terms.is_empty() {
            return Ok(());
        }
        let seen = self.find(context, terms, keys, ids)?;
        if terms.is_empty() {
            return Ok(());
        }
        let by_key: Vec<_> = terms.iter().map(|one| (one.kind, one.key(keys))).collect();
        let found = context.snapshot().key_ids(&by_key)?;
        for (one, found) in terms.iter_mut().zip(found) {
            one.found = found;
        }
        give_found(terms, ids);
        self.insert(context, seen, std::mem::take(terms), keys, ids)
    }

    /// Gives those terms their ids that are here already, and keeps others. Tells the version of the table that was
    /// looked at.
    fn find(
        &self,
        context: &QueryContext,
        terms: &mut Vec<Wanted>,
        keys: &[u8],
        ids: &mut [TermId],
    ) -> Result<u64> {
        let mut candidates = Vec::new();
        let (version, runs) = {
            let table = self.read();
            for (number, one) in terms.iter_mut().enumerate() {
                one.found = table.search(one, keys, |id| candidates.push((number, id)));
            }
            (table.version, table.index.runs())
        };
        if !runs.is_empty() {
            for (number, one) in terms.iter().enumerate() {
                if number.is_multiple_of(CHECKED_EACH) {
                    context.check()?;
                }
                if one.found.is_some() {
                    continue;
                }
                for run in runs.iter() {
                    run.find(one.hash, |id| {
                        if kind_of(id) == Some(one.kind) {
                            candidates.push((number, id));
                        }
                    })?;
                }
            }
        }
        if !candidates.is_empty() {
            self.compare(context, &candidates, terms, keys)?;
        }
        give_found(terms, ids);
        Ok(version)
    }

    /// Finds out which terms, given by number, are those of the ids beside, whose records may be on disk.
    fn compare(
        &self,
        context: &QueryContext,
        candidates: &[(usize, TermId)],
        terms: &mut [Wanted],
        keys: &[u8],
    ) -> Result<()> {
        let mut on_disk = Vec::new();
        let file = {
            let table = self.read();
            for (number, id) in candidates {
                let Some(one) = terms.get_mut(*number) else {
                    continue;
                };
                match table.records.get(*id) {
                    Found::Held(key) if key == one.key(keys) => one.found = Some(*id),
                    Found::OnDisk(offset) => on_disk.push((offset, *number, *id)),
                    Found::Held(_) | Found::Nowhere => (),
                }
            }
            match (on_disk.is_empty(), table.records.file()) {
                (false, Some(file)) => Arc::clone(file),
                _ => return Ok(()),
            }
        };
        on_disk.sort_unstable();
        let mut reader = RecordReader::new(&file);
        for (place, (offset, number, id)) in on_disk.iter().enumerate() {
            if place.is_multiple_of(CHECKED_EACH) {
                context.check()?;
            }
            let Some(one) = terms.get_mut(*number) else {
                continue;
            };
            let key = one.key(keys);
            let next = on_disk.iter().skip(place).map(|(offset, ..)| *offset);
            let length = reader.length(next)?;
            if length == key.len() && reader.key(*offset, length)? == key {
                one.found = Some(*id);
            }
        }
        Ok(())
    }

    /// Adds terms that were not here at version `seen`.
    fn insert(
        &self,
        context: &QueryContext,
        seen: u64,
        mut terms: Vec<Wanted>,
        keys: &[u8],
        ids: &mut [TermId],
    ) -> Result<()> {
        let inserted = terms.len();
        while !terms.is_empty() {
            let mut bytes = 0;
            let fits = terms.iter().take_while(|one| {
                let is_first = bytes == 0;
                bytes += one.bytes();
                is_first || bytes <= GROUP_BYTES
            });
            let others = terms.split_off(fits.count());
            self.insert_group(context, seen, terms, keys, ids)?;
            terms = others;
        }
        self.merge(context, inserted)
    }

    fn insert_group(
        &self,
        context: &QueryContext,
        seen: u64,
        mut terms: Vec<Wanted>,
        keys: &[u8],
        ids: &mut [TermId],
    ) -> Result<()> {
        let mut seen = seen;
        while !terms.is_empty() {
            {
                let mut table = self.write();
                if table.version == seen && table.make_room(context, &self.counters, &terms)? {
                    for one in &mut terms {
                        one.found = Some(table.insert(one, keys)?);
                    }
                    give_found(&mut terms, ids);
                    return Ok(());
                }
            }
            seen = self.find(context, &mut terms, keys, ids)?;
        }
        Ok(())
    }

    /// Merges runs of the index, some ids for each that is new.
    fn merge(&self, context: &QueryContext, inserted: usize) -> Result<()> {
        if !self.read().index.has_runs() {
            return Ok(());
        }
        let Ok(mut merging) = self.merging.try_lock() else {
            return Ok(());
        };
        let mut rows = MERGED_EACH * inserted;
        while rows > 0 {
            let begun = {
                let table = self.read();
                table.index.begin_merging(&merging, context, &self.counters)
            };
            merging.extend(begun);
            merging.sort_by_key(|one| Reverse(one.level()));
            let Some(current) = merging.last_mut() else {
                return Ok(());
            };
            match current.step(context) {
                Ok(Some(merged)) => rows = rows.saturating_sub(merged.max(1)),
                Ok(None) => {
                    if let Some(done) = merging.pop() {
                        let (run, parts) = done.finish()?;
                        self.write().index.replace(&parts, run);
                    }
                }
                // What was taken of its runs is lost, so it cannot go on.
                Err(error) => {
                    merging.pop();
                    return match error {
                        // Later, when there is room.
                        Error::MemoryExceeded { .. } => Ok(()),
                        error => Err(error),
                    };
                }
            }
        }
        Ok(())
    }

    fn resolve_triple(&self, context: &QueryContext, parts: [TermId; 3]) -> Result<TermId> {
        // What is local is in no dictionary, so neither is a triple term with it.
        if parts.iter().all(|part| part.kind() != Kind::Local)
            && let Some(id) = context.snapshot().triple_id(parts)?
        {
            return Ok(id);
        }
        let key: Vec<u8> = parts
            .iter()
            .flat_map(|part| part.to_bits().to_le_bytes())
            .collect();
        let mut terms = vec![Wanted::new(0, Kind::Triple, &key, 0..key.len())];
        let mut ids = [TermId::UNBOUND];
        let seen = self.find(context, &mut terms, &key, &mut ids)?;
        self.insert(context, seen, terms, &key, &mut ids)?;
        let [id] = ids;
        Ok(id)
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
                self.resolve_triple(context, [subject, predicate, object])
            }
            _ => Err(Error::Internal("three parts gave another number of ids")),
        }
    }

    /// Visits the key of a computed term.
    fn with_key<T>(&self, id: TermId, visit: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let of_another = Error::Internal("an id of another query");
        let (offset, file) = {
            let table = self.read();
            match (table.records.get(id), table.records.file()) {
                (Found::Held(key), _) => return Ok(visit(key)),
                (Found::OnDisk(offset), Some(file)) => (offset, Arc::clone(file)),
                _ => return Err(of_another),
            }
        };
        let mut reader = RecordReader::new(&file);
        let length = reader.length([offset].into_iter())?;
        Ok(visit(reader.key(offset, length)?))
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Missing {
    /// Adds an IRI or a literal; gives its id if no dictionary is needed for it.
    fn add(&mut self, row: usize, term: &Term) -> Result<Option<TermId>> {
        let start = self.keys.len();
        let kind = match term {
            Term::NamedNode(iri) => {
                self.keys.extend_from_slice(iri.as_str().as_bytes());
                Kind::Iri
            }
            Term::Literal(literal) => {
                if let Some(id) = inline::encode_literal(literal.as_ref()) {
                    return Ok(Some(id));
                }
                key::literal_key(literal.as_ref(), &mut self.keys)
            }
            Term::BlankNode(_) | Term::Triple(_) => {
                return Err(Error::Internal("a blank node was computed by its label"));
            }
        };
        let range = start..self.keys.len();
        self.terms.push(Wanted::new(row, kind, &self.keys, range));
        Ok(None)
    }
}

/// Makes room for a text of so many bytes, as far as `meter` lets it.
fn make_room(
    out: &mut TermTexts,
    bytes: usize,
    meter: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    let mut refused = None;
    out.make_room(bytes, &mut |bytes| {
        refused = meter(bytes).err();
        refused.is_none()
    });
    refused.map_or(Ok(()), Err)
}

/// How long a key is at most, but for a few bytes; of a triple term nothing is copied.
fn text_bytes(term: &Term) -> usize {
    match term {
        Term::NamedNode(iri) => iri.as_str().len(),
        Term::Literal(literal) => {
            let language = literal.language().map_or(0, str::len);
            literal.value().len() + literal.datatype().as_str().len() + language + 16
        }
        Term::BlankNode(_) | Term::Triple(_) => 0,
    }
}

fn is_blank_node(id: TermId) -> bool {
    id.kind() == Kind::Local && id.payload() & BLANK_NODE_BIT != 0
}

/// The parts of a triple term by its key.
fn triple_parts(key: &[u8]) -> Option<[TermId; 3]> {
    let (parts, _) = key.as_chunks::<8>();
    let part = |number: usize| Some(TermId::from_bits(u64::from_le_bytes(*parts.get(number)?)));
    Some([part(0)?, part(1)?, part(2)?])
}

/// A triple term with these parts.
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

#[cfg(test)]
mod tests;
