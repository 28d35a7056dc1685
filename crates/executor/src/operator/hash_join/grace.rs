//! Grace hash join: both sides on disk, scattered by the hash of the keys, and joined part by part.
//!
//! A right part that memory does not hold, since all rows of a key belong there or there is no key, is joined slice
//! by slice: the left part is read for each, and what is known of its rows is kept from one to the next. Where the
//! order of the left side is needed its rows have numbers, by which the output is merged in the end.
//!
//! # Limits
//! A slice with its tables, reserved, and a byte for each row of a left part that is read repeatedly.
//!
//! # References
//! Kitsuregawa, Tanaka, Moto-oka: Application of Hash to Data Base Machine and Its Architecture, 1983.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::row_store::RowStore;
use super::build_side::{BuildSide, may_add, scatter};
use super::left_side::LeftSide;
use super::prober::Prober;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{ByNumber, Numbers, Partitions, RowReader, Runs, Sequences, SpilledRows};

/// See the module header.
pub(super) struct Grace {
    /// Right parts, in the order of their numbers.
    right: VecDeque<SpilledRows>,
    right_width: usize,
    counters: Arc<Counters>,
    /// Numbers of the left rows and the output, if the order is needed.
    ordered: Option<(Numbers, Sequences)>,
    stage: Stage,
}

enum Stage {
    /// The left side is read.
    Scattering {
        parts: Partitions,
        hashes: Vec<u64>,
    },
    /// Left parts that were not joined yet, and the one that is.
    Joining {
        left: VecDeque<SpilledRows>,
        pair: Option<Box<Pair>>,
    },
    Merging(Runs<ByNumber>),
}

/// A left and a right part.
struct Pair {
    left: Arc<SpilledRows>,
    right: RowReader,
    /// What did not fit into the last slice.
    rest: Option<Batch>,
    /// The slice that is being read.
    rows: RowStore,
    slice: Option<Slice>,
    matched: Matched,
}

/// A slice of the right part that is probed.
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

impl Grace {
    /// For the parts of the right side. The output of `prober` gets the numbers of its left rows, if need be.
    pub(super) fn new(
        right: VecDeque<SpilledRows>,
        (left_width, right_width): (usize, usize),
        is_ordered: bool,
        prober: &mut Prober,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let ordered = match is_ordered {
            true => {
                prober.carry(left_width);
                let sequences = Sequences::new(prober.output_width(), context, counters)?;
                Some((Numbers::default(), sequences))
            }
            false => None,
        };
        let width = left_width + usize::from(is_ordered);
        Ok(Self {
            right,
            right_width,
            counters: Arc::clone(counters),
            ordered,
            stage: Stage::Scattering {
                parts: Partitions::new(width, 0, context.memory("hash_join"), context, counters)?,
                hashes: Vec::new(),
            },
        })
    }

    pub(super) fn next(
        &mut self,
        left: &mut LeftSide,
        prober: &mut Prober,
        context: &QueryContext,
    ) -> Result<Step> {
        match &mut self.stage {
            Stage::Scattering { parts, hashes } => match left.next(context)? {
                Step::Batch(mut batch) => {
                    if let Some((numbers, _)) = &mut self.ordered {
                        batch.columns.push(numbers.next(batch.rows));
                    }
                    let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
                    let keys: Vec<_> = prober.columns.keys.iter().map(|(left, _)| *left).collect();
                    scatter(parts, &columns, 0..batch.rows, &keys, hashes)?;
                }
                Step::Yield => (),
                Step::Done => self.end_left()?,
            },
            Stage::Joining { pair: None, .. } => return self.begin_pair(prober, context),
            Stage::Joining {
                pair: Some(pair), ..
            } => {
                let Some(batch) = pair.next(prober, context)? else {
                    prober.let_go();
                    self.end_pair()?;
                    return Ok(Step::Yield);
                };
                if batch.is_empty() {
                    return Ok(Step::Yield);
                }
                match &mut self.ordered {
                    Some((_, sequences)) => sequences.add(&batch, context)?,
                    None => return Ok(Step::Batch(batch)),
                }
            }
            Stage::Merging(runs) => {
                let mut step = runs.next(context)?;
                if let Step::Batch(batch) = &mut step {
                    batch.columns.pop();
                }
                return Ok(step);
            }
        }
        Ok(Step::Yield)
    }

    /// From the left side to its parts.
    fn end_left(&mut self) -> Result<()> {
        let joining = Stage::Joining {
            left: VecDeque::new(),
            pair: None,
        };
        if let Stage::Scattering { parts, .. } = std::mem::replace(&mut self.stage, joining) {
            self.stage = Stage::Joining {
                left: parts.finish()?.into(),
                pair: None,
            };
        }
        Ok(())
    }

    /// Goes on with the next parts, or with the order of the output.
    fn begin_pair(&mut self, prober: &Prober, context: &QueryContext) -> Result<Step> {
        let Stage::Joining { left, pair } = &mut self.stage else {
            return Err(Error::Internal("no parts to be joined"));
        };
        let (Some(left), Some(right)) = (left.pop_front(), self.right.pop_front()) else {
            let Some((_, sequences)) = self.ordered.take() else {
                return Ok(Step::Done);
            };
            let memory = context.memory("hash_join");
            self.stage = Stage::Merging(sequences.finish(memory, &self.counters)?);
            return Ok(Step::Yield);
        };
        if left.rows() > 0 && (right.rows() > 0 || !prober.drops_unmatched()) {
            *pair = Some(Box::new(Pair {
                left: Arc::new(left),
                right: RowReader::new(right),
                rest: None,
                rows: RowStore::new(self.right_width, context.memory("hash_join")),
                slice: None,
                matched: Matched {
                    rows: Vec::new(),
                    memory: context.memory("hash_join"),
                },
            }));
        }
        Ok(Step::Yield)
    }

    fn end_pair(&mut self) -> Result<()> {
        match &mut self.stage {
            Stage::Joining { pair, .. } => {
                *pair = None;
                Ok(())
            }
            _ => Err(Error::Internal("no parts to be joined")),
        }
    }
}

impl Pair {
    /// The next output, maybe without rows; `None` when the parts are joined.
    fn next(&mut self, prober: &mut Prober, context: &QueryContext) -> Result<Option<Batch>> {
        let Some(slice) = &mut self.slice else {
            self.read(prober, context)?;
            return Ok(Some(Batch::default()));
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
        self.slice = None;
        Ok(Some(Batch::default()))
    }

    /// Reads some of the next slice.
    fn read(&mut self, prober: &mut Prober, context: &QueryContext) -> Result<()> {
        let batch = match self.rest.take() {
            Some(rest) => Some(rest),
            None => self.right.next()?,
        };
        let is_last = batch.is_none();
        if let Some(batch) = batch {
            if may_add(&mut self.rows, &batch, context)? {
                return self.rows.append(&batch);
            }
            self.rest = Some(batch);
        }
        let next = RowStore::new(self.rows.rows().columns.len(), context.memory("hash_join"));
        let rows = std::mem::replace(&mut self.rows, next);
        let compatible = prober.columns.compatible.iter();
        let compatible: Vec<_> = compatible.map(|(_, right)| *right).collect();
        prober.turn_to(is_last);
        self.slice = Some(Slice {
            side: BuildSide::new(rows, &compatible)?,
            is_last,
            reader: RowReader::shared(&self.left),
            done: 0,
        });
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
