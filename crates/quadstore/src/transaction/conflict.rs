//! `Conflict`: what a transaction read that a commit changed.

use std::fmt;

use oxrdf::Term;
use stoa_terms::{Kind, TermId, key};

use crate::snapshot::Snapshot;

/// Something that a transaction read was changed by a commit after its snapshot.
#[derive(Clone)]
pub struct Conflict {
    /// The commit.
    pub commit: u64,
    /// What was read.
    pub clash: Clash,
    /// What its ids are of.
    snapshot: Snapshot,
}

/// What a transaction read that was changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Clash {
    /// The quads with these terms: subject, predicate, object, graph; all where none is given.
    Quads([Option<TermId>; 4]),
    /// That a term is not in the store, by its kind and key; of a triple term the ids of its parts.
    Term(Kind, Box<[u8]>),
    /// Whether a graph exists.
    Graph(TermId),
}

impl Conflict {
    pub(super) fn new(clash: Clash, snapshot: &Snapshot) -> Self {
        Self {
            commit: 0,
            clash,
            snapshot: snapshot.clone(),
        }
    }

    /// What was read, in words and terms. Reads the dictionary; what cannot be read is left open.
    #[must_use]
    pub fn what(&self) -> String {
        match &self.clash {
            Clash::Quads(quad) if quad.iter().all(Option::is_none) => "all quads".to_owned(),
            Clash::Quads([subject, predicate, object, graph]) => {
                let names = [("?s", subject), ("?p", predicate), ("?o", object)];
                let names =
                    names.map(|(open, id)| self.name(*id).unwrap_or_else(|| open.to_owned()));
                let graph = match graph {
                    None => String::new(),
                    Some(TermId::DEFAULT_GRAPH) => " in the default graph".to_owned(),
                    Some(_) => {
                        let name = self.name(*graph).unwrap_or_else(|| "?g".to_owned());
                        format!(" in the graph {name}")
                    }
                };
                format!("{}{graph}", names.join(" "))
            }
            Clash::Term(kind, key) => match key::decode_term(*kind, key) {
                Ok(term) => format!("that {term} does not occur"),
                Err(_) => "that a triple term does not occur".to_owned(),
            },
            Clash::Graph(graph) => match self.name(Some(*graph)) {
                Some(name) => format!("whether the graph {name} exists"),
                None => "which graphs exist".to_owned(),
            },
        }
    }

    fn name(&self, id: Option<TermId>) -> Option<String> {
        let term: Term = self.snapshot.term(id?).ok()?;
        Some(term.to_string())
    }
}

impl fmt::Debug for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflict")
            .field("commit", &self.commit)
            .field("clash", &self.clash)
            .finish_non_exhaustive()
    }
}
