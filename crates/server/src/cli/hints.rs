//! What to do about an error, where that depends on how the command line was used.

use std::io::ErrorKind;
use std::path::Path;

use stoa_database::Error;

use super::opening::similar;

/// What follows the message of an error, if there is something to be done about it here.
pub(super) fn hint(error: &Error) -> Option<String> {
    match error {
        Error::NotADatabase { directory, .. } if is_absent_or_empty(directory) => {
            Some(no_database(directory))
        }
        Error::UnknownFormat { input } if input.contains(".rdfp") => {
            Some("`stoa apply` applies patches".to_owned())
        }
        Error::Io {
            operation: "create",
            source,
            ..
        } if source.kind() == ErrorKind::NotFound => {
            Some("make the folder above it first".to_owned())
        }
        Error::Io {
            operation: "list",
            source,
            ..
        } if source.kind() == ErrorKind::NotADirectory => Some("a folder is wanted".to_owned()),
        _ => None,
    }
}

/// How to make a database there, and which ones beside it may have been meant.
fn no_database(directory: &str) -> String {
    let creates = matches!(
        std::env::args_os()
            .nth(1)
            .as_deref()
            .and_then(|command| command.to_str()),
        Some("serve" | "update")
    );
    let make = if creates {
        format!("--create makes an empty one, `stoa load --db {directory} FILE` one with data")
    } else {
        format!("`stoa load --db {directory} FILE` makes one")
    };
    match &similar(Path::new(directory))[..] {
        [] => make,
        names => format!("did you mean {}? {make}", names.join(" or ")),
    }
}

/// Whether `load` would make a database there.
fn is_absent_or_empty(directory: &str) -> bool {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Says what to do where a query or an update was not quoted, so that the shell has cut it into several arguments.
pub(super) fn unquoted(error: &clap::Error) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind as Kind};
    let command = std::env::args_os().nth(1)?;
    let tip = match command.to_str()? {
        "query" => "tip: quote the query as a whole: stoa query --db DIR 'SELECT * { ?s ?p ?o }'",
        "update" => {
            "tip: quote the update as a whole: stoa update --db DIR 'DELETE WHERE { ?s ?p ?o }'"
        }
        _ => return None,
    };
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_word = !argument.starts_with('-');
    (is_word && error.kind() == Kind::UnknownArgument).then_some(tip)
}
