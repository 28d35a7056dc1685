//! Hash join: holds the right side in memory and probes it with the left.
//!
//! The right side is split by which of the `compatible` variables its rows bind. For each part and
//! each set of variables that left rows share with it a table is built when it is first needed, over
//! the keys and those variables; in the usual case, no variable unbound, that is one table. A left
//! row probes each part by what both bind, so an unbound variable is compatible with all.
//!
//! Input order: any. Output order: that of the left side; partners in the order of the right side.
//!
//! # Limits
//! The right side and its tables are reserved before they are built.

mod build_side;

use std::sync::Arc;

use stoa_planner::physical::{JoinKind, Operator as PlanOperator, Plan, Variable};

pub(crate) use build_side::{BuildSide, Collector};
use build_side::{KeyColumns, bound_sets};

use super::combiner::{Combiner, END, Pair};
use super::{Builder, Node, Operator, Scope};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::{Counters, size};
use crate::table::{JoinTable, NONE, hash_columns};

struct HashJoin {
    left: Node,
    right: Right,
    /// For each part of the right side the tables that were asked for, by the variables shared with left rows.
    tables: Vec<Vec<(u64, Arc<JoinTable>)>>,
    columns: KeyColumns,
    combiner: Combiner,
    /// MINUS: partners must share a bound variable of these.
    minus: Option<Counting>,
    probe: Option<Probe>,
}

enum Right {
    Open(Collector),
    Built(Arc<BuildSide>),
}

/// Which shared variables MINUS counts.
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

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
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
    if compatible.len() > 64 {
        return Err(Error::Unsupported(
            "a join over more than 64 variables that may be unbound",
        ));
    }
    let number = builder.next_number - 1;
    let columns = KeyColumns::new(plan)?;
    let right_columns: Vec<_> = right.columns.iter().copied().map(Some).collect();
    let context = builder.context;
    let combiner = Combiner::new(&plan.columns, &left.columns, &right_columns, kind, context)?;
    let left = builder.build(left, scope, Some(counters))?;
    let right = match builder.built.and_then(|built| built.get(&number)) {
        Some(side) => {
            builder.next_number += size(right);
            Right::Built(Arc::clone(side))
        }
        None => Right::Open(Collector::new(plan, builder, scope, counters)?),
    };
    Ok(Box::new(HashJoin {
        left,
        right,
        tables: Vec::new(),
        columns,
        combiner,
        minus: Counting::new(kind, keys, compatible),
        probe: None,
    }))
}

impl Operator for HashJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let build = match &mut self.right {
            Right::Built(side) => Arc::clone(side),
            Right::Open(collector) => {
                if let Some(side) = collector.advance(context)? {
                    self.right = Right::Built(Arc::new(side));
                }
                return Ok(Step::Yield);
            }
        };
        if build.is_empty() && self.combiner.drops_unmatched() {
            self.left.stop();
            return Ok(Step::Done);
        }
        let Some(mut probe) = self.probe.take() else {
            return Ok(match self.left.next(context)? {
                Step::Batch(batch) => {
                    self.combiner.start(batch.rows);
                    self.probe = Some(Probe::new(batch, &self.columns.compatible));
                    Step::Yield
                }
                other => other,
            });
        };
        let mut pairs = Vec::with_capacity(context.batch_rows());
        while pairs.len() < context.batch_rows() && probe.row < probe.left.rows {
            self.advance(&build, &mut probe, &mut pairs, context)?;
        }
        let batch = self
            .combiner
            .combine(&probe.left, &build.slices(), &pairs, context)?;
        if probe.row < probe.left.rows {
            self.probe = Some(probe);
        }
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(batch)
        })
    }
}

impl HashJoin {
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
            if self.combiner.needs_end() {
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
        let table = self.table(build, probe.part, shared, context)?;
        let mut place = match probe.place {
            Some(place) => place,
            None => self.first(build, probe, &table, shared),
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

    /// The part's table over the keys and the shared variables, built if need be.
    fn table(
        &mut self,
        build: &BuildSide,
        part: usize,
        shared: u64,
        context: &QueryContext,
    ) -> Result<Arc<JoinTable>> {
        self.tables.resize_with(build.parts(), Vec::new);
        let known = self.tables.get_mut(part);
        let known = known.ok_or(Error::Internal("a part that does not exist"))?;
        if let Some((_, table)) = known.iter().find(|(other, _)| *other == shared) {
            return Ok(Arc::clone(table));
        }
        let table = build.table(part, shared, &self.columns, context)?;
        known.push((shared, Arc::clone(&table)));
        Ok(table)
    }

    /// The first match of the probe's row.
    fn first(&self, build: &BuildSide, probe: &mut Probe, table: &JoinTable, shared: u64) -> u32 {
        let (left, right): (Vec<_>, Vec<_>) = self
            .columns
            .key(shared)
            .map(|(left, right)| (probe.left.column(left), build.column(right)))
            .unzip();
        let known = probe.hashes.iter().position(|(other, _)| *other == shared);
        let known = known.unwrap_or_else(|| {
            let mut hashes = Vec::new();
            hash_columns(&left, probe.left.rows, &mut hashes);
            probe.hashes.push((shared, hashes));
            probe.hashes.len() - 1
        });
        let hash = probe
            .hashes
            .get(known)
            .and_then(|(_, hashes)| hashes.get(probe.row));
        match hash {
            Some(hash) => table.first(&right, &left, probe.row, *hash),
            None => NONE,
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
