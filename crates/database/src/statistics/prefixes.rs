//! Where terms are whose text begins with something, as so few ranges of ids that each may be counted and read by itself.

use stoa_planner::{PrefixRanges, TextOf};
use stoa_quadstore::{Result, Snapshot};
use stoa_terms::range::inline_prefix_ranges;
use stoa_terms::{IdRange, Kind};

/// So many ids are listed of a part of the dictionary that is not in order: some milliseconds.
const IDS_MAX: u64 = 16_384;
/// Each range costs some microseconds when it is counted, and when it is read.
const RANGES_MAX: usize = 512;

/// The ranges for a prefix.
pub(super) fn ranges(snapshot: &Snapshot, prefix: &str, of: TextOf) -> Result<PrefixRanges> {
    let kinds: &[Kind] = match of {
        TextOf::Strings => &[Kind::ShortString, Kind::Literal],
        TextOf::Terms => &[
            Kind::Iri,
            Kind::NumericLiteral,
            Kind::TemporalLiteral,
            Kind::ShortString,
            Kind::Literal,
        ],
    };
    let found = snapshot.prefix_ranges(prefix, kinds, IDS_MAX)?;
    let (mut ranges, mut is_exact) = (found.ranges, found.is_exact);
    if of == TextOf::Terms {
        let inline = inline_prefix_ranges(prefix);
        // Numbers and dates are all in or out; of booleans there is one of the text.
        is_exact &= prefix.is_empty() || inline.iter().all(|range| range.first == range.last);
        ranges.extend(inline);
    }
    ranges.sort_unstable_by_key(|range| range.first);
    if ranges.len() > RANGES_MAX {
        ranges = widened(&ranges, RANGES_MAX);
        is_exact = false;
    }
    Ok(PrefixRanges { ranges, is_exact })
}

/// Ascending ranges as at most `most` that hold them all, at least 2: the widest gaps stay.
fn widened(ranges: &[IdRange], most: usize) -> Vec<IdRange> {
    let gap = |pair: &[IdRange]| match pair {
        [one, next] => next.first.to_bits() - one.last.to_bits(),
        _ => 0,
    };
    let mut gaps: Vec<u64> = ranges.windows(2).map(gap).collect();
    let at = gaps.len().saturating_sub(most);
    let narrow = match at < gaps.len() {
        true => *gaps.select_nth_unstable(at).1,
        false => 0,
    };
    let mut kept: Vec<IdRange> = Vec::with_capacity(most);
    for range in ranges {
        match kept.last_mut() {
            Some(last) if range.first.to_bits() - last.last.to_bits() <= narrow => {
                last.last = range.last;
            }
            _ => kept.push(*range),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_terms::TermId;

    #[test]
    fn the_widest_gaps_stay() {
        let range = |first: u64, last: u64| IdRange {
            first: TermId::from_bits(first),
            last: TermId::from_bits(last),
        };
        let some = [
            range(1, 2),
            range(4, 4),
            range(9, 9),
            range(11, 20),
            range(90, 91),
        ];
        assert_eq!(
            widened(&some, 3),
            [range(1, 4), range(9, 20), range(90, 91)]
        );
        assert_eq!(widened(&some, 2), [range(1, 20), range(90, 91)]);
        let even: Vec<IdRange> = (0..100).map(|at| range(2 * at, 2 * at)).collect();
        for most in 2..100 {
            let kept = widened(&even, most);
            assert!(kept.len() <= most);
            let holds = |id: &IdRange| kept.iter().any(|range| range.contains(id.first));
            assert!(even.iter().all(holds));
        }
    }
}
