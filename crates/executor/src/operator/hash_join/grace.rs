//! Grace hash join: both sides on disk, scattered by the hash of the keys, and joined part by part (`pair`), several parts at
//! once by several threads where no order is needed ([`crew`](super::super::parallel::crew)).
//!
//! A right part that memory does not hold, since all rows of a key belong there or there is no key, is joined slice
//! by slice: the left part is read for each, and what is known of its rows is kept from one to the next. Where the
//! order of the left side is needed its rows have numbers, by which the output is merged in the end.
//!
//! # References
//! Kitsuregawa, Tanaka, Moto-oka: Application of Hash to Data Base Machine and Its Architecture, 1983.

use std::collections::VecDeque;
use std::sync::Arc;

use stoa_storage::nonblocking;

use super::super::parallel::crew::Crew;
use super::super::parallel::{Turn, threads};
use super::build_side::scatter;
use super::left_side::LeftSide;
use super::pair::{Pair, PairLane, Parts};
use super::prober::Prober;
use crate::batch::Step;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use crate::spill::{ByNumber, Numbers, Partitions, Runs, Sequences, SpilledRows};

/// See the module header.
pub(super) struct Grace {
    /// Right parts, in the order of their numbers.
    right: VecDeque<SpilledRows>,
    right_width: usize,
    counters: Arc<Counters>,
    /// Numbers of the left rows and the output, if the order is needed.
    ordered: Option<(Numbers, Sequences)>,
    /// Whether few rows may be asked for, so that others need not help.
    is_limited: bool,
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
    /// The same by several threads.
    Sharing(Crew<PairLane>),
    Merging(Runs<ByNumber>),
}

impl Grace {
    /// For the parts of the right side. The output of `prober` gets the numbers of its left rows, if need be.
    pub(super) fn new(
        right: VecDeque<SpilledRows>,
        (left_width, right_width): (usize, usize),
        (is_ordered, is_limited): (bool, bool),
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
            is_limited,
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
                Step::Done => self.end_left(prober, context)?,
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
            Stage::Sharing(crew) => match crew.next(true, context)? {
                Turn::Given(batch) => return Ok(Step::Batch(batch)),
                Turn::Working => (),
                Turn::Done => return Ok(Step::Done),
            },
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
    fn end_left(&mut self, prober: &Prober, context: &QueryContext) -> Result<()> {
        let joining = Stage::Joining {
            left: VecDeque::new(),
            pair: None,
        };
        if let Stage::Scattering { parts, .. } = std::mem::replace(&mut self.stage, joining) {
            let left: VecDeque<SpilledRows> = parts.finish()?.into();
            self.stage = match self.crew(&left, prober, context) {
                Some(crew) => {
                    for parts in left.into_iter().zip(std::mem::take(&mut self.right)) {
                        if joins(&parts.0, &parts.1, prober) {
                            crew.push(parts);
                        }
                    }
                    Stage::Sharing(crew)
                }
                None => Stage::Joining { left, pair: None },
            };
        }
        Ok(())
    }

    /// Several threads that join parts, if that is worth while and there is room for two.
    fn crew(
        &self,
        left: &VecDeque<SpilledRows>,
        prober: &Prober,
        context: &QueryContext,
    ) -> Option<Crew<PairLane>> {
        let pairs = left.iter().zip(&self.right);
        let pairs = pairs.filter(|(left, right)| joins(left, right, prober));
        let rows: Vec<_> = pairs
            .map(|(left, right)| (left.rows(), right.rows()))
            .collect();
        let all: u64 = rows.iter().map(|(left, right)| left + right).sum();
        let is_worth = all >= context.settings().parallel_rows_min;
        if self.ordered.is_some() || self.is_limited || !is_worth || nonblocking::is_on() {
            return None;
        }
        let parts = Parts {
            pairs: rows.len(),
            left_rows: rows.iter().map(|(left, _)| *left).max()?,
            right_rows: rows.iter().map(|(_, right)| *right).max()?,
            right_width: self.right_width,
        };
        let lanes = PairLane::several(&parts, threads(context), prober, context);
        if lanes.is_empty() {
            return None;
        }
        self.counters.note_joiners(lanes.len());
        let memory = context.memory("hash_join");
        Some(Crew::new(lanes, memory, context, &self.counters))
    }

    /// Goes on with the next parts, or with the order of the output.
    fn begin_pair(&mut self, prober: &Prober, context: &QueryContext) -> Result<Step> {
        let Stage::Joining { left, pair } = &mut self.stage else {
            return Err(Error::Internal("no parts to be joined"));
        };
        let Some(parts) = left.pop_front().zip(self.right.pop_front()) else {
            let Some((_, sequences)) = self.ordered.take() else {
                return Ok(Step::Done);
            };
            let memory = context.memory("hash_join");
            self.stage = Stage::Merging(sequences.finish(memory, &self.counters)?);
            return Ok(Step::Yield);
        };
        if joins(&parts.0, &parts.1, prober) {
            *pair = Some(Box::new(Pair::alone(parts, self.right_width, context)));
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

/// Whether something may come of two parts.
fn joins(left: &SpilledRows, right: &SpilledRows, prober: &Prober) -> bool {
    left.rows() > 0 && (right.rows() > 0 || !prober.drops_unmatched())
}
