//! The binary as a user meets it: exit codes, messages, and what a failed load leaves behind.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn stoa(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
    command
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a database of one triple in `db`.
fn loaded() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(
        folder.path().join("one.nt"),
        "<http://a/s> <http://a/p> \"o\" .\n",
    )
    .unwrap();
    let output = stoa(folder.path(), &["load", "--db", "db", "one.nt"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder
}

fn dump(folder: &Path) -> String {
    let output = stoa(folder, &["dump", "--db", "db"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_dump_equals_the_load_and_loading_again_adds_nothing() {
    let folder = loaded();
    assert_eq!(dump(folder.path()), "<http://a/s> <http://a/p> \"o\" .\n");
    let again = stoa(folder.path(), &["load", "--db", "db", "one.nt"]);
    assert!(text(&again.stderr).contains("0 quads and 0 terms were new"));
    let check = stoa(folder.path(), &["check", "--db", "db"]);
    assert!(check.status.success() && text(&check.stderr).contains("all is well"));
}

#[test]
fn a_damaged_input_changes_nothing_and_says_where() {
    let folder = loaded();
    let good = "<http://a/s> <http://a/p> \"x\" .\n";
    let mut gzip = stored_gzip(good);
    gzip.truncate(gzip.len() - 10);
    let cases: [(&str, Vec<u8>, &str); 5] = [
        (
            "syntax.nt",
            format!("{good}<http://a/s> nonsense .\n").into_bytes(),
            "line 2, column",
        ),
        (
            "space.nt",
            b"<http://a/s> <http://a/p> <http://a/o o> .\n".to_vec(),
            "line 1, column",
        ),
        (
            "utf8.nt",
            b"<http://a/s> <http://a/p> \"\xff\xfe\" .\n".to_vec(),
            "line 1",
        ),
        (
            "turtle.ttl",
            b"@prefix : <http://a/> .\n:s :p :o ;; .\n:s :p\n".to_vec(),
            "line",
        ),
        ("cut.nt.gz", gzip, "cut.nt.gz"),
    ];
    for (name, bytes, place) in cases {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let output = stoa(folder.path(), &["load", "--db", "db", "one.nt", name]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {message}");
        assert!(
            message.contains(name) && message.contains(place),
            "{name}: {message}"
        );
        assert_eq!(dump(folder.path()), "<http://a/s> <http://a/p> \"o\" .\n");
    }
}

#[test]
fn a_missing_file_and_wrong_usage_are_told_apart() {
    let folder = loaded();
    for (arguments, code, part) in [
        (vec!["load", "--db", "db", "none.nt"], 1, "none.nt"),
        (
            vec!["load", "--db", "db", "--format", "docx", "one.nt"],
            2,
            "nt, nq, ttl",
        ),
        (vec!["query", "--db", "nowhere", "ASK {}"], 1, "nowhere"),
        (vec!["query", "--db", "db", "SELECT"], 1, "line 1, column"),
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
            "csv",
        ),
        (vec!["query", "--db", "."], 2, "QUERY"),
    ] {
        let output = stoa(folder.path(), &arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
fn a_folder_with_other_files_is_refused_and_left_alone() {
    let folder = loaded();
    let other = folder.path().join("photos");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("me.jpg"), "x").unwrap();
    for arguments in [
        ["load", "--db", "photos", "one.nt"].as_slice(),
        ["info", "--db", "photos"].as_slice(),
    ] {
        assert_eq!(stoa(folder.path(), arguments).status.code(), Some(1));
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }
}

#[test]
fn a_query_nested_ten_thousand_deep_is_refused() {
    let folder = loaded();
    for depth in [40, 400, 10_000] {
        let query = format!(
            "SELECT * {} ?s ?p ?o {}",
            "{".repeat(depth),
            "}".repeat(depth)
        );
        std::fs::write(folder.path().join("deep.rq"), query).unwrap();
        let output = stoa(folder.path(), &["query", "--db", "db", "-f", "deep.rq"]);
        let code = if depth > 1_000 { 1 } else { 0 };
        assert_eq!(
            output.status.code(),
            Some(code),
            "{depth}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn standard_input_and_formats() {
    let folder = TempDir::new().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stoa"))
        .current_dir(folder.path())
        .args([
            "load",
            "--db",
            "db",
            "--format",
            "ttl",
            "--graph",
            "http://a/g",
            "-",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"<http://a/s> <http://a/p> 1, 2.50 .")
        .unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    let query = [
        "query",
        "--db",
        "db",
        "SELECT ?o { GRAPH ?g { ?s ?p ?o } } ORDER BY ?o",
    ];
    assert_eq!(
        text(&stoa(folder.path(), &query).stdout),
        "?o\n\"1\"^^<http://www.w3.org/2001/XMLSchema#integer>\n\
         \"2.50\"^^<http://www.w3.org/2001/XMLSchema#decimal>\n"
    );
    let csv = [query.as_slice(), &["--format", "csv"]].concat();
    assert_eq!(
        text(&stoa(folder.path(), &csv).stdout),
        "o\r\n1\r\n2.50\r\n"
    );
}

/// The start of a gzip file with one stored block; its checksum is never reached.
fn stored_gzip(content: &str) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    bytes.extend(length.to_le_bytes());
    bytes.extend((!length).to_le_bytes());
    bytes.extend(content.as_bytes());
    bytes.extend([0; 8]);
    bytes
}
