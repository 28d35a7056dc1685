//! Writers of results: from batches of ids straight into bytes.
//!
//! A writer is fed batch by batch and appends to a buffer that its caller drains, so an answer of
//! any length needs the memory of one batch. [`SolutionsWriter`] writes the solutions of SELECT,
//! [`GraphWriter`] the triples of CONSTRUCT and DESCRIBE and the quads of a dump, and
//! [`boolean`](write_boolean) the answer of ASK.
//!
//! # Invariants
//! 1. What a writer has appended after `start` and before `finish` is no complete document in JSON
//!    and XML, so a reader sees that an answer was broken off (the brackets that `finish` writes are missing).
//!
//! # References
//! SPARQL 1.1 Query Results JSON, XML, CSV and TSV formats, and their SPARQL 1.2 versions;
//! RDF 1.2 N-Triples, N-Quads, Turtle, TriG.

mod ahead;
mod answer;
mod binary;
pub(crate) mod escape;
mod format;
mod graph;
mod jsonld;
mod open;
pub(crate) mod output;
pub(crate) mod pieces;
mod rdf_xml;
mod solutions;
mod table;
mod term;
#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use format::{ResultFormat, SolutionsFormat};
pub use graph::GraphWriter;
pub use jsonld::{FromRdfOptions, RdfDirection, from_rdf};
pub use solutions::{SolutionsWriter, write_boolean};
pub use term::{TermView, TermViews};
