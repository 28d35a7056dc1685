//! What a batch of the input binds of a path, as searches to be run: each different binding once.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: groups and rows are numbered by these very structures"
)]

use std::sync::Arc;

use stoa_planner::physical::{PathPattern, PathStart, PatternTerm, Variable};
use stoa_terms::{GraphSet, TermId};

use super::Searcher;
use super::sources::{Enumerator, GraphNode};
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::operator::position;
use crate::table::{GroupTable, NONE, hash_ids};

/// One search that is enough for so many ends is better than one for each pair of ends.
const ENDS_FOR_ONE: usize = 4;

/// A known end of a path.
#[derive(Clone, Copy)]
pub(super) enum End {
    Constant(TermId),
    Column(usize),
}

/// What is known of the graph.
pub(super) enum Graph {
    /// It does not matter.
    Any,
    Column(usize),
    /// Each of these, ascending.
    Each(Vec<TermId>),
}

/// What is known of a path before it is searched.
pub(super) struct Known {
    pub(super) pattern: PathPattern,
    /// Subject and object.
    pub(super) ends: [Option<End>; 2],
    pub(super) graph: Graph,
}

impl Known {
    pub(super) fn new(
        pattern: &PathPattern,
        input: &[Variable],
        context: &QueryContext,
    ) -> Result<Self> {
        let end = |end| match end {
            PatternTerm::Constant(id) => Some(End::Constant(id)),
            PatternTerm::Variable(variable) => position(input, variable).map(End::Column),
        };
        let ends = [end(pattern.subject), end(pattern.object)];
        let graph = match pattern.graph_variable {
            None => Graph::Any,
            Some(variable) => match position(input, variable) {
                Some(column) => Graph::Column(column),
                // Enumerated nodes bring their graphs.
                None if ends.iter().all(Option::is_none) => Graph::Any,
                None => Graph::Each(named_graphs(&pattern.graphs, context)?),
            },
        };
        Ok(Self {
            pattern: pattern.clone(),
            ends,
            graph,
        })
    }
}

fn named_graphs(set: &GraphSet, context: &QueryContext) -> Result<Vec<TermId>> {
    let mut names = context.snapshot().graph_names()?;
    names.retain(|graph| set.contains(*graph));
    Ok(names)
}

/// A search to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Unbound if graphs do not matter.
    pub(super) graph: TermId,
    /// Subject and object, unbound where it is looked for.
    pub(super) ends: [TermId; 2],
    /// Which rows it is for; and how many different ends are looked for.
    pub(super) group: u32,
    pub(super) open: u32,
}

/// How ends are looked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// All that is found counts; the searches begin at the subjects (0) or objects (1).
    All(usize),
    /// Only what rows ask for counts.
    Wanted(usize),
    /// Searches from both ends meet.
    Meeting,
}

impl Mode {
    /// The sides that a search for all of it may begin at.
    pub(super) const fn sides(self) -> &'static [usize] {
        match self {
            Self::All(0) | Self::Wanted(0) => &[0],
            Self::All(_) | Self::Wanted(_) => &[1],
            Self::Meeting => &[0, 1],
        }
    }
}

/// The searches for a batch of the input, and the rows that they are for.
pub(super) struct Bindings {
    pub(super) mode: Mode,
    feed: Feed,
    pub(super) groups: Arc<Groups>,
}

/// The rows that searches are for, in groups that ask for the same.
pub(super) struct Groups {
    /// Pairs that rows ask for, with the graph of the row if they tell it.
    wanted: Option<GroupTable>,
    tell_graph: bool,
    /// The first row of each group, and for each row the next one.
    first: Vec<u32>,
    next: Vec<u32>,
}

enum Feed {
    /// Each source in each graph, graph by graph; how many are given.
    List {
        sources: Vec<Source>,
        graphs: Vec<TermId>,
        given: usize,
    },
    Enumerated {
        enumerator: Box<Enumerator>,
        nodes: Vec<GraphNode>,
        more: bool,
        /// The end that is enumerated, and whether it is both ends.
        side: usize,
        is_loop: bool,
    },
}

impl Bindings {
    pub(super) fn new(left: &Batch, searcher: &Searcher, context: &QueryContext) -> Result<Self> {
        let known = &searcher.known;
        if known.ends.iter().all(Option::is_none) {
            return Self::enumerated(left, searcher, context);
        }
        let rows = left.rows;
        let column = |end: Option<End>| match end {
            Some(End::Column(column)) => left.column(column).to_vec(),
            Some(End::Constant(id)) => vec![id; rows],
            None => vec![TermId::UNBOUND; rows],
        };
        let [subjects, objects] = known.ends.map(column);
        let graphs = match known.graph {
            Graph::Column(column) => left.column(column).to_vec(),
            _ => vec![TermId::UNBOUND; rows],
        };
        for (end, ids) in known.ends.iter().zip([&subjects, &objects]) {
            if end.is_some() && ids.contains(&TermId::UNBOUND) {
                return Err(Error::Internal("a path search from what may be unbound"));
            }
        }
        let mut pairs = GroupTable::new(3);
        let mut groups = Vec::new();
        pairs.insert(&[&graphs, &subjects, &objects], rows, &mut groups)?;
        let chains = chains(&groups, pairs.len())?;
        let all_graphs = match &known.graph {
            Graph::Each(graphs) => graphs.clone(),
            _ => vec![TermId::UNBOUND],
        };
        let mode = match (known.ends, searcher.start) {
            ([Some(_), Some(_)], _) => mode(&pairs, [&graphs, &subjects, &objects], rows)?,
            (_, PathStart::Object) => Mode::All(1),
            _ => Mode::All(0),
        };
        let mut sources = sources(&pairs, mode)?;
        if matches!(known.graph, Graph::Column(_)) {
            retain_graphs(&mut sources, &known.pattern.graphs, context)?;
            sources.sort_by_key(|source| source.graph);
        }
        Ok(Self {
            mode,
            feed: Feed::List {
                sources,
                graphs: all_graphs,
                given: 0,
            },
            groups: Arc::new(Groups {
                wanted: matches!(mode, Mode::Wanted(_)).then_some(pairs),
                tell_graph: matches!(known.graph, Graph::Column(_)),
                first: chains.0,
                next: chains.1,
            }),
        })
    }

    fn enumerated(left: &Batch, searcher: &Searcher, context: &QueryContext) -> Result<Self> {
        if left.rows != 1 || !left.columns.is_empty() {
            return Err(Error::Internal(
                "a path search that knows no end has no input",
            ));
        }
        let side = usize::from(searcher.start == PathStart::Object);
        let enumerator = searcher.enumerator(&searcher.known.pattern, context)?;
        Ok(Self {
            mode: match searcher.is_loop {
                true => Mode::Meeting,
                false => Mode::All(side),
            },
            feed: Feed::Enumerated {
                enumerator: Box::new(enumerator),
                nodes: Vec::new(),
                more: true,
                side,
                is_loop: searcher.is_loop,
            },
            groups: Arc::new(Groups {
                wanted: None,
                tell_graph: false,
                first: vec![0],
                next: vec![NONE],
            }),
        })
    }

    /// The next searches, sorted by graph: some `wanted`, none at the end. `None` if some work was
    /// done without getting there.
    pub(super) fn next(
        &mut self,
        wanted: usize,
        context: &QueryContext,
    ) -> Result<Option<Vec<Source>>> {
        match &mut self.feed {
            Feed::List {
                sources,
                graphs,
                given,
            } => {
                let end = (*given + wanted).min(sources.len() * graphs.len());
                let next = (*given..end).map(|number| {
                    let mut source = sources[number % sources.len()];
                    if graphs[number / sources.len()] != TermId::UNBOUND {
                        source.graph = graphs[number / sources.len()];
                    }
                    source
                });
                let next = next.collect();
                *given = end;
                Ok(Some(next))
            }
            Feed::Enumerated {
                enumerator,
                nodes,
                more,
                side,
                is_loop,
            } => {
                if *more && nodes.len() < wanted {
                    match enumerator.next(wanted, nodes, context)? {
                        None => return Ok(None),
                        Some(further) => *more = further,
                    }
                }
                let count = nodes.len().min(wanted);
                let mut next: Vec<Source> = nodes
                    .drain(..count)
                    .map(|(graph, node)| {
                        let mut ends = [TermId::UNBOUND; 2];
                        ends[*side] = node;
                        Source {
                            graph,
                            ends: if *is_loop { [node; 2] } else { ends },
                            group: 0,
                            open: 1,
                        }
                    })
                    .collect();
                next.sort_by_key(|source| source.graph);
                Ok(Some(next))
            }
        }
    }

    /// How many searches are to come, 0 if that is not known.
    pub(super) fn left(&self) -> u64 {
        match &self.feed {
            Feed::List {
                sources,
                graphs,
                given,
            } => (sources.len() * graphs.len() - given) as u64,
            Feed::Enumerated { .. } => 0,
        }
    }

    /// The same, or `nodes` if there may be one from each of so many.
    pub(super) fn to_come(&self, nodes: u64) -> u64 {
        match &self.feed {
            Feed::Enumerated { more: true, .. } => nodes,
            Feed::Enumerated { nodes, .. } => nodes.len() as u64,
            Feed::List { .. } => self.left(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let feed = match &self.feed {
            Feed::List {
                sources, graphs, ..
            } => super::items::bytes_of(sources) + super::items::bytes_of(graphs),
            Feed::Enumerated { nodes, .. } => super::items::bytes_of(nodes),
        };
        feed + self.groups.bytes()
    }
}

impl Groups {
    /// The first row of a group.
    pub(super) fn first(&self, group: u32) -> u32 {
        self.first[group as usize]
    }

    /// The row of the same group that follows, or [`NONE`].
    pub(super) fn following(&self, row: u32) -> u32 {
        self.next[row as usize]
    }

    /// The group of the rows that ask for these ends, and for this graph if they tell one.
    pub(super) fn wanted(&self, graph: TermId, ends: [TermId; 2]) -> Option<u32> {
        let graph = match self.tell_graph {
            true => graph,
            false => TermId::UNBOUND,
        };
        let key = [graph, ends[0], ends[1]];
        let table = self.wanted.as_ref()?;
        let columns: [&[TermId]; 3] = [&key[..1], &key[1..2], &key[2..]];
        table.find(&columns, 0, hash_ids(&key))
    }

    fn bytes(&self) -> u64 {
        let table = self.wanted.as_ref().map_or(0, |table| table.bytes_with(0));
        table + super::items::bytes_of(&self.first) + super::items::bytes_of(&self.next)
    }
}

/// How to look for pairs of known ends.
fn mode(pairs: &GroupTable, columns: [&[TermId]; 3], rows: usize) -> Result<Mode> {
    let [graphs, subjects, objects] = columns;
    let mut groups = Vec::new();
    for (side, ends) in [subjects, objects].into_iter().enumerate() {
        let mut starts = GroupTable::new(2);
        starts.insert(&[graphs, ends], rows, &mut groups)?;
        if pairs.len() >= ENDS_FOR_ONE * starts.len() {
            return Ok(Mode::Wanted(side));
        }
    }
    Ok(Mode::Meeting)
}

/// A search for each pair, or for each different start of them.
fn sources(pairs: &GroupTable, mode: Mode) -> Result<Vec<Source>> {
    let all = (0..pairs.len()).map(|group| {
        let key = pairs.key(group);
        Source {
            graph: key[0],
            ends: [key[1], key[2]],
            group: group as u32,
            open: 1,
        }
    });
    let Mode::Wanted(side) = mode else {
        return Ok(all.collect());
    };
    let mut starts = GroupTable::new(2);
    let mut number = Vec::new();
    let mut sources: Vec<Source> = Vec::new();
    for mut source in all {
        let start = source.ends[side];
        starts.insert(&[&[source.graph], &[start]], 1, &mut number)?;
        match sources.get_mut(number[0] as usize) {
            Some(known) => known.open += 1,
            None => {
                source.ends[1 - side] = TermId::UNBOUND;
                sources.push(source);
            }
        }
    }
    Ok(sources)
}

/// Keeps searches in graphs that exist and may be read.
fn retain_graphs(
    sources: &mut Vec<Source>,
    graphs: &GraphSet,
    context: &QueryContext,
) -> Result<()> {
    let mut names: Vec<TermId> = sources.iter().map(|source| source.graph).collect();
    names.sort_unstable();
    names.dedup();
    let mut exist = Vec::with_capacity(names.len());
    for name in names {
        let named = name != TermId::DEFAULT_GRAPH && graphs.contains(name);
        if named && context.snapshot().graph_exists(name)? {
            exist.push(name);
        }
    }
    sources.retain(|source| exist.binary_search(&source.graph).is_ok());
    Ok(())
}

/// The first row of each group, and for each row the next one of its group.
fn chains(groups: &[u32], count: usize) -> Result<(Vec<u32>, Vec<u32>)> {
    let rows = u32::try_from(groups.len())
        .map_err(|_| Error::LimitExceeded("a path search would hold more than 2^32 rows"))?;
    let mut first = vec![NONE; count];
    let mut next = vec![NONE; groups.len()];
    // From the last row to the first, so that each group's rows ascend.
    for row in (0..rows).rev() {
        let first = &mut first[groups[row as usize] as usize];
        next[row as usize] = std::mem::replace(first, row);
    }
    Ok((first, next))
}
