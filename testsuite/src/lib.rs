//! Tests that cross crates, and the tools they share.
