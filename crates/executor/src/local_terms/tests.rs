//! Computed terms in memory and on disk are the same terms.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use oxrdf::Literal;
use proptest::prelude::*;
use stoa_storage::{Disk as _, Faults, SimulatedDisk};

use super::records::{Records, record_bytes};
use super::*;
use crate::QuerySettings;
use crate::admission::{Admission, Ticket};
use crate::operator::tests::{snapshot_on, spilling_context, spilling_on};
use crate::spill::Spill;

fn text(number: usize, bytes: usize) -> Term {
    Literal::new_simple_literal(format!("{number} {}", "x".repeat(bytes))).into()
}

fn ids(context: &QueryContext, terms: &[Term]) -> Vec<TermId> {
    try_ids(context, terms).unwrap()
}

fn try_ids(context: &QueryContext, terms: &[Term]) -> Result<Vec<TermId>> {
    context.resolve(terms.iter().cloned().map(Computed::Term).collect())
}

fn texts(numbers: std::ops::Range<usize>) -> Vec<Term> {
    numbers.map(|number| text(number, 30)).collect()
}

/// One that holds what the budget has room for, and 64 KB at least.
fn context_within(limit_bytes: u64) -> QueryContext {
    let of_others = spilling_context(1024, usize::MAX);
    let mut settings: QuerySettings = of_others.settings().clone();
    settings.memory = stoa_storage::MemoryBudget::new(limit_bytes);
    settings.spill = settings.spill.map(|spill| Spill {
        after_bytes: u64::MAX,
        ..spill
    });
    QueryContext::new(of_others.snapshot().clone(), settings)
}

/// What went to disk: records, then runs of the index with their levels.
fn on_disk(context: &QueryContext) -> (u64, Vec<u32>) {
    let table = context.local_terms().read();
    let bytes = table.records.file().map_or(0, |file| file.len());
    (bytes, table.index.levels())
}

#[test]
fn equal_terms_have_equal_ids_wherever_they_are() {
    for (batch_rows, rows_min) in [(3, 1), (1024, 1), (1024, 100)] {
        let context = spilling_context(batch_rows, rows_min);
        let mut known = HashMap::<Term, TermId>::new();
        let mut seed = 1_usize;
        for round in 0..500 {
            let terms: Vec<Term> = (0..20)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (seed >> 33) % 5_000;
                    match number % 5 {
                        0 => NamedNode::new_unchecked(format!("http://a/{number}")).into(),
                        // Some longer than what is read at once.
                        1 if number % 500 == 1 => text(number, 70_000),
                        1 if number % 25 == 1 => text(number, 600),
                        _ => text(number, 20),
                    }
                })
                .collect();
            let found = ids(&context, &terms);
            for (term, id) in terms.iter().zip(&found) {
                assert_eq!(id.kind(), Kind::Local);
                assert_eq!(
                    known.entry(term.clone()).or_insert(*id),
                    id,
                    "round {round}"
                );
            }
        }
        let (bytes, levels) = on_disk(&context);
        assert!(bytes > 0, "no record is on disk");
        for level in levels.iter() {
            let same = levels.iter().filter(|other| *other == level).count();
            assert!(same < 3 * 8, "too many runs: {levels:?}");
        }
        assert!(levels.is_sorted_by(|left, right| left >= right));
        assert!(
            rows_min > 1 || levels.iter().any(|level| *level > 1),
            "nothing was merged"
        );
        // Each has an id of its own, by which it is found.
        let mut by_id: Vec<(TermId, Term)> =
            known.into_iter().map(|(term, id)| (id, term)).collect();
        by_id.sort_unstable_by_key(|(id, _)| id.payload().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let all: Vec<TermId> = by_id.iter().map(|(id, _)| *id).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let mut texts = TermTexts::default();
        context.texts(&all, &mut texts).unwrap();
        for (row, (id, term)) in by_id.iter().enumerate() {
            let term_kind = match term {
                Term::NamedNode(_) => Kind::Iri,
                _ => Kind::Literal,
            };
            assert_eq!(context.kind(*id), term_kind);
            assert_eq!(context.term(*id).unwrap().as_ref(), Some(term));
            assert_eq!(key::decode_term(term_kind, texts.get(row)).unwrap(), *term);
        }
        let meters = Arc::clone(context.meters());
        assert!(meters.spilled_bytes() >= bytes);
        let space = context.snapshot().temp_space();
        assert!(space.bytes() >= bytes);
        drop(context);
        assert_eq!(space.bytes(), 0);
        assert_eq!(meters.memory_bytes(), 0);
    }
}

#[test]
fn triple_terms_on_disk_have_their_parts() {
    let context = spilling_context(3, 1);
    let parts = ids(
        &context,
        &(0..60).map(|number| text(number, 30)).collect::<Vec<_>>(),
    );
    let of = |number: usize| [parts[number], parts[number / 2], parts[59 - number]];
    let triples: Vec<Computed> = (0..60).map(|number| Computed::Triple(of(number))).collect();
    let found = context.resolve(triples.clone()).unwrap();
    assert_eq!(context.resolve(triples).unwrap(), found);
    for (number, id) in found.iter().enumerate() {
        assert_eq!(context.kind(*id), Kind::Triple);
        assert_eq!(context.triple(*id).unwrap(), of(number));
    }
    assert!(on_disk(&context).0 > 0);
}

#[test]
fn keys_that_are_held_stay_in_memory() {
    let context = spilling_context(1024, 50);
    let terms: Vec<Term> = (0..40).map(|number| text(number, 30)).collect();
    let first = ids(&context, &terms);
    let keys = context.held_keys(first.iter().copied()).unwrap();
    ids(
        &context,
        &(100..400)
            .map(|number| text(number, 30))
            .collect::<Vec<_>>(),
    );
    ids(
        &context,
        &(400..800)
            .map(|number| text(number, 30))
            .collect::<Vec<_>>(),
    );
    assert!(on_disk(&context).0 > 0);
    for (id, term) in first.iter().zip(&terms) {
        assert_eq!(
            key::decode_term(Kind::Literal, keys.get(*id)).unwrap(),
            *term
        );
    }
    // Once nobody holds them they go to disk with others.
    drop(keys);
    ids(
        &context,
        &(1_000..2_000)
            .map(|number| text(number, 30))
            .collect::<Vec<_>>(),
    );
    assert!(context.held_keys(first.iter().copied()).is_none());
    assert_eq!(ids(&context, &terms), first);
}

#[test]
fn threads_share_them() {
    let context = Arc::new(spilling_context(1024, 5));
    let all: Vec<Vec<TermId>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let context = context.of_helper();
                scope.spawn(move || {
                    let mut found = vec![TermId::UNBOUND; 3_000];
                    for start in 0..300_usize {
                        // Each begins elsewhere.
                        let start = (start + thread * 75) % 300 * 10;
                        let terms: Vec<Term> =
                            (start..start + 10).map(|number| text(number, 30)).collect();
                        found[start..start + 10].copy_from_slice(&ids(&context, &terms));
                    }
                    found
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(all.iter().all(|found| *found == all[0]));
    assert!(on_disk(&context).0 > 0);
    for (number, id) in all[0].iter().enumerate() {
        assert_eq!(context.term(*id).unwrap(), Some(text(number, 30)));
    }
}

#[test]
fn what_a_term_on_disk_takes_in_memory_is_little() {
    let context = spilling_context(1024, 1024);
    let count = 200_000;
    for start in (0..count).step_by(1_000) {
        ids(
            &context,
            &(start..start + 1_000)
                .map(|number| text(number, 30))
                .collect::<Vec<_>>(),
        );
    }
    let table = context.local_terms().read();
    let kept = table.index.runs_bytes() + table.records.places_bytes();
    assert!(kept < 3 * count, "{kept} bytes stay in memory");
    drop(table);
    let held = context.meters().memory_bytes();
    assert!(
        held < 3 * count as u64 + (1 << 20),
        "{held} bytes are reserved"
    );
}

#[test]
fn a_full_disk_is_told() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let snapshot = snapshot_on(Arc::<SimulatedDisk>::clone(&disk));
    let used = u64::MAX - disk.free_bytes().unwrap();
    disk.set_faults(Faults {
        capacity_bytes: Some(used + 20_000),
        ..Faults::default()
    });
    let context = spilling_on(snapshot.clone(), 1024, 1);
    let result = (0..1_000).try_for_each(|number| {
        let computed = vec![Computed::Term(text(number, 100))];
        context.resolve(computed).map(|_| ())
    });
    use stoa_storage::Error::DiskFull;
    let is_full = |error: &Error| {
        matches!(
            error,
            Error::Quadstore(stoa_quadstore::Error::Storage(DiskFull { .. }))
                | Error::DiskExceeded { .. }
        )
    };
    assert!(result.is_err_and(|error| is_full(&error)));
    drop(context);
    assert_eq!(snapshot.temp_space().bytes(), 0);
}

#[test]
fn a_table_that_cannot_grow_goes_to_disk_without_records() {
    // With some of these the table doubles, at 14,336 ids, soon after records went to disk, and does not go with them.
    let mut runs = 0;
    for limit_bytes in (700 << 10..1_100 << 10).step_by(16 << 10) {
        let context = context_within(limit_bytes);
        for start in (0..16_000).step_by(100) {
            let terms: Vec<Term> = (start..start + 100).map(|number| text(number, 8)).collect();
            let found = try_ids(&context, &terms);
            assert!(found.is_ok(), "{found:?} of {limit_bytes} bytes at {start}");
        }
        runs += on_disk(&context).1.len();
    }
    assert!(runs > 0);
}

#[test]
fn runs_are_merged_while_others_wait_for_memory() {
    let context = context_within(8 << 20);
    let mut settings = context.settings().clone();
    let admission = Arc::new(Admission::new(&settings.memory, u64::MAX));
    settings.admission = Some(Arc::clone(&admission));
    settings.spill = settings.spill.map(|spill| Spill {
        after_bytes: 0,
        rows_min: 1,
        ..spill
    });
    let context = QueryContext::new(context.snapshot().clone(), settings);
    let _waiting = Ticket::new(&admission, 8 << 20, &Arc::default()).unwrap();
    let mut held = context.memory("half of all");
    held.require((4 << 20) + 1).unwrap();
    for start in (0..4_000).step_by(10) {
        ids(&context, &texts(start..start + 10));
    }
    let (_, levels) = on_disk(&context);
    for level in &levels {
        let same = levels.iter().filter(|other| *other == level).count();
        assert!(same <= 3 * 8, "too many runs: {levels:?}");
    }
    assert!(levels.iter().any(|level| *level > 0));
}

#[test]
fn a_merge_that_failed_is_not_gone_on_with() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let snapshot = snapshot_on(Arc::<SimulatedDisk>::clone(&disk));
    let context = spilling_on(snapshot, 3, 1);
    let local = context.local_terms();
    let merging = || local.merging.lock().unwrap().len();
    let mut known = Vec::new();
    while merging() == 0 {
        let count = known.len();
        known.extend(ids(&context, &texts(count..count + 10)));
    }
    let used = u64::MAX - disk.free_bytes().unwrap();
    disk.set_faults(Faults {
        capacity_bytes: Some(used),
        ..Faults::default()
    });
    assert!(local.merge(&context, 1_000_000).is_err());
    assert_eq!(merging(), 0);
    disk.set_faults(Faults::default());
    local.merge(&context, 1_000_000).unwrap();
    assert!(on_disk(&context).1.contains(&1));
    assert_eq!(ids(&context, &texts(0..known.len())), known);
}

#[test]
fn a_cancelled_query_reads_no_more_from_disk() {
    let context = spilling_context(1024, 1);
    let all = texts(0..1_000);
    let found: Vec<TermId> = all
        .chunks(100)
        .flat_map(|some| ids(&context, some))
        .collect();
    assert!(context.held_keys(found.iter().copied()).is_none());
    context.cancel();
    let mut read = TermTexts::default();
    let ended = context.texts(&found, &mut read);
    assert!(matches!(ended, Err(Error::Cancelled)));
    assert!(matches!(try_ids(&context, &all), Err(Error::Cancelled)));
}

#[test]
fn only_chunks_that_are_asked_for_are_held() {
    let context = spilling_context(1024, 2_000);
    // Chunks of 4 KB.
    let found = ids(&context, &texts(0..1_000));
    let keys = context.held_keys(found.iter().take(1).copied()).unwrap();
    for start in (1_000..8_000).step_by(1_000) {
        ids(&context, &texts(start..start + 1_000));
    }
    assert!(on_disk(&context).0 > 0);
    assert!(
        context
            .held_keys(found.iter().skip(500).take(1).copied())
            .is_none()
    );
    let first = context.held_keys(found.iter().take(1).copied());
    assert_eq!(first.unwrap().get(found[0]), keys.get(found[0]));
}

proptest! {
    #[test]
    fn chunks_have_room_for_what_is_reserved(
        sizes in proptest::collection::vec(0..9_000_usize, 1..40),
        before in proptest::collection::vec(0..3_000_usize, 0..10),
    ) {
        let mut records = Records::default();
        for size in before {
            records.push(Kind::Iri, &vec![b'x'; size]).unwrap();
        }
        let bytes = sizes.iter().map(|size| record_bytes(*size)).sum();
        let room = records.held_bytes() + records.more_for(bytes, sizes.len());
        for size in sizes {
            records.push(Kind::Iri, &vec![b'x'; size]).unwrap();
        }
        prop_assert!(records.held_bytes() <= room);
    }
}
