//! Manifests: the lists of tests.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use oxrdf::{Graph, NamedNode, NamedOrBlankNode, NamedOrBlankNodeRef, Term, TermRef};
use oxttl::TurtleParser;

/// Where the suites lie on the web; IRIs of tests are built on it.
pub(super) const SITE: &str = "https://w3c.github.io/rdf-tests/";

const MF: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#";
const QT: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#";
const UT: &str = "http://www.w3.org/2009/sparql/tests/test-update#";

/// The tests of a manifest and of those that it includes.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// In the order of the files.
    pub tests: Vec<Test>,
}

/// One test.
#[derive(Clone, Debug, Default)]
pub struct Test {
    /// The manifest's path below the root.
    pub manifest: String,
    /// The name of the test.
    pub name: String,
    /// The local name of its class, such as `QueryEvaluationTest`.
    pub kind: String,
    /// Whether it was withdrawn.
    pub is_deprecated: bool,
    /// Whether `mf:LaxCardinality` is asked for.
    pub lax_cardinality: bool,
    /// The file that is read or the query that is run.
    pub action: Option<String>,
    /// IRIs of files for the default graph.
    pub data: Vec<String>,
    /// Names of graphs and the files for them.
    pub graph_data: Vec<(String, String)>,
    /// IRIs of endpoints and of the files for the default graph of each.
    pub service_data: Vec<(String, Vec<String>)>,
    /// The IRI of the file of expected results.
    pub result: Option<String>,
    /// IRIs of files for the default graph after an update.
    pub result_data: Vec<String>,
    /// Names of graphs after an update, and the files for them.
    pub result_graph_data: Vec<(String, String)>,
    /// The base of IRIs in the action.
    pub base: String,
}

/// The file behind an IRI of the suites.
pub(super) fn path_of(root: &Path, iri: &str) -> anyhow::Result<PathBuf> {
    let below = iri
        .strip_prefix(SITE)
        .with_context(|| format!("{iri} is not of the suites"))?;
    Ok(root.join(below))
}

impl Manifest {
    /// Reads the manifest at this path below the root.
    ///
    /// # Errors
    /// If it, or one that it includes, is missing or damaged.
    pub fn read(root: &Path, path: &str) -> anyhow::Result<Self> {
        let mut manifest = Self::default();
        manifest.add(root, path)?;
        Ok(manifest)
    }

    fn add(&mut self, root: &Path, path: &str) -> anyhow::Result<()> {
        let file = root.join(path);
        let bytes = std::fs::read(&file).with_context(|| file.display().to_string())?;
        let base = format!("{SITE}{path}");
        let graph: Graph = TurtleParser::new()
            .with_base_iri(&base)?
            .for_slice(&bytes)
            .collect::<Result<_, _>>()
            .with_context(|| file.display().to_string())?;
        let reader = Reader { graph: &graph };
        for (predicate, is_test) in [("include", false), ("entries", true)] {
            let predicate = iri(MF, predicate);
            let lists: Vec<Term> = graph
                .triples_for_predicate(&predicate)
                .map(|triple| triple.object.into_owned())
                .collect();
            for item in lists.iter().flat_map(|list| reader.list(list)) {
                let Term::NamedNode(item) = item else {
                    continue;
                };
                if is_test {
                    self.tests.push(reader.test(&item, path, &base));
                } else {
                    let below = item
                        .as_str()
                        .strip_prefix(SITE)
                        .context("an include elsewhere")?;
                    self.add(root, below)?;
                }
            }
        }
        Ok(())
    }
}

fn iri(namespace: &str, name: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{namespace}{name}"))
}

struct Reader<'a> {
    graph: &'a Graph,
}

impl Reader<'_> {
    fn objects(&self, subject: &NamedOrBlankNode, predicate: &NamedNode) -> Vec<Term> {
        let subject: NamedOrBlankNodeRef<'_> = subject.as_ref();
        self.graph
            .objects_for_subject_predicate(subject, predicate)
            .map(TermRef::into_owned)
            .collect()
    }

    fn list(&self, head: &Term) -> Vec<Term> {
        let mut items = Vec::new();
        let mut current = head.clone();
        while let Some(node) = as_subject(&current) {
            let first = oxrdf::vocab::rdf::FIRST.into_owned();
            let rest = oxrdf::vocab::rdf::REST.into_owned();
            items.extend(self.objects(&node, &first));
            match self.objects(&node, &rest).into_iter().next() {
                Some(next) => current = next,
                None => break,
            }
        }
        items
    }

    fn test(&self, node: &NamedNode, manifest: &str, base: &str) -> Test {
        let subject = NamedOrBlankNode::from(node.clone());
        let first = |predicate: NamedNode| self.objects(&subject, &predicate).into_iter().next();
        let kind = first(oxrdf::vocab::rdf::TYPE.into_owned()).map(|term| text(&term));
        let approvals: Vec<Term> = [
            "http://www.w3.org/2001/sw/DataAccess/tests/test-dawg#approval",
            "http://www.w3.org/ns/rdftest#approval",
        ]
        .into_iter()
        .flat_map(|p| self.objects(&subject, &NamedNode::new_unchecked(p)))
        .collect();
        let deprecated = ["Deprecated", "Rejected", "Withdrawn", "Obsoleted"];
        let mut test = Test {
            manifest: manifest.to_owned(),
            name: node
                .as_str()
                .rsplit(['#', '/'])
                .next()
                .unwrap_or_default()
                .to_owned(),
            kind: local_name(&kind.unwrap_or_default()),
            is_deprecated: approvals
                .iter()
                .any(|a| deprecated.iter().any(|d| text(a).ends_with(d))),
            lax_cardinality: first(iri(MF, "resultCardinality"))
                .is_some_and(|term| text(&term).ends_with("LaxCardinality")),
            result: first(iri(MF, "result")).map(|term| text(&term)),
            base: base.to_owned(),
            ..Test::default()
        };
        match first(iri(MF, "action")) {
            Some(Term::NamedNode(action)) => {
                test.base = action.as_str().to_owned();
                test.action = Some(action.into_string());
            }
            Some(Term::BlankNode(action)) => {
                let action = action.into();
                self.query_action(&action, &mut test);
                self.update_action(&action, &mut test);
            }
            _ => {}
        }
        if let Some(Term::BlankNode(result)) = first(iri(MF, "result")) {
            (test.result_data, test.result_graph_data) = self.dataset(&result.into());
        }
        test
    }

    fn update_action(&self, action: &NamedOrBlankNode, test: &mut Test) {
        if let Some(request) = self.objects(action, &iri(UT, "request")).first() {
            test.base = text(request);
            test.action = Some(text(request));
            (test.data, test.graph_data) = self.dataset(action);
        }
    }

    /// The files of the default graph and of named ones, as tests of updates name them.
    fn dataset(&self, node: &NamedOrBlankNode) -> (Vec<String>, Vec<(String, String)>) {
        let data = self.objects(node, &iri(UT, "data"));
        let mut graphs = Vec::new();
        for graph in self.objects(node, &iri(UT, "graphData")) {
            let Some(node) = as_subject(&graph) else {
                continue;
            };
            let label = oxrdf::vocab::rdfs::LABEL.into_owned();
            let file = self.objects(&node, &iri(UT, "graph"));
            if let (Some(name), Some(file)) = (self.objects(&node, &label).first(), file.first()) {
                graphs.push((text(name), text(file)));
            }
        }
        (data.iter().map(text).collect(), graphs)
    }

    fn query_action(&self, action: &NamedOrBlankNode, test: &mut Test) {
        let texts = |name: &str| -> Vec<Term> { self.objects(action, &iri(QT, name)) };
        if let Some(query) = texts("query").first() {
            test.base = text(query);
            test.action = Some(text(query));
        }
        test.data = texts("data").iter().map(text).collect();
        for service in texts("serviceData") {
            let Some(node) = as_subject(&service) else {
                continue;
            };
            let of = |name: &str| self.objects(&node, &iri(QT, name));
            let data = of("data").iter().map(text).collect();
            let endpoint = of("endpoint").first().map(text);
            test.service_data.push((endpoint.unwrap_or_default(), data));
        }
        for graph in texts("graphData") {
            let labelled = as_subject(&graph).filter(|_| matches!(graph, Term::BlankNode(_)));
            let Some(node) = labelled else {
                test.graph_data.push((text(&graph), text(&graph)));
                continue;
            };
            let label = oxrdf::vocab::rdfs::LABEL.into_owned();
            let file = self.objects(&node, &iri(QT, "graph"));
            if let (Some(name), Some(file)) = (self.objects(&node, &label).first(), file.first()) {
                test.graph_data.push((text(name), text(file)));
            }
        }
    }
}

fn as_subject(term: &Term) -> Option<NamedOrBlankNode> {
    match term {
        Term::NamedNode(node) if node.as_ref() == oxrdf::vocab::rdf::NIL => None,
        Term::NamedNode(node) => Some(node.clone().into()),
        Term::BlankNode(node) => Some(node.clone().into()),
        _ => None,
    }
}

fn text(term: &Term) -> String {
    match term {
        Term::NamedNode(node) => node.as_str().to_owned(),
        Term::Literal(literal) => literal.value().to_owned(),
        other => other.to_string(),
    }
}

fn local_name(iri: &str) -> String {
    iri.rsplit(['#', '/']).next().unwrap_or_default().to_owned()
}
