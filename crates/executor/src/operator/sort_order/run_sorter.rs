//! Sorting of numbers in runs, which are merged as they are taken: no step takes long.

use std::cmp::Ordering;

/// How many rows are sorted in one go, some milliseconds.
pub(super) const RUN_ROWS: usize = 32 * 1024;

/// Sorts numbers `0..count` in runs, then merges the runs as they are taken.
pub(super) struct RunSorter {
    order: Vec<u32>,
    /// How many numbers stand in sorted runs.
    sorted: usize,
    /// For each run, where it goes on and where it ends; made when the first ones are taken.
    runs: Vec<(usize, usize)>,
    /// The runs by their next number, the smallest one first.
    queue: Vec<usize>,
    merging: bool,
}

impl RunSorter {
    pub(super) fn new(count: usize) -> Self {
        Self {
            order: (0..=u32::MAX).take(count).collect(),
            sorted: 0,
            runs: Vec::new(),
            queue: Vec::new(),
            merging: false,
        }
    }

    /// Sorts the next run; false if there was none.
    pub(super) fn sort_run(&mut self, compare: impl Fn(u32, u32) -> Ordering) -> bool {
        let end = self.order.len().min(self.sorted + RUN_ROWS);
        let Some(run) = self.order.get_mut(self.sorted..end) else {
            return false;
        };
        if run.is_empty() {
            return false;
        }
        run.sort_unstable_by(|left, right| compare(*left, *right));
        self.runs.push((self.sorted, end));
        self.sorted = end;
        true
    }

    /// The next numbers in order, at most `count`.
    pub(super) fn take(
        &mut self,
        count: usize,
        compare: impl Fn(u32, u32) -> Ordering,
    ) -> Vec<u32> {
        let head = |runs: &[(usize, usize)], order: &[u32], run: usize| {
            let at = runs.get(run).map_or(0, |run| run.0);
            order.get(at).copied().unwrap_or(0)
        };
        if !self.merging {
            self.merging = true;
            self.queue = (0..self.runs.len()).collect();
            let (runs, order) = (&self.runs, &self.order);
            // The smallest head last, where it is cheap to take.
            self.queue.sort_unstable_by(|left, right| {
                compare(head(runs, order, *right), head(runs, order, *left))
            });
        }
        let mut out = Vec::with_capacity(count.min(self.order.len()));
        while out.len() < count {
            let Some(run) = self.queue.pop() else {
                break;
            };
            let Some((next, end)) = self.runs.get_mut(run) else {
                break;
            };
            out.extend(self.order.get(*next).copied());
            *next += 1;
            if *next == *end {
                continue;
            }
            let number = head(&self.runs, &self.order, run);
            let (runs, order) = (&self.runs, &self.order);
            let place = self.queue.partition_point(|other| {
                compare(head(runs, order, *other), number) == Ordering::Greater
            });
            self.queue.insert(place, run);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_sorted_and_merged() {
        let count = 3 * RUN_ROWS + 17;
        let keys: Vec<u32> = (0_u32..)
            .take(count)
            .map(|number| number.wrapping_mul(2_654_435_761) >> 7)
            .collect();
        let compare = |a: u32, b: u32| keys[a as usize].cmp(&keys[b as usize]).then(a.cmp(&b));
        let mut sorter = RunSorter::new(count);
        while sorter.sort_run(compare) {}
        let mut order = Vec::new();
        loop {
            let some = sorter.take(1000, compare);
            if some.is_empty() {
                break;
            }
            order.extend(some);
        }
        assert_eq!(order.len(), count);
        assert!(
            order
                .windows(2)
                .all(|pair| compare(pair[0], pair[1]) == Ordering::Less)
        );
    }
}
