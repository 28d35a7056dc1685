//! Operators against naive models, on random rows, with batches of 1, 3 and 1,024 rows.

mod harness;
mod joins;
mod limits;
mod unary;
