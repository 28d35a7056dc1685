//! Reactors: threads that each serve connections of their own.
//!
//! All of them listen. Whichever takes a connection gives it to the reactor that has the fewest: else the first one to
//! wake would keep all clients that connect at once, and the other cores would have none.

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

use super::Service;
use super::connection;

/// How often a reactor looks whether the server is to end.
const SHUTDOWN_POLL: Duration = Duration::from_millis(50);

/// How long a request runs where its connection is alone, in nanoseconds: changes of threads are then a tenth of it at
/// most. Who connects meanwhile waits as long, and for the step that is being made: what can be refused ends after 3 ms
/// (`nonblocking::check_time`).
const ALONE_SLICE_NS: u64 = 2_000_000;

thread_local! {
    /// How many connections this thread serves.
    static OPEN: OnceCell<Arc<AtomicUsize>> = const { OnceCell::new() };
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

/// Whether this thread serves one connection alone, so that nobody else waits if it waits, but who connects just
/// then.
pub(super) fn is_alone() -> bool {
    OPEN.with(|open| {
        let open = open.get();
        open.is_none_or(|open| open.load(Ordering::Relaxed) <= 1)
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
    let reactors = given.into_iter().enumerate().map(|(number, given)| {
        let reactor = Reactor {
            number,
            places: places.clone(),
            service: Arc::clone(service),
            stop: Arc::clone(stop),
        };
        let listener = listener.try_clone()?;
        std::thread::Builder::new()
            .name(format!("stoa-reactor-{number}"))
            .spawn(move || reactor.run(listener, given))
    });
    reactors.collect()
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
    fn run(self, listener: TcpListener, mut given: UnboundedReceiver<Given>) -> io::Result<()> {
        if let Some(own) = self.places.get(self.number) {
            OPEN.with(|open| drop(open.set(Arc::clone(&own.open))));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let mut accepts_from = tokio::time::Instant::now();
            while !self.stop.load(Ordering::Relaxed) {
                let now = tokio::time::Instant::now();
                self.service.transactions.expire(now);
                tokio::select! {
                    accepted = listener.accept(), if now >= accepts_from => match accepted {
                        Ok((stream, _)) => self.place(stream),
                        // Out of file descriptors, or a client that went away: not again at once.
                        Err(_) => accepts_from = now + SHUTDOWN_POLL,
                    },
                    Some((stream, open)) = given.recv() => {
                        // One that is broken already has nobody to tell.
                        if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                            self.serve(stream, open);
                        }
                    }
                    () = tokio::time::sleep(SHUTDOWN_POLL) => {}
                }
            }
            Ok(())
        })
    }

    /// Gives a connection to the reactor that has the fewest.
    fn place(&self, stream: tokio::net::TcpStream) {
        let counts = self.places.iter().map(|place| &*place.open);
        let number = fewest(counts, self.number);
        let Some(place) = self.places.get(number) else {
            return;
        };
        let open = Open::count(&place.open);
        if number == self.number {
            self.serve(stream, open);
        } else if let Ok(stream) = stream.into_std()
            && let Err(SendError((stream, _))) = place.give.send((stream, open))
            && let Ok(stream) = tokio::net::TcpStream::from_std(stream)
        {
            // That one has ended, which takes a failure, and is to get none any more.
            place.open.store(usize::MAX / 2, Ordering::Relaxed);
            if let Some(own) = self.places.get(self.number) {
                self.serve(stream, Open::count(&own.open));
            }
        }
    }

    fn serve(&self, stream: tokio::net::TcpStream, open: Open) {
        let service = Arc::clone(&self.service);
        tokio::spawn(connection::serve(stream, service, open));
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
