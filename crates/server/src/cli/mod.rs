//! The command line: arguments, signals, exit codes.

mod arguments;
mod asking;
mod backup;
mod check;
mod commands;
mod hints;
mod history;
mod opening;
mod output;
mod patching;
mod progress;
mod query;
mod remote;
mod serve;
mod sizes;
mod update;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser as _;
use stoa_database::Error;

use arguments::{Arguments, Command};
use asking::Refused;

/// Exit code of a command that was interrupted by Ctrl-C or a request to end.
const INTERRUPTED: u8 = 130;

/// Reads the arguments, runs the command, and says what went wrong.
pub(crate) fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to standard output, all else to standard error; nobody may be there.
            drop(error.print());
            if let Some(tip) = hints::unquoted(&error) {
                output::say(tip);
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
        }
    };
    if let Err(error) = supported_processor() {
        return failed(&error);
    }
    let interrupted = match watch_signals() {
        Ok(flag) => flag,
        Err(error) => return failed(&error.into()),
    };
    let result = match arguments.command {
        Command::Load(load) => commands::load(load, &interrupted),
        Command::Query(query) => query::query(query, &interrupted),
        Command::Update(update) => update::update(update, &interrupted),
        Command::Serve(serve) => serve::serve(serve, &interrupted),
        Command::Dump(dump) => commands::dump(&dump, &interrupted),
        Command::Info(info) => commands::info(&info),
        Command::Check(check) => check::check(&check, &interrupted),
        Command::Log(log) => history::log(&log, &interrupted),
        Command::Diff(diff) => history::diff(&diff, &interrupted),
        Command::Apply(apply) => patching::apply(apply, &interrupted),
        Command::Revert(revert) => patching::revert(revert, &interrupted),
        Command::Forget(forget) => patching::forget(&forget, &interrupted),
        Command::Checkpoint(checkpoint) => commands::checkpoint(&checkpoint, &interrupted),
        Command::Backup(backup) => backup::backup(&backup, &interrupted),
        Command::Compact(compact) => backup::compact(&compact, &interrupted),
        Command::Restore(restore) => backup::restore(restore, &interrupted),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = failed(&error);
            let cancelled = error
                .downcast_ref::<Error>()
                .is_some_and(|e| matches!(e, Error::Cancelled));
            if cancelled && interrupted.load(Ordering::Relaxed) {
                return ExitCode::from(INTERRUPTED);
            }
            let usage = error
                .downcast_ref::<Error>()
                .is_some_and(|error| matches!(error, Error::InvalidOption { .. }))
                || error
                    .downcast_ref::<Refused>()
                    .is_some_and(|refused| refused.is_usage);
            if usage { ExitCode::from(2) } else { code }
        }
    }
}

/// Prints an error and its causes on one line, but for a syntax error, which has lines of its own.
fn failed(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some causes repeat themselves in the message above them.
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    if let Some(hint) = error.downcast_ref::<Error>().and_then(hints::hint) {
        text.push_str("; ");
        text.push_str(&hint);
    }
    output::say(&format!("stoa: {text}"));
    ExitCode::FAILURE
}

/// Sets a flag at the first signal that asks the process to end; the second one ends it at once.
///
/// The signal that comes with a write beyond the limit on the size of files (`ulimit -f`) is caught,
/// so that the write fails with a message instead.
fn watch_signals() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: while the flag is still clear the first handler does nothing.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(INTERRUPTED),
            Arc::clone(&flag),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok(flag)
}

/// Refuses to run where the instructions that this build uses are missing.
fn supported_processor() -> anyhow::Result<()> {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    if !std::arch::is_x86_feature_detected!("avx2") || !std::arch::is_x86_feature_detected!("bmi2")
    {
        anyhow::bail!(
            "this build needs a processor with AVX2 and BMI2 (x86-64-v3): build Stoa with `make portable`"
        );
    }
    Ok(())
}
