//! Predicates that do not occur in the data, and what may have been meant.
//!
//! A predicate that occurs costs a count, and a look-up if planning has not made it. One that does not is compared with
//! the predicates of the data; where these are many the same name is looked up in other namespaces.

use std::sync::Arc;

use hashbrown::HashSet;
use oxrdf::{NamedNode, NamedNodeRef, Term};
use rapidhash::fast::RandomState;
use stoa_quadstore::Snapshot;
use stoa_storage::nonblocking;
use stoa_terms::{GraphSet, Permutation, TermId};

use super::super::prefixes::well_known_namespaces;
use super::super::similar::Name;
use super::names::Names;
use crate::error::Result;
use crate::limits::PREDICATES_COMPARED_MAX;
use crate::statistics::SnapshotStatistics;

/// So many names are compared by what must not take long.
const COMPARED_AT_ONCE_MAX: usize = 256;

/// Those of some predicates that no quad has.
pub(super) fn unknown<'q>(
    predicates: &[NamedNodeRef<'q>],
    statistics: &SnapshotStatistics<'_>,
) -> Result<Vec<NamedNodeRef<'q>>> {
    let terms: Vec<Term> = predicates.iter().map(|p| p.into_owned().into()).collect();
    let mut unknown = Vec::new();
    for (predicate, id) in predicates.iter().zip(statistics.ids(&terms)?) {
        if !occurs(id, statistics.unrecorded())? {
            unknown.push(*predicate);
        }
    }
    Ok(unknown)
}

fn occurs(id: Option<TermId>, snapshot: &Snapshot) -> Result<bool> {
    let Some(id) = id else { return Ok(false) };
    let count = snapshot.count(Permutation::Psog, &[id], &[], &GraphSet::All)?;
    Ok(count.rows > 0)
}

/// Finds predicates of the data that resemble unknown ones.
pub(super) struct Candidates<'s> {
    snapshot: &'s Snapshot,
    /// The predicates of the data; none if they are many; read when they are first wanted.
    predicates: Option<Arc<[NamedNode]>>,
}

impl<'s> Candidates<'s> {
    pub(super) const fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            predicates: None,
        }
    }

    /// The predicate that was meant, perhaps. Where comparing may take long, or the predicates of the data must be read
    /// first, it is refused to what must not block.
    pub(super) fn meant(&mut self, iri: &str, names: &Names<'_>) -> Result<Option<NamedNode>> {
        let (namespace, local) = split(iri);
        let predicates = self.predicates()?;
        if !local.is_empty()
            && let Some(found) = self.in_other_namespace(namespace, local, names, &predicates)?
        {
            return Ok(Some(found));
        }
        let wanted = Name::new(local).filter(|_| !local.is_empty());
        let mut best: Option<(usize, &NamedNode)> = None;
        for candidate in &*predicates {
            let (its_namespace, its_local) = split(candidate.as_str());
            let found = if its_namespace == namespace {
                wanted.as_ref().and_then(|name| name.differences(its_local))
            } else {
                // As far away as a slip of the pen.
                (its_local == local && !local.is_empty()).then_some(1)
            };
            if let Some(found) = found
                && best.is_none_or(|best| (found, candidate) < best)
            {
                best = Some((found, candidate));
            }
        }
        Ok(best.map(|(_, candidate)| candidate.clone()))
    }

    fn predicates(&mut self) -> Result<Arc<[NamedNode]>> {
        if let Some(known) = &self.predicates {
            return Ok(Arc::clone(known));
        }
        let is_short = |known: &[NamedNode]| (1..=COMPARED_AT_ONCE_MAX).contains(&known.len());
        let known = self.snapshot.predicates_known();
        if !known.is_some_and(|known| is_short(&known)) {
            nonblocking::check()?;
        }
        let predicates = self.snapshot.predicates(PREDICATES_COMPARED_MAX)?;
        self.predicates = Some(Arc::clone(&predicates));
        Ok(predicates)
    }

    /// The same name with another scheme or end of its namespace, in a namespace of the query, or in
    /// a well-known one.
    fn in_other_namespace(
        &self,
        namespace: &str,
        local: &str,
        names: &Names<'_>,
        predicates: &[NamedNode],
    ) -> Result<Option<NamedNode>> {
        // A namespace may end within what looks like a local name.
        let mut names_end = predicates.iter().map(|one| one.as_str().ends_with(local));
        if !predicates.is_empty() && !names_end.any(|is_same| is_same) {
            return Ok(None);
        }
        let rescheme = |from: &str, to: &str| {
            let rest = namespace.strip_prefix(from)?;
            Some(format!("{to}{rest}"))
        };
        let reend = |from: char, to: char| {
            let rest = namespace.strip_suffix(from)?;
            Some(format!("{rest}{to}"))
        };
        let near = [
            rescheme("http://", "https://"),
            rescheme("https://", "http://"),
            reend('/', '#'),
            reend('#', '/'),
        ];
        let near = near.into_iter().flatten();
        let known = well_known_namespaces().map(str::to_owned);
        let others = names.namespaces().map(str::to_owned).chain(known);
        let mut seen: HashSet<String, RandomState> = HashSet::default();
        seen.insert(namespace.to_owned());
        let terms: Vec<Term> = near
            .chain(others)
            .filter(|namespace| seen.insert(namespace.clone()))
            .filter_map(|namespace| NamedNode::new(format!("{namespace}{local}")).ok())
            .map(Term::from)
            .collect();
        for (term, id) in terms.iter().zip(self.snapshot.term_ids(&terms)?) {
            if let Term::NamedNode(name) = term
                && occurs(id, self.snapshot)?
            {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }
}

/// The namespace and the local name of an IRI.
fn split(iri: &str) -> (&str, &str) {
    let end = iri.rfind(['#', '/', ':']).map_or(0, |at| at + 1);
    iri.split_at(end)
}
