//! `load`, `dump`, `info`, `check` and `checkpoint`.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use stoa_database::{
    ArchiveOptions, CancelHandle, Database, Info, Input, IoCalls, JsonLdOptions, LoadOptions,
    LoadSummary, OpenOptions, Runtime, RuntimeOptions, Skipped,
};

use super::arguments::{Archive, Checkpoint, Dump, Folder, Load, Place, Retain};
use super::backup::archive_or_say;
use super::opening::Opened;
use super::output::say;
use super::progress::Drawn;
use super::query::with_memory;
use super::remote::Remote;
use super::sizes::{bytes, count, counted, rate, to_f64};
use crate::memory::{limit_memory, watched};

/// Bytes that are gathered before they go to standard output.
const OUTPUT_BUFFER_BYTES: usize = 1 << 18;

pub(super) fn load(arguments: Load, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: arguments.memory.map(watched),
        threads: arguments.threads,
        io: arguments.place.io,
        ..RuntimeOptions::default()
    })?;
    let (place, retain) = (arguments.place.clone(), arguments.retain);
    let archive = arguments
        .archive
        .archive_log
        .clone()
        .map(ArchiveOptions::new);
    let options = load_options(arguments, CancelHandle::from_flag(Arc::clone(interrupted)))?;
    // A mistake on the command line makes no database.
    options.verify()?;
    match Remote::of(&place)? {
        Some(_) if retain.retain.is_some() => {
            let error = stoa_database::Error::InvalidOption {
                option: "--retain",
                reason: "a server is told by `stoa serve --retain`".to_owned(),
            };
            Err(error.into())
        }
        Some(remote) => remote.load(&runtime, &options, interrupted),
        None => {
            let path = folder(&place)?;
            let opened = Opened::open(&runtime, path, true, archive.as_ref())?;
            load_into(opened, path, options, retain)
        }
    }
}

pub(super) fn folder(place: &Place) -> anyhow::Result<&Path> {
    let folder = place.db.as_deref();
    folder.context("name the folder of the database with --db")
}

fn load_options(arguments: Load, cancel: CancelHandle) -> anyhow::Result<LoadOptions> {
    let read = |file: &Path| {
        std::fs::read(file).with_context(|| format!("cannot read the context {}", file.display()))
    };
    let contexts = arguments
        .context
        .into_iter()
        .map(|(url, file)| Ok((url, read(&file)?)))
        .collect::<anyhow::Result<_>>()?;
    let expand_context = arguments.expand_context.as_deref().map(read).transpose()?;
    Ok(LoadOptions {
        inputs: arguments.inputs.into_iter().map(Input::from).collect(),
        format: arguments.format,
        graph: arguments.graph,
        base: arguments.base,
        scheme: arguments.scheme,
        contexts,
        json_ld: JsonLdOptions {
            expand_context,
            direction: arguments.rdf_direction,
            is_1_0: false,
        },
        lenient: arguments.lenient,
        memory_bytes: arguments.memory,
        threads: arguments.threads,
        cancel,
    })
}

/// Loads into a folder.
fn load_into(
    opened: Opened,
    path: &Path,
    options: LoadOptions,
    retain: Retain,
) -> anyhow::Result<ExitCode> {
    let is_lenient = options.lenient;
    let clock = opened.database.runtime().clock();
    let started = clock.monotonic();
    let progress = Drawn::new(Arc::clone(&clock));
    let result = retain
        .apply(&opened.database)
        .and_then(|()| opened.database.load(options, &progress));
    progress.finish();
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => {
            say_unchanged(opened, path);
            return Err(error.into());
        }
    };
    opened.say_created();
    let seconds = (clock.monotonic() - started).as_secs_f64().max(0.001);
    say_loaded(&summary, seconds);
    if is_lenient {
        say_skipped(&summary.skipped);
    }
    archive_or_say(&opened.database);
    Ok(ExitCode::SUCCESS)
}

/// Says what a load has done.
pub(super) fn say_loaded(summary: &LoadSummary, seconds: f64) {
    say(&format!(
        "read {} from {} ({}) in {seconds:.1} s, {} a second",
        counted(summary.quads_read, "quad"),
        counted(summary.inputs, "input"),
        bytes(summary.bytes_read),
        rate(summary.quads_read, seconds),
    ));
    say(&format!(
        "{} and {} were new; commit {}; temporary files took at most {}",
        counted(summary.quads_new, "quad"),
        counted(summary.terms_new, "term"),
        summary.commit,
        bytes(summary.temp_peak_bytes),
    ));
}

/// Says what a lenient load left out: the mistakes, then how many there are of each input and in all.
pub(super) fn say_skipped(skipped: &Skipped) {
    let listed = skipped.mistakes.len();
    for mistake in &skipped.mistakes {
        say(&format!("skipped {mistake}"));
    }
    if skipped.total > u64::try_from(listed).unwrap_or(u64::MAX) {
        say(&format!("only the first {listed} are listed"));
    }
    for (input, number) in &skipped.inputs {
        say(&format!("{input}: {} skipped", count(*number)));
    }
    say(&match skipped.total {
        0 => "nothing was skipped: no line or statement is damaged".to_owned(),
        1 => "1 damaged line or statement was skipped".to_owned(),
        total => format!("{} damaged lines or statements were skipped", count(total)),
    });
}

/// Says that a failed load has left nothing behind.
fn say_unchanged(opened: Opened, path: &Path) {
    let path = path.display();
    say(&if opened.discard_if_new() {
        format!("nothing was loaded; no database was made in {path}")
    } else {
        format!("nothing was loaded; the database {path} is as it was")
    });
}

pub(super) fn dump(arguments: &Dump, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.dump(arguments, interrupted);
    }
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: arguments.memory.map(limit_memory).transpose()?,
        io: arguments.place.io,
        ..RuntimeOptions::default()
    })?;
    let database = Database::open(&runtime, folder(&arguments.place)?, &OpenOptions::default())?;
    let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, std::io::stdout().lock());
    let cancel = CancelHandle::from_flag(Arc::clone(interrupted));
    let state = database.state(arguments.at.as_ref(), None, &cancel)?;
    let dumped = state.dump(arguments.format, &mut out, &cancel);
    dumped.map_err(|error| with_memory(error, arguments.memory))?;
    out.flush().context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn info(arguments: &Folder) -> anyhow::Result<ExitCode> {
    let info = open_folder(arguments)?.info()?;
    let mut out = std::io::stdout().lock();
    out.write_all(info_text(&info).as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Appends a name and a value to a list of such.
fn line(text: &mut String, name: &str, value: &str) {
    text.push_str(&format!("{name:<30}{value}\n"));
}

/// What was committed lately, and what is kept for readers.
fn log_text(info: &Info, text: &mut String) {
    let (delta, log) = (&info.delta, &info.log);
    if delta.batches > 0 {
        line(
            text,
            "not in a checkpoint",
            &format!(
                "{} added, {} removed, {} in {}",
                counted(delta.added, "quad"),
                count(delta.removed),
                counted(delta.terms, "term"),
                bytes(delta.bytes)
            ),
        );
    }
    line(
        text,
        "log",
        &format!(
            "{}, of which {} behind the checkpoint of commit {}",
            bytes(log.file_bytes),
            bytes(log.behind_bytes),
            log.checkpoint_commit
        ),
    );
    line(text, "retention", &retention_text(info));
    if log.oldest_snapshot < info.commit || log.held_back_bytes > 0 {
        line(
            text,
            "oldest snapshot",
            &format!(
                "commit {}, holds back {}",
                log.oldest_snapshot,
                bytes(log.held_back_bytes)
            ),
        );
    }
}

/// What is kept of earlier commits.
fn retention_text(info: &Info) -> String {
    let log = &info.log;
    let mut text = log.retention.to_string();
    if log.oldest_commit < info.commit {
        text.push_str(&format!(
            ": from commit {} on, for which {} of data files are kept",
            log.oldest_commit,
            bytes(log.retained_bytes)
        ));
    }
    text
}

fn info_text(info: &Info) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| line(&mut text, name, &value);
    line("quads", count(info.quads));
    line("named graphs", count(info.named_graphs));
    line("terms", format!("{} in the dictionary", count(info.terms)));
    if let Some(share) = info.inline_share {
        line(
            "inline literals",
            format!("{:.1} % of literal objects", share * 100.0),
        );
    }
    if let Some(share) = info.inline_value_share {
        line(
            "inline values",
            format!("{:.1} % of numbers and dates", share * 100.0),
        );
    }
    line("scheme", info.scheme.name().to_owned());
    for part in &info.permutations {
        let each = to_f64(part.bytes) / to_f64(part.entries.max(1));
        line(
            &part.name,
            format!("{} ({each:.2} bytes each)", bytes(part.bytes)),
        );
    }
    for part in &info.dictionary {
        let what = format!("{} in {}", count(part.entries), bytes(part.bytes));
        line(&part.name, what);
    }
    let runs = info.dictionary_runs.iter().map(|(name, runs, permuted)| {
        let permuted = match permuted {
            0 => String::new(),
            permuted => format!(", {permuted} permuted"),
        };
        format!("{name} {runs}{permuted}")
    });
    let runs: Vec<_> = runs.collect();
    if !runs.is_empty() {
        line("dictionary runs", runs.join("; "));
    }
    if let Some(sets) = &info.characteristic_sets {
        let what = match sets.sets {
            None => "cannot be read: see `stoa check`; estimates do without".to_owned(),
            Some((number, is_all)) => {
                let of = if is_all { "" } else { ", the most frequent" };
                format!("{}{of}, in {}", count(number), bytes(sets.bytes))
            }
        };
        line("characteristic sets", what);
    }
    line(
        "data files",
        format!(
            "{}, of which {} free",
            bytes(info.data_bytes),
            bytes(info.free_bytes)
        ),
    );
    if let Some(each) = info.bytes_per_quad() {
        line("bytes a quad", format!("{each:.1}"));
    }
    line("commit", info.commit.to_string());
    log_text(info, &mut text);
    let mut line = |name: &str, value: String| self::line(&mut text, name, &value);
    line("format version", info.format_version.to_string());
    line("database id", info.database_id.clone());
    line("I/O", info.io.clone());
    text
}

pub(super) fn checkpoint(
    arguments: &Checkpoint,
    interrupted: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    if let Some(remote) = Remote::of(&arguments.place)? {
        return remote.checkpoint(interrupted);
    }
    let limits = (arguments.memory, arguments.threads);
    let database = open_alone(&arguments.place, limits, &arguments.archive)?;
    let summary = database.checkpoint()?;
    say_checkpoint(summary.commit, summary.written);
    archive_or_say(&database);
    Ok(ExitCode::SUCCESS)
}

/// Opens the database that a command works on alone.
pub(super) fn open_alone(
    place: &Place,
    (memory_bytes, threads): (Option<u64>, Option<usize>),
    archive: &Archive,
) -> anyhow::Result<Database> {
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: memory_bytes.map(watched),
        threads,
        io: place.io,
        ..RuntimeOptions::default()
    })?;
    let archive = archive.archive_log.clone().map(ArchiveOptions::new);
    let opened = Opened::open(&runtime, folder(place)?, false, archive.as_ref())?;
    Ok(opened.database)
}

/// Says what a checkpoint has done.
pub(super) fn say_checkpoint(commit: u64, written: bool) {
    say(&if written {
        format!("the sort orders hold all of commit {commit}")
    } else {
        format!("the sort orders held all of commit {commit} already")
    });
}

/// Opens the database that a command reads from.
pub(super) fn open_to_read(place: &Place) -> anyhow::Result<Database> {
    open_shared(folder(place)?, place.io)
}

fn open_folder(arguments: &Folder) -> anyhow::Result<Database> {
    open_shared(&arguments.db, arguments.io)
}

pub(super) fn open_shared(path: &Path, io: IoCalls) -> anyhow::Result<Database> {
    let runtime = Runtime::new(RuntimeOptions {
        io,
        ..RuntimeOptions::default()
    })?;
    Ok(Database::open(&runtime, path, &OpenOptions::default())?)
}
