//! CREATE, CLEAR, DROP, ADD, COPY and MOVE: operations on whole graphs.
//!
//! A graph exists if it holds quads, was created, or was cleared; CLEAR leaves it, DROP does not. What is read
//! here is recorded: the names of graphs, whether they exist, and their quads.
//!
//! # Limits
//! Quads go to the transaction by [`APPLIED_QUADS`].
//!
//! # References
//! SPARQL 1.1 Update, section 3.2.

use oxrdf::NamedNode;
use spargebra::algebra::GraphTarget;
use spargebra::term::GraphName;
use stoa_quadstore::{Columns, QuadColumns, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::ids::Ids;
use super::pending::Pending;
use super::run::Run;
use crate::error::{Error, Result};
use crate::query::{Transfer, TransferKind};

/// Quads that are read at once.
const READ_QUADS: usize = 1 << 13;

/// So many changes are handed to the transaction at once.
const APPLIED_QUADS: usize = 1 << 17;

/// What becomes of a quad that is read.
#[derive(Clone, Copy)]
enum Fate {
    Removed,
    /// Added to this graph, too.
    Copied(TermId),
}

impl Run<'_> {
    pub(super) fn create(&mut self, silent: bool, graph: &NamedNode) -> Result<()> {
        // SILENT, too, makes it exist from now on even if it has no quads any more.
        if self.existing(graph)?.is_some() && !silent {
            return Err(Error::GraphExists {
                graph: graph.as_str().to_owned(),
            });
        }
        let mut ids = Ids::new(self.transaction);
        let id = self.named(graph, &mut ids)?;
        let mut pending = Pending::default();
        pending.graph(id, true);
        self.apply(&mut pending, &ids)
    }

    /// CLEAR, and DROP if `drops`.
    pub(super) fn clear(&mut self, silent: bool, target: &GraphTarget, drops: bool) -> Result<()> {
        let view = self.transaction.snapshot();
        let (set, named) = match target {
            GraphTarget::DefaultGraph => (GraphSet::Default, Vec::new()),
            GraphTarget::NamedNode(graph) => match self.existing(graph)? {
                Some(id) => (GraphSet::One(id), vec![id]),
                None if silent => return Ok(()),
                None => return Err(missing(graph)),
            },
            GraphTarget::NamedGraphs => (GraphSet::Named, view.graph_names()?),
            GraphTarget::AllGraphs => (GraphSet::All, view.graph_names()?),
        };
        let ids = Ids::new(self.transaction);
        let mut pending = Pending::default();
        self.each(&view, set, Fate::Removed, &mut pending, &ids)?;
        for graph in named {
            pending.graph(graph, !drops);
        }
        self.apply(&mut pending, &ids)
    }

    /// ADD, COPY and MOVE.
    pub(super) fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        if transfer.from == transfer.to {
            return Ok(());
        }
        let from = match &transfer.from {
            GraphName::DefaultGraph => TermId::DEFAULT_GRAPH,
            GraphName::NamedNode(graph) => match self.existing(graph)? {
                Some(id) => id,
                None if transfer.silent => return Ok(()),
                None => return Err(missing(graph)),
            },
        };
        let mut ids = Ids::new(self.transaction);
        let to = match &transfer.to {
            GraphName::DefaultGraph => TermId::DEFAULT_GRAPH,
            GraphName::NamedNode(graph) => self.named(graph, &mut ids)?,
        };
        let view = self.transaction.snapshot();
        let mut pending = Pending::default();
        if transfer.kind != TransferKind::Add {
            // What is new is in no quad, and its id is not the view's.
            let known = match &transfer.to {
                GraphName::DefaultGraph => Some(TermId::DEFAULT_GRAPH),
                GraphName::NamedNode(graph) => view.term_id(graph.as_ref().into())?,
            };
            if let Some(known) = known {
                self.each(&view, one(known), Fate::Removed, &mut pending, &ids)?;
                // What was removed and is copied is there in the end, but only if it comes later.
                self.apply(&mut pending, &ids)?;
            }
        }
        let copied = self.each(&view, one(from), Fate::Copied(to), &mut pending, &ids)?;
        if copied == 0 && to != TermId::DEFAULT_GRAPH {
            pending.graph(to, true);
        }
        if transfer.kind == TransferKind::Move {
            self.apply(&mut pending, &ids)?;
            self.each(&view, one(from), Fate::Removed, &mut pending, &ids)?;
            if from != TermId::DEFAULT_GRAPH {
                pending.graph(from, false);
            }
        }
        self.apply(&mut pending, &ids)
    }

    /// The id of a graph if it exists.
    fn existing(&self, graph: &NamedNode) -> Result<Option<TermId>> {
        let view = self.transaction.snapshot();
        let Some(id) = view.term_id(graph.as_ref().into())? else {
            return Ok(None);
        };
        Ok(view.graph_exists(id)?.then_some(id))
    }

    /// The id of the name of a graph, which may be new.
    fn named(&self, graph: &NamedNode, ids: &mut Ids) -> Result<TermId> {
        let found = ids.of(self.transaction, &[graph.clone().into()])?;
        let id = found.first().copied();
        id.ok_or_else(|| Error::Internal("a graph without an id".to_owned()))
    }

    /// Does something with each quad of a set of graphs; returns how many there are. The last of them may
    /// still be pending.
    fn each(
        &mut self,
        view: &Snapshot,
        graphs: GraphSet,
        fate: Fate,
        pending: &mut Pending,
        ids: &Ids,
    ) -> Result<u64> {
        let mut scan = view.scan(&ScanSpec {
            permutation: Permutation::Spog,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs,
            columns: Columns::ALL,
            with_graph: true,
        })?;
        let mut rows = QuadColumns::default();
        let mut count = 0;
        while scan.next(READ_QUADS, &mut rows)? {
            self.check()?;
            count += rows.rows as u64;
            let [subjects, predicates, objects, graphs] = &rows.columns;
            let triples = subjects.iter().zip(predicates).zip(objects);
            for (((subject, predicate), object), graph) in triples.zip(graphs) {
                let quad = |graph| [*subject, *predicate, *object, graph];
                match fate {
                    Fate::Removed => pending.remove(quad(*graph), self.runtime.memory())?,
                    Fate::Copied(to) => pending.add(quad(to), self.runtime.memory())?,
                }
            }
            if pending.len() >= APPLIED_QUADS {
                self.apply(pending, ids)?;
            }
        }
        Ok(count)
    }
}

fn one(graph: TermId) -> GraphSet {
    match graph {
        TermId::DEFAULT_GRAPH => GraphSet::Default,
        graph => GraphSet::One(graph),
    }
}

fn missing(graph: &NamedNode) -> Error {
    Error::NoSuchGraph {
        graph: graph.as_str().to_owned(),
    }
}
