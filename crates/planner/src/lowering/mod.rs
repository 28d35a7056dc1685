//! From logical to physical plans: which operator does what, by cost.
//!
//! Without `optimize` everything is done the plain way: patterns in written order, hash joins, no
//! ranges; the executor then runs the algebra nearly as it stands.

mod aggregate_difference;
mod chain;
pub(crate) mod common_subplan;
mod different;
mod group;
mod index_groups;
mod inline;
mod joins;
mod large_group;
mod leapfrog;
mod left_join;
mod materialize;
mod modifiers;
mod once;
mod parameterized;
mod part;
mod partner_counts;
mod path_reach;
mod path_search;
mod prune;
mod ranges;
mod sample;
mod semi_join;
mod service;
mod star;
mod switching;
mod top_values;

pub(crate) use once::without_repeats;
pub(crate) use partner_counts::count_partners;
pub(crate) use path_reach::Followed;
pub(crate) use path_search::PathFigures;
pub(crate) use prune::take_unused;
pub(crate) use sample::{Drawn, Samples};
pub(crate) use star::Star;
pub(crate) use top_values::Spread;

use crate::cardinality::Cache;
use crate::cost;
use crate::error::Error;
use crate::expression::{Constant, Expression};
use crate::join_order::{Wanted, limited};
use crate::logical::{Builder, Node, Op, handed, visit_expression};
use crate::physical::{Operator, Plan, Variable};
use crate::variable_set::VariableSet;
use crate::{ForcedChoices, PlannerOptions, Rewrites};

/// A physical plan with what the planner knows about it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// Nanoseconds to run it, see [`cost`].
    pub(crate) cost: f64,
    pub(crate) certain: VariableSet,
    pub(crate) possible: VariableSet,
}

/// State of lowering one query.
pub(crate) struct Lowering<'a> {
    pub(crate) cache: &'a Cache<'a>,
    build: Builder,
    forced: ForcedChoices,
    /// Rewrites that are left out.
    without: Rewrites,
    /// What is wanted of the solutions of the node that is lowered next.
    wanted: Option<Wanted>,
    /// Whether the last plan that something was wanted of was made for it.
    ordered: bool,
    /// Whether the group that was planned last was planned for a part of its solutions.
    is_for_part: bool,
    pub(crate) names: Vec<String>,
    /// Expected rows of the outer bindings that are in scope.
    outer_rows: f64,
    /// How many inner plans of an `apply` enclose what is lowered.
    inside: u32,
    /// How many choices between whole plans enclose the current one; each doubles the work.
    choices: u32,
    /// Whether this is within an EXISTS that is tried as a join.
    is_turned: bool,
    /// How many EXISTS may still be tried as joins.
    turns: u32,
    /// How many parts more may be kept to be planned in another way.
    copies: u32,
}

/// No cost is larger, so that sums of costs are numbers.
const COST_MAX: f64 = 1e200;

/// So many solutions are taken to be read for each that differs from all before.
const ROWS_A_DIFFERENT_ONE: f64 = 16.0;

/// So many solutions are taken to be read for each that a test leaves over.
const ROWS_A_KEPT_ONE: f64 = 16.0;

/// How deep choices between whole plans are nested; below, a rule of thumb decides.
const CHOICES_MAX: u32 = 3;
/// Parts of so many nodes at most are kept while they are planned, to be planned in another way. Groups are within each
/// other: each would keep a copy of all below it.
const COPIED_NODES_MAX: usize = 256;
/// How many parts of a query are kept so, the outer ones first: what is within each of them is planned once more, so that a hundred
/// groups within each other took seconds.
const COPIES_MAX: u32 = 256;
/// How many EXISTS of a query are tried as joins, the outer ones first; each has its group planned again.
const TURNS_MAX: u32 = 8;

impl<'a> Lowering<'a> {
    pub(crate) fn new(cache: &'a Cache<'a>, options: &PlannerOptions, names: Vec<String>) -> Self {
        Self {
            cache,
            build: Builder {
                without: options.without,
                ..Builder::plain(options.optimize)
            },
            forced: options.forced,
            without: options.without,
            wanted: None,
            ordered: false,
            is_for_part: false,
            names,
            outer_rows: 1.0,
            inside: 0,
            choices: 0,
            is_turned: false,
            turns: TURNS_MAX,
            copies: COPIES_MAX,
        }
    }

    /// Lowers a node and all below it.
    pub(crate) fn lower(&mut self, node: Node) -> Result<Planned, Error> {
        self.cache.check()?;
        let wanted = self.wanted.take();
        self.wanted = wanted.and_then(|wanted| handed_down(&node.op, wanted));
        match node.op {
            Op::Empty => Ok(empty(Vec::new())),
            Op::Pattern(_) | Op::Join(_) => self.group(node, Vec::new()),
            Op::Filter { input, conditions } => match input.op {
                Op::Pattern(_) | Op::Join(_) => self.group(*input, conditions),
                _ => {
                    let input = self.lower(*input)?;
                    Ok(self.filter(input, conditions))
                }
            },
            Op::PathSearch(search) => self.path_search(*search),
            Op::Service(call) => Ok(service::service(unit(), *call)),
            Op::Values { variables, rows } => Ok(values(variables, rows)),
            Op::GraphScan { graphs, variable } => {
                let rows = match &*graphs {
                    stoa_terms::GraphSet::One(_) => 1.0,
                    _ => self.cache.named_graphs(),
                };
                let operator = Operator::GraphScan { graphs: *graphs };
                Ok(leaf(operator, vec![variable], rows))
            }
            Op::OuterBindings(variables) => {
                Ok(leaf(Operator::OuterBindings, variables, self.outer_rows))
            }
            Op::Union(branches) => self.union(branches),
            Op::LeftJoin {
                left,
                right,
                conditions,
                marks,
            } => self.left_join(*left, *right, conditions, marks),
            Op::Minus {
                left,
                right,
                ambient,
            } => self.minus(*left, *right, &ambient),
            Op::Exists {
                input,
                pattern,
                kind,
            } => self.exists(*input, *pattern, kind),
            Op::Extend {
                input,
                variable,
                expression,
            } => self.extend(*input, variable, *expression, &node.certain),
            Op::Group {
                input,
                keys,
                aggregates,
            } => self.aggregate(*input, keys, aggregates, &node.certain),
            Op::Distinct(input) => self.distinct(*input),
            Op::Reduced(input) => self.reduced(*input),
            Op::Sort { input, keys } => self.sort(*input, keys),
            Op::Slice {
                input,
                by,
                offset,
                limit,
            } => self.slice(*input, by, offset, limit),
            Op::Project { input, variables } => self.projected(*input, variables),
        }
    }

    fn projected(&mut self, input: Node, mut variables: Vec<Variable>) -> Result<Planned, Error> {
        let input = self.lower(input)?;
        // A column that is never bound would seem to be shared.
        variables.retain(|variable| input.possible.contains(*variable));
        Ok(project(input, variables))
    }

    /// Whether a node reads outer bindings, so that it cannot be run by another `apply`.
    fn is_tied(&self, node: &Node) -> bool {
        self.inside > 0 && !handed(node).is_empty()
    }

    /// A variable that the query does not name.
    fn fresh(&mut self) -> Variable {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(String::new());
        Variable(number)
    }

    #[inline(never)]
    fn union(&mut self, branches: Vec<Node>) -> Result<Planned, Error> {
        let mut columns: Vec<Variable> = Vec::new();
        let mut certain: Option<VariableSet> = None;
        let mut plans = Vec::with_capacity(branches.len());
        let (mut rows, mut cost) = (0.0, 0.0);
        let wanted = self.wanted.take();
        for branch in branches {
            self.wanted = wanted;
            let branch = self.lower(branch)?;
            if branch.plan.operator == Operator::Empty {
                continue;
            }
            for &column in &branch.plan.columns {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
            match &mut certain {
                Some(certain) => certain.intersect_with(&branch.certain),
                None => certain = Some(branch.certain.clone()),
            }
            rows += branch.plan.estimated_rows;
            cost += branch.cost + branch.plan.estimated_rows * cost::OUTPUT_ROW;
            plans.push(branch);
        }
        if plans.len() < 2 {
            return Ok(plans.pop().unwrap_or_else(|| empty(Vec::new())));
        }
        let plans = plans.into_iter().map(|branch| branch.plan).collect();
        Ok(planned(
            Operator::Union(plans),
            columns,
            Vec::new(),
            rows,
            cost,
            certain.unwrap_or_default(),
        ))
    }

    #[inline(never)]
    fn extend(
        &mut self,
        input: Node,
        variable: Variable,
        expression: Expression,
        certain: &VariableSet,
    ) -> Result<Planned, Error> {
        let input = self.lower(input)?;
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        let expression = seen(expression, &input.possible);
        Ok(extended(
            input,
            variable,
            expression,
            certain.contains(variable),
        ))
    }

    /// Puts conditions above a plan.
    fn filter(&self, input: Planned, conditions: Vec<Expression>) -> Planned {
        let selectivity: f64 = conditions
            .iter()
            .map(crate::cardinality::selectivity)
            .product();
        let rows = input.plan.estimated_rows * selectivity;
        filter_to(input, conditions, rows)
    }
}

/// Adds a column, and whether it is always bound.
fn extended(
    input: Planned,
    variable: Variable,
    expression: Expression,
    is_certain: bool,
) -> Planned {
    let mut columns = input.plan.columns.clone();
    columns.push(variable);
    let mut certain = input.certain;
    if is_certain {
        certain.insert(variable);
    }
    let sorted = input.plan.sorted_by.clone();
    let rows = input.plan.estimated_rows;
    let cost = input.cost + rows * cost::CONDITION_ROW;
    let operator = Operator::Extend {
        input: Box::new(input.plan),
        variable,
        expression,
    };
    planned(operator, columns, sorted, rows, cost, certain)
}

/// What is wanted of the input of a node if that is wanted of the node; `None` if a part of the input is not enough.
fn handed_down(op: &Op, wanted: Wanted) -> Option<Wanted> {
    let is_of = |input: &Node| {
        wanted
            .variable
            .is_none_or(|variable| input.certain.contains(variable))
    };
    match op {
        Op::Pattern(_) | Op::Join(_) | Op::Project { .. } => Some(wanted),
        Op::Filter { input, conditions } => Some(match input.op {
            // Conditions are part of the group.
            Op::Pattern(_) | Op::Join(_) => wanted,
            _ => {
                let kept = conditions.iter().map(crate::cardinality::selectivity);
                wanted.of_times(1.0 / kept.product::<f64>().max(f64::MIN_POSITIVE))
            }
        }),
        Op::Extend { variable, .. } => Some(wanted).filter(|_| wanted.variable != Some(*variable)),
        Op::LeftJoin { left: input, .. } => Some(wanted).filter(|_| is_of(input)),
        Op::Minus { left: input, .. } | Op::Exists { input, .. } => {
            let times = wanted.variable.map_or(ROWS_A_KEPT_ONE, |_| 1.0);
            Some(wanted.of_times(times)).filter(|_| is_of(input))
        }
        Op::Union(_) => Some(wanted).filter(|wanted| wanted.variable.is_none()),
        Op::Distinct(_) | Op::Reduced(_) => {
            Some(wanted.of_times(ROWS_A_DIFFERENT_ONE)).filter(|wanted| wanted.variable.is_none())
        }
        _ => None,
    }
}

/// Puts conditions above a plan, of which `rows` solutions are expected then.
fn filter_to(input: Planned, mut conditions: Vec<Expression>, rows: f64) -> Planned {
    if conditions.is_empty() || input.plan.operator == Operator::Empty {
        return input;
    }
    let condition = if conditions.len() == 1 {
        conditions.pop().unwrap_or(Expression::Coalesce(Vec::new()))
    } else {
        Expression::And(conditions)
    };
    let columns = input.plan.columns.clone();
    let sorted = input.plan.sorted_by.clone();
    let cost = input.cost + input.plan.estimated_rows * cost::CONDITION_ROW;
    let operator = Operator::Filter {
        condition: seen(condition, &input.possible),
        input: Box::new(input.plan),
    };
    planned(operator, columns, sorted, rows, cost, input.certain)
}

/// Columns of a plan, in this order; unbound where the plan has none.
fn project(input: Planned, variables: Vec<Variable>) -> Planned {
    if input.plan.operator == Operator::Empty {
        return empty(variables);
    }
    if input.plan.columns == variables {
        return input;
    }
    let sorted = input
        .plan
        .sorted_by
        .iter()
        .copied()
        .take_while(|variable| variables.contains(variable))
        .collect();
    let set: VariableSet = variables.iter().copied().collect();
    let certain = input.certain.intersection(&set);
    let rows = input.plan.estimated_rows;
    planned(
        Operator::Project(Box::new(input.plan)),
        variables,
        sorted,
        rows,
        input.cost,
        certain,
    )
}

fn planned(
    operator: Operator,
    columns: Vec<Variable>,
    sorted_by: Vec<Variable>,
    estimated_rows: f64,
    cost: f64,
    certain: VariableSet,
) -> Planned {
    let possible = columns.iter().copied().collect();
    Planned {
        plan: Plan {
            operator,
            columns,
            sorted_by,
            estimated_rows: limited(estimated_rows),
        },
        cost: cost.min(COST_MAX),
        certain,
        possible,
    }
}

/// A plan without input, all of whose columns are bound.
fn leaf(operator: Operator, columns: Vec<Variable>, rows: f64) -> Planned {
    let certain = columns.iter().copied().collect();
    planned(
        operator,
        columns,
        Vec::new(),
        rows,
        rows * cost::OUTPUT_ROW,
        certain,
    )
}

fn empty(columns: Vec<Variable>) -> Planned {
    planned(
        Operator::Empty,
        columns,
        Vec::new(),
        0.0,
        0.0,
        VariableSet::new(),
    )
}

fn unit() -> Planned {
    leaf(Operator::Unit, Vec::new(), 1.0)
}

fn values(variables: Vec<Variable>, rows: Vec<Vec<Option<Constant>>>) -> Planned {
    let certain = variables
        .iter()
        .enumerate()
        .filter(|&(column, _)| {
            rows.iter()
                .all(|row| matches!(row.get(column), Some(Some(_))))
        })
        .map(|(_, &variable)| variable)
        .collect();
    let count = crate::cardinality::float(u64::try_from(rows.len()).unwrap_or(u64::MAX));
    planned(
        Operator::Values(rows),
        variables,
        Vec::new(),
        count,
        count * cost::OUTPUT_ROW,
        certain,
    )
}

/// An expression as it is seen by an operator over these columns: variables that are not among them
/// are unbound.
fn seen(mut expression: Expression, columns: &VariableSet) -> Expression {
    let mut unseen = false;
    visit_expression(&expression, &mut |part| {
        if let Expression::Variable(variable) | Expression::Bound(variable) = part {
            unseen |= !columns.contains(*variable);
        }
    });
    if unseen {
        blind(&mut expression, columns);
    }
    expression
}

fn seen_all(conditions: Vec<Expression>, columns: &VariableSet) -> Vec<Expression> {
    conditions
        .into_iter()
        .map(|condition| seen(condition, columns))
        .collect()
}

fn blind(expression: &mut Expression, columns: &VariableSet) {
    match expression {
        Expression::Variable(variable) if !columns.contains(*variable) => {
            // COALESCE of nothing is an error, as is an unbound variable.
            *expression = Expression::Coalesce(Vec::new());
        }
        Expression::Bound(variable) if !columns.contains(*variable) => {
            *expression = Expression::boolean(false);
        }
        Expression::Constant(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Parameter(_) => {}
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            blind(inner, columns);
        }
        Expression::And(list)
        | Expression::Or(list)
        | Expression::Coalesce(list)
        | Expression::Call(_, list) => {
            for inner in list {
                blind(inner, columns);
            }
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            blind(left, columns);
            blind(right, columns);
        }
        Expression::In(needle, list) => {
            blind(needle, columns);
            for inner in list {
                blind(inner, columns);
            }
        }
        Expression::If(a, b, c) => {
            blind(a, columns);
            blind(b, columns);
            blind(c, columns);
        }
    }
}
