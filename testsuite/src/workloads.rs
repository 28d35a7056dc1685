//! Workloads that show what goes wrong between transactions: appends to lists, registers, transfers between
//! accounts, write skew, reservation of seats, some of it with terms that nobody used before.
//!
//! They run against a [`World`], which says how a transaction is begun: in this process, or over HTTP
//! (crates/server/tests/serializable.rs has this file, too). Transactions are interleaved by a seed on one
//! thread, or run side by side on several.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a tool of tests, with small numbers"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::serializability::{Ended, Objects, cycle};

/// Variables and their terms, as N-Triples or Turtle writes them.
pub type Row = BTreeMap<String, String>;

/// Where transactions are begun.
pub trait World: Sync {
    /// A transaction.
    type Session<'a>: Session
    where
        Self: 'a;

    /// Begins a transaction.
    fn begin(&self) -> Self::Session<'_>;

    /// What an ASK says, outside of transactions.
    fn holds(&self, text: &str) -> bool;
}

/// A transaction that is under way.
pub trait Session {
    /// Whether it is to read one state throughout.
    const IS_ISOLATED: bool = true;

    /// The solutions of a SELECT. `random` may choose how they are computed.
    fn ask(&mut self, text: &str, random: &mut Random) -> Vec<Row>;

    /// Removes quads, given as N-Quads.
    fn remove(&mut self, quads: &str);

    /// Adds quads, given as N-Quads.
    fn insert(&mut self, quads: &str);

    /// Commits; the number of the commit, none if it was in conflict.
    fn commit(self) -> Option<u64>;
}

/// Numbers from a seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What transactions do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Workload {
    /// Each reads two lists and appends to one.
    ListAppend,
    /// Each reads two registers and writes one.
    Register,
    /// Each moves an amount from one account to another, or reads them all.
    Bank,
    /// Who is on call goes if the other one is on call.
    WriteSkew,
    /// Each reserves up to two seats that are free.
    Seats,
}

/// All of them.
pub const WORKLOADS: [Workload; 5] = [
    Workload::ListAppend,
    Workload::Register,
    Workload::Bank,
    Workload::WriteSkew,
    Workload::Seats,
];

const KEYS: u64 = 8;
const ACCOUNTS: u64 = 12;
const DEPOSIT: i64 = 100;
/// Of so many seats every other one is known from the beginning.
const KNOWN_SEATS: u64 = 64;
/// Pairs of people on call, of whom one must be.
const PAIRS: u64 = 6;

impl Workload {
    /// What its objects are.
    #[must_use]
    pub fn objects(self) -> Objects {
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

fn iri(kind: &str, name: impl std::fmt::Display) -> String {
    format!("<urn:{kind}:{name}>")
}

/// The last part of the IRI of a value or key.
fn name(term: &str) -> String {
    let iri = term.trim_matches(['<', '>']);
    iri.rsplit(':').next().unwrap().to_owned()
}

/// An amount, with its datatype or as a number of Turtle.
fn number(term: &str) -> i64 {
    let lexical = term
        .strip_prefix('"')
        .and_then(|rest| rest.split('"').next());
    lexical.unwrap_or(term).parse().unwrap()
}

/// A transaction of a workload that is under way.
struct Running<S> {
    session: S,
    /// What its values begin with.
    number: u64,
    ended: Ended,
    /// Values and amounts of the objects that were read.
    found: BTreeMap<String, BTreeMap<u64, i64>>,
    phase: u64,
    keys: [String; 2],
}

impl<S: Session> Running<S> {
    fn begin(session: S, workload: Workload, number: u64, random: &mut Random) -> Self {
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
            session,
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
            // The number alone, which the index has; only nothing says which values there are.
            let what = ["*", "?v", "DISTINCT ?v"];
            let what = what[usize::try_from(random.below(3)).unwrap()];
            let text = format!("SELECT (COUNT({what}) AS ?n) {{ {pattern} }}");
            let count = number(&self.session.ask(&text, random)[0]["n"]);
            if count == 0 {
                self.note(key.to_owned(), BTreeMap::new());
                return;
            }
        }
        let found = self
            .session
            .ask(&format!("SELECT * {{ {pattern} }}"), random);
        let value = |row: &Row| {
            let amount = row.get("a").map_or(0, |term| number(term));
            (name(&row["v"]).parse().unwrap(), amount)
        };
        self.note(key.to_owned(), found.iter().map(value).collect());
    }

    /// All objects with their values; those that were read already must be the same.
    fn read_all(&mut self, workload: Workload, random: &mut Random) {
        let text = "SELECT ?k ?v ?a { ?k <urn:is> ?v . ?v <urn:amount> ?a }";
        let rows = self.session.ask(text, random);
        let all = workload.initial().into_iter().map(|(key, ..)| key);
        self.take(all.collect(), &rows);
    }

    fn read_pair(&mut self, key: &str, random: &mut Random) {
        let object = iri("key", key);
        let text = format!(
            "SELECT ?k ?v ?a {{ {object} <urn:group> ?g . ?k <urn:group> ?g ; <urn:is> ?v .
             OPTIONAL {{ ?v <urn:amount> ?a }} }}"
        );
        let rows = self.session.ask(&text, random);
        self.take(self.keys.to_vec(), &rows);
    }

    fn take(&mut self, keys: Vec<String>, rows: &[Row]) {
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
            assert!(
                before == found || !S::IS_ISOLATED,
                "a transaction reads one state: {before:?} {found:?}"
            );
        }
    }

    /// Writes a value: to a set it is added, in a register it takes the place of those that were read.
    fn write(&mut self, key: &str, place: u64, amount: i64, workload: Workload) {
        let value = self.number * 2 + place;
        let object = iri("key", key);
        let graph = match workload {
            Workload::Seats => iri("row", key),
            _ => String::new(),
        };
        if workload.objects() == Objects::Registers {
            let old = self.found[key].keys();
            let old: String = old
                .map(|old| format!("{object} <urn:is> {} .\n", iri("value", old)))
                .collect();
            self.session.remove(&old);
        }
        let value_iri = iri("value", value);
        self.session.insert(&format!(
            "{object} <urn:is> {value_iri} {graph} .\n\
             {value_iri} <urn:amount> \"{amount}\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n"
        ));
        self.ended.writes.push((key.to_owned(), value));
    }

    /// Commits; none if it was in conflict.
    fn end(mut self) -> Option<Ended> {
        self.ended.commit = self.session.commit()?;
        Some(self.ended)
    }
}

/// Writes what is there from the beginning; the first entry of the history.
fn begin(world: &impl World, workload: Workload) -> Ended {
    let mut first = Ended::default();
    let mut quads = String::new();
    for (place, (key, amount, group)) in (0_u64..).zip(workload.initial()) {
        let value = u64::MAX - place;
        let (object, value_iri, group) =
            (iri("key", &key), iri("value", value), iri("group", group));
        quads.push_str(&format!(
            "{object} <urn:is> {value_iri} .\n{object} <urn:group> {group} .\n\
             {value_iri} <urn:amount> \"{amount}\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n"
        ));
        first.writes.push((key, value));
    }
    if workload == Workload::Seats {
        // Of every other seat it is known that there is one; the store has its terms then.
        for seat in (0..KNOWN_SEATS).step_by(2) {
            let (object, graph) = (iri("key", seat), iri("row", seat));
            quads.push_str(&format!("{object} <urn:stands-in> {graph} .\n"));
        }
    }
    if !quads.is_empty() {
        let mut session = world.begin();
        session.insert(&quads);
        first.commit = session.commit().unwrap();
    }
    first
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Those that have committed.
    pub history: Vec<Ended>,
    /// How many were in conflict.
    pub conflicts: usize,
}

impl Outcome {
    /// The transactions of a cycle, if there is one.
    #[must_use]
    pub fn cycle(&self, objects: Objects) -> Option<Vec<Ended>> {
        let found = cycle(&self.history, objects)?;
        let events = found.into_iter();
        Some(events.map(|place| self.history[place].clone()).collect())
    }
}

/// Interleaves `count` transactions by a seed.
pub fn interleaved<W: World>(world: &W, workload: Workload, seed: u64, count: u64) -> Outcome {
    let mut random = Random(seed);
    let mut outcome = Outcome {
        history: vec![begin(world, workload)],
        conflicts: 0,
    };
    let mut running: Vec<Running<W::Session<'_>>> = Vec::new();
    let mut number = 0;
    while number < count || !running.is_empty() {
        if number < count && running.len() < 4 && random.below(2) == 0 {
            number += 1;
            running.push(Running::begin(world.begin(), workload, number, &mut random));
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
    outcome
}

/// Threads of [`threads`] and [`appends`].
const THREADS: u64 = 4;

/// Runs transactions side by side, `each` on every one of four threads.
pub fn threads(world: &impl World, workload: Workload, each: u64) -> Outcome {
    let (numbers, conflicts) = (AtomicU64::new(1), AtomicU64::new(0));
    let history = Mutex::new(vec![begin(world, workload)]);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (numbers, conflicts, history) = (&numbers, &conflicts, &history);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..each {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let mut one = Running::begin(world.begin(), workload, number, &mut random);
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
    Outcome {
        history: history.into_inner().unwrap(),
        conflicts: usize::try_from(conflicts.into_inner()).unwrap(),
    }
}

/// Requests of SPARQL Update side by side, each a transaction of its own that is never in conflict for who
/// sent it: each appends to one list and notes what it has seen in two. `update` gives the number of the
/// commit, `ask` the solutions of a SELECT.
pub fn appends(
    update: &(impl Fn(&str) -> u64 + Sync),
    ask: &impl Fn(&str) -> Vec<Row>,
    each: u64,
) -> Vec<Ended> {
    let numbers = AtomicU64::new(1);
    let sent: Mutex<Vec<(u64, u64, [u64; 2])>> = Mutex::default();
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (numbers, sent) = (&numbers, &sent);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..each {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let keys = [random.below(KEYS), random.below(KEYS)];
                    let [one, two] = keys.map(|key| iri("key", key));
                    let [saw_one, saw_two] = keys.map(|key| iri("saw", key));
                    let value = iri("value", number);
                    let commit = update(&format!(
                        "INSERT {{ {two} <urn:is> {value} . {value} {saw_one} ?x ; {saw_two} ?y }}
                         WHERE {{ OPTIONAL {{ {{ {one} <urn:is> ?x }} UNION {{ {two} <urn:is> ?y }} }} }}"
                    ));
                    sent.lock().unwrap().push((number, commit, keys));
                }
            });
        }
    });
    let rows = ask("SELECT ?v ?p ?x { ?v ?p ?x FILTER(STRSTARTS(STR(?p), \"urn:saw:\")) }");
    let mut seen: BTreeMap<(String, String), BTreeSet<u64>> = BTreeMap::new();
    for row in rows {
        let by = (name(&row["v"]), name(&row["p"]));
        let value = name(&row["x"]).parse().unwrap();
        seen.entry(by).or_default().insert(value);
    }
    let sent = sent.into_inner().unwrap().into_iter();
    let ended = sent.map(|(number, commit, keys)| {
        let reads = keys.map(|key| {
            let found = seen.get(&(number.to_string(), key.to_string()));
            (key.to_string(), found.cloned().unwrap_or_default())
        });
        Ended {
            commit,
            reads: reads.to_vec(),
            writes: vec![(keys[1].to_string(), number)],
        }
    });
    ended.collect()
}

/// What must hold in the end.
///
/// # Panics
/// If it does not.
pub fn check_end(world: &impl World, workload: Workload) {
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
    assert!(!world.holds(wrong), "{workload:?}: {wrong}");
    assert!(world.holds(right), "{workload:?}: {right}");
}
