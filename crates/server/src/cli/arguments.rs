//! What the commands take. Every flag can also be given as `STOA_NAME` in the environment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stoa_database::federation::Fetch;
use stoa_database::results::ResultFormat;
use stoa_database::{
    Database, DirectionForm, DumpFormat, Durability, Error, GraphFormat, IoCalls, Moment,
    MomentError, Retention, Scheme,
};

use crate::client::ServerUrl;
use crate::commit_table::TableFormat;
use crate::fetch::{Fetcher, Prefix};
use crate::http::{RESERVED, is_name, parse_name};

use super::sizes::{parse_bytes, parse_duration};

/// A database for RDF: load it, ask it in SPARQL.
#[derive(Debug, Parser)]
#[command(
    name = "stoa",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Example:
  stoa load --db mydb facts.ttl more.nt.gz
  stoa query --db mydb 'SELECT * { ?s ?p ?o } LIMIT 10'
  stoa update --db mydb 'DELETE WHERE { ?s <http://example.org/p> ?o }'
  stoa serve --db mydb"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Load files into a database; all of them or, if one is damaged, nothing
    #[command(after_help = "\
Examples:
  stoa load --db mydb facts.ttl
  stoa load --db mydb --memory 2G dumps/ extra.nq.zst
  stoa load --db mydb --lenient crawl.nq.gz
  stoa load --server http://127.0.0.1:7878/ more.ttl
  stoa load --db mydb --retain 30d today.ttl
  stoa load --db mydb --context https://schema.org/=schema.jsonld page.jsonld
  zcat facts.nt.gz | stoa load --db mydb --format nt --graph http://example.org/g -")]
    Load(Load),
    /// Answer a SPARQL query
    #[command(after_help = "\
Examples:
  stoa query --db mydb 'SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p'
  stoa query --db mydb -f report.rq --format csv > report.csv
  stoa query --db mydb --at 2026-11-21T16:00:00Z 'ASK { ?s ?p ?o }'
  stoa query --db mydb --allow-service https://example.org/sparql -f federated.rq
  stoa query --server http://127.0.0.1:7878/ 'ASK { ?s ?p ?o }'")]
    Query(Query),
    /// Change a database by SPARQL Update: all of a request or, after an error, nothing of it
    #[command(after_help = "\
Examples:
  stoa update --db mydb 'PREFIX : <http://example.org/> INSERT DATA { :alice :knows :bob }'
  stoa update --db new --create -f first.ru -f second.ru
  stoa update --db mydb --allow-load https://example.org/ 'LOAD <https://example.org/data.ttl>'
  stoa update --server http://127.0.0.1:7878/ --message tidy 'DROP GRAPH <http://example.org/old>'")]
    Update(Update),
    /// Answer SPARQL queries over HTTP
    #[command(after_help = "\
Examples:
  stoa serve --db mydb
  stoa serve --db new --create
  stoa serve --db mydb --bind 127.0.0.1:0 --timeout 10s --memory 4G
  stoa serve --db people=db1 --db places=db2 --cors https://example.org
  stoa serve --db mydb --bind 0.0.0.0:7878 --token secret.txt
  stoa serve --db mydb --bind 0.0.0.0:7878 --host db.example.org
  stoa serve --db mydb --allow-service https://example.org/
  curl --data-urlencode 'query=SELECT * { ?s ?p ?o } LIMIT 3' http://127.0.0.1:7878/sparql")]
    Serve(Serve),
    /// Write all quads to standard output
    #[command(after_help = "\
Examples:
  stoa dump --db mydb --format trig | gzip > mydb.trig.gz
  stoa dump --db mydb --at 2026-11-20 > yesterday.nq
  stoa dump --server http://127.0.0.1:7878/ > served.nq")]
    Dump(Dump),
    /// Show what is in a database and how it lies on disk
    #[command(after_help = "\
Example:
  stoa info --db mydb")]
    Info(Folder),
    /// Verify every checksum of a database, its sort orders, or backups and archives
    #[command(after_help = "\
Examples:
  stoa check --db mydb
  stoa check --backup /backups/mydb --backup /backups/log")]
    Check(Check),
    /// List the commits that are kept, the newest first
    #[command(after_help = "\
What is kept is said with --retain of load, update and serve.

Examples:
  stoa log --db mydb --limit 10
  stoa log --db mydb --format json
  stoa log --server http://127.0.0.1:7878/ --limit 10")]
    Log(Log),
    /// Write what changed between two commits as RDF Patch
    #[command(after_help = "\
Examples:
  stoa diff --db mydb 41 42
  stoa diff --db mydb 2026-11-20T00:00:00Z 2026-11-21T00:00:00Z > day.rdfp
  stoa diff --server http://127.0.0.1:7878/ 41 42")]
    Diff(Diff),
    /// Apply patches, as diff writes them: each becomes one commit
    #[command(after_help = "\
Rows that have no effect are counted: they add what is there, or remove what is not. With --strict they
are an error.

Examples:
  stoa diff --db mydb 42 41 > undo.rdfp
  stoa apply --db mydb undo.rdfp
  stoa apply --db copy --strict --message 'the changes of Friday' day.rdfp.gz
  stoa apply --server http://127.0.0.1:7878/ day.rdfp")]
    Apply(Apply),
    /// Undo commits by a new one
    #[command(after_help = "\
Where a later commit has changed the same quads nothing is undone, and they are listed; --force leaves them
as they are and undoes the rest. What was before the commit must still be kept: see `stoa log`.

Examples:
  stoa revert --db mydb 42
  stoa revert --db mydb 41 42 --message 'wrong file'
  stoa revert --server http://127.0.0.1:7878/ --force 17")]
    Revert(Revert),
    /// Give earlier commits free at once, so that they cannot be read any more
    #[command(after_help = "\
What is kept from then on is said with --retain of load, update and serve.

Examples:
  stoa forget --db mydb --before 42
  stoa forget --server http://127.0.0.1:7878/ --before 2026-11-20T00:00:00Z")]
    Forget(Forget),
    /// Write what was committed since the last checkpoint into the sort orders
    #[command(after_help = "\
A server does it by itself.

Examples:
  stoa checkpoint --db mydb
  stoa checkpoint --server http://127.0.0.1:7878/")]
    Checkpoint(Checkpoint),
    /// Copy a database into a folder of backups, which needs what is new alone
    #[command(after_help = "\
Examples:
  stoa backup --db mydb --to /backups/mydb
  stoa backup --server http://127.0.0.1:7878/ --to mydb
  stoa restore --from /backups/mydb --db again")]
    Backup(Backup),
    /// Make a new database from backups, as it was at the last one, a commit or a time
    #[command(after_help = "\
Examples:
  stoa restore --from /backups/mydb --db again
  stoa restore --from /backups/mydb --db again --at 2026-11-21T16:00:00Z
  stoa restore --from /backups/mydb --archive-log /backups/log --db again")]
    Restore(Restore),
    /// Write a database anew, densely, without terms that no quad has; nothing else changes
    #[command(after_help = "\
Queries and commits go on. On the way the files take up to three times their size. Where earlier commits
are kept, what these have is given free when they expire.

Examples:
  stoa compact --db mydb
  stoa compact --server http://127.0.0.1:7878/")]
    Compact(Checkpoint),
}

#[derive(Args, Debug)]
pub(super) struct Folder {
    /// The folder of the database
    #[arg(long, value_name = "DIR", env = "STOA_DB")]
    pub(super) db: PathBuf,
    /// How files of the database are read: uring (where the kernel allows it) or pread
    #[arg(long, value_name = "CALLS", env = "STOA_IO", value_parser = parse_io, default_value = "uring")]
    pub(super) io: IoCalls,
}

#[derive(Args, Debug)]
pub(super) struct Check {
    /// The folder of the database
    #[arg(
        long,
        value_name = "DIR",
        env = "STOA_DB",
        required_unless_present = "backup"
    )]
    pub(super) db: Option<PathBuf>,
    /// A folder of backups, or an archive of the log; repeatable
    #[arg(long, value_name = "FOLDER", env = "STOA_BACKUP")]
    pub(super) backup: Vec<PathBuf>,
    /// How files of the database are read: uring (where the kernel allows it) or pread
    #[arg(long, value_name = "CALLS", env = "STOA_IO", value_parser = parse_io, default_value = "uring")]
    pub(super) io: IoCalls,
}

#[derive(Args, Clone, Debug)]
pub(super) struct Place {
    /// The folder of the database
    #[arg(
        long,
        value_name = "DIR",
        env = "STOA_DB",
        required_unless_present = "server"
    )]
    pub(super) db: Option<PathBuf>,
    /// Instead of a folder, a database that is being served: the address of the server or, where the database
    /// has a name, its own, such as http://127.0.0.1:7878/people/
    #[arg(long, value_name = "URL", env = "STOA_SERVER", value_parser = ServerUrl::parse, conflicts_with = "db")]
    pub(super) server: Option<ServerUrl>,
    /// The file with the token of the server
    #[arg(long, value_name = "FILE", env = "STOA_TOKEN")]
    pub(super) token: Option<PathBuf>,
    /// How files of the database are read: uring (where the kernel allows it) or pread
    #[arg(long, value_name = "CALLS", env = "STOA_IO", value_parser = parse_io, default_value = "uring")]
    pub(super) io: IoCalls,
}

#[derive(Args, Debug)]
pub(super) struct Log {
    #[command(flatten)]
    pub(super) place: Place,
    /// List so many commits at most
    #[arg(long, value_name = "N", env = "STOA_LIMIT")]
    pub(super) limit: Option<u64>,
    /// table, json, csv or tsv; by default a table on a terminal, else TSV
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "STOA_FORMAT",
        hide_possible_values = true
    )]
    pub(super) format: Option<TableFormat>,
}

#[derive(Args, Debug)]
pub(super) struct Diff {
    #[command(flatten)]
    pub(super) place: Place,
    /// The commit, or the time, from which the patch leads
    #[arg(value_name = "FROM", value_parser = parse_moment)]
    pub(super) from: Moment,
    /// The one to which it leads; may be the earlier one
    #[arg(value_name = "TO", value_parser = parse_moment)]
    pub(super) to: Moment,
}

#[derive(Args, Debug)]
pub(super) struct Apply {
    #[command(flatten)]
    pub(super) place: Place,
    /// Files with patches, or - for standard input; plain, gzip, zstd, bzip2 or xz
    #[arg(required = true, value_name = "PATCH|-")]
    pub(super) patches: Vec<PathBuf>,
    /// Change nothing if a row has no effect, and list such rows
    #[arg(long, env = "STOA_STRICT")]
    pub(super) strict: bool,
    /// What the list of commits says of it
    #[arg(long, value_name = "TEXT", env = "STOA_MESSAGE")]
    pub(super) message: Option<String>,
    /// Memory to use at most, such as 2G; by default a quarter of the machine's
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes, conflicts_with = "server")]
    pub(super) memory: Option<u64>,
    #[command(flatten)]
    pub(super) archive: Archive,
}

#[derive(Args, Debug)]
pub(super) struct Revert {
    #[command(flatten)]
    pub(super) place: Place,
    /// The numbers of the commits
    #[arg(required = true, value_name = "COMMIT")]
    pub(super) commits: Vec<u64>,
    /// Undo what can be undone, where later commits have changed the same quads
    #[arg(long, env = "STOA_FORCE")]
    pub(super) force: bool,
    /// What the list of commits says of it; by default which commits are undone
    #[arg(long, value_name = "TEXT", env = "STOA_MESSAGE")]
    pub(super) message: Option<String>,
    /// Memory to use at most, such as 2G; by default a quarter of the machine's
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes, conflicts_with = "server")]
    pub(super) memory: Option<u64>,
    #[command(flatten)]
    pub(super) archive: Archive,
}

#[derive(Args, Debug)]
pub(super) struct Forget {
    #[command(flatten)]
    pub(super) place: Place,
    /// The commit, or the time, before which nothing needs to be read any more. What was since the checkpoint
    /// before it may stay
    #[arg(long, value_name = "COMMIT|TIME", env = "STOA_BEFORE", value_parser = parse_moment)]
    pub(super) before: Moment,
}

/// Where a command that writes copies the log.
#[derive(Args, Clone, Debug)]
pub(super) struct Archive {
    /// Copy the log and what a load or a compaction writes into this folder, as serve does
    #[arg(
        long,
        value_name = "FOLDER",
        env = "STOA_ARCHIVE_LOG",
        conflicts_with = "server"
    )]
    pub(super) archive_log: Option<PathBuf>,
}

/// What a command that writes keeps of earlier commits.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Retain {
    /// Which earlier commits are kept, so that --at can ask them and revert undo them: none, all, so many
    /// (100c), those of a time (7d; s, m, h, w as well), or auto: those of a day while they cost at most a
    /// tenth of the data or 256 MB, and what was before the newest large removal for an hour. Stored in the
    /// database; without it what was chosen before stays, at first auto
    #[arg(long, value_name = "WHICH", env = "STOA_RETAIN", value_parser = parse_retention)]
    pub(super) retain: Option<Retention>,
}

impl Retain {
    /// Stores it in a database.
    pub(super) fn apply(self, database: &Database) -> Result<(), Error> {
        match self.retain {
            Some(retention) => database.set_retention(retention),
            None => Ok(()),
        }
    }
}

#[derive(Args, Debug)]
pub(super) struct Checkpoint {
    #[command(flatten)]
    pub(super) place: Place,
    /// Memory to use at most, such as 2G; by default a quarter of the machine's
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes)]
    pub(super) memory: Option<u64>,
    /// Threads to work with; by default one for each core
    #[arg(long, value_name = "N", env = "STOA_THREADS", value_parser = parse_threads)]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    pub(super) archive: Archive,
}

#[derive(Args, Debug)]
pub(super) struct Backup {
    #[command(flatten)]
    pub(super) place: Place,
    /// The folder of backups; made if it is absent, else it holds earlier ones of the same database.
    /// For a database that is being served, the name of one within the server's own folder of backups
    #[arg(long, value_name = "FOLDER", env = "STOA_TO")]
    pub(super) to: PathBuf,
    /// Leave earlier commits out
    #[arg(long, env = "STOA_NO_HISTORY")]
    pub(super) no_history: bool,
}

#[derive(Args, Debug)]
pub(super) struct Restore {
    #[command(flatten)]
    pub(super) folder: Folder,
    /// The folder of backups
    #[arg(long, value_name = "FOLDER", env = "STOA_FROM")]
    pub(super) from: PathBuf,
    /// A commit, or a time such as 2026-11-21T16:00:00Z; by default all that there is
    #[arg(long, value_name = "COMMIT|TIME", env = "STOA_AT", value_parser = parse_moment)]
    pub(super) at: Option<Moment>,
    /// A folder with log files behind the backups, as --archive-log of serve keeps them; repeatable
    #[arg(long, value_name = "FOLDER", env = "STOA_ARCHIVE_LOG")]
    pub(super) archive_log: Vec<PathBuf>,
    /// Memory to use at most, such as 2G; by default a quarter of the machine's
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes)]
    pub(super) memory: Option<u64>,
    /// Threads to work with; by default one for each core
    #[arg(long, value_name = "N", env = "STOA_THREADS", value_parser = parse_threads)]
    pub(super) threads: Option<usize>,
}

#[derive(Args, Debug)]
pub(super) struct Load {
    #[command(flatten)]
    pub(super) place: Place,
    /// Files, folders, or - for standard input; plain, gzip, zstd, bzip2 or xz
    #[arg(required = true, value_name = "FILE|FOLDER|-")]
    pub(super) inputs: Vec<PathBuf>,
    /// The format of all inputs: nt, nq, ttl, trig, rdf, jsonld; by default by extension, else by content
    #[arg(long, env = "STOA_FORMAT", value_parser = parse_graph_format)]
    pub(super) format: Option<GraphFormat>,
    /// Put triples of the default graph into this graph
    #[arg(long, value_name = "IRI", env = "STOA_GRAPH")]
    pub(super) graph: Option<String>,
    /// Base of relative IRIs; by default the URL of each file
    #[arg(long, value_name = "IRI", env = "STOA_BASE")]
    pub(super) base: Option<String>,
    /// Sort orders of a new database: default, or lean for less space and slower look-ups of nodes
    #[arg(long, value_name = "SCHEME", env = "STOA_SCHEME", value_parser = parse_scheme, conflicts_with = "server")]
    pub(super) scheme: Option<Scheme>,
    /// A file with the JSON-LD context that documents name by this URL; repeatable. Nothing is fetched
    #[arg(long, value_name = "URL=FILE", value_parser = parse_context)]
    pub(super) context: Vec<(String, PathBuf)>,
    /// A file with a context that holds at the top of every document of JSON-LD, for plain JSON as well
    #[arg(long, value_name = "FILE", env = "STOA_EXPAND_CONTEXT")]
    pub(super) expand_context: Option<PathBuf>,
    /// What becomes of base directions in JSON-LD: dirlang (texts of RDF 1.2), i18n (datatypes),
    /// compound (blank nodes) or none
    #[arg(long, value_name = "FORM", env = "STOA_RDF_DIRECTION", value_parser = parse_direction, default_value = "dirlang")]
    pub(super) rdf_direction: DirectionForm,
    /// Leave out damaged lines of N-Triples and N-Quads and damaged statements of Turtle and TriG, and list them
    #[arg(long, env = "STOA_LENIENT")]
    pub(super) lenient: bool,
    #[command(flatten)]
    pub(super) archive: Archive,
    #[command(flatten)]
    pub(super) retain: Retain,
    /// Memory to use at most, such as 2G; by default a quarter of the machine's. About 110 MB are taken
    /// in any case
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes)]
    pub(super) memory: Option<u64>,
    /// Threads that parse and sort; by default one for each core
    #[arg(long, value_name = "N", env = "STOA_THREADS", value_parser = parse_threads)]
    pub(super) threads: Option<usize>,
}

#[derive(Args, Debug)]
pub(super) struct Query {
    #[command(flatten)]
    pub(super) place: Place,
    /// The query
    #[arg(
        value_name = "QUERY",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub(super) query: Option<String>,
    /// Read the query from a file, - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Base of relative IRIs in the query
    #[arg(long, value_name = "IRI", env = "STOA_BASE")]
    pub(super) base: Option<String>,
    /// table, json, xml, csv, tsv for solutions; nt, nq, ttl, trig, rdf, jsonld for graphs
    #[arg(long, env = "STOA_FORMAT", value_parser = parse_result_format)]
    pub(super) format: Option<ResultFormat>,
    /// Ask the state after this commit, or at this time, such as 2026-11-21T16:00:00Z; see --retain of
    /// load, update and serve
    #[arg(long, value_name = "COMMIT|TIME", env = "STOA_AT", value_parser = parse_moment)]
    pub(super) at: Option<Moment>,
    #[command(flatten)]
    pub(super) limits: QueryLimits,
    /// Show the plan instead of the answer; with =analyze run the query, and show how many rows came of
    /// each operator and how long it took with its inputs. As JSON with --format json
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "plan",
        hide_possible_values = true
    )]
    pub(super) explain: Option<Explain>,
}

/// What is shown of a query instead of its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Explain {
    Plan,
    Analyze,
}

#[derive(Args, Debug)]
pub(super) struct Update {
    #[command(flatten)]
    pub(super) place: Place,
    /// The update
    #[arg(
        value_name = "UPDATE",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub(super) update: Option<String>,
    /// Read an update from a file, - for standard input; repeatable, each file is a commit of its own
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Vec<PathBuf>,
    /// Make the database if there is none
    #[arg(long, env = "STOA_CREATE", conflicts_with = "server")]
    pub(super) create: bool,
    /// Base of relative IRIs in the update
    #[arg(long, value_name = "IRI", env = "STOA_BASE")]
    pub(super) base: Option<String>,
    /// What the commit is kept with, to be read by people
    #[arg(long, value_name = "TEXT", env = "STOA_MESSAGE")]
    pub(super) message: Option<String>,
    /// Copy the log into this folder, as serve does
    #[arg(long, value_name = "FOLDER", env = "STOA_ARCHIVE_LOG")]
    pub(super) archive_log: Option<PathBuf>,
    #[command(flatten)]
    pub(super) limits: QueryLimits,
    #[command(flatten)]
    pub(super) documents: Documents,
    #[command(flatten)]
    pub(super) retain: Retain,
    /// What a commit survives that was told: full (loss of power), the default, or relaxed (the end of the
    /// process; loss of power takes the last second)
    #[arg(long, value_name = "HOW", env = "STOA_DURABILITY", value_parser = parse_durability)]
    pub(super) durability: Option<Durability>,
}

#[derive(Args, Debug)]
pub(super) struct Documents {
    /// Let LOAD fetch URLs with this prefix, which names the document, or only a host or a scheme;
    /// repeatable; without it LOAD is off. This machine itself only if its address is the prefix's
    #[arg(long, value_name = "PREFIX", env = "STOA_ALLOW_LOAD", value_delimiter = ',', value_parser = Prefix::parse)]
    pub(super) allow_load: Vec<Prefix>,
}

impl Documents {
    /// What fetches the documents of LOAD, if any is allowed.
    pub(super) fn fetch(&self) -> std::io::Result<Option<Arc<dyn Fetch>>> {
        fetcher(&self.allow_load, "--allow-load")
    }
}

fn fetcher(prefixes: &[Prefix], option: &'static str) -> std::io::Result<Option<Arc<dyn Fetch>>> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    let fetcher = Fetcher::start(prefixes.to_vec(), option)?;
    Ok(Some(Arc::new(fetcher)))
}

#[derive(Args, Debug)]
pub(super) struct QueryLimits {
    /// End a query after this time, such as 30s; by default after 60s in serve, else never
    #[arg(long, value_name = "TIME", env = "STOA_TIMEOUT", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Memory to use at most, such as 2G, and at least 96M; by default half of the machine's in serve,
    /// else a quarter
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes)]
    pub(super) memory: Option<u64>,
    /// What a query without FROM reads: unnamed, the graph without a name, or union, all graphs together
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        env = "STOA_DEFAULT_GRAPH",
        default_value = "unnamed",
        hide_possible_values = true
    )]
    pub(super) default_graph: DefaultGraph,
    /// Let SERVICE ask URLs with this prefix, which names the endpoint, or only a host or a scheme;
    /// repeatable; without it SERVICE is off. This machine itself only if its address is the prefix's
    #[arg(long, value_name = "PREFIX", env = "STOA_ALLOW_SERVICE", value_delimiter = ',', value_parser = Prefix::parse)]
    pub(super) allow_service: Vec<Prefix>,
}

impl QueryLimits {
    /// What asks the endpoints of SERVICE, if any is allowed.
    pub(super) fn fetch(&self) -> std::io::Result<Option<Arc<dyn Fetch>>> {
        fetcher(&self.allow_service, "--allow-service")
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum DefaultGraph {
    /// The unnamed graph alone
    Unnamed,
    /// All graphs together
    Union,
}

#[derive(Args, Debug)]
pub(super) struct Serve {
    /// The folder of a database, served at /sparql; or NAME=DIR for /NAME/sparql, repeatable
    #[arg(
        long,
        required = true,
        value_name = "[NAME=]DIR",
        env = "STOA_DB",
        value_parser = parse_served
    )]
    pub(super) db: Vec<Served>,
    /// Make an empty database where there is none
    #[arg(long, env = "STOA_CREATE")]
    pub(super) create: bool,
    /// How files of databases are read: uring (where the kernel allows it) or pread
    #[arg(long, value_name = "CALLS", env = "STOA_IO", value_parser = parse_io, default_value = "uring")]
    pub(super) io: IoCalls,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDR",
        env = "STOA_BIND",
        default_value = "127.0.0.1:7878"
    )]
    pub(super) bind: String,
    #[command(flatten)]
    pub(super) limits: QueryLimits,
    #[command(flatten)]
    pub(super) retain: Retain,
    /// What a commit survives that was answered: full (loss of power) or relaxed (the end of the process;
    /// loss of power takes the last second)
    #[arg(long, value_name = "HOW", env = "STOA_DURABILITY", value_parser = parse_durability, default_value = "full")]
    pub(super) durability: Durability,
    #[command(flatten)]
    pub(super) documents: Documents,
    /// Let those who may write have backups made (POST /backup?name=NAME) in folders within this one
    #[arg(long, value_name = "FOLDER", env = "STOA_BACKUP_DIR")]
    pub(super) backup_dir: Option<PathBuf>,
    /// Copy the log into this folder, so that with a backup every later commit can be restored; a database
    /// with a name has a folder below it
    #[arg(long, value_name = "FOLDER", env = "STOA_ARCHIVE_LOG")]
    pub(super) archive_log: Option<PathBuf>,
    /// Copy commits into the archive of the log at the latest after this time
    #[arg(long, value_name = "TIME", env = "STOA_ARCHIVE_EVERY", value_parser = parse_duration, default_value = "60s")]
    pub(super) archive_every: Duration,
    /// Let so much wait for the archive while it cannot be written; beyond that it has a gap, which /status tells and
    /// the next backup bridges. By default a tenth of what is free on the device
    #[arg(long, value_name = "SIZE", env = "STOA_ARCHIVE_BACKLOG", value_parser = parse_bytes)]
    pub(super) archive_backlog: Option<u64>,
    /// Threads that run queries; by default one for each core
    #[arg(long, value_name = "N", env = "STOA_THREADS", value_parser = parse_threads)]
    pub(super) threads: Option<usize>,
    /// Let a query that has to hold much wait so long for memory that others have; then it gets 503
    #[arg(long, value_name = "TIME", env = "STOA_MEMORY_WAIT", value_parser = parse_duration, default_value = "30s")]
    pub(super) memory_wait: Duration,
    /// Cut off a client that takes nothing of its answer for this time; one whose query holds memory for which others wait,
    /// after a twelfth of it
    #[arg(long, value_name = "TIME", env = "STOA_CLIENT_TIMEOUT", value_parser = parse_duration, default_value = "60s")]
    pub(super) client_timeout: Duration,
    /// Cut off a client that has not sent the head of a request within this time
    #[arg(long, value_name = "TIME", env = "STOA_HEAD_TIMEOUT", value_parser = parse_duration, default_value = "30s")]
    pub(super) head_timeout: Duration,
    /// Roll back a transaction that a client has left alone for this time
    #[arg(long, value_name = "TIME", env = "STOA_TRANSACTION_TIMEOUT", value_parser = parse_duration, default_value = "60s")]
    pub(super) transaction_timeout: Duration,
    /// Let only those write who bring the token that is in this file (Authorization: Bearer TOKEN).
    /// Without one, everybody writes on an address of this machine alone, and nobody on any other
    #[arg(long, value_name = "FILE", env = "STOA_TOKEN")]
    pub(super) token: Option<PathBuf>,
    /// Answer requests that name this host, such as db.example.org, beside addresses and localhost; repeatable. Without
    /// it a server with --token answers under every name
    #[arg(long, value_name = "NAME", env = "STOA_HOST", value_delimiter = ',', value_parser = parse_name)]
    pub(super) host: Vec<String>,
    /// Let web pages of this origin (scheme and host) read answers and write, or * for all, which
    /// write only with a token; repeatable
    #[arg(long, value_name = "ORIGIN", env = "STOA_CORS", value_delimiter = ',', value_parser = parse_origin)]
    pub(super) cors: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct Dump {
    #[command(flatten)]
    pub(super) place: Place,
    /// nq, trig or jsonld
    #[arg(long, env = "STOA_FORMAT", value_parser = parse_dump_format, default_value = "nq")]
    pub(super) format: DumpFormat,
    /// Write the state after this commit, or at this time, such as 2026-11-21T16:00:00Z
    #[arg(long, value_name = "COMMIT|TIME", env = "STOA_AT", value_parser = parse_moment)]
    pub(super) at: Option<Moment>,
    /// Memory to use at most, such as 2G, and at least 96M; by default a quarter of the machine's
    #[arg(long, value_name = "SIZE", env = "STOA_MEMORY", value_parser = parse_bytes)]
    pub(super) memory: Option<u64>,
}

/// A database to serve: at the root, or under a name.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) name: Option<String>,
    pub(super) folder: PathBuf,
}

/// `NAME=DIR` if what stands before the first `=` can be a name, else a folder.
fn parse_served(text: &str) -> Result<Served, String> {
    let folder = |folder: &str| {
        if folder.is_empty() {
            Err("the folder is missing".to_owned())
        } else {
            Ok(PathBuf::from(folder))
        }
    };
    match text.split_once('=') {
        Some(("", _)) => Err(
            "the name before = is missing; for a folder whose name begins so, ./=DIR".to_owned(),
        ),
        Some((name, _)) if RESERVED.contains(&name) => Err(format!(
            "'{name}' is an address of the server; take another name"
        )),
        Some((name, rest)) if is_name(name) => Ok(Served {
            name: Some(name.to_owned()),
            folder: folder(rest)?,
        }),
        _ => Ok(Served {
            name: None,
            folder: folder(text)?,
        }),
    }
}

fn parse_origin(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains('/')
    });
    if text == "*" || text == "null" || is_origin {
        Ok(text.to_owned())
    } else {
        Err("an origin is a scheme and a host, such as https://example.org, or *".to_owned())
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("give a number from 1 to 1024".to_owned()),
    }
}

fn parse_moment(text: &str) -> Result<Moment, MomentError> {
    text.parse()
}

fn parse_io(text: &str) -> Result<IoCalls, String> {
    match text {
        "uring" => Ok(IoCalls::Uring),
        "pread" => Ok(IoCalls::Pread),
        _ => Err("give uring or pread".to_owned()),
    }
}

fn parse_retention(text: &str) -> Result<Retention, String> {
    text.parse().map_err(str::to_owned)
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "full" => Ok(Durability::Full),
        "relaxed" => Ok(Durability::Relaxed),
        _ => Err("give full or relaxed".to_owned()),
    }
}

fn parse_scheme(text: &str) -> Result<Scheme, String> {
    match text {
        "default" => Ok(Scheme::Full),
        "lean" => Ok(Scheme::Lean),
        _ => Err("the schemes are default and lean".to_owned()),
    }
}

/// The last `=` divides, since URLs may have some.
fn parse_context(text: &str) -> Result<(String, PathBuf), String> {
    match text.rsplit_once('=') {
        Some((url, file)) if !url.is_empty() && !file.is_empty() => {
            Ok((url.to_owned(), PathBuf::from(file)))
        }
        _ => Err("give URL=FILE".to_owned()),
    }
}

fn parse_direction(text: &str) -> Result<DirectionForm, String> {
    match text {
        "dirlang" => Ok(DirectionForm::DirLang),
        "i18n" => Ok(DirectionForm::I18n),
        "compound" => Ok(DirectionForm::Compound),
        "none" => Ok(DirectionForm::Dropped),
        _ => Err("give dirlang, i18n, compound or none".to_owned()),
    }
}

fn parse_graph_format(text: &str) -> Result<GraphFormat, String> {
    match GraphFormat::from_name(text) {
        Some(format) => Ok(format),
        None => Err("the formats are nt, nq, ttl, trig, rdf and jsonld".to_owned()),
    }
}

fn parse_result_format(text: &str) -> Result<ResultFormat, String> {
    match ResultFormat::from_name(text) {
        Some(format) => Ok(format),
        None => Err(
            "the formats are table, json, xml, csv, tsv; nt, nq, ttl, trig, rdf, jsonld".to_owned(),
        ),
    }
}

fn parse_dump_format(text: &str) -> Result<DumpFormat, String> {
    match GraphFormat::from_name(text) {
        Some(GraphFormat::NQuads) => Ok(DumpFormat::NQuads),
        Some(GraphFormat::TriG) => Ok(DumpFormat::TriG),
        Some(GraphFormat::JsonLd) => Ok(DumpFormat::JsonLd),
        _ => Err("a dump is written as nq, trig or jsonld".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser as _};

    use super::Arguments;

    /// The words of a command line as a shell cuts it, up to a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                '|' | '>' if !quoted => break,
                c => words.last_mut().unwrap().push(c),
            }
        }
        assert!(!quoted, "{line}");
        words.retain(|word| !word.is_empty());
        words
    }

    /// Asserts that a help has examples of the command, all of which are understood.
    fn assert_examples(command: &mut Command, of: &str) {
        let help = command.render_help().to_string();
        let (_, examples) = help.split_once("\nExample").expect(of);
        let lines = examples
            .lines()
            .filter_map(|line| line.find("stoa ").map(|at| &line[at..]));
        let mut found = false;
        for line in lines {
            found |= line.starts_with(of);
            let parsed = Arguments::try_parse_from(words(line));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
        assert!(found, "no example of {of}");
    }

    #[test]
    fn arguments_are_consistent_and_every_help_has_examples_that_work() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        assert_examples(&mut command, "stoa");
        let names: Vec<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .filter(|name| name != "help")
            .collect();
        assert!(names.len() >= 7);
        for name in names {
            let sub = command.find_subcommand_mut(&name).unwrap();
            assert_examples(sub, &format!("stoa {name}"));
        }
    }
}
