//! The ascending order of many keys that differ in one position.
//!
//! Distances from the smallest key, where they have at most 32 bits, are sorted together with the places of the keys: few
//! by comparisons, many digit by digit from the last one on, each time keeping the order of those that are equal (radix
//! sort; Knuth, The Art of Computer Programming 3, 5.2.5).

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: digits are below the number of counters, which add up to the number of keys"
)]

use stoa_terms::TermId;

/// Fewer keys are compared.
const RADIX_MIN: usize = if cfg!(test) { 4 } else { 256 };

const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
const PLACE_BITS: u32 = u32::BITS;

/// The ids in ascending order as numbers, each with its place in `ids`; those that are equal by their places.
pub(super) fn ascending(ids: &[TermId]) -> Vec<(u64, u32)> {
    let bits = ids.iter().map(|id| id.to_bits());
    let least = bits.clone().min().unwrap_or_default();
    let most = bits.clone().max().unwrap_or_default();
    let distance_bits = u64::BITS - (most - least).leading_zeros();
    if distance_bits > PLACE_BITS {
        let mut pairs: Vec<(u64, u32)> = bits.zip(0..).collect();
        pairs.sort_unstable();
        return pairs;
    }
    let keys = bits.zip(0_u64..);
    let mut keys: Vec<u64> = keys
        .map(|(bits, place)| (bits - least) << PLACE_BITS | place)
        .collect();
    if keys.len() < RADIX_MIN {
        keys.sort_unstable();
    } else {
        radix_sort(&mut keys, PLACE_BITS..PLACE_BITS + distance_bits);
    }
    let place = |key: u64| u32::try_from(key & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    let pairs = keys.into_iter();
    pairs
        .map(|key| (least + (key >> PLACE_BITS), place(key)))
        .collect()
}

/// Sorts keys by some of their bits; those that agree in these keep their order.
fn radix_sort(keys: &mut Vec<u64>, bits: std::ops::Range<u32>) {
    let mut sorted = vec![0; keys.len()];
    for shift in bits.step_by(DIGIT_BITS as usize) {
        let digit = |key: u64| usize::try_from(key >> shift & (DIGITS as u64 - 1)).unwrap_or(0);
        let mut places = [0_usize; DIGITS];
        for key in &*keys {
            places[digit(*key)] += 1;
        }
        let mut start = 0;
        for place in &mut places {
            start += std::mem::replace(place, start);
        }
        for key in &*keys {
            let place = &mut places[digit(*key)];
            sorted[*place] = *key;
            *place += 1;
        }
        std::mem::swap(keys, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_sorted(
            numbers in proptest::collection::vec(any::<u64>(), 0..300),
            width in 0..64_u32,
            base in any::<u64>(),
        ) {
            let id = |number: &u64| TermId::from_bits((base >> 1).wrapping_add(number >> width >> 1));
            let ids: Vec<TermId> = numbers.iter().map(id).collect();
            let mut expected: Vec<(u64, u32)> = ids.iter().map(|id| id.to_bits()).zip(0..).collect();
            expected.sort_unstable();
            prop_assert_eq!(ascending(&ids), expected);
        }
    }
}
