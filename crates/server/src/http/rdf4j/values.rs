//! Values in parameters: terms as N-Triples writes them, and contexts, which are graphs.

use std::str::FromStr;

use hyper::header::{ACCEPT, HeaderMap};
use stoa_database::oxrdf::{GraphName, NamedNode, NamedOrBlankNode, Term};
use stoa_database::results::ResultFormat;
use stoa_database::{Moment, StatementGraphs, StatementPattern};

use super::namespaces::NAMESPACES;
use crate::http::parameters::{check_once, moment, pairs, unknown};
use crate::http::problem::Problem;
use crate::http::route::joined;

/// What the parameters of a request about statements say.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) subject: Option<NamedOrBlankNode>,
    pub(super) predicate: Option<NamedNode>,
    pub(super) object: Option<Term>,
    pub(super) contexts: Vec<GraphName>,
    pub(super) base: Option<String>,
    /// Whether labels of blank nodes mean what they meant in other requests.
    pub(super) preserves_labels: bool,
    /// What is to be done in a transaction, in upper case.
    pub(super) action: Option<String>,
    /// The moment whose state is asked.
    pub(super) at: Option<Moment>,
    /// An update in the address.
    pub(super) has_update: bool,
    /// A format by name, and how the parameter is called.
    format: Option<(String, String)>,
    /// A parameter that only a query or an update may have.
    unknown: Option<String>,
}

impl Parameters {
    /// # Errors
    /// 400 for a value that is no term, or of the wrong kind.
    pub(super) fn of(query: &str) -> Result<Self, Problem> {
        let mut parameters = Self::default();
        let pairs = pairs(query)?;
        check_once(&pairs, &["context"])?;
        for (name, value) in pairs {
            match name.as_str() {
                "subj" => parameters.subject = Some(node(&name, &value)?),
                "pred" => parameters.predicate = Some(iri(&name, &value)?),
                "obj" => parameters.object = Some(term(&name, &value)?),
                "context" => parameters.contexts.push(context(&name, &value)?),
                "baseURI" if value.starts_with('<') => {
                    parameters.base = Some(iri(&name, &value)?.into_string());
                }
                "baseURI" if !value.is_empty() => parameters.base = Some(value),
                "preserveNodeId" => parameters.preserves_labels = value == "true",
                "action" => parameters.action = Some(value.to_ascii_uppercase()),
                "at" => parameters.at = Some(moment(&name, &value)?),
                "update" => parameters.has_update = true,
                // Nothing is inferred here.
                "infer" => {}
                "format" | "output" => parameters.format = Some((name, value)),
                _ => parameters.unknown = Some(name),
            }
        }
        Ok(parameters)
    }

    /// The same of a request that is neither a query nor an update, nor answered in several formats.
    ///
    /// # Errors
    /// 400 for a parameter that is not known.
    pub(super) fn checked(mut self) -> Result<Self, Problem> {
        if let Some((name, _)) = self.format.take() {
            self.unknown = Some(name);
        }
        self.reading()
    }

    /// The same of a request that is answered in several formats.
    ///
    /// # Errors
    /// 400 for a parameter that is not known.
    pub(super) fn reading(self) -> Result<Self, Problem> {
        match &self.unknown {
            None => Ok(self),
            Some(name) => Err(unknown(
                name,
                "statements take subj, pred, obj, context, infer, baseURI, preserveNodeId and at, and format where they are read",
            )),
        }
    }

    /// What the client accepts: the format that a parameter names, else what the header says.
    ///
    /// # Errors
    /// 400 for a name that is none, and for a header that is not ASCII.
    pub(super) fn accept(&self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        let Some((name, value)) = &self.format else {
            return joined(headers, &ACCEPT);
        };
        let media_type = match ResultFormat::from_name(value) {
            Some(ResultFormat::Solutions(format)) => format.media_type(),
            Some(ResultFormat::Graph(format)) => format.media_type(),
            None => {
                return Err(Problem::bad_request(format!(
                    "the parameter {name} does not know the format '{value}'"
                )));
            }
        };
        Ok(Some(media_type.to_owned()))
    }

    /// The graphs that are read, counted or cleared: without contexts all but the one that holds
    /// namespaces, which are no statements to clients of this protocol.
    pub(super) fn graphs(&self) -> StatementGraphs {
        if self.contexts.is_empty() {
            let namespaces = NamedNode::new_unchecked(NAMESPACES);
            StatementGraphs::AllBut(vec![namespaces.into()])
        } else {
            StatementGraphs::Only(self.contexts.clone())
        }
    }

    pub(super) fn pattern(&self) -> StatementPattern {
        StatementPattern {
            subject: self.subject.clone(),
            predicate: self.predicate.clone(),
            object: self.object.clone(),
            graphs: self.graphs(),
        }
    }
}

/// A term as N-Triples writes it.
pub(in crate::http) fn term(name: &str, value: &str) -> Result<Term, Problem> {
    // The library takes numbers and truth values as Turtle has them, too.
    if !value.starts_with(['<', '_', '"']) {
        return Err(wrong(
            name,
            value,
            "it is neither IRI, blank node nor literal",
        ));
    }
    Term::from_str(value).map_err(|error| wrong(name, value, &error.to_string()))
}

fn node(name: &str, value: &str) -> Result<NamedOrBlankNode, Problem> {
    match term(name, value)? {
        Term::NamedNode(node) => Ok(node.into()),
        Term::BlankNode(node) => Ok(node.into()),
        _ => Err(wrong(name, value, "it is neither an IRI nor a blank node")),
    }
}

fn iri(name: &str, value: &str) -> Result<NamedNode, Problem> {
    match term(name, value)? {
        Term::NamedNode(node) => Ok(node),
        _ => Err(wrong(name, value, "it is no IRI")),
    }
}

fn context(name: &str, value: &str) -> Result<GraphName, Problem> {
    match value {
        "null" => Ok(GraphName::DefaultGraph),
        value => Ok(node(name, value)?.into()),
    }
}

fn wrong(name: &str, value: &str, reason: &str) -> Problem {
    Problem::bad_request(format!(
        "the parameter {name} is {value}, which is no value as N-Triples writes it: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_terms_of_n_triples() {
        let query = "subj=_%3Ab7&pred=%3Chttp%3A%2F%2Fa%2Fp%3E&obj=%22x%22%40en&context=null\
            &context=%3Chttp%3A%2F%2Fa%2Fg%3E&baseURI=%3Chttp%3A%2F%2Fb%2F%3E&preserveNodeId=true&action=add&infer=false";
        let parameters = Parameters::of(query).unwrap();
        assert_eq!(parameters.subject.unwrap().to_string(), "_:b7");
        assert_eq!(parameters.predicate.unwrap().as_str(), "http://a/p");
        assert_eq!(parameters.object.unwrap().to_string(), "\"x\"@en");
        let contexts: Vec<String> = parameters
            .contexts
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(contexts, ["DEFAULT", "<http://a/g>"]);
        assert_eq!(parameters.base.as_deref(), Some("http://b/"));
        assert!(parameters.preserves_labels);
        assert_eq!(parameters.action.as_deref(), Some("ADD"));
        assert!(Parameters::of("query=ASK").unwrap().checked().is_err());
        for wrong in [
            "subj=x",
            "subj=%22x%22",
            "pred=_:b1",
            "obj=%3Crelative%3E",
            "context=%221%22",
        ] {
            assert!(Parameters::of(wrong).is_err(), "{wrong}");
        }
    }
}
