//! What fails is told clearly, and nothing is written after a failed write or sync.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::error::Error as _;
use std::sync::Arc;
use stoa_storage::{
    Access, Cache, Crash, Disk, Error, Faults, Identity, MemoryBudget, PartRef, SimulatedDisk,
    Store, nonblocking,
};

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(1 << 20), 1 << 16)
}

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn committed(disk: &SimulatedDisk) -> (Store, PartRef) {
    let store = Store::create(shared(disk), cache(), Identity::new(1)).unwrap();
    let checkpoint = store.begin().unwrap();
    let part = checkpoint.write_part(&[1; 9000]).unwrap();
    checkpoint.commit(1, &part.encode()).unwrap();
    (store, part)
}

#[test]
fn after_a_failure_the_store_reads_but_does_not_write() {
    // The write of an extent, of the free list, the syncs and the write of the root.
    for operation in 1..=4 {
        let disk = SimulatedDisk::new(operation);
        let (store, part) = committed(&disk);
        let checkpoint = store.begin().unwrap();
        disk.set_faults(Faults {
            fail_at: Some(disk.operations() + operation),
            ..Faults::default()
        });
        let written = checkpoint.write_part(&[2; 5000]);
        let error = match written {
            Ok(new) => checkpoint.commit(2, &new.encode()).unwrap_err(),
            Err(error) => {
                let again = checkpoint.write_extent(&[3]).unwrap_err();
                assert!(matches!(again, Error::RefusesWrites { .. }), "{again}");
                let again = checkpoint.commit(2, b"").unwrap_err();
                assert!(matches!(again, Error::RefusesWrites { .. }), "{again}");
                error
            }
        };
        // Only the write of the root decides whether there is a commit.
        let is_as_expected = match operation {
            4 => matches!(error, Error::Uncertain(_)),
            _ => matches!(error, Error::Io { .. }),
        };
        assert!(is_as_expected, "{operation}: {error:?}");
        assert!(error.source().unwrap().to_string().contains("simulated"));
        let refused = store.begin().unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("until it is opened again"), "{message}");
        assert!(
            message.contains("simulated"),
            "the cause is told: {message}"
        );
        assert_eq!(store.root().commit, 1);
        store.cache().clear();
        assert_eq!(store.read_one(&part).unwrap()[..], [1; 9000]);
        drop(store);
        let store = Store::open(shared(&disk), cache(), Access::Exclusive).unwrap();
        store.begin().unwrap().commit(3, b"").unwrap();
    }
}

#[test]
fn what_is_not_in_memory_is_refused_where_a_thread_must_not_block() {
    let (store, part) = committed(&SimulatedDisk::new(1));
    store.cache().clear();
    assert!(nonblocking::run(|| store.read_one(&part)).is_none());
    assert!(nonblocking::run(|| store.read(&[part])).is_none());
    assert_eq!(store.counters().reads, 0);
    store.read_one(&part).unwrap();
    let read = nonblocking::run(|| store.read_one(&part));
    assert_eq!(read.unwrap().unwrap()[..], [1; 9000]);
}

#[test]
fn a_full_disk_is_told_as_such() {
    let disk = SimulatedDisk::new(1);
    let (store, part) = committed(&disk);
    let space = store.temp_space();
    let mut file = space.file().unwrap();
    disk.set_faults(Faults {
        capacity_bytes: Some(60_000),
        ..Faults::default()
    });
    file.append(&[0; 20_000]).unwrap();
    let error = file.append(&[0; 50_000]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no space left on the disk to write 50000 bytes to (simulated disk)/tmp"
    );
    assert_eq!((file.len(), space.bytes()), (20_000, 20_000));
    // A temporary file is not the database: writing goes on.
    let checkpoint = store.begin().unwrap();
    let error = checkpoint.write_part(&[2; 50_000]).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("data-0000"), "{error}");
    drop(checkpoint);
    // No root names what was written of it: when there is room again, so does the store go on.
    disk.set_faults(Faults::default());
    let checkpoint = store.begin().unwrap();
    let second = checkpoint.write_part(&[2; 50_000]).unwrap();
    checkpoint.commit(2, b"").unwrap();
    store.cache().clear();
    assert_eq!(store.read_one(&second).unwrap()[..], [2; 50_000]);
    drop((store, file));
    disk.restart(Crash::Process);
    let store = Store::open(shared(&disk), cache(), Access::Exclusive).unwrap();
    assert_eq!(store.read_one(&part).unwrap()[..], [1; 9000]);
    store.begin().unwrap().commit(3, b"").unwrap();
}

#[test]
fn a_failed_read_is_an_error_once() {
    let disk = SimulatedDisk::new(1);
    let (store, part) = committed(&disk);
    disk.set_faults(Faults {
        fail_read_at: Some(disk.reads() + 1),
        ..Faults::default()
    });
    let error = store.read(&[part]).unwrap_err();
    assert_eq!(error.to_string(), "cannot read (simulated disk)/data-0000");
    assert_eq!(store.read(&[part]).unwrap()[0][..], [1; 9000]);
    store.begin().unwrap().commit(2, b"").unwrap();
}

#[test]
fn locks_of_the_simulated_disk_are_kept() {
    let disk = SimulatedDisk::new(1);
    let (store, _) = committed(&disk);
    let open = |access| Store::open(shared(&disk), cache(), access);
    assert!(matches!(open(Access::Shared), Err(Error::Locked { .. })));
    drop(store);
    let first = open(Access::Shared).unwrap();
    let second = open(Access::Shared).unwrap();
    assert!(matches!(open(Access::Exclusive), Err(Error::Locked { .. })));
    drop((first, second));
    open(Access::Exclusive).unwrap();
}

#[test]
fn two_stores_share_a_cache_and_keep_apart() {
    let cache = cache();
    let disks = [SimulatedDisk::new(1), SimulatedDisk::new(2)];
    let stores = disks
        .each_ref()
        .map(|disk| Store::create(shared(disk), Arc::clone(&cache), Identity::new(1)).unwrap());
    let parts = [1, 2]
        .map(|byte| (byte, &stores[usize::from(byte) - 1]))
        .map(|(byte, store)| {
            let checkpoint = store.begin().unwrap();
            let part = checkpoint.write_part(&[byte; 100]).unwrap();
            checkpoint.commit(1, b"").unwrap();
            part
        });
    assert_eq!(parts[0].extent, parts[1].extent);
    for _ in 0..2 {
        assert_eq!(stores[0].read_one(&parts[0]).unwrap()[..], [1; 100]);
        assert_eq!(stores[1].read_one(&parts[1]).unwrap()[..], [2; 100]);
    }
    assert_eq!((cache.counters().hits, cache.counters().misses), (2, 2));
    drop(stores);
    assert_eq!(cache.counters().bytes, 0);
    assert_eq!(cache.budget().used(), 0);
}
