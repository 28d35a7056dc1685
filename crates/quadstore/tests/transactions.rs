//! Transactions that are interleaved at random, against a model that runs those that committed one after the
//! other: each must have read what it would have read alone, and the store must hold what they leave.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, with small numbers"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oxrdf::{Literal, NamedNode, Term, Triple};
use stoa_quadstore::{
    ChangeCounts, Changes, CheckpointOptions, Columns, CommitOptions, Error, GraphChange,
    LookupRows, LookupSpec, NewTerms, QuadColumns, QuadStore, QuadStoreOptions, Savepoint,
    ScanSpec, Snapshot, StringRange, Transaction, TransactionOptions,
};
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

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

/// Terms as N-Triples write them; the default graph is empty.
type Quad = [String; 4];

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct State {
    quads: BTreeSet<Quad>,
    created: BTreeSet<String>,
}

impl State {
    fn graphs(&self) -> BTreeSet<String> {
        let named = self.quads.iter().map(|quad| &quad[3]);
        let named = named.filter(|graph| !graph.is_empty());
        named.chain(&self.created).cloned().collect()
    }

    fn write(&mut self, write: &Write) {
        if let Some((all_but, graphs)) = &write.cleared {
            self.quads
                .retain(|[.., graph]| graphs.contains(graph) == *all_but);
        }
        for quad in &write.removed {
            self.quads.remove(quad);
        }
        self.quads.extend(write.added.iter().cloned());
        for (graph, created) in &write.graphs {
            match created {
                true => self.created.insert(graph.clone()),
                false => self.created.remove(graph),
            };
        }
    }
}

/// Graphs that are cleared first, or all but which are; then the changes.
#[derive(Clone, Debug, Default)]
struct Write {
    cleared: Option<(bool, Vec<String>)>,
    removed: Vec<Quad>,
    added: Vec<Quad>,
    graphs: Vec<(String, bool)>,
}

/// What a transaction asks.
#[derive(Clone, Debug)]
enum Question {
    /// The quads with these terms.
    Quads([Option<String>; 4]),
    /// How many quads of one graph there are with these terms; the graph is given.
    Count([Option<String>; 4]),
    /// The quads with a predicate whose object is a string that begins so.
    Strings(String, String),
    Graphs,
    Exists(String),
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Answer {
    Quads(BTreeSet<Quad>),
    Number(u64),
    Names(BTreeSet<String>),
    Truth(bool),
}

fn fits(pattern: &[Option<String>; 4], quad: &Quad) -> bool {
    let mut parts = pattern.iter().zip(quad);
    parts.all(|(wanted, term)| wanted.as_ref().is_none_or(|wanted| wanted == term))
}

impl Question {
    fn of_model(&self, state: &State) -> Answer {
        let quads = |keeps: &dyn Fn(&Quad) -> bool| {
            let kept = state.quads.iter().filter(|quad| keeps(quad));
            kept.cloned().collect::<BTreeSet<_>>()
        };
        match self {
            Self::Quads(pattern) => Answer::Quads(quads(&|quad| fits(pattern, quad))),
            Self::Count(pattern) => Answer::Number(quads(&|quad| fits(pattern, quad)).len() as u64),
            Self::Strings(predicate, prefix) => Answer::Quads(quads(&|quad| {
                quad[1] == *predicate && quad[2].starts_with(&format!("\"{prefix}"))
            })),
            Self::Graphs => Answer::Names(state.graphs()),
            Self::Exists(graph) => Answer::Truth(state.graphs().contains(graph)),
        }
    }

    fn of_view(&self, view: &Snapshot, by_lookup: bool) -> Answer {
        match self {
            Self::Quads(pattern) => Answer::Quads(read(view, pattern, by_lookup)),
            Self::Count(pattern) => Answer::Number(count(view, pattern)),
            Self::Strings(predicate, prefix) => Answer::Quads(strings(view, predicate, prefix)),
            Self::Graphs => {
                let names = view.graph_names().unwrap().into_iter();
                Answer::Names(names.map(|graph| text(view, graph)).collect())
            }
            Self::Exists(graph) => Answer::Truth(match ids(view, &[graph.as_str()])[0] {
                Some(graph) => view.graph_exists(graph).unwrap(),
                None => false,
            }),
        }
    }
}

fn term(text: &str) -> Term {
    if let Some(inner) = text.strip_prefix("<<( ") {
        let parts: Vec<&str> = inner.trim_end_matches(" )>>").split(' ').collect();
        let [Term::NamedNode(s), Term::NamedNode(p), o] = [0, 1, 2].map(|at| term(parts[at]))
        else {
            panic!("{text}");
        };
        return Triple::new(s, p, o).into();
    }
    match text.strip_prefix('<') {
        Some(iri) => NamedNode::new(iri.trim_end_matches('>')).unwrap().into(),
        None => text.parse::<Literal>().unwrap().into(),
    }
}

fn blank(text: &str) -> Option<TermId> {
    let number = text.strip_prefix("_:b")?.parse().unwrap();
    Some(TermId::new(Kind::BlankNode, number))
}

/// The ids of terms that the snapshot knows.
fn ids(view: &Snapshot, texts: &[&str]) -> Vec<Option<TermId>> {
    let one = |text: &&str| match (*text, blank(text)) {
        ("", _) => Some(TermId::DEFAULT_GRAPH),
        (_, Some(id)) => Some(id),
        (text, None) => view.term_ids(&[term(text)]).unwrap()[0],
    };
    texts.iter().map(one).collect()
}

fn text(view: &Snapshot, id: TermId) -> String {
    match id {
        TermId::DEFAULT_GRAPH => String::new(),
        id => view.term(id).unwrap().to_string(),
    }
}

/// A permutation, its first terms, what else must be equal, and the graphs.
struct Access {
    permutation: Permutation,
    prefix: Vec<TermId>,
    quad: [Option<TermId>; 4],
    graphs: GraphSet,
}

impl Access {
    /// None if a term is not known.
    fn of(view: &Snapshot, pattern: &[Option<String>; 4]) -> Option<Self> {
        let mut quad = [None; 4];
        for (slot, text) in quad.iter_mut().zip(pattern) {
            if let Some(text) = text {
                *slot = Some(ids(view, &[text.as_str()])[0]?);
            }
        }
        let length = |permutation: &Permutation| {
            let order = permutation.order().into_iter().take(3);
            let given = order.take_while(|position| quad[*position as usize].is_some());
            given.count()
        };
        let permutation = Permutation::ALL.into_iter().max_by_key(length).unwrap();
        let given = permutation.order().into_iter().take(length(&permutation));
        Some(Self {
            permutation,
            prefix: given
                .map(|position| quad[position as usize].unwrap())
                .collect(),
            quad,
            graphs: match quad[3] {
                None => GraphSet::All,
                Some(TermId::DEFAULT_GRAPH) => GraphSet::Default,
                Some(graph) => GraphSet::One(graph),
            },
        })
    }

    fn keep(&self, columns: &QuadColumns, view: &Snapshot, found: &mut BTreeSet<Quad>) {
        for row in 0..columns.rows {
            let mut quad = [TermId::UNBOUND; 4];
            for (place, position) in self.permutation.order().into_iter().enumerate() {
                quad[position as usize] = columns.columns[place][row];
            }
            let mut parts = self.quad.iter().zip(quad);
            if parts.all(|(wanted, id)| wanted.is_none_or(|wanted| wanted == id)) {
                found.insert(quad.map(|id| text(view, id)));
            }
        }
    }
}

fn read(view: &Snapshot, pattern: &[Option<String>; 4], by_lookup: bool) -> BTreeSet<Quad> {
    let mut found = BTreeSet::new();
    let Some(access) = Access::of(view, pattern) else {
        return found;
    };
    if by_lookup && !access.prefix.is_empty() {
        let spec = LookupSpec {
            permutation: access.permutation,
            key_length: access.prefix.len(),
            graphs: access.graphs.clone(),
            columns: Columns::ALL,
            with_graph: true,
            is_counted: false,
        };
        let mut lookup = view.lookup(&spec).unwrap();
        let keys: Vec<[TermId; 1]> = access.prefix.iter().map(|id| [*id]).collect();
        let keys: Vec<&[TermId]> = keys.iter().map(<[TermId; 1]>::as_slice).collect();
        lookup.start(&keys).unwrap();
        let mut rows = LookupRows::default();
        while lookup.next(7, &mut rows).unwrap() {
            access.keep(&rows.columns, view, &mut found);
        }
        return found;
    }
    let spec = ScanSpec {
        permutation: access.permutation,
        prefix: access.prefix.clone(),
        ranges: Vec::new(),
        graphs: access.graphs.clone(),
        columns: Columns::ALL,
        with_graph: true,
    };
    scan(view, &spec, &access, &mut found);
    found
}

fn scan(view: &Snapshot, spec: &ScanSpec, access: &Access, found: &mut BTreeSet<Quad>) {
    let mut scan = view.scan(spec).unwrap();
    let mut rows = QuadColumns::default();
    while scan.next(7, &mut rows).unwrap() {
        access.keep(&rows, view, found);
    }
}

fn count(view: &Snapshot, pattern: &[Option<String>; 4]) -> u64 {
    let Some(access) = Access::of(view, pattern) else {
        return 0;
    };
    let Access {
        permutation,
        prefix,
        graphs,
        ..
    } = access;
    let count = view.count(permutation, &prefix, &[], &graphs).unwrap();
    assert!(count.exact);
    count.rows
}

fn strings(view: &Snapshot, predicate: &str, prefix: &str) -> BTreeSet<Quad> {
    let mut found = BTreeSet::new();
    let ranges = view.string_ranges(&StringRange::Prefix(prefix.to_owned()));
    let ranges = ranges.unwrap();
    assert!(ranges.is_exact);
    let mut pattern = [const { None }; 4];
    pattern[1] = Some(predicate.to_owned());
    let Some(access) = Access::of(view, &pattern) else {
        return found;
    };
    if ranges.ranges.is_empty() {
        return found;
    }
    let spec = ScanSpec {
        permutation: Permutation::Posg,
        prefix: vec![access.quad[1].unwrap()],
        ranges: ranges.ranges,
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    };
    let access = Access {
        permutation: Permutation::Posg,
        ..access
    };
    scan(view, &spec, &access, &mut found);
    found
}

/// What a transaction did, in order.
#[derive(Clone, Debug)]
enum Event {
    Asked(Question, Answer),
    Wrote(Write),
    Saved,
    RolledBack,
}

struct Running {
    transaction: Transaction,
    log: Vec<Event>,
    saved: Option<Savepoint>,
    steps: u64,
}

/// The world: terms that may occur, some of them only later.
struct World {
    random: Random,
    blanks: Vec<String>,
    seen_strings: u64,
}

impl World {
    fn iri(&mut self, many: u64) -> String {
        format!("<urn:t:{}>", self.random.below(many))
    }

    fn subject(&mut self) -> String {
        let blanks = self.blanks.len() as u64;
        if blanks > 0 && self.random.below(6) == 0 {
            return self.blanks[self.random.below(blanks) as usize].clone();
        }
        // A new one now and then, the same in several transactions.
        match self.random.below(12) {
            0 => {
                self.seen_strings += self.random.below(2);
                format!("<urn:late:{}>", self.seen_strings / 3)
            }
            _ => self.iri(6),
        }
    }

    fn object(&mut self) -> String {
        let number = self.random.below(5);
        match self.random.below(8) {
            0 => format!("\"long text {number}\""),
            1 => {
                self.seen_strings += self.random.below(2);
                format!("\"long text {}\"", self.seen_strings / 3)
            }
            2 => format!("\"{number}\"^^<http://www.w3.org/2001/XMLSchema#integer>"),
            3 => {
                let (s, p, o) = (self.iri(3), self.iri(3), self.iri(30));
                format!("<<( {s} {p} {o} )>>")
            }
            _ => self.subject(),
        }
    }

    fn graph(&mut self) -> String {
        match self.random.below(5) {
            0..=2 => String::new(),
            3 => format!("<urn:g:{}>", self.random.below(3)),
            _ => format!("<urn:g:late:{}>", self.seen_strings / 5),
        }
    }

    fn quad(&mut self) -> Quad {
        [self.subject(), self.iri(3), self.object(), self.graph()]
    }

    fn question(&mut self) -> Question {
        let [s, p, o, g] = self.quad();
        let graph = Some(g.clone());
        let choice = self.random.below(14);
        match choice {
            0..=2 => Question::Quads([Some(s), Some(p), None, graph]),
            3..=4 => Question::Quads([Some(s), None, None, None]),
            5..=6 => Question::Quads([None, Some(p), Some(o), None]),
            7 => Question::Quads([None, None, Some(o), graph]),
            8 => Question::Quads([Some(s), Some(p), Some(o), graph]),
            9 => Question::Count([Some(s), Some(p), None, graph]),
            10 => Question::Quads([None, Some(p), None, graph]),
            11 => Question::Strings(p, format!("long text {}", self.random.below(6))),
            12 if g.is_empty() => Question::Graphs,
            12 | 13 => Question::Exists(if g.is_empty() {
                "<urn:g:1>".to_owned()
            } else {
                g
            }),
            _ => unreachable!("below 14"),
        }
    }

    fn write(&mut self, last: Option<&Answer>, transaction: &Transaction) -> Write {
        let mut write = Write::default();
        for _ in 0..self.random.below(3) {
            write.added.push(self.quad());
        }
        for _ in 0..self.random.below(3) {
            write.removed.push(self.quad());
        }
        if self.random.below(10) == 0 {
            let node = transaction.blank_node();
            self.blanks.push(format!("_:b{}", node.payload()));
        }
        // What was read decides what is written.
        if let Some(Answer::Quads(quads)) = last {
            for quad in quads.iter().take(2) {
                write.removed.push(quad.clone());
                let mut next = quad.clone();
                next[2] = self.object();
                write.added.push(next);
            }
        }
        if self.random.below(5) == 0 {
            let graph = self.graph();
            if !graph.is_empty() {
                write.graphs.push((graph, self.random.below(2) == 0));
            }
        }
        if self.random.below(6) == 0 {
            let graphs = (0..self.random.below(3)).map(|_| self.graph());
            let graphs: Vec<String> = graphs.collect();
            write.cleared = Some((self.random.below(3) == 0, graphs));
        }
        // Removals come first within one operation.
        write.removed.retain(|quad| !write.added.contains(quad));
        write
    }
}

fn change(transaction: &mut Transaction, write: &Write) -> ChangeCounts {
    if let Some((all_but, graphs)) = &write.cleared {
        // That a graph is not known counts as read.
        let view = transaction.snapshot();
        let graphs: Vec<&str> = graphs.iter().map(String::as_str).collect();
        let mut graphs: Vec<TermId> = ids(&view, &graphs).into_iter().flatten().collect();
        graphs.sort_unstable();
        graphs.dedup();
        let graphs = match all_but {
            true => GraphSet::AllBut(graphs),
            false => GraphSet::Some(graphs),
        };
        transaction.clear(&graphs, Vec::new(), &|| true).unwrap();
    }
    let mut terms = NewTerms::default();
    let view = transaction.snapshot().unrecorded();
    let mut id = |text: &str| match (text, blank(text)) {
        ("", _) => TermId::DEFAULT_GRAPH,
        (_, Some(id)) => id,
        (text, None) => terms.ids(&view, &[term(text)]).unwrap()[0],
    };
    let mut quads = |quads: &[Quad]| {
        let quads = quads
            .iter()
            .map(|quad| quad.each_ref().map(|text| id(text)));
        quads.collect::<Vec<_>>()
    };
    let (removed, added) = (quads(&write.removed), quads(&write.added));
    let graphs = write.graphs.iter().map(|(graph, created)| GraphChange {
        graph: id(graph),
        created: *created,
    });
    let changes = Changes {
        graphs: graphs.collect(),
        removed,
        added,
        ..Changes::default()
    };
    transaction.change(&terms, &changes).unwrap()
}

fn create() -> QuadStore {
    let cache = Cache::new(&MemoryBudget::new(64 << 20), 8 << 20);
    let disk = Arc::new(SimulatedDisk::new(1));
    let store = Store::create(disk, cache, Identity::new(7)).unwrap();
    let options = QuadStoreOptions {
        // Few quads are removed one by one, more are masked; both are met.
        masked_above: 3,
        ..QuadStoreOptions::default()
    };
    QuadStore::open_with(store, options).unwrap()
}

/// Commits by their numbers: what is there after each one.
struct History {
    states: BTreeMap<u64, State>,
    committed: u32,
    conflicts: u32,
}

/// Runs the events of a transaction on a state; the first answer that is another one.
fn replay(log: &[Event], state: &mut State) -> Result<(), String> {
    let mut saved = None;
    for event in log {
        match event {
            Event::Asked(question, answer) => {
                let wanted = question.of_model(state);
                if wanted != *answer {
                    return Err(format!("{question:?}: {answer:?} instead of {wanted:?}"));
                }
            }
            Event::Wrote(write) => state.write(write),
            Event::Saved => saved = Some(state.clone()),
            Event::RolledBack => *state = saved.clone().unwrap(),
        }
    }
    Ok(())
}

impl History {
    fn latest(&self) -> &State {
        self.states.last_key_value().unwrap().1
    }

    /// Ends a transaction; why what it did is not serializable, if so.
    fn end(&mut self, running: Running) -> Result<(), String> {
        let base = running.transaction.base();
        let has_changes = running.transaction.has_changes();
        match running.transaction.commit(CommitOptions::default()) {
            Ok(committed) if !has_changes => {
                assert_eq!(committed.commit, base);
                let mut state = self.states[&base].clone();
                let before = state.clone();
                replay(&running.log, &mut state)?;
                assert_eq!(state, before);
            }
            Ok(committed) => {
                let mut state = self.latest().clone();
                let before = state.clone();
                replay(&running.log, &mut state)?;
                let differs =
                    |one: &State, two: &State| one.quads.difference(&two.quads).count() as u64;
                if committed.added != differs(&state, &before)
                    || committed.removed != differs(&before, &state)
                {
                    return Err(format!("other counts: {committed:?}"));
                }
                self.states.insert(committed.commit, state);
                self.committed += 1;
            }
            Err(Error::Conflict(conflict)) => {
                assert!(conflict.commit > base && !conflict.what().is_empty());
                self.conflicts += 1;
            }
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }
}

fn step(running: &mut Running, world: &mut World) {
    match world.random.below(20) {
        0 if running.saved.is_none() => {
            running.saved = Some(running.transaction.savepoint());
            running.log.push(Event::Saved);
        }
        1 => {
            if let Some(saved) = running.saved.take() {
                running.transaction.roll_back_to(saved);
                running.log.push(Event::RolledBack);
            }
        }
        0..=10 => {
            let question = world.question();
            let view = running.transaction.snapshot();
            let answer = question.of_view(&view, world.random.below(2) == 0);
            running.log.push(Event::Asked(question, answer));
        }
        _ => {
            let last = match running.log.last() {
                Some(Event::Asked(_, answer)) => Some(answer),
                _ => None,
            };
            let write = world.write(last, &running.transaction);
            change(&mut running.transaction, &write);
            running.log.push(Event::Wrote(write));
        }
    }
    running.steps -= 1;
}

fn everything(view: &Snapshot) -> State {
    let pattern = [const { None }; 4];
    State {
        quads: read(view, &pattern, false),
        created: BTreeSet::new(),
    }
}

/// Runs some hundred transactions, several at a time.
fn run(seed: u64, unvalidated: bool) -> Result<(u32, u32), String> {
    let store = create();
    let mut world = World {
        random: Random(seed),
        blanks: Vec::new(),
        seen_strings: 0,
    };
    let mut history = History {
        states: BTreeMap::from([(0, State::default())]),
        committed: 0,
        conflicts: 0,
    };
    let mut running: Vec<Running> = Vec::new();
    for _ in 0..1500 {
        if running.len() < 4 && world.random.below(3) == 0 {
            let options = TransactionOptions { unvalidated };
            running.push(Running {
                transaction: store.begin(options).unwrap(),
                log: Vec::new(),
                saved: None,
                steps: 1 + world.random.below(6),
            });
        }
        if running.is_empty() {
            continue;
        }
        let place = world.random.below(running.len() as u64) as usize;
        if running[place].steps > 0 {
            step(&mut running[place], &mut world);
            continue;
        }
        let ended = running.swap_remove(place);
        if world.random.below(12) == 0 {
            continue;
        }
        history.end(ended)?;
        if world.random.below(6) > 0 {
            continue;
        }
        let state = history.latest();
        let found = everything(&store.snapshot());
        if found.quads != state.quads {
            let other = found.quads.symmetric_difference(&state.quads).next();
            return Err(format!("another state: {other:?}"));
        }
        match world.random.below(7) {
            0 => {
                let options = CheckpointOptions {
                    threads: 1,
                    memory_bytes: 64 << 20,
                    cancel: Arc::new(AtomicBool::new(false)),
                };
                store.checkpoint(&options).unwrap();
            }
            1 => while store.merge_delta().unwrap() {},
            _ => {}
        }
    }
    let names = store.snapshot().graph_names().unwrap().into_iter();
    let names: BTreeSet<String> = names.map(|graph| text(&store.snapshot(), graph)).collect();
    assert_eq!(names, history.latest().graphs());
    Ok((history.committed, history.conflicts))
}

#[test]
fn transactions_that_commit_are_serializable() {
    let (mut committed, mut conflicts) = (0, 0);
    for seed in 0..10 {
        let (more, failed) = run(seed, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        committed += more;
        conflicts += failed;
    }
    assert!(
        committed > 300 && conflicts > 60,
        "{committed}, {conflicts}"
    );
    assert!(conflicts < 3 * committed, "{committed}, {conflicts}");
}

#[test]
fn without_validation_they_are_not() {
    let wrong = (0..10).filter(|seed| run(*seed, true).is_err()).count();
    assert!(wrong > 6, "{wrong}");
}

#[test]
fn what_only_adds_and_removes_is_never_in_conflict() {
    let store = create();
    let quad = |number: u64| {
        [
            format!("<urn:s:{number}>"),
            "<urn:p>".to_owned(),
            "\"a new long text\"".to_owned(),
            String::new(),
        ]
    };
    let mut running: Vec<Transaction> = (0..4)
        .map(|_| store.begin(TransactionOptions::default()).unwrap())
        .collect();
    for (number, transaction) in (0_u64..).zip(&mut running) {
        let write = Write {
            added: (number..number + 3).map(quad).collect(),
            removed: vec![quad(number + 7), quad(number.wrapping_sub(1))],
            ..Write::default()
        };
        assert_eq!(change(transaction, &write).added, 3);
    }
    let mut state = State::default();
    for (number, transaction) in (0_u64..).zip(running) {
        let committed = transaction.commit(CommitOptions::default()).unwrap();
        assert_eq!(committed.commit, number + 1);
        state.write(&Write {
            added: (number..number + 3).map(quad).collect(),
            removed: vec![quad(number.wrapping_sub(1))],
            ..Write::default()
        });
        assert_eq!(everything(&store.snapshot()), state);
    }
    assert_eq!(state.quads.len(), 3);
    let report = store.check(&AtomicBool::new(false), &mut |_, _, _| {});
    assert!(report.unwrap().is_sound());
}

#[test]
fn nobody_sees_what_is_not_committed() {
    let store = create();
    let mut one = store.begin(TransactionOptions::default()).unwrap();
    let write = Write {
        added: vec![["<urn:a>", "<urn:b>", "\"not so short\"", "<urn:g>"].map(str::to_owned)],
        ..Write::default()
    };
    change(&mut one, &write);
    let pattern = [Some("<urn:a>".to_owned()), None, None, None];
    assert_eq!(read(&one.snapshot(), &pattern, false).len(), 1);
    assert_eq!(read(&store.snapshot(), &pattern, false).len(), 0);
    let two = store.begin(TransactionOptions::default()).unwrap();
    assert_eq!(read(&two.snapshot(), &pattern, true).len(), 0);
    drop(one);
    assert_eq!(store.snapshot().commit(), 0);
    assert!(!two.has_changes());
    assert_eq!(two.commit(CommitOptions::default()).unwrap().commit, 0);
}
