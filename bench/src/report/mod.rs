//! `stoa-bench report`: the results of a comparison as one document with plots.
//!
//! Reads the folder that bench/compare.sh fills: settings.json, and for each engine a folder with a file of lines of JSON for
//! each step, or a file STEP.failed with the reason why there is none. Every plot stands beside a table with its figures.

mod charts;
mod markdown;
mod results;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context as _;

/// What `stoa-bench report` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The folder of a comparison's results; REPORT.md and plots are written there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes REPORT.md and its plots.
///
/// # Errors
/// When the results cannot be read, or the report cannot be written.
pub(crate) fn report(arguments: &Arguments) -> anyhow::Result<()> {
    let results = results::read(&arguments.folder)?;
    let document = markdown::document(&results);
    let mut files = document.plots;
    files.push(("REPORT.md".to_owned(), document.text));
    for (name, text) in files {
        let path = arguments.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
