//! Tests of segments: what was encoded comes back, and no bytes whatever panic.

use proptest::prelude::*;

use super::bits::{Frame, get, pack, packed_bytes, unpack};
use super::decode::{decode, decode_one};
use super::encode::encode;
use super::format::{
    GROUP_ROWS, TAG_CONSTANT, TAG_DELTA, TAG_DICTIONARY, TAG_PACKED, TAG_RUNS, TAG_SPLIT,
};

/// Columns of the shapes that permutations have, and of any other.
fn column() -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![Just(GROUP_ROWS), 1..GROUP_ROWS, 1..20_usize];
    (length, 0..8_u8, any::<u64>(), 0..64_u32).prop_map(|(length, shape, seed, width)| {
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mask = u64::MAX >> width;
        let mut value = random() & (mask >> 4);
        (0..length)
            .map(|index| match shape {
                0 => seed,
                1 => random() & mask,
                2 => {
                    value = value.wrapping_add(random() % 4);
                    value
                }
                3 => {
                    if random() % 20 == 0 {
                        value = value.wrapping_add(random() & 0xffff);
                    }
                    value
                }
                4 => (random() % 20).wrapping_mul(0x0123_4567_89ab_cdef),
                5 => ((random() % 5 + 1) << 60) | (random() & (mask >> 4) & !0xf),
                6 => {
                    if index % 300 == 299 {
                        value = random();
                    }
                    value = value.wrapping_add(16);
                    value
                }
                _ => ((random() % 16) << 60) | (random() % 100),
            })
            .collect()
    })
}

fn round_trip(values: &[u64]) -> Vec<u8> {
    let mut stream = Vec::new();
    encode(values, &mut stream);
    let mut out = vec![0; values.len()];
    assert_eq!(decode(&stream, &mut out), Ok(()));
    assert_eq!(out, values);
    for (index, value) in values.iter().enumerate() {
        let one = decode_one(&stream, values.len(), index);
        assert!(
            one == Ok(None) || one == Ok(Some(*value)),
            "row {index}: {one:?}"
        );
    }
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn columns_come_back(values in column()) {
        let stream = round_trip(&values);
        prop_assert!(stream.len() <= 11 + values.len() * 8);
    }

    #[test]
    fn damaged_columns_do_not_panic(
        values in column(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut stream = Vec::new();
        encode(&values, &mut stream);
        for (place, byte) in places {
            // Mostly the headers, where it matters.
            let place = place.index(stream.len().min(40));
            stream[place] = byte;
        }
        let mut out = vec![0; values.len()];
        let _ = decode(&stream, &mut out);
        let _ = decode_one(&stream, values.len(), values.len() / 2);
        let _ = decode(&stream[..cut.index(stream.len())], &mut out);
    }

    #[test]
    fn bits_come_back(values in column(), shift in 0..8_u32) {
        let base = values.iter().copied().min().unwrap_or(0);
        let most = values.iter().map(|value| (value - base) >> shift).max().unwrap_or(0);
        let frame = Frame { base, shift, width: super::bits::bits_of(most) };
        let expected: Vec<_> = values
            .iter()
            .map(|value| base + ((value - base) >> shift << shift))
            .collect();
        let mut bytes = Vec::new();
        pack(&values, frame, &mut bytes);
        prop_assert_eq!(bytes.len(), packed_bytes(values.len(), frame.width));
        let mut out = vec![0; values.len()];
        unpack(&bytes, frame, &mut out);
        prop_assert_eq!(&out, &expected);
        for (index, value) in expected.iter().enumerate() {
            prop_assert_eq!(get(&bytes, frame, values.len(), index), *value);
        }
    }
}

#[test]
fn every_encoding_is_chosen() {
    let tag = |values: &[u64]| round_trip(values)[0];
    let rows = GROUP_ROWS as u64;
    assert_eq!(tag(&[7; GROUP_ROWS]), TAG_CONSTANT);
    let mixed: Vec<_> = (0..rows).map(|row| row * 7919 % 1021).collect();
    assert_eq!(tag(&mixed), TAG_PACKED);
    let ascending: Vec<_> = (0..rows).map(|row| row * row % 3 + row * 1000).collect();
    assert_eq!(tag(&ascending), TAG_DELTA);
    let runs: Vec<_> = (0..rows).map(|row| row / 100 * 7919 % 1021).collect();
    assert_eq!(tag(&runs), TAG_RUNS);
    let few: Vec<_> = (0..rows)
        .map(|row| (row * 7919 % 1021 % 5).wrapping_mul(0x0123_4567_89ab_cdef))
        .collect();
    assert_eq!(tag(&few), TAG_DICTIONARY);
    let kinds: Vec<_> = (0..rows)
        .map(|row| row * 7919 % 1021 + (row * 31 % 97 % 3) * (1 << 60))
        .collect();
    assert_eq!(tag(&kinds), TAG_SPLIT);
}

/// The bytes of one stream of each encoding do not change by accident.
#[test]
fn golden_streams() {
    let digest = |values: &[u64]| {
        let stream = round_trip(values);
        (stream.len(), stoa_storage::crc32c(&stream))
    };
    let rows = GROUP_ROWS as u64;
    let mixed: Vec<_> = (0..rows).map(|row| row * 7919 % 1021).collect();
    let ascending: Vec<_> = (0..rows).map(|row| row * row % 3 + row * 1000).collect();
    let kinds: Vec<_> = (0..rows)
        .map(|row| row * 7919 % 1021 + (row * 31 % 97 % 3) * (1 << 60))
        .collect();
    assert_eq!(
        [digest(&mixed), digest(&ascending), digest(&kinds)],
        [
            (1291, 3_761_258_086),
            (276, 254_955_839),
            (1585, 657_036_813)
        ]
    );
}
