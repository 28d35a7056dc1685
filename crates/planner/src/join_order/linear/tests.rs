//! Random joins: what dynamic programming over a sequence is worth beside the greedy order.

use std::cell::Cell;

use stoa_terms::{GraphSet, Kind, TermId};

use crate::ForcedChoices;
use crate::access_path::accesses;
use crate::cardinality::float;
use crate::cost;
use crate::error::Error;
use crate::join_order::{
    Item, Known, Order, Read, Source, Step, is_worth, order, pairs_of_intervals,
};
use crate::physical::{PatternTerm, QuadPattern, Variable};

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// From 1 up, each power of ten as often as any other.
    fn size(&mut self, digits: u64) -> f64 {
        10_f64.powf(float(self.below(digits * 100)) / 100.0).floor()
    }

    fn one(&mut self, list: &[u32]) -> u32 {
        let number = self.below(list.len().try_into().unwrap());
        list[usize::try_from(number).unwrap()]
    }
}

/// A pattern with a predicate of its own that so many subjects and objects have; an object that is a constant leaves
/// some of its rows.
fn item(number: u64, subject: u32, object: u32, random: &mut Random) -> Item {
    let subjects = 10.0 * random.size(5);
    let objects = 10.0 * random.size(4);
    let all = subjects.max(objects) * (1.0 + random.size(1));
    let is_fixed = random.below(5) == 0;
    let [subject, object] = [subject, object].map(Variable);
    let constant = |number| PatternTerm::Constant(TermId::new(Kind::Iri, number));
    let pattern = QuadPattern {
        triple: [
            PatternTerm::Variable(subject),
            constant(number),
            match is_fixed {
                true => constant(1_000),
                false => PatternTerm::Variable(object),
            },
        ],
        graphs: GraphSet::Default,
        graph_variable: None,
    };
    let rows = match is_fixed {
        true => (all / objects).max(1.0),
        false => all,
    };
    let reads = accesses(&pattern).into_iter().map(|access| Read {
        access,
        rows,
        cost: cost::SCAN_START + rows * cost::SCAN_ROW,
        sorted: access.sorted_by(&pattern).first().copied(),
        in_ranges: false,
        values: 0.0,
    });
    let accesses = reads.collect();
    let mut distinct = vec![(subject, subjects.min(rows))];
    if !is_fixed {
        distinct.push((object, objects));
    }
    let variables: Vec<Variable> = distinct.iter().map(|(variable, _)| *variable).collect();
    Item {
        certain: variables.iter().copied().collect(),
        possible: variables.into_iter().collect(),
        rows,
        distinct,
        source: Source::Pattern {
            pattern: Box::new(pattern),
            rows,
            ranged: Vec::new(),
            condition_row: 0.0,
            accesses,
        },
    }
}

/// Stars of several patterns that are linked, mostly to the one before, as a tree or with a cycle or two.
fn items(count: usize, random: &mut Random) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let (mut subject, mut next) = (0, 1);
    let mut subjects = vec![0];
    for number in 0..u64::try_from(count).unwrap() {
        let object = match random.below(12) {
            0 => random.one(&subjects),
            1..=4 => {
                next += 1;
                subjects.push(next);
                next
            }
            _ => {
                next += 1;
                next
            }
        };
        items.push(item(number, subject, object, random));
        if random.below(3) == 0 {
            subject = random.one(&subjects);
        }
    }
    items
}

/// The order that is found, and how often it was asked whether to go on.
fn found(items: &[Item], linear: Option<bool>) -> (Order, usize) {
    let asked = Cell::new(0);
    let go_on = || -> Result<(), Error> {
        asked.set(asked.get() + 1);
        Ok(())
    };
    let forced = ForcedChoices {
        linear,
        ..ForcedChoices::NONE
    };
    let draw = |_: f64| -> Result<Known, Error> { Ok(Known::default()) };
    let order = order(items, &[], (forced, None), &draw, &go_on).expect("nobody ends it");
    (order.expect("there are items"), asked.get())
}

/// Lets each item have one row.
fn make_small(items: &mut [Item]) {
    for item in items {
        item.rows = 1.0;
        item.distinct
            .iter_mut()
            .for_each(|(_, values)| *values = 1.0);
        if let Source::Pattern { rows, accesses, .. } = &mut item.source {
            *rows = 1.0;
            accesses
                .iter_mut()
                .for_each(|read| read.cost = cost::SCAN_START);
        }
    }
}

fn cost_of(order: &Order) -> f64 {
    order.trees[order.root].cost
}

/// Whether both sides of a join are joins.
fn is_bushy(order: &Order, number: usize) -> bool {
    let is_join = |number: usize| order.trees[number].items.count_ones() > 1;
    match order.trees[number].step {
        Step::Merge { left, right, .. } | Step::Hash { left, right } => {
            (is_join(left) && is_join(right)) || is_bushy(order, left) || is_bushy(order, right)
        }
        Step::Lookup { left, .. } | Step::Search { left, .. } => is_bushy(order, left),
        Step::Read { .. } | Step::Plan { .. } => false,
    }
}

#[test]
fn never_worse_than_greedy_and_better_on_average() {
    let mut random = Random(20_180_611);
    let (mut better, mut bushy, mut logarithms, mut joins) = (0_u32, 0_u32, 0.0, 0_u32);
    for _ in 0..60 {
        for count in [12, 16, 24, 32, 40] {
            let items = items(count, &mut random);
            let (greedy, asked) = found(&items, Some(false));
            let (linear, asked_more) = found(&items, Some(true));
            let (before, after) = (cost_of(&greedy), cost_of(&linear));
            assert!(
                after <= before,
                "{count} items: {after} instead of {before}"
            );
            assert_eq!(linear.trees[linear.root].items, (1 << count) - 1);
            // Two sequences, each interval once.
            assert!(asked_more <= asked + count * count, "{asked_more}");
            better += u32::from(after < before * 0.99);
            bushy += u32::from(is_bushy(&linear, linear.root));
            logarithms += (after / before).ln();
            joins += 1;
        }
    }
    let ratio = (logarithms / f64::from(joins)).exp();
    println!("{better} of {joins} cost less, {bushy} are bushy; costs are {ratio:.3} of before");
    assert!(ratio < 0.85 && better * 4 > joins && bushy > 0);
}

/// However many patterns there are, the work is that of the greedy order and of two sequences, which is little beside
/// what the greedy order costs.
#[test]
fn searches_keep_to_their_pairs() {
    let mut random = Random(20_261_126);
    let mut searched = 0_u32;
    for count in (30..=60).step_by(5) {
        for _ in 0..6 {
            let mut items = items(count, &mut random);
            let (greedy, _) = found(&items, Some(false));
            // Each item that is left, at each step, on either side.
            assert!(greedy.pairs <= count * (count - 1), "{}", greedy.pairs);
            let (linear, _) = found(&items, Some(true));
            let more = cost::columns(linear.pairs - greedy.pairs);
            assert!(more <= 2.0 * pairs_of_intervals(count), "{more}");
            let (usual, _) = found(&items, None);
            let more = cost::columns(usual.pairs - greedy.pairs);
            assert!(more <= 2.0 * pairs_of_intervals(count), "{more}");
            let is_wanted = is_worth(pairs_of_intervals(count), cost_of(&greedy));
            assert_eq!(more > 0.0, is_wanted);
            searched += u32::from(is_wanted);
            make_small(&mut items);
            let (small, _) = found(&items, None);
            assert!(small.pairs <= count * (count - 1), "{}", small.pairs);
        }
    }
    println!("{searched} searches over sequences");
    assert!(searched > 0);
}

/// Looking for a better order takes little time beside what the greedy one costs.
#[test]
fn what_costs_little_is_taken_as_it_is() {
    let mut random = Random(7);
    let mut items = items(30, &mut random);
    make_small(&mut items);
    let (usual, asked) = found(&items, None);
    let (greedy, least) = found(&items, Some(false));
    assert_eq!(cost_of(&usual), cost_of(&greedy));
    assert_eq!(asked, least);
}
