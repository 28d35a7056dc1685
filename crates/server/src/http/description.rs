//! The description of a service and of the dataset behind it, in RDF.
//!
//! # References
//! SPARQL 1.1 Service Description; Describing Linked Datasets with the VoID Vocabulary.

use oxrdfio::{RdfFormat, RdfSerializer};
use stoa_database::oxrdf::vocab::{rdf, rdfs};
use stoa_database::oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use stoa_database::{CancelHandle, Database, DatasetStatistics, GraphFormat, Partitions};

use super::Settings;
use super::answering::{Work, choose, graph_offers};
use super::problem::Problem;

const SD: &str = "http://www.w3.org/ns/sparql-service-description#";
const VOID: &str = "http://rdfs.org/ns/void#";
const FORMATS: &str = "http://www.w3.org/ns/formats/";

/// Formats of answers, by their names in the registry of formats.
const RESULT_FORMATS: [&str; 10] = [
    "SPARQL_Results_JSON",
    "SPARQL_Results_XML",
    "SPARQL_Results_CSV",
    "SPARQL_Results_TSV",
    "Turtle",
    "N-Triples",
    "N-Quads",
    "TriG",
    "RDF_XML",
    "JSON-LD",
];

/// A description that is still to be written.
pub(super) struct Description {
    database: Database,
    endpoint: String,
    format: GraphFormat,
    pub(super) content_type: &'static str,
    union_default_graph: bool,
    federated: bool,
    is_writable: bool,
    cancel: CancelHandle,
}

/// The work of describing the service at `endpoint`.
///
/// # Errors
/// 406 if the client accepts no format of triples.
pub(super) fn work(
    database: Database,
    endpoint: String,
    accept: Option<&str>,
    settings: &Settings,
    cancel: CancelHandle,
) -> Result<Work, Problem> {
    let formats = [
        GraphFormat::Turtle,
        GraphFormat::NTriples,
        GraphFormat::RdfXml,
    ];
    let (format, content_type) = choose(accept, &graph_offers(&formats))?;
    Ok(Work::Description(Box::new(Description {
        database,
        endpoint,
        format,
        content_type,
        union_default_graph: settings.default_graph_union,
        federated: settings.federated,
        is_writable: !settings.writers.is_empty(),
        cancel,
    })))
}

impl Description {
    /// Counts the dataset and appends the description.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let statistics = self.database.statistics(&self.cancel)?;
        let format = match self.format {
            GraphFormat::NTriples => RdfFormat::NTriples,
            GraphFormat::RdfXml => RdfFormat::RdfXml,
            _ => RdfFormat::Turtle,
        };
        let mut writer = RdfSerializer::from_format(format);
        for (prefix, iri) in [("sd", SD), ("void", VOID), ("rdfs", RDFS)] {
            writer = writer.with_prefix(prefix, iri).map_err(not_written)?;
        }
        let mut writer = writer.for_writer(&mut *out);
        for triple in self.triples(&statistics)? {
            writer.serialize_triple(&triple).map_err(not_written)?;
        }
        writer.finish().map_err(not_written)?;
        Ok(())
    }

    fn triples(&self, statistics: &DatasetStatistics) -> Result<Vec<Triple>, Problem> {
        // The Host header stands in the address.
        let endpoint = NamedNode::new(&self.endpoint).map_err(|error| {
            Problem::bad_request(format!("the Host of the request names no address: {error}"))
        })?;
        let mut graph = Graph::default();
        let service: NamedOrBlankNode = endpoint.clone().into();
        graph.add(&service, rdf::TYPE.into_owned(), sd("Service"));
        graph.add(&service, sd("endpoint"), endpoint);
        graph.add(&service, sd("supportedLanguage"), sd("SPARQL11Query"));
        if self.is_writable {
            graph.add(&service, sd("supportedLanguage"), sd("SPARQL11Update"));
        }
        for format in RESULT_FORMATS {
            let format = NamedNode::new_unchecked(format!("{FORMATS}{format}"));
            graph.add(&service, sd("resultFormat"), format);
        }
        graph.add(&service, sd("feature"), sd("EmptyGraphs"));
        if self.union_default_graph {
            graph.add(&service, sd("feature"), sd("UnionDefaultGraph"));
        }
        if self.federated {
            graph.add(&service, sd("feature"), sd("BasicFederatedQuery"));
        }
        graph.add(
            &service,
            sd("defaultEntailmentRegime"),
            NamedNode::new_unchecked("http://www.w3.org/ns/entailment/Simple"),
        );
        graph.dataset(&service, statistics);
        Ok(graph.0)
    }
}

const RDFS: &str = "http://www.w3.org/2000/01/rdf-schema#";

fn not_written(error: impl std::fmt::Display) -> Problem {
    Problem::new(
        hyper::StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        format!("the description could not be written: {error}"),
    )
}

#[derive(Default)]
struct Graph(Vec<Triple>);

impl Graph {
    fn add(&mut self, subject: &NamedOrBlankNode, predicate: NamedNode, object: impl Into<Term>) {
        self.0
            .push(Triple::new(subject.clone(), predicate, object.into()));
    }

    fn node(&mut self, of: &NamedOrBlankNode, predicate: NamedNode) -> NamedOrBlankNode {
        let node = BlankNode::default();
        self.add(of, predicate, node.clone());
        node.into()
    }

    fn count(&mut self, subject: &NamedOrBlankNode, predicate: NamedNode, count: u64) {
        self.add(subject, predicate, Literal::from(count));
    }

    fn dataset(&mut self, service: &NamedOrBlankNode, statistics: &DatasetStatistics) {
        let dataset = self.node(service, sd("defaultDataset"));
        self.add(&dataset, rdf::TYPE.into_owned(), sd("Dataset"));
        self.add(&dataset, rdf::TYPE.into_owned(), void("Dataset"));
        self.count(&dataset, void("triples"), statistics.quads);
        let default = self.node(&dataset, sd("defaultGraph"));
        self.add(&default, rdf::TYPE.into_owned(), sd("Graph"));
        self.count(&default, void("triples"), statistics.default_graph);
        for (name, triples) in &statistics.graphs.largest {
            let named = self.node(&dataset, sd("namedGraph"));
            self.add(&named, rdf::TYPE.into_owned(), sd("NamedGraph"));
            self.add(&named, sd("name"), name.clone());
            let content = self.node(&named, sd("graph"));
            self.add(&content, rdf::TYPE.into_owned(), sd("Graph"));
            self.count(&content, void("triples"), *triples);
        }
        self.incomplete(&dataset, &statistics.graphs, "named graphs");
        for (parts, what, total, partition, name) in [
            (
                &statistics.predicates,
                "predicates",
                "properties",
                "propertyPartition",
                "property",
            ),
            (
                &statistics.classes,
                "classes",
                "classes",
                "classPartition",
                "class",
            ),
        ] {
            if let Some(count) = parts.total {
                self.count(&dataset, void(total), count);
            }
            for (iri, triples) in &parts.largest {
                let part = self.node(&dataset, void(partition));
                self.add(&part, void(name), iri.clone());
                // Of a class its instances are counted, of a property its triples.
                let counted = if name == "class" {
                    "entities"
                } else {
                    "triples"
                };
                self.count(&part, void(counted), *triples);
            }
            self.incomplete(&dataset, parts, what);
        }
    }

    /// Says so where not everything is listed.
    fn incomplete(&mut self, dataset: &NamedOrBlankNode, parts: &Partitions, what: &str) {
        let listed = u64::try_from(parts.largest.len()).unwrap_or(u64::MAX);
        let text = match parts.total {
            Some(total) if total <= listed => return,
            Some(total) => format!("The {listed} largest of {total} {what} are listed."),
            None => format!("There are too many {what} to list."),
        };
        let comment = Literal::new_simple_literal(text);
        self.add(dataset, rdfs::COMMENT.into_owned(), comment);
    }
}

fn sd(name: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{SD}{name}"))
}

fn void(name: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{VOID}{name}"))
}
