//! When an index nested-loop join goes over to a hash join: after as many look-ups as cost what the hash join would have
//! cost from the beginning.
//!
//! Where more rows come than were expected, nothing says how many more. Who goes over at this point has spent twice as
//! much as the better method at most, whatever comes (docs/design/0039-switched-joins.md).
//!
//! # References
//! Karlin, Manasse, Rudolph, Sleator: Competitive Snoopy Caching, Algorithmica 1988.

use stoa_terms::IdRange;

use super::{Lowering, Planned};
use crate::access_path::{accesses, positions_of};
use crate::cost;
use crate::error::Error;
use crate::join_order::Read;
use crate::physical::{Operator, PatternTerm, QuadPattern, Switch, Variable};

impl Lowering<'_> {
    /// When looking up a pattern that has so many matches goes over to reading them all.
    pub(super) fn switch(
        &self,
        left: &Planned,
        pattern: &QuadPattern,
        rows: f64,
    ) -> Result<Option<Switch>, Error> {
        let mut cheapest: Option<Read> = None;
        for access in accesses(pattern) {
            let cost = self.cache.scan_cost(pattern, access, rows)?;
            if cheapest.is_none_or(|read| cost < read.cost) {
                cheapest = Some(Read {
                    access,
                    rows,
                    cost,
                    sorted: None,
                    in_ranges: false,
                    values: 0.0,
                });
            }
        }
        Ok(cheapest.and_then(|read| switch(left, pattern, rows, (read, Vec::new()))))
    }
}

/// When looking up a pattern with `rows` matches goes over to reading those in some ranges; `None` if that may not be.
pub(super) fn switch(
    left: &Planned,
    pattern: &QuadPattern,
    rows: f64,
    (read, ranges): (Read, Vec<IdRange>),
) -> Option<Switch> {
    // The executor hashes what is shared, and has no pattern that agrees with an unbound variable.
    let is_bound = |variable| !left.possible.contains(variable) || left.certain.contains(variable);
    if !variables(pattern).all(is_bound) {
        return None;
    }
    let key = left.plan.sorted_by.first();
    let is_sorted = key.is_some_and(|key| positions_of(pattern, *key).next().is_some());
    Some(Switch {
        after_rows: cost::lookups_max(rows, is_sorted, read.rows, read.cost)?,
        permutation: read.access.permutation,
        prefix_length: read.access.prefix_length,
        ranges,
        estimated_rows: read.rows,
    })
}

/// Lets a join go over, if it looks up.
pub(super) fn add_switch(joined: &mut Planned, with: Option<Switch>) {
    if let Operator::IndexNestedLoopJoin { switch, .. } = &mut joined.plan.operator {
        *switch = with.map(Box::new);
    }
}

fn variables(pattern: &QuadPattern) -> impl Iterator<Item = Variable> + '_ {
    let triple = pattern.triple.iter().filter_map(|term| match term {
        PatternTerm::Variable(variable) => Some(*variable),
        PatternTerm::Constant(_) => None,
    });
    triple.chain(pattern.graph_variable)
}
