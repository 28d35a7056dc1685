//! Unit: one solution that binds nothing. Empty: none.
//!
//! Output order: none.

use super::Operator;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;

struct Unit {
    given: bool,
}

pub(super) fn unit() -> Box<dyn Operator> {
    Box::new(Unit { given: false })
}

pub(super) fn empty() -> Box<dyn Operator> {
    Box::new(Unit { given: true })
}

impl Operator for Unit {
    fn next(&mut self, _: &QueryContext) -> Result<Step> {
        if std::mem::replace(&mut self.given, true) {
            return Ok(Step::Done);
        }
        Ok(Step::Batch(Batch {
            columns: Vec::new(),
            rows: 1,
        }))
    }
}
