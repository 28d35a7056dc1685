//! Threads that help long queries.
//!
//! Whoever runs a query does its work; what can be done in pieces beside it is offered here
//! ([`Helpers::offer`]), and helpers take pieces as long as there are some. Nobody waits for a helper to
//! come: where none is free, a query goes on alone, so that many queries share the machine as if there
//! were no helpers.
//!
//! # Concurrency
//! One lock, of the queue. Work that was offered is taken in turns, a piece each.
//!
//! # Limits
//! Work must not hold the helpers that it is offered to. Threads start with the first offer. At most [`OFFERS_PER_THREAD`] offers a thread are open.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Further offers are turned down.
const OFFERS_PER_THREAD: usize = 4;

/// Work in pieces that several threads can do at once.
pub trait Pieces: Send + Sync {
    /// Does one piece to its end, unless the work has ended; says whether there may be more. May not
    /// panic where somebody waits for the piece.
    fn help(&self) -> bool;
}

/// See the module header. Dropping it ends the threads after their current piece.
#[derive(Debug)]
pub struct Helpers {
    shared: Arc<Shared>,
    most: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    offered: Condvar,
}

#[derive(Default)]
struct Queue {
    offers: VecDeque<Arc<dyn Pieces>>,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is done under the locks that can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    /// At most so many threads, which may be none.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                offered: Condvar::new(),
            }),
            most: threads,
            threads: Mutex::default(),
        }
    }

    /// How many threads there are at most.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.most
    }

    /// Offers work to up to `count` threads at once.
    pub fn offer(&self, work: &Arc<dyn Pieces>, count: usize) {
        self.start();
        let mut queue = lock(&self.shared.queue);
        let room = (self.most * OFFERS_PER_THREAD).saturating_sub(queue.offers.len());
        for _ in 0..count.min(self.most).min(room) {
            queue.offers.push_back(Arc::clone(work));
            self.shared.offered.notify_one();
        }
    }

    /// Starts the threads if they are not there. Where the system gives none, there is less help.
    fn start(&self) {
        let mut threads = lock(&self.threads);
        while threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            let name = format!("stoa-helper-{}", threads.len());
            let started = std::thread::Builder::new()
                .name(name)
                .spawn(move || shared.serve());
            match started {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.offers.clear();
        drop(queue);
        self.shared.offered.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A helper does not panic: pieces are caught.
            thread.join().unwrap_or_default();
        }
    }
}

impl Shared {
    fn serve(&self) {
        while let Some(work) = self.next() {
            let more = catch_unwind(AssertUnwindSafe(|| work.help()));
            if more.unwrap_or(false) {
                let mut queue = lock(&self.queue);
                if !queue.closed {
                    queue.offers.push_back(work);
                }
            }
        }
    }

    fn next(&self) -> Option<Arc<dyn Pieces>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(work) = queue.offers.pop_front() {
                return Some(work);
            }
            let waited = self.offered.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    struct Count {
        left: AtomicUsize,
        done: Mutex<mpsc::Sender<()>>,
    }

    impl Pieces for Count {
        fn help(&self) -> bool {
            let left = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            if left.is_ok() {
                lock(&self.done).send(()).unwrap_or_default();
            }
            left.is_ok()
        }
    }

    #[test]
    fn every_piece_is_done_and_threads_end() {
        let helpers = Helpers::new(2);
        let (done, told) = mpsc::channel();
        for _ in 0..3 {
            let work: Arc<dyn Pieces> = Arc::new(Count {
                left: AtomicUsize::new(50),
                done: Mutex::new(done.clone()),
            });
            helpers.offer(&work, 2);
        }
        drop(done);
        assert_eq!(told.iter().count(), 150);
        drop(helpers);
    }

    struct Panics;

    impl Pieces for Panics {
        fn help(&self) -> bool {
            std::panic::resume_unwind(Box::new("as it should"))
        }
    }

    #[test]
    fn a_piece_that_panics_ends_no_thread() {
        let helpers = Helpers::new(1);
        helpers.offer(&(Arc::new(Panics) as Arc<dyn Pieces>), 1);
        let (done, told) = mpsc::channel();
        let work: Arc<dyn Pieces> = Arc::new(Count {
            left: AtomicUsize::new(1),
            done: Mutex::new(done),
        });
        helpers.offer(&work, 1);
        drop(work);
        assert_eq!(told.iter().count(), 1);
    }

    #[test]
    fn without_threads_offers_are_turned_down() {
        let helpers = Helpers::new(0);
        let work: Arc<dyn Pieces> = Arc::new(Panics);
        helpers.offer(&work, 3);
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
