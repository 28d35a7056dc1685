//! A dump equals the load, for each real dataset, also from a reopened database.
//!
//! Quads are read from the dump and from the file by the RDF library, and compared as multisets of
//! lines in which all blank nodes look alike; isomorphism is left to the smaller W3C tests.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use oxrdf::{GraphName, NamedOrBlankNode, Quad, Term};
use oxrdfio::{RdfFormat, RdfParser};
use stoa_database::{DumpFormat, Input, LoadOptions};
use stoa_testsuite::data;
use stoa_testsuite::scratch::Scratch;

/// Number and order-independent sum of hashes of quads, blank nodes made alike.
#[derive(Debug, Default, Eq, PartialEq)]
struct Sum {
    quads: u64,
    hashes: u64,
}

fn add(sum: &mut Sum, quad: &Quad, state: &RandomState) {
    let subject = match &quad.subject {
        NamedOrBlankNode::BlankNode(_) => "_:".to_owned(),
        NamedOrBlankNode::NamedNode(iri) => iri.to_string(),
    };
    let object = match &quad.object {
        Term::BlankNode(_) => "_:".to_owned(),
        object => object.to_string(),
    };
    let graph = match &quad.graph_name {
        GraphName::BlankNode(_) => "_:".to_owned(),
        graph => graph.to_string(),
    };
    let line = [subject, quad.predicate.to_string(), object, graph];
    sum.quads += 1;
    sum.hashes = sum.hashes.wrapping_add(state.hash_one(line));
}

fn sum(bytes: &[u8], format: RdfFormat, state: &RandomState) -> Sum {
    let mut quads: Vec<Quad> = RdfParser::from_format(format)
        .with_base_iri("http://example.org/")
        .unwrap()
        .for_slice(bytes)
        .map(Result::unwrap)
        .collect();
    // A dataset is a set. Labels decide here whether two quads are the same one.
    quads.sort_by_cached_key(|quad| quad.to_string());
    quads.dedup();
    let mut sum = Sum::default();
    for quad in &quads {
        add(&mut sum, quad, state);
    }
    sum
}

fn round_trip(path: &Path, format: RdfFormat) {
    let mut bytes = Vec::new();
    let file = std::fs::read(path).unwrap();
    MultiGzDecoder::new(&*file).read_to_end(&mut bytes).unwrap();
    let state = RandomState::new();
    let expected = sum(&bytes, format, &state);
    drop(bytes);
    let mut scratch = Scratch::new();
    let options = LoadOptions {
        inputs: vec![Input::Path(path.to_path_buf())],
        base: Some("http://example.org/".to_owned()),
        ..LoadOptions::default()
    };
    let summary = scratch.database().load(options, &()).unwrap();
    assert_eq!(summary.quads_new, expected.quads);
    scratch.reopen();
    let dump = scratch.dump(DumpFormat::NQuads).unwrap();
    assert_eq!(sum(&dump, RdfFormat::NQuads, &state), expected);
    let check = scratch
        .database()
        .check(&(), &stoa_database::CancelHandle::new())
        .unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);
    println!("{}: {} quads", path.display(), expected.quads);
}

#[test]
fn a_dump_equals_the_load() {
    let Some(folder) = data::datasets() else {
        return;
    };
    for (name, format) in [
        ("dbpedia-music.ttl.gz", RdfFormat::Turtle),
        ("fibo-qudt.nq.gz", RdfFormat::NQuads),
        ("saam.nt.gz", RdfFormat::NTriples),
        ("schemaorg-releases.nq.gz", RdfFormat::NQuads),
    ] {
        round_trip(&folder.join(name), format);
    }
}
