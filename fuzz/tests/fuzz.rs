//! All targets on changed inputs, each from its corpus and the W3C's files where they are.
//!
//! The environment that it reads is described in fuzz/src/driver.rs.

use stoa_database::GraphFormat;
use stoa_fuzz::allocator::Counting;
use stoa_fuzz::driver::{Target, corpus, run, w3c};
use stoa_fuzz::target::damage::{self, Databases};
use stoa_fuzz::target::log::{self, Logs};
use stoa_fuzz::target::query::{self, Queries};
use stoa_fuzz::target::rdf::{self, Documents};

mod driver;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The longest file of others that is taken, in bytes.
const SEED_BYTES_MAX: u64 = 3_000;

fn documents(target: &Target, format: Option<GraphFormat>, extensions: &[&str]) {
    let mut documents = Documents::new(format);
    let mut seeds = corpus(target.name);
    seeds.extend(w3c(extensions, SEED_BYTES_MAX));
    run(target, seeds, &mut |input| documents.run(input));
}

#[test]
fn query() {
    let mut queries = Queries::default();
    let mut seeds = corpus(query::TARGET.name);
    seeds.extend(w3c(&["rq"], SEED_BYTES_MAX));
    run(&query::TARGET, seeds, &mut |input| queries.run(input));
}

#[test]
fn nt() {
    documents(&rdf::NTRIPLES, Some(GraphFormat::NTriples), &["nt"]);
}

#[test]
fn nq() {
    documents(&rdf::NQUADS, Some(GraphFormat::NQuads), &["nq"]);
}

#[test]
fn ttl() {
    documents(&rdf::TURTLE, Some(GraphFormat::Turtle), &["ttl"]);
}

#[test]
fn trig() {
    documents(&rdf::TRIG, Some(GraphFormat::TriG), &["trig"]);
}

#[test]
fn rdf() {
    documents(&rdf::RDFXML, Some(GraphFormat::RdfXml), &["rdf"]);
}

#[test]
fn jsonld() {
    documents(&rdf::JSONLD, Some(GraphFormat::JsonLd), &["jsonld"]);
}

#[test]
fn anything() {
    documents(&rdf::ANYTHING, None, &[]);
}

#[test]
fn database() {
    let mut databases = Databases::default();
    let seeds = corpus(damage::TARGET.name);
    run(&damage::TARGET, seeds, &mut |input| databases.run(input));
}

#[test]
fn log() {
    let mut logs = Logs::default();
    let seeds = corpus(log::TARGET.name);
    run(&log::TARGET, seeds, &mut |input| logs.run(input));
}
