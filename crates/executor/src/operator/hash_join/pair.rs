//! A left and a right part of a hash join on disk, joined slice by slice; several of them at once by several threads.
//!
//! # Limits
//! A slice with its tables, reserved, and a byte for each row of a left part that is read repeatedly. Each lane beyond the
//! first has what it must have reserved before there is a crew, and keeps that until it goes; and there are no more lanes than
//! parts that are held at once without being cut into more slices.

use std::sync::Arc;

use stoa_terms::TermId;

use super::super::parallel::crew::Lane;
use super::super::row_store::RowStore;
use super::build_side::{BuildSide, TABLE_BYTES, may_add};
use super::prober::Prober;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::spill::{RowReader, SpilledRows};

/// A left and a right part.
pub(super) struct Pair {
    left: Arc<SpilledRows>,
    right: RowReader,
    right_width: usize,
    /// What did not fit into the last slice.
    rest: Option<Batch>,
    state: State,
    matched: Matched,
    room: Room,
}

/// A slice of the right part.
enum State {
    Reading(RowStore),
    Probing(Box<Slice>),
    /// While it goes from one to the other.
    Between,
}

/// A slice that is probed.
struct Slice {
    side: BuildSide,
    is_last: bool,
    reader: RowReader,
    /// How many left rows were probed before the batch that is.
    done: usize,
}

/// For each left row whether it has found a partner in an earlier slice; empty at the first one.
struct Matched {
    rows: Vec<bool>,
    memory: Memory,
}

/// What slices are reserved by, and what is known of left rows.
struct Accounts {
    slice: Memory,
    matched: Memory,
}

/// What may be taken.
#[derive(Clone, Copy)]
struct Room {
    /// So many bytes stay reserved from one slice to the next.
    kept_bytes: u64,
    /// How many pairs are joined at once.
    lanes: usize,
}

/// The left and the right parts that are joined by several threads, as far as something may come of them.
pub(super) struct Parts {
    /// How many there are.
    pub(super) pairs: usize,
    /// The rows of the largest left one, and of the largest right one.
    pub(super) left_rows: u64,
    pub(super) right_rows: u64,
    pub(super) right_width: usize,
}

/// Joins one pair after the other.
pub(super) struct PairLane {
    prober: Prober,
    right_width: usize,
    room: Room,
    /// With the pair while there is one.
    accounts: Option<Accounts>,
    pair: Option<Pair>,
}

impl Accounts {
    fn new(context: &QueryContext) -> Self {
        Self {
            slice: context.memory("hash_join"),
            matched: context.memory("hash_join"),
        }
    }
}

impl PairLane {
    /// A lane for each thread: one, which takes what it must when it must, and others as there is room for. None where that
    /// one would be alone.
    pub(super) fn several(
        parts: &Parts,
        threads: usize,
        prober: &Prober,
        context: &QueryContext,
    ) -> Vec<Self> {
        let Some(spill) = context.settings().spill.as_ref() else {
            return Vec::new();
        };
        let row_bytes = (2 * parts.right_width * size_of::<TermId>() + TABLE_BYTES) as u64;
        // With so many rows a slice can be begun, whatever others hold.
        let first_rows = (spill.rows_min + 2 * context.batch_rows()) as u64;
        let first_bytes = first_rows * row_bytes;
        let matched_bytes = match prober.needs_matched() {
            true => 2 * parts.left_rows,
            false => 0,
        };
        let mut wanted = parts.pairs.min(threads);
        if parts.right_rows > first_rows {
            let held = spill.after_bytes / (parts.right_rows * row_bytes);
            wanted = wanted.min(usize::try_from(held).unwrap_or(usize::MAX));
        }
        let mut lanes = Vec::new();
        for number in 0..wanted {
            let mut accounts = Accounts::new(context);
            let is_first = number == 0;
            let has_room = is_first
                || accounts.slice.try_require(first_bytes)
                    && accounts.matched.try_require(matched_bytes);
            let Some(prober) = prober.another().filter(|_| has_room) else {
                break;
            };
            lanes.push(Self {
                prober,
                right_width: parts.right_width,
                room: Room {
                    kept_bytes: if is_first { 0 } else { first_bytes },
                    lanes: 1,
                },
                accounts: Some(accounts),
                pair: None,
            });
        }
        if lanes.len() < 2 {
            lanes.clear();
        }
        let all = lanes.len();
        for lane in &mut lanes {
            lane.room.lanes = all;
        }
        lanes
    }
}

impl Lane for PairLane {
    type Task = (SpilledRows, SpilledRows);

    fn begin(&mut self, parts: Self::Task) {
        if let Some(accounts) = self.accounts.take() {
            self.pair = Some(Pair::new(parts, self.right_width, accounts, self.room));
        }
    }

    fn advance(&mut self, context: &QueryContext) -> Result<Option<Batch>> {
        context.check()?;
        let Some(pair) = &mut self.pair else {
            return Err(Error::Internal("a lane that was given a pair and has none"));
        };
        if let Some(batch) = pair.next(&mut self.prober, context)? {
            return Ok((!batch.is_empty()).then_some(batch));
        }
        self.prober.let_go();
        if let Some(pair) = self.pair.take() {
            self.accounts = Some(pair.into_accounts()?);
        }
        Ok(None)
    }

    fn is_idle(&self) -> bool {
        self.accounts.is_some()
    }
}

impl Pair {
    /// For one thread that joins no other at the same time.
    pub(super) fn alone(
        parts: (SpilledRows, SpilledRows),
        right_width: usize,
        context: &QueryContext,
    ) -> Self {
        let room = Room {
            kept_bytes: 0,
            lanes: 1,
        };
        Self::new(parts, right_width, Accounts::new(context), room)
    }

    fn new(
        (left, right): (SpilledRows, SpilledRows),
        right_width: usize,
        accounts: Accounts,
        room: Room,
    ) -> Self {
        let memory = accounts.slice.among(room.lanes);
        Self {
            left: Arc::new(left),
            right: RowReader::new(right),
            right_width,
            rest: None,
            state: State::Reading(RowStore::new(right_width, memory)),
            matched: Matched {
                rows: Vec::new(),
                memory: accounts.matched,
            },
            room,
        }
    }

    /// What it has reserved, for the next pair.
    fn into_accounts(self) -> Result<Accounts> {
        let mut slice = match self.state {
            State::Reading(mut rows) => rows.memory().split_off(0),
            State::Probing(slice) => slice.side.into_memory(),
            State::Between => return Err(Error::Internal("a pair between two slices")),
        };
        slice.shrink_to(self.room.kept_bytes);
        let matched = self.matched.memory;
        Ok(Accounts { slice, matched })
    }

    /// The next output, maybe without rows; `None` when the parts are joined.
    pub(super) fn next(
        &mut self,
        prober: &mut Prober,
        context: &QueryContext,
    ) -> Result<Option<Batch>> {
        let slice = match &mut self.state {
            State::Probing(slice) => slice,
            State::Reading(_) | State::Between => {
                self.read(prober, context)?;
                return Ok(Some(Batch::default()));
            }
        };
        if !prober.is_idle() {
            let batch = prober.step(&slice.side, context)?;
            if prober.is_idle() {
                slice.done += self.matched.note(slice, prober)?;
            }
            return Ok(Some(batch));
        }
        if let Some(batch) = slice.reader.next()? {
            match self.matched.of(slice.done, batch.rows) {
                Some(matched) => prober.start_with(batch, matched),
                None => prober.start(batch),
            }
            return Ok(Some(Batch::default()));
        }
        if slice.is_last {
            return Ok(None);
        }
        prober.let_go();
        if let State::Probing(slice) = std::mem::replace(&mut self.state, State::Between) {
            let mut memory = slice.side.into_memory();
            memory.shrink_to(self.room.kept_bytes);
            let memory = memory.among(self.room.lanes);
            self.state = State::Reading(RowStore::new(self.right_width, memory));
        }
        Ok(Some(Batch::default()))
    }

    /// Reads some of the next slice.
    fn read(&mut self, prober: &mut Prober, context: &QueryContext) -> Result<()> {
        let State::Reading(rows) = &mut self.state else {
            return Err(Error::Internal("no slice that is read"));
        };
        let batch = match self.rest.take() {
            Some(rest) => Some(rest),
            None => self.right.next()?,
        };
        let is_last = batch.is_none();
        if let Some(batch) = batch {
            if may_add(rows, &batch, context)? {
                return rows.append(&batch);
            }
            self.rest = Some(batch);
        }
        let compatible = prober.columns.compatible.iter();
        let compatible: Vec<_> = compatible.map(|(_, right)| *right).collect();
        prober.turn_to(is_last);
        if let State::Reading(rows) = std::mem::replace(&mut self.state, State::Between) {
            self.state = State::Probing(Box::new(Slice {
                side: BuildSide::new(rows, &compatible)?,
                is_last,
                reader: RowReader::shared(&self.left),
                done: 0,
            }));
        }
        Ok(())
    }
}

impl Matched {
    /// What is known of `count` rows from `start` on; `None` at the first slice.
    fn of(&self, start: usize, count: usize) -> Option<&[bool]> {
        self.rows.get(start..start + count)
    }

    /// Notes what has become of the batch that was probed last; gives how many rows it had.
    fn note(&mut self, slice: &Slice, prober: &Prober) -> Result<usize> {
        let matched = prober.matched();
        if !prober.needs_matched() || slice.is_last {
            return Ok(matched.len());
        }
        match self.rows.get_mut(slice.done..slice.done + matched.len()) {
            Some(rows) => rows.copy_from_slice(matched),
            None => {
                // They come in order at the first slice.
                let bytes = 2 * (self.rows.len() + matched.len());
                self.memory.require(bytes as u64)?;
                self.rows.extend_from_slice(matched);
            }
        }
        Ok(matched.len())
    }
}
