//! The graphs that stand for the default graph where an update writes, if a request names some.
//!
//! They are those of RDF4J: what is added outside of GRAPH goes into one graph, what is removed there goes from
//! several. CLEAR, DROP and the transfers of graphs mean the default graph itself.

use std::borrow::Cow;

use oxrdf::GraphName;
use spargebra::term::{GraphName as ParsedGraph, GraphNamePattern, QuadPattern};

use crate::options::UpdateOptions;
use crate::query::Modify;

/// The graphs.
pub(super) struct Targets {
    added: ParsedGraph,
    removed: Vec<ParsedGraph>,
}

impl Targets {
    pub(super) fn of(options: &UpdateOptions) -> Self {
        let named = |graph: &GraphName| match graph {
            GraphName::NamedNode(graph) => ParsedGraph::NamedNode(graph.clone()),
            // A blank node cannot be told from outside.
            GraphName::DefaultGraph | GraphName::BlankNode(_) => ParsedGraph::DefaultGraph,
        };
        let added = options.insert_graph.clone();
        let mut removed: Vec<ParsedGraph> = options.remove_graphs.iter().map(named).collect();
        if removed.is_empty() {
            removed.push(ParsedGraph::DefaultGraph);
        }
        Self {
            added: added.map_or(ParsedGraph::DefaultGraph, ParsedGraph::NamedNode),
            removed,
        }
    }

    /// Where goes what is added to a graph.
    pub(super) fn added_to<'a>(&'a self, graph: &'a ParsedGraph) -> &'a ParsedGraph {
        match graph {
            ParsedGraph::DefaultGraph => &self.added,
            graph @ ParsedGraph::NamedNode(_) => graph,
        }
    }

    /// The graphs from which goes what is removed from a graph.
    pub(super) fn removed_from<'a>(&'a self, graph: &'a ParsedGraph) -> &'a [ParsedGraph] {
        match graph {
            ParsedGraph::DefaultGraph => &self.removed,
            graph @ ParsedGraph::NamedNode(_) => std::slice::from_ref(graph),
        }
    }

    /// Whether the default graph stands for itself.
    pub(super) fn are_plain(&self) -> bool {
        self.added == ParsedGraph::DefaultGraph && self.removed == [ParsedGraph::DefaultGraph]
    }

    /// The templates of DELETE and INSERT.
    pub(super) fn templates<'a>(
        &self,
        modify: &'a Modify,
    ) -> (Cow<'a, [QuadPattern]>, Cow<'a, [QuadPattern]>) {
        let added = std::slice::from_ref(&self.added);
        (
            redirected(&modify.delete, &self.removed),
            redirected(&modify.insert, added),
        )
    }
}

/// Quads of the default graph as quads of each of these.
fn redirected<'a>(quads: &'a [QuadPattern], graphs: &[ParsedGraph]) -> Cow<'a, [QuadPattern]> {
    if *graphs == [ParsedGraph::DefaultGraph] {
        return Cow::Borrowed(quads);
    }
    let mut all = Vec::with_capacity(quads.len());
    for quad in quads {
        if quad.graph_name != GraphNamePattern::DefaultGraph {
            all.push(quad.clone());
            continue;
        }
        all.extend(graphs.iter().map(|graph| QuadPattern {
            graph_name: graph.clone().into(),
            ..quad.clone()
        }));
    }
    Cow::Owned(all)
}
