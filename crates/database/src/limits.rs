//! Every constant limit of this crate.

use std::time::Duration;

/// How deeply the text of a query may nest brackets.
pub const QUERY_NESTING_MAX: usize = stoa_planner::NESTING_MAX;

/// How many patterns, groups and operations a query may have; variables and constants of expressions
/// and rows of VALUES do not count.
pub const QUERY_ELEMENTS_MAX: usize = stoa_planner::ELEMENTS_MAX;

/// The longest text of a query, in bytes.
pub const QUERY_BYTES_MAX: usize = 16 << 20;

/// The longest text of an update, in bytes.
pub const UPDATE_BYTES_MAX: usize = 16 << 20;

/// How many shapes of queries and updates a runtime keeps sums of.
pub const SHAPES_MAX: usize = 500;

/// How deeply triple terms may be nested in data.
pub const TRIPLE_TERM_DEPTH_MAX: usize = 128;

/// How many brackets of a statement of Turtle or TriG may be open at once.
pub const BRACKET_DEPTH_MAX: usize = 20_000;

/// Bytes of a chunk of N-Triples, N-Quads, Turtle or TriG that one thread parses at a time. A longer
/// line or statement makes its chunk longer.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The longest line of N-Triples or N-Quads, and the longest token of Turtle or TriG, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 30;

/// The longest statement of Turtle or TriG that a thread takes as a whole, in bytes. The rest of a
/// file, from a longer one on, is parsed by one thread; a lenient load leaves it out.
pub const STATEMENT_BYTES_MAX: usize = 64 << 20;

/// What the prefixes of a document may take, in bytes: each is taken for 100 more than it has.
pub const PREFIXES_BYTES_MAX: usize = 1 << 20;

/// How many mistakes a lenient load lists.
pub const MISTAKES_LISTED_MAX: usize = 100;

/// How deeply `!` and the functions REGEX, REPLACE and SUBSTR may be nested in each other in a query: the
/// time to parse them may double with each level.
pub const QUERY_RETRIES_MAX: usize = 12;

/// How much of a file is looked at to tell its format, in bytes.
pub const SNIFF_BYTES: usize = 64 << 10;

/// How many solutions of another endpoint are handed to the query at once.
pub const SERVICE_BATCH_SOLUTIONS: usize = 1_024;

/// About how many bytes of them at most, but for a single solution.
pub const SERVICE_BATCH_BYTES: usize = 64 << 10;

/// How long a query or an update waits for other queries to give memory back, by default.
pub const MEMORY_WAIT: Duration = Duration::from_secs(30);

/// How many wait for that at once; further ones fail.
pub const MEMORY_WAITING_MAX: usize = stoa_executor::admission::WAITING_MAX;

/// The longest piece of a line that is repeated in a message, in characters.
pub const EXCERPT_CHARACTERS_MAX: usize = 120;

/// Quads that a dump takes from the store at once: more of them share blocks of the dictionary.
pub const DUMP_BATCH_ROWS: usize = 1 << 13;

/// How many folders deep the inputs of a load may lie below the folder that was named.
pub const FOLDER_DEPTH_MAX: usize = 64;

/// Predicates, classes or graphs beyond this many are not counted one by one for statistics.
pub const PARTITIONS_COUNTED_MAX: usize = 100_000;

/// Statistics list at most this many predicates, classes and graphs, the largest.
pub const PARTITIONS_LISTED_MAX: usize = 1_000;

/// How deeply elements of RDF/XML may be nested.
pub const XML_DEPTH_MAX: usize = 10_000;

/// The longest DOCTYPE of RDF/XML, in bytes.
pub const XML_DOCTYPE_BYTES_MAX: usize = 64 << 10;

/// The most that an entity of RDF/XML may stand for, in bytes: they are there to shorten IRIs.
pub const XML_ENTITY_BYTES_MAX: usize = 1 << 10;

/// The most attributes that a tag of RDF/XML may have: each is compared with all others.
pub const XML_ATTRIBUTES_MAX: usize = 1_024;

/// The most prefixes that may be in scope at a place of RDF/XML: each name is looked for among all.
pub const XML_PREFIXES_MAX: usize = 4_096;

/// The largest object of JSON-LD whose keys may come in any order, in bytes; less if the memory is small.
pub const JSONLD_WHOLE_BYTES_MAX: usize = 16 << 20;

/// Longer texts of queries get no notes, in bytes.
pub const NOTED_BYTES_MAX: usize = 256 << 10;

/// The most notes of a query.
pub const NOTES_MAX: usize = 20;

/// A predicate that does not occur is compared with those that do unless there are more.
pub const PREDICATES_COMPARED_MAX: usize = 5_000;

/// Two parts of a group that nothing connects are told of if the quads of the one times those of the
/// other are at least so many.
pub const PRODUCT_NOTED_MIN: u64 = 1_000;

/// How deeply arrays and objects of JSON-LD may be nested.
pub const JSONLD_DEPTH_MAX: usize = 500;

/// The largest answer in JSON-LD that is written with lists as `@list`, and each node as one object, in
/// bytes of its terms; it is held in memory. A larger one goes out as it comes.
pub const JSONLD_FOLDED_BYTES_MAX: usize = 1 << 20;
