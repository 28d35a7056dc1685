//! Triples of CONSTRUCT and DESCRIBE, and quads of a dump.
//!
//! Turtle and TriG group what follows each other: one subject's triples in one statement, one
//! predicate's objects in one list, so the input is best sorted by graph, subject, predicate. No
//! prefixes are used, as a stream does not know yet which would pay.
//!
//! JSON-LD is held until it is complete, so that lists are `@list` and a node is one object; what takes
//! more than [`JSONLD_FOLDED_BYTES_MAX`] goes out as it comes, lists as nodes with `rdf:first`.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use oxrdf::{BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple};
use oxrdfio::{JsonLdProfileSet, RdfFormat, RdfSerializer, WriterQuadSerializer};
use stoa_executor::Batch;
use stoa_storage::sync::Mutex;

use super::jsonld::{FromRdfOptions, from_rdf};
use super::rdf_xml;
use super::solutions::until;
use super::term::{
    RDF_TYPE, TermView, TermViews, XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER,
};
use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::JSONLD_FOLDED_BYTES_MAX;

/// Writes triples or quads in one format.
pub struct GraphWriter {
    format: GraphFormat,
    /// Turtle and TriG: the graph, subject and predicate of the open statement, as written.
    open_graph: Vec<u8>,
    open_subject: Vec<u8>,
    open_predicate: Vec<u8>,
    scratch: Vec<u8>,
    /// RDF/XML and JSON-LD, until the end is written.
    library: Option<(WriterQuadSerializer<SharedBuffer>, SharedBuffer)>,
    /// JSON-LD as long as it may fit into one piece, and about its bytes.
    held: Option<(Vec<Quad>, usize)>,
}

impl GraphWriter {
    /// A writer in this format.
    #[must_use]
    pub fn new(format: GraphFormat) -> Self {
        let library = match format {
            GraphFormat::RdfXml => Some(RdfFormat::RdfXml),
            GraphFormat::JsonLd => Some(RdfFormat::JsonLd {
                profile: JsonLdProfileSet::empty(),
            }),
            _ => None,
        };
        let library = library.map(|format| {
            let buffer = SharedBuffer::default();
            let sink = SharedBuffer(Arc::clone(&buffer.0));
            (RdfSerializer::from_format(format).for_writer(sink), buffer)
        });
        Self {
            format,
            open_graph: Vec::new(),
            open_subject: Vec::new(),
            open_predicate: Vec::new(),
            scratch: Vec::new(),
            library,
            held: (format == GraphFormat::JsonLd).then(Default::default),
        }
    }

    /// A writer that goes on where one stands that wrote rows of which these, with terms in `views` row by row, left
    /// open what is.
    pub(super) fn after(format: GraphFormat, views: &TermViews, open: &Batch) -> Result<Self> {
        let mut writer = Self {
            held: None,
            ..Self::new(format)
        };
        let out = &mut Vec::new();
        writer.rows_until(views, open.columns.len(), 0..open.rows, (out, usize::MAX))?;
        Ok(writer)
    }

    pub(super) const fn format(&self) -> GraphFormat {
        self.format
    }

    /// The format, if another writer can go on after this one.
    pub(super) fn form(&self) -> Option<GraphFormat> {
        self.held.is_none().then_some(self.format)
    }

    /// Writes rows of triples or, with four columns, quads, whose terms lie in `views` row by row, until `out` has so many
    /// bytes; returns how many rows.
    ///
    /// # Errors
    /// As [`GraphWriter::quad`], and [`Error::Internal`] if a term is missing or cannot be decoded.
    pub(super) fn rows_until(
        &mut self,
        views: &TermViews,
        columns: usize,
        rows: Range<usize>,
        (out, bytes_max): (&mut Vec<u8>, usize),
    ) -> Result<usize> {
        until(rows, out, bytes_max, |row, out| {
            let at = row * columns;
            let terms = (views.get(at)?, views.get(at + 1)?, views.get(at + 2)?);
            let (Some(subject), Some(predicate), Some(object)) = terms else {
                return Err(Error::Internal("a triple without a term".to_owned()));
            };
            let graph = match columns {
                4 => views.get(at + 3)?,
                _ => None,
            };
            self.quad([&subject, &predicate, &object], graph.as_ref(), out)
        })
    }

    /// Writes one quad; `graph` is `None` for the default graph. Formats of triples leave the graph
    /// out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if RDF/XML or JSON-LD have no way to write the triple.
    pub fn quad(
        &mut self,
        triple: [&TermView<'_>; 3],
        graph: Option<&TermView<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.format {
            GraphFormat::NTriples | GraphFormat::NQuads => {
                for term in triple {
                    term.write_turtle(out);
                    out.push(b' ');
                }
                if let Some(graph) = graph.filter(|_| self.format == GraphFormat::NQuads) {
                    graph.write_turtle(out);
                    out.push(b' ');
                }
                out.extend_from_slice(b".\n");
                Ok(())
            }
            GraphFormat::Turtle => {
                self.grouped(triple, b"", out);
                Ok(())
            }
            GraphFormat::TriG => {
                self.enter_graph(graph, out);
                let indent: &[u8] = if self.open_graph.is_empty() {
                    b""
                } else {
                    b"\t"
                };
                self.grouped(triple, indent, out);
                Ok(())
            }
            GraphFormat::RdfXml => self.by_library(triple, None, out),
            GraphFormat::JsonLd => self.by_library(triple, graph, out),
        }
    }

    /// Writes what comes after the last triple.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if the document cannot be ended.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self.format {
            GraphFormat::NTriples | GraphFormat::NQuads => {}
            GraphFormat::Turtle => self.close_statement(out),
            GraphFormat::TriG => {
                self.close_statement(out);
                self.enter_graph(None, out);
            }
            GraphFormat::RdfXml | GraphFormat::JsonLd => {
                if let Some((quads, _)) = &self.held {
                    let folded = from_rdf(quads.iter().cloned(), &FromRdfOptions::default());
                    if let Ok(folded) = folded {
                        out.extend_from_slice(folded.as_bytes());
                        out.push(b'\n');
                        self.library = None;
                        return Ok(());
                    }
                    self.release(out)?;
                }
                if let Some((serializer, buffer)) = self.library.take() {
                    serializer
                        .finish()
                        .map_err(|_| Error::Internal("ending a document".to_owned()))?;
                    buffer.drain(out);
                }
            }
        }
        Ok(())
    }

    fn close_statement(&mut self, out: &mut Vec<u8>) {
        if !self.open_subject.is_empty() {
            out.extend_from_slice(b" .\n");
            self.open_subject.clear();
            self.open_predicate.clear();
        }
    }

    /// Closes the open graph and opens `graph` if that is another one.
    fn enter_graph(&mut self, graph: Option<&TermView<'_>>, out: &mut Vec<u8>) {
        let mut name = std::mem::take(&mut self.scratch);
        name.clear();
        if let Some(graph) = graph {
            graph.write_turtle(&mut name);
        }
        if name != self.open_graph {
            self.close_statement(out);
            if !self.open_graph.is_empty() {
                out.extend_from_slice(b"}\n");
            }
            if !name.is_empty() {
                out.extend_from_slice(&name);
                out.extend_from_slice(b" {\n");
            }
            std::mem::swap(&mut self.open_graph, &mut name);
        }
        self.scratch = name;
    }

    fn grouped(&mut self, triple: [&TermView<'_>; 3], indent: &[u8], out: &mut Vec<u8>) {
        let [subject, predicate, object] = triple;
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        subject.write_turtle(&mut text);
        let same_subject = text == self.open_subject;
        if !same_subject {
            self.close_statement(out);
            out.extend_from_slice(indent);
            out.extend_from_slice(&text);
            std::mem::swap(&mut self.open_subject, &mut text);
        }
        text.clear();
        match predicate {
            TermView::Iri(RDF_TYPE) => text.push(b'a'),
            _ => predicate.write_turtle(&mut text),
        }
        if same_subject && text == self.open_predicate {
            out.extend_from_slice(b" , ");
        } else {
            if same_subject {
                out.extend_from_slice(b" ;\n\t");
                out.extend_from_slice(indent);
            } else {
                out.push(b' ');
            }
            out.extend_from_slice(&text);
            out.push(b' ');
            std::mem::swap(&mut self.open_predicate, &mut text);
        }
        write_object(object, out);
        self.scratch = text;
    }

    fn by_library(
        &mut self,
        triple: [&TermView<'_>; 3],
        graph: Option<&TermView<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let graph = match graph.map(to_subject) {
            None => GraphName::DefaultGraph,
            Some(Some(name)) => name.into(),
            Some(None) => return Err(Error::Internal("a graph without a name".to_owned())),
        };
        let [subject, predicate, object] = triple;
        let (Some(subject), Some(Term::NamedNode(predicate)), Some(object)) =
            (to_subject(subject), to_term(predicate), to_term(object))
        else {
            return Err(Error::Internal(
                "a triple whose terms stand in wrong places".to_owned(),
            ));
        };
        let quad = Quad::new(subject, predicate, object, graph);
        let Some((quads, bytes)) = &mut self.held else {
            return self.serialize(&quad, out);
        };
        *bytes += quad_bytes(&quad);
        let is_full = *bytes > JSONLD_FOLDED_BYTES_MAX || quad.object.is_triple();
        quads.push(quad);
        if is_full { self.release(out) } else { Ok(()) }
    }

    /// About how many bytes of quads are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Writes what is held, and holds nothing from now on.
    pub(super) fn release(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let (quads, _) = self.held.take().unwrap_or_default();
        quads.iter().try_for_each(|quad| self.serialize(quad, out))
    }

    fn serialize(&mut self, quad: &Quad, out: &mut Vec<u8>) -> Result<()> {
        let Some((serializer, buffer)) = &mut self.library else {
            return Err(Error::Internal(
                "writing after the end of a document".to_owned(),
            ));
        };
        if self.format == GraphFormat::RdfXml
            && let Some(reason) = rdf_xml::obstacle(quad)
        {
            return Err(Error::Unsupported(format!(
                "{} cannot express {quad}: {reason}",
                self.format
            )));
        }
        serializer.serialize_quad(quad).map_err(|source| {
            Error::Unsupported(format!("{} cannot express {quad}: {source}", self.format))
        })?;
        let start = out.len();
        buffer.drain(out);
        if self.format == GraphFormat::RdfXml {
            rdf_xml::escape_returns(out, start);
        }
        Ok(())
    }
}

/// About what a quad takes in memory.
fn quad_bytes(quad: &Quad) -> usize {
    let subject = match &quad.subject {
        NamedOrBlankNode::NamedNode(iri) => iri.as_str().len(),
        NamedOrBlankNode::BlankNode(_) => 0,
    };
    let object = match &quad.object {
        Term::NamedNode(iri) => iri.as_str().len(),
        Term::Literal(literal) => literal.value().len(),
        _ => 0,
    };
    subject + quad.predicate.as_str().len() + object + 100
}

/// The object of a triple, with Turtle's short forms where they give the same literal.
fn write_object(object: &TermView<'_>, out: &mut Vec<u8>) {
    match object {
        TermView::Literal {
            lexical,
            datatype,
            language: None,
            ..
        } if is_short_form(lexical, datatype) => {
            out.extend_from_slice(lexical.as_bytes());
        }
        _ => object.write_turtle(out),
    }
}

/// Whether Turtle reads the bare lexical form as a literal of this datatype.
fn is_short_form(lexical: &str, datatype: &str) -> bool {
    let unsigned = lexical.strip_prefix(['+', '-']).unwrap_or(lexical);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match datatype {
        XSD_BOOLEAN => lexical == "true" || lexical == "false",
        XSD_INTEGER => digits(unsigned),
        XSD_DECIMAL => unsigned
            .split_once('.')
            .is_some_and(|(whole, part)| (whole.is_empty() || digits(whole)) && digits(part)),
        XSD_DOUBLE => unsigned
            .split_once(['e', 'E'])
            .is_some_and(|(mantissa, exponent)| {
                let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                let mantissa_is_number = match mantissa.split_once('.') {
                    Some((whole, part)) => digits(whole) && digits(part),
                    None => digits(mantissa),
                };
                mantissa_is_number && digits(exponent)
            }),
        _ => false,
    }
}

fn to_subject(view: &TermView<'_>) -> Option<NamedOrBlankNode> {
    match to_term(view)? {
        Term::NamedNode(iri) => Some(iri.into()),
        Term::BlankNode(node) => Some(node.into()),
        _ => None,
    }
}

/// The term of the RDF library; `None` where a triple term's parts stand in wrong places.
fn to_term(view: &TermView<'_>) -> Option<Term> {
    Some(match view {
        TermView::Iri(iri) => NamedNode::new_unchecked(*iri).into(),
        TermView::BlankNode(label) => BlankNode::new_unchecked(label.as_ref()).into(),
        TermView::Literal {
            lexical,
            datatype,
            language,
            direction,
        } => match (language, direction) {
            (Some(language), Some(direction)) => {
                Literal::new_directional_language_tagged_literal_unchecked(
                    lexical.as_ref(),
                    *language,
                    *direction,
                )
            }
            (Some(language), None) => {
                Literal::new_language_tagged_literal_unchecked(lexical.as_ref(), *language)
            }
            (None, _) => {
                Literal::new_typed_literal(lexical.as_ref(), NamedNode::new_unchecked(*datatype))
            }
        }
        .into(),
        TermView::Triple(triple) => {
            let [subject, predicate, object] = &**triple;
            let Term::NamedNode(predicate) = to_term(predicate)? else {
                return None;
            };
            Triple::new(to_subject(subject)?, predicate, to_term(object)?).into()
        }
    })
}

/// A buffer that a serializer of the library writes into and that we empty after every triple.
#[derive(Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn drain(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl std::io::Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
