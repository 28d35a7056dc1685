//! `stoa-bench run`: a mix of queries and updates against any SPARQL endpoint, timed, and verified if there is a second one.

mod answer;
mod check;
mod clients;
pub(crate) mod cold;
mod drawn;
mod endpoint;
pub(crate) mod estimates;
mod inserts;
mod meter;
mod operators;
pub(crate) mod pairs;
mod report;
mod statistics;
#[cfg(test)]
mod tests;
mod tpcc;
mod updates;
mod wire;
mod workload;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::bsbm::Blocks;
use crate::graphs::{genealogy, path_graph};
use check::{Verdict, check};
use clients::{Plan, Run, Sample};
use endpoint::{Connection, Endpoint, UpdateForm, Updates};
pub(crate) use inserts::{Arguments as InsertArguments, run as run_inserts};
pub(crate) use meter::Process;
pub(crate) use operators::{Arguments as OperatorArguments, run as run_operators};
use report::{Report, parse_duration};
pub(crate) use statistics::quantile;
use statistics::{Scores, Summary};
pub(crate) use tpcc::{Arguments as TpccArguments, run as run_tpcc};
use workload::{Name, Pools, Workload};

/// What `stoa-bench run` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The mix
    #[arg(value_enum)]
    workload: Name,
    /// The endpoint, such as http://127.0.0.1:7878/sparql
    #[arg(value_name = "URL")]
    url: String,
    /// Number of products of the data, for all mixes on BSBM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    products: Option<u64>,
    /// What parameters are drawn from, as `generate bsbm --pools` has written it, in place of --products and --data-seed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["products", "data_seed"])]
    pools: Option<PathBuf>,
    /// The transactions that explore-update inserts, as `generate bsbm --update-output` has written them: each mix takes two,
    /// in order from the first one on, whatever was inserted before
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,
    /// Where updates go, if not to the endpoint itself, such as http://127.0.0.1:7879/update
    #[arg(long, value_name = "URL")]
    update_url: Option<String>,
    /// How updates are sent
    #[arg(long, value_enum, default_value = "body")]
    update_form: UpdateForm,
    /// Edges that the data were generated with, for paths
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000_000))]
    edges: Option<u64>,
    /// People that the data were generated with, for genealogy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    people: Option<u64>,
    /// The seed that the data was generated from
    #[arg(long, value_name = "SEED", default_value_t = crate::bsbm::SEED)]
    data_seed: u64,
    /// The same seed gives the same queries
    #[arg(long, value_name = "SEED", default_value_t = 808_080)]
    seed: u64,
    /// Clients that ask at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: u64,
    /// Mixes before the clock is started
    #[arg(long, value_name = "N", default_value_t = 50)]
    warm_up: u64,
    /// Mixes that count
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    mixes: u64,
    /// A connection for each query, or one for each client
    #[arg(long, value_enum, default_value = "each")]
    connection: Connection,
    /// How long a query may take until its last byte, such as 60s; without it, for ever
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Keep what distorts the original's scores: features drawn twice, a mean grouped by a variable that is bound nowhere
    /// (bi 5), a cut through ties (bi 7)
    #[arg(long, value_name = "SET", value_parser = ["bsbm"])]
    quirks: Option<String>,
    /// The server's process on this machine, for its time on processors and memory
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// An endpoint with the same data whose answers are trusted: each query is asked there, too, and wrong answers get no time
    #[arg(long, value_name = "URL")]
    check: Option<String>,
    /// Verify only this many of the mixes that count, from the first on
    #[arg(long, value_name = "N", requires = "check")]
    check_mixes: Option<u64>,
    /// Begin no mix after this time, such as 5m, neither of the warm-up nor of those that count
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    at_most: Option<Duration>,
    /// After a time-out run this, which ends the server, starts it again, and prints its URL and process: many servers go on
    /// with a query that nobody waits for. For one client
    #[arg(long, value_name = "COMMAND", requires = "timeout")]
    restart: Option<String>,
    /// Append the figures as lines of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write each execution to --output, too
    #[arg(long, requires = "output")]
    samples: bool,
}

/// Runs the mix; gives whether every answer came and, where it was verified, was right.
///
/// # Errors
/// When the server's process is not there, or the output cannot be written.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the output"
)]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let quirks = arguments.quirks.is_some();
    arguments.validate()?;
    let pools = arguments.pools()?;
    // Products that the scale factor of the scores is taken from; mixes without products have scale factor 1.
    let scale = pools.products().unwrap_or(statistics::SCALE_ONE);
    let mut workload = Workload::new(arguments.workload, pools, arguments.seed, quirks)?;
    if let Some(path) = &arguments.updates {
        let blocks = Blocks::load(path)?;
        let (there, each) = (blocks.count(), workload.blocks_of_a_mix());
        if there < arguments.mixes.saturating_mul(each) {
            let enough = there / each.max(1);
            eprintln!("{there} transactions are for {enough} mixes: later ones insert nothing");
        }
        workload = workload.with_blocks(blocks);
    }
    let mut plan = arguments.plan()?;
    let bar = progress_bar("mixes", plan.warm_up + plan.mixes);
    let run = clients::run(&workload, &plan, &|| bar.inc(1));
    bar.finish_and_clear();
    plan.mixes = run.mixes;
    let verdicts = match &arguments.check {
        Some(url) => {
            let mixes = arguments.check_mixes.unwrap_or(u64::MAX);
            let samples = run.samples.iter().filter(|sample| sample.mix < mixes);
            verify(
                &workload,
                &plan,
                &samples.collect::<Vec<_>>(),
                &run.url,
                url,
            )
        }
        None => BTreeMap::new(),
    };
    for line in complaints(&workload, &run, &verdicts) {
        eprintln!("{line}");
    }
    let report = figures(&workload, &plan, &run, &verdicts, scale);
    print!("{}", report.table());
    if let Some(path) = &arguments.output {
        append(path, &report, arguments.samples)?;
    }
    Ok(report
        .summaries
        .iter()
        .all(|summary| summary.failures() == 0))
}

impl Arguments {
    /// # Errors
    /// When options do not fit the mix.
    fn validate(&self) -> anyhow::Result<()> {
        if !self.workload.writes() {
            if self.updates.is_some() || self.update_url.is_some() {
                bail!("--updates and --update-url are for explore-update: this mix writes nothing");
            }
            return Ok(());
        }
        if self.updates.is_none() {
            bail!("--updates FILE is missing: what `generate bsbm --update-output` has written");
        }
        if self.check.is_some() {
            bail!(
                "--check is for mixes that do not write: the other endpoint would have other data"
            );
        }
        if self.restart.is_some() {
            bail!(
                "--restart is for mixes that do not write: an update without an answer may be there or not"
            );
        }
        Ok(())
    }

    /// # Errors
    /// When the size of the data is not given.
    fn pools(&self) -> anyhow::Result<Pools> {
        Ok(match self.workload {
            Name::Explore
            | Name::ExploreUpdate
            | Name::Bi
            | Name::BiDrilldown
            | Name::LookUp
            | Name::Star => {
                if let Some(path) = &self.pools {
                    return Ok(crate::bsbm::Pools::load(path, self.quirks.is_some())?.into());
                }
                let products = self
                    .products
                    .context("--products N is missing: the data's; or --pools FILE")?;
                crate::bsbm::Pools::new(products, self.data_seed, self.quirks.is_some()).into()
            }
            Name::Paths => {
                let edges = self.edges.context("--edges N is missing: the data's")?;
                Pools::Paths(path_graph::Pools::new(edges))
            }
            Name::Genealogy => {
                let people = self.people.context("--people N is missing: the data's")?;
                Pools::Genealogy(genealogy::Pools::new(people, self.data_seed))
            }
        })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let server = self.server_pid.map(Process);
        if self.restart.is_some() && self.clients > 1 {
            bail!("--restart is for one client: others would lose their queries");
        }
        if let Some(server) = server {
            server
                .time()
                .with_context(|| format!("there is no process {} here", server.0))?;
        }
        Ok(Plan {
            url: self.url.clone(),
            clients: self.clients,
            warm_up: self.warm_up,
            mixes: self.mixes,
            connection: self.connection,
            timeout: self.timeout,
            server,
            at_most: self.at_most,
            restart: self.restart.clone(),
            updates: self.workload.writes().then(|| Updates {
                url: self.update_url.as_ref().unwrap_or(&self.url).clone(),
                form: self.update_form,
            }),
        })
    }
}

fn progress_bar(what: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{eta}} left");
    bar.set_style(
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

/// Verdicts by mix and place. A query that occurs several times is checked once, and a template that the trusted endpoint
/// had no time for is not asked there again, because it may still be busy with it.
fn verify(
    workload: &Workload,
    plan: &Plan,
    samples: &[&Sample],
    url: &str,
    trusted: &str,
) -> BTreeMap<(u64, usize), Verdict> {
    let tested = Endpoint::new(url, Connection::Keep, plan.timeout);
    let trusted = Endpoint::new(trusted, Connection::Keep, plan.timeout);
    let bar = progress_bar("answers verified", samples.len() as u64);
    let mut by_query: BTreeMap<String, Verdict> = BTreeMap::new();
    let mut too_slow: BTreeMap<usize, Verdict> = BTreeMap::new();
    let mut verdicts = BTreeMap::new();
    let mut mix = (None, Vec::new());
    for sample in samples {
        bar.inc(1);
        if sample.measured.failure.is_some() {
            continue;
        }
        if mix.0 != Some(sample.mix) {
            mix = (Some(sample.mix), workload.mix(sample.mix));
        }
        let Some(instance) = mix.1.get(sample.place) else {
            continue;
        };
        let verdict = match too_slow.get(&sample.template) {
            Some(verdict) => verdict,
            None => by_query
                .entry(instance.query.clone())
                .or_insert_with(|| check(&instance.query, &sample.measured, &tested, &trusted)),
        };
        verdicts.insert((sample.mix, sample.place), verdict.clone());
        if matches!(verdict, Verdict::Unknown(why) if why == check::TIME_OUT) {
            too_slow.insert(sample.template, verdict.clone());
        }
    }
    bar.finish_and_clear();
    verdicts
}

fn figures<'a>(
    workload: &'a Workload,
    plan: &'a Plan,
    run: &'a Run,
    verdicts: &BTreeMap<(u64, usize), Verdict>,
    products: u64,
) -> Report<'a> {
    let mut summaries: Vec<Summary> = workload
        .templates
        .iter()
        .map(|template| Summary::new(&template.name))
        .collect();
    for sample in &run.samples {
        let verdict = verdicts.get(&(sample.mix, sample.place));
        if let Some(summary) = summaries.get_mut(sample.template) {
            summary.add(&sample.measured, verdict);
        }
    }
    summaries.iter_mut().for_each(Summary::finish);
    let scores = Scores::new(&summaries, plan.mixes, plan.clients, run.wall, products);
    Report {
        workload,
        plan,
        run,
        summaries,
        scores,
    }
}

/// For each template the first execution that failed, is wrong, or could not be verified.
fn complaints(
    workload: &Workload,
    run: &Run,
    verdicts: &BTreeMap<(u64, usize), Verdict>,
) -> Vec<String> {
    let mut said = BTreeMap::new();
    for sample in &run.samples {
        let what = match (
            &sample.measured.failure,
            verdicts.get(&(sample.mix, sample.place)),
        ) {
            (Some(failure), _) => format!("{failure:?}"),
            (None, Some(Verdict::Wrong(how))) => format!("wrong: {how}"),
            (None, Some(Verdict::Unknown(why))) => format!("not verified: {why}"),
            (None, _) => continue,
        };
        said.entry(sample.template)
            .or_insert_with(|| (sample.mix, sample.place, what));
    }
    let lines = said.into_iter().map(|(template, (mix, place, what))| {
        let name = workload.templates.get(template).map_or("?", |it| &it.name);
        let query = workload.mix(mix).into_iter().nth(place).map(|it| it.query);
        // Of an update as much as tells which it is.
        let query: String = query.unwrap_or_default().chars().take(4_000).collect();
        format!("query {name}, mix {mix}: {what}\n{query}")
    });
    lines.collect()
}

fn append(path: &Path, report: &Report<'_>, samples: bool) -> anyhow::Result<()> {
    let samples = samples.then(|| report.samples());
    append_lines(
        path,
        report
            .json_lines()
            .into_iter()
            .chain(samples.into_iter().flatten()),
    )
}

/// Appends lines of JSON to a file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn append_lines(path: &Path, lines: impl Iterator<Item = Value>) -> anyhow::Result<()> {
    let write = || {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)?;
        let mut file = std::io::BufWriter::new(file);
        for line in lines {
            writeln!(file, "{line}")?;
        }
        file.flush()
    };
    write().with_context(|| format!("writing {}", path.display()))
}
