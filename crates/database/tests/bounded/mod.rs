//! Hostile requests stay within the memory budget: they finish, or end with a `memory` error that names who needed it.
//!
//! The allocator counts what is asked for. A runtime with a small budget runs each request; what was allocated at one
//! time may exceed the budget by [`BEYOND_BYTES`] only.

mod data;
mod texts;

use std::fmt::Write;
use std::io;

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Error, OpenOptions, QueryOptions, Runtime,
    RuntimeOptions, UpdateOptions,
};

use super::allocator;
use super::filled::filled;

/// What all requests may take together.
const MEMORY_BYTES: usize = 16 << 20;

/// What a runtime takes beside: code that is loaded once, buffers of one batch, and what each request takes before it
/// counts it.
const BEYOND_BYTES: usize = 12 << 20;

/// How many requests run at once where several do.
const AT_ONCE: usize = 8;

/// What became of a request.
enum Outcome {
    /// Bytes of the answer.
    Done(usize),
    /// Who needed more memory.
    Refused(String),
}

impl Outcome {
    fn told(&self) -> String {
        match self {
            Self::Done(bytes) => format!("{bytes} bytes"),
            Self::Refused(operator) => format!("no memory for {operator}"),
        }
    }
}

/// A database with this content, open with a budget of [`MEMORY_BYTES`].
struct Small {
    _folder: tempfile::TempDir,
    database: Database,
    /// What was allocated before it was opened.
    before: usize,
}

impl Small {
    fn new(turtle: String, threads: usize) -> Self {
        let (folder, database) = filled(turtle, Some(threads));
        drop(database);
        let before = allocator::start();
        let runtime = Runtime::new(RuntimeOptions {
            memory_bytes: Some(MEMORY_BYTES as u64),
            threads: Some(threads),
            ..RuntimeOptions::default()
        });
        let options = OpenOptions {
            access: Access::Exclusive,
            create: false,
        };
        let database = Database::open(&runtime.unwrap(), folder.path().join("db"), &options);
        Self {
            _folder: folder,
            database: database.unwrap(),
            before,
        }
    }

    fn answer(&self, text: &str, format: ResultFormat) -> Result<Answer, Error> {
        let options = QueryOptions {
            notes: false,
            ..QueryOptions::default()
        };
        Answer::new(self.database.prepare(text, &options)?, format)
    }

    /// Runs the same query so many times at once, each a step at a time.
    fn at_once(&self, text: &str, format: ResultFormat, count: usize) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut running = Vec::new();
        for _ in 0..count {
            match self.answer(text, format) {
                Ok(answer) => running.push((answer, 0)),
                Err(error) => outcomes.push(refused(&error)),
            }
        }
        while !running.is_empty() {
            let mut left = Vec::new();
            for (mut answer, bytes) in running {
                let mut out = Vec::new();
                match answer.step(&mut out) {
                    Ok(true) => left.push((answer, bytes + out.len())),
                    Ok(false) => outcomes.push(Outcome::Done(bytes + out.len())),
                    Err(error) => outcomes.push(refused(&error)),
                }
            }
            running = left;
        }
        outcomes
    }

    fn update(&self, text: &str) -> Outcome {
        match self.database.update(text, &UpdateOptions::default()) {
            Ok(summary) => Outcome::Done(usize::try_from(summary.added + summary.removed).unwrap()),
            Err(error) => refused(&error),
        }
    }

    fn dump(&self, format: DumpFormat) -> Outcome {
        let mut written = Counted(0);
        match self
            .database
            .dump(format, &mut written, &CancelHandle::new())
        {
            Ok(_) => Outcome::Done(written.0),
            Err(error) => refused(&error),
        }
    }
}

/// Takes bytes and keeps their number.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request that ended with an error, which must be one about memory.
#[expect(clippy::panic, reason = "another error is a failure of the test")]
fn refused(error: &Error) -> Outcome {
    match error {
        Error::MemoryExceeded { operator, .. } => Outcome::Refused(operator.clone()),
        Error::NotAdmitted { .. } => Outcome::Refused("admission".to_owned()),
        other => panic!("{other}"),
    }
}

/// Checks what requests took; collects those that took too much.
struct Peaks<'a> {
    small: &'a Small,
    complaints: Vec<String>,
}

impl<'a> Peaks<'a> {
    const fn new(small: &'a Small) -> Self {
        Self {
            small,
            complaints: Vec::new(),
        }
    }

    /// Requests that finish, or are refused.
    fn check(&mut self, name: &str, work: impl FnOnce() -> Vec<Outcome>) -> usize {
        allocator::start();
        let outcomes = work();
        let mb = allocator::peak_since(self.small.before) >> 20;
        if mb > (MEMORY_BYTES + BEYOND_BYTES) >> 20 {
            let ends: Vec<String> = outcomes.iter().map(Outcome::told).collect();
            let ends = ends.join(", ");
            self.complaints.push(format!("{name}: {mb} MB ({ends})"));
        }
        let is_refused = |outcome: &&Outcome| matches!(outcome, Outcome::Refused(_));
        outcomes.iter().filter(is_refused).count()
    }

    /// Requests that finish.
    fn finishes(&mut self, name: &str, work: impl FnOnce() -> Vec<Outcome>) {
        let refused = self.check(name, work);
        if refused > 0 {
            self.complaints.push(format!("{name}: {refused} refused"));
        }
    }
}

impl Drop for Peaks<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let most = (MEMORY_BYTES + BEYOND_BYTES) >> 20;
            assert!(
                self.complaints.is_empty(),
                "more than {most} MB, or refused: {:#?}",
                self.complaints
            );
        }
    }
}

const JSON: ResultFormat = ResultFormat::Solutions(SolutionsFormat::Json);

fn long_texts(count: usize, bytes: usize) -> String {
    let mut turtle = String::from("@prefix : <http://a/> .\n");
    for number in 0..count {
        write!(turtle, ":d{number} :text \"{number} ").unwrap();
        let mut seed = number as u64 + 1;
        for _ in 0..bytes / 16 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            write!(turtle, "{seed:016x}").unwrap();
        }
        turtle.push_str("\" .\n");
    }
    turtle
}

fn short_texts(count: usize) -> String {
    let mut turtle = String::from("@prefix : <http://a/> .\n");
    for number in 0..count {
        writeln!(turtle, ":s{number} :p \"a text, number {number}\" .").unwrap();
    }
    turtle
}
