//! Execution: a running query, from the root of its plan to batches of the answer.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use stoa_planner::physical::{Operator, Plan, QueryForm, QueryPlan};
use stoa_storage::nonblocking;
use stoa_terms::TermId;

use crate::batch::{Batch, Step};
use crate::construct::Construct;
use crate::context::QueryContext;
use crate::describe::Describe;
use crate::error::Result;
use crate::memory::Memory;
use crate::operator::{Builder, Mapping, Node, Scope};
use crate::profile::{OperatorProfile, Profile};

/// How long a thread that runs a query on its own sleeps at most before it looks whether the query
/// was cancelled or its time is up.
const NAP: Duration = Duration::from_millis(20);

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

/// A running query.
pub struct Execution {
    context: Arc<QueryContext>,
    profile: Arc<Profile>,
    shape: Shape,
    root: Node,
    form: Form,
    done: bool,
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
    /// Starts a plan; reads little but what its constants and named graphs need.
    ///
    /// # Errors
    /// If the plan asks for what is not built yet, or the database cannot be read.
    pub fn new(plan: &QueryPlan, context: Arc<QueryContext>) -> Result<Self> {
        let mut memory = context.memory("the operators of the plan");
        memory.require(operator_bytes(&plan.root))?;
        context.meters().set_holders(holders(&plan.root));
        let profile = Arc::new(Profile::new(&plan.root));
        let mut builder = Builder {
            context: &context,
            profile: &profile,
            next_number: 0,
            built: None,
        };
        let scope = Scope {
            outer: None,
            limited: matches!(plan.form, QueryForm::Ask),
            unordered: true,
            in_morsel: false,
        };
        let root = builder.build(&plan.root, scope, None)?;
        let columns = &plan.root.columns;
        let (shape, form) = match &plan.form {
            QueryForm::Select(variables) => {
                let name = |index: u32| plan.variable_names.get(index as usize);
                let names = variables.iter().map(|variable| name(variable.0).cloned());
                (
                    Shape::Solutions(names.map(Option::unwrap_or_default).collect()),
                    Form::Select(Mapping::new(columns, variables)),
                )
            }
            QueryForm::Ask => (Shape::Boolean, Form::Ask),
            QueryForm::Construct(template) => (
                Shape::Triples,
                Form::Construct(Box::new(Construct::new(template, columns, &context)?)),
            ),
            QueryForm::Describe {
                variables,
                constants,
            } => (
                Shape::Triples,
                Form::Describe(Box::new(Describe::new(
                    variables,
                    constants,
                    columns,
                    &plan.default_graphs,
                    &context,
                )?)),
            ),
        };
        Ok(Self {
            context,
            profile,
            shape,
            root,
            form,
            done: false,
            _memory: memory,
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
        let waits = settings.services.is_some() || settings.helpers.is_some();
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
    /// called or the deadline has passed.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll(&mut self, waker: &Waker) -> Result<Poll<Step>> {
        if self.done {
            return Ok(Poll::Ready(Step::Done));
        }
        self.context.begin_slice(waker);
        let step = self.advance();
        if !matches!(step, Ok(Step::Batch(_) | Step::Yield)) {
            self.done = true;
            self.root.stop();
        }
        let step = step?;
        if matches!(step, Step::Yield) && self.context.is_waiting() {
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(step))
    }

    fn advance(&mut self) -> Result<Step> {
        let name = match &self.form {
            Form::Select(_) | Form::Ask => "the query",
            Form::Construct(_) => "construct",
            Form::Describe(_) => "describe",
        };
        self.advance_form().map_err(|error| error.within(name))
    }

    fn advance_form(&mut self) -> Result<Step> {
        let context = &*self.context;
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
            Form::Construct(construct) => match self.root.next(context)? {
                Step::Batch(batch) => construct.instantiate(&batch, context),
                Step::Yield => Ok(Step::Yield),
                Step::Done => construct.rest(context),
            },
            Form::Describe(describe) => describe.next(&mut self.root, context),
        }
    }
}

/// How many operators of a plan hold what they read.
fn holders(plan: &Plan) -> usize {
    let mut count = 0;
    let mut plans = vec![plan];
    while let Some(plan) = plans.pop() {
        count += usize::from(matches!(
            plan.operator,
            Operator::HashJoin { .. }
                | Operator::HashAggregate { .. }
                | Operator::AggregateDifference { .. }
                | Operator::Distinct(_)
                | Operator::Sort { .. }
                | Operator::TopK { .. }
        ));
        plans.extend(plan.inputs());
    }
    count
}

/// About how much the operators of a plan take before they hold any rows.
fn operator_bytes(plan: &Plan) -> u64 {
    const OPERATOR_BYTES: usize = 1 << 10;
    const COLUMN_BYTES: usize = 24;
    let mut bytes = 0;
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        bytes += OPERATOR_BYTES;
        // Others hand columns on as they come.
        if let Operator::IndexNestedLoopJoin { .. }
        | Operator::MergeJoin { .. }
        | Operator::HashJoin { .. }
        | Operator::Apply { .. } = plan.operator
        {
            bytes += plan.columns.len() * COLUMN_BYTES;
        }
        open.extend(plan.inputs());
    }
    bytes as u64
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
