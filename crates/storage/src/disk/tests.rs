//! Tests of the real disk in both modes and by all calls: the same bytes, whatever the alignment.

use super::{Disk, FileRead, IoCalls, IoMode, OpenMode, RealDisk};
use proptest::prelude::*;

fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let bytes = (0_u32..).map(|i| (i * 7 + seed + i / 251).to_le_bytes()[0]);
    bytes.take(length).collect()
}

#[test]
fn both_modes_read_what_either_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = pattern(1, 3_000_000);
    for (writer, reader) in [
        (IoMode::Direct, IoMode::Direct),
        (IoMode::Direct, IoMode::Buffered),
        (IoMode::Buffered, IoMode::Direct),
    ] {
        let disk = RealDisk::with_mode(directory.path(), writer);
        let file = disk.open_data("data", OpenMode::Create).unwrap();
        file.write_padded(&bytes, 8192).unwrap();
        file.write_padded(&[], 4096).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 8192 + 3_002_368);
        let disk = RealDisk::with_mode(directory.path(), reader);
        let file = disk.open_data("data", OpenMode::Read).unwrap();
        let mut read = vec![1; bytes.len() + 10_000];
        assert_eq!(file.read_at(&mut read, 8192).unwrap(), 3_002_368);
        assert_eq!(read[..bytes.len()], bytes[..]);
        assert!(read[bytes.len()..3_002_368].iter().all(|byte| *byte == 0));
        assert_eq!(file.read_at(&mut read, 4_000_000).unwrap(), 0);
        println!("{writer:?} {reader:?}: {}", disk.io_info());
    }
}

/// Ranges of one file read together, aligned ones as the store reads and others.
#[test]
fn batches_read_what_single_reads_do() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = pattern(5, 2_000_000);
    let writer = RealDisk::new(directory.path());
    let file = writer.open_data("data", OpenMode::Create).unwrap();
    file.write_padded(&bytes, 0).unwrap();
    let mut expected = bytes;
    expected.resize(expected.len().next_multiple_of(4096), 0);
    for calls in [IoCalls::Uring, IoCalls::Pread] {
        for mode in [IoMode::Buffered, IoMode::Direct] {
            let disk = RealDisk::with_io(directory.path(), mode, calls);
            let file = disk.open_data("data", OpenMode::Read).unwrap();
            for (count, step, length) in
                [(300, 4096, 4096), (7, 70_001, 33_333), (3, 999_424, 8192)]
            {
                let mut memory = vec![0; count * length + 4096];
                let skip = memory.as_ptr().align_offset(4096);
                let mut rest = &mut memory[skip..];
                let mut reads = Vec::new();
                for number in 0..count {
                    let (buffer, after) = rest.split_at_mut(length);
                    rest = after;
                    reads.push(FileRead {
                        buffer,
                        offset: (number * step) as u64,
                        filled: 0,
                    });
                }
                let submissions = file.read_many(&mut reads).unwrap();
                for read in &reads {
                    let from = usize::try_from(read.offset).unwrap();
                    let wanted = &expected[from.min(expected.len())..];
                    let wanted = &wanted[..wanted.len().min(length)];
                    assert_eq!(
                        (read.filled, &read.buffer[..read.filled]),
                        (wanted.len(), wanted)
                    );
                }
                let info = disk.io_info();
                let by_ring = info.calls == "io_uring";
                println!("{count} reads in {submissions} submissions: {info}");
                let aligned = step % 4096 == 0 && length % 4096 == 0;
                if by_ring && (info.mode == IoMode::Buffered || aligned) {
                    assert_eq!(submissions, count.div_ceil(128));
                } else {
                    assert_eq!(submissions, count);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn direct_reads_of_any_range_equal_the_file(ranges in proptest::collection::vec((0_u64..2_200_000, 0_usize..1_300_000), 1..6)) {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::with_mode(directory.path(), IoMode::Direct);
        let bytes = pattern(9, 2_100_000);
        let file = disk.open_data("data", OpenMode::Create).unwrap();
        file.write_padded(&bytes, 0).unwrap();
        let mut expected = bytes.clone();
        expected.resize(2_101_248, 0);
        for (offset, length) in ranges {
            let mut read = vec![0; length];
            let count = file.read_at(&mut read, offset).unwrap();
            let rest = expected.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            prop_assert_eq!(&read[..count], &rest[..length.min(rest.len())]);
        }
    }
}
