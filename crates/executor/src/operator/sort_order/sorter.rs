//! Sorting of numbers, in parts that several threads can sort at once.
//!
//! A sample tells where to cut (Frazer, McKellar: Samplesort, JACM 1970): each number is sent to the part where it
//! belongs, and parts are sorted by themselves. Nothing is merged, no number is touched by one thread only, and who wants
//! the first ones does not wait for the last. Numbers are compared by a prefix that stands beside them, and only where
//! that is the same by what it stands for.
//!
//! # Limits
//! [`SORTED_BYTES`] a number. A step takes some milliseconds.

use std::cmp::Ordering;
use std::sync::Arc;

use super::team::Team;
use crate::context::QueryContext;
use crate::error::Result;
use crate::operator::parallel::{InOrder, Turn};

/// What sorting takes for a number: its place in a part, the sorted number, and while a part is sorted a prefix with it.
pub(super) const SORTED_BYTES: usize = 24;

/// How many numbers are looked at for each part. A part has about twice as many as others at most, whatever they are.
const SAMPLED: usize = 16;

/// An order of numbers.
pub(super) trait Order: Send + Sync + 'static {
    /// What comes of a part.
    type Part: Send + 'static;

    /// Ascends with the order; where it is the same [`compare`](Self::compare) decides.
    fn prefix(&self, number: u32) -> u64;

    fn compare(&self, left: u32, right: u32) -> Ordering;

    /// What comes of these numbers, which are in order.
    fn part(&self, numbers: Vec<u32>) -> Self::Part;
}

/// Sorts the numbers `0..count`.
pub(super) struct Sorter<O: Order> {
    order: Arc<O>,
    count: u32,
    team: Team,
    stage: Stage<O>,
}

enum Stage<O: Order> {
    Begin,
    Scatter(InOrder<Scattered>, Vec<Scattered>),
    Sort(InOrder<O::Part>),
    Done,
}

/// Some of the numbers, by the parts where they belong.
struct Scattered {
    numbers: Vec<u32>,
    /// For each part where it ends.
    ends: Vec<u32>,
}

impl<O: Order> Sorter<O> {
    pub(super) fn new(order: Arc<O>, count: u32, team: Team) -> Self {
        Self {
            order,
            count,
            team,
            stage: Stage::Begin,
        }
    }

    /// The next part in order, or some work for it.
    pub(super) fn next(&mut self, context: &QueryContext) -> Result<Turn<O::Part>> {
        match &mut self.stage {
            Stage::Begin => {
                let piece = self.team.piece(self.count as usize);
                if self.count as usize <= piece {
                    self.stage = Stage::Done;
                    let numbers = (0..self.count).collect();
                    return Ok(match self.count {
                        0 => Turn::Done,
                        _ => Turn::Given(sorted(&*self.order, numbers)),
                    });
                }
                self.stage = self.scatter(piece);
            }
            Stage::Scatter(pieces, done) => match pieces.next(context)? {
                Turn::Given(scattered) => done.push(scattered),
                Turn::Working => (),
                Turn::Done => {
                    let done = std::mem::take(done);
                    self.stage = self.sort(done);
                }
            },
            Stage::Sort(parts) => return parts.next(context),
            Stage::Done => return Ok(Turn::Done),
        }
        Ok(Turn::Working)
    }

    /// Ends it; whether nobody else is at work any more, so that the order is given back.
    pub(super) fn stop(&mut self, context: &QueryContext) -> bool {
        let is_over = match &mut self.stage {
            Stage::Scatter(pieces, _) => pieces.stop(context),
            Stage::Sort(parts) => parts.stop(context),
            Stage::Begin | Stage::Done => true,
        };
        if is_over {
            self.stage = Stage::Done;
        }
        is_over
    }

    pub(super) fn order(&self) -> &O {
        &self.order
    }

    /// The order; nobody else has it once all is over.
    pub(super) fn into_order(self) -> Arc<O> {
        self.order
    }

    /// Cuts the numbers into pieces, and these into parts.
    fn scatter(&self, piece: usize) -> Stage<O> {
        // Parts of half that size, since some are larger than others.
        let parts = (self.count as usize).div_ceil(piece.div_ceil(2));
        let cuts = cuts(&*self.order, self.count, parts);
        let (order, count) = (Arc::clone(&self.order), self.count as usize);
        let pieces = count.div_ceil(piece);
        let work = move |number: usize, _: &QueryContext| {
            let range = number * piece..count.min((number + 1) * piece);
            Ok(Scattered::new(&*order, range, &cuts))
        };
        let pieces = InOrder::new(pieces, self.team.helpers(count), pieces, work);
        Stage::Scatter(pieces, Vec::new())
    }

    fn sort(&self, scattered: Vec<Scattered>) -> Stage<O> {
        let order = Arc::clone(&self.order);
        let parts = scattered.first().map_or(0, |some| some.ends.len());
        let work = move |part: usize, _: &QueryContext| {
            let numbers = scattered.iter().flat_map(|some| some.part(part));
            let numbers = numbers.copied().collect();
            Ok(sorted(&*order, numbers))
        };
        let count = self.count as usize;
        let (helpers, ahead) = (self.team.helpers(count), self.team.ahead(count));
        Stage::Sort(InOrder::new(parts, helpers, ahead, work))
    }
}

/// Sorts some numbers.
fn sorted<O: Order>(order: &O, mut numbers: Vec<u32>) -> O::Part {
    let with_prefix = |number: &u32| (order.prefix(*number), *number);
    let mut items: Vec<(u64, u32)> = numbers.iter().map(with_prefix).collect();
    items.sort_unstable_by(|left, right| {
        let by_prefix = left.0.cmp(&right.0);
        by_prefix.then_with(|| order.compare(left.1, right.1))
    });
    for (place, (_, number)) in numbers.iter_mut().zip(&items) {
        *place = *number;
    }
    drop(items);
    order.part(numbers)
}

/// Where one part ends and the next one begins: numbers with their prefixes.
fn cuts<O: Order>(order: &O, count: u32, parts: usize) -> Vec<(u64, u32)> {
    // One of each stretch, anywhere in it: what comes may be periodic.
    let wanted = (parts * SAMPLED).min(count as usize) as u64;
    let place = |at: u64| at * u64::from(count) / wanted;
    let sampled = (0..wanted).map(|at| {
        let (first, next) = (place(at), place(at + 1));
        let offset = mixed(at) % (next - first).max(1);
        u32::try_from(first + offset).unwrap_or(0)
    });
    let mut sampled: Vec<(u64, u32)> = sampled.map(|n| (order.prefix(n), n)).collect();
    sampled.sort_unstable_by(|left, right| compare_all(order, *left, *right));
    let each = (sampled.len() / parts).max(1);
    let cuts = sampled.into_iter().skip(each).step_by(each);
    cuts.take(parts - 1).collect()
}

/// Bits that tell nothing of a number (SplitMix64).
const fn mixed(number: u64) -> u64 {
    let mut bits = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// As the order has it, and what it leaves equal by number, so that it can be cut anywhere.
fn compare_all<O: Order>(order: &O, left: (u64, u32), right: (u64, u32)) -> Ordering {
    let by_prefix = left.0.cmp(&right.0);
    let by_order = by_prefix.then_with(|| order.compare(left.1, right.1));
    by_order.then(left.1.cmp(&right.1))
}

impl Scattered {
    fn new<O: Order>(order: &O, numbers: std::ops::Range<usize>, cuts: &[(u64, u32)]) -> Self {
        let mut ends = vec![0_u32; cuts.len() + 1];
        let first = u32::try_from(numbers.start).unwrap_or(0);
        let part_of = |number: u32| {
            let item = (order.prefix(number), number);
            let is_before = |cut: &(u64, u32)| compare_all(order, *cut, item).is_le();
            cuts.partition_point(is_before)
        };
        let parts: Vec<u32> = (first..)
            .take(numbers.len())
            .map(|number| {
                let part = part_of(number);
                if let Some(size) = ends.get_mut(part) {
                    *size += 1;
                }
                u32::try_from(part).unwrap_or(0)
            })
            .collect();
        let mut before = 0;
        for end in &mut ends {
            // Where the part begins for now.
            before += std::mem::replace(end, before);
        }
        let mut places = vec![0; parts.len()];
        for (number, part) in (first..).zip(parts) {
            if let Some(end) = ends.get_mut(part as usize)
                && let Some(place) = places.get_mut(*end as usize)
            {
                *place = number;
                *end += 1;
            }
        }
        Self {
            numbers: places,
            ends,
        }
    }

    fn part(&self, part: usize) -> &[u32] {
        let end = |part: usize| self.ends.get(part).map_or(0, |end| *end as usize);
        let start = part.checked_sub(1).map_or(0, end);
        self.numbers.get(start..end(part)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::team::PIECE_ROWS;
    use super::*;
    use crate::helpers::Helpers;
    use crate::operator::tests::context_with;

    /// Numbers by a value, of which the prefix has a part.
    struct ByValue {
        values: Vec<u32>,
        shift: u32,
    }

    impl Order for ByValue {
        type Part = Vec<u32>;

        fn prefix(&self, number: u32) -> u64 {
            u64::from(self.values[number as usize]) >> self.shift
        }

        fn compare(&self, left: u32, right: u32) -> Ordering {
            let value = |number: u32| self.values[number as usize];
            value(left).cmp(&value(right))
        }

        fn part(&self, numbers: Vec<u32>) -> Vec<u32> {
            numbers
        }
    }

    /// Sorts values, and gives the sizes of parts beside.
    fn sort(values: Vec<u32>, shift: u32, context: &QueryContext) -> (Vec<u32>, Vec<usize>) {
        let count = u32::try_from(values.len()).unwrap();
        let order = Arc::new(ByValue { values, shift });
        let mut sorter = Sorter::new(order, count, Team::new(context));
        let (mut numbers, mut sizes) = (Vec::new(), Vec::new());
        loop {
            match sorter.next(context).unwrap() {
                Turn::Given(part) => {
                    sizes.push(part.len());
                    numbers.extend(part);
                }
                Turn::Working => (),
                Turn::Done => break,
            }
        }
        let order = sorter.into_order();
        assert_eq!(Arc::strong_count(&order), 1);
        let mut seen = numbers.clone();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count), "each number once");
        let values = numbers.iter().map(|number| order.values[*number as usize]);
        (values.collect(), sizes)
    }

    proptest! {
        #[test]
        fn parts_follow_each_other(
            values in proptest::collection::vec(0..50_u32, 0..300),
            shift in prop_oneof![Just(0), Just(3), Just(31)],
            helpers in 0..3_usize,
        ) {
            let context = context_with(Helpers::new(helpers));
            let mut expected = values.clone();
            expected.sort_unstable();
            let (sorted, _) = sort(values, shift, &context);
            prop_assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn what_begins_where_it_must_not_block_is_shared_later() {
        let context = context_with(Helpers::new(2));
        let team = stoa_storage::nonblocking::run(|| Team::new(&context));
        assert_eq!(team.map(|team| team.helpers(1)), Some(2));
    }

    #[test]
    fn parts_are_of_about_one_size() {
        let count = 10 * u32::try_from(PIECE_ROWS).unwrap();
        let scattered = |number: u32| number.wrapping_mul(2_654_435_761);
        let values: [fn(u32) -> u32; 4] = [|n| n, |_| 5, |n| n % 3, |n| n % 7 * 1000 + n];
        for helpers in [0, 2] {
            let context = context_with(Helpers::new(helpers));
            for value in values {
                let values = (0..count).map(|number| value(scattered(number))).collect();
                let (_, sizes) = sort(values, 0, &context);
                let most = sizes.iter().copied().max().unwrap();
                assert!(
                    most <= PIECE_ROWS,
                    "{most} of {count} in {} parts",
                    sizes.len()
                );
            }
        }
    }
}
