//! Sets of variables as bits; the first 64 variables of a query need no allocation.
//!
//! A query may have ten thousand variables of which a pattern has two, so only the words between the
//! first and the last one that is not zero are kept.

use crate::physical::Variable;

/// A set of variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct VariableSet {
    low: u64,
    /// The number of the first word of `high`, where `low` is word 0; at least 1 unless there is none.
    start: usize,
    /// Bits of the variables from 64 on; words at the end may be zero.
    high: Vec<u64>,
}

impl VariableSet {
    pub(crate) const fn new() -> Self {
        Self {
            low: 0,
            start: 0,
            high: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, variable: Variable) {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low |= bit;
            return;
        }
        self.cover(word, word + 1);
        if let Some(high) = self.high.get_mut(word - self.start) {
            *high |= bit;
        }
    }

    pub(crate) fn remove(&mut self, variable: Variable) {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low &= !bit;
        } else if let Some(at) = word.checked_sub(self.start)
            && let Some(high) = self.high.get_mut(at)
        {
            *high &= !bit;
        }
    }

    pub(crate) fn contains(&self, variable: Variable) -> bool {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low & bit != 0
        } else {
            self.word(word) & bit != 0
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|&high| high == 0)
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        self.low |= other.low;
        if other.high.is_empty() {
            return;
        }
        self.cover(other.start, other.end());
        let from = other.start - self.start;
        for (high, &more) in self.high.iter_mut().skip(from).zip(&other.high) {
            *high |= more;
        }
    }

    pub(crate) fn intersect_with(&mut self, other: &Self) {
        *self = self.intersection(other);
    }

    pub(crate) fn remove_all(&mut self, other: &Self) {
        self.low &= !other.low;
        for (high, word) in self.high.iter_mut().zip(self.start..) {
            *high &= !other.word(word);
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.union_with(other);
        result
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::new();
        result.low = self.low & other.low;
        let first = self.start.max(other.start);
        let mut words = (first..self.end().min(other.end()))
            .map(|word| (word, self.word(word) & other.word(word)))
            .skip_while(|(_, word)| *word == 0);
        if let Some((start, word)) = words.next() {
            result.start = start;
            result.high.push(word);
            result.high.extend(words.map(|(_, word)| word));
            while result.high.last() == Some(&0) {
                result.high.pop();
            }
        }
        result
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.remove_all(other);
        result
    }

    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        let first = self.start.max(other.start);
        self.low & other.low == 0
            && (first..self.end().min(other.end()))
                .all(|word| self.word(word) & other.word(word) == 0)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.low & !other.low == 0
            && self
                .high
                .iter()
                .zip(self.start..)
                .all(|(high, word)| high & !other.word(word) == 0)
    }

    /// The word of this number, from 1 on.
    fn word(&self, number: usize) -> u64 {
        let at = number.checked_sub(self.start);
        at.and_then(|at| self.high.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// The number behind the last word.
    fn end(&self) -> usize {
        self.start + self.high.len()
    }

    /// Makes room for words from `start` to before `end`.
    fn cover(&mut self, start: usize, end: usize) {
        if self.high.is_empty() {
            self.start = start;
        }
        if start < self.start {
            let more = self.start - start;
            self.high.splice(0..0, std::iter::repeat_n(0, more));
            self.start = start;
        }
        if self.end() < end {
            self.high.resize(end - self.start, 0);
        }
    }

    /// The variables in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Variable> + '_ {
        let first = u32::try_from(self.start).unwrap_or(u32::MAX);
        std::iter::once((self.low, 0))
            .chain(self.high.iter().copied().zip(first..))
            .flat_map(|(word, index)| bits(word).map(move |bit| Variable(index * 64 + bit)))
    }
}

impl FromIterator<Variable> for VariableSet {
    fn from_iter<I: IntoIterator<Item = Variable>>(variables: I) -> Self {
        let mut set = Self::new();
        for variable in variables {
            set.insert(variable);
        }
        set
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        Some(bit)
    })
}

const fn place(variable: Variable) -> (usize, u64) {
    ((variable.0 / 64) as usize, 1 << (variable.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_agree_with_lists() {
        let a: VariableSet = [0, 3, 63, 64, 200].into_iter().map(Variable).collect();
        let b: VariableSet = [3, 64, 65].into_iter().map(Variable).collect();
        let list = |set: &VariableSet| set.iter().map(|v| v.0).collect::<Vec<_>>();
        assert_eq!(list(&a), [0, 3, 63, 64, 200]);
        assert_eq!(list(&a.intersection(&b)), [3, 64]);
        assert_eq!(list(&b.difference(&a)), [65]);
        assert_eq!(list(&a.union(&b)), [0, 3, 63, 64, 65, 200]);
        assert!(a.intersection(&b).is_subset(&a));
        assert!(!a.is_subset(&b));
        assert!(a.contains(Variable(200)) && !b.contains(Variable(200)));
        let mut c = a.clone();
        c.remove(Variable(200));
        c.remove(Variable(0));
        assert_eq!(list(&c), [3, 63, 64]);
        assert!(!c.is_empty() && c.difference(&a).is_empty());
        assert!(c.is_disjoint(&std::iter::once(Variable(200)).collect()));
    }

    #[test]
    fn few_of_many_variables_take_few_words() {
        let list = |set: &VariableSet| set.iter().map(|v| v.0).collect::<Vec<_>>();
        let of =
            |numbers: &[u32]| -> VariableSet { numbers.iter().copied().map(Variable).collect() };
        let (a, b) = (of(&[1, 9_000, 9_001]), of(&[700, 9_001]));
        assert_eq!(a.high.len(), 1);
        assert_eq!(list(&a.union(&b)), [1, 700, 9_000, 9_001]);
        assert_eq!(list(&b.union(&a)), [1, 700, 9_000, 9_001]);
        assert_eq!(list(&a.intersection(&b)), [9_001]);
        assert_eq!(a.union(&b).intersection(&a).high.len(), 1);
        assert_eq!(list(&a.difference(&b)), [1, 9_000]);
        assert_eq!(list(&b.difference(&a)), [700]);
        assert!(!a.is_disjoint(&b) && a.is_disjoint(&of(&[0, 64, 700, 10_000])));
        assert!(of(&[9_001]).is_subset(&a) && !b.is_subset(&a) && !a.is_subset(&b));
        assert!(of(&[]).is_subset(&of(&[])) && of(&[64]).is_disjoint(&of(&[])));
        let mut c = b.clone();
        c.insert(Variable(64));
        c.remove(Variable(9_001));
        c.remove(Variable(3));
        assert_eq!(list(&c), [64, 700]);
        assert!(c.contains(Variable(64)) && !c.contains(Variable(63)));
        c.intersect_with(&a);
        assert!(c.is_empty());
    }
}
