//! Bulk load: an external sort into the dictionary and the permutations.
