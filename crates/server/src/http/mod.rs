//! HTTP: the SPARQL Protocol, the Graph Store Protocol, the protocol of RDF4J, bulk loads, service descriptions,
//! the query page, `/health`, `/status`.
//!
//! One reactor thread a core serves connections ([`reactor`]); it parses requests and moves bytes.
//! Short queries and updates are begun there, where nothing blocks and no longer than others can wait
//! ([`stoa_database::nonblocking`]). Everything that takes more time, planning included, runs as a task in the worker
//! pool ([`answering`]), whose bounded buffer is the body of the response; what writes, on threads of its own
//! ([`writing`]).
//!
//! # References
//! SPARQL 1.1 Protocol; SPARQL 1.1 Graph Store HTTP Protocol; RFC 9110, RFC 9112.

mod accept;
mod access;
mod answering;
mod body;
mod changes;
mod clients;
mod commits;
mod conditions;
mod connection;
mod cors;
mod databases;
mod description;
mod encoding;
mod hosts;
mod keeping;
mod loading;
mod memento;
mod notes;
mod page;
mod parameters;
mod patching;
mod problem;
mod rdf4j;
mod reactor;
mod reads;
mod route;
mod shared_listener;
mod sparql;
mod status;
mod store;
mod timing;
mod unsent;
mod updating;
mod upload;
mod writing;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use stoa_database::{Reservation, Runtime, WorkerPool};

pub(crate) use access::{Token, Writers};
pub(crate) use answering::AnswerTask;
pub(crate) use changes::FeedPlaces;
pub(crate) use clients::ClientPlaces;
pub(crate) use cors::Origins;
pub(crate) use databases::{Databases, RESERVED, is_name};
pub(crate) use hosts::{Hosts, parse_name};
pub(crate) use rdf4j::{Labels, ROOT, Transactions};
pub(crate) use writing::WritePlaces;

use problem::Problem;

/// What all connections share.
pub(crate) struct Service {
    pub(crate) databases: Databases,
    pub(crate) pool: WorkerPool<AnswerTask>,
    pub(crate) settings: Settings,
    pub(crate) write_places: WritePlaces,
    pub(crate) feed_places: FeedPlaces,
    pub(crate) transactions: Transactions,
    /// The feeds that each client may read at once.
    pub(crate) feeds: ClientPlaces,
    /// The answers of each client of which it takes nothing.
    pub(crate) stalled: ClientPlaces,
    pub(crate) labels: Arc<Labels>,
}

impl Service {
    /// A reservation of nothing in the memory of the databases, for what lives as long as a request.
    fn reservation(&self) -> Result<Reservation, Problem> {
        let runtime = self.databases.runtime();
        runtime.map(Runtime::reservation).ok_or_else(|| {
            let detail = "no database is served here";
            Problem::new(StatusCode::NOT_FOUND, "no-such-address", detail)
        })
    }
}

/// What the command line says about answering.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long a query may run; a request may ask for less.
    pub(crate) timeout: Duration,
    /// How long a client may take nothing before it is cut off.
    pub(crate) client_timeout: Duration,
    /// How long a client may take to send the head of a request.
    pub(crate) head_timeout: Duration,
    pub(crate) default_graph_union: bool,
    /// Whether SERVICE may ask anybody.
    pub(crate) federated: bool,
    /// Origins whose pages may read answers.
    pub(crate) origins: Origins,
    /// The names under which it answers.
    pub(crate) hosts: Hosts,
    /// Who may write.
    pub(crate) writers: Writers,
    /// Where backups go that are asked for; nobody can ask without.
    pub(crate) backup_dir: Option<PathBuf>,
    /// Takes lines for whoever runs the server.
    pub(crate) tell: fn(&str),
}

impl Settings {
    /// Lets a request through that changes data, or how they are kept.
    ///
    /// # Errors
    /// If its client may not write, or its headers name conditions.
    fn check_write(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.writers.check(headers)?;
        conditions::check(headers)
    }
}

/// A server that is running. Dropping it does not end it; see [`Server::stop`].
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    reactors: Vec<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Starts `reactors` threads that accept connections on `listener`.
    pub(crate) fn start(
        service: Service,
        listener: TcpListener,
        reactors: usize,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let stop = Arc::default();
        let reactors = reactor::start(reactors, &listener, &Arc::new(service), &stop)?;
        Ok(Self {
            address,
            stop,
            reactors,
        })
    }

    /// Ends all connections and waits for the reactors.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for reactor in self.reactors {
            reactor
                .join()
                .map_err(|_| io::Error::other("a reactor thread has panicked"))??;
        }
        Ok(())
    }
}
