//! SERVICE: asked last in its group, for the bindings of everything else there.
//!
//! An OPTIONAL with a SERVICE inside is run for the bindings of its left side. What costs most is
//! neither rows nor bytes but round trips.

use super::{Lowering, Planned, planned, unit};
use crate::error::Error;
use crate::expression::Expression;
use crate::logical::{Node, Op, endpoint_variable, expression_variables, handed, mentioned, retie};
use crate::physical::{JoinKind, Operator, ServiceCall};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

use super::left_join::apply;

/// A request and its answer, in nanoseconds.
const REQUEST_NS: f64 = 20_000_000.0;
/// A solution that comes over the network, in nanoseconds.
const RECEIVED_ROW_NS: f64 = 2_000.0;
/// Solutions of a SERVICE whose variables nothing else binds.
const UNBOUND_ROWS: f64 = 10_000.0;
/// Bindings that go out with one request.
const BINDINGS: f64 = 1_000.0;

impl Lowering<'_> {
    /// A group with SERVICE: first what is local, with the conditions that it decides, then one
    /// SERVICE after the other, those first whose endpoint is known.
    pub(super) fn group_with_services(
        &mut self,
        nodes: Vec<Node>,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        let mut calls = Vec::new();
        let mut rest = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node.op {
                Op::Service(call) => calls.push(*call),
                _ => rest.push(node),
            }
        }
        let mut remote = VariableSet::new();
        for call in &calls {
            remote.extend(call.variables.iter().map(|(variable, _)| *variable));
        }
        let local: VariableSet = rest.iter().fold(VariableSet::new(), |mut all, node| {
            all.union_with(&node.certain);
            all
        });
        let (before, mut after): (Vec<_>, Vec<_>) = conditions.into_iter().partition(|condition| {
            let variables = expression_variables(condition);
            let decided = variables.is_subset(&local) || variables.is_disjoint(&remote);
            self.build.optimize && !is_volatile(condition) && decided
        });
        let rest = if rest.is_empty() {
            after.extend(before);
            unit()
        } else {
            let node = self.build.join(rest);
            let node = self.build.filter(node, before);
            self.lower(node)?
        };
        let mut joined = rest;
        while !calls.is_empty() && joined.plan.operator != Operator::Empty {
            let next = calls
                .iter()
                .position(|call| {
                    endpoint_variable(call).is_none_or(|v| joined.possible.contains(v))
                })
                .unwrap_or(0);
            joined = service(joined, calls.remove(next));
        }
        Ok(self.filter(joined, after))
    }

    /// OPTIONAL with SERVICE inside: planned for the bindings of the left side, those that may be
    /// unbound included.
    pub(super) fn left_join_with_services(
        &mut self,
        left: Planned,
        right: Node,
        conditions: Vec<Expression>,
    ) -> Result<Planned, Error> {
        let mut needed = mentioned(&right).union(&handed(&right));
        for condition in &conditions {
            needed.union_with(&expression_variables(condition));
        }
        let outer = self.hand_in(left, &needed);
        let right = retie(self.build, right, &outer.variables);
        let joined = self.build.join(vec![outer.leaf.clone(), right]);
        let node = self.build.filter(joined, conditions);
        let (inner, cost) = self.inner(&outer.left, node)?;
        let rows = outer
            .left
            .plan
            .estimated_rows
            .max(inner.plan.estimated_rows);
        let kind = JoinKind::Left { condition: None };
        Ok(apply(outer.left, inner, outer.variables, kind, rows, cost))
    }
}

/// Asks for the bindings of `input`.
pub(super) fn service(input: Planned, call: ServiceCall) -> Planned {
    let mut columns = input.plan.columns.clone();
    let mut is_bound = false;
    for (variable, _) in &call.variables {
        if columns.contains(variable) {
            is_bound = true;
        } else {
            columns.push(*variable);
        }
    }
    let rows = input.plan.estimated_rows;
    let (requests, received) = if is_bound {
        ((rows / BINDINGS).ceil().max(1.0), rows)
    } else {
        (1.0, UNBOUND_ROWS)
    };
    let out = if is_bound { rows } else { rows * UNBOUND_ROWS };
    let cost = input.cost + requests * REQUEST_NS + received * RECEIVED_ROW_NS;
    let certain = input.certain.clone();
    let operator = Operator::Service {
        input: Box::new(input.plan),
        call: Box::new(call),
    };
    planned(operator, columns, Vec::new(), out, cost, certain)
}
