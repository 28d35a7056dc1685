//! Final ids in the place of provisional ones.
//!
//! A transaction gives its new terms the ids that they would get if it committed at once. If others
//! committed terms of these kinds since, its own are looked up once more, by key, among what was
//! committed: some have ids by now, and the rest get the next ones. Terms that no effective change
//! names in the end are left out, and the gaps are closed.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_terms::{Kind, TermId};

use super::prepared::Prepared;
use crate::delta::{EffectiveChanges, NewTerms, Probed, Terms};
use crate::dictionary::{KINDS, triple_key, triple_parts};
use crate::error::Result;
use crate::snapshot::Snapshot;

/// Id and key of new terms; the parts of a triple term come before it.
pub(super) type Keyed = Vec<(TermId, Vec<u8>)>;

/// Puts final ids into `changes`, which are those of `prepared`; returns the terms that are still new.
pub(super) fn assign(
    prepared: &Prepared,
    newest: &Snapshot,
    changes: &mut Probed,
) -> Result<Keyed> {
    let Prepared { base, terms, .. } = prepared;
    let mut kinds = KINDS.into_iter();
    let moved = kinds.any(|kind| {
        base.dictionary().next_payload(kind) != newest.dictionary().next_payload(kind)
            && terms.iter().any(|(id, _)| id.kind() == kind)
    });
    if !moved {
        return Ok(terms.clone());
    }
    let mut new = NewTerms::default();
    let mut private: HashMap<TermId, TermId, RandomState> = HashMap::default();
    for (id, key) in terms {
        let parts = triple_parts(key).filter(|_| id.kind() == Kind::Triple);
        let local = match parts {
            Some(parts) => new.triple(parts.map(|id| *private.get(&id).unwrap_or(&id)))?,
            None => new.intern(id.kind(), key)?,
        };
        private.insert(*id, local);
    }
    let resolved = new.resolve(base, newest)?;
    changes.rewrite(|id| private.get(&id).map_or(id, |local| resolved.id(*local)));
    Ok(resolved.into_new())
}

/// Gives effective changes those of the new terms that they name.
pub(super) fn attach(
    changes: &mut EffectiveChanges,
    mut terms: Keyed,
    newest: &Snapshot,
) -> Result<()> {
    let mut named = Named::new(newest, &terms);
    changes.ids().for_each(|id| named.mark(id));
    // Triple terms come after their parts.
    for (id, key) in terms.iter().rev() {
        if let Some(parts) = parts(*id, key).filter(|_| named.rank(*id).is_some()) {
            parts.into_iter().for_each(|part| named.mark(part));
        }
    }
    if named.close_gaps() {
        terms.retain(|(id, _)| named.rank(*id).is_some());
        for (id, key) in &mut terms {
            if let Some(parts) = parts(*id, key) {
                *key = triple_key(parts.map(|part| named.id(part))).to_vec();
            }
            *id = named.id(*id);
        }
        changes.renumber(|id| named.id(id));
    }
    let triples = terms.iter().filter_map(|(id, key)| parts(*id, key));
    let blank = changes.ids().chain(triples.flatten());
    let blank = blank.filter(|id| id.kind() == Kind::BlankNode);
    let next = blank.map(|id| id.payload() + 1).max().unwrap_or(0);
    let next = if next > newest.next_blank_node() {
        next
    } else {
        0
    };
    changes.set_terms(Terms::of_ids(terms, next)?);
    Ok(())
}

/// The parts of a triple term.
fn parts(id: TermId, key: &[u8]) -> Option<[TermId; 3]> {
    triple_parts(key).filter(|_| id.kind() == Kind::Triple)
}

/// Which of the new terms are named.
struct Named {
    /// For each kind of the dictionary the payload of the first new term, and for each one whether it is
    /// named; in the end how many of those before it are.
    kinds: [(u64, Vec<Option<u64>>); KINDS.len()],
}

impl Named {
    fn new(newest: &Snapshot, terms: &[(TermId, Vec<u8>)]) -> Self {
        Self {
            kinds: KINDS.map(|kind| {
                let count = terms.iter().filter(|(id, _)| id.kind() == kind).count();
                (newest.dictionary().next_payload(kind), vec![None; count])
            }),
        }
    }

    fn slot(&mut self, id: TermId) -> Option<&mut Option<u64>> {
        let kind = KINDS.iter().position(|kind| *kind == id.kind())?;
        let (first, named) = self.kinds.get_mut(kind)?;
        named.get_mut(usize::try_from(id.payload().checked_sub(*first)?).ok()?)
    }

    fn mark(&mut self, id: TermId) {
        if let Some(slot) = self.slot(id) {
            *slot = Some(0);
        }
    }

    /// How many of those before it are named, if it is a new term and named.
    fn rank(&self, id: TermId) -> Option<u64> {
        let kind = KINDS.iter().position(|kind| *kind == id.kind())?;
        let (first, named) = self.kinds.get(kind)?;
        let place = usize::try_from(id.payload().checked_sub(*first)?).ok()?;
        *named.get(place)?
    }

    /// Numbers those that are named; `false` if they all are.
    fn close_gaps(&mut self) -> bool {
        let mut gaps = false;
        for (_, named) in &mut self.kinds {
            let mut rank = 0;
            for slot in named {
                match slot {
                    Some(slot) => {
                        *slot = rank;
                        rank += 1;
                    }
                    None => gaps = true,
                }
            }
        }
        gaps
    }

    /// The id of a term once the gaps are closed.
    fn id(&self, id: TermId) -> TermId {
        let kind = KINDS.iter().position(|kind| *kind == id.kind());
        let first = kind.and_then(|kind| self.kinds.get(kind));
        match (self.rank(id), first) {
            (Some(rank), Some((first, _))) => TermId::new(id.kind(), first + rank),
            _ => id,
        }
    }
}
