//! Commands that a running server carries out; those that read and update are in `asking`.
//!
//! For `load --server` inputs are read here, as for a load into a folder, and go to the server as one stream of
//! N-Quads, which becomes one commit there.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use stoa_database::{
    BackupSummary, CompactSummary, ConvertSummary, Error, GraphFormat, LoadOptions, LoadSummary,
    Runtime,
};

use super::arguments::{Backup, Place};
use super::backup::{say_backup, say_compact};
use super::commands::{say_checkpoint, say_loaded, say_skipped};
use super::output::say;
use super::progress::Drawn;
use crate::client::{ServerUrl, Upload};

/// A database that is being served.
pub(super) struct Remote<'a> {
    pub(super) server: &'a ServerUrl,
    pub(super) token: Option<String>,
}

impl<'a> Remote<'a> {
    /// What a command line names, if it names a server.
    pub(super) fn of(place: &'a Place) -> anyhow::Result<Option<Self>> {
        let Some(server) = &place.server else {
            return Ok(None);
        };
        let token = match &place.token {
            None => None,
            Some(file) => {
                let text = std::fs::read_to_string(file);
                let text =
                    text.with_context(|| format!("cannot read the token {}", file.display()))?;
                Some(text.trim().to_owned())
            }
        };
        Ok(Some(Self { server, token }))
    }

    pub(super) fn load(
        &self,
        runtime: &Runtime,
        options: &LoadOptions,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        let media_type = Some(GraphFormat::NQuads.media_type());
        let upload = self.begin("/load", media_type)?;
        let clock = runtime.clock();
        let started = clock.monotonic();
        let progress = Drawn::new(Arc::clone(&clock));
        let out = |piece| upload.send(piece);
        let converted = runtime.convert(options, &out, &progress);
        progress.finish();
        let converted = match converted {
            Ok(converted) => converted,
            Err(Error::Output(source)) => {
                // The server knows better why it takes no more.
                return Err(match upload.finish(interrupted) {
                    Err(reason) => self.failed(&reason),
                    Ok(_) => self.failed(&source.to_string()),
                });
            }
            Err(error) => {
                say(&format!(
                    "nothing was loaded; the database at {} is as it was",
                    self.server.text()
                ));
                return Err(error.into());
            }
        };
        let answer = self.end(upload, interrupted)?;
        let seconds = (clock.monotonic() - started).as_secs_f64().max(0.001);
        let summary = summary(converted, &answer);
        say_loaded(&summary, seconds);
        if options.lenient {
            say_skipped(&summary.skipped);
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn checkpoint(&self, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
        let answer = self.end(self.begin("/checkpoint", None)?, interrupted)?;
        let commit = answer.get("commit").and_then(Value::as_u64);
        let written = answer.get("written").and_then(Value::as_bool);
        say_checkpoint(commit.unwrap_or_default(), written.unwrap_or_default());
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn backup(
        &self,
        arguments: &Backup,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        let to = &arguments.to;
        let Some(name) = to
            .to_str()
            .filter(|name| !name.contains(['&', '=', '%', '+', '#', ' ']))
        else {
            return Err(Error::InvalidOption {
                option: "--to",
                reason: "with --server, the name of a folder, of letters, digits, - _ and ."
                    .to_owned(),
            }
            .into());
        };
        let history = !arguments.no_history;
        let path = format!("/backup?name={name}&history={history}");
        let answer = self.end(self.begin(&path, None)?, interrupted)?;
        let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        say_backup(
            to,
            &BackupSummary {
                number: u32::try_from(number("number")).unwrap_or_default(),
                commit: number("commit"),
                extent_bytes: number("extent_bytes"),
                log_bytes: number("log_bytes"),
                kept_bytes: number("kept_bytes"),
                ..BackupSummary::default()
            },
        );
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn compact(&self, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
        let answer = self.end(self.begin("/compact", None)?, interrupted)?;
        let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        let pair = |name: &str| {
            let at = |index: usize| answer.get(name)?.get(index)?.as_u64();
            [at(0).unwrap_or_default(), at(1).unwrap_or_default()]
        };
        say_compact(&CompactSummary {
            commit: number("commit"),
            quads: number("quads"),
            terms: pair("terms"),
            data_bytes: pair("data_bytes"),
            passes: u32::try_from(number("passes")).unwrap_or_default(),
        });
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn begin(
        &self,
        path: &str,
        content_type: Option<&'static str>,
    ) -> anyhow::Result<Upload> {
        let upload = Upload::start(self.server, path, content_type, self.token.as_deref());
        upload.map_err(|reason| self.failed(&reason))
    }

    pub(super) fn end(&self, upload: Upload, interrupted: &AtomicBool) -> anyhow::Result<Value> {
        match upload.finish(interrupted) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                say("the server has the whole request and may have done it");
                Err(Error::Cancelled.into())
            }
            Err(reason) => Err(self.failed(&reason)),
        }
    }

    pub(super) fn failed(&self, reason: &str) -> anyhow::Error {
        anyhow!("{}: {reason}", self.server.text())
    }
}

/// What the inputs held, and what the server says of it.
fn summary(converted: ConvertSummary, answer: &Value) -> LoadSummary {
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
    LoadSummary {
        inputs: converted.inputs,
        bytes_read: converted.bytes_read,
        quads_read: converted.quads,
        quads_new: number("quads_new"),
        quads_removed: 0,
        terms_new: number("terms_new"),
        commit: number("commit"),
        temp_peak_bytes: number("temp_peak_bytes"),
        skipped: converted.skipped,
    }
}
