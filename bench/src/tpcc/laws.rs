//! The laws that values of the population and parameters of transactions are drawn by.
//!
//! # References
//! TPC-C 2.1.6 (NURand and its constants), 4.3.2 (strings, last names).

use crate::bsbm::random::Random;

/// Last names that there are.
pub(crate) const LAST_NAMES: u64 = 1_000;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The constants C of NURand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    last: u64,
    customer: u64,
    item: u64,
}

impl Constants {
    /// Those of the population, the same for all.
    pub(crate) const POPULATION: Self = Self {
        last: 157,
        customer: 91,
        item: 4_321,
    };

    /// Those of a run: that of last names lies 65 to 119 from the population's, but neither 96 nor 112.
    pub(crate) fn of_a_run(random: &mut Random) -> Self {
        let last = loop {
            let last = random.between(0, 255);
            let distance = last.abs_diff(Self::POPULATION.last);
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break last;
            }
        };
        Self {
            last,
            customer: random.between(0, 1_023),
            item: random.between(0, 8_191),
        }
    }

    /// The number of a last name, below `names`.
    pub(crate) fn last_name(self, random: &mut Random, names: u64) -> u64 {
        uneven(random, 255, self.last, 0, names - 1)
    }

    /// The number of a customer, from 1.
    pub(crate) fn customer(self, random: &mut Random, customers: u64) -> u64 {
        uneven(random, 1_023, self.customer, 1, customers)
    }

    /// The number of an item, from 1.
    pub(crate) fn item(self, random: &mut Random, items: u64) -> u64 {
        uneven(random, 8_191, self.item, 1, items)
    }
}

/// NURand(A, x, y): some values of x to y, both included, are drawn far more often than others.
fn uneven(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    ((random.between(0, a) | random.between(low, high)) + c) % (high - low + 1) + low
}

/// The last name of a number below [`LAST_NAMES`].
pub(crate) fn last_name(number: u64) -> String {
    let syllable = |digit: u64| {
        let digit = usize::try_from(digit % 10).unwrap_or(0);
        SYLLABLES.get(digit).copied().unwrap_or("")
    };
    [
        syllable(number / 100),
        syllable(number / 10),
        syllable(number),
    ]
    .concat()
}

/// Letters and digits, from `low` to `high` of them.
pub(crate) fn letters(random: &mut Random, low: u64, high: u64) -> String {
    characters(random, low, high, LETTERS)
}

/// Digits, as many as `count`.
pub(crate) fn digits(random: &mut Random, count: u64) -> String {
    let digits = LETTERS.get(52..).unwrap_or(b"0");
    characters(random, count, count, digits)
}

/// Letters and digits, of which one in ten has the word ORIGINAL in it.
pub(crate) fn original(random: &mut Random, low: u64, high: u64) -> String {
    let mut text = letters(random, low, high);
    if random.below(10) == 0 {
        let room = text.len().saturating_sub("ORIGINAL".len()) as u64;
        let at = usize::try_from(random.below(room + 1)).unwrap_or(0);
        text.replace_range(at..at + "ORIGINAL".len(), "ORIGINAL");
    }
    text
}

fn characters(random: &mut Random, low: u64, high: u64, from: &[u8]) -> String {
    let count = random.between(low, high);
    let draw = |_| {
        let at = usize::try_from(random.below(from.len() as u64)).unwrap_or(0);
        char::from(from.get(at).copied().unwrap_or(b'0'))
    };
    (0..count).map(draw).collect()
}

/// Brings a list into a random order, each as likely as any other.
pub(crate) fn shuffle<T>(random: &mut Random, list: &mut [T]) {
    for last in (1..list.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(last);
        list.swap(last, other);
    }
}
