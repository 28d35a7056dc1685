//! Bindings of an apply that have an inner row, where one is enough: what is read for them from then on is a waste.
//!
//! Rows are left out only where they come from the bindings solution by solution (`Handing::of_bindings`). Above these no
//! operator takes solutions of several bindings together: the planner puts the bindings into the keys of groupings and LIMITs
//! of inner plans.
//!
//! # Concurrency
//! Bits that only ever become set; who sees one late reads a little more.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use crate::batch::Batch;

/// With fewer of so many found there is little to drop.
const SHARE: usize = 8;

/// See the module header.
pub(crate) struct FoundBindings {
    variable: Variable,
    /// The number of the first operator of the inner plan.
    root: usize,
    /// The number of each binding.
    numbers: HashMap<TermId, u32, RandomState>,
    /// A bit for each number.
    bits: Vec<AtomicU64>,
    found: AtomicUsize,
}

impl FoundBindings {
    /// None of these bindings of a variable, each of which is there once, has been found. `root` is the number of the first
    /// operator of the inner plan.
    pub(super) fn new(variable: Variable, bindings: &[TermId], root: usize) -> Self {
        Self {
            variable,
            root,
            numbers: bindings.iter().copied().zip(0..).collect(),
            bits: (0..bindings.len().div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            found: AtomicUsize::new(0),
        }
    }

    /// What so many bindings take.
    pub(super) const fn bytes(bindings: usize) -> u64 {
        (bindings.next_power_of_two() * 2 * size_of::<(TermId, u32)>()) as u64
    }

    pub(super) const fn variable(&self) -> Variable {
        self.variable
    }

    /// Whether the rows of the operator with this number are those of the inner plan.
    pub(super) const fn is_root(&self, number: usize) -> bool {
        self.root == number
    }

    /// These bindings have been found.
    pub(super) fn add(&self, bindings: &[TermId]) {
        for binding in bindings {
            let Some((word, bit)) = self.place(*binding) else {
                continue;
            };
            if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.found.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Drops rows whose binding, in this column, has been found, if these are not too few to be worth it; returns how many.
    pub(super) fn drop_rows(&self, rows: &mut Batch, column: usize) -> usize {
        if self.found.load(Ordering::Relaxed) * SHARE < self.numbers.len() {
            return 0;
        }
        let all = rows.rows;
        let keep: Vec<bool> = rows
            .column(column)
            .iter()
            .map(|binding| !self.is_found(*binding))
            .collect();
        rows.retain(&keep);
        all - rows.rows
    }

    fn is_found(&self, binding: TermId) -> bool {
        let place = self.place(binding);
        place.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// The word of a binding and its bit there.
    fn place(&self, binding: TermId) -> Option<(&AtomicU64, u64)> {
        let number = self.numbers.get(&binding)?;
        let word = self.bits.get(*number as usize / 64)?;
        Some((word, 1 << (number % 64)))
    }
}
