//! Unit tests of functions that are left with the log.
#![expect(
    clippy::disallowed_methods,
    reason = "a test whose threads outlive the function that begins them"
)]

use super::super::tests::{SMALL, open};
use super::super::{Log, Lsn, NewRecord};
use super::{Acknowledged, Goal, lock};
use crate::disk::{Faults, SimulatedDisk};
use crate::error::Result;
use crate::nonblocking;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3_600);

fn append(log: &Log) -> Lsn {
    let record = NewRecord {
        kind: 1,
        commit: 1,
        payload: b"a record",
    };
    log.append(&[record], 1).unwrap().mark.position
}

/// A function, and what it is told.
fn function() -> (Acknowledged, Receiver<Result<()>>) {
    let (tell, told) = channel();
    (Box::new(move |outcome| tell.send(outcome).unwrap()), told)
}

fn serve(log: &Arc<Log>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || log.serve(&|| Duration::ZERO))
}

/// A log in use.
fn begun(disk: &SimulatedDisk) -> Arc<Log> {
    let log = open(disk, SMALL);
    log.acknowledge(append(&log)).unwrap();
    Arc::new(log)
}

/// As if a thread led, so that nobody else does, and one served.
fn seem_busy(log: &Log) {
    let mut state = lock(&log.state);
    state.leader = true;
    state.group.servers += 1;
}

fn seem_idle(log: &Log) {
    let mut state = lock(&log.state);
    state.leader = false;
    state.group.servers -= 1;
    drop(state);
    log.changed.notify_all();
    log.work.notify_all();
}

#[test]
fn without_a_server_the_caller_leads() {
    let log = begun(&SimulatedDisk::new(1));
    let position = append(&log);
    let (done, told) = function();
    log.acknowledge_then(position, done);
    told.try_recv().unwrap().unwrap();
    assert!(log.durable() >= position);
}

#[test]
fn functions_that_are_left_are_called_by_the_server() {
    let log = begun(&SimulatedDisk::new(1));
    seem_busy(&log);
    let mut told = Vec::new();
    for _ in 0..3 {
        let (done, outcome) = function();
        let position = append(&log);
        log.acknowledge_then(position, done);
        assert!(outcome.try_recv().is_err());
        told.push((position, outcome));
    }
    let server = serve(&log);
    seem_idle(&log);
    for (position, outcome) in told {
        outcome.recv().unwrap().unwrap();
        assert!(log.durable() >= position);
    }
    log.stop_serving();
    server.join().unwrap();
    // And nobody is forgotten afterwards.
    let (done, outcome) = function();
    log.acknowledge_then(append(&log), done);
    outcome.try_recv().unwrap().unwrap();
}

/// And one after the other wakes a server that sleeps.
#[test]
fn a_thread_that_must_not_block_never_leads() {
    let log = begun(&SimulatedDisk::new(1));
    let server = serve(&log);
    while lock(&log.state).group.servers == 0 {
        std::thread::yield_now();
    }
    for _ in 0..100 {
        let (done, told) = function();
        let this = std::thread::current().id();
        let elsewhere = Box::new(move |outcome| {
            assert_ne!(std::thread::current().id(), this);
            done(outcome);
        });
        let left = nonblocking::run(|| log.acknowledge_then(append(&log), elsewhere));
        assert!(left.is_some());
        told.recv_timeout(LONG).unwrap().unwrap();
    }
    log.stop_serving();
    server.join().unwrap();
}

#[test]
fn a_server_ends_when_nobody_waits_any_more() {
    let log = begun(&SimulatedDisk::new(1));
    seem_busy(&log);
    let (done, outcome) = function();
    log.acknowledge_then(append(&log), done);
    log.stop_serving();
    let server = serve(&log);
    seem_idle(&log);
    server.join().unwrap();
    outcome.try_recv().unwrap().unwrap();
}

#[test]
fn a_failure_is_told_to_all() {
    let disk = SimulatedDisk::new(1);
    let log = begun(&disk);
    seem_busy(&log);
    let (one, told_one) = function();
    let (other, told_other) = function();
    log.acknowledge_then(append(&log), one);
    log.acknowledge_then(append(&log), other);
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    let server = serve(&log);
    seem_idle(&log);
    told_one.recv().unwrap().unwrap_err();
    told_other.recv().unwrap().unwrap_err();
    let (late, told_late) = function();
    log.acknowledge_then(Lsn::new(u64::MAX), late);
    told_late.recv().unwrap().unwrap_err();
    log.stop_serving();
    server.join().unwrap();
}

#[test]
fn a_function_that_panics_ends_nobody_else() {
    let log = begun(&SimulatedDisk::new(1));
    seem_busy(&log);
    log.acknowledge_then(
        append(&log),
        Box::new(|_| std::panic::resume_unwind(Box::new("a fault of the caller's"))),
    );
    let (done, outcome) = function();
    log.acknowledge_then(append(&log), done);
    let server = serve(&log);
    seem_idle(&log);
    outcome.recv().unwrap().unwrap();
    log.stop_serving();
    server.join().unwrap();
}

#[test]
fn a_leader_waits_for_its_company_and_not_for_ever() {
    let log = begun(&SimulatedDisk::new(1));
    {
        let mut state = lock(&log.state);
        (state.group.served, state.group.company) = (2, 2);
        state.group.servers = 1;
    }
    let (one, _told) = function();
    let position = append(&log);
    let goal = Goal::Durable(position.to_u64());
    log.acknowledge_then(position, one);
    let state = log.gather(lock(&log.state), goal, Duration::from_millis(1));
    assert_eq!(state.group.left.len(), 1);
    drop(state);
    let gathering = Arc::clone(&log);
    let leader = std::thread::spawn(move || {
        let state = gathering.gather(lock(&gathering.state), goal, LONG);
        state.group.left.len()
    });
    let (other, _told) = function();
    log.acknowledge_then(append(&log), other);
    assert_eq!(leader.join().unwrap(), 2);
    assert_eq!(lock(&log.state).group.wanted, None);
    // Nor when somebody else was faster.
    log.acknowledge(position).unwrap();
    lock(&log.state).group.company = 99;
    drop(log.gather(lock(&log.state), goal, LONG));
}

/// Those that were served, and those that came while they were.
#[test]
fn company_is_all_who_commit() {
    let log = begun(&SimulatedDisk::new(1));
    seem_busy(&log);
    let leave = || {
        let (done, told) = function();
        log.acknowledge_then(append(&log), done);
        told
    };
    let _served = [leave(), leave()];
    lock(&log.state).leader = false;
    log.sync().unwrap();
    lock(&log.state).leader = true;
    let _later = [leave(), leave(), leave()];
    let mut state = lock(&log.state);
    assert_eq!(state.take_ready().len(), 2);
    assert_eq!((state.group.served, state.group.company), (2, 5));
    drop(state);
    seem_idle(&log);
}

/// What became durable before a failure is not told as lost.
#[test]
fn a_failure_is_not_told_to_who_was_served() {
    let disk = SimulatedDisk::new(1);
    let log = begun(&disk);
    seem_busy(&log);
    let (one, told_one) = function();
    log.acknowledge_then(append(&log), one);
    lock(&log.state).leader = false;
    // Somebody who waits leads, and the server has not noticed yet.
    log.sync().unwrap();
    lock(&log.state).leader = true;
    let (other, told_other) = function();
    log.acknowledge_then(append(&log), other);
    disk.set_faults(Faults {
        fail_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    let server = serve(&log);
    seem_idle(&log);
    told_one.recv().unwrap().unwrap();
    told_other.recv().unwrap().unwrap_err();
    log.stop_serving();
    server.join().unwrap();
}
