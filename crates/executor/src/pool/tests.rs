//! Tests of the worker pool.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1_000_000, Ordering::Relaxed)
    }
}

/// Writes `left` pieces of 10,000 bytes, counting them, then fails or panics if told so.
struct Pieces {
    left: usize,
    written: Arc<AtomicUsize>,
    end: &'static str,
    gone: Option<mpsc::Sender<()>>,
}

impl Task for Pieces {
    type Error = &'static str;

    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, Self::Error> {
        if self.left == 0 {
            return match self.end {
                "" => Ok(false),
                "panic" => panic!("a step panics"),
                error => Err(error),
            };
        }
        self.left -= 1;
        let number = self.written.fetch_add(1, Ordering::SeqCst);
        out.extend(std::iter::repeat_n(
            u8::try_from(number % 251).unwrap(),
            10_000,
        ));
        Ok(true)
    }

    fn panicked() -> Self::Error {
        "panicked"
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            gone.send(()).unwrap_or_default();
        }
    }
}

fn pieces(left: usize, end: &'static str) -> (Pieces, Arc<AtomicUsize>) {
    let written = Arc::new(AtomicUsize::new(0));
    (
        Pieces {
            left,
            written: Arc::clone(&written),
            end,
            gone: None,
        },
        written,
    )
}

fn pool(threads: usize, active_max: usize, waiting_max: usize) -> WorkerPool<Pieces> {
    let limits = PoolLimits {
        threads,
        active_max,
        waiting_max,
    };
    WorkerPool::new(limits, Arc::new(Ticks(AtomicU64::new(0)))).unwrap()
}

#[test]
fn chunks_come_in_order() {
    let pool = pool(2, 4, 4);
    let mut stream = pool
        .submit(pieces(200, "").0)
        .unwrap_or_else(|_| panic!("room"));
    let mut all = Vec::new();
    while let Some(chunk) = stream.next_chunk() {
        all.extend(chunk.unwrap());
    }
    let expected: Vec<u8> = (0..200_u8)
        .flat_map(|n| std::iter::repeat_n(n, 10_000))
        .collect();
    assert!(all == expected);
    assert!(stream.next_chunk().is_none());
}

#[test]
fn an_error_comes_alone_or_after_whole_chunks() {
    for (end, error) in [("no", "no"), ("panic", "panicked")] {
        for (steps, chunks) in [(0, 0), (1, 0), (3, 0), (4, 1)] {
            let pool = pool(1, 1, 0);
            let mut stream = pool
                .submit(pieces(steps, end).0)
                .unwrap_or_else(|_| panic!("room"));
            for _ in 0..chunks {
                assert_eq!(stream.next_chunk().unwrap().unwrap().len(), 40_000);
            }
            assert_eq!(stream.next_chunk(), Some(Err(error)), "{steps}");
            assert_eq!(stream.next_chunk(), None);
        }
    }
}

#[test]
fn readers_that_stop_hold_neither_memory_nor_others() {
    let pool = pool(1, 1, 0);
    let stopped: Vec<_> = (0..20)
        .map(|_| {
            let (task, written) = pieces(10_000, "");
            // The one before needs a moment to be parked.
            while lock(&pool.shared.queues).active > 0 {
                std::thread::yield_now();
            }
            let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
            assert!(stream.next_chunk().unwrap().is_ok());
            (stream, written)
        })
        .collect();
    while lock(&pool.shared.queues).active > 0 {
        std::thread::yield_now();
    }
    for (_, written) in &stopped {
        assert!(written.load(Ordering::SeqCst) * 10_000 < 2 * BUFFER_BYTES);
    }
    let mut short = pool
        .submit(pieces(1, "").0)
        .unwrap_or_else(|_| panic!("room"));
    assert!(short.next_chunk().unwrap().is_ok());
}

#[test]
fn a_dropped_stream_ends_its_task() {
    let pool = pool(1, 1, 1);
    let (gone, is_gone) = mpsc::channel();
    let (mut task, _) = pieces(1_000_000, "");
    task.gone = Some(gone);
    let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
    assert!(stream.next_chunk().unwrap().is_ok());
    drop(stream);
    is_gone.recv().unwrap();
}

#[test]
fn too_many_are_refused() {
    let pool = pool(1, 1, 2);
    lock(&pool.shared.queues).active = 1;
    let first = pool.submit(pieces(1, "").0);
    let second = pool.submit(pieces(1, "").0);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(pool.submit(pieces(1, "").0).err(), Some(PoolFull));
    drop(first);
    assert!(pool.submit(pieces(1, "").0).is_ok());
}
