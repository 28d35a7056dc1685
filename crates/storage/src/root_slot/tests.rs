//! Tests of root slots.
