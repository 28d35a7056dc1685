//! Tests of the writers on views made from terms.

use std::fmt::Write as _;

use super::graph::GraphWriter;
use super::term::TermView;
use crate::format::GraphFormat;
use oxrdf::Term;

fn terms(turtle: &str) -> Vec<[Term; 3]> {
    oxttl::TurtleParser::new()
        .for_slice(turtle)
        .map(|triple| {
            let triple = triple.unwrap();
            [
                triple.subject.into(),
                triple.predicate.into(),
                triple.object,
            ]
        })
        .collect()
}

fn written(format: GraphFormat, triples: &[[Term; 3]], graphs: &[Option<Term>]) -> String {
    let mut writer = GraphWriter::new(format);
    let mut out = Vec::new();
    for (index, [subject, predicate, object]) in triples.iter().enumerate() {
        let graph = graphs
            .get(index % graphs.len().max(1))
            .and_then(Option::as_ref);
        let graph = graph.map(TermView::from_term);
        let views = [subject, predicate, object].map(TermView::from_term);
        let [subject, predicate, object] = &views;
        writer
            .quad([subject, predicate, object], graph.as_ref(), &mut out)
            .unwrap();
    }
    writer.finish(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const TURTLE: &str = r#"
    @prefix : <http://e/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
    :a a :T ; :p 1 , 1.5 , 1e0 , true , "01"^^xsd:integer , "x"@en , "y"^^:d , "\"\\\n\t\u0001" .
    :b :p "1."^^xsd:decimal , "INF"^^xsd:double , ".5"^^xsd:decimal , "+1"^^xsd:integer .
"#;

#[test]
fn turtle_and_n_triples_are_read_back() {
    let triples = terms(TURTLE);
    for format in [GraphFormat::Turtle, GraphFormat::NTriples] {
        let text = written(format, &triples, &[]);
        assert_eq!(terms(&text), triples, "{text}");
    }
    let turtle = written(GraphFormat::Turtle, &triples, &[]);
    assert!(
        turtle.contains(" a <http://e/T>") && turtle.contains(" , 1.5 , 1e0 , true"),
        "{turtle}"
    );
}

#[test]
fn trig_and_n_quads_are_read_back() {
    let triples = terms(TURTLE);
    let graph = |name: &str| Some(oxrdf::NamedNode::new_unchecked(name).into());
    let graphs = [
        None,
        graph("http://e/g"),
        graph("http://e/g"),
        graph("http://e/h"),
    ];
    let quads = |text: &str, format| {
        let parser = oxrdfio::RdfParser::from_format(format).for_slice(text.as_bytes());
        parser
            .map(|quad| quad.unwrap().to_string())
            .collect::<Vec<_>>()
    };
    let trig = written(GraphFormat::TriG, &triples, &graphs);
    let n_quads = written(GraphFormat::NQuads, &triples, &graphs);
    assert_eq!(
        quads(&trig, oxrdfio::RdfFormat::TriG),
        quads(&n_quads, oxrdfio::RdfFormat::NQuads),
        "{trig}"
    );
}

#[test]
fn rdf_xml_is_read_back() {
    let triples = terms("@prefix : <http://e/> . :a :p 1 , \"x\"@en . :b :q :c .");
    let text = written(GraphFormat::RdfXml, &triples, &[]);
    let parser = oxrdfio::RdfParser::from_format(oxrdfio::RdfFormat::RdfXml);
    assert_eq!(
        parser
            .for_slice(text.as_bytes())
            .filter(Result::is_ok)
            .count(),
        3,
        "{text}"
    );
}

#[test]
fn json_ld_is_read_back() {
    let list = "@prefix : <http://e/> . :s :p ( 1 \"x\"@ar--rtl _:b ) . _:b :q [ :r 2.50 ] .";
    let graphs = [
        None,
        Some(oxrdf::NamedNode::new_unchecked("http://e/g").into()),
    ];
    let small = format!("{TURTLE} {}", list.replace("@prefix : <http://e/> .", ""));
    let mut large = list.to_owned();
    for i in 0..10_000 {
        write!(large, " :s{} :p {i} .", i / 4).unwrap();
    }
    for (turtle, is_folded) in [(small, true), (large, false)] {
        let triples = terms(&turtle);
        let text = written(GraphFormat::JsonLd, &triples, &graphs);
        let text_of_one = written(GraphFormat::JsonLd, &triples, &[]);
        assert_eq!(text_of_one.contains("@list"), is_folded);
        let canonical = |quads: Vec<oxrdf::Quad>| {
            let mut dataset: oxrdf::Dataset = quads.into_iter().collect();
            dataset.canonicalize(oxrdf::dataset::CanonicalizationAlgorithm::Unstable);
            let mut lines: Vec<String> = dataset.iter().map(|quad| quad.to_string()).collect();
            lines.sort();
            lines
        };
        let read = |text: &str, format| {
            let parser = oxrdfio::RdfParser::from_format(format);
            let quads = parser.for_slice(text.as_bytes());
            canonical(quads.collect::<Result<Vec<_>, _>>().unwrap())
        };
        let json = oxrdfio::RdfFormat::JsonLd {
            profile: oxrdfio::JsonLdProfileSet::empty(),
        };
        let n_quads = written(GraphFormat::NQuads, &triples, &graphs);
        assert_eq!(
            read(&text, json),
            read(&n_quads, oxrdfio::RdfFormat::NQuads)
        );
    }
}
