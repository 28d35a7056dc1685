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

use std::sync::Arc;

use stoa_planner::physical::{JoinKind, Operator as PlanOperator, Plan, Variable};

use super::combiner::{Combiner, END, Pair};
use super::row_store::RowStore;
use super::{Builder, Node, Operator, Scope, required};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::table::{JoinTable, NONE, hash_columns};

struct HashJoin {
    left: Node,
    right: Option<Node>,
    build: RowStore,
    parts: Vec<Part>,
    columns: KeyColumns,
    combiner: Combiner,
    /// MINUS: partners must share a bound variable of these.
    minus: Option<Counting>,
    probe: Option<Probe>,
    table_memory: Memory,
    table_bytes: u64,
}

/// Which shared variables MINUS counts.
struct Counting {
    /// Whether one of the keys, which are always bound.
    key: bool,
    /// The compatible variables.
    compatible: u64,
}

/// The key's columns on both sides.
struct KeyColumns {
    keys: Vec<(usize, usize)>,
    compatible: Vec<(usize, usize)>,
}

/// Right rows that bind the same of the compatible variables.
struct Part {
    bound: u64,
    rows: Vec<u32>,
    /// By the variables shared with left rows.
    tables: Vec<(u64, JoinTable)>,
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
    let both = |variable: &Variable| {
        Ok((
            required(&left.columns, *variable)?,
            required(&right.columns, *variable)?,
        ))
    };
    let columns = KeyColumns {
        keys: keys.iter().map(both).collect::<Result<_>>()?,
        compatible: compatible.iter().map(both).collect::<Result<_>>()?,
    };
    let right_columns: Vec<_> = right.columns.iter().copied().map(Some).collect();
    let context = builder.context;
    Ok(Box::new(HashJoin {
        combiner: Combiner::new(&plan.columns, &left.columns, &right_columns, kind, context)?,
        left: builder.build(left, scope, Some(counters))?,
        right: Some(builder.build(right, scope.unlimited(), Some(counters))?),
        build: RowStore::new(right.columns.len(), context.memory("hash_join")),
        parts: Vec::new(),
        columns,
        minus: Counting::new(kind, keys, compatible),
        probe: None,
        table_memory: context.memory("hash_join"),
        table_bytes: 0,
    }))
}

impl Operator for HashJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        if let Some(right) = &mut self.right {
            match right.next(context)? {
                Step::Batch(batch) => self.build.append(&batch)?,
                Step::Yield => (),
                Step::Done => {
                    self.right = None;
                    self.split()?;
                }
            }
            return Ok(Step::Yield);
        }
        if self.build.len() == 0 && self.combiner.drops_unmatched() {
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
            self.advance(&mut probe, &mut pairs, context)?;
        }
        let batch = self
            .combiner
            .combine(&probe.left, &self.build.slices(), &pairs, context)?;
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
    /// Splits the right side by what its rows bind.
    fn split(&mut self) -> Result<()> {
        let rows = self.build.len();
        self.table_bytes += (rows * size_of::<u32>() * 2) as u64;
        self.table_memory.require(self.table_bytes)?;
        let columns: Vec<_> = self
            .columns
            .compatible
            .iter()
            .map(|(_, right)| *right)
            .collect();
        if columns.is_empty() {
            if rows > 0 {
                self.parts
                    .push(Part::new(0, (0_u32..).take(rows).collect()));
            }
            return Ok(());
        }
        for (row, bound) in (0_u32..).zip(bound_sets(self.build.rows(), &columns)) {
            match self.parts.iter_mut().find(|part| part.bound == bound) {
                Some(part) => part.rows.push(row),
                None => self.parts.push(Part::new(bound, vec![row])),
            }
        }
        Ok(())
    }

    /// Adds pairs of the probe's row and part until the batch is full or the part is through.
    fn advance(
        &mut self,
        probe: &mut Probe,
        pairs: &mut Vec<Pair>,
        context: &QueryContext,
    ) -> Result<()> {
        let row = u32::try_from(probe.row)
            .map_err(|_| Error::Internal("a batch of more than 2^32 rows"))?;
        let Some(part) = self.parts.get(probe.part) else {
            if self.combiner.needs_end() {
                pairs.push((row, END));
            }
            probe.next_row();
            return Ok(());
        };
        let shared = part.bound & probe.bound.get(probe.row).copied().unwrap_or(0);
        if let Some(minus) = &self.minus
            && !minus.key
            && shared & minus.compatible == 0
        {
            probe.next_part();
            return Ok(());
        }
        let table = self.table(probe.part, shared, context)?;
        let mut place = match probe.place {
            Some(place) => place,
            None => self.first(probe, table, shared),
        };
        let Some((_, table)) = self
            .parts
            .get(probe.part)
            .and_then(|part| part.tables.get(table))
        else {
            return Err(Error::Internal("a join table that was not built"));
        };
        if place != NONE && self.combiner.needs_one() {
            pairs.push((row, table.row(place)));
            probe.part = self.parts.len();
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

    /// The number of the part's table over the keys and the shared variables, built if need be.
    fn table(&mut self, part: usize, shared: u64, context: &QueryContext) -> Result<usize> {
        let Some(part) = self.parts.get_mut(part) else {
            return Err(Error::Internal("a part that does not exist"));
        };
        if let Some(table) = part.tables.iter().position(|(other, _)| *other == shared) {
            return Ok(table);
        }
        self.table_bytes += JoinTable::bytes_for(part.rows.len());
        self.table_memory.require(self.table_bytes)?;
        let build = self.build.rows();
        let key: Vec<_> = self
            .columns
            .key(shared)
            .map(|(_, right)| build.column(right))
            .collect();
        let table = JoinTable::build(&key, part.rows.clone(), || context.check())?;
        part.tables.push((shared, table));
        Ok(part.tables.len() - 1)
    }

    /// The first match of the probe's row.
    fn first(&self, probe: &mut Probe, table: usize, shared: u64) -> u32 {
        let Some((_, table)) = self
            .parts
            .get(probe.part)
            .and_then(|part| part.tables.get(table))
        else {
            return NONE;
        };
        let build = self.build.rows();
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

impl KeyColumns {
    /// The columns of the keys and of the shared ones among the compatible variables.
    fn key(&self, shared: u64) -> impl Iterator<Item = (usize, usize)> {
        let compatible = self.compatible.iter().enumerate();
        let compatible = compatible.filter(move |(index, _)| shared & (1 << index) != 0);
        self.keys
            .iter()
            .copied()
            .chain(compatible.map(|(_, columns)| *columns))
    }
}

impl Part {
    const fn new(bound: u64, rows: Vec<u32>) -> Self {
        Self {
            bound,
            rows,
            tables: Vec::new(),
        }
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

/// For each row which of the columns are bound, the first one in the lowest bit.
fn bound_sets(batch: &Batch, columns: &[usize]) -> Vec<u64> {
    let mut sets = vec![0; batch.rows];
    for (bit, column) in columns.iter().enumerate() {
        for (set, id) in sets.iter_mut().zip(batch.column(*column)) {
            *set |= u64::from(!id.is_unbound()) << bit;
        }
    }
    sets
}
