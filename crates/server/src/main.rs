//! The binary `stoa`: command line and HTTP.
//!
//! Data goes to standard output, all else to standard error. Exit codes: 0 done, 1 failed, 2 wrong
//! usage, 130 interrupted.
#![deny(unsafe_code)]

mod cli;
mod client;
mod commit_table;
mod fetch;
mod http;
mod memory;
mod resident;

use std::process::ExitCode;

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tests count what a server in their process holds.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoa_fuzz::allocator::Counting = stoa_fuzz::allocator::Counting;

fn main() -> ExitCode {
    cli::run()
}
