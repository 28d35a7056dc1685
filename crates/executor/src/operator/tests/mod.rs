//! Operators against naive models, on random rows, with batches of 1, 3 and 1,024 rows.

mod admission;
mod common_subplans;
mod compared_iris;
mod cutting;
mod difference;
mod existence;
mod few_keys;
mod forms;
mod harness;
mod index;
mod joiners;
mod joins;
mod kept_adjacencies;
mod key_filters;
mod leapfrog;
mod leaping;
mod limits;
mod merging;
mod order;
mod parallel;
mod parameterized;
mod partitioned;
mod partner_counts;
mod path_figures;
mod path_teams;
mod paths;
mod range_filters;
mod ranges;
mod sort;
mod spilling;
mod store;
mod switching;
mod term_memos;
mod top_k;
mod unary;

/// The context of operators that hold so many rows at most, and put others on disk.
pub(crate) fn spilling_context(batch_rows: usize, rows_min: usize) -> crate::QueryContext {
    let disk = std::sync::Arc::new(stoa_storage::SimulatedDisk::new(1));
    spilling_on(harness::store_on(disk), batch_rows, rows_min)
}

pub(crate) use harness::store_on as snapshot_on;

/// The same on data of its own.
pub(crate) fn spilling_on(
    snapshot: stoa_quadstore::Snapshot,
    batch_rows: usize,
    rows_min: usize,
) -> crate::QueryContext {
    let mut settings = harness::settings(batch_rows, 1 << 30);
    settings.spill = Some(crate::spill::Spill {
        space: snapshot.temp_space(),
        after_bytes: 0,
        rows_min,
    });
    crate::QueryContext::new(snapshot, settings)
}

/// For the tests of what operators share.
pub(crate) fn context_with(
    helpers: crate::helpers::Helpers,
) -> std::sync::Arc<crate::QueryContext> {
    let mut settings = harness::settings(1024, 1 << 30);
    settings.helpers = Some(std::sync::Arc::new(helpers));
    settings.parallel_rows_min = 0;
    harness::context(settings)
}
