//! Backups with the earlier commits that can be read, and what a restore makes of them.

use super::*;

use stoa_quadstore::Retention;

/// Compares every commit of a store with what there was, from `oldest` to its last one.
fn assert_history(store: &QuadStore, (oldest, last): (usize, usize), states: &[Model]) {
    assert_eq!(store.oldest_commit() as usize, oldest);
    assert_eq!(store.snapshot().commit() as usize, last);
    for (commit, state) in states.iter().enumerate().take(last + 1).skip(oldest) {
        let found = store.at(commit as u64, &|| false).unwrap();
        assert_reads_as(&found, state);
    }
}

/// A store that keeps everything, after commits, loads without a record, clears, checkpoints and compactions.
fn varied(seed: u64, target: &SimulatedDisk) -> Run {
    let mut run = Run::new(seed);
    run.store.set_retention(Retention::All).unwrap();
    run.load();
    for _ in 0..14 {
        match run.random.below(8) {
            0..4 => run.commits(2),
            4 => drop(checkpoint(&run.store)),
            5 => {
                let quads = run.random.quads(40, false);
                let mut next = run.now().clone();
                next.extend(quads.iter().cloned());
                run.clock
                    .store(1_000 * run.states.len() as u64, Ordering::Relaxed);
                load(&run.store, &quads, options(64 << 20, 1)).unwrap();
                run.states.push(next);
            }
            6 => drop(run.store.compact(&options(64 << 20, 1)).unwrap()),
            _ => drop(backup(&run.store, target).unwrap()),
        }
    }
    backup(&run.store, target).unwrap();
    run
}

/// Issue 36, D4: a restore of a backup lost the history of the database, and could not go back into it.
#[test]
fn a_backup_carries_the_history() {
    for round in 0..4 {
        let source = SimulatedDisk::new(1);
        let mut run = varied(seed() + 40 + round, &source);
        let last = run.states.len() - 1;
        assert_history(&run.store, (0, last), &run.states);
        for commit in 0..=last {
            let target = SimulatedDisk::new(5);
            let at = RestoreAt::Commit(commit as u64);
            let summary = restored(&source, &target, at).unwrap();
            assert_eq!(summary.commit as usize, commit);
            let store = reopen(&target);
            assert_history(&store, (0, commit), &run.states);
            assert_sound(&store);
        }
        // It goes on as any store, and so do its own backups.
        let target = SimulatedDisk::new(5);
        restored(&source, &target, RestoreAt::Last).unwrap();
        run.disk = target;
        let store = Store::open(shared(&run.disk), cache(), Access::Exclusive).unwrap();
        run.store = QuadStore::open_with(store, store_options(&run.clock)).unwrap();
        run.commits(3);
        checkpoint(&run.store);
        run.commits(2);
        let last = run.states.len() - 1;
        assert_history(&run.store, (0, last), &run.states);
        assert_sound(&run.store);
        let (again, third) = (SimulatedDisk::new(6), SimulatedDisk::new(7));
        backup(&run.store, &again).unwrap();
        restored(&again, &third, RestoreAt::Last).unwrap();
        assert_history(&reopen(&third), (0, last), &run.states);
        // What was kept for history alone is free once it is forgotten.
        let store = reopen(&third);
        store.set_retention(Retention::None).unwrap();
        write(&store, &store.snapshot(), &[], &Random(2).quads(3, false)).unwrap();
        checkpoint(&store);
        assert_eq!(store.store().retained_bytes(), 0);
        assert_sound(&store);
    }
}

#[test]
fn history_can_be_left_out_of_a_backup() {
    let source = SimulatedDisk::new(1);
    let run = varied(seed() + 50, &SimulatedDisk::new(2));
    let cancel = AtomicBool::new(false);
    let options = BackupOptions {
        history: false,
        ..quiet(&cancel)
    };
    run.store.backup(&shared(&source), &options).unwrap();
    let target = SimulatedDisk::new(5);
    restored(&source, &target, RestoreAt::Last).unwrap();
    let store = reopen(&target);
    let oldest = usize::try_from(store.oldest_commit()).unwrap();
    assert!(oldest > 0);
    assert_history(&store, (oldest, run.states.len() - 1), &run.states);
    assert_reads_as(&store.snapshot(), run.now());
    assert_sound(&store);
}
