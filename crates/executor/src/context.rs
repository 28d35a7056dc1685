//! What all operators of one running query share.
//!
//! The snapshot that is read, terms that the query computed, cancellation, deadline, memory, and
//! what is fixed for a query: its time, base IRI and seed. Time and randomness are passed in, so
//! that a run can be repeated.
//!
//! # Concurrency
//! Shared by all workers of a query. The table of computed terms has a lock of its own; it is never
//! held while the snapshot is read, nor while computed terms are read from disk.
//!
//! # Limits
//! Computed terms and the memory of operators count against the budget.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use oxrdf::Term;
use oxsdatatypes::DateTime;
use stoa_planner::physical::Plan;
use stoa_quadstore::{Snapshot, TermTexts};
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, nonblocking};
use stoa_terms::{Kind, TermId};

use crate::admission::Admission;
use crate::batch::BATCH_ROWS;
use crate::error::{Error, Result};
use crate::expression::TermMemos;
use crate::helpers::Helpers;
use crate::local_terms::{self, HeldKeys, LocalTerms};
use crate::memory::{Accounts, Memory, UNNAMED};
use crate::meters::Meters;
use crate::profile::Counters;
use crate::service::ServiceClient;
use crate::spill::{MARGIN_BYTES, Spill};
use crate::steps::STEPS_PER_CHECK;
use crate::{AdjacencyCache, NumberCache, turns};

/// A clock that only goes forward.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;
}

/// What a query is run with, besides its plan.
#[derive(Clone)]
pub struct QuerySettings {
    /// The budget that operators reserve from.
    pub memory: MemoryBudget,
    /// The clock that `deadline_ns` is of.
    pub clock: Arc<dyn Clock>,
    /// When the query ends with an error, on `clock`; `None` for never.
    pub deadline_ns: Option<u64>,
    /// Set to end the query from outside.
    pub cancel: Arc<AtomicBool>,
    /// As `cancel`, for what ends others with the query.
    pub cancel_outer: Option<Arc<AtomicBool>>,
    /// What `NOW()` gives.
    pub now: DateTime,
    /// Base of relative references given to `IRI()`.
    pub base_iri: Option<String>,
    /// Seed of `RAND()`, `UUID()` and the like.
    pub seed: u64,
    /// How many rows a batch has at most, at least 1.
    pub batch_rows: usize,
    /// How far the input of a vectored look-up may grow when larger batches promise better
    /// locality, in rows.
    pub lookup_rows_max: usize,
    /// Whether the time of each operator is taken.
    pub timed: bool,
    /// How long operators go on before they give the thread back, in nanoseconds.
    pub slice_ns: u64,
    /// What asks the endpoints of SERVICE; without it such queries are refused.
    pub services: Option<Arc<dyn ServiceClient>>,
    /// The threads that help where much is to be done.
    pub helpers: Option<Arc<Helpers>>,
    /// How many rows the planner must expect of operators for helpers to be asked.
    pub parallel_rows_min: u64,
    /// How many rows the planner must expect where a key filter of a hash join drops some: 0 for a filter wherever there can
    /// be one, [`u64::MAX`] for none at all.
    pub key_filter_rows_min: u64,
    /// How many rows, judged by those before them, a merge join must have no use for on a side for this to be sent over
    /// them: 0 wherever the other side is ahead, [`u64::MAX`] for never.
    pub leap_rows_min: u64,
    /// After how many rows of its input an index nested-loop join that may go over to a hash join does so:
    /// [`u64::MAX`] for never; `None` for what the plan says.
    pub switch_after_rows: Option<u64>,
    /// How many rows the first range of a range sort has, about; what is expected to be enough if `None`.
    pub range_rows: Option<u64>,
    /// Whether path searches read all triples of a step into memory before they look any up, if there is room, or never
    /// do; `None` for when that is cheaper.
    pub force_adjacency: Option<bool>,
    /// Where path searches leave the triples that they have read into memory for others, and find them.
    pub adjacencies: Option<Arc<AdjacencyCache>>,
    /// Where numbers are that queries have made of terms, for those after them; without it they are made anew for each row.
    pub numbers: Option<Arc<NumberCache>>,
    /// After how many rows what conditions on the text of a variable gave is kept for its terms: 0 from the first row on;
    /// [`u64::MAX`] for never, with each row tried by itself.
    pub term_memo_after_rows: u64,
    /// Where operators put what they cannot hold; without it the query ends there.
    pub spill: Option<Spill>,
    /// Where the query waits until there is memory for it; without it, it begins in any case.
    pub admission: Option<Arc<Admission>>,
    /// How long the request that the query belongs to has waited there before, in nanoseconds: all its queries
    /// together wait no longer than one.
    pub waited_ns: Arc<AtomicU64>,
}

impl QuerySettings {
    /// Makes batches as short as a plan with very many columns wants: 262,144 ids in each, and at least
    /// 16 rows.
    pub fn fit_batches(&mut self, plan: &Plan) {
        let (mut widest, mut open) = (1, vec![plan]);
        while let Some(plan) = open.pop() {
            widest = widest.max(plan.columns.len());
            open.extend(plan.inputs());
        }
        let rows = (BATCH_IDS_MAX / widest).max(BATCH_ROWS_MIN);
        self.batch_rows = self.batch_rows.min(rows);
        if self.batch_rows == rows {
            self.lookup_rows_max = self.lookup_rows_max.min(rows);
        }
    }

    /// Settings with no deadline, no base IRI, and the usual sizes of batches.
    #[must_use]
    pub fn new(memory: MemoryBudget, clock: Arc<dyn Clock>, now: DateTime, seed: u64) -> Self {
        Self {
            memory,
            clock,
            deadline_ns: None,
            cancel: Arc::new(AtomicBool::new(false)),
            cancel_outer: None,
            now,
            base_iri: None,
            seed,
            batch_rows: BATCH_ROWS,
            lookup_rows_max: LOOKUP_ROWS_MAX,
            slice_ns: SLICE_NS,
            timed: false,
            services: None,
            helpers: None,
            parallel_rows_min: PARALLEL_ROWS_MIN,
            key_filter_rows_min: KEY_FILTER_ROWS_MIN,
            leap_rows_min: LEAP_ROWS_MIN,
            switch_after_rows: None,
            range_rows: None,
            force_adjacency: None,
            adjacencies: None,
            numbers: None,
            term_memo_after_rows: TERM_MEMO_AFTER_ROWS,
            spill: None,
            admission: None,
            waited_ns: Arc::default(),
        }
    }
}

/// How many rows a batch has at most on a thread that must not block.
const NONBLOCKING_ROWS: usize = 256;

/// The default of [`QuerySettings::slice_ns`].
const SLICE_NS: u64 = 1_000_000;

/// The default of [`QuerySettings::parallel_rows_min`]: some milliseconds of work.
const PARALLEL_ROWS_MIN: u64 = 30_000;

/// The default of [`QuerySettings::leap_rows_min`]: about what a leap costs.
const LEAP_ROWS_MIN: u64 = 256;

/// The default of [`QuerySettings::key_filter_rows_min`]: with fewer there is little to gain.
const KEY_FILTER_ROWS_MIN: u64 = 4_000;

/// The default of [`QuerySettings::term_memo_after_rows`]: some batches, in which terms are told apart anyway.
const TERM_MEMO_AFTER_ROWS: u64 = 4_096;

/// The default of [`QuerySettings::lookup_rows_max`].
pub const LOOKUP_ROWS_MAX: usize = 512 * 1024;

/// So many ids are in a batch at most,
const BATCH_IDS_MAX: usize = 1 << 18;
/// where it has more rows than this.
const BATCH_ROWS_MIN: usize = 16;

/// A term that an expression computed, before it has an id.
#[derive(Clone, Debug)]
pub enum Computed {
    /// No term: an expression error, or unbound.
    Unbound,
    /// A term whose id is known: taken over from the input, or inline.
    Id(TermId),
    /// A term as such. Not a blank node; a triple term only if it has none within.
    Term(Term),
    /// A triple term made of terms with ids.
    Triple([TermId; 3]),
}

/// What all operators of one query share.
pub struct QueryContext {
    snapshot: Snapshot,
    settings: QuerySettings,
    /// When this was made, on the clock of the settings.
    begun_ns: u64,
    meters: Arc<Meters>,
    accounts: Arc<Accounts>,
    local_terms: Arc<LocalTerms>,
    term_memos: Arc<TermMemos>,
    random_counter: Arc<AtomicU64>,
    /// Of whoever runs the query.
    waker: Mutex<Waker>,
    /// Whether an operator could not go on and has left the waker somewhere.
    is_waiting: AtomicBool,
    /// Until when operators go on where they are, on the clock of the settings.
    slice_end_ns: AtomicU64,
    /// Steps taken since the last check ([`take_steps`](Self::take_steps)).
    steps: AtomicU64,
}

impl QueryContext {
    /// A context for one run of one query on `snapshot`.
    #[must_use]
    pub fn new(snapshot: Snapshot, settings: QuerySettings) -> Self {
        let meters = Arc::default();
        let accounts = Accounts::new(&settings.memory, settings.admission.clone(), &meters);
        let accounts = Arc::new(accounts);
        let memory = || Memory::new(UNNAMED, &accounts);
        // Without a disk there is no end to what computed terms take.
        let for_terms = || match settings.spill {
            Some(_) => memory(),
            None => memory().beside_the_grant(),
        };
        let local_terms = LocalTerms::new(for_terms(), for_terms());
        Self {
            begun_ns: settings.clock.now_ns(),
            snapshot,
            settings,
            meters,
            accounts,
            local_terms: Arc::new(local_terms),
            term_memos: Arc::default(),
            random_counter: Arc::default(),
            waker: Mutex::new(Waker::noop().clone()),
            is_waiting: AtomicBool::new(false),
            slice_end_ns: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// The context of another thread that works on the same query: it shares all but the slices of time, and has
    /// no helpers itself.
    #[must_use]
    pub fn of_helper(&self) -> Self {
        Self {
            snapshot: self.snapshot.clone(),
            settings: QuerySettings {
                helpers: None,
                ..self.settings.clone()
            },
            begun_ns: self.begun_ns,
            meters: Arc::clone(&self.meters),
            accounts: Arc::clone(&self.accounts),
            local_terms: Arc::clone(&self.local_terms),
            term_memos: Arc::clone(&self.term_memos),
            random_counter: Arc::clone(&self.random_counter),
            waker: Mutex::new(Waker::noop().clone()),
            is_waiting: AtomicBool::new(false),
            slice_end_ns: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// What the query reads.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The same for an operator: where the query is timed, what it reads is counted for the operator, too.
    pub(crate) fn snapshot_of(&self, counters: &Counters) -> Cow<'_, Snapshot> {
        match self.settings.timed {
            false => Cow::Borrowed(&self.snapshot),
            true => {
                let reads = counters.reads(self.snapshot.read_meters());
                Cow::Owned(self.snapshot.counted_by(reads))
            }
        }
    }

    /// What the query was started with.
    #[must_use]
    pub const fn settings(&self) -> &QuerySettings {
        &self.settings
    }

    /// What `NOW()` gives.
    #[must_use]
    pub const fn now(&self) -> DateTime {
        self.settings.now
    }

    /// Base of relative references given to `IRI()`.
    #[must_use]
    pub fn base_iri(&self) -> Option<&str> {
        self.settings.base_iri.as_deref()
    }

    /// How many rows a batch has at most now, at least 1: fewer where others wait for the thread.
    #[must_use]
    pub fn batch_rows(&self) -> usize {
        let most = match nonblocking::is_on() {
            true => NONBLOCKING_ROWS,
            false => usize::MAX,
        };
        self.settings.batch_rows.clamp(1, most)
    }

    /// Fails if the query was cancelled or its time is up. Every operator calls this once a batch.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::DeadlineExceeded`]; that of storage where others have waited long enough for
    /// this thread.
    pub fn check(&self) -> Result<()> {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        if is_set(&self.settings.cancel) || self.settings.cancel_outer.as_ref().is_some_and(is_set)
        {
            return Err(Error::Cancelled);
        }
        if nonblocking::is_on() {
            let spent_ns = self.settings.clock.now_ns().saturating_sub(self.begun_ns);
            nonblocking::check_time(spent_ns).map_err(stoa_quadstore::Error::from)?;
        }
        match self.settings.deadline_ns {
            Some(deadline_ns) if self.settings.clock.now_ns() >= deadline_ns => {
                Err(Error::DeadlineExceeded)
            }
            _ => Ok(()),
        }
    }

    /// Takes steps of work inside an expression. Once [`STEPS_PER_CHECK`] are taken, checks whether the query may go on,
    /// and lets others have their turn. The caller holds no lock.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn take_steps(&self, steps: u64) -> Result<()> {
        // One thread evaluates at a time; where that is not so, a lost step does not matter.
        let taken = self.steps.load(Ordering::Relaxed).saturating_add(steps);
        if taken < STEPS_PER_CHECK {
            self.steps.store(taken, Ordering::Relaxed);
            return Ok(());
        }
        self.steps.store(0, Ordering::Relaxed);
        self.check()?;
        turns::give_way();
        self.check()
    }

    /// What wakes whoever runs the query. An operator that leaves it with something outside then
    /// yields and calls [`wait`](Self::wait).
    pub(crate) fn waker(&self) -> Waker {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        waker.clone()
    }

    /// Begins a slice of time: sets the waker, and how long operators may go on.
    pub(crate) fn begin_slice(&self, waker: &Waker) {
        self.is_waiting.store(false, Ordering::Relaxed);
        let slice_ns = match nonblocking::is_on() {
            true => self.settings.slice_ns.min(nonblocking::slice_ns()),
            false => self.settings.slice_ns,
        };
        let end_ns = self.settings.clock.now_ns().saturating_add(slice_ns);
        self.slice_end_ns.store(end_ns, Ordering::Relaxed);
        let mut own = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        own.clone_from(waker);
    }

    /// Notes that there is nothing to do before the waker is called.
    pub(crate) fn wait(&self) {
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    /// Whether whoever runs the query should have the thread back: the slice is over, or an operator
    /// waits.
    pub(crate) fn should_yield(&self) -> bool {
        let end_ns = self.slice_end_ns.load(Ordering::Relaxed);
        self.is_waiting() || self.settings.clock.now_ns() >= end_ns
    }

    /// Whether an operator waits since the last [`begin_slice`](Self::begin_slice).
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// How long the query may still run, `None` for as long as it likes.
    #[must_use]
    pub fn time_left_ns(&self) -> Option<u64> {
        let now_ns = self.settings.clock.now_ns();
        Some(self.settings.deadline_ns?.saturating_sub(now_ns))
    }

    /// Ends the query at its next check.
    pub fn cancel(&self) {
        self.settings.cancel.store(true, Ordering::Relaxed);
    }

    /// An account of the memory that `operator` holds, empty at first.
    #[must_use]
    pub fn memory(&self, operator: &'static str) -> Memory {
        Memory::new(operator, &self.accounts)
    }

    /// What all of these accounts share.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What the query takes.
    #[must_use]
    pub const fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// What is left of the memory that was granted before the query began, in bytes.
    #[must_use]
    pub fn grant_bytes(&self) -> u64 {
        self.accounts.grant_bytes()
    }

    /// Reserves `bytes` in all, and a margin, for an operator that holds `rows` rows; false if it is to put them on
    /// disk instead, for which it shrinks the account to what it holds.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] where the budget has no room, and too little is held for the disk to be of use, or
    /// there is none.
    pub(crate) fn may_hold(&self, memory: &mut Memory, bytes: u64, rows: usize) -> Result<bool> {
        let Some(spill) = self.settings.spill.as_ref() else {
            return memory.require(bytes).map(|()| true);
        };
        if rows < spill.rows_min {
            return memory.require(bytes).map(|()| true);
        }
        // All operators together hold half of the budget, and beyond that each its share of as much again.
        let holders = self.meters.holders().saturating_mul(memory.sharers());
        let more = bytes.saturating_sub(memory.reserved_bytes());
        let is_within = self.meters.memory_bytes().saturating_add(more) <= spill.after_bytes
            || bytes <= spill.after_bytes / holders.max(1);
        Ok(is_within && memory.try_require(bytes + MARGIN_BYTES))
    }

    /// Reserves `bytes` in all for an operator that can do without; false if there is no room, or others have more claim
    /// to it.
    pub(crate) fn has_room(&self, memory: &mut Memory, bytes: u64) -> bool {
        let more = bytes.saturating_sub(memory.reserved_bytes());
        let all = self.meters.memory_bytes().saturating_add(more);
        let spill = self.settings.spill.as_ref();
        spill.is_none_or(|spill| all <= spill.after_bytes)
            && memory.try_require(bytes + MARGIN_BYTES)
    }

    /// Whether queries wait for memory.
    pub(crate) fn others_wait(&self) -> bool {
        let admission = self.settings.admission.as_ref();
        admission.is_some_and(|admission| admission.waiting() > 0)
    }

    /// 64 random bits: the next of the sequence that the seed determines.
    #[must_use]
    pub fn random(&self) -> u64 {
        // SplitMix64, which passes BigCrush and needs no lock.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let count = self.random_counter.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bits = self.settings.seed.wrapping_add(count.wrapping_mul(STEP));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A blank node that exists in this query's answer only.
    #[must_use]
    pub fn new_blank_node(&self) -> TermId {
        self.local_terms.new_blank_node()
    }

    /// The blank node that BNODE gives for a string in one solution, which a blank node of its own
    /// names.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if the query has more of them than it may hold.
    pub(crate) fn labelled_blank_node(&self, solution: TermId, label: &str) -> Result<TermId> {
        self.local_terms.labelled_blank_node(solution, label)
    }

    /// The kind of the term behind `id`: that of the id, or for [`Kind::Local`] the kind that the
    /// term would have in the dictionary ([`Kind::Iri`], [`Kind::NumericLiteral`],
    /// [`Kind::TemporalLiteral`], [`Kind::Literal`], [`Kind::BlankNode`] or [`Kind::Triple`]).
    #[must_use]
    pub fn kind(&self, id: TermId) -> Kind {
        match id.kind() {
            Kind::Local => local_terms::kind(id),
            kind => kind,
        }
    }

    /// As [`Snapshot::texts`], computed terms included: for each of `ids` adds the term's key (see
    /// `stoa_terms::key`) if its [`kind`](Self::kind) is one of the dictionary's, else nothing.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    pub fn texts(&self, ids: &[TermId], out: &mut TermTexts) -> Result<()> {
        self.texts_metered(ids, out, &mut |_| Ok(()))
    }

    /// As [`texts`](Self::texts), as long as `fits` says that so many bytes of them do. False where it did not: some
    /// texts are missing then.
    ///
    /// # Errors
    /// As [`texts`](Self::texts).
    pub fn texts_while(
        &self,
        ids: &[TermId],
        out: &mut TermTexts,
        fits: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool> {
        let mut has_room = true;
        let read = self.texts_metered(ids, out, &mut |bytes| {
            has_room = fits(bytes);
            match has_room {
                true => Ok(()),
                false => Err(Error::LimitExceeded("texts that find no room")),
            }
        });
        match has_room {
            true => read.map(|()| true),
            false => Ok(false),
        }
    }

    /// As [`texts`](Self::texts), with what `out` takes reserved from `memory` beside `held` bytes.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`], and as [`texts`](Self::texts).
    pub(crate) fn texts_within(
        &self,
        ids: &[TermId],
        out: &mut TermTexts,
        memory: &mut Memory,
        held: u64,
    ) -> Result<()> {
        self.texts_metered(ids, out, &mut |bytes| memory.require(held + bytes as u64))
    }

    /// As [`texts`](Self::texts). `meter` is told how many bytes the texts take as they grow, and may
    /// end it. Cancellation is checked as often.
    pub(crate) fn texts_metered(
        &self,
        ids: &[TermId],
        out: &mut TermTexts,
        meter: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let has = |wanted: fn(Kind) -> bool| ids.iter().any(|id| wanted(id.kind()));
        let first = out.len();
        if has(Kind::is_in_dictionary) {
            let mut refused = None;
            self.snapshot()
                .texts_metered(
                    ids,
                    out,
                    &mut |bytes| match self.check().and_then(|()| meter(bytes)) {
                        Ok(()) => true,
                        Err(error) => {
                            refused = Some(error);
                            false
                        }
                    },
                )?;
            if let Some(error) = refused {
                return Err(error);
            }
        } else {
            ids.iter().for_each(|_| out.push(&[]));
        }
        if has(|kind| kind == Kind::Local) {
            self.local_terms.texts(self, ids, first, out, meter)?;
        }
        Ok(())
    }

    /// What conditions gave for terms.
    pub(crate) fn term_memos(&self) -> &TermMemos {
        &self.term_memos
    }

    #[cfg(test)]
    pub(crate) fn local_terms(&self) -> &LocalTerms {
        &self.local_terms
    }

    /// The keys of some computed terms, to compare many of them; `None` if not all of them are in memory.
    pub(crate) fn held_keys(&self, ids: impl Iterator<Item = TermId>) -> Option<HeldKeys> {
        self.local_terms.hold(ids)
    }

    /// The parts of a triple term, whose [`kind`](Self::kind) must be [`Kind::Triple`].
    ///
    /// # Errors
    /// If the table of triple terms cannot be read.
    pub fn triple(&self, id: TermId) -> Result<[TermId; 3]> {
        match self.local_terms.triple(id)? {
            Some(parts) => Ok(parts),
            None => Ok(self.snapshot().triple(id)?),
        }
    }

    /// The term behind `id`, `None` for unbound and the default graph. Blank nodes are labelled by
    /// their number, `b5`; those of [`new_blank_node`](Self::new_blank_node) `q5`.
    ///
    /// # Errors
    /// If the dictionary cannot be read.
    pub fn term(&self, id: TermId) -> Result<Option<Term>> {
        self.local_terms.term(self, id)
    }

    /// Gives each computed term its id: inline, else the dictionary's, else one that is local to
    /// the query. Equal terms get equal ids. The dictionary is asked once for all of them.
    ///
    /// # Errors
    /// If the dictionary or a temporary file cannot be read; [`Error::MemoryExceeded`] if the query computes more terms
    /// than it may hold, [`Error::DiskExceeded`] if more than the disk has room for.
    pub fn resolve(&self, computed: Vec<Computed>) -> Result<Vec<TermId>> {
        self.local_terms.resolve(self, computed)
    }
}
