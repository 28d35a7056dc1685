//! `serve`: the HTTP server until a signal ends it.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use stoa_database::{
    ArchiveOptions, Database, Error, PoolLimits, Runtime, RuntimeOptions, TRIALS_MAX,
    machine_memory_bytes,
};

use super::arguments::{DefaultGraph, Serve, Served};
use super::backup::archive_or_say;
use super::opening::Opened;
use super::output::say;
use crate::http::{
    ClientPlaces, Databases, FeedPlaces, Hosts, Origins, ROOT, Server, Service, Settings, Token,
    Transactions, WritePlaces, Writers,
};
use crate::memory::limit_memory;

/// How long a query may run unless the command line says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Queries that run at once, in turns, for each thread, where memory suffices: so many long ones keep no short one from
/// its turn.
const ACTIVE_PER_THREAD: usize = 64;

/// Queries that run at once for each thread, however little memory there is.
const ACTIVE_PER_THREAD_MIN: usize = 2;

/// What each query may take before it is counted, in bytes.
const UNCOUNTED_BYTES: u64 = 16 << 20;

/// Queries that wait for their turn.
const WAITING_MAX: usize = 100;

/// Feeds of changes that one client reads at once.
const CLIENT_FEEDS_MAX: usize = 100;

/// How often the main thread looks for a signal.
const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// How many queries run at once on so many threads with so many bytes of memory, beside those that are tried.
fn active_max(threads: usize, memory: u64) -> usize {
    let fit = usize::try_from(memory / UNCOUNTED_BYTES).unwrap_or(usize::MAX);
    let fit = fit.saturating_sub(TRIALS_MAX);
    fit.min(threads * ACTIVE_PER_THREAD)
        .max(threads * ACTIVE_PER_THREAD_MIN)
}

pub(super) fn serve(arguments: Serve, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let started = start(arguments)?;
    say(&format!("listening on http://{}", started.server.address));
    if started.is_read_only {
        say("nobody can write here: --token FILE lets those who bring the token");
    }
    for folder in started.created {
        say(&format!("created the database {}", folder.display()));
    }
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(SIGNAL_POLL);
    }
    started
        .server
        .stop()
        .context("the server did not end well")?;
    started.archived.iter().for_each(archive_or_say);
    Ok(ExitCode::SUCCESS)
}

/// A server that answers, and what there is to tell of it.
struct Started {
    server: Server,
    #[cfg(test)]
    runtime: Runtime,
    is_read_only: bool,
    created: Vec<PathBuf>,
    /// Those whose log has an archive.
    archived: Vec<Database>,
}

/// Opens the databases and starts the server.
fn start(arguments: Serve) -> anyhow::Result<Started> {
    let memory = arguments
        .limits
        .memory
        .unwrap_or_else(|| machine_memory_bytes() / 2);
    let runtime = runtime(&arguments, memory)?;
    let token = arguments.token.as_deref().map(read_token).transpose()?;
    // Listening comes first: a port that is taken must not leave a new database behind.
    let address = address(&arguments.bind)?;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another with --bind"))?;
    let (databases, created) = open_all(&runtime, &arguments)?;
    let archived: Vec<Database> = match arguments.archive_log {
        Some(_) => databases.all().cloned().collect(),
        None => Vec::new(),
    };
    let limits = PoolLimits {
        threads: runtime.threads(),
        active_max: active_max(runtime.threads(), memory),
        waiting_max: WAITING_MAX,
    };
    let pool = runtime
        .worker_pool(limits)
        .context("cannot start worker threads")?;
    let origins = Origins::new(arguments.cors);
    let address = listener.local_addr().context("cannot listen")?;
    let hosts = Hosts::new(arguments.host, token.is_some());
    let writers = Writers::new(address, token, origins.clone());
    let is_read_only = writers.is_empty();
    let settings = Settings {
        timeout: arguments.limits.timeout.unwrap_or(DEFAULT_TIMEOUT),
        client_timeout: arguments.client_timeout,
        head_timeout: arguments.head_timeout,
        federated: !arguments.limits.allow_service.is_empty(),
        default_graph_union: arguments.limits.default_graph == DefaultGraph::Union,
        origins,
        hosts,
        writers,
        backup_dir: arguments.backup_dir,
        tell: say,
    };
    let service = Service {
        databases,
        pool,
        settings,
        write_places: WritePlaces::default(),
        feed_places: FeedPlaces::default(),
        transactions: Transactions::new(arguments.transaction_timeout),
        feeds: ClientPlaces::new("open feeds of changes", "close one", CLIENT_FEEDS_MAX),
        stalled: ClientPlaces::new("answers that it does not take", "take them", usize::MAX),
        labels: Arc::default(),
    };
    let server =
        Server::start(service, listener, runtime.threads()).context("cannot start the server")?;
    Ok(Started {
        server,
        #[cfg(test)]
        runtime,
        is_read_only,
        created,
        archived,
    })
}

/// Memory, threads and clients of other servers, as the arguments say.
fn runtime(arguments: &Serve, memory: u64) -> anyhow::Result<Runtime> {
    Ok(Runtime::new(RuntimeOptions {
        memory_bytes: Some(limit_memory(memory)?),
        threads: arguments.threads,
        durability: arguments.durability,
        memory_wait: Some(arguments.memory_wait),
        fetch: arguments
            .limits
            .fetch()
            .context("cannot start the thread for SERVICE")?,
        load: arguments
            .documents
            .fetch()
            .context("cannot start the thread for LOAD")?,
        io: arguments.io,
        ..RuntimeOptions::default()
    })?)
}

/// The address that `--bind` names.
fn address(bind: &str) -> anyhow::Result<SocketAddr> {
    let found = bind.to_socket_addrs();
    let found = found.map_err(|error| error.to_string());
    let address = found.and_then(|mut all| all.next().ok_or_else(|| "it is nowhere".to_owned()));
    address.map_err(|reason| {
        let error = Error::InvalidOption {
            option: "--bind",
            reason: format!("'{bind}' is no address and port, such as 127.0.0.1:7878: {reason}"),
        };
        error.into()
    })
}

/// The token in a file.
fn read_token(file: &Path) -> anyhow::Result<Token> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the token {}", file.display()))?;
    Token::new(&text).map_err(|reason| {
        let error = Error::InvalidOption {
            option: "--token",
            reason: format!("{}: {reason}", file.display()),
        };
        error.into()
    })
}

/// Opens all databases, and names the folders of the new ones. If one cannot be opened, none of the new ones stays.
fn open_all(runtime: &Runtime, arguments: &Serve) -> anyhow::Result<(Databases, Vec<PathBuf>)> {
    let mut opened: Vec<(&Served, Opened)> = Vec::new();
    for place in &arguments.db {
        let before = opened.iter().map(|(place, _)| *place);
        let one = verify_place(place, before).and_then(|()| open_one(runtime, place, arguments));
        match one {
            Ok(one) => opened.push((place, one)),
            Err(error) => {
                for (_, one) in opened {
                    one.discard_if_new();
                }
                return Err(error);
            }
        }
    }
    let (mut databases, mut created) = (Databases::default(), Vec::new());
    for (Served { name, folder }, one) in opened {
        if one.database.is_new() {
            created.push(folder.clone());
        }
        match name {
            None => databases.root = Some(one.database),
            Some(name) => drop(databases.named.insert(name.clone(), one.database)),
        }
    }
    Ok((databases, created))
}

/// Refuses a database whose address another one has.
fn verify_place<'a>(
    place: &Served,
    mut before: impl Iterator<Item = &'a Served> + Clone,
) -> anyhow::Result<()> {
    if before.clone().any(|other| other.name == place.name) {
        let at = place.name.as_deref().unwrap_or("the root");
        anyhow::bail!("two databases at {at}: give each a name of its own, --db NAME=DIR");
    }
    let is_root = |place: &Served| place.name.as_deref().is_none_or(|name| name == ROOT);
    if is_root(place) && before.any(is_root) {
        anyhow::bail!(
            "two databases at /repositories/{ROOT}: give the one at the root a name, --db NAME=DIR"
        );
    }
    Ok(())
}

fn open_one(
    runtime: &Runtime,
    Served { name, folder }: &Served,
    arguments: &Serve,
) -> anyhow::Result<Opened> {
    let archive = match (arguments.archive_log.as_deref(), name) {
        (Some(archive), Some(name)) => {
            std::fs::create_dir_all(archive)
                .with_context(|| format!("cannot make {}", archive.display()))?;
            Some(archive.join(name))
        }
        (archive, _) => archive.map(Path::to_path_buf),
    };
    let archive = archive.map(|folder| ArchiveOptions {
        folder,
        every: arguments.archive_every,
        backlog_bytes: arguments.archive_backlog,
    });
    let opened = Opened::open(runtime, folder, arguments.create, archive.as_ref())?;
    match arguments.retain.apply(&opened.database) {
        Ok(()) => Ok(opened),
        Err(error) => {
            opened.discard_if_new();
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod held_tests;
