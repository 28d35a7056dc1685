//! The queue of what is ready to run: those that have run little go first, and nobody starves.
//!
//! How long a task will take nobody knows; one that has run long goes on long, as a rule. So tasks stand in levels by the
//! time that they have run, each level with a queue of its own, and levels take turns by weight (multi-level feedback
//! with the proportional shares of stride scheduling: Waldspurger, Weihl 1995). A short query beside any number of long
//! ones waits for slices that run, not for a slice of each.

use std::collections::VecDeque;

/// The time that a task has run, in nanoseconds, up to which it stands in each level; above the last there is one more.
const LEVELS_END_NS: [u64; 3] = [20_000_000, 160_000_000, 1_280_000_000];

/// What a turn of each level moves its place by: half as many turns for each next one.
const STRIDES: [u64; LEVELS_END_NS.len() + 1] = [1, 2, 4, 8];

/// See the module header.
pub(super) struct Ready<J> {
    levels: [Level<J>; STRIDES.len()],
    /// The place of the level that had the last turn.
    place: u64,
}

struct Level<J> {
    jobs: VecDeque<J>,
    /// The level with the lowest place has the next turn.
    place: u64,
}

impl<J> Ready<J> {
    pub(super) fn new() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level {
                jobs: VecDeque::new(),
                place: 0,
            }),
            place: 0,
        }
    }

    /// Puts a job that has run for so many nanoseconds at the end of its level.
    pub(super) fn push(&mut self, job: J, ran_ns: u64) {
        let level = LEVELS_END_NS.partition_point(|&end| end <= ran_ns);
        let Some(level) = self.levels.get_mut(level) else {
            return;
        };
        if level.jobs.is_empty() {
            // Turns that a level had no use for are not saved up.
            level.place = level.place.max(self.place);
        }
        level.jobs.push_back(job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.jobs.is_empty())
    }

    /// The first job of the level whose turn it is.
    pub(super) fn pop(&mut self) -> Option<J> {
        let levels = self.levels.iter_mut().zip(STRIDES);
        let (level, stride) = levels
            .filter(|(level, _)| !level.jobs.is_empty())
            .min_by_key(|(level, _)| level.place)?;
        self.place = level.place;
        level.place += stride;
        level.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 10_000_000_000;

    /// Who has each of so many turns; tasks are their own names and stay in their levels.
    fn turns(ready: &mut Ready<(char, u64)>, count: usize) -> String {
        (0..count)
            .filter_map(|_| {
                let (name, ran_ns) = ready.pop()?;
                ready.push((name, ran_ns), ran_ns);
                Some(name)
            })
            .collect()
    }

    fn ready(tasks: &[(char, u64)]) -> Ready<(char, u64)> {
        let mut ready = Ready::new();
        for &(name, ran_ns) in tasks {
            ready.push((name, ran_ns), ran_ns);
        }
        ready
    }

    #[test]
    fn equal_tasks_take_turns() {
        for ran_ns in [0, LONG_NS] {
            let tasks = ['a', 'b', 'c', 'd'].map(|name| (name, ran_ns));
            assert_eq!(turns(&mut ready(&tasks), 8), "abcdabcd");
        }
    }

    #[test]
    fn a_new_task_waits_for_one_turn_at_most_whatever_runs() {
        let mut ready: Ready<(char, u64)> = Ready::new();
        for number in 0..1000 {
            let ran_ns = (LONG_NS * (number % 2)).max(LEVELS_END_NS[0]);
            ready.push(('l', ran_ns), ran_ns);
        }
        turns(&mut ready, 5000);
        ready.push(('s', 0), 0);
        let found = turns(&mut ready, 2);
        assert!(found.contains('s'), "{found}");
    }

    #[test]
    fn levels_share_by_weight_so_that_nobody_starves() {
        let mut ready = ready(&[
            ('a', 0),
            ('b', LEVELS_END_NS[0]),
            ('c', LEVELS_END_NS[1]),
            ('d', LEVELS_END_NS[2]),
        ]);
        let found = turns(&mut ready, 1500);
        let share = |name| found.matches(name).count();
        let shares = [share('a'), share('b'), share('c'), share('d')];
        let expected = [800, 400, 200, 100];
        for (share, expected) in shares.into_iter().zip(expected) {
            assert!(share.abs_diff(expected) <= 2, "{shares:?}");
        }
    }

    #[test]
    fn a_level_that_was_empty_saves_no_turns() {
        let mut ready = ready(&[('l', LONG_NS)]);
        turns(&mut ready, 1000);
        ready.push(('s', 0), 0);
        let found = turns(&mut ready, 90);
        assert!((9..=10).contains(&found.matches('l').count()), "{found}");
    }
}
