//! Where searches begin: all terms that may be first, and whether terms are nodes of a graph.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: rows are counted by their buffers, keys by their batch"
)]

use stoa_planner::physical::{PathStep, PredicateSet};
use stoa_quadstore::{Columns, Lookup, LookupRows, LookupSpec, QuadColumns, Scan, Snapshot};
use stoa_terms::{GraphSet, Permutation, TermId};

use super::edges::Place;
use crate::context::QueryContext;
use crate::error::Result;

/// A node in a graph; the graph is unbound if graphs do not matter.
pub(super) type GraphNode = (TermId, TermId);

/// All terms that a path can begin with, ascending, each once; with its graphs where they matter.
pub(super) struct Enumerator {
    streams: Vec<Stream>,
    with_graph: bool,
    /// The node that is being gathered, and its graphs.
    current: Option<TermId>,
    graphs: Graphs,
}

/// Graphs of a node, with repetitions that are taken out now and then.
#[derive(Default)]
struct Graphs {
    list: Vec<TermId>,
    different: usize,
}

impl Graphs {
    fn push(&mut self, graph: TermId) {
        if self.list.last() != Some(&graph) {
            self.list.push(graph);
        }
        if self.list.len() > 2 * self.different + 4096 {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.list.sort_unstable();
        self.list.dedup();
        self.different = self.list.len();
    }
}

/// Nodes in the order of one read.
struct Stream {
    place: Place,
    scan: Option<Scan>,
    column: usize,
    buffer: QuadColumns,
    row: usize,
}

impl Enumerator {
    /// Of the first steps of a path, or of all nodes of the graphs if no step is enough.
    pub(super) fn new(
        step: &PathStep,
        zero: bool,
        graphs: &GraphSet,
        with_graph: bool,
        snapshot: &Snapshot,
    ) -> Result<Self> {
        let mut places = Vec::new();
        if zero {
            let any = PredicateSet::AllBut(Vec::new());
            places.extend(Place::of(&any, false));
            places.extend(Place::of(&any, true));
        } else {
            first_edges(step, &mut places);
        }
        let mut streams = Vec::with_capacity(places.len());
        for place in places {
            let column = place.from();
            streams.push(Stream {
                scan: Some(place.scan(graphs, &[column], with_graph, snapshot)?),
                column,
                place,
                buffer: QuadColumns::default(),
                row: 0,
            });
        }
        Ok(Self {
            streams,
            with_graph,
            current: None,
            graphs: Graphs::default(),
        })
    }

    /// Adds nodes until there are `wanted`; `None` if some work was done without getting there,
    /// else whether there may be more.
    pub(super) fn next(
        &mut self,
        wanted: usize,
        out: &mut Vec<GraphNode>,
        context: &QueryContext,
    ) -> Result<Option<bool>> {
        while out.len() < wanted {
            let mut read = false;
            for stream in &mut self.streams {
                read |= stream.fill(context)?;
            }
            if read {
                return Ok(None);
            }
            let Some(smallest) = self.streams.iter().filter_map(Stream::node).min() else {
                self.give(out);
                return Ok(Some(false));
            };
            if self.current != Some(smallest) {
                self.give(out);
                self.current = Some(smallest);
            }
            for stream in &mut self.streams {
                stream.skip(smallest, self.with_graph, &mut self.graphs);
            }
        }
        Ok(Some(true))
    }

    fn give(&mut self, out: &mut Vec<GraphNode>) {
        let Some(node) = self.current.take() else {
            return;
        };
        if self.with_graph {
            self.graphs.sort();
            out.extend(self.graphs.list.drain(..).map(|graph| (graph, node)));
            self.graphs.different = 0;
        } else {
            out.push((TermId::UNBOUND, node));
        }
    }
}

/// The places of the triples that a path can begin with.
fn first_edges(step: &PathStep, places: &mut Vec<Place>) {
    match step {
        PathStep::Edge {
            predicates,
            inverse,
        } => places.extend(Place::of(predicates, *inverse)),
        PathStep::Sequence(parts) => {
            for part in parts {
                first_edges(part, places);
                if !may_be_nothing(part) {
                    break;
                }
            }
        }
        PathStep::Alternative(branches) => {
            for branch in branches {
                first_edges(branch, places);
            }
        }
        PathStep::Closure { step, .. } => first_edges(step, places),
    }
}

/// Whether a node is connected with itself without a step.
fn may_be_nothing(step: &PathStep) -> bool {
    match step {
        PathStep::Edge { .. } => false,
        PathStep::Sequence(parts) => parts.iter().all(may_be_nothing),
        PathStep::Alternative(branches) => branches.iter().any(may_be_nothing),
        PathStep::Closure { step, zero, .. } => *zero || may_be_nothing(step),
    }
}

impl Stream {
    /// Reads on if everything was taken; says whether it did.
    fn fill(&mut self, context: &QueryContext) -> Result<bool> {
        if self.row < self.buffer.rows {
            return Ok(false);
        }
        let Some(scan) = &mut self.scan else {
            return Ok(false);
        };
        self.buffer.clear();
        self.row = 0;
        if !scan.next(context.batch_rows(), &mut self.buffer)? {
            self.scan = None;
        }
        self.pass();
        Ok(true)
    }

    /// Leaves out rows of other predicates.
    fn pass(&mut self) {
        while self.row < self.buffer.rows && !self.place.keeps(&self.buffer, self.row) {
            self.row += 1;
        }
    }

    fn node(&self) -> Option<TermId> {
        (self.row < self.buffer.rows).then(|| self.buffer.columns[self.column][self.row])
    }

    /// Takes the rows of a node that are read already, with their graphs.
    fn skip(&mut self, node: TermId, with_graph: bool, graphs: &mut Graphs) {
        while self.node() == Some(node) {
            if with_graph {
                graphs.push(self.buffer.columns[3][self.row]);
            }
            self.row += 1;
            self.pass();
        }
    }
}

/// Finds out which terms occur in a graph, as subjects or objects.
pub(super) struct NodeCheck {
    lookups: [Lookup; 2],
    with_graph: bool,
    rows: LookupRows,
}

impl NodeCheck {
    pub(super) fn new(graphs: &GraphSet, with_graph: bool, snapshot: &Snapshot) -> Result<Self> {
        let lookup = |permutation| {
            snapshot.lookup(&LookupSpec {
                permutation,
                key_length: 1,
                graphs: graphs.clone(),
                columns: match with_graph {
                    true => Columns::of(&[3]),
                    false => Columns::NONE,
                },
                with_graph,
                is_counted: false,
            })
        };
        Ok(Self {
            lookups: [lookup(Permutation::Spog)?, lookup(Permutation::Opsg)?],
            with_graph,
            rows: LookupRows::default(),
        })
    }

    /// For each of `nodes` whether it occurs in its graph.
    pub(super) fn check(
        &mut self,
        nodes: &[GraphNode],
        context: &QueryContext,
    ) -> Result<Vec<bool>> {
        // By node, so that the graphs of one stand together.
        let mut order: Vec<u32> = (0..nodes.len() as u32).collect();
        order.sort_unstable_by_key(|index| {
            let (graph, node) = nodes[*index as usize];
            (node, graph)
        });
        let mut occurs = vec![false; nodes.len()];
        for number in 0..2 {
            let open: Vec<u32> = order
                .iter()
                .copied()
                .filter(|index| !occurs[*index as usize])
                .collect();
            self.look_up(number, nodes, &open, &mut occurs, context)?;
        }
        Ok(occurs)
    }

    fn look_up(
        &mut self,
        number: usize,
        nodes: &[GraphNode],
        open: &[u32],
        occurs: &mut [bool],
        context: &QueryContext,
    ) -> Result<()> {
        // Different nodes, and where each begins in `open`.
        let mut keys: Vec<TermId> = Vec::new();
        let mut starts: Vec<usize> = Vec::new();
        for (place, index) in open.iter().enumerate() {
            let (_, node) = nodes[*index as usize];
            if keys.last() != Some(&node) {
                keys.push(node);
                starts.push(place);
            }
        }
        starts.push(open.len());
        let lookup = &mut self.lookups[number];
        let mut first = 0;
        while first < keys.len() {
            lookup.start(&[&keys[first..]])?;
            let mut more = true;
            let mut settled = None;
            while more && settled.is_none() {
                context.check()?;
                self.rows.clear();
                more = lookup.next(context.batch_rows(), &mut self.rows)?;
                let mut last = None;
                for (row, key) in self.rows.key_index.iter().enumerate() {
                    let key = first + *key as usize;
                    let mut of_key = &open[starts[key]..starts[key + 1]];
                    if self.with_graph {
                        let graph = self.rows.columns.columns[3][row];
                        let of = |index: &u32| nodes[*index as usize].0;
                        let start = of_key.partition_point(|index| of(index) < graph);
                        let end = of_key.partition_point(|index| of(index) <= graph);
                        of_key = &of_key[start..end];
                    }
                    for index in of_key {
                        occurs[*index as usize] = true;
                    }
                    last = Some(key);
                }
                // A node may have millions of triples: what is settled is not read to its end.
                settled = last.filter(|key| {
                    let of_key = &open[starts[*key]..starts[*key + 1]];
                    of_key.iter().all(|index| occurs[*index as usize])
                });
            }
            first = match settled {
                Some(key) if more => key + 1,
                _ => keys.len(),
            };
        }
        Ok(())
    }
}
