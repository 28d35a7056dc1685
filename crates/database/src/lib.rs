//! The public API of Stoa: open, load, query, dump, check.
