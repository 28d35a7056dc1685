//! Cycles among the patterns of a group, and the order of variables in which a leapfrog join takes one.
//!
//! *Cycles*: patterns are edges over their variables. A variable that one edge alone has is taken out, and so is an edge
//! that lies within another one, until nothing more can be; what is left is cyclic (the reduction of Graham, Yu and
//! Ozsoyoglu). Patterns whose variables all lie in a cycle go with it.
//!
//! *Order*: the work at a variable is the number of partial solutions before it, each times what the shortest run of
//! values has that a pattern gives for it. All orders that sort orders of patterns allow are looked at, the cheapest
//! variable first, until a budget is spent. Variables that one pattern alone has come last where that can be.
//!
//! # References
//! Veldhuizen: Leapfrog Triejoin, ICDT 2014.

use stoa_terms::{Permutation, Position};

use crate::access_path::term_at;
use crate::cost;
use crate::error::Error;
use crate::join_order::{limited, shared_by};
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;

/// How many times a variable is put behind others in all; the first order is found by as many times as there are variables, squared, unless
/// sort orders contradict each other.
const TRIED_MAX: usize = 12_000;

/// The cycles among edges, given by their variables: for each the numbers of its edges, ascending.
pub(crate) fn cycles(edges: &[(usize, &VariableSet)]) -> Vec<Vec<usize>> {
    let shared = shared_by(edges.iter().map(|(_, variables)| *variables));
    let has_two = |set: &VariableSet| set.intersection(&shared).iter().nth(1).is_some();
    if edges.iter().filter(|(_, set)| has_two(set)).count() < 3 {
        // Most groups end here.
        return Vec::new();
    }
    let mut left: Vec<(usize, VariableSet)> = edges
        .iter()
        .map(|(number, variables)| (*number, (*variables).clone()))
        .collect();
    loop {
        let before = left.len();
        let shared = shared_by(left.iter().map(|(_, variables)| variables));
        let mut changed = false;
        for (_, variables) in &mut left {
            if !variables.is_subset(&shared) {
                variables.intersect_with(&shared);
                changed = true;
            }
        }
        let mut kept: Vec<(usize, VariableSet)> = Vec::with_capacity(before);
        for (number, variables) in left {
            if variables.is_empty() || kept.iter().any(|(_, other)| variables.is_subset(other)) {
                continue;
            }
            kept.retain(|(_, other)| !other.is_subset(&variables));
            kept.push((number, variables));
        }
        left = kept;
        if left.len() == before && !changed {
            break;
        }
    }
    let mut found = Vec::new();
    while let Some((number, mut variables)) = left.pop() {
        let mut cycle = vec![number];
        while let Some(next) = left.iter().position(|(_, v)| !v.is_disjoint(&variables)) {
            let (number, more) = left.swap_remove(next);
            variables.union_with(&more);
            cycle.push(number);
        }
        let within = edges.iter().filter(|(_, edge)| edge.is_subset(&variables));
        cycle.extend(within.map(|(number, _)| *number));
        cycle.sort_unstable();
        cycle.dedup();
        found.push(cycle);
    }
    found
}

/// A pattern of a cycle.
pub(crate) struct Member {
    /// Its variables with the number of different terms of each.
    pub(crate) distinct: Vec<(Variable, f64)>,
    /// How many quads match.
    pub(crate) rows: f64,
    /// The sort orders it may be read in: the variables behind the constants.
    pub(crate) orders: Vec<(Permutation, Vec<Variable>)>,
    /// For members before it, and variables that both have: how many times more pairs agree there than if all terms
    /// were as frequent.
    pub(crate) skew: Vec<(usize, Variable, f64)>,
}

/// The sort orders in which a pattern has all of its constants in front, with its variables in their order; none if a
/// variable stands in two places or for the graph.
pub(crate) fn orders(pattern: &QuadPattern) -> Vec<(Permutation, Vec<Variable>)> {
    let in_order = |permutation: Permutation| {
        let mut variables = Vec::with_capacity(3);
        for position in permutation.order() {
            match (position, term_at(pattern, position)) {
                (Position::Graph, None) => {}
                (_, Some(PatternTerm::Constant(_))) if variables.is_empty() => {}
                (_, Some(PatternTerm::Variable(one)))
                    if position != Position::Graph && !variables.contains(&one) =>
                {
                    variables.push(one);
                }
                _ => return None,
            }
        }
        (!variables.is_empty()).then_some((permutation, variables))
    };
    Permutation::ALL.into_iter().filter_map(in_order).collect()
}

/// How a cycle is joined.
#[derive(Clone, Debug)]
pub(crate) struct LeapfrogOrder {
    pub(crate) variables: Vec<Variable>,
    /// The sort order of each member.
    pub(crate) permutations: Vec<Permutation>,
    /// Solutions that are expected.
    pub(crate) rows: f64,
    /// Nanoseconds.
    pub(crate) cost: f64,
}

/// The cheapest order that is found; `None` if there is none, or none was found in time. `go_on` is asked now and then, and
/// may end it.
pub(crate) fn leapfrog_order(
    members: &[Member],
    go_on: &dyn Fn() -> Result<(), Error>,
) -> Result<Option<LeapfrogOrder>, Error> {
    let mut variables: Vec<(Variable, usize)> = Vec::new();
    for (variable, _) in members.iter().flat_map(|member| &member.distinct) {
        match variables.iter_mut().find(|(other, _)| other == variable) {
            Some((_, count)) => *count += 1,
            None => variables.push((*variable, 1)),
        }
    }
    let mut search = Search {
        members,
        variables,
        tried: 0,
        best: None,
        go_on,
    };
    search.extend(&Partial {
        order: Vec::new(),
        rows: 1.0,
        expected: 1.0,
        cost: 0.0,
    })?;
    let Some(best) = search.best else {
        return Ok(None);
    };
    let (mut read, mut starts) = (0.0, 0.0);
    for member in members {
        read += member.rows;
        starts += cost::SCAN_START;
    }
    let permutations = members.iter().map(|member| member.order(&best.order));
    let Some(permutations) = permutations.collect::<Option<_>>() else {
        return Ok(None);
    };
    Ok(Some(LeapfrogOrder {
        permutations,
        variables: best.order,
        rows: best.expected,
        cost: best.cost
            + starts
            // What is visited is read once.
            + read.min(best.cost / cost::LEAP) * cost::TRIE_ROW
            + best.expected * cost::OUTPUT_ROW,
    }))
}

/// Variables that are bound, the partial solutions over them, and the work so far.
#[derive(Clone)]
struct Partial {
    order: Vec<Variable>,
    /// How many there may be, where terms with many quads meet.
    rows: f64,
    /// How many are expected.
    expected: f64,
    cost: f64,
}

struct Search<'a> {
    members: &'a [Member],
    /// With how many members have each.
    variables: Vec<(Variable, usize)>,
    tried: usize,
    best: Option<Partial>,
    go_on: &'a dyn Fn() -> Result<(), Error>,
}

impl Search<'_> {
    fn extend(&mut self, partial: &Partial) -> Result<(), Error> {
        (self.go_on)()?;
        if partial.order.len() == self.variables.len() {
            let better = |best: &Partial| partial.cost < best.cost;
            if self.best.as_ref().is_none_or(better) {
                self.best = Some(partial.clone());
            }
            return Ok(());
        }
        let open = |variable: &Variable| !partial.order.contains(variable);
        let of = |shared: bool| {
            let all = self.variables.iter();
            let all = all.filter(move |(_, members)| (*members > 1) == shared);
            all.map(|(variable, _)| *variable).filter(open)
        };
        let mut tried = of(true).count();
        let mut next: Vec<Partial> = of(true).filter_map(|v| self.with(partial, v)).collect();
        if next.is_empty() {
            tried += of(false).count();
            next = of(false).filter_map(|v| self.with(partial, v)).collect();
        }
        self.tried += tried;
        let ahead = |one: &Partial| one.cost + one.rows * cost::LEAP;
        next.sort_by(|a, b| ahead(a).total_cmp(&ahead(b)));
        for next in next {
            let cheaper = |best: &Partial| next.cost < best.cost;
            if self.tried < TRIED_MAX && self.best.as_ref().is_none_or(cheaper) {
                self.extend(&next)?;
            }
        }
        Ok(())
    }

    /// A partial order with one more variable; `None` if a member cannot be read so.
    fn with(&self, partial: &Partial, variable: Variable) -> Option<Partial> {
        let mut order = partial.order.clone();
        order.push(variable);
        let (mut shortest, mut members, mut opened) = (f64::INFINITY, 0.0, 0.0);
        let (mut smallest, mut product) = (f64::INFINITY, 1.0);
        let (mut all, mut narrowed, mut skew) = (1.0, 0, 1.0_f64);
        for (number, member) in self.members.iter().enumerate() {
            let Some(distinct) = member.distinct_of(variable) else {
                continue;
            };
            member.order(&order)?;
            let before = member.size(&partial.order);
            let run = (member.size(&order) / before.max(1.0)).max(f64::MIN_POSITIVE);
            shortest = shortest.min(run);
            members += 1.0;
            opened += cost::open(member.rows);
            smallest = smallest.min(distinct);
            product = limited(product * distinct);
            all = limited(all * run);
            let is_narrowed = partial
                .order
                .iter()
                .any(|v| member.distinct_of(*v).is_some());
            if is_narrowed {
                narrowed += 1;
                skew = skew.max(self.skew(number, &partial.order));
            }
        }
        // Where two runs meet the shorter one counts, and terms with long ones do no harm.
        let skew = if narrowed == 1 { skew } else { 1.0 };
        let looked_at = partial.rows * (opened + members * shortest * skew * cost::LEAP);
        let growth = all * smallest / product.max(1.0);
        Some(Partial {
            rows: limited(partial.rows * growth * skew),
            expected: limited(partial.expected * growth),
            cost: limited(partial.cost + looked_at),
            order,
        })
    }

    /// How many times longer the runs of a member are than on average, behind what is bound by members that are done.
    fn skew(&self, number: usize, bound: &[Variable]) -> f64 {
        let is_done = |number: usize| {
            let member = self.members.get(number);
            member.is_some_and(|member| member.distinct.iter().all(|(v, _)| bound.contains(v)))
        };
        let of = |member: &Member, other: usize| {
            let skew = member.skew.iter();
            let skew = skew.filter(|(with, v, _)| *with == other && bound.contains(v));
            skew.fold(1.0_f64, |most, (_, _, skew)| most.max(*skew))
        };
        let mut most = 1.0_f64;
        for (other, member) in self.members.iter().enumerate() {
            if other == number || !is_done(other) {
                continue;
            }
            let later = self.members.get(number.max(other)).unwrap_or(member);
            most = most.max(of(later, number.min(other)));
        }
        most
    }
}

impl Member {
    fn distinct_of(&self, variable: Variable) -> Option<f64> {
        let mut all = self.distinct.iter();
        let found = all.find(|(other, _)| *other == variable);
        found.map(|(_, distinct)| distinct.max(1.0))
    }

    /// How many combinations of the bound ones of its variables there are.
    fn size(&self, bound: &[Variable]) -> f64 {
        let mut all = true;
        let mut size = 1.0;
        for (variable, distinct) in &self.distinct {
            if bound.contains(variable) {
                size *= distinct.max(1.0);
            } else {
                all = false;
            }
        }
        if all { self.rows } else { size.min(self.rows) }
    }

    /// A sort order in which its variables that are bound come in this order, and before the others.
    fn order(&self, bound: &[Variable]) -> Option<Permutation> {
        let own = bound.iter().filter(|v| self.distinct_of(**v).is_some());
        let fits = |order: &&(Permutation, Vec<Variable>)| {
            own.clone().zip(&order.1).all(|(bound, own)| bound == own)
        };
        self.orders
            .iter()
            .find(fits)
            .map(|(permutation, _)| *permutation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variables: &[u32]) -> VariableSet {
        variables.iter().copied().map(Variable).collect()
    }

    fn found(edges: &[&[u32]]) -> Vec<Vec<usize>> {
        let sets: Vec<_> = edges.iter().map(|edge| set(edge)).collect();
        let mut found = cycles(&sets.iter().enumerate().collect::<Vec<_>>());
        found.sort();
        found
    }

    #[test]
    fn cycles_are_told_from_trees() {
        let none: Vec<Vec<usize>> = Vec::new();
        let trees: [&[&[u32]]; 7] = [
            &[],
            &[&[0, 1]],
            &[&[0, 1], &[1, 2]],
            &[&[0, 1], &[0, 1], &[1, 0]],
            &[&[0, 1], &[1, 2], &[1, 3], &[3]],
            // A triangle within one edge.
            &[&[0, 1], &[1, 2], &[2, 0], &[0, 1, 2]],
            &[&[0, 1, 2], &[0, 1, 3]],
        ];
        for tree in trees {
            assert_eq!(found(tree), none, "{tree:?}");
        }
        assert_eq!(found(&[&[0, 1], &[1, 2], &[2, 0]]), [[0, 1, 2]]);
        assert_eq!(
            found(&[&[0, 1], &[1, 2], &[2, 3], &[3, 0], &[0, 5], &[1]]),
            [[0, 1, 2, 3, 5]],
            "what hangs on a cycle is no part of it, what lies within is"
        );
        assert_eq!(
            found(&[&[0, 1], &[1, 2], &[2, 0], &[0, 3], &[3, 4], &[4, 0]]),
            [[0, 1, 2, 3, 4, 5]],
            "two triangles with a common corner"
        );
        let apart: &[&[u32]] = &[
            &[0, 1],
            &[1, 2],
            &[2, 0],
            &[3, 4],
            &[4, 5],
            &[5, 3],
            &[2, 9],
        ];
        assert_eq!(found(apart), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(
            found(&[&[0, 1], &[1, 2, 9], &[2, 0]]),
            [[0, 1, 2]],
            "a variable of one pattern alone"
        );
    }

    fn member(variables: &[(u32, f64)], rows: f64, orders: &[&[u32]]) -> Member {
        let variable = |number: &u32| Variable(*number);
        let orders = Permutation::ALL.into_iter().zip(orders);
        Member {
            distinct: variables.iter().map(|(v, d)| (Variable(*v), *d)).collect(),
            rows,
            orders: orders
                .map(|(permutation, order)| (permutation, order.iter().map(variable).collect()))
                .collect(),
            skew: Vec::new(),
        }
    }

    #[test]
    fn variables_of_one_pattern_come_last() {
        let both = |a, b, rows| member(&[(a, 100.0), (b, 100.0)], rows, &[&[a, b], &[b, a]]);
        let wide = member(
            &[(2, 100.0), (0, 100.0), (7, 2.0)],
            900.0,
            &[&[7, 2, 0], &[2, 0, 7], &[0, 2, 7]],
        );
        let order = found_order(&[both(0, 1, 900.0), both(1, 2, 900.0), wide]).unwrap();
        assert_eq!(order.variables.len(), 4);
        assert_eq!(order.variables.last(), Some(&Variable(7)));
    }

    fn found_order(members: &[Member]) -> Option<LeapfrogOrder> {
        leapfrog_order(members, &|| Ok(())).unwrap()
    }

    #[test]
    fn contradictions_end_the_search() {
        let one = |a, b| member(&[(a, 9.0), (b, 9.0)], 30.0, &[&[a, b]]);
        let both = |a, b| member(&[(a, 9.0), (b, 9.0)], 30.0, &[&[a, b], &[b, a]]);
        let mut members = vec![one(0, 1), one(1, 2), one(2, 0)];
        members.extend((2..40).map(|number| both(number, number + 1)));
        members.push(both(40, 0));
        let asked = std::cell::Cell::new(0);
        let order = leapfrog_order(&members, &|| {
            asked.set(asked.get() + 1);
            Ok(())
        });
        assert!(order.unwrap().is_none());
        assert!(asked.get() < TRIED_MAX);
        let ended = leapfrog_order(&members, &|| Err(Error::Stopped));
        assert!(matches!(ended, Err(Error::Stopped)));
    }

    #[test]
    fn orders_that_no_sort_order_allows_are_not_taken() {
        let one = |a, b| member(&[(a, 9.0), (b, 9.0)], 30.0, &[&[a, b]]);
        let order = found_order(&[one(0, 1), one(1, 2), one(0, 2)]).unwrap();
        assert_eq!(order.variables, [0, 1, 2].map(Variable));
        assert!(found_order(&[one(0, 1), one(1, 2), one(2, 0)]).is_none());
    }

    #[test]
    fn few_values_come_first() {
        let both = |a, b, rows, (x, y)| member(&[(a, x), (b, y)], rows, &[&[a, b], &[b, a]]);
        let order = found_order(&[
            both(0, 1, 1e6, (1e5, 1e5)),
            both(1, 2, 1e6, (1e5, 1e5)),
            both(0, 2, 1e6, (1e5, 1e5)),
            member(&[(2, 3.0)], 3.0, &[&[2]]),
        ]);
        assert_eq!(order.unwrap().variables.first(), Some(&Variable(2)));
    }
}
