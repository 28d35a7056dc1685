//! The database that benchmarks read: made up, the same in every run.
//!
//! Each of [`SUBJECTS`] subjects has a number, a link to another subject, a label, and one of
//! [`GROUPS`] groups. Numbers and links are permutations: as far from any order as can be.

use std::fmt::Write as _;

use stoa_database::{
    Access, Database, Input, LoadOptions, OpenOptions, QueryOptions, Runtime, RuntimeOptions,
};
use stoa_quadstore::Snapshot;
use tempfile::TempDir;

pub(crate) const SUBJECTS: u64 = 100_000;
pub(crate) const GROUPS: u64 = 1_000;

/// Prime to the number of subjects, so that its multiples visit all.
const STEP: u64 = 61_803;

/// A loaded database.
pub(crate) struct Data {
    pub(crate) database: Database,
    pub(crate) snapshot: Snapshot,
    /// Held for its drop.
    _folder: TempDir,
}

impl Data {
    /// Makes the data, loads them, and opens the database.
    pub(crate) fn load() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(RuntimeOptions {
            memory_bytes: Some(1 << 30),
            seed: Some(1),
            ..RuntimeOptions::default()
        });
        let options = OpenOptions {
            access: Access::Exclusive,
            create: true,
        };
        let path = folder.path().join("db");
        let database = Database::open(&runtime.unwrap(), path, &options).unwrap();
        let options = LoadOptions {
            inputs: vec![Input::from_bytes("data.nt", triples())],
            ..LoadOptions::default()
        };
        let summary = database.load(options, &()).unwrap();
        assert_eq!(summary.quads_read, 4 * SUBJECTS);
        let query = database.prepare("ASK {}", &QueryOptions::default());
        let snapshot = query.unwrap().context().snapshot().clone();
        Self {
            database,
            snapshot,
            _folder: folder,
        }
    }
}

/// The subject with this number.
pub(crate) fn subject(number: u64) -> String {
    format!("http://example.org/subject/{number}")
}

/// The label of the subject with this number.
pub(crate) fn label(number: u64) -> String {
    const WORDS: [&str; 8] = [
        "copper", "harbour", "lantern", "meadow", "orchard", "pebble", "river", "willow",
    ];
    let word = |digit: u32| WORDS[(number >> (3 * digit)) as usize % WORDS.len()];
    format!("the {} {} of {} {number}", word(0), word(1), word(2))
}

fn triples() -> String {
    let mut text = String::new();
    for number in 0..SUBJECTS {
        let s = subject(number);
        let other = number * STEP % SUBJECTS;
        let _ = write!(
            text,
            "<{s}> <http://example.org/number> \"{other}\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n\
             <{s}> <http://example.org/link> <{}> .\n\
             <{s}> <http://example.org/label> \"{}\" .\n\
             <{s}> <http://example.org/group> <http://example.org/group/{}> .\n",
            subject(other),
            label(number),
            other % GROUPS,
        );
    }
    text
}

/// Numbers that only look random (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
