//! A listening socket that several reactors take connections from, one of them at a time.
//!
//! Were all of them to wait at the socket, each connection would wake them all, to be taken by one. Here the first one waits
//! there alone, and while it is busy the next one does, and so on: so that one client after the other is served by
//! a thread whose caches are warm, and nobody waits for a thread while another one is idle.
//!
//! Each reactor watches an epoll instance of its own, with the socket in it. Whether it listens is changed from outside,
//! without waking it, by changing the events that its instance is asked for.
//!
//! # Concurrency
//! An instance is watched by one thread, and changed by the one before it. Who was woken and no longer listens by then takes a
//! connection if there still is one.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{SocketFlags, accept_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// See the module header.
pub(super) struct SharedListener {
    socket: TcpListener,
    instances: Vec<Instance>,
}

/// What one reactor watches.
struct Instance {
    epoll: Arc<OwnedFd>,
    /// Whether nobody watches it any more; the next one listens then.
    is_retired: AtomicBool,
}

impl SharedListener {
    /// For so many reactors, of which the first one listens.
    pub(super) fn new(socket: TcpListener, count: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let instances = (0..count).map(|number| {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            let events = match number {
                0 => EventFlags::IN,
                _ => EventFlags::empty(),
            };
            epoll::add(&epoll, &socket, EventData::new_u64(0), events)?;
            Ok(Instance {
                epoll: Arc::new(epoll),
                is_retired: AtomicBool::new(false),
            })
        });
        let instances = instances.collect::<io::Result<_>>()?;
        Ok(Self { socket, instances })
    }

    /// To be called while the reactor with this number cannot take connections: the next one listens until the guard is dropped.
    pub(super) fn busy(&self, number: usize) -> Busy<'_> {
        self.set(number + 1, EventFlags::IN);
        Busy {
            listener: self,
            number,
        }
    }

    /// To be called when the reactor with this number ends: the next one listens from now on.
    pub(super) fn retire(&self, number: usize) {
        if let Some(instance) = self.instances.get(number) {
            instance.is_retired.store(true, Ordering::SeqCst);
            self.set(number + 1, EventFlags::IN);
        }
    }

    fn set(&self, number: usize, events: EventFlags) {
        if let Some(instance) = self.instances.get(number) {
            let data = EventData::new_u64(0);
            let changed = epoll::modify(&instance.epoll, &self.socket, data, events);
            debug_assert!(changed.is_ok(), "the socket is in there");
        }
    }
}

impl Instance {
    /// Whether somebody waits to be taken, as far as it listens.
    ///
    /// The kernel marks an instance as ready and takes the mark away only when it is asked; who watches it is not woken
    /// when it listens again as long as the mark is there.
    fn is_ready(&self) -> io::Result<bool> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(&self.epoll, events.as_mut_slice(), Some(&now))?;
        Ok(count > 0)
    }
}

/// See [`SharedListener::busy`].
pub(super) struct Busy<'a> {
    listener: &'a SharedListener,
    number: usize,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let instances = &self.listener.instances;
        let own = instances.get(self.number);
        if own.is_some_and(|own| !own.is_retired.load(Ordering::SeqCst))
            && let Some(next) = instances.get(self.number + 1)
        {
            self.listener.set(self.number + 1, EventFlags::empty());
            let asked = next.is_ready();
            debug_assert!(asked.is_ok(), "it is asked without waiting");
        }
    }
}

/// A reactor that takes connections.
pub(super) struct Acceptor {
    listener: Arc<SharedListener>,
    epoll: AsyncFd<Arc<OwnedFd>>,
}

impl Acceptor {
    /// The one with this number, within the runtime that is to watch for it.
    #[expect(
        deprecated,
        reason = "what takes its place is unsafe; this is sound for a descriptor that is owned"
    )]
    pub(super) fn new(listener: &Arc<SharedListener>, number: usize) -> io::Result<Self> {
        let instance = listener.instances.get(number);
        let instance = instance.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            listener: Arc::clone(listener),
            epoll: AsyncFd::with_interest(Arc::clone(&instance.epoll), Interest::READABLE)?,
        })
    }

    /// Waits for the next connection that nobody else takes. Nothing is lost if it is dropped.
    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || accept_with(&self.listener.socket, flags).map_err(io::Error::from);
        let stream = self
            .epoll
            .async_io(Interest::READABLE, |_| accept())
            .await?;
        Ok(TcpStream::from(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    fn shared(count: usize) -> Arc<SharedListener> {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Arc::new(SharedListener::new(socket, count).unwrap())
    }

    fn client(listener: &SharedListener) -> TcpStream {
        TcpStream::connect(listener.socket.local_addr().unwrap()).unwrap()
    }

    /// Which instances tell that somebody waits.
    fn ready(listener: &SharedListener) -> Vec<usize> {
        let numbered = listener.instances.iter().enumerate();
        let ready = numbered.filter(|(_, instance)| instance.is_ready().unwrap());
        ready.map(|(number, _)| number).collect()
    }

    /// A connection that is there, once the runtime has looked.
    async fn there(acceptor: &Acceptor) -> Option<TcpStream> {
        // Sees what has become ready.
        tokio::task::yield_now().await;
        let mut accepted = pin!(acceptor.accept());
        poll_fn(|context| {
            Poll::Ready(match accepted.as_mut().poll(context) {
                Poll::Ready(accepted) => Some(accepted.unwrap()),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// A connection for whose coming the thread has to be woken.
    async fn woken(acceptor: &Acceptor) -> TcpStream {
        let patience = Duration::from_secs(30);
        let accepted = tokio::time::timeout(patience, acceptor.accept()).await;
        accepted.expect("nobody wakes it").unwrap()
    }

    #[test]
    fn the_next_one_listens_while_one_is_busy() {
        let listener = shared(3);
        let _early = client(&listener);
        assert_eq!(ready(&listener), [0]);
        let busy = listener.busy(0);
        // Who came before is seen there, too.
        assert_eq!(ready(&listener), [0, 1]);
        let _late = client(&listener);
        let next = listener.busy(1);
        assert_eq!(ready(&listener), [0, 1, 2]);
        // There is no fourth one.
        drop(listener.busy(2));
        drop(busy);
        assert_eq!(ready(&listener), [0, 2]);
        drop(next);
        assert_eq!(ready(&listener), [0]);
    }

    #[test]
    fn the_next_one_listens_on_when_one_has_ended() {
        let listener = shared(3);
        let _client = client(&listener);
        let busy = listener.busy(0);
        listener.retire(0);
        drop(busy);
        assert_eq!(ready(&listener), [0, 1]);
        drop(listener.busy(0));
        assert_eq!(ready(&listener), [0, 1]);
        listener.retire(2);
        drop(listener.busy(1));
        assert_eq!(ready(&listener), [0, 1]);
    }

    #[test]
    fn who_begins_to_listen_is_woken_each_time() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = shared(2);
        runtime.block_on(async {
            let second = Acceptor::new(&listener, 1).unwrap();
            // Once more after it has listened before, and taken somebody.
            for _ in 0..3 {
                let _early = client(&listener);
                assert!(there(&second).await.is_none(), "it does not listen");
                let _busy = listener.busy(0);
                woken(&second).await;
                assert!(there(&second).await.is_none(), "there was one");
            }
            let _busy = listener.busy(0);
            let _late = client(&listener);
            woken(&second).await;
            assert!(there(&second).await.is_none(), "there was one");
        });
    }
}
