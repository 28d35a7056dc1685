//! Joins outer bindings into a node as deep as they help, so that it is evaluated for them alone.

use super::exists::{add, certain_keys, mentioned_by_group};
use super::{Builder, Node, Op, expression_variables, mentioned};
use crate::Rewrites;
use crate::expression::Expression;
use crate::variable_set::VariableSet;

/// `Join(leaf, node)`, with `leaf` moved down where the solutions stay the same. The bindings of
/// `leaf` are distinct and all bound.
#[expect(clippy::too_many_lines, reason = "one match over all operators")]
pub(crate) fn seed(build: Builder, node: Node, leaf: &Node) -> Node {
    if !build.takes(Rewrites::SEEDING) {
        return build.join(vec![leaf.clone(), node]);
    }
    let outer = &leaf.possible;
    let fixed = |variables: &VariableSet, certain: &VariableSet| {
        variables.intersection(outer).is_subset(certain)
    };
    let fixed_in = |conditions: &[Expression], certain: &VariableSet| {
        conditions
            .iter()
            .all(|condition| fixed(&expression_variables(condition), certain))
    };
    match node.op {
        Op::Filter { input, conditions } if fixed_in(&conditions, &input.certain) => {
            build.filter(seed(build, *input, leaf), conditions)
        }
        Op::Union(branches) => build.union(
            branches
                .into_iter()
                .map(|branch| seed(build, branch, leaf))
                .collect(),
        ),
        Op::LeftJoin {
            left,
            right,
            conditions,
            marks,
        } if fixed(&mentioned(&right), &left.certain)
            && fixed_in(&conditions, &left.certain)
            && marks
                .iter()
                .all(|(_, pattern)| fixed(&mentioned(pattern), &left.certain)) =>
        {
            build.left_join(seed(build, *left, leaf), *right, conditions, marks)
        }
        Op::Minus {
            left,
            right,
            ambient,
        } if fixed(&mentioned(&right), &left.certain) => {
            build.minus(seed(build, *left, leaf), *right, ambient)
        }
        Op::Exists {
            input,
            pattern,
            kind,
        } if fixed(&mentioned(&pattern), &input.certain) => {
            build.exists(seed(build, *input, leaf), *pattern, kind)
        }
        Op::Extend {
            input,
            variable,
            expression,
        } if !outer.contains(variable)
            && fixed(&expression_variables(&expression), &input.certain) =>
        {
            build.extend(seed(build, *input, leaf), variable, *expression)
        }
        Op::Group {
            input,
            mut keys,
            aggregates,
        } if !keys.is_empty()
            && fixed(
                &mentioned_by_group(&input, &keys, &aggregates),
                &certain_keys(&keys, &input.certain),
            )
            && aggregates.iter().all(|a| !outer.contains(a.output)) =>
        {
            add(&mut keys, outer);
            build.group(seed(build, *input, leaf), keys, aggregates)
        }
        // A solution that leaves a variable unbound is one more beside the one that binds it.
        Op::Distinct(input) if fixed(&input.possible, &input.certain) => {
            build.distinct(seed(build, *input, leaf))
        }
        Op::Reduced(input) => build.reduced(seed(build, *input, leaf)),
        Op::Sort { input, .. } => seed(build, *input, leaf),
        Op::Project {
            input,
            mut variables,
        } => {
            add(&mut variables, outer);
            build.project(seed(build, *input, leaf), variables)
        }
        _ => build.join(vec![leaf.clone(), node]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Constant;
    use crate::physical::Variable;

    #[test]
    fn distinct_keeps_solutions_that_bind_nothing() {
        let build = Builder::plain(true);
        let variable = Variable(0);
        let row = vec![Some(Constant {
            term: oxrdf::Literal::from(1).into(),
            id: None,
        })];
        let values = Node::values(vec![variable], vec![row]);
        let leaf = Node::outer_bindings(vec![variable]);
        let always = build.distinct(values.clone());
        assert!(matches!(seed(build, always, &leaf).op, Op::Distinct(_)));
        // {?v = 1} and {}: joined with ?v = 1 two solutions, which are equal.
        let sometimes = build.distinct(build.union(vec![values, Node::unit()]));
        assert!(matches!(seed(build, sometimes, &leaf).op, Op::Join(_)));
    }
}
