//! The binary `stoa`: command line and HTTP.

fn main() {}
