//! EXPLAIN and EXPLAIN ANALYZE in the library.

use stoa_database::{
    Access, Database, Input, LoadOptions, OpenOptions, QueryOptions, Runtime, RuntimeOptions, Step,
};

#[test]
fn operators_tell_what_they_did_if_they_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let data = "<http://a/1> <http://a/p> 1 .\n<http://a/2> <http://a/p> 2 .\n<http://a/2> <http://a/q> 3 .\n";
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", data)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    let text = "SELECT * { ?s <http://a/p> ?o OPTIONAL { ?s <http://a/q> ?r } FILTER(?o > 1) }";
    let run = |timed| {
        let options = QueryOptions {
            timed,
            plans: false,
            ..QueryOptions::default()
        };
        let mut query = database.prepare(text, &options).unwrap();
        let before = query.analysis().unwrap();
        let mut rows = 0;
        loop {
            match query.next().unwrap() {
                Step::Batch(batch) => rows += batch.rows,
                Step::Yield => (),
                Step::Done => break,
            }
        }
        assert_eq!(rows, 1);
        (query.explain(), before, query.analysis().unwrap())
    };
    let (plan, before, after) = run(false);
    assert_eq!(plan, before.to_string());
    assert_eq!(plan, after.to_string());
    assert!(!after.to_json().contains("running_ms"));

    let (same, before, after) = run(true);
    assert_eq!(plan, same);
    assert!(before.to_string().contains("never run"), "{before}");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (plan, told) = (lines(&plan), lines(&after.to_string()));
    // The plan, each operator with what it did, and two lines with the sums.
    assert_eq!(told.len(), plan.len() + 2);
    for (told, plan) in told.iter().zip(&plan) {
        assert!(told.starts_with(plan), "{told}");
    }
    assert!(told[1].contains("actual=1 ms="), "{after}");
    let scan = told.iter().find(|line| line.contains("index_scan"));
    assert!(scan.unwrap().contains("actual="), "{after}");
    let sums = &told[told.len() - 2];
    assert!(sums.contains(" ms, threads 1, memory "), "{after}");
    assert!(sums.ends_with("on disk 0 bytes"), "{after}");
    assert!(after.memory_peak_bytes > 0, "{after}");
    assert!(!after.running.is_zero());
    let json = after.to_json();
    assert!(
        json.contains("\"rows\":1") && json.contains("\"planning_ms\""),
        "{json}"
    );
}
