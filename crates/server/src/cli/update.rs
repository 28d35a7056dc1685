//! `update`: requests of SPARQL Update, one commit each; what they changed goes to standard error.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use stoa_database::{
    ArchiveOptions, CancelHandle, Error, Runtime, RuntimeOptions, UpdateOptions, UpdateSummary,
};

use super::arguments::{DefaultGraph, Update};
use super::backup::archive_or_say;
use super::commands::folder;
use super::opening::Opened;
use super::output::say;
use super::query::{read_text, with_memory};
use super::remote::Remote;
use super::sizes::{count, counted};
use crate::memory::limit_memory;

/// An update, and the file that it was read from, if it was.
pub(super) type Request<'a> = (Option<&'a Path>, String);

pub(super) fn update(arguments: Update, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    // All files are read before anything is done: a wrong name makes no database.
    let requests = match &arguments.update {
        Some(text) => vec![(None, text.clone())],
        None => arguments
            .file
            .iter()
            .map(|path| Ok((Some(path.as_path()), read_text(path, "an update")?)))
            .collect::<anyhow::Result<Vec<Request<'_>>>>()?,
    };
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.update(&requests, &arguments, interrupted);
    }
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: arguments.limits.memory.map(limit_memory).transpose()?,
        fetch: arguments
            .limits
            .fetch()
            .context("cannot start the thread for SERVICE")?,
        load: arguments
            .documents
            .fetch()
            .context("cannot start the thread for LOAD")?,
        io: arguments.place.io,
        durability: arguments.durability.unwrap_or_default(),
        ..RuntimeOptions::default()
    })?;
    let path = folder(&arguments.place)?;
    let archive = arguments.archive_log.as_deref().map(ArchiveOptions::new);
    let opened = Opened::open(&runtime, path, arguments.create, archive.as_ref())?;
    let done = run(&opened, &requests, &arguments, interrupted);
    if done.is_err() {
        opened.discard_if_new();
    } else {
        archive_or_say(&opened.database);
    }
    done?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the updates, one commit each.
fn run(
    opened: &Opened,
    requests: &[Request<'_>],
    arguments: &Update,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let database = &opened.database;
    arguments.retain.apply(database)?;
    let options = UpdateOptions {
        base: arguments.base.clone(),
        timeout: arguments.limits.timeout,
        default_graph_union: arguments.limits.default_graph == DefaultGraph::Union,
        message: arguments.message.clone(),
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
        ..UpdateOptions::default()
    };
    for (index, (file, text)) in requests.iter().enumerate() {
        let done = database
            .update(text, &options)
            .map_err(|error| match file {
                // What stands before it is committed: the name tells how far it came.
                Some(file) => {
                    let error = with_memory(error, arguments.limits.memory);
                    error.context(file.display().to_string())
                }
                None => as_file(error, text, arguments.limits.memory),
            })?;
        if index == 0 {
            opened.say_created();
        }
        say(&told(*file, &done));
    }
    Ok(())
}

/// What an update did, in a line.
pub(super) fn told(file: Option<&Path>, done: &UpdateSummary) -> String {
    let name = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
    format!(
        "{name}{} added, {} removed; commit {}",
        counted(done.added, "quad"),
        count(done.removed),
        done.commit
    )
}

/// Tells who gave the name of a file in place of an update how to give a file.
fn as_file(error: Error, text: &str, memory: Option<u64>) -> anyhow::Error {
    match error {
        Error::Syntax(_) if Path::new(text).is_file() => {
            anyhow::anyhow!("'{text}' is a file and no update: run it with -f {text}")
        }
        error => with_memory(error, memory),
    }
}
