//! Tests of the public API.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod admission;
mod analysis;
mod answers;
mod beyond_memory;
mod commits;
mod common_subplans;
mod computed_terms;
mod counts;
mod crash;
mod cycles;
mod database;
mod equal;
mod faults;
mod filled;
mod kept_numbers;
mod key_filters;
mod kill;
mod large_documents;
mod leaps;
mod lenient;
mod meters;
mod nonblocking;
mod notes;
mod partner_counts;
mod patches_beyond_memory;
mod path_estimates;
mod paths;
mod plans;
mod range_filters;
mod ranges;
mod sampling;
mod service;
mod stars;
mod switching;
mod text_conditions;
mod top_values;
mod transactions;
mod unnesting;
mod update;
mod wide;
