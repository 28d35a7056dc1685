//! CREATE, CLEAR, DROP, ADD, COPY and MOVE: operations on whole graphs.
//!
//! A graph exists if it holds quads, was created, or was cleared; CLEAR leaves it, DROP does not. What is read
//! here is recorded: the names of graphs, whether they exist, and the quads that are copied. Quads that are cleared are
//! not read, unless they are few (`stoa_quadstore::Transaction::clear`).
//!
//! # Limits
//! Quads go to the transaction by [`APPLIED_QUADS`].
//!
//! # References
//! SPARQL 1.1 Update, section 3.2.

use oxrdf::NamedNode;
use spargebra::algebra::GraphTarget;
use spargebra::term::GraphName;
use stoa_quadstore::{Columns, GraphChange, QuadColumns, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::ids::Ids;
use super::pending::{self, Pending};
use super::run::Run;
use crate::error::{Error, Result};
use crate::query::{Modify, Transfer, TransferKind};

/// Quads that are read at once.
const READ_QUADS: usize = 1 << 13;

/// So many changes are handed to the transaction at once.
const APPLIED_QUADS: usize = 1 << 17;

impl Run<'_> {
    pub(super) fn create(&mut self, silent: bool, graph: &NamedNode) -> Result<()> {
        // SILENT, too, makes it exist from now on even if it has no quads any more.
        if self.existing(graph)?.is_some() && !silent {
            return Err(Error::GraphExists {
                graph: graph.as_str().to_owned(),
            });
        }
        let mut ids = Ids::new(self.destination);
        let id = self.named(graph, &mut ids)?;
        let mut pending = Pending::default();
        pending.graph(id, true);
        self.apply(&mut pending, &ids)
    }

    /// CLEAR, and DROP if `drops`.
    pub(super) fn clear(&mut self, silent: bool, target: &GraphTarget, drops: bool) -> Result<()> {
        let view = self.destination.view();
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
        let created = !drops;
        let named = named.into_iter();
        self.clear_set(
            &set,
            named.map(|graph| GraphChange { graph, created }).collect(),
        )
    }

    /// Removes all quads of some graphs, then makes graphs exist or not.
    fn clear_set(&mut self, graphs: &GraphSet, then: Vec<GraphChange>) -> Result<()> {
        self.change(|destination, go_on| pending::clear(destination, graphs, then, go_on))
    }

    /// The graph that an operation empties, if that is all it does: `DELETE WHERE { ?s ?p ?o }`, or with a graph that is named.
    pub(super) fn emptied_graph(&self, modify: &Modify) -> Option<GraphName> {
        let options = self.options;
        let is_plain = self.targets.are_plain()
            && !options.default_graph_union
            && options.using_graphs.is_empty()
            && options.using_named_graphs.is_empty()
            && options.bindings.is_empty();
        modify.emptied_graph().filter(|_| is_plain)
    }

    /// Removes all quads of a graph.
    pub(super) fn empty(&mut self, graph: &GraphName) -> Result<()> {
        let graph = match graph {
            GraphName::DefaultGraph => TermId::DEFAULT_GRAPH,
            GraphName::NamedNode(graph) => {
                match self.destination.view().term_id(graph.as_ref().into())? {
                    Some(graph) => graph,
                    None => return Ok(()),
                }
            }
        };
        self.clear_set(&one(graph), Vec::new())
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
        let mut ids = Ids::new(self.destination);
        let to = match &transfer.to {
            GraphName::DefaultGraph => TermId::DEFAULT_GRAPH,
            GraphName::NamedNode(graph) => self.named(graph, &mut ids)?,
        };
        if transfer.kind != TransferKind::Add {
            // What is new is in no quad, and its id is not the view's.
            let known = match &transfer.to {
                GraphName::DefaultGraph => Some(TermId::DEFAULT_GRAPH),
                GraphName::NamedNode(graph) => {
                    let view = self.destination.view();
                    view.term_id(graph.as_ref().into())?
                }
            };
            if let Some(known) = known {
                self.clear_set(&one(known), Vec::new())?;
            }
        }
        let view = self.destination.view();
        let mut pending = Pending::default();
        let copied = self.copy(&view, (from, to), &mut pending, &ids)?;
        if copied == 0 && to != TermId::DEFAULT_GRAPH {
            pending.graph(to, true);
        }
        if transfer.kind == TransferKind::Move {
            self.apply(&mut pending, &ids)?;
            let dropped = (from != TermId::DEFAULT_GRAPH).then_some(GraphChange {
                graph: from,
                created: false,
            });
            return self.clear_set(&one(from), dropped.into_iter().collect());
        }
        self.apply(&mut pending, &ids)
    }

    /// The id of a graph if it exists.
    fn existing(&self, graph: &NamedNode) -> Result<Option<TermId>> {
        let view = self.destination.view();
        let Some(id) = view.term_id(graph.as_ref().into())? else {
            return Ok(None);
        };
        Ok(view.graph_exists(id)?.then_some(id))
    }

    /// The id of the name of a graph, which may be new.
    fn named(&self, graph: &NamedNode, ids: &mut Ids) -> Result<TermId> {
        let found = ids.of(&[graph.clone().into()])?;
        let id = found.first().copied();
        id.ok_or_else(|| Error::Internal("a graph without an id".to_owned()))
    }

    /// Adds each quad of a graph to another one; returns how many there are. The last of them may still be pending.
    fn copy(
        &mut self,
        view: &Snapshot,
        (from, to): (TermId, TermId),
        pending: &mut Pending,
        ids: &Ids,
    ) -> Result<u64> {
        let mut scan = view.scan(&ScanSpec {
            permutation: Permutation::Spog,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs: one(from),
            columns: Columns::of(&[0, 1, 2]),
            with_graph: true,
        })?;
        let mut rows = QuadColumns::default();
        let mut count = 0;
        while scan.next(READ_QUADS, &mut rows)? {
            self.check()?;
            count += rows.rows as u64;
            let [subjects, predicates, objects, _] = &rows.columns;
            for ((subject, predicate), object) in subjects.iter().zip(predicates).zip(objects) {
                pending.add([*subject, *predicate, *object, to], self.runtime.memory())?;
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
