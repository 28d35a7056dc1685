//! Ids for the terms of an update: those of the store, else private ones of the operation.
//!
//! What is looked up here is not recorded as read: a commit gives each private id the id that the term has
//! by then. Blank nodes get their ids at once, from the transaction.

use hashbrown::HashMap;
use oxrdf::{BlankNode, NamedOrBlankNode, Term};
use rapidhash::fast::RandomState;
use stoa_quadstore::{NewTerms, QuadStore, Snapshot};
use stoa_terms::{Kind, TermId, key};

use crate::error::{Error, Result};
use crate::limits::TRIPLE_TERM_DEPTH_MAX;
use crate::update::Destination;

/// The terms of one operation.
pub(crate) struct Ids {
    view: Snapshot,
    /// Where new blank nodes come from.
    store: QuadStore,
    terms: NewTerms,
    /// The nodes of the labels that the operation uses.
    labels: HashMap<BlankNode, TermId, RandomState>,
    /// How deep triple terms with private ids go.
    depths: HashMap<TermId, usize, RandomState>,
}

impl Ids {
    pub(crate) fn new(destination: &dyn Destination) -> Self {
        Self {
            view: destination.view().unrecorded(),
            store: destination.store().clone(),
            terms: NewTerms::default(),
            labels: HashMap::default(),
            depths: HashMap::default(),
        }
    }

    /// The private ids that were given.
    pub(crate) fn terms(&self) -> &NewTerms {
        &self.terms
    }

    /// The ids of terms. A label of a blank node means one new node throughout the operation.
    ///
    /// # Errors
    /// If the dictionary cannot be read, or triple terms are nested too deep.
    pub(crate) fn of(&mut self, terms: &[Term]) -> Result<Vec<TermId>> {
        let known = self.view.term_ids(terms)?;
        let ids = known.into_iter().zip(terms);
        ids.map(|(known, term)| match known {
            // It may be too deep for another one around it, which is seen there.
            Some(id) => Ok(id),
            None => self.unknown(term, 0),
        })
        .collect()
    }

    /// The id of a term that the store does not know, at this depth of a triple term.
    fn unknown(&mut self, term: &Term, depth: usize) -> Result<TermId> {
        match term {
            Term::NamedNode(iri) => self.keyed(Kind::Iri, iri.as_str().as_bytes()),
            Term::Literal(literal) => {
                let mut key = Vec::new();
                let kind = key::literal_key(literal.as_ref(), &mut key);
                self.keyed(kind, &key)
            }
            Term::BlankNode(node) => Ok(self.labelled(node)),
            Term::Triple(triple) => {
                if depth == TRIPLE_TERM_DEPTH_MAX {
                    return Err(too_deep());
                }
                let subject = match &triple.subject {
                    NamedOrBlankNode::NamedNode(iri) => iri.clone().into(),
                    NamedOrBlankNode::BlankNode(node) => node.clone().into(),
                };
                let parts = [
                    subject,
                    triple.predicate.clone().into(),
                    triple.object.clone(),
                ];
                let mut ids = [TermId::UNBOUND; 3];
                for (part, id) in parts.iter().zip(&mut ids) {
                    *id = match self.view.term_id(part.as_ref())? {
                        Some(known) => known,
                        None => self.unknown(part, depth + 1)?,
                    };
                }
                self.triple(ids)
            }
        }
    }

    /// A new blank node.
    pub(crate) fn blank_node(&self) -> TermId {
        self.store.blank_node()
    }

    /// The private id of a blank node that is told by a number; see [`NewTerms::numbered_blank`].
    pub(crate) fn numbered_blank(&mut self, number: u64) -> Result<TermId> {
        Ok(self.terms.numbered_blank(number)?)
    }

    /// Forgets all private ids but the first ones.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.terms.truncate(length);
        self.depths
            .retain(|id, _| usize::try_from(id.payload()).is_ok_and(|number| number < length));
    }

    fn labelled(&mut self, node: &BlankNode) -> TermId {
        if let Some(id) = self.labels.get(node) {
            return *id;
        }
        let id = self.blank_node();
        self.labels.insert(node.clone(), id);
        id
    }

    /// The ids of terms by their keys, of those that the store knows.
    pub(crate) fn known(&self, keys: &[(Kind, &[u8])]) -> Result<Vec<Option<TermId>>> {
        Ok(self.view.key_ids(keys)?)
    }

    /// The private id of the term with a key that the store does not know.
    pub(crate) fn keyed(&mut self, kind: Kind, key: &[u8]) -> Result<TermId> {
        Ok(self.terms.intern(kind, key)?)
    }

    /// The id of a triple term made of these, private or not.
    ///
    /// # Errors
    /// If the dictionary cannot be read, or it is nested deeper than [`TRIPLE_TERM_DEPTH_MAX`].
    pub(crate) fn triple(&mut self, parts: [TermId; 3]) -> Result<TermId> {
        let [.., object] = parts;
        let depth = 1 + self.depth(object)?;
        if depth > TRIPLE_TERM_DEPTH_MAX {
            return Err(too_deep());
        }
        if parts.iter().all(|part| part.kind() != Kind::Local)
            && let Some(id) = self.view.triple_id(parts)?
        {
            return Ok(id);
        }
        let id = self.terms.triple(parts)?;
        self.depths.insert(id, depth);
        Ok(id)
    }

    /// How many triple terms stand in each other; only objects can be some.
    fn depth(&self, mut id: TermId) -> Result<usize> {
        let mut depth = 0;
        while id.kind() == Kind::Triple && depth <= TRIPLE_TERM_DEPTH_MAX {
            [.., id] = self.view.triple(id)?;
            depth += 1;
        }
        Ok(depth + self.depths.get(&id).copied().unwrap_or(0))
    }
}

fn too_deep() -> Error {
    Error::LimitExceeded {
        what: "the nesting of triple terms",
        limit: u64::try_from(TRIPLE_TERM_DEPTH_MAX).unwrap_or(u64::MAX),
    }
}
