//! What stands at the top of a part of a join and gives the same above the join: OPTIONAL, BIND, FILTER. So the patterns
//! below it are ordered together with those of the other parts.
//!
//! Each needs that what it sees of the other parts' variables is fixed by its own input, and BIND that nobody else binds
//! its variable. The order of a subquery goes where it is joined: it means nothing there.
//!
//! # References
//! Perez, Arenas, Gutierrez: Semantics and complexity of SPARQL (2009), on reordering OPTIONAL; here with variables that
//! may be unbound. Kim: On optimizing an SQL-like nested query (TODS 1982), on unnesting.

use super::build::join_of;
use super::{Builder, Mark, Node, Op, asks_others, expression_variables, mentioned};
use crate::Rewrites;
use crate::expression::Expression;
use crate::physical::Variable;
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// What rises may let something else rise; after so many rounds it is left.
const ROUNDS_MAX: usize = 16;

/// What was taken off a part.
enum Risen {
    Optional {
        right: Box<Node>,
        conditions: Vec<Expression>,
        marks: Vec<Mark>,
    },
    Bind {
        variable: Variable,
        expression: Box<Expression>,
        /// Whether it was known to be bound.
        is_certain: bool,
    },
    Conditions(Vec<Expression>),
}

/// The variables that parts of a join may bind: any of them, and several.
#[derive(Default)]
struct Binders {
    any: VariableSet,
    several: VariableSet,
}

impl Builder {
    /// Join of parts; what may rise is taken off them first. Conditions over several of them are added to `conditions`.
    pub(super) fn join_below(self, items: Vec<Node>, conditions: &mut Vec<Expression>) -> Node {
        let mut items = items;
        let mut risen = Vec::new();
        for _ in 0..ROUNDS_MAX {
            if !self.takes(Rewrites::RISING) || items.len() < 2 || !items.iter().any(may_rise) {
                break;
            }
            let binders = Binders::of(&items);
            let mut kept = Vec::with_capacity(items.len());
            let mut is_changed = false;
            for item in items {
                is_changed |= self.rise(item, &binders, (&mut kept, &mut risen), conditions);
            }
            items = kept;
            if !is_changed {
                break;
            }
        }
        if items.iter().any(Node::is_empty) {
            return Node::empty();
        }
        // What was taken off first may need what was taken off later.
        let joined = join_of(items);
        risen
            .into_iter()
            .rev()
            .fold(joined, |node, top| self.put_on(node, top))
    }

    /// Takes off a part what may rise, and adds what is left of it to those that are kept; whether there was anything.
    fn rise(
        self,
        item: Node,
        binders: &Binders,
        (kept, risen): (&mut Vec<Node>, &mut Vec<Risen>),
        conditions: &mut Vec<Expression>,
    ) -> bool {
        let asks = may_rise(&item) && asks_others(&item);
        let (mut item, mut is_changed) = (item, false);
        while self.can_rise(&item, binders, asks) {
            let (top, input) = match item.op {
                Op::LeftJoin {
                    left,
                    right,
                    conditions,
                    marks,
                } => {
                    let top = Risen::Optional {
                        right,
                        conditions,
                        marks,
                    };
                    (Some(top), left)
                }
                Op::Extend {
                    input,
                    variable,
                    expression,
                } => {
                    let top = Risen::Bind {
                        variable,
                        expression,
                        is_certain: item.certain.contains(variable),
                    };
                    (Some(top), input)
                }
                Op::Filter { input, conditions } => (Some(Risen::Conditions(conditions)), input),
                Op::Sort { input, .. } => (None, input),
                _ => break,
            };
            risen.extend(top);
            is_changed = true;
            let first = kept.len();
            self.flatten(*input, kept, conditions);
            // Several parts may bind variables of each other: they are looked at in the next round.
            match kept.pop() {
                Some(only) if kept.len() == first => item = only,
                last => {
                    kept.extend(last);
                    return true;
                }
            }
        }
        kept.push(item);
        is_changed
    }

    /// Whether what stands at the top of a part gives the same above the join.
    fn can_rise(self, node: &Node, binders: &Binders, asks: bool) -> bool {
        let fixed = |variables: &VariableSet, input: &Node| {
            let mut variables = variables.iter();
            variables.all(|v| input.certain.contains(v) || !binders.has_other(node, v))
        };
        let is_fixed = |expression: &Expression, input: &Node| {
            !is_volatile(expression) && fixed(&expression_variables(expression), input)
        };
        // In EXISTS variables may have values from outside. What is sent to another endpoint stays as it is.
        let unnests = self.unnest && self.through_bind && !asks;
        match &node.op {
            Op::LeftJoin {
                left,
                right,
                conditions,
                marks,
            } => {
                let of_conditions = conditions.iter().map(expression_variables);
                let of_marks = marks.iter().map(|(_, pattern)| mentioned(pattern));
                fixed(&right.possible, left)
                    && of_conditions.chain(of_marks).all(|all| fixed(&all, left))
            }
            Op::Extend {
                input,
                variable,
                expression,
            } => unnests && !binders.has_other(node, *variable) && is_fixed(expression, input),
            Op::Filter { input, conditions } => {
                let is_group = matches!(
                    input.op,
                    Op::Join(_) | Op::Extend { .. } | Op::LeftJoin { .. }
                );
                unnests
                    && is_group
                    && conditions
                        .iter()
                        .all(|condition| is_fixed(condition, input))
            }
            Op::Sort { .. } => self.unnest,
            _ => false,
        }
    }

    fn put_on(self, node: Node, top: Risen) -> Node {
        match top {
            Risen::Optional {
                right,
                conditions,
                marks,
            } => self.left_join(node, *right, conditions, marks),
            Risen::Bind {
                variable,
                expression,
                is_certain,
            } => {
                let mut node = self.extend(node, variable, *expression);
                if is_certain && node.possible.contains(variable) {
                    node.certain.insert(variable);
                }
                node
            }
            Risen::Conditions(conditions) => self.filter(node, conditions),
        }
    }
}

/// Whether a part is of those whose top may rise.
const fn may_rise(part: &Node) -> bool {
    matches!(
        part.op,
        Op::LeftJoin { .. } | Op::Extend { .. } | Op::Filter { .. } | Op::Sort { .. }
    )
}

impl Binders {
    fn of(parts: &[Node]) -> Self {
        let mut binders = Self::default();
        for part in parts {
            let again = binders.any.intersection(&part.possible);
            binders.several.union_with(&again);
            binders.any.union_with(&part.possible);
        }
        binders
    }

    /// Whether another part than this one, or what was taken off this one, may bind a variable.
    fn has_other(&self, part: &Node, variable: Variable) -> bool {
        self.several.contains(variable)
            || (self.any.contains(variable) && !part.possible.contains(variable))
    }
}
