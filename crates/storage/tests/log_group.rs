//! Group commit: what many threads append while one sync is under way goes out with the next one.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use stoa_storage::{
    Access, Cache, Disk, File, Identity, IoInfo, Lock, LockError, Log, LogOptions, MemoryBudget,
    NewRecord, OpenMode, SimulatedDisk, Store,
};

/// A disk whose syncs count, and wait until they are let through.
struct Gate {
    disk: SimulatedDisk,
    door: Arc<Door>,
}

#[derive(Default)]
struct Door {
    closed: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicU64,
    syncs: AtomicU64,
}

impl Door {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.changed.wait(closed).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

struct GateFile {
    file: Arc<dyn File>,
    door: Arc<Door>,
}

impl File for GateFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.door.pass();
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}

impl Disk for Gate {
    fn location(&self) -> String {
        self.disk.location()
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(GateFile {
            file: self.disk.open(name, mode)?,
            door: Arc::clone(&self.door),
        }))
    }

    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.disk.open_data(name, mode)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create_directory(&self) -> io::Result<bool> {
        self.disk.create_directory()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn lock(&self, access: Access, holder: &str) -> Result<Box<dyn Lock>, LockError> {
        self.disk.lock(access, holder)
    }

    fn temporary(&self) -> io::Result<Arc<dyn File>> {
        self.disk.temporary()
    }

    fn clear_temporary(&self) -> io::Result<()> {
        self.disk.clear_temporary()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn io_info(&self) -> IoInfo {
        self.disk.io_info()
    }
}

fn log(disk: Arc<dyn Disk>) -> Log {
    let cache = Cache::new(&MemoryBudget::new(1 << 20), 64 << 10);
    let store = Store::create(disk, cache, Identity::new(1)).unwrap();
    let options = LogOptions {
        file_bytes: 20_480,
        ..LogOptions::default()
    };
    store.take_log().unwrap().finish(options).unwrap()
}

fn record(payload: &[u8]) -> NewRecord<'_> {
    NewRecord {
        kind: 1,
        commit: 1,
        payload,
    }
}

#[test]
fn who_waits_during_a_sync_shares_the_next_one() {
    const THREADS: u64 = 20;
    let door = Arc::new(Door::default());
    let log = log(Arc::new(Gate {
        disk: SimulatedDisk::new(1),
        door: Arc::clone(&door),
    }));
    log.commit(&[record(b"first")], 1).unwrap();
    let before = door.syncs.load(Ordering::Relaxed);
    let start = log.end().position.to_u64();
    door.set(true);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| log.commit(&[record(b"12345678")], 1).unwrap());
        }
        // All have appended, one of them is in its sync.
        let mut spins = 0_u64;
        while log.end().position.to_u64() < start + THREADS * 72
            || door.waiting.load(Ordering::Relaxed) == 0
        {
            std::thread::yield_now();
            spins += 1;
            assert!(spins < 1 << 32, "the threads do not get there");
        }
        door.set(false);
    });
    let syncs = door.syncs.load(Ordering::Relaxed) - before;
    // That of the first leader, and one for all who came after it took the buffer.
    assert!(syncs <= 2, "{syncs}");
    assert_eq!(log.durable(), log.end().position);
}

#[test]
fn records_of_many_threads_are_whole_and_in_the_order_of_each() {
    const THREADS: u8 = 8;
    const RECORDS: u32 = 60;
    let log = log(Arc::new(SimulatedDisk::new(1)));
    let from = log.end().position;
    let start = Barrier::new(THREADS.into());
    let (log, start) = (&log, &start);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                start.wait();
                for number in 0..RECORDS {
                    // Some are longer than a file.
                    let length = if number % 20 == 7 { 30_000 } else { number };
                    let mut payload = number.to_le_bytes().to_vec();
                    payload.resize(4 + usize::try_from(length).unwrap(), thread);
                    let new = NewRecord {
                        kind: thread,
                        commit: 1,
                        payload: &payload,
                    };
                    let appended = log.commit(&[new], 1).unwrap();
                    assert!(log.durable() >= appended.mark.position);
                }
            });
        }
    });
    let mut next = [0_u32; THREADS as usize];
    let mut reader = log.reader(from).unwrap();
    while let Some(record) = reader.next().unwrap() {
        let mut payload = Vec::new();
        reader.read_payload(&record, 40_000, &mut payload).unwrap();
        let (number, rest) = payload.split_first_chunk::<4>().unwrap();
        let expected = next.get_mut(usize::from(record.kind)).unwrap();
        assert_eq!(u32::from_le_bytes(*number), *expected);
        assert!(rest.iter().all(|byte| *byte == record.kind));
        *expected += 1;
    }
    assert_eq!(next, [RECORDS; THREADS as usize]);
}
