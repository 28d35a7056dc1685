//! Bad input through the binary: each a clear message and exit code, no panic, and the database as it
//! was before.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test; tables of cases are long"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::support::{ONE, assert_failed, assert_fails, dump, loaded, output, stoa, text};

/// Whether sizes are those of the specification, which take their time in a build for tests.
fn is_long() -> bool {
    std::env::var_os("STOA_LONG").is_some()
}

#[test]
fn a_damaged_input_changes_nothing_and_says_where() {
    let folder = loaded();
    let cases: [(&str, &[u8], &str); 12] = [
        (
            "syntax.nt",
            b"<http://a/s> <http://a/p> \"x\" .\n<http://a/s> nonsense .\n",
            "line 2, column 14",
        ),
        (
            "syntax.ttl",
            b"@prefix : <http://a/> .\n:s :p :o ;; .\n:s :p\n",
            "line 4, column 1",
        ),
        (
            "space.nt",
            b"<http://a/s> <http://a/p> <http://a/o o> .\n",
            "line 1, column 27",
        ),
        (
            "space.ttl",
            b"<http://a/s> <http://a/p> <http://a/o o> .\n",
            "line 1, column 27",
        ),
        (
            "utf8.nt",
            b"<http://a/s> <http://a/p> \"\xff\xfe\" .\n",
            "line 1, column 28: invalid UTF-8",
        ),
        (
            "utf8.ttl",
            b"<http://a/s> <http://a/p> \"\xff\xfe\" .\n",
            "UTF-8",
        ),
        (
            "open.nt",
            b"<http://a/s> <http://a/p> \"never closed .\n",
            "line 1, column",
        ),
        (
            "open.ttl",
            b"<http://a/s> <http://a/p> \"\"\"never closed .\n",
            "line",
        ),
        (
            "escape.nt",
            b"<http://a/s> <http://a/p> \"\\uD800\" .\n",
            "line 1, column",
        ),
        (
            "relative.nt",
            b"<s> <http://a/p> \"x\" .\n",
            "line 1, column 1",
        ),
        (
            "graph.nt",
            b"<http://a/s> <http://a/p> \"x\" <http://a/g> .\n",
            "N-Triples has no graph names",
        ),
        (
            "graph.ttl",
            b"<http://a/g> { <http://a/s> <http://a/p> 1 }\n",
            "line 1, column",
        ),
    ];
    for (name, bytes, place) in cases {
        fs::write(folder.path().join(name), bytes).unwrap();
        assert_fails(
            folder.path(),
            &["load", "--db", "db", "one.nt", name],
            1,
            &[name, place],
        );
    }
}

#[test]
fn truncated_and_damaged_compression_is_told() {
    let folder = loaded();
    // Lines that hardly repeat themselves, so that the first piece comes out whole.
    let lines = many_lines(20_000);
    let gzip = gzip(lines.as_bytes());
    let zstd = zstd(lines.as_bytes());
    for (name, packed) in [("cut.nt.gz", &gzip), ("cut.nt.zst", &zstd)] {
        for left in [packed.len() - 1, packed.len() / 2, 20] {
            fs::write(folder.path().join(name), &packed[..left]).unwrap();
            let arguments = ["load", "--db", "db", "one.nt", name];
            assert_fails(folder.path(), &arguments, 1, &[name, "line ", "is cut off"]);
        }
        let mut damaged = packed.clone();
        for byte in &mut damaged[packed.len() / 2..][..200] {
            *byte ^= 0x5a;
        }
        fs::write(folder.path().join(name), damaged).unwrap();
        assert_fails(
            folder.path(),
            &["load", "--db", "db", name],
            1,
            &[name, "line "],
        );
    }
    fs::write(folder.path().join("whole.nt.gz"), gzip).unwrap();
    output(folder.path(), &["load", "--db", "db", "whole.nt.gz"]);
    assert_eq!(dump(folder.path()).lines().count(), 20_001);
}

#[test]
fn wrong_formats_and_usage_are_told_apart_from_failures() {
    let folder = loaded();
    fs::write(
        folder.path().join("turtle.txt"),
        "@prefix : <http://a/> . :s :p 1, 2 .\n",
    )
    .unwrap();
    fs::write(
        folder.path().join("noise.bin"),
        [0x80, 7, 3, 250].repeat(5_000),
    )
    .unwrap();
    fs::write(
        folder.path().join("page.rdf"),
        "<?xml version=\"1.0\"?><rdf:RDF",
    )
    .unwrap();
    let load = |rest: &[&'static str]| [&["load", "--db", "db"], rest].concat();
    for (arguments, code, parts) in [
        (
            load(&["--format", "nt", "turtle.txt"]),
            1,
            ["turtle.txt", "line 1, column 1"],
        ),
        (
            load(&["--format", "ttl", "noise.bin"]),
            1,
            ["noise.bin", "line 1, column 1"],
        ),
        (
            load(&["noise.bin"]),
            1,
            [
                "noise.bin",
                "name it with --format (nt, nq, ttl, trig, rdf, jsonld)",
            ],
        ),
        (load(&["page.rdf"]), 1, ["page.rdf", "line 1, column"]),
        (
            load(&["--format", "docx", "one.nt"]),
            2,
            ["--format", "nt, nq, ttl"],
        ),
        (
            load(&["--graph", "no iri", "one.nt"]),
            2,
            ["--graph", "no iri"],
        ),
        (
            load(&["--base", "relative", "one.nt"]),
            2,
            ["--base", "relative"],
        ),
        (
            load(&["--memory", "much", "one.nt"]),
            2,
            ["--memory", "512M"],
        ),
        (
            load(&["--threads", "0", "one.nt"]),
            2,
            ["--threads", "1 to 1024"],
        ),
        (load(&[]), 2, ["FILE", "Usage"]),
        (
            vec!["query", "--db", "db", "SELECT"],
            1,
            ["line 1, column", "^"],
        ),
        (
            vec![
                "query",
                "--db",
                "db",
                "--format",
                "csv",
                "DESCRIBE <http://a/s>",
            ],
            2,
            ["csv", "nt"],
        ),
        (vec!["query", "--db", "db"], 2, ["QUERY", "Usage"]),
        (
            vec!["query", "--db", "db", "-f", "none.rq"],
            1,
            ["none.rq", "No such file"],
        ),
        (
            vec!["dump", "--db", "db", "--format", "ttl"],
            2,
            ["nq, trig or jsonld", "--format"],
        ),
    ] {
        assert_fails(folder.path(), &arguments, code, &parts);
    }
}

#[test]
fn missing_and_unreadable_files_are_told_before_anything_is_loaded() {
    let folder = loaded();
    fs::create_dir(folder.path().join("empty")).unwrap();
    let load = |rest: &[&'static str]| [&["load", "--db", "db", "one.nt"], rest].concat();
    for (arguments, parts) in [
        (load(&["none.nt"]), ["none.nt", "No such file"]),
        (
            load(&["empty"]),
            ["empty", "no file with a known extension"],
        ),
        // Opens, but cannot be read: nothing is mapped at address 0 of a process.
        (
            load(&["--format", "nt", "/proc/self/mem"]),
            ["/proc/self/mem", "os error"],
        ),
        (load(&["one.nt/below"]), ["one.nt/below", "Not a directory"]),
    ] {
        assert_fails(folder.path(), &arguments, 1, &parts);
    }
    let closed = folder.path().join("closed.nt");
    fs::write(&closed, ONE).unwrap();
    let mut permissions = fs::metadata(&closed).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    fs::set_permissions(&closed, permissions).unwrap();
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: a file without permissions, since root may read it");
    } else {
        assert_fails(
            folder.path(),
            &load(&["closed.nt"]),
            1,
            &["closed.nt", "Permission denied"],
        );
    }
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let folder = loaded();
    let other = folder.path().join("photos");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("me.jpg"), "x").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for command in ["load", "serve", "query", "dump", "info", "check"] {
        let rest: &[&str] = match command {
            "load" => &["one.nt"],
            "serve" => &["--bind", "127.0.0.1:0"],
            "query" => &["ASK {}"],
            _ => &[],
        };
        let run = |db| stoa(folder.path(), &[&[command, "--db", db], rest].concat());
        assert_failed(&run("photos"), 1, &["photos"]);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1, "{command}");
        assert_failed(&run("one.nt"), 1, &["one.nt"]);
        assert_eq!(
            fs::read_to_string(folder.path().join("one.nt")).unwrap(),
            ONE
        );
        assert_failed(&run("no/parent"), 1, &["no/parent"]);
        if command != "load" {
            assert_failed(&run("nowhere"), 1, &["nowhere", "not a database"]);
            assert!(!folder.path().join("nowhere").exists(), "{command}");
            assert_failed(&run("empty"), 1, &["empty", "not a database"]);
            assert_eq!(
                fs::read_dir(folder.path().join("empty")).unwrap().count(),
                0
            );
        }
    }
}

#[test]
fn serve_makes_a_database_only_when_told_to() {
    let folder = loaded();
    let folder = folder.path();
    for (typo, parts) in [
        (
            "bd",
            &["bd is not a database", "--create makes an empty one"][..],
        ),
        (
            "sub/poeple",
            &["sub/poeple is not a database", "did you mean sub/people?"],
        ),
    ] {
        fs::create_dir_all(folder.join("sub")).unwrap();
        output(folder, &["load", "--db", "sub/people", "one.nt"]);
        let serve = ["serve", "--db", typo, "--bind", "127.0.0.1:0"];
        assert_failed(&stoa(folder, &serve), 1, parts);
        assert!(!folder.join(typo).exists());
    }
    // One of several that cannot be opened: the new ones go again.
    let serve = [
        "serve",
        "--create",
        "--bind",
        "127.0.0.1:0",
        "--db",
        "a=new",
        "--db",
        "b=no/parent",
    ];
    assert_failed(&stoa(folder, &serve), 1, &["no/parent"]);
    assert!(!folder.join("new").exists());
}

#[test]
fn a_database_of_another_format_is_refused_and_left_alone() {
    let folder = loaded();
    let path = folder.path().join("db/root");
    let ours = fs::read(&path).unwrap();
    for (version, words) in [(9_999_u32, "use a newer stoa"), (0, "load the data again")] {
        let mut root = ours.clone();
        // docs/format.md#file-header: version at 8, checksum of the page at 60.
        root[8..12].copy_from_slice(&version.to_le_bytes());
        root[60..64].fill(0);
        let sum = crc32c::crc32c(&root[..4096]);
        root[60..64].copy_from_slice(&sum.to_le_bytes());
        fs::write(&path, &root).unwrap();
        let version = format!("format version {version}");
        for arguments in [
            ["load", "--db", "db", "one.nt"].as_slice(),
            ["serve", "--db", "db", "--bind", "127.0.0.1:0"].as_slice(),
            ["query", "--db", "db", "ASK {}"].as_slice(),
            ["dump", "--db", "db"].as_slice(),
            ["info", "--db", "db"].as_slice(),
            ["check", "--db", "db"].as_slice(),
        ] {
            assert_failed(&stoa(folder.path(), arguments), 1, &["db", &version, words]);
            assert_eq!(fs::read(&path).unwrap(), root);
        }
    }
    fs::write(&path, ours).unwrap();
    assert_eq!(dump(folder.path()), ONE);
}

#[test]
fn a_literal_of_a_hundred_megabytes_is_loaded_or_refused_with_the_limit() {
    let folder = loaded();
    // Words, so that it is not one repetition, and every byte of it can be compared.
    let mut literal = String::new();
    let mut state = 1_u64;
    while literal.len() < 100 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        write!(literal, "{:x} ", state >> 20).unwrap();
    }
    let line = format!("<http://a/t> <http://a/p> \"{literal}\" .\n");
    fs::write(folder.path().join("long.nt"), &line).unwrap();
    fs::write(
        folder.path().join("long.ttl"),
        format!("@prefix : <http://a/> .\n:t :p \"\"\"{literal}\"\"\" .\n"),
    )
    .unwrap();
    for (name, database, words) in [
        ("long.nt", "lines", "the line is longer"),
        ("long.ttl", "turtle", "no statement ends"),
    ] {
        let arguments = ["load", "--db", "db", "--memory", "128M", "one.nt", name];
        assert_fails(
            folder.path(),
            &arguments,
            1,
            &[name, words, "16777216 bytes", "--memory"],
        );
        output(
            folder.path(),
            &["load", "--db", database, "--memory", "1G", name],
        );
        assert!(output(folder.path(), &["dump", "--db", database]) == line);
    }
    let ask = |query| output(folder.path(), &["query", "--db", "turtle", query]);
    let length = ask("SELECT (STRLEN(?o) AS ?n) { ?s ?p ?o }");
    assert!(length.contains(&literal.len().to_string()), "{length}");
    assert!(ask("SELECT ?o { ?s ?p ?o }") == format!("?o\n\"{literal}\"\n"));
    output(folder.path(), &["check", "--db", "lines"]);
}

#[test]
fn many_named_graphs_are_loaded_counted_and_dumped() {
    let folder = loaded();
    let graphs = if is_long() { 1_000_000 } else { 200_000 };
    let mut quads = String::new();
    for n in 0..graphs {
        writeln!(
            quads,
            "<http://a/s{}> <http://a/p> \"v{n}\" <http://g/{n}> .",
            n % 100_000
        )
        .unwrap();
    }
    fs::write(folder.path().join("graphs.nq"), &quads).unwrap();
    output(
        folder.path(),
        &["load", "--db", "many", "--memory", "256M", "graphs.nq"],
    );
    let info = output(folder.path(), &["info", "--db", "many"]);
    let counted = info
        .lines()
        .find(|line| line.starts_with("named graphs"))
        .unwrap();
    assert_eq!(
        counted.replace(',', "").split_whitespace().last(),
        Some(graphs.to_string().as_str())
    );
    let ask = |query| {
        output(
            folder.path(),
            &["query", "--db", "many", "--format", "csv", query],
        )
    };
    let count = format!("n\r\n{graphs}\r\n");
    assert_eq!(ask("SELECT (COUNT(*) AS ?n) { GRAPH ?g {} }"), count);
    assert_eq!(
        ask("SELECT (COUNT(DISTINCT ?g) AS ?n) { GRAPH ?g { ?s ?p ?o } }"),
        count
    );
    assert_eq!(
        ask("SELECT ?o { GRAPH <http://g/777> { ?s ?p ?o } }"),
        "o\r\nv777\r\n"
    );
    let mut sorted: Vec<&str> = quads.lines().collect();
    sorted.sort_unstable();
    let dumped = output(folder.path(), &["dump", "--db", "many"]);
    let mut lines: Vec<&str> = dumped.lines().collect();
    lines.sort_unstable();
    assert!(lines == sorted);
    let trig = output(folder.path(), &["dump", "--db", "many", "--format", "trig"]);
    fs::write(folder.path().join("graphs.trig"), trig).unwrap();
    let again = stoa(folder.path(), &["load", "--db", "many", "graphs.trig"]);
    assert!(text(&again.stderr).contains("0 quads and 0 terms were new"));
    output(folder.path(), &["check", "--db", "many"]);
}

/// Texts of queries that nest or repeat something many times, and whether they are deep.
fn large_queries(times: usize) -> Vec<(&'static str, String, bool)> {
    let nested = |open: &str, inside: &str, close: &str| {
        format!("{}{inside}{}", open.repeat(times), close.repeat(times))
    };
    let filter = |condition: String| format!("SELECT * {{ ?s ?p ?o FILTER({condition}) }}");
    let each = |between: &str, item: &dyn Fn(usize) -> String| {
        (0..times).map(item).collect::<Vec<_>>().join(between)
    };
    let select = |pattern: String| format!("SELECT * {{ ?s ?p ?o . {pattern} }}");
    vec![
        ("brackets", filter(nested("(", "true", ")")), true),
        ("not", filter(nested("!", "true", "")), true),
        ("functions", filter(nested("STR(", "?o", ")")), true),
        (
            "conditions",
            filter(nested("IF(true, ", "true", ", false)")),
            true,
        ),
        ("sums", filter(each(" + ", &|n| n.to_string())), true),
        (
            "groups",
            format!("SELECT * {}", nested("{", " ?s ?p ?o ", "}")),
            true,
        ),
        ("subqueries", nested("SELECT * { ", "?s ?p ?o", " }"), true),
        (
            "subqueries in groups",
            nested("SELECT * { { ", "?s ?p ?o", " } }"),
            true,
        ),
        (
            "optional",
            select(nested("OPTIONAL { ?s ?p ?o ", "", "}")),
            true,
        ),
        (
            "optionals",
            select("OPTIONAL { ?s ?p ?o } ".repeat(times)),
            false,
        ),
        ("minus", select(nested("MINUS { ?s ?p ?o ", "", "}")), true),
        (
            "exists",
            select(nested("FILTER EXISTS { ?s ?p ?o ", "", "}")),
            true,
        ),
        ("graph", select(nested("GRAPH ?g { ", "", "}")), true),
        (
            "blank nodes",
            select(format!("?s ?p {} .", nested("[ ?p ", "1", "]"))),
            true,
        ),
        (
            "lists",
            select(format!("?s ?p {} .", nested("(", "1", ")"))),
            true,
        ),
        (
            "triple terms",
            select(format!(
                "?s ?p {} .",
                nested("<<( <http://a/s> <http://a/p> ", "1", " )>>")
            )),
            true,
        ),
        (
            "paths",
            format!("SELECT * {{ ?s {} ?o }}", nested("(", "<http://a/p>", ")")),
            true,
        ),
        (
            "unions",
            format!(
                "SELECT * {{ {} }}",
                each(" UNION ", &|_| "{ ?s ?p ?o }".to_owned())
            ),
            false,
        ),
        ("or", filter(each(" || ", &|n| format!("?o = {n}"))), false),
        (
            "and",
            filter(each(" && ", &|n| format!("?o != {n}"))),
            false,
        ),
        ("filters", select("FILTER(?o != 1) ".repeat(times)), false),
        (
            "in",
            filter(format!("?o IN ({})", each(", ", &|n| n.to_string()))),
            false,
        ),
        (
            "values",
            select(format!("VALUES ?x {{ {} }}", each(" ", &|n| n.to_string()))),
            false,
        ),
    ]
}

#[test]
fn a_query_nested_ten_thousand_deep_is_refused() {
    let folder = loaded();
    let file = folder.path().join("deep.rq");
    let query = ["query", "--db", "db", "-f", "deep.rq"];
    for (name, text, is_deep) in large_queries(10_000) {
        eprintln!("{name}");
        fs::write(&file, text).unwrap();
        if is_deep {
            assert_fails(
                folder.path(),
                &query,
                1,
                &["nesting of the query", "limit of 1000"],
            );
        } else {
            // A chain of ten thousand is long, not deep.
            output(folder.path(), &query);
        }
    }
    // What people write is answered.
    for (name, text, _) in large_queries(40) {
        eprintln!("{name}");
        fs::write(&file, text).unwrap();
        output(folder.path(), &query);
    }
    // Nothing follows the opening brackets: a syntax error, or too deep before that is seen.
    for open in ["{", "(", "[", "SELECT * {"] {
        fs::write(&file, format!("SELECT * {{ {}", open.repeat(10_000))).unwrap();
        assert_fails(folder.path(), &query, 1, &[]);
    }
}

fn many_lines(count: u64) -> String {
    let mut lines = String::new();
    for n in 0..count {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(lines, "<http://a/s{n}> <http://a/p> \"{noise:x}\" .").unwrap();
    }
    lines
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn a_failed_first_load_leaves_nothing_behind() {
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("one.nt"), ONE).unwrap();
    fs::write(folder.path().join("bad.nt"), "bad\n").unwrap();
    let load = |name| stoa(folder.path(), &["load", "--db", "db", name]);
    assert_failed(
        &load("bad.nt"),
        1,
        &["bad.nt", "line 1, column 1", "no database was made in db"],
    );
    assert!(!folder.path().join("db").exists());
    // A folder that was there stays, empty as it was.
    fs::create_dir(folder.path().join("db")).unwrap();
    assert_failed(&load("bad.nt"), 1, &["no database was made in db"]);
    assert_eq!(fs::read_dir(folder.path().join("db")).unwrap().count(), 0);
    assert!(load("one.nt").status.success());
    assert_eq!(dump(folder.path()), ONE);
    assert!(no_temporary_files(folder.path()));
}

fn no_temporary_files(folder: &Path) -> bool {
    fs::read_dir(folder.join("db/tmp")).is_ok_and(|mut files| files.next().is_none())
}
