//! Times of single kernels: decoding, seeking, the dictionary both ways, joins, aggregation, sorting, conditions on texts.
//!
//! `make bench` runs all, `make bench ONLY=seek` those whose names contain that. Each benchmark checks
//! what it computes. Data are made up, the same in every run, and all reads come from the cache.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a benchmark ends at the first mistake, and its numbers are small"
)]

mod columns;
mod data;
mod queries;
mod store;
mod texts;

use criterion::Criterion;

use data::Data;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    columns::run(&mut criterion);
    let data = Data::load();
    store::run(&mut criterion, &data);
    texts::run(&mut criterion, &data);
    queries::run(&mut criterion, &data);
    criterion.final_summary();
}
