//! Tests of segments: what was encoded comes back, and no bytes whatever panic.

use std::sync::Arc;

use proptest::prelude::*;
use stoa_storage::{Cache, Identity, MemoryBudget, PartRef, RealDisk, Store};
use stoa_terms::{IdRange, TermId};

use super::Row;
use super::bits::{Frame, get, pack, packed_bytes, unpack};
use super::decode::{decode, decode_one, decode_range, decode_runs};
use super::delta::{Even, equal_in_delta, is_uneven};
use super::encode::encode;
use super::format::{
    GROUP_ROWS, TAG_CONSTANT, TAG_DELTA, TAG_DICTIONARY, TAG_PACKED, TAG_RUNS, TAG_SPLIT,
};
use super::reader::{Group, Header, Match, read_rows};
use super::within::{Rows, rows_within};
use super::writer::encode_segment;

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

/// Ranges that hold all, some, single and none of the values, bounds in and between them.
fn ranges_about(values: &[u64]) -> Vec<Vec<IdRange>> {
    let range = |first, last| IdRange {
        first: TermId::from_bits(first),
        last: TermId::from_bits(last),
    };
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| sorted[(sorted.len() - 1) * share / 8];
    vec![
        vec![range(0, u64::MAX)],
        vec![range(at(0), at(8))],
        vec![range(at(3), at(5))],
        vec![range(at(4), at(4))],
        vec![range(at(1), at(2)), range(at(6), at(7))],
        vec![range(
            at(2).saturating_add(1),
            at(6).saturating_add(1).max(1),
        )],
        vec![range(at(8).saturating_add(1), u64::MAX)],
        vec![range(0, at(0).saturating_sub(1))],
        Vec::new(),
    ]
}

fn check_rows(rows: &Rows, values: &[u64], ranges: &[IdRange]) {
    for (row, value) in values.iter().enumerate() {
        let id = TermId::from_bits(*value);
        let expected = ranges.iter().any(|r| r.first <= id && id <= r.last);
        assert_eq!(rows.contains(row), expected, "row {row}, {ranges:?}");
    }
}

/// Rows are found in ascending differences as in the values.
fn check_differences(stream: &[u8], values: &[u64]) {
    let even = Even::new(stream, values.len()).unwrap();
    if !is_uneven(stream) && even.is_none() {
        return;
    }
    let rows = values.len();
    for (start, end) in [(0, rows), (rows / 3, rows - rows / 4), (rows - 1, rows)] {
        let part = &values[start..end];
        if !part.is_sorted() {
            continue;
        }
        for at in [start, (start + end) / 2, (start + 3 * end) / 4, end - 1] {
            for wanted in [
                values[at],
                values[at].wrapping_sub(1),
                values[at].wrapping_add(1),
            ] {
                let least = start + part.partition_point(|value| *value < wanted);
                let most = start + part.partition_point(|value| *value <= wanted);
                if let Some(even) = &even {
                    let found = even.equal(start, end, wanted);
                    // Where values are equal it may not know.
                    let repeats = || part.windows(2).any(|pair| pair[0] == pair[1]);
                    let is_right = found.map_or_else(repeats, |found| found == (least, most));
                    assert!(is_right, "{wanted} in {start}..{end}: {found:?}");
                    continue;
                }
                let found = equal_in_delta(stream, rows, (start, end), wanted);
                assert_eq!(found, Ok((least, most)), "{wanted} in {start}..{end}");
            }
        }
    }
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
    for (start, end) in [
        (0, 1),
        (values.len() / 3, values.len() / 2),
        (values.len() / 2, values.len().min(values.len() / 2 + 20)),
        (values.len() / 4, values.len() - values.len() / 4),
        (values.len() - 1, values.len()),
        (0, values.len()),
    ] {
        let mut some = vec![0; end - start];
        assert_eq!(
            decode_range(&stream, values.len(), start, &mut some),
            Ok(())
        );
        assert_eq!(some, values[start..end]);
    }
    for ranges in ranges_about(values) {
        let rows = rows_within(&stream, values.len(), &ranges).unwrap();
        check_rows(&rows, values, &ranges);
        let after = (values.len()..GROUP_ROWS).find(|row| rows.contains(*row));
        assert_eq!(after, None);
    }
    check_differences(&stream, values);
    if let Some(runs) = decode_runs(&stream, values.len()).unwrap() {
        let mut start = 0;
        for (head, end) in runs.iter() {
            assert!(end > start && values[start..end].iter().all(|value| *value == head));
            start = end;
        }
        assert_eq!(start, values.len());
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
        let decoded = decode(&stream, &mut out);
        for ranges in ranges_about(&values) {
            let rows = rows_within(&stream, values.len(), &ranges);
            // Other values stand there then, frames that wrap around among them.
            if let (Ok(()), Ok(rows)) = (decoded, rows) {
                check_rows(&rows, &out, &ranges);
            }
        }
        let _ = decode_one(&stream, values.len(), values.len() / 2);
        drop(decode_runs(&stream, values.len()));
        let half = out.len() / 2;
        if is_uneven(&stream) {
            let rows = (half, out.len());
            let _ = equal_in_delta(&stream, out.len(), rows, values[half]);
        }
        if let Ok(Some(even)) = Even::new(&stream, out.len()) {
            let _ = even.equal(half, out.len(), values[half]);
        }
        let _ = decode_range(&stream, values.len(), half, &mut out[half..]);
        let some = out.len().min(half + 20);
        let _ = decode_range(&stream, values.len(), half, &mut out[half..some]);
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
    let steps: Vec<_> = (0..rows).map(|row| row * 16 + row / 300 * 5000).collect();
    assert_eq!(tag(&steps), TAG_DELTA);
    let stream = round_trip(&steps);
    assert_eq!(decode_one(&stream, GROUP_ROWS, 1000), Ok(Some(steps[1000])));
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

/// Damage that has the right checksum, as a faulty writer would leave it.
#[test]
fn damaged_segments_do_not_panic() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 16);
    let disk = Arc::new(RealDisk::new(directory.path()));
    let store = Store::create(disk, cache, Identity::new(1)).unwrap();
    let checkpoint = store.begin().unwrap();
    let mut rows: Vec<Row> = (0..2500)
        .map(|row| {
            [
                row / 900,
                row / 7,
                ((row % 5) << 60) | (row * row % 1009),
                row % 2,
            ]
        })
        .collect();
    rows.sort_unstable();
    rows.dedup();
    let encoded = encode_segment(&rows);
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let (mut refused, mut read) = (0, 0);
    for _ in 0..300 {
        let mut bytes = encoded.bytes.clone();
        for _ in 0..=random(3) {
            let place = random(bytes.len());
            bytes[place] ^= 1 << random(8);
        }
        // Half of them in the headers of segment and groups.
        if random(2) == 0 {
            let place = random(encoded.header_bytes + 40);
            bytes[place] = u8::try_from(random(256)).unwrap();
        }
        fix_checksums(&mut bytes);
        let extent = checkpoint.write_extent(&bytes).unwrap();
        let header = PartRef::of(extent, 0, &bytes[..encoded.header_bytes]);
        match use_segment(&store, header, rows.len() as u64) {
            Ok(()) => read += 1,
            Err(_) => refused += 1,
        }
        checkpoint.free(extent, bytes.len() as u64);
    }
    assert!(refused > 20 && read > 0, "{refused} refused, {read} read");
}

/// Gives the groups that still lie within the segment their right checksums.
fn fix_checksums(bytes: &mut [u8]) {
    for entry in [8, 52, 96] {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (start, length) = (number(entry), number(entry + 4));
        if let Some(group) = bytes.get(start..start.saturating_add(length)) {
            let crc = stoa_storage::crc32c(group);
            bytes[entry + 8..entry + 12].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn use_segment(store: &Store, header: PartRef, rows: u64) -> crate::Result<()> {
    let outcome = read_rows(store, header, rows);
    let header = Header::new(store.read_one(&header)?)?;
    for index in 0..header.groups() {
        header.group_before(&header.first_key(index));
        let part = store.read_one(&header.group(index))?;
        let rows = header.group_rows(index);
        for depth in 1..=4 {
            let mut group = Group::new(part.clone(), rows)?;
            let mut keys = vec![header.first_key(index); 9];
            for (key, more) in keys.iter_mut().zip(0..) {
                key[depth - 1] = key[depth - 1].saturating_add(more);
            }
            let (mut matches, mut out) = (Vec::new(), Vec::new());
            group.match_keys(depth, &keys, 3, &mut matches)?;
            let found = matches.iter().map(Match::rows).sum();
            for place in 0..4 {
                group.copy_matches(place, &matches, found, &mut out)?;
            }
            assert_eq!(out.len(), 4 * found);
        }
        let mut group = Group::new(part.clone(), rows)?;
        let key = header.first_key(index).map(TermId::from_bits);
        for depth in 1..=4 {
            let least = group.search(&key[..depth], false, 0, rows)?;
            let most = group.search(&key[..depth], true, least, rows)?;
            assert!(least <= most && most <= rows);
        }
        let mut out = Vec::new();
        for place in 0..4 {
            group.copy(place, rows / 2, rows, &mut out)?;
            group.copy(place, 0, rows, &mut out)?;
        }
        assert_eq!(out.len(), 4 * (rows + rows - rows / 2));
    }
    outcome.map(|_| ())
}

/// What no writer makes, and what a checksum does not tell from what one does.
#[test]
fn dictionaries_within_dictionaries_come_to_an_end() {
    let mut stream = vec![TAG_CONSTANT];
    stream.extend_from_slice(&7_u64.to_le_bytes());
    while let Ok(length) = u16::try_from(stream.len()) {
        let mut outer = vec![TAG_DICTIONARY, 1, 0];
        outer.extend_from_slice(&length.to_le_bytes());
        outer.append(&mut stream);
        stream = outer;
        if stream.len() == 9 + 5 {
            assert_eq!(decode_one(&stream, 4, 1), Ok(Some(7)));
        }
    }
    assert!(decode_one(&stream, 4, 1).is_err());
    assert!(decode_range(&stream, 4, 1, &mut [0; 2]).is_err());
}
