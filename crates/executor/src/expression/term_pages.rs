//! What an expression gave for terms of the dictionary, in pages that are made when they are first needed.
//!
//! Pages are kept from some thousand rows on, and let go where they are of little use: when half as many rows were asked
//! for as the dictionary has terms, and hardly any was known.
//!
//! # Concurrency
//! Shared by all threads that evaluate the same expression of one query. What is in a page is set and read without order:
//! what two threads find for a term is the same, and who does not see what another found finds it again.
//!
//! # Limits
//! 16 bytes for each page there may be, and the pages that are made, a few at once and then one for so many rows. All of it
//! is reserved, by the query or from the budget itself, and let go when it is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{Kind, TermId};

use crate::context::QueryContext;
use crate::memory::Memory;

/// So many pages are made at once, and then one for [`Page::ROWS`] rows: terms that lie far from each other have one each.
const PAGES_MIN: u64 = 64;
/// So many rows are asked for before it is seen whether pages are of use,
const ROWS_MIN: u64 = 64 * 1024;
/// which they are if one of so many was known.
const FOUND_SHARE: u64 = 32;

/// Kinds whose terms are in the dictionary; each has a list of pages.
pub(super) const KINDS: [Kind; 4] = [
    Kind::Iri,
    Kind::NumericLiteral,
    Kind::TemporalLiteral,
    Kind::Literal,
];

/// What is kept of terms whose ids follow each other.
pub(super) trait Page: Default {
    /// How many terms it is about.
    const TERMS: u64;
    /// For how many rows one may be made.
    const ROWS: u64;
}

/// Pages that come once there are rows enough for them.
pub(super) struct LazyPages<P>(Mutex<State<P>>);

enum State<P> {
    /// So many rows have come.
    Waiting(u64),
    Open(Arc<TermPages<P>>),
    Over,
}

/// See the module header.
pub(super) struct TermPages<P> {
    lists: [Box<[OnceLock<Box<P>>]>; KINDS.len()],
    room: Mutex<Room>,
    /// How many terms there may be.
    terms: u64,
    made: AtomicU64,
    asked: AtomicU64,
    found: AtomicU64,
}

/// What is reserved.
enum Room {
    /// By a query, and how many bytes that are.
    OfQuery(Memory, u64),
    /// For many queries, up to so many bytes.
    Shared(Reservation, u64),
}

/// There is no memory for more pages.
pub(super) struct Refused;

impl<P> Default for LazyPages<P> {
    fn default() -> Self {
        Self(Mutex::new(State::Waiting(0)))
    }
}

impl<P: Page> LazyPages<P> {
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages, which are made when enough rows have come; this time `rows` more.
    pub(super) fn get(&self, rows: usize, context: &QueryContext) -> Option<Arc<TermPages<P>>> {
        let mut state = self.lock();
        if let State::Waiting(before) = &mut *state {
            *before = before.saturating_add(rows as u64);
            if *before <= context.settings().term_memo_after_rows {
                return None;
            }
            *state = match TermPages::new(context) {
                Some(pages) => State::Open(Arc::new(pages)),
                None => State::Over,
            };
        }
        match &*state {
            State::Open(pages) => Some(Arc::clone(pages)),
            State::Waiting(_) | State::Over => None,
        }
    }

    /// Lets go what is kept; nothing is kept from now on.
    pub(super) fn end(&self) {
        *self.lock() = State::Over;
    }

    /// So many rows were asked for, and so many known.
    pub(super) fn note(
        &self,
        pages: &TermPages<P>,
        asked: usize,
        known: usize,
        context: &QueryContext,
    ) {
        context.meters().add_known(known);
        let (asked, known) = (asked as u64, known as u64);
        let asked = asked + pages.asked.fetch_add(asked, Ordering::Relaxed);
        let found = known + pages.found.fetch_add(known, Ordering::Relaxed);
        if asked >= ROWS_MIN.max(pages.terms / 2) && found.saturating_mul(FOUND_SHARE) < asked {
            self.end();
        }
    }
}

impl<P: Page> TermPages<P> {
    /// Without any page; `None` if there is no room for their lists.
    fn new(context: &QueryContext) -> Option<Self> {
        let ends = KINDS.map(|kind| {
            let sections = context.snapshot().key_sections(kind);
            sections.iter().map(|section| section.payloads.end).max()
        });
        let ends = ends.map(Option::unwrap_or_default);
        let pages = ends.map(|end| end.div_ceil(P::TERMS));
        let bytes = pages.iter().sum::<u64>() * size_of::<OnceLock<Box<P>>>() as u64;
        let mut memory = context.memory("filter");
        if !context.has_room(&mut memory, bytes) {
            return None;
        }
        Some(Self::over(ends, Room::OfQuery(memory, bytes)))
    }

    /// Pages that outlive a query: for terms whose payloads lie before these, one a kind, that may take so many bytes of
    /// the budget; `None` if there is no room for their lists.
    pub(super) fn shared(
        ends: [u64; KINDS.len()],
        budget: &MemoryBudget,
        bytes_max: u64,
    ) -> Option<Self> {
        let pages = ends.iter().map(|end| end.div_ceil(P::TERMS)).sum::<u64>();
        let bytes = pages * size_of::<OnceLock<Box<P>>>() as u64;
        let reservation = (bytes <= bytes_max).then(|| budget.try_reserve(bytes).ok());
        Some(Self::over(ends, Room::Shared(reservation??, bytes_max)))
    }

    fn over(ends: [u64; KINDS.len()], room: Room) -> Self {
        let list = |end: u64| (0..end.div_ceil(P::TERMS)).map(|_| OnceLock::new());
        Self {
            lists: ends.map(|end| list(end).collect()),
            room: Mutex::new(room),
            terms: ends.iter().sum(),
            made: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
        }
    }

    /// How many bytes are reserved.
    pub(super) fn bytes(&self) -> u64 {
        match &*self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            Room::OfQuery(_, bytes) => *bytes,
            Room::Shared(reservation, _) => reservation.bytes(),
        }
    }

    /// So many rows were asked for, for which pages may be made.
    pub(super) fn add_asked(&self, rows: usize) {
        self.asked.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// The place for the page of a term, and the term's place in it.
    fn place(&self, id: TermId) -> Option<(&OnceLock<Box<P>>, usize)> {
        let list = KINDS.iter().position(|kind| *kind == id.kind())?;
        let page = usize::try_from(id.payload() / P::TERMS).ok()?;
        let within = usize::try_from(id.payload() % P::TERMS).ok()?;
        Some((self.lists.get(list)?.get(page)?, within))
    }

    /// The page of a term, if it was made, and the term's place in it.
    pub(super) fn page(&self, id: TermId) -> Option<(&P, usize)> {
        let (place, within) = self.place(id)?;
        Some((place.get()?, within))
    }

    /// The same, after the page was made; `None` if the term has no place, or there are pages enough for so few rows.
    ///
    /// # Errors
    /// [`Refused`]
    pub(super) fn page_for(
        &self,
        id: TermId,
        context: &QueryContext,
    ) -> Result<Option<(&P, usize)>, Refused> {
        let Some((place, within)) = self.place(id) else {
            return Ok(None);
        };
        if place.get().is_none() {
            let rows = self.asked.load(Ordering::Relaxed);
            if self.made.load(Ordering::Relaxed) >= PAGES_MIN + rows / P::ROWS {
                return Ok(None);
            }
            if !self.has_room(context) {
                return Err(Refused);
            }
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Some((place.get_or_init(Box::default), within)))
    }

    /// Reserves a page; where two threads make one at a time, that is one too many.
    fn has_room(&self, context: &QueryContext) -> bool {
        let bytes = size_of::<P>() as u64;
        match &mut *self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            Room::OfQuery(memory, held) => {
                *held += bytes;
                context.has_room(memory, *held)
            }
            Room::Shared(reservation, bytes_max) => {
                reservation.bytes() + bytes <= *bytes_max && reservation.grow(bytes).is_ok()
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::operator::tests::spilling_context;

    /// Room for so many pages of each kind, with memory that is refused.
    pub(crate) fn pages<P: Page>(counts: [u64; KINDS.len()]) -> (QueryContext, TermPages<P>) {
        let context = spilling_context(3, 1 << 20);
        let room = Room::OfQuery(context.memory("filter"), 0);
        let pages = TermPages::over(counts.map(|count| count * P::TERMS), room);
        (context, pages)
    }

    /// The same, with memory that is given.
    pub(crate) fn pages_with_room<P: Page>(
        counts: [u64; KINDS.len()],
    ) -> (QueryContext, TermPages<P>) {
        let (context, pages) = pages(counts);
        let mut settings = context.settings().clone();
        settings.spill = None;
        let context = QueryContext::new(context.snapshot().clone(), settings);
        (context, pages)
    }

    /// As many bytes as it is about terms.
    struct Bytes(#[expect(dead_code, reason = "they are for their size")] [u8; 100]);

    #[derive(Default)]
    struct Nothing;

    impl Default for Bytes {
        fn default() -> Self {
            Self([0; 100])
        }
    }

    impl Page for Bytes {
        const TERMS: u64 = 100;
        const ROWS: u64 = 16;
    }

    impl Page for Nothing {
        const TERMS: u64 = 100;
        const ROWS: u64 = 16;
    }

    #[test]
    fn a_page_that_is_refused_is_told() {
        let (context, pages) = pages::<Bytes>([3, 0, 1, 2]);
        let id = TermId::new(Kind::Iri, 5);
        // Operators hold nothing there.
        assert!(pages.page_for(id, &context).is_err());
        assert!(pages.page(id).is_none());
    }

    #[test]
    fn terms_far_from_each_other_have_pages_as_rows_come() {
        let (context, pages) = pages_with_room::<Nothing>([200, 0, 0, 0]);
        let ids: Vec<TermId> = (0..200)
            .map(|page| TermId::new(Kind::Iri, page * Nothing::TERMS))
            .collect();
        let made = || {
            for id in &ids {
                assert!(pages.page_for(*id, &context).is_ok());
            }
            ids.iter().filter(|id| pages.page(**id).is_some()).count()
        };
        assert_eq!(made(), 64);
        pages.add_asked(16 * 36);
        assert_eq!(made(), 100);
    }

    #[test]
    fn shared_pages_keep_within_their_bytes() {
        let context = pages::<Nothing>([0; KINDS.len()]).0;
        let budget = MemoryBudget::new(1 << 20);
        let lists = 3 * size_of::<OnceLock<Box<Nothing>>>() as u64;
        let ends = [250, 0, 0, 0];
        assert!(TermPages::<Nothing>::shared(ends, &budget, lists - 1).is_none());
        let shared = TermPages::<Bytes>::shared(ends, &budget, lists + 250).unwrap();
        let page = |number| shared.page_for(TermId::new(Kind::Iri, number), &context);
        assert!(page(0).is_ok() && page(100).is_ok() && page(99).is_ok());
        assert!(page(200).is_err());
        assert_eq!((shared.bytes(), budget.used()), (lists + 200, lists + 200));
        drop(shared);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_has_no_place_has_no_page() {
        let (context, pages) = pages_with_room::<Nothing>([3, 0, 1, 2]);
        let none = [
            TermId::new(Kind::Iri, 300),
            TermId::new(Kind::NumericLiteral, 0),
            TermId::new(Kind::BlankNode, 0),
            TermId::TRUE,
        ];
        for id in none {
            assert!(matches!(pages.page_for(id, &context), Ok(None)), "{id:?}");
        }
        let last = TermId::new(Kind::Literal, 199);
        let page = pages.page_for(last, &context);
        assert!(matches!(page, Ok(Some((_, 99)))));
    }

    #[test]
    fn what_is_of_no_use_is_let_go() {
        let (context, pages) = pages::<Nothing>([246, 0, 0, 0]);
        let lazy = LazyPages(Mutex::new(State::Open(Arc::new(pages))));
        let open = || lazy.get(1, &context).is_some();
        let note = |asked, known| {
            let pages = lazy.get(1, &context).unwrap();
            lazy.note(&pages, asked, known, &context);
        };
        note(40_000, 3_000);
        note(40_000, 0);
        assert!(open(), "a part was known");
        note(20_000, 0);
        assert!(!open(), "hardly any was known");
    }
}
