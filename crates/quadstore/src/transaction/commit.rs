//! Commits of transactions into the delta, one after the other.
//!
//! What a transaction read is compared with what was committed since it began; its new terms get their
//! final ids; what it wants is compared with what is there by now; what then has an effect is the next
//! commit.
//!
//! # Concurrency
//! Under one lock, above that of the store's own commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_terms::{Kind, TermId};

use super::reads::ReadSet;
use crate::delta::{EffectiveChanges, NewTerms, Probed, Terms};
use crate::dictionary::triple_parts;
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::snapshot::Snapshot;

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Committed {
    /// Its number; that of the last commit if there was nothing to do.
    pub commit: u64,
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
    /// Its time, in microseconds since 1970; never less than that of a commit before.
    pub time_us: u64,
}

/// What a transaction wants committed.
pub(crate) struct Prepared {
    /// What it read, without its own changes.
    pub(crate) base: Snapshot,
    /// The net of all its operations, probed against `base`; new terms have provisional ids.
    pub(crate) changes: Probed,
    /// Provisional id and key of each new term; the parts of a triple term come before it.
    pub(crate) terms: Vec<(TermId, Vec<u8>)>,
    /// What must not have changed since; `None` for changes that depend on nothing that was read.
    pub(crate) reads: Option<ReadSet>,
    /// What the list of commits says of it.
    #[expect(dead_code, reason = "there is no list of commits yet")]
    pub(crate) message: Option<String>,
}

/// What was committed since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    since: Mutex<Vec<(u64, Arc<EffectiveChanges>)>>,
    blank_nodes: AtomicU64,
}

/// A transaction that has not ended.
pub(crate) struct Living(Snapshot);

impl Living {
    /// The snapshot that it reads.
    pub(crate) fn base(&self) -> &Snapshot {
        &self.0
    }
}

impl QuadStore {
    /// The current snapshot, for a transaction that will commit on top of it.
    pub(crate) fn living(&self) -> Living {
        Living(self.snapshot())
    }

    /// The first of so many numbers that no blank node has, and none will get but those of the caller.
    pub(crate) fn take_blank_nodes(&self, count: u64) -> u64 {
        let next = &self.commits().blank_nodes;
        next.fetch_max(self.snapshot().next_blank_node(), Ordering::AcqRel);
        next.fetch_add(count, Ordering::AcqRel)
    }

    /// Commits what a transaction wants.
    pub(crate) fn commit(&self, prepared: &Prepared) -> Result<Committed> {
        let commits = self.commits().since.lock();
        let mut commits = commits.unwrap_or_else(PoisonError::into_inner);
        let (base, newest) = (&prepared.base, self.snapshot());
        let first = commits.partition_point(|(commit, _)| *commit <= base.commit());
        let since = commits.get(first..).unwrap_or_default();
        let are_known = since.len() as u64 == newest.commit() - base.commit();
        if let Some(reads) = &prepared.reads {
            if !are_known {
                return Err(Error::Expired {
                    base: base.commit(),
                });
            }
            for (commit, changes) in since {
                if let Some(mut conflict) = reads.conflict(changes) {
                    conflict.commit = *commit;
                    return Err(Error::Conflict(Box::new(conflict)));
                }
            }
        }
        let mut changes = prepared.changes.clone();
        let terms = assign(prepared, &newest, &mut changes)?;
        if are_known {
            since.iter().for_each(|(_, since)| changes.recheck(since));
        } else {
            newest.probe_again(&mut changes)?;
        }
        let mut effective = changes.effective();
        if !effective.has_effect() {
            return Ok(Committed {
                commit: newest.commit(),
                ..Committed::default()
            });
        }
        let blank = effective.ids().filter(|id| id.kind() == Kind::BlankNode);
        let next = blank.map(|id| id.payload() + 1).max().unwrap_or(0);
        effective.set_terms(Terms::of_ids(terms, next)?);
        let commit = self.apply(&effective)?.commit();
        let committed = Committed {
            commit,
            added: effective.added().len() as u64,
            removed: effective.removed().len() as u64,
            time_us: 0,
        };
        commits.push((commit, Arc::new(effective)));
        Ok(committed)
    }
}

/// Puts final ids into `changes`; returns the terms that are still new.
fn assign(
    prepared: &Prepared,
    newest: &Snapshot,
    changes: &mut Probed,
) -> Result<Vec<(TermId, Vec<u8>)>> {
    let mut new = NewTerms::default();
    let mut private: HashMap<TermId, TermId, RandomState> = HashMap::default();
    for (id, key) in &prepared.terms {
        let parts = triple_parts(key).filter(|_| id.kind() == Kind::Triple);
        let local = match parts {
            Some(parts) => new.triple(parts.map(|id| *private.get(&id).unwrap_or(&id)))?,
            None => new.intern(id.kind(), key)?,
        };
        private.insert(*id, local);
    }
    let resolved = new.resolve(&prepared.base, newest)?;
    changes.rewrite(|id| private.get(&id).map_or(id, |local| resolved.id(*local)));
    Ok(resolved.into_new())
}
