//! Tests of the benchmark programs and scripts.

mod compare;
mod estimates;
