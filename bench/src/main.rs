//! `stoa-bench`: generators and drivers of benchmarks.
#![forbid(unsafe_code)]

mod bsbm;
mod graphs;
mod hostile;
mod report;
mod rows;
mod run;
mod samples;
mod tpcc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Generators and drivers of benchmarks.
#[derive(Debug, Parser)]
#[command(name = "stoa-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generate a dataset
    #[command(subcommand)]
    Generate(Generate),
    /// Run a mix of queries against an endpoint; exit code 1 if an answer failed or is wrong
    Run(Box<Run>),
    /// Restart a server with cold caches and watch it; exit code 1 if an answer failed
    #[command(after_help = "\
Example:
  stoa-bench cold --products 28482 --files target/rivals/stoa/database \\
    --stop 'bench/rivals/stoa.sh stop target/rivals/stoa' --start 'bench/rivals/stoa.sh start target/rivals/stoa'")]
    Cold(run::cold::Arguments),
    /// Many hostile requests at once beside one-row queries; exit code 1 if the server takes too much memory or too long
    #[command(after_help = "\
Example:
  stoa-bench hostile 127.0.0.1:7878 --server-pid 1234 --clients 60 --seconds 60")]
    Hostile(hostile::Arguments),
    /// How far the planner's estimates are from what operators give, over all queries on a dataset; exit code 1 if a query failed
    /// or a target is missed
    #[command(after_help = "\
Examples:
  stoa-bench estimates http://127.0.0.1:7878/sparql --products 2848 --output estimates.jsonl
  stoa-bench estimates http://127.0.0.1:7879/sparql --warehouses 2 --output estimates.jsonl
  stoa-bench estimates --results estimates.jsonl")]
    Estimates(run::estimates::Arguments),
    /// Ask two servers with the same data the same queries in turns: two builds, or two settings; exit code 1 if one failed or
    /// numbers of rows differ
    #[command(after_help = "\
Example:
  stoa-bench pairs http://127.0.0.1:7878/sparql http://127.0.0.1:7879/sparql --products 28482 --only bi/ --at-least 20ms")]
    Pairs(run::pairs::Arguments),
    /// Write the report of a comparison: a document and plots
    #[command(after_help = "\
Example:
  stoa-bench report bench/results/2026-01-31-10m")]
    Report(report::Arguments),
    /// Compare the rows of Explore answers with the original's; exit code 1 if a query is off
    #[command(after_help = "\
Example:
  stoa-bench explore-rows --products 2848 --expected bench/explore-rows.tsv 1.jsonl 2.jsonl 3.jsonl")]
    ExploreRows(rows::Arguments),
    /// Compare the times of the same requests with and without something beside them, query by query
    #[command(after_help = "\
Example:
  stoa-bench compare-samples quiet.jsonl busy.jsonl --during checkpoints.jsonl")]
    CompareSamples(samples::Arguments),
}

#[derive(Debug, Subcommand)]
enum Generate {
    /// The Berlin SPARQL Benchmark
    #[command(after_help = "\
Examples:
  stoa-bench generate bsbm --products 28482 > bsbm-10m.nt
  stoa-bench generate bsbm --products 284826 --format ttl --parts 4 --output bsbm-100m.ttl.zst
  stoa-bench generate bsbm --products 28482 --output main.nt --update-transactions 1000 --update-output updates.nt")]
    Bsbm(bsbm::Arguments),
    /// A random graph for paths: nodes with 3 to 30 edges
    #[command(after_help = "\
Examples:
  stoa-bench generate path-graph --edges 10000000 --output paths-10m.nt.zst
  stoa-bench generate path-graph --edges 1300000 --payload 3000 > pages.nt")]
    PathGraph(graphs::path_graph::Arguments),
    /// People and their children, places, events and films, in the shape of an encyclopedia
    #[command(after_help = "\
Examples:
  stoa-bench generate genealogy --people 1000000 --output people-9m.nt.zst")]
    Genealogy(graphs::genealogy::Arguments),
    /// The warehouses of TPC-C as a graph, about 5.5 M triples each
    #[command(after_help = "\
Examples:
  stoa-bench generate tpcc --warehouses 4 --output warehouses-4.nt.zst")]
    Tpcc(tpcc::population::Arguments),
}

/// A mix, one query for each operator, or transactions.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  stoa-bench run explore http://127.0.0.1:7878/sparql --products 28482 --server-pid 1234
  stoa-bench run operators http://127.0.0.1:7878/sparql --queries set.json
  stoa-bench run paths http://127.0.0.1:7878/sparql --edges 10000000
  stoa-bench run genealogy http://127.0.0.1:7878/sparql --people 1000000
  stoa-bench run bi http://127.0.0.1:7878/sparql --products 2848 --mixes 20 --check http://127.0.0.1:7879/query"
)]
struct Run {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    mix: Option<run::Arguments>,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// A query for each operator and situation, made from the statistics of whatever data the endpoint has
    #[command(after_help = "\
Examples:
  stoa-bench run operators http://127.0.0.1:7878/sparql --queries set.json --output stoa.jsonl
  stoa-bench run operators http://127.0.0.1:7879/query --queries set.json --check http://127.0.0.1:7878/sparql")]
    Operators(run::OperatorArguments),
    /// The five transactions of TPC-C, by SPARQL Update or by transactions of the RDF4J protocol; exit code 1 if one failed, an
    /// acknowledged order is lost, or a consistency condition does not hold
    #[command(after_help = "\
Examples:
  stoa-bench run tpcc-rdf http://127.0.0.1:7878/sparql --warehouses 4 --clients 8 --duration 10m \\
    --restart 'bench/rivals/stoa.sh restart target/rivals/stoa'
  stoa-bench run tpcc-rdf http://127.0.0.1:7878/sparql --warehouses 4 --clients 8 --transactions interactive \\
    --repository http://127.0.0.1:7878/repositories/NAME")]
    TpccRdf(run::TpccArguments),
    /// Small commits: how many a second, beside what the disk allows; exit code 1 if one failed
    #[command(after_help = "\
Examples:
  stoa-bench run inserts http://127.0.0.1:7878/sparql --beside 'fsync DATABASE-FOLDER/.. 200 5' --server-pid 1234
  stoa-bench run inserts http://127.0.0.1:7878/sparql --clients 4 --quads 1000 --duration 60s --rounds 1 \\
    --subjects products.txt --existing 30")]
    Inserts(run::InsertArguments),
}

fn main() -> anyhow::Result<ExitCode> {
    let whole = match Arguments::parse().command {
        Command::Generate(Generate::Bsbm(arguments)) => {
            bsbm::generate(&arguments).map(|()| true)?
        }
        Command::Generate(Generate::PathGraph(arguments)) => {
            graphs::path_graph::generate(&arguments).map(|()| true)?
        }
        Command::Generate(Generate::Genealogy(arguments)) => {
            graphs::genealogy::generate(&arguments).map(|()| true)?
        }
        Command::Generate(Generate::Tpcc(arguments)) => {
            tpcc::population::generate(&arguments).map(|()| true)?
        }
        Command::Report(arguments) => report::report(&arguments).map(|()| true)?,
        Command::ExploreRows(arguments) => rows::explore_rows(&arguments)?,
        Command::CompareSamples(arguments) => samples::compare(&arguments)?,
        Command::Cold(arguments) => run::cold::cold(&arguments)?,
        Command::Hostile(arguments) => hostile::run(&arguments)?,
        Command::Estimates(arguments) => run::estimates::estimates(&arguments)?,
        Command::Pairs(arguments) => run::pairs::pairs(&arguments)?,
        Command::Run(arguments) => match (arguments.other, arguments.mix) {
            (Some(Other::Operators(arguments)), _) => run::run_operators(&arguments)?,
            (Some(Other::TpccRdf(arguments)), _) => run::run_tpcc(&arguments)?,
            (Some(Other::Inserts(arguments)), _) => run::run_inserts(&arguments)?,
            (None, Some(arguments)) => run::run(&arguments)?,
            (None, None) => anyhow::bail!("a mix and a URL are missing, see --help"),
        },
    };
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
