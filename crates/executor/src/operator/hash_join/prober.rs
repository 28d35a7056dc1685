//! Probes a right side that is in memory with batches of left rows.

use std::sync::Arc;

use stoa_planner::physical::{JoinKind, Operator as PlanOperator, Plan, Variable};

use stoa_terms::TermId;

use super::super::combiner::{Combiner, END, Pair};
use super::build_side::{BuildSide, KeyColumns, bound_sets};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::table::{JoinTables, NONE, hash_columns};

/// See the module header.
pub(in crate::operator) struct Prober {
    /// For each part of the right side the tables that were asked for, by the variables shared with left rows.
    tables: Vec<Vec<(u64, Arc<JoinTables>)>>,
    pub(super) columns: KeyColumns,
    combiner: Combiner,
    /// MINUS: partners must share a bound variable of these.
    minus: Option<Counting>,
    probe: Option<Probe>,
    /// Whether left rows have their last partners on this right side.
    is_last: bool,
}

/// Which shared variables MINUS counts.
#[derive(Clone, Copy)]
struct Counting {
    /// Whether one of the keys, which are always bound.
    key: bool,
    /// The compatible variables.
    compatible: u64,
}

/// A left batch that is being probed.
struct Probe {
    left: Batch,
    /// Which compatible variables each row binds.
    bound: Vec<u64>,
    row: usize,
    part: usize,
    /// The next match in the part's table; `None` if it was not probed yet.
    place: Option<u32>,
    /// Hashes of the whole batch for the keys and these shared variables.
    hashes: Vec<(u64, Vec<u64>)>,
}

impl Prober {
    /// For the hash join `plan`.
    pub(super) fn new(plan: &Plan, context: &QueryContext) -> Result<Self> {
        let PlanOperator::HashJoin {
            left,
            right,
            keys,
            compatible,
            kind,
        } = &plan.operator
        else {
            return Err(Error::Internal("not a hash join"));
        };
        let right: Vec<_> = right.columns.iter().copied().map(Some).collect();
        Ok(Self {
            tables: Vec::new(),
            columns: KeyColumns::new(plan)?,
            combiner: Combiner::new(&plan.columns, &left.columns, &right, kind, context)?,
            minus: Counting::new(kind, keys, compatible),
            probe: None,
            is_last: true,
        })
    }

    /// For a join, of a kind that is not `Minus`, on these pairs of a left and a right column, all of them bound.
    pub(in crate::operator) const fn by_keys(
        keys: Vec<(usize, usize)>,
        combiner: Combiner,
    ) -> Self {
        Self {
            tables: Vec::new(),
            columns: KeyColumns {
                keys,
                compatible: Vec::new(),
            },
            combiner,
            minus: None,
            probe: None,
            is_last: true,
        }
    }

    /// Another one that does the same; `None` if there is a condition.
    pub(super) fn another(&self) -> Option<Self> {
        Some(Self {
            tables: Vec::new(),
            columns: self.columns.clone(),
            combiner: self.combiner.another()?,
            minus: self.minus,
            probe: None,
            is_last: true,
        })
    }

    /// Whether a left row without a partner leaves nothing behind.
    pub(in crate::operator) fn drops_unmatched(&self) -> bool {
        self.combiner.drops_unmatched()
    }

    /// Adds a column of the left rows to the output, behind all others.
    pub(super) fn carry(&mut self, column: usize) {
        self.combiner.carry(column);
    }

    /// How many columns the output has.
    pub(super) const fn output_width(&self) -> usize {
        self.combiner.output_width()
    }

    /// Goes on with another right side, of which it is said whether it is the last one for its left rows.
    pub(super) const fn turn_to(&mut self, is_last: bool) {
        self.is_last = is_last;
    }

    /// Lets go of the right side, with whose account its tables go.
    pub(super) fn let_go(&mut self) {
        self.tables.clear();
    }

    /// Whether what is known of left rows from one right side must be told at the next one.
    pub(super) fn needs_matched(&self) -> bool {
        self.combiner.needs_end()
    }

    /// For each row of the last batch whether it has found a partner.
    pub(super) fn matched(&self) -> &[bool] {
        self.combiner.matched()
    }

    /// Whether the last batch is through.
    pub(in crate::operator) const fn is_idle(&self) -> bool {
        self.probe.is_none()
    }

    /// Begins with a batch of left rows.
    pub(in crate::operator) fn start(&mut self, left: Batch) {
        self.combiner.start(left.rows);
        self.probe = Some(Probe::new(left, &self.columns.compatible));
    }

    /// Begins with a batch of left rows of which it is known whether they have found a partner.
    pub(super) fn start_with(&mut self, left: Batch, matched: &[bool]) {
        self.combiner.start_with(matched);
        self.probe = Some(Probe::new(left, &self.columns.compatible));
    }

    /// The next rows of output, maybe none.
    pub(in crate::operator) fn step(
        &mut self,
        build: &BuildSide,
        context: &QueryContext,
    ) -> Result<Batch> {
        let Some(mut probe) = self.probe.take() else {
            return Err(Error::Internal("no left rows to probe with"));
        };
        let mut pairs = Vec::with_capacity(context.batch_rows());
        if self.columns.compatible.is_empty() && build.parts() == 1 {
            self.probe_by_keys(build, &mut probe, &mut pairs, context)?;
        }
        while pairs.len() < context.batch_rows() && probe.row < probe.left.rows {
            self.advance(build, &mut probe, &mut pairs, context)?;
        }
        let batch = self
            .combiner
            .combine(&probe.left, &build.slices(), &pairs, context)?;
        if probe.row < probe.left.rows {
            self.probe = Some(probe);
        }
        Ok(batch)
    }

    /// As [`Self::advance`] until the batch is full or all rows are through, where all that is shared is bound on both
    /// sides, as is the rule.
    fn probe_by_keys(
        &mut self,
        build: &BuildSide,
        probe: &mut Probe,
        pairs: &mut Vec<Pair>,
        context: &QueryContext,
    ) -> Result<()> {
        if self.minus.as_ref().is_some_and(|minus| !minus.key) {
            return Ok(());
        }
        let tables = self.tables(build, 0, 0, context)?;
        let columns = self.columns.key(0);
        let (left, right): (Vec<_>, Vec<_>) = columns
            .map(|(left, right)| (probe.left.column(left), build.column(right)))
            .unzip();
        let key = Key::of(&left, &right);
        if probe.hashes.is_empty() {
            let mut hashes = vec![0; probe.left.rows];
            if tables.needs_hashes() {
                hash_columns(&left, probe.left.rows, &mut hashes);
            }
            probe.hashes.push((0, hashes));
        }
        let hashes = probe.hashes.first().map_or(&[][..], |(_, hashes)| hashes);
        let ends = self.is_last && self.combiner.needs_end();
        let (most, one) = (context.batch_rows(), self.combiner.needs_one());
        for (row, hash) in hashes.iter().enumerate().skip(probe.row) {
            if pairs.len() >= most {
                break;
            }
            let number = u32::try_from(row)
                .map_err(|_| Error::Internal("a batch of more than 2^32 rows"))?;
            let is_through = probe.part > 0;
            let table = tables.at(*hash);
            let mut place = match probe.place.take() {
                Some(place) => place,
                None if is_through => NONE,
                None => match &key {
                    Key::One(left, right) => table.first_of_one(right, left, row, *hash),
                    Key::Several => table.first(&right, &left, row, *hash),
                },
            };
            while place != NONE && pairs.len() < most {
                pairs.push((number, table.row(place)));
                place = match one {
                    true => NONE,
                    false => table.next(place),
                };
            }
            if place != NONE {
                probe.place = Some(place);
                break;
            }
            if ends && pairs.len() >= most {
                // Its end comes with the next batch.
                probe.part = 1;
                break;
            }
            if ends {
                pairs.push((number, END));
            }
            (probe.row, probe.part) = (row + 1, 0);
        }
        Ok(())
    }

    /// Adds pairs of the probe's row and part until the batch is full or the part is through.
    fn advance(
        &mut self,
        build: &BuildSide,
        probe: &mut Probe,
        pairs: &mut Vec<Pair>,
        context: &QueryContext,
    ) -> Result<()> {
        let row = u32::try_from(probe.row)
            .map_err(|_| Error::Internal("a batch of more than 2^32 rows"))?;
        let Some(bound) = build.bound(probe.part) else {
            if self.is_last && self.combiner.needs_end() {
                pairs.push((row, END));
            }
            probe.next_row();
            return Ok(());
        };
        let shared = bound & probe.bound.get(probe.row).copied().unwrap_or(0);
        if let Some(minus) = &self.minus
            && !minus.key
            && shared & minus.compatible == 0
        {
            probe.next_part();
            return Ok(());
        }
        let tables = self.tables(build, probe.part, shared, context)?;
        let hash = self.hash(probe, shared);
        let table = tables.at(hash);
        let mut place = match probe.place {
            Some(place) => place,
            None => {
                let columns = self.columns.key(shared);
                let (left, right): (Vec<_>, Vec<_>) = columns
                    .map(|(left, right)| (probe.left.column(left), build.column(right)))
                    .unzip();
                table.first(&right, &left, probe.row, hash)
            }
        };
        if place != NONE && self.combiner.needs_one() {
            pairs.push((row, table.row(place)));
            probe.part = build.parts();
            probe.place = None;
            return Ok(());
        }
        while place != NONE && pairs.len() < context.batch_rows() {
            pairs.push((row, table.row(place)));
            place = table.next(place);
        }
        if place == NONE {
            probe.next_part();
        } else {
            probe.place = Some(place);
        }
        Ok(())
    }

    /// The part's tables over the keys and the shared variables, built if need be.
    fn tables(
        &mut self,
        build: &BuildSide,
        part: usize,
        shared: u64,
        context: &QueryContext,
    ) -> Result<Arc<JoinTables>> {
        self.tables.resize_with(build.parts(), Vec::new);
        let known = self.tables.get_mut(part);
        let known = known.ok_or(Error::Internal("a part that does not exist"))?;
        if let Some((_, tables)) = known.iter().find(|(other, _)| *other == shared) {
            return Ok(Arc::clone(tables));
        }
        let tables = build.table(part, shared, &self.columns, context)?;
        known.push((shared, Arc::clone(&tables)));
        Ok(tables)
    }

    /// The hash of the probe's row for the keys and these shared variables.
    fn hash(&self, probe: &mut Probe, shared: u64) -> u64 {
        let known = probe.hashes.iter().position(|(other, _)| *other == shared);
        let known = known.unwrap_or_else(|| {
            let columns = self.columns.key(shared);
            let left: Vec<_> = columns.map(|(left, _)| probe.left.column(left)).collect();
            let mut hashes = Vec::new();
            hash_columns(&left, probe.left.rows, &mut hashes);
            probe.hashes.push((shared, hashes));
            probe.hashes.len() - 1
        });
        let hashes = probe.hashes.get(known);
        let hash = hashes.and_then(|(_, hashes)| hashes.get(probe.row));
        hash.copied().unwrap_or_default()
    }
}

/// The columns of a key.
enum Key<'a> {
    One(&'a [TermId], &'a [TermId]),
    Several,
}

impl<'a> Key<'a> {
    fn of(left: &[&'a [TermId]], right: &[&'a [TermId]]) -> Self {
        match (left, right) {
            ([left], [right]) => Self::One(left, right),
            _ => Self::Several,
        }
    }
}

impl Counting {
    fn new(kind: &JoinKind, keys: &[Variable], compatible: &[Variable]) -> Option<Self> {
        let JoinKind::Minus { ambient } = kind else {
            return None;
        };
        let counts = |variable: &Variable| !ambient.contains(variable);
        Some(Self {
            key: keys.iter().any(counts),
            compatible: (0..)
                .zip(compatible)
                .filter(|(_, variable)| counts(variable))
                .fold(0, |set, (bit, _)| set | 1_u64 << bit),
        })
    }
}

impl Probe {
    fn new(left: Batch, compatible: &[(usize, usize)]) -> Self {
        let columns: Vec<_> = compatible.iter().map(|(left, _)| *left).collect();
        Self {
            bound: bound_sets(&left, &columns),
            left,
            row: 0,
            part: 0,
            place: None,
            hashes: Vec::new(),
        }
    }

    const fn next_row(&mut self) {
        self.row += 1;
        self.part = 0;
        self.place = None;
    }

    const fn next_part(&mut self) {
        self.part += 1;
        self.place = None;
    }
}
