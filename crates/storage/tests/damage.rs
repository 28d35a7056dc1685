//! Damaged files: every flipped byte is found by a check, and none panics or is returned as data.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that fails may panic, and its numbers are small"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stoa_storage::{
    Access, Cache, Corruption, Disk, Error, ExtentId, Identity, MemoryBudget, PartRef, Result,
    SimulatedDisk, Store, format,
};

struct Database {
    disk: SimulatedDisk,
    /// All parts of the last commit, and their bytes.
    parts: Vec<(PartRef, Vec<u8>)>,
}

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(1 << 24), 1 << 20)
}

fn open(disk: &SimulatedDisk, access: Access) -> Result<Store> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk, cache(), access)
}

/// Three commits over two data files, with free space between the extents.
fn database() -> Database {
    let disk = SimulatedDisk::new(1);
    let identity = Identity {
        data_files: 2,
        ..Identity::new(99)
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::create(shared, cache(), identity).unwrap();
    let mut parts: Vec<(PartRef, Vec<u8>)> = Vec::new();
    for commit in 1..=3_u64 {
        let checkpoint = store.begin().unwrap();
        for part in [0, 2] {
            if part < parts.len() {
                let (old, _) = parts.swap_remove(part);
                checkpoint.free(old.extent, old.length.into());
            }
        }
        for length in [10, 4096, 5000, 300] {
            let bytes: Vec<u8> = (0..length).map(|i: u32| (i % 250) as u8 + 1).collect();
            parts.push((checkpoint.write_part(&bytes).unwrap(), bytes));
        }
        checkpoint.commit(commit, b"payload").unwrap();
    }
    Database { disk, parts }
}

fn references(database: &Database) -> Vec<PartRef> {
    database.parts.iter().map(|(part, _)| *part).collect()
}

/// The problems that a check finds, or the error of opening.
fn problems(database: &Database, parts: Vec<PartRef>, access: Access) -> Vec<Corruption> {
    let mut found = Vec::new();
    let mut report = |error| match error {
        Error::Corruption(corruption) => found.push(*corruption),
        other => panic!("{other}"),
    };
    match open(&database.disk, access) {
        Err(error @ Error::Corruption(_)) => report(error),
        Err(error) => panic!("{error}"),
        Ok(store) => {
            store
                .check(parts, &mut report, &AtomicBool::new(false))
                .unwrap();
        }
    }
    found
}

#[test]
fn a_sound_store_has_no_problems() {
    let database = database();
    for access in [Access::Shared, Access::Exclusive] {
        assert_eq!(problems(&database, references(&database), access), []);
    }
    let store = open(&database.disk, Access::Shared).unwrap();
    let mut report = |error: Error| panic!("{error}");
    let cancelled = store.check(references(&database), &mut report, &AtomicBool::new(true));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    let summary = store
        .check(references(&database), &mut report, &AtomicBool::new(false))
        .unwrap();
    let pages = (store.data_bytes() / format::PAGE_BYTES) - 2;
    assert_eq!(summary.used_pages + summary.free_pages, pages);
    assert_eq!(summary.free_pages * format::PAGE_BYTES, store.free_bytes());
    assert_eq!(summary.parts, database.parts.len() as u64 + 1);
}

#[test]
fn every_flipped_byte_is_found() {
    let database = database();
    let mut found_free = 0;
    for name in [format::ROOT_FILE, "data-0000", "data-0001"] {
        let length = database.disk.bytes(name).unwrap().len() as u64;
        // Each byte of the root file, and a sample of the others, with the ends of pages.
        let step = if name == format::ROOT_FILE { 1 } else { 37 };
        for offset in (0..length).filter(|o| o % step == 0 || (o + 2) % 4096 < 4) {
            assert!(database.disk.flip(name, offset, 0x40));
            let found = problems(&database, references(&database), Access::Shared);
            let hit = found.iter().any(|corruption| {
                corruption.file == name
                    && (corruption.offset..corruption.offset + corruption.length).contains(&offset)
            });
            let free = found.is_empty() && name != format::ROOT_FILE;
            assert!(hit || free, "{name} {offset}: {found:?}");
            found_free += usize::from(free);
            assert!(database.disk.flip(name, offset, 0x40));
        }
    }
    // Only bytes in free pages are of no account.
    let store = open(&database.disk, Access::Shared).unwrap();
    let free_bytes = store.free_bytes() as usize;
    assert!(found_free <= free_bytes.div_ceil(30), "{found_free}");
}

#[test]
fn a_query_meets_damage_as_an_error() {
    let database = database();
    for (part, bytes) in &database.parts {
        let name = part.file_name();
        let offset = part.byte_offset() + bytes.len() as u64 / 2;
        let store = open(&database.disk, Access::Shared).unwrap();
        database.disk.flip(&name, offset, 1);
        let Err(Error::Corruption(found)) = store.read(&references(&database)) else {
            panic!("damage at {offset} was not seen");
        };
        assert_eq!(found.file, name);
        assert!((found.offset..found.offset + found.length).contains(&offset));
        assert!(found.expected.contains("crc32c") && found.expected != found.found);
        database.disk.flip(&name, offset, 1);
        assert_eq!(store.read_one(part).unwrap()[..], bytes[..]);
    }
}

#[test]
fn wrong_references_are_damage_and_allocate_nothing() {
    let database = database();
    let store = open(&database.disk, Access::Shared).unwrap();
    let good = database.parts[0].0;
    let wrong = [
        PartRef::NONE,
        PartRef {
            length: u32::MAX,
            ..good
        },
        PartRef {
            offset: u32::MAX,
            ..good
        },
        PartRef {
            extent: ExtentId::new(7, 1),
            ..good
        },
        PartRef {
            extent: ExtentId::from_u64(u64::MAX),
            ..good
        },
        PartRef {
            extent: ExtentId::new(1, 1 << 40),
            ..good
        },
        PartRef {
            crc32c: good.crc32c ^ 1,
            ..good
        },
    ];
    for part in wrong {
        store.prefetch(&[part]);
        assert!(
            matches!(store.read(&[good, part]), Err(Error::Corruption(_))),
            "{part:?}"
        );
        assert!(
            matches!(store.read_one(&part), Err(Error::Corruption(_))),
            "{part:?}"
        );
    }
    assert!(problems(&database, wrong.to_vec(), Access::Shared).len() > wrong.len());
}

#[test]
fn leaked_and_doubly_used_pages_are_found() {
    let database = database();
    let mut missing = references(&database);
    let lost = missing.pop().unwrap();
    let found = problems(&database, missing, Access::Shared);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].offset, found[0].found.as_str()),
        (lost.byte_offset(), "neither")
    );

    // A part in a free page.
    let store = open(&database.disk, Access::Exclusive).unwrap();
    let checkpoint = store.begin().unwrap();
    let victim = database.parts[1].0;
    checkpoint.free(victim.extent, victim.length.into());
    checkpoint.commit(4, b"").unwrap();
    drop(store);
    let found = problems(&database, references(&database), Access::Shared);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].found.starts_with("also"), "{found:?}");
}

#[test]
fn freeing_twice_is_refused_at_commit() {
    let database = database();
    let victim = database.parts[0].0;
    for frees in [
        [victim, victim],
        [
            victim,
            PartRef {
                extent: ExtentId::new(1, 4000),
                ..victim
            },
        ],
    ] {
        let store = open(&database.disk, Access::Exclusive).unwrap();
        let checkpoint = store.begin().unwrap();
        for part in frees {
            checkpoint.free(part.extent, part.length.into());
        }
        let error = checkpoint.commit(4, b"").unwrap_err();
        assert!(matches!(error, Error::Corruption(_)), "{error}");
        assert_eq!(store.root().commit, 3);
        drop(store);
        assert_eq!(
            problems(&database, references(&database), Access::Exclusive),
            []
        );
    }
}

#[test]
fn the_newest_slot_decides_and_its_damage_is_never_passed_over() {
    let database = database();
    // Checkpoint 4 (commit 3) lies in slot 0, checkpoint 3 in slot 1.
    let (newest, older) = (format::ROOT_SLOT_OFFSET, format::ROOT_SLOT_OFFSET + 4096);
    database.disk.flip(format::ROOT_FILE, newest + 100, 1);
    for access in [Access::Shared, Access::Exclusive] {
        let error = open(&database.disk, access).unwrap_err();
        assert!(matches!(error, Error::Corruption(_)), "{error}");
    }
    database.disk.flip(format::ROOT_FILE, newest + 100, 1);
    database.disk.flip(format::ROOT_FILE, older + 100, 1);
    let store = open(&database.disk, Access::Shared).unwrap();
    assert_eq!(store.root().commit, 3);
    drop(store);
    // If no sector of the damaged slot tells its age, it may be the newest.
    for sector in 0..8 {
        database
            .disk
            .flip(format::ROOT_FILE, older + 512 * sector + 50, 2);
    }
    assert!(open(&database.disk, Access::Shared).is_err());
}

#[test]
fn files_that_are_missing_short_or_of_another_database_are_told() {
    let sound = database();
    let with = |name: &str, bytes: &[u8]| {
        let database = database();
        database.disk.put(name, bytes);
        open(&database.disk, Access::Exclusive).unwrap_err()
    };
    let data = sound.disk.bytes("data-0000").unwrap();
    let root = sound.disk.bytes("root").unwrap();
    for error in [
        with("data-0000", &data[..data.len() - 1]),
        with("data-0000", &[]),
        with("data-0000", &sound.disk.bytes("data-0001").unwrap()),
        with("root", &root[..5000]),
        with("root", &root[..4096]),
        with("root", &[0; 12288]),
    ] {
        assert!(matches!(error, Error::Corruption(_)), "{error}");
    }
    let foreign = with("root", b"something else");
    assert!(matches!(foreign, Error::NotADatabase { .. }), "{foreign}");
    let again: Arc<dyn Disk> = Arc::new(sound.disk.clone());
    let error = Store::create(again, cache(), Identity::new(1)).unwrap_err();
    assert!(matches!(error, Error::AlreadyADatabase { .. }), "{error}");
}

/// The header of the root file with another field, and a right checksum.
fn with_header(offset: usize, value: &[u8]) -> Error {
    let database = database();
    let mut root = database.disk.bytes("root").unwrap();
    root[offset..offset + value.len()].copy_from_slice(value);
    root[format::HEADER_CRC..format::HEADER_CRC + 4].fill(0);
    let crc = stoa_storage::crc32c(&root[..4096]).to_le_bytes();
    root[format::HEADER_CRC..format::HEADER_CRC + 4].copy_from_slice(&crc);
    database.disk.put("root", &root);
    open(&database.disk, Access::Shared).unwrap_err()
}

#[test]
fn other_formats_are_refused_with_a_clear_message() {
    let next = format::FORMAT_VERSION + 1;
    let newer = with_header(format::HEADER_VERSION, &next.to_le_bytes());
    assert_eq!(
        newer.to_string(),
        format!(
            "(simulated disk) was written by a newer version of stoa: it has format version \
             {next}, this build reads format version {}; use a newer stoa",
            format::FORMAT_VERSION
        )
    );
    let older = with_header(format::HEADER_VERSION, &0_u32.to_le_bytes());
    assert!(older.to_string().contains("load the data again"), "{older}");
    let feature = with_header(format::HEADER_FEATURES, &4_u64.to_le_bytes());
    assert!(
        feature.to_string().contains("feature flags 0x4"),
        "{feature}"
    );
    let other = with_header(format::HEADER_DATABASE_ID, &[1]);
    assert!(matches!(other, Error::Corruption(_)), "{other}");
}
