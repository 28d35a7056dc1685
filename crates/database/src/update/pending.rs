//! Changes that an operation gathers before it hands them to the transaction.
//!
//! # Limits
//! 32 bytes a quad, and what its new terms take, reserved from the memory budget.

use stoa_quadstore::{ChangeCounts, Changes, GraphChange};
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{GraphSet, TermId};

use super::destination::Destination;
use super::ids::Ids;
use crate::error::{Error, Result};

/// Subject, predicate, object, graph.
pub(crate) type Quad = [TermId; 4];

/// Bytes of a quad.
const QUAD_BYTES: u64 = size_of::<Quad>() as u64;

/// How often quads that wait, and their new terms, take their own memory once a transaction has them.
pub(crate) const QUAD_TIMES: u64 = 6;
const TERM_TIMES: u64 = 2;

/// What a list is made for at first.
const FIRST_QUADS: usize = 64;

/// Changes, and the memory that they take.
#[derive(Default)]
pub(crate) struct Pending {
    changes: Changes,
    reservation: Option<Reservation>,
    /// How much of it is for private terms.
    terms_bytes: u64,
}

impl Pending {
    /// Adds a quad that is to be there.
    pub(crate) fn add(&mut self, quad: Quad, budget: &MemoryBudget) -> Result<()> {
        let list = &mut self.changes.added;
        push(list, quad, &mut self.reservation, budget)
    }

    /// Adds a quad that is not to be there, unless it is added, too.
    pub(crate) fn remove(&mut self, quad: Quad, budget: &MemoryBudget) -> Result<()> {
        let list = &mut self.changes.removed;
        push(list, quad, &mut self.reservation, budget)
    }

    /// Makes a graph exist even if it is empty, or only as long as it has quads.
    pub(crate) fn graph(&mut self, graph: TermId, created: bool) {
        self.changes.graphs.push(GraphChange { graph, created });
    }

    /// Reserves what the private terms of the changes take.
    pub(crate) fn hold_terms(&mut self, ids: &Ids, budget: &MemoryBudget) -> Result<()> {
        let bytes = ids.terms().memory_bytes() as u64;
        if bytes > self.terms_bytes {
            reserve(&mut self.reservation, budget, bytes - self.terms_bytes)?;
            self.terms_bytes = bytes;
        }
        Ok(())
    }

    /// How many quads there are.
    pub(crate) fn len(&self) -> usize {
        self.changes.added.len() + self.changes.removed.len()
    }

    /// What is reserved for them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// About how much a transaction takes that has them.
    pub(crate) fn bytes_within(&self) -> u64 {
        let quads = self.reserved_bytes().saturating_sub(self.terms_bytes);
        QUAD_TIMES * quads + TERM_TIMES * self.terms_bytes
    }

    /// Hands everything to the destination, where it is visible once its operation has ended, and is empty then.
    ///
    /// # Errors
    /// What the disk gives, `MemoryExceeded`; `Cancelled` if `go_on`, which is asked now and then, says no.
    pub(crate) fn apply(
        &mut self,
        destination: &mut dyn Destination,
        ids: &Ids,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        if self.len() == 0 && self.changes.graphs.is_empty() {
            return Ok(ChangeCounts {
                added: 0,
                removed: 0,
            });
        }
        let counts = destination.change(ids.terms(), &self.changes, go_on);
        self.changes.added.clear();
        self.changes.removed.clear();
        self.changes.graphs.clear();
        counts.map_err(|error| named(error.into()))
    }
}

/// Removes all quads of some graphs, then makes graphs exist or not.
///
/// # Errors
/// As [`Pending::apply`].
pub(crate) fn clear(
    destination: &mut dyn Destination,
    graphs: &GraphSet,
    then: Vec<GraphChange>,
    go_on: &dyn Fn() -> bool,
) -> Result<ChangeCounts> {
    let counts = destination.clear(graphs, then, go_on);
    counts.map_err(|error| named(error.into()))
}

fn push(
    list: &mut Vec<Quad>,
    quad: Quad,
    reservation: &mut Option<Reservation>,
    budget: &MemoryBudget,
) -> Result<()> {
    if list.len() == list.capacity() {
        let more = list.capacity().max(FIRST_QUADS);
        reserve(reservation, budget, more as u64 * QUAD_BYTES)?;
        list.reserve_exact(more);
    }
    list.push(quad);
    Ok(())
}

/// Reserves so many bytes more for the changes of a transaction.
pub(crate) fn reserve(
    reservation: &mut Option<Reservation>,
    budget: &MemoryBudget,
    bytes: u64,
) -> Result<()> {
    let done = match reservation {
        Some(reservation) => reservation.grow(bytes),
        None => budget
            .try_reserve(bytes)
            .map(|new| *reservation = Some(new)),
    };
    done.map_err(|exceeded| Error::MemoryExceeded {
        operator: CHANGES.to_owned(),
        requested_bytes: exceeded.requested,
        limit_bytes: exceeded.limit,
    })
}

/// What is told to need memory.
const CHANGES: &str = "what the transaction changes";

/// Refuses changes that take more than their share of the memory.
pub(crate) fn verify_share(budget: &MemoryBudget, bytes: u64, bytes_max: u64) -> Result<()> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(Error::MemoryExceeded {
        operator: CHANGES.to_owned(),
        requested_bytes: bytes,
        limit_bytes: budget.limit(),
    })
}

/// Whether an error says that changes take too much memory.
pub(crate) fn is_beyond_memory(error: &Error) -> bool {
    matches!(error, Error::MemoryExceeded { operator, .. } if operator.starts_with(CHANGES))
}

/// Tells that it was the changes that needed memory.
pub(super) fn named(error: Error) -> Error {
    match error {
        Error::MemoryExceeded {
            requested_bytes,
            limit_bytes,
            ..
        } => Error::MemoryExceeded {
            operator: CHANGES.to_owned(),
            requested_bytes,
            limit_bytes,
        },
        other => other,
    }
}
