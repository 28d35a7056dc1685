//! Prefixes and base that hold at a place of a text, and parsers that start there.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxrdf::{GraphName, Quad};
use oxttl::trig::{LowLevelTriGParser, SliceTriGParser};
use oxttl::turtle::{LowLevelTurtleParser, SliceTurtleParser};
use oxttl::{TriGParser, TurtleParser, TurtleSyntaxError};

use crate::error::{Error, Result};
use crate::limits::PREFIXES_BYTES_MAX;

/// What directives have said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// IRIs by the prefixes that stand for them.
    prefixes: BTreeMap<String, String>,
    /// What they take, in bytes; they are copied for each piece of a document.
    prefix_bytes: usize,
    base: Option<String>,
}

/// What a prefix takes beside its text, in bytes.
const PREFIX_BYTES: usize = 100;

/// The beginning of a graph that goes on behind a cut.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct GraphHeader {
    /// In one line, brackets included; says the same everywhere in the file.
    pub(crate) text: String,
    /// Whether the graph is named by `[]`, which is another node wherever it is parsed.
    pub(crate) is_anonymous: bool,
}

impl Environment {
    /// That of the start of a file.
    ///
    /// # Errors
    /// If `base` is not an absolute IRI.
    pub(crate) fn new(base: Option<&str>) -> Result<Arc<Self>> {
        let environment = Self {
            base: base.map(str::to_owned),
            ..Self::default()
        };
        drop(environment.turtle()?);
        Ok(Arc::new(environment))
    }

    /// [`Error::LimitExceeded`] if there are so many prefixes that some were not learnt.
    pub(crate) fn verify(&self) -> Result<()> {
        if self.prefix_bytes <= PREFIXES_BYTES_MAX {
            return Ok(());
        }
        Err(Error::LimitExceeded {
            what: "what the prefixes of a document take, in bytes",
            limit: u64::try_from(PREFIXES_BYTES_MAX).unwrap_or(u64::MAX),
        })
    }

    /// Learns what a directive says, or nothing if it is damaged, or there are too many ([`Environment::verify`]).
    pub(crate) fn learn(self: &mut Arc<Self>, directive: &[u8]) {
        let alone = Self {
            base: self.base.clone(),
            ..Self::default()
        };
        if self.verify().is_err() {
            return;
        }
        let Ok(parser) = alone.turtle() else { return };
        let mut parser = parser.for_slice(directive);
        if parser.by_ref().any(|triple| triple.is_err()) {
            return;
        }
        let environment = Arc::make_mut(self);
        for (prefix, iri) in parser.prefixes() {
            let bytes = |iri: &str| PREFIX_BYTES + prefix.len() + iri.len();
            let old = environment
                .prefixes
                .insert(prefix.to_owned(), iri.to_owned());
            environment.prefix_bytes += bytes(iri);
            environment.prefix_bytes -= old.map_or(0, |old| bytes(&old));
        }
        environment.base = parser.base_iri().map(str::to_owned);
    }

    /// What to put before the rest of a graph whose beginning, up to its `{`, is `opening`; `None` if
    /// that is damaged.
    pub(crate) fn graph_header(&self, opening: &[u8]) -> Option<GraphHeader> {
        let probe = [opening, b"<a:a> <a:a> <a:a> }"].concat();
        let mut quads = self.parser(&probe, true).ok()?;
        let quad = quads.next()?.ok()?;
        if quads.next().is_some() || quad.object.to_string() != "<a:a>" {
            return None;
        }
        Some(match quad.graph_name {
            GraphName::DefaultGraph => GraphHeader {
                text: "{\n".to_owned(),
                is_anonymous: false,
            },
            GraphName::NamedNode(name) => GraphHeader {
                text: format!("GRAPH {name} {{\n"),
                is_anonymous: false,
            },
            GraphName::BlankNode(node) => GraphHeader {
                // A label that stands in the text is not one that the parser made up.
                is_anonymous: !String::from_utf8_lossy(opening).contains(node.as_str()),
                text: format!("GRAPH {node} {{\n"),
            },
        })
    }

    /// A parser of all of `text`.
    pub(crate) fn parser<'a>(&self, text: &'a [u8], with_graphs: bool) -> Result<SliceParser<'a>> {
        Ok(if with_graphs {
            SliceParser::TriG(self.trig()?.for_slice(text))
        } else {
            SliceParser::Turtle(self.turtle()?.for_slice(text))
        })
    }

    /// A parser of a text that comes bit by bit.
    pub(crate) fn stream_parser(&self, with_graphs: bool) -> Result<StreamParser> {
        Ok(if with_graphs {
            StreamParser::TriG(self.trig()?.low_level())
        } else {
            StreamParser::Turtle(self.turtle()?.low_level())
        })
    }

    fn turtle(&self) -> Result<TurtleParser> {
        let mut parser = TurtleParser::new();
        if let Some(base) = &self.base {
            parser = parser.with_base_iri(base).map_err(|e| invalid_base(&e))?;
        }
        for (prefix, iri) in &self.prefixes {
            parser = parser.with_prefix(prefix, iri).map_err(unexpected)?;
        }
        Ok(parser)
    }

    fn trig(&self) -> Result<TriGParser> {
        let mut parser = TriGParser::new();
        if let Some(base) = &self.base {
            parser = parser.with_base_iri(base).map_err(|e| invalid_base(&e))?;
        }
        for (prefix, iri) in &self.prefixes {
            parser = parser.with_prefix(prefix, iri).map_err(unexpected)?;
        }
        Ok(parser)
    }
}

fn invalid_base(error: &oxiri::IriParseError) -> Error {
    Error::InvalidOption {
        option: "--base",
        reason: error.to_string(),
    }
}

fn unexpected(error: oxiri::IriParseError) -> Error {
    Error::Internal(format!("the IRI of a prefix was valid before: {error}"))
}

/// Gives the quads of a text.
pub(crate) enum SliceParser<'a> {
    Turtle(SliceTurtleParser<'a>),
    TriG(SliceTriGParser<'a>),
}

impl Iterator for SliceParser<'_> {
    type Item = Result<Quad, TurtleSyntaxError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Turtle(parser) => parser
                .next()
                .map(|triple| triple.map(|t| t.in_graph(GraphName::DefaultGraph))),
            Self::TriG(parser) => parser.next(),
        }
    }
}

/// Gives the quads of what it has been fed.
pub(crate) enum StreamParser {
    Turtle(LowLevelTurtleParser),
    TriG(LowLevelTriGParser),
}

impl StreamParser {
    pub(crate) fn feed(&mut self, text: &[u8]) {
        match self {
            Self::Turtle(parser) => parser.extend_from_slice(text),
            Self::TriG(parser) => parser.extend_from_slice(text),
        }
    }

    pub(crate) fn end(&mut self) {
        match self {
            Self::Turtle(parser) => parser.end(),
            Self::TriG(parser) => parser.end(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Result<Quad, TurtleSyntaxError>> {
        match self {
            Self::Turtle(parser) => parser
                .parse_next()
                .map(|triple| triple.map(|t| t.in_graph(GraphName::DefaultGraph))),
            Self::TriG(parser) => parser.parse_next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_learnt_in_their_order() {
        let mut environment = Environment::new(Some("http://a/b/")).unwrap();
        for directive in [
            "@base <c/> .",
            "PREFIX x: <d#>",
            "@prefix x: <bad iri> .",
            "@prefix y: <e> z",
            "BASE </f/>",
            "@prefix : <> .",
            "@version \"1.2\" .",
        ] {
            environment.learn(directive.as_bytes());
        }
        assert_eq!(environment.base.as_deref(), Some("http://a/f/"));
        let prefixes: Vec<_> = environment
            .prefixes
            .iter()
            .map(|(prefix, iri)| (prefix.as_str(), iri.as_str()))
            .collect();
        assert_eq!(prefixes, [("", "http://a/f/"), ("x", "http://a/b/c/d#")]);
    }

    #[test]
    fn headers_of_graphs_say_the_same_elsewhere() {
        let mut environment = Environment::new(Some("http://a/b/")).unwrap();
        environment.learn(b"PREFIX x: <d#>");
        for (opening, header, is_anonymous) in [
            ("x:y {", Some("GRAPH <http://a/b/d#y> {\n"), false),
            ("graph # {\n <z> {", Some("GRAPH <http://a/b/z> {\n"), false),
            ("_:x {", Some("GRAPH _:x {\n"), false),
            ("{", Some("{\n"), false),
            ("<s> <p> <o> . {", None, false),
            ("x:y x:z {", None, false),
            ("nope:y {", None, false),
        ] {
            let found = environment.graph_header(opening.as_bytes());
            let expected = header.map(|text| GraphHeader {
                text: text.to_owned(),
                is_anonymous,
            });
            assert_eq!(found, expected, "{opening}");
        }
        let anonymous = environment.graph_header(b"GRAPH [] {").unwrap();
        assert!(anonymous.is_anonymous);
    }

    #[test]
    fn a_base_must_be_absolute() {
        assert!(matches!(
            Environment::new(Some("x")),
            Err(Error::InvalidOption {
                option: "--base",
                ..
            })
        ));
    }
}
