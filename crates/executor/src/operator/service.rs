//! Service: joins its input with what other endpoints answer, without ever waiting for them.
//!
//! The input is collected; its distinct bindings of the variables that the pattern shares go out as
//! VALUES, many with one request, apart for each endpoint and for each set of variables that is bound.
//! Solutions then have all that was sent with them, so they find their rows by hash. A few requests
//! are under way at once; their answers are joined in the order of the requests. While the first one
//! has nothing yet, the operator yields and the query sleeps until the answer's writer wakes it.
//!
//! A blank node of ours means nothing to others: it is not sent, and its row joins only with solutions
//! that leave the variable unbound. The blank nodes of an answer are new ones.
//!
//! Input order: any. Output order: none.
//!
//! # Limits
//! Up to [`INPUT_ROWS_MAX`] rows of the input are held and reserved, and [`IN_FLIGHT`] buffers of
//! answers; with SILENT also the solutions of one request until its answer is complete, as a failure
//! takes them all back. SILENT is per request: where one of several fails, its rows alone stay bare.
//!
//! # References
//! SPARQL 1.1 Federated Query, sections 2 and 4.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hashbrown::HashMap;
use oxrdf::{NamedOrBlankNode, Term, Triple};
use rapidhash::fast::RandomState;
use stoa_planner::physical::{JoinKind, Operator as PlanOperator, Plan, ServiceEndpoint, Variable};
use stoa_storage::nonblocking;
use stoa_terms::{Kind, TermId};

use super::combiner::{Combiner, END, Pair};
use super::{Builder, Node, Operator, Scope, position, required};
use crate::batch::{Batch, Step};
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::service::{self, AnswerReader, BUFFER_BYTES, ServiceClient, ServiceRequest, Solutions};
use crate::table::{GroupTable, JoinTable, NONE, hash_columns};

/// Up to how many rows of the input are collected.
const INPUT_ROWS_MAX: usize = 16 * 1024;
/// How many bindings go out with one request at most.
const BINDINGS_MAX: usize = 1_000;
/// Why a request with SILENT fails where no endpoint may be asked.
const OFF: &str = "SERVICE is off";
/// How many requests are under way at once.
const IN_FLIGHT: usize = 4;

struct Service {
    /// `None` when all of it was read.
    input: Option<Node>,
    rows_max: usize,
    asker: Asker,
    combiner: Combiner,
    state: State,
    memory: Memory,
}

enum State {
    Collecting(Batch),
    Asking(Box<Asking>),
    Done,
}

/// What is needed to ask, apart from what is asked for.
struct Asker {
    /// `None` only with SILENT, where SERVICE is off: each request then fails without being made.
    client: Option<Arc<dyn ServiceClient>>,
    endpoint: Endpoint,
    silent: bool,
    pattern: Arc<str>,
    /// Names of the variables that are asked for.
    names: Vec<String>,
    shared: Vec<Shared>,
}

enum Endpoint {
    Constant(String),
    /// A column of the input, with the variable's number; `None` if the input has no such column.
    Column(Option<usize>),
}

/// A variable that input and pattern share.
struct Shared {
    /// Its column in the input.
    column: usize,
    /// Its place among the names.
    place: usize,
    /// Whether all solutions bind it.
    always: bool,
}

/// The requests for one batch of the input.
struct Asking {
    left: Batch,
    planned: VecDeque<Planned>,
    running: VecDeque<Running>,
}

/// A request that is still to be made.
struct Planned {
    /// Why there is no endpoint to ask, if there is none.
    endpoint: std::result::Result<String, String>,
    /// Which of the shared variables are sent.
    sent: Vec<usize>,
    /// Rows of the input with distinct bindings, which are sent.
    bindings: Vec<u32>,
    /// The rows that solutions are looked for, ascending.
    rows: Vec<u32>,
    /// Rows that no solution can fit.
    hopeless: Vec<u32>,
}

/// A request that was made.
struct Running {
    planned: Planned,
    reader: Option<AnswerReader>,
    failure: Option<String>,
    table: JoinTable,
    blank_nodes: HashMap<String, TermId, RandomState>,
    /// Solutions that came and are not joined yet.
    arrived: VecDeque<Batch>,
    arrived_bytes: u64,
    /// Where the join of the first of them stands: its row and the place in the table.
    at: (usize, u32),
    /// How many rows have been given alone after a failure.
    alone: usize,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::Service { input, call } = &plan.operator else {
        return Err(Error::Internal("not a service"));
    };
    let context = builder.context;
    let services = context.settings().services.as_ref();
    let client = services.map(Arc::clone);
    if client.is_none() && !call.silent {
        return Err(Error::ServicesOff);
    }
    let endpoint = match &call.endpoint {
        ServiceEndpoint::Constant(iri) => Endpoint::Constant(iri.as_str().to_owned()),
        ServiceEndpoint::Variable(variable) => {
            Endpoint::Column(position(&input.columns, *variable))
        }
    };
    let mut shared = Vec::new();
    for (place, (variable, _)) in call.variables.iter().enumerate() {
        if position(&input.columns, *variable).is_some() {
            shared.push(Shared {
                column: required(&input.columns, *variable)?,
                place,
                always: call.bound.contains(variable),
            });
        }
    }
    let right: Vec<Option<Variable>> = call.variables.iter().map(|(v, _)| Some(*v)).collect();
    let kind = JoinKind::Inner;
    let rows = context.batch_rows();
    Ok(Box::new(Service {
        combiner: Combiner::new(&plan.columns, &input.columns, &right, &kind, context)?,
        input: Some(builder.build(input, scope, Some(counters))?),
        rows_max: match scope.limited {
            true => rows,
            false => INPUT_ROWS_MAX.max(rows),
        },
        asker: Asker {
            client,
            endpoint,
            silent: call.silent,
            pattern: Arc::clone(&call.pattern),
            names: call
                .variables
                .iter()
                .map(|(_, name)| name.clone())
                .collect(),
            shared,
        },
        state: State::Collecting(Batch::with_columns(input.columns.len())),
        memory: context.memory("service"),
    }))
}

impl Operator for Service {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Collecting(left) => self.collect(left, context),
            State::Asking(mut asking) => {
                let step = self.ask(&mut asking, context)?;
                self.state = if asking.planned.is_empty() && asking.running.is_empty() {
                    self.memory.release();
                    State::Collecting(Batch::with_columns(asking.left.columns.len()))
                } else {
                    State::Asking(asking)
                };
                Ok(step)
            }
            State::Done => Ok(Step::Done),
        }
    }
}

impl Service {
    fn collect(&mut self, mut left: Batch, context: &QueryContext) -> Result<Step> {
        if let Some(input) = &mut self.input {
            match input.next(context)? {
                Step::Batch(batch) => {
                    left.append(&batch);
                    self.memory.require(left.bytes())?;
                }
                Step::Yield => (),
                Step::Done => self.input = None,
            }
        }
        if self.input.is_some() && left.rows < self.rows_max {
            self.state = State::Collecting(left);
            return Ok(Step::Yield);
        }
        if left.is_empty() {
            return Ok(Step::Done);
        }
        let planned = self.asker.plan(&left, context)?;
        self.state = State::Asking(Box::new(Asking {
            left,
            planned,
            running: VecDeque::new(),
        }));
        Ok(Step::Yield)
    }

    /// Makes requests, and joins what has come for the first one.
    fn ask(&mut self, asking: &mut Asking, context: &QueryContext) -> Result<Step> {
        while asking.running.len() < IN_FLIGHT
            && let Some(planned) = asking.planned.pop_front()
        {
            let running = self.asker.start(planned, &asking.left, context)?;
            asking.running.push_back(running);
            self.memory.require(asking.bytes())?;
        }
        let Some(first) = asking.running.front_mut() else {
            return Ok(Step::Yield);
        };
        let out = if first.is_joinable(self.asker.silent) && !first.arrived.is_empty() {
            self.join(first, &asking.left, context)?
        } else if first.failure.is_some() {
            match self.give_up(first, &asking.left, context)? {
                Some(out) => out,
                None => {
                    asking.running.pop_front();
                    return Ok(Step::Yield);
                }
            }
        } else if first.reader.is_none() {
            asking.running.pop_front();
            return Ok(Step::Yield);
        } else {
            first.receive(&self.asker, context)?;
            self.memory.require(asking.bytes())?;
            return Ok(Step::Yield);
        };
        Ok(if out.is_empty() {
            Step::Yield
        } else {
            Step::Batch(out)
        })
    }

    /// Joins some of the solutions that came first.
    fn join(
        &mut self,
        running: &mut Running,
        left: &Batch,
        context: &QueryContext,
    ) -> Result<Batch> {
        let Some(batch) = running.arrived.front() else {
            return Ok(Batch::default());
        };
        let (planned, table) = (&running.planned, &running.table);
        let max = context.batch_rows();
        let pairs = self
            .asker
            .pairs(planned, table, left, batch, &mut running.at, max);
        let right: Vec<&[TermId]> = batch.columns.iter().map(Vec::as_slice).collect();
        let out = self.combiner.combine(left, &right, &pairs, context)?;
        if running.at.0 >= batch.rows {
            running.at = (0, NONE);
            running.arrived_bytes -= batch.bytes();
            running.arrived.pop_front();
        }
        Ok(out)
    }

    /// What a request that failed leaves with SILENT: its rows, alone; `None` after the last one.
    fn give_up(
        &mut self,
        running: &mut Running,
        left: &Batch,
        context: &QueryContext,
    ) -> Result<Option<Batch>> {
        if !self.asker.silent {
            return Err(Error::Service {
                endpoint: running.planned.name(),
                reason: running.failure.take().unwrap_or_default(),
            });
        }
        let pairs = running.alone(context.batch_rows());
        if pairs.is_empty() {
            return Ok(None);
        }
        let none: Vec<&[TermId]> = vec![&[]; self.asker.names.len()];
        let out = self.combiner.combine(left, &none, &pairs, context)?;
        Ok(Some(out))
    }
}

impl Asking {
    fn bytes(&self) -> u64 {
        let rows = self.left.rows;
        let buffers = self.running.len() * BUFFER_BYTES;
        let tables = JoinTable::bytes_for(rows) + (buffers + rows * 16) as u64;
        let of = |running: &Running| {
            running.arrived_bytes + (running.blank_nodes.capacity() * 64) as u64
        };
        self.left.bytes() + tables + self.running.iter().map(of).sum::<u64>()
    }
}

impl Planned {
    /// How messages call the endpoint.
    fn name(&self) -> String {
        match &self.endpoint {
            Ok(iri) => format!("<{iri}>"),
            Err(_) => "of a variable".to_owned(),
        }
    }
}

impl Asker {
    /// Splits a batch into requests.
    fn plan(&self, left: &Batch, context: &QueryContext) -> Result<VecDeque<Planned>> {
        // Rows are apart by endpoint and by what they can send.
        let mut keys: Vec<Vec<TermId>> = Vec::new();
        if let Endpoint::Column(Some(column)) = self.endpoint {
            keys.push(left.column(column).to_vec());
        }
        let sendable: Vec<Vec<bool>> = self
            .shared
            .iter()
            .map(|shared| {
                let column = left.column(shared.column);
                column.iter().map(|id| is_sendable(*id, context)).collect()
            })
            .collect::<Result<_>>()?;
        for column in &sendable {
            keys.push(column.iter().map(|sent| TermId::from(*sent)).collect());
        }
        let slices: Vec<&[TermId]> = keys.iter().map(Vec::as_slice).collect();
        let mut table = GroupTable::new(slices.len());
        let mut groups = Vec::new();
        table.insert(&slices, left.rows, &mut groups)?;
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); table.len()];
        for (row, group) in (0_u32..).zip(&groups) {
            if let Some(rows) = rows_of.get_mut(*group as usize) {
                rows.push(row);
            }
        }
        let mut planned = VecDeque::new();
        for rows in rows_of {
            let Some(first) = rows.first().copied() else {
                continue;
            };
            let sent: Vec<usize> = (0..self.shared.len())
                .filter(|number| {
                    let column = sendable.get(*number);
                    column.and_then(|c| c.get(first as usize)) == Some(&true)
                })
                .collect();
            let endpoint = self.endpoint_of(left, first as usize, context)?;
            self.plan_rows(left, rows, &sent, &endpoint, &mut planned)?;
        }
        Ok(planned)
    }

    /// The endpoint that a row asks, or why there is none.
    fn endpoint_of(
        &self,
        left: &Batch,
        row: usize,
        context: &QueryContext,
    ) -> Result<std::result::Result<String, String>> {
        let column = match &self.endpoint {
            Endpoint::Constant(iri) => return Ok(Ok(iri.clone())),
            Endpoint::Column(column) => *column,
        };
        let term = match column {
            Some(column) => context.term(left.get(column, row))?,
            None => None,
        };
        Ok(match term {
            Some(Term::NamedNode(iri)) => Ok(iri.into_string()),
            Some(term) => Err(format!("{term} is no IRI of an endpoint")),
            None => Err("the variable of the endpoint is not bound by its group".to_owned()),
        })
    }

    /// The requests for rows of one endpoint that send the same variables.
    fn plan_rows(
        &self,
        left: &Batch,
        rows: Vec<u32>,
        sent: &[usize],
        endpoint: &std::result::Result<String, String>,
        out: &mut VecDeque<Planned>,
    ) -> Result<()> {
        // A blank node where every solution has a term of its own.
        let is_hopeless = |row: u32| {
            self.shared.iter().enumerate().any(|(number, shared)| {
                let is_bound = !left.get(shared.column, row as usize).is_unbound();
                shared.always && is_bound && !sent.contains(&number)
            })
        };
        // What tells such rows apart is not sent: either all of them are, or none, or few.
        let (hopeless, rows): (Vec<u32>, Vec<u32>) =
            rows.into_iter().partition(|row| is_hopeless(*row));
        let new = |hopeless: Vec<u32>| Planned {
            endpoint: endpoint.clone(),
            sent: sent.to_vec(),
            bindings: Vec::new(),
            rows: Vec::new(),
            hopeless,
        };
        let mut requests: Vec<Planned> = Vec::new();
        if self.silent && !hopeless.is_empty() {
            // Whether they stay depends on whether the endpoint answers.
            requests.push(new(hopeless));
        }
        let columns: Vec<Vec<TermId>> = sent
            .iter()
            .filter_map(|number| self.shared.get(*number))
            .map(|shared| crate::batch::gather(left.column(shared.column), &rows))
            .collect();
        let slices: Vec<&[TermId]> = columns.iter().map(Vec::as_slice).collect();
        let mut table = GroupTable::new(slices.len());
        let mut groups = Vec::new();
        table.insert(&slices, rows.len(), &mut groups)?;
        let start = requests.len();
        let mut known = 0;
        for (row, group) in rows.into_iter().zip(groups) {
            let group = group as usize;
            let at = start + group / BINDINGS_MAX;
            if requests.len() <= at {
                requests.push(new(Vec::new()));
            }
            if let Some(request) = requests.get_mut(at) {
                request.rows.push(row);
                if group == known {
                    known += 1;
                    request.bindings.push(row);
                }
            }
        }
        out.extend(requests);
        Ok(())
    }

    fn start(&self, planned: Planned, left: &Batch, context: &QueryContext) -> Result<Running> {
        let key = self.key(&planned, left);
        let table = JoinTable::build(&key, planned.rows.clone(), || context.check())?;
        let (mut reader, mut failure) = (None, None);
        match (&planned.endpoint, &self.client) {
            (Err(reason), _) => failure = Some(reason.clone()),
            (Ok(_), None) => failure = Some(OFF.to_owned()),
            (Ok(endpoint), Some(client)) => {
                // What was sent cannot be taken back.
                nonblocking::check().map_err(stoa_quadstore::Error::from)?;
                let (writer, answer) = service::answer();
                let request = self.request(endpoint, &planned, left, context)?;
                client.ask(request, writer);
                reader = Some(answer);
            }
        }
        Ok(Running {
            planned,
            reader,
            failure,
            table,
            blank_nodes: HashMap::default(),
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            at: (0, NONE),
            alone: 0,
        })
    }

    fn key<'a>(&self, planned: &Planned, left: &'a Batch) -> Vec<&'a [TermId]> {
        let sent = planned.sent.iter().filter_map(|n| self.shared.get(*n));
        sent.map(|shared| left.column(shared.column)).collect()
    }

    fn request(
        &self,
        endpoint: &str,
        planned: &Planned,
        left: &Batch,
        context: &QueryContext,
    ) -> Result<ServiceRequest> {
        let mut bound = Vec::with_capacity(planned.sent.len());
        for shared in planned.sent.iter().filter_map(|n| self.shared.get(*n)) {
            bound.extend(self.names.get(shared.place).cloned());
        }
        let key = self.key(planned, left);
        let mut bindings = Vec::with_capacity(planned.bindings.len());
        for row in &planned.bindings {
            let mut binding = Vec::with_capacity(key.len());
            for column in &key {
                let id = column.get(*row as usize).copied().unwrap_or_default();
                binding.push(context.term(id)?);
            }
            bindings.push(binding);
        }
        Ok(ServiceRequest {
            endpoint: endpoint.to_owned(),
            pattern: Arc::clone(&self.pattern),
            variables: self.names.clone(),
            bound,
            bindings,
            time_left: context.time_left_ns().map(Duration::from_nanos),
        })
    }

    /// Up to `max` pairs of rows of the input and solutions; `at` is moved behind them.
    fn pairs(
        &self,
        planned: &Planned,
        table: &JoinTable,
        left: &Batch,
        solutions: &Batch,
        at: &mut (usize, u32),
        max: usize,
    ) -> Vec<Pair> {
        let key = self.key(planned, left);
        let sent = planned.sent.iter().filter_map(|n| self.shared.get(*n));
        let probe: Vec<&[TermId]> = sent.map(|s| solutions.column(s.place)).collect();
        // Variables that were not sent must not contradict.
        let rest: Vec<(&[TermId], &[TermId])> = (0..self.shared.len())
            .filter(|number| !planned.sent.contains(number))
            .filter_map(|number| self.shared.get(number))
            .map(|s| (left.column(s.column), solutions.column(s.place)))
            .collect();
        let agree = |row: u32, solution: usize| {
            rest.iter().all(|(left, right)| {
                let left = left.get(row as usize).copied().unwrap_or_default();
                let right = right.get(solution).copied().unwrap_or_default();
                left.is_unbound() || right.is_unbound() || left == right
            })
        };
        let mut hashes = Vec::new();
        hash_columns(&probe, solutions.rows, &mut hashes);
        let mut pairs = Vec::new();
        while pairs.len() < max && at.0 < solutions.rows {
            let hash = hashes.get(at.0).copied().unwrap_or_default();
            if at.1 == NONE {
                at.1 = table.first(&key, &probe, at.0, hash);
            }
            while at.1 != NONE && pairs.len() < max {
                let row = table.row(at.1);
                if agree(row, at.0) {
                    pairs.push((row, u32::try_from(at.0).unwrap_or(END)));
                }
                at.1 = table.next(at.1);
            }
            if at.1 == NONE {
                at.0 += 1;
            }
        }
        pairs
    }
}

impl Running {
    /// Takes what has come, or leaves the waker of the query with those who answer.
    fn receive(&mut self, asker: &Asker, context: &QueryContext) -> Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        match reader.poll(&context.waker()) {
            Poll::Pending => context.wait(),
            Poll::Ready(Ok(None)) => self.reader = None,
            Poll::Ready(Ok(Some(solutions))) => {
                let batch = self.intern(solutions, asker.names.len(), context)?;
                if !batch.is_empty() {
                    self.arrived_bytes += batch.bytes();
                    self.arrived.push_back(batch);
                }
            }
            Poll::Ready(Err(reason)) => {
                self.failure = Some(reason);
                self.reader = None;
                if asker.silent {
                    self.arrived.clear();
                    self.arrived_bytes = 0;
                }
            }
        }
        Ok(())
    }

    /// Whether solutions may be joined: with SILENT not before the answer is complete.
    const fn is_joinable(&self, silent: bool) -> bool {
        !silent || (self.reader.is_none() && self.failure.is_none())
    }

    /// The next rows that stay alone.
    fn alone(&mut self, max: usize) -> Vec<Pair> {
        let rows = self.planned.rows.iter().chain(&self.planned.hopeless);
        let pairs: Vec<Pair> = rows.skip(self.alone).take(max).map(|r| (*r, END)).collect();
        self.alone += pairs.len();
        pairs
    }

    /// Gives the terms of solutions their ids.
    fn intern(
        &mut self,
        solutions: Solutions,
        width: usize,
        context: &QueryContext,
    ) -> Result<Batch> {
        let rows = solutions.len();
        let mut computed = Vec::with_capacity(rows * width);
        for solution in solutions {
            let mut terms = solution.into_iter();
            for _ in 0..width {
                let term = terms.next().flatten();
                computed.push(self.computed(term, context)?);
            }
        }
        let ids = context.resolve(computed)?;
        let mut batch = Batch::with_columns(width);
        batch.rows = rows;
        for (number, column) in batch.columns.iter_mut().enumerate() {
            column.extend(ids.iter().skip(number).step_by(width.max(1)));
        }
        Ok(batch)
    }

    fn computed(&mut self, term: Option<Term>, context: &QueryContext) -> Result<Computed> {
        Ok(match term {
            None => Computed::Unbound,
            Some(Term::BlankNode(node)) => {
                let node = self.blank_nodes.entry(node.into_string());
                Computed::Id(*node.or_insert_with(|| context.new_blank_node()))
            }
            Some(Term::Triple(triple)) if has_blank_node(&triple) => {
                let Triple {
                    subject,
                    predicate,
                    object,
                } = *triple;
                let subject = self.computed(Some(subject.into()), context)?;
                let object = self.computed(Some(object), context)?;
                let predicate = Computed::Term(predicate.into());
                let ids = context.resolve(vec![subject, predicate, object])?;
                let parts = <[TermId; 3]>::try_from(ids)
                    .map_err(|_| Error::Internal("three parts gave another number of ids"))?;
                Computed::Triple(parts)
            }
            Some(term) => Computed::Term(term),
        })
    }
}

/// Whether others understand a term: it is bound and no blank node.
fn is_sendable(id: TermId, context: &QueryContext) -> Result<bool> {
    if id.is_unbound() {
        return Ok(false);
    }
    Ok(match context.kind(id) {
        Kind::BlankNode => false,
        Kind::Triple => match context.term(id)? {
            Some(Term::Triple(triple)) => !has_blank_node(&triple),
            _ => false,
        },
        _ => true,
    })
}

fn has_blank_node(triple: &Triple) -> bool {
    let mut open = vec![triple];
    while let Some(triple) = open.pop() {
        if matches!(triple.subject, NamedOrBlankNode::BlankNode(_)) {
            return true;
        }
        match &triple.object {
            Term::BlankNode(_) => return true,
            Term::Triple(inner) => open.push(inner),
            Term::NamedNode(_) | Term::Literal(_) => {}
        }
    }
    false
}
