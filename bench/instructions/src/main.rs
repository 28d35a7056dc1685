//! `stoa-instructions`: counts the instructions of ten fixed queries and two updates and compares them with kept counts.
//!
//! Times on a shared machine vary by a tenth and more; instructions do not. Data are loaded into a
//! temporary folder, then this program runs itself under callgrind, which counts what happens within
//! one function (`measured` in measure.rs) and writes a file whenever that function ends. What could make
//! two runs differ is fixed: one thread, a clock that stands still, seeds, an empty environment, and reads by pread
//! out of a warm cache. The allocator is mimalloc: with that of the binary `stoa`, jemalloc, whose caches of threads are tidied
//! after so many bytes, one query took up to 3 % more in the next run.
//!
//! ```text
//! check DATA COUNTS [--accept]          load DATA, count, compare with the file COUNTS or write it
//! check-spin ROUNDS COUNTS [--accept]   the same for a loop: the test of this program
//! queries FOLDER, spin ROUNDS           what these two run under callgrind; the first writes to the database
//! ```
#![forbid(unsafe_code)]

mod callgrind;
mod counts;
mod measure;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use counts::Kept;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["check", data, counts] => check(Path::new(data), Path::new(counts), false),
        ["check", data, counts, "--accept"] => check(Path::new(data), Path::new(counts), true),
        ["check-spin", rounds, counts] => spin(rounds, Path::new(counts), false),
        ["check-spin", rounds, counts, "--accept"] => spin(rounds, Path::new(counts), true),
        ["queries", folder] => {
            measure::queries(Path::new(folder))?;
            measure::inserts(Path::new(folder)).map(|()| ExitCode::SUCCESS)
        }
        ["spin", rounds] => {
            measure::spin(rounds.parse().context("ROUNDS is no number")?);
            Ok(ExitCode::SUCCESS)
        }
        _ => anyhow::bail!("use make instructions, or make instructions-accept"),
    }
}

/// Loads the data and counts the queries.
fn check(data: &Path, counts: &Path, accept: bool) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let database = folder.path().join("db");
    measure::load(data, &database)?;
    let arguments = ["queries".as_ref(), database.as_os_str()];
    conclude(&arguments, folder.path(), counts, accept)
}

/// Counts a loop.
fn spin(rounds: &str, counts: &Path, accept: bool) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let arguments = ["spin".as_ref(), rounds.as_ref()];
    conclude(&arguments, folder.path(), counts, accept)
}

/// Runs this program under callgrind, then compares or accepts.
#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn conclude(
    arguments: &[&OsStr],
    folder: &Path,
    counts: &Path,
    accept: bool,
) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("this program has no path")?;
    let run = callgrind::run(&program, arguments, folder)?;
    let now = Kept {
        tools: callgrind::tools()?,
        counts: counts::counts(&run.output, &run.instructions)?,
    };
    if accept {
        std::fs::write(counts, now.to_string())
            .with_context(|| format!("cannot write {}", counts.display()))?;
        println!("{now}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(counts)
        .with_context(|| format!("cannot read {}", counts.display()))?;
    let comparison = counts::compare(&text.parse()?, &now);
    println!("{comparison}");
    Ok(if comparison.passes() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
