//! `check`: of a database, of backups and of archives.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use stoa_database::{CancelHandle, Database, Runtime, RuntimeOptions};

use super::arguments::Check;
use super::commands::open_shared;
use super::output::say;
use super::progress::Drawn;
use super::sizes::{bytes, counted};

pub(super) fn check(arguments: &Check, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let cancel = CancelHandle::from_flag(Arc::clone(interrupted));
    let mut is_sound = true;
    if let Some(path) = &arguments.db {
        is_sound &= check_database(&open_shared(path, arguments.io)?, &cancel)?;
    }
    let runtime = Runtime::new(RuntimeOptions {
        io: arguments.io,
        ..RuntimeOptions::default()
    })?;
    for folder in &arguments.backup {
        is_sound &= check_kept(&runtime, folder, &cancel)?;
    }
    Ok(match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Checks a database; whether all is well.
fn check_database(database: &Database, cancel: &CancelHandle) -> anyhow::Result<bool> {
    let progress = Drawn::new(database.runtime().clock());
    let result = database.check(&progress, cancel);
    progress.finish();
    let summary = result?;
    let verdict = verdict(
        &summary.problems,
        summary.problems_suppressed,
        "restore this database or load it again",
    )?;
    say(&format!(
        "checked {}, {} in each sort order, {}: {verdict}",
        bytes(summary.bytes),
        counted(summary.quads, "quad"),
        counted(summary.terms, "term"),
    ));
    Ok(summary.problems.is_empty())
}

/// Checks backups or an archive; whether all is well.
fn check_kept(runtime: &Runtime, folder: &Path, cancel: &CancelHandle) -> anyhow::Result<bool> {
    let progress = Drawn::new(runtime.clock());
    let result = Database::check_kept(runtime, folder, &progress, cancel);
    progress.finish();
    let summary = result?;
    let verdict = verdict(
        &summary.problems,
        summary.problems_suppressed,
        "make a new backup in another folder",
    )?;
    say(&format!(
        "checked {}, {}, {}, {} of loads, {}: {verdict}",
        folder.display(),
        counted(summary.backups, "backup"),
        counted(summary.log_files, "log file"),
        counted(summary.change_files, "change file"),
        bytes(summary.bytes),
    ));
    Ok(summary.problems.is_empty())
}

/// Lists problems, and says what they come to.
fn verdict(problems: &[String], suppressed: u64, advice: &str) -> anyhow::Result<String> {
    let mut out = std::io::stdout().lock();
    for problem in problems {
        writeln!(out, "{problem}").context("cannot write to standard output")?;
    }
    let found = problems.len() as u64 + suppressed;
    Ok(match found {
        0 => "all is well".to_owned(),
        _ => format!("{}: {advice}", counted(found, "problem")),
    })
}
