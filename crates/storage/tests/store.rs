//! A store on the real disk: create, write, read, reopen, refuse.

use std::sync::Arc;
use stoa_storage::{
    Access, Cache, Disk, Error, Identity, MemoryBudget, PartRef, RealDisk, Root, Store,
};

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(64 << 20), 16 << 20)
}

fn disk(path: &std::path::Path) -> Arc<dyn Disk> {
    Arc::new(RealDisk::new(path))
}

fn payload(root: &Root) -> PartRef {
    PartRef::decode_from(&root.payload).unwrap()
}

#[test]
fn written_parts_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = Store::create(disk(&path), cache(), Identity::new(7)).unwrap();
    let checkpoint = store.begin().unwrap();
    let text: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    let extent = checkpoint.write_extent(&text).unwrap();
    let whole = PartRef::of(extent, 0, &text);
    let middle = PartRef::of(extent, 100, &text[100..5000]);
    let small = checkpoint.write_part(b"small").unwrap();
    assert_eq!(store.read(&[middle]).unwrap()[0][..], text[100..5000]);
    checkpoint.commit(1, &whole.encode()).unwrap();
    drop(store);

    let store = Store::open(disk(&path), cache(), Access::Shared).unwrap();
    let root = store.root();
    assert_eq!((root.commit, root.checkpoint), (1, 2));
    let parts = store
        .read(&[small, middle, payload(&root), middle])
        .unwrap();
    assert_eq!(&parts[0][..], b"small");
    assert_eq!(parts[1][..], text[100..5000]);
    assert_eq!(parts[2][..], text[..]);
    assert_eq!(parts[3][..], text[100..5000]);
    assert_eq!(store.counters().reads, 1);
    assert!(matches!(store.begin(), Err(Error::ReadOnly)));
}

#[test]
fn a_second_user_is_told_who_holds_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(disk(directory.path()), cache(), Identity::new(7)).unwrap();
    let error = Store::open(disk(directory.path()), cache(), Access::Shared).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains(&format!("process {}", std::process::id())),
        "{message}"
    );
    drop(store);
    let first = Store::open(disk(directory.path()), cache(), Access::Shared).unwrap();
    let _second = Store::open(disk(directory.path()), cache(), Access::Shared).unwrap();
    let error = Store::open(disk(directory.path()), cache(), Access::Exclusive).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(first);
}
