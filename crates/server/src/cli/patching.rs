//! `apply`: patches, one commit each; `revert`: a commit that undoes others; `forget`: earlier commits are given
//! free. What was changed goes to standard error.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use stoa_database::{CancelHandle, Error, Input, PatchOptions, PatchSummary};

use super::arguments::{Apply, Archive, Forget, Revert};
use super::backup::archive_or_say;
use super::commands::open_alone;
use super::output::say;
use super::remote::Remote;
use super::sizes::{count, counted};
use crate::client::query_of;

/// The media type of RDF Patch.
const PATCH: &str = "application/rdf-patch";

pub(super) fn apply(arguments: Apply, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let options = PatchOptions {
        strict: arguments.strict,
        message: arguments.message,
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
    };
    let several = arguments.patches.len() > 1;
    let named = |path: &Path| match several {
        true => format!("{}: ", path.display()),
        false => String::new(),
    };
    if let Some(remote) = Remote::of(&arguments.place)? {
        for path in arguments.patches {
            let name = named(&path);
            let done = remote.apply(&Input::from(path), &options, interrupted)?;
            say(&told(&name, &done));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let limits = (arguments.memory, None);
    let database = open_alone(&arguments.place, limits, &arguments.archive)?;
    for path in arguments.patches {
        let name = named(&path);
        // What stands before it is committed: the name in front tells how far it came.
        let done = database.apply_patch(&Input::from(path), &options)?;
        say(&told(&name, &done));
    }
    archive_or_say(&database);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn revert(arguments: Revert, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let options = PatchOptions {
        strict: false,
        message: arguments.message.clone(),
        cancel: CancelHandle::from_flag(Arc::clone(interrupted)),
    };
    let done = match Remote::of(&arguments.place)? {
        Some(remote) => remote.revert(&arguments, interrupted)?,
        None => {
            let limits = (arguments.memory, None);
            let database = open_alone(&arguments.place, limits, &arguments.archive)?;
            let done = database.revert(&arguments.commits, arguments.force, &options)?;
            archive_or_say(&database);
            done
        }
    };
    say(&told("", &done));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn forget(arguments: &Forget, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
    let oldest = match Remote::of(&arguments.place)? {
        Some(remote) => remote.forget(arguments, interrupted)?,
        None => {
            let archive = Archive { archive_log: None };
            let database = open_alone(&arguments.place, (None, None), &archive)?;
            database.forget_before(&arguments.before)?
        }
    };
    say(&format!(
        "the oldest state that can be read is commit {oldest}"
    ));
    Ok(ExitCode::SUCCESS)
}

/// What a patch did, in a line.
fn told(name: &str, done: &PatchSummary) -> String {
    let mut text = format!(
        "{name}{} added, {} removed; commit {}",
        counted(done.added, "quad"),
        count(done.removed),
        done.commit
    );
    if done.unchanged > 0 {
        let rows = counted(done.unchanged, "row");
        text.push_str(&format!(
            "; {rows} had no effect, since the quad was there already, or was not there"
        ));
    }
    if done.prefixes > 0 {
        let rows = counted(done.prefixes, "row");
        text.push_str(&format!("; {rows} about prefixes left out"));
    }
    text
}

impl Remote<'_> {
    /// Sends a patch.
    fn apply(
        &self,
        input: &Input,
        options: &PatchOptions,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<PatchSummary> {
        let mut parameters = vec![("strict", options.strict.to_string())];
        parameters.extend(options.message.clone().map(|text| ("message", text)));
        let upload = self.begin(&format!("/apply{}", query_of(&parameters)), Some(PATCH))?;
        match input.pieces(&options.cancel, &mut |piece| upload.send(piece)) {
            Ok(()) => Ok(summary(&self.end(upload, interrupted)?)),
            // The server knows better why it takes no more.
            Err(Error::Output(source)) => Err(match upload.finish(interrupted) {
                Err(reason) => self.failed(&reason),
                Ok(_) => self.failed(&source.to_string()),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn revert(&self, arguments: &Revert, interrupted: &AtomicBool) -> anyhow::Result<PatchSummary> {
        let commits = arguments.commits.iter();
        let mut parameters: Vec<(&str, String)> = commits
            .map(|commit| ("commit", commit.to_string()))
            .collect();
        parameters.push(("force", arguments.force.to_string()));
        parameters.extend(arguments.message.clone().map(|text| ("message", text)));
        let upload = self.begin(&format!("/revert{}", query_of(&parameters)), None)?;
        Ok(summary(&self.end(upload, interrupted)?))
    }

    fn forget(&self, arguments: &Forget, interrupted: &AtomicBool) -> anyhow::Result<u64> {
        let parameters = [("before", arguments.before.to_string())];
        let upload = self.begin(&format!("/forget{}", query_of(&parameters)), None)?;
        let answer = self.end(upload, interrupted)?;
        let oldest = answer.get("oldest").and_then(Value::as_u64);
        oldest.ok_or_else(|| self.failed("its answer names no commit"))
    }
}

fn summary(answer: &Value) -> PatchSummary {
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
    PatchSummary {
        commit: number("commit"),
        added: number("added"),
        removed: number("removed"),
        unchanged: number("unchanged"),
        prefixes: number("prefixes"),
        time_us: 0,
    }
}
