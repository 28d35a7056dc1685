//! What is counted: each query from its text to the bytes of its answer, and updates from their text to the commit.

use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    Access, Clock, Database, Input, IoCalls, LoadOptions, OpenOptions, QueryOptions, Runtime,
    RuntimeOptions, UpdateOptions,
};

/// The names of the queries and their texts.
const QUERIES: [(&str, &str); 10] = [
    ("look-up", include_str!("../queries/look-up.rq")),
    ("star", include_str!("../queries/star.rq")),
    ("join", include_str!("../queries/join.rq")),
    ("range", include_str!("../queries/range.rq")),
    ("optional", include_str!("../queries/optional.rq")),
    ("top", include_str!("../queries/top.rq")),
    ("group", include_str!("../queries/group.rq")),
    ("distinct", include_str!("../queries/distinct.rq")),
    ("regex", include_str!("../queries/regex.rq")),
    ("path", include_str!("../queries/path.rq")),
];

/// The names of the updates and how many new quads each of their requests has.
const INSERTS: [(&str, u64); 2] = [("insert-1", 1), ("insert-1000", 1_000)];

/// How often a query is answered before it is counted: reads, models of the dictionary, statistics.
const WARM_RUNS: usize = 2;
/// How often it is answered while it is counted.
const RUNS: usize = 5;

/// Enough for everything to stay in the cache.
const MEMORY_BYTES: u64 = 512 << 20;
const SEED: u64 = 1;

/// A clock that stands still, so that no operator ever gives way because its time is over.
struct Still;

impl Clock for Still {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }
}

impl fmt::Debug for Still {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Still")
    }
}

fn open(folder: &Path, options: &OpenOptions) -> anyhow::Result<Database> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(MEMORY_BYTES),
        io: IoCalls::Pread,
        threads: Some(1),
        clock: Some(Arc::new(Still)),
        seed: Some(SEED),
        ..RuntimeOptions::default()
    })?;
    Database::open(&runtime, folder, options)
        .with_context(|| format!("cannot open {}", folder.display()))
}

/// Loads a file into a new database.
pub(crate) fn load(data: &Path, folder: &Path) -> anyhow::Result<()> {
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let inputs = vec![Input::Path(data.to_owned())];
    open(folder, &options)?.load(
        LoadOptions {
            inputs,
            ..LoadOptions::default()
        },
        &(),
    )?;
    Ok(())
}

/// Answers all queries, and writes a line for each: its name, how often it was answered while it was
/// counted, and the bytes of one answer.
#[expect(clippy::print_stdout, reason = "the caller of the program reads it")]
pub(crate) fn queries(folder: &Path) -> anyhow::Result<()> {
    let database = open(folder, &OpenOptions::default())?;
    let mut answer = Vec::with_capacity(16 << 20);
    for (name, text) in QUERIES {
        let mut once = || answer_to(&database, text, &mut answer);
        for _ in 0..WARM_RUNS {
            once().with_context(|| format!("the query {name}"))?;
        }
        let bytes = measured(RUNS, &mut once)?;
        println!("{name} {RUNS} {bytes}");
    }
    Ok(())
}

/// Does all updates, each request with quads of its own, and writes a line for each: its name, how often it was done
/// while it was counted, and the quads that one adds. What waits for the disk is not counted.
#[expect(clippy::print_stdout, reason = "the caller of the program reads it")]
pub(crate) fn inserts(folder: &Path) -> anyhow::Result<()> {
    let options = OpenOptions {
        access: Access::Exclusive,
        ..OpenOptions::default()
    };
    let database = open(folder, &options)?;
    for (name, quads) in INSERTS {
        let texts: Vec<String> = (0..WARM_RUNS + RUNS)
            .map(|run| insert(run, quads))
            .collect();
        let mut texts = texts.iter();
        let mut once = || {
            let text = texts.next().context("there is no further request")?;
            let summary = database.update(text, &UpdateOptions::default())?;
            anyhow::ensure!(summary.added == quads, "{} were added", summary.added);
            Ok(usize::try_from(summary.added)?)
        };
        for _ in 0..WARM_RUNS {
            once().with_context(|| format!("the update {name}"))?;
        }
        let added = measured(RUNS, &mut once)?;
        println!("{name} {RUNS} {added}");
    }
    Ok(())
}

/// A request with so many new quads, five of each subject.
fn insert(run: usize, quads: u64) -> String {
    let mut text = "INSERT DATA {\n".to_owned();
    for quad in 0..quads {
        let (subject, property) = (quad / 5, quad % 5);
        // Writing to a string cannot fail.
        writeln!(
            text,
            "<http://example.org/{quads}/{run}/{subject}> <http://example.org/property{property}> \"{run} of {quad}\" ."
        )
        .unwrap_or_default();
    }
    text.push('}');
    text
}

/// Parses, plans and answers a query; the bytes of the answer.
fn answer_to(database: &Database, text: &str, out: &mut Vec<u8>) -> anyhow::Result<usize> {
    out.clear();
    let query = database.prepare(text, &QueryOptions::default())?;
    let format = ResultFormat::Solutions(SolutionsFormat::Json);
    let mut answer = Answer::new(query, format)?;
    while answer.step(out)? {}
    Ok(black_box(&*out).len())
}

/// The function whose instructions callgrind counts, by its name. Calls `once` so often, and gives
/// what the last call gave.
#[inline(never)]
fn measured(runs: usize, once: &mut dyn FnMut() -> anyhow::Result<usize>) -> anyhow::Result<usize> {
    let mut last = 0;
    for _ in 0..runs {
        last = once()?;
    }
    Ok(last)
}

/// So many rounds of a loop, counted: a stand-in for a query, of a length that a test chooses.
#[expect(clippy::print_stdout, reason = "the caller of the program reads it")]
pub(crate) fn spin(rounds: u64) {
    let mut once = || {
        let mut sum = 0;
        for round in 0..black_box(rounds) {
            sum = black_box(sum ^ round);
        }
        Ok(size_of_val(&sum))
    };
    if let Ok(bytes) = measured(1, &mut once) {
        println!("spin 1 {bytes}");
    }
}
