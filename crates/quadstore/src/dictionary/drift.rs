//! Tells when the keys of a partition have become too different from those its model was trained on.
//!
//! Keys come sorted, so the first ones may be all numbers, or in another script than the rest. What is
//! watched is the share of bytes that the words of the model do not cover. A new model is worth a try
//! when that has grown, or, if the model has no words at all, from time to time; each try that did not
//! pay makes the next one wait four times as long.

use std::collections::VecDeque;

/// Units that are compared: the first with a model, and the latest.
const WINDOW: usize = 4;
/// Bytes between two tries, at least.
const INTERVAL_BYTES: u64 = 16 << 20;

/// Watches one model after the other.
pub(crate) struct Drift {
    /// Shares in thousandths of the first units that were compressed with the model, and of the last.
    first: Vec<u64>,
    last: VecDeque<u64>,
    has_words: bool,
    since_try_bytes: u64,
    interval_bytes: u64,
}

impl Drift {
    pub(crate) fn new() -> Self {
        Self {
            first: Vec::new(),
            last: VecDeque::new(),
            has_words: false,
            since_try_bytes: 0,
            interval_bytes: INTERVAL_BYTES,
        }
    }

    /// There is a new model.
    pub(crate) fn model_changed(&mut self, has_words: bool) {
        *self = Self::new();
        self.has_words = has_words;
    }

    /// A try for a better model did not pay; what was seen then is normal from now on.
    pub(crate) fn model_kept(&mut self) {
        self.first.clear();
        self.last.clear();
        self.since_try_bytes = 0;
        self.interval_bytes = self.interval_bytes.saturating_mul(4);
    }

    /// A unit of `bytes` was compressed; of `sampled` bytes of it words did not cover `spelled`.
    pub(crate) fn note(&mut self, bytes: u64, spelled: u64, sampled: u64) {
        self.since_try_bytes += bytes;
        let Some(share) = (spelled * 1000).checked_div(sampled) else {
            return;
        };
        if self.first.len() < WINDOW {
            self.first.push(share);
        }
        self.last.push_back(share);
        if self.last.len() > WINDOW {
            self.last.pop_front();
        }
    }

    /// Whether a new model is worth a try.
    pub(crate) fn is_due(&self) -> bool {
        if self.since_try_bytes < self.interval_bytes || self.last.len() < WINDOW {
            return false;
        }
        let first = self.first.iter().sum::<u64>() / WINDOW as u64;
        let last = self.last.iter().sum::<u64>() / WINDOW as u64;
        !self.has_words || last > first * 3 / 2 + 30
    }
}
