//! The W3C tests of SPARQL Protocol, Graph Store Protocol and Service Description: the manifests say
//! which requests to send and what must come back.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that reports its counts"
)]

use std::path::{Path, PathBuf};

use crate::http_client::{Response, request};
use crate::support::{self, Server, output};
use oxrdfio::{RdfFormat, RdfParser};
use stoa_database::oxrdf::dataset::CanonicalizationAlgorithm;
use stoa_database::oxrdf::{
    Graph, NamedNode, NamedOrBlankNode, NamedOrBlankNodeRef, Term, TermRef,
};
use tempfile::TempDir;

const MF: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#";
const HT: &str = "http://www.w3.org/2011/http#";
const CNT: &str = "http://www.w3.org/2011/content#";
const UT: &str = "http://www.w3.org/2009/sparql/tests/test-update#";
const SD: &str = "http://www.w3.org/ns/sparql-service-description#";

/// How many tests the manifests have; a change of this means that some were missed. One more than is
/// listed in the manifests of the Graph Store Protocol is there.
const PROTOCOL_TESTS: usize = 34;
const GRAPH_STORE_TESTS: usize = 14;

/// What stands for the address of a graph that an earlier request made.
const LOCATION: &str = "$LOCATION$";

fn suites() -> Option<PathBuf> {
    let root = std::env::var_os("STOA_W3C").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/w3c")),
        PathBuf::from,
    );
    let folder = root.join("sparql/sparql11");
    if folder.is_dir() {
        return Some(folder);
    }
    println!(
        "skipped: no W3C suites at {}; set STOA_W3C to a checkout of w3c/rdf-tests",
        root.display()
    );
    None
}

struct Manifest(Graph);

impl Manifest {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let base = format!("file://{}", path.display());
        let parser = RdfParser::from_format(RdfFormat::Turtle)
            .with_base_iri(base)
            .unwrap();
        let mut graph = Graph::new();
        for quad in parser.for_slice(&bytes) {
            graph.insert(&stoa_database::oxrdf::Triple::from(quad.unwrap()));
        }
        Self(graph)
    }

    fn all(&self, subject: &Term, predicate: &str) -> Vec<Term> {
        let subject: NamedOrBlankNodeRef<'_> = match subject {
            Term::NamedNode(node) => node.as_ref().into(),
            Term::BlankNode(node) => node.as_ref().into(),
            _ => return Vec::new(),
        };
        let predicate = NamedNode::new(predicate).unwrap();
        self.0
            .objects_for_subject_predicate(subject, &predicate)
            .map(TermRef::into_owned)
            .collect()
    }

    fn one(&self, subject: &Term, predicate: &str) -> Option<Term> {
        self.all(subject, predicate).into_iter().next()
    }

    fn text(&self, subject: &Term, predicate: &str) -> Option<String> {
        match self.one(subject, predicate)? {
            Term::Literal(literal) => Some(literal.value().to_owned()),
            Term::NamedNode(node) => Some(node.as_str().to_owned()),
            _ => None,
        }
    }

    fn list(&self, head: Option<Term>) -> Vec<Term> {
        const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
        let (mut items, mut next) = (Vec::new(), head);
        while let Some(node) = next {
            items.extend(self.one(&node, &format!("{RDF}first")));
            next = self.one(&node, &format!("{RDF}rest"));
        }
        items
    }

    /// The entries of a kind, with their requests.
    fn tests(&self, kind: &str) -> Vec<(Term, Vec<Term>)> {
        let kind = NamedNode::new(format!("{MF}{kind}")).unwrap();
        let mut tests: Vec<(Term, Vec<Term>)> = self
            .0
            .subjects_for_predicate_object(stoa_database::oxrdf::vocab::rdf::TYPE, &kind)
            .map(|test| {
                let test = Term::from(NamedOrBlankNode::from(test));
                let action = self.one(&test, &format!("{MF}action"));
                let requests =
                    action.and_then(|action| self.one(&action, &format!("{HT}requests")));
                (test, self.list(requests))
            })
            .collect();
        tests.sort_by_key(|(test, _)| test.to_string());
        tests
    }

    fn method(&self, request: &Term) -> String {
        self.text(request, &format!("{HT}methodName")).unwrap()
    }

    fn headers(&self, message: &Term) -> Vec<(String, String)> {
        self.list(self.one(message, &format!("{HT}headers")))
            .iter()
            .map(|header| {
                (
                    self.text(header, &format!("{HT}fieldName")).unwrap(),
                    self.text(header, &format!("{HT}fieldValue")).unwrap(),
                )
            })
            .collect()
    }

    /// The body in the encoding that the manifest names.
    fn body(&self, message: &Term) -> Vec<u8> {
        let Some(body) = self.one(message, &format!("{HT}body")) else {
            return Vec::new();
        };
        let chars = self.text(&body, &format!("{CNT}chars")).unwrap();
        match self
            .text(&body, &format!("{CNT}characterEncoding"))
            .as_deref()
        {
            Some("UTF-16") => chars.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            None | Some("UTF-8") => chars.into_bytes(),
            Some(other) => panic!("encoding {other}"),
        }
    }

    fn send(&self, server: &Server, message: &Term, places: &Places<'_>) -> Response {
        let Places { from, to, location } = places;
        let path = self.text(message, &format!("{HT}absolutePath")).unwrap();
        let path = path.replace(LOCATION, location);
        let rest = path.strip_prefix(*from).unwrap();
        let headers = self.headers(message);
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        request(
            &server.address,
            &self.method(message),
            &format!("{to}{rest}"),
            &headers,
            &self.body(message),
        )
    }

    /// Compares an answer with what the manifest expects.
    fn judge(&self, name: &Term, message: &Term, answer: &Response) {
        let expected = self.one(message, &format!("{HT}resp")).unwrap();
        let statuses: Vec<String> = self
            .all(&expected, &format!("{MF}expectedStatus"))
            .iter()
            .map(|status| {
                let status = status.to_string();
                let name = status.split('#').nth(1).unwrap();
                name.trim_end_matches('>').to_owned()
            })
            .collect();
        let fits = statuses.iter().any(|status| match status.as_str() {
            "StatusCode2xx" => answer.status / 100 == 2,
            "StatusCode3xx" => answer.status / 100 == 3,
            "StatusCode4xx" => answer.status / 100 == 4,
            "OK" => answer.status == 200,
            "Created" => answer.status == 201,
            "NoContent" => answer.status == 204,
            "NotFound" => answer.status == 404,
            other => panic!("{name}: status {other}"),
        });
        assert!(
            fits,
            "{name}: {} for {statuses:?}: {}",
            answer.status,
            answer.text()
        );
        if let Some(boolean) = self.text(&expected, &format!("{MF}expectedBoolean")) {
            let found = format!("\"boolean\":{boolean}");
            let in_xml = format!("<boolean>{boolean}</boolean>");
            let text = answer.text();
            assert!(
                text.contains(&found) || text.contains(&in_xml),
                "{name}: {text}"
            );
        }
        let content_type = answer.header("content-type").unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap();
        match self
            .text(&expected, &format!("{MF}expectedFormat"))
            .as_deref()
        {
            None => {}
            Some("boolean" | "tabular") => assert!(
                media_type.starts_with("application/sparql-results+")
                    || media_type.starts_with("text/"),
                "{name}: {content_type}"
            ),
            Some("RDF") => assert!(
                RdfFormat::from_media_type(media_type).is_some(),
                "{name}: {content_type}"
            ),
            Some(other) => panic!("{name}: format {other}"),
        }
        for (header, value) in self.headers(&expected) {
            assert_eq!(
                answer.header(&header.to_ascii_lowercase()),
                Some(value.as_str()),
                "{name}"
            );
        }
        if answer.status == 200
            && let Some(body) = self.one(&expected, &format!("{HT}body"))
        {
            let chars = self.text(&body, &format!("{CNT}chars")).unwrap();
            let (found, wanted) = (graph(&answer.text()), graph(&chars));
            assert_eq!(found, wanted, "{name}: {}", answer.text());
        }
    }
}

/// Where requests go.
struct Places<'a> {
    /// What their paths begin with in the manifest, and here.
    from: &'a str,
    to: &'a str,
    location: &'a str,
}

/// A graph in Turtle, with blank nodes that can be compared.
fn graph(turtle: &str) -> Graph {
    let parser = RdfParser::from_format(RdfFormat::Turtle);
    let mut graph: Graph = parser
        .for_slice(turtle)
        .map(|quad| stoa_database::oxrdf::Triple::from(quad.unwrap()))
        .collect();
    graph.canonicalize(CanonicalizationAlgorithm::Unstable);
    graph
}

#[test]
fn sparql_protocol() {
    let Some(suites) = suites() else { return };
    let suite = suites.join("protocol");
    let manifest = Manifest::read(&suite.join("manifest.ttl"));
    let folder = TempDir::new().unwrap();
    // Every test names graphs from the same set of files.
    let mut graphs = std::collections::BTreeSet::new();
    let mut tests = manifest.tests("ProtocolTest");
    // Updates make their own data, and leave none.
    tests.sort_by_key(|(test, _)| test.to_string().contains("update"));
    for (test, _) in &tests {
        for data in manifest.all(test, &format!("{UT}graphData")) {
            let file = manifest.text(&data, &format!("{UT}graph")).unwrap();
            let label = "http://www.w3.org/2000/01/rdf-schema#label";
            graphs.insert((file, manifest.text(&data, label).unwrap()));
        }
    }
    for (file, graph) in &graphs {
        let file = file.strip_prefix("file://").unwrap();
        output(
            folder.path(),
            &["load", "--db", "db", "--graph", graph, file],
        );
    }
    let server = Server::start(folder.path(), &[]);
    let places = Places {
        from: "/sparql/",
        to: "/sparql",
        location: "",
    };
    for (test, requests) in &tests {
        for message in requests {
            let answer = manifest.send(&server, message, &places);
            manifest.judge(test, message, &answer);
        }
    }
    let passed = tests.len();
    println!("protocol: {passed} passed, 0 failed, 0 skipped");
    assert_eq!(passed, PROTOCOL_TESTS);
}

#[test]
fn graph_store_protocol() {
    let Some(suites) = suites() else { return };
    let mut passed = 0;
    for file in ["manifest-direct.ttl", "manifest-indirect.ttl"] {
        let manifest = Manifest::read(&suites.join("graph-store-protocol").join(file));
        for (test, requests) in manifest.tests("GraphStoreProtocolTest") {
            let folder = TempDir::new().unwrap();
            let server = Server::start(folder.path(), &[]);
            let mut location = String::new();
            for message in &requests {
                let places = Places {
                    from: "/gsp",
                    to: "/store",
                    location: &location,
                };
                let answer = manifest.send(&server, message, &places);
                manifest.judge(&test, message, &answer);
                let made = answer.header("location").unwrap_or_default();
                location.replace_range(.., made);
            }
            passed += 1;
        }
    }
    println!("graph-store-protocol: {passed} passed, 0 failed, 0 skipped");
    assert_eq!(passed, GRAPH_STORE_TESTS);
}

/// `returns-rdf`, `has-endpoint-triple` and `conforms-to-schema`: what the vocabulary says of domains
/// and ranges holds.
#[test]
fn service_description() {
    if suites().is_none() {
        return;
    }
    let folder = support::loaded();
    let server = Server::start(folder.path(), &[]);
    let answer = request(&server.address, "GET", "/sparql", &[], b"");
    assert_eq!(answer.status, 200);
    let media_type = answer
        .header("content-type")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let format = RdfFormat::from_media_type(&media_type).unwrap();
    let graph: Graph = RdfParser::from_format(format)
        .for_slice(&answer.body)
        .map(|quad| stoa_database::oxrdf::Triple::from(quad.unwrap()))
        .collect();
    let manifest = Manifest(graph);
    let sd = |name: &str| format!("{SD}{name}");
    let rdf_type = stoa_database::oxrdf::vocab::rdf::TYPE.as_str();
    let endpoint = NamedNode::new(format!("http://{}/sparql", server.address)).unwrap();
    let services: Vec<Term> = manifest
        .0
        .subjects_for_predicate_object(&NamedNode::new(sd("endpoint")).unwrap(), &endpoint)
        .map(|service| Term::from(NamedOrBlankNode::from(service)))
        .collect();
    assert_eq!(services.len(), 1, "{}", answer.text());
    let is_a = |term: &Term, class: &str| {
        manifest
            .all(term, rdf_type)
            .contains(&Term::from(NamedNode::new(sd(class)).unwrap()))
    };
    assert!(is_a(&services[0], "Service"));
    let datasets = manifest.all(&services[0], &sd("defaultDataset"));
    assert_eq!(datasets.len(), 1);
    assert!(is_a(&datasets[0], "Dataset"));
    let graphs = manifest.all(&datasets[0], &sd("defaultGraph"));
    assert_eq!(graphs.len(), 1);
    assert!(is_a(&graphs[0], "Graph"));
    for named in manifest.all(&datasets[0], &sd("namedGraph")) {
        assert!(is_a(&named, "NamedGraph"));
        assert_eq!(manifest.all(&named, &sd("name")).len(), 1);
    }
    println!("service-description: 3 passed, 0 failed, 0 skipped");
}
