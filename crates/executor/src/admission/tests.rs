//! The queue by itself, polled step by step.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

const MB: u64 = 1 << 20;

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn queue(bytes: u64) -> (MemoryBudget, Arc<Admission>) {
    let budget = MemoryBudget::new(bytes);
    let admission = Arc::new(Admission::new(&budget, 0));
    (budget, admission)
}

fn ticket(admission: &Arc<Admission>, bytes: u64) -> (Ticket, Arc<Calls>) {
    let (ticket, calls) = (ticket_of(admission, bytes), Arc::default());
    assert!(matches!(look(&ticket, &calls), Turn::Waiting));
    (ticket, calls)
}

fn ticket_of(admission: &Arc<Admission>, bytes: u64) -> Ticket {
    Ticket::new(admission, bytes, &Arc::default()).unwrap()
}

fn look(ticket: &Ticket, calls: &Arc<Calls>) -> Turn {
    ticket.poll(&Waker::from(Arc::clone(calls)))
}

fn calls(calls: &Calls) -> usize {
    calls.0.load(Ordering::Relaxed)
}

#[test]
fn turns_come_in_order() {
    let (budget, admission) = queue(64 * MB);
    let first = admission.enter(6 * MB).unwrap();
    let others = budget.try_reserve(53 * MB).unwrap();
    let (second, woken_second) = ticket(&admission, 8 * MB);
    // One for which there is room does not pass by, neither in the queue nor before it.
    let (third, woken_third) = ticket(&admission, 1);
    assert!(admission.enter(1).is_none());
    assert_eq!(admission.waiting(), 2);
    // Who needs no grant does.
    drop(admission.enter(0).unwrap());

    drop(first);
    assert_eq!((calls(&woken_second), calls(&woken_third)), (0, 0));
    drop(others);
    admission.freed();
    assert_eq!((calls(&woken_second), calls(&woken_third)), (1, 1));
    assert_eq!(admission.waiting(), 0);
    assert_eq!(budget.used(), 8 * MB + 1);
    let second = look(&second, &woken_second);
    let third = look(&third, &woken_third);
    assert!(matches!(
        (&second, &third),
        (Turn::Admitted(_), Turn::Admitted(_))
    ));
    drop((second, third));
    assert_eq!(budget.used(), 0);
    assert!(admission.enter(1).is_some());
}

#[test]
fn who_leaves_lets_the_next_one_in() {
    let (budget, admission) = queue(64 * MB);
    let first = admission.enter(8 * MB).unwrap();
    let others = budget.try_reserve(44 * MB).unwrap();
    let (second, _) = ticket(&admission, 16 * MB);
    let (third, woken) = ticket(&admission, 8 * MB);
    drop(second);
    assert_eq!(calls(&woken), 1);
    // It never comes for what was granted to it.
    let (fourth, woken) = ticket(&admission, 8 * MB);
    drop(third);
    assert_eq!(calls(&woken), 1);
    assert!(matches!(look(&fourth, &woken), Turn::Admitted(_)));
    drop((first, others));
    assert_eq!(budget.used(), 0);
}

#[test]
fn nobody_waits_for_more_than_there_is() {
    let (budget, admission) = queue(64 * MB);
    let _running = admission.enter(0).unwrap();
    let first = ticket_of(&admission, 60 * MB + 1);
    assert!(matches!(look(&first, &Arc::default()), Turn::Never));
    drop(first);
    // What is no query ends as well, sooner or later.
    let load = budget.try_reserve(1).unwrap();
    let (second, woken) = ticket(&admission, 60 * MB);
    drop(load);
    assert!(matches!(look(&second, &woken), Turn::Admitted(_)));
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_has_ended_counts_no_more() {
    let (budget, admission) = queue(64 * MB);
    let mut ended = admission.enter(8 * MB).unwrap();
    let others = budget.try_reserve(53 * MB).unwrap();
    let (first, woken) = ticket(&admission, 4 * MB);
    assert!(!admission.may_hold(16 * MB + 1));
    ended.end();
    assert_eq!(calls(&woken), 1);
    assert!(matches!(look(&first, &woken), Turn::Admitted(_)));
    let _waiting = ticket(&admission, 60 * MB);
    // None runs, and one waits.
    assert!(admission.may_hold(32 * MB));
    drop((ended, others));
    assert!(admission.may_hold(32 * MB));
}

#[test]
fn grants_take_half_of_the_budget() {
    let (budget, admission) = queue(64 * MB);
    let grants: Vec<_> = (0..4).map(|_| admission.enter(8 * MB).unwrap()).collect();
    assert!(admission.enter(8 * MB).is_none());
    assert_eq!(budget.used(), 32 * MB);
    drop(grants);
    assert!(admission.enter(40 * MB).is_some());
}

#[test]
fn who_holds_much_gives_way_to_those_that_wait() {
    let (_, admission) = queue(64 * MB);
    let running: Vec<_> = (0..3).map(|_| admission.enter(8 * MB).unwrap()).collect();
    assert!(admission.may_hold(64 * MB));
    let waiting = ticket(&admission, 24 * MB);
    assert!(admission.may_hold(8 * MB));
    assert!(!admission.may_hold(8 * MB + 1));
    drop(waiting);
    assert!(admission.may_hold(64 * MB));
    drop(running);
}

#[test]
fn the_queue_has_an_end() {
    let (_, admission) = queue(64 * MB);
    let running = admission.enter(8 * MB).unwrap();
    let tickets: Vec<_> = (0..WAITING_MAX)
        .map(|_| ticket(&admission, 60 * MB))
        .collect();
    assert!(Ticket::new(&admission, 1, &Arc::default()).is_none());
    drop(tickets);
    assert!(Ticket::new(&admission, 1, &Arc::default()).is_some());
    drop(running);
}
