//! Bits flipped in backups, archives and a database with history: the check finds each one that anything reads.

use super::*;

use stoa_quadstore::Retention;
use stoa_storage::{KeptReport, check_kept};

fn check(disk: &SimulatedDisk) -> stoa_storage::Result<KeptReport> {
    check_kept(&shared(disk), &AtomicBool::new(false), &|_| {})
}

/// A bit of every place in turn; a place is some bytes from the one before.
fn assert_flips_are_found(disk: &SimulatedDisk, is_read: impl Fn(&str, &[u8], usize) -> bool) {
    let whole = check(disk).unwrap();
    assert!(whole.problems.is_empty(), "{:?}", whole.problems);
    let mut random = Random(11);
    for name in disk.list().unwrap() {
        if name == "lock" {
            continue;
        }
        let bytes = disk.bytes(&name).unwrap();
        let step = (bytes.len() / 150).max(1);
        for place in (0..bytes.len()).step_by(step) {
            if !is_read(&name, &bytes, place) {
                continue;
            }
            let bit = 1 << random.below(8);
            assert!(disk.flip(&name, place as u64, bit));
            let is_found = match check(disk) {
                Ok(report) => !report.problems.is_empty(),
                Err(error) => panic!("{error}"),
            };
            assert!(is_found, "{name}, byte {place} of {}", bytes.len());
            assert!(disk.flip(&name, place as u64, bit));
        }
    }
}

/// Issue 36, P4.
#[test]
fn a_flipped_bit_in_a_backup_or_an_archive_is_found() {
    let (archive, source) = (SimulatedDisk::new(7), SimulatedDisk::new(1));
    let mut run = Run::archiving(seed() + 60, Some(&archive));
    run.store.set_retention(Retention::All).unwrap();
    run.load();
    run.commits(4);
    checkpoint(&run.store);
    run.commits(4);
    backup(&run.store, &source).unwrap();
    run.commits(2);
    checkpoint(&run.store);
    run.commits(3);
    backup(&run.store, &source).unwrap();
    run.store.archive().unwrap();
    let report = check(&source).unwrap();
    assert_eq!(report.backups, 2);
    assert!(report.log_files > 1 && report.bytes > 10_000, "{report:?}");
    let kept = check(&archive).unwrap();
    assert!(kept.log_files > 1 && kept.change_files == 1, "{kept:?}");
    // Zeros behind the fields of pages are read by nobody, nor are extents' files beyond what lists name.
    let is_read = |name: &str, bytes: &[u8], place: usize| {
        let page = place / 4096 * 4096;
        let is_head = page < 2 * 4096 && name.starts_with("log-") || page < 3 * 4096;
        let rest = bytes.get(place..page + 4096).unwrap_or_default();
        let is_tail = rest.iter().all(|byte| *byte == 0);
        !(is_tail && is_head)
    };
    assert_flips_are_found(&source, is_read);
    assert_flips_are_found(&archive, is_read);
    let nothing = SimulatedDisk::new(3);
    nothing.create_directory().unwrap();
    let error = check(&nothing).unwrap_err();
    assert!(error.to_string().contains("neither backups nor"), "{error}");
}

/// Another disk with the same files.
fn copied(disk: &SimulatedDisk) -> SimulatedDisk {
    let copy = SimulatedDisk::new(9);
    copy.create_directory().unwrap();
    for name in disk.list().unwrap() {
        if let Some(bytes) = disk.bytes(&name).filter(|_| name != "lock") {
            copy.put(&name, &bytes);
        }
    }
    copy
}

/// Whether a database cannot be opened, or its check says that something is wrong.
fn is_found(disk: &SimulatedDisk) -> bool {
    let opened = Store::open(shared(disk), cache(), Access::Shared);
    let Ok(store) = opened.map_err(Error::from).and_then(QuadStore::open) else {
        return true;
    };
    let report = store.check(&AtomicBool::new(false), &mut |_, _, _| {});
    !report.is_ok_and(|report| report.is_sound())
}

/// Issue 36, P4: the same of a database with history, whose archive is dead: its change files are beside the log.
#[test]
fn a_flipped_bit_in_a_database_with_history_is_found() {
    let archive = SimulatedDisk::new(7);
    let mut run = Run::archiving(seed() + 61, None);
    run.reopen_archiving(&archive);
    archive.set_faults(Faults {
        capacity_bytes: Some(1),
        ..Faults::default()
    });
    run.store.set_retention(Retention::All).unwrap();
    run.load();
    run.commits(4);
    checkpoint(&run.store);
    run.commits(4);
    run.store.compact(&options(64 << 20, 1)).unwrap();
    run.commits(3);
    checkpoint(&run.store);
    run.commits(3);
    run.store.close().unwrap();
    let Run { disk, states, .. } = run;
    assert!(!is_found(&copied(&disk)));
    let mut random = Random(12);
    let (mut places, mut found) = (0, 0);
    for name in disk.list().unwrap() {
        let bytes = disk.bytes(&name).unwrap();
        for place in (0..bytes.len()).step_by((bytes.len() / 120).max(1)) {
            let damaged = copied(&disk);
            if !damaged.flip(&name, place as u64, 1 << random.below(8)) {
                continue;
            }
            places += 1;
            if is_found(&damaged) {
                found += 1;
                continue;
            }
            // Nobody reads it, then: everything that can be read is as it was.
            let store = reopen(&damaged);
            assert_eq!(store.oldest_commit(), 0, "{name}, byte {place}");
            for (commit, state) in states.iter().enumerate() {
                assert_reads_as(&store.at(commit as u64, &|| false).unwrap(), state);
            }
        }
    }
    assert!(found > places / 3, "{found} of {places}");
}
