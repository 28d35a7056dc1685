//! `/status`: for each database its last commit, what is not in a checkpoint, the log, and what is kept for
//! readers of earlier commits; the queries and updates that are running or wait for memory, which `DELETE` ends; and what
//! those took that have ended, by their shape. In a build with the feature `lock-meters` also the locks, which are `null`
//! in others.

use hyper::StatusCode;
use serde_json::{Value, json};
use stoa_database::sync::{self, LockCounts};
use stoa_database::{
    ArchiveInfo, Database, QueryShape, QueryShapes, ReadCounts, RunningQuery, Runtime,
    StructureCounts,
};

use super::databases::Databases;
use super::problem::Problem;
use crate::allocator::resident_bytes;

/// The document, as JSON. The texts of what is running are told to those only who may write.
pub(super) fn status(databases: &Databases, may_write: bool) -> String {
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
    let waiting = databases.runtime().map_or(0, Runtime::queries_waiting);
    let running = databases.runtime().map(Runtime::queries);
    let running = running.unwrap_or_default().into_iter();
    let running: Vec<Value> = running.map(|query| of_query(query, may_write)).collect();
    let shapes = databases.runtime().map(Runtime::query_shapes);
    let shapes = of_shapes(shapes.unwrap_or_default(), may_write);
    let locks = sync::lock_counts();
    let locks = locks.map(|all| all.iter().map(of_lock).collect::<Vec<_>>());
    format!(
        "{}\n",
        json!({
            "databases": all,
            "queries": running,
            "waiting": waiting,
            "shapes": shapes.shapes,
            "shapesDropped": shapes.dropped,
            "locks": locks,
            "memory": databases.runtime().map(of_memory),
        })
    )
}

/// The memory of the process, beside what is reserved of it. What the process holds beyond that is not counted by the
/// budget: the program, stacks, what the allocator keeps, and what nobody has reserved. What is reserved and not touched
/// yet makes the difference smaller, below 0 if there is much of it.
fn of_memory(runtime: &Runtime) -> Value {
    let reserved = runtime.memory_used_bytes();
    let resident = resident_bytes();
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    json!({
        "reservedBytes": reserved,
        "limitBytes": runtime.memory_bytes(),
        "residentBytes": resident,
        "unreservedBytes": resident.map(|resident| signed(resident) - signed(reserved)),
    })
}

/// The locks of one name and kind.
fn of_lock(lock: &LockCounts) -> Value {
    json!({
        "name": lock.name,
        "kind": lock.kind,
        "acquisitions": lock.acquisitions,
        "contended": lock.contended,
        "waitedSeconds": lock.waited.as_secs_f64(),
    })
}

/// What ended, by its shape.
struct Shapes {
    shapes: Vec<Value>,
    dropped: Value,
}

fn of_shapes(told: QueryShapes, may_write: bool) -> Shapes {
    let shapes = told.shapes.into_iter();
    Shapes {
        shapes: shapes.map(|shape| of_shape(shape, may_write)).collect(),
        dropped: json!({
            "shapes": told.dropped,
            "count": told.dropped_count,
            "seconds": told.dropped_time.as_secs_f64(),
        }),
    }
}

fn of_shape(shape: QueryShape, may_write: bool) -> Value {
    json!({
        "kind": kind(shape.is_update),
        "shape": may_write.then_some(shape.shape),
        "example": may_write.then_some(shape.example),
        "count": shape.count,
        "errors": shape.errors,
        "rows": shape.rows,
        "seconds": shape.time.as_secs_f64(),
        "secondsMax": shape.time_max.as_secs_f64(),
        "planningSeconds": shape.planning.as_secs_f64(),
        "runningSeconds": shape.running.as_secs_f64(),
        "waitedSeconds": shape.waited.as_secs_f64(),
        "reads": of_reads(&shape.reads),
        "spilledBytes": shape.spilled_bytes,
        "memoryPeakBytes": shape.memory_peak_bytes,
        "threads": shape.threads,
    })
}

const fn kind(is_update: bool) -> &'static str {
    match is_update {
        true => "update",
        false => "query",
    }
}

/// Ends a query or an update, by the number that `/status` gives it.
pub(super) fn end(databases: &Databases, number: &str) -> Result<(), Problem> {
    let known = number.parse().ok().zip(databases.runtime());
    match known.is_some_and(|(id, runtime)| runtime.end_query(id)) {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-query",
            format!("no query {number} is running; /status lists those that are"),
        )),
    }
}

fn of_query(query: RunningQuery, may_write: bool) -> Value {
    let text = may_write.then_some(query.text);
    let taken = query.taken;
    json!({
        "id": query.id,
        "kind": kind(query.is_update),
        "state": if query.is_waiting { "waiting" } else { "running" },
        "text": text,
        "seconds": query.running.as_secs_f64(),
        "planningSeconds": taken.map(|taken| taken.planning.as_secs_f64()),
        "reads": taken.map(|taken| of_reads(&taken.reads)),
        "memoryBytes": taken.map(|taken| taken.memory_bytes),
        "memoryPeakBytes": taken.map(|taken| taken.memory_peak_bytes),
        "spilledBytes": taken.map(|taken| taken.spilled_bytes),
        "threads": taken.map(|taken| taken.threads),
    })
}

fn of_reads(reads: &ReadCounts) -> Value {
    json!({
        "rnd": reads.rnd,
        "seq": reads.seq,
        "sameSegment": reads.same_segment,
        "sameGroup": reads.same_group,
        "disk": reads.disk,
        "readAhead": reads.read_ahead,
        "bytes": reads.bytes,
    })
}

/// What was done with a sort order, or another structure, since the database was opened.
fn of_structure((name, counts): &(&'static str, StructureCounts)) -> Value {
    json!({
        "name": name,
        "touches": counts.touches,
        "disk": counts.disk_reads,
        "bytes": counts.disk_bytes,
        "residentBytes": counts.resident_bytes,
    })
}

fn of_archive(archive: &ArchiveInfo) -> Value {
    json!({
        "commit": archive.commit,
        "behindCommits": archive.behind_commits,
        "behindBytes": archive.behind_bytes,
        "behindSeconds": archive.behind_seconds,
        "gap": archive.gap,
        "failure": archive.failure,
    })
}

fn of_database(address: &str, database: &Database) -> Value {
    let (log, runtime) = (database.log_info(), database.runtime());
    let structures = database.structures();
    let structures: Vec<Value> = structures.iter().map(of_structure).collect();
    let plans = database.plan_counts();
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
            "archive": log.archive.as_ref().map(of_archive),
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
        "permutations": structures,
        "plans": {
            "reused": plans.reused,
            "planned": plans.planned,
            "shapes": plans.shapes,
            "bytes": plans.bytes,
        },
        "memory": {
            "bytes": runtime.memory_used_bytes(),
            "limitBytes": runtime.memory_bytes(),
        },
    })
}
