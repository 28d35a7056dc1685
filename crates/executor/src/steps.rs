//! Steps of work inside expressions, counted so that none of them holds a thread.
//!
//! An expression is evaluated for a whole batch at once, and a single row can be long work: a pattern to compile, a text
//! of many megabytes. Whatever loops over rows or bytes takes steps from here. Once enough of them are taken, the query
//! checks whether it was cancelled or its time is up, and lets other queries have the worker (`turns`).
//!
//! A step is about what a matcher of patterns does for one byte, or a copy for some bytes: some nanoseconds.
//!
//! Functions return `None` for an expression error, so the reason why a query must end does not fit into what they
//! return. [`Steps`] keeps it until the loop over the rows asks for it.
//!
//! # Limits
//! At most [`STEPS_PER_CHECK`] steps and one indivisible piece of work pass between two checks. The largest such piece
//! is the compilation of one pattern (`function::regex`).

use std::cell::RefCell;

use crate::context::QueryContext;
use crate::error::{Error, Result};

/// After so many steps a query checks whether it may go on: about a millisecond.
pub(crate) const STEPS_PER_CHECK: u64 = 256 << 10;

/// What one call of a function costs beside the bytes that it reads.
pub(crate) const CALL_STEPS: u64 = 64;

/// So many bytes are worked on at most before steps are taken for them.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Takes steps for one evaluation, and keeps the error that ends it.
pub(crate) struct Steps<'c> {
    context: &'c QueryContext,
    failed: RefCell<Option<Error>>,
}

impl<'c> Steps<'c> {
    pub(crate) const fn new(context: &'c QueryContext) -> Self {
        Self {
            context,
            failed: RefCell::new(None),
        }
    }

    pub(crate) const fn context(&self) -> &'c QueryContext {
        self.context
    }

    /// Takes so many steps. `None` if the query must end: the caller returns at once.
    pub(crate) fn take(&self, steps: u64) -> Option<()> {
        self.keep(self.context.take_steps(steps))
    }

    /// The same for a text, some bytes of which are a step.
    pub(crate) fn take_bytes(&self, bytes: usize) -> Option<()> {
        self.take(bytes as u64 / 4)
    }

    /// The value of `result`; an error ends the query.
    pub(crate) fn keep<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                // The first one says why.
                self.failed.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    /// To be asked after each row.
    ///
    /// # Errors
    /// What ends the query, if anything did.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failed.borrow_mut().take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}
