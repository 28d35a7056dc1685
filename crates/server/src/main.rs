//! The binary `stoa`: command line and HTTP.
//!
//! Data goes to standard output, all else to standard error. Exit codes: 0 done, 1 failed, 2 wrong
//! usage, 130 interrupted.
#![forbid(unsafe_code)]

mod allocator;
mod cli;
mod client;
mod commit_table;
mod fetch;
mod http;
mod memory;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_little();
    cli::run()
}
