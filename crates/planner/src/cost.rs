//! What operators cost, in nanoseconds of one core with warm caches, roughly.
//!
//! Only the order of the figures matters. They are for batches: a row that is scanned costs a few
//! nanoseconds, one that is looked up among others that lie close to it little more, one that lies
//! alone the decoding of its row group.

use crate::cardinality::float;
use crate::expression::Expression;
use crate::logical::expression_variables;

/// The descent to the first row of a scan.
pub(crate) const SCAN_START: f64 = 2_000.0;
/// A row that is scanned.
pub(crate) const SCAN_ROW: f64 = 3.0;
/// A row that is put together from other sort orders: looked up, held and sorted.
pub(crate) const COMPOSED_ROW: f64 = 40.0;
/// A row that a join or any other operator puts out.
pub(crate) const OUTPUT_ROW: f64 = 4.0;
/// A row of either side of a merge join.
pub(crate) const MERGE_ROW: f64 = 3.0;
/// A pair of rows that agree in the key of a merge join, and are compared in other columns.
pub(crate) const COMPARED_PAIR: f64 = 4.0;
/// A leap of a merge join over rows of one side, with the rows behind it that are read in vain.
pub(crate) const LEAPT: f64 = 700.0;
/// A side of a merge join that has so many times the rows of the other one may be leapt through.
const LEAPT_ROWS_MIN: f64 = 256.0;
/// A row that goes into a hash table while that is small, and the one that is looked up in it.
pub(crate) const HASH_BUILD_ROW: f64 = 25.0;
pub(crate) const HASH_PROBE_ROW: f64 = 10.0;
/// More for a row in a hash table that the caches of a core do not hold.
const HASH_MISS: f64 = 30.0;
/// Rows of a hash table that these hold.
const HASH_ROWS_CACHED: f64 = 50_000.0;
/// More for a row in a hash table that no cache holds.
const HASH_MEMORY_MISS: f64 = 100.0;
/// Rows of a hash table from which on it comes to that, little by little until there are twice as many.
const HASH_ROWS_SHARED: f64 = 600_000.0;
/// One look-up in an index, apart from the row group.
const PROBE: f64 = 60.0;
/// Reading and decoding a row group.
const ROW_GROUP: f64 = 2_500.0;
const ROW_GROUP_ROWS: f64 = 1_024.0;
/// Rows that are looked up together.
const LOOKUP_BATCH: f64 = 65_536.0;
/// A condition, for one row.
pub(crate) const CONDITION_ROW: f64 = 15.0;
/// One that compares a variable with what is the same for all rows, which is done column by column.
const COMPARED_ROW: f64 = 3.0;
/// Grouping one row.
pub(crate) const GROUP_ROW: f64 = 30.0;
/// A group of an index that is counted and skipped, with what is read of it before.
pub(crate) const GROUP_SKIPPED: f64 = 20_000.0;
/// A run of values that a leapfrog join begins with: opened, and sought among blocks.
const OPEN: f64 = 80.0;
/// More where no cache holds the blocks.
const OPEN_MISS: f64 = 120.0;
/// A leap within a run of values.
pub(crate) const LEAP: f64 = 8.0;
/// A row that is read for a leapfrog join, block by block.
pub(crate) const TRIE_ROW: f64 = 6.0;
/// A row of a join of two inputs that averages do not show.
pub(crate) const HIDDEN_ROW: f64 = 30.0;
/// Starting the inner plan of an `apply`.
pub(crate) const APPLY_START: f64 = 3_000.0;

/// A row that is kept for others, and each of its values; each is read again by all but one of those that want it.
const KEPT_ROW: f64 = 4.0;
const KEPT_VALUE: f64 = 2.0;
/// Values that are kept in memory, and more for each where they are not.
const KEPT_VALUES_HELD: f64 = 8e6;
const KEPT_MISS: f64 = 8.0;

/// Keeping rows of so many columns for all but one of those that read them.
pub(crate) fn kept(rows: f64, width: usize, readers: usize) -> f64 {
    let values = rows * columns(width);
    let value = if values > KEPT_VALUES_HELD {
        KEPT_VALUE + KEPT_MISS
    } else {
        KEPT_VALUE
    };
    columns(readers) * (rows * KEPT_ROW + values * value)
}

/// A number of columns, or of anything else that is few.
pub(crate) fn columns(count: usize) -> f64 {
    float(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The table of a hash join with this many rows, and looking this many up.
pub(crate) fn hash(build: f64, probe: f64) -> f64 {
    let miss = if build > HASH_ROWS_CACHED {
        let beyond = (build / HASH_ROWS_SHARED).log2().clamp(0.0, 1.0);
        HASH_MISS + beyond * (HASH_MEMORY_MISS - HASH_MISS)
    } else {
        0.0
    };
    build * (HASH_BUILD_ROW + miss) + probe * (HASH_PROBE_ROW + miss)
}

/// Looking `probes` keys up among `rows` rows; `sorted` if the keys ascend over all batches.
pub(crate) fn lookup(probes: f64, rows: f64, sorted: bool) -> f64 {
    let touched = |keys: f64| groups_touched(keys, rows);
    let batches = (probes / LOOKUP_BATCH).ceil().max(1.0);
    let read = if sorted {
        touched(probes)
    } else {
        batches * touched(probes / batches)
    };
    SCAN_START + probes * PROBE + read.max(probes.min(1.0)) * ROW_GROUP
}

/// Of how many row groups of `rows` rows these many keys, spread evenly, want some.
fn groups_touched(keys: f64, rows: f64) -> f64 {
    let groups = (rows / ROW_GROUP_ROWS).ceil().max(1.0);
    groups * (1.0 - (-keys / groups).exp())
}

/// Whether a side of a merge join with so many rows may be leapt through if the other one has `keys`.
pub(crate) fn is_leapt(keys: f64, rows: f64) -> bool {
    keys * LEAPT_ROWS_MIN <= rows
}

/// Merging `rows` rows of an index with `keys` keys by a leap for each, where these may lie far enough apart.
pub(crate) fn leaps(keys: f64, rows: f64) -> Option<f64> {
    let groups = groups_touched(keys, rows);
    is_leapt(keys, rows).then_some(SCAN_START + keys * LEAPT + groups * ROW_GROUP)
}

/// Fewer look-ups take less than all there is to do for a hash join, whatever it reads.
const LOOKUPS_MIN: u64 = 256;

/// How many keys can be looked up among `rows` rows until that costs as much as reading all that may match, which are
/// `matches` and cost `read`, and joining by hash from the beginning; `None` if it never does.
pub(crate) fn lookups_max(rows: f64, sorted: bool, matches: f64, read: f64) -> Option<u64> {
    let is_dearer = |probes: u64| {
        let probes = float(probes);
        lookup(probes, rows, sorted) >= read + hash(matches, probes)
    };
    // Where looking up costs less than a probe of a large table it is never given up.
    let doubled = std::iter::successors(Some(LOOKUPS_MIN), |probes| probes.checked_mul(2));
    let mut high = doubled.into_iter().find(|probes| is_dearer(*probes))?;
    let mut low = (high / 2).max(LOOKUPS_MIN);
    while low < high {
        let middle = low + (high - low) / 2;
        match is_dearer(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Some(high)
}

/// Beginning with a run of values of a pattern with so many rows.
pub(crate) fn open(rows: f64) -> f64 {
    if rows > HASH_ROWS_CACHED {
        OPEN + OPEN_MISS
    } else {
        OPEN
    }
}

/// Trying conditions, for one row.
pub(crate) fn conditions<'a>(all: impl Iterator<Item = &'a Expression>) -> f64 {
    let mut open: Vec<&Expression> = all.collect();
    let (mut compared, mut other) = (0.0, 0.0);
    while let Some(condition) = open.pop() {
        match condition {
            Expression::And(parts) => open.extend(parts),
            _ if is_compared(condition) => compared += COMPARED_ROW,
            _ => other = CONDITION_ROW,
        }
    }
    compared + other
}

/// Whether a condition compares a variable with what is known before the rows are.
fn is_compared(condition: &Expression) -> bool {
    let is_known = |operand: &Expression| expression_variables(operand).is_empty();
    match condition {
        Expression::Compare(_, left, right) => match (&**left, &**right) {
            (Expression::Variable(_), known) | (known, Expression::Variable(_)) => is_known(known),
            _ => false,
        },
        _ => false,
    }
}

/// Sorting rows.
pub(crate) fn sort(rows: f64) -> f64 {
    rows * 20.0 * rows.max(2.0).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_cost_as_much_as_a_hash_join_at_the_break_even() {
        for (rows, matches) in [(1e3, 1e3), (1e5, 1e5), (1e6, 2e5)] {
            for sorted in [false, true] {
                let read = SCAN_START + matches * SCAN_ROW;
                let most = lookups_max(rows, sorted, matches, read).unwrap();
                let difference = |probes: u64| {
                    let probes = float(probes);
                    lookup(probes, rows, sorted) - read - hash(matches, probes)
                };
                assert!(difference(most) >= 0.0, "{rows} {sorted}");
                assert!(
                    most > LOOKUPS_MIN && difference(most - 1) < 0.0,
                    "{rows} {sorted}"
                );
                assert!(difference(2 * most) > difference(most));
            }
        }
    }

    #[test]
    fn what_lies_between_keys_is_leapt_over_where_it_is_much() {
        let read = |rows: f64| SCAN_START + rows * (SCAN_ROW + MERGE_ROW);
        assert_eq!(leaps(1e5, 1e6), None);
        assert!(leaps(1e3, 1e6).unwrap() < read(1e6));
        assert!(leaps(10.0, 1e6).unwrap() < read(1e6) / 50.0);
        // Looking them up at once costs less.
        assert!(lookup(1e3, 1e6, true) < leaps(1e3, 1e6).unwrap());
    }

    #[test]
    fn few_look_ups_are_never_too_many() {
        assert_eq!(lookups_max(5.0, false, 5.0, 2_015.0), Some(LOOKUPS_MIN));
        // No table of so many rows is worth it; reading costs nothing.
        assert_eq!(lookups_max(1e8, true, 1e8, 3e8), None);
        assert_eq!(lookups_max(1e9, false, 1.0, 0.0), Some(LOOKUPS_MIN));
    }
}
