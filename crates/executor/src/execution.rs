//! Execution: a running query, from the root of its plan to batches of the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use stoa_planner::physical::{QueryForm, QueryPlan};
use stoa_storage::nonblocking;
use stoa_terms::TermId;

use crate::admission::{Ticket, Turn};
use crate::batch::{Batch, Step};
use crate::construct::Construct;
use crate::context::QueryContext;
use crate::demand::Demand;
use crate::describe::Describe;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::{Builder, Mapping, Node, Scope};
use crate::profile::{OperatorProfile, Profile};

/// How long a thread that runs a query on its own sleeps at most before it looks whether the query
/// was cancelled or its time is up.
const NAP: Duration = Duration::from_millis(20);

/// How long a query that waits for something is left alone at most before it is looked whether it was cancelled, in
/// nanoseconds.
const LOOK_NS: u64 = 100_000_000;

/// What errors call the operators together.
const OPERATORS: &str = "the operators of the plan";

/// What the batches of an execution are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Shape {
    /// Solutions, with the names of the columns.
    Solutions(Vec<String>),
    /// One row with one column, which is true; nothing for false.
    Boolean,
    /// Triples: subject, predicate and object.
    Triples,
}

/// A running query, or one that waits for its turn (`admission`).
pub struct Execution {
    context: Arc<QueryContext>,
    profile: Arc<Profile>,
    shape: Shape,
    stage: Stage,
}

enum Stage {
    /// The operators are not there yet.
    Waiting(Box<Waiting>),
    Running(Box<Running>),
    Done,
}

struct Waiting {
    plan: Arc<QueryPlan>,
    demand: Demand,
    /// Its place in the queue, and since when it has that, once it was polled and found no memory.
    ticket: Option<(Ticket, u64)>,
}

struct Running {
    root: Node,
    form: Form,
    /// For the operators themselves.
    _memory: Memory,
}

enum Form {
    Select(Mapping),
    Ask,
    Construct(Box<Construct>),
    Describe(Box<Describe>),
}

impl Execution {
    /// Starts a plan; reads little but what its constants and named graphs need. One whose operators hold rows begins,
    /// or waits for its turn, with the first [`poll`](Self::poll), which then gives these errors.
    ///
    /// # Errors
    /// If the plan asks for what is not built yet, or the database cannot be read.
    pub fn new(plan: &Arc<QueryPlan>, context: Arc<QueryContext>) -> Result<Self> {
        let mut demand = Demand::of(plan, context.settings());
        let profile = Arc::new(Profile::new(&plan.root));
        let accounts = context.accounts();
        let mut memory = context.memory(OPERATORS);
        if accounts.admission().is_some()
            && demand.grant_bytes == 0
            && !memory.take(demand.operator_bytes)
        {
            // One that holds no rows waits only where there is no memory for its operators.
            demand.grant_bytes = demand.operator_bytes;
        }
        let stage = match accounts.admission() {
            Some(_) if demand.grant_bytes > 0 => Stage::Waiting(Box::new(Waiting {
                plan: Arc::clone(plan),
                demand,
                ticket: None,
            })),
            admission => {
                let admitted = admission.and_then(|admission| admission.enter(0));
                admitted
                    .into_iter()
                    .for_each(|admitted| accounts.begin(admitted));
                let running = Running::new(plan, (&demand, memory), &profile, &context)?;
                Stage::Running(Box::new(running))
            }
        };
        Ok(Self {
            shape: shape(plan),
            context,
            profile,
            stage,
        })
    }

    /// What the batches are.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What this execution shares with its operators.
    #[must_use]
    pub const fn context(&self) -> &Arc<QueryContext> {
        &self.context
    }

    /// What each operator has done so far, in the order of a walk over the plan.
    #[must_use]
    pub fn profile(&self) -> Vec<OperatorProfile> {
        self.profile.read()
    }

    /// Works for some time, up to a few milliseconds, and gives a batch if one is ready. Where the
    /// query waits for something outside, this thread sleeps for a moment.
    ///
    /// # Errors
    /// Whatever ends a query; further calls then are [`Step::Done`].
    #[expect(
        clippy::should_implement_trait,
        reason = "three outcomes, and nothing follows an error: no iterator"
    )]
    pub fn next(&mut self) -> Result<Step> {
        let settings = self.context.settings();
        let waits = settings.services.is_some()
            || settings.helpers.is_some()
            || matches!(self.stage, Stage::Waiting(_));
        let step = if waits {
            self.poll(&thread_waker())?
        } else {
            self.poll(Waker::noop())?
        };
        Ok(match step {
            Poll::Ready(step) => step,
            Poll::Pending => {
                nonblocking::check().map_err(stoa_quadstore::Error::from)?;
                nap();
                Step::Yield
            }
        })
    }

    /// As [`next`](Self::next), but never waits: pending if there is nothing to do before `waker` is
    /// called or [`wake_ns`](Self::wake_ns) has passed.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll(&mut self, waker: &Waker) -> Result<Poll<Step>> {
        self.context.begin_slice(waker);
        let step = self.advance(waker);
        if !matches!(step, Ok(Step::Batch(_) | Step::Yield)) {
            self.stage = Stage::Done;
            self.context.term_memos().clear();
            self.context.accounts().end();
        }
        let step = step?;
        if matches!(step, Step::Yield) && self.context.is_waiting() {
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(step))
    }

    /// When [`poll`](Self::poll) is to be called again after it was pending, though nobody called the waker, on the
    /// clock of the settings: at the deadline, and soon, since who cancels a query calls no waker.
    #[must_use]
    pub fn wake_ns(&self) -> u64 {
        let settings = self.context.settings();
        let look_ns = settings.clock.now_ns().saturating_add(LOOK_NS);
        settings
            .deadline_ns
            .map_or(look_ns, |deadline| deadline.min(look_ns))
    }

    fn advance(&mut self, waker: &Waker) -> Result<Step> {
        if let Stage::Waiting(waiting) = &mut self.stage {
            if !waiting.is_over(waker, &self.context)? {
                return Ok(Step::Yield);
            }
            let (plan, demand) = (&waiting.plan, &waiting.demand);
            let memory = self.context.memory(OPERATORS);
            let running = Running::new(plan, (demand, memory), &self.profile, &self.context)?;
            self.stage = Stage::Running(Box::new(running));
        }
        match &mut self.stage {
            Stage::Running(running) => running.advance(&self.context),
            _ => Ok(Step::Done),
        }
    }
}

/// What the batches of a plan are.
fn shape(plan: &QueryPlan) -> Shape {
    match &plan.form {
        QueryForm::Select(variables) => {
            let name = |index: u32| plan.variable_names.get(index as usize);
            let names = variables.iter().map(|variable| name(variable.0).cloned());
            Shape::Solutions(names.map(Option::unwrap_or_default).collect())
        }
        QueryForm::Ask => Shape::Boolean,
        QueryForm::Construct(_) | QueryForm::Describe { .. } => Shape::Triples,
    }
}

impl Waiting {
    /// Whether the query is admitted now. If not, `waker` is called when it is.
    fn is_over(&mut self, waker: &Waker, context: &QueryContext) -> Result<bool> {
        context.check()?;
        let accounts = context.accounts();
        let admission = accounts.admission();
        let admission = admission.ok_or(Error::Internal("a query that waits for nothing"))?;
        let now_ns = context.settings().clock.now_ns();
        let bytes = self.demand.grant_bytes;
        let before = &context.settings().waited_ns;
        let before_ns = before.load(Ordering::Relaxed);
        let refused = |waited_ns: u64, waiting| Error::NotAdmitted {
            requested_bytes: bytes,
            waited_ns: before_ns.saturating_add(waited_ns),
            waiting,
        };
        let (ticket, since_ns) = match self.ticket.take() {
            Some(place) => place,
            None => {
                if let Some(admitted) = admission.enter(bytes) {
                    accounts.begin(admitted);
                    return Ok(true);
                }
                let ticket = Ticket::new(admission, bytes, &context.settings().cancel);
                (
                    ticket.ok_or_else(|| refused(0, admission.waiting()))?,
                    now_ns,
                )
            }
        };
        let waited_ns = now_ns.saturating_sub(since_ns);
        let left_ns = admission.wait_ns_max().saturating_sub(before_ns);
        let turn = ticket.poll(waker);
        context.meters().set_waited(waited_ns);
        match turn {
            Turn::Admitted(admitted) => {
                before.fetch_add(waited_ns, Ordering::Relaxed);
                accounts.begin(admitted);
                Ok(true)
            }
            Turn::Waiting if waited_ns < left_ns => {
                self.ticket = Some((ticket, since_ns));
                context.wait();
                Ok(false)
            }
            Turn::Waiting => Err(refused(waited_ns, admission.waiting().saturating_sub(1))),
            Turn::Never => Err(Error::MemoryExceeded {
                operator: OPERATORS,
                requested_bytes: bytes,
                limit_bytes: context.settings().memory.limit(),
            }),
        }
    }
}

impl Running {
    fn new(
        plan: &QueryPlan,
        (demand, mut memory): (&Demand, Memory),
        profile: &Arc<Profile>,
        context: &Arc<QueryContext>,
    ) -> Result<Self> {
        memory.require(demand.operator_bytes)?;
        context.meters().set_holders(demand.holders);
        let mut builder = Builder::new(context, profile, 0);
        let scope = Scope {
            outer: None,
            limited: matches!(plan.form, QueryForm::Ask),
            unordered: true,
            in_morsel: false,
        };
        let root = builder.build(&plan.root, scope, None)?;
        builder.build_subplans()?;
        Ok(Self {
            root,
            form: Form::new(plan, context)?,
            _memory: memory,
        })
    }

    fn advance(&mut self, context: &QueryContext) -> Result<Step> {
        let name = match &self.form {
            Form::Select(_) | Form::Ask => "the query",
            Form::Construct(_) => "construct",
            Form::Describe(_) => "describe",
        };
        self.advance_form(context)
            .map_err(|error| error.within(name))
    }

    fn advance_form(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.form {
            Form::Select(mapping) => Ok(match self.root.next(context)? {
                Step::Batch(batch) => Step::Batch(mapping.apply(batch)),
                other => other,
            }),
            Form::Ask => Ok(match self.root.next(context)? {
                Step::Batch(_) => {
                    self.root.stop();
                    Step::Batch(Batch::from_columns(vec![vec![TermId::TRUE]]))
                }
                other => other,
            }),
            Form::Construct(construct) => {
                if let Some(step) = construct.go_on(context)? {
                    return Ok(step);
                }
                match self.root.next(context)? {
                    Step::Batch(batch) => construct.instantiate(batch, context),
                    Step::Yield => Ok(Step::Yield),
                    Step::Done => construct.rest(context),
                }
            }
            Form::Describe(describe) => describe.next(&mut self.root, context),
        }
    }
}

impl Form {
    fn new(plan: &QueryPlan, context: &Arc<QueryContext>) -> Result<Self> {
        let columns = &plan.root.columns;
        Ok(match &plan.form {
            QueryForm::Select(variables) => Self::Select(Mapping::new(columns, variables)),
            QueryForm::Ask => Self::Ask,
            QueryForm::Construct(template) => {
                Self::Construct(Box::new(Construct::new(template, columns, context)?))
            }
            QueryForm::Describe {
                variables,
                constants,
            } => Self::Describe(Box::new(Describe::new(
                variables,
                constants,
                columns,
                &plan.default_graphs,
                context,
            )?)),
        })
    }
}

/// What wakes this thread from a [`nap`].
#[must_use]
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

/// Sleeps for a moment, or until this thread's waker is called.
pub fn nap() {
    std::thread::park_timeout(NAP);
}

/// Wakes a thread that sleeps.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
