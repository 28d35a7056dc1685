//! `backup` and `restore`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stoa_database::{
    Access, BackupSummary, CancelHandle, Database, OpenOptions, RestoreOptions, Runtime,
    RuntimeOptions,
};

use super::arguments::{Backup, Restore};
use super::output::say;
use super::progress::Drawn;
use super::sizes::{bytes, counted};

pub(super) fn backup(
    arguments: &Backup,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::new(RuntimeOptions {
        io: arguments.folder.io,
        ..RuntimeOptions::default()
    })?;
    let options = OpenOptions {
        access: Access::Exclusive,
        create: false,
    };
    let database = Database::open(&runtime, &arguments.folder.db, &options)?;
    let progress = Drawn::new(runtime.clock());
    let cancel = CancelHandle::from_flag(Arc::clone(interrupted));
    let result = database.backup(&arguments.to, &progress, &cancel);
    progress.finish();
    let text = summary(&result?);
    say(&format!("{}: {text}", arguments.to.display()));
    Ok(ExitCode::SUCCESS)
}

/// What a backup copied.
fn summary(summary: &BackupSummary) -> String {
    format!(
        "backup {} holds commit {}; {} were copied, {} of these of the log; {} were there already",
        summary.number,
        summary.commit,
        bytes(summary.extent_bytes + summary.log_bytes),
        bytes(summary.log_bytes),
        bytes(summary.kept_bytes),
    )
}

pub(super) fn restore(
    arguments: Restore,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: arguments.memory,
        threads: arguments.threads,
        io: arguments.folder.io,
        ..RuntimeOptions::default()
    })?;
    let progress = Drawn::new(runtime.clock());
    let options = RestoreOptions {
        at: arguments.at,
        archives: arguments.archive_log,
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
    };
    let path = &arguments.folder.db;
    let result = Database::restore(&runtime, &arguments.from, path, &options, &progress);
    progress.finish();
    let summary = result?;
    say(&format!(
        "{}: {} as of commit {}, from backup {} and {} of the log, on a new timeline",
        path.display(),
        counted(summary.quads, "quad"),
        summary.commit,
        summary.backup,
        counted(summary.replayed, "commit"),
    ));
    Ok(ExitCode::SUCCESS)
}
