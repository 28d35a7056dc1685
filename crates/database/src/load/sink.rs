//! Where parsers hand the quads they read.
//!
//! A term is handed over once and named by a small value from then on. The sinks are the bulk
//! writer of the store and, in tests, a list of quads.

use oxrdf::BaseDirection;
use stoa_terms::{Kind, TermId, inline, key};

use crate::error::Result;

/// What stands behind the lexical form of a literal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LiteralSuffix<'a> {
    /// Nothing: `xsd:string`.
    None,
    /// `^^<iri>`
    Datatype(&'a str),
    /// `@language` or `@language--direction`, in lower case.
    Language(&'a str, Option<BaseDirection>),
}

impl LiteralSuffix<'_> {
    /// The id of the literal with this lexical form, if it is inline.
    pub(super) fn inline(self, lexical: &str) -> Option<TermId> {
        match self {
            Self::None => inline::encode_string(lexical),
            Self::Datatype(datatype) => inline::encode_typed(lexical, datatype),
            Self::Language(..) => None,
        }
    }

    /// Writes the dictionary's key of the literal with this lexical form behind `out`; gives its kind.
    pub(super) fn key(self, lexical: &str, out: &mut Vec<u8>) -> Kind {
        let (datatype, language, direction) = match self {
            Self::None => (None, None, None),
            Self::Datatype(datatype) => (Some(datatype), None, None),
            Self::Language(language, direction) => (None, Some(language), direction),
        };
        key::literal_key_parts(lexical, datatype, language, direction, out)
    }
}

/// Takes terms and quads. Terms are valid, IRIs absolute.
pub(crate) trait QuadSink {
    /// What a term is called after it was handed over.
    type Term: Copy;

    /// Blank nodes that follow belong to the file with this number; a file may be announced several
    /// times, and to several sinks.
    fn start_file(&mut self, number: u64);

    /// Changes whenever terms that were handed over before must be handed over again.
    fn epoch(&self) -> u64;

    /// Takes an IRI.
    fn iri(&mut self, iri: &str) -> Result<Self::Term>;

    /// Takes a blank node by its label, which belongs to the current file.
    fn blank(&mut self, label: &str) -> Result<Self::Term>;

    /// Takes a literal.
    fn literal(&mut self, lexical: &str, suffix: LiteralSuffix<'_>) -> Result<Self::Term>;

    /// Takes a triple term.
    fn triple(
        &mut self,
        subject: Self::Term,
        predicate: Self::Term,
        object: Self::Term,
    ) -> Result<Self::Term>;

    /// Takes a quad; without a graph it belongs to the default graph.
    fn quad(
        &mut self,
        subject: Self::Term,
        predicate: Self::Term,
        object: Self::Term,
        graph: Option<Self::Term>,
    ) -> Result<()>;
}

/// Takes quads and keeps nothing.
pub(crate) struct Nowhere;

impl QuadSink for Nowhere {
    type Term = ();

    fn start_file(&mut self, _number: u64) {}

    fn epoch(&self) -> u64 {
        0
    }

    fn iri(&mut self, _iri: &str) -> Result<()> {
        Ok(())
    }

    fn blank(&mut self, _label: &str) -> Result<()> {
        Ok(())
    }

    fn literal(&mut self, _lexical: &str, _suffix: LiteralSuffix<'_>) -> Result<()> {
        Ok(())
    }

    fn triple(&mut self, _subject: (), _predicate: (), _object: ()) -> Result<()> {
        Ok(())
    }

    fn quad(&mut self, _s: (), _p: (), _o: (), _g: Option<()>) -> Result<()> {
        Ok(())
    }
}

/// A sink that keeps quads as they are, for tests.
#[cfg(test)]
pub(crate) mod recording {
    use oxrdf::{BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple};

    use super::{LiteralSuffix, QuadSink};
    use crate::error::Result;

    /// Forgets all terms every few quads, as a writer does that flushes.
    #[derive(Default)]
    pub(crate) struct RecordingSink {
        pub(crate) quads: Vec<Quad>,
        terms: Vec<(u64, Term)>,
        pub(crate) iris_taken: usize,
        file: u64,
    }

    const EPOCH_QUADS: usize = 7;

    impl RecordingSink {
        fn add(&mut self, term: impl Into<Term>) -> Result<usize> {
            self.terms.push((self.epoch(), term.into()));
            Ok(self.terms.len() - 1)
        }

        fn get(&self, term: usize) -> Term {
            let (epoch, term) = self.terms[term].clone();
            assert_eq!(
                epoch,
                self.epoch(),
                "a term was used after it was forgotten"
            );
            term
        }

        fn node(&self, term: usize) -> NamedOrBlankNode {
            match self.get(term) {
                Term::NamedNode(node) => node.into(),
                Term::BlankNode(node) => node.into(),
                other => panic!("{other} is not a node"),
            }
        }

        fn named(&self, term: usize) -> NamedNode {
            match self.get(term) {
                Term::NamedNode(node) => node,
                other => panic!("{other} is not an IRI"),
            }
        }
    }

    impl QuadSink for RecordingSink {
        type Term = usize;

        fn start_file(&mut self, number: u64) {
            self.file = number;
        }

        fn epoch(&self) -> u64 {
            u64::try_from(self.quads.len() / EPOCH_QUADS).unwrap()
        }

        fn iri(&mut self, iri: &str) -> Result<usize> {
            self.iris_taken += 1;
            self.add(NamedNode::new(iri).unwrap())
        }

        fn blank(&mut self, label: &str) -> Result<usize> {
            // Labels stay as they are in the first file.
            let label = match self.file {
                0 => label.to_owned(),
                file => format!("f{file}.{label}"),
            };
            self.add(BlankNode::new(label).unwrap())
        }

        fn literal(&mut self, lexical: &str, suffix: LiteralSuffix<'_>) -> Result<usize> {
            self.add(match suffix {
                LiteralSuffix::None => Literal::new_simple_literal(lexical),
                LiteralSuffix::Datatype(datatype) => {
                    Literal::new_typed_literal(lexical, NamedNode::new(datatype).unwrap())
                }
                LiteralSuffix::Language(language, None) => {
                    assert_eq!(language, language.to_lowercase());
                    Literal::new_language_tagged_literal(lexical, language).unwrap()
                }
                LiteralSuffix::Language(language, Some(direction)) => {
                    Literal::new_directional_language_tagged_literal(lexical, language, direction)
                        .unwrap()
                }
            })
        }

        fn triple(&mut self, subject: usize, predicate: usize, object: usize) -> Result<usize> {
            let triple = Triple::new(self.node(subject), self.named(predicate), self.get(object));
            self.add(triple)
        }

        fn quad(
            &mut self,
            subject: usize,
            predicate: usize,
            object: usize,
            graph: Option<usize>,
        ) -> Result<()> {
            let graph = graph.map_or(GraphName::DefaultGraph, |g| self.node(g).into());
            self.quads.push(Quad::new(
                self.node(subject),
                self.named(predicate),
                self.get(object),
                graph,
            ));
            Ok(())
        }
    }
}
