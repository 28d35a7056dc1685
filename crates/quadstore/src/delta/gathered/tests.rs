//! What is gathered against the batches of one commit each; what it takes of the memory budget.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::delta::{Cleared, Delta, DeltaCursor, EffectiveChanges, KeyHash};
use crate::root::TreeName;

const TREES: [TreeName; 6] = [
    TreeName::Psog,
    TreeName::Posg,
    TreeName::Spog,
    TreeName::Opsg,
    TreeName::Gpso,
    TreeName::Gpos,
];

/// Rows that change sides, graphs that are made or dropped, how many terms come, whether a batch is
/// made after it, and the graphs that are cleared before it.
type Step = (BTreeSet<Row>, Vec<(u64, bool)>, u64, bool, GraphMask);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let row = (0..3_u64, 0..4_u64, 0..3_u64, 0..3_u64);
    let rows = prop::collection::btree_set(row.prop_map(|(p, s, o, g)| [p, s, o, g]), 0..20);
    let graphs = prop::collection::vec((1..4_u64, any::<bool>()), 0..2);
    let cleared = prop::collection::vec((0..3_u64).prop_map(TermId::from_bits), 0..2);
    let cleared = prop_oneof![
        3 => Just(GraphMask::NONE),
        1 => cleared.clone().prop_map(GraphMask::some),
        1 => cleared.prop_map(GraphMask::all_but),
    ];
    let is_settled = prop::bool::weighted(0.2);
    prop::collection::vec((rows, graphs, 0..4_u64, is_settled, cleared), 0..12)
}

/// Terms of a commit from a number on; the keys of later ones come before, between and after.
fn terms(first: u64, count: u64) -> Vec<(TermId, Vec<u8>)> {
    let key = |number: u64| format!("{}:{number:04}", number * 7 % 5).into_bytes();
    let mut keys: Vec<_> = (first..first + count).map(key).collect();
    keys.sort();
    let ids = (first..).map(|payload| TermId::new(Kind::Iri, payload));
    ids.zip(keys).collect()
}

fn take_down(gathered: &mut Gathered, changes: &EffectiveChanges) -> Result<()> {
    gathered.make_room(&Sizes {
        added: changes.added_rows().len(),
        removed: changes.removed_rows().len(),
        graphs: changes.graphs().count(),
        terms: changes.terms().count(),
        key_bytes: changes.terms().map(|(_, key, _)| key.len()).sum(),
    })?;
    gathered.clear(&changes.clearing().graphs);
    for (_, key, id) in changes.terms() {
        assert!(gathered.term(id, key));
    }
    changes.graphs().for_each(|change| gathered.graph(change));
    for row in changes.removed_rows() {
        gathered.remove(*row);
    }
    for row in changes.added_rows() {
        gathered.add(*row);
    }
    let ended = gathered.end_commit(changes.next_blank_node());
    ended.map_err(|_| Error::Internal("other terms"))
}

fn events(delta: &Delta, tree: TreeName) -> Vec<(Row, bool)> {
    let Some(mut cursor) = DeltaCursor::over(delta, tree) else {
        return Vec::new();
    };
    cursor.seek(&[0; 4], &[u64::MAX; 4]);
    let mut events = Vec::new();
    while let Some(event) = cursor.peek() {
        events.push(event);
        cursor.advance();
    }
    events
}

/// The version after what was gathered.
fn settled(delta: &Delta, gathered: &mut Gathered, budget: &MemoryBudget) -> Delta {
    let delta = delta.cleared(gathered.cleared(), 0, true, budget).unwrap();
    delta.followed_by(gathered.settle(true).unwrap())
}

fn empty(budget: &MemoryBudget) -> Gathered {
    Gathered::after([0; KINDS.len()], budget)
}

proptest! {
    #[test]
    fn what_was_gathered_is_what_batches_come_to(steps in steps()) {
        let budget = MemoryBudget::unlimited();
        let (mut gathered, mut one, mut two) = (empty(&budget), Delta::default(), Delta::default());
        let (mut there, mut next) = (BTreeSet::new(), 0);
        for (number, (rows, graphs, count, is_settled, cleared)) in (1..).zip(&steps) {
            there.retain(|[.., graph]: &Row| !cleared.contains(TermId::from_bits(*graph)));
            let (removed, added): (Vec<Row>, Vec<Row>) =
                rows.iter().partition(|row| there.contains(*row));
            there.retain(|row| !removed.contains(row));
            there.extend(added.iter().copied());
            let wanted = graphs.iter().map(|(graph, created)| GraphChange {
                graph: TermId::from_bits(*graph),
                created: *created,
            });
            let wanted: Vec<_> = wanted.collect();
            let new = terms(next, *count);
            next += count;
            let changes = EffectiveChanges::of_rows(added, removed, &wanted, new, number).unwrap();
            let changes = changes.after_clearing(Cleared {
                graphs: cleared.clone(),
                ..Cleared::default()
            });
            one = one.with(&changes, true, &budget).unwrap();
            take_down(&mut gathered, &changes).unwrap();
            if *is_settled {
                two = settled(&two, &mut gathered, &budget);
            }
        }
        two = settled(&two, &mut gathered, &budget);
        for tree in TREES {
            prop_assert_eq!(events(&one, tree), events(&two, tree));
        }
        let changed = |delta: &Delta| {
            let mut graphs = delta.graphs();
            graphs.retain(|graph| graph.gained != 0 || graph.created.is_some());
            graphs
        };
        prop_assert_eq!(changed(&one), changed(&two));
        prop_assert_eq!(one.net_quads(), two.net_quads());
        prop_assert_eq!(one.next_blank_node(), two.next_blank_node());
        for (id, key) in (0..next).flat_map(|first| terms(first, 1)) {
            let find = |delta: &Delta| {
                let terms = delta.terms();
                let mut found = terms.iter().filter_map(|terms| terms.of_kind(Kind::Iri)?.find_from(&mut 0, &key, KeyHash::of(&key)));
                found.next()
            };
            prop_assert!(find(&one).is_some());
            prop_assert_eq!(find(&one), find(&two));
            let place = |delta: &Delta| {
                let terms = delta.terms();
                let of_kind = terms.iter().filter_map(|terms| terms.of_kind(Kind::Iri));
                let mut keys = of_kind.filter_map(|terms| Some(terms.key(terms.place(id.payload())?).to_vec()));
                keys.next()
            };
            prop_assert_eq!(place(&one), place(&two));
        }
    }
}

#[test]
fn all_of_it_is_reserved_and_nothing_is_lost_where_memory_is_short() {
    let budget = MemoryBudget::new(1 << 20);
    let mut gathered = empty(&budget);
    let changes = |number: u64| {
        // Half of the quads have a graph of their own.
        let graph = |row: u64| if row < 50 { 0 } else { number * 100 + row };
        let rows = (0..100).map(|row| [1, number, row, graph(row)]).collect();
        EffectiveChanges::of_rows(rows, Vec::new(), &[], terms(number * 10, 10), 0).unwrap()
    };
    let mut taken = 0;
    while budget.used() < budget.limit() / 4 {
        take_down(&mut gathered, &changes(taken)).unwrap();
        assert!(budget.used() >= gathered.bytes());
        taken += 1;
    }
    let others = budget.try_reserve(budget.limit() - budget.used()).unwrap();
    let before = (budget.used(), gathered.bytes());
    assert!(matches!(
        gathered.settle(true),
        Err(Error::Storage(stoa_storage::Error::Memory(_)))
    ));
    assert_eq!((budget.used(), gathered.bytes()), before);
    let mut refused = taken;
    while take_down(&mut gathered, &changes(refused)).is_ok() {
        refused += 1;
    }
    drop(others);
    let batch = gathered.settle(true).unwrap();
    assert_eq!(budget.used(), batch.bytes);
    assert_eq!(gathered.bytes(), 0);
    assert_eq!(batch.added.len() as u64, refused * 100);
    assert_eq!(batch.terms.len() as u64, refused * 10);
    assert_eq!(batch.graphs.len() as u64, 1 + refused * 50);
    drop(batch);
    assert_eq!(budget.used(), 0);
}

#[test]
fn terms_must_have_the_numbers_that_follow() {
    let budget = MemoryBudget::unlimited();
    let told = |ids: &[u64]| {
        let mut gathered = empty(&budget);
        for id in ids {
            let key = id.to_string();
            assert!(gathered.term(TermId::new(Kind::Iri, *id), key.as_bytes()));
        }
        gathered
            .end_commit(0)
            .err()
            .map(|other| (other.expected, other.found))
    };
    assert_eq!(told(&[1, 0, 2]), None);
    assert_eq!(told(&[1, 2]), Some((0, 1)));
    assert_eq!(told(&[0, 2]), Some((0, 2)));
    let mut gathered = empty(&budget);
    assert!(!gathered.term(TermId::DEFAULT_GRAPH, b"none"));
}
