//! The queue of what is ready to run: those that have run little go first, and nobody starves.
//!
//! How long a task will take nobody knows; one that has run long goes on long, as a rule. So tasks stand in levels by the
//! time that they have run, each level with a queue of its own, and levels take turns by weight (multi-level feedback
//! with the proportional shares of stride scheduling: Waldspurger, Weihl 1995). A short query beside any number of long
//! ones waits for slices that run, not for a slice of each.
//!
//! Within a level tasks take turns. Only of those that have run longest no more than some do, and the others wait for
//! one of them to end: where there is more work than can be done in time, some of it is.

use std::collections::VecDeque;

/// The time that a task has run, in nanoseconds, up to which it stands in each level; above the last there is one more.
const LEVELS_END_NS: [u64; 3] = [20_000_000, 160_000_000, 1_280_000_000];

/// What a turn of each level moves its place by: half as many turns for each next one.
const STRIDES: [u64; LEVELS_END_NS.len() + 1] = [1, 2, 4, 8];

/// See the module header.
pub(super) struct Ready<J> {
    levels: [Level<J>; STRIDES.len()],
    /// Those that have run longest and wait for a seat.
    standing: VecDeque<J>,
    /// How many of those that have run longest may still take turns; below zero while more do that came back.
    seats: isize,
    /// The place of the level that had the last turn.
    place: u64,
}

struct Level<J> {
    jobs: VecDeque<J>,
    /// The level with the lowest place has the next turn.
    place: u64,
}

/// Whether a job is one of those that have run longest and take turns; to be handed back with it, or when it ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Seat(bool);

impl<J> Ready<J> {
    /// Of those that have run longest so many take turns, at least one.
    pub(super) fn new(seats: usize) -> Self {
        Self {
            levels: std::array::from_fn(|_| Level {
                jobs: VecDeque::new(),
                place: 0,
            }),
            standing: VecDeque::new(),
            seats: isize::try_from(seats.max(1)).unwrap_or(isize::MAX),
            place: 0,
        }
    }

    /// Puts a job that has run for so many nanoseconds at the end of its level.
    pub(super) fn push(&mut self, job: J, ran_ns: u64, seat: Seat) {
        let number = LEVELS_END_NS.partition_point(|&end| end <= ran_ns);
        if number == LEVELS_END_NS.len() && !seat.0 {
            self.standing.push_back(job);
            return;
        }
        let Some(level) = self.levels.get_mut(number) else {
            return;
        };
        if level.jobs.is_empty() {
            // Turns that a level had no use for are not saved up.
            level.place = level.place.max(self.place);
        }
        level.jobs.push_back(job);
    }

    /// The first job of the level whose turn it is.
    pub(super) fn pop(&mut self) -> Option<(J, Seat)> {
        while self.seats > 0
            && let Some(job) = self.standing.pop_front()
        {
            self.seats -= 1;
            self.push(job, u64::MAX, Seat(true));
        }
        let levels = self.levels.iter_mut().zip(STRIDES).enumerate();
        let (number, (level, stride)) = levels
            .filter(|(_, (level, _))| !level.jobs.is_empty())
            .min_by_key(|(_, (level, _))| level.place)?;
        self.place = level.place;
        level.place += stride;
        let seat = Seat(number == LEVELS_END_NS.len());
        Some((level.jobs.pop_front()?, seat))
    }

    /// A job has ended, or waits for something.
    pub(super) fn leave(&mut self, seat: Seat) {
        self.seats += isize::from(seat.0);
    }

    /// A job that had left goes on: it queues up for its seat no second time.
    pub(super) fn come_back(&mut self, seat: Seat) {
        self.seats -= isize::from(seat.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 10_000_000_000;
    const SEATS: usize = 3;

    /// Who has each of so many turns; tasks are their own names and stay in their levels.
    fn turns(ready: &mut Ready<(char, u64)>, count: usize) -> String {
        (0..count)
            .filter_map(|_| {
                let ((name, ran_ns), seat) = ready.pop()?;
                ready.push((name, ran_ns), ran_ns, seat);
                Some(name)
            })
            .collect()
    }

    fn ready(tasks: &[(char, u64)]) -> Ready<(char, u64)> {
        let mut ready = Ready::new(SEATS);
        for &(name, ran_ns) in tasks {
            ready.push((name, ran_ns), ran_ns, Seat::default());
        }
        ready
    }

    #[test]
    fn equal_tasks_take_turns() {
        let mut ready = ready(&[('a', 0), ('b', 0), ('c', 0), ('d', 0)]);
        assert_eq!(turns(&mut ready, 8), "abcdabcd");
    }

    #[test]
    fn of_those_that_ran_longest_some_take_turns_until_they_end() {
        let tasks = ['a', 'b', 'c', 'd', 'e'].map(|name| (name, LONG_NS));
        let mut ready = ready(&tasks);
        assert_eq!(turns(&mut ready, 7), "abcabca");
        let (job, seat) = ready.pop().unwrap();
        assert_eq!(job.0, 'b');
        ready.leave(seat);
        assert_eq!(turns(&mut ready, 6), "cadcad");
        // One more than there are seats.
        ready.come_back(seat);
        ready.push(job, LONG_NS, seat);
        assert_eq!(turns(&mut ready, 8), "cadbcadb");
    }

    #[test]
    fn a_new_task_waits_for_one_turn_at_most_whatever_runs() {
        let mut ready: Ready<(char, u64)> = Ready::new(SEATS);
        for number in 0..1000 {
            let ran_ns = LONG_NS * (number % 2);
            ready.push(('l', ran_ns.max(LEVELS_END_NS[0])), ran_ns, Seat::default());
        }
        turns(&mut ready, 5000);
        ready.push(('s', 0), 0, Seat::default());
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
        ready.push(('s', 0), 0, Seat::default());
        let found = turns(&mut ready, 90);
        assert!((9..=10).contains(&found.matches('l').count()), "{found}");
    }
}
