//! Tests of the simulated disk itself: it loses what it should and keeps what it must.

use super::{Crash, Disk, Faults, OpenMode, SimulatedDisk};

fn disk_with_file(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory().unwrap();
    let file = disk.open("file", OpenMode::Create).unwrap();
    file.write_at(&[1; 2048], 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    disk
}

#[test]
fn power_loss_keeps_what_was_synced_and_any_sector_of_the_rest() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = disk_with_file(seed);
        let file = disk.open("file", OpenMode::ReadWrite).unwrap();
        file.write_at(&[2; 1024], 0).unwrap();
        assert_eq!(disk.bytes("file").unwrap()[..1024], [2; 1024]);
        disk.restart(Crash::Power);
        assert!(file.sync().is_err(), "the handle is of before the restart");
        let bytes = disk.bytes("file").unwrap();
        assert_eq!(bytes[1024..], [1; 1024]);
        match (&bytes[..512], &bytes[512..1024]) {
            (a, b) if a == [1; 512] && b == [1; 512] => lost += 1,
            (a, b) if a == [2; 512] && b == [2; 512] => kept += 1,
            (a, b) if a[0] != b[0] => torn += 1,
            _ => panic!("a sector was torn"),
        }
    }
    assert!(kept > 20 && lost > 20 && torn > 20, "{kept} {lost} {torn}");
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let disk = disk_with_file(1);
    let file = disk.open("file", OpenMode::ReadWrite).unwrap();
    file.write_at(&[2; 2048], 0).unwrap();
    disk.restart(Crash::Process);
    assert_eq!(disk.bytes("file").unwrap(), [2; 2048]);
}

#[test]
fn overwrites_of_one_sector_may_end_in_either_order() {
    let mut first = 0;
    for seed in 0..200 {
        let disk = disk_with_file(seed);
        let file = disk.open("file", OpenMode::ReadWrite).unwrap();
        file.write_at(&[2; 512], 0).unwrap();
        file.write_at(&[3; 512], 0).unwrap();
        disk.restart(Crash::Power);
        first += usize::from(disk.bytes("file").unwrap()[0] == 2);
    }
    assert!(first > 20, "{first}");
}

#[test]
fn new_names_and_syncs_that_do_nothing_are_lost() {
    let (mut gone, mut lost) = (0, 0);
    for seed in 0..50 {
        let disk = disk_with_file(seed);
        let new = disk.open("new", OpenMode::Create).unwrap();
        new.write_at(b"x", 0).unwrap();
        new.sync().unwrap();
        disk.set_faults(Faults {
            sync_does_nothing: true,
            ..Faults::default()
        });
        let file = disk.open("file", OpenMode::ReadWrite).unwrap();
        file.write_at(&[2; 512], 0).unwrap();
        file.sync().unwrap();
        disk.restart(Crash::Power);
        gone += usize::from(disk.bytes("new").is_none());
        lost += usize::from(disk.bytes("file").unwrap()[0] == 1);
    }
    assert!(gone > 5 && lost > 5, "{gone} {lost}");
}

#[test]
fn a_full_disk_and_failing_operations_are_told() {
    let disk = disk_with_file(3);
    let before = disk.operations();
    disk.set_faults(Faults {
        fail_at: Some(before + 2),
        capacity_bytes: Some(4096),
        ..Faults::default()
    });
    let file = disk.open("file", OpenMode::ReadWrite).unwrap();
    let full = file.write_at(&[0; 4096], 1024).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(file.sync().is_err());
    file.sync().unwrap();
}

#[test]
fn a_crash_stops_everything_until_the_restart() {
    let disk = disk_with_file(4);
    disk.set_faults(Faults {
        crash_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    let file = disk.open("file", OpenMode::ReadWrite).unwrap();
    assert!(file.write_at(&[9; 512], 0).is_err());
    assert!(disk.has_crashed());
    assert!(file.len().is_err() && disk.list().is_err());
    disk.restart(Crash::Process);
    assert_eq!(disk.bytes("file").unwrap()[..512], [9; 512]);
}

#[test]
fn a_damaged_read_is_wrong_in_one_byte_and_once() {
    let disk = disk_with_file(5);
    let file = disk.open("file", OpenMode::Read).unwrap();
    disk.set_faults(Faults {
        damage_read_at: Some(disk.reads() + 2),
        ..Faults::default()
    });
    let wrong = || {
        let mut bytes = [0; 1024];
        assert_eq!(file.read_at(&mut bytes, 512).unwrap(), 1024);
        bytes.iter().filter(|byte| **byte != 1).count()
    };
    assert_eq!([wrong(), wrong(), wrong()], [0, 1, 0]);
    assert_eq!(disk.bytes("file").unwrap(), [1; 2048]);
}
