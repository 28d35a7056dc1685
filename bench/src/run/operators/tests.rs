//! What becomes of answers of a bad endpoint; and sets of queries as files.

use std::path::Path;

use super::*;
use crate::run::tests::{answer, fake, whole};

fn entry(expect: Expect, large: bool) -> Entry {
    Entry {
        name: "scan/a".to_owned(),
        query: Ok("SELECT ?a { ?s ?p ?a }".to_owned()),
        expect,
        large,
    }
}

fn state(response: String, trusted: Option<String>, entry: &Entry) -> (State, usize) {
    let arguments = Arguments {
        url: fake(response),
        queries: None,
        only: None,
        warm_up: 1,
        runs: 2,
        connection: Connection::Each,
        timeout: Duration::from_secs(5),
        server_pid: Some(std::process::id()),
        check: trusted.map(fake),
        restart: None,
        output: None,
    };
    let outcome = outcome(&arguments, entry);
    (outcome.state, outcome.times.len())
}

#[test]
fn answers_count_when_they_are_as_expected() {
    let two = whole(&answer(&["a"], &["1", "2"]));
    let none = whole(&answer(&["a"], &[]));
    let zero = whole(&answer(&["a"], &["0"]));
    for large in [false, true] {
        for expect in [Expect::Any, Expect::Rows(2)] {
            assert_eq!(
                state(two.clone(), None, &entry(expect, large)),
                (State::Answered, 2)
            );
        }
        let (wrong, times) = state(two.clone(), None, &entry(Expect::Rows(3), large));
        assert!(matches!(wrong, State::Wrong(_)));
        assert_eq!(times, 0, "a wrong answer has no time");
        let cut = answer(&["a"], &["1", "2"]);
        let cut = whole(cut.trim_end_matches("</sparql>"));
        let (cut, _) = state(cut, None, &entry(Expect::Any, large));
        assert!(matches!(cut, State::Error(_)), "{cut:?}");
    }
    for (response, expect) in [(none, Expect::Some), (zero, Expect::Count)] {
        let (empty, times) = state(response, None, &entry(expect, false));
        assert!(matches!(empty, State::Wrong(_)), "{empty:?}");
        assert_eq!(times, 0);
    }
}

#[test]
fn answers_are_compared_with_the_trusted_ones() {
    let right = whole(&answer(&["a"], &["1", "2"]));
    let turned = whole(&answer(&["a"], &["2", "1"]));
    let other = whole(&answer(&["a"], &["1", "3"]));
    for large in [false, true] {
        let entry = entry(Expect::Any, large);
        let verdict = |trusted: &str| state(right.clone(), Some(trusted.to_owned()), &entry).0;
        assert_eq!(verdict(&turned), State::Right);
        assert!(matches!(verdict(&other), State::Wrong(_)));
        let gone = "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert!(matches!(verdict(gone), State::NotVerified(_)));
    }
}

#[test]
fn a_time_out_is_shown_and_a_skip_has_its_reason() {
    let arguments = Arguments {
        url: fake(String::new()),
        queries: None,
        only: None,
        warm_up: 1,
        runs: 1,
        connection: Connection::Keep,
        timeout: Duration::from_millis(50),
        server_pid: None,
        check: None,
        restart: None,
        output: None,
    };
    let silent = entry(Expect::Any, false);
    assert_eq!(outcome(&arguments, &silent).state, State::TimeOut);
    let skipped = Entry {
        query: Err("the data have no dates".to_owned()),
        ..silent
    };
    let outcomes = [outcome(&arguments, &skipped)];
    let set = Set {
        triples: 1,
        entries: vec![skipped.clone()],
    };
    assert!(table(&set, &outcomes).contains("skipped: the data have no dates"));
}

/// What engines are compared by does not change with them.
#[test]
fn frozen_sets_are_as_they_were_frozen() {
    let frozen = [
        ("bsbm-2848", "766efb4f246060d8a85a87eb262cac14cc63af94", 131),
        (
            "bsbm-28482",
            "2cc3aff076d9d2f13bec9d312e05e10b2e3b58cc",
            130,
        ),
        (
            "bsbm-284826",
            "f97b9a57fd12208284fca4fee714fee75227c1b1",
            130,
        ),
    ];
    for (name, hash, queries) in frozen {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/queries/operators");
        let set = Set::load(&Path::new(folder).join(format!("{name}.json"))).unwrap();
        assert_eq!((set.hash().as_str(), set.counts().0), (hash, queries));
    }
}

#[test]
fn a_set_comes_back_as_it_was_saved_or_not_at_all() {
    let set = Set {
        triples: 12,
        entries: vec![
            entry(Expect::Rows(7), true),
            entry(Expect::Count, false),
            Entry {
                query: Err("no".to_owned()),
                ..entry(Expect::Any, false)
            },
        ],
    };
    let path = std::env::temp_dir().join(format!("stoa-set-{}.json", std::process::id()));
    set.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let loaded = Set::load(&path).unwrap();
    assert_eq!((&loaded, loaded.hash()), (&set, set.hash()));
    std::fs::write(&path, text.replace("?a }", "?a}")).unwrap();
    let changed = Set::load(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(changed.unwrap_err().to_string().contains("was changed"));
}
