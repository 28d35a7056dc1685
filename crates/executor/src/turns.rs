//! Turns: how long work inside one step of a task lets other tasks run.
//!
//! The worker pool runs tasks step by step. An expression cannot return in the middle of a step, so it calls
//! [`give_way`] now and then. Whoever runs the step on this thread has said with [`with`] what happens then: the worker
//! pool lets this thread wait until it is the task's turn again, while another thread has its place among the workers.
//! Without that, as on the threads of the command line and of helpers, nothing happens.

use std::cell::RefCell;
use std::sync::Arc;

/// What [`give_way`] does on a thread.
pub trait GiveWay: Send + Sync {
    /// Returns when this thread may go on.
    fn give_way(&self);
}

thread_local! {
    static TURNS: RefCell<Option<Arc<dyn GiveWay>>> = const { RefCell::new(None) };
}

/// Puts back what was there, even after a panic.
struct Restore(Option<Arc<dyn GiveWay>>);

impl Drop for Restore {
    fn drop(&mut self) {
        TURNS.set(self.0.take());
    }
}

/// Does work on this thread that gives way as `turns` says.
pub fn with<T>(turns: Option<Arc<dyn GiveWay>>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(TURNS.replace(turns));
    work()
}

/// How this thread gives way, for another thread that does a part of its work while it waits.
#[must_use]
pub fn current() -> Option<Arc<dyn GiveWay>> {
    TURNS.with_borrow(Option::clone)
}

/// Lets others have their turn, if it is theirs. To be called by work that takes long, and holds no lock that others
/// wait for.
pub fn give_way() {
    TURNS.with_borrow(|turns| {
        if let Some(turns) = turns {
            turns.give_way();
        }
    });
}
