//! One run of an update request, operation by operation: each sees what those before it
//! did.
//!
//! # References
//! SPARQL 1.1 Update, sections 3 and 4.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use oxrdf::{GraphName, NamedNode, Term};
use spargebra::term::{GraphName as ParsedGraph, GroundQuad, Quad};
use stoa_executor::Step;
use stoa_quadstore::ChangeCounts;
use stoa_storage::nonblocking;
use stoa_terms::TermId;

use super::destination::Destination;
use super::ids::Ids;
use super::kept::Kept;
use super::pending::{Pending, QUAD_TIMES, verify_share};
use super::targets::Targets;
use super::template::{Filling, Templates};
use crate::error::{Error, Result};
use crate::federation::GoOn;
use crate::format::GraphFormat;
use crate::load::{self, Input};
use crate::options::{DocumentOptions, QueryOptions, UpdateOptions};
use crate::query::{self, CancelHandle, Data, Modify, Operation};
use crate::running::Listed;
use crate::runtime::Runtime;

/// Terms of so many quads are looked up together.
const LOOKED_UP_QUADS: usize = 1 << 13;

/// So many changes, or so many bytes of new terms, are handed to a destination that goes through temporary files.
const HANDED_QUADS: usize = 1 << 16;
const HANDED_TERM_BYTES: usize = 4 << 20;

/// A run.
pub(super) struct Run<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) options: &'a UpdateOptions,
    pub(super) destination: &'a mut dyn Destination,
    /// What changes may take of the memory, in bytes.
    pub(super) changes_bytes_max: u64,
    pub(super) kept: &'a Arc<Kept>,
    /// When it was begun, on the clock of the runtime.
    pub(super) started: Duration,
    /// The graphs that stand for the default graph.
    pub(super) targets: &'a Targets,
    /// What the operations have changed.
    pub(super) counts: ChangeCounts,
    /// Where it is told what their patterns take.
    pub(super) listed: &'a Listed,
}

impl Run<'_> {
    /// Runs all operations. After an error some of them may be done.
    pub(super) fn operations(&mut self, operations: &[Operation]) -> Result<()> {
        for (number, operation) in operations.iter().enumerate() {
            self.check()?;
            if !is_short(operation) {
                nonblocking::check()?;
            }
            match operation {
                Operation::InsertData(data) => self.insert_data(data)?,
                Operation::DeleteData(data) => self.delete_data(data)?,
                Operation::Modify(modify) => match self.emptied_graph(modify) {
                    Some(graph) => self.empty(&graph)?,
                    None => self.modify(modify)?,
                },
                Operation::Load {
                    silent,
                    source,
                    destination,
                } => self.load(*silent, source, destination)?,
                Operation::Create { silent, graph } => self.create(*silent, graph)?,
                Operation::Clear {
                    silent,
                    graph,
                    drops,
                } => self.clear(*silent, graph, *drops)?,
                Operation::Transfer(transfer) => self.transfer(transfer)?,
            }
            if !goes_on(operation, operations.get(number + 1)) {
                self.change(|destination, _| Ok(destination.end_operation()?))?;
            }
        }
        Ok(())
    }

    /// Fails if the update was cancelled or its time is up.
    pub(super) fn check(&self) -> Result<()> {
        check(self.runtime, self.options, self.started)
    }

    /// Hands changes to the destination.
    pub(super) fn apply(&mut self, pending: &mut Pending, ids: &Ids) -> Result<()> {
        self.limit(pending.bytes_within())?;
        self.change(|destination, go_on| pending.apply(destination, ids, go_on))
    }

    /// Does the same with a part of the changes of an operation, if there is one large enough and the destination takes
    /// parts. Private ids are forgotten then. Otherwise they must not become too many.
    fn apply_part(&mut self, pending: &mut Pending, ids: &mut Ids) -> Result<()> {
        pending.hold_terms(ids, self.runtime.memory())?;
        if !self.destination.is_bulk() {
            return self.limit(pending.bytes_within());
        }
        if is_part(pending, ids) {
            self.apply(pending, ids)?;
            ids.truncate(0);
        }
        Ok(())
    }

    /// Refuses changes that take too much memory, with so many bytes for those that wait.
    fn limit(&self, pending_bytes: u64) -> Result<()> {
        let bytes = self.destination.memory_bytes() + pending_bytes;
        verify_share(self.runtime.memory(), bytes, self.changes_bytes_max)
    }

    /// Changes the destination; `change` is given what it has to ask now and then whether it may go on.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut dyn Destination, &dyn Fn() -> bool) -> Result<ChangeCounts>,
    ) -> Result<()> {
        self.check()?;
        let (runtime, options, started) = (self.runtime, self.options, self.started);
        let go_on: &dyn Fn() -> bool = &|| check(runtime, options, started).is_ok();
        let counts = match change(&mut *self.destination, go_on) {
            // Which of both it was.
            Err(Error::Cancelled) => {
                self.check()?;
                return Err(Error::Cancelled);
            }
            applied => applied?,
        };
        self.counts.added += counts.added;
        self.counts.removed += counts.removed;
        Ok(())
    }

    fn insert_data(&mut self, data: &Data<Quad>) -> Result<()> {
        let mut ids = Ids::new(self.destination);
        let mut pending = Pending::default();
        data.each(&mut |quads| {
            for quads in quads.chunks(LOOKED_UP_QUADS) {
                self.check()?;
                let mut terms = Terms::default();
                for quad in quads {
                    let graph = self.targets.added_to(&quad.graph_name);
                    terms.push(quad.subject.clone().into(), graph);
                    terms.list.push(quad.predicate.clone().into());
                    terms.list.push(quad.object.clone());
                }
                for quad in terms.quads(&mut ids)? {
                    pending.add(quad, self.runtime.memory())?;
                }
                self.apply_part(&mut pending, &mut ids)?;
            }
            Ok(())
        })?;
        self.apply(&mut pending, &ids)
    }

    fn delete_data(&mut self, data: &Data<GroundQuad>) -> Result<()> {
        let mut ids = Ids::new(self.destination);
        let mut pending = Pending::default();
        data.each(&mut |quads| {
            for quads in quads.chunks(LOOKED_UP_QUADS) {
                self.check()?;
                let mut terms = Terms::default();
                for quad in quads {
                    for graph in self.targets.removed_from(&quad.graph_name) {
                        terms.push(quad.subject.clone().into(), graph);
                        terms.list.push(quad.predicate.clone().into());
                        terms.list.push(quad.object.clone().into());
                    }
                }
                for quad in terms.quads(&mut ids)? {
                    pending.remove(quad, self.runtime.memory())?;
                }
                self.apply_part(&mut pending, &mut ids)?;
            }
            Ok(())
        })?;
        self.apply(&mut pending, &ids)
    }

    fn modify(&mut self, modify: &Modify) -> Result<()> {
        let options = self.query_options();
        let view = self.destination.view();
        let services = self.kept.services();
        let waited_ns = self.kept.waited_ns();
        let mut query = query::prepare_parsed(
            self.runtime,
            view,
            &modify.query,
            &options,
            services,
            waited_ns,
        )?;
        query.runs_for(self.listed);
        let context = Arc::clone(query.context());
        let mut ids = Ids::new(self.destination);
        let (delete, insert) = self.targets.templates(modify);
        let templates = Templates::new(&delete, &insert, &modify.variables, &mut ids)?;
        let constants = ids.terms().len();
        let mut pending = Pending::default();
        let mut filling = Filling {
            context: &context,
            ids: &mut ids,
            is_bulk: self.destination.is_bulk(),
            budget: self.runtime.memory(),
            local: HashMap::default(),
            reserved: None,
        };
        let mut fill = || loop {
            match query.next()? {
                Step::Batch(batch) => {
                    filling.fill(&templates, &batch, &mut pending)?;
                    let bytes = pending.reserved_bytes() + filling.reserved_bytes();
                    self.listed.holds(bytes);
                    if !filling.is_bulk {
                        let filled = QUAD_TIMES * filling.reserved_bytes();
                        self.limit(pending.bytes_within() + filled)?;
                    } else if is_part(&pending, filling.ids) {
                        self.apply(&mut pending, filling.ids)?;
                        filling.forget(constants);
                    }
                    self.check()?;
                }
                // It takes longer than others should wait for.
                Step::Yield => nonblocking::check()?,
                Step::Done => return Ok(()),
            }
        };
        let filled: Result<()> = fill();
        self.listed.has_taken(&query.took());
        let changed = filled.and_then(|()| self.apply(&mut pending, &ids));
        // They are the destination's now, or nobody's.
        self.listed.holds(0);
        changed
    }

    fn query_options(&self) -> QueryOptions {
        let options = self.options;
        let names = |graphs: &[NamedNode]| -> Vec<String> {
            let names = graphs.iter().map(|graph| graph.as_str().to_owned());
            names.collect()
        };
        QueryOptions {
            timeout: time_left(self.runtime, options, self.started),
            default_graph_union: options.default_graph_union,
            default_graphs: names(&options.using_graphs),
            named_graphs: names(&options.using_named_graphs),
            notes: false,
            cancel: options.cancel.clone(),
            base: None,
            at: None,
            bindings: Vec::new(),
            ..options.patterns.as_deref().cloned().unwrap_or_default()
        }
    }

    fn load(&mut self, silent: bool, source: &NamedNode, destination: &ParsedGraph) -> Result<()> {
        let savepoint = self.destination.savepoint();
        match self.load_document(source, destination) {
            Err(error) if silent && is_forgiven(&error) => {
                self.destination.roll_back_to(savepoint);
                Ok(())
            }
            other => other,
        }
    }

    fn load_document(&mut self, source: &NamedNode, destination: &ParsedGraph) -> Result<()> {
        let time_left = time_left(self.runtime, self.options, self.started);
        let go_on = go_on(self.runtime, self.options, self.started);
        let document = self.kept.document(source.as_str(), time_left, &go_on)?;
        let bytes = std::io::Cursor::new(Arc::clone(&document.bytes));
        let told = document.content_type.as_deref();
        let cancel = &self.options.cancel;
        let destination = self.targets.added_to(destination);
        let options = document_options(source, destination, told, cancel);
        let mut input = Some(Input::from_reader(source.as_str(), bytes));
        let runtime = self.runtime;
        let (counts, _) = self.destination.load(&mut |destination| {
            let input = input.take();
            let input = input.ok_or_else(|| Error::Internal("a second reading".to_owned()))?;
            load::load_into(runtime, destination, input, &options)
        })?;
        self.counts.added += counts.added;
        self.limit(0)
    }
}

/// Whether there are enough changes to hand them on.
fn is_part(pending: &Pending, ids: &Ids) -> bool {
    pending.len() >= HANDED_QUADS || ids.terms().memory_bytes() >= HANDED_TERM_BYTES
}

/// How a document of LOAD is read, given what the server says that it is.
pub(super) fn document_options(
    source: &NamedNode,
    destination: &ParsedGraph,
    content_type: Option<&str>,
    cancel: &CancelHandle,
) -> DocumentOptions {
    // Its format is told by the server or the name, which may have a query.
    let name = source.as_str().split(['?', '#']).next().unwrap_or_default();
    let format = content_type
        .and_then(specific_format)
        .or_else(|| GraphFormat::from_file_name(name));
    DocumentOptions {
        format,
        base: Some(source.as_str().to_owned()),
        graph: match destination {
            ParsedGraph::DefaultGraph => None,
            ParsedGraph::NamedNode(graph) => Some(GraphName::NamedNode(graph.clone())),
        },
        cancel: cancel.clone(),
        ..DocumentOptions::default()
    }
}

/// The time that is left for an update, which was begun at `started`.
pub(super) fn time_left(
    runtime: &Runtime,
    options: &UpdateOptions,
    started: Duration,
) -> Option<Duration> {
    let spent = runtime.clock().monotonic().saturating_sub(started);
    options.timeout.map(|timeout| timeout.saturating_sub(spent))
}

/// [`check`] for whoever goes on in another thread.
pub(super) fn go_on(runtime: &Runtime, options: &UpdateOptions, started: Duration) -> GoOn {
    let (runtime, options) = (runtime.clone(), options.clone());
    Arc::new(move || check(&runtime, &options, started))
}

/// Fails if an update was cancelled or its time is up, or where others have waited long enough for this thread.
pub(super) fn check(runtime: &Runtime, options: &UpdateOptions, started: Duration) -> Result<()> {
    if options.cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    let spent = runtime.clock().monotonic().saturating_sub(started);
    nonblocking::check_time(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX))?;
    match time_left(runtime, options, started) {
        Some(Duration::ZERO) => Err(Error::Timeout),
        _ => Ok(()),
    }
}

/// The format that a content type tells, unless it is one that servers send for want of a better one.
fn specific_format(content_type: &str) -> Option<GraphFormat> {
    let format = GraphFormat::from_name(content_type)?;
    (!content_type
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("text/plain"))
    .then_some(format)
}

/// Whether SILENT makes nothing of an error: it is about the document, not about this machine.
pub(super) fn is_forgiven(error: &Error) -> bool {
    matches!(
        error,
        Error::Load { .. }
            | Error::LoadOff
            | Error::Data(_)
            | Error::Input { .. }
            | Error::UnknownFormat { .. }
            | Error::LimitExceeded { .. }
            | Error::InvalidOption { .. }
    )
}

/// The terms of quads, to be looked up together: four for each, or three where the graph is the default
/// graph.
#[derive(Default)]
struct Terms {
    list: Vec<Term>,
    has_graph: Vec<bool>,
}

impl Terms {
    /// Begins a quad; predicate and object are pushed next.
    fn push(&mut self, subject: Term, graph: &ParsedGraph) {
        if let ParsedGraph::NamedNode(graph) = graph {
            self.list.push(graph.clone().into());
        }
        self.has_graph
            .push(matches!(graph, ParsedGraph::NamedNode(_)));
        self.list.push(subject);
    }

    fn quads(&self, ids: &mut Ids) -> Result<Vec<[TermId; 4]>> {
        let mut found = ids.of(&self.list)?.into_iter();
        let mut next = || {
            let id = found.next();
            id.ok_or_else(|| Error::Internal("a term without an id".to_owned()))
        };
        let quads = self
            .has_graph
            .iter()
            .map(|has_graph| -> Result<[TermId; 4]> {
                let graph = match *has_graph {
                    true => next()?,
                    false => TermId::DEFAULT_GRAPH,
                };
                Ok([next()?, next()?, next()?, graph])
            });
        quads.collect()
    }
}

/// Whether an operation and the next one may be done as one: neither reads anything, and what is removed comes first.
fn goes_on(operation: &Operation, next: Option<&Operation>) -> bool {
    matches!(
        (operation, next),
        (
            Operation::InsertData(_) | Operation::DeleteData(_),
            Some(Operation::InsertData(_))
        ) | (Operation::DeleteData(_), Some(Operation::DeleteData(_)))
    )
}

/// Whether an operation is as short as its text, as far as can be told before it runs.
fn is_short(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::InsertData(_) | Operation::DeleteData(_) | Operation::Modify(_)
    )
}

/// Whether operations read nothing, so that nothing that is committed meanwhile can be in conflict with
/// them.
pub(super) fn is_blind(operations: &[Operation]) -> bool {
    operations.iter().all(|operation| {
        matches!(
            operation,
            Operation::InsertData(_) | Operation::DeleteData(_) | Operation::Load { .. }
        )
    })
}

/// Whether an operation tells its dataset itself.
pub(super) fn has_dataset(operations: &[Operation]) -> bool {
    operations
        .iter()
        .any(|operation| matches!(operation, Operation::Modify(modify) if modify.has_dataset))
}
