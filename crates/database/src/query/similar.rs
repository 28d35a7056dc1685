//! Names that resemble a misspelt one.
//!
//! A suggestion must be likelier than not, so short names allow few differences, and names with
//! numbers in them, such as `P31` and `P32`, resemble each other only if the numbers are the same.

/// Longer names are not compared, in characters.
const COMPARED_CHARACTERS_MAX: usize = 64;

/// The candidate that resembles `name` most, if one does; `name` itself does not count.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = Name::new(name)?;
    let mut best: Option<(usize, usize, &str)> = None;
    for candidate in candidates {
        let Some(found) = wanted.differences(candidate) else {
            continue;
        };
        // The length and the alphabet decide between equals: the order of candidates must not.
        let found = (found, candidate.len().abs_diff(name.len()), candidate);
        if best.is_none_or(|best| found < best) {
            best = Some(found);
        }
    }
    best.map(|(_, _, candidate)| candidate)
}

/// How many characters differ between two names that resemble each other, whatever the case; `None` if they do not,
/// or are the same.
#[must_use]
pub fn name_differences(name: &str, other: &str) -> Option<usize> {
    Name::new(name)?.differences(other)
}

/// A name that others are compared with.
pub(super) struct Name<'a> {
    text: &'a str,
    folded: Vec<char>,
    letters: u64,
    differences_max: usize,
}

impl<'a> Name<'a> {
    /// `None` if it is too long to be compared.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let folded = folded(text)?;
        let differences_max = match folded.len() {
            0..=2 => 0,
            3..=5 => 1,
            6..=10 => 2,
            _ => 3,
        };
        Some(Self {
            text,
            folded,
            letters: letters(text),
            differences_max,
        })
    }

    /// How many characters are to be put in, taken out, changed or exchanged to make a name of
    /// another one, whatever the case; `None` if they are too many or the names are the same.
    pub(super) fn differences(&self, other: &str) -> Option<usize> {
        if other == self.text || other.len() > 4 * COMPARED_CHARACTERS_MAX {
            return None;
        }
        // Most names are told apart without a closer look: an edit changes two letters at most.
        let letters = (self.letters ^ letters(other)).count_ones() as usize;
        if letters > 2 * self.differences_max {
            return None;
        }
        let other = folded(other)?;
        if self.folded.len().abs_diff(other.len()) > self.differences_max {
            return None;
        }
        let digits = |name: &[char]| name.iter().filter(|c| c.is_numeric()).copied().collect();
        let (mine, its): (Vec<char>, Vec<char>) = (digits(&self.folded), digits(&other));
        let found = distance(&self.folded, &other);
        (mine == its && found <= self.differences_max).then_some(found)
    }
}

/// Which letters and digits of ASCII occur, a bit each.
fn letters(text: &str) -> u64 {
    text.bytes()
        .filter(u8::is_ascii_alphanumeric)
        .fold(0, |letters, byte| {
            letters | 1 << (byte.to_ascii_lowercase() % 64)
        })
}

fn folded(text: &str) -> Option<Vec<char>> {
    let folded: Vec<char> = text
        .chars()
        .flat_map(char::to_lowercase)
        .take(COMPARED_CHARACTERS_MAX + 1)
        .collect();
    (folded.len() <= COMPARED_CHARACTERS_MAX).then_some(folded)
}

/// The distance of Damerau and Levenshtein, without edits of what was exchanged.
#[expect(
    clippy::indexing_slicing,
    reason = "rows are one longer than `right`, which the columns count"
)]
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before = vec![0; right.len() + 1];
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, a) in left.iter().enumerate() {
        let mut current = vec![row + 1; right.len() + 1];
        for (column, b) in right.iter().enumerate() {
            let changed = above[column] + usize::from(a != b);
            let mut least = changed.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *a == right[column - 1] && left[row - 1] == *b {
                least = least.min(before[column - 1] + 1);
            }
            current[column + 1] = least;
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_right() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("name", "naem", 1),
            ("ca", "abc", 3),
        ] {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            assert_eq!(distance(&a, &b), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn the_nearest_is_found_if_it_is_near() {
        for (name, candidates, expected) in [
            ("naem", &["nam", "name", "x"][..], Some("name")),
            ("Name", &["name"], Some("name")),
            ("x", &["y", "z"], None),
            ("x", &["X"], Some("X")),
            ("name", &["name"], None),
            ("P31", &["P32", "P131"], None),
            ("label1", &["lable1", "label2"], Some("lable1")),
            ("bbbb", &["bbbc", "abbb"], Some("abbb")),
            ("organisation", &["organization"], Some("organization")),
            ("author", &["publisher"], None),
        ] {
            assert_eq!(
                nearest(name, candidates.iter().copied()),
                expected,
                "{name}"
            );
        }
        let long = "x".repeat(10_000);
        assert_eq!(nearest(&long, ["x"]), None);
        assert_eq!(nearest("x", [long.as_str()]), None);
    }
}
