//! `stoa-bench cold`: what users feel after a restart, and what caches make of it.
//!
//! The server is stopped, the system forgets its files, the server is started, and one client asks Explore mixes: the time
//! until the first answer, and the throughput in each slice of 5 s. Then the first mixes once more, and as many with other
//! parameters. These are the three figures that Bigdata reports: cold, warm with the same seed, warm with another seed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::clients::{self, Plan, Run, restarted};
use super::endpoint::Connection;
use super::meter::Process;
use super::report::parse_duration;
use super::workload::{Name, Workload};
use super::{append_lines, progress_bar};
use crate::bsbm::Pools;

/// What `stoa-bench cold` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The command that stops the server, if it is up
    #[arg(long, value_name = "COMMAND")]
    stop: String,
    /// The command that starts it, waits until it answers, and prints its URL and its process
    #[arg(long, value_name = "COMMAND")]
    start: String,
    /// A folder whose files the system is to forget
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    /// Number of products of the data
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    products: u64,
    /// The seed that the data was generated from
    #[arg(long, value_name = "SEED", default_value_t = crate::bsbm::SEED)]
    data_seed: u64,
    /// The same seed gives the same queries
    #[arg(long, value_name = "SEED", default_value_t = 808_080)]
    seed: u64,
    /// The seed of the warm run with other parameters
    #[arg(long, value_name = "SEED", default_value_t = 918_273)]
    other_seed: u64,
    /// Mixes of each of the three figures
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    mixes: u64,
    /// How long to watch the throughput after the start; a warm run lasts no longer, either
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    watch: Duration,
    /// How long a query may take until its last byte, such as 60s; without it, for ever
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Append the figures as a line of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The length of a slice.
const SLICE: Duration = Duration::from_secs(5);

/// How far the slices that follow may lie from their mean, as a share, for the throughput to be steady.
const STEADY: f64 = 0.1;

/// Measures; gives whether every answer came.
///
/// # Errors
/// When a command fails, or the output cannot be written.
#[expect(clippy::print_stdout, reason = "the figures are the output")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn cold(arguments: &Arguments) -> anyhow::Result<bool> {
    let workload = |seed| {
        let pools = Pools::new(arguments.products, arguments.data_seed, false);
        Workload::new(Name::Explore, pools, seed, false)
    };
    let same = workload(arguments.seed)?;
    let other = workload(arguments.other_seed)?;
    shell(&arguments.stop)?;
    forget(&arguments.files)?;
    let begin = Instant::now();
    let (url, process) = restarted(&arguments.start)?;
    let start = begin.elapsed();
    let plan = |mixes, at_most| arguments.plan(&url, process, mixes, at_most);
    let bar = progress_bar("runs", 3);
    let watched = clients::run(&same, &plan(u64::MAX, arguments.watch), &|| ());
    bar.inc(1);
    let again = clients::run(&same, &plan(arguments.mixes, arguments.watch), &|| ());
    bar.inc(1);
    let warm = clients::run(&other, &plan(arguments.mixes, arguments.watch), &|| ());
    bar.finish_and_clear();
    let slices = slices(&watched);
    let first = watched.samples.first().context("no query was asked")?;
    let line = json!({
        "kind": "cold",
        "start_s": start.as_secs_f64(),
        "first_answer_ms": first.measured.time.as_secs_f64() * 1e3,
        "mixes": arguments.mixes,
        "cold_mixes_an_hour": mixes_an_hour(&watched, arguments.mixes),
        "same_seed_mixes_an_hour": mixes_an_hour(&again, arguments.mixes),
        "other_seed_mixes_an_hour": mixes_an_hour(&warm, arguments.mixes),
        "slice_s": SLICE.as_secs_f64(),
        "slices_mixes_an_hour": slices,
        "steady_after_s": steady(&slices).map(|slice| slice as f64 * SLICE.as_secs_f64()),
    });
    println!("{}", table(&line));
    if let Some(path) = &arguments.output {
        append_lines(path, std::iter::once(line))?;
    }
    let runs = [watched, again, warm];
    let mut samples = runs.iter().flat_map(|run| &run.samples);
    Ok(samples.all(|sample| sample.measured.failure.is_none()))
}

impl Arguments {
    fn plan(&self, url: &str, process: Process, mixes: u64, at_most: Duration) -> Plan {
        Plan {
            url: url.to_owned(),
            clients: 1,
            warm_up: 0,
            mixes,
            connection: Connection::Each,
            timeout: self.timeout,
            server: Some(process),
            at_most: Some(at_most),
            restart: None,
            updates: None,
        }
    }
}

/// # Errors
/// When the command fails.
pub(super) fn shell(command: &str) -> anyhow::Result<()> {
    let status = Command::new("sh")
        .args(["-c", command])
        .stdout(Stdio::null())
        .status()
        .context("running sh")?;
    if !status.success() {
        bail!("`{command}` failed: {status}");
    }
    Ok(())
}

/// Makes the system forget what it holds of the files of a folder, and of no others, as a machine is rarely one's own.
fn forget(folder: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("reading the folder {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else if path.is_file() {
            // Pages that are not on disk yet stay in memory, so that they are written first.
            let name = path.display();
            for (program, words) in [
                ("sync", vec![format!("{name}")]),
                (
                    "dd",
                    vec![
                        format!("if={name}"),
                        "iflag=nocache".to_owned(),
                        "count=0".to_owned(),
                        "status=none".to_owned(),
                    ],
                ),
            ] {
                let status = Command::new(program)
                    .args(words)
                    .status()
                    .with_context(|| format!("running {program}"))?;
                if !status.success() {
                    bail!("{program} failed for {name}: {status}");
                }
            }
        }
    }
    Ok(())
}

/// Of the first mixes of a run, as many as `mixes`; none if it made none.
#[expect(clippy::cast_precision_loss, reason = "a count of mixes")]
fn mixes_an_hour(run: &Run, mixes: u64) -> Option<f64> {
    let counted = run.mixes.min(mixes);
    let samples = run.samples.iter().filter(|sample| sample.mix < counted);
    let spent: Duration = samples.map(|sample| sample.measured.time).sum();
    (counted > 0).then(|| 3600.0 * counted as f64 / spent.as_secs_f64())
}

/// Mixes an hour in each whole slice, by the queries that ended in it.
#[expect(clippy::cast_precision_loss, reason = "counts of queries")]
fn slices(run: &Run) -> Vec<f64> {
    let index = |time: Duration| time.as_millis() / SLICE.as_millis();
    let mut counts = vec![0_u64; usize::try_from(index(run.wall)).unwrap_or(0)];
    for sample in &run.samples {
        let slice = usize::try_from(index(sample.start + sample.measured.time));
        if let Some(count) = slice.ok().and_then(|slice| counts.get_mut(slice)) {
            *count += 1;
        }
    }
    let queries = run.samples.len() as f64 / run.mixes.max(1) as f64;
    let an_hour = 3600.0 / SLICE.as_secs_f64() / queries;
    counts.iter().map(|&count| count as f64 * an_hour).collect()
}

/// The first slice from which on all of at least three lie near their mean.
#[expect(clippy::cast_precision_loss, reason = "a count of slices")]
fn steady(slices: &[f64]) -> Option<usize> {
    (0..slices.len().saturating_sub(2)).find(|&from| {
        let rest = slices.get(from..).unwrap_or(&[]);
        let mean = rest.iter().sum::<f64>() / rest.len() as f64;
        rest.iter()
            .all(|slice| (slice - mean).abs() <= STEADY * mean)
    })
}

fn table(line: &Value) -> String {
    let figure = |name: &str, unit: &str| match line.get(name).and_then(Value::as_f64) {
        Some(value) => format!("{value:.1}{unit}"),
        None => "none".to_owned(),
    };
    [
        ("start", figure("start_s", " s")),
        ("first answer", figure("first_answer_ms", " ms")),
        ("cold, mixes an hour", figure("cold_mixes_an_hour", "")),
        ("warm, same seed", figure("same_seed_mixes_an_hour", "")),
        ("warm, other seed", figure("other_seed_mixes_an_hour", "")),
        ("steady after", figure("steady_after_s", " s")),
    ]
    .map(|(name, value)| format!("{name:<20} {value}"))
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::clients::Sample;
    use super::super::endpoint::Measured;
    use super::*;

    #[test]
    fn throughput_is_steady_when_all_that_follows_is() {
        assert_eq!(steady(&[10.0, 50.0, 99.0, 101.0, 100.0]), Some(2));
        assert_eq!(steady(&[10.0, 50.0, 99.0, 101.0]), None);
        assert_eq!(steady(&[99.0, 101.0, 100.0, 10.0]), None);
        assert_eq!(steady(&[]), None);
    }

    #[test]
    fn queries_count_in_the_slice_that_they_end_in() {
        let sample = |start, time, mix| Sample {
            mix,
            place: 0,
            template: 0,
            start: Duration::from_secs(start),
            measured: Measured {
                time: Duration::from_secs(time),
                ..Measured::default()
            },
        };
        let run = Run {
            // Two queries make a mix; the last one ends when the last slice is over.
            samples: vec![
                sample(0, 4, 0),
                sample(4, 2, 0),
                sample(6, 2, 1),
                sample(8, 3, 1),
            ],
            mixes: 2,
            url: String::new(),
            began: Duration::ZERO,
            wall: Duration::from_secs(11),
            server_time: None,
            update_time: None,
            server_memory: None,
        };
        assert_eq!(slices(&run), [360.0, 720.0]);
        assert_eq!(mixes_an_hour(&run, 50), Some(3600.0 * 2.0 / 11.0));
        assert_eq!(mixes_an_hour(&run, 1), Some(3600.0 / 6.0));
        assert_eq!(mixes_an_hour(&run, 0), None);
    }
}
