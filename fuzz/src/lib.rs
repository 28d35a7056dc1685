//! Fuzzing: inputs that nobody would write, given to everything that reads what others wrote.
//!
//! Coverage-guided fuzzers need a nightly compiler, so the driver is our own: [`driver`] changes the
//! files of fuzz/corpus (and the W3C's, where they are) with [`mutate`] from a printed seed, and runs a
//! target on each, as an ordinary test. Targets are plain functions of bytes in [`target`], as other
//! fuzzers want them, too.
//!
//! An input that ever found a mistake stays in fuzz/corpus, where each run begins.

#![deny(unsafe_code)]

pub mod allocator;
pub mod checksum;
pub mod driver;
pub mod mutate;
pub mod random;
pub mod target;
