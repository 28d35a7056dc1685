//! Standard output and standard error: data on the one, all else on the other, and no complaint when
//! a reader has gone.

use std::io::{self, ErrorKind, Write as _};

use stoa_database::Error;

/// One line on standard error. That nobody may read it is no reason to fail.
pub(super) fn say(text: &str) {
    drop(io::stderr().write_all(format!("{text}\n").as_bytes()));
}

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
