//! Patches that change more than memory holds, and commits as large that are undone: as by a model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use stoa_database::{
    Access, CancelHandle, CompactOptions, Database, DumpFormat, Error, Input, LoadOptions,
    OpenOptions, PatchOptions, PatchSummary, Retention, Runtime, RuntimeOptions, UpdateOptions,
};

/// A transaction takes some 10 MB for the changes of this many quads.
const ITEMS: usize = 40_000;

const MEMORY: u64 = 32 << 20;

/// The lines of a dump.
type State = BTreeSet<String>;

struct World {
    database: Database,
    folder: tempfile::TempDir,
}

/// A database with the triples [`item`], with little memory.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(MEMORY),
        threads: Some(2),
        ..RuntimeOptions::default()
    });
    let open = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime.unwrap(), folder.path().join("db"), &open).unwrap();
    database.set_retention(Retention::All).unwrap();
    let lines: Vec<String> = (0..ITEMS).map(|n| item("p", n)).collect();
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("items.nq", lines.join("\n"))],
        memory_bytes: Some(MEMORY),
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    World { database, folder }
}

fn item(predicate: &str, n: usize) -> String {
    format!("<http://a/s/{n}> <http://a/{predicate}> \"item {n}\" .")
}

impl World {
    fn state(&self) -> State {
        let mut text = Vec::new();
        self.database
            .dump(DumpFormat::NQuads, &mut text, &CancelHandle::new())
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn apply(&self, patch: &str, strict: bool) -> Result<PatchSummary, Error> {
        let options = PatchOptions {
            strict,
            ..PatchOptions::default()
        };
        self.database
            .apply_patch(&Input::from_bytes("one.rdfp", patch), &options)
    }

    /// Applies a patch that goes in bulk, which tells nothing else than a model.
    fn assert_applied(&self, patch: &str, strict: bool) -> PatchSummary {
        let before = self.state();
        let expected = applied(&before, patch);
        let done = self.apply(patch, strict).unwrap();
        assert!(self.state() == expected, "another state");
        let count = |one: &State, other: &State| one.difference(other).count() as u64;
        assert_eq!(done.added, count(&expected, &before));
        assert_eq!(done.removed, count(&before, &expected));
        assert!(self.last_is_bulk());
        done
    }

    fn last_is_bulk(&self) -> bool {
        let mut last = None;
        let mut each = |info| {
            last = Some(info);
            Ok(false)
        };
        self.database.commits(&mut each).unwrap();
        last.unwrap().is_load
    }

    fn assert_sound(&self) {
        let report = self.database.check(&(), &CancelHandle::new()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let temporary = self.folder.path().join("db/tmp");
        let left = std::fs::read_dir(temporary).map_or(0, |files| files.count());
        assert_eq!(left, 0, "temporary files are left");
    }
}

/// What a patch makes of a state, row by row.
fn applied(state: &State, patch: &str) -> State {
    let (mut state, mut begun) = (state.clone(), None);
    for line in patch.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("A", quad) => drop(state.insert(quad.to_owned())),
            ("D", quad) => drop(state.remove(quad)),
            ("TX", _) => begun = Some(state.clone()),
            ("TA", _) => state = begun.take().unwrap(),
            _ => {}
        }
    }
    state
}

/// Rows that put one predicate in the place of another one.
fn renamed(from: &str, to: &str) -> String {
    let mut rows = String::new();
    for n in 0..ITEMS {
        writeln!(rows, "D {}\nA {}", item(from, n), item(to, n)).unwrap();
    }
    rows
}

#[test]
fn the_last_row_about_a_quad_counts_however_far_the_first_is() {
    let world = world();
    let mut patch = format!("TX .\n{}", renamed("p", "q"));
    // Added and removed again, removed and added again, and both.
    for n in (0..ITEMS).step_by(1000) {
        writeln!(patch, "D {}", item("q", n)).unwrap();
        writeln!(patch, "A {}", item("p", n + 1)).unwrap();
        writeln!(patch, "A {}", item("new", n)).unwrap();
    }
    patch.push_str(&renamed("none", "r"));
    for n in (0..ITEMS).step_by(500) {
        writeln!(patch, "D {}", item("new", n)).unwrap();
        writeln!(patch, "A {}", item("q", n)).unwrap();
    }
    patch.push_str("TC .\n");
    world.assert_applied(&patch, false);
    world.assert_sound();
}

#[test]
fn transactions_that_are_taken_back_are_left_out() {
    let world = world();
    let text = [
        "TX .\n",
        &renamed("p", "q"),
        "TC .\nTX .\n",
        &renamed("q", "r"),
        "TA .\nTX .\nA <http://a/s> <http://a/p> 1 .\nTC .\nTX .\n",
        &item("p", 1),
        "TX",
    ]
    .concat();
    let text = text
        .replace("TX .\n<", "TX .\nD <")
        .replace(".TX", ".\nTA .\n");
    let text = text.replace("<http://a/p> 1 .", "<http://a/p> \"1\" .");
    let done = world.assert_applied(&text, false);
    assert_eq!((done.added, done.removed), (ITEMS as u64 + 1, ITEMS as u64));
    assert_eq!(done.unchanged, 0);
    world.assert_sound();
}

#[test]
fn each_row_of_a_strict_patch_must_have_an_effect() {
    let world = world();
    let plain = renamed("p", "q");
    for row in [
        format!("A {}", item("q", 1)),
        format!("D {}", item("p", 1)),
        format!("D {}", item("none", 1)),
        format!("A {}\nA {}", item("new", 1), item("new", 1)),
    ] {
        let before = world.state();
        let patch = format!("TX .\n{plain}{}{row}\nTC .\n", renamed("q", "r"));
        let patch = match row.contains("/q>") {
            true => format!("TX .\n{plain}{row}\nTC .\n"),
            false => patch,
        };
        let refused = world.apply(&patch, true);
        let is_one = matches!(&refused, Err(Error::PatchConflict { quads: 1, examples, .. }) if examples.len() == 1);
        // Twice in one batch is once.
        assert!(is_one || row.contains("new"), "{refused:?}");
        if is_one {
            assert_eq!(world.database.commit(), 1);
            assert!(world.state() == before);
        }
    }
    let done = world.assert_applied(&format!("TX .\n{}{}TC .\n", renamed("r", "p"), ""), false);
    assert!(done.added > 0);
    world.assert_sound();
}

#[test]
fn a_difference_leads_there_and_back() {
    let (one, two) = (world(), world());
    let text =
        "PREFIX : <http://a/> DELETE { ?s :p ?o } INSERT { ?s :q ?o, [] } WHERE { ?s :p ?o }";
    one.database
        .update(text, &UpdateOptions::default())
        .unwrap();
    assert!(one.last_is_bulk());
    let (earlier, later) = (two.state(), one.state());
    // Labels of another database are new nodes.
    let moments = [1, 2].map(stoa_database::Moment::Commit);
    let cancel = CancelHandle::new();
    let mut patch = one
        .database
        .diff(&moments[0], &moments[1], &cancel)
        .unwrap();
    let mut text = Vec::new();
    while patch.step(&mut text).unwrap() {}
    let text = String::from_utf8(text).unwrap();
    let done = two.apply(&text, true).unwrap();
    assert_eq!((done.added, done.removed), (2 * ITEMS as u64, ITEMS as u64));
    assert_eq!(two.state().len(), later.len());
    assert!(two.last_is_bulk());
    for world in [&one, &two] {
        let done = world.database.revert(&[2], false, &PatchOptions::default());
        let done = done.unwrap();
        assert_eq!((done.added, done.removed), (ITEMS as u64, 2 * ITEMS as u64));
        assert_eq!((done.commit, done.unchanged), (3, 0));
        assert!(world.last_is_bulk());
        assert!(world.state() == earlier);
        world.assert_sound();
    }
}

#[test]
fn large_commits_are_undone_unless_later_ones_have_changed_them() {
    let world = world();
    let earlier = world.state();
    let update = |text: &str| {
        let text = format!("PREFIX : <http://a/> {text}");
        world.database.update(&text, &UpdateOptions::default())
    };
    update("DELETE { ?s :p ?o } INSERT { ?s :q ?o } WHERE { ?s :p ?o }").unwrap();
    update("DELETE DATA { <http://a/s/5> :q 'item 5' }").unwrap();
    let options = PatchOptions::default();
    let refused = world.database.revert(&[2], false, &options);
    let Err(Error::PatchConflict {
        is_revert: true,
        quads: 1,
        examples,
    }) = &refused
    else {
        unreachable!("{refused:?}");
    };
    assert!(examples[0].contains(&item("q", 5)), "{examples:?}");
    assert_eq!(world.database.commit(), 3);
    let compaction = CompactOptions::default();
    world.database.compact(&compaction).unwrap();
    let done = world.database.revert(&[2, 3], false, &options).unwrap();
    assert_eq!((done.added, done.removed), (ITEMS as u64, ITEMS as u64 - 1));
    assert!(world.state() == earlier);
    // What has no effect any more is passed over.
    update("DELETE DATA { <http://a/s/5> :p 'item 5' }").unwrap();
    let done = world.database.revert(&[4], true, &options).unwrap();
    assert_eq!(done.unchanged, 1);
    assert_eq!(world.database.quads(), ITEMS as u64 - 1);
    world.assert_sound();
}
