//! Tests of the worker pool.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc;

use super::*;

/// A clock that goes on whenever somebody looks.
struct Ticks {
    now_ns: AtomicU64,
    step_ns: u64,
}

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(self.step_ns, Ordering::Relaxed)
    }
}

fn ticks() -> Ticks {
    Ticks {
        now_ns: AtomicU64::new(0),
        step_ns: 1_000_000,
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

    fn step(&mut self, out: &mut Vec<u8>, _: &Waker) -> Result<Progress, Self::Error> {
        if self.left == 0 {
            return match self.end {
                "" => Ok(Progress::Done),
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
        Ok(Progress::More)
    }

    fn restart(&mut self) {}

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

/// The bytes of the next chunk.
fn next<T: Task>(stream: &mut TaskStream<T>) -> Option<Result<Vec<u8>, T::Error>> {
    let chunk = stream.next_chunk()?;
    Some(chunk.map(|chunk| chunk.bytes))
}

fn pool(threads: usize, active_max: usize, waiting_max: usize) -> WorkerPool<Pieces> {
    let limits = PoolLimits {
        threads,
        active_max,
        waiting_max,
    };
    WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap()
}

#[test]
fn chunks_come_in_order() {
    let pool = pool(2, 4, 4);
    let mut stream = pool
        .submit(pieces(200, "").0)
        .unwrap_or_else(|_| panic!("room"));
    let mut all = Vec::new();
    while let Some(chunk) = next(&mut stream) {
        all.extend(chunk.unwrap());
    }
    let expected: Vec<u8> = (0..200_u8)
        .flat_map(|n| std::iter::repeat_n(n, 10_000))
        .collect();
    assert!(all == expected);
    assert!(next(&mut stream).is_none());
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
                assert_eq!(next(&mut stream).unwrap().unwrap().len(), 40_000);
            }
            assert_eq!(next(&mut stream), Some(Err(error)), "{steps}");
            assert_eq!(next(&mut stream), None);
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
            assert!(next(&mut stream).unwrap().is_ok());
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

/// A pool for one task, whose output counts in `memory`.
fn one_at_a_time(memory: &MemoryBudget) -> WorkerPool<Pieces> {
    let limits = PoolLimits {
        threads: 1,
        active_max: 1,
        waiting_max: 0,
    };
    WorkerPool::new(limits, Arc::new(ticks()), memory.clone()).unwrap()
}

#[test]
fn chunks_are_counted_until_they_are_dropped() {
    let memory = MemoryBudget::unlimited();
    let pool = one_at_a_time(&memory);
    let mut stream = pool
        .submit(pieces(10_000, "").0)
        .unwrap_or_else(|_| panic!("room"));
    let chunk = stream.next_chunk().unwrap().unwrap();
    assert!(memory.used() >= chunk.bytes.len() as u64);
    // What the reader has taken is counted as long as it holds it, what it has not taken as long as the stream is there.
    drop(stream);
    while lock(&pool.shared.queues).active > 0 {
        std::thread::yield_now();
    }
    assert_eq!(memory.used(), chunk.memory.bytes());
    drop(chunk);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_stream_holds_one_chunk_where_there_is_no_room() {
    let memory = MemoryBudget::new(1);
    let pool = one_at_a_time(&memory);
    let mut stream = pool
        .submit(pieces(100, "").0)
        .unwrap_or_else(|_| panic!("room"));
    let mut bytes = 0;
    loop {
        while lock(&pool.shared.queues).active > 0 {
            std::thread::yield_now();
        }
        assert!(lock(&stream.shared.state).chunks.len() <= 1);
        let Some(chunk) = next(&mut stream) else {
            break;
        };
        bytes += chunk.unwrap().len();
    }
    assert_eq!((bytes, memory.used()), (1_000_000, 0));
}

#[test]
fn a_dropped_stream_ends_its_task() {
    let pool = pool(1, 1, 1);
    let (gone, is_gone) = mpsc::channel();
    let (mut task, _) = pieces(1_000_000, "");
    task.gone = Some(gone);
    let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
    assert!(next(&mut stream).unwrap().is_ok());
    drop(stream);
    is_gone.recv().unwrap();
}

/// What a task does in a step.
#[derive(Clone, Copy)]
enum Act {
    Write(u8),
    /// Something for which it may have to block.
    Block,
    Panic,
}

/// Does what it is told, a step each, and notes on which threads.
struct Actor {
    acts: Vec<Act>,
    next: usize,
    threads: Arc<Mutex<Vec<std::thread::ThreadId>>>,
}

impl Task for Actor {
    type Error = &'static str;

    fn step(&mut self, out: &mut Vec<u8>, _: &Waker) -> Result<Progress, Self::Error> {
        lock(&self.threads).push(std::thread::current().id());
        let Some(act) = self.acts.get(self.next) else {
            return Ok(Progress::Done);
        };
        self.next += 1;
        match act {
            Act::Write(byte) => out.push(*byte),
            Act::Block => nonblocking::check().map_err(|_| "refused")?,
            Act::Panic => panic!("a step panics"),
        }
        Ok(Progress::More)
    }

    fn restart(&mut self) {
        self.next = 0;
    }

    fn panicked() -> Self::Error {
        "panicked"
    }
}

type Answered = Result<Vec<u8>, &'static str>;

/// The answer of a task that is started, and for each of its steps whether it was done at once.
fn started(acts: &[Act], clock: Ticks) -> (Answered, Vec<bool>) {
    started_for(nonblocking::SLICE_NS, acts, clock)
}

fn started_for(slice_ns: u64, acts: &[Act], clock: Ticks) -> (Answered, Vec<bool>) {
    let limits = PoolLimits {
        threads: 1,
        active_max: 1,
        waiting_max: 0,
    };
    let pool = WorkerPool::new(limits, Arc::new(clock), MemoryBudget::unlimited()).unwrap();
    let threads = Arc::<Mutex<Vec<_>>>::default();
    let task = Actor {
        acts: acts.to_vec(),
        next: 0,
        threads: Arc::clone(&threads),
    };
    let mut stream = pool.start(task, slice_ns).unwrap();
    let mut all = Vec::new();
    let answer = loop {
        match next(&mut stream) {
            Some(Ok(chunk)) => all.extend(chunk),
            Some(Err(error)) => break Err(error),
            None => break Ok(all),
        }
    };
    assert!(stream.is_over());
    let here = std::thread::current().id();
    let threads = lock(&threads);
    (answer, threads.iter().map(|id| *id == here).collect())
}

/// A clock that stands still, so that no slice is ever over.
fn still() -> Ticks {
    Ticks {
        now_ns: AtomicU64::new(0),
        step_ns: 0,
    }
}

#[test]
fn a_short_task_is_done_where_it_is_started() {
    let acts = [Act::Write(1), Act::Write(2)];
    assert_eq!(started(&acts, still()), (Ok(vec![1, 2]), vec![true; 3]));
    let panics = started(&[Act::Write(1), Act::Panic], still());
    assert_eq!(panics, (Err("panicked"), vec![true; 2]));
}

#[test]
fn a_task_that_takes_long_goes_on_in_the_pool() {
    let (answer, at_once) = started(&[Act::Write(1), Act::Write(2)], ticks());
    assert_eq!(answer, Ok(vec![1, 2]));
    assert_eq!(at_once, [true, false, false]);
    let acts = [Act::Write(1), Act::Write(2)];
    let (answer, at_once) = started_for(u64::MAX, &acts, ticks());
    assert_eq!((answer, at_once), (Ok(vec![1, 2]), vec![true; 3]));
}

#[test]
fn the_time_of_a_task_counts_where_it_is_started() {
    let pool = pool(1, 1, 1);
    let (job, _stream) = pool.job(pieces(3, "").0);
    let slice_ns = 2_000_000;
    let job = pool.shared.run_at_once(job, slice_ns).unwrap();
    assert!(job.ran_ns >= slice_ns, "{} ns", job.ran_ns);
}

#[test]
fn a_task_that_would_block_begins_anew_in_the_pool() {
    let (answer, at_once) = started(&[Act::Write(1), Act::Block], still());
    assert_eq!(answer, Ok(vec![1]), "and writes nothing twice");
    assert_eq!(at_once, [true, true, false, false, false]);
}

#[test]
fn where_many_would_block_only_some_are_started() {
    let refusals = Refusals::default();
    let worth = |of: usize| (0..of).filter(|_| refusals.is_worth()).count();
    assert_eq!(worth(160), 160);
    for _ in 0..100 {
        refusals.note(true);
    }
    assert_eq!(worth(160), 20);
    // What is in memory by now is noticed.
    for _ in 0..9 {
        refusals.note(false);
    }
    assert_eq!(worth(160), 160);
}

#[test]
fn a_task_that_is_started_takes_a_place_only_if_it_takes_long() {
    let pool = pool(1, 1, 0);
    lock(&pool.shared.queues).active = 1;
    assert!(pool.start(pieces(0, "").0, nonblocking::SLICE_NS).is_ok());
    assert_eq!(
        pool.start(pieces(9, "").0, nonblocking::SLICE_NS).err(),
        Some(PoolFull)
    );
}

#[test]
fn too_many_are_refused() {
    let pool = pool(1, 1, TRIALS_MAX + 2);
    {
        let mut queues = lock(&pool.shared.queues);
        (queues.active, queues.trials) = (1, TRIALS_MAX);
    }
    let first = pool.submit(pieces(1, "").0);
    let second = pool.submit(pieces(1, "").0);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(pool.submit(pieces(1, "").0).err(), Some(PoolFull));
    drop(first);
    assert!(pool.submit(pieces(1, "").0).is_ok());
}

/// Sleeps until `Told` says something, then writes it; `None` ends it.
struct Sleeper {
    told: Arc<Mutex<Told>>,
    until_ns: Option<u64>,
    /// Called by the step itself before it says that it sleeps.
    call_early: bool,
    gone: Option<mpsc::Sender<()>>,
}

#[derive(Default)]
struct Told {
    words: VecDeque<Option<u8>>,
    waker: Option<Waker>,
    steps: usize,
}

impl Task for Sleeper {
    type Error = &'static str;

    fn step(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress, Self::Error> {
        let mut told = lock(&self.told);
        told.steps += 1;
        match told.words.pop_front() {
            Some(Some(word)) => {
                out.push(word);
                Ok(Progress::More)
            }
            Some(None) => Ok(Progress::Done),
            None if self.until_ns.is_some() && told.steps > 1 => Err("too late"),
            None => {
                told.waker = Some(waker.clone());
                drop(told);
                if std::mem::take(&mut self.call_early) {
                    tell(&self.told, Some(7));
                    tell(&self.told, None);
                }
                Ok(Progress::Asleep(self.until_ns))
            }
        }
    }

    fn restart(&mut self) {}

    fn panicked() -> Self::Error {
        "panicked"
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            gone.send(()).unwrap_or_default();
        }
    }
}

/// Says something to a sleeper and wakes it.
fn tell(told: &Mutex<Told>, word: Option<u8>) {
    let mut told = lock(told);
    told.words.push_back(word);
    let waker = told.waker.clone();
    drop(told);
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn sleeper(until_ns: Option<u64>, call_early: bool) -> (Sleeper, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let sleeper = Sleeper {
        told: Arc::clone(&told),
        until_ns,
        call_early,
        gone: None,
    };
    (sleeper, told)
}

fn sleepers(threads: usize) -> WorkerPool<Sleeper> {
    let limits = PoolLimits {
        threads,
        active_max: 1,
        waiting_max: 10,
    };
    WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap()
}

/// A stream tells what became of its task before the worker has counted the task out.
fn until_idle(pool: &WorkerPool<Sleeper>) {
    while lock(&pool.shared.queues).active > 0 {
        std::thread::yield_now();
    }
}

fn until_asleep(stream: &TaskStream<Sleeper>) {
    while !lock(&stream.shared.state).asleep {
        std::thread::yield_now();
    }
}

#[test]
fn sleeping_tasks_hold_nobody_and_are_woken() {
    let pool = sleepers(1);
    let asleep: Vec<_> = (0..20)
        .map(|_| {
            let (task, told) = sleeper(None, false);
            let stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
            until_asleep(&stream);
            (stream, told)
        })
        .collect();
    until_idle(&pool);
    for (mut stream, told) in asleep {
        tell(&told, Some(1));
        // What it has goes out before it lies down again.
        assert_eq!(next(&mut stream), Some(Ok(vec![1])));
        tell(&told, Some(2));
        tell(&told, None);
        let mut rest = Vec::new();
        while let Some(chunk) = next(&mut stream) {
            rest.extend(chunk.unwrap());
        }
        assert_eq!(rest, [2]);
    }
}

#[test]
fn a_task_woken_before_it_is_parked_goes_on() {
    for until_ns in [None, Some(u64::MAX)] {
        let pool = sleepers(1);
        let (task, _) = sleeper(until_ns, true);
        let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
        assert_eq!(next(&mut stream), Some(Ok(vec![7])));
        assert_eq!(next(&mut stream), None);
        assert!(lock(&pool.shared.queues).alarms.is_empty());
    }
}

#[test]
fn wakers_race_with_parking() {
    let pool = sleepers(2);
    for _ in 0..200 {
        let (task, told) = sleeper(None, false);
        let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for word in 0..20 {
                    tell(&told, Some(word));
                }
                tell(&told, None);
            });
            let mut all = Vec::new();
            while let Some(chunk) = next(&mut stream) {
                all.extend(chunk.unwrap());
            }
            assert_eq!(all, (0..20).collect::<Vec<u8>>());
        });
    }
    until_idle(&pool);
}

#[test]
fn a_task_is_woken_when_its_time_is_up() {
    let pool = sleepers(1);
    // The clock of the pool advances by a millisecond each time it is looked at.
    let (task, _) = sleeper(Some(50_000_000), false);
    let mut stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
    assert_eq!(next(&mut stream), Some(Err("too late")));
    assert!(lock(&pool.shared.queues).alarms.is_empty());
}

#[test]
fn a_dropped_stream_drops_a_task_that_sleeps() {
    let pool = sleepers(1);
    let (gone, is_gone) = mpsc::channel();
    let (mut task, told) = sleeper(Some(u64::MAX), false);
    task.gone = Some(gone);
    let stream = pool.submit(task).unwrap_or_else(|_| panic!("room"));
    until_asleep(&stream);
    drop(stream);
    is_gone.recv().unwrap();
    assert!(lock(&pool.shared.queues).alarms.is_empty());
    // A late call finds nobody.
    tell(&told, Some(1));
    until_idle(&pool);
}

/// A task of so many steps, each of which takes a millisecond of the pool's clock.
struct Steps {
    left: usize,
    /// The steps of all tasks together.
    all: Arc<AtomicUsize>,
    /// What it tells, and waits for, when half of its steps are done.
    pause: Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
    /// Where it tells how many steps all had made when it ended.
    ended: mpsc::Sender<usize>,
}

impl Task for Steps {
    type Error = ();

    fn step(&mut self, _: &mut Vec<u8>, _: &Waker) -> Result<Progress, ()> {
        if self.left == LONG_STEPS / 2
            && let Some((reached, go_on)) = self.pause.take()
        {
            reached.send(()).unwrap();
            go_on.recv().unwrap();
        }
        if self.left == 0 {
            let all = self.all.load(Ordering::SeqCst);
            self.ended.send(all).unwrap_or_default();
            return Ok(Progress::Done);
        }
        self.left -= 1;
        self.all.fetch_add(1, Ordering::SeqCst);
        Ok(Progress::More)
    }

    fn restart(&mut self) {}

    fn panicked() {}
}

const LONG_STEPS: usize = 4_000;

#[test]
fn a_short_task_waits_for_no_slice_of_each_long_one() {
    let limits = PoolLimits {
        threads: 1,
        active_max: 200,
        waiting_max: 0,
    };
    let pool = WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap();
    let all = Arc::new(AtomicUsize::new(0));
    let submit = |left, pause| {
        let (ended, told) = mpsc::channel();
        let all = Arc::clone(&all);
        let steps = Steps {
            left,
            all,
            pause,
            ended,
        };
        (pool.submit(steps).unwrap_or_else(|_| panic!("room")), told)
    };
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    // The worker is kept in the midst of the last one, by when all of them have run for seconds: those before it began
    // no later, and have had as many turns.
    let mut long: Vec<_> = (1..100).map(|_| submit(LONG_STEPS, None)).collect();
    long.push(submit(LONG_STEPS, Some((reached, may_go_on))));
    is_reached.recv().unwrap();
    let before = all.load(Ordering::SeqCst);
    let (_stream, told) = submit(10, None);
    go_on.send(()).unwrap();
    let made = told.recv().unwrap() - before;
    // A slice of each long one would be five steps of a hundred; this is its own ten, and some slices.
    assert!(made < 50, "{made} steps");
    drop(long);
}

/// A task of one step: it waits to be begun, and ends once `other` is set, giving way meanwhile; or it sets `other`.
struct LongStep {
    begin: Option<mpsc::Receiver<()>>,
    other: Arc<AtomicUsize>,
}

impl Task for LongStep {
    type Error = &'static str;

    fn step(&mut self, _: &mut Vec<u8>, _: &Waker) -> Result<Progress, Self::Error> {
        let Some(begin) = &self.begin else {
            self.other.fetch_add(1, Ordering::SeqCst);
            return Ok(Progress::Done);
        };
        begin.recv().map_err(|_| "never begun")?;
        for _ in 0..1_000 {
            if self.other.load(Ordering::SeqCst) > 0 {
                return Ok(Progress::Done);
            }
            turns::give_way();
        }
        Err("no other task had a turn")
    }

    fn restart(&mut self) {}

    fn panicked() -> Self::Error {
        "panicked"
    }
}

#[test]
fn a_step_that_takes_long_lets_others_have_its_worker() {
    let limits = PoolLimits {
        threads: 1,
        active_max: 100,
        waiting_max: 0,
    };
    let pool = WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap();
    for _ in 0..20 {
        let other = Arc::new(AtomicUsize::new(0));
        // Several long steps, which pause for each other, too.
        let mut long: Vec<_> = (0..5)
            .map(|_| {
                let (begin, begun) = mpsc::channel();
                let task = LongStep {
                    begin: Some(begun),
                    other: Arc::clone(&other),
                };
                (begin, pool.submit(task).unwrap())
            })
            .collect();
        let mut short = pool
            .submit(LongStep {
                begin: None,
                other: Arc::clone(&other),
            })
            .unwrap();
        for (begin, _) in &long {
            begin.send(()).unwrap();
        }
        assert!(short.next_chunk().is_none());
        for (_, stream) in &mut long {
            assert!(stream.next_chunk().is_none());
        }
    }
}

/// Is done after so many steps, and says then who it is.
struct Named {
    name: &'static str,
    steps: usize,
    done: usize,
    log: Arc<Mutex<Vec<&'static str>>>,
    /// Called by what it gives back, as those are who wait for memory.
    waker: Option<Waker>,
}

impl Task for Named {
    type Error = &'static str;

    fn step(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress, Self::Error> {
        self.waker = Some(waker.clone());
        self.done += 1;
        if self.done < self.steps {
            return Ok(Progress::More);
        }
        lock(&self.log).push(self.name);
        out.push(u8::try_from(self.steps % 251).unwrap());
        Ok(Progress::Done)
    }

    fn restart(&mut self) {
        self.done = 0;
        lock(&self.log).push("restart");
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn panicked() -> Self::Error {
        "panicked"
    }
}

/// One long query for each place kept all others waiting, however short they were.
#[test]
fn a_short_task_does_not_wait_for_active_ones() {
    let limits = PoolLimits {
        threads: 1,
        active_max: 1,
        waiting_max: 10,
    };
    let pool = WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap();
    let log = Arc::<Mutex<Vec<_>>>::default();
    let submit = |name, steps| {
        let task = Named {
            name,
            steps,
            done: 0,
            log: Arc::clone(&log),
            waker: None,
        };
        pool.submit(task).unwrap_or_else(|_| panic!("room"))
    };
    let mut streams = vec![submit("long", 100_000), submit("longer", 200_000)];
    streams.extend((0..6).map(|_| submit("short", 3)));
    for stream in &mut streams {
        while let Some(chunk) = stream.next_chunk() {
            assert!(chunk.is_ok());
        }
    }
    let log = lock(&log).clone();
    let place = |name: &str| log.iter().rposition(|other| *other == name).unwrap();
    assert_eq!(
        log.iter().filter(|name| **name == "restart").count(),
        1,
        "{log:?}"
    );
    assert!(place("short") < place("long"), "{log:?}");
    assert_eq!(place("longer"), log.len() - 1, "{log:?}");
    while lock(&pool.shared.queues).active > 0 {
        std::thread::yield_now();
    }
    assert_eq!(lock(&pool.shared.queues).trials, 0);
}

/// A found fault: a task that was on trial while the last active one ended, and then was too long, waited for ever.
#[test]
fn a_long_task_goes_on_where_nothing_is_active() {
    let limits = PoolLimits {
        threads: 1,
        active_max: 1,
        waiting_max: 10,
    };
    let pool = WorkerPool::new(limits, Arc::new(ticks()), MemoryBudget::unlimited()).unwrap();
    for steps in 1..60 {
        let submit = |steps| {
            let task = Named {
                name: "one",
                steps,
                done: 0,
                log: Arc::default(),
                waker: None,
            };
            pool.submit(task).unwrap_or_else(|_| panic!("room"))
        };
        let streams = [submit(steps), submit(200)];
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| {
                for mut stream in streams {
                    while stream.next_chunk().is_some() {}
                }
            });
            while !drained.is_finished() {
                let queues = lock(&pool.shared.queues);
                let is_idle = queues.active == 0 && queues.trials == 0;
                assert!(!is_idle || queues.waiting.is_empty(), "after {steps} steps");
                drop(queues);
                std::thread::yield_now();
            }
        });
    }
}
