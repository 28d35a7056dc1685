//! What callers may choose, with the defaults.

use std::sync::Arc;
use std::time::Duration;

use oxrdf::{GraphName, NamedNode, Term, Variable};

use crate::error::Result;
use crate::federation::Fetch;
use crate::format::GraphFormat;
use crate::load::Input;
use crate::moment::Moment;
use crate::query::CancelHandle;
use crate::runtime::Clock;

pub use stoa_planner::{ForcedChoices, ForcedJoin, Rewrites};
pub use stoa_quadstore::Scheme;
pub use stoa_storage::{Durability, IoCalls};

/// What databases of one process share.
#[derive(Clone, Debug, Default)]
pub struct RuntimeOptions {
    /// The memory that all databases of the runtime may take together, in bytes; by default a
    /// quarter of the machine's.
    pub memory_bytes: Option<u64>,
    /// The part of it that caches pages of databases, in bytes; by default half of it.
    pub cache_bytes: Option<u64>,
    /// How long a query, or an update with all its operations, waits for memory that others hold before it fails with
    /// `NotAdmitted`; by default [`MEMORY_WAIT`](crate::limits::MEMORY_WAIT). It counts against its time-out, too.
    pub memory_wait: Option<Duration>,
    /// The calls by which files of databases are read; by default `io_uring` where the kernel allows it.
    pub io: IoCalls,
    /// How many threads work at once; by default as many as the machine has cores.
    pub threads: Option<usize>,
    /// What an acknowledged commit survives, in all databases that are opened for writing; by default loss
    /// of power. A load survives that in any case.
    pub durability: Durability,
    /// The source of time; by default that of the machine.
    pub clock: Option<Arc<dyn Clock>>,
    /// The seed of all randomness (`RAND()`, `UUID()`, ids of new databases); by default taken from
    /// the machine.
    pub seed: Option<u64>,
    /// What asks the endpoints of SERVICE; by default nothing, and queries with SERVICE are refused.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// What fetches the documents of LOAD; by default nothing, and updates with LOAD are refused.
    pub load: Option<Arc<dyn Fetch>>,
}

/// Who else may have the database open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Access {
    /// Other readers; the database cannot be written.
    #[default]
    Shared,
    /// Nobody; the database can be written.
    Exclusive,
}

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Who else may have it open.
    pub access: Access,
    /// Whether it is created if its folder is absent or empty; needs [`Access::Exclusive`].
    pub create: bool,
}

/// What becomes of base directions in JSON-LD.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum DirectionForm {
    /// Texts with a language and a direction become `rdf:dirLangString`, as RDF 1.2 has them. Without a
    /// language a direction is lost.
    #[default]
    DirLang,
    /// They become literals whose datatype begins with `https://www.w3.org/ns/i18n#`.
    I18n,
    /// They become blank nodes with `rdf:value`, `rdf:language` and `rdf:direction`.
    Compound,
    /// They are lost, as RDF 1.1 has it.
    Dropped,
}

/// How documents of JSON-LD are read: what the JSON-LD API calls options.
#[derive(Clone, Debug, Default)]
pub struct JsonLdOptions {
    /// The text of a context that holds at the top of each document, or of a document with a
    /// `@context`.
    pub expand_context: Option<Vec<u8>>,
    /// What becomes of base directions.
    pub direction: DirectionForm,
    /// Whether documents are read by the rules of JSON-LD 1.0, where what is of JSON-LD 1.1 is a mistake.
    pub is_1_0: bool,
}

/// What is loaded, and how.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Files, folders, standard input.
    pub inputs: Vec<Input>,
    /// The format of all inputs; by default told from each one's extension, else its content.
    pub format: Option<GraphFormat>,
    /// The IRI of a graph that takes the triples of the default graph.
    pub graph: Option<String>,
    /// The base of relative IRIs; by default the URL of each file.
    pub base: Option<String>,
    /// The sort orders that a database keeps which nothing was loaded into yet; by default the full
    /// scheme. Later loads keep the scheme, and fail with `InvalidOption` if they name another one.
    pub scheme: Option<Scheme>,
    /// Contexts that documents of JSON-LD may name by their URL, and their text. Nothing is ever
    /// fetched: a document that names another one is refused.
    pub contexts: Vec<(String, Vec<u8>)>,
    /// How documents of JSON-LD are read.
    pub json_ld: JsonLdOptions,
    /// Whether damaged lines of N-Triples and N-Quads and damaged statements of Turtle and TriG are
    /// left out, and told in [`LoadSummary::skipped`](crate::LoadSummary::skipped), instead of ending
    /// the load. RDF/XML and JSON-LD end it at the first mistake all the same, and so does an input
    /// that cannot be read, or whose compression is damaged. Values of JSON-LD with an IRI or a language
    /// tag that is none are never loaded; a lenient load tells them there, too.
    pub lenient: bool,
    /// The memory that the load may take, in bytes; by default what the runtime has.
    pub memory_bytes: Option<u64>,
    /// How many threads parse and sort; by default those of the runtime.
    pub threads: Option<usize>,
    /// Ends the load from another thread; the database stays as it was.
    pub cancel: CancelHandle,
}

impl LoadOptions {
    /// Looks at the options and at whether the inputs can be read, without reading them: what
    /// [`crate::Database::load`] does first, to be asked before a database is made for them.
    ///
    /// # Errors
    /// `InvalidOption` for an IRI that is none or standard input named twice, `Input` for an input
    /// that cannot be read.
    pub fn verify(&self) -> Result<()> {
        crate::load::verify(self)
    }
}

/// How a query is run.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// The base of relative IRIs in the text.
    pub base: Option<String>,
    /// How long the query may run.
    pub timeout: Option<Duration>,
    /// Whether the default graph is the union of all graphs instead of the unnamed one.
    pub default_graph_union: bool,
    /// The moment whose state is asked; by default the last commit.
    pub at: Option<Moment>,
    /// IRIs of the graphs that form the default graph instead of what FROM says, as
    /// `default-graph-uri` of the protocol.
    pub default_graphs: Vec<String>,
    /// IRIs of the named graphs instead of what FROM NAMED says, as `named-graph-uri` of the
    /// protocol.
    pub named_graphs: Vec<String>,
    /// Values that variables of the query have from outside, wherever they stand in it. A blank node can
    /// be none.
    pub bindings: Vec<(Variable, Term)>,
    /// Whether the query is looked at for what is odd about it ([`crate::Query::notes`]); on by
    /// default.
    pub notes: bool,
    /// How many solutions operators hand on at once; by default the executor's choice.
    pub batch_rows: Option<usize>,
    /// How many rows the planner must expect of operators that can be shared for several threads to share
    /// them; by default the executor's choice.
    pub parallel_rows_min: Option<u64>,
    /// How many rows the planner must expect where the keys of a hash join's right side drop rows for them to do so: 0
    /// wherever they can, [`u64::MAX`] nowhere; by default the executor's choice.
    pub key_filter_rows_min: Option<u64>,
    /// How many rows, judged by those before them, a merge join must have no use for on a side for this to be sent over
    /// them: 0 wherever the other side is ahead, [`u64::MAX`] never; by default the executor's choice.
    pub leap_rows_min: Option<u64>,
    /// After how many rows of its left side a join by look-ups goes over to a hash join: 0 at once, [`u64::MAX`] never;
    /// by default when the look-ups have cost what the hash join would have cost, as the planner reckons.
    pub switch_after_rows: Option<u64>,
    /// After how many rows what conditions on the text of a variable gave is kept for its terms: 0 from the first row on,
    /// [`u64::MAX`] never, with each row tried by itself; by default the executor's choice.
    pub term_memo_after_rows: Option<u64>,
    /// How many bytes an operator holds before it goes on on disk, and how many rows at least; by default half of
    /// the memory of the runtime, and a thousand rows.
    pub spill_after: Option<(u64, usize)>,
    /// Whether the plan of an earlier query may be taken that was the same or differs in constants only, and this one's be kept
    /// for later ones; on by default.
    pub plans: bool,
    /// Whether the time of each operator is taken, for [`crate::Query::analysis`].
    pub timed: bool,
    /// Turns off all rewriting and join ordering; for tests.
    pub naive: bool,
    /// What the planner is not left to choose by cost; nothing by default; for tests.
    pub forced: ForcedChoices,
    /// How many rows the first range of an ORDER BY that takes its input by ranges has, about; by default what is
    /// expected to be enough. For tests.
    pub range_rows: Option<u64>,
    /// Whether path searches read all triples of a step into memory at once wherever there is room, or nowhere; by default
    /// where that is cheaper than look-ups; for tests.
    pub force_adjacency: Option<bool>,
    /// Rewrites that are left out; none by default; for tests.
    pub without: Rewrites,
    /// Ends the query from another thread.
    pub cancel: CancelHandle,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self {
            base: None,
            timeout: None,
            default_graph_union: false,
            at: None,
            default_graphs: Vec::new(),
            named_graphs: Vec::new(),
            bindings: Vec::new(),
            notes: true,
            batch_rows: None,
            parallel_rows_min: None,
            key_filter_rows_min: None,
            leap_rows_min: None,
            switch_after_rows: None,
            term_memo_after_rows: None,
            spill_after: None,
            plans: true,
            timed: false,
            naive: false,
            forced: ForcedChoices::NONE,
            range_rows: None,
            force_adjacency: None,
            without: Rewrites::NONE,
            cancel: CancelHandle::new(),
        }
    }
}

impl QueryOptions {
    /// The same with what is left of the time after some was spent.
    #[must_use]
    pub fn after(&self, spent: Duration) -> Self {
        Self {
            timeout: self.timeout.map(|timeout| timeout.saturating_sub(spent)),
            ..self.clone()
        }
    }
}

/// How an update is run.
#[derive(Clone, Debug, Default)]
pub struct UpdateOptions {
    /// The base of relative IRIs in the text.
    pub base: Option<String>,
    /// How long the update may run, until it begins to be committed.
    pub timeout: Option<Duration>,
    /// Whether WHERE without USING and WITH reads the union of all graphs as the default graph, instead of
    /// the unnamed one. What is written to the default graph goes into the unnamed one in any case.
    pub default_graph_union: bool,
    /// The graphs that form the default graph of WHERE, as `using-graph-uri` of the protocol. Not beside
    /// USING and WITH in the text.
    pub using_graphs: Vec<NamedNode>,
    /// The named graphs of WHERE, as `using-named-graph-uri` of the protocol.
    pub using_named_graphs: Vec<NamedNode>,
    /// The graph that takes what is added to the default graph, as `insert-graph-uri` of RDF4J. Not beside
    /// USING and WITH in the text.
    pub insert_graph: Option<NamedNode>,
    /// The graphs that lose what is removed from the default graph, as `remove-graph-uri` of RDF4J; without any
    /// the default graph itself.
    pub remove_graphs: Vec<GraphName>,
    /// Values that variables of WHERE and of templates have from outside, wherever they stand. A blank node
    /// cannot be one. Data of INSERT DATA and DELETE DATA has no variables.
    pub bindings: Vec<(Variable, Term)>,
    /// What the commit is kept with.
    pub message: Option<String>,
    /// How the patterns of WHERE are run: what is forced, the sizes of batches, when operators go to disk and the like. All
    /// else that it says is not looked at: what is asked and how long it may take is said here. For tests.
    pub patterns: Option<Box<QueryOptions>>,
    /// Ends the update from another thread; the database stays as it was.
    pub cancel: CancelHandle,
}

impl UpdateOptions {
    /// The same for one update of a transaction, which can be ended without whatever else has the same cancel handle.
    pub(crate) fn apart(&self) -> Self {
        Self {
            cancel: self.cancel.child(),
            ..self.clone()
        }
    }
}

/// How a document is read into a transaction.
#[derive(Clone, Debug, Default)]
pub struct DocumentOptions {
    /// The format; by default told from the extension of the input's name, else its content.
    pub format: Option<GraphFormat>,
    /// The base of relative IRIs; by default the URL of a file, else there is none.
    pub base: Option<String>,
    /// The graph that takes the triples of the default graph.
    pub graph: Option<GraphName>,
    /// Whether a quad that names a graph is an error: with `graph`, all of the document goes into that one.
    pub refuse_graphs: bool,
    /// Whether the quads of the document are removed instead of added.
    pub remove: bool,
    /// Whether a label such as `b5` means the blank node that Stoa shows under it, if there is one, instead
    /// of a new one.
    pub keep_blank_nodes: bool,
    /// Ends it from another thread.
    pub cancel: CancelHandle,
}

/// The formats of a dump.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DumpFormat {
    /// N-Quads, one quad a line, in the canonical form of RDF 1.2
    #[default]
    NQuads,
    /// TriG, one block a graph
    TriG,
    /// JSON-LD, one object for what follows each other of a graph and a subject
    JsonLd,
}
