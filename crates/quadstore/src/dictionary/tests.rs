//! Dictionaries as a whole: written, added to, read in all ways, damaged.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use stoa_storage::{Cache, ExtentId, Identity, MemoryBudget, PartRef, SimulatedDisk, Store};
use stoa_terms::{IdRange, Kind, TermId, inline, key};

use super::CheckedPartitions;
use super::block::{Block, BlockEncoder, BlockHeader};
use super::entries::{Entries, hash_key, shared_prefix, visible_bytes};
use super::format::LONG_KEY_BYTES;
use super::model::{Model, ModelEncoder};
use super::words::WordModel;
use super::{Dictionary, PartitionOptions, PartitionWriter, triple_key};
use crate::bulk::merge_runs::MergeRuns;
use crate::error::Result;
use crate::read::{IdRanges, StringRange, TermTexts};

type Key = Vec<u8>;

struct Fixture {
    disk: SimulatedDisk,
    store: Arc<Store>,
    dictionary: Dictionary,
    root: Vec<u8>,
}

impl Fixture {
    fn new() -> Self {
        let disk = SimulatedDisk::new(7);
        let cache = Cache::new(&MemoryBudget::new(64 << 20), 16 << 20);
        let store = Store::create(Arc::new(disk.clone()), cache, Identity::new(1)).unwrap();
        let store = Arc::new(store);
        let dictionary = Dictionary::open(&store, &[]).unwrap();
        Self {
            disk,
            store,
            dictionary,
            root: Vec::new(),
        }
    }

    /// Adds a run of ascending keys, all of them new.
    fn load(&mut self, kind: Kind, keys: &[Key], threads: usize) -> Vec<TermId> {
        let checkpoint = self.store.begin().unwrap();
        let options = PartitionOptions {
            kind,
            first_payload: self.dictionary.next_payload(kind),
            threads,
        };
        let (ids, partition) = std::thread::scope(|scope| {
            let mut writer = PartitionWriter::start(scope, &checkpoint, options).unwrap();
            let ids: Vec<TermId> = keys.iter().map(|key| writer.push(key).unwrap()).collect();
            (ids, writer.finish().unwrap())
        });
        let merge = MergeRuns {
            dictionary: &self.dictionary,
            checkpoint: &checkpoint,
            space: &self.store.temp_space(),
            memory_bytes: 1 << 20,
            threads,
            step: &mut |_| Ok(()),
        };
        let mut partitions = merge.run().unwrap();
        partitions.push(partition);
        self.root = self.dictionary.add(partitions, &checkpoint).unwrap();
        let commit = self.store.root().commit + 1;
        checkpoint.commit(commit, &self.root).unwrap();
        self.dictionary = self.dictionary.reopen(&self.root).unwrap();
        ids
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        self.dictionary
            .check(
                &mut CheckedPartitions::default(),
                &AtomicBool::new(false),
                &mut |problem| problems.push(problem),
            )
            .unwrap();
        problems
    }

    fn texts(&self, ids: &[TermId]) -> Vec<Key> {
        let mut texts = TermTexts::default();
        self.dictionary.texts(ids, &mut texts).unwrap();
        (0..texts.len())
            .map(|index| texts.get(index).to_vec())
            .collect()
    }

    fn lookup(&self, kind: Kind, keys: &[Key]) -> Result<Vec<Option<TermId>>> {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        self.dictionary.lookup_sorted(kind, &keys, &mut found)?;
        Ok(found)
    }

    /// All keys are found one by one and together, ids give them back in any order, absent keys are
    /// not found, and cursors and bounds agree with the sorted list.
    fn compare(&self, kind: Kind, expected: &[(Key, TermId)], absent: &[Key]) {
        let keys: Vec<Key> = expected.iter().map(|pair| pair.0.clone()).collect();
        let ids: Vec<Option<TermId>> = expected.iter().map(|pair| Some(pair.1)).collect();
        assert_eq!(self.lookup(kind, &keys).unwrap(), ids);
        for (key, id) in expected.iter().step_by(7) {
            assert_eq!(self.dictionary.lookup(kind, key).unwrap(), Some(*id));
        }
        let absent: BTreeSet<Key> = absent.iter().cloned().collect();
        let absent: Vec<Key> = absent
            .into_iter()
            .filter(|key| !keys.contains(key))
            .collect();
        let none = self.lookup(kind, &absent).unwrap();
        assert!(none.iter().all(Option::is_none));
        let mut shuffled: Vec<usize> = (0..keys.len()).chain(0..keys.len().min(5)).collect();
        shuffled.sort_by_key(|index| index.wrapping_mul(0x9E37_79B9) % 1009);
        if kind != Kind::Triple {
            let ids: Vec<TermId> = shuffled.iter().map(|index| expected[*index].1).collect();
            let texts: Vec<Key> = shuffled.iter().map(|index| keys[*index].clone()).collect();
            assert_eq!(self.texts(&ids), texts);
        }
        let mut cursor = self.dictionary.cursor(kind);
        for (key, id) in expected {
            let (found, found_id) = cursor.next().unwrap().unwrap();
            assert_eq!((found, found_id), (key.as_slice(), *id));
        }
        assert!(cursor.next().unwrap().is_none());
        for partition in self.dictionary.of_kind(kind) {
            for key in keys.iter().step_by(13).chain(&absent) {
                let below = expected
                    .iter()
                    .filter(|pair| partition.offset(pair.1.payload()).is_some() && pair.0 < *key)
                    .count() as u64;
                let bound = partition.lower_bound(&self.dictionary.source, key).unwrap();
                assert_eq!(bound, below);
            }
        }
    }
}

/// Keys of many shapes: empty, short, long, with common heads, with NUL bytes.
fn keys() -> impl Strategy<Value = BTreeSet<Key>> {
    let word = prop::sample::select(vec![
        &b"alpha"[..],
        b"beta",
        b" ",
        b"  ",
        b"\0",
        b"\0Len",
        b"http://example.org/",
        b"\xc3\xa4",
        b"9",
        b"supercalifragilisticexpialidocious",
        b"a word that is much longer than thirty-two bytes",
    ]);
    let text = prop::collection::vec(word, 0..12).prop_map(|words| words.concat());
    let long = (0_usize..4, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(head, tail)| {
        let mut key = b"shared head ".repeat(LONG_KEY_BYTES / 12 + head);
        key.extend_from_slice(&tail);
        key
    });
    let random = prop::collection::vec(any::<u8>(), 0..30);
    let key = prop_oneof![4 => text, 1 => long, 3 => random];
    prop::collection::btree_set(key, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_keys_come_back(all in keys(), runs in 1_usize..4, absent in keys(), threads in 0_usize..3) {
        let mut fixture = Fixture::new();
        let mut expected = Vec::new();
        for run in 0..runs {
            let keys: Vec<Key> = all.iter().skip(run).step_by(runs).cloned().collect();
            if keys.is_empty() {
                continue;
            }
            let ids = fixture.load(Kind::Iri, &keys, threads);
            expected.extend(keys.into_iter().zip(ids));
        }
        expected.sort();
        let absent: Vec<Key> = absent.into_iter().collect();
        fixture.compare(Kind::Iri, &expected, &absent);
    }
}

/// Text of `words` words that differ from those of other numbers.
fn text(number: u64, words: u64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::new();
    for index in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&format!("word{}", state % 5000));
    }
    text
}

fn literal_keys(count: u64) -> Vec<Key> {
    let mut keys = BTreeSet::new();
    for number in 0..count {
        let words = if number % 10 == 0 {
            150 + number % 100
        } else {
            2 + number % 9
        };
        let literal = oxrdf::Literal::new_simple_literal(text(number, words));
        let mut key = Vec::new();
        assert_eq!(key::literal_key(literal.as_ref(), &mut key), Kind::Literal);
        keys.insert(key);
    }
    keys.into_iter().collect()
}

#[test]
fn many_literals_and_long_texts() {
    let keys = literal_keys(30_000);
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Literal, &keys, 2);
    let expected: Vec<_> = keys.iter().cloned().zip(ids).collect();
    let absent = [
        b"".to_vec(),
        b"word1".to_vec(),
        text(1_000_000, 300).into_bytes(),
    ];
    fixture.compare(Kind::Literal, &expected, &absent);
    assert_eq!(fixture.problems(), Vec::<String>::new());
    let partition = &fixture.dictionary.partitions[0].descriptor;
    assert!(partition.texts.is_some_and(|texts| texts.entries > 2_000));
    assert!(partition.stored_bytes() < partition.key_bytes / 3);
    let reopened = Dictionary::open(&fixture.store, &fixture.root).unwrap();
    assert_eq!(
        reopened.lookup(Kind::Literal, &keys[17]).unwrap(),
        Some(expected[17].1)
    );
}

/// Blocks are decoded as far as a key is wanted; what is asked for behind that, or by key, is found all the same.
#[test]
fn blocks_that_were_decoded_in_part_serve_what_is_asked_next() {
    let keys = literal_keys(20_000);
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Literal, &keys, 2);
    let mut state = 1_u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (state >> 33) as usize % end
    };
    for round in 0..200 {
        // Some neighbours, so that one block is asked several times, and further on.
        let from = below(keys.len() - 64);
        for _ in 0..4 {
            let count = 1 + below(3);
            let mut wanted: Vec<usize> = (0..count).map(|_| from + below(64)).collect();
            let some: Vec<TermId> = wanted.iter().map(|index| ids[*index]).collect();
            let texts: Vec<Key> = wanted.iter().map(|index| keys[*index].clone()).collect();
            assert_eq!(fixture.texts(&some), texts);
            if round % 3 == 0 {
                wanted.sort_unstable();
                let (keys, ids): (Vec<Key>, Vec<_>) = wanted
                    .iter()
                    .map(|index| (keys[*index].clone(), Some(ids[*index])))
                    .unzip();
                assert_eq!(fixture.lookup(Kind::Literal, &keys).unwrap(), ids);
            }
        }
    }
}

#[test]
fn keys_that_differ_behind_a_kilobyte() {
    // Separators are cut, and in-block searches meet nothing but long keys with one visible part.
    let head = "x".repeat(3 * LONG_KEY_BYTES);
    let keys: Vec<Key> = (0..3000)
        .map(|n| format!("{head}{n:06}").into_bytes())
        .collect();
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Iri, &keys, 1);
    let expected: Vec<_> = keys.into_iter().zip(ids).collect();
    let absent = [
        head.clone().into_bytes(),
        format!("{head}001234x").into_bytes(),
        format!("{head}~").into_bytes(),
        b"x".to_vec(),
        b"y".to_vec(),
    ];
    let part = &expected[990..1060];
    for (key, id) in part {
        assert_eq!(
            fixture.dictionary.lookup(Kind::Iri, key).unwrap(),
            Some(*id)
        );
    }
    let partition = &fixture.dictionary.partitions[0];
    for (key, bound) in absent.iter().zip([0, 1235, 3000, 0, 3000]) {
        assert_eq!(fixture.dictionary.lookup(Kind::Iri, key).unwrap(), None);
        assert_eq!(
            partition
                .lower_bound(&fixture.dictionary.source, key)
                .unwrap(),
            bound
        );
    }
}

#[test]
fn nothing_is_an_empty_dictionary() {
    let fixture = Fixture::new();
    assert!(fixture.dictionary.is_empty(Kind::Iri));
    assert_eq!(
        fixture.dictionary.lookup(Kind::Iri, b"http://a").unwrap(),
        None
    );
    assert!(
        fixture
            .dictionary
            .cursor(Kind::Iri)
            .next()
            .unwrap()
            .is_none()
    );
    assert!(fixture.dictionary.term(TermId::new(Kind::Iri, 0)).is_err());
    assert_eq!(fixture.problems(), Vec::<String>::new());
    let checkpoint = fixture.store.begin().unwrap();
    assert_eq!(
        fixture.dictionary.add(Vec::new(), &checkpoint).unwrap(),
        Vec::<u8>::new()
    );
}

#[test]
fn terms_of_all_kinds() {
    use oxrdf::{BlankNode, Literal, NamedNode, Term, Triple};
    let mut fixture = Fixture::new();
    let iri = |text: &str| NamedNode::new_unchecked(text);
    let iris = fixture.load(Kind::Iri, &[b"http://a".to_vec(), b"http://b".to_vec()], 0);
    let literals = [
        Literal::new_simple_literal("a string that is not short"),
        Literal::new_language_tagged_literal_unchecked("chat", "fr"),
        Literal::new_typed_literal("12345678901234567890123", oxrdf::vocab::xsd::INTEGER),
    ];
    let mut ids = Vec::new();
    for kind in [Kind::NumericLiteral, Kind::Literal] {
        let mut keys = Vec::new();
        for literal in &literals {
            let mut key = Vec::new();
            if key::literal_key(literal.as_ref(), &mut key) == kind {
                keys.push(key);
            }
        }
        keys.sort();
        ids.extend(fixture.load(kind, &keys, 0));
    }
    let blank = TermId::new(Kind::BlankNode, 12);
    let inner = [iris[0], iris[1], blank];
    let inner_id = fixture.load(Kind::Triple, &[triple_key(inner).to_vec()], 0)[0];
    let outer = [iris[0], iris[1], inner_id];
    let outer_id = fixture.load(Kind::Triple, &[triple_key(outer).to_vec()], 0)[0];
    assert_eq!(fixture.dictionary.triple(inner_id).unwrap(), inner);
    assert_eq!(
        fixture.dictionary.triples(&[outer_id, inner_id]).unwrap(),
        [outer, inner]
    );
    let term = fixture.dictionary.term(outer_id).unwrap();
    let expected = |object: Term| {
        Term::Triple(Box::new(Triple::new(
            iri("http://a"),
            iri("http://b"),
            object,
        )))
    };
    assert_eq!(
        term,
        expected(expected(BlankNode::new_unchecked("b12").into()))
    );
    // A label is no identity, so a triple term with a blank node is not found by its text.
    assert_eq!(fixture.dictionary.term_id(term.as_ref()).unwrap(), None);
    let short = Literal::new_simple_literal("short");
    let mut terms: Vec<Term> = literals.iter().cloned().map(Term::from).collect();
    terms.extend([
        iri("http://b").into(),
        iri("http://c").into(),
        short.clone().into(),
        expected(short.clone().into()),
    ]);
    let found = fixture.dictionary.term_ids(&terms).unwrap();
    for (term, id) in terms.iter().zip(&found) {
        assert_eq!(fixture.dictionary.term_id(term.as_ref()).unwrap(), *id);
        if let Some(id) = id {
            assert_eq!(fixture.dictionary.term(*id).unwrap(), *term);
        }
    }
    assert_eq!(found.iter().filter(|id| id.is_none()).count(), 2);
    assert_eq!(found[5], inline::encode_literal(short.as_ref()));
    assert_eq!(fixture.problems(), Vec::<String>::new());
    let info = fixture.dictionary.info();
    assert_eq!(info.iter().map(|entry| entry.1).sum::<u64>(), 7);
}

const STRINGS: [&str; 15] = [
    "",
    "a",
    "ab",
    "abc",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "abd",
    "b\u{1}c",
    "b\u{0}",
    "abcdefg\u{0}",
    "z",
    "\u{10FFFF}\u{10FFFF}",
    "abcdefgz",
    "abcdefg longer",
];

#[test]
fn string_ranges_hold_the_strings_of_a_range() {
    let strings = STRINGS;
    let mut fixture = Fixture::new();
    let mut keys = Vec::new();
    let mut inline_ids = Vec::new();
    for string in strings {
        let literal = oxrdf::Literal::new_simple_literal(string);
        if let Some(id) = inline::encode_literal(literal.as_ref()) {
            inline_ids.push((string, id));
        } else {
            let mut key = Vec::new();
            key::literal_key(literal.as_ref(), &mut key);
            keys.push((key, string));
        }
    }
    keys.sort();
    let mut ids = inline_ids;
    // Two runs, interleaved.
    for run in 0..2 {
        let part: Vec<_> = keys.iter().skip(run).step_by(2).cloned().collect();
        let part_keys: Vec<Key> = part.iter().map(|pair| pair.0.clone()).collect();
        let loaded = fixture.load(Kind::Literal, &part_keys, 0);
        ids.extend(part.iter().map(|pair| pair.1).zip(loaded));
    }
    let bounds = |text: &str| {
        [
            Bound::Unbounded,
            Bound::Included(text.to_owned()),
            Bound::Excluded(text.to_owned()),
        ]
    };
    let compare = |range: &StringRange, is_inside: &dyn Fn(&str) -> bool| {
        let IdRanges { ranges, is_exact } = fixture.dictionary.string_ranges(range).unwrap();
        assert!(is_exact);
        assert!(ranges.windows(2).all(|pair| pair[0].last < pair[1].first));
        for (text, id) in &ids {
            let found = ranges.iter().any(|range: &IdRange| range.contains(*id));
            assert_eq!(found, is_inside(text), "{text:?} in {range:?}");
        }
    };
    for lower in strings {
        compare(&StringRange::Prefix(lower.to_owned()), &|text| {
            text.starts_with(lower)
        });
        for upper in strings {
            for lower in bounds(lower) {
                for upper in bounds(upper) {
                    let range = StringRange::Between {
                        lower: lower.clone(),
                        upper: upper.clone(),
                    };
                    let both = (lower.as_ref(), upper.as_ref());
                    compare(&range, &|text| {
                        std::ops::RangeBounds::<String>::contains(&both, &text.to_owned())
                    });
                }
            }
        }
    }
}

#[test]
fn iri_prefixes_are_ranges() {
    let keys: Vec<Key> = [
        "http://a/1",
        "http://a/2",
        "http://b/1",
        "http://b/2",
        "http://c",
    ]
    .iter()
    .map(|iri| iri.as_bytes().to_vec())
    .collect();
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Iri, &keys, 0);
    let range = |first: usize, last: usize| IdRange {
        first: ids[first],
        last: ids[last],
    };
    let ranges = |prefix: &str| fixture.dictionary.iri_ranges(prefix).unwrap().ranges;
    assert_eq!(ranges("http://b/"), [range(2, 3)]);
    assert_eq!(ranges("http://"), [range(0, 4)]);
    assert_eq!(ranges(""), [range(0, 4)]);
    assert_eq!(ranges("http://d"), []);
}

/// Many loads: ids stay, terms are found both ways, partitions are few, freed space is used again.
#[test]
fn partitions_stay_few() {
    let mut fixture = Fixture::new();
    let mut expected: Vec<(Key, TermId)> = Vec::new();
    let mut most = 0;
    for load in 0..60_u32 {
        let keys: BTreeSet<Key> = (0..30 + load % 7 * 100)
            .map(|number| {
                let mixed = (number * 61 + load).wrapping_mul(0x9E37_79B9);
                let long = if number % 50 == 3 { 1500 } else { 0 };
                format!("http://example.org/{mixed:08x}/{load}/{}", "x".repeat(long)).into_bytes()
            })
            .collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        let ids = fixture.load(Kind::Iri, &keys, (load % 3) as usize);
        expected.extend(keys.into_iter().zip(ids));
        most = most.max(fixture.dictionary.of_kind(Kind::Iri).len());
        if load % 12 == 11 {
            expected.sort();
            fixture.compare(Kind::Iri, &expected, &[b"http://example.org/".to_vec()]);
            assert_eq!(fixture.problems(), Vec::<String>::new());
        }
    }
    assert!(most <= 12, "{most} partitions");
    assert_eq!(
        fixture.dictionary.next_payload(Kind::Iri),
        expected.len() as u64
    );
    let permuted = fixture.dictionary.of_kind(Kind::Iri).iter();
    assert!(permuted.clone().any(|at| at.descriptor.permuted.is_some()));
    let mut parts = Vec::new();
    fixture
        .dictionary
        .visit_parts(&mut |part| {
            parts.push(part);
            Ok(())
        })
        .unwrap();
    let mut problems = Vec::new();
    let cancel = AtomicBool::new(false);
    fixture
        .store
        .check(
            parts,
            &mut |problem| problems.push(problem.to_string()),
            &cancel,
        )
        .unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

/// Terms that take the place on disk of others, which they only differ from in what the model of their
/// partition tells: blocks are the same bytes at the same place, and mean other terms.
#[test]
fn terms_in_the_place_of_others_read_as_written() {
    let fixture = Fixture::new();
    let mut dictionary = Dictionary::open(&fixture.store, &[]).unwrap();
    let mut earlier: Vec<PartRef> = Vec::new();
    let mut same_bytes = 0;
    for generation in 0..8_u64 {
        let mut keys: Vec<Key> = (0..20_000_u64)
            .map(|place| format!("urn:order:{}-{place}", 1_795_311_575_000 + generation * 7))
            .map(String::into_bytes)
            .collect();
        keys.sort();
        let checkpoint = fixture.store.begin().unwrap();
        let options = PartitionOptions {
            kind: Kind::Iri,
            first_payload: 0,
            threads: 0,
        };
        let partition = std::thread::scope(|scope| {
            let mut writer = PartitionWriter::start(scope, &checkpoint, options).unwrap();
            for key in &keys {
                writer.push(key).unwrap();
            }
            writer.finish().unwrap()
        });
        let nothing = dictionary.reopen(&[]).unwrap();
        let root = nothing.add(vec![partition], &checkpoint).unwrap();
        let old = dictionary.of_kind(Kind::Iri);
        dictionary.free(old, &checkpoint).unwrap();
        checkpoint.commit(generation + 1, &root).unwrap();
        dictionary = dictionary.reopen(&root).unwrap();
        let mut parts = Vec::new();
        let partition = &dictionary.of_kind(Kind::Iri)[0];
        let index = &partition.descriptor.index;
        let mut take = |part, _| {
            parts.push(part);
            Ok(())
        };
        index.visit(&fixture.store, &mut take).unwrap();
        same_bytes += parts.iter().filter(|part| earlier.contains(part)).count();
        earlier.extend(parts);
        let ids: Vec<TermId> = (0..20_000)
            .map(|place| TermId::new(Kind::Iri, place))
            .collect();
        let mut texts = TermTexts::default();
        dictionary.texts(&ids, &mut texts).unwrap();
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(texts.get(place), key.as_slice(), "generation {generation}");
        }
    }
    assert!(same_bytes > 0, "the test does not test what it says");
}

#[test]
fn the_same_term_in_two_runs_is_reported() {
    let mut fixture = Fixture::new();
    fixture.load(Kind::Iri, &[b"http://a".to_vec(), b"http://b".to_vec()], 0);
    fixture.load(Kind::Iri, &[b"http://b".to_vec()], 0);
    let problems = fixture.problems();
    assert!(
        problems.iter().any(|problem| problem.contains("second id")),
        "{problems:?}"
    );
}

#[test]
fn keys_out_of_order_are_refused() {
    let fixture = Fixture::new();
    let checkpoint = fixture.store.begin().unwrap();
    std::thread::scope(|scope| {
        let options = PartitionOptions {
            kind: Kind::Iri,
            first_payload: 0,
            threads: 1,
        };
        let mut writer = PartitionWriter::start(scope, &checkpoint, options).unwrap();
        writer.push(b"b").unwrap();
        assert!(writer.push(b"b").is_err());
        assert!(writer.push(b"a").is_err());
    });
}

#[test]
fn a_damaged_byte_is_reported() {
    let keys = literal_keys(3_000);
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Literal, &keys, 0);
    let mut parts = Vec::new();
    fixture
        .dictionary
        .visit_parts(&mut |part| {
            parts.push(part);
            Ok(())
        })
        .unwrap();
    for part in parts.iter().step_by(parts.len() / 12 + 1) {
        let offset = part.byte_offset() + u64::from(part.length) / 2;
        fixture.disk.flip(&part.file_name(), offset, 0x10);
        fixture.store.cache().clear();
        let damaged = Dictionary::open(&fixture.store, &fixture.root);
        let mut problems = Vec::new();
        match &damaged {
            Ok(dictionary) => {
                let cancel = AtomicBool::new(false);
                dictionary
                    .check(&mut CheckedPartitions::default(), &cancel, &mut |problem| {
                        problems.push(problem)
                    })
                    .unwrap();
                let mut texts = TermTexts::default();
                // Any answer is an error or right; here all ids are asked for, so it is an error.
                assert!(
                    *part == parts[0]
                        || dictionary.texts(&ids, &mut texts).is_err()
                        || fixture.dictionary.list == *part
                );
            }
            Err(error) => problems.push(error.to_string()),
        }
        assert!(!problems.is_empty(), "{part:?}");
        fixture.disk.flip(&part.file_name(), offset, 0x10);
    }
    fixture.store.cache().clear();
    assert_eq!(fixture.problems(), Vec::<String>::new());
}

#[test]
fn an_index_of_many_pages() {
    use super::index::{Child, IndexEntry, IndexWriter, separator};
    let fixture = Fixture::new();
    let checkpoint = fixture.store.begin().unwrap();
    let mut writer = IndexWriter::new(&checkpoint);
    let key = |block: u64| format!("http://example.org/{:07}/{}", block * 3, "x".repeat(40));
    let blocks = 150_000_u64;
    for block in 0..blocks {
        let last = block.checked_sub(1).map_or(String::new(), &key);
        // Some separators are long, so that pages fill differently.
        let (mut separator, is_cut) = separator(last.as_bytes(), key(block).as_bytes());
        if block % 100 == 0 {
            separator = key(block).into_bytes().into();
        }
        let first = block * 10;
        let part = PartRef::of(ExtentId::new(0, block + 1), 0, &block.to_le_bytes());
        let child = Child { first, part };
        writer
            .push(IndexEntry {
                child,
                separator,
                is_cut,
            })
            .unwrap();
    }
    let (index, bytes) = writer.finish(blocks * 10).unwrap();
    let index = index.unwrap();
    assert!(index.height >= 3 && bytes > blocks * 32);
    let ordinals: Vec<u64> = (0..blocks * 10).step_by(777).collect();
    let located = index.locate_ordinals(&fixture.store, &ordinals).unwrap();
    let mut seen = 0;
    for at in located {
        assert_eq!(at.queries.start, seen);
        for query in at.queries.clone() {
            assert_eq!(ordinals[query] / 10 * 10, at.block.first);
        }
        seen = at.queries.end;
    }
    assert_eq!(seen, ordinals.len());
    let keys: Vec<String> = (0..blocks)
        .step_by(131)
        .map(|block| key(block) + "y")
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let located = index
        .locate_keys(&fixture.store, &keys, |_, _| panic!("no separator is cut"))
        .unwrap();
    let found: Vec<u64> = located.iter().map(|at| at.block.first / 10).collect();
    assert_eq!(found, (0..blocks).step_by(131).collect::<Vec<_>>());
    let mut visited = 0;
    index
        .visit(&fixture.store, &mut |_, level| {
            visited += u64::from(level.is_none());
            Ok(())
        })
        .unwrap();
    assert_eq!(visited, blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Bytes that passed their checksum and yet are wrong give an error or other keys, no panic.
    #[test]
    fn damaged_blocks_do_not_panic(
        all in keys(),
        model_of in keys(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..=255), 1..4),
        words in any::<bool>(),
        wanted in 1_usize..40,
    ) {
        let entries = entries_of(&all);
        let sample = entries_of(&model_of);
        let scale = if words { 1 << 30 } else { 1 };
        let model = Model::train(&[&sample, &entries, &entries], scale, None);
        let model = Arc::new(model.unwrap());
        let stored = model.write();
        let encoder = ModelEncoder::new(Arc::clone(&model), 0);
        let mut encoder = BlockEncoder::new(&encoder);
        let mut bytes = Vec::new();
        encoder.encode(&entries, 3, &mut bytes);
        let read = Model::read(&stored).unwrap();
        let decode = |bytes: &[u8], model: &Model, wanted: usize| -> Option<Block> {
            let (header, body) = BlockHeader::read(bytes).ok()?;
            Block::decode(&header, body, Some(model), wanted).ok()
        };
        let whole = decode(&bytes, &read, usize::MAX).unwrap();
        prop_assert!(whole.entries == entries);
        let part = decode(&bytes, &read, wanted).unwrap();
        prop_assert!(part.reaches(wanted));
        for index in 0..part.entries.len() {
            let keys = [&part, &whole].map(|block| {
                let mut key = Vec::new();
                block.entries.visible_into(index, &mut key);
                (key, block.entries.long(index))
            });
            prop_assert_eq!(&keys[0], &keys[1]);
        }
        for (at, mask) in &flips {
            let mut damaged = bytes.clone();
            *at.get_mut(&mut damaged) ^= mask;
            for block in [wanted, usize::MAX].iter().filter_map(|n| decode(&damaged, &read, *n)) {
                let mut key = Vec::new();
                for index in 0..block.entries.len() {
                    key.clear();
                    block.entries.visible_into(index, &mut key);
                }
                let _ = block.entries.find(b"alpha", &mut Vec::new(), |_| Ok::<_, ()>(false));
            }
            let mut damaged = stored.clone();
            *at.get_mut(&mut damaged) ^= mask;
            if let Ok(model) = Model::read(&damaged) {
                drop(decode(&bytes, &model, wanted));
                drop(decode(&bytes, &model, usize::MAX));
            }
            // Behind the compression, too.
            if let Some(words) = &model.words {
                let mut damaged = Vec::new();
                words.write(&mut damaged);
                *at.get_mut(&mut damaged) ^= mask;
                if let Ok(words) = WordModel::read(&damaged) {
                    for wanted in [wanted, usize::MAX] {
                        let body = bytes.get(16..).unwrap_or(&[]);
                        drop(words.decode(body, (all.len(), wanted), 100));
                    }
                }
            }
        }
        for cut in 0..bytes.len().min(64) {
            drop(decode(&bytes[..cut], &read, wanted));
            drop(decode(&bytes[..cut], &read, usize::MAX));
        }
    }
}

fn entries_of(keys: &BTreeSet<Key>) -> Entries {
    let mut entries = Entries::default();
    let mut last: Vec<u8> = Vec::new();
    for key in keys {
        let (visible, hash) = if key.len() > LONG_KEY_BYTES {
            (&key[..visible_bytes(key)], Some(hash_key(key)))
        } else {
            (key.as_slice(), None)
        };
        let shared = shared_prefix(&last, visible);
        entries.push(shared, &visible[shared..], hash);
        last = visible.to_vec();
    }
    entries.restart().unwrap();
    entries
}

#[test]
fn a_partition_gets_a_new_model_when_its_keys_change() {
    // Sorted: numbers without structure first, then text in one alphabet, then in another.
    let mut keys = BTreeSet::new();
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..500_000 {
        keys.insert(format!("0{:016x}{:016x}", random(), random()).into_bytes());
    }
    for head in ["a", "b"] {
        for _ in 0..90_000 {
            let words = (0..40).map(|_| format!("{head}{:x}", random() % 3000));
            keys.insert(words.collect::<Vec<_>>().join(" ").into_bytes());
        }
    }
    let keys: Vec<Key> = keys.into_iter().collect();
    let mut fixture = Fixture::new();
    let ids = fixture.load(Kind::Iri, &keys, 2);
    let partition = &fixture.dictionary.partitions[0].descriptor;
    assert!(
        partition.models.len() >= 2,
        "{} models",
        partition.models.len()
    );
    let text_bytes: usize = keys.iter().filter(|key| key.len() > 40).map(Vec::len).sum();
    assert!(partition.stored_bytes() < 500_000 * 18 + text_bytes as u64 * 45 / 100);
    let wanted: Vec<TermId> = ids.iter().step_by(997).copied().collect();
    let expected: Vec<Key> = keys.iter().step_by(997).cloned().collect();
    assert_eq!(fixture.texts(&wanted), expected);
}

#[test]
#[ignore = "prints times: cargo test --release -p stoa-quadstore times -- --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn times_of_look_ups() {
    use std::time::Instant;
    let mut fixture = Fixture::new();
    let iris: Vec<Key> = (0..1_000_000)
        .map(|n| {
            format!(
                "http://example.org/dataFromVendor{:04}/Offer{n:07}",
                n / 2000
            )
            .into_bytes()
        })
        .collect();
    let literals = literal_keys(150_000);
    let mut bytes = 0;
    for (kind, keys) in [(Kind::Iri, &iris), (Kind::Literal, &literals)] {
        let start = Instant::now();
        fixture.load(kind, keys, 0);
        let size: usize = keys.iter().map(Vec::len).sum();
        let partition = fixture.dictionary.partitions.last().unwrap();
        let stored = partition.descriptor.stored_bytes();
        let seconds = start.elapsed().as_secs_f64();
        println!("{kind:?}: {size} bytes in {seconds:.2} s, stored {stored}");
        bytes += size;
    }
    let start = Instant::now();
    let dictionary = Dictionary::open(&fixture.store, &fixture.root).unwrap();
    println!("open: {:?}, {bytes} bytes of keys", start.elapsed());
    for (kind, keys) in [(Kind::Iri, &iris), (Kind::Literal, &literals)] {
        let count = keys.len() as u64;
        let ids: Vec<TermId> = (0..20_000_u64)
            .map(|n| TermId::new(kind, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count))
            .collect();
        let mut texts = TermTexts::default();
        for batch in [1, 16, 1024] {
            for pass in ["first", "again"] {
                // Few enough for the cache of decoded blocks.
                let ids = &ids[..if batch == 1024 { 20_000 } else { 1_000 }];
                let start = Instant::now();
                for ids in ids.chunks(batch) {
                    texts.clear();
                    dictionary.texts(ids, &mut texts).unwrap();
                }
                let each = start.elapsed() / u32::try_from(ids.len()).unwrap();
                println!("{kind:?} id -> key, batches of {batch}, {pass}: {each:?} each");
            }
        }
        for batch in [1, 1024, 16_384] {
            let keys: Vec<&[u8]> = keys.iter().step_by(7).map(Vec::as_slice).collect();
            let keys = &keys[..if batch == 1 { 2_000 } else { keys.len() }];
            let start = Instant::now();
            let mut found = Vec::new();
            for keys in keys.chunks(batch) {
                dictionary.lookup_sorted(kind, keys, &mut found).unwrap();
            }
            let each = start.elapsed() / u32::try_from(keys.len()).unwrap();
            println!("{kind:?} key -> id, ascending, batches of {batch}: {each:?} each");
        }
        let start = Instant::now();
        let mut cursor = dictionary.cursor(kind);
        let mut keys = 0;
        while cursor.next().unwrap().is_some() {
            keys += 1;
        }
        println!("{kind:?} cursor: {:?} a key", start.elapsed() / keys);
    }
}
