//! A database on a simulated disk, with a clock that ends queries, and what becomes of a query beside a fault.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    Access, CancelHandle, Clock, Database, Error, GraphFormat, Input, LoadOptions, OpenOptions,
    QueryOptions, Runtime, RuntimeOptions, UpdateOptions,
};
use stoa_storage::{Disk as _, Faults, SimulatedDisk};

use super::cases::{Case, PROLOGUE};

/// Enough for helpers; queries are given less by what others take.
const MEMORY_BYTES: u64 = 256 << 20;

const THREADS: usize = 3;

/// How long a query may run, and by how much the clock jumps to end it.
const TIMEOUT: Duration = Duration::from_secs(3_600);

/// Goes on whenever it is read, as whoever checks whether to end does; one of its readings may end the query.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    count: AtomicU64,
    /// The number of that reading.
    end_at: AtomicU64,
    /// Whether it ends by the time, and not by its handle.
    is_late: AtomicBool,
    jumps: AtomicU64,
    cancel: Arc<AtomicBool>,
    /// The number of the reading during which another thread takes away all that queries read, and of what database.
    commit_at: AtomicU64,
    committing: Mutex<Option<Database>>,
}

impl Clock for Readings {
    fn monotonic(&self) -> Duration {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.commit_at.load(Ordering::Relaxed) {
            let database = self.committing.lock().unwrap().take().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| change(&database, HIDE));
            });
        }
        if count == self.end_at.load(Ordering::Relaxed) {
            match self.is_late.load(Ordering::Relaxed) {
                true => _ = self.jumps.fetch_add(1, Ordering::Relaxed),
                false => self.cancel.store(true, Ordering::Relaxed),
            }
        }
        let jumps = self.jumps.load(Ordering::Relaxed);
        Duration::from_micros(20 * count) + TIMEOUT * u32::try_from(jumps).unwrap()
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_800_000_000)
    }
}

/// What goes wrong while a query runs, and where: readings of the clock, reads and writes are counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Nothing,
    /// It is cancelled at a check, or its time is over then.
    Cancelled(u64),
    Late(u64),
    /// A read fails, of the database or of a temporary file.
    Unread(u64),
    /// A read gives a byte that was not written.
    Damaged(u64),
    /// A write to a temporary file, or making one, fails.
    Unwritten(u64),
    /// The disk has room for so many bytes more.
    Full(u64),
    /// Once the query has begun others take all memory but so many bytes.
    Taken(u64),
    /// At a check another thread takes all that is there away, and writes what it leaves into the sort orders.
    Hidden(u64),
}

/// How much of it a query meets that goes well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) checks: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// What became of a query.
pub(crate) struct Ran {
    pub(crate) outcome: Result<(), Error>,
    /// What was written, as far as lines are complete.
    pub(crate) lines: Vec<String>,
    /// EXPLAIN ANALYZE, if it came to its end.
    pub(crate) told: String,
    pub(crate) spilled_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) counts: Counts,
}

/// A runtime and a database without a cache, so that each query reads what it needs from disk.
pub(crate) struct World {
    disk: SimulatedDisk,
    clock: Arc<Readings>,
    runtime: Runtime,
    database: Option<Database>,
    /// What the database keeps in memory of what it has read, such as parts of the dictionary that each query needs.
    kept_bytes: Option<u64>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::<Readings>::default();
        let options = RuntimeOptions {
            memory_bytes: Some(MEMORY_BYTES),
            cache_bytes: Some(0),
            memory_wait: Some(Duration::ZERO),
            threads: Some(THREADS),
            clock: Some(Arc::<Readings>::clone(&clock) as Arc<dyn Clock>),
            seed: Some(1),
            ..RuntimeOptions::default()
        };
        let mut world = Self {
            disk: SimulatedDisk::new(1),
            clock,
            runtime: Runtime::new(options).unwrap(),
            database: None,
            kept_bytes: None,
        };
        world.reopen();
        let load = LoadOptions {
            inputs: vec![Input::from_bytes("x.trig", data())],
            ..LoadOptions::default()
        };
        world.database().load(load, &()).unwrap();
        world
    }

    /// Opens the database anew, as one that keeps nothing of what earlier queries have found out.
    pub(crate) fn reopen(&mut self) {
        self.database = None;
        let writing = OpenOptions {
            access: Access::Exclusive,
            create: true,
        };
        let open = || Database::open_on(&self.runtime, Arc::new(self.disk.clone()), &writing);
        // A thread that has helped may hold what it read for a moment longer.
        let mut opened = open();
        for _ in 0..1_000_000 {
            if !matches!(opened, Err(Error::Locked { .. })) {
                break;
            }
            std::thread::yield_now();
            opened = open();
        }
        self.database = Some(opened.unwrap());
    }

    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    /// Runs a query beside a fault; an error if it leaves anything behind.
    pub(crate) fn run(
        &self,
        case: &Case,
        options: QueryOptions,
        fault: Fault,
    ) -> Result<Ran, String> {
        let begun = self.counts();
        self.begin(fault, begun);
        let options = QueryOptions {
            timeout: Some(TIMEOUT),
            cancel: CancelHandle::from_flag(Arc::clone(&self.clock.cancel)),
            ..options
        };
        let mut ran = self.answered(case, &options, fault);
        let ended = self.counts();
        ran.counts = Counts {
            checks: ended.checks - begun.checks,
            reads: ended.reads - begun.reads,
            writes: ended.writes - begun.writes,
        };
        self.end();
        self.check_nothing_is_left()?;
        Ok(ran)
    }

    fn answered(&self, case: &Case, options: &QueryOptions, fault: Fault) -> Ran {
        let format = match case.query.contains("SELECT") {
            true => ResultFormat::Solutions(SolutionsFormat::Tsv),
            false => ResultFormat::Graph(GraphFormat::NTriples),
        };
        let (mut out, mut analysis) = (Vec::new(), None);
        let mut run = || -> Result<(), Error> {
            let query = self.database().prepare(&case.text(), options)?;
            let budget = query.context().settings().memory.clone();
            let mut answer = Answer::new(query, format)?;
            let mut others = None;
            while answer.step(&mut out)? {
                if let (Fault::Taken(left), None) = (fault, &others) {
                    let free = budget.limit().saturating_sub(budget.used());
                    others = budget.try_reserve(free.saturating_sub(left)).ok();
                }
            }
            analysis = Some(answer.query().analysis()?);
            Ok(())
        };
        let outcome = run();
        let text = String::from_utf8(out).unwrap();
        let lines = text.split_inclusive('\n').map(str::to_owned);
        Ran {
            outcome,
            lines: lines.filter(|line| line.ends_with('\n')).collect(),
            told: analysis
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            spilled_bytes: analysis
                .as_ref()
                .map_or(0, |analysis| analysis.spilled_bytes),
            threads: analysis.as_ref().map_or(0, |analysis| analysis.threads),
            counts: Counts::default(),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            checks: self.clock.count.load(Ordering::Relaxed),
            reads: self.disk.reads(),
            writes: self.disk.operations(),
        }
    }

    fn begin(&self, fault: Fault, begun: Counts) {
        let mut faults = Faults::default();
        match fault {
            Fault::Nothing | Fault::Taken(_) => {}
            Fault::Hidden(at) => {
                *self.clock.committing.lock().unwrap() = Some(self.database().clone());
                let at = begun.checks + at;
                self.clock.commit_at.store(at, Ordering::Relaxed);
            }
            Fault::Cancelled(at) | Fault::Late(at) => {
                let is_late = matches!(fault, Fault::Late(_));
                self.clock.is_late.store(is_late, Ordering::Relaxed);
                self.clock
                    .end_at
                    .store(begun.checks + at, Ordering::Relaxed);
            }
            Fault::Unread(at) => faults.fail_read_at = Some(begun.reads + at),
            Fault::Damaged(at) => faults.damage_read_at = Some(begun.reads + at),
            Fault::Unwritten(at) => faults.fail_at = Some(begun.writes + at),
            Fault::Full(room) => {
                let used = u64::MAX - self.disk.free_bytes().unwrap();
                faults.capacity_bytes = Some(used + room);
            }
        }
        self.disk.set_faults(faults);
    }

    fn end(&self) {
        self.disk.set_faults(Faults::default());
        self.clock.end_at.store(0, Ordering::Relaxed);
        self.clock.cancel.store(false, Ordering::Relaxed);
    }

    /// From now on queries leave no more memory in use than there is now, or while `is_new` they may.
    pub(crate) fn settle(&mut self, is_new: bool) {
        self.kept_bytes = (!is_new).then(|| self.runtime.memory_used_bytes());
    }

    fn check_nothing_is_left(&self) -> Result<(), String> {
        let kept = self.kept_bytes.unwrap_or(u64::MAX);
        let used = || {
            let space = self.database().quad_store().snapshot().temp_space();
            (self.runtime.memory_used_bytes(), space.bytes())
        };
        // Threads that have helped come to their end on their own.
        for _ in 0..1_000_000 {
            let (memory, disk) = used();
            if memory <= kept && disk == 0 {
                return Ok(());
            }
            std::thread::yield_now();
        }
        let (memory, disk) = used();
        Err(format!(
            "{memory} bytes of memory are used, {kept} before; {disk} bytes of the disk"
        ))
    }

    /// Brings back what was taken away during a query; whether it was.
    pub(crate) fn bring_back(&self) -> bool {
        self.clock.commit_at.store(0, Ordering::Relaxed);
        let is_hidden = self.clock.committing.lock().unwrap().take().is_none();
        if is_hidden {
            let next = self.run(&Case::NEXT, Case::NEXT.options(), Fault::Nothing);
            assert!(
                next.unwrap().lines.len() < 2,
                "what was taken away is there"
            );
            change(self.database(), BRING_BACK);
        }
        is_hidden
    }

    /// How many ways to make numbers of texts have made some that are kept.
    pub(crate) fn ways_to_numbers(&self) -> usize {
        self.runtime.number_counts().ways
    }

    /// Writing goes on, whatever queries have met.
    pub(crate) fn commit(&self) {
        let update = "INSERT DATA { <http://a/x> <http://a/y> 1 }";
        self.database()
            .update(update, &UpdateOptions::default())
            .unwrap();
    }
}

/// All of the graph without a name goes into another one, and what no query has found before comes.
const HIDE: &str = "DELETE { ?s ?p ?o } INSERT { GRAPH :hidden { ?s ?p ?o } . ?s :kind :other } WHERE { ?s ?p ?o }";

const BRING_BACK: &str = "DELETE WHERE { ?s :kind :other } ;
DELETE { GRAPH :hidden { ?s ?p ?o } } INSERT { ?s ?p ?o } WHERE { GRAPH :hidden { ?s ?p ?o } }";

fn change(database: &Database, update: &str) {
    let update = format!("{PROLOGUE}{update}");
    database.update(&update, &UpdateOptions::default()).unwrap();
    database.checkpoint().unwrap();
}

/// Items with a number, a kind, a text and some with tags; kinds with a rank and most with one of five groups; groups that
/// like one of two tags; a chain, a wheel
/// of nodes that know the next ones; and some graphs.
fn data() -> String {
    const ITEMS: u64 = 1_500;
    const KINDS: u64 = 97;
    let mut text = PROLOGUE.replace("PREFIX", "@prefix").replace('>', "> .");
    for item in 0..ITEMS {
        let (number, kind) = (item * 7_919 % ITEMS, item % KINDS);
        writeln!(
            text,
            ":i{item} :number {number} ; :kind :k{kind} ; :text \"the text of item {item:04}\" ."
        )
        .unwrap();
        if item % 3 == 0 {
            writeln!(text, ":i{item} :tag :t{} , :t{} .", item % 40, item % 7).unwrap();
        }
    }
    for kind in 0..KINDS {
        writeln!(text, ":k{kind} :rank {kind} .").unwrap();
        if kind % 10 != 3 {
            writeln!(text, ":k{kind} :group :g{} .", kind % 5).unwrap();
        }
    }
    for group in 0..30 {
        writeln!(text, ":g{group} :likes :t{} .", 1 + group % 2).unwrap();
    }
    for node in 0..100 {
        writeln!(text, ":c{node} :p :c{} .", node + 1).unwrap();
    }
    for node in 0..300 {
        for step in [1, 2, 9] {
            writeln!(text, ":w{node} :knows :w{} .", (node + step) % 300).unwrap();
        }
    }
    for graph in 0..30 {
        writeln!(text, ":x{graph} {{ :i{graph} :seen {graph} }}").unwrap();
    }
    text
}
