//! DESCRIBE: the concise bounded description of resources over the query's default graph.
//!
//! The triples with a resource as their subject and, for each object that is a blank node, those with
//! that blank node as their subject, and so on. Each subject is described once, so no triple repeats.
//! Resources are looked up in batches; the frontier of blank nodes is the next batch.
//!
//! # Limits
//! The sets of subjects and the frontier are reserved. IRIs come from the query alone, so that those that find no room are
//! put aside and described last; blank nodes may lead back to any that was described, and are held.

use std::sync::Arc;

use stoa_planner::expression::Constant;
use stoa_planner::physical::Variable;
use stoa_quadstore::{Columns, Lookup, LookupRows, LookupSpec};
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use crate::batch::{Batch, Step};
use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::memory::Memory;
use crate::operator::{Node, Seen, position};

/// A DESCRIBE that is running.
pub(crate) struct Describe {
    /// Columns whose bindings are described.
    columns: Vec<usize>,
    lookup: Lookup,
    /// IRIs and blank nodes that were or will be looked up.
    iris: Seen,
    nodes: Seen,
    /// Subjects to be looked up.
    frontier: Vec<TermId>,
    memory: Memory,
    /// Subjects that are being looked up.
    current: Option<Vec<TermId>>,
    rows: LookupRows,
    root_done: bool,
}

impl Describe {
    pub(crate) fn new(
        variables: &[Variable],
        constants: &[Constant],
        columns: &[Variable],
        graphs: &GraphSet,
        context: &QueryContext,
    ) -> Result<Self> {
        let mut describe = Self {
            columns: variables
                .iter()
                .filter_map(|variable| position(columns, *variable))
                .collect(),
            lookup: context.snapshot().lookup(&LookupSpec {
                permutation: Permutation::Spog,
                key_length: 1,
                graphs: graphs.clone(),
                columns: Columns::of(&[1, 2]),
                with_graph: false,
                is_counted: false,
            })?,
            iris: Seen::new(1, 1, "describe", context, &Arc::default()),
            nodes: Seen::in_memory(1, "describe", context),
            frontier: Vec::new(),
            memory: context.memory("describe"),
            current: None,
            rows: LookupRows::default(),
            root_done: false,
        };
        let computed = constants.iter().map(|constant| match constant.id {
            Some(id) => Computed::Id(id),
            None => Computed::Term(constant.term.clone()),
        });
        let ids = context.resolve(computed.collect())?;
        describe.add(ids, context)?;
        Ok(describe)
    }

    /// Notes resources that are to be described.
    fn add(&mut self, ids: Vec<TermId>, context: &QueryContext) -> Result<()> {
        // What is no subject, or in no dictionary, has no triples.
        for (kind, seen) in [
            (Kind::Iri, &mut self.iris),
            (Kind::BlankNode, &mut self.nodes),
        ] {
            let of_kind = ids.iter().filter(|id| id.kind() == kind);
            let of_kind: Vec<TermId> = of_kind.copied().collect();
            if !of_kind.is_empty() {
                let mut batch = Batch::from_columns(vec![of_kind]);
                seen.keep_new(&mut batch, context)?;
                self.frontier.extend(batch.columns.into_iter().flatten());
            }
        }
        self.reserve()
    }

    fn reserve(&mut self) -> Result<()> {
        let bytes = self.frontier.len() * 2 * size_of::<TermId>();
        self.memory
            .require(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    pub(crate) fn next(&mut self, root: &mut Node, context: &QueryContext) -> Result<Step> {
        context.check()?;
        if let Some(subjects) = self.current.take() {
            return self.look_up(subjects, context);
        }
        if self.frontier.len() < context.batch_rows() && !self.root_done {
            match root.next(context)? {
                Step::Batch(batch) => {
                    for column in &self.columns.clone() {
                        self.add(batch.column(*column).to_vec(), context)?;
                    }
                }
                Step::Yield => (),
                Step::Done => self.root_done = true,
            }
            return Ok(Step::Yield);
        }
        if self.frontier.is_empty() {
            // Those that had no room.
            let Some(batch) = self.iris.next_aside(context)? else {
                return Ok(Step::Done);
            };
            self.frontier.extend(batch.columns.into_iter().flatten());
            self.reserve()?;
            return Ok(Step::Yield);
        }
        let rest = self.frontier.len().min(context.batch_rows());
        let later = self.frontier.split_off(rest);
        let subjects = std::mem::replace(&mut self.frontier, later);
        self.lookup.start(&[&subjects])?;
        self.current = Some(subjects);
        Ok(Step::Yield)
    }

    fn look_up(&mut self, subjects: Vec<TermId>, context: &QueryContext) -> Result<Step> {
        self.rows.clear();
        let more = self.lookup.next(context.batch_rows(), &mut self.rows)?;
        let subject_column: Vec<TermId> = self
            .rows
            .key_index
            .iter()
            .map(|row| subjects.get(*row as usize).copied().unwrap_or_default())
            .collect();
        let [_, predicates, objects, _] = std::mem::take(&mut self.rows.columns.columns);
        let nodes = objects.iter().copied();
        let nodes = nodes.filter(|id| id.kind() == Kind::BlankNode);
        self.add(nodes.collect(), context)?;
        if more {
            self.current = Some(subjects);
        }
        let batch = Batch::from_columns(vec![subject_column, predicates, objects]);
        Ok(if batch.is_empty() {
            Step::Yield
        } else {
            Step::Batch(batch)
        })
    }
}
