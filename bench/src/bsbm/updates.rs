//! Update transactions: the last products with their offers and reviews, as texts to be inserted.
//!
//! A transaction is N-Triples, then an empty line and the line `#__SEP__`, as the original tools write them.
//!
//! # Limits
//! Memory: 16 bytes for each offer and review of these products.

use super::instance::Instances;
use super::model::Model;
use super::output::Output;
use super::writer::{Format, Writer};

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
        writer.out.extend_from_slice(b"\n#__SEP__\n");
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
