//! Spilled and resident parts of a load read back as what went in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{Kind, TermId};

use super::partial::{Contents, KEYED_KINDS, Partial};
use super::quad_buffer::{LocalTerm, QuadBuffer, for_each_quad};
use super::quad_sort::{MergedRuns, RunBuilder};
use super::spill::{SpillFile, StreamWriter, push_varint};
use super::vocabulary::TermTable;

fn spill_file() -> Arc<SpillFile> {
    let cache = Cache::new(&MemoryBudget::new(1 << 20), 1 << 20);
    let store = Store::create(Arc::new(SimulatedDisk::new(1)), cache, Identity::new(1)).unwrap();
    SpillFile::new(&store.temp_space()).unwrap()
}

fn contents() -> Contents {
    Contents {
        quads: Vec::new(),
        predicates: Vec::new(),
        graphs: Vec::new(),
        created: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sealed_keys_come_back_sorted(
        terms in prop::collection::btree_set(
            (0_usize..5, prop::collection::vec(any::<u8>(), 0..200)),
            0..200,
        ),
        long in 0_usize..300_000,
    ) {
        let mut terms = terms;
        terms.insert((0, vec![7; long]));
        for keep_in_memory in [false, true] {
            let mut vocabulary = TermTable::new(1 << 10);
            let mut locals = BTreeMap::new();
            for (list, key) in terms.iter().rev() {
                let local = vocabulary.intern(KEYED_KINDS[*list], key).unwrap();
                locals.insert((*list, key.clone()), local);
            }
            let file = spill_file();
            let mut partial =
                Partial::seal(vocabulary, contents(), keep_in_memory, &file).unwrap();
            prop_assert_eq!(partial.terms as usize, terms.len());
            let mut found = Vec::new();
            for list in 0..KEYED_KINDS.len() {
                let mut cursor = partial.take_cursor(list).unwrap();
                while let Some(key) = cursor.key() {
                    let term = (list, key.to_vec());
                    prop_assert_eq!(locals[&term], cursor.local());
                    found.push(term);
                    cursor.advance().unwrap();
                }
            }
            prop_assert!(found.iter().eq(terms.iter()));
        }
    }

    #[test]
    fn streams_and_blocks_come_back(
        pieces in prop::collection::vec((any::<u64>(), 0_usize..100_000), 0..12),
        compress: bool,
    ) {
        let file = spill_file();
        let mut writer = StreamWriter::new(&file, compress);
        let mut other = StreamWriter::new(&file, !compress);
        for &(value, length) in &pieces {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            bytes.resize(bytes.len() + length, value.to_le_bytes()[0]);
            writer.write(&bytes).unwrap();
            other.write(&bytes[..1]).unwrap();
        }
        other.finish().unwrap();
        let stream = writer.finish().unwrap();
        let mut reader = stream.reader();
        for &(value, length) in &pieces {
            prop_assert_eq!(reader.read_varint().unwrap(), value);
            let mut bytes = Vec::new();
            reader.read_onto(length, &mut bytes).unwrap();
            prop_assert!(bytes == vec![value.to_le_bytes()[0]; length]);
        }
        prop_assert!(!reader.has_more().unwrap());
        prop_assert!(reader.read_byte().is_err());
    }

    #[test]
    fn quads_come_back_with_their_ids(
        quads in prop::collection::vec(prop::array::uniform4(0_u32..12), 0..20_000),
    ) {
        let term = |number: u32| match number {
            0 => LocalTerm::inline(TermId::DEFAULT_GRAPH),
            1 => LocalTerm::inline(TermId::new(Kind::Integer, 1 << 59)),
            other => LocalTerm::local(other - 2, 0, 3),
        };
        let id = |number: u32| match term(number).split() {
            Err(id) => id,
            Ok(local) => TermId::new(Kind::Iri, u64::from(local) + 100),
        };
        let ids: Vec<TermId> = (2..12).map(id).collect();
        let file = spill_file();
        let mut buffer = QuadBuffer::new();
        for quad in &quads {
            buffer.push(quad.map(term), &file).unwrap();
        }
        let (blocks, count) = buffer.take(&file).unwrap();
        prop_assert_eq!(count, quads.len() as u64);
        let (mut scratch, mut bytes, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks {
            file.read(block, &mut scratch, &mut bytes).unwrap();
            for_each_quad(&bytes, &ids, |quad| {
                found.push(quad);
                Ok(())
            })
            .unwrap();
        }
        let expected: Vec<_> = quads.iter().map(|quad| quad.map(id)).collect();
        prop_assert!(found == expected);
    }

    #[test]
    fn runs_merge_to_a_sorted_set(
        keys in prop::collection::vec(1_u64..3_000, 0..9_000),
        capacity in 1_usize..4_000,
        builders in 1_usize..4,
    ) {
        let file = spill_file();
        let mut all: Vec<RunBuilder<u128>> =
            (0..builders).map(|_| RunBuilder::new(&file, capacity)).collect();
        let negate = |from: &[u128], to: &mut Vec<u128>| {
            to.extend(from.iter().rev().map(|key| !key));
        };
        let spread = |key: u64| u128::from(key) << 60;
        for (number, &key) in keys.iter().enumerate() {
            all[number % builders].push(spread(key), negate).unwrap();
        }
        let (mut runs, mut derived) = (Vec::new(), Vec::new());
        for builder in all {
            let (added, added_derived) = builder.finish(negate);
            runs.extend(added);
            derived.extend(added_derived);
        }
        let expected: BTreeSet<u128> = keys.iter().map(|&key| spread(key)).collect();
        let read = |runs| {
            let mut merged = MergedRuns::new(runs, &mut || Ok(())).unwrap();
            let mut found = Vec::new();
            loop {
                let before = found.len();
                merged.read(700, &mut found).unwrap();
                if found.len() == before {
                    return found;
                }
            }
        };
        prop_assert!(read(runs).iter().eq(expected.iter()));
        prop_assert!(read(derived).into_iter().rev().map(|key| !key).eq(expected));
    }
}

/// Many more runs than are merged at once, and one more; who is asked whether to go on may end it.
#[test]
fn runs_become_fewer_before_they_are_merged() {
    let runs = |count: u64| {
        let mut builder = RunBuilder::<u128>::new(&spill_file(), 1);
        for key in (0..count).rev() {
            builder.push(u128::from(key), |_, _| {}).unwrap();
        }
        builder.finish(|_, _| {}).0
    };
    for count in [64, 65, 66, 200, 5_000] {
        let (found, mut asked) = (runs(count), 0);
        assert_eq!(found.len() as u64, count);
        let go_on = &mut || {
            asked += 1;
            Ok(())
        };
        let mut merged = MergedRuns::new(found, go_on).unwrap();
        let mut keys = Vec::new();
        merged.read(10_000, &mut keys).unwrap();
        assert!(keys.into_iter().eq((0..count).map(u128::from)), "{count}");
        // Twice for each group: while it is read, and at its end. One too many merges two.
        match count {
            64 => assert_eq!(asked, 0),
            65 | 66 => assert_eq!(asked, 2),
            _ => assert!(asked > 2, "{asked}"),
        }
    }
    let mut left = 3;
    let ended = MergedRuns::new(runs(5_000), &mut || {
        left -= 1;
        if left > 0 {
            Ok(())
        } else {
            Err(crate::Error::Cancelled)
        }
    });
    assert!(matches!(ended.err(), Some(crate::Error::Cancelled)));
}

#[test]
fn damaged_blocks_are_reported() {
    let file = spill_file();
    let mut keys = RunBuilder::<u128>::new(&file, 1);
    keys.push(1, |_, _| {}).unwrap();
    keys.push(2, |_, _| {}).unwrap();
    let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
    let block = file.append(&[0x01, 9, 0, 0, 0], false).unwrap();
    file.read(block, &mut scratch, &mut bytes).unwrap();
    // The quad refers to local number 9 of a vocabulary with no terms.
    assert!(for_each_quad(&bytes, &[], |_| Ok(())).is_err());
    assert!(for_each_quad(&bytes[..3], &[], |_| Ok(())).is_err());
}
