//! `stoa-bench`: generators and drivers of benchmarks.

fn main() {}
