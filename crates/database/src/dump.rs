//! Writes all quads of a database.

use std::io::Write;

use stoa_quadstore::Snapshot;

use crate::error::{Error, Result};
use crate::options::DumpFormat;
use crate::query::CancelHandle;

/// Writes all quads of a snapshot; returns how many.
pub(crate) fn dump(
    _snapshot: &Snapshot,
    _format: DumpFormat,
    _out: &mut dyn Write,
    _cancel: &CancelHandle,
) -> Result<u64> {
    Err(Error::Unsupported("dump".to_owned()))
}
