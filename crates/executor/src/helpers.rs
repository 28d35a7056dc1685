//! Threads that help long queries.
//!
//! Whoever runs a query does its work; what can be done in pieces beside it is offered here
//! ([`Helpers::offer`]), and helpers take pieces as long as there are some. Nobody waits for a helper to
//! come: where none is free, a query goes on alone. Helpers are threads beside those that run queries; where
//! all are busy, the system shares the processors among them.
//!
//! # Concurrency
//! One lock, of the queue. Work that was offered is taken in turns, a piece each. An offer keeps no work alive.
//!
//! # Limits
//! Threads start with the first offer. At most four offers a thread are open.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use stoa_storage::sync::{Condvar, Mutex};

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
    /// Whose work is over takes its offers with it.
    offers: VecDeque<Weak<dyn Pieces>>,
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

    /// Offers work to up to `count` threads at once; gives how many offers were taken. Each of them ends when
    /// [`Pieces::help`] says so.
    pub fn offer(&self, work: &Arc<dyn Pieces>, count: usize) -> usize {
        self.start();
        let mut queue = lock(&self.shared.queue);
        let room = (self.most * OFFERS_PER_THREAD).saturating_sub(queue.offers.len());
        let taken = count.min(self.most).min(room);
        for _ in 0..taken {
            queue.offers.push_back(Arc::downgrade(work));
            self.shared.offered.notify_one();
        }
        taken
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
        let own = std::thread::current().id();
        for thread in lock(&self.threads).drain(..) {
            // A helper that had the last handle cannot wait for itself.
            if thread.thread().id() != own {
                thread.join().unwrap_or_default();
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        while let Some(offer) = self.next() {
            let Some(work) = offer.upgrade() else {
                continue;
            };
            let more = catch_unwind(AssertUnwindSafe(|| work.help()));
            drop(work);
            if more.unwrap_or(false) {
                let mut queue = lock(&self.queue);
                if !queue.closed {
                    queue.offers.push_back(offer);
                }
            }
        }
    }

    fn next(&self) -> Option<Weak<dyn Pieces>> {
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
        let works = [(); 3].map(|()| -> Arc<dyn Pieces> {
            Arc::new(Count {
                left: AtomicUsize::new(50),
                done: Mutex::new(done.clone()),
            })
        });
        for work in &works {
            assert_eq!(helpers.offer(work, 2), 2);
        }
        assert_eq!(told.iter().take(150).count(), 150);
        drop(helpers);
        assert_eq!(told.try_iter().count(), 0);
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
        let panics: Arc<dyn Pieces> = Arc::new(Panics);
        helpers.offer(&panics, 1);
        let (done, told) = mpsc::channel();
        let work: Arc<dyn Pieces> = Arc::new(Count {
            left: AtomicUsize::new(1),
            done: Mutex::new(done),
        });
        helpers.offer(&work, 1);
        assert_eq!(told.iter().take(1).count(), 1);
    }

    /// Holds a thread until it is let go.
    struct Waits(Arc<Mutex<()>>);

    impl Pieces for Waits {
        fn help(&self) -> bool {
            drop(lock(&self.0));
            false
        }
    }

    #[test]
    fn offers_are_turned_down_when_there_are_many() {
        let helpers = Helpers::new(1);
        let gate = Arc::new(Mutex::new(()));
        let closed = lock(&gate);
        let waits: Arc<dyn Pieces> = Arc::new(Waits(Arc::clone(&gate)));
        let taken: usize = (0..10).map(|_| helpers.offer(&waits, 1)).sum();
        // The thread may have taken one already.
        assert!((OFFERS_PER_THREAD..=OFFERS_PER_THREAD + 1).contains(&taken));
        drop(closed);
        drop(helpers);
        assert_eq!(Arc::weak_count(&waits), 0);
    }

    #[test]
    fn without_threads_offers_are_turned_down() {
        let helpers = Helpers::new(0);
        let work: Arc<dyn Pieces> = Arc::new(Panics);
        assert_eq!(helpers.offer(&work, 3), 0);
    }
}
