//! What transactions of the workloads read and wrote must be serializable; with validation switched off it is
//! not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use oxrdf::Quad;
use oxttl::NQuadsParser;
use stoa_database::{
    Database, Error, QueryOptions, QueryResult, Transaction, TransactionOptions, UpdateOptions,
};
use stoa_testsuite::oracle::differential::{CONFIGURATIONS, configuration};
use stoa_testsuite::scratch::Scratch;
use stoa_testsuite::serializability::{Objects, cycle};
use stoa_testsuite::workloads::{
    Random, Row, Session, WORKLOADS, World, appends, check_end, interleaved, threads,
};

/// Transactions of the library.
struct InProcess<'a> {
    database: &'a Database,
    unvalidated: bool,
    drawn: &'a Drawn,
}

/// The configurations in which transactions have asked.
#[derive(Default)]
struct Drawn(Mutex<BTreeSet<usize>>);

impl Drawn {
    fn check_all(&self) {
        let missing: Vec<_> = (0..CONFIGURATIONS)
            .filter(|number| !self.0.lock().unwrap().contains(number))
            .map(|number| configuration(number).0)
            .collect();
        assert!(missing.is_empty(), "never drawn: {missing:?}");
    }
}

impl World for InProcess<'_> {
    type Session<'a>
        = Running<'a>
    where
        Self: 'a;

    fn begin(&self) -> Running<'_> {
        let options = TransactionOptions {
            unvalidated: self.unvalidated,
        };
        Running {
            transaction: self.database.begin(&options).unwrap(),
            drawn: self.drawn,
        }
    }

    fn holds(&self, text: &str) -> bool {
        let answer = self.database.query(text, &QueryOptions::default());
        matches!(answer.unwrap(), QueryResult::Boolean(true))
    }
}

struct Running<'a> {
    transaction: Transaction,
    drawn: &'a Drawn,
}

fn quads(text: &str) -> Vec<Quad> {
    let quads = NQuadsParser::new().for_slice(text);
    quads.map(Result::unwrap).collect()
}

fn rows(result: QueryResult) -> Vec<Row> {
    let QueryResult::Solutions(solutions) = result else {
        unreachable!("SELECT has solutions");
    };
    let variables = solutions.variables().iter();
    let variables: Vec<String> = variables.map(|name| name.as_str().to_owned()).collect();
    let rows = solutions.map(|solution| -> BTreeMap<String, String> {
        let solution = solution.unwrap();
        let terms = variables.iter();
        terms
            .filter_map(|name| Some((name.clone(), solution.get(name)?.to_string())))
            .collect()
    });
    rows.collect()
}

impl Session for Running<'_> {
    fn ask(&mut self, text: &str, random: &mut Random) -> Vec<Row> {
        let number = usize::try_from(random.below(CONFIGURATIONS as u64)).unwrap();
        self.drawn.0.lock().unwrap().insert(number);
        let (_, options) = configuration(number);
        rows(self.transaction.query(text, &options).unwrap())
    }

    fn remove(&mut self, text: &str) {
        self.transaction
            .remove(&mut quads(text).into_iter())
            .unwrap();
    }

    fn insert(&mut self, text: &str) {
        self.transaction
            .insert(&mut quads(text).into_iter())
            .unwrap();
    }

    fn commit(self) -> Option<u64> {
        match self.transaction.commit() {
            Ok(summary) => Some(summary.commit),
            Err(Error::Conflict { what, .. }) => {
                assert!(!what.is_empty());
                None
            }
            Err(error) => unreachable!("{error}"),
        }
    }
}

#[test]
fn interleaved_transactions_are_serializable() {
    let drawn = Drawn::default();
    for workload in WORKLOADS {
        let mut conflicts = 0;
        for seed in 0..4 {
            let scratch = Scratch::new();
            let world = InProcess {
                database: scratch.database(),
                unvalidated: false,
                drawn: &drawn,
            };
            let outcome = interleaved(&world, workload, seed, 150);
            check_end(&world, workload);
            let found = outcome.cycle(workload.objects());
            assert!(found.is_none(), "{workload:?}, seed {seed}: {found:?}");
            assert!(outcome.history.len() > 40, "{workload:?}");
            conflicts += outcome.conflicts;
        }
        assert!(conflicts > 10, "{workload:?}: {conflicts}");
    }
    drawn.check_all();
}

#[test]
fn without_validation_there_are_cycles() {
    for workload in WORKLOADS {
        let scratch = Scratch::new();
        let world = InProcess {
            database: scratch.database(),
            unvalidated: true,
            drawn: &Drawn::default(),
        };
        let outcome = interleaved(&world, workload, 1, 150);
        assert_eq!(outcome.conflicts, 0);
        assert!(outcome.cycle(workload.objects()).is_some(), "{workload:?}");
    }
}

#[test]
fn transactions_of_several_threads_are_serializable() {
    let drawn = Drawn::default();
    for workload in WORKLOADS {
        let scratch = Scratch::new();
        let world = InProcess {
            database: scratch.database(),
            unvalidated: false,
            drawn: &drawn,
        };
        let outcome = threads(&world, workload, 60);
        check_end(&world, workload);
        let found = outcome.cycle(workload.objects());
        assert!(found.is_none(), "{workload:?}: {found:?}");
        assert!(
            outcome.history.len() > 60,
            "{workload:?}: {} conflicts",
            outcome.conflicts
        );
    }
    drawn.check_all();
}

#[test]
fn requests_of_several_threads_are_serializable() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let update = |text: &str| {
        let done = database.update(text, &UpdateOptions::default());
        done.unwrap().commit
    };
    let ask = |text: &str| rows(database.query(text, &QueryOptions::default()).unwrap());
    let history = appends(&update, &ask, 60);
    assert_eq!(history.len(), 240);
    assert_eq!(cycle(&history, Objects::Sets), None);
    let seen: usize = history
        .iter()
        .flat_map(|ended| &ended.reads)
        .map(|(_, found)| found.len())
        .sum();
    assert!(seen > 1_000, "{seen}");
}
