//! The population has the sizes of the standard and meets what it says about its values.

use std::collections::{BTreeMap, BTreeSet};

use oxttl::NTriplesParser;

use super::laws::{self, Constants};
use super::{Scale, population};
use crate::bsbm::random::{Random, Stream};
use crate::graphs::Triples;

const SCALE: Scale = Scale {
    warehouses: 2,
    items: 50,
    customers: 30,
};

fn random() -> Random {
    Random::new(1, Stream::Warehouse, 7)
}

#[test]
fn a_population_has_a_row_for_each_of_its_tables() {
    let mut triples = Triples::kept();
    population::write(SCALE, 5, &mut triples).unwrap();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for triple in NTriplesParser::new().for_slice(&triples.out) {
        let triple = triple.unwrap();
        let (_, name) = triple.predicate.as_str().rsplit_once('#').unwrap();
        *counts.entry(name.to_owned()).or_default() += 1;
        assert!(all.insert(triple.to_string()), "twice: {triple}");
    }
    let districts = SCALE.warehouses * 10;
    for (predicate, count) in [
        ("price", SCALE.items),
        ("stocks", SCALE.items * SCALE.warehouses),
        ("info10", SCALE.items * SCALE.warehouses),
        ("next", districts),
        ("discount", districts * SCALE.customers),
        ("payer", districts * SCALE.customers),
        ("orderOf", districts * SCALE.customers),
        ("waitsIn", districts * SCALE.customers * 3 / 10),
        ("carrier", districts * SCALE.customers * 7 / 10),
        ("order", counts["item"]),
    ] {
        assert_eq!(counts[predicate], count, "{predicate}");
    }
    // Orders have 10 lines on average.
    let lines = counts["order"] as f64 / (districts * SCALE.customers) as f64;
    assert!((9.0..11.0).contains(&lines), "{lines}");
    let mut again = Triples::kept();
    population::write(SCALE, 5, &mut again).unwrap();
    assert!(again.out == triples.out);
}

#[test]
fn last_names_are_three_syllables() {
    let names = [0, 371, 999].map(laws::last_name);
    assert_eq!(names, ["BARBARBAR", "PRICALLYOUGHT", "EINGEINGEING"]);
}

#[test]
fn uneven_numbers_stay_within_their_bounds_and_are_uneven() {
    let mut random = random();
    let constants = Constants::of_a_run(&mut random);
    let mut counts = vec![0_u64; 3_001];
    for _ in 0..300_000 {
        counts[usize::try_from(constants.customer(&mut random, 3_000)).unwrap()] += 1;
        assert!((1..=20).contains(&constants.item(&mut random, 20)));
        assert!(constants.last_name(&mut random, 10) < 10);
    }
    assert_eq!(counts[0], 0);
    counts.sort_unstable();
    // Even ones would be drawn about 100 times each.
    let often: u64 = counts.iter().rev().take(300).sum();
    assert!(often > 60_000, "{often}");
    for _ in 0..100 {
        let text = laws::original(&mut random, 26, 50);
        assert!((26..=50).contains(&text.len()));
    }
}

#[test]
fn a_shuffle_keeps_all() {
    let mut list: Vec<u64> = (0..100).collect();
    laws::shuffle(&mut random(), &mut list);
    assert_ne!(list, (0..100).collect::<Vec<_>>());
    list.sort_unstable();
    assert_eq!(list, (0..100).collect::<Vec<_>>());
}
