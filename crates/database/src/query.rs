//! From the text of a query to its answer.
//!
//! A text is checked for nesting, rewritten where the parser would read it wrongly, parsed by
//! spargebra, planned with the counts of a snapshot, and run by the executor over the same snapshot.

mod advice;
mod analysis;
mod backtracking;
mod bindings;
mod notes;
mod parameters;
mod plan_cache;
mod prefixes;
mod rewrite;
mod shape;
pub(crate) mod shape_text;
mod similar;
mod solutions;
mod stack;
mod star;
mod syntax;
mod text_memory;
mod token;
mod update;
mod update_advice;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use oxrdf::{NamedNode, Variable};
use spargebra::SparqlParser;
use spargebra::algebra::QueryDataset;
use stoa_executor::service::ServiceClient;
use stoa_executor::spill::{self, Spill};
use stoa_executor::turns;
use stoa_executor::{Clock, Execution, QueryContext, QuerySettings, Step};
use stoa_planner::{Names, PlannerOptions, QueryPlan, Stop};
use stoa_quadstore::Snapshot;
use stoa_storage::{ReadCounts, nonblocking};
use stoa_terms::{Kind, TermId};

pub use analysis::{Analysis, PlanOrigin};
pub(crate) use plan_cache::PlanCache;
pub use plan_cache::PlanCounts;
pub use similar::name_differences;
pub use solutions::{QueryResult, Solution, Solutions, Triples};
pub(crate) use update::{Data, Modify, Operation, Transfer, TransferKind, with_request};

use crate::error::{Error, Result};
use crate::federation::GoOn;
use crate::limits::{NOTED_BYTES_MAX, QUERY_BYTES_MAX};
use crate::note::Note;
use crate::options::QueryOptions;
use crate::running::Listed;
use crate::runtime::{Runtime, date_time};
use crate::shapes::Ended;
use crate::statistics::SnapshotStatistics;
use shape::Shape;
use text_memory::TextMemory;
pub(crate) use token::Token;

/// How much longer a query goes on at once for each operator on top of another one, in nanoseconds.
const SLICE_NS_PER_OPERATOR: u64 = 5_000;

/// Where there is less memory, a query has one thread: what each of several takes before it is counted is too
/// much of it.
const HELPED_BYTES_MIN: u64 = 192 << 20;

/// Ends an operation from another thread. All clones belong together.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    own: Arc<AtomicBool>,
    /// That of who handed it on.
    outer: Option<Arc<AtomicBool>>,
}

impl CancelHandle {
    /// A handle that has not been cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle over a flag that something else sets, such as a signal handler.
    #[must_use]
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self {
            own: flag,
            outer: None,
        }
    }

    /// A handle for one operation, which ends with this one, but not this one with it.
    pub(crate) fn child(&self) -> Self {
        Self {
            own: Arc::default(),
            outer: Some(Arc::clone(&self.own)),
        }
    }

    /// Makes the operation end with `Error::Cancelled` soon; safe to call again.
    pub fn cancel(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelHandle::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let flags = [Some(&self.own), self.outer.as_ref()];
        let mut flags = flags.into_iter().flatten();
        flags.any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Fails once it is cancelled.
    pub(crate) fn go_on(&self) -> GoOn {
        let cancel = self.clone();
        Arc::new(move || match cancel.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        })
    }

    /// Whether what runs with `other` ends when this handle is cancelled.
    pub(crate) fn ends(&self, other: &Self) -> bool {
        let (own, outer) = other.flags();
        Arc::ptr_eq(&self.own, &own) || outer.is_some_and(|outer| Arc::ptr_eq(&self.own, &outer))
    }

    /// What makes it cancelled: its own flag, and that of who handed it on.
    pub(crate) fn flags(&self) -> (Arc<AtomicBool>, Option<Arc<AtomicBool>>) {
        (Arc::clone(&self.own), self.outer.clone())
    }

    /// The flag itself, for a signal handler.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.own)
    }
}

/// What kind of answer a query has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueryKind {
    /// SELECT: solutions.
    Solutions,
    /// ASK: true or false.
    Boolean,
    /// CONSTRUCT and DESCRIBE: triples.
    Graph,
}

/// A query that is planned and ready to run over the snapshot it was planned for.
///
/// This is the level of the writers of results: it hands out batches of ids, and terms are decoded
/// last. Library users rather take [`crate::Database::query`].
pub struct Query {
    kind: QueryKind,
    variables: Arc<[Variable]>,
    notes: Vec<Note>,
    /// What recurses as deep as the plan is; `None` only while it is dropped.
    running: Option<Running>,
    context: Arc<QueryContext>,
    /// The stack that this needs, where the usual one may not do.
    stack_bytes: Option<usize>,
    planning: Duration,
    origin: PlanOrigin,
    /// What planning has read from disk.
    planning_reads: ReadCounts,
    /// How long it was at work.
    running_ns: u64,
    /// How many rows it gave.
    rows: u64,
    outcome: Outcome,
    /// What is reserved for its text; none for the pattern of an update.
    text_memory: Option<TextMemory>,
    /// Its place among what is running; none for the pattern of an update.
    listed: Option<Listed>,
}

/// What became of a query so far.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// It was not run.
    Planned,
    Ran,
    Failed,
    /// It wanted what the thread must not do, and is done anew by another one.
    Refused,
}

struct Running {
    plan: Arc<QueryPlan>,
    execution: Execution,
}

impl Drop for Query {
    fn drop(&mut self) {
        self.tell();
        let running = self.running.take();
        if let Some(bytes) = self.stack_bytes {
            let dropped = stack::on_stack(bytes, move || {
                drop(running);
                Ok(())
            });
            // Where there is no thread, it was dropped on this one.
            drop(dropped);
        }
    }
}

impl Query {
    /// Has what it takes told in the list.
    pub(crate) fn runs_for(&self, listed: &Listed) {
        listed.runs_in(&self.context, self.planning, self.planning_reads);
    }

    /// With its place among what is running.
    fn listed(mut self, listed: Listed) -> Self {
        self.runs_for(&listed);
        self.listed = Some(listed);
        self
    }

    /// What kind of answer it has.
    #[must_use]
    pub fn kind(&self) -> QueryKind {
        self.kind
    }

    /// The variables of its solutions in the order in which the query names them; empty for other
    /// kinds.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// What is odd about it, in the order of its text: a variable that nothing binds, a predicate
    /// that does not occur in the data. At most [`crate::limits::NOTES_MAX`]; none if
    /// [`QueryOptions::notes`] is off, or the text is longer than
    /// [`crate::limits::NOTED_BYTES_MAX`].
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// # let options = LoadOptions {
    /// #     inputs: vec![Input::from_bytes("x.nt", "<http://a/s> <http://a/name> \"x\" .\n")],
    /// #     ..LoadOptions::default()
    /// # };
    /// # database.load(options, &())?;
    /// let text = "SELECT ?nmae { ?person <http://a/name> ?name }";
    /// let query = database.prepare(text, &QueryOptions::default())?;
    /// let [note] = query.notes() else { unreachable!() };
    /// assert_eq!(note.kind, NoteKind::UnboundVariable);
    /// assert_eq!(note.suggestion.as_deref(), Some("?name"));
    /// assert_eq!(
    ///     note.to_string(),
    ///     "note at line 1, column 8: nothing binds ?nmae; did you mean ?name?\n  \
    ///      SELECT ?nmae { ?person <http://a/name> ?name }\n         ^^^^^"
    /// );
    /// # Ok::<_, Error>(())
    /// ```
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The plan as a tree of text, as [`Query::analysis`] has it.
    #[must_use]
    pub fn explain(&self) -> String {
        self.analysis().map_or_else(
            |error| error.to_string(),
            |analysis| {
                Analysis {
                    operators: None,
                    ..analysis
                }
                .to_string()
            },
        )
    }

    /// The plan, with what its operators have done so far if [`QueryOptions::timed`] is on, also after an error that
    /// ended the query. Constants are told by the prefixes that
    /// the first 2,000 bytes of the text declare; one that the dictionary cannot give is told by its id.
    ///
    /// # Errors
    /// If there is no thread for a plan that is deep.
    pub fn analysis(&self) -> Result<Analysis> {
        let Some(running) = &self.running else {
            return Err(Error::Internal("a query that has ended".to_owned()));
        };
        let timed = self.context.settings().timed;
        let plan = &running.plan;
        let text = self.listed.as_ref().map_or("", Listed::text);
        let tokens = token::tokens(text);
        let declared: Vec<_> = prefixes::declared(text, &tokens).collect();
        // What is read for names is nothing that the query did.
        let context = &*self.context;
        let snapshot = context.snapshot().counted();
        let term = |id: TermId| match id.kind() {
            Kind::Local => context.term(id).ok().flatten(),
            _ => snapshot.term(id).ok(),
        };
        let explain = || {
            let names = Names {
                term: &term,
                name: &|iri| prefixes::prefixed_name(iri, &declared),
            };
            Ok(stoa_planner::explain(plan, &names))
        };
        Ok(Analysis {
            plan: stack::run(self.stack_bytes, explain)?,
            operators: timed.then(|| running.execution.profile()),
            is_partial: self.outcome == Outcome::Failed,
            planning: self.planning,
            origin: self.origin,
            running: Duration::from_nanos(self.running_ns),
            reads: self.reads(),
            memory_peak_bytes: self.context.meters().memory_peak_bytes(),
            spilled_bytes: self.context.meters().spilled_bytes(),
            waited: Duration::from_nanos(self.context.meters().waited_ns()),
            threads: self.context.meters().threads_peak(),
            known_rows: self.context.meters().known_rows(),
        })
    }

    /// Works for some milliseconds at most; where it waits for another endpoint, or for memory that other queries
    /// hold, this thread sleeps a moment. A batch has a column for each of
    /// [`Query::variables`]; a single one, true or false, for ASK; subject, predicate and object for
    /// CONSTRUCT and DESCRIBE, without duplicates.
    ///
    /// # Errors
    /// `Timeout`, `Cancelled`, `MemoryExceeded`, `NotAdmitted`, `TemporarySpace`, `Service`, and what the disk gives.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is no iterator: it yields between batches"
    )]
    pub fn next(&mut self) -> Result<Step> {
        let step = self.advance(|execution| Ok(execution.next()?))?;
        self.count(&step);
        Ok(step)
    }

    /// As [`Query::next`], but never waits: pending if there is nothing to do before `waker` is called or
    /// [`Query::wake_ns`] has passed.
    ///
    /// # Errors
    /// As [`Query::next`].
    pub fn poll(&mut self, waker: &Waker) -> Result<Poll<Step>> {
        let step = self.advance(|execution| Ok(execution.poll(waker)?))?;
        if let Poll::Ready(step) = &step {
            self.count(step);
        }
        Ok(step)
    }

    fn count(&mut self, step: &Step) {
        if let Step::Batch(batch) = step {
            self.rows += batch.rows as u64;
        }
    }

    /// Tells what it took, if it was run.
    fn tell(&mut self) {
        if matches!(self.outcome, Outcome::Planned | Outcome::Refused) {
            return;
        }
        let took = self.took();
        if let Some(listed) = &mut self.listed {
            listed.ends(took);
        }
    }

    /// What it has taken so far.
    pub(crate) fn took(&self) -> Ended {
        let meters = self.context.meters();
        Ended {
            is_error: self.outcome == Outcome::Failed,
            rows: self.rows,
            planning: self.planning,
            running: Duration::from_nanos(self.running_ns),
            waited: Duration::from_nanos(meters.waited_ns()),
            reads: self.context.snapshot().reads().plus(self.planning_reads),
            spilled_bytes: meters.spilled_bytes(),
            memory_peak_bytes: meters.memory_peak_bytes(),
            threads: meters.threads_peak(),
        }
    }

    fn advance<T: Send>(
        &mut self,
        step: impl FnOnce(&mut Execution) -> Result<T> + Send,
    ) -> Result<T> {
        let Some(running) = &mut self.running else {
            return Err(Error::Internal("a query that has ended".to_owned()));
        };
        let clock = &self.context.settings().clock;
        let begun_ns = clock.now_ns();
        let outcome = stack::run(self.stack_bytes, || step(&mut running.execution));
        self.running_ns += clock.now_ns().saturating_sub(begun_ns);
        self.outcome = match (&outcome, self.outcome) {
            (Ok(_), Outcome::Planned | Outcome::Ran) => Outcome::Ran,
            (Ok(_), before) => before,
            (Err(_), _) if nonblocking::check_nothing_refused().is_err() => Outcome::Refused,
            (Err(_), _) => Outcome::Failed,
        };
        outcome
    }

    /// When [`Query::poll`] is to be called again after it was pending, though nobody called the waker, on the clock of
    /// [`Runtime::executor_clock`], in nanoseconds.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        Some(self.running.as_ref()?.execution.wake_ns())
    }

    /// Runs it, for those who want terms.
    ///
    /// # Errors
    /// As [`Query::next`].
    pub fn run(self) -> Result<QueryResult> {
        QueryResult::new(self)
    }

    /// What its operators have looked up and read so far, rows included that they did not return because another graph
    /// or a condition was wanted; and what was read from disk for it, for its planning and for the terms of its answer,
    /// too.
    #[must_use]
    pub fn reads(&self) -> ReadCounts {
        self.context().snapshot().reads().plus(self.planning_reads)
    }

    /// From the text to the plan.
    #[must_use]
    pub fn planning(&self) -> Duration {
        self.planning
    }

    /// What decodes the ids of its batches.
    #[must_use]
    pub fn context(&self) -> &Arc<QueryContext> {
        &self.context
    }
}

/// Parses and plans, or takes a plan that was made for a query of the same shape out of `plans`. Parser, planner and
/// operators recurse, so a deeply nested or large query gets stacks of its own.
pub(crate) fn prepare(
    runtime: &Runtime,
    snapshot: Snapshot,
    plans: Option<&PlanCache>,
    text: &str,
    options: &QueryOptions,
) -> Result<Query> {
    // Editors put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > QUERY_BYTES_MAX {
        return Err(Error::LimitExceeded {
            what: "the length of the query",
            limit: u64::try_from(QUERY_BYTES_MAX).unwrap_or(u64::MAX),
        });
    }
    let started_ns = runtime.executor_clock().now_ns();
    let cancel = options.cancel.child();
    let mut listed = Listed::new(runtime, text, false, &cancel);
    let budget = runtime.memory();
    let (text_memory, tokens) = TextMemory::with_tokens(text, budget, "the text of the query")?;
    let text = Text { text, tokens };
    listed.has_shape(text.text, &text.tokens);
    let asked = Asked {
        services: runtime.services(),
        started_ns,
        cancel,
        waited_ns: Arc::default(),
    };
    match prepare_text(runtime, snapshot.counted(), plans, &text, asked, options) {
        Ok(mut query) => {
            drop(text);
            query.text_memory = Some(text_memory.planned());
            Ok(query.listed(listed))
        }
        Err(error) => {
            listed.fails(&error, Ended::default());
            Err(error)
        }
    }
}

fn prepare_text(
    runtime: &Runtime,
    snapshot: Snapshot,
    plans: Option<&PlanCache>,
    text: &Text<'_>,
    asked: Asked,
    options: &QueryOptions,
) -> Result<Query> {
    let plans = plans.filter(|_| options.plans && !snapshot.is_recorded());
    let plans = plans.and_then(|plans| {
        let shape = shape::shape(text.text, &text.tokens, options)?;
        Some((plans, shape))
    });
    let is_noted = options.notes && text.text.len() <= NOTED_BYTES_MAX;
    let statistics = match is_noted || plans.is_some() {
        true => SnapshotStatistics::keeping(&snapshot),
        false => SnapshotStatistics::new(&snapshot),
    };
    if let Some((plans, shape)) = &plans
        && let Some((plan, origin)) = plans.find(shape, &statistics)?
    {
        let mut query = start(runtime, &snapshot, plan, None, asked, options)?;
        query.origin = origin;
        return Ok(query);
    }
    let levels = stoa_planner::check_nesting(text.text)? + stack::chained(text)?;
    let prepare = || {
        let mut parsed = parse(text.text, &text.tokens, options.base.as_deref())?;
        bindings::bind(&mut parsed, &options.bindings)?;
        let size = stoa_planner::query_size(&parsed)?;
        let asked = (plans, asked);
        let plan = || plan(runtime, statistics, (text, &parsed, size), asked, options);
        stack::run(stoa_planner::stack_bytes(size.elements), plan)
    };
    stack::run(stoa_planner::stack_bytes(levels), prepare)
}

/// PlanCache a query that was parsed already, with `services` to ask endpoints with, for a request whose queries have
/// `waited_ns` for memory. Of the options, `base` and `notes` have no meaning here.
pub(crate) fn prepare_parsed(
    runtime: &Runtime,
    snapshot: Snapshot,
    parsed: &spargebra::Query,
    options: &QueryOptions,
    services: Option<Arc<dyn ServiceClient>>,
    waited_ns: &Arc<AtomicU64>,
) -> Result<Query> {
    let started_ns = runtime.executor_clock().now_ns();
    let snapshot = snapshot.counted();
    let size = stoa_planner::query_size(parsed)?;
    let text = Text {
        text: "",
        tokens: Vec::new(),
    };
    let asked = Asked {
        services,
        started_ns,
        cancel: options.cancel.clone(),
        waited_ns: Arc::clone(waited_ns),
    };
    let statistics = SnapshotStatistics::new(&snapshot);
    let asked = (None, asked);
    let plan = || plan(runtime, statistics, (&text, parsed, size), asked, options);
    stack::run(stoa_planner::stack_bytes(size.elements), plan)
}

/// A query as it is written.
struct Text<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

/// What goes with a query that was asked.
struct Asked {
    services: Option<Arc<dyn ServiceClient>>,
    started_ns: u64,
    cancel: CancelHandle,
    waited_ns: Arc<AtomicU64>,
}

impl Asked {
    /// When it ends, on the clock of the executor.
    fn deadline_ns(&self, options: &QueryOptions) -> Option<u64> {
        let timeout = options.timeout?;
        Some(deadline(self.started_ns, timeout))
    }
}

fn plan(
    runtime: &Runtime,
    statistics: SnapshotStatistics<'_>,
    (text, parsed, size): (&Text<'_>, &spargebra::Query, stoa_planner::Size),
    (plans, asked): (Option<(&PlanCache, Shape)>, Asked),
    options: &QueryOptions,
) -> Result<Query> {
    let clock = runtime.executor_clock();
    let dataset = dataset(options)?;
    let (cancel, deadline_ns) = (&asked.cancel, asked.deadline_ns(options));
    let now = date_time(runtime.clock().now());
    let memory = runtime.memory().clone();
    let mut trying = QuerySettings::new(memory, Arc::clone(&clock), now, 0);
    (trying.cancel, trying.cancel_outer) = cancel.flags();
    trying.deadline_ns = deadline_ns;
    trying.base_iri = parsed.base_iri().map(|base| base.as_str().to_owned());
    let statistics = statistics.trying(trying);
    let stop = stop(&clock, cancel.clone(), asked.started_ns, deadline_ns);
    let plan = stoa_planner::plan(
        parsed,
        &PlannerOptions {
            stop: Some(stop.clone()),
            default_graph_union: options.default_graph_union,
            dataset,
            optimize: !options.naive,
            forced: options.forced,
            without: options.without,
        },
        &statistics,
    )
    .map_err(|error| match error {
        stoa_planner::Error::Stopped if !cancel.is_cancelled() => Error::Timeout,
        error => error.into(),
    })?;
    if let Some((plans, _)) = &plans {
        plans.count_planned();
    }
    let notes = if options.notes {
        notes::notes(
            (text.text, &text.tokens),
            parsed,
            &statistics,
            &stop,
            options,
        )?
    } else {
        Vec::new()
    };
    // What is odd is told of each text, and what needs a stack of its own is made for each.
    let is_small = stoa_planner::stack_bytes(plan.root.depth() + size.expression_depth).is_none();
    if let Some((plans, shape)) = plans
        && notes.is_empty()
        && is_small
    {
        let parse = |text: &str| parse(text, &token::tokens(text), options.base.as_deref());
        plans.keep(shape, (text.text, parsed), &plan, &statistics, parse)?;
    }
    let snapshot = statistics.snapshot();
    let mut query = start(runtime, snapshot, plan, Some(size), asked, options)?;
    query.notes = notes;
    Ok(query)
}

/// Makes a plan ready to run. Without a size it is of a query that is known to be small.
fn start(
    runtime: &Runtime,
    snapshot: &Snapshot,
    plan: QueryPlan,
    size: Option<stoa_planner::Size>,
    asked: Asked,
    options: &QueryOptions,
) -> Result<Query> {
    let deadline_ns = asked.deadline_ns(options);
    let Asked {
        services,
        started_ns,
        cancel,
        waited_ns,
    } = asked;
    let mut settings = settings(runtime, runtime.executor_clock(), options, &cancel);
    settings.deadline_ns = deadline_ns;
    settings.fit_batches(&plan.root);
    // Coming down to where there is work takes time in a deep plan.
    let depth = plan.root.depth();
    settings.slice_ns += SLICE_NS_PER_OPERATOR * depth as u64;
    settings.services = services;
    settings.base_iri.clone_from(&plan.base_iri);
    let stack_bytes =
        size.and_then(|size| stoa_planner::stack_bytes(depth + size.expression_depth));
    stack::check(stack_bytes)?;
    settings.spill = Some(spill(runtime, snapshot, options));
    settings.admission = Some(runtime.admission());
    settings.adjacencies = Some(runtime.adjacencies());
    // What is not committed may never be, and its ids will be those of other terms then.
    settings.numbers = snapshot.is_of_root().then(|| runtime.numbers());
    settings.waited_ns = waited_ns;
    // Helpers have stacks of the usual size.
    if stack_bytes.is_none() && runtime.memory_bytes() >= HELPED_BYTES_MIN {
        settings.helpers = Some(runtime.helpers());
    }
    // What planning looked up is not the query's.
    let planning_reads = snapshot.reads().of_disk();
    let context = Arc::new(QueryContext::new(snapshot.counted(), settings));
    let plan = Arc::new(plan);
    let execution = Execution::new(&plan, Arc::clone(&context))?;
    let planned_ns = context.settings().clock.now_ns();
    let (kind, variables) = match execution.shape() {
        stoa_executor::Shape::Solutions(names) => (
            QueryKind::Solutions,
            names.iter().map(Variable::new_unchecked).collect(),
        ),
        stoa_executor::Shape::Boolean => (QueryKind::Boolean, Arc::from([])),
        stoa_executor::Shape::Triples => (QueryKind::Graph, Arc::from([])),
    };
    Ok(Query {
        kind,
        variables,
        notes: Vec::new(),
        stack_bytes,
        running: Some(Running { plan, execution }),
        context,
        planning: Duration::from_nanos(planned_ns.saturating_sub(started_ns)),
        origin: PlanOrigin::New,
        planning_reads,
        running_ns: 0,
        rows: 0,
        outcome: Outcome::Planned,
        text_memory: None,
        listed: None,
    })
}

/// What an execution is told by options and runtime.
fn settings(
    runtime: &Runtime,
    clock: Arc<dyn Clock>,
    options: &QueryOptions,
    cancel: &CancelHandle,
) -> QuerySettings {
    let mut settings = QuerySettings::new(
        runtime.memory().clone(),
        clock,
        date_time(runtime.clock().now()),
        runtime.random(),
    );
    (settings.cancel, settings.cancel_outer) = cancel.flags();
    settings.timed = options.timed;
    if let Some(rows) = options.batch_rows {
        settings.batch_rows = rows.max(1);
        settings.lookup_rows_max = settings.batch_rows;
    }
    if let Some(rows) = options.parallel_rows_min {
        settings.parallel_rows_min = rows;
    }
    if let Some(rows) = options.key_filter_rows_min {
        settings.key_filter_rows_min = rows;
    }
    if let Some(rows) = options.leap_rows_min {
        settings.leap_rows_min = rows;
    }
    settings.switch_after_rows = options.switch_after_rows;
    if let Some(rows) = options.term_memo_after_rows {
        settings.term_memo_after_rows = rows;
    }
    settings.range_rows = options.range_rows;
    settings.force_adjacency = options.force_adjacency;
    settings
}

/// When and where operators go on on disk.
fn spill(runtime: &Runtime, snapshot: &Snapshot, options: &QueryOptions) -> Spill {
    let usual = (runtime.memory_bytes() / 2, spill::ROWS_MIN);
    let (after_bytes, rows_min) = options.spill_after.unwrap_or(usual);
    Spill {
        space: snapshot.temp_space(),
        after_bytes,
        rows_min: rows_min.max(1),
    }
}

/// Ends planning when nobody waits for it any more, and lets others have their turn until then. Where others wait for this thread, what takes long to plan is
/// planned elsewhere.
fn stop(
    clock: &Arc<dyn Clock>,
    cancel: CancelHandle,
    started_ns: u64,
    deadline_ns: Option<u64>,
) -> Stop {
    let clock = Arc::clone(clock);
    Stop::new(move || {
        let now_ns = clock.now_ns();
        let is_late = deadline_ns.is_some_and(|end| now_ns >= end);
        let is_long = now_ns.saturating_sub(started_ns) >= nonblocking::slice_ns();
        if is_long {
            turns::give_way();
        }
        cancel.is_cancelled() || is_late || (is_long && nonblocking::check().is_err())
    })
}

fn deadline(started_ns: u64, timeout: Duration) -> u64 {
    started_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// A parser with this base.
fn parser(base: Option<&str>) -> Result<SparqlParser> {
    let parser = SparqlParser::new();
    let Some(base) = base else {
        return Ok(parser);
    };
    parser
        .with_base_iri(base)
        .map_err(|error| Error::InvalidOption {
            option: "--base",
            reason: format!("{base} is not an absolute IRI: {error}"),
        })
}

fn parse(text: &str, tokens: &[Token], base: Option<&str>) -> Result<spargebra::Query> {
    let parser = parser(base)?;
    backtracking::check(text, tokens)?;
    let rewritten = rewrite::rewrite(text, tokens)
        .map_err(|mistake| syntax::error_at(text, mistake.at, mistake.message))?;
    let mut query =
        parser.parse_query(&rewritten.text).map_err(|error| {
            match update::not_a_query(text, tokens) {
                Some((at, message)) => syntax::error_at(text, at, &message),
                None => syntax::error(text, &rewritten, base, &error.to_string()),
            }
        })?;
    star::order_variables(text, tokens, &mut query);
    Ok(query)
}

/// The dataset of the protocol, if one is given.
fn dataset(options: &QueryOptions) -> Result<Option<QueryDataset>> {
    if options.default_graphs.is_empty() && options.named_graphs.is_empty() {
        return Ok(None);
    }
    let graphs = |option: &'static str, iris: &[String]| {
        iris.iter()
            .map(|iri| {
                NamedNode::new(iri).map_err(|error| Error::InvalidOption {
                    option,
                    reason: format!("{iri} is not an absolute IRI: {error}"),
                })
            })
            .collect::<Result<Vec<_>>>()
    };
    Ok(Some(QueryDataset {
        default: graphs("default-graph-uri", &options.default_graphs)?,
        named: Some(graphs("named-graph-uri", &options.named_graphs)?),
    }))
}
