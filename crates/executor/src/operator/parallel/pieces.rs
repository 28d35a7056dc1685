//! Work in numbered pieces that helpers do beside whoever runs the query, and whose results are taken in their order.
//!
//! # Concurrency
//! One lock, for who does what. Whoever runs the query does the next piece that nobody has begun; where there is none it
//! waits for those in work, by leaving the waker. Once the last result was taken, or [`InOrder::stop`] said so, nobody
//! else holds what pieces are made of. Who drops the work before leaves helpers to finish their piece, which comes to
//! nothing.
//!
//! # Limits
//! Pieces are begun as far ahead of the one that is taken next as the work says; what their results take is the owner's
//! to reserve. A piece should take some milliseconds, or check whether the query has ended.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;

use super::{Helping, lock};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::helpers::Pieces;

/// Does the piece with a number.
type Work<T> = dyn Fn(usize, &QueryContext) -> Result<T> + Send + Sync;

/// What came of looking for a result.
pub(in crate::operator) enum Turn<T> {
    Given(T),
    /// Nothing yet; some work was done, or the waker was left.
    Working,
    /// All results were taken.
    Done,
}

/// See the module header.
pub(in crate::operator) struct InOrder<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    helpers: usize,
}

struct Shared<T> {
    progress: Mutex<Progress<T>>,
}

struct Progress<T> {
    /// Gone when the work is over.
    work: Option<Arc<Work<T>>>,
    /// What helpers do it with; made for the first offer.
    context: Option<Arc<QueryContext>>,
    pieces: usize,
    /// How many pieces are begun ahead of the one that is taken next, that one included.
    ahead: usize,
    /// The first piece that nobody has begun.
    next: usize,
    /// How many results were taken.
    taken: usize,
    /// The results of the pieces from `taken` to `next`, as far as they are there.
    results: VecDeque<Option<T>>,
    /// Helpers that are at a piece.
    helping: usize,
    /// Offers to helpers that have not ended.
    offers: usize,
    failed: Option<Error>,
    /// Of who waits for the helpers.
    waker: Option<Waker>,
}

impl<T: Send + 'static> InOrder<T> {
    /// So many pieces, done by so many helpers beside whoever asks for the results; `ahead` is at least 1.
    pub(in crate::operator) fn new(
        pieces: usize,
        helpers: usize,
        ahead: usize,
        work: impl Fn(usize, &QueryContext) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let progress = Progress {
            work: Some(Arc::new(work)),
            context: None,
            pieces,
            ahead: ahead.max(1),
            next: 0,
            taken: 0,
            results: VecDeque::new(),
            helping: 0,
            offers: 0,
            failed: None,
            waker: None,
        };
        Self {
            shared: Arc::new(Shared {
                progress: Mutex::new(progress),
            }),
            helpers,
        }
    }

    /// The next result, or some work for it.
    ///
    /// # Errors
    /// That of any piece.
    pub(in crate::operator) fn next(&mut self, context: &QueryContext) -> Result<Turn<T>> {
        self.offer(context);
        let mut progress = self.shared.progress();
        if let Some(error) = progress.failed.take() {
            progress.end();
            return Err(error);
        }
        if let Some(result) = progress.take() {
            return Ok(Turn::Given(result));
        }
        if let Some((number, work)) = progress.begin() {
            drop(progress);
            let result = work(number, context)?;
            drop(work);
            let mut progress = self.shared.progress();
            progress.put(number, result);
            return Ok(progress.take().map_or(Turn::Working, Turn::Given));
        }
        if progress.wait(context) {
            return Ok(Turn::Working);
        }
        progress.end();
        Ok(Turn::Done)
    }

    /// Begins no further piece; whether nobody is at one any more.
    pub(in crate::operator) fn stop(&mut self, context: &QueryContext) -> bool {
        let mut progress = self.shared.progress();
        progress.end();
        !progress.wait(context)
    }

    /// Asks helpers, as many as there is work for and as have not been asked yet; nobody where this thread must not
    /// block.
    fn offer(&self, context: &QueryContext) {
        let Some(helpers) = &context.settings().helpers else {
            return;
        };
        if self.helpers == 0 || nonblocking::is_on() {
            return;
        }
        let mut progress = self.shared.progress();
        // One piece is for who asks, unless there is a result to go on with.
        let own = usize::from(!matches!(progress.results.front(), Some(Some(_))));
        let others = progress.open().saturating_sub(own);
        let more = others.min(self.helpers).saturating_sub(progress.offers);
        if more > 0 {
            progress
                .context
                .get_or_insert_with(|| Arc::new(context.of_helper()));
            let work: Arc<dyn Pieces> = Arc::<Shared<T>>::clone(&self.shared);
            progress.offers += helpers.offer(&work, more);
        }
    }
}

impl<T: Send + 'static> Drop for InOrder<T> {
    fn drop(&mut self) {
        let mut progress = self.shared.progress();
        let held = progress.end();
        drop(progress);
        // What it holds may take long to go.
        drop(held);
    }
}

impl<T> Shared<T> {
    fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        lock(&self.progress)
    }
}

impl<T: Send> Pieces for Shared<T> {
    fn help(&self) -> bool {
        let begun = {
            let mut progress = self.progress();
            let context = progress.context.clone();
            let begun = context.and_then(|context| Some((progress.begin()?, context)));
            match begun {
                Some(_) => progress.helping += 1,
                None => progress.offers -= 1,
            }
            begun
        };
        let Some(((number, work), context)) = begun else {
            return false;
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _helping = Helping::new(&context);
            work(number, &context)
        }));
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::Internal("a helper of the query has panicked")));
        // Who sees that nobody helps may count on having all of it.
        drop((work, context));
        let mut progress = self.progress();
        progress.helping -= 1;
        match outcome {
            Ok(result) => progress.put(number, result),
            // What comes when all is over is nobody's fault.
            Err(error) if progress.work.is_some() => {
                progress.failed.get_or_insert(error);
            }
            Err(_) => (),
        }
        let more = progress.open() > 0;
        progress.offers -= usize::from(!more);
        let waker = progress.waker.take();
        drop(progress);
        if let Some(waker) = waker {
            waker.wake();
        }
        more
    }
}

impl<T> Progress<T> {
    /// How many pieces may be begun now.
    fn open(&self) -> usize {
        match self.work.is_some() && self.failed.is_none() {
            true => self.pieces.min(self.taken + self.ahead) - self.next,
            false => 0,
        }
    }

    /// The next piece, which is begun with that.
    fn begin(&mut self) -> Option<(usize, Arc<Work<T>>)> {
        if self.open() == 0 {
            return None;
        }
        let work = Arc::clone(self.work.as_ref()?);
        self.results.push_back(None);
        self.next += 1;
        Some((self.next - 1, work))
    }

    fn put(&mut self, number: usize, result: T) {
        if let Some(place) = self.results.get_mut(number - self.taken) {
            *place = Some(result);
        }
    }

    /// The next result if it is there.
    fn take(&mut self) -> Option<T> {
        let result = self.results.front_mut()?.take()?;
        self.results.pop_front();
        self.taken += 1;
        Some(result)
    }

    /// Leaves the waker if somebody is at a piece.
    fn wait(&mut self, context: &QueryContext) -> bool {
        if self.helping == 0 {
            return false;
        }
        self.waker = Some(context.waker());
        context.wait();
        true
    }

    /// The work is over; gives what was held for it.
    #[expect(clippy::type_complexity, reason = "to be dropped")]
    fn end(
        &mut self,
    ) -> (
        Option<Arc<Work<T>>>,
        Option<Arc<QueryContext>>,
        VecDeque<Option<T>>,
    ) {
        (
            self.work.take(),
            self.context.take(),
            std::mem::take(&mut self.results),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::helpers::Helpers;
    use crate::operator::tests::context_with;

    fn all<T: Send>(work: &mut InOrder<T>, context: &QueryContext) -> Result<Vec<T>> {
        let mut given = Vec::new();
        loop {
            match work.next(context)? {
                Turn::Given(result) => given.push(result),
                Turn::Working => (),
                Turn::Done => return Ok(given),
            }
        }
    }

    #[test]
    fn results_come_in_their_order() {
        for threads in [0, 1, 3] {
            let context = context_with(Helpers::new(threads));
            for (pieces, ahead) in [(0, 1), (1, 1), (200, 1), (200, 4), (200, 200)] {
                let held = Arc::new(());
                let own = Arc::clone(&held);
                let work = move |number: usize, _: &QueryContext| {
                    drop(Arc::clone(&own));
                    Ok(number)
                };
                let mut work = InOrder::new(pieces, threads, ahead, work);
                let given = all(&mut work, &context).unwrap();
                assert_eq!(given, (0..pieces).collect::<Vec<_>>());
                assert_eq!(Arc::strong_count(&held), 1, "the work is held");
                assert!(matches!(work.next(&context), Ok(Turn::Done)));
            }
        }
    }

    #[test]
    fn nobody_is_further_ahead_than_wanted() {
        let context = context_with(Helpers::new(3));
        let begun = Arc::new(AtomicUsize::new(0));
        let own = Arc::clone(&begun);
        let mut work = InOrder::new(100, 3, 4, move |number, _| {
            own.fetch_add(1, Ordering::Relaxed);
            Ok(number)
        });
        let mut given = 0;
        while given < 100 {
            match work.next(&context).unwrap() {
                Turn::Given(number) => assert_eq!(number, given),
                _ => continue,
            }
            assert!(begun.load(Ordering::Relaxed) <= given + 4);
            given += 1;
        }
    }

    #[test]
    fn whatever_fails_ends_the_work() {
        for threads in [0, 2] {
            let context = context_with(Helpers::new(threads));
            let mut work = InOrder::new(50, threads, 50, |number, _| match number {
                30 => Err(Error::Cancelled),
                _ => Ok(number),
            });
            assert!(matches!(all(&mut work, &context), Err(Error::Cancelled)));
            while !work.stop(&context) {}
        }
    }

    #[test]
    fn a_helper_that_panics_fails() {
        let context = context_with(Helpers::new(1));
        let owner = std::thread::current().id();
        let mut work = InOrder::new(2, 1, 2, move |number, _: &QueryContext| {
            if std::thread::current().id() != owner {
                std::panic::resume_unwind(Box::new("as it should"));
            }
            std::thread::sleep(std::time::Duration::from_millis(number as u64));
            Ok(number)
        });
        // Unless all was done before it came.
        let outcome = all(&mut work, &context);
        assert!(matches!(outcome, Ok(_) | Err(Error::Internal(_))));
        while !work.stop(&context) {}
    }
}
