//! What is written as XML is XML: a parser that is not ours reads solutions and RDF/XML back. What XML
//! cannot hold is an error, not something else.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use oxrdf::Term;
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{GraphFormat, QueryOptions, QueryResult};
use stoa_testsuite::scratch::Scratch;

const RESULTS: &str = "http://www.w3.org/2005/sparql-results#";
const ITS: &str = "http://www.w3.org/2005/11/its";

/// Texts that need escapes, or seem to.
const TEXTS: [&str; 12] = [
    "",
    " ",
    "<a b=\"c\">&amp;</a>",
    "]]>",
    "<![CDATA[x]]>",
    "<!-- -- -->",
    "a\tb\nc\rd\r\ne",
    "  two  spaces\n",
    "'\"&#1;&#x0;",
    "\u{7f}\u{85}\u{2028}\u{fffd}\u{d7ff}\u{e000}",
    "\u{10ffff}\u{1f600}\u{301}",
    "<?xml version=\"1.0\"?>",
];

fn load(texts: &[&str]) -> Scratch {
    let mut data = String::new();
    for (number, text) in texts.iter().enumerate() {
        let subject = format!("<http://example.org/s{number}?a=1&b='2'>");
        for literal in [
            oxrdf::Literal::new_simple_literal(*text),
            oxrdf::Literal::new_language_tagged_literal_unchecked(*text, "en-gb"),
            oxrdf::Literal::new_directional_language_tagged_literal_unchecked(
                *text,
                "ar",
                oxrdf::BaseDirection::Rtl,
            ),
            oxrdf::Literal::new_typed_literal(
                *text,
                oxrdf::NamedNode::new_unchecked("http://example.org/type?a&b"),
            ),
        ] {
            writeln!(data, "{subject} <http://example.org/p> {literal} .").unwrap();
        }
        writeln!(
            data,
            "{subject} <http://example.org/n#\u{e9}> _:b{number} ."
        )
        .unwrap();
    }
    let scratch = Scratch::new();
    scratch.load(data, GraphFormat::NQuads, None, None).unwrap();
    scratch
}

/// The answer in a format.
fn answer(scratch: &Scratch, text: &str, format: ResultFormat) -> Result<String, String> {
    let options = QueryOptions::default();
    let query = scratch.database().prepare(text, &options).unwrap();
    let mut answer = Answer::new(query, format).unwrap();
    let mut out = Vec::new();
    while answer.step(&mut out).map_err(|error| error.to_string())? {}
    Ok(String::from_utf8(out).unwrap())
}

/// What a parser tells of a document: the path to each element, its attributes and its text. Names have
/// their namespaces, and attributes are sorted.
fn elements(document: &str) -> Vec<(String, BTreeMap<String, String>, String)> {
    let mut reader = NsReader::from_str(document);
    let config = reader.config_mut();
    config.expand_empty_elements = true;
    config.check_comments = true;
    let mut all: Vec<(String, BTreeMap<String, String>, String)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    loop {
        let (namespace, event) = reader.read_resolved_event().unwrap();
        let namespace = match namespace {
            ResolveResult::Bound(namespace) => {
                String::from_utf8(namespace.as_ref().to_vec()).unwrap()
            }
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(prefix) => panic!("{prefix:?} is no prefix"),
        };
        match event {
            Event::Start(tag) => {
                let local = String::from_utf8(tag.local_name().as_ref().to_vec()).unwrap();
                let mut attributes = BTreeMap::new();
                for attribute in tag.attributes() {
                    let attribute = attribute.unwrap();
                    let (namespace, name) = reader.resolve_attribute(attribute.key);
                    let mut key = String::new();
                    if let ResolveResult::Bound(namespace) = namespace {
                        key += std::str::from_utf8(namespace.as_ref()).unwrap();
                    }
                    key += std::str::from_utf8(name.as_ref()).unwrap();
                    let value = attribute.decode_and_unescape_value(reader.decoder());
                    attributes.insert(key, value.unwrap().into_owned());
                }
                open.push(all.len());
                all.push((format!("{namespace}{local}"), attributes, String::new()));
            }
            Event::End(_) => drop(open.pop()),
            Event::Text(text) => {
                let text = text.unescape().unwrap();
                if let Some(element) = open.last().and_then(|at| all.get_mut(*at)) {
                    element.2 += &text;
                }
            }
            Event::Eof => break,
            Event::Decl(_) | Event::Comment(_) => (),
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "an element is open at the end");
    all
}

/// The terms of solutions in the order of the document.
fn terms(document: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (name, attributes, text) in elements(document) {
        let Some(name) = name.strip_prefix(RESULTS) else {
            panic!("{name} is not of the format");
        };
        let attribute = |name: &str| attributes.get(name).cloned();
        terms.push(match name {
            "uri" => oxrdf::NamedNode::new_unchecked(text).into(),
            "bnode" => oxrdf::BlankNode::new_unchecked(text).into(),
            "literal" => {
                let language = attribute("http://www.w3.org/XML/1998/namespacelang");
                match (
                    language,
                    attribute(&format!("{ITS}dir")),
                    attribute("datatype"),
                ) {
                    (Some(language), Some(direction), _) => {
                        assert_eq!(direction, "rtl");
                        let rtl = oxrdf::BaseDirection::Rtl;
                        oxrdf::Literal::new_directional_language_tagged_literal_unchecked(
                            text, language, rtl,
                        )
                        .into()
                    }
                    (Some(language), None, _) => {
                        oxrdf::Literal::new_language_tagged_literal_unchecked(text, language).into()
                    }
                    (None, None, Some(datatype)) => {
                        let datatype = oxrdf::NamedNode::new_unchecked(datatype);
                        oxrdf::Literal::new_typed_literal(text, datatype).into()
                    }
                    _ => oxrdf::Literal::new_simple_literal(text).into(),
                }
            }
            _ => continue,
        });
    }
    terms
}

#[test]
fn solutions_are_read_back() {
    let scratch = load(&TEXTS);
    let text = "SELECT * { ?s ?p ?o }";
    let xml = ResultFormat::Solutions(SolutionsFormat::Xml);
    let document = answer(&scratch, text, xml).unwrap();
    let result = scratch.database().query(text, &QueryOptions::default());
    let QueryResult::Solutions(solutions) = result.unwrap() else {
        panic!("solutions");
    };
    let mut expected = Vec::new();
    for solution in solutions {
        expected.extend(solution.unwrap().values().iter().flatten().cloned());
    }
    assert_eq!(expected.len(), TEXTS.len() * 5 * 3);
    assert_eq!(terms(&document), expected);
}

#[test]
fn rdf_xml_is_read_back() {
    let scratch = load(&TEXTS);
    let text = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }";
    let document = answer(&scratch, text, ResultFormat::Graph(GraphFormat::RdfXml)).unwrap();
    let all = elements(&document);
    for text in TEXTS {
        let property = |(name, _, value): &&(String, BTreeMap<String, String>, String)| {
            name == "http://example.org/p" && value == text
        };
        assert_eq!(all.iter().filter(property).count(), 4, "{text:?}");
    }
    let parser = oxrdfio::RdfParser::from_format(oxrdfio::RdfFormat::RdfXml);
    let mut read: Vec<String> = parser
        .for_slice(document.as_bytes())
        .map(|quad| quad.unwrap().object.to_string())
        .filter(|object| !object.starts_with("_:"))
        .collect();
    read.sort();
    let result = scratch.database().query(text, &QueryOptions::default());
    let QueryResult::Graph(triples) = result.unwrap() else {
        panic!("triples");
    };
    let mut expected: Vec<String> = triples
        .map(|triple| triple.unwrap().object.to_string())
        .filter(|object| !object.starts_with("_:"))
        .collect();
    expected.sort();
    assert_eq!(read, expected);
}

#[test]
fn what_xml_cannot_hold_is_an_error() {
    for (text, code) in [
        ("\u{0}", "U+0000"),
        ("a\u{1}b", "U+0001"),
        ("\u{1f}", "U+001F"),
        ("\u{b}", "U+000B"),
        ("\u{fffe}", "U+FFFE"),
        ("\u{ffff}", "U+FFFF"),
    ] {
        let scratch = load(&[text]);
        for query in [
            "SELECT ?s ?o { ?s <http://example.org/p> ?o }",
            "SELECT ?s (<<( ?s <http://example.org/p> ?text )>> AS ?o) { ?s <http://example.org/p> ?text }",
            "SELECT ?s (STRLANG(STR(?t), 'en') AS ?o) { ?s <http://example.org/p> ?t }",
        ] {
            let in_format = |format| answer(&scratch, query, ResultFormat::Solutions(format));
            let message = in_format(SolutionsFormat::Xml).unwrap_err();
            assert!(
                message.contains(&format!("?o of solution 1: it has no character {code}")),
                "{message}"
            );
            assert!(message.contains("take json"), "{message}");
            for other in [
                SolutionsFormat::Json,
                SolutionsFormat::Tsv,
                SolutionsFormat::Csv,
            ] {
                in_format(other).unwrap();
            }
        }
        let text = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }";
        let message = answer(&scratch, text, ResultFormat::Graph(GraphFormat::RdfXml)).unwrap_err();
        assert!(message.contains("XML has no such characters"), "{message}");
    }
}
