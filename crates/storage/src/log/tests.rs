//! Unit tests of the log: what damage, foreign files, readers and recycled files do.

use super::file::encode_headers;
use super::fragment::{Fragment, identity_mark};
use super::{Durability, Log, LogMark, LogOptions, Lsn, NewRecord};
use crate::bytes::to_usize;
use crate::disk::{Access, Crash, Disk, Faults, OpenMode, SimulatedDisk};
use crate::error::{Error, Result};
use crate::format::{FRAGMENT_FIRST, FRAGMENT_LAST, LOG_CONTENT_OFFSET};
use crate::limits::LOG_POSITION_MAX;
use crate::log::LogRecovery;
use crate::store::Identity;
use std::sync::Arc;

/// Files of one page of fragments.
pub(super) const SMALL: LogOptions = LogOptions {
    file_bytes: 12_288,
    spare_files: 2,
    durability: Durability::Full,
};

fn find(disk: &SimulatedDisk, access: Access, mark: LogMark) -> Result<LogRecovery> {
    disk.create_directory().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    LogRecovery::find(&disk, Identity::new(7), access, (mark.position, mark), 0)
}

/// Payloads of all records from `mark` on.
fn records(disk: &SimulatedDisk, mark: LogMark) -> Result<Vec<Vec<u8>>> {
    let mut recovery = find(disk, Access::Shared, mark)?;
    let mut found = Vec::new();
    while let Some(record) = recovery.next_record()? {
        let mut payload = Vec::new();
        recovery.read_payload(&record, 1 << 20, &mut payload)?;
        found.push(payload);
    }
    Ok(found)
}

pub(super) fn open(disk: &SimulatedDisk, options: LogOptions) -> Log {
    let recovery = find(disk, Access::Exclusive, LogMark::default()).unwrap();
    recovery.finish(options).unwrap()
}

fn commit(log: &Log, payload: &[u8]) -> LogMark {
    let record = NewRecord {
        kind: 1,
        commit: 1,
        payload,
    };
    log.commit(&[record], 1).unwrap().mark
}

/// Two files of records of one length, and what they are.
fn two_files() -> (SimulatedDisk, Vec<Vec<u8>>) {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    let payloads: Vec<Vec<u8>> = (0..10).map(|number| vec![number; 700]).collect();
    for payload in &payloads {
        commit(&log, payload);
    }
    assert_eq!(log.closed_files().len(), 1);
    (disk, payloads)
}

#[test]
fn a_fragment_is_read_back_and_no_changed_bit_passes() {
    let mark = identity_mark(&Identity::new(99));
    let fragment = Fragment {
        length: 5,
        identity: mark,
        position: 4_096,
        durable: 4_000,
        commit: 12,
        time: 34,
        before: 0,
        opening: 3,
        kind: 7,
        flags: FRAGMENT_FIRST | FRAGMENT_LAST,
    };
    let mut bytes = Vec::new();
    fragment.encode(b"hello", &mut bytes);
    assert_eq!(bytes.len(), fragment.span());
    assert_eq!(Fragment::judge(&bytes, mark, 4_096), Ok(fragment));
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Fragment::judge(&changed, mark, 4_096).is_err(), "{bit}");
    }
    for length in 0..bytes.len() {
        assert!(Fragment::judge(&bytes[..length], mark, 4_096).is_err());
    }
    assert!(Fragment::judge(&bytes, mark, 4_104).unwrap_err().untouched);
    assert!(!Fragment::judge(&bytes, mark, 4_088).unwrap_err().untouched);
}

#[test]
fn marks_of_identities_differ() {
    let base = Identity::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let mut marks = vec![];
    for (timeline, generation) in [(1, 1), (2, 1), (1, 2), (3, 3), (9, 1)] {
        marks.push(identity_mark(&Identity {
            timeline,
            generation,
            ..base
        }));
    }
    marks.push(identity_mark(&Identity::new(8)));
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks.len(), 6);
}

/// A and B are written together, A is torn. Then a record takes A's place, to the byte: B, which nobody
/// acknowledged, must not come back behind it.
#[test]
fn what_was_cut_does_not_come_back() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    let before = commit(&log, b"first").position.to_u64();
    let torn = disk.bytes("log-0000").unwrap();
    let record = |payload| NewRecord {
        kind: 1,
        commit: 2,
        payload,
    };
    log.commit(&[record(&[1; 200]), record(&[2; 200])], 1)
        .unwrap();
    drop(log);
    let mut bytes = disk.bytes("log-0000").unwrap();
    let start = to_usize(LOG_CONTENT_OFFSET + before);
    bytes[start..start + 100].copy_from_slice(&torn[start..start + 100]);
    disk.put("log-0000", &bytes);
    let log = open(&disk, SMALL);
    // The new opening takes 64 bytes.
    commit(&log, &[3; 136]);
    drop(log);
    let found = records(&disk, LogMark::default()).unwrap();
    assert_eq!(found, [b"first".to_vec(), vec![3; 136]]);
}

#[test]
fn a_changed_byte_is_an_error_or_cuts_what_nothing_proves() {
    let (disk, payloads) = two_files();
    let last = disk.bytes("log-0001").unwrap();
    for name in ["log-0000", "log-0001"] {
        let bytes = disk.bytes(name).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..=used).filter(|at| at % 5 == 0 || at % 4096 < 64) {
            disk.flip(name, at as u64, 0x10);
            match records(&disk, LogMark::default()) {
                Ok(found) if found == payloads => panic!("{name} {at} is not read"),
                Ok(found) => {
                    // Only the last record, which no later one says is durable.
                    assert_eq!(found, payloads[..payloads.len() - 1], "{name} {at}");
                    assert_eq!(name, "log-0001");
                    assert!(at >= last.iter().rposition(|byte| *byte == 8).unwrap());
                }
                Err(Error::Corruption(damage)) => {
                    assert_eq!(damage.file, name, "{at}");
                    assert!(damage.offset <= at as u64);
                }
                Err(Error::ForeignLog { file, .. }) => assert_eq!(file, name),
                Err(error) => panic!("{name} {at}: {error}"),
            }
            disk.flip(name, at as u64, 0x10);
        }
    }
}

#[test]
fn after_closing_the_last_record_cannot_be_lost_unseen() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    commit(&log, b"first");
    let at = commit(&log, b"second").position.to_u64() - 5;
    log.close().unwrap();
    drop(log);
    disk.flip("log-0000", LOG_CONTENT_OFFSET + at, 1);
    let error = records(&disk, LogMark::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "file log-0000 is damaged at offset 8328 (length 64): expected a log record at position \
         136, which is durable as the record at offset 8400 of log-0000 says, found crc32c \
         b0b6a62f where it says 88a7c983"
    );
}

#[test]
fn a_torn_end_is_told() {
    let (disk, payloads) = two_files();
    let mut recovery = find(&disk, Access::Exclusive, LogMark::default()).unwrap();
    while recovery.next_record().unwrap().is_some() {}
    assert_eq!(recovery.torn(), None);
    let last = disk.bytes("log-0001").unwrap();
    let place = last.iter().rposition(|byte| *byte == 9).unwrap();
    disk.flip("log-0001", place as u64, 1);
    let mut recovery = find(&disk, Access::Exclusive, LogMark::default()).unwrap();
    let mut count = 0;
    while recovery.next_record().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, payloads.len() - 1);
    let torn = recovery.torn().unwrap();
    let log = recovery.finish(SMALL).unwrap();
    assert_eq!(log.durable().to_u64(), torn.to_u64() + 64);
}

#[test]
fn files_of_others_are_refused_and_say_whose_they_are() {
    let (disk, _) = two_files();
    let identity = Identity::new(7);
    let strangers = [
        Identity::new(8),
        Identity {
            timeline: 2,
            ..identity
        },
        Identity {
            generation: 5,
            ..identity
        },
    ];
    let shared: Arc<dyn Disk> = Arc::new(disk);
    for stranger in strangers {
        let mark = LogMark::default();
        let error = LogRecovery::find(
            &shared,
            stranger,
            Access::Exclusive,
            (mark.position, mark),
            0,
        )
        .unwrap_err();
        let Error::ForeignLog { file, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(file, "log-0000");
        assert!(error.to_string().contains("timeline 1, generation 1"));
    }
}

#[test]
fn missing_files_are_found() {
    let (disk, _) = two_files();
    let log = open(&disk, SMALL);
    for _ in 0..8 {
        commit(&log, &[1; 900]);
    }
    let mark = commit(&log, &[2; 900]);
    drop(log);
    let files = ["log-0000", "log-0001", "log-0002"];
    for name in files {
        let bytes = disk.bytes(name).unwrap();
        disk.remove(name).unwrap();
        let error = records(&disk, LogMark::default()).unwrap_err().to_string();
        assert!(error.contains("a log file"), "{error}");
        disk.put(name, &bytes);
    }
    for name in disk.list().unwrap() {
        disk.remove(&name).unwrap();
    }
    let error = records(&disk, mark).unwrap_err().to_string();
    assert!(error.ends_with("found no log file"), "{error}");
    assert_eq!(records(&disk, LogMark::default()).unwrap().len(), 0);
}

#[test]
fn damage_of_the_only_header_names_the_file() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    commit(&log, b"first");
    commit(&log, b"second");
    drop(log);
    let mut bytes = disk.bytes("log-0000").unwrap();
    bytes[..4096].fill(0);
    disk.put("log-0000", &bytes);
    let error = records(&disk, LogMark::default()).unwrap_err().to_string();
    assert!(error.starts_with("file log-0000 is damaged"), "{error}");
}

#[test]
fn positions_that_no_log_reaches_are_refused() {
    let (disk, _) = two_files();
    for position in [LOG_POSITION_MAX + 8, u64::MAX] {
        let mark = LogMark {
            position: Lsn::new(position),
            ..LogMark::default()
        };
        let error = records(&disk, mark).unwrap_err().to_string();
        let expected = format!("a log file that holds position {position}, found log-0001");
        assert!(error.contains(&expected), "{error}");
    }
    let whole = disk.bytes("log-0001").unwrap();
    for start in [LOG_POSITION_MAX + 8, u64::MAX - 7] {
        let mut bytes = whole.clone();
        let headers = encode_headers(&Identity::new(7), 1, start);
        bytes[..headers.len()].copy_from_slice(&headers);
        disk.put("log-0001", &bytes);
        let error = records(&disk, LogMark::default()).unwrap_err().to_string();
        assert!(error.starts_with("file log-0001 is damaged"), "{error}");
    }
}

/// Files are used again, filled with records of the same lengths as before; of those only the new
/// ones may be read.
#[test]
fn old_records_of_a_recycled_file_are_not_new() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    let mut marks = Vec::new();
    for round in 0..30_u8 {
        marks.push(commit(&log, &[round; 936]));
        let kept = marks.len().saturating_sub(6);
        log.release(marks[kept].position).unwrap();
        let names = disk.list().unwrap();
        assert!(names.len() <= 5, "{names:?}");
        let expected: Vec<Vec<u8>> = (kept + 1..=usize::from(round))
            .map(|round| vec![u8::try_from(round).unwrap(); 936])
            .collect();
        assert_eq!(records(&disk, marks[kept]).unwrap(), expected);
    }
    assert!(log.closed_files().first().unwrap().number > 3);
}

#[test]
fn a_reader_keeps_its_files_from_being_used_again() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    let start = log.end().position;
    let payloads: Vec<Vec<u8>> = (0..12).map(|number| vec![number; 900]).collect();
    for payload in &payloads {
        commit(&log, payload);
    }
    let mut reader = log.reader(start).unwrap();
    log.release(log.durable()).unwrap();
    for _ in 0..20 {
        commit(&log, &[77; 900]);
        log.release(log.durable()).unwrap();
    }
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let mut payload = Vec::new();
        reader.read_payload(&record, 900, &mut payload).unwrap();
        found.push(payload);
    }
    assert_eq!(found, payloads);
    let error = log.reader(start).unwrap_err().to_string();
    assert!(error.ends_with("position 0 was released"), "{error}");
}

/// A process that is killed leaves the headers of a file that it began to the memory of the operating system. The
/// file before it stays until something in the new one is durable: without headers nothing would tell where the log
/// goes on.
#[test]
fn a_file_stays_until_the_headers_of_the_next_one_are_durable() {
    let options = LogOptions {
        spare_files: 0,
        ..SMALL
    };
    let mut released = 0;
    for seed in 0..8 {
        for operation in 1..12 {
            let disk = SimulatedDisk::new(seed);
            let log = open(&disk, options);
            // Four of these leave too little room in a file for the head of another.
            for _ in 0..4 {
                commit(&log, &[7; 932]);
            }
            // The end of the opening is a record of the log's own, and begins a file.
            disk.set_faults(Faults {
                crash_at: Some(disk.operations() + operation),
                ..Faults::default()
            });
            log.close().err();
            drop(log);
            disk.restart(Crash::Process);
            // A checkpoint of all commits that are found, which releases what is before them.
            let mut found = find(&disk, Access::Exclusive, LogMark::default()).unwrap();
            let mut mark = LogMark::default();
            while let Some(record) = found.next_record().unwrap() {
                mark = record.mark();
            }
            let log = found.finish(options).unwrap();
            log.sync_to(mark.position).unwrap();
            released += log.release(mark.position).unwrap();
            drop(log);
            disk.restart(Crash::Power);
            let found =
                find(&disk, Access::Exclusive, mark).and_then(|found| found.finish(options));
            let log = found.unwrap_or_else(|error| panic!("{seed}, {operation}: {error}"));
            assert!(log.end().position >= mark.position);
        }
    }
    assert!(released > 0);
}

#[test]
fn what_is_retained_is_not_released() {
    let (disk, payloads) = two_files();
    let log = open(&disk, SMALL);
    log.retain(Lsn::new(64));
    assert_eq!(log.release(log.durable()).unwrap(), 0);
    let closed = log.closed_files();
    assert_eq!(closed[0].name, "log-0000");
    assert_eq!(closed[0].start, Lsn::new(0));
    let mut reader = log.reader(Lsn::new(64)).unwrap();
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, payloads.len());
    log.retain(Lsn::new(u64::MAX));
    assert_eq!(log.release(closed[0].end).unwrap(), 1);
}

#[test]
fn after_a_failure_nothing_is_written_and_all_is_read() {
    let (disk, payloads) = two_files();
    let log = open(&disk, SMALL);
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + 2),
        ..Faults::default()
    });
    let record = NewRecord {
        kind: 1,
        commit: 1,
        payload: b"lost",
    };
    assert!(matches!(log.commit(&[record], 1), Err(Error::Io { .. })));
    let operations = disk.operations();
    for error in [
        log.append(&[record], 1).unwrap_err(),
        log.sync().unwrap_err(),
        log.close().unwrap_err(),
    ] {
        let message = error.to_string();
        let expected = "the database refuses writes until it is opened again, after: cannot sync \
                        (simulated disk)/log-0001: ";
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(disk.operations(), operations);
    let mut reader = log.reader(Lsn::new(0)).unwrap();
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, payloads.len());
}

#[test]
fn time_does_not_go_back() {
    let disk = SimulatedDisk::new(1);
    let log = open(&disk, SMALL);
    let record = NewRecord {
        kind: 1,
        commit: 1,
        payload: b"",
    };
    let times = [50, 40, 60].map(|now| log.commit(&[record], now).unwrap().mark.time);
    assert_eq!(times, [50, 50, 60]);
    drop(log);
    let log = open(&disk, SMALL);
    assert_eq!(log.commit(&[record], 3).unwrap().mark.time, 60);
    drop(log);
    let mark = LogMark {
        time: 1_000,
        ..LogMark::default()
    };
    let other = SimulatedDisk::new(2);
    let log = find(&other, Access::Exclusive, mark).unwrap();
    let log = log.finish(SMALL).unwrap();
    assert_eq!(log.commit(&[record], 3).unwrap().mark.time, 1_000);
}

#[test]
fn an_unused_log_has_no_files_and_shared_access_writes_none() {
    let disk = SimulatedDisk::new(1);
    drop(open(&disk, SMALL));
    open(&disk, SMALL).close().unwrap();
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    let shared = find(&disk, Access::Shared, LogMark::default()).unwrap();
    assert!(matches!(shared.finish(SMALL), Err(Error::ReadOnly)));
    let log = open(&disk, SMALL);
    let record = NewRecord {
        kind: 254,
        commit: 1,
        payload: b"",
    };
    assert!(matches!(
        log.append(&[record], 1),
        Err(Error::LimitExceeded { limit: 253, .. })
    ));
}

#[test]
fn relaxed_commits_survive_the_process() {
    let disk = SimulatedDisk::new(1);
    let options = LogOptions {
        durability: Durability::Relaxed,
        ..SMALL
    };
    let log = open(&disk, options);
    commit(&log, b"one");
    let durable = log.durable();
    commit(&log, b"two");
    assert_eq!(log.durable(), durable);
    disk.restart(Crash::Process);
    drop(log);
    let found = records(&disk, LogMark::default()).unwrap();
    assert_eq!(found, [b"one", b"two"]);
}

#[test]
fn a_file_without_its_headers_is_damage_if_records_prove_it() {
    let (disk, _) = two_files();
    let file = disk.open("log-0001", OpenMode::ReadWrite).unwrap();
    file.write_at(&[0; 8192], 0).unwrap();
    let error = records(&disk, LogMark::default()).unwrap_err().to_string();
    assert!(error.contains("of log-0001 says"), "{error}");
}

/// Files are as long as suits the data, from the next record on; longer ones are not used again.
#[test]
fn files_fit_the_data() {
    const MB: u64 = 1 << 20;
    let disk = SimulatedDisk::new(1);
    let options = LogOptions {
        file_bytes: 4 * MB,
        spare_files: 2,
        durability: Durability::Relaxed,
    };
    let log = open(&disk, options);
    let mut payloads = Vec::new();
    let lengths = |disk: &SimulatedDisk| {
        let mut names = disk.list().unwrap();
        names.retain(|name| name.starts_with("log-"));
        names.sort();
        let length = |name: &String| disk.open(name, OpenMode::Read).unwrap().len().unwrap();
        names.iter().map(length).collect::<Vec<_>>()
    };
    let mut append = |log: &Log, count: u64| {
        for _ in 0..count {
            let number = u8::try_from(payloads.len()).unwrap();
            let payload = vec![number; 1 << 18];
            commit(log, &payload);
            payloads.push(payload);
        }
        log.sync().unwrap();
        payloads.clone()
    };
    append(&log, 9);
    assert_eq!(lengths(&disk), [3 * MB]);
    // The file that is written is at its end, since it is longer than it should be.
    log.fit(0).unwrap();
    append(&log, 9);
    assert!(lengths(&disk)[1..].iter().all(|length| *length <= MB));
    assert_eq!(lengths(&disk).len(), 4);
    log.fit(32 * MB).unwrap();
    append(&log, 16);
    assert_eq!(lengths(&disk)[4..].iter().max(), Some(&(2 * MB)));
    log.fit(u64::MAX).unwrap();
    let all = append(&log, 16);
    assert_eq!(records(&disk, LogMark::default()).unwrap(), all);
    assert_eq!(lengths(&disk).iter().max(), Some(&(4 * MB)));
    drop(log);
    // Files of all lengths are found again, and those that are too long go when nobody needs them.
    let log = open(&disk, options);
    log.fit(0).unwrap();
    append(&log, 1);
    assert!(log.release(log.end().position).unwrap() >= 6);
    assert!(lengths(&disk).iter().all(|length| *length <= MB));
    assert!(lengths(&disk).len() <= 3);
}

#[test]
fn a_log_goes_on_when_a_full_disk_has_room_again() {
    let used = |disk: &SimulatedDisk| -> u64 {
        let names = disk.list().unwrap();
        let files = names.iter().filter_map(|name| disk.bytes(name));
        files.map(|bytes| bytes.len() as u64).sum()
    };
    // From no room at all up to some files: writes fail at records, at headers, at the zeros behind them.
    for room in (0..60_000).step_by(1_500) {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk, SMALL);
        let mut payloads = vec![vec![0; 700]];
        commit(&log, &payloads[0]);
        disk.set_faults(Faults {
            capacity_bytes: Some(used(&disk) + room),
            ..Faults::default()
        });
        let append = |payload: &[u8]| {
            let record = NewRecord {
                kind: 1,
                commit: 1,
                payload,
            };
            log.append(&[record], 1)
        };
        for number in 1.. {
            let payload = vec![number; 700];
            let mark = append(&payload).unwrap().mark;
            payloads.push(payload);
            if let Err(error) = log.acknowledge(mark.position) {
                assert!(matches!(error, Error::DiskFull { .. }), "{room}: {error}");
                break;
            }
        }
        // Nothing is appended to what waits for room.
        let error = append(&[9; 700]).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{room}: {error}");
        assert_eq!(log.failure(), None);
        disk.set_faults(Faults::default());
        for number in 100..105 {
            let payload = vec![number; 700];
            commit(&log, &payload);
            payloads.push(payload);
        }
        let mut reader = log.reader(Lsn::default()).unwrap();
        let mut count = 0;
        while reader.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, payloads.len(), "{room}");
        drop((reader, log));
        disk.restart(Crash::Power);
        assert_eq!(
            records(&disk, LogMark::default()).unwrap(),
            payloads,
            "{room}"
        );
    }
}
