//! Doors: which of several reactors takes the connections that come.
//!
//! Were all of them to wait at the one listening socket, each connection would wake them all, to be taken by one. Here the first
//! one waits there alone, and while it is busy the next one does, and so on: so that one client after the other is served by
//! a thread whose caches are warm, and nobody waits for a thread while another one is idle.
//!
//! A door is an epoll instance that a reactor watches, with the listening socket in it. It is opened and shut from
//! outside, without waking who watches it, by changing the events that it is asked for.
//!
//! # Concurrency
//! A door is watched by one thread and opened and shut by the one before it. Who was woken at a door that is shut by then takes a
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

/// A listening socket and the doors that lead to it.
pub(super) struct Doors {
    listener: TcpListener,
    doors: Vec<Door>,
}

struct Door {
    watched: Arc<OwnedFd>,
    /// Whether nobody watches it any more; the next one is open then.
    is_abandoned: AtomicBool,
}

impl Doors {
    /// Of so many doors the first one is open.
    pub(super) fn new(listener: TcpListener, count: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let doors = (0..count).map(|number| {
            let watched = epoll::create(CreateFlags::CLOEXEC)?;
            let events = match number {
                0 => EventFlags::IN,
                _ => EventFlags::empty(),
            };
            epoll::add(&watched, &listener, EventData::new_u64(0), events)?;
            Ok(Door {
                watched: Arc::new(watched),
                is_abandoned: AtomicBool::new(false),
            })
        });
        let doors = doors.collect::<io::Result<_>>()?;
        Ok(Self { listener, doors })
    }

    /// To be called while whoever watches the door with this number cannot: the next one is open until the guard is dropped.
    pub(super) fn leave(&self, number: usize) -> Away<'_> {
        self.set(number + 1, EventFlags::IN);
        Away {
            doors: self,
            number,
        }
    }

    /// To be called when nobody will watch the door with this number any more: the next one stays open.
    pub(super) fn abandon(&self, number: usize) {
        if let Some(door) = self.doors.get(number) {
            door.is_abandoned.store(true, Ordering::SeqCst);
            self.set(number + 1, EventFlags::IN);
        }
    }

    fn set(&self, number: usize, events: EventFlags) {
        if let Some(door) = self.doors.get(number) {
            let data = EventData::new_u64(0);
            let changed = epoll::modify(&door.watched, &self.listener, data, events);
            debug_assert!(changed.is_ok(), "the listener is in there");
        }
    }

    /// A door that was opened once stays marked as ready while nobody looks through it, and who watches it would not be woken
    /// when it is opened the next time.
    fn look_through(&self, number: usize) {
        if let Some(door) = self.doors.get(number) {
            let mut events = [epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let seen = epoll::wait(&door.watched, events.as_mut_slice(), Some(&now));
            debug_assert!(seen.is_ok(), "it is asked without waiting");
        }
    }
}

/// See [`Doors::leave`].
pub(super) struct Away<'a> {
    doors: &'a Doors,
    number: usize,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let door = self.doors.doors.get(self.number);
        if door.is_some_and(|door| !door.is_abandoned.load(Ordering::SeqCst)) {
            self.doors.set(self.number + 1, EventFlags::empty());
            self.doors.look_through(self.number + 1);
        }
    }
}

/// One who watches a door.
pub(super) struct Porter {
    doors: Arc<Doors>,
    door: AsyncFd<Arc<OwnedFd>>,
}

impl Porter {
    /// At the door with this number, within the runtime that is to watch it.
    #[expect(
        deprecated,
        reason = "what takes its place is unsafe; this is sound for a descriptor that is owned"
    )]
    pub(super) fn new(doors: &Arc<Doors>, number: usize) -> io::Result<Self> {
        let door = doors.doors.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            doors: Arc::clone(doors),
            door: AsyncFd::with_interest(Arc::clone(&door.watched), Interest::READABLE)?,
        })
    }

    /// Waits for the next connection that nobody else takes. Nothing is lost if it is dropped.
    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || accept_with(&self.doors.listener, flags).map_err(io::Error::from);
        let stream = self.door.async_io(Interest::READABLE, |_| accept()).await?;
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

    fn doors(count: usize) -> Arc<Doors> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Arc::new(Doors::new(listener, count).unwrap())
    }

    fn client(doors: &Doors) -> TcpStream {
        TcpStream::connect(doors.listener.local_addr().unwrap()).unwrap()
    }

    /// Which doors somebody stands at.
    fn waiting_at(doors: &Doors) -> Vec<usize> {
        let is_at = |door: &Door| {
            let mut events = [epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            epoll::wait(&door.watched, events.as_mut_slice(), Some(&now)).unwrap() > 0
        };
        let numbered = doors.doors.iter().enumerate();
        let open = numbered.filter(|(_, door)| is_at(door));
        open.map(|(number, _)| number).collect()
    }

    /// A connection that is there, once the runtime has looked.
    async fn there(porter: &Porter) -> Option<TcpStream> {
        // Sees what has become ready.
        tokio::task::yield_now().await;
        let mut accepted = pin!(porter.accept());
        poll_fn(|context| {
            Poll::Ready(match accepted.as_mut().poll(context) {
                Poll::Ready(accepted) => Some(accepted.unwrap()),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// A connection for whose coming the thread has to be woken.
    async fn woken(porter: &Porter) -> TcpStream {
        let patience = Duration::from_secs(30);
        let accepted = tokio::time::timeout(patience, porter.accept()).await;
        accepted.expect("nobody wakes it").unwrap()
    }

    #[test]
    fn the_next_door_is_open_while_one_is_left() {
        let doors = doors(3);
        let _early = client(&doors);
        assert_eq!(waiting_at(&doors), [0]);
        let left = doors.leave(0);
        // Who came before is seen there, too.
        assert_eq!(waiting_at(&doors), [0, 1]);
        let _late = client(&doors);
        let next = doors.leave(1);
        assert_eq!(waiting_at(&doors), [0, 1, 2]);
        // There is no fourth.
        drop(doors.leave(2));
        drop(left);
        assert_eq!(waiting_at(&doors), [0, 2]);
        drop(next);
        assert_eq!(waiting_at(&doors), [0]);
    }

    #[test]
    fn the_next_door_stays_open_when_one_is_abandoned() {
        let doors = doors(3);
        let _client = client(&doors);
        let left = doors.leave(0);
        doors.abandon(0);
        drop(left);
        assert_eq!(waiting_at(&doors), [0, 1]);
        drop(doors.leave(0));
        assert_eq!(waiting_at(&doors), [0, 1]);
        doors.abandon(2);
        drop(doors.leave(1));
        assert_eq!(waiting_at(&doors), [0, 1]);
    }

    #[test]
    fn a_porter_takes_who_comes_while_the_door_is_open() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let doors = doors(2);
        runtime.block_on(async {
            let second = Porter::new(&doors, 1).unwrap();
            // Once more after the door was open before, and somebody seen there.
            for _ in 0..3 {
                let _early = client(&doors);
                assert!(there(&second).await.is_none(), "the door is shut");
                let _left = doors.leave(0);
                woken(&second).await;
                assert!(there(&second).await.is_none(), "there was one");
            }
            let _left = doors.leave(0);
            let _late = client(&doors);
            woken(&second).await;
            assert!(there(&second).await.is_none(), "there was one");
        });
    }
}
