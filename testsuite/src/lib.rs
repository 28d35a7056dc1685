//! Tests that cross crates, and the tools they share: where test data lies, scratch databases,
//! comparing of results, the W3C test runner.
#![expect(
    clippy::indexing_slicing,
    reason = "tools of tests: a wrong index is a failing test"
)]

pub mod answer;
pub mod canonical;
pub mod case;
pub mod compare;
pub mod data;
pub mod oracle;
pub mod over_delta;
pub mod random;
pub mod result_file;
pub mod scratch;
pub mod serializability;
pub mod w3c;
pub mod workloads;
