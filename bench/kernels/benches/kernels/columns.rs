//! Decoding of one column of a row group, 1,024 values, for each encoding that values bring about.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use stoa_quadstore::kernels::{decode_column, encode_column};

use crate::data::Random;

const ROWS: usize = 1024;

pub(crate) fn run(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(ROWS as u64));
    let mut random = Random(1);
    let mut sorted = 0;
    let shapes: [(&str, Vec<u64>); 5] = [
        ("constant", vec![7; ROWS]),
        ("packed", column(|_| random.below(1 << 20))),
        (
            "delta",
            column(|_| {
                sorted += random.below(64);
                sorted
            }),
        ),
        ("runs", column(|row| row as u64 / 100 * 1_000_003)),
        (
            "dictionary",
            column(|_| random.below(12) * 0x0123_4567_89ab),
        ),
    ];
    for (name, values) in shapes {
        let mut stream = Vec::new();
        encode_column(&values, &mut stream);
        let mut out = vec![0; ROWS];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                assert!(decode_column(black_box(&stream), &mut out));
                black_box(&out);
            });
        });
        // Nothing was decoded if the benchmark was filtered out.
        assert!(out == values || out.iter().all(|value| *value == 0));
    }
    group.finish();
}

fn column(value: impl FnMut(usize) -> u64) -> Vec<u64> {
    (0..ROWS).map(value).collect()
}
