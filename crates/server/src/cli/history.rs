//! `log`: the commits that are kept; `diff`: what changed between two of them.

use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use stoa_database::CancelHandle;

use super::arguments::{Diff, Log};
use super::commands::open_to_read;
use super::output::say;
use super::remote::Remote;
use super::sizes::{count, counted};
use crate::commit_table::{CommitTable, TableFormat};

const NO_OUTPUT: &str = "cannot write to standard output";

/// The format of a list: a table for people, TSV for programs.
pub(super) fn list_format(wanted: Option<TableFormat>) -> TableFormat {
    wanted.unwrap_or_else(|| {
        if std::io::stdout().is_terminal() {
            TableFormat::Table
        } else {
            TableFormat::Tsv
        }
    })
}

pub(super) fn log(arguments: &Log, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.log(arguments, interrupted);
    }
    let database = open_to_read(&arguments.place)?;
    let format = list_format(arguments.format);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut table = CommitTable::new(format);
    let limit = arguments.limit.unwrap_or(u64::MAX);
    table.begin(&mut out).context(NO_OUTPUT)?;
    let mut commits = database.list_commits(None);
    while table.count() < limit
        && let Some(info) = commits.next()?
    {
        table.add(&info.into(), &mut out).context(NO_OUTPUT)?;
    }
    table.end(&mut out).context(NO_OUTPUT)?;
    out.flush().context(NO_OUTPUT)?;
    let listed = table.count();
    if listed < limit {
        let retention = database.retention().to_string();
        say_listed(
            listed,
            database.commit(),
            database.oldest_commit(),
            &retention,
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how much of the commits was listed, and what can be read.
pub(super) fn say_listed(listed: u64, commits: u64, oldest: u64, retention: &str) {
    say(&format!(
        "{} of {} commits listed; the oldest state that can be read is commit {oldest} (--retain {retention})",
        count(listed),
        count(commits),
    ));
}

pub(super) fn diff(arguments: &Diff, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.diff(arguments, interrupted);
    }
    let database = open_to_read(&arguments.place)?;
    let cancel = CancelHandle::from_flag(Arc::clone(interrupted));
    let mut patch = database.diff(&arguments.from, &arguments.to, &cancel)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut lines = Vec::new();
    let mut more = true;
    while more {
        more = patch.step(&mut lines)?;
        out.write_all(&lines).context(NO_OUTPUT)?;
        lines.clear();
    }
    out.flush().context(NO_OUTPUT)?;
    say_compared(patch.added(), patch.removed());
    Ok(ExitCode::SUCCESS)
}

/// Says how much of a patch there was.
pub(super) fn say_compared(added: u64, removed: u64) {
    say(&format!(
        "{} added, {} removed",
        counted(added, "quad"),
        count(removed)
    ));
}
