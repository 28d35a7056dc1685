//! What a lenient load leaves out.
//!
//! # Limits
//! Memory: [`MISTAKES_LISTED_MAX`] mistakes, and a count for each input.

use std::collections::BTreeSet;

use crate::error::DataError;
use crate::limits::MISTAKES_LISTED_MAX;
use crate::load::source::Source;

/// What a lenient load left out, the same whatever the number of threads.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Skipped {
    /// How many lines of N-Triples and N-Quads, statements of Turtle and TriG, and names and values of
    /// JSON-LD.
    pub total: u64,
    /// How many of each input, in the order of the inputs; those that are undamaged are left out.
    pub inputs: Vec<(String, u64)>,
    /// The first [`MISTAKES_LISTED_MAX`] mistakes, by input, line and column.
    pub mistakes: Vec<DataError>,
}

/// Counts mistakes while a load is running.
#[derive(Default)]
pub(crate) struct Mistakes {
    /// For each source.
    counts: Vec<u64>,
    /// The number of the source, line, column, and reason.
    first: BTreeSet<(usize, u64, u64, String)>,
}

impl Mistakes {
    pub(crate) fn add(&mut self, source: usize, (line, column): (u64, u64), reason: String) {
        if self.counts.len() <= source {
            self.counts.resize(source + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(source) {
            *count += 1;
        }
        self.first.insert((source, line, column, reason));
        if self.first.len() > MISTAKES_LISTED_MAX {
            self.first.pop_last();
        }
    }

    pub(crate) fn into_skipped(self, sources: &[Source]) -> Skipped {
        let counted = sources.iter().zip(&self.counts);
        let mistakes = self.first.into_iter().filter_map(|mistake| {
            let (source, line, column, reason) = mistake;
            Some(DataError {
                input: sources.get(source)?.name.clone(),
                line,
                column,
                reason,
            })
        });
        Skipped {
            total: self.counts.iter().sum(),
            inputs: counted
                .filter(|(_, count)| **count > 0)
                .map(|(source, count)| (source.name.clone(), *count))
                .collect(),
            mistakes: mistakes.collect(),
        }
    }
}
