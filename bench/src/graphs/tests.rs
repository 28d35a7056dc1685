//! Shapes, counts and determinism of the graphs; that they load is shown by the parser that Stoa is tested against.

use std::collections::BTreeMap;

use oxttl::NTriplesParser;

use super::genealogy::Pools;
use super::{Triples, path_graph};

fn path(edges: u64, payload: u64, seed: u64) -> Triples {
    let mut triples = Triples::kept();
    path_graph::write(edges, payload, seed, &mut triples).unwrap();
    triples
}

fn people(people: u64, seed: u64) -> Triples {
    let mut triples = Triples::kept();
    Pools::new(people, seed).write(&mut triples).unwrap();
    triples
}

/// Subject, predicate's last part, object; each triple once.
fn parsed(triples: &Triples) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for triple in NTriplesParser::new().for_slice(&triples.out) {
        let triple = triple.unwrap();
        let predicate = triple.predicate.as_str().rsplit(['/', '#']).next().unwrap();
        all.push((
            triple.subject.to_string(),
            predicate.to_owned(),
            triple.object.to_string(),
        ));
    }
    assert_eq!(all.len() as u64, triples.count);
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "a triple is there twice");
    all
}

fn counts(all: &[(String, String, String)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (_, predicate, _) in all {
        *counts.entry(predicate.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn a_path_graph_has_its_degrees() {
    let triples = path(50_000, 0, 1);
    let all = parsed(&triples);
    assert!((49_000..51_000).contains(&all.len()), "{}", all.len());
    let mut degrees: BTreeMap<&str, u64> = BTreeMap::new();
    for (subject, _, _) in &all {
        *degrees.entry(subject).or_default() += 1;
    }
    let nodes = path_graph::nodes(50_000);
    assert_eq!(degrees.len() as u64, nodes);
    assert_eq!(degrees.values().min(), Some(&3));
    assert_eq!(degrees.values().max(), Some(&30));
    let counts = counts(&all);
    for name in ["e0", "e1", "e2"] {
        assert_eq!(counts[name], nodes, "a path of {name} has one end");
    }
}

#[test]
fn data_follow_from_size_and_seed() {
    assert_eq!(path(2_000, 0, 1).out, path(2_000, 0, 1).out);
    assert_ne!(path(2_000, 0, 1).out, path(2_000, 0, 2).out);
    assert_eq!(people(2_000, 1).out, people(2_000, 1).out);
    assert_ne!(people(2_000, 1).out, people(2_000, 2).out);
}

#[test]
fn payloads_have_their_length() {
    let all = parsed(&path(1_000, 40, 1));
    let payloads = all
        .iter()
        .filter(|(_, predicate, _)| predicate == "payload");
    let lengths: Vec<usize> = payloads.map(|(_, _, object)| object.len() - 2).collect();
    assert_eq!(lengths.len() as u64, path_graph::nodes(1_000));
    assert!(lengths.iter().all(|&length| length == 40));
}

#[test]
fn a_genealogy_has_its_shape() {
    let triples = people(20_000, 1);
    let all = parsed(&triples);
    let counts = counts(&all);
    let a_person = all.len() as f64 / 20_000.0;
    assert!((7.0..11.0).contains(&a_person), "{a_person}");
    assert_eq!(counts["hasGender"], 20_000);
    assert!((20_000..22_000).contains(&counts["isCitizenOf"]));
    // The skew: the largest country has several times its share of citizens.
    let mut citizens: BTreeMap<&str, u64> = BTreeMap::new();
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut gender: BTreeMap<&str, &str> = BTreeMap::new();
    for (subject, predicate, object) in &all {
        match predicate.as_str() {
            "isCitizenOf" => *citizens.entry(object).or_default() += 1,
            "hasChild" => children.entry(object).or_default().push(subject),
            "hasGender" => drop(gender.insert(subject, object)),
            _ => {}
        }
    }
    let largest = *citizens.values().max().unwrap() as f64;
    let mean = counts["isCitizenOf"] as f64 / citizens.len() as f64;
    assert!(largest > 4.0 * mean, "{largest} {mean}");
    // Nobody has two parents of a gender, or is older than a parent.
    let number = |iri: &str| -> u64 {
        let digits = iri.rsplit('/').next().unwrap().trim_end_matches('>');
        digits.parse().unwrap()
    };
    let mut ancestors: BTreeMap<u64, std::collections::BTreeSet<u64>> = BTreeMap::new();
    let mut by_number: Vec<_> = children.iter().collect();
    by_number.sort_by_key(|(child, _)| number(child));
    for (child, parents) in by_number {
        let genders: std::collections::BTreeSet<&str> =
            parents.iter().map(|parent| gender[parent]).collect();
        assert_eq!(genders.len(), parents.len(), "{child}");
        let mut all = std::collections::BTreeSet::new();
        for parent in parents {
            let parent = number(parent);
            assert!(parent < number(child));
            all.insert(parent);
            all.extend(ancestors.get(&parent).cloned().unwrap_or_default());
        }
        ancestors.insert(number(child), all);
    }
    let most = ancestors
        .values()
        .map(std::collections::BTreeSet::len)
        .max();
    assert!(most > Some(50), "lines are short: {most:?}");
    let parents: u64 = counts["hasChild"];
    assert!((3_000..10_000).contains(&parents), "{parents}");
}

#[test]
fn places_lead_to_a_country() {
    let all = parsed(&people(5_000, 3));
    let above: BTreeMap<&str, &str> = all
        .iter()
        .filter(|(_, predicate, _)| predicate == "isLocatedIn")
        .map(|(place, _, parent)| (place.as_str(), parent.as_str()))
        .collect();
    fn depth(above: &BTreeMap<&str, &str>, place: &str) -> u64 {
        above
            .get(place)
            .map_or(0, |parent| 1 + depth(above, parent))
    }
    let deepest = above.keys().map(|place| depth(&above, place)).max();
    assert!((Some(2)..Some(10)).contains(&deepest), "{deepest:?}");
    // What lies in nothing is a country.
    for (place, _, class) in all.iter().filter(|(_, predicate, _)| predicate == "type") {
        let outermost = place.contains("/place/") && !above.contains_key(place.as_str());
        assert_eq!(outermost, class.ends_with("/Country>"), "{place}");
    }
}
