//! Random data and queries for the differential tests, from a seed.
//!
//! [`data`] makes small data over a tiny universe of terms, so that joins meet. [`query`] makes a
//! query as a tree of its own ([`ast`]), which [`mod@print`] writes as SPARQL; the naive evaluator of
//! [`crate::oracle`] reads the same tree, so that no parser is shared. [`shrink`] makes a failing
//! query smaller. [`update`] makes requests of SPARQL Update.

pub mod ast;
pub mod data;
mod difference;
pub mod expression;
mod ordered;
pub mod print;
pub mod query;
pub mod shrink;
pub mod update;

pub use stoa_fuzz::random::Random;
