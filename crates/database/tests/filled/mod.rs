//! A database in a folder of its own, with some data.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use stoa_database::{Access, Database, Input, LoadOptions, OpenOptions, Runtime, RuntimeOptions};
use tempfile::TempDir;

/// One that holds what a text in TriG (or Turtle) says, for queries on so many threads, by default one for each core; the
/// folder goes with what is returned.
pub(crate) fn filled(trig: String, threads: Option<usize>) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let options = RuntimeOptions {
        threads,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.trig", trig)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    (folder, database)
}
