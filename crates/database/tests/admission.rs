//! Queries that find no memory to begin wait for their turn.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails, and has threads of its own"
)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use stoa_database::{
    Access, CancelHandle, Clock, Database, Error, Input, LoadOptions, OpenOptions, Query,
    QueryOptions, QueryResult, Result, Runtime, RuntimeOptions, Step, TransactionOptions,
    UpdateOptions,
};

/// So often is looked whether queries wait: for half a minute or so.
const LOOKS_MAX: usize = 50_000_000;

/// Subjects of the data.
const SUBJECTS: usize = 4_000;

struct Store {
    runtime: Runtime,
    database: Database,
    _folder: tempfile::TempDir,
}

/// Goes on when it is told to.
#[derive(Debug, Default)]
struct Minutes(AtomicU64);

impl Clock for Minutes {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(60 * self.0.load(Ordering::Relaxed))
    }

    fn now(&self) -> Duration {
        self.monotonic()
    }
}

fn store(wait: Duration) -> Store {
    store_with(wait, None)
}

/// With as little memory as there may be.
fn store_with(wait: Duration, clock: Option<Arc<dyn Clock>>) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(16 << 20),
        threads: Some(2),
        memory_wait: Some(wait),
        clock,
        ..RuntimeOptions::default()
    })
    .unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let mut data = String::new();
    for n in 0..SUBJECTS {
        let group = n % 40;
        writeln!(
            data,
            "<http://a/s{n}> <http://a/group> <http://a/g{group}> ."
        )
        .unwrap();
    }
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.nt", data)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    Store {
        runtime,
        database,
        _folder: folder,
    }
}

const NEVER: Duration = Duration::MAX;

/// A query with the largest grant there is: an eighth of the memory.
fn wide() -> String {
    let keys: String = (0..40).fold(String::new(), |mut keys, n| {
        write!(keys, " CONCAT(STR(?s), \"{n}\")").unwrap();
        keys
    });
    format!("SELECT ?s {{ ?s <http://a/group> <http://a/g1> }} ORDER BY{keys}")
}

impl Store {
    fn prepare(&self, text: &str) -> Query {
        self.database
            .prepare(text, &QueryOptions::default())
            .unwrap()
    }

    /// So many that grants have their half of the memory.
    fn fill(&self) -> Vec<Query> {
        let begin = |_| {
            let mut query = self.prepare(&wide());
            assert!(query.poll(Waker::noop()).unwrap().is_ready());
            query
        };
        let queries = (0..4).map(begin).collect();
        assert_eq!(self.runtime.queries_waiting(), 0);
        queries
    }

    /// Does something on another thread, up to where it waits, and then something on this one.
    fn beside<T: Send>(&self, work: impl FnOnce(&Database) -> T + Send, then: impl FnOnce()) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| work(&self.database));
            self.until_waiting(1);
            then();
            work.join().unwrap()
        })
    }

    fn until_waiting(&self, count: usize) {
        until(|| self.runtime.queries_waiting() == count);
    }
}

fn until(is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("what is waited for does not come");
}

fn count(result: QueryResult) -> Result<usize> {
    match result {
        QueryResult::Solutions(solutions) => {
            let solutions: Result<Vec<_>> = solutions.collect();
            Ok(solutions?.len())
        }
        _ => panic!("no solutions"),
    }
}

fn ask(database: &Database, text: &str, options: &QueryOptions) -> Result<usize> {
    count(database.query(text, options)?)
}

#[test]
fn all_finish_though_few_begin_at_once() {
    let store = store(NEVER);
    let rows = SUBJECTS * SUBJECTS / 40 / 8;
    let pairs = "?a <http://a/group> ?g . ?b <http://a/group> ?g";
    let pairs = format!("{{ SELECT * {{ {pairs} }} LIMIT {rows} }}");
    let wide = wide();
    let texts = [
        format!("SELECT * {{ {pairs} }} ORDER BY ?b ?a"),
        format!("SELECT DISTINCT ?a ?b {{ {pairs} }}"),
        format!("SELECT ?a ?b (COUNT(*) AS ?n) {{ {pairs} }} GROUP BY ?a ?b"),
        wide,
    ];
    let counts = [rows, rows, rows, SUBJECTS / 40];
    let first = store.fill();
    let each = 3;
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for _ in 0..each {
            for (text, count) in texts.iter().zip(counts) {
                let database = &store.database;
                let asked = move || ask(database, text, &QueryOptions::default());
                all.push((count, text, scope.spawn(asked)));
            }
        }
        store.until_waiting(each * texts.len());
        drop(first);
        for (count, text, query) in all {
            let found = query.join().unwrap();
            assert_eq!(found.unwrap(), count, "{text}");
        }
    });
    assert_eq!(store.runtime.queries_waiting(), 0);
    assert!(store.runtime.memory_used_bytes() <= store.runtime.memory_bytes());
}

#[test]
fn turns_come_in_the_order_of_asking() {
    let store = store(NEVER);
    let mut first = store.fill();
    let mut waiting: Vec<_> = (0..3).map(|_| store.prepare(&wide())).collect();
    let is_waiting = |query: &mut Query| query.poll(Waker::noop()).unwrap().is_pending();
    assert!(waiting.iter_mut().all(is_waiting));
    let told = || -> Vec<bool> {
        let queries = store.runtime.queries();
        queries.iter().map(|query| query.is_waiting).collect()
    };
    assert_eq!(told(), [false, false, false, false, true, true, true]);
    for left in (0..3).rev() {
        drop(first.pop());
        assert_eq!(store.runtime.queries_waiting(), left);
        // Whoever looks first, it is the turn of the one that came first.
        let (next, others) = waiting.split_first_mut().unwrap();
        assert!(others.iter_mut().all(is_waiting));
        assert!(!is_waiting(next));
        first.insert(0, waiting.remove(0));
    }
}

#[test]
fn what_holds_nothing_does_not_wait() {
    let store = store(NEVER);
    let first = store.fill();
    let mut waiting = store.prepare(&wide());
    assert!(waiting.poll(Waker::noop()).unwrap().is_pending());
    let one = "SELECT * { <http://a/s1> <http://a/group> ?g }";
    let options = QueryOptions::default();
    assert_eq!(ask(&store.database, one, &options).unwrap(), 1);
    let all = "SELECT * { ?s <http://a/group> ?g }";
    assert_eq!(ask(&store.database, all, &options).unwrap(), SUBJECTS);
    assert!(waiting.poll(Waker::noop()).unwrap().is_pending());
    drop(first);
    assert!(waiting.poll(Waker::noop()).unwrap().is_ready());
}

#[test]
fn what_was_prepared_keeps_nobody() {
    let store = store(Duration::from_millis(1));
    let idle: Vec<_> = (0..8).map(|_| store.prepare(&wide())).collect();
    let found = ask(&store.database, &wide(), &QueryOptions::default());
    assert_eq!(found.unwrap(), SUBJECTS / 40);
    for query in idle {
        assert_eq!(count(query.run().unwrap()).unwrap(), SUBJECTS / 40);
    }
}

#[test]
fn a_thread_that_holds_open_results_does_not_hang() {
    let store = store(Duration::from_millis(1));
    let first = store.fill();
    let error = ask(&store.database, &wide(), &QueryOptions::default()).unwrap_err();
    let told = error.to_string();
    assert!(
        matches!(error, Error::NotAdmitted { waiting: 0, .. }) && told.contains("--memory-wait"),
        "{told}"
    );
    drop(first);
    let found = ask(&store.database, &wide(), &QueryOptions::default());
    assert_eq!(found.unwrap(), SUBJECTS / 40);
}

#[test]
fn who_waits_can_be_ended() {
    let store = store(NEVER);
    let first = store.fill();
    let options = QueryOptions {
        timeout: Some(Duration::from_millis(1)),
        ..QueryOptions::default()
    };
    let mut late = store
        .database
        .prepare(&wide(), &QueryOptions::default())
        .unwrap();
    assert!(late.poll(Waker::noop()).unwrap().is_pending());
    // Its time is up while it is planned, or while it waits behind the other.
    let error = ask(&store.database, &wide(), &options).unwrap_err();
    assert!(matches!(error, Error::Timeout), "{error}");
    drop(late);

    let cancel = CancelHandle::new();
    let options = QueryOptions {
        cancel: cancel.clone(),
        ..QueryOptions::default()
    };
    let cancelled = store.beside(
        |database| ask(database, &wide(), &options),
        || cancel.cancel(),
    );
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    let ended = store.beside(
        |database| ask(database, &wide(), &QueryOptions::default()),
        || {
            let queries = store.runtime.queries();
            let waiting = queries.iter().find(|query| query.is_waiting).unwrap();
            assert!(store.runtime.end_query(waiting.id));
        },
    );
    assert!(matches!(ended, Err(Error::Cancelled)));
    assert_eq!(store.runtime.queries_waiting(), 0);
    drop(first);
}

#[test]
fn updates_wait_and_keep_nobody() {
    let store = store(NEVER);
    let first = store.fill();
    let text = format!(
        "INSERT {{ ?s <http://a/found> true }} WHERE {{ {{ {} LIMIT 1000000 }} }}",
        wide()
    );
    let options = UpdateOptions::default();
    let updated = store.beside(
        |database| database.update(&text, &options),
        || {
            let queries = store.runtime.queries();
            let update = queries.iter().find(|query| query.is_update).unwrap();
            assert!(update.is_waiting);
            // Others commit meanwhile.
            let other = "INSERT DATA { <http://a/x> <http://a/y> <http://a/z> }";
            store.database.update(other, &options).unwrap();
            drop(first);
        },
    );
    updated.unwrap();
    let found = "SELECT * { ?s <http://a/found> true }";
    let found = ask(&store.database, found, &QueryOptions::default());
    assert_eq!(found.unwrap(), SUBJECTS / 40);

    let first = store.fill();
    let mut transaction = store
        .database
        .begin(&TransactionOptions::default())
        .unwrap();
    transaction
        .update(
            "DELETE DATA { <http://a/x> <http://a/y> <http://a/z> }",
            &options,
        )
        .unwrap();
    let committed = store.beside(
        move |_| {
            let found = transaction.query(&wide(), &QueryOptions::default());
            let found = found.and_then(count)?;
            transaction.commit().map(|_| found)
        },
        || drop(first),
    );
    assert_eq!(committed.unwrap(), SUBJECTS / 40);
}

#[test]
fn an_update_waits_no_longer_than_a_query() {
    let store = store(Duration::from_millis(1));
    let first = store.fill();
    let text = format!(
        "DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o {{ {} LIMIT 9 }} }}",
        wide()
    );
    let before = store.database.commit();
    let error = store.database.update(&text, &UpdateOptions::default());
    assert!(matches!(error, Err(Error::NotAdmitted { .. })));
    assert_eq!(store.database.commit(), before);
    drop(first);
    store
        .database
        .update(&text, &UpdateOptions::default())
        .unwrap();
}

#[test]
fn the_operations_of_an_update_wait_no_longer_together() {
    let clock = Arc::new(Minutes::default());
    let store = store_with(
        Duration::from_secs(3600),
        Some(Arc::<Minutes>::clone(&clock)),
    );
    let first = store.fill();
    let operation = format!(
        "INSERT {{ ?s <http://a/found> true }} WHERE {{ {{ {} LIMIT 1000000 }} }}",
        wide()
    );
    let text = format!("{operation} ; {operation}");
    let before = store.database.commit();
    let is_waiting = |query: &mut Query| query.poll(Waker::noop()).unwrap().is_pending();
    let updated = std::thread::scope(|scope| {
        let update = || store.database.update(&text, &UpdateOptions::default());
        let update = scope.spawn(update);
        store.until_waiting(1);
        // They come between the first operation and the second one.
        let mut others: Vec<_> = (0..4).map(|_| store.prepare(&wide())).collect();
        assert!(others.iter_mut().all(is_waiting));
        clock.0.fetch_add(40, Ordering::Relaxed);
        drop(first);
        let waits = |is_update| {
            let queries = store.runtime.queries();
            let mut queries = queries.iter();
            queries.any(|query| query.is_update == is_update && query.is_waiting)
        };
        until(|| waits(true) && !waits(false));
        clock.0.fetch_add(40, Ordering::Relaxed);
        until(|| update.is_finished());
        drop(others);
        update.join().unwrap()
    });
    let Err(Error::NotAdmitted { waited, .. }) = updated else {
        panic!("{updated:?}");
    };
    assert_eq!(waited, Duration::from_secs(80 * 60));
    assert_eq!(store.database.commit(), before);
}

#[test]
fn how_long_a_query_waited_is_told() {
    let store = store(NEVER);
    let first = store.fill();
    let options = QueryOptions {
        timed: true,
        ..QueryOptions::default()
    };
    let mut query = store.database.prepare(&wide(), &options).unwrap();
    assert!(query.poll(Waker::noop()).unwrap().is_pending());
    drop(first);
    while !matches!(query.poll(Waker::noop()).unwrap(), Poll::Ready(Step::Done)) {}
    let analysis = query.analysis().unwrap();
    assert!(!analysis.waited.is_zero());
    assert!(
        analysis.to_string().ends_with("ms for memory\n"),
        "{analysis}"
    );
    assert!(analysis.to_json().contains("\"waited_ms\":"));
}
