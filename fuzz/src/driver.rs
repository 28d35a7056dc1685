//! Runs a target: first everything in its corpus as it is, then changed inputs from a seed.
//!
//! What a target tells of an input (a plan, a kind of error) stands for coverage: an input that brings
//! something new joins those that others are made of.
//!
//! An input fails if the target says so, if any thread panics, if it takes more memory than the target
//! may, or if it does not end. The first two and the third are made smaller and saved; in any case the
//! input lies in a file before it runs, for what ends the process (a stack that overflows, a hang).
//!
//! Environment: `STOA_SEED` repeats a run, `STOA_FUZZ_CASES` is how many inputs are made, `STOA_LONG`
//! makes it a hundred times as many, `STOA_FAILURES` is how many failures of different kinds are collected
//! before it stops, `STOA_FUZZ_INPUT` is a file that runs alone.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool of tests: it tells seeds and times, and asserts no time"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::mutate::{Mutator, shrink};
use crate::random::Random;

/// How long an input may take before it counts as hanging, in seconds. No input of these sizes takes
/// more than a second or two in a build for tests; machines of CI stand still now and then.
const HANG_SECONDS: u64 = 180;
/// Inputs that the pool takes up because they brought something new.
const POOL_MAX: usize = 4_000;

/// What an input is given to. Tells what came of it, or why that must not be.
pub type Harness<'a> = dyn FnMut(&[u8]) -> Result<String, String> + 'a;

/// A target and its bounds.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its folder in fuzz/corpus.
    pub name: &'static str,
    /// Words of its language.
    pub words: &'static [&'static str],
    /// The longest input that is made, in bytes.
    pub input_bytes_max: usize,
    /// What an input may take, in bytes.
    pub memory_bytes_max: usize,
    /// How many inputs are made in a normal run.
    pub cases: u64,
}

/// How many threads of this process have panicked, and what the last one said.
static PANICS: AtomicU64 = AtomicU64::new(0);
static SAID: Mutex<String> = Mutex::new(String::new());
/// Only one target runs at a time: memory and panics are those of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Random inputs stop after so long, unless somebody said how many there are to be.
const TIME_MAX: Duration = Duration::from_secs(20);

fn is_timed() -> bool {
    std::env::var_os("STOA_LONG").is_none() && number("STOA_FUZZ_CASES").is_none()
}

/// Runs a target.
///
/// # Panics
/// If an input fails; the message says where it lies.
pub fn run(target: &Target, seeds: Vec<(PathBuf, Vec<u8>)>, harness: &mut Harness<'_>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    count_panics();
    let seed = number("STOA_SEED").unwrap_or(20_261_121);
    let factor = if std::env::var_os("STOA_LONG").is_some() {
        100
    } else {
        1
    };
    let cases = number("STOA_FUZZ_CASES").unwrap_or(target.cases * factor);
    println!(
        "fuzz {}: STOA_SEED={seed}, {} seeds, {cases} cases",
        target.name,
        seeds.len()
    );
    let watched = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(target.name, &watched, &done));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut run = Run {
                target,
                harness,
                watched: &watched,
                slowest: (Duration::ZERO, Vec::new()),
                largest: 0,
                failures: Vec::new(),
            };
            match std::env::var_os("STOA_FUZZ_INPUT") {
                Some(path) => {
                    let input = fs::read(&path).expect("STOA_FUZZ_INPUT can be read");
                    println!("{:?}", run.judge(&input));
                }
                None => run.all(seed, cases, seeds),
            }
        }));
        done.store(true, Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

struct Run<'a, 'h> {
    target: &'a Target,
    harness: &'a mut Harness<'h>,
    watched: &'a AtomicU64,
    slowest: (Duration, Vec<u8>),
    /// The most memory that an input took, in bytes.
    largest: usize,
    /// Their kinds and what is told of them.
    failures: Vec<(String, String)>,
}

impl Run<'_, '_> {
    fn all(&mut self, seed: u64, cases: u64, seeds: Vec<(PathBuf, Vec<u8>)>) {
        let mut known = std::collections::BTreeSet::new();
        let mut pool = Vec::new();
        for (path, input) in seeds {
            match self.judge(&input) {
                Ok(told) => drop(known.insert(told)),
                Err(reason) => self.fail(&input, &reason, &path.display().to_string()),
            }
            if input.len() <= self.target.input_bytes_max {
                pool.push(input);
            }
        }
        if pool.is_empty() {
            pool.push(Vec::new());
        }
        let mutator = Mutator {
            words: self.target.words,
            bytes_max: self.target.input_bytes_max,
        };
        let room = pool.len() + POOL_MAX;
        let mut random = Random::new(seed);
        let (started, mut done) = (Instant::now(), 0);
        for case in 0..cases {
            if is_timed() && started.elapsed() > TIME_MAX {
                break;
            }
            done += 1;
            let input = mutator.make(&mut random, &pool);
            match self.judge(&input) {
                Ok(told) => {
                    if known.insert(told) && pool.len() < room {
                        pool.push(input);
                    }
                }
                Err(reason) => {
                    self.fail(&input, &reason, &format!("STOA_SEED={seed}, case {case}"))
                }
            }
        }
        println!(
            "fuzz {}: {done} cases, {} kinds of outcomes; the slowest took {} ms, the largest {} KB",
            self.target.name,
            known.len(),
            self.slowest.0.as_millis(),
            self.largest >> 10
        );
        save(self.target.name, "slowest", &self.slowest.1);
        self.tell_failures();
    }

    /// Runs an input.
    fn judge(&mut self, input: &[u8]) -> Result<String, String> {
        save(self.target.name, "last", input);
        self.watched.fetch_add(1, Relaxed);
        let panics = PANICS.load(Relaxed);
        let start = Instant::now();
        let memory = allocator::start();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.harness)(input)));
        let peak = allocator::peak_since(memory);
        let took = start.elapsed();
        if took > self.slowest.0 {
            self.slowest = (took, input.to_vec());
        }
        self.largest = self.largest.max(peak);
        if PANICS.load(Relaxed) != panics {
            return Err(SAID.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
        if peak > self.target.memory_bytes_max {
            return Err(format!(
                "it took {peak} bytes of memory, {} are allowed",
                self.target.memory_bytes_max
            ));
        }
        outcome.unwrap_or_else(|_| Err("it panicked".to_owned()))
    }

    /// Makes a failing input smaller and keeps what it says; ends the run if there are enough of them.
    fn fail(&mut self, input: &[u8], reason: &str, origin: &str) {
        let kind = kind(reason);
        if self.failures.iter().any(|(known, _)| *known == kind) {
            return;
        }
        let small = shrink(input, &mut |smaller| match self.judge(smaller) {
            Err(reason) => self::kind(&reason) == kind,
            Ok(_) => false,
        });
        let said = self.judge(&small).err().unwrap_or_default();
        let what = format!("failed{}", self.failures.len());
        let path = save(self.target.name, &what, &small);
        let text = format!(
            "fuzz {}, {origin}: {reason}\nsmaller, in {}: {said}\n{}",
            self.target.name,
            path.display(),
            String::from_utf8_lossy(small.get(..small.len().min(2_000)).unwrap_or_default())
        );
        self.failures.push((kind, text));
        let most = number("STOA_FAILURES").unwrap_or(1);
        if u64::try_from(self.failures.len()).unwrap_or(u64::MAX) >= most {
            self.tell_failures();
        }
    }

    fn tell_failures(&self) {
        let texts: Vec<&str> = self.failures.iter().map(|(_, text)| &**text).collect();
        assert!(texts.is_empty(), "{}", texts.join("\n=====\n"));
    }
}

/// The beginning of a reason, without numbers but for those of a place in the code.
fn kind(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or("");
    if first.contains(".rs:") {
        return first.to_owned();
    }
    first
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .take(60)
        .collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Writes an input where it is found after the process has ended.
fn save(target: &str, what: &str, input: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join("stoa-fuzz");
    let path = folder.join(format!("{target}-{}.{what}", std::process::id()));
    if fs::write(&path, input).is_err() {
        drop(fs::create_dir_all(&folder));
        drop(fs::write(&path, input));
    }
    path
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.to_string();
            // Those of the driver are the test's.
            if text.contains("fuzz/src/driver.rs") {
                usual(info);
                return;
            }
            *SAID.lock().unwrap_or_else(PoisonError::into_inner) = text;
            PANICS.fetch_add(1, Relaxed);
        }));
    });
}

/// Ends the process if the same input runs for too long.
fn watch(name: &str, watched: &AtomicU64, done: &AtomicBool) {
    let mut last = (u64::MAX, 0);
    let tick = Duration::from_millis(50);
    while !done.load(Relaxed) {
        std::thread::sleep(tick);
        let now = watched.load(Relaxed);
        last = if now == last.0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        if last.1 * 50 > HANG_SECONDS * 1_000 {
            let folder = std::env::temp_dir().join("stoa-fuzz");
            eprintln!(
                "fuzz {name}: input {now} does not end; it is {}/{name}-{}.last",
                folder.display(),
                std::process::id()
            );
            std::process::abort();
        }
    }
}

/// The files below a folder that `wanted` takes, in the order of their names; none if there is none.
fn files(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&path)
                && let Ok(bytes) = fs::read(&path)
            {
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// The corpus of a target.
#[must_use]
pub fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    files(&folder, &|_| true)
}

/// Files of the W3C suites that end so, if the suites are there: `STOA_W3C`, by default ../shared/w3c
/// beside the checkout. Only those of at most `bytes_max`.
#[must_use]
pub fn w3c(extensions: &[&str], bytes_max: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/w3c");
    let root = std::env::var_os("STOA_W3C").map_or(root, PathBuf::from);
    files(&root, &|path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        extensions.contains(&&*extension)
            && path
                .metadata()
                .is_ok_and(|metadata| metadata.len() <= bytes_max)
    })
}
