//! Reactors: threads that each serve connections of their own.
//!
//! The first one takes what connections come, and others do while it is busy ([`SharedListener`]). Whichever takes one gives it to the
//! reactor that has the fewest: else the first one would keep all clients that connect at once, and the other cores
//! would have none.

use std::cell::OnceCell;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use stoa_database::nonblocking;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::MissedTickBehavior;

use super::Service;
use super::connection;
use super::shared_listener::{Acceptor, SharedListener};

/// How often a reactor looks whether the server is to end.
const SHUTDOWN_POLL: Duration = Duration::from_millis(50);

/// How long a request runs where its connection is alone, in nanoseconds: changes of threads are then a tenth of it at
/// most.
const ALONE_SLICE_NS: u64 = 2_000_000;

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// What a thread that is a reactor knows of itself.
struct Own {
    number: usize,
    /// How many connections it serves.
    open: Arc<AtomicUsize>,
    listener: Arc<SharedListener>,
}

/// A place of a connection with a reactor, counted until it is dropped.
pub(super) struct Open(Arc<AtomicUsize>);

impl Open {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether this thread serves one connection alone, so that nobody else waits if it waits.
pub(super) fn is_alone() -> bool {
    OWN.with(|own| {
        let own = own.get();
        own.is_none_or(|own| own.open.load(Ordering::Relaxed) <= 1)
    })
}

/// Does work that may keep this thread from taking connections: another one does meanwhile.
pub(super) fn busy<T>(work: impl FnOnce() -> T) -> T {
    OWN.with(|own| {
        let _busy = own.get().map(|own| own.listener.busy(own.number));
        work()
    })
}

/// How long a request may keep this thread from others, in nanoseconds.
pub(super) fn slice_ns() -> u64 {
    match is_alone() {
        true => ALONE_SLICE_NS,
        false => nonblocking::SLICE_NS,
    }
}

/// A connection that was taken, and its place.
type Given = (TcpStream, Open);

/// A reactor as the others see it.
#[derive(Clone)]
struct Place {
    open: Arc<AtomicUsize>,
    /// Takes the connections that others give it.
    give: UnboundedSender<Given>,
}

/// Starts `count` reactors, which end soon after `stop` is set.
pub(super) fn start(
    count: usize,
    listener: &TcpListener,
    service: &Arc<Service>,
    stop: &Arc<AtomicBool>,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let (places, given): (Vec<Place>, Vec<UnboundedReceiver<Given>>) = (0..count.max(1))
        .map(|_| {
            let (give, given) = unbounded_channel();
            let open = Arc::default();
            (Place { open, give }, given)
        })
        .unzip();
    let listener = Arc::new(SharedListener::new(listener.try_clone()?, count.max(1))?);
    let reactors = given.into_iter().enumerate().map(|(number, given)| {
        let reactor = Reactor {
            number,
            places: places.clone(),
            service: Arc::clone(service),
            stop: Arc::clone(stop),
        };
        let listener = Arc::clone(&listener);
        std::thread::Builder::new()
            .name(format!("stoa-reactor-{number}"))
            .spawn(move || reactor.run(listener, given))
    });
    reactors.collect()
}

/// Has the reactor with the number retire when it is dropped.
struct Retire(Arc<SharedListener>, usize);

impl Drop for Retire {
    fn drop(&mut self) {
        self.0.retire(self.1);
    }
}

struct Reactor {
    /// Its place among `places`.
    number: usize,
    places: Vec<Place>,
    service: Arc<Service>,
    stop: Arc<AtomicBool>,
}

impl Reactor {
    /// Takes connections and serves its own until the server stops.
    fn run(self, listener: Arc<SharedListener>, given: UnboundedReceiver<Given>) -> io::Result<()> {
        // Where it ends before the server does, which takes a failure, others take connections.
        let _retire = Retire(Arc::clone(&listener), self.number);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let acceptor = {
            let _within = runtime.enter();
            Acceptor::new(&listener, self.number)?
        };
        let own = Own {
            number: self.number,
            open: self.own().map(Arc::clone).unwrap_or_default(),
            listener,
        };
        OWN.with(|place| drop(place.set(own)));
        // To wake a task costs nothing here; to wake what the runtime itself waits for is a call of the system.
        let taking = runtime.spawn(self.take(acceptor, given));
        runtime.block_on(taking).map_err(io::Error::other)
    }

    async fn take(self, acceptor: Acceptor, mut given: UnboundedReceiver<Given>) {
        let mut accepts_from = tokio::time::Instant::now();
        // One timer for all: each new one wakes the thread that sets it.
        let mut polls = tokio::time::interval(SHUTDOWN_POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.stop.load(Ordering::Relaxed) {
            let now = tokio::time::Instant::now();
            self.service.transactions.expire(now);
            tokio::select! {
                accepted = acceptor.accept(), if now >= accepts_from => match accepted {
                    Ok(stream) => self.place(stream).await,
                    // Out of file descriptors, or a client that went away: not again at once.
                    Err(_) => accepts_from = now + SHUTDOWN_POLL,
                },
                Some((stream, open)) = given.recv() => self.serve(stream, open),
                _ = polls.tick() => {}
            }
        }
    }

    /// How many connections it serves.
    fn own(&self) -> Option<&Arc<AtomicUsize>> {
        self.places.get(self.number).map(|place| &place.open)
    }

    /// Gives a connection to the reactor that has the fewest.
    async fn place(&self, stream: TcpStream) {
        if let Some(own) = self.own()
            && own.load(Ordering::Relaxed) == 1
        {
            // A client that connects anew for each request has closed the connection before, which is seen only now. If it
            // has not, that one has no longer the thread for itself.
            let waiting = Open::count(own);
            tokio::task::yield_now().await;
            drop(waiting);
        }
        let counts = self.places.iter().map(|place| &*place.open);
        let number = fewest(counts, self.number);
        let Some(place) = self.places.get(number) else {
            return;
        };
        let open = Open::count(&place.open);
        if number == self.number {
            self.serve(stream, open);
        } else if let Err(SendError((stream, _))) = place.give.send((stream, open)) {
            // That one has ended, which takes a failure, and is to get none any more.
            place.open.store(usize::MAX / 2, Ordering::Relaxed);
            if let Some(own) = self.own() {
                self.serve(stream, Open::count(own));
            }
        }
    }

    fn serve(&self, stream: TcpStream, open: Open) {
        // One that is broken already has nobody to tell.
        if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
            let service = Arc::clone(&self.service);
            tokio::spawn(connection::serve(stream, service, open));
        }
    }
}

/// Which of the counts is the lowest, `own` if it is one of those.
fn fewest<'a>(counts: impl Iterator<Item = &'a AtomicUsize>, own: usize) -> usize {
    let loads = counts.enumerate().map(|(number, count)| {
        let count = count.load(Ordering::Relaxed);
        (count, number != own, number)
    });
    loads.min().map_or(own, |(_, _, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_where_the_fewest_are() {
        let chosen = |counts: [usize; 3], own| {
            let counts = counts.map(AtomicUsize::new);
            fewest(counts.iter(), own)
        };
        assert_eq!(chosen([0, 0, 0], 1), 1);
        assert_eq!(chosen([1, 1, 0], 1), 2);
        assert_eq!(chosen([1, 2, 1], 2), 2);
        assert_eq!(chosen([1, 2, 1], 1), 0);
    }

    #[test]
    fn a_place_is_counted_until_it_is_dropped() {
        let count = Arc::default();
        let two = [Open::count(&count), Open::count(&count)];
        assert_eq!(count.load(Ordering::Relaxed), 2);
        drop(two);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
