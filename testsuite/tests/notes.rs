//! Notes on the queries of the W3C: they are right, so each note on one must be explained.
//!
//! All notes on variables stand in `testsuite/w3c-notes.txt` (`UPDATE=1` writes them; read the diff).
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stoa_database::{
    Access, Database, NoteKind, OpenOptions, QueryOptions, Runtime, RuntimeOptions,
};
use stoa_testsuite::data;

fn queries(root: &Path) -> Vec<PathBuf> {
    let mut open = vec![root.join("sparql")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rq") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn queries_that_are_right_have_no_notes_but_those_explained() {
    let Some(root) = data::w3c() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let options = QueryOptions {
        base: Some("http://example.org/".to_owned()),
        ..QueryOptions::default()
    };
    let (mut told, mut prepared, mut noted) = (String::new(), 0, 0);
    for path in queries(&root) {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        // Queries that must be refused are among them.
        let Ok(query) = database.prepare(&text, &options) else {
            continue;
        };
        prepared += 1;
        let of_variables = query
            .notes()
            .iter()
            .filter(|note| note.kind == NoteKind::UnboundVariable);
        let notes: Vec<&str> = of_variables.map(|note| note.message.as_str()).collect();
        noted += usize::from(!notes.is_empty());
        for note in notes {
            let name = path.strip_prefix(&root).unwrap().display();
            writeln!(told, "{name}: {note}").unwrap();
        }
    }
    println!("{noted} of {prepared} queries have notes on variables");
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("w3c-notes.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&record, &told).unwrap();
    }
    assert!(prepared > 700, "only {prepared} queries were read");
    let recorded = std::fs::read_to_string(&record).unwrap_or_default();
    assert!(told == recorded, "not as in w3c-notes.txt:\n{told}");
}
