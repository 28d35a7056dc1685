//! Sets of variables as bits; the first 64 variables of a query need no allocation.

use crate::physical::Variable;

/// A set of variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct VariableSet {
    low: u64,
    /// Bits of the variables from 64 on; words at the end may be zero.
    high: Vec<u64>,
}

impl VariableSet {
    pub(crate) const fn new() -> Self {
        Self {
            low: 0,
            high: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, variable: Variable) {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low |= bit;
            return;
        }
        if self.high.len() < word {
            self.high.resize(word, 0);
        }
        if let Some(high) = self.high.get_mut(word - 1) {
            *high |= bit;
        }
    }

    pub(crate) fn remove(&mut self, variable: Variable) {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low &= !bit;
        } else if let Some(high) = self.high.get_mut(word - 1) {
            *high &= !bit;
        }
    }

    pub(crate) fn contains(&self, variable: Variable) -> bool {
        let (word, bit) = place(variable);
        if word == 0 {
            self.low & bit != 0
        } else {
            self.high.get(word - 1).is_some_and(|high| high & bit != 0)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|&high| high == 0)
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (high, &more) in self.high.iter_mut().zip(&other.high) {
            *high |= more;
        }
    }

    pub(crate) fn intersect_with(&mut self, other: &Self) {
        self.low &= other.low;
        self.high.truncate(other.high.len());
        for (high, &more) in self.high.iter_mut().zip(&other.high) {
            *high &= more;
        }
    }

    pub(crate) fn remove_all(&mut self, other: &Self) {
        self.low &= !other.low;
        for (high, &more) in self.high.iter_mut().zip(&other.high) {
            *high &= !more;
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.union_with(other);
        result
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.intersect_with(other);
        result
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.remove_all(other);
        result
    }

    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        self.low & other.low == 0
            && self
                .high
                .iter()
                .zip(&other.high)
                .all(|(high, more)| high & more == 0)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.low & !other.low == 0
            && self.high.iter().enumerate().all(|(index, high)| {
                high & !other.high.get(index).copied().unwrap_or_default() == 0
            })
    }

    /// The variables in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Variable> + '_ {
        std::iter::once(self.low)
            .chain(self.high.iter().copied())
            .zip(0_u32..)
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
}
