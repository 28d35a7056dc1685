//! Rows that carry a number, brought back into the order of their numbers.

use std::cmp::Ordering;
use std::sync::Arc;

use stoa_terms::TermId;

use super::{RowWriter, RunOrder, Runs, SpillFile, SpilledSlice};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Memory;
use crate::profile::Counters;

/// Numbers rows as they come.
#[derive(Default)]
pub(crate) struct Numbers(u64);

/// Takes rows whose last column is their number. Those with ascending numbers, one behind the other, are a run.
pub(crate) struct Sequences {
    file: Arc<SpillFile>,
    width: usize,
    current: Option<RowWriter>,
    last: u64,
    runs: Vec<SpilledSlice>,
}

/// The order of the numbers.
pub(crate) struct ByNumber;

impl Numbers {
    /// The numbers of the next `rows` rows, as a column.
    pub(crate) fn next(&mut self, rows: usize) -> Vec<TermId> {
        let first = self.0;
        self.0 += rows as u64;
        (first..self.0).map(TermId::from_bits).collect()
    }
}

impl Sequences {
    /// For rows of `width` columns, their number included.
    pub(crate) fn new(
        width: usize,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        Ok(Self::within(SpillFile::new(context, counters)?, width))
    }

    /// The same in a file that others use as well.
    pub(crate) const fn within(file: Arc<SpillFile>, width: usize) -> Self {
        Self {
            file,
            width,
            current: None,
            last: 0,
            runs: Vec::new(),
        }
    }

    /// Adds rows with ascending numbers.
    pub(crate) fn add(&mut self, batch: &Batch, context: &QueryContext) -> Result<()> {
        let numbers = batch.columns.last();
        let bits = |id: Option<&TermId>| id.map_or(0, |id| id.to_bits());
        let first = bits(numbers.and_then(|numbers| numbers.first()));
        if first < self.last
            && let Some(run) = self.current.take()
        {
            self.runs.push(SpilledSlice::whole(run.finish()?));
        }
        self.last = bits(numbers.and_then(|numbers| numbers.last()));
        let run = self
            .current
            .get_or_insert_with(|| Runs::<ByNumber>::writer(&self.file, self.width, context));
        run.append(batch.columns.iter().map(Vec::as_slice), batch.rows)
    }

    /// All rows in the order of their numbers.
    pub(crate) fn finish(
        mut self,
        memory: Memory,
        counters: &Arc<Counters>,
    ) -> Result<Runs<ByNumber>> {
        if let Some(run) = self.current.take() {
            self.runs.push(SpilledSlice::whole(run.finish()?));
        }
        Ok(Runs::new(ByNumber, self.width, self.runs, memory, counters))
    }
}

impl RunOrder for ByNumber {
    type Keys = ();

    fn keys(&mut self, _: &Batch, _: &QueryContext) -> Result<((), u64)> {
        Ok(((), 0))
    }

    fn compare(&self, left: (&Batch, &(), usize), right: (&Batch, &(), usize)) -> Ordering {
        let number = |(batch, (), row): (&Batch, &(), usize)| {
            let column = batch.columns.last();
            column.and_then(|column| column.get(row)).copied()
        };
        number(left).cmp(&number(right))
    }
}
