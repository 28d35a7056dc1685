//! `/status`: for each database its last commit, what is not in a checkpoint, the log, and what is kept for
//! readers of earlier commits.

use serde_json::{Value, json};
use stoa_database::Database;

use super::databases::Databases;

/// The document, as JSON.
pub(super) fn status(databases: &Databases) -> String {
    let root = databases
        .root
        .iter()
        .map(|root| ("/sparql".to_owned(), root));
    let named = databases.named.iter();
    let named = named.map(|(name, database)| (format!("/{name}/sparql"), database));
    let all: Vec<Value> = root
        .chain(named)
        .map(|(address, database)| of_database(&address, database))
        .collect();
    format!("{}\n", json!({ "databases": all }))
}

fn of_database(address: &str, database: &Database) -> Value {
    let (log, runtime) = (database.log_info(), database.runtime());
    json!({
        "address": address,
        "commit": database.commit(),
        "quads": database.quads(),
        "durability": if log.is_relaxed { "relaxed" } else { "full" },
        "refusesWrites": log.failure,
        "checkpoint": {
            "commit": log.checkpoint_commit,
            "failure": log.checkpoint_failure,
        },
        "log": {
            "bytes": log.file_bytes,
            "behindCheckpointBytes": log.behind_bytes,
            "archiveFailure": log.archive_failure,
        },
        "delta": {
            "bytes": database.delta_bytes(),
        },
        "retention": {
            "kept": log.retention.to_string(),
            "oldestCommit": log.oldest_commit,
            "bytes": log.retained_bytes,
        },
        "oldestSnapshot": {
            "commit": log.oldest_snapshot,
            "heldBackBytes": log.held_back_bytes,
        },
        "memory": {
            "bytes": runtime.memory_used_bytes(),
            "limitBytes": runtime.memory_bytes(),
        },
    })
}
