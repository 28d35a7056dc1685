//! `serve`: the HTTP server until a signal ends it.

use std::net::{TcpListener, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use stoa_database::{
    Access, Database, OpenOptions, PoolLimits, Runtime, RuntimeOptions, WorkerPool,
    machine_memory_bytes,
};

use super::arguments::{DefaultGraph, Serve};
use super::output::say;
use crate::http::{Server, Service, Settings};

/// How long a query may run unless the command line says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Queries that run at once, for each core.
const ACTIVE_PER_CORE: usize = 2;

/// Queries that wait for their turn.
const WAITING_MAX: usize = 100;

/// How often the main thread looks for a signal.
const SIGNAL_POLL: Duration = Duration::from_millis(50);

pub(super) fn serve(arguments: Serve, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let memory = arguments
        .limits
        .memory
        .unwrap_or_else(|| machine_memory_bytes() / 2);
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(memory),
        threads: arguments.threads,
        ..RuntimeOptions::default()
    })?;
    // Listening comes first: a port that is taken must not leave a new database behind.
    let address = arguments
        .bind
        .to_socket_addrs()
        .with_context(|| format!("--bind {} is no address", arguments.bind))?
        .next()
        .with_context(|| format!("--bind {} is no address", arguments.bind))?;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another with --bind"))?;
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, &arguments.folder.db, &options)?;
    let is_new = database.is_new();
    let limits = PoolLimits {
        threads: runtime.threads(),
        active_max: runtime.threads() * ACTIVE_PER_CORE,
        waiting_max: WAITING_MAX,
    };
    let pool = WorkerPool::new(limits, database.executor_clock())
        .context("cannot start worker threads")?;
    let settings = Settings {
        timeout: arguments.limits.timeout.unwrap_or(DEFAULT_TIMEOUT),
        client_timeout: arguments.client_timeout,
        default_graph_union: arguments.limits.default_graph == DefaultGraph::Union,
    };
    let service = Service {
        database,
        pool,
        settings,
    };
    let server =
        Server::start(service, listener, runtime.threads()).context("cannot start the server")?;
    say(&format!("listening on http://{}", server.address));
    if is_new {
        say(&format!(
            "created the database {}",
            arguments.folder.db.display()
        ));
    }
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(SIGNAL_POLL);
    }
    server.stop().context("the server did not end well")?;
    Ok(ExitCode::SUCCESS)
}
