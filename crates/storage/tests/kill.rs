//! A process that commits is killed with SIGKILL on the real disk: what it reported stays.
//!
//! The test runs itself as a child that commits and writes each acknowledged number to its standard
//! output, and kills it after some of them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stoa_storage::{Access, Cache, Disk, Error, Identity, MemoryBudget, PartRef, RealDisk, Store};

const DIRECTORY: &str = "STOA_KILL_TEST_DIRECTORY";

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(RealDisk::new(path))
}

fn cache() -> Arc<Cache> {
    Cache::new(&MemoryBudget::new(16 << 20), 1 << 20)
}

/// What commit `number` writes.
fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(5000)
}

/// Commits for ever; each commit replaces the part of the one before.
#[test]
fn child() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let path = Path::new(&path);
    let store = match Store::open(disk(path), cache(), Access::Exclusive) {
        Err(Error::NotADatabase { .. }) => Store::create(disk(path), cache(), Identity::new(5)),
        store => store,
    };
    let store = store.unwrap();
    loop {
        let root = store.root();
        let number = root.commit + 1;
        let checkpoint = store.begin().unwrap();
        if let Some(old) = PartRef::decode_from(&root.payload) {
            checkpoint.free(old.extent, old.length.into());
        }
        drop(root);
        let part = checkpoint.write_part(&bytes(number)).unwrap();
        checkpoint.commit(number, &part.encode()).unwrap();
        println!("committed {number}");
    }
}

#[test]
fn what_a_killed_process_reported_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut reported = 0;
    for commits in [1, 3, 2, 7, 4] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(DIRECTORY, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut numbers = lines.filter_map(|line| {
            let line = line.ok()?;
            line.strip_prefix("committed ")?.parse::<u64>().ok()
        });
        reported = numbers.by_ref().take(commits).last().unwrap();
        let error = Store::open(disk(&path), cache(), Access::Shared).unwrap_err();
        let message = error.to_string();
        let pid = format!("process {} (", child.id());
        assert!(
            message.contains(&pid) && message.contains("kill"),
            "{message}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had written to the pipe before it died counts, too.
        reported = numbers.last().unwrap_or(reported);

        let store = Store::open(disk(&path), cache(), Access::Shared).unwrap();
        let root = store.root();
        assert!(root.commit >= reported, "{} of {reported}", root.commit);
        let part = PartRef::decode_from(&root.payload).unwrap();
        assert_eq!(store.read_one(&part).unwrap()[..], bytes(root.commit)[..]);
        let mut report = |error: Error| panic!("{error}");
        let cancel = AtomicBool::new(false);
        store.check(vec![part], &mut report, &cancel).unwrap();
    }
    assert!(reported > 10);
}
