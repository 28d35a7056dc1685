//! The binary as a user meets it: exit codes, messages, and what a failed load leaves behind.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{self, assert_failed, dump, loaded, output, stoa, text};

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
fn a_load_goes_on_when_nobody_reads_what_it_says() {
    let folder = loaded();
    std::fs::write(folder.path().join("two.nt"), "<a:s> <a:p> <a:o> .\n").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = support::command(folder.path())
        .args(["load", "--db", "db", "two.nt"])
        .stderr(writer)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(dump(folder.path()).lines().count(), 2);
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

#[test]
fn a_checkpoint_and_what_info_tells_of_the_log() {
    let folder = loaded();
    let folder = folder.path();
    let checkpoint = stoa(folder, &["checkpoint", "--db", "db"]);
    assert!(checkpoint.status.success());
    assert!(text(&checkpoint.stderr).contains("held all of commit 1 already"));
    let info = output(folder, &["info", "--db", "db"]);
    let log = info.lines().find(|line| line.starts_with("log ")).unwrap();
    assert!(log.contains("behind the checkpoint of commit 1"), "{log}");
    let absent = stoa(folder, &["checkpoint", "--db", "absent"]);
    assert_failed(&absent, 1, &["absent is not a database"]);
    assert!(!folder.join("absent").exists());
    let wrong = stoa(folder, &["serve", "--db", "db", "--durability", "none"]);
    assert_failed(&wrong, 2, &["full or relaxed"]);
}
