//! Tests of notes: in memory and in runs they are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stoa_storage::{Cache, Identity, MemoryBudget, RealDisk};

use super::*;

fn store(directory: &tempfile::TempDir) -> Store {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
    let disk = Arc::new(RealDisk::new(directory.path()));
    Store::create(disk, cache, Identity::new(1)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn notes_add_up(
        mut rows in prop::collection::vec((0..60_u64, 0..3_u64, 0..9_u64, any::<bool>()), 0..400),
        notes_max in prop_oneof![Just(3_usize), Just(50), Just(10_000)],
        single_graph in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        rows.sort_unstable();
        let mut taker = NoteTaker::new(&store);
        taker.notes_max = notes_max;
        let mut model: BTreeMap<(u64, u64), i64> = BTreeMap::new();
        for (subject, _, graph, deleted) in rows {
            let graph = if single_graph { 1 } else { graph };
            taker.effect(subject, graph, deleted).unwrap();
            *model.entry((graph, subject)).or_default() += if deleted { -1 } else { 1 };
        }
        let notes = taker.finish().unwrap();
        prop_assert!(!single_graph || notes.runs.len() <= 1);
        for _ in 0..2 {
            let mut reader = notes.read().unwrap();
            let mut found = BTreeMap::new();
            let mut last = None;
            while let Some(note) = reader.next().unwrap() {
                prop_assert!(last < Some((note.graph, note.subject)));
                last = Some((note.graph, note.subject));
                found.insert((note.graph, note.subject), note.gained.cast_signed());
            }
            prop_assert_eq!(&found, &model);
        }
    }
}
