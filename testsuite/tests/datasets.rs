//! A dump equals the load, for each real dataset: loaded at once and in parts, from the database that
//! was loaded and from a reopened one, as N-Quads and as TriG.
//!
//! Load and dump are read by the RDF library and compared by their canonical forms.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use oxrdf::Quad;
use oxrdfio::{RdfFormat, RdfParser};
use stoa_database::{CancelHandle, DumpFormat, GraphFormat, Input, LoadOptions};
use stoa_testsuite::canonical::{Canonical, canonical, components};
use stoa_testsuite::data;
use stoa_testsuite::scratch::Scratch;

const BASE: &str = "http://example.org/";

/// In how many parts a dataset is loaded the second time.
const PARTS: usize = 30;

fn parse(bytes: &[u8], format: RdfFormat) -> Vec<Quad> {
    RdfParser::from_format(format)
        .with_base_iri(BASE)
        .unwrap()
        .for_slice(bytes)
        .map(Result::unwrap)
        .collect()
}

fn assert_dump(scratch: &Scratch, expected: &Canonical, what: &str) {
    for (format, read_as) in [
        (DumpFormat::NQuads, RdfFormat::NQuads),
        (DumpFormat::TriG, RdfFormat::TriG),
    ] {
        let dump = scratch.dump(format).unwrap();
        let found = canonical(parse(&dump, read_as));
        if let Some(difference) = expected.difference(&found) {
            panic!("{what}, {format:?}: {difference}");
        }
    }
}

fn assert_sound(scratch: &Scratch) {
    let check = scratch.database().check(&(), &CancelHandle::new()).unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

/// The quads as N-Quads in [`PARTS`] parts, in their order but for connected blank nodes, which stay
/// together as their labels mean nothing elsewhere.
fn parts(quads: &[Quad]) -> Vec<String> {
    let mut parts = vec![String::new(); PARTS];
    let length = quads.len().div_ceil(PARTS);
    let mut part_of_component = std::collections::BTreeMap::new();
    for (number, (quad, component)) in quads.iter().zip(components(quads)).enumerate() {
        let part = match component {
            None => number / length,
            Some(component) => *part_of_component
                .entry(component)
                .or_insert(number / length),
        };
        writeln!(parts[part], "{quad} .").unwrap();
    }
    parts
}

fn round_trip(name: &str, format: RdfFormat) {
    let Some(folder) = data::datasets() else {
        return;
    };
    let path = folder.join(name);
    let mut bytes = Vec::new();
    let file = std::fs::read(&path).unwrap();
    MultiGzDecoder::new(&*file).read_to_end(&mut bytes).unwrap();
    let quads = parse(&bytes, format);
    drop(bytes);
    let parts = parts(&quads);
    let expected = canonical(quads);
    let quads = u64::try_from(expected.quads()).unwrap();

    let mut scratch = Scratch::new();
    let options = LoadOptions {
        inputs: vec![Input::Path(path)],
        base: Some(BASE.to_owned()),
        ..LoadOptions::default()
    };
    let summary = scratch.database().load(options, &()).unwrap();
    assert_eq!(summary.quads_new, quads);
    assert_dump(&scratch, &expected, "loaded at once");
    let before = scratch.dump(DumpFormat::NQuads).unwrap();
    scratch.reopen();
    assert!(
        before == scratch.dump(DumpFormat::NQuads).unwrap(),
        "a reopened database is dumped differently"
    );
    drop(before);
    assert_sound(&scratch);

    let mut scratch = Scratch::new();
    let mut quads_new = 0;
    for part in parts {
        let summary = scratch.load(part, GraphFormat::NQuads, None, None).unwrap();
        quads_new += summary.quads_new;
    }
    assert_eq!(quads_new, quads);
    scratch.reopen();
    assert_eq!(scratch.database().commit(), u64::try_from(PARTS).unwrap());
    assert_dump(&scratch, &expected, "loaded in parts and reopened");
    assert_sound(&scratch);
    println!(
        "{name}: {quads} quads, {} components of blank nodes",
        expected.components()
    );
}

#[test]
fn a_dump_of_dbpedia_equals_the_load() {
    round_trip("dbpedia-music.ttl.gz", RdfFormat::Turtle);
}

#[test]
fn a_dump_of_fibo_and_qudt_equals_the_load() {
    round_trip("fibo-qudt.nq.gz", RdfFormat::NQuads);
}

#[test]
fn a_dump_of_saam_equals_the_load() {
    round_trip("saam.nt.gz", RdfFormat::NTriples);
}

#[test]
fn a_dump_of_schema_org_equals_the_load() {
    round_trip("schemaorg-releases.nq.gz", RdfFormat::NQuads);
}
