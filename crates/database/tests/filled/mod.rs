//! A database in a folder of its own, with some data.

use stoa_database::{Access, Database, Input, LoadOptions, OpenOptions, Runtime, RuntimeOptions};
use tempfile::TempDir;

/// One that holds what a text in Turtle says; the folder goes with what is returned.
pub(crate) fn filled(turtle: String) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    let load = LoadOptions {
        inputs: vec![Input::from_bytes("x.ttl", turtle)],
        ..LoadOptions::default()
    };
    database.load(load, &()).unwrap();
    (folder, database)
}
