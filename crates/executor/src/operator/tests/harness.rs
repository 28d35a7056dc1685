//! Plans over rows in memory, and what they give.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxrdf::{Literal, Term};
use oxsdatatypes::DateTime;
use proptest::prelude::*;
use stoa_planner::expression::{Aggregate, AggregateFunction, Comparison, Constant, Expression};
use stoa_planner::physical::{Operator, Plan, QueryForm, QueryPlan, Variable};
use stoa_quadstore::{QuadStore, Snapshot};
use stoa_storage::{Cache, Identity, MemoryBudget, SimulatedDisk, Store};
use stoa_terms::{GraphSet, TermId, inline};

use crate::spill::Spill;
use crate::{Clock, Error, Execution, OperatorProfile, QueryContext, QuerySettings, Step};

/// Sizes of batches that every test runs with.
pub(super) const BATCHES: [usize; 3] = [1, 3, 1024];

pub(super) type Row = Vec<TermId>;

/// A clock that goes one nanosecond on whenever it is read.
#[derive(Default)]
pub(super) struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

pub(super) fn settings(batch_rows: usize, memory_bytes: u64) -> QuerySettings {
    let memory = MemoryBudget::new(memory_bytes);
    let now = DateTime::MIN;
    let mut settings = QuerySettings::new(memory, Arc::new(Ticks::default()), now, 7);
    settings.batch_rows = batch_rows;
    settings
}

pub(super) fn context(settings: QuerySettings) -> Arc<QueryContext> {
    Arc::new(QueryContext::new(empty_store(), settings))
}

/// A store without quads.
fn empty_store() -> Snapshot {
    store_on(Arc::new(SimulatedDisk::new(1)))
}

pub(crate) fn store_on(disk: Arc<SimulatedDisk>) -> Snapshot {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1 << 20);
    let store = Store::create(disk, cache, Identity::new(1)).unwrap();
    QuadStore::create(store).unwrap().snapshot()
}

pub(super) fn integer(number: i64) -> TermId {
    let literal = Literal::from(number);
    inline::encode_literal(literal.as_ref()).expect("small integers are inline")
}

/// 0 is unbound, other numbers stand for themselves.
pub(super) fn id(number: u8) -> TermId {
    match number {
        0 => TermId::UNBOUND,
        _ => integer(i64::from(number)),
    }
}

pub(super) fn variables(numbers: &[u32]) -> Vec<Variable> {
    numbers.iter().copied().map(Variable).collect()
}

pub(super) fn plan(operator: Operator, columns: &[u32]) -> Plan {
    Plan {
        operator,
        columns: variables(columns),
        sorted_by: Vec::new(),
        estimated_rows: 0.0,
    }
}

pub(super) fn values(columns: &[u32], rows: &[Row]) -> Plan {
    let constant = |id: &TermId| {
        (!id.is_unbound()).then(|| Constant {
            term: Term::from(Literal::from(0)),
            id: Some(*id),
        })
    };
    let rows = rows.iter().map(|row| row.iter().map(constant).collect());
    plan(Operator::Values(rows.collect()), columns)
}

/// Rows of `width` columns with numbers below `domain`; in the columns of `bound` not 0.
pub(super) fn rows(
    width: usize,
    bound: &'static [usize],
    domain: u8,
    count: usize,
) -> impl Strategy<Value = Vec<Row>> {
    let row = proptest::collection::vec(0..domain, width).prop_map(move |mut row| {
        for column in bound {
            row[*column] = row[*column].max(1);
        }
        row.into_iter().map(id).collect::<Row>()
    });
    proptest::collection::vec(row, 0..count)
}

pub(super) fn same_term(left: u32, right: u32) -> Expression {
    Expression::Compare(
        Comparison::SameTerm,
        Box::new(Expression::Variable(Variable(left))),
        Box::new(Expression::Variable(Variable(right))),
    )
}

/// What is added up by each thread where there are no keys, but for SAMPLE, which may give any value.
pub(super) const ADDED_UP: [AggregateFunction; 5] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::Avg,
    AggregateFunction::Min,
    AggregateFunction::Max,
];

pub(super) fn count(argument: Option<u32>, distinct: bool, output: u32) -> Aggregate {
    Aggregate {
        function: AggregateFunction::Count,
        argument: argument.map(|variable| Expression::Variable(Variable(variable))),
        distinct,
        output: Variable(output),
    }
}

pub(super) fn query(root: Plan) -> QueryPlan {
    let names = root.columns.iter().map(|variable| variable.0).max();
    QueryPlan {
        form: QueryForm::Select(root.columns.clone()),
        variable_names: vec![String::from("v"); names.map_or(0, |max| max as usize + 1)],
        root,
        default_graphs: GraphSet::Default,
        readings: Vec::new(),
        base_iri: None,
    }
}

/// Runs a query to its end.
pub(super) fn try_run(
    plan: &QueryPlan,
    context: Arc<QueryContext>,
) -> Result<(Vec<Row>, Vec<OperatorProfile>), Error> {
    let batch_rows = context.batch_rows();
    let mut execution = Execution::new(&plan.clone().into(), context)?;
    let mut rows = Vec::new();
    loop {
        match execution.next()? {
            Step::Batch(batch) => {
                assert!(batch.is_consistent() && batch.rows > 0);
                assert!(
                    batch.rows <= 2 * batch_rows,
                    "a batch of {} rows",
                    batch.rows
                );
                for row in 0..batch.rows {
                    rows.push(
                        (0..batch.columns.len())
                            .map(|c| batch.get(c, row))
                            .collect(),
                    );
                }
            }
            Step::Yield => (),
            Step::Done => break,
        }
    }
    assert_eq!(execution.next().unwrap(), Step::Done);
    Ok((rows, execution.profile()))
}

/// The rows of a plan with batches of this size.
pub(super) fn run(root: &Plan, batch_rows: usize) -> Vec<Row> {
    let context = context(settings(batch_rows, 1 << 30));
    try_run(&query(root.clone()), context).unwrap().0
}

/// The rows of a plan, which are the same in all batch sizes, and where operators put on disk all they can.
pub(super) fn run_all(root: &Plan) -> Vec<Row> {
    let [first, rest @ ..] = BATCHES.map(|batch_rows| run(root, batch_rows));
    for other in rest {
        assert_eq!(first, other, "batches of another size");
    }
    for batch_rows in BATCHES {
        let mut filtered = settings(batch_rows, 1 << 30);
        filtered.key_filter_rows_min = 0;
        let (filtered, _) = try_run(&query(root.clone()), context(filtered)).unwrap();
        assert_eq!(sorted(first.clone()), sorted(filtered), "with key filters");
        let spilled = run_spilling(root, batch_rows, (0, 1 << 30)).0;
        assert_eq!(sorted(first.clone()), sorted(spilled), "from disk");
        if !is_loose(root) {
            let ordered = Operator::Slice {
                by: Vec::new(),
                input: Box::new(root.clone()),
                offset: 0,
                limit: None,
            };
            let ordered = Plan {
                operator: ordered,
                ..root.clone()
            };
            let spilled = run_spilling(&ordered, batch_rows, (0, 1 << 30)).0;
            assert_eq!(first, spilled, "from disk in order");
        }
    }
    first
}

/// The rows of a plan whose operators hold so many bytes at most, but at least one row, within a budget; what they
/// did; and how much memory was reserved at most.
pub(super) fn run_spilling(
    root: &Plan,
    batch_rows: usize,
    (after_bytes, budget): (u64, u64),
) -> (Vec<Row>, Vec<OperatorProfile>, u64) {
    let snapshot = empty_store();
    let settings = QuerySettings {
        spill: Some(Spill {
            space: snapshot.temp_space(),
            after_bytes,
            rows_min: 1,
        }),
        // Batches of one size are run with filters, too.
        key_filter_rows_min: if batch_rows == 3 { 0 } else { u64::MAX },
        ..settings(batch_rows, budget)
    };
    let memory = settings.memory.clone();
    let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
    let (rows, profile) = try_run(&query(root.clone()), context).unwrap();
    assert_eq!(memory.used(), 0, "memory is kept");
    assert_eq!(snapshot.temp_space().bytes(), 0, "temporary files are kept");
    (rows, profile, memory.peak())
}

/// Whether the order of the output is not that of the input in all: that of groups, and of the partners of one row
/// where some bind what others do not.
fn is_loose(plan: &Plan) -> bool {
    let is_loose_itself = match &plan.operator {
        Operator::HashAggregate { .. } => true,
        Operator::HashJoin { compatible, .. } => !compatible.is_empty(),
        _ => false,
    };
    is_loose_itself || plan.inputs().into_iter().any(is_loose)
}

pub(super) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}
