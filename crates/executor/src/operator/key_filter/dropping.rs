//! Drops the rows of one operator that filters refuse.
//!
//! A filter that drops few rows rests: it is tested again behind a number of rows that doubles each time, since rows that come
//! in the order of an index may look different later.

use std::sync::Arc;

use stoa_planner::physical::Variable;

use super::super::position;
use super::PendingFilter;
use crate::batch::Batch;

/// After how many rows it is decided whether a filter goes on.
const TRIED_ROWS: usize = 4 * 1024;

/// A filter goes on that drops one of so many rows.
const DROPS_ONE_OF: usize = 10;

/// How many rows pass before a filter is tried again, at first and at most.
const REST_ROWS: usize = 64 * 1024;
const REST_ROWS_MAX: usize = 4 << 20;

/// The filters that one operator tests.
pub(in crate::operator) struct Dropper {
    tests: Vec<Test>,
    keep: Vec<bool>,
}

struct Test {
    filter: Arc<PendingFilter>,
    column: usize,
    /// Since the last decision.
    tested: usize,
    dropped: usize,
    /// How many rows pass before it is tried again.
    rest: usize,
    next_rest: usize,
}

impl Dropper {
    /// For an operator with these columns; `None` if there is nothing to be tested.
    pub(in crate::operator) fn new(
        filters: &[(Variable, Arc<PendingFilter>)],
        columns: &[Variable],
    ) -> Option<Box<Self>> {
        let tests = filters.iter().filter_map(|(variable, filter)| {
            Some(Test::new(Arc::clone(filter), position(columns, *variable)?))
        });
        let tests: Vec<_> = tests.collect();
        (!tests.is_empty()).then(|| {
            Box::new(Self {
                tests,
                keep: Vec::new(),
            })
        })
    }

    /// Drops rows; gives how many.
    pub(in crate::operator) fn drop_rows(&mut self, batch: &mut Batch) -> usize {
        let before = batch.rows;
        for test in &mut self.tests {
            test.drop_rows(batch, &mut self.keep);
        }
        before - batch.rows
    }
}

impl Test {
    const fn new(filter: Arc<PendingFilter>, column: usize) -> Self {
        Self {
            filter,
            column,
            tested: 0,
            dropped: 0,
            rest: 0,
            next_rest: REST_ROWS,
        }
    }

    fn drop_rows(&mut self, batch: &mut Batch, keep: &mut Vec<bool>) {
        let Some(filter) = self.filter.get() else {
            return;
        };
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(batch.rows);
            return;
        }
        let before = batch.rows;
        keep.clear();
        keep.resize(before, true);
        filter.test(batch.column(self.column), keep);
        batch.retain(keep);
        self.tested += before;
        self.dropped += before - batch.rows;
        if self.tested >= TRIED_ROWS {
            self.decide();
        }
    }

    /// Whether it goes on.
    fn decide(&mut self) {
        if self.dropped * DROPS_ONE_OF >= self.tested {
            self.next_rest = REST_ROWS;
        } else {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(REST_ROWS_MAX);
        }
        (self.tested, self.dropped) = (0, 0);
    }
}
