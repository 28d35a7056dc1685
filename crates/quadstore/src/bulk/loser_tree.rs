//! A tournament of losers: the smallest of k sorted inputs with one comparison a level.
#![expect(
    clippy::indexing_slicing,
    reason = "nodes are numbered 1..leaves, inputs 0..leaves, both fixed at construction"
)]

/// Which of several inputs comes next. The inputs themselves belong to the caller, who tells by
/// `less(a, b)` whether input `a` comes before input `b`; an input that is exhausted must come last.
pub(super) struct LoserTree {
    /// `losers[0]` is the winner, `losers[n]` the loser of the match at inner node `n`.
    losers: Vec<usize>,
    /// Inputs, rounded up to a power of two; inputs from `inputs` on are always exhausted.
    leaves: usize,
    inputs: usize,
}

impl LoserTree {
    /// A tree over `inputs` inputs that stand at their first entries.
    pub(super) fn new(inputs: usize, mut less: impl FnMut(usize, usize) -> bool) -> Self {
        let leaves = inputs.next_power_of_two().max(1);
        let mut winners = vec![0; leaves * 2];
        let mut losers = vec![0; leaves];
        for (input, winner) in winners[leaves..].iter_mut().enumerate() {
            *winner = input;
        }
        for node in (1..leaves).rev() {
            let (a, b) = (winners[node * 2], winners[node * 2 + 1]);
            let b_wins = b < inputs && less(b, a);
            (winners[node], losers[node]) = if b_wins { (b, a) } else { (a, b) };
        }
        losers[0] = if leaves == 1 { 0 } else { winners[1] };
        Self {
            losers,
            leaves,
            inputs,
        }
    }

    /// The input that comes next; if it is exhausted, all are.
    pub(super) fn winner(&self) -> usize {
        self.losers[0]
    }

    /// Plays again after the winner moved to its next entry.
    pub(super) fn replay(&mut self, mut less: impl FnMut(usize, usize) -> bool) {
        let mut winner = self.losers[0];
        let mut node = (self.leaves + winner) / 2;
        while node >= 1 {
            let challenger = self.losers[node];
            if challenger < self.inputs && less(challenger, winner) {
                self.losers[node] = winner;
                winner = challenger;
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn merges(mut inputs in prop::collection::vec(prop::collection::vec(0_u32..50, 0..20), 1..12)) {
            let mut expected: Vec<u32> = inputs.concat();
            expected.sort_unstable();
            for input in &mut inputs {
                input.sort_unstable_by(|a, b| b.cmp(a));
            }
            let key = |inputs: &Vec<Vec<u32>>, i: usize| inputs[i].last().copied().unwrap_or(u32::MAX);
            let mut tree = LoserTree::new(inputs.len(), |a, b| key(&inputs, a) < key(&inputs, b));
            let mut merged = Vec::new();
            while let Some(next) = inputs[tree.winner()].pop() {
                merged.push(next);
                tree.replay(|a, b| key(&inputs, a) < key(&inputs, b));
            }
            prop_assert_eq!(merged, expected);
        }
    }
}
