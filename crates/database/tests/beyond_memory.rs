//! Updates that change more than memory holds: they go through temporary files, and do what small ones do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use stoa_database::federation::{Fetch, FetchRequest, Response};
use stoa_database::oxrdf::{NamedNode, Term};
use stoa_database::{
    Access, CancelHandle, CommitInfo, CommitSummary, Database, Error, FeedStep, Input, LoadOptions,
    Moment, OpenOptions, PatchOptions, QueryOptions, QueryResult, Retention, Runtime,
    RuntimeOptions, StatementPattern, TransactionOptions, UpdateOptions,
};

/// A transaction takes some 30 MB for the changes of this many quads.
const ITEMS: usize = 100_000;

const MEMORY: u64 = 32 << 20;

struct World {
    database: Database,
    cancel: CancelHandle,
    folder: tempfile::TempDir,
}

/// A database with [`ITEMS`] triples `:s :p N`, with little memory.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for n in 0..ITEMS {
        writeln!(lines, "<http://a/s/{n}> <http://a/p> {n} .").unwrap();
    }
    let cancel = CancelHandle::new();
    let database = open(&folder, &cancel, MEMORY);
    database.set_retention(Retention::All).unwrap();
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("items.ttl", lines)],
        memory_bytes: Some(MEMORY),
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    World {
        database,
        cancel,
        folder,
    }
}

fn open(folder: &tempfile::TempDir, cancel: &CancelHandle, memory_bytes: u64) -> Database {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(memory_bytes),
        threads: Some(2),
        load: Some(Arc::new(Documents(cancel.clone()))),
        ..RuntimeOptions::default()
    });
    let open = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    Database::open(&runtime.unwrap(), folder.path().join("db"), &open).unwrap()
}

/// A document of three triples at any address but those that end in `damaged`; one that ends in `cancel` cancels.
#[derive(Debug)]
struct Documents(CancelHandle);

impl Fetch for Documents {
    fn fetch(&self, request: FetchRequest, response: Response) {
        let body = match request.url.ends_with("damaged") {
            true => "<http://a/d> <http://a/p> 1 . <http://a/d> oops",
            false => "<http://a/d> <http://a/p> 1, 2, 3 .",
        };
        if request.url.ends_with("cancel") {
            self.0.cancel();
        }
        let read = move || response.read(Some("text/turtle"), Cursor::new(body.as_bytes()));
        std::thread::Builder::new().spawn(read).unwrap();
    }
}

impl World {
    fn try_update(&self, text: &str) -> Result<CommitSummary, Error> {
        let text = format!("PREFIX : <http://a/>\n{text}");
        let options = UpdateOptions {
            cancel: self.cancel.clone(),
            ..UpdateOptions::default()
        };
        self.database.update(&text, &options)
    }

    /// What it added and removed.
    fn update(&self, text: &str) -> (u64, u64) {
        let before = self.database.commit();
        let summary = self.try_update(text).unwrap();
        assert_eq!(summary.commit, before + 1);
        assert_eq!(self.database.commit(), summary.commit);
        (summary.added, summary.removed)
    }

    fn last_commit(&self) -> CommitInfo {
        let mut last = None;
        let mut each = |info| {
            last = Some(info);
            Ok(false)
        };
        self.database.commits(&mut each).unwrap();
        last.unwrap()
    }

    fn count_at(&self, at: Option<u64>, pattern: &str) -> u64 {
        let text = format!("PREFIX : <http://a/> SELECT (COUNT(*) AS ?n) {{ {pattern} }}");
        let options = QueryOptions {
            at: at.map(Moment::Commit),
            ..QueryOptions::default()
        };
        let QueryResult::Solutions(mut rows) = self.database.query(&text, &options).unwrap() else {
            unreachable!("a SELECT has solutions");
        };
        let row = rows.next().unwrap().unwrap();
        match row.get("n").unwrap() {
            Term::Literal(number) => number.value().parse().unwrap(),
            other => unreachable!("a count is {other}"),
        }
    }

    fn reopened(self, memory_bytes: u64) -> Self {
        let Self {
            database,
            cancel,
            folder,
        } = self;
        drop(database);
        Self {
            database: open(&folder, &cancel, memory_bytes),
            cancel,
            folder,
        }
    }

    fn assert_sound(&self) {
        let report = self.database.check(&(), &CancelHandle::new()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let temporary = self.folder.path().join("db/tmp");
        let left = std::fs::read_dir(temporary).map_or(0, |files| files.count());
        assert_eq!(left, 0, "temporary files are left");
    }

    fn count(&self, pattern: &str) -> u64 {
        self.count_at(None, pattern)
    }
}

const ALL: u64 = ITEMS as u64;

#[test]
fn quads_are_exchanged_and_the_state_before_is_kept() {
    let world = world();
    let text = "DELETE { ?s :p ?n } INSERT { ?s :q ?n ; :text ?text } \
                WHERE { ?s :p ?n BIND(CONCAT('item ', STR(?n)) AS ?text) }";
    assert_eq!(world.update(text), (2 * ALL, ALL));
    assert!(world.last_commit().is_load);
    assert_eq!(world.count("?s :p ?n"), 0);
    assert_eq!(world.count("?s :q ?n"), ALL);
    let joined = "?s :q ?n ; :text ?text FILTER(?text = CONCAT('item ', STR(?n)))";
    assert_eq!(world.count(joined), ALL);
    assert_eq!(world.count_at(Some(1), "?s :p ?n"), ALL);
    assert_eq!(world.count_at(Some(1), "?s :q ?n"), 0);
    // It is found again, and small updates go on as ever.
    let world = world.reopened(MEMORY);
    world.assert_sound();
    assert_eq!(world.count("?s ?p ?o"), 2 * ALL);
    assert_eq!(
        world.update("INSERT DATA { <http://a/s/1> :q 1 , 'new' }"),
        (1, 0)
    );
    assert!(!world.last_commit().is_load);
}

#[test]
fn operations_see_what_those_before_them_did_and_counts_are_net() {
    let world = world();
    let text = "INSERT { GRAPH :g { ?s :q ?n } } WHERE { ?s :p ?n } ;
                COPY :g TO :h ;
                DELETE { GRAPH :h { ?s :q ?n } } INSERT { GRAPH :h { ?s :r ?m } }
                WHERE { GRAPH :h { ?s :q ?n } FILTER(?n < 60000) BIND(?n + 1 AS ?m) } ;
                DROP GRAPH :g ;
                DELETE DATA { :one :p 0 } ;
                INSERT DATA { :two :p 0 } ;
                DELETE DATA { :two :p 0 } ;
                CREATE GRAPH :empty ;
                INSERT DATA { :one :p 0 , 'x' } ;
                LOAD <http://docs/document> ;
                LOAD SILENT <http://docs/damaged> ;
                DELETE DATA { <http://a/s/0> :p 0 . :nothing :p 'y' }";
    assert_eq!(world.update(text), (ALL + 5, 1));
    assert_eq!(world.count("GRAPH :h { ?s :q ?n }"), ALL - 60_000);
    assert_eq!(world.count("GRAPH :h { ?s :r ?n }"), 60_000);
    assert_eq!(world.count("GRAPH :g { ?s ?p ?n }"), 0);
    assert_eq!(world.count("?s :p ?n"), ALL + 4);
    let transaction = world.database.begin(&TransactionOptions::default());
    assert_eq!(transaction.unwrap().graph_names().unwrap().len(), 2);
    // And back again, by moving.
    let text =
        "MOVE :h TO :empty ; CLEAR DEFAULT ; INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }";
    assert_eq!(world.update(text), (2 * ALL, 2 * ALL + 4));
    assert_eq!(world.count("?s ?p ?o"), ALL);
    assert_eq!(world.count("GRAPH :empty { ?s ?p ?o }"), ALL);
}

#[test]
fn blank_nodes_are_as_many_as_the_pattern_says() {
    let world = world();
    let text = "INSERT { ?s :node [ :of ?s ] ; :same ?b } \
                WHERE { { SELECT ?s (BNODE(STR(?k)) AS ?b) { ?s :p ?n BIND(?n / 1000 AS ?k) } } }";
    assert_eq!(world.update(text), (3 * ALL, 0));
    assert_eq!(world.count("{ SELECT DISTINCT ?b { ?s :node ?b } }"), ALL);
    assert_eq!(world.count("?s :node [ :of ?s ]"), ALL);
    assert_eq!(world.count("{ SELECT DISTINCT ?b { ?s :same ?b } }"), ALL);
}

#[test]
fn triple_terms_are_made_and_found_again() {
    let world = world();
    let insert =
        "INSERT { ?s :says <<( ?s :p ?text )>> } WHERE { ?s :p ?n BIND(STR(?n) AS ?text) }";
    assert_eq!(world.update(insert), (ALL, 0));
    assert_eq!(world.count("?s :says <<( ?s :p ?text )>>"), ALL);
    let delete = "DELETE { ?s :says <<( ?s :p ?text )>> } INSERT { ?s :said ?text } \
                  WHERE { ?s :p ?n BIND(STR(?n) AS ?text) }";
    assert_eq!(world.update(delete), (ALL, ALL));
    assert_eq!(world.count("?s :says ?o"), 0);
}

#[test]
fn an_error_behind_it_leaves_nothing() {
    let world = world();
    let text =
        "DELETE { ?s :p ?n } INSERT { ?s :q ?n } WHERE { ?s :p ?n } ; LOAD <http://docs/damaged>";
    assert!(matches!(world.try_update(text), Err(Error::Data(_))));
    assert_eq!(world.database.commit(), 1);
    assert_eq!(world.count("?s :p ?n"), ALL);
    let text = "DELETE { ?s :p ?n } INSERT { ?s :q ?n } WHERE { ?s :p ?n } ; CLEAR GRAPH :none";
    assert!(matches!(
        world.try_update(text),
        Err(Error::NoSuchGraph { .. })
    ));
    assert_eq!(world.database.commit(), 1);
    assert_eq!(world.count("?s ?p ?n"), ALL);
}

#[test]
fn it_ends_when_it_is_cancelled_or_its_time_is_up() {
    let world = world();
    let text = "INSERT { ?s :q ?n } WHERE { ?s :p ?n } ; LOAD <http://docs/cancel> ; \
                INSERT { ?s :r ?n } WHERE { ?s :q ?n }";
    let ended = world.try_update(text);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    world.assert_sound();
    let options = UpdateOptions {
        timeout: Some(Duration::from_secs(2)),
        ..UpdateOptions::default()
    };
    let text = "PREFIX : <http://a/> INSERT { ?s :q ?x } WHERE { ?s :p ?n . ?t :p ?m BIND(?n + ?m AS ?x) }";
    let ended = world.database.update(text, &options);
    assert!(matches!(ended, Err(Error::Timeout)), "{ended:?}");
    assert_eq!(world.database.commit(), 1);
    world.assert_sound();
    let insert = "PREFIX : <http://a/> INSERT DATA { :a :b :c }";
    let summary = world.database.update(insert, &UpdateOptions::default());
    assert_eq!(summary.unwrap().commit, 2);
    assert_eq!(world.count("?s ?p ?o"), ALL + 1);
}

#[test]
fn others_read_meanwhile_and_their_commits_come_before_or_behind() {
    let world = world();
    let text = "DELETE { ?s :p ?n } INSERT { ?s :q ?n } WHERE { ?s :p ?n }";
    std::thread::scope(|scope| {
        let world = &world;
        let large = scope.spawn(move || world.try_update(text).unwrap());
        let mut commits = 0;
        while !large.is_finished() {
            let one = format!("INSERT DATA {{ :other :p {commits} }}");
            world.try_update(&one).unwrap();
            commits += 1;
            let all = world.count("?s :p|:q ?n");
            assert!(all >= ALL && all <= ALL + commits + 1);
        }
        let summary = large.join().unwrap();
        // All that was there when it was made went with it.
        assert_eq!(summary.added, summary.removed);
        assert_eq!(world.count("?s :q ?n"), summary.added);
        assert_eq!(world.count("?s :p|:q ?n"), ALL + commits);
    });
}

#[test]
fn a_transaction_of_a_client_still_says_that_memory_ends() {
    let world = world();
    let mut transaction = world
        .database
        .begin(&TransactionOptions::default())
        .unwrap();
    let text = "PREFIX : <http://a/> INSERT { ?s :q ?n ; :r ?n ; :t ?n } WHERE { ?s :p ?n }";
    let done = transaction.update(text, &UpdateOptions::default());
    assert!(
        matches!(done, Err(Error::MemoryExceeded { .. })),
        "{done:?}"
    );
}

#[test]
fn its_commit_is_listed_and_told_as_any_other() {
    let world = world();
    let text = "DELETE { ?s :p ?n } INSERT { ?s :q ?n } WHERE { ?s :p ?n FILTER(?n < 20000) } ; \
                INSERT { ?s :r ?n } WHERE { ?s :p ?n }";
    assert_eq!(world.update(text), (ALL, 20_000));
    let info = world.last_commit();
    assert_eq!((info.commit, info.added, info.removed), (2, ALL, 20_000));
    let (mut feed, mut lines) = (world.database.changes(1).unwrap(), Vec::new());
    while feed.step(&mut lines).unwrap() != FeedStep::Ended {}
    let rows = |start: &str| {
        let text = std::str::from_utf8(&lines).unwrap();
        text.lines().filter(|line| line.starts_with(start)).count()
    };
    assert_eq!((rows("A "), rows("D ")), (ITEMS, 20_000));
}

#[test]
fn a_large_commit_is_undone_unless_a_later_one_changed_it() {
    let world = world();
    assert_eq!(
        world.update("DELETE { ?s :p ?n } INSERT { ?s :q ?n } WHERE { ?s :p ?n }"),
        (ALL, ALL)
    );
    let database = &world.database;
    world.update("DELETE DATA { <http://a/s/7> :q 7 } ; INSERT DATA { <http://a/s/8> :p 8 }");
    let refused = database.revert(&[2], false, &PatchOptions::default());
    let Err(Error::PatchConflict {
        is_revert: true,
        quads: 2,
        examples,
    }) = refused
    else {
        unreachable!("{refused:?}");
    };
    let seven = "not there: <http://a/s/7> <http://a/q> \"7\"^^<http://www.w3.org/2001/XMLSchema#integer> .";
    assert!(examples.iter().any(|one| one == seven), "{examples:?}");
    let done = database
        .revert(&[2], true, &PatchOptions::default())
        .unwrap();
    assert_eq!(
        (done.added, done.removed, done.unchanged),
        (ALL - 1, ALL - 1, 2)
    );
    assert_eq!((world.count("?s :p ?n"), world.count("?s :q ?n")), (ALL, 0));
    // All three, and what undid them, from the newest on.
    let done = database
        .revert(&[4, 3, 2], false, &PatchOptions::default())
        .unwrap();
    assert_eq!((done.commit, done.added, done.removed), (5, 0, 0));
    assert_eq!(world.last_commit().message.as_deref(), Some("revert 4 3 2"));
    world.assert_sound();
}

#[test]
fn statements_of_a_pattern_are_removed_however_many_they_are() {
    let world = world().reopened(MEMORY / 2);
    let pattern = StatementPattern {
        predicate: Some(NamedNode::new_unchecked("http://a/p")),
        ..StatementPattern::default()
    };
    world.update("INSERT DATA { :s :q 1 }");
    let removed = world
        .database
        .remove_statements(&pattern, &CancelHandle::new());
    assert_eq!(removed.unwrap().removed, ALL);
    assert!(world.last_commit().is_load);
    assert_eq!(world.count("?s ?p ?o"), 1);
    world.assert_sound();
}
