//! Documents of JSON-LD as a whole.

use std::fmt::Write;
use std::sync::Arc;

use super::document::GROWTH;
use super::*;
use crate::error::Result;
use crate::limits::JSONLD_DEPTH_MAX;
use crate::load::patient::Halt;
use crate::load::sink::recording::RecordingSink;
use crate::load::{Input, source};
use crate::options::{DirectionForm, JsonLdOptions};

/// The quads, and what was left out.
fn read_with(
    text: impl Into<Vec<u8>>,
    bytes_max: usize,
    options: &JsonLdOptions,
) -> Result<(Vec<String>, Vec<String>)> {
    let input = Input::from_bytes("x.jsonld", text);
    let source = source::expand(&[input], &()).unwrap().remove(0);
    let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
    let mut sink = RecordingSink::default();
    let contexts: Contexts = Arc::new(
        [
            ("http://c/known", r#"{"@context": {"p": "http://e/p"}}"#),
            (
                "http://c/circle",
                r#"{"@context": ["circle", {"p": "http://e/p"}]}"#,
            ),
            ("http://c/broken", "{\"@context\":\n {\"p\": 1}}"),
            (
                "http://c/scoped",
                r#"{"@context": {"p": {"@id": "http://e/p", "@context": "scoped"}}}"#,
            ),
        ]
        .map(|(url, text)| (url.to_owned(), text.into()))
        .to_vec(),
    );
    let settings = Settings {
        base: Some("http://base/"),
        contexts: &contexts,
        options,
        bytes_max,
    };
    let mut dropped = Vec::new();
    let mut on_dropped = |(line, column): (u64, u64), reason: String| {
        dropped.push(format!("{line}:{column} {reason}"));
    };
    parse(
        &mut stream,
        settings,
        &mut sink,
        &mut |_| Ok(()),
        Some(&mut on_dropped),
    )?;
    let mut quads: Vec<String> = sink.quads.iter().map(ToString::to_string).collect();
    quads.sort();
    Ok((quads, dropped))
}

fn read(text: impl Into<Vec<u8>>, bytes_max: usize) -> Result<Vec<String>> {
    Ok(read_with(text, bytes_max, &JsonLdOptions::default())?.0)
}

#[test]
fn documents_are_read_with_keys_in_any_order() {
    let text = "\u{feff}{\"p\": [1, {\"@value\": \"x\", \"@language\": \"EN\"}], \"@id\": \"s\",\n\
                \"@context\": {\"p\": \"http://e/p\"}}";
    let expected = [
        "<http://base/s> <http://e/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer>",
        "<http://base/s> <http://e/p> \"x\"@en",
    ];
    assert_eq!(read(text, usize::MAX).unwrap(), expected);
}

#[test]
fn contexts_are_never_fetched() {
    let with = |url: &str| format!("{{\"@context\": \"{url}\", \"@id\": \"s\", \"p\": \"o\"}}");
    let known = read(with("http://c/known"), usize::MAX).unwrap();
    assert_eq!(known, ["<http://base/s> <http://e/p> \"o\""]);
    let message = read(with("http://c/other"), usize::MAX)
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("x.jsonld: line 1, column ")
            && message.contains("http://c/other")
            && message.contains("never fetched"),
        "{message}"
    );
}

#[test]
fn mistakes_are_placed() {
    let message = read("{\"@id\": \"s\",\n \"http://e/p\": 1,,}", usize::MAX);
    let message = message.unwrap_err().to_string();
    assert!(
        message.starts_with("x.jsonld: line 2, column 18: Object keys must be strings"),
        "{message}"
    );
    for text in ["", "{", "1", "{\"@id\": 1, \"http://e/p\": 1}"] {
        if let Err(error) = read(text, usize::MAX) {
            assert!(
                error.to_string().starts_with("x.jsonld: line 1, "),
                "{error}"
            );
        }
    }
}

#[test]
fn large_documents_take_little_memory() {
    let mut nodes = String::new();
    for i in 0..20_000 {
        let comma = if i == 0 { "" } else { ",\n" };
        write!(
            nodes,
            "{comma}{{\"http://e/p\": {i}, \"@id\": \"http://e/{i}\"}}"
        )
        .unwrap();
    }
    let bytes_max = 1 << 18;
    assert!(nodes.len() > 4 * bytes_max / GROWTH);
    let array = format!("[{nodes}]");
    assert_eq!(read(array, bytes_max).unwrap().len(), 20_000);
    let ordered = nodes.replace(
        "\"http://e/p\": 7, \"@id\": \"http://e/7\"",
        "\"@id\": \"x:y\"",
    );
    let mut first = String::new();
    for i in 0..20_000 {
        let comma = if i == 0 { "" } else { ",\n" };
        write!(first, "{comma}{{\"@id\": \"http://e/{i}\", \"p\": {i}}}").unwrap();
    }
    let graph = format!("{{\"@context\": {{\"p\": \"http://e/p\"}}, \"@graph\": [{first}]}}");
    assert_eq!(read(graph, bytes_max).unwrap().len(), 20_000);
    let late = format!("{{\"@graph\": [{ordered}], \"@context\": {{\"p\": \"http://e/p\"}}}}");
    let message = read(late, bytes_max).unwrap_err().to_string();
    assert!(message.contains("@context"), "{message}");
}

/// What the documents of the W3C say that no other test here does.
#[test]
fn documents_of_the_suite_are_read_as_it_says() {
    let base =
        r#""@context": {"@base": "http://a/b/../c?q", "p": {"@id": "http://e/p", "@type": "@id"}}"#;
    for (text, expected) in [
        // t0122, t0123: without a path, the dots of the base stay.
        (
            format!("{{{base}, \"p\": [\"#x\", \"?x\", \"x\"]}}"),
            vec!["<http://a/b/../c?q#x>", "<http://a/b/../c?x>", "<http://a/x>"],
        ),
        // te062: another host.
        (
            format!("{{{base}, \"p\": \"//host/../x\"}}"),
            vec!["<http://host/x>"],
        ),
        // tli12: what is no IRI is resolved all the same, and left out then.
        (
            r#"{"@context": {"@base": "http://invalid/<>/", "p": {"@id": "http://e/p", "@type": "@id",
               "@container": "@list"}}, "p": ["x"]}"#
                .to_owned(),
            vec!["_:b2", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#nil>"],
        ),
        // tc013: the context of a property holds in its index map.
        (
            r#"{"@context": {"@vocab": "http://e/", "p": {"@container": "@index",
               "@context": {"q": "http://e/inner"}}}, "p": {"x": {"@id": "s", "q": 1}}}"#
                .to_owned(),
            vec!["<http://base/s>", "<http://e/inner> \"1\""],
        ),
    ] {
        let quads = read(text.as_str(), usize::MAX).unwrap();
        assert_eq!(quads.len(), expected.len(), "{text}: {quads:?}");
        for expected in expected {
            let found = quads.iter().any(|quad| quad.contains(expected));
            assert!(found, "{text}: {expected} is not in {quads:?}");
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |depth: usize, open: &str, close: &str| {
        let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        read(text, usize::MAX)
    };
    let deepest = JSONLD_DEPTH_MAX;
    let quads = nested(deepest, "{\"http://e/p\":", "}").unwrap();
    assert_eq!(quads.len(), deepest);
    let lists = nested(deepest / 2, "{\"@list\":[", "]}");
    assert_eq!(lists.unwrap().len(), 0);
    let contexts = nested(
        deepest / 2 - 2,
        "{\"@context\":{\"p\":{\"@id\":\"http://e/p\",\"@context\":{}}},\"p\":[",
        "]}",
    );
    assert_eq!(contexts.unwrap().len(), deepest / 2 - 2);
    for (open, close) in [
        ("{\"http://e/p\":", "}"),
        ("[", "]"),
        ("{\"@graph\":[", "]}"),
        ("{\"@context\":{\"@context\":", "}}"),
    ] {
        for depth in [deepest + 1, 200_000] {
            let message = nested(depth, open, close).unwrap_err().to_string();
            assert!(message.contains("nested deeper than 500"), "{message}");
        }
    }
}

#[test]
fn contexts_that_name_each_other_end() {
    let with = |url: &str| format!("{{\"@context\": \"http://c/{url}\", \"p\": {{\"p\": 1}}}}");
    let message = read(with("circle"), usize::MAX).unwrap_err().to_string();
    assert!(message.contains("context overflow"), "{message}");
    // A context that brings itself with a term says nothing new there.
    assert_eq!(read(with("scoped"), usize::MAX).unwrap().len(), 2);
    let message = read(with("broken"), usize::MAX).unwrap_err().to_string();
    assert!(
        message.contains("invalid term definition")
            && message.contains("(line 2, column 8 of <http://c/broken>)"),
        "{message}"
    );
    let terms: Vec<String> = (0..5_000)
        .map(|i| format!("\"t{i}\": \"t{}:x\"", i + 1))
        .collect();
    let chain = format!(
        "{{\"@context\": {{{}, \"t5000\": \"http://e/\"}}}}",
        terms.join(",")
    );
    let message = read(chain, usize::MAX).unwrap_err().to_string();
    assert!(message.contains("are defined by each other"), "{message}");
    let circle = r#"{"@context": {"a": "b:x", "b": "a:x"}}"#;
    let message = read(circle, usize::MAX).unwrap_err().to_string();
    assert!(message.contains("cyclic IRI mapping"), "{message}");
}

#[test]
fn protected_terms_stay_as_they_are() {
    let with = |more: &str| {
        let first = r#"{"@protected": true, "p": "http://e/p",
            "q": {"@id": "http://e/q", "@context": {"p": "http://e/other"}}}"#;
        read(
            format!("{{\"@context\": [{first}{more}, \"p\": 1}}"),
            usize::MAX,
        )
    };
    let same = with(r#", {"p": "http://e/p"}], "q": {"p": 2}"#).unwrap();
    assert!(same.iter().any(|quad| quad.contains("<http://e/other>")));
    for (more, code) in [
        (
            r#", {"p": "http://e/other"}]"#,
            "protected term redefinition",
        ),
        (r#", null]"#, "invalid context nullification"),
        (
            r#"], "q": {"@context": {"q": "http://e/r"}}"#,
            "protected term redefinition",
        ),
    ] {
        let message = with(more).unwrap_err().to_string();
        assert!(message.contains(code), "{message}");
    }
}

#[test]
fn what_rdf_cannot_express_is_left_out_and_told() {
    let text = "[{\"http://e/p\": {\"@id\": \"http://a b/\"},\n\"http://e p/\": 1,\n\
                \"http://e/q\": [{\"@value\": \"x\", \"@language\": \"no tag\"}, \"y\"]}]";
    let (quads, dropped) = read_with(text, usize::MAX, &JsonLdOptions::default()).unwrap();
    assert_eq!(quads, ["_:b1 <http://e/q> \"y\""]);
    let expected = [
        "1:17 left out: invalid IRI: it contains a space",
        "1:2 left out: invalid IRI: it contains a space",
        "3:27 left out: invalid language tag \"no tag\"",
    ];
    assert_eq!(dropped, expected);
}

#[test]
fn directions_take_the_form_that_is_asked_for() {
    let text =
        r#"{"@id": "s", "http://e/p": {"@value": "x", "@language": "AR", "@direction": "rtl"}}"#;
    for (direction, expected, count) in [
        (DirectionForm::DirLang, "\"x\"@ar--rtl", 1),
        (
            DirectionForm::I18n,
            "\"x\"^^<https://www.w3.org/ns/i18n#ar_rtl>",
            1,
        ),
        (DirectionForm::Compound, "ns#direction> \"rtl\"", 4),
        (DirectionForm::Dropped, "\"x\"@ar", 1),
    ] {
        let options = JsonLdOptions {
            direction,
            ..JsonLdOptions::default()
        };
        let (quads, _) = read_with(text, usize::MAX, &options).unwrap();
        assert_eq!(quads.len(), count);
        let found = quads.iter().any(|quad| quad.ends_with(expected));
        assert!(found, "{quads:?}");
    }
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let many: String = (0..20)
        .map(|i| format!("\"http://e/{i}\": null, "))
        .collect();
    for others in ["", &many] {
        let text = format!(
            "{{\"@id\": \"a\", \"http://e/p\": 1, {others}\"http://e/p\": 2, \"@id\": \"b\"}}"
        );
        let quads = read(text, usize::MAX).unwrap();
        assert!(
            matches!(quads.as_slice(), [quad] if quad.starts_with("<http://base/b> <http://e/p> \"2\""))
        );
    }
}

/// Texts longer than any buffer, cut everywhere.
#[test]
fn texts_go_over_the_ends_of_buffers() {
    let long = "\u{e9}\\u00e9\\ud83d\\ude00\\n".repeat(20_000);
    let plain = "\u{e9}\u{e9}\u{1f600}\n".repeat(20_000);
    for bytes_max in [usize::MAX, 8 << 20] {
        let text = format!("{{\"@id\": \"s\", \"http://e/p\": \"{long}\" x");
        let message = read(text.as_str(), bytes_max).unwrap_err().to_string();
        let column = 29 + 1 + 20_000 * (1 + 6 + 12 + 2) + 1;
        assert!(
            message.starts_with(&format!("x.jsonld: line 1, column {column}: ")),
            "{message}"
        );
        let quads = read(text.replace("\" x", "\"}"), bytes_max).unwrap();
        assert!(quads[0].contains(&plain.replace('\n', "\\n")));
    }
    for text in [
        "{\"\\ud800\": 1}",
        "{\"\\ud800\\u0041\": 1}",
        "[\"\\x\"]",
        "[\"\n\"]",
        "[01]",
        "[1.]",
    ] {
        assert!(read(text, usize::MAX).is_err(), "{text}");
    }
    assert!(
        read(b"[\"\xff\"]".to_vec(), usize::MAX)
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
}

/// An object with long arrays, held or not, says the same.
#[test]
fn objects_flow_when_they_are_large() {
    let bytes_max = 1 << 17;
    let numbers: Vec<String> = (0..10_000).map(|i| i.to_string()).collect();
    let nodes: Vec<String> = (0..3_000)
        .map(|i| format!("{{\"@id\": \"n{i}\", \"p\": {i}}}"))
        .collect();
    let (numbers, nodes) = (numbers.join(", "), nodes.join(",\n"));
    let context = r#""@context": {"p": "http://e/p", "q": "http://e/q", "g": "@graph", "back":
        {"@reverse": "http://e/r"}, "list": {"@id": "http://e/list", "@container": "@list"}}"#;
    for text in [
        format!(
            "{{{context}, \"@id\": \"s\", \"p\": [{numbers}], \"q\": [{nodes}], \"list\": [1]}}"
        ),
        format!("{{{context}, \"g\": [{nodes}]}}"),
        format!("{{{context}, \"unknown\": [{nodes}], \"q\": null, \"g\": [{nodes}]}}"),
        format!("{{{context}, \"unknown\": [{nodes}], \"q\": [], \"g\": {{\"q\": 1}}}}"),
        format!("{{{context}, \"unknown\": [{nodes}], \"g\": {{\"q\": 1}}}}"),
        format!("{{{context}, \"g\": [{nodes}], \"unknown\": [1, {{}}]}}"),
        format!(
            "{{{context}, \"@id\": \"s\", \"g\": [{nodes}], \"q\": 1, \"@included\": [{nodes}]}}"
        ),
        format!("{{{context}, \"@id\": \"s\", \"q\": [], \"back\": [{nodes}]}}"),
        format!("[[{{{context}, \"@id\": \"named\", \"g\": [{nodes}]}}], [[{nodes}]]]"),
        format!(
            "{{{context}, \"g\": [{{\"@id\": \"named\", \"g\": [{nodes}]}}, {{\"@id\": \"h\", \"g\": [{nodes}]}}]}}"
        ),
        format!("{{{context}, \"@id\": \"not an IRI\", \"g\": [{nodes}], \"p\": [{nodes}]}}"),
    ] {
        assert!(text.len() > 2 * bytes_max / GROWTH);
        // Blank nodes have other numbers.
        let read = |bytes_max| -> Vec<String> {
            let quads = read(text.as_str(), bytes_max).unwrap().into_iter();
            let mut quads: Vec<String> = quads.map(|quad| quad.replace("_:b2", "_:b1")).collect();
            quads.sort();
            quads
        };
        let whole = read(usize::MAX);
        assert!(!whole.is_empty(), "{text:.300}");
        assert_eq!(read(bytes_max), whole);
    }
    for (text, reason) in [
        (
            format!("{{{context}, \"g\": [{nodes}], \"@id\": \"s\"}}"),
            "said of the graph itself",
        ),
        (
            format!("{{{context}, \"p\": [{nodes}], \"@id\": \"s\"}}"),
            "@id must come before",
        ),
        (
            format!("{{\"p\": [{nodes}], {context}}}"),
            "@context must come before",
        ),
        (
            format!("{{{context}, \"list\": [{nodes}]}}"),
            "nothing is complete within",
        ),
    ] {
        assert!(read(text.as_str(), usize::MAX).is_ok());
        let message = read(text, bytes_max).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn blank_nodes_with_and_without_labels_are_told_apart() {
    let text = r#"[{"http://e/p": {"@id": "_:b1"}}, {"@id": "_:bb1", "http://e/p": {"@id": "_:b1"}},
        {"@id": "_:x", "http://e/p": {}}]"#;
    let expected = [
        "_:b1 <http://e/p> _:bb1",
        "_:bbb1 <http://e/p> _:bb1",
        "_:x <http://e/p> _:b2",
    ];
    assert_eq!(read(text, usize::MAX).unwrap(), expected);
}

#[test]
fn many_small_values_are_counted() {
    let text = format!(
        "{{\"http://e/p\": {{\"@list\": [{}1]}}}}",
        "1,".repeat(20_000)
    );
    assert_eq!(read(text.as_str(), usize::MAX).unwrap().len(), 40_003);
    let message = read(text, 1 << 20).unwrap_err().to_string();
    assert!(
        message.contains("values, the most that --memory allows"),
        "{message}"
    );
}
