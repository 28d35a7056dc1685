//! Mixes are whole, repeatable, and parse; updates take their transactions in order.

use super::*;

fn workload(name: Name, quirks: bool) -> Workload {
    let pools = match name {
        Name::Paths => Pools::Paths(path_graph::Pools::new(1_000)),
        Name::Genealogy => Pools::Genealogy(genealogy::Pools::new(1_000, 1)),
        _ => bsbm::Pools::new(1_000, 1, quirks).into(),
    };
    Workload::new(name, pools, 808_080, quirks).unwrap()
}

#[test]
fn mixes_are_whole_and_repeatable() {
    for (name, queries, templates) in [
        (Name::Explore, 25, 12),
        (Name::Bi, 15, 8),
        (Name::LookUp, 1, 2),
        (Name::Star, 1, 2),
        (Name::Paths, 7, 7),
        (Name::Genealogy, 6, 6),
    ] {
        let workload = workload(name, false);
        assert_eq!(workload.templates.len(), templates);
        let mix = workload.mix(7);
        assert_eq!(mix.len(), queries);
        let texts = |number| -> Vec<String> {
            workload
                .mix(number)
                .into_iter()
                .map(|it| it.query)
                .collect()
        };
        assert_eq!(texts(7), texts(7));
        assert_ne!(texts(7), texts(8));
        for instance in mix {
            assert!(!instance.query.contains('$'), "{}", instance.query);
            spargebra::SparqlParser::new()
                .parse_query(&instance.query)
                .unwrap();
        }
    }
}

#[test]
fn pools_of_a_file_give_the_queries_of_products_and_seed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pools.json");
    bsbm::Pools::new(1_000, 7, false).save(&path).unwrap();
    for name in [Name::Explore, Name::Bi, Name::BiDrilldown] {
        for quirks in [false, true] {
            let texts = |pools: bsbm::Pools| -> Vec<String> {
                assert_eq!(pools.products(), 1_000);
                let workload = Workload::new(name, pools, 3, quirks).unwrap();
                (0..20)
                    .flat_map(|number| workload.mix(number))
                    .map(|it| it.query)
                    .collect()
            };
            let made = texts(bsbm::Pools::new(1_000, 7, quirks));
            assert_eq!(texts(bsbm::Pools::load(&path, quirks).unwrap()), made);
            assert_ne!(texts(bsbm::Pools::new(1_000, 8, quirks)), made);
        }
    }
}

#[test]
fn updates_come_first_and_take_the_transactions_in_order() {
    let texts = [
        "<http://a> <http://a> \"$B\" .",
        "<http://b> <http://b> 1 .",
    ];
    let blocks = texts.map(|text| format!("{text}\n\n#__SEP__\n")).concat();
    let blocks = Blocks::parse(&blocks).unwrap();
    let workload = workload(Name::ExploreUpdate, false).with_blocks(blocks);
    let mix = workload.mix(0);
    let names: Vec<&str> = mix
        .iter()
        .map(|it| workload.templates[it.template].name.as_str())
        .collect();
    assert_eq!(names[..7], ["U1", "U2", "U1", "U2", "U2", "1", "2"]);
    assert_eq!(mix.len(), 30);
    for (at, instance) in mix.iter().enumerate() {
        assert_eq!(instance.writes, at < 5);
        let parser = spargebra::SparqlParser::new();
        if instance.writes {
            parser.parse_update(&instance.query).unwrap();
        } else {
            parser.parse_query(&instance.query).unwrap();
        }
    }
    assert_eq!(mix[0].query, format!("INSERT DATA {{ {}\n }}\n", texts[0]));
    assert!(mix[2].query.contains(texts[1]));
    let offers = mix.iter().filter(|it| it.query.contains("/Offer"));
    assert_eq!(offers.filter(|it| it.writes).count(), 3);
    // Past the last one nothing is inserted, and warming up writes nothing.
    assert_eq!(workload.mix(1)[0].query, "INSERT DATA {  }\n");
    let warm_up = workload.mix(WARM_UP);
    assert_eq!(warm_up.len(), 25);
    assert!(warm_up.iter().all(|it| !it.writes));
}

#[test]
fn the_drill_down_asks_for_each_depth() {
    // The tree of 1,000 products has depths 0 to 3.
    assert_eq!(
        workload(Name::BiDrilldown, false).mix(0).len(),
        4 + 3 + 3 + 4 + 4
    );
}

#[test]
fn quirks_are_the_original_queries() {
    let texts = |quirks| {
        workload(Name::Bi, quirks)
            .mix(0)
            .into_iter()
            .map(|it| it.query)
    };
    let with =
        texts(true).filter(|text| text.contains("GROUP BY ?c ?p }\n  { SELECT ?c ?p (COUNT"));
    assert_eq!(with.count(), 3);
    assert_eq!(
        texts(false)
            .filter(|text| text.contains("?p LIMIT 1000"))
            .count(),
        2
    );
    assert_eq!(
        texts(true)
            .filter(|text| text.contains("DESC(?n) LIMIT 1000"))
            .count(),
        2
    );
}

#[test]
fn features_are_drawn_once_but_for_the_quirk() {
    let repeats = |quirks| {
        let workload = workload(Name::Explore, quirks);
        let features = |query: String| {
            let mut found: Vec<String> = query
                .match_indices("ProductFeature")
                .filter_map(|(at, _)| query[at..].split('>').next().map(str::to_owned))
                .collect();
            found.sort();
            found.windows(2).any(|pair| pair[0] == pair[1])
        };
        (0..400)
            .flat_map(|number| workload.mix(number))
            // Query 1 names each feature once.
            .filter(|instance| instance.template == 0)
            .filter(|instance| features(instance.query.clone()))
            .count()
    };
    assert_eq!(repeats(false), 0);
    assert!(repeats(true) > 0);
}
