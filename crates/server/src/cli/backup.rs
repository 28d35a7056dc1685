//! `backup`, `restore` and `compact`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stoa_database::{
    Access, BackupOptions, BackupSummary, CancelHandle, CompactOptions, CompactSummary, Database,
    Moment, OpenOptions, RestoreOptions, Runtime, RuntimeOptions,
};

use super::arguments::{Backup, Checkpoint, Restore};
use super::commands::{folder, open_alone};
use super::output::say;
use super::progress::Drawn;
use super::remote::Remote;
use super::sizes::{bytes, count, counted};
use crate::memory::watched;

pub(super) fn backup(
    arguments: &Backup,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.backup(arguments, interrupted);
    }
    let runtime = Runtime::new(RuntimeOptions {
        io: arguments.place.io,
        ..RuntimeOptions::default()
    })?;
    let options = OpenOptions {
        access: Access::Exclusive,
        create: false,
    };
    let database = Database::open(&runtime, folder(&arguments.place)?, &options)?;
    let progress = Drawn::new(runtime.clock());
    let options = BackupOptions {
        history: !arguments.no_history,
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
    };
    let result = database.backup(&arguments.to, &options, &progress);
    progress.finish();
    say_backup(&arguments.to, &result?);
    Ok(ExitCode::SUCCESS)
}

/// Says what a backup has copied.
pub(super) fn say_backup(target: &Path, done: &BackupSummary) {
    say(&format!("{}: {}", target.display(), summary(done)));
}

/// Copies what was committed into the archive, before the database is closed; says so if it fails.
pub(super) fn archive_or_say(database: &Database) {
    if let Err(error) = database.archive() {
        say(&format!(
            "the archive does not have the last commits: {:#}; they are kept, and copied when the database is next \
             opened with --archive-log",
            anyhow::Error::from(error)
        ));
    }
}

pub(super) fn compact(
    arguments: &Checkpoint,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.compact(interrupted);
    }
    let limits = (arguments.memory, arguments.threads);
    let database = open_alone(&arguments.place, limits, &arguments.archive)?;
    let options = CompactOptions {
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
        ..CompactOptions::default()
    };
    say_compact(&database.compact(&options)?);
    archive_or_say(&database);
    Ok(ExitCode::SUCCESS)
}

/// Says what a compaction has made of a database.
pub(super) fn say_compact(summary: &CompactSummary) {
    let ([terms, left], [before, after]) = (summary.terms, summary.data_bytes);
    say(&format!(
        "{} and {} of {}; the data files take {} instead of {}; commit {}",
        counted(summary.quads, "quad"),
        count(left),
        counted(terms, "term"),
        bytes(after),
        bytes(before),
        summary.commit,
    ));
    if summary.passes == 1 && after > before {
        say(
            "the old data are still read, or kept as earlier commits: compact once more when they are not, \
             to make the files short",
        );
    }
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
        memory_bytes: arguments.memory.map(watched),
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
    if summary.commit == 0 && matches!(options.at, Some(Moment::Time(_))) {
        say("nothing had been committed at the time that --at gives: the database is empty");
    }
    Ok(ExitCode::SUCCESS)
}
