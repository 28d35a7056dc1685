//! Tests that cross crates.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod datasets;
mod differential;
mod graphs;
mod notes;
mod paths;
mod query;
mod schemes;
mod serializable;
mod streaming;
mod tidy;
mod updates;
mod w3c;
mod xml;
