//! Data of the Berlin SPARQL Benchmark: products, offers, reviews and what belongs to them.
//!
//! Every instance has random numbers of its own, seeded by its class and number, so that any part
//! of the data can be made without the rest: blocks of instances are generated on all cores and
//! written in order, and the parts of a spread dataset together equal the whole. Only the owners
//! (which numbers belong to which producer, vendor, site, person) are drawn beforehand.
//!
//! # Limits
//! Memory: the owners (about 4 bytes for each review and offer owner) and a few blocks of a few MB.
//!
//! # References
//! Bizer, Schultz: The Berlin SPARQL Benchmark, 2009; the V3.1 tools.

pub(crate) mod date;
mod instance;
mod model;
pub(crate) mod output;
mod parameters;
mod pools;
pub(crate) mod random;
#[cfg(test)]
mod tests;
mod updates;
pub(crate) mod words;
mod writer;

use std::path::PathBuf;

use model::Model;
use output::{Compression, Output};
pub(crate) use parameters::Kind;
pub(crate) use pools::Pools;
pub(crate) use updates::Blocks;
use writer::Format;

/// The seed of the reference tool.
pub(crate) const SEED: u64 = 53_223_436;

/// What `stoa-bench generate bsbm` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of products; 2848 give 1 M triples, 28482 give 10 M, 284826 give 100 M
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    products: u64,
    /// nt or ttl
    #[arg(long, value_enum, default_value = "nt")]
    format: Format,
    /// Type products by their leaf type alone, without its ancestors
    #[arg(long)]
    leaf_types: bool,
    /// The same seed gives the same data
    #[arg(long, value_name = "SEED", default_value_t = SEED)]
    seed: u64,
    /// Spread the data over this many files
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    parts: u64,
    /// Write only this part, from 1
    #[arg(long, value_name = "I")]
    part: Option<u64>,
    /// The file to write, by default standard output; several parts get a number before the extension.
    /// `.gz` and `.zst` at its end compress
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// gz or zst, where the file's name does not tell
    #[arg(long, value_enum)]
    compress: Option<Compression>,
    /// Leave the last products out, with all their offers and reviews, and write them here as transactions of N-Triples that
    /// end with an empty line and `#__SEP__`
    #[arg(long, value_name = "FILE")]
    update_output: Option<PathBuf>,
    /// How many transactions
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "update_output",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    update_transactions: u64,
    /// Products of each transaction
    #[arg(long, value_name = "N", default_value_t = 1, requires = "update_output",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    update_products: u64,
    /// Write here, as JSON, what `stoa-bench run --pools` draws parameters from
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
    /// Threads; by default one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Generates the dataset and says on standard error how much it is.
#[expect(clippy::print_stderr, reason = "standard output may hold the data")]
pub(crate) fn generate(arguments: &Arguments) -> anyhow::Result<()> {
    let mut model = Model::new(arguments.products, arguments.seed, !arguments.leaf_types);
    if arguments.update_output.is_some() {
        let left_out = arguments.update_transactions * arguments.update_products;
        let Some(last) = arguments.products.checked_sub(left_out) else {
            anyhow::bail!(
                "{} transactions of {} products need {left_out} of the {}",
                arguments.update_transactions,
                arguments.update_products,
                arguments.products
            );
        };
        model.last_main = last;
    }
    let parts = match arguments.part {
        None => 1..=arguments.parts,
        Some(part) if (1..=arguments.parts).contains(&part) => part..=part,
        Some(part) => anyhow::bail!(
            "--part {part} is not within 1 to --parts {}",
            arguments.parts
        ),
    };
    if arguments.output.is_none() && parts.end() > parts.start() {
        anyhow::bail!("several parts need --output FILE");
    }
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    let mut triples = 0;
    for part in parts {
        let output = Output::open(
            arguments.output.as_deref(),
            arguments.compress,
            part,
            arguments.parts,
        )?;
        triples += output::write_part(
            &model,
            arguments.format,
            part - 1,
            arguments.parts,
            threads,
            output,
        )?;
    }
    if let Some(path) = &arguments.update_output {
        let output = Output::open(Some(path), None, 1, 1)?;
        let updates = updates::write(&model, arguments.update_products, output)?;
        eprintln!(
            "{triples} triples, and {updates} in {} transactions",
            arguments.update_transactions
        );
    } else {
        eprintln!("{triples} triples, {} instances", model.instances());
    }
    if let Some(path) = &arguments.pools {
        Pools::of(model).save(path)?;
    }
    Ok(())
}
