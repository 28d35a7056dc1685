//! Which sort orders a database keeps: chosen with its first load, or found out by later ones.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use stoa_database::{
    CancelHandle, DumpFormat, GraphFormat, Input, LoadOptions, QueryOptions, Scheme,
};
use stoa_testsuite::scratch::Scratch;

/// N-Quads of people in a graph.
fn people(graph: &str, from: u32, to: u32) -> String {
    let mut text = String::new();
    for person in from..to {
        let (subject, name) = (format!("<http://example.org/{person}>"), person % 7);
        writeln!(
            text,
            "{subject} <http://example.org/name> \"name {name}\" <http://example.org/{graph}> ."
        )
        .unwrap();
        let friend = (person * 31) % to;
        writeln!(text, "{subject} <http://example.org/knows> <http://example.org/{friend}> <http://example.org/{graph}> .").unwrap();
    }
    text
}

fn load(scratch: &Scratch, text: String) -> u64 {
    let summary = scratch.load(text, GraphFormat::NQuads, None, None);
    summary.unwrap().quads_new
}

fn trees(scratch: &Scratch) -> Vec<String> {
    let info = scratch.database().info().unwrap();
    let names = info.permutations.into_iter().map(|part| part.name);
    names.collect()
}

fn dump(scratch: &Scratch) -> Vec<String> {
    let dump = String::from_utf8(scratch.dump(DumpFormat::NQuads).unwrap()).unwrap();
    let mut lines: Vec<_> = dump.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn assert_sound(scratch: &Scratch) {
    let check = scratch.database().check(&(), &CancelHandle::new()).unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

#[test]
fn permutations_by_graph_come_with_the_load_that_shares_subjects() {
    let mut scratch = Scratch::new();
    let mut all = String::new();
    for (graph, from, to, by_graph) in [
        ("a", 0, 2000, false),
        // Others: subjects do not repeat.
        ("b", 2000, 2500, false),
        ("c", 0, 2500, true),
        ("d", 100, 300, true),
        ("a", 1900, 5000, true),
    ] {
        let text = people(graph, from, to);
        all.push_str(&text);
        load(&scratch, text);
        let names = trees(&scratch);
        assert_eq!(names.contains(&"GPSO".to_owned()), by_graph, "{names:?}");
        assert_eq!(names.contains(&"GPOS".to_owned()), by_graph, "{names:?}");
        assert_sound(&scratch);
        scratch.reopen();
    }
    let mut expected: Vec<_> = all.lines().map(str::to_owned).collect();
    expected.sort();
    expected.dedup();
    assert!(dump(&scratch) == expected);
}

#[test]
fn the_lean_scheme_holds_the_same_and_stays() {
    let mut lean = Scratch::new().with_scheme(Scheme::Lean);
    let usual = Scratch::new();
    for (graph, from, to) in [("a", 0, 3000), ("b", 0, 2000), ("a", 2500, 4000)] {
        let text = people(graph, from, to);
        assert_eq!(load(&lean, text.clone()), load(&usual, text));
        assert_sound(&lean);
        lean.reopen();
    }
    assert_eq!(trees(&lean), ["PSOG", "POSG", "GS", "SP", "OP", "graphs"]);
    assert!(dump(&lean) == dump(&usual));
    assert_eq!(
        lean.dump(DumpFormat::TriG).unwrap().len(),
        usual.dump(DumpFormat::TriG).unwrap().len()
    );
    for (pattern, read, read_lean) in [
        (
            "?s ?p <http://example.org/0>",
            "OPSG/1 ?s",
            "OPSG/1 by OP and POSG ?s",
        ),
        (
            "<http://example.org/5> ?p ?o",
            "SPOG/1 <http://example.org/5>",
            "SPOG/1 by SP and PSOG <http://example.org/5>",
        ),
        ("?s ?p ?o", "PSOG/0 ?s", "PSOG/0 ?s"),
    ] {
        let text = format!("SELECT * {{ GRAPH ?g {{ {pattern} }} }}");
        for (scratch, read) in [(&usual, read), (&lean, read_lean)] {
            let query = scratch.database().prepare(&text, &QueryOptions::default());
            let plan = query.unwrap().explain();
            assert!(plan.contains(&format!("index_scan {read}")), "{plan}");
        }
    }
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("more", people("c", 0, 1))],
        format: Some(GraphFormat::NQuads),
        scheme: Some(Scheme::Full),
        ..LoadOptions::default()
    };
    let error = lean.database().load(options, &()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--scheme: the database has the lean scheme and cannot become default: load everything \
         into a new one"
    );
}

#[test]
fn many_loads_leave_few_runs() {
    let scratch = Scratch::new();
    let mut all = String::new();
    for part in 0..40 {
        let text = people("a", part * 50, part * 50 + 50 + part % 3);
        all.push_str(&text);
        load(&scratch, text);
    }
    let info = scratch.database().info().unwrap();
    let [(name, runs, permuted)] = info.dictionary_runs[..] else {
        panic!("{:?}", info.dictionary_runs);
    };
    assert!(
        name == "IRIs" && runs < 10 && permuted > 0,
        "{runs} {permuted}"
    );
    assert_sound(&scratch);
    let mut expected: Vec<_> = all.lines().map(str::to_owned).collect();
    expected.sort();
    expected.dedup();
    assert!(dump(&scratch) == expected);
}
