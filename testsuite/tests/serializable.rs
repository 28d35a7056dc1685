//! Workloads that show what goes wrong between transactions: appends to lists, registers, transfers between
//! accounts, write skew, reservation of seats, some of it with terms that nobody used before. What the
//! transactions read and wrote must be serializable; with validation switched off it is not.
//!
//! Transactions are interleaved by a seed on one thread, and run side by side on several.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, with small numbers"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use oxrdf::{GraphName, Literal, NamedNode, Quad, Term};
use stoa_database::{
    Database, Error, ForcedJoin, QueryOptions, QueryResult, Transaction, TransactionOptions,
};
use stoa_testsuite::scratch::Scratch;
use stoa_testsuite::serializability::{Ended, Objects, cycle};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Workload {
    ListAppend,
    Register,
    Bank,
    WriteSkew,
    Seats,
}

const WORKLOADS: [Workload; 5] = [
    Workload::ListAppend,
    Workload::Register,
    Workload::Bank,
    Workload::WriteSkew,
    Workload::Seats,
];

const KEYS: u64 = 8;
const ACCOUNTS: u64 = 12;
const DEPOSIT: i64 = 100;
/// Pairs of people on call, of whom one must be.
const PAIRS: u64 = 6;

impl Workload {
    fn objects(self) -> Objects {
        match self {
            Self::ListAppend | Self::Seats => Objects::Sets,
            Self::Register | Self::Bank | Self::WriteSkew => Objects::Registers,
        }
    }

    /// Objects that are there from the beginning, their amounts and their groups.
    fn initial(self) -> Vec<(String, i64, u64)> {
        match self {
            Self::ListAppend | Self::Seats => Vec::new(),
            Self::Register => (0..KEYS).map(|key| (key.to_string(), 0, 0)).collect(),
            Self::Bank => (0..ACCOUNTS)
                .map(|key| (key.to_string(), DEPOSIT, 0))
                .collect(),
            Self::WriteSkew => (0..2 * PAIRS)
                .map(|key| (key.to_string(), 1, key / 2))
                .collect(),
        }
    }
}

fn iri(kind: &str, name: impl std::fmt::Display) -> NamedNode {
    NamedNode::new(format!("urn:{kind}:{name}")).unwrap()
}

/// The last part of the IRI of a value or key.
fn name(term: &Term) -> String {
    let Term::NamedNode(iri) = term else {
        unreachable!("keys and values are IRIs");
    };
    iri.as_str().rsplit(':').next().unwrap().to_owned()
}

fn number(term: &Term) -> i64 {
    let Term::Literal(literal) = term else {
        unreachable!("amounts are numbers");
    };
    literal.value().parse().unwrap()
}

/// A transaction of a workload that is under way.
struct Running {
    transaction: Transaction,
    /// What its values begin with.
    number: u64,
    ended: Ended,
    /// Values and amounts of the objects that were read.
    found: BTreeMap<String, BTreeMap<u64, i64>>,
    phase: u64,
    keys: [String; 2],
}

impl Running {
    fn begin(
        database: &Database,
        workload: Workload,
        number: u64,
        random: &mut Random,
        unvalidated: bool,
    ) -> Self {
        let keys = match workload {
            Workload::ListAppend | Workload::Register => [random.below(KEYS), random.below(KEYS)],
            Workload::Bank => {
                let one = random.below(ACCOUNTS);
                [one, (one + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS]
            }
            Workload::WriteSkew => {
                let one = random.below(2 * PAIRS);
                [one, one ^ 1]
            }
            // A seat that nobody has heard of, before long.
            Workload::Seats => [number / 5, number / 5 + random.below(2)],
        };
        Self {
            transaction: database.begin(&TransactionOptions { unvalidated }).unwrap(),
            number,
            ended: Ended::default(),
            found: BTreeMap::new(),
            phase: 0,
            keys: keys.map(|key| key.to_string()),
        }
    }

    /// Does the next part of it; `false` if there is none.
    fn step(&mut self, workload: Workload, random: &mut Random) -> bool {
        self.phase += 1;
        let [one, two] = self.keys.clone();
        match (workload, self.phase) {
            (Workload::ListAppend | Workload::Register | Workload::Bank, 1) => {
                self.read(&one, workload, random);
            }
            (Workload::ListAppend | Workload::Register | Workload::Bank, 2) => {
                self.read(&two, workload, random);
            }
            (Workload::ListAppend, 3) => {
                let length = self.found[&two].len();
                self.write(&two, 0, i64::try_from(length).unwrap(), workload);
            }
            (Workload::Register, 3) => self.write(&two, 0, 0, workload),
            (Workload::Bank, 3) if random.below(4) == 0 => self.read_all(workload, random),
            (Workload::Bank, 3) => {
                let amount = i64::try_from(random.below(20)).unwrap();
                let (from, to) = (self.amount(&one), self.amount(&two));
                self.write(&one, 0, from - amount, workload);
                self.write(&two, 1, to + amount, workload);
            }
            (Workload::WriteSkew, 1) => self.read_pair(&one, random),
            (Workload::WriteSkew, 2) => {
                let on_call = self.amount(&one) + self.amount(&two);
                assert!((0..=2).contains(&on_call));
                let goes = on_call == 2;
                self.write(&one, 0, i64::from(!goes), workload);
            }
            (Workload::Seats, 1) => self.read(&one, workload, random),
            (Workload::Seats, 2) => {
                if self.found[&one].is_empty() {
                    self.write(&one, 0, 0, workload);
                }
                self.read(&two, workload, random);
            }
            (Workload::Seats, 3) => {
                if self.found[&two].is_empty() && one != two {
                    self.write(&two, 1, 0, workload);
                }
            }
            _ => return false,
        }
        true
    }

    fn amount(&self, key: &str) -> i64 {
        self.found[key].values().next().copied().unwrap_or(0)
    }

    /// The values of one object.
    fn read(&mut self, key: &str, workload: Workload, random: &mut Random) {
        if self.found.contains_key(key) {
            return;
        }
        let object = iri("key", key);
        let graph = iri("row", key);
        let pattern = match (workload, random.below(10)) {
            (Workload::Seats, _) => format!("GRAPH {graph} {{ {object} <urn:is> ?v }}"),
            (_, 0..=2) => format!("{object} <urn:is> ?v . ?v <urn:amount> ?a"),
            (_, 3..=5) => format!("{{ SELECT ?v {{ {object} <urn:is> ?v }} }} ?v <urn:amount> ?a"),
            (_, 6..=8) => format!("VALUES ?k {{ {object} }} ?k <urn:is> ?v . ?v <urn:amount> ?a"),
            // Reads all amounts.
            (_, _) => format!("?v <urn:amount> ?a FILTER EXISTS {{ {object} <urn:is> ?v }}"),
        };
        if workload == Workload::Seats && random.below(2) == 0 {
            // The number alone; only nothing says which values there are.
            let text = format!("SELECT (COUNT(*) AS ?v) {{ {pattern} }}");
            let count = number(&self.ask(&text, random)[0]["v"]);
            if count == 0 {
                self.note(key.to_owned(), BTreeMap::new());
                return;
            }
        }
        let found = self.ask(&format!("SELECT * {{ {pattern} }}"), random);
        let value = |row: &BTreeMap<String, Term>| {
            let amount = row.get("a").map_or(0, number);
            (name(&row["v"]).parse().unwrap(), amount)
        };
        self.note(key.to_owned(), found.iter().map(value).collect());
    }

    /// All objects with their values; those that were read already must be the same.
    fn read_all(&mut self, workload: Workload, random: &mut Random) {
        let text = "SELECT ?k ?v ?a { ?k <urn:is> ?v . ?v <urn:amount> ?a }";
        let rows = self.ask(text, random);
        let all = workload.initial().into_iter().map(|(key, ..)| key);
        self.take(all.collect(), &rows);
    }

    fn read_pair(&mut self, key: &str, random: &mut Random) {
        let object = iri("key", key);
        let text = format!(
            "SELECT ?k ?v ?a {{ {object} <urn:group> ?g . ?k <urn:group> ?g ; <urn:is> ?v .
             OPTIONAL {{ ?v <urn:amount> ?a }} }}"
        );
        let rows = self.ask(&text, random);
        self.take(self.keys.to_vec(), &rows);
    }

    fn take(&mut self, keys: Vec<String>, rows: &[BTreeMap<String, Term>]) {
        for key in keys {
            let of_key = rows.iter().filter(|row| name(&row["k"]) == key);
            let found = of_key.map(|row| (name(&row["v"]).parse().unwrap(), number(&row["a"])));
            self.note(key.clone(), found.collect());
        }
    }

    fn note(&mut self, key: String, found: BTreeMap<u64, i64>) {
        self.ended
            .reads
            .push((key.clone(), found.keys().copied().collect()));
        if let Some(before) = self.found.insert(key, found.clone()) {
            assert_eq!(before, found, "a transaction reads one state");
        }
    }

    fn ask(&self, text: &str, random: &mut Random) -> Vec<BTreeMap<String, Term>> {
        let joins = [
            None,
            Some(ForcedJoin::Merge),
            Some(ForcedJoin::Hash),
            Some(ForcedJoin::IndexNestedLoop),
        ];
        let options = QueryOptions {
            force_join: joins[usize::try_from(random.below(4)).unwrap()],
            naive: random.below(5) == 0,
            batch_rows: (random.below(4) == 0).then_some(3),
            ..QueryOptions::default()
        };
        let QueryResult::Solutions(solutions) = self.transaction.query(text, &options).unwrap()
        else {
            unreachable!("SELECT has solutions");
        };
        let variables = solutions.variables().iter();
        let variables: Vec<String> = variables.map(|name| name.as_str().to_owned()).collect();
        let rows = solutions.map(|solution| {
            let solution = solution.unwrap();
            let terms = variables.iter();
            terms
                .filter_map(|name| Some((name.clone(), solution.get(name)?.clone())))
                .collect()
        });
        rows.collect()
    }

    /// Writes a value: to a set it is added, in a register it takes the place of those that were read.
    fn write(&mut self, key: &str, place: u64, amount: i64, workload: Workload) {
        let value = self.number * 2 + place;
        let object = iri("key", key);
        let is = NamedNode::new("urn:is").unwrap();
        let graph: GraphName = match workload {
            Workload::Seats => iri("row", key).into(),
            _ => GraphName::DefaultGraph,
        };
        if workload.objects() == Objects::Registers {
            let old = self.found[key].keys().copied();
            let old = old.map(|old| {
                let value = iri("value", old);
                Quad::new(object.clone(), is.clone(), value, graph.clone())
            });
            let mut old: Vec<Quad> = old.collect();
            self.transaction.remove(&mut old.drain(..)).unwrap();
        }
        let quads = [
            Quad::new(object, is, iri("value", value), graph),
            Quad::new(
                iri("value", value),
                NamedNode::new("urn:amount").unwrap(),
                Literal::from(amount),
                GraphName::DefaultGraph,
            ),
        ];
        self.transaction.insert(&mut quads.into_iter()).unwrap();
        self.ended.writes.push((key.to_owned(), value));
    }

    /// Commits; none if it was in conflict.
    fn end(mut self) -> Option<Ended> {
        match self.transaction.commit() {
            Ok(summary) => {
                self.ended.commit = summary.commit;
                Some(self.ended)
            }
            Err(Error::Conflict { what, .. }) => {
                assert!(!what.is_empty());
                None
            }
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// Writes what is there from the beginning; the first entry of the history.
fn begin(database: &Database, workload: Workload) -> Ended {
    let mut first = Ended::default();
    let mut quads = Vec::new();
    for (place, (key, amount, group)) in (0_u64..).zip(workload.initial()) {
        let value = u64::MAX - place;
        let (object, graph) = (iri("key", &key), GraphName::DefaultGraph);
        let mut add = |subject: NamedNode, predicate: &str, object: Term| {
            let predicate = NamedNode::new(predicate).unwrap();
            quads.push(Quad::new(subject, predicate, object, graph.clone()));
        };
        add(object.clone(), "urn:is", iri("value", value).into());
        add(object, "urn:group", iri("group", group).into());
        add(
            iri("value", value),
            "urn:amount",
            Literal::from(amount).into(),
        );
        first.writes.push((key, value));
    }
    if !quads.is_empty() {
        let mut transaction = database.begin(&TransactionOptions::default()).unwrap();
        transaction.insert(&mut quads.into_iter()).unwrap();
        first.commit = transaction.commit().unwrap().commit;
    }
    first
}

struct Outcome {
    history: Vec<Ended>,
    conflicts: usize,
}

/// Interleaves transactions by a seed.
fn interleaved(workload: Workload, seed: u64, unvalidated: bool) -> Outcome {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut random = Random(seed);
    let mut outcome = Outcome {
        history: vec![begin(database, workload)],
        conflicts: 0,
    };
    let mut running: Vec<Running> = Vec::new();
    let mut number = 0;
    while number < 150 || !running.is_empty() {
        if number < 150 && running.len() < 4 && random.below(2) == 0 {
            number += 1;
            running.push(Running::begin(
                database,
                workload,
                number,
                &mut random,
                unvalidated,
            ));
        }
        if running.is_empty() {
            continue;
        }
        let place = usize::try_from(random.below(running.len() as u64)).unwrap();
        if running[place].step(workload, &mut random) {
            continue;
        }
        match running.swap_remove(place).end() {
            Some(ended) => outcome.history.push(ended),
            None => outcome.conflicts += 1,
        }
    }
    check_end(database, workload, unvalidated);
    outcome
}

/// Runs transactions side by side.
fn threads(workload: Workload) -> Outcome {
    let scratch = Scratch::new();
    let database = scratch.database();
    let (numbers, conflicts) = (AtomicU64::new(1), AtomicU64::new(0));
    let history = Mutex::new(vec![begin(database, workload)]);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (numbers, conflicts, history) = (&numbers, &conflicts, &history);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..60 {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let mut one = Running::begin(database, workload, number, &mut random, false);
                    while one.step(workload, &mut random) {
                        std::thread::yield_now();
                    }
                    match one.end() {
                        Some(ended) => history.lock().unwrap().push(ended),
                        None => {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    check_end(database, workload, false);
    Outcome {
        history: history.into_inner().unwrap(),
        conflicts: usize::try_from(conflicts.into_inner()).unwrap(),
    }
}

/// What must hold in the end.
fn check_end(database: &Database, workload: Workload, unvalidated: bool) {
    let holds = |text: &str| {
        let answer = database.query(text, &QueryOptions::default()).unwrap();
        matches!(answer, QueryResult::Boolean(true))
    };
    let (wrong, right) = match workload {
        Workload::ListAppend => (
            "ASK { ?k <urn:is> ?v , ?w . ?v <urn:amount> ?a . ?w <urn:amount> ?a FILTER(?v != ?w) }",
            "ASK { ?k <urn:is> ?v }",
        ),
        Workload::Register => (
            "ASK { ?k <urn:is> ?v , ?w FILTER(?v != ?w) }",
            "ASK { ?k <urn:is> ?v }",
        ),
        Workload::Bank => (
            "ASK { ?k <urn:is> ?v , ?w FILTER(?v != ?w) }",
            "ASK { { SELECT (SUM(?a) AS ?all) { ?k <urn:is> ?v . ?v <urn:amount> ?a } }
                   FILTER(?all = 1200) }",
        ),
        Workload::WriteSkew => (
            "ASK { ?one <urn:group> ?g FILTER NOT EXISTS {
                 ?k <urn:group> ?g ; <urn:is> ?v . ?v <urn:amount> 1 } }",
            "ASK { ?k <urn:is> ?v }",
        ),
        Workload::Seats => (
            "ASK { GRAPH ?g { ?k <urn:is> ?v , ?w FILTER(?v != ?w) } }",
            "ASK { GRAPH ?g { ?k <urn:is> ?v } }",
        ),
    };
    if !unvalidated {
        assert!(!holds(wrong), "{workload:?}: {wrong}");
        assert!(holds(right), "{workload:?}: {right}");
    }
}

#[test]
fn interleaved_transactions_are_serializable() {
    for workload in WORKLOADS {
        let mut conflicts = 0;
        for seed in 0..4 {
            let outcome = interleaved(workload, seed, false);
            let found = cycle(&outcome.history, workload.objects());
            let events = found.map(|cycle| {
                let history = &outcome.history;
                let events = cycle
                    .into_iter()
                    .filter_map(|place| history.get(place).cloned());
                events.collect::<Vec<_>>()
            });
            assert!(events.is_none(), "{workload:?}, seed {seed}: {events:?}");
            assert!(outcome.history.len() > 40, "{workload:?}");
            conflicts += outcome.conflicts;
        }
        assert!(conflicts > 10, "{workload:?}: {conflicts}");
    }
}

#[test]
fn without_validation_there_are_cycles() {
    for workload in WORKLOADS {
        let outcome = interleaved(workload, 1, true);
        assert_eq!(outcome.conflicts, 0);
        assert!(
            cycle(&outcome.history, workload.objects()).is_some(),
            "{workload:?}"
        );
    }
}

#[test]
fn transactions_of_several_threads_are_serializable() {
    for workload in WORKLOADS {
        let outcome = threads(workload);
        let found = cycle(&outcome.history, workload.objects());
        assert_eq!(found, None, "{workload:?}");
        assert!(
            outcome.history.len() > 60,
            "{workload:?}: {} conflicts",
            outcome.conflicts
        );
    }
}
