//! How many operators of a plan stand on top of each other.
//!
//! A common subplan stands in the plan once and is run below each that reads it, within other common subplans, too. So
//! the plan falls into bodies: each common subplan, and the rest. A body begins as deep as the deepest of those that
//! read it; as no subplan reads itself, those that are read by bodies that are done are done next.
//!
//! # Limits
//! Plans may be deep, so there is no recursion. Each operator is seen once.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use crate::physical::{Operator, Plan};

/// The rest of the plan, before all subplans.
const REST: usize = 0;

#[derive(Default)]
struct Body {
    /// How deep it is, what it reads left out.
    depth: usize,
    /// The numbers of the subplans that it reads, and how deep who does stands in it.
    reads: Vec<(usize, usize)>,
    /// How deep the deepest of those that read it stands.
    begin: usize,
    /// How many that read it are in bodies that are not done.
    missing: usize,
}

/// How many operators stand on top of each other at most, with a common subplan below each that reads it.
pub(crate) fn depth(root: &Plan) -> usize {
    let (mut bodies, places) = bodies(root);
    let mut deepest = 0;
    let mut open = vec![REST];
    while let Some(done) = open.pop() {
        let Some(body) = bodies.get_mut(done) else {
            continue;
        };
        let begin = body.begin;
        deepest = deepest.max(begin + body.depth);
        for (number, depth) in std::mem::take(&mut body.reads) {
            let place = places.get(&number).copied();
            let Some((place, read)) = place.and_then(|at| Some((at, bodies.get_mut(at)?))) else {
                continue;
            };
            read.begin = read.begin.max(begin + depth);
            read.missing -= 1;
            if read.missing == 0 {
                open.push(place);
            }
        }
    }
    deepest
}

/// The bodies of a plan, and where those of subplans are by their numbers.
fn bodies(root: &Plan) -> (Vec<Body>, HashMap<usize, usize, RandomState>) {
    let mut bodies = vec![Body::default()];
    let mut places = HashMap::with_hasher(RandomState::default());
    let mut open = vec![(root, 1, REST)];
    while let Some((plan, depth, at)) = open.pop() {
        let body = bodies.get_mut(at);
        if let Some(body) = body {
            body.depth = body.depth.max(depth);
            if let Operator::CommonSubplan { number, .. } = &plan.operator {
                body.reads.push((*number, depth));
            }
        }
        let (mut at, mut below) = (at, depth + 1);
        if let Operator::CommonSubplan {
            number,
            input: Some(_),
            ..
        } = &plan.operator
        {
            (at, below) = (bodies.len(), 1);
            places.insert(*number, at);
            bodies.push(Body::default());
        }
        open.extend(plan.inputs().into_iter().map(|input| (input, below, at)));
    }
    let mut missing = vec![0; bodies.len()];
    let reads = bodies.iter().flat_map(|body| &body.reads);
    for place in reads.filter_map(|(number, _)| places.get(number)) {
        if let Some(missing) = missing.get_mut(*place) {
            *missing += 1;
        }
    }
    for (body, missing) in bodies.iter_mut().zip(missing) {
        body.missing = missing;
    }
    (bodies, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::Variable;

    fn plan(operator: Operator) -> Plan {
        Plan {
            operator,
            columns: vec![Variable(0)],
            sorted_by: Vec::new(),
            estimated_rows: 1.0,
        }
    }

    /// A plan of `operators` on top of each other, over another one.
    fn chain(operators: usize, below: Plan) -> Plan {
        (0..operators).fold(below, |input, _| plan(Operator::Distinct(Box::new(input))))
    }

    fn reads(number: usize, input: Option<Plan>) -> Plan {
        plan(Operator::CommonSubplan {
            number,
            readers: 2,
            positions: vec![0],
            input: input.map(Box::new),
        })
    }

    #[test]
    fn operators_on_top_of_each_other() {
        let unit = || plan(Operator::Unit);
        assert_eq!(depth(&unit()), 1);
        let union = Operator::Union(vec![chain(4, unit()), chain(7, unit())]);
        assert_eq!(depth(&plan(union)), 9);
    }

    #[test]
    fn subplans_beside_each_other_are_no_deeper_than_the_deepest() {
        let unit = || plan(Operator::Unit);
        let mut inputs = Vec::new();
        for number in 1..=10 {
            inputs.push(reads(number, Some(chain(20, unit()))));
            inputs.push(reads(number, None));
        }
        // UNION, the one that reads, twenty, and the unit.
        assert_eq!(depth(&plan(Operator::Union(inputs))), 23);
    }

    #[test]
    fn subplans_that_read_each_other_are_a_chain() {
        let unit = || plan(Operator::Unit);
        // The second one is read deep within the first one, which is read deep in the rest, both not where they stand.
        let first = chain(3, reads(2, None));
        let union = Operator::Union(vec![
            reads(2, Some(chain(10, unit()))),
            reads(1, Some(first)),
            chain(5, reads(1, None)),
        ]);
        // UNION, five and who reads; three and who reads; ten and the unit.
        assert_eq!(depth(&plan(union)), 7 + 4 + 11);
        // Each reads the one before it twice.
        let mut nested = reads(1, Some(chain(2, unit())));
        for number in 2..=1_000 {
            let both = plan(Operator::Union(vec![nested, reads(number - 1, None)]));
            nested = reads(number, Some(both));
        }
        let root = plan(Operator::Union(vec![nested, reads(1_000, None)]));
        assert_eq!(depth(&root), 1 + 1_000 + 999 + 3);
        drop_flat(root);
    }

    /// Deep plans are not to be dropped by recursion in a test of the usual stack.
    fn drop_flat(root: Plan) {
        let mut open = vec![root];
        while let Some(mut plan) = open.pop() {
            for input in plan.inputs_mut() {
                open.push(std::mem::replace(input, self::plan(Operator::Unit)));
            }
        }
    }
}
