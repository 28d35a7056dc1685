//! Sorted runs on disk, merged by several threads: each merges what lies between two cuts.
//!
//! Cuts are chosen among sampled rows. A row that equals a cut is told apart by its run and its place there, so that parts
//! are of about one size whatever the rows are.
//!
//! # Limits
//! Each part that is at work takes what a merge takes, and the rows of the part, [`PIECE_ROWS`] or so at most, that are reserved as they come. What
//! does not fit is merged a batch at a time when its turn comes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::ByKeys;
#[cfg(doc)]
use super::team::PIECE_ROWS;
use super::team::Team;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::{Memory, UNNAMED};
use crate::operator::parallel::{InOrder, Turn};
use crate::profile::Counters;
use crate::spill::{RowReader, RunOrder, Runs, SpilledSlice};

/// How many rows are looked at for each part.
const SAMPLED: usize = 8;

/// See the module header.
pub(in crate::operator) struct RunParts {
    source: Arc<Source>,
    team: Team,
    stage: Stage,
}

/// What parts are made of.
struct Source {
    order: ByKeys,
    width: usize,
    runs: Vec<SpilledSlice>,
    counters: Arc<Counters>,
    /// There was no room for a part: no further one is merged ahead.
    refused: AtomicBool,
}

enum Stage {
    Sampling(InOrder<(Batch, Vec<u64>)>, Samples),
    Giving(InOrder<Part>),
    /// One part is given, then what follows.
    Given(VecDeque<Batch>, Memory, InOrder<Part>),
    /// One part is merged as it is given.
    Merging(Box<Runs<ByKeys>>, InOrder<Part>),
    Ended,
}

/// What came of a part.
enum Part {
    Merged(VecDeque<Batch>, Memory),
    /// There was no room for it.
    Left(Vec<SpilledSlice>),
}

/// Rows that were looked at, with the numbers of their runs, and of the rows there.
#[derive(Default)]
struct Samples {
    rows: Batch,
    places: Vec<(usize, u64)>,
    /// How many runs were looked at.
    runs: usize,
}

/// Where parts end: samples in their order.
struct Cuts {
    samples: Samples,
    keys: <ByKeys as RunOrder>::Keys,
    /// Places among the samples, in order.
    order: Vec<u32>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

/// One row of a block with its keys.
struct Probe {
    row: Batch,
    keys: <ByKeys as RunOrder>::Keys,
}

impl RunParts {
    /// What merges these runs, which are few, of rows of `width` columns; `None` if one thread is to do it.
    pub(in crate::operator) fn new(
        order: &ByKeys,
        width: usize,
        runs: &[SpilledSlice],
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Option<Self> {
        let team = Team::new(context);
        let rows = runs.iter().map(SpilledSlice::len).sum::<u64>();
        let helpers = team.helpers(usize::try_from(rows).unwrap_or(usize::MAX));
        if helpers == 0 || runs.len() < 2 {
            return None;
        }
        let source = Arc::new(Source {
            order: order.another(context.memory(UNNAMED)),
            width,
            runs: runs.to_vec(),
            counters: Arc::clone(counters),
            refused: AtomicBool::new(false),
        });
        let part = team.piece(usize::try_from(rows).unwrap_or(usize::MAX));
        let step = (part / SAMPLED).max(1) as u64;
        let own = Arc::clone(&source);
        let sample = InOrder::new(runs.len(), helpers, runs.len(), move |run, context| {
            let run = own.runs.get(run);
            let run = run.ok_or(Error::Internal("a run that does not exist"))?;
            sampled(run, step, own.width, context)
        });
        let samples = Samples {
            rows: Batch::with_columns(width),
            places: Vec::new(),
            runs: 0,
        };
        Some(Self {
            source,
            team,
            stage: Stage::Sampling(sample, samples),
        })
    }

    /// The next rows in order.
    pub(in crate::operator) fn next(&mut self, context: &QueryContext) -> Result<Step> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Sampling(mut runs, mut samples) => match runs.next(context)? {
                Turn::Given((rows, numbers)) => {
                    let run = samples.runs;
                    samples.rows.append(&rows);
                    samples
                        .places
                        .extend(numbers.into_iter().map(|row| (run, row)));
                    samples.runs += 1;
                    Stage::Sampling(runs, samples)
                }
                Turn::Working => Stage::Sampling(runs, samples),
                Turn::Done => Stage::Giving(self.parts(samples, context)?),
            },
            Stage::Giving(mut parts) => match parts.next(context)? {
                Turn::Given(Part::Merged(batches, memory)) => Stage::Given(batches, memory, parts),
                Turn::Given(Part::Left(slices)) => {
                    let runs = self.source.merge(slices, context);
                    Stage::Merging(Box::new(runs), parts)
                }
                Turn::Working => Stage::Giving(parts),
                Turn::Done => return Ok(Step::Done),
            },
            Stage::Given(mut batches, memory, parts) => match batches.pop_front() {
                Some(batch) => {
                    self.stage = Stage::Given(batches, memory, parts);
                    return Ok(Step::Batch(batch));
                }
                None => Stage::Giving(parts),
            },
            Stage::Merging(mut runs, parts) => match runs.next(context)? {
                Step::Done => Stage::Giving(parts),
                step => {
                    self.stage = Stage::Merging(runs, parts);
                    return Ok(step);
                }
            },
            Stage::Ended => return Ok(Step::Done),
        };
        Ok(Step::Yield)
    }

    /// Begins to merge what lies between the cuts.
    fn parts(&self, samples: Samples, context: &QueryContext) -> Result<InOrder<Part>> {
        let cuts = Cuts::new(samples, &self.source.order, context)?;
        let rows = self.source.runs.iter().map(SpilledSlice::len).sum::<u64>();
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let (helpers, ahead) = (self.team.helpers(rows), self.team.ahead(rows));
        let source = Arc::clone(&self.source);
        let parts = cuts.count();
        Ok(InOrder::new(parts, helpers, ahead, move |part, context| {
            let mut searched = source.order.another(context.memory(UNNAMED));
            let mut slices = Vec::with_capacity(source.runs.len());
            for (number, run) in source.runs.iter().enumerate() {
                context.check()?;
                let mut end_of = |cut| cuts.position(cut, (number, run), &mut searched, context);
                let start = match part.checked_sub(1) {
                    Some(before) => end_of(before)?,
                    None => run.rows.start,
                };
                let rows = start..end_of(part)?;
                if !rows.is_empty() {
                    let stream = Arc::clone(&run.stream);
                    slices.push(SpilledSlice { stream, rows });
                }
            }
            source.part(slices, context)
        }))
    }
}

impl Source {
    fn merge(&self, slices: Vec<SpilledSlice>, context: &QueryContext) -> Runs<ByKeys> {
        let order = self.order.another(context.memory(UNNAMED));
        let memory = context.memory(UNNAMED);
        Runs::new(order, self.width, slices, memory, &self.counters)
    }

    /// Merges a part, if there is room for it.
    fn part(&self, slices: Vec<SpilledSlice>, context: &QueryContext) -> Result<Part> {
        if !self.refused.load(Relaxed)
            && let Some((batches, memory)) = self.merged(&slices, context)?
        {
            return Ok(Part::Merged(batches, memory));
        }
        self.refused.store(true, Relaxed);
        Ok(Part::Left(slices))
    }

    fn merged(
        &self,
        slices: &[SpilledSlice],
        context: &QueryContext,
    ) -> Result<Option<(VecDeque<Batch>, Memory)>> {
        let mut memory = context.memory(UNNAMED);
        let mut runs = self.merge(slices.to_vec(), context);
        let (mut batches, mut bytes) = (VecDeque::new(), 0);
        loop {
            context.check()?;
            match runs.next(context) {
                Ok(Step::Batch(batch)) => {
                    bytes += batch.bytes();
                    batches.push_back(batch);
                    if !memory.try_require(bytes) {
                        return Ok(None);
                    }
                }
                Ok(Step::Yield) => (),
                Ok(Step::Done) => return Ok(Some((batches, memory))),
                Err(Error::MemoryExceeded { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Every so many rows of a run, and their numbers.
fn sampled(
    run: &SpilledSlice,
    step: u64,
    width: usize,
    context: &QueryContext,
) -> Result<(Batch, Vec<u64>)> {
    let mut rows = Batch::with_columns(width);
    let mut numbers = Vec::new();
    let mut number = run.rows.start + step / 2;
    while number < run.rows.end {
        context.check()?;
        rows.append(&row_of(run, number)?);
        numbers.push(number);
        number += step;
    }
    Ok((rows, numbers))
}

/// One row.
fn row_of(run: &SpilledSlice, number: u64) -> Result<Batch> {
    let slice = SpilledSlice {
        stream: Arc::clone(&run.stream),
        rows: number..number + 1,
    };
    let row = RowReader::within(&slice).next()?;
    row.ok_or(Error::Internal("a run that is shorter than it says"))
}

impl Cuts {
    fn new(samples: Samples, order: &ByKeys, context: &QueryContext) -> Result<Self> {
        let mut order = order.another(context.memory(UNNAMED));
        let (keys, bytes) = order.keys(&samples.rows, context)?;
        let mut memory = context.memory(UNNAMED);
        let places_bytes = samples.places.len() * (size_of::<(usize, u64)>() + size_of::<u32>());
        memory.require(samples.rows.bytes() + bytes + places_bytes as u64)?;
        let count = u32::try_from(samples.places.len()).unwrap_or(u32::MAX);
        let mut places: Vec<u32> = (0..count).collect();
        places.sort_unstable_by(|left, right| {
            let row = |place: &u32| (&samples.rows, &keys, *place as usize);
            let by_row = order.compare(row(left), row(right));
            // Samples of one run stand in its order, and those of one run behind those of another.
            by_row.then(left.cmp(right))
        });
        Ok(Self {
            samples,
            keys,
            order: places,
            memory,
        })
    }

    /// How many parts there are.
    fn count(&self) -> usize {
        self.order.len().div_ceil(SAMPLED).max(1)
    }

    /// Where in a run the part with this number ends.
    fn position(
        &self,
        part: usize,
        (number, run): (usize, &SpilledSlice),
        order: &mut ByKeys,
        context: &QueryContext,
    ) -> Result<u64> {
        let at = (part + 1) * SAMPLED;
        let Some(cut) = self.order.get(at).map(|cut| *cut as usize) else {
            return Ok(run.rows.end);
        };
        let (cut_run, cut_row) = self.samples.places.get(cut).copied().unwrap_or_default();
        if cut_run == number {
            return Ok(cut_row);
        }
        let Range { mut start, mut end } = self.around(at, number, run);
        while start < end {
            let middle = start.midpoint(end);
            let probe = Probe::new(row_of(run, middle)?, order, context)?;
            let cut = (&self.samples.rows, &self.keys, cut);
            let is_before = match order.compare((&probe.row, &probe.keys, 0), cut) {
                Ordering::Less => true,
                Ordering::Equal => number < cut_run,
                Ordering::Greater => false,
            };
            match is_before {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        Ok(start)
    }

    /// The rows of a run between its samples before and behind the one that is `at` in order.
    fn around(&self, at: usize, number: usize, run: &SpilledSlice) -> Range<u64> {
        let of_run = |place: &u32| {
            let (run, row) = self.samples.places.get(*place as usize)?;
            (*run == number).then_some(*row)
        };
        let (before, behind) = self.order.split_at(at.min(self.order.len()));
        let before = before.iter().rev().find_map(of_run);
        let behind = behind.iter().find_map(of_run);
        before.unwrap_or(run.rows.start)..behind.unwrap_or(run.rows.end)
    }
}

impl Probe {
    fn new(row: Batch, order: &mut ByKeys, context: &QueryContext) -> Result<Self> {
        let (keys, _) = order.keys(&row, context)?;
        Ok(Self { row, keys })
    }
}
