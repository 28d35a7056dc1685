//! Index scan: an ordered read of one permutation for one quad pattern.
//!
//! Where key filters are known of the position that it is sorted by, it begins at their first key and ends behind their
//! last. Where they are few it looks them up one by one; also those of another position, in another permutation, if
//! nobody needs its order.
//!
//! A merge join above sends it ahead over rows that it has no use for, which are not read (`skip_to`).
//!
//! Input: none. Output order: that of the permutation behind its prefix.

use std::sync::Arc;

use stoa_planner::KEPT_RANGES_MAX;
use stoa_planner::physical::{Operator as PlanOperator, PatternTerm, Plan, QuadPattern, Variable};
use stoa_quadstore::{Columns, QuadColumns, Reading, Scan, ScanSpec};
use stoa_terms::{IdRange, Permutation, TermId};

use super::key_filter::PendingFilter;
use super::parallel::morsels::within;
use super::pattern::{Layout, Residual};
use super::{Builder, FIRST_ROWS, Operator, Scope};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;

/// The rows of the first batch behind a leap: often all that are wanted before the next one.
const LEAPT_ROWS: usize = 8;

/// The ranges that a variable is kept to.
type VariableRanges = (Variable, Vec<IdRange>);

/// A filter of a variable that the scan binds.
type Filter = (Variable, Arc<PendingFilter>);

struct IndexScan {
    state: State,
    counters: Arc<Counters>,
}

enum State {
    /// Filters may narrow it before it begins.
    Waiting(Box<Waiting>),
    Open(Box<Open>),
    Done,
}

/// A scan that has not begun.
struct Waiting {
    pattern: QuadPattern,
    columns: Vec<Variable>,
    way: Way,
    filters: Vec<Filter>,
    kept: Vec<VariableRanges>,
    /// Whether nobody needs its order.
    may_turn: bool,
    /// Whether few rows may be asked for.
    limited: bool,
    estimated_rows: f64,
}

/// How a pattern is read.
#[derive(Clone)]
struct Way {
    permutation: Permutation,
    prefix_length: usize,
    ranges: Vec<IdRange>,
}

impl Way {
    /// Whether the scan descends to nothing but what lies within some ranges.
    fn lies_within(&self, ranges: &[IdRange]) -> bool {
        let lies = |own: &IdRange| {
            let mut ranges = ranges.iter();
            ranges.any(|range| range.first <= own.first && own.last <= range.last)
        };
        !self.ranges.is_empty() && self.ranges.iter().all(lies)
    }
}

/// A scan that has begun.
struct Open {
    scan: Scan,
    /// What its rows are sorted by.
    key: Option<Variable>,
    residual: Residual,
    /// How many rows the next batch may have; it doubles where few may be asked for.
    rows: usize,
    /// The place in the permutation of each column.
    places: Vec<usize>,
    buffer: QuadColumns,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let filters = builder.placements.at(builder.next_number - 1);
    // What a transaction reads is taken down by whole scans.
    let filters = match builder.context.snapshot().is_recorded() {
        true => &[],
        false => filters,
    };
    let kept = std::mem::take(&mut builder.kept);
    open(plan, builder.context, counters, (filters, &kept, scope))
}

/// A scan that these filters may narrow before it begins, and of which rows outside of these ranges need not be given.
pub(super) fn open(
    plan: &Plan,
    context: &QueryContext,
    counters: &Arc<Counters>,
    (filters, kept, scope): (&[Filter], &[VariableRanges], Scope<'_>),
) -> Result<Box<dyn Operator>> {
    let PlanOperator::IndexScan {
        pattern,
        permutation,
        prefix_length,
        ranges,
    } = &plan.operator
    else {
        return Err(Error::Internal("not an index scan"));
    };
    let way = Way {
        permutation: *permutation,
        prefix_length: *prefix_length,
        ranges: ranges.clone(),
    };
    // Graphs are no ranges.
    let is_narrowing = |(variable, _): &&Filter| Some(*variable) != pattern.graph_variable;
    let filters: Vec<Filter> = filters.iter().filter(is_narrowing).cloned().collect();
    let state = match filters.is_empty() {
        true => {
            let mut open = Open::new((pattern, kept), &plan.columns, &way, context, counters)?;
            open.rows = first_rows(scope.limited, context);
            State::Open(Box::new(open))
        }
        false => State::Waiting(Box::new(Waiting {
            pattern: pattern.clone(),
            columns: plan.columns.clone(),
            may_turn: scope.unordered && way.ranges.is_empty(),
            limited: scope.limited,
            way,
            filters,
            kept: kept.to_vec(),
            estimated_rows: match context.settings().key_filter_rows_min {
                0 => f64::INFINITY,
                _ => plan.estimated_rows,
            },
        })),
    };
    Ok(Box::new(IndexScan {
        state,
        counters: Arc::clone(counters),
    }))
}

impl Operator for IndexScan {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let open = match &mut self.state {
            State::Waiting(waiting) => {
                self.state = waiting.begin(context, &self.counters)?;
                return Ok(Step::Yield);
            }
            State::Open(open) => open,
            State::Done => return Ok(Step::Done),
        };
        let (batch, more) = open.next(context, &self.counters)?;
        if !more {
            self.state = State::Done;
        }
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(batch)
        })
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        match &mut self.state {
            State::Open(open) if open.key == Some(variable) => {
                open.skip_to(id, context, &self.counters)
            }
            _ => Ok(0),
        }
    }
}

impl Waiting {
    /// Begins, with what the filters leave.
    fn begin(&self, context: &QueryContext, counters: &Arc<Counters>) -> Result<State> {
        let mut way = self.way.clone();
        if let Some((by_keys, points)) = self.by_keys(context)? {
            let whole = std::mem::replace(&mut way, by_keys).ranges;
            way.ranges = points_within(&points, &whole);
            counters.add_keys(way.ranges.len());
            if way.ranges.is_empty() {
                return Ok(State::Done);
            }
        }
        let first = Layout::new(&self.pattern, way.permutation).term(way.prefix_length);
        for (variable, filter) in &self.filters {
            if first == Some(PatternTerm::Variable(*variable))
                && let Some(filter) = filter.get()
            {
                way.ranges = within(&way.ranges, filter.range());
                if way.ranges.is_empty() {
                    return Ok(State::Done);
                }
            }
        }
        let mut open = Open::new(
            (&self.pattern, &self.kept),
            &self.columns,
            &way,
            context,
            counters,
        )?;
        open.rows = first_rows(self.limited, context);
        Ok(State::Open(Box::new(open)))
    }

    /// The way to look the keys of a filter up, of the one that has the fewest, and its keys.
    fn by_keys(&self, context: &QueryContext) -> Result<Option<(Way, Vec<TermId>)>> {
        let mut fewest: Option<(Way, &[TermId])> = None;
        for (variable, filter) in &self.filters {
            let points = filter
                .get()
                .and_then(|filter| filter.points(self.estimated_rows));
            let Some(points) = points else {
                continue;
            };
            if fewest
                .as_ref()
                .is_none_or(|(_, least)| points.len() < least.len())
                && let Some(way) = self.way_by(*variable, context)?
            {
                fewest = Some((way, points));
            }
        }
        Ok(fewest.map(|(way, points)| (way, points.to_vec())))
    }

    /// The way to read by a variable: it comes first behind the prefix, and what is read lies in one tree.
    fn way_by(&self, variable: Variable, context: &QueryContext) -> Result<Option<Way>> {
        use Permutation::{Opsg, Posg, Psog, Spog};
        let constants = self.way.prefix_length;
        let turned = [Psog, Posg, Spog, Opsg];
        let turned = turned.into_iter().filter(|_| self.may_turn);
        for permutation in std::iter::once(self.way.permutation).chain(turned) {
            let layout = Layout::new(&self.pattern, permutation);
            if layout.term(constants) != Some(PatternTerm::Variable(variable)) {
                continue;
            }
            let Ok(prefix) = layout.prefix(constants) else {
                continue;
            };
            let snapshot = context.snapshot();
            let reading = snapshot.reading(permutation, &prefix, &self.pattern.graphs)?;
            if !matches!(reading, Reading::Composed(_)) {
                return Ok(Some(Way {
                    permutation,
                    prefix_length: constants,
                    ranges: Vec::new(),
                }));
            }
        }
        Ok(None)
    }
}

/// Ranges of one key each, of those that lie in some ranges; no ranges mean all.
fn points_within(points: &[TermId], ranges: &[IdRange]) -> Vec<IdRange> {
    let mut rest = ranges;
    let mut kept = Vec::with_capacity(points.len());
    for point in points {
        while let [range, more @ ..] = rest
            && range.last < *point
        {
            rest = more;
        }
        let is_inside = match rest {
            [range, ..] => range.first <= *point,
            [] => ranges.is_empty(),
        };
        if is_inside {
            kept.push(IdRange {
                first: *point,
                last: *point,
            });
        }
    }
    kept
}

/// How many rows the first batch may have: where few may be asked for, joins above would look all of them up.
fn first_rows(limited: bool, context: &QueryContext) -> usize {
    match limited {
        true => FIRST_ROWS.min(context.batch_rows()),
        false => context.batch_rows(),
    }
}

impl Open {
    fn new(
        (pattern, kept): (&QuadPattern, &[VariableRanges]),
        columns: &[Variable],
        way: &Way,
        context: &QueryContext,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        let layout = Layout::new(pattern, way.permutation);
        let residual = Residual::new(&layout, way.prefix_length);
        let variables = layout.variables(way.prefix_length);
        let places = columns
            .iter()
            .map(|column| {
                let found = variables.iter().find(|(_, variable)| variable == column);
                found.map(|(place, _)| *place).ok_or(Error::Internal(
                    "a scan gives a variable that its pattern lacks",
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let spec = ScanSpec {
            permutation: way.permutation,
            prefix: layout.prefix(way.prefix_length)?,
            ranges: way.ranges.clone(),
            graphs: pattern.graphs.clone(),
            columns: residual.columns(Columns::of(&places)),
            with_graph: pattern.graph_variable.is_some(),
        };
        let mut scan = context.snapshot_of(counters).scan(&spec)?;
        for (place, variable) in &variables {
            if let Some((_, ranges)) = kept.iter().find(|(other, _)| other == variable)
                && ranges.len() <= KEPT_RANGES_MAX
                && !(*place == way.prefix_length && way.lies_within(ranges))
            {
                scan = scan.leaving_out(*place, ranges);
            }
        }
        let key = match layout.term(way.prefix_length) {
            Some(PatternTerm::Variable(key)) => Some(key),
            _ => None,
        };
        Ok(Self {
            scan,
            key,
            residual,
            rows: context.batch_rows(),
            places,
            buffer: QuadColumns::default(),
        })
    }

    /// The next rows, maybe none, and whether there may be more.
    fn next(&mut self, context: &QueryContext, counters: &Counters) -> Result<(Batch, bool)> {
        self.buffer.clear();
        let more = self.scan.next(self.rows, &mut self.buffer)?;
        self.rows = (self.rows * 2).min(context.batch_rows());
        counters.add_rows_in(self.buffer.rows);
        let keep = self.residual.filter(&self.buffer);
        let mut batch = Batch {
            columns: self.take_columns(),
            rows: self.buffer.rows,
        };
        if let Some(keep) = keep {
            batch.retain(&keep);
        }
        Ok((batch, more))
    }

    /// Goes on with the rows whose key is not below `id`.
    fn skip_to(
        &mut self,
        id: TermId,
        context: &QueryContext,
        counters: &Counters,
    ) -> Result<usize> {
        let rows = self.scan.skip_to(id)?;
        if rows > 0 {
            counters.add_leap();
        }
        if rows >= FIRST_ROWS {
            self.rows = LEAPT_ROWS.min(context.batch_rows());
        }
        Ok(rows)
    }

    /// Moves the columns out of the buffer.
    fn take_columns(&mut self) -> Vec<Vec<TermId>> {
        self.places
            .iter()
            .map(|place| {
                // Each column is another variable and so stands in another place.
                let column = self.buffer.columns.get_mut(*place);
                column.map(std::mem::take).unwrap_or_default()
            })
            .collect()
    }
}
