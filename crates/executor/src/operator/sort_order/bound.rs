//! How far the rows reach that a top k keeps, for others to be dropped as they come.

use std::cmp::Ordering;
use std::ops::Range;

use stoa_quadstore::TermTexts;
use stoa_terms::value::order_inline;
use stoa_terms::{Kind, TermId, key};

use crate::context::QueryContext;
use crate::error::{Error, Result};

/// The first key of the last row that is kept.
pub(in crate::operator) struct Bound {
    id: TermId,
    column: usize,
    /// What the order of a key behind it is.
    beyond: Ordering,
    /// Payloads of ids of its kind that have the order of their terms, or come after all that they might stand among.
    ordered: Range<u64>,
}

impl Bound {
    /// Of a key with this column and direction.
    ///
    /// # Errors
    /// Those of reading the text of a literal.
    pub(in crate::operator) fn new(
        id: TermId,
        (column, descending): (usize, bool),
        context: &QueryContext,
    ) -> Result<Self> {
        Ok(Self {
            id,
            column,
            beyond: match descending {
                true => Ordering::Less,
                false => Ordering::Greater,
            },
            ordered: match is_in_order(id, descending, context)? {
                true => section(id, context),
                false => 0..0,
            },
        })
    }

    /// The column of the key.
    pub(in crate::operator) const fn column(&self) -> usize {
        self.column
    }

    /// Whether ids tell that it comes before `id`, and is not equal to it.
    pub(in crate::operator) fn is_before(&self, id: TermId) -> bool {
        if id.kind() == self.id.kind() && self.ordered.contains(&id.payload()) {
            return id.payload().cmp(&self.id.payload()) == self.beyond;
        }
        order_inline(id, self.id) == Some(self.beyond)
    }
}

/// Whether what stands beyond it in the dictionary comes beyond it. Literals that are no strings stand among strings there,
/// and after them in the order.
fn is_in_order(id: TermId, descending: bool, context: &QueryContext) -> Result<bool> {
    match id.kind() {
        Kind::Iri => Ok(true),
        Kind::Literal if !descending => {
            let (mut texts, mut memory) = (TermTexts::default(), context.memory("top_k"));
            match context.texts_within(&[id], &mut texts, &mut memory, 0) {
                Ok(()) => Ok(key::is_string(texts.get(0))),
                // It may be long; rows behind it are dropped with the next cut.
                Err(Error::MemoryExceeded { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
        _ => Ok(false),
    }
}

/// The payloads of what the dictionary has in one order with a term.
fn section(id: TermId, context: &QueryContext) -> Range<u64> {
    let sections = context.snapshot().key_sections(id.kind());
    let mut sections = sections.into_iter().filter(|section| section.is_ordered);
    let section = sections.find(|section| section.payloads.contains(&id.payload()));
    section.map_or(0..0, |section| section.payloads)
}
