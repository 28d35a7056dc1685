//! Documents into a transaction, or out of it.
//!
//! The client sends statements that it has as objects in the binary format, with labels of blank nodes
//! that mean the same in every request (`preserveNodeId`), and documents as they are.

use std::io::Read;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use stoa_database::oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term};
use stoa_database::{
    AloneOptions, CancelHandle, ChangeCounts, DocumentOptions, Error, GraphFormat, Input,
    StatementGraphs, StatementPattern, Transaction,
};

use super::binary::{Reader, Statement};
use super::documents::{self, Document, node, term};
use super::labels::{Labels, RequestLabels};
use super::values::Parameters;
use crate::http::parameters::split_content_type;
use crate::http::problem::Problem;
use crate::http::route::joined;
use crate::http::upload::BODY;

const BINARY: &str = "application/x-binary-rdf";

/// Stands for any term in a statement that is removed.
const WILDCARD: &str = "http://www.openrdf.org/schema/sesame#wildcard";

/// Stand for the default graph in a statement that is removed, which without a context is removed from all
/// graphs, and among the graphs of an update.
pub(in crate::http) const NIL: [&str; 2] = [
    "http://rdf4j.org/schema/rdf4j#nil",
    "http://www.openrdf.org/schema/sesame#nil",
];

/// Statements that are handed on together.
const BATCH: usize = 8_192;

#[derive(Clone, Copy, Debug)]
enum Format {
    Binary,
    Text(GraphFormat),
}

/// A document that a request brings.
pub(super) struct Upload {
    format: Format,
    parameters: Parameters,
    labels: Arc<Labels>,
    /// The repository, whose labels are meant.
    name: String,
    pub(super) cancel: CancelHandle,
}

impl Upload {
    /// # Errors
    /// 415 if the document is in no format that can be read.
    pub(super) fn of(
        headers: &HeaderMap,
        parameters: Parameters,
        labels: &Arc<Labels>,
        name: &str,
    ) -> Result<Self, Problem> {
        let content_type = joined(headers, &CONTENT_TYPE)?.unwrap_or_default();
        let (media_type, _) = split_content_type(&content_type);
        let format = match GraphFormat::from_name(&media_type) {
            _ if media_type == BINARY => Format::Binary,
            Some(format) if media_type.contains('/') => Format::Text(format),
            _ => {
                return Err(Problem::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "unsupported-media-type",
                    format!(
                        "statements are not read from {media_type}: take {BINARY} or text/turtle"
                    ),
                ));
            }
        };
        Ok(Self {
            format,
            parameters,
            labels: Arc::clone(labels),
            name: name.to_owned(),
            cancel: CancelHandle::new(),
        })
    }

    /// Whether a document that turns out to be damaged may have been taken in part.
    pub(super) fn may_stop_half_way(&self) -> bool {
        matches!(self.format, Format::Binary) || self.goes_elsewhere()
    }

    /// Whether a text's statements go into several graphs, or its labels mean something outside of it.
    fn goes_elsewhere(&self) -> bool {
        let is_text = matches!(self.format, Format::Text(_));
        is_text && (self.parameters.contexts.len() > 1 || self.parameters.preserves_labels)
    }

    /// Whether a text must not name graphs, since the request says where its statements go.
    fn refuses_graphs(&self) -> bool {
        !self.parameters.contexts.is_empty()
    }

    fn options(&self, format: GraphFormat) -> DocumentOptions {
        DocumentOptions {
            format: Some(format),
            base: self.parameters.base.clone(),
            graph: self.parameters.contexts.first().cloned(),
            refuse_graphs: self.refuses_graphs(),
            cancel: self.cancel.clone(),
            ..DocumentOptions::default()
        }
    }

    /// How the document becomes a commit of its own, in the place of some graphs; `None` for one whose
    /// statements are changed on the way.
    pub(super) fn alone(&self, replaces: Option<StatementGraphs>) -> Option<AloneOptions> {
        match self.format {
            Format::Text(format) if !self.goes_elsewhere() => Some(AloneOptions {
                document: self.options(format),
                replaces,
                ..AloneOptions::default()
            }),
            _ => None,
        }
    }

    /// Adds the document's statements. Contexts of the request go before those of a document in the binary format; one
    /// in another format has none beside them.
    pub(super) fn add(
        &self,
        transaction: &mut Transaction,
        reader: Box<dyn Read + Send>,
    ) -> Result<ChangeCounts, Problem> {
        match self.format {
            Format::Binary => {
                let mut reader = Reader::new(reader)?;
                self.add_all(transaction, &mut || reader.next())
            }
            Format::Text(format) if !self.goes_elsewhere() => {
                let input = Input::from_reader(BODY, reader);
                Ok(transaction.load(input, &self.options(format))?)
            }
            Format::Text(format) => {
                let document = Document {
                    name: BODY,
                    format,
                    base: self.parameters.base.as_deref(),
                };
                let mut quads = documents::quads(&document, reader)?;
                self.add_all(transaction, &mut || {
                    let quad = quads.next().transpose()?;
                    let names_graph = |quad: &Quad| !quad.graph_name.is_default_graph();
                    if self.refuses_graphs() && quad.as_ref().is_some_and(names_graph) {
                        return Err(Error::NamesGraphs.into());
                    }
                    Ok(quad.map(Statement::from))
                })
            }
        }
    }

    /// Removes the document's statements. One in the binary format is a pattern.
    pub(super) fn remove(
        &self,
        transaction: &mut Transaction,
        reader: Box<dyn Read + Send>,
    ) -> Result<ChangeCounts, Problem> {
        match self.format {
            Format::Binary => self.remove_all(transaction, reader),
            Format::Text(_) => Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                format!("what is removed comes as {BINARY}"),
            )),
        }
    }

    fn request_labels(&self, preserves: bool) -> RequestLabels<'_> {
        RequestLabels::new(preserves.then_some(&*self.labels), &self.name)
    }

    fn add_all(
        &self,
        transaction: &mut Transaction,
        next: &mut dyn FnMut() -> Result<Option<Statement>, Problem>,
    ) -> Result<ChangeCounts, Problem> {
        let mut labels = self.request_labels(self.parameters.preserves_labels);
        let (mut counts, mut batch) = (ChangeCounts::default(), Vec::new());
        let mut more = true;
        while more {
            match next()? {
                None => more = false,
                Some(statement) => {
                    let mut known = |node: BlankNode| {
                        labels.find_or_make(node.as_str(), || transaction.blank_node())
                    };
                    self.quads(statement, &mut known, &mut batch);
                }
            }
            if batch.len() >= BATCH || (!more && !batch.is_empty()) {
                let done = transaction.insert(&mut batch.drain(..))?;
                counts.added += done.added;
            }
        }
        Ok(counts)
    }

    /// The statement in each of the graphs that it belongs to.
    fn quads(
        &self,
        statement: Statement,
        known: &mut dyn FnMut(BlankNode) -> BlankNode,
        quads: &mut Vec<Quad>,
    ) {
        let subject = node(statement.subject, known);
        let object = term(statement.object, known);
        let mut add = |graph: GraphName| {
            let predicate = statement.predicate.clone();
            quads.push(Quad::new(subject.clone(), predicate, object.clone(), graph));
        };
        if self.parameters.contexts.is_empty() {
            let own = statement.context.map(|context| node(context, known).into());
            add(own.unwrap_or(GraphName::DefaultGraph));
        }
        for context in &self.parameters.contexts {
            add(context.clone());
        }
    }

    fn remove_all(
        &self,
        transaction: &mut Transaction,
        reader: Box<dyn Read + Send>,
    ) -> Result<ChangeCounts, Problem> {
        let mut reader = Reader::new(reader)?;
        // What is removed was there before, so labels can only mean what they meant before.
        let mut labels = self.request_labels(true);
        let (mut counts, mut batch) = (ChangeCounts::default(), Vec::new());
        let mut more = true;
        while more {
            match reader.next()? {
                None => more = false,
                Some(statement) => match self.pattern(statement, &mut labels) {
                    Wanted::Nothing => {}
                    Wanted::Quad(quad) => batch.push(quad),
                    Wanted::Pattern(pattern) => {
                        let done = transaction.remove_statements(&pattern, &self.cancel)?;
                        counts.removed += done.removed;
                    }
                },
            }
            if batch.len() >= BATCH || (!more && !batch.is_empty()) {
                let done = transaction.remove(&mut batch.drain(..))?;
                counts.removed += done.removed;
            }
        }
        Ok(counts)
    }

    /// What a statement says is to be removed.
    fn pattern(&self, statement: Statement, labels: &mut RequestLabels<'_>) -> Wanted {
        let mut is_known = true;
        let mut known = |node: BlankNode| {
            let found = labels.find(node.as_str());
            is_known &= found.is_some();
            found.unwrap_or(node)
        };
        let subject = node(statement.subject, &mut known);
        let object = term(statement.object, &mut known);
        let context = statement.context.map(|context| node(context, &mut known));
        if !is_known {
            return Wanted::Nothing;
        }
        let graphs = match context {
            None => self.parameters.graphs(),
            Some(NamedOrBlankNode::NamedNode(name)) if NIL.contains(&name.as_str()) => {
                StatementGraphs::Only(vec![GraphName::DefaultGraph])
            }
            Some(context) => StatementGraphs::Only(vec![context.into()]),
        };
        let is_any = |term: &Term| matches!(term, Term::NamedNode(name) if is_wildcard(name));
        let any_subject = is_any(&subject.clone().into());
        let (any_predicate, any_object) = (is_wildcard(&statement.predicate), is_any(&object));
        if let StatementGraphs::Only(graphs) = &graphs
            && let [graph] = graphs.as_slice()
            && !any_subject
            && !any_predicate
            && !any_object
        {
            let quad = Quad::new(subject, statement.predicate, object, graph.clone());
            return Wanted::Quad(quad);
        }
        Wanted::Pattern(StatementPattern {
            subject: (!any_subject).then_some(subject),
            predicate: (!any_predicate).then_some(statement.predicate),
            object: (!any_object).then_some(object),
            graphs,
        })
    }
}

/// What is removed.
enum Wanted {
    Nothing,
    Quad(Quad),
    Pattern(StatementPattern),
}

fn is_wildcard(name: &NamedNode) -> bool {
    name.as_str() == WILDCARD
}
