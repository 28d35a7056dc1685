//! New terms: those that commits brought and no checkpoint has written yet.
//!
//! A transaction numbers its new terms itself ([`NewTerms`]); ids are given at commit, in the order of
//! the commits and within one in the order of the keys, after the highest of their kind. So the terms
//! of a kind of one commit have neighbouring ids that ascend with the keys, as in an ordered partition
//! of the dictionary; where batches were merged, lists say which key has which id, as in a permuted
//! one. The dictionary reads both beside its partitions.
//!
//! # Limits
//! The bytes of the keys and 10 bytes a term, 18 where batches were merged.

#![expect(
    clippy::indexing_slicing,
    reason = "places and offsets are below the number of terms, and come from lists of that length"
)]

use std::sync::Arc;

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use stoa_terms::{Kind, TermId, key};

use super::filter::{Filter, KeyHash};
use crate::dictionary::{KINDS, triple_key, triple_parts};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;

/// The new terms of one kind, by their keys.
#[derive(Debug)]
pub(crate) struct KindTerms {
    kind: Kind,
    /// The payload of the first id.
    first: u64,
    /// All keys, ascending, and where each ends.
    bytes: Box<[u8]>,
    ends: Box<[usize]>,
    /// For each key its payload, less the first one, and the other way round; both empty if ids ascend
    /// with the keys.
    offsets: Box<[u32]>,
    places: Box<[u32]>,
    filter: Filter,
}

impl KindTerms {
    /// Terms by key, ascending, and offset of their payload, of which there are as many as terms; the
    /// keys take `key_bytes` together.
    pub(super) fn new<'a>(
        kind: Kind,
        first: u64,
        key_bytes: usize,
        terms: impl ExactSizeIterator<Item = (&'a [u8], u32)>,
    ) -> Result<Self> {
        let count = terms.len();
        let mut bytes = Vec::with_capacity(key_bytes);
        let mut ends = Vec::with_capacity(count);
        let mut offsets = Vec::with_capacity(count);
        let mut filter = Filter::for_keys(count);
        for (key, offset) in terms {
            filter.insert(KeyHash::of(key));
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
            offsets.push(offset);
        }
        let count = u32::try_from(ends.len());
        let count = count.map_err(|_| Error::Internal("more than 4 G terms in one batch"))?;
        let mut places = vec![0; ends.len()];
        for (place, offset) in (0..count).zip(&offsets) {
            let slot = places.get_mut(*offset as usize);
            *slot.ok_or(Error::Internal("ids of new terms with gaps"))? = place;
        }
        if offsets.is_sorted() {
            (offsets, places) = (Vec::new(), Vec::new());
        }
        Ok(Self {
            kind,
            first,
            bytes: bytes.into(),
            ends: ends.into(),
            offsets: offsets.into(),
            places: places.into(),
            filter,
        })
    }

    /// The terms of two that follow each other.
    fn merge(one: &Self, two: &Self) -> Result<Self> {
        if one.end() != two.first {
            return Err(Error::Internal("ids of new terms with gaps"));
        }
        let shift = u32::try_from(one.len());
        let shift = shift.map_err(|_| Error::Internal("more than 4 G terms in one batch"))?;
        let (mut a, mut b) = (0, 0);
        let merged = (0..one.len() + two.len()).map(|_| {
            if a < one.len() && (b == two.len() || one.key(a) < two.key(b)) {
                a += 1;
                (one.key(a - 1), one.offset(a - 1))
            } else {
                b += 1;
                (two.key(b - 1), two.offset(b - 1).saturating_add(shift))
            }
        });
        let key_bytes = one.bytes.len() + two.bytes.len();
        Self::new(one.kind, one.first, key_bytes, merged)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The payload of the first id, and the one after the last.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Whether ids ascend with the keys.
    pub(crate) fn is_ordered(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The key at a place of their order.
    pub(crate) fn key(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }

    /// The payload at a place, less the first one.
    pub(crate) fn offset(&self, place: usize) -> u32 {
        match self.offsets.get(place) {
            Some(offset) => *offset,
            // `new` has seen that places fit.
            None => u32::try_from(place).unwrap_or(u32::MAX),
        }
    }

    /// The place of the key that has a payload, if it is one of these.
    pub(crate) fn place(&self, payload: u64) -> Option<usize> {
        let offset = usize::try_from(payload.checked_sub(self.first)?).ok()?;
        if offset >= self.len() {
            return None;
        }
        let place = self.places.get(offset).map(|place| *place as usize);
        Some(place.unwrap_or(offset))
    }

    pub(crate) fn id(&self, place: usize) -> TermId {
        TermId::new(self.kind, self.first + u64::from(self.offset(place)))
    }

    /// The first place whose key is not below `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.lower_bound_within(0, self.len(), key)
    }

    /// The same, if it is within these places or behind them.
    fn lower_bound_within(&self, mut start: usize, mut end: usize, key: &[u8]) -> usize {
        while start < end {
            let middle = usize::midpoint(start, end);
            if self.key(middle) < key {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// The id of a key that is not below those before the place `from`, which goes on to where it stands
    /// if the key may be one of these.
    pub(crate) fn find_from(&self, from: &mut usize, key: &[u8], hash: KeyHash) -> Option<TermId> {
        if !self.filter.may_have(hash) {
            return None;
        }
        // In steps that double: keys that are looked up together are often neighbours.
        let (mut start, mut step) = (*from, 1);
        while let Some(place) = start.checked_add(step).filter(|place| *place < self.len())
            && self.key(place) < key
        {
            start = place + 1;
            step *= 2;
        }
        let end = start.saturating_add(step).min(self.len());
        *from = self.lower_bound_within(start.min(end), end, key);
        let place = *from;
        (place < self.len() && self.key(place) == key).then(|| self.id(place))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.offsets)
            + size_of_val(&*self.places)
            + self.filter.memory_bytes()
    }
}

/// The new terms of a batch.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// Those that there are, ascending by kind.
    kinds: Box<[KindTerms]>,
    /// The first number that no blank node has after these commits; 0 if they brought none.
    pub(crate) next_blank_node: u64,
}

impl Terms {
    /// Terms of different kinds, ascending by kind.
    pub(super) fn of_kinds(kinds: Vec<KindTerms>, next_blank_node: u64) -> Self {
        Self {
            kinds: kinds.into(),
            next_blank_node,
        }
    }

    /// The terms of two batches that follow each other.
    pub(super) fn merge(one: &Arc<Self>, two: &Arc<Self>) -> Result<Arc<Self>> {
        if two.is_empty() {
            return Ok(Arc::clone(one));
        }
        let mut kinds = Vec::new();
        for kind in KINDS {
            let merged = match (one.of_kind(kind), two.of_kind(kind)) {
                (Some(one), Some(two)) => KindTerms::merge(one, two)?,
                (Some(only), None) | (None, Some(only)) => {
                    let terms = (0..only.len()).map(|place| (only.key(place), only.offset(place)));
                    KindTerms::new(kind, only.first, only.bytes.len(), terms)?
                }
                (None, None) => continue,
            };
            kinds.push(merged);
        }
        Ok(Arc::new(Self {
            kinds: kinds.into(),
            next_blank_node: one.next_blank_node.max(two.next_blank_node),
        }))
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Option<&KindTerms> {
        self.kinds.iter().find(|terms| terms.kind == kind)
    }

    /// How many there are, without blank nodes.
    pub(crate) fn len(&self) -> usize {
        self.kinds.iter().map(KindTerms::len).sum()
    }

    /// Whether there are others than blank nodes.
    pub(super) fn has_keys(&self) -> bool {
        !self.kinds.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.next_blank_node == 0
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let kinds = self.kinds.iter();
        size_of_val(&*self.kinds) + kinds.map(KindTerms::memory_bytes).sum::<usize>()
    }

    /// Kind, key and id of each term, by kind and key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Kind, &[u8], TermId)> {
        self.kinds.iter().flat_map(|terms| {
            (0..terms.len()).map(|place| (terms.kind, terms.key(place), terms.id(place)))
        })
    }

    /// Terms with their ids, whose payloads have no gaps within a kind.
    pub(crate) fn of_ids(mut terms: Vec<(TermId, Vec<u8>)>, next_blank_node: u64) -> Result<Self> {
        terms.sort_unstable_by(|(a, one), (b, two)| (a.kind(), one).cmp(&(b.kind(), two)));
        let mut kinds = Vec::new();
        for group in terms.chunk_by(|(a, _), (b, _)| a.kind() == b.kind()) {
            let Some(first) = group.iter().map(|(id, _)| id.payload()).min() else {
                continue;
            };
            let kind = group[0].0.kind();
            if !KINDS.contains(&kind) {
                return Err(Error::Internal(
                    "a new term of a kind that needs no dictionary",
                ));
            }
            let offset = |id: TermId| u32::try_from(id.payload() - first).unwrap_or(u32::MAX);
            let terms = group.iter().map(|(id, key)| (key.as_slice(), offset(*id)));
            let key_bytes = group.iter().map(|(_, key)| key.len()).sum();
            kinds.push(KindTerms::new(kind, first, key_bytes, terms)?);
        }
        Ok(Self {
            kinds: kinds.into(),
            next_blank_node,
        })
    }
}

/// A new term of a transaction.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum NewTerm {
    Blank,
    /// A blank node that is told by a number from all others of an operation.
    Numbered(u64),
    /// Kind and key; the key of a triple term is the private or final ids of its parts.
    Keyed(Kind, Arc<[u8]>),
}

/// Terms that a transaction brings, under private ids: [`Kind::Local`] and a number.
#[derive(Clone, Debug, Default)]
pub struct NewTerms {
    terms: Vec<NewTerm>,
    numbers: HashMap<NewTerm, u32, RandomState>,
    /// The blank nodes of the labels that the transaction used.
    labels: HashMap<String, TermId, RandomState>,
    /// What keys and labels take.
    text_bytes: usize,
}

/// What a term takes beside its key, in a list and a table that double as they grow.
const NEW_TERM_BYTES: usize = 2 * (2 * size_of::<NewTerm>() + size_of::<u64>()) + 16;

impl NewTerms {
    /// About how many bytes they take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.terms.len() + self.labels.len()) * NEW_TERM_BYTES + self.text_bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// How many of them are blank nodes.
    pub(crate) fn blank_nodes(&self) -> u64 {
        let blank = self.terms.iter().filter(|term| **term == NewTerm::Blank);
        blank.count() as u64
    }

    /// Lets a label mean a blank node that has its id already.
    pub fn set_blank(&mut self, label: &str, id: TermId) {
        if !self.labels.contains_key(label) {
            self.text_bytes += label.len();
            self.labels.insert(label.to_owned(), id);
        }
    }

    /// A new blank node.
    ///
    /// # Errors
    /// With more than 4 G terms.
    pub fn blank(&mut self) -> Result<TermId> {
        self.push(NewTerm::Blank)
    }

    /// The new blank node with a number, which is the same throughout an operation of a
    /// [`BulkUpdate`](crate::BulkUpdate). No other changes can have some.
    ///
    /// # Errors
    /// With more than 4 G terms.
    pub fn numbered_blank(&mut self, number: u64) -> Result<TermId> {
        self.once(NewTerm::Numbered(number), 0)
    }

    /// Forgets all terms but the first ones, whose ids stay. Labels are kept.
    pub fn truncate(&mut self, length: usize) {
        let forgotten = self.terms.drain(length.min(self.terms.len())..);
        for term in forgotten {
            if let NewTerm::Keyed(_, key) = &term {
                self.text_bytes -= key.len();
            }
            self.numbers.remove(&term);
        }
    }

    /// The term with a private id.
    pub(crate) fn get(&self, id: TermId) -> Option<&NewTerm> {
        number_of(id).and_then(|number| self.terms.get(number))
    }

    /// The private id of the term of the dictionary with this key (`stoa_terms::key`), which the store
    /// was asked for and does not know.
    ///
    /// # Errors
    /// With more than 4 G terms, or if `kind` is none of those with keys.
    pub fn intern(&mut self, kind: Kind, key: &[u8]) -> Result<TermId> {
        if !kind.is_in_dictionary() {
            return Err(Error::Internal(
                "a new term of a kind that needs no dictionary",
            ));
        }
        self.keyed(kind, key)
    }

    /// The private id of a triple term whose parts may have private ids themselves.
    ///
    /// # Errors
    /// With more than 4 G terms.
    pub fn triple(&mut self, parts: [TermId; 3]) -> Result<TermId> {
        self.keyed(Kind::Triple, &triple_key(parts))
    }

    /// The ids of terms: those that `read` knows, private ones for the others. A label of a blank node
    /// means the same node throughout the transaction, and one that is in no store yet.
    ///
    /// # Errors
    /// If the dictionary cannot be read; with more than 4 G new terms.
    pub fn ids(&mut self, read: &Snapshot, terms: &[Term]) -> Result<Vec<TermId>> {
        let known = read.term_ids(terms)?;
        let ids = known
            .into_iter()
            .zip(terms)
            .map(|(known, term)| match known {
                Some(id) => Ok(id),
                None => self.id(read, term),
            });
        ids.collect()
    }

    /// The id of a term that the store does not know, or of which it is not known.
    fn id(&mut self, read: &Snapshot, term: &Term) -> Result<TermId> {
        match term {
            Term::NamedNode(iri) => self.intern(Kind::Iri, iri.as_str().as_bytes()),
            Term::BlankNode(node) => match self.labels.get(node.as_str()) {
                Some(id) => Ok(*id),
                None => {
                    let id = self.blank()?;
                    self.text_bytes += node.as_str().len();
                    self.labels.insert(node.as_str().to_owned(), id);
                    Ok(id)
                }
            },
            Term::Literal(literal) => {
                let mut key = Vec::new();
                let kind = key::literal_key(literal.as_ref(), &mut key);
                self.intern(kind, &key)
            }
            Term::Triple(triple) => {
                let parts = [
                    triple.subject.clone().into(),
                    triple.predicate.clone().into(),
                    triple.object.clone(),
                ];
                // Goes as deep as triple terms are nested, as everything that walks them does.
                let ids = self.ids(read, &parts)?;
                let parts: Option<[TermId; 3]> = ids.first_chunk().copied();
                let parts = parts.ok_or(Error::Internal("a triple without its parts"))?;
                // With blank nodes in it the term has not been looked up yet.
                if parts.iter().all(|part| part.kind() != Kind::Local)
                    && let Some(id) = read.triple_id(parts)?
                {
                    return Ok(id);
                }
                self.triple(parts)
            }
        }
    }

    fn keyed(&mut self, kind: Kind, key: &[u8]) -> Result<TermId> {
        self.once(NewTerm::Keyed(kind, key.into()), key.len())
    }

    /// The private id of a term whose key takes so many bytes.
    fn once(&mut self, term: NewTerm, text_bytes: usize) -> Result<TermId> {
        if let Some(number) = self.numbers.get(&term) {
            return Ok(private(*number));
        }
        self.text_bytes += text_bytes;
        let id = self.push(term.clone())?;
        let number = u32::try_from(id.payload()).unwrap_or(u32::MAX);
        self.numbers.insert(term, number);
        Ok(id)
    }

    fn push(&mut self, term: NewTerm) -> Result<TermId> {
        let number = u32::try_from(self.terms.len());
        let number = number.map_err(|_| Error::Internal("more than 4 G new terms"))?;
        self.terms.push(term);
        Ok(private(number))
    }

    /// Gives the terms their ids on top of `now`, the current snapshot. Those that were committed since
    /// `read`, which they were looked up in, have one; that is seen in memory, unless a checkpoint
    /// came in between.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    pub fn resolve(&self, read: &Snapshot, now: &Snapshot) -> Result<Resolved> {
        self.resolve_with(read, now, now.next_blank_node())
    }

    /// As [`NewTerms::resolve`]; blank nodes get numbers from `first_blank` on.
    pub(crate) fn resolve_with(
        &self,
        read: &Snapshot,
        now: &Snapshot,
        first_blank: u64,
    ) -> Result<Resolved> {
        let mut resolved = Resolved {
            ids: vec![TermId::UNBOUND; self.terms.len()],
            terms: Vec::new(),
            next_blank_node: 0,
        };
        let mut blank = first_blank;
        let mut keyed: Vec<(Kind, usize, Vec<u8>)> = Vec::new();
        // How deep a triple term goes, one level after the other: its parts have lower numbers.
        let (mut depths, mut deepest) = (vec![0_u32; self.terms.len()], 0);
        for (number, term) in self.terms.iter().enumerate() {
            match term {
                NewTerm::Blank => {
                    resolved.ids[number] = TermId::new(Kind::BlankNode, blank);
                    blank += 1;
                    resolved.next_blank_node = blank;
                }
                NewTerm::Numbered(_) => {
                    return Err(Error::Internal("a numbered blank node of a transaction"));
                }
                NewTerm::Keyed(Kind::Triple, key) => {
                    let parts = triple_parts(key).unwrap_or_default();
                    let below = parts.iter().filter_map(|id| number_of(*id));
                    let below = below.filter_map(|number| depths.get(number)).max();
                    depths[number] = below.copied().unwrap_or(0) + 1;
                    deepest = deepest.max(depths[number]);
                }
                NewTerm::Keyed(kind, key) => keyed.push((*kind, number, key.to_vec())),
            }
        }
        resolved.assign(keyed, read, now)?;
        for depth in 1..=deepest {
            let mut keyed = Vec::new();
            for (number, term) in self.terms.iter().enumerate() {
                if let NewTerm::Keyed(kind, key) = term
                    && depths[number] == depth
                {
                    let parts = triple_parts(key).unwrap_or_default();
                    let parts = parts.map(|id| resolved.id(id));
                    keyed.push((*kind, number, triple_key(parts).to_vec()));
                }
            }
            resolved.assign(keyed, read, now)?;
        }
        Ok(resolved)
    }
}

fn private(number: u32) -> TermId {
    TermId::new(Kind::Local, u64::from(number))
}

/// The number of a private id.
fn number_of(id: TermId) -> Option<usize> {
    let number = (id.kind() == Kind::Local).then(|| id.payload())?;
    usize::try_from(number).ok()
}

/// The ids that the terms of a transaction got, and those of them that are new.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    ids: Vec<TermId>,
    terms: Vec<(TermId, Vec<u8>)>,
    next_blank_node: u64,
}

impl Resolved {
    /// The id of a term that had a private one; any other as it is.
    #[must_use]
    pub fn id(&self, id: TermId) -> TermId {
        let found = number_of(id).and_then(|number| self.ids.get(number));
        found.copied().unwrap_or(id)
    }

    /// Id and key of each new term but blank nodes, in the order in which they got their ids.
    pub(crate) fn into_new(self) -> Vec<(TermId, Vec<u8>)> {
        self.terms
    }

    pub(super) fn terms(&self) -> Result<Terms> {
        Terms::of_ids(self.terms.clone(), self.next_blank_node)
    }

    /// Looks keys up and gives ids to those that have none; number and key of each.
    fn assign(
        &mut self,
        mut keyed: Vec<(Kind, usize, Vec<u8>)>,
        read: &Snapshot,
        now: &Snapshot,
    ) -> Result<()> {
        keyed.sort_unstable_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
        for group in keyed.chunk_by_mut(|a, b| a.0 == b.0) {
            let kind = group[0].0;
            let keys: Vec<&[u8]> = group.iter().map(|(_, _, key)| key.as_slice()).collect();
            let mut found = Vec::with_capacity(keys.len());
            let known = read.dictionary().next_payload(kind);
            now.dictionary()
                .lookup_since(kind, known, &keys, &mut found)?;
            let assigned = self.terms.iter().filter(|(id, _)| id.kind() == kind);
            let mut next = now.dictionary().next_payload(kind) + assigned.count() as u64;
            let mut last: Option<(Vec<u8>, TermId)> = None;
            for ((_, number, key), found) in group.iter_mut().zip(found) {
                // Two triple terms may turn out to be one, once their parts have ids.
                let again = last.as_ref().filter(|(last, _)| last == key);
                let id = match found.or(again.map(|(_, id)| *id)) {
                    Some(id) => id,
                    None if next >= TermId::PAYLOAD_MAX => {
                        return Err(Error::Internal("the ids of a kind are used up"));
                    }
                    None => {
                        let id = TermId::new(kind, next);
                        next += 1;
                        self.terms.push((id, key.clone()));
                        last = Some((std::mem::take(key), id));
                        id
                    }
                };
                self.ids[*number] = id;
            }
        }
        Ok(())
    }
}
