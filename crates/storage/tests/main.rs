//! Tests of storage through its public interface.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod crash;
mod damage;
mod failures;
mod format_document;
mod kill;
mod log_crash;
mod log_group;
mod store;
