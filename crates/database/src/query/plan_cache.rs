//! The plan cache: plans that are used again, by the shape of the query, for other constants, as long as what they rely on holds. The
//! first plan of a shape is kept for its own constants only: which of them may be others takes parsing the text once more, and is
//! found out when the shape is met with others.
//!
//! A plan is right for other constants if the planner had looked at none of them but for their ids: those are
//! parameters ([`super::parameters`], [`QueryPlan::is_shaped_by`]), and all others must be the same. It is good for
//! them if the counts that it was made with are about the same: those with a parameter in them are asked for again each
//! time, all of them once for each commit. So is where texts are that begin with a constant, which must be as it was. Where they are not, the query is planned as if nothing was kept, and that
//! plan is kept beside.
//!
//! # Concurrency
//! One lock around the table, for as long as a shape is looked up or a plan is put in.
//!
//! # Limits
//! So many bytes are kept, reserved from the budget, and so many plans of one shape. Shapes go whose plans were never used
//! again, then those that were not used for longest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use spargebra::Query;
use stoa_planner::expression::Constant;
use stoa_planner::{QueryPlan, Replacement, Statistics as _};
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::TermId;

use super::analysis::PlanOrigin;
use super::parameters::parameters;
use super::shape::{Shape, Written};
use crate::error::Result;
use crate::statistics::{Counted, Of, Prefix, Question, SnapshotStatistics};

/// How many bytes are kept at most, about.
const BYTES_MAX: usize = 8 << 20;
/// How many plans are kept of one shape, for other fixed constants or other counts.
const PLANS_MAX: usize = 6;
/// How deep a plan may be to be kept: what is deeper needs stacks of its own.
const DEPTH_MAX: usize = 50;
/// A count is about the same if neither is more than so many times the other,
const FACTOR: u64 = 4;
/// or both are at most so much.
const FEW: u64 = 32;
/// What an operator, with its lists, and a count take, in bytes, about.
const OPERATOR_BYTES: usize = 600;
const COUNT_BYTES: usize = 100;
/// What a token becomes in a plan, in bytes, at most about: a constant with its text.
const TOKEN_BYTES: usize = 100;
/// A shape whose plans were of no use for so many texts in a row is left alone.
const MISSES_MAX: u32 = 64;

/// The plan cache of a database.
pub(crate) struct PlanCache {
    table: Mutex<Table>,
    used: AtomicU64,
    made: AtomicU64,
}

struct Table {
    shapes: HashMap<Vec<u8>, Kept, RandomState>,
    bytes: usize,
    reserved: Reservation,
    /// Counts look-ups.
    now: u64,
}

#[derive(Default)]
struct Kept {
    /// In the order in which they were used last.
    plans: Vec<Arc<CachedPlan>>,
    bytes: usize,
    used: u64,
    /// Whether a plan was ever used again.
    is_found: bool,
    /// How many look-ups in a row found nothing.
    misses: u32,
}

/// A plan and what it relies on.
struct CachedPlan {
    numbering: u64,
    has_graph_first: bool,
    /// The last commit for which all counts were looked at.
    commit: AtomicU64,
    /// The constants of the shape, by their numbers.
    slots: Vec<Slot>,
    /// Terms of the query that the data did not have, but for parameters.
    missing: Vec<Term>,
    /// Terms that come from other words than constants: no parameter may be one of them.
    words: Vec<Term>,
    /// Each with whether a parameter is in it.
    counts: Vec<(Counted, bool)>,
    /// Where texts are whose ids stand in the plan as ranges.
    prefixes: Vec<Prefix>,
    plan: QueryPlan,
    /// What it takes, about.
    bytes: usize,
}

enum Slot {
    /// It must be the same.
    Fixed(Written),
    /// It may be another.
    Parameter(Written, Constant),
}

/// How often plans were found and how often made, and what is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlanCounts {
    /// Queries that were run by a plan that was there.
    pub reused: u64,
    /// Queries that were planned, though they have a shape.
    pub planned: u64,
    /// Shapes of which plans are kept.
    pub shapes: usize,
    /// What that takes, about, in bytes.
    pub bytes: usize,
}

impl PlanCache {
    /// None yet.
    pub(crate) fn new(memory: &MemoryBudget) -> Self {
        Self {
            table: Mutex::new(Table {
                shapes: HashMap::default(),
                bytes: 0,
                reserved: memory.nothing(),
                now: 0,
            }),
            used: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while the table is not whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is.
    pub(crate) fn counts(&self) -> PlanCounts {
        let table = self.lock();
        PlanCounts {
            reused: self.used.load(Ordering::Relaxed),
            planned: self.made.load(Ordering::Relaxed),
            shapes: table.shapes.len(),
            bytes: table.bytes,
        }
    }

    /// A plan for a query of this shape over a snapshot, if one is there that is right and good for it. What was
    /// counted to know that is kept in `statistics` for who has to plan it.
    ///
    /// # Errors
    /// What the disk gives.
    pub(super) fn find(
        &self,
        shape: &Shape,
        statistics: &SnapshotStatistics<'_>,
    ) -> Result<Option<(QueryPlan, PlanOrigin)>> {
        let found = self.lock().find(&shape.key);
        // The one that was used last is at the end.
        for cached in found.iter().rev() {
            let plan = cached.plan_for(shape, statistics)?;
            drop((statistics.take_counted(), statistics.take_prefixes()));
            if plan.is_some() {
                self.used.fetch_add(1, Ordering::Relaxed);
                self.lock().found(&shape.key, cached);
                return Ok(plan);
            }
        }
        Ok(None)
    }

    /// A query that has a shape was planned.
    pub(super) fn count_planned(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a plan that was made with `statistics`; `parse` parses texts like that of the query.
    pub(super) fn keep(
        &self,
        shape: Shape,
        (text, query): (&str, &Query),
        plan: &QueryPlan,
        statistics: &SnapshotStatistics<'_>,
        parse: impl FnOnce(&str) -> Result<Query>,
    ) -> Result<()> {
        if plan.root.depth() > DEPTH_MAX {
            return Ok(());
        }
        // Nothing is parsed under the lock.
        let meeting = self.lock().meeting(&shape.key);
        let constants = match meeting {
            Meeting::Useless => None,
            Meeting::First => Some(Constants::fixed(&shape)),
            Meeting::Again => Constants::probed(&shape, (text, query), statistics, parse),
        };
        let Some(constants) = constants else {
            return Ok(());
        };
        let cached = CachedPlan::new(&shape, constants, plan, statistics)?;
        self.lock().keep(shape.key, cached);
        Ok(())
    }
}

/// How a shape of which no plan was found is met.
enum Meeting {
    First,
    Again,
    /// Its plans were of no use.
    Useless,
}

/// The constants of a shape, as far as one that is planned tells.
struct Constants {
    /// Each in whose place others may stand.
    free: Vec<Option<Term>>,
    /// What none of these others may be.
    words: Vec<Term>,
}

impl Constants {
    /// None of them may be another.
    fn fixed(shape: &Shape) -> Self {
        Self {
            free: vec![None; shape.constants.len()],
            words: Vec::new(),
        }
    }

    /// By parsing the text once more with others; `None` if that cannot be parsed.
    fn probed(
        shape: &Shape,
        (text, query): (&str, &Query),
        statistics: &SnapshotStatistics<'_>,
        parse: impl FnOnce(&str) -> Result<Query>,
    ) -> Option<Self> {
        let (probe, others) = shape.probe(text);
        let probed = parse(&probe).ok()?;
        let terms = |all: &[Written]| all.iter().map(Written::term).collect::<Vec<_>>();
        let (terms, others) = (terms(&shape.constants), terms(&others));
        let (free, mut words) = parameters((query, &terms), (&probed, &others));
        // What functions of the plan's constants gave stands in the plan like a constant of the text.
        let computed = statistics.computed();
        let pairs = terms.into_iter().zip(free);
        let free =
            pairs.map(|(term, is_free)| term.filter(|term| is_free && !computed.contains(term)));
        let free = free.collect();
        words.extend(computed);
        Some(Self { free, words })
    }
}

impl Table {
    fn find(&mut self, key: &[u8]) -> Vec<Arc<CachedPlan>> {
        self.now += 1;
        let Some(kept) = self.shapes.get_mut(key) else {
            return Vec::new();
        };
        kept.used = self.now;
        kept.misses = kept.misses.saturating_add(1);
        if kept.misses > MISSES_MAX && !kept.misses.is_multiple_of(MISSES_MAX) {
            return Vec::new();
        }
        kept.plans.clone()
    }

    fn found(&mut self, key: &[u8], cached: &Arc<CachedPlan>) {
        if let Some(kept) = self.shapes.get_mut(key) {
            kept.misses = 0;
            kept.is_found = true;
            let at = kept.plans.iter().position(|one| Arc::ptr_eq(one, cached));
            if let Some(used) = at.map(|at| kept.plans.remove(at)) {
                kept.plans.push(used);
            }
        }
    }

    fn meeting(&self, key: &[u8]) -> Meeting {
        match self.shapes.get(key) {
            None => Meeting::First,
            Some(kept) if kept.misses < MISSES_MAX => Meeting::Again,
            Some(_) => Meeting::Useless,
        }
    }

    fn keep(&mut self, key: Vec<u8>, cached: CachedPlan) {
        let most = cached.bytes + key.len() + size_of::<Kept>();
        if most > BYTES_MAX / 8 {
            return;
        }
        self.make_room(most);
        let is_new = !self.shapes.contains_key(&key);
        let bytes = if is_new { most } else { cached.bytes };
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.reserved.grow(more).is_err() {
            return;
        }
        self.bytes += bytes;
        let now = self.now;
        let kept = self.shapes.entry(key).or_insert_with(|| Kept {
            used: now,
            ..Kept::default()
        });
        kept.bytes += bytes;
        kept.plans.push(Arc::new(cached));
        if kept.plans.len() > PLANS_MAX {
            let oldest = kept.plans.remove(0).bytes;
            kept.bytes = kept.bytes.saturating_sub(oldest);
            self.free(oldest);
        }
    }

    fn free(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.reserved
            .shrink(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Where there is too much, lets those go that were never used again, and then those that were not used for longest, until
    /// a quarter is free.
    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes <= BYTES_MAX {
            return;
        }
        let order = |kept: &Kept| (kept.is_found, kept.used);
        let kept = self.shapes.values();
        let mut kept: Vec<_> = kept.map(|kept| (order(kept), kept.bytes)).collect();
        kept.sort_unstable();
        let mut left = self.bytes + bytes;
        let mut last = None;
        for (order, bytes) in kept {
            if left <= BYTES_MAX / 4 * 3 {
                break;
            }
            left = left.saturating_sub(bytes);
            last = Some(order);
        }
        let mut freed = 0;
        self.shapes.retain(|_, kept| {
            let stays = Some(order(kept)) > last;
            freed += if stays { 0 } else { kept.bytes };
            stays
        });
        self.free(freed);
    }
}

impl CachedPlan {
    fn new(
        shape: &Shape,
        Constants { free, words }: Constants,
        plan: &QueryPlan,
        statistics: &SnapshotStatistics<'_>,
    ) -> Result<Self> {
        let snapshot = statistics.snapshot();
        let counted = statistics.take_counted();
        let is_shaped = |id| plan.is_shaped_by(id) || counted.iter().any(|c| shapes(c, id));
        let mut missing = statistics.absent();
        let mut slots = Vec::with_capacity(free.len());
        for (written, free) in shape.constants.iter().zip(free) {
            let constant = match free {
                Some(term) => Some(Constant {
                    id: statistics.id(&term)?,
                    term,
                }),
                None => None,
            };
            let parameter = constant.filter(|constant| {
                !constant.is_made_by_planner() && !constant.id.is_some_and(is_shaped)
            });
            slots.push(match parameter {
                Some(constant) => {
                    missing.retain(|term| *term != constant.term);
                    Slot::Parameter(written.clone(), constant)
                }
                None => Slot::Fixed(written.clone()),
            });
        }
        let is_parameter = |id: &TermId| {
            slots.iter().any(|slot| match slot {
                Slot::Parameter(_, constant) => constant.id == Some(*id),
                Slot::Fixed(_) => false,
            })
        };
        let counts = counted.into_iter().map(|counted| {
            let mut terms = counted.question.triple.iter().flatten();
            let has_parameter = terms.any(is_parameter);
            (counted, has_parameter)
        });
        let mut cached = Self {
            numbering: snapshot.numbering(),
            has_graph_first: snapshot.has_graph_first(),
            commit: AtomicU64::new(snapshot.commit()),
            counts: counts.collect(),
            prefixes: statistics.take_prefixes(),
            slots,
            missing,
            words,
            plan: plan.clone(),
            bytes: 0,
        };
        cached.bytes = cached.size() + shape.tokens * TOKEN_BYTES;
        Ok(cached)
    }

    fn size(&self) -> usize {
        let mut operators = 0;
        let mut open = vec![&self.plan.root];
        while let Some(plan) = open.pop() {
            operators += 1;
            open.extend(plan.inputs());
        }
        let slots = self.slots.iter().map(|slot| match slot {
            Slot::Fixed(written) => written.bytes(),
            Slot::Parameter(written, _) => 2 * written.bytes() + size_of::<Constant>(),
        });
        let lists = self.counts.len() + self.missing.len() + self.words.len();
        // Their ranges stand in the plan, and in what was counted.
        let prefixes = self.prefixes.iter().map(|prefix| 4 * prefix.bytes());
        operators * OPERATOR_BYTES
            + lists * COUNT_BYTES
            + slots.sum::<usize>()
            + prefixes.sum::<usize>()
    }

    /// The plan with the constants of a shape, if it is right and good for these.
    fn plan_for(
        &self,
        shape: &Shape,
        statistics: &SnapshotStatistics<'_>,
    ) -> Result<Option<(QueryPlan, PlanOrigin)>> {
        let snapshot = statistics.snapshot();
        let is_same = self.numbering == snapshot.numbering()
            && self.has_graph_first == snapshot.has_graph_first()
            && self.slots.len() == shape.constants.len();
        let mut pairs = self.slots.iter().zip(&shape.constants);
        let fixed = pairs.all(|(slot, written)| match slot {
            Slot::Fixed(fixed) => fixed == written,
            Slot::Parameter(..) => true,
        });
        if !is_same || !fixed {
            return Ok(None);
        }
        let Some(replacements) = self.replacements(shape, statistics)? else {
            return Ok(None);
        };
        if !self.is_good(&replacements, statistics)? {
            return Ok(None);
        }
        let mut pairs = replacements.iter().map(|pair| (&pair.from, &pair.to));
        let origin = match pairs.any(|(from, to)| from.term != to.term) {
            true => PlanOrigin::Shape,
            false => PlanOrigin::Same,
        };
        Ok(Some((self.plan.with_constants(&replacements), origin)))
    }

    /// What takes the place of what; none if that would be another plan.
    fn replacements(
        &self,
        shape: &Shape,
        statistics: &SnapshotStatistics<'_>,
    ) -> Result<Option<Vec<Replacement>>> {
        let mut from = Vec::new();
        let mut terms = Vec::new();
        for (slot, written) in self.slots.iter().zip(&shape.constants) {
            let Slot::Parameter(known, constant) = slot else {
                continue;
            };
            if known == written && constant.id.is_some() {
                continue;
            }
            let Some(term) = written.term() else {
                return Ok(None);
            };
            from.push(constant);
            terms.push(term);
        }
        let ids = statistics.term_ids(&terms);
        let ids = ids.map_err(stoa_planner::Error::Statistics)?;
        let mut replacements = Vec::with_capacity(terms.len());
        for ((from, term), id) in from.into_iter().zip(terms).zip(ids) {
            if from.id.map(TermId::kind) != id.map(TermId::kind) {
                return Ok(None);
            }
            let to = Constant { term, id };
            if to.is_made_by_planner() || self.words.contains(&to.term) {
                return Ok(None);
            }
            let from = from.clone();
            replacements.push(Replacement { from, to });
        }
        Ok(Some(replacements))
    }

    /// Whether what the plan relies on is about as it was.
    fn is_good(
        &self,
        replacements: &[Replacement],
        statistics: &SnapshotStatistics<'_>,
    ) -> Result<bool> {
        let snapshot = statistics.snapshot();
        let is_known = self.commit.load(Ordering::Relaxed) == snapshot.commit();
        if replacements.is_empty() && is_known {
            return Ok(true);
        }
        let replaced: Vec<Option<TermId>> = replacements.iter().map(|r| r.from.id).collect();
        if !is_known
            && snapshot
                .term_ids(&self.missing)?
                .iter()
                .any(|id| id.is_some())
        {
            return Ok(false);
        }
        if !is_known {
            for prefix in &self.prefixes {
                if !statistics.is_as_it_was(prefix)? {
                    return Ok(false);
                }
            }
        }
        for (Counted { question, answer }, has_parameter) in &self.counts {
            if is_known && !has_parameter {
                continue;
            }
            let mut question = Question::clone(question);
            for id in question.triple.iter_mut().filter(|id| id.is_some()) {
                if let Some(at) = replaced.iter().position(|from| from == id)
                    && let Some(replacement) = replacements.get(at)
                {
                    *id = replacement.to.id;
                }
            }
            let now = statistics.answer(&question);
            let now = now.map_err(stoa_planner::Error::Statistics)?;
            // That a graph is empty, and that ids tell an order, is taken as a fact.
            let is_fact = question.triple == [None; 3] || matches!(question.of, Of::Untold(_));
            if !is_about(*answer, now) || (is_fact && (*answer == 0) != (now == 0)) {
                return Ok(false);
            }
        }
        if !is_known {
            self.commit.store(snapshot.commit(), Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// Whether two counts lead to much the same costs.
fn is_about(one: u64, other: u64) -> bool {
    let (least, most) = (one.min(other), one.max(other));
    most <= FEW || most <= least.saturating_mul(FACTOR)
}

/// Whether a term decided what was counted, in another way than as a term of the pattern.
fn shapes(Counted { question, .. }: &Counted, id: TermId) -> bool {
    let in_ranges = match &question.of {
        Of::Ranges(_, ranges) => ranges.iter().any(|r| r.first <= id && id <= r.last),
        Of::Quads | Of::Distinct(_) | Of::Untold(_) => false,
    };
    in_ranges || question.graphs.is_named_by(id)
}
