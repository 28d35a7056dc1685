//! Batches decoded in pieces: as many rows at a time as have texts that fit.
//!
//! A batch whose texts are short is one piece. Where the texts do not fit, half of the rows are tried, down to one row;
//! the next batch begins with as many rows as fitted last, and twice as many each time that there was room to spare.
//!
//! # Limits
//! Up to [`FREE_BYTES`] of texts are not reserved, nor [`WRITTEN_FREE_BYTES`] of output. More texts are, with room for what
//! is written of them. A row that does not fit by itself is an error.

use stoa_executor::QueryContext;
use stoa_executor::memory::Memory;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::TermId;

use super::term::{TermSource, TermViews};
use crate::error::{Error, Result};

/// So many bytes of texts are not reserved,
const FREE_BYTES: usize = 64 << 10;
/// nor so many of what is written of them.
const WRITTEN_FREE_BYTES: usize = 128 << 10;

/// A piece has at most so many terms, but for a single row.
const TERMS_MAX: usize = 1 << 15;

/// So many bytes are kept for the next piece.
const KEPT_BYTES: usize = 256 << 10;

/// What is reserved for a byte of texts: the text itself, and what is written of it with quotes, names and datatypes.
const BYTES_EACH: usize = 4;

/// Bytes of texts that a piece of an answer has at most, but for a single row.
pub(crate) const ANSWER_PIECE_BYTES: usize = 1 << 20;

/// The same for a dump, whose terms share blocks of the dictionary the more, the more of them are read at a time.
pub(crate) const DUMP_PIECE_BYTES: usize = 4 << 20;

/// See the module header.
pub(crate) struct Pieces {
    bytes_max: usize,
    account: Account,
    /// How many rows may fit.
    rows: usize,
}

/// Whom memory is reserved for.
enum Account {
    /// A query, whose account begins with its first batch.
    Query(Option<Memory>),
    /// What is written without a query.
    Budget(Reservation),
}

impl Pieces {
    /// For the answer to a query, or a dump, with so many bytes of texts in a piece.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            account: Account::Query(None),
            rows: usize::MAX,
        }
    }

    /// For what is written without a query.
    pub(crate) fn within(budget: &MemoryBudget) -> Self {
        Self {
            account: Account::Budget(budget.nothing()),
            ..Self::new(ANSWER_PIECE_BYTES)
        }
    }

    /// Begins the account of a query.
    pub(super) fn of_query(&mut self, context: &QueryContext) {
        if let Account::Query(none @ None) = &mut self.account {
            *none = Some(context.memory("answer"));
        }
    }

    /// How many rows are tried next.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// So many rows did not fit.
    pub(super) fn halve(&mut self, rows: usize) {
        self.rows = rows.div_ceil(2).max(1);
    }

    /// What fitted had so many bytes: there may be room for more.
    pub(super) const fn fitted(&mut self, bytes: usize) {
        if self.rows < TERMS_MAX && bytes < self.bytes_max / 4 {
            self.rows = self.rows.saturating_mul(2);
        }
    }

    /// Decodes the terms of the next rows into `views`; returns how many rows. There are `left` rows, at least one, each
    /// with `width` ids; `ids` gives those of the first so many.
    ///
    /// # Errors
    /// `MemoryExceeded` if the texts of one row have no room, and what reading them gives.
    pub(crate) fn load<I: Iterator<Item = TermId>>(
        &mut self,
        views: &mut TermViews,
        (left, width): (usize, usize),
        ids: impl Fn(usize) -> I,
        source: &impl TermSource,
    ) -> Result<usize> {
        let mut rows = left.min(self.rows).min((TERMS_MAX / width.max(1)).max(1));
        loop {
            let mut refused = None;
            let mut fits = |bytes: usize| match bytes <= FREE_BYTES {
                true => true,
                false if rows > 1 => {
                    bytes <= self.bytes_max && self.account.try_require(BYTES_EACH * bytes)
                }
                false => {
                    refused = self.account.require(bytes.saturating_mul(2)).err();
                    refused.is_none()
                }
            };
            if views.load_while(ids(rows), source, &mut fits)? {
                self.fitted(views.memory_bytes());
                return Ok(rows);
            }
            if let Some(error) = refused {
                return Err(error);
            }
            self.halve(rows);
            rows = self.rows;
        }
    }

    /// How many bytes may be written of what `views` holds before it goes out.
    pub(crate) fn room(&self, views: &TermViews) -> usize {
        let reserved = self.account.reserved_bytes();
        reserved
            .saturating_sub(views.memory_bytes())
            .max(FREE_BYTES)
    }

    /// Counts the bytes that were written of so many rows, with what is still decoded. A single row may be longer than there was
    /// [`room`](Self::room) for.
    ///
    /// # Errors
    /// `MemoryExceeded` if such a row has no room.
    pub(crate) fn wrote(&mut self, views: &TermViews, rows: usize, bytes: usize) -> Result<()> {
        match rows == 1 && bytes > 2 * WRITTEN_FREE_BYTES {
            true => self.account.require(views.memory_bytes() + bytes),
            false => Ok(()),
        }
    }

    /// All of a piece was written.
    pub(crate) fn end(&mut self, views: &mut TermViews) {
        if views.memory_bytes() > KEPT_BYTES {
            views.release();
            self.account.shrink_to(KEPT_BYTES);
        }
    }

    /// Gives everything back; the next piece may be long in coming.
    pub(crate) fn rest(&mut self, views: &mut TermViews) {
        views.release();
        self.account.shrink_to(0);
    }
}

impl Account {
    /// Reserves so many bytes in all if they are free, and nobody has more claim to them.
    fn try_require(&mut self, bytes: usize) -> bool {
        match self {
            Self::Query(memory) => memory
                .as_mut()
                .is_some_and(|memory| memory.try_require(bytes as u64)),
            Self::Budget(reservation) => {
                let bytes = (bytes as u64).max(reservation.bytes());
                reservation.resize(bytes).is_ok()
            }
        }
    }

    fn require(&mut self, bytes: usize) -> Result<()> {
        match self {
            Self::Query(Some(memory)) => Ok(memory.require(bytes as u64)?),
            Self::Query(None) => Err(Error::Internal("an answer without an account".to_owned())),
            Self::Budget(reservation) => {
                let bytes = (bytes as u64).max(reservation.bytes());
                reservation
                    .resize(bytes)
                    .map_err(|exceeded| Error::MemoryExceeded {
                        operator: "answer".to_owned(),
                        requested_bytes: exceeded.requested,
                        limit_bytes: exceeded.limit,
                    })
            }
        }
    }

    fn reserved_bytes(&self) -> usize {
        let bytes = match self {
            Self::Query(memory) => memory.as_ref().map_or(0, Memory::reserved_bytes),
            Self::Budget(reservation) => reservation.bytes(),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn shrink_to(&mut self, bytes: usize) {
        match self {
            Self::Query(Some(memory)) => memory.shrink_to(bytes as u64),
            Self::Query(None) => {}
            Self::Budget(reservation) => {
                reservation.shrink(reservation.bytes().saturating_sub(bytes as u64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::Term;
    use stoa_quadstore::TermTexts;
    use stoa_terms::Kind;

    use super::*;
    use crate::results::term::Fits;

    /// Each term has so many bytes as its number says, in thousands.
    struct Thousands;

    impl TermSource for Thousands {
        fn kind(&self, id: TermId) -> Kind {
            id.kind()
        }

        fn texts_while(&self, ids: &[TermId], out: &mut TermTexts, fits: Fits<'_>) -> Result<bool> {
            for id in ids {
                out.push(&vec![b'x'; usize::try_from(id.payload()).unwrap() * 1_000]);
                if !fits(out.size_bytes()) {
                    return Ok(false);
                }
            }
            Ok(true)
        }

        fn term(&self, _: TermId) -> Result<Option<Term>> {
            Ok(None)
        }
    }

    /// How many rows each piece has; or none if one has no room.
    fn pieces(lengths: &[u64], pieces: &mut Pieces) -> Result<Vec<usize>> {
        let mut views = TermViews::default();
        let (mut start, mut counts) = (0, Vec::new());
        while start < lengths.len() {
            let ids = |rows: usize| {
                let lengths = lengths.iter().skip(start).take(rows);
                lengths.map(|length| TermId::new(Kind::Iri, *length))
            };
            let left = (lengths.len() - start, 1);
            let rows = pieces.load(&mut views, left, ids, &Thousands)?;
            assert_eq!(views.len(), rows);
            pieces.end(&mut views);
            counts.push(rows);
            start += rows;
        }
        Ok(counts)
    }

    #[test]
    fn short_texts_are_one_piece_and_nothing_is_reserved() {
        let budget = MemoryBudget::new(0);
        let mut own = Pieces::within(&budget);
        assert_eq!(pieces(&[1; 60], &mut own).unwrap(), [60]);
        assert_eq!(
            pieces(&[0; TERMS_MAX + 1], &mut own).unwrap(),
            [TERMS_MAX, 1]
        );
    }

    #[test]
    fn long_texts_are_cut_and_room_is_used_again() {
        let budget = MemoryBudget::new(64 << 20);
        let mut own = Pieces::within(&budget);
        let counts = pieces(&[100; 64], &mut own).unwrap();
        assert!(
            counts.iter().all(|rows| (4..=10).contains(rows)),
            "{counts:?}"
        );
        assert!(budget.used() <= (KEPT_BYTES as u64).next_multiple_of(64 << 10));
        let counts = pieces(&[1; 200], &mut own).unwrap();
        assert!(counts.len() < 8, "{counts:?}");
        assert_eq!(pieces(&[1; 60], &mut own).unwrap(), [60]);
    }

    #[test]
    fn where_memory_is_short_pieces_are_shorter() {
        let budget = MemoryBudget::new(1 << 20);
        let mut own = Pieces::within(&budget);
        let counts = pieces(&[100; 16], &mut own).unwrap();
        assert!(counts.iter().all(|rows| *rows <= 2), "{counts:?}");
        assert!(matches!(
            pieces(&[1, 600, 1], &mut own),
            Err(Error::MemoryExceeded { .. })
        ));
        assert!(budget.peak() <= 1 << 20);
    }
}
