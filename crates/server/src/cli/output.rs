//! Standard output: data only, and no complaint when its reader has gone.

use std::io::{self, ErrorKind};

use stoa_database::Error;

/// Whether the error is that nobody reads standard output any more, as in `stoa dump | head`.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        if let Some(Error::Output(source)) = cause.downcast_ref::<Error>() {
            return source.kind() == ErrorKind::BrokenPipe;
        }
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}
