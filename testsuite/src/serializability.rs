//! Histories of transactions, and whether there is an order in which they could have run one by one.
//!
//! From what each transaction read and wrote follows who must come before whom: the writer of a value before
//! who read it; who read an object without a value before its writer, if that value came later; the
//! writer of a value before who replaced it. The history is serializable if this graph has no cycle.
//!
//! Every value is written once, by one transaction.
//!
//! # References
//! A. Adya, Weak Consistency (MIT, 1999), direct serialization graphs; K. Kingsbury and P. Alvaro,
//! Elle (VLDB 2020).

use std::collections::{BTreeMap, BTreeSet};

/// What becomes of an object when something is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Objects {
    /// Values are added and stay.
    Sets,
    /// A value takes the place of the one before; in the order of the commits.
    Registers,
}

/// A transaction that has committed.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// The number of its commit; of one that wrote nothing it is not looked at.
    pub commit: u64,
    /// Objects and the values that were found there, before the transaction wrote to them itself.
    pub reads: Vec<(String, BTreeSet<u64>)>,
    /// Objects and the values that were written to them.
    pub writes: Vec<(String, u64)>,
}

/// The values of each object in the order in which they were committed: commit, value, place of the
/// transaction in the history.
type Versions<'a> = BTreeMap<&'a str, Vec<(u64, u64, usize)>>;

/// The places of transactions in the history that must each come before the next, and the last before the
/// first; none if the history is serializable.
///
/// A value that nobody wrote who has committed is told as a cycle of its reader alone.
#[must_use]
pub fn cycle(history: &[Ended], objects: Objects) -> Option<Vec<usize>> {
    let mut versions = Versions::new();
    for (place, ended) in history.iter().enumerate() {
        for (object, value) in &ended.writes {
            let versions = versions.entry(object).or_default();
            versions.push((ended.commit, *value, place));
        }
    }
    versions
        .values_mut()
        .for_each(|versions| versions.sort_unstable());
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); history.len()];
    let mut edge = |one: usize, two: usize| {
        if one != two {
            before[two].insert(one);
        }
    };
    if objects == Objects::Registers {
        for versions in versions.values() {
            for pair in versions.windows(2) {
                edge(pair[0].2, pair[1].2);
            }
        }
    }
    for (reader, ended) in history.iter().enumerate() {
        for (object, found) in &ended.reads {
            let versions = versions.get(object.as_str()).map_or(&[][..], Vec::as_slice);
            let known = versions
                .iter()
                .filter(|(_, value, _)| found.contains(value));
            if known.count() != found.len() {
                return Some(vec![reader]);
            }
            let last = versions
                .iter()
                .rposition(|(_, value, _)| found.contains(value));
            for (place, (_, value, writer)) in versions.iter().enumerate() {
                if found.contains(value) {
                    edge(*writer, reader);
                } else if objects == Objects::Sets || last.is_none_or(|last| place > last) {
                    edge(reader, *writer);
                }
            }
        }
    }
    find(&before)
}

/// A cycle in a graph that is given by who comes before each.
fn find(before: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut waits: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (place, all) in before.iter().enumerate() {
        all.iter().for_each(|one| after[*one].push(place));
    }
    let mut free: Vec<usize> = (0..before.len())
        .filter(|place| waits[*place] == 0)
        .collect();
    let mut done = vec![false; before.len()];
    while let Some(place) = free.pop() {
        done[place] = true;
        for next in &after[place] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                free.push(*next);
            }
        }
    }
    // Whoever is left waits for somebody who is left: going back comes around.
    let mut path = vec![done.iter().position(|done| !done)?];
    loop {
        let last = path[path.len() - 1];
        let next = *before[last].iter().find(|one| !done[**one])?;
        if let Some(start) = path.iter().position(|place| *place == next) {
            path.drain(..start);
            path.reverse();
            return Some(path);
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(commit: u64, reads: &[(&str, &[u64])], writes: &[(&str, u64)]) -> Ended {
        let reads = reads.iter();
        let writes = writes.iter();
        Ended {
            commit,
            reads: reads
                .map(|(object, found)| ((*object).to_owned(), found.iter().copied().collect()))
                .collect(),
            writes: writes
                .map(|(object, value)| ((*object).to_owned(), *value))
                .collect(),
        }
    }

    #[test]
    fn one_after_the_other_has_no_cycle() {
        let history = [
            ended(1, &[("x", &[])], &[("x", 1)]),
            ended(2, &[("x", &[1])], &[("x", 2)]),
            ended(2, &[("x", &[1, 2])], &[]),
        ];
        assert_eq!(cycle(&history, Objects::Sets), None);
        let history = [
            ended(1, &[("x", &[])], &[("x", 1)]),
            ended(2, &[("x", &[1])], &[("x", 2)]),
            ended(2, &[("x", &[2])], &[]),
            ended(1, &[("x", &[1])], &[]),
        ];
        assert_eq!(cycle(&history, Objects::Registers), None);
    }

    #[test]
    fn anomalies_are_cycles() {
        let lost_update = [
            ended(1, &[("x", &[])], &[("x", 1)]),
            ended(2, &[("x", &[])], &[("x", 2)]),
        ];
        let write_skew = [
            ended(1, &[("y", &[])], &[("x", 1)]),
            ended(2, &[("x", &[])], &[("y", 2)]),
        ];
        let torn = [
            ended(1, &[], &[("x", 1), ("y", 2)]),
            ended(1, &[("x", &[1]), ("y", &[])], &[]),
        ];
        for history in [&lost_update[..], &write_skew, &torn] {
            for objects in [Objects::Sets, Objects::Registers] {
                let mut found = cycle(history, objects).unwrap();
                found.sort_unstable();
                assert_eq!(found, [0, 1]);
            }
        }
        let dirty = [ended(1, &[("x", &[7])], &[])];
        assert_eq!(cycle(&dirty, Objects::Sets), Some(vec![0]));
    }

    #[test]
    fn readers_may_disagree_with_an_order() {
        let history = [
            ended(1, &[], &[("x", 1)]),
            ended(2, &[], &[("y", 2)]),
            ended(2, &[("x", &[1]), ("y", &[])], &[]),
            ended(2, &[("x", &[]), ("y", &[2])], &[]),
        ];
        assert_eq!(cycle(&history, Objects::Sets).unwrap().len(), 4);
    }
}
