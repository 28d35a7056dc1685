//! Lenient loads: what is left out of each format, and how it is told.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fmt::Write as _;

use stoa_database::limits::MISTAKES_LISTED_MAX;
use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Error, Input, LoadOptions, LoadSummary,
    OpenOptions, Runtime, RuntimeOptions,
};

/// Loads texts by their names into a new database and gives what it holds, sorted.
fn load(files: &[(&str, &[u8])], threads: usize) -> Result<(LoadSummary, Vec<String>), Error> {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(256 << 20),
        seed: Some(1),
        ..RuntimeOptions::default()
    })?;
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &options)?;
    let inputs = files
        .iter()
        .map(|(name, text)| Input::from_bytes(*name, *text));
    let options = LoadOptions {
        inputs: inputs.collect(),
        lenient: true,
        threads: Some(threads),
        ..LoadOptions::default()
    };
    let summary = database.load(options, &())?;
    let mut out = Vec::new();
    database.dump(DumpFormat::NQuads, &mut out, &CancelHandle::new())?;
    let text = String::from_utf8(out).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok((summary, lines))
}

/// The objects that are left, and lines and columns of mistakes, of a text with the statements
/// `<http://a/s> <http://a/p> "..."`.
fn left(name: &str, text: &[u8]) -> (Vec<String>, Vec<(u64, u64)>) {
    let (summary, lines) = load(&[(name, text)], 2).unwrap();
    assert_eq!(summary.quads_read, u64::try_from(lines.len()).unwrap());
    let skipped = summary.skipped;
    assert_eq!(
        skipped.total,
        u64::try_from(skipped.mistakes.len()).unwrap()
    );
    if skipped.total > 0 {
        assert_eq!(skipped.inputs, [(name.to_owned(), skipped.total)]);
    }
    let object = |line: &String| line.split('"').nth(1).unwrap_or(line).to_owned();
    let place = |mistake: &stoa_database::DataError| (mistake.line, mistake.column);
    (
        lines.iter().map(object).collect(),
        skipped.mistakes.iter().map(place).collect(),
    )
}

const S: &str = "<http://a/s> <http://a/p> ";

#[test]
fn lines_are_left_out() {
    for name in ["x.nt", "x.nq"] {
        for (damage, column) in [
            ("\"no end", 27),
            ("\"no dot\"", 35),
            ("<http://a/no end", 27),
            ("\"\\q\" .", 28),
            ("x .", 27),
        ] {
            for at in 0..3 {
                let mut lines = vec![format!("{S}\"1\" ."), format!("{S}\"2\" .")];
                lines.insert(at, format!("{S}{damage}"));
                let text = lines.join("\r\n");
                let (objects, places) = left(name, text.as_bytes());
                assert_eq!(objects, ["1", "2"], "{text}");
                let line = u64::try_from(at).unwrap() + 1;
                assert_eq!(places, [(line, column)], "{text}");
            }
        }
        let text = [format!("{S}\"1\" .\n{S}\"").as_bytes(), b"\xff\" .\n"].concat();
        assert_eq!(left(name, &text), (vec!["1".to_owned()], vec![(2, 28)]));
    }
    let graph = format!("{S}\"1\" <http://a/g> .\n{S}\"2\" .\n");
    let (objects, places) = left("x.nt", graph.as_bytes());
    assert_eq!((objects, places), (vec!["2".to_owned()], vec![(1, 31)]));
    assert_eq!(left("x.nq", graph.as_bytes()).1, []);
}

#[test]
fn statements_are_left_out() {
    for name in ["x.ttl", "x.trig"] {
        for damage in [
            "a:s a:p \"no end .",
            "a:s a:p 'no end ;\n a:p 2 .",
            "a:s a:p .",
            "a:s a:p <http://a/no end .",
            "a:s a:p <http://a/{no}> .",
            "a:s a:p [ a:p 1 .",
            "a:s a:p ( 1 2 .",
            "a:s a:p \"\\q\" .",
            "no:s a:p 1 .",
            "a:s a:p 1, 2 3 .",
            "@prefix no: <relative path> .",
            "@prefix a <http://no/> .",
            "PREFIX a: <no> <http://no/> .",
            "a:s a:p <<( a:s a:p a:o >> .",
            "a:s a:p a:o {| a:q a:r .",
        ] {
            for at in 0..3 {
                let mut statements = vec!["a:s a:p \"1\" .", "a:s a:p\n \"2\", \"3\" ."];
                statements.insert(at, damage);
                let text = format!("PREFIX a: <http://a/>\n{}\n", statements.join("\n"));
                let (objects, places) = left(name, text.as_bytes());
                let found: Vec<&str> = objects.iter().map(String::as_str).collect();
                assert_eq!(found, ["1", "2", "3"], "{text}");
                // A directive and a statement on one line.
                let bad = if damage.starts_with("PREFIX") { 2 } else { 1 };
                assert_eq!(places.len(), bad, "{text}");
                let line = [2, 3, 5][at];
                assert!(
                    (line..=line + 1).contains(&places[0].0),
                    "{text} {places:?}"
                );
            }
        }
        let text = [b"@prefix a: <http://a/> . a:s a:p '\xff' . a:s a:p '1' .".as_slice()].concat();
        assert_eq!(left(name, &text), (vec!["1".to_owned()], vec![(1, 35)]));
        let open = b"@prefix a: <http://a/> . a:s a:p '1' .\na:s a:p \"\"\"2' .\na:s a:p '3' .";
        assert_eq!(left(name, open), (vec!["1".to_owned()], vec![(2, 9)]));
    }
}

#[test]
fn damaged_directives_take_what_needs_them() {
    let text = "@prefix a: <http://a/> .\n@prefix b: <http://b/ .\na:s a:p \"1\" .\nb:s a:p \"2\" .\n\
                @prefix b: <http://b/> .\nb:s a:p \"3\" .\n";
    let (objects, places) = left("x.ttl", text.as_bytes());
    assert_eq!(objects, ["1", "3"]);
    assert_eq!(places.iter().map(|p| p.0).collect::<Vec<_>>(), [2, 4]);
}

#[test]
fn graphs_keep_their_good_statements() {
    let text = "@prefix a: <http://a/> .\na:g {\n a:s a:p 'no end .\n a:s a:p a:1 .\n a:s a:p }\n\
                no:g { a:s a:p a:2 . a:s a:p a:3 }\n[] { a:s a:p a:4 . a:s . a:s a:p a:5 }\n\
                a:g { a:s a:p a:6 .\na:h { a:s a:p a:7 }\na:s a:p a:8 . }\na:s a:p a:9 .\n";
    let (summary, lines) = load(&[("x.trig", text.as_bytes())], 2).unwrap();
    // What is left of object and graph.
    let short = |line: &String| line.replace("<http://a/", "").replace('>', "");
    let mut lines: Vec<String> = lines.iter().map(short).collect();
    let anonymous = lines[1].split(' ').nth(3).unwrap().to_owned();
    assert!(anonymous.starts_with("_:"), "{anonymous}");
    lines[1..3].sort();
    let expected = [
        "s p 1 g .",
        &format!("s p 4 {anonymous} ."),
        &format!("s p 5 {anonymous} ."),
        "s p 6 g .",
        "s p 7 h .",
        "s p 8 .",
        "s p 9 .",
    ];
    assert_eq!(lines, expected);
    let lines: Vec<u64> = summary.skipped.mistakes.iter().map(|m| m.line).collect();
    assert_eq!(lines, [3, 5, 6, 7, 9, 10], "{:?}", summary.skipped.mistakes);
}

/// Some megabytes with a mistake every now and then, more than are listed.
fn damaged(turtle: bool) -> (String, u64) {
    let mut text = "@prefix a: <http://a/> .\n".to_owned();
    let mut bad = 0;
    for i in 0..60_000 {
        let is_bad = i % 97 == 13;
        bad += u64::from(is_bad);
        let end = if is_bad { "\"" } else { "" };
        if turtle {
            writeln!(
                text,
                "a:s{i} a:p \"some text . {i}\"{end} ; a:q _:x{}.",
                i % 9
            )
            .unwrap();
        } else {
            writeln!(
                text,
                "<http://a/s{i}> <http://a/p> \"some text {i}\"{end} ."
            )
            .unwrap();
        }
    }
    // The directive is a mistake in N-Triples.
    (text, bad + u64::from(!turtle))
}

#[test]
fn what_is_left_out_does_not_depend_on_threads() {
    for (name, turtle) in [("x.ttl", true), ("x.trig", true), ("x.nt", false)] {
        let (text, bad) = damaged(turtle);
        assert!(text.len() > 2 << 20, "several pieces");
        let files = [
            (name, text.as_bytes()),
            ("good.nt", b"".as_slice()),
            ("y.nt", b"x\n"),
        ];
        let (first, lines) = load(&files, 1).unwrap();
        let skipped = &first.skipped;
        assert_eq!(skipped.total, bad + 1);
        let inputs = [(name.to_owned(), bad), ("y.nt".to_owned(), 1)];
        assert_eq!(skipped.inputs, inputs);
        assert_eq!(skipped.mistakes.len(), MISTAKES_LISTED_MAX);
        assert!(skipped.mistakes.iter().all(|mistake| mistake.input == name));
        assert!(skipped.mistakes.is_sorted_by_key(|mistake| mistake.line));
        let good = 60_000 - (bad - u64::from(!turtle));
        assert_eq!(first.quads_read, if turtle { 2 * good } else { good });
        for threads in [2, 5] {
            let (other, others) = load(&files, threads).unwrap();
            assert_eq!(other.skipped, first.skipped);
            assert_eq!(other.quads_read, first.quads_read);
            assert_eq!(others.len(), lines.len());
        }
    }
}

#[test]
fn other_formats_end_at_the_first_mistake() {
    for (name, text) in [
        ("x.rdf", "<rdf:RDF><x>"),
        ("x.jsonld", "{\"@id\": \"http://a/s\", \"http://a/p\": }"),
    ] {
        let good = format!("{S}\"1\" .\n");
        let result = load(&[("good.nt", good.as_bytes()), (name, text.as_bytes())], 1);
        match result {
            Err(Error::Data(mistake)) => assert_eq!(mistake.input, name),
            other => panic!("{other:?}"),
        }
    }
}
