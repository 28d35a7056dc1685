//! Tests of permutations.
