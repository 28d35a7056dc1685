//! The word lists: made up, but as many and as long as those of the original tools.

use std::collections::BTreeSet;

use super::random::{Random, Stream};

const WORDS: usize = 89_523;
const NAMES: usize = 88_799;

/// Percentages and the lengths they stand for.
const LENGTHS: [(u64, usize); 14] = [
    (1, 3),
    (1, 4),
    (5, 5),
    (9, 6),
    (15, 7),
    (19, 8),
    (16, 9),
    (12, 10),
    (8, 11),
    (6, 12),
    (4, 13),
    (2, 14),
    (1, 16),
    (1, 20),
];

/// Words in one string, found by their number.
#[derive(Debug)]
pub(crate) struct Words {
    text: String,
    ends: Vec<u32>,
}

impl Words {
    /// The list for labels, comments, titles and texts.
    pub(crate) fn of_texts(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Words, 0);
        Self::distinct(WORDS, || word(&mut random))
    }

    /// The list of names of persons.
    pub(crate) fn names(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Names, 0);
        Self::distinct(NAMES, || {
            if random.chance(0.84) {
                let mut name = capitalised(&mut random, 6);
                name.push('-');
                name += &capitalised(&mut random, 6);
                name
            } else {
                capitalised(&mut random, 8)
            }
        })
    }

    fn distinct(count: usize, mut make: impl FnMut() -> String) -> Self {
        let mut seen = BTreeSet::new();
        let mut words = Self {
            text: String::new(),
            ends: Vec::with_capacity(count),
        };
        while words.ends.len() < count {
            let word = make();
            if !seen.contains(&word) {
                words.text += &word;
                words
                    .ends
                    .push(u32::try_from(words.text.len()).unwrap_or(u32::MAX));
                seen.insert(word);
            }
        }
        words
    }

    /// A word, each equally likely.
    pub(crate) fn draw(&self, random: &mut Random) -> &str {
        let count = u64::try_from(self.ends.len()).unwrap_or(1);
        let index = usize::try_from(random.below(count)).unwrap_or(0);
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied();
        let end = self.ends.get(index).copied().unwrap_or(0);
        self.text
            .get(start.unwrap_or(0) as usize..end as usize)
            .unwrap_or("")
    }

    /// Appends `low` to `high` words with blanks between them.
    pub(crate) fn sentence(&self, random: &mut Random, low: u64, high: u64, out: &mut Vec<u8>) {
        for index in 0..random.between(low, high) {
            if index > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(self.draw(random).as_bytes());
        }
    }

    #[cfg(test)]
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| (end - start) as usize)
    }
}

fn word(random: &mut Random) -> String {
    let mut left = random.below(100);
    let mut length = 8;
    for (share, candidate) in LENGTHS {
        if left < share {
            length = candidate;
            break;
        }
        left -= share;
    }
    letters(random, length)
}

fn capitalised(random: &mut Random, mean: u64) -> String {
    let length = usize::try_from(random.between(mean - 2, mean + 2)).unwrap_or(6);
    let mut name = letters(random, length);
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}

/// Consonants and vowels by turns, the common ones more often, with an occasional pair.
fn letters(random: &mut Random, length: usize) -> String {
    const CONSONANTS: &[u8] = b"ttttnnnnssssrrrrhhlllddccmmffppggwwbvkxjqz";
    const VOWELS: &[u8] = b"eeeeeaaaaiiioooouuy";
    let mut word = String::with_capacity(length);
    let mut vowel = random.chance(0.3);
    while word.len() < length {
        let letters = if vowel { VOWELS } else { CONSONANTS };
        let count = u64::try_from(letters.len()).unwrap_or(1);
        let index = usize::try_from(random.below(count)).unwrap_or(0);
        word.push(char::from(letters.get(index).copied().unwrap_or(b'e')));
        vowel = if random.chance(0.15) { vowel } else { !vowel };
    }
    word
}
