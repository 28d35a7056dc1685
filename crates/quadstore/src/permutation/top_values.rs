//! The values that many rows of a tree have behind a prefix.
//!
//! Rows at even distances are looked at. Whatever more than a 64th of the rows have is met twice among 128 of them,
//! as it covers more than two distances; what is met twice is then counted.

use stoa_storage::Store;
use stoa_terms::TermId;

use super::Intervals;
use super::count::rows_between;
use super::sample::{READS_UNCHECKED, sample};
use super::tree::Tree;
use crate::error::Result;

/// How many rows are looked at.
const DRAWN: usize = 128;
/// Of what more than one of so many rows have nothing is missed.
pub(crate) const FREQUENT: u64 = DRAWN as u64 / 2;

/// Values that many rows have, ascending, and how many have them.
pub(crate) type ValueRows = Vec<(u64, u64)>;

/// The values that many of the rows with a prefix (at most three ids) have behind it, and how many rows have each; none
/// that more than one in [`FREQUENT`] have is missing. Also how many look-ups that took. `go_on` is asked now and then;
/// `None` once it says no.
pub(crate) fn top_values(
    store: &Store,
    tree: &Tree,
    prefix: &[TermId],
    go_on: &dyn Fn() -> bool,
) -> Result<Option<(ValueRows, usize)>> {
    let Some(rows) = sample(store, tree, &Intervals::new(prefix, &[])?, DRAWN, go_on)? else {
        return Ok(None);
    };
    let values = rows.iter().filter_map(|row| row.get(prefix.len()).copied());
    let values = met_twice(values);
    let mut lookups = rows.len();
    let mut top = Vec::with_capacity(values.len());
    for value in values {
        let intervals = behind(prefix, value)?;
        if let Some((low, high)) = intervals.get(0) {
            if (top.len() as u64).is_multiple_of(READS_UNCHECKED) && !go_on() {
                return Ok(None);
            }
            lookups += 1;
            let rows = rows_between(store, tree, &low, &high, intervals.depth)?;
            top.push((value, rows));
        }
    }
    Ok(Some((top, lookups)))
}

/// The rows with a prefix and a value behind it.
pub(crate) fn behind(prefix: &[TermId], value: u64) -> Result<Intervals> {
    let mut prefix = prefix.to_vec();
    prefix.push(TermId::from_bits(value));
    Intervals::new(&prefix, &[])
}

/// The values, of some that ascend, that are there more than once.
pub(crate) fn met_twice(ascending: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    let mut last = None;
    for value in ascending {
        if last == Some(value) && found.last() != Some(&value) {
            found.push(value);
        }
        last = Some(value);
    }
    found
}
