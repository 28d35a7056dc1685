//! EXISTS, NOT EXISTS and MINUS: as semi- and anti-joins (by look-ups, merging or hashing) where the pattern can be evaluated on
//! its own, by `apply` where it has to see the bindings that are tested.

use super::joins::{hash_join, lookup_join, merge_cost, merge_join, sorted_scan};
use super::left_join::apply;
use super::switching::add_switch;
use super::{CHOICES_MAX, COPIED_NODES_MAX, Lowering, Planned, planned, project};
use crate::access_path::lookup;
use crate::cost;
use crate::error::Error;
use crate::logical::{
    ExistsKind, Node, Op, existence_only, handed, is_safe, mentioned, substitute,
};
use crate::physical::{JoinKind, Operator, QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::{ForcedJoin, Rewrites};

/// An inner plan that costs less than this (nanoseconds) is taken without looking for another.
const CHEAP_NS: f64 = 100_000.0;
/// What was planned for a part of its solutions is tested by running a pattern for their bindings only if that costs so many
/// times less than to run it once for all: more of them may have to be tested than is expected, and what does not depend
/// on them is done again each time.
const TRIED_AGAIN: f64 = 4.0;
/// The share of solutions that a test keeps, when nothing is known.
const KEPT: f64 = 0.5;

/// Solutions that are tested.
struct Tested {
    planned: Planned,
    /// Whether they were planned for a part of them.
    is_for_part: bool,
}

impl Lowering<'_> {
    #[inline(never)]
    pub(super) fn exists(
        &mut self,
        input: Node,
        pattern: Node,
        kind: ExistsKind,
    ) -> Result<Planned, Error> {
        let pattern = existence_only(pattern);
        let joined = match kind {
            ExistsKind::Semi => self.turned(&input, &pattern),
            ExistsKind::Anti | ExistsKind::Mark(_) => None,
        };
        let Some(joined) = joined else {
            return self.tested(input, pattern, kind);
        };
        // How rarely the pattern has a solution is seen by what all of them cost.
        let some = self.wanted.take();
        if self.forced.exists_joins == Some(true) {
            return self.as_join(joined);
        }
        let again = some.map(|some| (some, input.clone(), pattern.clone()));
        let tested = self.tested(input, pattern, kind)?;
        if tested.cost < CHEAP_NS {
            return Ok(tested);
        }
        let turned = self.as_join(joined)?;
        if turned.cost < tested.cost {
            return Ok(turned);
        }
        let Some((some, input, pattern)) = again else {
            return Ok(tested);
        };
        self.wanted = Some(some);
        let for_some = self.tested(input, pattern, kind)?;
        Ok(match for_some.cost < tested.cost {
            true => for_some,
            false => tested,
        })
    }

    /// EXISTS as a join with the different bindings that the pattern has of the one variable that is shared, which is the
    /// left side where these are few. `None` where it may not be, within such a join,
    /// and once the query has had its trials.
    fn turned(&mut self, input: &Node, pattern: &Node) -> Option<Node> {
        let forced = self.forced.exists_joins;
        let is_small = || input.is_within(COPIED_NODES_MAX) && pattern.is_within(COPIED_NODES_MAX);
        if self.is_turned || self.turns == 0 || forced == Some(false) || !is_small() {
            return None;
        }
        let shared = input.possible.intersection(&pattern.possible);
        let is_fixed = shared.is_subset(&input.certain) && shared.is_subset(&pattern.certain);
        let may_be = self.build.optimize
            && !self.without.has(Rewrites::SEMI_JOINS)
            && (forced.is_some() || self.forced.join_of_two().is_none())
            && is_fixed
            && is_safe(pattern, &mentioned(pattern).intersection(&input.possible))
            && !self.is_tied(pattern);
        let mut variables = shared.iter();
        let (Some(variable), None) = (variables.next(), variables.next()) else {
            return None;
        };
        if !may_be {
            return None;
        }
        self.turns -= 1;
        let build = self.build;
        let bindings = build.project(pattern.clone(), vec![variable]);
        Some(build.join(vec![build.distinct(bindings), input.clone()]))
    }

    fn as_join(&mut self, turned: Node) -> Result<Planned, Error> {
        self.is_turned = true;
        let planned = self.lower(turned);
        self.is_turned = false;
        planned
    }

    /// EXISTS as a test of each solution.
    #[inline(never)]
    fn tested(&mut self, input: Node, pattern: Node, kind: ExistsKind) -> Result<Planned, Error> {
        let input = self.tested_input(input)?;
        if input.planned.plan.operator == Operator::Empty {
            return Ok(input.planned);
        }
        let kind = match kind {
            ExistsKind::Semi => JoinKind::Semi,
            ExistsKind::Anti => JoinKind::Anti,
            ExistsKind::Mark(variable) => JoinKind::Mark(variable),
        };
        let outer = mentioned(&pattern).intersection(&input.planned.possible);
        let is_plain = self.without.has(Rewrites::SEMI_JOINS) && !outer.is_empty();
        if is_safe(&pattern, &outer) && !is_plain {
            return self.semi_join(input, pattern, kind);
        }
        // Patterns of EXISTS get their bindings here, so none is in there yet.
        debug_assert!(handed(&pattern).is_empty());
        let outer = self.hand_in(input.planned, &outer);
        let build = self.build;
        let node = substitute(build, pattern, &outer.leaf, &mut || self.fresh());
        let (inner, cost) = self.inner(&outer.left, node)?;
        let rows = kept(&outer.left, &kind);
        Ok(apply(outer.left, inner, outer.variables, kind, rows, cost))
    }

    #[inline(never)]
    pub(super) fn minus(
        &mut self,
        left: Node,
        right: Node,
        ambient: &VariableSet,
    ) -> Result<Planned, Error> {
        let both = left.possible.intersection(&right.possible);
        let certain = left.certain.intersection(&right.certain);
        let meets = !both.is_disjoint(&certain.difference(ambient));
        if meets {
            // What is bound on both sides is shared by any two solutions.
            let left = self.tested_input(left)?;
            if left.planned.plan.operator == Operator::Empty {
                return Ok(left.planned);
            }
            if self.build.optimize || !both.is_disjoint(ambient) {
                return self.semi_join(left, right, JoinKind::Anti);
            }
            let right = self.lower(right)?;
            return Ok(minus_join(left.planned, right, Vec::new()));
        }
        let left = self.lower(left)?;
        if left.plan.operator == Operator::Empty {
            return Ok(left);
        }
        let right = self.lower(right)?;
        let ambient = both.intersection(ambient).iter().collect();
        Ok(minus_join(left, right, ambient))
    }

    fn tested_input(&mut self, node: Node) -> Result<Tested, Error> {
        self.is_for_part = false;
        let planned = self.lower(node)?;
        Ok(Tested {
            planned,
            is_for_part: self.is_for_part,
        })
    }

    /// Tests solutions against a pattern that is evaluated on its own.
    fn semi_join(
        &mut self,
        tested: Tested,
        pattern: Node,
        kind: JoinKind,
    ) -> Result<Planned, Error> {
        let input = &tested.planned;
        let shared = input.possible.intersection(&pattern.possible);
        let rows = kept(input, &kind);
        let fixed = !shared.is_empty() && shared.is_subset(&input.certain);
        if self.build.optimize && fixed && self.forced.join_of_two() != Some(ForcedJoin::Hash) {
            if let Op::Pattern(quad) = &pattern.op
                && !matches!(kind, JoinKind::Mark(_))
                && lookup(quad, &input.certain, input.plan.estimated_rows, false).is_some()
            {
                let all = self.cache.pattern_rows(quad)?;
                let probes = input.plan.estimated_rows;
                let probe = cost::lookup(probes, all, false);
                let hash = cost::SCAN_START + all * cost::SCAN_ROW + cost::hash(all, probes);
                let other = probe.min(hash);
                let merged = self.merged(input, (quad, all), &shared, other, &kind);
                if let Some((key, right)) = merged {
                    let right = project(right, shared.iter().collect());
                    return Ok(merge_join(tested.planned, right, key, kind, rows));
                }
                if probe < hash || self.forced.join_of_two() == Some(ForcedJoin::IndexNestedLoop) {
                    let total = input.cost + probe;
                    let first = self.cache.has_graph_first();
                    let switch = self.switch(input, quad, all)?;
                    let input = tested.planned;
                    let mut joined = lookup_join(input, (**quad).clone(), kind, None, rows, first);
                    add_switch(&mut joined, switch);
                    joined.cost = total;
                    return Ok(joined);
                }
            } else if !self.is_tied(&pattern)
                && (self.choices < CHOICES_MAX || input.plan.estimated_rows < 1_000.0)
            {
                return self.applied_or_hashed(tested, pattern, &shared, kind);
            }
        }
        self.choices += 1;
        let right = self.lower(pattern);
        self.choices -= 1;
        Ok(self.hashed(tested.planned, right?, &shared, kind))
    }

    /// Runs the pattern for the bindings that are tested, or once on its own, as is cheaper.
    fn applied_or_hashed(
        &mut self,
        tested: Tested,
        pattern: Node,
        shared: &VariableSet,
        kind: JoinKind,
    ) -> Result<Planned, Error> {
        let Tested {
            planned: input,
            is_for_part,
        } = tested;
        self.choices += 1;
        let plans = self.both(&input, pattern, shared);
        self.choices -= 1;
        let (inner, cost, right) = plans?;
        if let Some(right) = right {
            let joined = match self.merge_key(&input, &right, shared) {
                Some(_) => merge_cost(&input, &right, &kind) - input.cost,
                None => {
                    right.cost + cost::hash(right.plan.estimated_rows, input.plan.estimated_rows)
                }
            };
            let least = match is_for_part {
                true => TRIED_AGAIN * cost,
                false => cost,
            };
            if joined < least {
                return Ok(self.hashed(input, right, shared, kind));
            }
        }
        let rows = kept(&input, &kind);
        let outer = shared.iter().collect();
        Ok(apply(input, inner, outer, kind, rows, cost))
    }

    fn both(
        &mut self,
        input: &Planned,
        pattern: Node,
        shared: &VariableSet,
    ) -> Result<(Planned, f64, Option<Planned>), Error> {
        let (inner, cost) = self.seeded(input, &pattern, shared)?;
        let right = if cost < CHEAP_NS || self.choices > CHOICES_MAX {
            None
        } else {
            Some(self.lower(pattern)?)
        };
        Ok((inner, cost, right))
    }

    fn hashed(
        &self,
        input: Planned,
        right: Planned,
        shared: &VariableSet,
        kind: JoinKind,
    ) -> Planned {
        let rows = kept(&input, &kind);
        if right.plan.operator == Operator::Empty {
            return match kind {
                JoinKind::Semi => super::empty(input.plan.columns),
                JoinKind::Mark(_) => hash_join(input, right, kind, rows),
                _ => input,
            };
        }
        let right = if shared.is_empty() {
            first(right)
        } else if self.build.optimize {
            project(right, shared.iter().collect())
        } else {
            right
        };
        match self.merge_key(&input, &right, shared) {
            Some(key) => merge_join(input, right, key, kind, rows),
            None => hash_join(input, right, kind, rows),
        }
    }

    /// What two sides can be merged by that come in its order, and share nothing else.
    fn merge_key(
        &self,
        input: &Planned,
        right: &Planned,
        shared: &VariableSet,
    ) -> Option<Variable> {
        let key = input.plan.sorted_by.first().copied()?;
        let may_be = self.build.optimize
            && matches!(self.forced.join_of_two(), None | Some(ForcedJoin::Merge))
            && right.plan.sorted_by.first() == Some(&key)
            && is_only(shared, key)
            && shared.is_subset(&input.certain)
            && shared.is_subset(&right.certain);
        may_be.then_some(key)
    }

    /// The scan of a pattern of which there are `all` matches, and what it is merged by, if that takes less than `other`.
    fn merged(
        &self,
        input: &Planned,
        (pattern, all): (&QuadPattern, f64),
        shared: &VariableSet,
        other: f64,
        kind: &JoinKind,
    ) -> Option<(Variable, Planned)> {
        let key = input.plan.sorted_by.first().copied();
        let key = key.filter(|key| is_only(shared, *key))?;
        let right = sorted_scan(pattern, key, all)?;
        let own = merge_cost(input, &right, kind) - input.cost;
        let is_taken = match self.forced.join_of_two() {
            None => own < other,
            forced => forced == Some(ForcedJoin::Merge),
        };
        is_taken.then_some((key, right))
    }
}

/// Whether `key` alone is shared: with others the partners of each row would be compared one by one.
fn is_only(shared: &VariableSet, key: Variable) -> bool {
    let mut shared = shared.iter();
    shared.next() == Some(key) && shared.next().is_none()
}

fn minus_join(left: Planned, right: Planned, ambient: Vec<Variable>) -> Planned {
    if right.plan.operator == Operator::Empty {
        return left;
    }
    let kind = JoinKind::Minus { ambient };
    let rows = kept(&left, &kind);
    hash_join(left, right, kind, rows)
}

/// The first solution, which is as good as all where only existence counts.
fn first(input: Planned) -> Planned {
    let columns = input.plan.columns.clone();
    let rows = input.plan.estimated_rows.min(1.0);
    let operator = Operator::Slice {
        input: Box::new(input.plan),
        by: Vec::new(),
        offset: 0,
        limit: Some(1),
    };
    planned(
        operator,
        columns,
        Vec::new(),
        rows,
        input.cost,
        input.certain,
    )
}

fn kept(input: &Planned, kind: &JoinKind) -> f64 {
    let rows = input.plan.estimated_rows;
    match kind {
        JoinKind::Mark(_) => rows,
        _ => rows * KEPT,
    }
}
