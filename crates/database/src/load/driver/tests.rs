//! Tests of loading into lists of quads.

use std::fmt::Write;

use oxrdf::Quad;

use super::*;
use crate::load::sink::recording::RecordingSink;
use crate::load::{Input, source};

fn load_with(
    inputs: Vec<Input>,
    threads: usize,
    change: impl FnOnce(&mut Job<'_>),
) -> Result<Vec<Quad>> {
    let sources = source::expand(&inputs, &())?;
    let cancel = CancelHandle::new();
    let mut job = Job {
        sources: &sources,
        format: None,
        base: None,
        contexts: Arc::default(),
        json_ld: &JsonLdOptions::default(),
        threads,
        is_lenient: false,
        line_bytes_max: usize::MAX,
        cancel: &cancel,
        progress: &(),
    };
    change(&mut job);
    let quads = Mutex::new(Vec::new());
    let parsed = run(
        &job,
        &|| Ok(RecordingSink::default()),
        &|sink: RecordingSink| {
            lock(&quads).extend(sink.quads);
            Ok(())
        },
    )?;
    let mut quads = quads.into_inner().unwrap();
    assert_eq!(parsed.quads, u64::try_from(quads.len()).unwrap());
    quads.sort_by_cached_key(Quad::to_string);
    Ok(quads)
}

fn load(inputs: Vec<Input>, threads: usize) -> Result<Vec<Quad>> {
    load_with(inputs, threads, |_| {})
}

/// Some megabytes, with blank nodes that reach over pieces.
fn long_text() -> String {
    let mut text = String::new();
    for i in 0..40_000 {
        writeln!(
            text,
            "<http://example.org/subject/{}> <http://example.org/predicate/{}> \"object {i}\" .",
            i / 10,
            i % 10,
        )
        .unwrap();
        writeln!(text, "_:b{} <http://example.org/p> _:x .", i % 100).unwrap();
    }
    text
}

/// Turtle and N-Triples are TriG, too.
fn by_oxttl(text: &str) -> Vec<Quad> {
    let mut quads: Vec<Quad> = oxttl::TriGParser::new()
        .for_slice(text)
        .collect::<Result<_, _>>()
        .unwrap();
    quads.sort_by_cached_key(Quad::to_string);
    quads
}

#[test]
fn pieces_of_a_file_are_parsed_by_several_threads() {
    let text = long_text();
    assert!(text.len() > 4 * CHUNK_BYTES);
    let expected = by_oxttl(&text);
    for threads in [1, 2, 5] {
        let input = Input::from_bytes("x.nt", text.as_str());
        assert_eq!(load(vec![input], threads).unwrap(), expected);
    }
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    assert_eq!(
        load(vec![Input::from_bytes("x", packed)], 3).unwrap(),
        expected
    );
}

#[test]
fn files_of_several_formats_are_loaded_together() {
    let inputs = |order: &[usize]| {
        let all = [
            ("a.nt", "_:x <http://a/p> \"1\" ."),
            ("b.nq.gz", "_:x <http://a/p> \"1\" <http://a/g> ."),
            ("c.ttl", "@prefix a: <http://a/> . _:x a:p 1, <y> ."),
            ("d", "<http://a/g> { _:x <http://a/p> 'z' }"),
            ("e.trig", ""),
            (
                "f.rdf",
                "<e xmlns='http://a/' xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' \
                 rdf:nodeID='x'><p>r</p></e>",
            ),
            ("g", "{\"@id\": \"_:x\", \"http://a/p\": \"j\"}"),
        ];
        order
            .iter()
            .map(|i| Input::from_bytes(all[*i].0, all[*i].1))
            .collect::<Vec<_>>()
    };
    let base = |job: &mut Job<'_>| job.base = Some("http://base/");
    let quads = load_with(inputs(&[0, 1, 2, 3, 4, 5, 6]), 2, base).unwrap();
    let text: Vec<String> = quads.iter().map(ToString::to_string).collect();
    // The label of a blank node belongs to its file.
    assert_eq!(
        text,
        [
            "_:f1.x <http://a/p> \"1\" <http://a/g>",
            "_:f2.x <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer>",
            "_:f2.x <http://a/p> <http://base/y>",
            "_:f3.x <http://a/p> \"z\" <http://a/g>",
            "_:f5.x <http://a/p> \"r\"",
            "_:f5.x <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://a/e>",
            "_:f6.x <http://a/p> \"j\"",
            "_:x <http://a/p> \"1\"",
        ]
    );
    for threads in [1, 3, 9] {
        let same = load_with(inputs(&[0, 1, 2, 3, 4, 5, 6]), threads, base).unwrap();
        assert_eq!(same, quads);
    }
}

#[test]
fn the_first_mistake_of_a_file_is_reported() {
    let mut text = long_text();
    let lines = text.lines().count();
    text.push_str("<http://a/s> <http://a/p> .\n");
    text.push_str(&long_text());
    text.push_str("<http://a/s> .\n");
    for threads in [1, 2, 4] {
        let input = Input::from_bytes("x.nt", text.as_str());
        let error = load(vec![input], threads).unwrap_err().to_string();
        let place = format!("x.nt: line {}, column 27: ", lines + 1);
        assert!(error.starts_with(&place), "{error}");
    }
}

#[test]
fn a_cut_file_is_reported_after_mistakes_in_it() {
    let good = long_text();
    for (text, place) in [
        (good.clone(), None),
        (
            good.clone() + "x\n" + &good,
            Some("line 80001, column 1: expected a subject"),
        ),
    ] {
        let mut packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
        packed.truncate(packed.len() - 1);
        let error = load(vec![Input::from_bytes("x.nt", packed)], 2)
            .unwrap_err()
            .to_string();
        let place = place.unwrap_or("the zstd data is cut off");
        assert!(error.contains(place), "{error}");
    }
}

#[test]
fn wrong_formats_are_told() {
    let turtle = || {
        vec![Input::from_bytes(
            "x.ttl",
            "@prefix a: <http://a/> .\na:s a:p a:o .\n",
        )]
    };
    let error = load_with(turtle(), 1, |job| job.format = Some(GraphFormat::NTriples));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .starts_with("x.ttl: line 1, column 1: expected")
    );
    let error = load(vec![Input::from_bytes("x", "hello world")], 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x: unknown format: name it with --format (nt, nq, ttl, trig, rdf, jsonld)"
    );
}

#[test]
fn a_load_can_be_cancelled() {
    let input = Input::from_bytes("x.nt", long_text());
    let cancelled = CancelHandle::new();
    cancelled.cancel();
    let sources = source::expand(&[input], &()).unwrap();
    let job = Job {
        sources: &sources,
        format: None,
        base: None,
        contexts: Arc::default(),
        json_ld: &JsonLdOptions::default(),
        is_lenient: false,
        threads: 2,
        line_bytes_max: usize::MAX,
        cancel: &cancelled,
        progress: &(),
    };
    let result = run(
        &job,
        &|| Ok(RecordingSink::default()),
        &|_: RecordingSink| Ok(()),
    );
    assert!(matches!(result, Err(Error::Cancelled)));
}

#[test]
fn a_literal_of_a_hundred_megabytes_is_loaded() {
    let long = "x".repeat(100 << 20);
    let text = format!("<http://a/s> <http://a/p> \"{long}\" .\n<http://a/s> <http://a/p> 1 .\n");
    let error = load(vec![Input::from_bytes("x.nt", text)], 2).unwrap_err();
    assert!(error.to_string().starts_with("x.nt: line 2, column 27: "));
    let text = format!("<http://a/s> <http://a/p> \"{long}\" .\n");
    let quads = load(vec![Input::from_bytes("x.nt", text)], 2).unwrap();
    assert!(matches!(&quads[0].object, oxrdf::Term::Literal(l) if l.value() == long));
}

#[test]
fn helpers_wait_for_a_file_that_is_opened() {
    // Many threads race for few small files.
    for round in 0..300 {
        let names = ["a.nt", "b.ttl", "c"];
        let inputs: Vec<Input> = names[..1 + round % 3]
            .iter()
            .map(|name| {
                Input::from_bytes(*name, format!("<http://a/s> <http://a/p> \"{name}\" .\n"))
            })
            .collect();
        let files = inputs.len();
        assert_eq!(load(inputs, 6).unwrap().len(), files);
    }
}

#[test]
fn a_load_of_nothing_is_empty() {
    assert_eq!(load(Vec::new(), 2).unwrap(), []);
    assert_eq!(load(vec![Input::from_bytes("x.nt", "")], 2).unwrap(), []);
    assert_eq!(load(vec![Input::from_bytes("x", "# x")], 2).unwrap(), []);
}

/// Some megabytes of Turtle: blank nodes that reach over pieces, directives among the statements.
fn long_turtle() -> String {
    let mut text = "@prefix a: <http://a/> .\n".to_owned();
    for i in 0..40_000 {
        if i % 1_000 == 0 {
            writeln!(text, "@prefix a: <http://a/{}/> .", i / 1_000).unwrap();
        }
        writeln!(
            text,
            "a:s{i} a:p 'some . text', 'more', _:x{} ;\n a:q 1.5 .",
            i % 100
        )
        .unwrap();
        writeln!(
            text,
            "_:x a:r \"\"\"@prefix a: <http://no/> .\n{i} . \"\"\" ."
        )
        .unwrap();
    }
    text
}

#[test]
fn pieces_of_turtle_are_parsed_by_several_threads() {
    let text = long_turtle();
    assert!(text.len() > 3 * CHUNK_BYTES);
    let expected = by_oxttl(&text);
    for threads in [1, 2, 5] {
        for name in ["x.ttl", "x.trig"] {
            let input = Input::from_bytes(name, text.as_str());
            assert_eq!(load(vec![input], threads).unwrap(), expected);
        }
    }
}

#[test]
fn a_large_graph_is_cut_within() {
    let text = long_text().replace("_:b1 ", "[] ");
    let text = format!("@base <http://a/> . <g>{{{text}}} _:x {{ {text} }}");
    let expected = by_oxttl(&text);
    let quads = load(vec![Input::from_bytes("x.trig", text.as_str())], 3).unwrap();
    assert_eq!(quads.len(), expected.len());
    let graphs = |quads: &[Quad]| {
        quads
            .iter()
            .filter(|q| q.graph_name.is_blank_node())
            .count()
    };
    assert_eq!(graphs(&quads), graphs(&expected));
    let named = |quad: &&Quad| !quad.subject.is_blank_node();
    assert!(quads.iter().filter(named).eq(expected.iter().filter(named)));
}

#[test]
fn mistakes_behind_cuts_are_placed() {
    let text = long_turtle();
    for (bad, column) in [
        ("a:s a:p \u{e9} .", 9),
        ("a:s no:p 1 .", 5),
        ("a:s a:p 'x", 11),
    ] {
        let input = Input::from_bytes("x.ttl", format!("{text}{text}{bad}\na:s a:p 1 .\n{text}"));
        let error = load(vec![input], 3).unwrap_err().to_string();
        let line = 2 * text.lines().count() + 1;
        let place = format!("x.ttl: line {line}, column {column}: ");
        assert!(error.starts_with(&place), "{error} instead of {place}");
    }
}

#[test]
fn a_long_statement_is_read_as_a_stream() {
    let mut text = "@prefix a: <http://a/> . a:s a:p 0 . a:s a:p 0".to_owned();
    for i in 0..400_000 {
        write!(text, ",\n {i}").unwrap();
    }
    text += " . a:s a:q _:x .\n";
    let lines = text.lines().count();
    assert!(text.len() > 3 * CHUNK_BYTES);
    let input = Input::from_bytes("x.ttl", text.as_str());
    let quads = load_with(vec![input], 2, |job| job.line_bytes_max = CHUNK_BYTES);
    assert_eq!(quads.unwrap().len(), 400_003);
    let input = Input::from_bytes("x.ttl", text + "a:s a:q .");
    let quads = load_with(vec![input], 2, |job| job.line_bytes_max = CHUNK_BYTES);
    let error = quads.unwrap_err().to_string();
    let place = format!("x.ttl: line {}, column 9: ", lines + 1);
    assert!(error.starts_with(&place), "{error}");
}
