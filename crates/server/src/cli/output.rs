//! Standard output and standard error: data on the one, all else on the other, and no complaint when
//! a reader has gone.

use std::io::{self, ErrorKind, Write as _};

use stoa_database::Error;

/// A line, or several, on standard error. That nobody may read it is no reason to fail.
///
/// Messages show pieces of files and queries: what would command the terminal is written as an escape.
pub(super) fn say(text: &str) {
    let mut line = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if letter.is_control() && !matches!(letter, '\n' | '\t') {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    drop(io::stderr().write_all(line.as_bytes()));
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
