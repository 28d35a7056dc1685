//! ORDER BY and DISTINCT from the order of an index: an input that can be split by the first key, or by the only
//! variable, is taken range by range ([`Operator::RangeSort`], [`Operator::SkipDistinct`]).
//!
//! With a small LIMIT that is worth another order of joins, whose first pattern is read in the order of the key
//! (`join_order::ordered`); that is asked of the group below by [`Wanted`]. It is handed down by whatever works solution
//! by solution. So is DISTINCT of a variable of which each value has many quads. Else an input that can be split anyway is taken by ranges if it has many rows.

use stoa_terms::Position;

use super::{COPIED_NODES_MAX, Lowering, Planned};
use crate::access_path::{Access, term_at};
use crate::cardinality::float;
use crate::cost;
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::{self, Condition, Item, Known, Order, Ordered, Source, Wanted, WantedPart};
use crate::logical::{Node, Op};
use crate::physical::{Operator, PatternTerm, Plan, QuadPattern, SortKey, Variable};
use crate::statistics::Reading;

/// Fewer solutions are sorted at once.
const ROWS_MIN: f64 = 5_000.0;
/// Fewer are, if all are wanted.
const ROWS_OF_ALL_MIN: f64 = 500_000.0;
/// Values are skipped that have so many rows.
const ROWS_A_VALUE_MIN: f64 = 16_384.0;
/// With a LIMIT there must be so many times as many.
const TIMES_MIN: f64 = 8.0;

impl Lowering<'_> {
    /// Lowers the input of an ORDER BY of which `kept` solutions are wanted; also whether it is made for being taken
    /// by ranges.
    pub(super) fn lower_in_order(
        &mut self,
        input: Node,
        keys: &[SortKey],
        kept: Option<u64>,
    ) -> Result<(Planned, bool), Error> {
        let variable = self.first_key(keys);
        let variable = variable.filter(|variable| input.certain.contains(*variable));
        let is_forced = self.forced.ranges == Some(true);
        let rows = match (kept, is_forced) {
            (Some(kept), _) => Some(float(kept.max(1))),
            (None, true) => Some(f64::INFINITY),
            (None, false) => None,
        };
        let (Some(variable), Some(rows)) = (variable, rows) else {
            return Ok((self.lower(input)?, false));
        };
        self.lower_wanted(input, (variable, WantedPart::First(rows)), is_forced)
    }

    /// Has the group below look for some of its solutions, `kept` of them, whichever.
    pub(crate) fn want_some(&mut self, kept: u64) {
        if self.build.optimize && self.forced.ranges != Some(false) {
            self.wanted = Some(Wanted {
                variable: None,
                part: WantedPart::First(float(kept.max(1))),
                is_forced: self.forced.ranges == Some(true),
            });
        }
    }

    /// Lowers the input of a DISTINCT; also whether it is made for being taken by ranges of its only variable.
    pub(super) fn lower_for_each(&mut self, input: Node) -> Result<(Planned, bool), Error> {
        let variable = match &input.op {
            // Of one pattern the index gives the values.
            Op::Project { input, .. } if matches!(input.op, Op::Pattern(_)) => None,
            Op::Project { input, variables } => match variables.as_slice() {
                [variable] if input.certain.contains(*variable) => Some(*variable),
                _ => None,
            },
            _ => None,
        };
        // Some values are enough for a LIMIT.
        let is_of_all = self.wanted.is_none();
        let variable = variable.filter(|_| is_of_all && self.may_be_by_ranges());
        let Some(variable) = variable else {
            return Ok((self.lower(input)?, false));
        };
        let is_forced = self.forced.ranges == Some(true);
        let wanted = (variable, WantedPart::Each);
        let (planned, is_made_for) = self.lower_wanted(input, wanted, is_forced)?;
        let is_only = planned.plan.columns == [variable];
        let may_skip = is_forced && planned.plan.split_by() == Some(variable);
        Ok((planned, is_only && (is_made_for || may_skip)))
    }

    fn lower_wanted(
        &mut self,
        input: Node,
        (variable, part): (Variable, WantedPart),
        is_forced: bool,
    ) -> Result<(Planned, bool), Error> {
        if !input.is_within(COPIED_NODES_MAX) {
            return Ok((self.lower(input)?, false));
        }
        let copy = input.clone();
        self.wanted = Some(Wanted {
            variable: Some(variable),
            part,
            is_forced,
        });
        self.ordered = false;
        let planned = self.lower(input)?;
        if !std::mem::take(&mut self.ordered) {
            return Ok((planned, false));
        }
        if planned.plan.split_by() == Some(variable) {
            return Ok((planned, true));
        }
        // Something above the group keeps it from being split.
        Ok((self.lower(copy)?, false))
    }

    fn may_be_by_ranges(&self) -> bool {
        self.build.optimize && self.forced.ranges != Some(false) && self.inside == 0
    }

    /// The variable that is sorted by first, if the input may be taken by ranges of it.
    fn first_key(&self, keys: &[SortKey]) -> Option<Variable> {
        if !self.may_be_by_ranges() {
            return None;
        }
        match keys.first()?.expression {
            Expression::Variable(variable) => Some(variable),
            _ => None,
        }
    }

    /// Whether an input that was not made for it is to be taken by ranges.
    pub(super) fn is_by_ranges(
        &self,
        input: &Planned,
        keys: &[SortKey],
        kept: Option<u64>,
    ) -> Result<bool, Error> {
        let Some(variable) = self.first_key(keys) else {
            return Ok(false);
        };
        if !input.certain.contains(variable) || input.plan.split_by() != Some(variable) {
            return Ok(false);
        }
        if self.forced.ranges == Some(true) {
            return Ok(true);
        }
        let rows = input.plan.estimated_rows;
        let is_worth = match kept {
            Some(kept) => rows >= ROWS_MIN.max(float(kept) * TIMES_MIN),
            // Ranges of what is joined by hash would have to be run by one thread.
            None => rows >= ROWS_OF_ALL_MIN && !has_hash_join(&input.plan),
        };
        Ok(is_worth && self.is_stored_in_order(&input.plan)?)
    }

    /// Another order of joins for what is wanted of a group, if that is better than `order`.
    pub(super) fn in_order(
        &self,
        order: &Order,
        items: &[Item],
        over: &[Condition],
        wanted: Option<Wanted>,
    ) -> Result<Option<(Order, Vec<Item>, Ordered)>, Error> {
        let Some((wanted, tree)) = wanted.zip(order.trees.get(order.root)) else {
            return Ok(None);
        };
        let Some(variable) = wanted.variable else {
            return Ok(None);
        };
        if !wanted.is_forced && !wanted.is_worth(tree) {
            return Ok(None);
        }
        let mut items = items.to_vec();
        let mut is_any = false;
        for item in &mut items {
            let Source::Pattern {
                pattern,
                rows,
                accesses,
                ..
            } = &mut item.source
            else {
                continue;
            };
            for read in accesses {
                let Some(position) = read.access.next_position() else {
                    continue;
                };
                let is_next = pattern.graph_variable != Some(variable)
                    && term_at(pattern, position) == Some(PatternTerm::Variable(variable));
                if !is_next {
                    continue;
                }
                if matches!(wanted.part, WantedPart::Each) {
                    read.values = self.cache.pattern_distinct(pattern, position, *rows)?;
                }
                read.in_ranges = wanted.is_forced
                    || match wanted.part {
                        WantedPart::First(_) => self.has_ranges(pattern, read.access, position)?,
                        WantedPart::Each => {
                            let reading = self.cache.reading(pattern, read.access)?;
                            read.values * ROWS_A_VALUE_MIN <= *rows
                                && !matches!(reading, Reading::Composed(_))
                        }
                    };
                is_any |= read.in_ranges;
            }
        }
        if !is_any {
            return Ok(None);
        }
        let go_on = || self.cache.check();
        let found = join_order::order(
            &items,
            over,
            (self.forced, Some(wanted)),
            &|_| Ok(Known::default()),
            &go_on,
        )?;
        let ordered = found.and_then(|order| order.ordered.map(|ordered| (order, ordered)));
        Ok(ordered.map(|(order, ordered)| (order, items, ordered)))
    }

    /// Whether a pattern stands in one sort order, and ids tell the order of the terms behind its constants.
    fn has_ranges(
        &self,
        pattern: &QuadPattern,
        access: Access,
        position: Position,
    ) -> Result<bool, Error> {
        let reading = self.cache.reading(pattern, access)?;
        Ok(
            !matches!(reading, Reading::Composed(_))
                && self.cache.tells_order(pattern, position)?,
        )
    }

    /// Whether that holds of all that is restricted.
    fn is_stored_in_order(&self, plan: &Plan) -> Result<bool, Error> {
        let mut open = vec![plan];
        while let Some(plan) = open.pop() {
            if let Operator::IndexScan {
                pattern,
                permutation,
                prefix_length,
                ..
            }
            | Operator::IndexGroups {
                pattern,
                permutation,
                prefix_length,
                ..
            } = &plan.operator
            {
                let access = Access {
                    permutation: *permutation,
                    prefix_length: *prefix_length,
                };
                let Some(position) = access.next_position() else {
                    return Ok(false);
                };
                if !self.has_ranges(pattern, access, position)? {
                    return Ok(false);
                }
            }
            open.extend(plan.split_inputs());
        }
        Ok(true)
    }
}

fn has_hash_join(plan: &Plan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if matches!(plan.operator, Operator::HashJoin { .. }) {
            return true;
        }
        open.extend(plan.split_inputs());
    }
    false
}

/// What is expected of a plan of which a share is read.
pub(super) fn in_part(mut planned: Planned, ordered: &Ordered) -> Planned {
    scale(&mut planned.plan, ordered.share);
    planned.cost = ordered.cost;
    planned
}

fn scale(plan: &mut Plan, share: f64) {
    plan.estimated_rows *= share;
    match &mut plan.operator {
        Operator::MergeJoin { left, right, .. } => {
            scale(left, share);
            scale(right, share);
        }
        Operator::Filter { input, .. }
        | Operator::IndexNestedLoopJoin { input, .. }
        | Operator::HashJoin { left: input, .. } => scale(input, share),
        _ => (),
    }
}

/// DISTINCT of an input with one variable that is taken by ranges.
pub(super) fn skipped(input: Planned, rows: f64) -> Planned {
    let columns = input.plan.columns.clone();
    let operator = Operator::SkipDistinct(Box::new(input.plan));
    super::planned(
        operator,
        columns,
        Vec::new(),
        rows,
        input.cost,
        input.certain,
    )
}

/// ORDER BY of an input that is taken by ranges.
pub(super) fn range_sorted(input: Planned, keys: Vec<SortKey>, kept: Option<u64>) -> Planned {
    let columns = input.plan.columns.clone();
    let in_rows = input.plan.estimated_rows;
    let rows = kept.map_or(in_rows, |kept| in_rows.min(float(kept)));
    let read = kept.map_or(1.0, |kept| (2.0 * float(kept) / in_rows.max(1.0)).min(1.0));
    let sorted = in_rows * read;
    let cost = input.cost * read
        + match kept {
            Some(_) => sorted * cost::GROUP_ROW,
            None => cost::sort(sorted),
        };
    let operator = Operator::RangeSort {
        input: Box::new(input.plan),
        keys,
        limit: kept,
    };
    super::planned(operator, columns, Vec::new(), rows, cost, input.certain)
}
