//! Lists of terms that are merged by one thread or by several, and the accounts of these threads.
//!
//! # Limits
//! Each thread has an account of its own, with what was reserved for it before; where there is no room for that, or texts
//! turn out longer, one thread does all of it.

use std::sync::{Arc, PoisonError};

use stoa_storage::sync::Mutex;

use super::merge::{Merge, SLICE_BYTES, Target};
use super::ranking::Ids;
use super::team::Team;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::{Memory, STEP_BYTES, UNNAMED};
use crate::operator::parallel::{InOrder, Turn};

/// What a slice of texts takes with their places, when it has just grown.
pub(super) const SLICE_MEMORY_BYTES: u64 = 3 * SLICE_BYTES as u64;

/// See the module header.
pub(super) enum Merging {
    Alone(Merge),
    Shared(InOrder<Merged>, Arc<Lanes>),
    /// Memory was refused; helpers have not left yet.
    Ending(InOrder<Merged>, Arc<Lanes>),
}

/// Numbers of strings or IRIs in order, and those of other literals.
pub(super) type Merged = (Vec<u32>, Vec<u32>);

/// How far a merge is.
pub(super) enum Progress {
    Working,
    Done,
    /// It has to begin anew, alone.
    Refused,
}

/// Accounts that pieces take in turns, each with what is held on it.
pub(super) struct Lanes(Mutex<Vec<Lane>>);

pub(super) struct Lane {
    pub(super) memory: Memory,
    pub(super) held: u64,
}

impl Merging {
    /// `held` is what the account holds beside.
    pub(super) fn new(
        merge: Merge,
        ids: &Arc<Ids>,
        team: Team,
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<Self> {
        let count = merge.count();
        let helpers = team.helpers(count);
        if helpers == 0 || merge.wants_few() || merge.is_merged(ids.ids()) {
            return Ok(Self::Alone(merge));
        }
        let a_lane = merge.lists() as u64 * SLICE_MEMORY_BYTES;
        let Some(lanes) = Lanes::new(1 + helpers, a_lane, (memory, held)) else {
            return Ok(Self::Alone(merge));
        };
        let pieces = count.div_ceil(team.piece(count));
        let merges = match merge.cut(pieces, ids.ids(), (memory, held), context) {
            Ok(merges) => merges,
            Err(Error::MemoryExceeded { .. }) => {
                lanes.join(memory);
                return Ok(Self::Alone(merge));
            }
            Err(error) => return Err(error),
        };
        let merges: Vec<_> = merges
            .into_iter()
            .map(|merge| Mutex::new(Some(merge)))
            .collect();
        let (ids, own) = (Arc::clone(ids), Arc::clone(&lanes));
        let work = move |piece: usize, context: &QueryContext| {
            let merge = merges
                .get(piece)
                .and_then(|merge| merge.lock().unwrap_or_else(PoisonError::into_inner).take());
            let mut merge = merge.ok_or(Error::Internal("a piece that is merged twice"))?;
            own.with(context, |lane| {
                let (mut numbers, mut others) = (Vec::new(), Vec::new());
                loop {
                    let target = (ids.ids(), &mut numbers, &mut others);
                    if merge.step(target, &mut lane.memory, context)? {
                        return Ok((numbers, others));
                    }
                }
            })
        };
        let pieces = InOrder::new(pieces, helpers, pieces, work);
        Ok(Self::Shared(pieces, lanes))
    }

    /// Merges some more.
    pub(super) fn step(
        &mut self,
        (ids, out, others): Target<'_>,
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<Progress> {
        match self {
            Self::Alone(merge) => {
                if merge.step((ids, out, others), memory, context)? {
                    return Ok(Progress::Done);
                }
            }
            Self::Shared(pieces, lanes) => match pieces.next(context) {
                Ok(Turn::Given((strings, rest))) => {
                    out.extend(strings);
                    others.extend(rest);
                }
                Ok(Turn::Working) => (),
                Ok(Turn::Done) => {
                    lanes.join(memory);
                    return Ok(Progress::Done);
                }
                Err(Error::MemoryExceeded { .. }) => {
                    let ended = InOrder::new(0, 0, 1, |_, _| Ok(Merged::default()));
                    let (pieces, lanes) = (std::mem::replace(pieces, ended), Arc::clone(lanes));
                    *self = Self::Ending(pieces, lanes);
                }
                Err(error) => return Err(error),
            },
            Self::Ending(pieces, lanes) => {
                if pieces.stop(context) {
                    lanes.join(memory);
                    return Ok(Progress::Refused);
                }
            }
        }
        Ok(Progress::Working)
    }
}

impl Lanes {
    /// So many accounts with so many bytes each, out of one that holds something beside; `None` if there is no room.
    pub(super) fn new(
        count: usize,
        bytes: u64,
        (memory, held): (&mut Memory, u64),
    ) -> Option<Arc<Self>> {
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        if !memory.try_require(held + count as u64 * bytes) {
            return None;
        }
        let lane = |_| {
            let rest = memory.reserved_bytes().saturating_sub(bytes);
            Lane {
                memory: memory.split_off(rest),
                held: 0,
            }
        };
        let lanes = (0..count).map(lane).collect();
        Some(Arc::new(Self(Mutex::new(lanes))))
    }

    /// Runs with one of them.
    pub(super) fn with<T>(
        &self,
        context: &QueryContext,
        run: impl FnOnce(&mut Lane) -> Result<T>,
    ) -> Result<T> {
        let lanes = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = {
            let mut lanes = lanes();
            // That with the most room.
            let least = (0..lanes.len()).min_by_key(|lane| lanes.get(*lane).map(|lane| lane.held));
            least.map(|lane| lanes.swap_remove(lane))
        };
        let mut lane = lane.unwrap_or_else(|| Lane {
            memory: context.memory(UNNAMED),
            held: 0,
        });
        let outcome = run(&mut lane);
        lanes().push(lane);
        outcome
    }

    /// Puts all of them together into another account; gives what is held on them.
    pub(super) fn join(&self, memory: &mut Memory) -> u64 {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = lanes.iter().map(|lane| lane.held).sum();
        for lane in lanes.drain(..) {
            memory.join(lane.memory);
        }
        held
    }
}
