//! Operators against naive models, on random rows, with batches of 1, 3 and 1,024 rows.

mod admission;
mod difference;
mod forms;
mod harness;
mod index;
mod joins;
mod key_filters;
mod leapfrog;
mod limits;
mod order;
mod parallel;
mod paths;
mod spilling;
mod store;
mod unary;
