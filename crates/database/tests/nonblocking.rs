//! What is done on a thread that must not block, and what is refused there.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoa_database::{
    Access, Clock, Database, Input, IoCalls, LoadOptions, OpenOptions, QueryOptions, QueryResult,
    Runtime, RuntimeOptions, UpdateOptions, nonblocking,
};
use tempfile::TempDir;

/// A clock that goes on by so many microseconds whenever somebody looks.
#[derive(Debug, Default)]
struct Ticks {
    now_us: AtomicU64,
    step_us: AtomicU64,
}

impl Clock for Ticks {
    fn monotonic(&self) -> Duration {
        let step_us = self.step_us.load(Ordering::Relaxed);
        Duration::from_micros(self.now_us.fetch_add(step_us, Ordering::Relaxed))
    }

    fn now(&self) -> Duration {
        self.monotonic()
    }
}

/// An open database, and the clock of its runtime, which stands still at first.
struct Opened {
    database: Database,
    clock: Arc<Ticks>,
    _folder: TempDir,
}

impl Opened {
    fn update(&self, text: &str) -> u64 {
        let done = self.database.update(text, &UpdateOptions::default());
        done.unwrap().commit
    }

    /// The commit of an update on a thread that must not block; `None` if it was refused.
    fn update_at_once(&self, text: &str) -> Option<u64> {
        let submit = || self.database.submit_update(text, &UpdateOptions::default());
        let before = self.database.commit();
        let submitted = nonblocking::run(submit);
        // What was refused is not committed in secret.
        let next = self.update(
            "INSERT DATA { <http://z/next> <http://z/next> ?next }"
                .replace("?next", &before.to_string())
                .as_str(),
        );
        assert_eq!(next, before + 1 + u64::from(submitted.is_some()));
        submitted.map(|submitted| submitted.unwrap().wait().unwrap().commit)
    }

    fn ask(&self, text: &str) -> Option<bool> {
        let ask = || self.database.query(text, &QueryOptions::default());
        match nonblocking::run(ask)?.unwrap() {
            QueryResult::Boolean(answer) => Some(answer),
            _ => None,
        }
    }
}

/// A database of so many quads that was just opened: nothing is in memory but what one small commit needs.
fn open(quads: usize) -> Opened {
    let folder = TempDir::new().unwrap();
    let clock = Arc::new(Ticks::default());
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(64 << 20),
        threads: Some(1),
        seed: Some(1),
        clock: Some(Arc::clone(&clock) as Arc<dyn Clock>),
        // What the operating system has in memory is read from the disk all the same.
        io: IoCalls::Pread,
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let path = folder.path().join("db");
    if quads > 0 {
        let lines: String = (0..quads)
            .map(|n| format!("<http://a/s{n}> <http://a/p> \"the value of number {n}\" .\n"))
            .collect();
        let load = LoadOptions {
            inputs: vec![Input::from_bytes("data.nt", lines)],
            ..LoadOptions::default()
        };
        let database = Database::open(&runtime, &path, &options).unwrap();
        database.load(load, &()).unwrap();
    }
    let opened = Opened {
        database: Database::open(&runtime, &path, &options).unwrap(),
        clock,
        _folder: folder,
    };
    opened.update("INSERT DATA { <http://z/s> <http://z/p> <http://z/o> }");
    opened
}

#[test]
fn what_is_in_memory_is_changed_at_once() {
    let opened = open(0);
    for update in [
        "INSERT DATA { <http://a/s> <http://a/p> 1, 2 }",
        "DELETE DATA { <http://a/s> <http://a/p> 1 }",
        "DELETE { ?s ?p 2 } INSERT { ?s ?p 3 } WHERE { ?s ?p 2 }",
    ] {
        let before = opened.database.commit();
        assert_eq!(opened.update_at_once(update), Some(before + 1), "{update}");
    }
    assert_eq!(opened.ask("ASK { <http://a/s> ?p 3 }"), Some(true));
    assert_eq!(opened.ask("ASK { <http://a/s> ?p 2 }"), Some(false));
}

#[test]
fn what_has_to_be_read_is_refused_and_changes_nothing() {
    for update in [
        "INSERT DATA { <http://a/s40000> <http://a/p> <http://a/new> }",
        "DELETE DATA { <http://a/s40000> <http://a/p> \"the value of number 40000\" }",
        "DELETE WHERE { <http://a/s40000> ?p ?o }",
        "DELETE { ?s ?p ?o } INSERT { ?s ?p 1 } WHERE { ?s ?p ?o FILTER(?s = <http://a/s40000>) }",
    ] {
        let opened = open(60_000);
        assert_eq!(opened.update_at_once(update), None, "{update}");
        // Where it may block it goes through; what others like it need is in memory then.
        let commit = opened.update(update);
        assert_eq!(commit, opened.database.commit());
        let again = update.replace("40000", "40001");
        assert_eq!(opened.update_at_once(&again), Some(commit + 1), "{again}");
    }
    let opened = open(60_000);
    let ask = "ASK { <http://a/s40000> ?p ?o }";
    assert_eq!(opened.ask(ask), None);
    opened
        .database
        .query(ask, &QueryOptions::default())
        .unwrap();
    assert_eq!(opened.ask(ask), Some(true));
}

#[test]
fn what_may_take_long_is_refused() {
    let opened = open(0);
    for update in [
        "CLEAR ALL",
        "CREATE GRAPH <http://a/g>",
        "COPY DEFAULT TO <http://a/g>",
        "LOAD <http://127.0.0.1:1/nothing>",
        "INSERT DATA { <http://a/s> <http://a/p> 1 } ; CLEAR DEFAULT",
    ] {
        assert_eq!(opened.update_at_once(update), None, "{update}");
    }
    let refused = |query: &str| {
        let prepare = || opened.database.prepare(query, &QueryOptions::default());
        nonblocking::run(prepare).is_none()
    };
    let nested = format!("ASK {{ {}{} }}", "{".repeat(200), "}".repeat(200));
    let retried = format!("ASK {{ FILTER({}true{}) }}", "!(".repeat(9), ")".repeat(9));
    for query in [
        &nested,
        &retried,
        "ASK { ?s ?p ?o",
        "ASK { ?s ?p ?o FILTER(REGEX(?o, '(a*)*b')) }",
        "ASK { ?s <http://z/q> ?o }",
    ] {
        assert!(refused(query), "{query}");
    }
    assert!(!refused("ASK { ?s <http://z/p> ?o }"));
}

#[test]
fn what_takes_long_is_refused() {
    let opened = open(0);
    let data: String = (0..2_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> {n} . "))
        .collect();
    opened.update(&format!("INSERT DATA {{ {data} }}"));
    let delete = "DELETE WHERE { ?s <http://a/p> ?o }";
    opened.clock.step_us.store(200, Ordering::Relaxed);
    assert_eq!(opened.update_at_once(delete), None);
    let many = "INSERT DATA { <http://a/s> <http://a/q> 1 } ; ".repeat(20);
    assert_eq!(opened.update_at_once(&many), None);
    let run = || {
        let mut query = opened
            .database
            .prepare("SELECT * { ?s ?p ?o }", &QueryOptions::default())?;
        while !matches!(query.next()?, stoa_executor::Step::Done) {}
        Ok::<_, stoa_database::Error>(())
    };
    assert!(nonblocking::run(run).is_none());
    run().unwrap();
    // While the clock stands still there is no end to patience, but for what is appended to the log.
    opened.clock.step_us.store(0, Ordering::Relaxed);
    assert!(matches!(nonblocking::run(run), Some(Ok(()))));
    let next = opened.database.commit() + 1;
    assert_eq!(opened.update_at_once(&many), Some(next));
}
