//! Transactions: read one snapshot, see their own changes, and commit if what they read still holds.
//!
//! A transaction begins with the current snapshot, its *base*. Each of its operations becomes a private
//! batch of the delta above the base's, so that everything that reads a [`Snapshot`] reads the transaction's
//! *view*, too. New terms get provisional ids, those that they would get if it committed at once; nobody else
//! knows them, and at commit they are rewritten if others brought terms since. Blank nodes get their
//! final numbers at once, from a counter of the store, since a client may send them back.
//!
//! What is read through [`Transaction::snapshot`] is recorded (`recorder`, `reads`) and compared with what
//! was committed since, so that transactions are serializable, in the order of their commits.
//!
//! # Invariants
//! 1. A transaction that commits read what it would have read had it run alone at its place in the order of
//!    commits (tests/transactions.rs; testsuite/tests/serializable.rs).
//! 2. What a transaction does is seen by nobody else before it has committed, and not at all if it is dropped.
//!
//! # Concurrency
//! Beginning, reading and changing take no lock but that of the transaction's own record of reads.
//!
//! # Limits
//! Changes are reserved of the memory budget twice: as batches of the view, and as what is to be committed, 40
//! bytes a quad.

mod conflict;
mod reads;
mod recorder;

use std::borrow::Cow;
use std::sync::Arc;

use stoa_storage::{LogMark, Reservation};
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

pub use conflict::{Clash, Conflict};
pub(crate) use reads::ReadSet;
pub(crate) use recorder::Recorder;

use crate::commit::{Committed, Living, Prepared, Submitted};
use crate::delta::{Changes, GraphChange, GraphMask, NewTerms, Probed, Resolved};
use crate::error::{Error, Result};
use crate::quad_store::QuadStore;
use crate::read::{Columns, QuadColumns, ScanSpec};
use crate::snapshot::Snapshot;

/// Quads that are read at a time where graphs are cleared.
const READ_QUADS: usize = 1 << 12;

/// How a transaction is begun.
#[derive(Clone, Debug, Default)]
pub struct TransactionOptions {
    /// Nothing that is read is recorded, and the transaction is never in conflict: for changes that depend on
    /// nothing that was read; and for tests that want to see what goes wrong otherwise.
    #[doc(hidden)]
    pub unvalidated: bool,
}

/// How a transaction is committed.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// What the list of commits says of it.
    pub message: Option<String>,
}

/// What changes came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChangeCounts {
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
}

/// See the module header. Dropping it undoes it.
pub struct Transaction {
    store: QuadStore,
    living: Living,
    /// None if nothing is recorded.
    recorder: Option<Arc<Recorder>>,
    /// What it reads, by a handle that does not record.
    view: Snapshot,
    /// What it wants, the oldest first; each at least twice as large as the next.
    operations: Vec<Arc<Operation>>,
}

/// A state of a transaction to which it can go back.
pub struct Savepoint {
    view: Snapshot,
    operations: Vec<Arc<Operation>>,
}

/// What one operation wants, or several that follow each other.
struct Operation {
    /// Probed against the view before it; ids are provisional.
    changes: Probed,
    /// Its new terms in the order in which they got their ids.
    terms: Vec<(TermId, Vec<u8>)>,
    reservation: Reservation,
}

impl Operation {
    fn new(store: &QuadStore, changes: Probed, terms: Vec<(TermId, Vec<u8>)>) -> Result<Self> {
        let keys = terms.iter().map(|(_, key)| key.len());
        let bytes = changes.memory_bytes()
            + size_of_val(terms.as_slice()) as u64
            + keys.sum::<usize>() as u64;
        let reservation = store.store().cache().budget().try_reserve(bytes);
        Ok(Self {
            changes,
            terms,
            reservation: reservation.map_err(stoa_storage::Error::from)?,
        })
    }

    /// Two that follow each other.
    fn joined(store: &QuadStore, one: &Self, two: &Self) -> Result<Self> {
        let mut changes = one.changes.clone();
        changes.then(&two.changes);
        let terms = one.terms.iter().chain(&two.terms).cloned().collect();
        Self::new(store, changes, terms)
    }

    fn len(&self) -> usize {
        self.changes.len() + self.terms.len()
    }
}

impl QuadStore {
    /// Begins a transaction on what the store shows now.
    ///
    /// # Errors
    /// None yet.
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        let living = self.living();
        let base = living.base();
        let recorder = (!options.unvalidated).then(|| Recorder::new(ReadSet::new(base)));
        // Batches of others stay as they are.
        let view = base.with_delta(base.delta().as_base(), base.commit());
        Ok(Transaction {
            store: self.clone(),
            recorder: recorder.map(Arc::new),
            view,
            operations: Vec::new(),
            living,
        })
    }
}

impl Transaction {
    /// The number of the commit that it reads.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.living.base().commit()
    }

    /// What it reads: its base and its own changes so far. Reads through the handle and its clones are
    /// recorded until the transaction has ended; what is read later nobody has checked.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        match &self.recorder {
            Some(recorder) => self.view.recorded(Arc::clone(recorder)),
            None => self.view.clone(),
        }
    }

    /// A new blank node, under its final id.
    #[must_use]
    pub fn blank_node(&self) -> TermId {
        self.store.blank_node()
    }

    /// Whether an id is that of a blank node which was given to somebody.
    #[must_use]
    pub fn is_blank_node(&self, id: TermId) -> bool {
        id.kind() == Kind::BlankNode && id.payload() < self.store.take_blank_nodes(0)
    }

    /// Whether it wants anything changed.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.operations
            .iter()
            .any(|operation| !operation.changes.is_empty())
    }

    /// What its changes take of the memory budget, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let operations = self.operations.iter();
        let wanted: u64 = operations.map(|one| one.reservation.bytes()).sum();
        let before = self.living.base().delta().memory_bytes();
        wanted + self.view.delta().memory_bytes().saturating_sub(before)
    }

    /// The store that it belongs to.
    #[must_use]
    pub fn store(&self) -> &QuadStore {
        &self.store
    }

    /// Removes and adds quads, and makes graphs exist or not; the view shows it afterwards. Ids are those
    /// of the view, or private ones of `terms`, which the view was asked for and does not know.
    /// Returns what differs from the view before.
    ///
    /// What is wanted is not read: it is done on top of what was committed meanwhile.
    ///
    /// # Errors
    /// If the trees cannot be read, or the memory budget does not allow for the changes; the
    /// transaction is as it was then.
    pub fn change(&mut self, terms: &NewTerms, changes: &Changes) -> Result<ChangeCounts> {
        self.change_while(terms, changes, &|| true)
    }

    /// As [`Self::change`], as long as `go_on` says so, which is asked now and then.
    ///
    /// # Errors
    /// [`Error::Cancelled`] as well, if it does not.
    pub fn change_while(
        &mut self,
        terms: &NewTerms,
        changes: &Changes,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        let check = || match go_on() {
            true => Ok(()),
            false => Err(Error::Cancelled),
        };
        let first_blank = self.store.take_blank_nodes(terms.blank_nodes());
        let resolved = terms.resolve_with(self.living.base(), &self.view, first_blank)?;
        let changes = with_ids(changes, terms, &resolved);
        let mut probed = self.view.probe_while(&changes, go_on)?;
        probed.resolve(&resolved)?;
        let mut effective = probed.effective();
        self.view.count_cleared(&mut effective)?;
        check()?;
        let view = match effective.is_empty() {
            true => self.view.clone(),
            false => {
                let budget = self.store.store().cache().budget();
                let graph_first = self.view.has_graph_first();
                let mut delta = self.view.delta_with(&effective)?;
                check()?;
                while let Some(merged) = delta.merged(graph_first, budget)?
                    && let Some(replaced) = delta.replace(&merged)
                {
                    delta = replaced;
                    check()?;
                }
                self.view.with_delta(delta, self.view.commit())
            }
        };
        let operation = Operation::new(&self.store, probed, resolved.into_new())?;
        let mut operations = self.operations.clone();
        operations.push(Arc::new(operation));
        while let [.., one, two] = operations.as_slice()
            && one.len() < two.len().saturating_mul(2)
        {
            let joined = Operation::joined(&self.store, one, two)?;
            operations.truncate(operations.len() - 2);
            operations.push(Arc::new(joined));
        }
        self.view = view;
        self.operations = operations;
        Ok(ChangeCounts {
            added: effective.added_count(),
            removed: effective.removed_count(),
        })
    }

    /// Removes all quads of some graphs, then makes graphs exist or not. `go_on` is asked as for
    /// [`Self::change_while`].
    ///
    /// However many quads there are, this takes no longer than for `masked_above` of them
    /// ([`QuadStoreOptions`](crate::QuadStoreOptions)). The quads are not read then, and what others commit to the graphs
    /// meanwhile is no conflict: it is removed as well.
    ///
    /// # Errors
    /// As [`Self::change_while`]. The transaction is as it was then.
    pub fn clear(
        &mut self,
        graphs: &GraphSet,
        then: Vec<GraphChange>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        let cleared = GraphMask::from(graphs);
        let mut changes = Changes {
            graphs: then,
            ..Changes::default()
        };
        if self.view.quads_of_all(&cleared)? > self.store.0.options.masked_above {
            changes.cleared = cleared;
        } else {
            changes.removed = self.quads_in(graphs, go_on)?;
        }
        self.change_while(&NewTerms::default(), &changes, go_on)
    }

    /// The quads of some graphs, which are few.
    fn quads_in(&self, graphs: &GraphSet, go_on: &dyn Fn() -> bool) -> Result<Vec<[TermId; 4]>> {
        let mut scan = self.snapshot().scan(&ScanSpec {
            permutation: Permutation::Spog,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs: graphs.clone(),
            columns: Columns::ALL,
            with_graph: true,
        })?;
        let (mut quads, mut rows) = (Vec::new(), QuadColumns::default());
        while scan.next(READ_QUADS, &mut rows)? {
            if !go_on() {
                return Err(Error::Cancelled);
            }
            let [subjects, predicates, objects, graphs] = &rows.columns;
            let triples = subjects.iter().zip(predicates).zip(objects).zip(graphs);
            quads.extend(triples.map(|(((s, p), o), g)| [*s, *p, *o, *g]));
        }
        Ok(quads)
    }

    /// The state that it has now.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            view: self.view.clone(),
            operations: self.operations.clone(),
        }
    }

    /// Undoes what was done after a savepoint of the same transaction. What was read meanwhile counts as
    /// read. Handles that were given meanwhile are not to be read any more: the ids of new terms will be
    /// those of others.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) {
        // The ids of terms that go away will be those of others.
        self.name_own();
        self.view = savepoint.view;
        self.operations = savepoint.operations;
    }

    fn name_own(&self) {
        if let Some(recorder) = &self.recorder {
            let terms = self
                .operations
                .iter()
                .flat_map(|operation| &operation.terms);
            recorder.name_own(terms.map(|(id, key)| (*id, key.as_slice())));
        }
    }

    /// Commits what was done; returns when that is as durable as the store was opened for. Without
    /// changes there is no commit, and what was read is that of its base; the time is 0 then.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if others changed what was read; what the log gives. Nothing is changed
    /// then.
    pub fn commit(self, options: CommitOptions) -> Result<Committed> {
        self.submit(options)?.wait()
    }

    /// As [`Transaction::commit`], but returns when the commit is decided and only the log may fail.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn submit(self, options: CommitOptions) -> Result<Submitted> {
        self.name_own();
        let reads = self
            .recorder
            .as_ref()
            .and_then(|recorder| recorder.finish());
        if !self.has_changes() {
            let committed = Committed {
                commit: self.base(),
                ..Committed::default()
            };
            let base = self.living.base().clone();
            return Ok(Submitted::new(
                &self.store.0,
                base,
                LogMark::default(),
                committed,
            ));
        }
        let mut changes = Probed::default();
        let mut terms = Vec::new();
        for operation in &self.operations {
            changes.then(&operation.changes);
            terms.extend_from_slice(&operation.terms);
        }
        if changes.clears() {
            // Operations behind the one that cleared a graph found nothing there.
            self.living.base().probe_kept(&mut changes)?;
        }
        self.store.submit(&Prepared {
            base: self.living.base().clone(),
            changes,
            terms,
            reads,
            message: options.message,
        })
    }
}

/// Changes with the ids that private ones became.
fn with_ids<'a>(changes: &'a Changes, terms: &NewTerms, resolved: &Resolved) -> Cow<'a, Changes> {
    if terms.is_empty() {
        return Cow::Borrowed(changes);
    }
    let quads = |quads: &[[TermId; 4]]| {
        let quads = quads.iter().map(|quad| quad.map(|id| resolved.id(id)));
        quads.collect::<Vec<_>>()
    };
    let graph = |change: &GraphChange| GraphChange {
        graph: resolved.id(change.graph),
        created: change.created,
    };
    Cow::Owned(Changes {
        cleared: changes.cleared.renumbered(|id| resolved.id(id)),
        removed: quads(&changes.removed),
        added: quads(&changes.added),
        graphs: changes.graphs.iter().map(graph).collect(),
    })
}
