//! The graphs of a query: FROM and FROM NAMED, the protocol's dataset, and GRAPH.

use oxrdf::NamedNode;
use spargebra::algebra::QueryDataset;
use stoa_terms::{GraphSet, TermId};

use crate::error::Error;
use crate::physical::Variable;
use crate::{PlannerOptions, UNION_GRAPH};

/// The dataset of a query.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    /// What the default graph is made of.
    pub(crate) default: GraphSet,
    /// What GRAPH may name.
    pub(crate) named: GraphSet,
}

/// The graph that patterns are matched with.
#[derive(Clone, Debug)]
pub(crate) enum ActiveGraph {
    /// The default graph.
    Default,
    /// `GRAPH <iri>`: this graph.
    One(TermId),
    /// `GRAPH <iri>` of a graph that is not in the dataset.
    Missing,
    /// `GRAPH ?g`: each named graph in turn, bound to this variable.
    Variable(Variable),
}

impl Dataset {
    /// The dataset of a query with these options; `id` finds the id of an IRI.
    pub(crate) fn new(
        from: Option<&QueryDataset>,
        options: &PlannerOptions,
        mut id: impl FnMut(&NamedNode) -> Result<Option<TermId>, Error>,
    ) -> Result<Self, Error> {
        let all = Self {
            default: if options.default_graph_union {
                GraphSet::All
            } else {
                GraphSet::Default
            },
            named: GraphSet::Named,
        };
        let Some(dataset) = options.dataset.as_ref().or(from) else {
            return Ok(all);
        };
        let mut set = |names: &[NamedNode]| -> Result<GraphSet, Error> {
            if names.iter().any(|name| name.as_str() == UNION_GRAPH) {
                return Ok(GraphSet::All);
            }
            let mut ids = Vec::with_capacity(names.len());
            for name in names {
                ids.extend(id(name)?);
            }
            Ok(normal(ids))
        };
        if dataset.default.is_empty() && dataset.named.is_none() {
            return Ok(all);
        }
        Ok(Self {
            default: set(&dataset.default)?,
            named: match &dataset.named {
                None => GraphSet::Named,
                Some(named) => match set(named)? {
                    GraphSet::All => GraphSet::Named,
                    named => named,
                },
            },
        })
    }
}

fn normal(mut ids: Vec<TermId>) -> GraphSet {
    ids.sort_unstable();
    ids.dedup();
    match *ids {
        [one] => GraphSet::One(one),
        _ => GraphSet::Some(ids),
    }
}
