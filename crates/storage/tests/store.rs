//! A store on the real disk: create, write, read, reopen, refuse.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that fails may panic, and its numbers are small"
)]

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

#[test]
fn creation_takes_absent_and_empty_directories_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let create = |path: &std::path::Path| Store::create(disk(path), cache(), Identity::new(7));
    let open = |path: &std::path::Path| Store::open(disk(path), cache(), Access::Exclusive);

    let error = open(&path).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    assert!(!path.exists(), "opening makes nothing");
    let error = create(&path.join("deeper")).unwrap_err();
    assert!(
        matches!(error, Error::Io { .. }),
        "parents are not made: {error}"
    );
    assert!(!path.exists());

    std::fs::create_dir(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
    assert_eq!(
        std::fs::read_dir(&path).unwrap().count(),
        0,
        "opening makes nothing"
    );
    drop(create(&path).unwrap());
    let error = create(&path).unwrap_err();
    assert!(matches!(error, Error::AlreadyADatabase { .. }), "{error}");
    drop(open(&path).unwrap());

    let foreign = directory.path().join("foreign");
    for name in ["notes.txt", "root"] {
        std::fs::create_dir(&foreign).unwrap();
        std::fs::write(foreign.join(name), "mine").unwrap();
        let error = create(&foreign).unwrap_err();
        assert!(matches!(error, Error::ForeignFiles { .. }), "{error}");
        let error = open(&foreign).unwrap_err();
        assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
        assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
        std::fs::remove_dir_all(&foreign).unwrap();
    }
    std::fs::write(&foreign, "a file").unwrap();
    let error = open(&foreign).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    assert!(create(&foreign).is_err());
}

#[test]
fn a_held_root_keeps_its_extents() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(disk(directory.path()), cache(), Identity::new(7)).unwrap();
    let commit = |number: u64, byte: u8, old: Option<PartRef>| {
        let checkpoint = store.begin().unwrap();
        let part = checkpoint.write_part(&vec![byte; 50_000]).unwrap();
        if let Some(old) = old {
            checkpoint.free(old.extent, old.length.into());
        }
        checkpoint.commit(number, &part.encode()).unwrap();
        part
    };
    let first = commit(1, 1, None);
    let held = store.root();
    let mut last = first;
    for number in 2..6 {
        last = commit(number, number as u8, Some(last));
        store.cache().clear();
        assert_eq!(payload(&held), first);
        assert_eq!(store.read_one(&first).unwrap()[..], [1; 50_000]);
    }
    let long = store.data_bytes();
    drop(held);
    for number in 6..12 {
        last = commit(number, number as u8, Some(last));
    }
    assert!(
        store.data_bytes() < long,
        "the space of old roots is used again"
    );
    assert_eq!(store.read_one(&last).unwrap()[..], [11; 50_000]);
}

#[test]
fn abort_gives_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(disk(directory.path()), cache(), Identity::new(7)).unwrap();
    let checkpoint = store.begin().unwrap();
    assert!(matches!(store.begin(), Err(Error::CheckpointRunning)));
    let part = checkpoint.write_part(&[7; 100_000]).unwrap();
    let other = checkpoint.write_part(&[8; 5000]).unwrap();
    assert_eq!(checkpoint.written_bytes(), 102_400 + 8192);
    checkpoint.free(part.extent, part.length.into());
    assert_eq!(checkpoint.written_bytes(), 8192);
    assert_eq!(store.read_one(&other).unwrap()[..], [8; 5000]);
    drop(checkpoint);
    assert_eq!(store.data_bytes(), 4096);
    assert_eq!(
        std::fs::metadata(directory.path().join("data-0000"))
            .unwrap()
            .len(),
        4096
    );
    assert!(store.read_one(&other).is_err());
    let checkpoint = store.begin().unwrap();
    checkpoint.commit(1, b"empty").unwrap();
    assert_eq!(&store.root().payload[..], b"empty");
    let checkpoint = store.begin().unwrap();
    let error = checkpoint.commit(2, &[0; 4000]).unwrap_err();
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
    store.begin().unwrap().commit(2, &[0; 3000]).unwrap();
}

/// The problems that a check finds where `parts` are all parts of the root.
fn problems(store: &Store, parts: Vec<PartRef>) -> Vec<String> {
    let mut problems = Vec::new();
    let cancel = std::sync::atomic::AtomicBool::new(false);
    store
        .check(
            parts,
            &mut |error| problems.push(error.to_string()),
            &cancel,
        )
        .unwrap();
    problems
}

#[test]
fn a_checkpoint_beside_others_is_free_space_to_their_roots() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(disk(directory.path()), cache(), Identity::new(7)).unwrap();
    let mut long = store.begin_beside().unwrap();
    assert!(matches!(
        store.begin_beside(),
        Err(Error::CheckpointRunning)
    ));
    let kept = long.write_part(&[1; 9_000]).unwrap();
    let unneeded = long.write_part(&[2; 9_000]).unwrap();
    let mut old = None;
    for commit in 1..=3 {
        let checkpoint = store.begin().unwrap();
        assert!(matches!(
            long.keep_others_out(),
            Err(Error::CheckpointRunning)
        ));
        let part = checkpoint.write_part(&[7; 5_000]).unwrap();
        if let Some(PartRef { extent, length, .. }) = old.replace(part) {
            checkpoint.free(extent, length.into());
        }
        checkpoint.commit(commit, b"beside").unwrap();
        if commit == 2 {
            // Still there until it is given back.
            long.free(unneeded.extent, unneeded.length.into());
            assert_eq!(store.read_one(&unneeded).unwrap()[..], [2; 9_000]);
            long.reuse_freed();
        }
        assert_eq!(problems(&store, vec![part]), Vec::<String>::new());
    }
    let old = old.unwrap();
    long.keep_others_out().unwrap();
    assert!(matches!(store.begin(), Err(Error::CheckpointRunning)));
    long.let_others_in();
    store.begin().unwrap().commit(4, b"beside").unwrap();
    long.keep_others_out().unwrap();
    long.free(old.extent, old.length.into());
    long.commit(4, b"long").unwrap();
    assert_eq!(problems(&store, vec![kept]), Vec::<String>::new());
    assert_eq!(store.read_one(&kept).unwrap()[..], [1; 9_000]);
    store.begin().unwrap().commit(5, b"after").unwrap();
    drop(store);
    // What another one wrote that was stopped is free, and no root knows of it.
    let store = Store::open(disk(directory.path()), cache(), Access::Exclusive).unwrap();
    let stopped = store.begin_beside().unwrap();
    stopped.write_part(&[3; 90_000]).unwrap();
    store.begin().unwrap().commit(6, b"beside").unwrap();
    std::mem::forget(stopped);
    drop(store);
    let store = Store::open(disk(directory.path()), cache(), Access::Exclusive).unwrap();
    assert_eq!(problems(&store, vec![kept]), Vec::<String>::new());
    assert!(store.data_bytes() - store.free_bytes() < 90_000);
    // One that is dropped gives back all that it took.
    let stopped = store.begin_beside().unwrap();
    stopped.write_part(&[3; 90_000]).unwrap();
    drop(stopped);
    store.begin().unwrap().commit(7, b"last").unwrap();
    assert_eq!(problems(&store, vec![kept]), Vec::<String>::new());
}

#[test]
fn several_threads_write_extents_of_one_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity {
        data_files: 3,
        ..Identity::new(7)
    };
    let store = Store::create(disk(directory.path()), cache(), identity).unwrap();
    let checkpoint = store.begin().unwrap();
    let parts: Vec<Vec<PartRef>> = std::thread::scope(|scope| {
        let write = |thread: u8| {
            let checkpoint = &checkpoint;
            scope.spawn(move || {
                (0..50_u8)
                    .map(|i| checkpoint.write_part(&vec![thread * 50 + i; 100 * usize::from(i)]))
                    .collect::<Result<Vec<_>, _>>()
                    .unwrap()
            })
        };
        let threads: Vec<_> = (0..4).map(write).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    checkpoint.commit(1, b"").unwrap();
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    drop(store);
    let store = Store::open(disk(directory.path()), cache(), Access::Shared).unwrap();
    for (part, read) in parts.iter().zip(store.read(&parts).unwrap()) {
        assert_eq!(read.reference(), *part);
    }
    assert!(store.counters().reads < 10, "{:?}", store.counters());
    for file in 0..3 {
        assert!(parts.iter().any(|part| part.extent.file() == file));
    }
    let mut report = |error: Error| panic!("{error}");
    let cancel = std::sync::atomic::AtomicBool::new(false);
    let summary = store.check(parts, &mut report, &cancel).unwrap();
    assert_eq!(summary.free_pages, 0);
}

#[test]
fn temporary_files_are_counted_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(disk(directory.path()), cache(), Identity::new(7)).unwrap();
    let space = store.temp_space();
    let mut first = space.file().unwrap();
    let mut second = space.file().unwrap();
    assert_eq!(first.append(&[1; 1000]).unwrap(), 0);
    assert_eq!(first.append(&[2; 1000]).unwrap(), 1000);
    second.append(&[3; 500]).unwrap();
    let mut buffer = [0; 1000];
    first.read_at(&mut buffer, 500).unwrap();
    assert_eq!((buffer[0], buffer[999]), (1, 2));
    assert!(first.read_at(&mut buffer, 1001).is_err());
    assert_eq!((space.bytes(), first.len()), (2500, 2000));
    drop(first);
    assert_eq!((space.bytes(), space.peak_bytes()), (500, 2500));
    let temporary = directory.path().join("tmp");
    assert_eq!(
        std::fs::read_dir(&temporary).unwrap().count(),
        0,
        "files have no name"
    );
    std::fs::write(temporary.join("left-over"), "x").unwrap();
    drop((second, space, store));
    drop(Store::open(disk(directory.path()), cache(), Access::Shared).unwrap());
    assert!(
        temporary.join("left-over").exists(),
        "another reader may use it"
    );
    drop(Store::open(disk(directory.path()), cache(), Access::Exclusive).unwrap());
    assert!(!temporary.exists());
}
