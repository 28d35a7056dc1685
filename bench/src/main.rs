//! `stoa-bench`: generators and drivers of benchmarks.
#![forbid(unsafe_code)]

mod bsbm;

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
}

#[derive(Debug, Subcommand)]
enum Generate {
    /// The Berlin SPARQL Benchmark
    #[command(after_help = "\
Examples:
  stoa-bench generate bsbm --products 28482 > bsbm-10m.nt
  stoa-bench generate bsbm --products 284826 --format ttl --parts 4 --output bsbm-100m.ttl.zst")]
    Bsbm(bsbm::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Generate(Generate::Bsbm(arguments)) => bsbm::generate(&arguments),
    }
}
