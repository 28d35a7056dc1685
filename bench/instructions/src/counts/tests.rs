//! Tests of the comparison.

use super::*;

fn kept(instructions: u64, answer_bytes: u64) -> Kept {
    let count = |query: &str, instructions| Count {
        query: query.to_owned(),
        instructions,
        answer_bytes,
    };
    Kept {
        tools: vec![("rustc".to_owned(), "1.95.0 (a 2026)".to_owned())],
        counts: vec![count("star", 5_000), count("join", instructions)],
    }
}

#[test]
fn a_slowdown_of_two_percent_passes_and_one_of_five_does_not() {
    let before = kept(1_000_000, 70);
    for (now, passes) in [
        (1_000_000, true),
        (1_020_000, true),
        (1_030_000, true),
        (1_030_001, false),
        (1_050_000, false),
        (970_000, true),
        (900_000, true),
    ] {
        let comparison = compare(&before, &kept(now, 70));
        assert_eq!(comparison.passes(), passes, "{now}\n{comparison}");
    }
}

#[test]
fn each_query_is_told() {
    let more = compare(&kept(1_000_000, 70), &kept(1_050_000, 70)).to_string();
    let line = "join             1000000      1050000   1.050  MORE\n";
    assert!(more.contains(line), "{more}");
    assert!(
        more.contains("star                5000         5000   1.000\n"),
        "{more}"
    );
    assert!(more.contains("make instructions-accept"), "{more}");
    let fewer = compare(&kept(1_000_000, 70), &kept(900_000, 70)).to_string();
    assert!(fewer.contains("0.900  fewer\n"), "{fewer}");
    assert!(
        fewer.contains("keep it with make instructions-accept"),
        "{fewer}"
    );
    let same = compare(&kept(1_000_000, 70), &kept(1_000_000, 70)).to_string();
    assert!(!same.contains("accept"), "{same}");
}

#[test]
fn another_answer_and_a_missing_query_do_not_pass() {
    let before = kept(1_000_000, 70);
    let comparison = compare(&before, &kept(1_000_000, 69));
    assert!(!comparison.passes());
    assert!(comparison.to_string().contains("another answer"));
    let mut fewer = before.clone();
    fewer.counts.pop();
    assert!(!compare(&before, &fewer).passes());
    assert!(!compare(&fewer, &before).passes());
}

#[test]
fn other_versions_of_tools_are_told() {
    let mut other = kept(1_000_000, 70);
    other.tools = vec![("rustc".to_owned(), "1.96.0".to_owned())];
    let comparison = compare(&kept(1_000_000, 70), &other);
    assert!(comparison.passes());
    let told = "kept with rustc 1.95.0 (a 2026), now 1.96.0";
    assert!(comparison.to_string().contains(told), "{comparison}");
}

#[test]
fn the_file_is_read_as_it_is_written() {
    let before = kept(1_000_000, 70);
    assert_eq!(before.to_string().parse::<Kept>().unwrap(), before);
    for wrong in ["rustc", "rustc 1\n\nstar 1\n", "rustc 1\n\nstar one 2\n"] {
        assert!(wrong.parse::<Kept>().is_err(), "{wrong}");
    }
}

#[test]
fn counts_are_those_of_one_answer() {
    let found = counts("star 5 70\njoin 5 90\n", &[25_004, 50]).unwrap();
    assert_eq!(found[0].instructions, 5_000);
    assert_eq!(found[1].answer_bytes, 90);
    assert!(counts("star 5 70\n", &[]).is_err());
    assert!(counts("star 0 70\n", &[1]).is_err());
}
