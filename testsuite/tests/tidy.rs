//! Checks of the repository itself: layering, headers, lengths, names, paths in documents.
//!
//! What a tool checks stays true; the rules are those of CONTRIBUTING.md.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Which crates each crate may depend on, dev-dependencies included.
const LAYERS: [(&str, &[&str]); 7] = [
    ("terms", &[]),
    ("storage", &[]),
    ("quadstore", &["terms", "storage"]),
    ("planner", &["terms"]),
    ("executor", &["terms", "planner", "quadstore", "storage"]),
    (
        "database",
        &["terms", "storage", "quadstore", "planner", "executor"],
    ),
    // Tests of the server send it inputs that fuzz makes.
    ("server", &["database", "fuzz"]),
];

/// Files that may contain `unsafe`, each for a reason that stands in its header.
const UNSAFE_FILES: [&str; 2] = ["crates/storage/src/disk/uring.rs", "fuzz/src/allocator.rs"];

/// Files that take locks of the standard library: a disk for tests, and a type that callers make.
const STANDARD_LOCK_FILES: [&str; 2] = [
    "crates/storage/src/disk/simulated.rs",
    "crates/database/src/load/mod.rs",
];

/// Other names of our concepts; no type is called so.
const BANNED_TYPE_NAMES: [&str; 11] = [
    "Vocab",
    "Vocabulary",
    "Journal",
    "SeqNo",
    "Superblock",
    "Overlay",
    "SsTable",
    "Chunk",
    "Tuple",
    "Fact",
    "Manager",
];

const FILE_LINES_MAX: usize = 1_500;
const INLINE_TEST_LINES_MAX: usize = 150;
const ARCHITECTURE_LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// The files below the root that are ours and end in one of `extensions`, with their texts.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "node_modules", "corpus", "db"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|e| extensions.contains(&&*e.to_string_lossy()))
            {
                let relative = path
                    .strip_prefix(root())
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.push((relative, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Fails with all complaints at once.
fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn crates_depend_only_on_those_below() {
    let mut complaints = Vec::new();
    let dependency = Regex::new(r"(?m)^stoa-([a-z]+)\b").unwrap();
    let mut seen = BTreeSet::new();
    for (name, allowed) in LAYERS {
        seen.insert(name.to_owned());
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for found in dependency.captures_iter(&manifest) {
            let other = &found[1];
            if other != name && !allowed.contains(&other) {
                complaints.push(format!(
                    "crates/{name}/Cargo.toml: may not depend on {other}"
                ));
            }
        }
        if !manifest.contains("publish.workspace = true") {
            complaints.push(format!("crates/{name}/Cargo.toml: must not be published"));
        }
    }
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !seen.contains(&name) {
            complaints.push(format!("crates/{name}: not in the table of layers"));
        }
    }
    report(&complaints);
}

#[test]
fn every_file_says_what_it_is_and_is_not_too_long() {
    let mut complaints = Vec::new();
    for (path, text) in files(&["rs"]) {
        if !text.starts_with("//! ") {
            complaints.push(format!(
                "{path}: the first line is a module header, //! ..."
            ));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            complaints.push(format!("{path}: {lines} lines, at most {FILE_LINES_MAX}"));
        }
        if let Some(at) = text.find("#[cfg(test)]\nmod tests {") {
            let tests = text[at..].lines().count();
            if tests > INLINE_TEST_LINES_MAX {
                complaints.push(format!(
                    "{path}: {tests} lines of tests: move them to a tests.rs"
                ));
            }
        }
    }
    report(&complaints);
}

#[test]
fn sources_are_ascii_and_hold_no_leftovers() {
    let mut complaints = Vec::new();
    let open = concat!("TO", "DO");
    for (path, text) in files(&["rs", "toml"]) {
        for (index, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", index + 1);
            if !line.is_ascii() {
                complaints.push(format!("{place}: write characters beyond ASCII as escapes"));
            }
            if line.contains(open) && !line.contains('#') {
                complaints.push(format!(
                    "{place}: an open point carries the link of its issue"
                ));
            }
        }
    }
    report(&complaints);
}

#[test]
fn unsafe_code_stays_where_it_is_listed() {
    let mut complaints = Vec::new();
    let block = Regex::new(r"\bunsafe\s*(\{|fn|impl)").unwrap();
    for (path, text) in files(&["rs"]) {
        let is_comment = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<&str> = text.lines().filter(is_comment).collect();
        let listed = UNSAFE_FILES.contains(&path.as_str()) || path.ends_with("tidy.rs");
        if !listed && block.is_match(&code.join("\n")) {
            complaints.push(format!("{path}: unsafe code, but the file is not listed"));
        }
    }
    for file in ["planner/src/lib.rs", "database/src/lib.rs"] {
        let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
        if !text.contains("#![forbid(unsafe_code)]") {
            complaints.push(format!("crates/{file}: forbid(unsafe_code) is missing"));
        }
    }
    report(&complaints);
}

#[test]
fn locks_are_those_that_can_be_counted() {
    let taken =
        r"(?m)^use std::sync::(?:\{[^}]*\b(?:Mutex|RwLock|Condvar)\b|(?:Mutex|RwLock|Condvar);)";
    let taken = Regex::new(taken).unwrap();
    let product = Regex::new("^crates/(storage|quadstore|executor|database|server)/src/").unwrap();
    let mut complaints = Vec::new();
    for (path, text) in files(&["rs"]) {
        let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
        let listed = STANDARD_LOCK_FILES.contains(&path.as_str());
        if product.is_match(&path) && !is_test && !listed && taken.is_match(&text) {
            complaints.push(format!(
                "{path}: take locks from stoa_storage::sync, which counts them"
            ));
        }
    }
    report(&complaints);
}

/// Cargo does not look for tests by itself, so a file that nothing names would never run.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let mut complaints = Vec::new();
    let sources = files(&["rs", "toml"]);
    let text_of = |path: &str| {
        let found = sources.iter().find(|(other, _)| other == path);
        found.map_or("", |(_, text)| text.as_str())
    };
    for (path, text) in &sources {
        let Some(package) = path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        if !text.contains("autotests = false") {
            continue;
        }
        let folder = format!("{package}/tests/");
        let programs: Vec<&str> = ["main.rs", "fuzz.rs"]
            .map(|name| text_of(&format!("{folder}{name}")))
            .into();
        for (file, _) in &sources {
            let name = file.strip_prefix(&folder).unwrap_or("/");
            let Some(name) = name.strip_suffix(".rs").filter(|name| !name.contains('/')) else {
                continue;
            };
            let module = format!("mod {name};\n");
            let is_program = name == "main" || text.contains(&format!("name = \"{name}\""));
            if !is_program && !programs.iter().any(|program| program.contains(&module)) {
                complaints.push(format!("{file}: no program of tests has it; see main.rs"));
            }
        }
    }
    report(&complaints);
}

#[test]
fn one_word_for_each_concept() {
    let definition = r"(?m)^\s*(?:pub(?:\([a-z]+\))? )?(?:struct|enum|trait|type) ([A-Za-z0-9]+)";
    let definition = Regex::new(definition).unwrap();
    let mut complaints = Vec::new();
    for (path, text) in files(&["rs"]) {
        for found in definition.captures_iter(&text) {
            let name = &found[1];
            if BANNED_TYPE_NAMES.contains(&name) {
                complaints.push(format!(
                    "{path}: {name} is another name of one of our concepts"
                ));
            }
        }
    }
    report(&complaints);
}

#[test]
fn paths_in_documents_exist() {
    let path = r"\b(?:crates|docs|testsuite|bench|demo|fuzz)/[A-Za-z0-9_./-]*[A-Za-z0-9_]";
    let path = Regex::new(path).unwrap();
    let mut complaints = Vec::new();
    for (document, text) in files(&["md"]) {
        // A decision is not edited when the code moves on.
        if document.starts_with("docs/design/") {
            continue;
        }
        for found in path.find_iter(&text) {
            if !root().join(found.as_str()).exists() && found.as_str() != "demo/db" {
                complaints.push(format!("{document}: {} does not exist", found.as_str()));
            }
        }
    }
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    if architecture.lines().count() > ARCHITECTURE_LINES_MAX {
        complaints.push("ARCHITECTURE.md: too long".to_owned());
    }
    report(&complaints);
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(root().join("docs/design")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let number: Option<usize> = name.split('-').next().and_then(|n| n.parse().ok());
        let number = number.unwrap_or_else(|| panic!("docs/design/{name}: NNNN-title.md"));
        assert!(
            numbers.insert(number),
            "docs/design/{name}: its number is taken"
        );
    }
    assert_eq!(
        numbers,
        (1..=numbers.len()).collect(),
        "a number is left out"
    );
}
