//! Update transactions: the last products with their offers and reviews, as texts to be inserted.
//!
//! A transaction is N-Triples, then an empty line and the line `#__SEP__`, as the original tools write them.
//!
//! # Limits
//! Memory: 16 bytes for each offer and review of these products; all of the file when it is read.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::instance::Instances;
use super::model::Model;
use super::output::Output;
use super::writer::{Format, Writer};

/// What a transaction ends with.
const END: &str = "\n#__SEP__\n";

/// The transactions of a file.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Vec<String>);

impl Blocks {
    /// Reads what [`write()`] has written, plain or compressed as the name's end says.
    ///
    /// # Errors
    /// When the file cannot be read, has no transaction, or ends within one.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let read = || {
            let bytes = std::fs::read(path)?;
            let mut plain = Vec::new();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("zst") => plain = zstd::decode_all(bytes.as_slice())?,
                Some("gz") => {
                    flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
                }
                _ => plain = bytes,
            }
            Self::parse(std::str::from_utf8(&plain)?)
        };
        read().with_context(|| format!("reading the update transactions of {}", path.display()))
    }

    /// # Errors
    /// When the text has no transaction, or ends within one.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut blocks: Vec<String> = text.split(END).map(str::to_owned).collect();
        let rest = blocks.pop().unwrap_or_default();
        ensure!(!blocks.is_empty(), "there is no line #__SEP__");
        ensure!(
            rest.trim().is_empty(),
            "the last transaction does not end with an empty line and #__SEP__"
        );
        Ok(Self(blocks))
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// A transaction, from 0; past the last one it is empty.
    pub(crate) fn get(&self, number: u64) -> &str {
        let found = usize::try_from(number).ok().and_then(|at| self.0.get(at));
        found.map_or("", String::as_str)
    }
}

/// Writes all products behind the main data, `each` of them in a transaction; returns the triples.
///
/// # Errors
/// When they cannot be written.
pub(super) fn write(model: &Model, each: u64, mut output: Output) -> anyhow::Result<u64> {
    let offers = tail(model, model.offers(), |offer| model.offered(offer).0);
    let reviews = tail(model, model.reviews(), |review| model.reviewed(review).0);
    let mut instances = Instances::new(model, Format::Nt);
    let mut triples = 0;
    let mut first = model.last_main + 1;
    while first <= model.products {
        let mut writer = Writer::new(Format::Nt);
        let end = (first + each).min(model.products + 1);
        for product in first..end {
            instances.product(product, &mut writer);
            for &(_, offer) in of(&offers, product) {
                instances.offer(offer, &mut writer);
            }
            for &(_, review) in of(&reviews, product) {
                instances.single_review(review, &mut writer);
            }
        }
        writer.end();
        triples += writer.triples;
        writer.out.extend_from_slice(END.as_bytes());
        output.block(writer.out)?;
        first = end;
    }
    output.end()?;
    Ok(triples)
}

/// Products behind the main data with the numbers of what is about them, sorted.
fn tail(model: &Model, count: u64, product: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = (1..=count)
        .map(|number| (product(number), number))
        .filter(|&(product, _)| product > model.last_main)
        .collect();
    found.sort_unstable();
    found
}

fn of(sorted: &[(u64, u64)], product: u64) -> &[(u64, u64)] {
    let from = sorted.partition_point(|entry| entry.0 < product);
    let end = sorted.partition_point(|entry| entry.0 <= product);
    sorted.get(from..end).unwrap_or(&[])
}
