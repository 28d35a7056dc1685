//! Terms and ids, as a snapshot's readers ask for them.

use oxrdf::{BlankNode, NamedNode, NamedOrBlankNode, Term, TermRef, Triple};
use stoa_terms::{Kind, TermId, inline, key};

use super::{Dictionary, KeyRange, triple_key};
use crate::error::{Error, Result};
use crate::read::{IdRanges, KeySection, StringRange, TermTexts};
use crate::snapshot::Snapshot;

impl Snapshot {
    /// The id of `term` if the store knows the term, or needs not to: inline terms have one anyway.
    /// Blank nodes have none: a label means nothing outside of its file.
    pub fn term_id(&self, term: TermRef<'_>) -> Result<Option<TermId>> {
        let id = self.dictionary().term_id(term)?;
        if self.recorder().is_some() {
            self.note_missing(&term.into_owned(), id)?;
        }
        Ok(id)
    }

    /// The ids of `terms`, one for each, as [`Snapshot::term_id`] gives them, by few reads.
    pub fn term_ids(&self, terms: &[Term]) -> Result<Vec<Option<TermId>>> {
        let ids = self.dictionary().term_ids(terms)?;
        if self.recorder().is_some() {
            for (term, id) in terms.iter().zip(&ids) {
                self.note_missing(term, *id)?;
            }
        }
        Ok(ids)
    }

    /// Records that the store does not know a term, if so.
    fn note_missing(&self, term: &Term, id: Option<TermId>) -> Result<()> {
        let Some(recorder) = self.recorder().filter(|_| id.is_none()) else {
            return Ok(());
        };
        match term {
            Term::NamedNode(iri) => recorder.missing(Kind::Iri, iri.as_str().as_bytes()),
            Term::BlankNode(_) => {}
            Term::Literal(literal) => {
                let mut key = Vec::new();
                let kind = key::literal_key(literal.as_ref(), &mut key);
                recorder.missing(kind, &key);
            }
            Term::Triple(triple) => {
                // Goes as deep as triple terms are nested, as everything that walks them does.
                let parts = self.term_ids(&[
                    triple.subject.clone().into(),
                    triple.predicate.clone().into(),
                    triple.object.clone(),
                ])?;
                if let &[Some(s), Some(p), Some(o)] = parts.as_slice() {
                    recorder.missing_triple([s, p, o]);
                }
            }
        }
        Ok(())
    }

    /// Appends to `out` one text for each id: the key (`stoa_terms::key`) of an IRI or a literal of
    /// the dictionary, else nothing. Ids may come in any order and repeat.
    ///
    /// [`Error::Corruption`] if a term is not there.
    pub fn texts(&self, ids: &[TermId], out: &mut TermTexts) -> Result<()> {
        self.dictionary().texts(ids, out)
    }

    /// As [`Snapshot::texts`]. `meter` is told every now and then how many bytes `out` takes; if it
    /// says no, reading ends there, false is given, and some texts are empty.
    ///
    /// [`Error::Corruption`] if a term is not there.
    pub fn texts_metered(
        &self,
        ids: &[TermId],
        out: &mut TermTexts,
        meter: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool> {
        self.dictionary().texts_metered(ids, out, meter)
    }

    /// The sections of the dictionary that hold keys of `kind`, ascending by payload. No key is in
    /// two of them; their ranges of keys overlap.
    #[must_use]
    pub fn key_sections(&self, kind: Kind) -> Vec<KeySection> {
        let mut sections = self.dictionary().sections(kind);
        sections.extend(self.dictionary().delta_sections(kind));
        sections
    }

    /// Those of them that a checkpoint holds. Ids in them mean the same terms in all snapshots of one numbering
    /// ([`Snapshot::numbering_id`]) that have them there; ids of a later term may be another one's in a transaction.
    #[must_use]
    pub fn stored_key_sections(&self, kind: Kind) -> Vec<KeySection> {
        self.dictionary().sections(kind)
    }

    /// Where the keys of these ids, which ascend and are all of one section, stand in its order.
    ///
    /// [`Error::Corruption`] if a term is not there.
    pub fn key_places(&self, ids: &[TermId]) -> Result<Vec<u64>> {
        self.dictionary().key_places(ids)
    }

    /// The ids of terms by kind and key, for each or `None`. They may come in any order and repeat.
    pub fn key_ids(&self, keys: &[(Kind, &[u8])]) -> Result<Vec<Option<TermId>>> {
        let mut sorted: Vec<_> = keys.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, key)| **key);
        let mut ids = vec![None; keys.len()];
        for group in sorted.chunk_by(|a, b| a.1.0 == b.1.0) {
            let Some((_, (kind, _))) = group.first() else {
                continue;
            };
            let wanted: Vec<&[u8]> = group.iter().map(|(_, (_, key))| *key).collect();
            let mut found = Vec::with_capacity(wanted.len());
            self.dictionary()
                .lookup_sorted(*kind, &wanted, &mut found)?;
            for ((slot, _), id) in group.iter().zip(found) {
                if let Some(target) = ids.get_mut(*slot) {
                    *target = id;
                }
            }
        }
        if let Some(recorder) = self.recorder() {
            let missing = keys.iter().zip(&ids).filter(|(_, id)| id.is_none());
            missing.for_each(|((kind, key), _)| recorder.missing(*kind, key));
        }
        Ok(ids)
    }

    /// Subject, predicate and object of a triple term.
    ///
    /// [`Error::Corruption`] if it is not there, [`Error::Internal`] if `id` is none of a triple term.
    pub fn triple(&self, id: TermId) -> Result<[TermId; 3]> {
        self.dictionary().triple(id)
    }

    /// The parts of several triple terms, as [`Snapshot::triple`], by few reads.
    pub fn triples(&self, ids: &[TermId]) -> Result<Vec<[TermId; 3]>> {
        self.dictionary().triples(ids)
    }

    /// The id of the triple term with these parts, if the store holds it.
    pub fn triple_id(&self, parts: [TermId; 3]) -> Result<Option<TermId>> {
        let id = self.dictionary().lookup(Kind::Triple, &triple_key(parts))?;
        if let Some(recorder) = self.recorder().filter(|_| id.is_none()) {
            recorder.missing_triple(parts);
        }
        Ok(id)
    }

    /// The term of `id`; a blank node gets the label `b` and its number.
    ///
    /// [`Error::Corruption`] if it is not there, [`Error::Internal`] if `id` is unbound, the default
    /// graph or local to a query.
    pub fn term(&self, id: TermId) -> Result<Term> {
        self.dictionary().term(id)
    }

    /// Ids of all strings of a range, and of the other literals of [`Kind::Literal`] with such a lexical
    /// form. The list is the only way to compare the ids of strings.
    pub fn string_ranges(&self, range: &StringRange) -> Result<IdRanges> {
        if let Some(recorder) = self.recorder() {
            recorder.key_range(Kind::Literal, KeyRange::of(range));
        }
        self.dictionary().string_ranges(range)
    }

    /// Ids of the IRIs that start with `prefix`.
    pub fn iri_ranges(&self, prefix: &str) -> Result<IdRanges> {
        if let Some(recorder) = self.recorder() {
            recorder.key_range(Kind::Iri, KeyRange::of_prefix(Kind::Iri, prefix));
        }
        self.dictionary().iri_ranges(prefix)
    }

    /// Ids of all terms of some kinds (those of the dictionary, and short strings) whose text starts with `prefix`: IRIs, and
    /// lexical forms of literals. The ranges of a kind are disjoint. Of each part of the dictionary that is not in order at most `ids_max` ids are
    /// listed one by one; for more the whole part stands, and the list is not exact.
    pub fn prefix_ranges(&self, prefix: &str, kinds: &[Kind], ids_max: u64) -> Result<IdRanges> {
        if let Some(recorder) = self.recorder() {
            let in_dictionary = kinds.iter().filter(|kind| kind.is_in_dictionary());
            for &kind in in_dictionary {
                recorder.key_range(kind, KeyRange::of_prefix(kind, prefix));
            }
        }
        self.dictionary().prefix_ranges(prefix, kinds, ids_max)
    }
}

/// A term on its way to an id.
enum Wanted {
    Known(Option<TermId>),
    Key(Kind, Vec<u8>),
    /// A triple term: the places of its parts among the parts of all triple terms of the batch.
    Triple(usize),
}

impl Dictionary {
    /// See [`Snapshot::term_id`].
    pub(crate) fn term_id(&self, term: TermRef<'_>) -> Result<Option<TermId>> {
        match term {
            TermRef::NamedNode(iri) => self.lookup(Kind::Iri, iri.as_str().as_bytes()),
            TermRef::BlankNode(_) => Ok(None),
            TermRef::Literal(literal) => {
                if let Some(id) = inline::encode_literal(literal) {
                    return Ok(Some(id));
                }
                let mut key = Vec::new();
                let kind = key::literal_key(literal, &mut key);
                self.lookup(kind, &key)
            }
            TermRef::Triple(triple) => {
                let ids = self.term_ids(&[Term::Triple(Box::new(triple.clone()))])?;
                Ok(ids.into_iter().next().flatten())
            }
        }
    }

    /// See [`Snapshot::term_ids`].
    pub(crate) fn term_ids(&self, terms: &[Term]) -> Result<Vec<Option<TermId>>> {
        let mut parts: Vec<Term> = Vec::new();
        let mut wanted: Vec<Wanted> = terms.iter().map(|term| want(term, &mut parts)).collect();
        if !parts.is_empty() {
            // Goes as deep as triple terms are nested, as everything that walks or drops them does.
            let parts = self.term_ids(&parts)?;
            for want in &mut wanted {
                if let Wanted::Triple(at) = want {
                    *want = match parts.get(*at..*at + 3) {
                        Some(&[Some(s), Some(p), Some(o)]) => {
                            Wanted::Key(Kind::Triple, triple_key([s, p, o]).to_vec())
                        }
                        _ => Wanted::Known(None),
                    };
                }
            }
        }
        let mut ids = vec![None; terms.len()];
        let mut keys: Vec<(Kind, &[u8], usize)> = Vec::new();
        for (slot, (want, id)) in wanted.iter().zip(&mut ids).enumerate() {
            match want {
                Wanted::Known(known) => *id = *known,
                Wanted::Key(kind, key) => keys.push((*kind, key, slot)),
                Wanted::Triple(_) => return Err(Error::Internal("a triple term has no key")),
            }
        }
        keys.sort_unstable();
        let mut found = Vec::with_capacity(keys.len());
        for group in keys.chunk_by(|a, b| a.0 == b.0) {
            let sorted: Vec<&[u8]> = group.iter().map(|key| key.1).collect();
            if let Some((kind, ..)) = group.first() {
                self.lookup_sorted(*kind, &sorted, &mut found)?;
            }
        }
        for ((_, _, slot), id) in keys.iter().zip(found) {
            if let Some(target) = ids.get_mut(*slot) {
                *target = id;
            }
        }
        Ok(ids)
    }

    /// See [`Snapshot::triple`].
    pub(crate) fn triple(&self, id: TermId) -> Result<[TermId; 3]> {
        if id.kind() != Kind::Triple {
            return Err(Error::Internal(
                "the parts of a term that is no triple term",
            ));
        }
        let parts = self.triples(&[id])?;
        parts
            .into_iter()
            .next()
            .ok_or(Error::Internal("a triple term was not read"))
    }

    /// See [`Snapshot::term`].
    pub(crate) fn term(&self, id: TermId) -> Result<Term> {
        // Only objects can be triple terms: go down along them, then build from the inside out.
        let mut outer = Vec::new();
        let mut inner = id;
        while inner.kind() == Kind::Triple {
            let [subject, predicate, object] = self.triple(inner)?;
            outer.push((self.plain_term(subject)?, self.plain_term(predicate)?));
            inner = object;
        }
        let mut term = self.plain_term(inner)?;
        for (subject, predicate) in outer.into_iter().rev() {
            let subject = match subject {
                Term::NamedNode(iri) => NamedOrBlankNode::NamedNode(iri),
                Term::BlankNode(node) => NamedOrBlankNode::BlankNode(node),
                _ => return Err(not_a_triple(id)),
            };
            let Term::NamedNode(predicate) = predicate else {
                return Err(not_a_triple(id));
            };
            term = Term::Triple(Box::new(Triple {
                subject,
                predicate,
                object: term,
            }));
        }
        Ok(term)
    }

    /// The term of an id that is not of a triple term.
    fn plain_term(&self, id: TermId) -> Result<Term> {
        let kind = id.kind();
        if kind.is_in_dictionary() {
            let mut texts = TermTexts::default();
            self.texts(&[id], &mut texts)?;
            return decode(kind, texts.get(0), id);
        }
        match kind {
            Kind::BlankNode => Ok(Term::BlankNode(BlankNode::new_unchecked(format!(
                "b{}",
                id.payload()
            )))),
            Kind::Triple => Err(not_a_triple(id)),
            _ => inline::decode(id)
                .map(Term::Literal)
                .ok_or(Error::Internal("the term of an id that stands for none")),
        }
    }
}

fn decode(kind: Kind, text: &[u8], id: TermId) -> Result<Term> {
    if kind == Kind::Iri {
        let iri = std::str::from_utf8(text).map_err(|_| bad_key(id, "bytes that are not UTF-8"))?;
        return Ok(Term::NamedNode(NamedNode::new_unchecked(iri)));
    }
    key::decode_term(kind, text).map_err(|error| bad_key(id, &format!("{error:?}")))
}

fn bad_key(id: TermId, found: &str) -> Error {
    Error::Corruption {
        structure: "dictionary",
        expected: format!("a term for {id:?}"),
        found: found.to_owned(),
    }
}

fn not_a_triple(id: TermId) -> Error {
    bad_key(id, "parts that cannot be those of a triple")
}

/// What has to be looked up for `term`; parts of a triple term go to `parts`.
fn want(term: &Term, parts: &mut Vec<Term>) -> Wanted {
    match term {
        Term::NamedNode(iri) => Wanted::Key(Kind::Iri, iri.as_str().as_bytes().to_vec()),
        Term::BlankNode(_) => Wanted::Known(None),
        Term::Literal(literal) => match inline::encode_literal(literal.as_ref()) {
            Some(id) => Wanted::Known(Some(id)),
            None => {
                let mut key = Vec::new();
                let kind = key::literal_key(literal.as_ref(), &mut key);
                Wanted::Key(kind, key)
            }
        },
        Term::Triple(triple) => {
            let at = parts.len();
            parts.push(triple.subject.clone().into());
            parts.push(triple.predicate.clone().into());
            parts.push(triple.object.clone());
            Wanted::Triple(at)
        }
    }
}
