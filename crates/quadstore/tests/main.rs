//! Tests of the quad store through its public interface.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod backup;
mod bulk_load;
mod bulk_update;
mod clearing;
mod commits;
mod compact;
mod compact_beside;
mod delta;
mod history;
mod model;
mod replacing;
mod rewriting;
mod seek_scan;
#[path = "model/terms.rs"]
mod terms;
mod transactions;
#[path = "model/updating.rs"]
mod updating;
#[path = "model/writing.rs"]
mod writing;
