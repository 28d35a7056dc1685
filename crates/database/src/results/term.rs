//! Terms of a batch, decoded all at once and seen without copying.

use std::borrow::Cow;
use std::io::Write;

use oxrdf::{BaseDirection, Term};
use stoa_executor::QueryContext;
use stoa_quadstore::{Snapshot, TermTexts};
use stoa_terms::{Kind, TermId, inline, key};

use super::escape;
use super::solutions::direction_name;
use crate::error::{Error, Result};

/// A term as a writer sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum TermView<'a> {
    /// An IRI.
    Iri(&'a str),
    /// A blank node by its label: `b` and its number, or `q` and a number for one that the query
    /// made.
    BlankNode(Cow<'a, str>),
    /// A literal.
    Literal {
        /// The lexical form.
        lexical: Cow<'a, str>,
        /// The datatype's IRI; `rdf:langString` and `rdf:dirLangString` included.
        datatype: &'a str,
        /// The language tag, in lower case.
        language: Option<&'a str>,
        /// The base direction.
        direction: Option<BaseDirection>,
    },
    /// A triple term: subject, predicate, object.
    Triple(Box<[TermView<'a>; 3]>),
}

/// The `xsd:string` datatype, which writers leave out.
pub(crate) const XSD_STRING: &str = "http://www.w3.org/2001/XMLSchema#string";
pub(crate) const XSD_INTEGER: &str = "http://www.w3.org/2001/XMLSchema#integer";
pub(crate) const XSD_DECIMAL: &str = "http://www.w3.org/2001/XMLSchema#decimal";
pub(crate) const XSD_DOUBLE: &str = "http://www.w3.org/2001/XMLSchema#double";
pub(crate) const XSD_BOOLEAN: &str = "http://www.w3.org/2001/XMLSchema#boolean";
pub(crate) const RDF_TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";

/// Tells whether so many bytes of texts fit.
pub(crate) type Fits<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Where ids are decoded: a snapshot, or a running query, which knows computed terms, too.
pub(crate) trait TermSource {
    /// The kind of the term behind an id, never [`Kind::Local`].
    fn kind(&self, id: TermId) -> Kind;
    /// The keys of ids of the dictionary's kinds, as [`Snapshot::texts_metered`]. False where they did not fit.
    fn texts_while(&self, ids: &[TermId], out: &mut TermTexts, fits: Fits<'_>) -> Result<bool>;
    /// The term behind one id.
    fn term(&self, id: TermId) -> Result<Option<Term>>;
}

impl TermSource for Snapshot {
    fn kind(&self, id: TermId) -> Kind {
        id.kind()
    }

    fn texts_while(&self, ids: &[TermId], out: &mut TermTexts, fits: Fits<'_>) -> Result<bool> {
        Ok(self.texts_metered(ids, out, fits)?)
    }

    fn term(&self, id: TermId) -> Result<Option<Term>> {
        Ok(Some(self.term(id)?))
    }
}

impl TermSource for QueryContext {
    fn kind(&self, id: TermId) -> Kind {
        self.kind(id)
    }

    fn texts_while(&self, ids: &[TermId], out: &mut TermTexts, fits: Fits<'_>) -> Result<bool> {
        Ok(self.texts_while(ids, out, fits)?)
    }

    fn term(&self, id: TermId) -> Result<Option<Term>> {
        Ok(self.term(id)?)
    }
}

/// The decoded terms of a list of ids.
#[derive(Default)]
pub struct TermViews {
    ids: Vec<TermId>,
    kinds: Vec<Kind>,
    texts: TermTexts,
    /// Lexical forms of inline literals and labels of blank nodes, and where that of each id ends.
    written: Vec<u8>,
    ends: Vec<usize>,
    /// Terms of ids that are neither inline nor under a key: triple terms and blank nodes that the
    /// query made, by position, ascending.
    others: Vec<(usize, Term)>,
}

impl TermViews {
    /// Decodes `ids`; one read of the dictionary for all of them.
    pub(crate) fn load(
        &mut self,
        ids: impl Iterator<Item = TermId>,
        source: &impl TermSource,
    ) -> Result<()> {
        self.load_while(ids, source, &mut |_| true).map(|_| ())
    }

    /// Decodes `ids` as long as `fits` says that the bytes do. False where they did not: nothing is loaded then.
    pub(crate) fn load_while(
        &mut self,
        ids: impl Iterator<Item = TermId>,
        source: &impl TermSource,
        fits: Fits<'_>,
    ) -> Result<bool> {
        self.ids.clear();
        self.ids.extend(ids);
        self.kinds.clear();
        self.kinds
            .extend(self.ids.iter().map(|&id| source.kind(id)));
        self.texts.clear();
        self.others.clear();
        if !source.texts_while(&self.ids, &mut self.texts, fits)? {
            self.release();
            return Ok(false);
        }
        self.write_inline();
        let mut bytes = self.texts.memory_bytes() + self.written.capacity();
        for (position, (&id, &kind)) in self.ids.iter().zip(&self.kinds).enumerate() {
            let made_by_query = kind == Kind::BlankNode && id.kind() == Kind::Local;
            if (kind == Kind::Triple || made_by_query)
                && let Some(term) = source.term(id)?
            {
                bytes += term_bytes(&term);
                self.others.push((position, term));
                if !fits(bytes) {
                    self.release();
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What the terms take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let others = self.others.iter().map(|(_, term)| term_bytes(term));
        self.texts.memory_bytes() + self.written.capacity() + others.sum::<usize>()
    }

    /// Forgets all terms, and gives their memory back.
    pub(crate) fn release(&mut self) {
        *self = Self::default();
    }

    /// Writes what stands in ids themselves.
    fn write_inline(&mut self) {
        self.written.clear();
        self.ends.clear();
        for id in &self.ids {
            if id.kind() == Kind::BlankNode {
                // Nothing fails that writes to memory.
                write!(self.written, "b{}", id.payload()).unwrap_or_default();
            } else {
                inline::write_lexical(*id, &mut self.written);
            }
            self.ends.push(self.written.len());
        }
    }

    /// What was written for the id at `position`.
    fn written(&self, position: usize) -> Result<&str> {
        let start = position
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let range = start.copied().unwrap_or(0)..self.ends.get(position).copied().unwrap_or(0);
        let bytes = self.written.get(range).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map_err(|_| Error::Internal("an inline literal that is not UTF-8".to_owned()))
    }

    /// How many ids were loaded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no ids were loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The term at `position`; `None` where it is unbound (or the default graph).
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if a key of the dictionary does not have the form of one.
    pub fn get(&self, position: usize) -> Result<Option<TermView<'_>>> {
        let (Some(&id), Some(&kind)) = (self.ids.get(position), self.kinds.get(position)) else {
            return Ok(None);
        };
        match kind {
            Kind::Iri => {
                let text = std::str::from_utf8(self.texts.get(position))
                    .map_err(|_| Error::Internal("an IRI that is not UTF-8".to_owned()))?;
                Ok(Some(TermView::Iri(text)))
            }
            Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
                let parts = key::parse_literal(self.texts.get(position))
                    .map_err(|_| Error::Internal("a key that is no literal".to_owned()))?;
                Ok(Some(TermView::Literal {
                    lexical: parts.lexical,
                    datatype: parts.datatype,
                    language: parts.language,
                    direction: parts.direction,
                }))
            }
            Kind::BlankNode if id.kind() == Kind::BlankNode => Ok(Some(TermView::BlankNode(
                Cow::Borrowed(self.written(position)?),
            ))),
            Kind::Triple | Kind::BlankNode | Kind::Local => {
                let index = self
                    .others
                    .binary_search_by_key(&position, |other| other.0)
                    .map_err(|_| Error::Internal("a term that was not decoded".to_owned()))?;
                Ok(self
                    .others
                    .get(index)
                    .map(|other| TermView::from_term(&other.1)))
            }
            _ => match inline::datatype(id) {
                Some(datatype) => Ok(Some(TermView::Literal {
                    lexical: Cow::Borrowed(self.written(position)?),
                    datatype: datatype.as_str(),
                    language: None,
                    direction: None,
                })),
                None => Ok(None),
            },
        }
    }
}

/// About what a term of the RDF library takes, in bytes.
pub(super) fn term_bytes(term: &Term) -> usize {
    let text = match term {
        Term::NamedNode(iri) => iri.as_str().len(),
        Term::BlankNode(_) => 0,
        Term::Literal(literal) => literal.value().len() + literal.datatype().as_str().len(),
        Term::Triple(triple) => {
            let subject = match &triple.subject {
                oxrdf::NamedOrBlankNode::NamedNode(iri) => iri.as_str().len(),
                oxrdf::NamedOrBlankNode::BlankNode(_) => 0,
            };
            subject + triple.predicate.as_str().len() + term_bytes(&triple.object)
        }
    };
    size_of::<Term>() + text
}

impl<'a> TermView<'a> {
    /// The view of a term of the RDF library.
    pub(crate) fn from_term(term: &'a Term) -> Self {
        match term {
            Term::NamedNode(iri) => Self::Iri(iri.as_str()),
            Term::BlankNode(node) => Self::BlankNode(Cow::Borrowed(node.as_str())),
            Term::Literal(literal) => Self::Literal {
                lexical: Cow::Borrowed(literal.value()),
                datatype: literal.datatype().as_str(),
                language: literal.language(),
                direction: literal.direction(),
            },
            Term::Triple(triple) => Self::Triple(Box::new([
                match &triple.subject {
                    oxrdf::NamedOrBlankNode::NamedNode(iri) => Self::Iri(iri.as_str()),
                    oxrdf::NamedOrBlankNode::BlankNode(node) => {
                        Self::BlankNode(Cow::Borrowed(node.as_str()))
                    }
                },
                Self::Iri(triple.predicate.as_str()),
                Self::from_term(&triple.object),
            ])),
        }
    }
}

impl TermView<'_> {
    /// Appends the term as canonical N-Triples writes it.
    pub fn write_turtle(&self, out: &mut Vec<u8>) {
        match self {
            Self::Iri(iri) => escape::iri(iri, out),
            Self::BlankNode(label) => {
                out.extend_from_slice(b"_:");
                out.extend_from_slice(label.as_bytes());
            }
            Self::Literal {
                lexical,
                datatype,
                language,
                direction,
            } => {
                escape::turtle_string(lexical, out);
                if let Some(language) = language {
                    out.push(b'@');
                    out.extend_from_slice(language.as_bytes());
                    if let Some(direction) = direction {
                        out.extend_from_slice(b"--");
                        out.extend_from_slice(direction_name(*direction).as_bytes());
                    }
                } else if *datatype != XSD_STRING {
                    out.extend_from_slice(b"^^");
                    escape::iri(datatype, out);
                }
            }
            Self::Triple(triple) => {
                let [subject, predicate, object] = &**triple;
                out.extend_from_slice(b"<<( ");
                subject.write_turtle(out);
                out.push(b' ');
                predicate.write_turtle(out);
                out.push(b' ');
                object.write_turtle(out);
                out.extend_from_slice(b" )>>");
            }
        }
    }
}
