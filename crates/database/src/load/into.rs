//! Documents into a transaction: the body of a request, the document of a LOAD.
//!
//! One thread parses; terms and quads are gathered, looked up together and handed to the transaction batch
//! by batch. What is looked up is not recorded as read.
//!
//! # Limits
//! Memory: a batch of [`BATCH_QUADS`] or [`BATCH_BYTES`], the labels of the document's blank nodes, and what the
//! transaction holds; all reserved from the budget. What does not fit is refused with a message that names what
//! takes documents of any length.

use std::sync::PoisonError;

use hashbrown::{Equivalent, HashMap};
use oxrdf::GraphName;
use rapidhash::fast::RandomState;
use stoa_quadstore::{ChangeCounts, Transaction};
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{Kind, TermId};

use crate::error::{Error, Result};
use crate::load::driver::{self, Job};
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::load::store::line_bytes_max;
use crate::load::{Input, source};
use crate::options::{DocumentOptions, JsonLdOptions};
use crate::runtime::Runtime;
use crate::update::{Ids, Pending, reserve};

/// Quads that are handed on together.
const BATCH_QUADS: usize = 1 << 15;

/// The keys of terms after which a batch is handed on, in bytes.
const BATCH_BYTES: usize = 4 << 20;

/// About what a term of a batch takes beside its key, and a quad, in bytes.
const TERM_BYTES: usize = 64;
const QUAD_BYTES: usize = size_of::<[Named; 4]>();

/// Adds the quads of a document to a transaction, or removes them; says what changed and how many quads the document
/// has. After an error some are done.
///
/// # Errors
/// `Data` with line and column, `Input`, `UnknownFormat`, `Cancelled`, `MemoryExceeded`, `InvalidOption`, `NamesGraphs`.
pub(crate) fn load_into(
    runtime: &Runtime,
    transaction: &mut Transaction,
    input: Input,
    options: &DocumentOptions,
) -> Result<(ChangeCounts, u64)> {
    super::store::check_iri("--base", options.base.as_deref())?;
    let sources = source::expand(&[input], &())?;
    let job = Job {
        sources: &sources,
        format: options.format,
        base: options.base.as_deref(),
        contexts: Default::default(),
        json_ld: &JsonLdOptions::default(),
        threads: 1,
        is_lenient: false,
        line_bytes_max: line_bytes_max(runtime.memory_bytes()),
        cancel: &options.cancel,
        progress: &(),
    };
    let sink = Mutex::new(Some(Sink::new(runtime, transaction, options)?));
    let lock = || sink.lock().unwrap_or_else(PoisonError::into_inner);
    let parsed = driver::run::<Sink<'_>>(
        &job,
        &|| {
            lock()
                .take()
                .ok_or_else(|| Error::Internal("a second parsing thread".to_owned()))
        },
        &|mut done| {
            done.hand_over()?;
            *lock() = Some(done);
            Ok(())
        },
    )
    .map_err(with_advice)?;
    let done = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
    let done = done.ok_or_else(|| Error::Internal("a document without an end".to_owned()))?;
    Ok((done.counts, parsed.quads))
}

/// Says what takes documents of any size.
fn with_advice(error: Error) -> Error {
    match error {
        Error::MemoryExceeded {
            operator,
            requested_bytes,
            limit_bytes,
        } => Error::MemoryExceeded {
            operator: format!(
                "{operator} (documents of any size are taken by a LOAD that is sent alone, by PUT and POST \
                 outside of a transaction, and by `stoa load`, with --server where one is running)"
            ),
            requested_bytes,
            limit_bytes,
        },
        other => other,
    }
}

/// What a term is called in a batch.
#[derive(Clone, Copy)]
enum Named {
    Known(TermId),
    /// By number.
    Term(u32),
}

/// A term of a batch whose id is looked up at its end.
enum Entry {
    Keyed(Kind),
    Triple([Named; 3]),
}

/// A kind and a key that are not owned; has the hash of those that are.
#[derive(Hash)]
struct KeyRef<'a>(Kind, &'a [u8]);

impl Equivalent<(Kind, Box<[u8]>)> for KeyRef<'_> {
    fn equivalent(&self, (kind, key): &(Kind, Box<[u8]>)) -> bool {
        self.0 == *kind && *self.1 == **key
    }
}

/// Takes quads for a transaction.
struct Sink<'a> {
    transaction: &'a mut Transaction,
    budget: MemoryBudget,
    remove: bool,
    graph: Option<GraphName>,
    graph_named: Option<Named>,
    refuse_graphs: bool,
    /// Blank nodes below this number can be named by it; 0 if none can.
    shown_below: u64,
    labels: HashMap<Box<str>, TermId, RandomState>,
    labels_bytes: usize,
    epoch: u64,
    entries: Vec<Entry>,
    /// Kind and key of the entries that have one.
    keys: HashMap<(Kind, Box<[u8]>), u32, RandomState>,
    keys_bytes: usize,
    quads: Vec<[Named; 4]>,
    key: Vec<u8>,
    reservation: Option<Reservation>,
    reserved: usize,
    counts: ChangeCounts,
}

impl<'a> Sink<'a> {
    fn new(
        runtime: &Runtime,
        transaction: &'a mut Transaction,
        options: &DocumentOptions,
    ) -> Result<Self> {
        let shown_below = match options.keep_blank_nodes {
            // The next one that would be given; all below were given before.
            true => transaction.blank_node().payload(),
            false => 0,
        };
        let mut sink = Self {
            transaction,
            budget: runtime.memory().clone(),
            remove: options.remove,
            graph: options.graph.clone(),
            graph_named: None,
            refuse_graphs: options.refuse_graphs,
            shown_below,
            labels: HashMap::default(),
            labels_bytes: 0,
            epoch: 0,
            entries: Vec::new(),
            keys: HashMap::default(),
            keys_bytes: 0,
            quads: Vec::new(),
            key: Vec::new(),
            reservation: None,
            reserved: 0,
            counts: ChangeCounts {
                added: 0,
                removed: 0,
            },
        };
        sink.name_graph()?;
        Ok(sink)
    }

    /// Names the graph of triples in the default graph, once for each batch.
    fn name_graph(&mut self) -> Result<()> {
        self.graph_named = match self.graph.clone() {
            None => None,
            Some(GraphName::DefaultGraph) => Some(Named::Known(TermId::DEFAULT_GRAPH)),
            Some(GraphName::NamedNode(iri)) => {
                Some(self.keyed(Kind::Iri, iri.as_str().as_bytes())?)
            }
            Some(GraphName::BlankNode(node)) => Some(self.blank(node.as_str())?),
        };
        Ok(())
    }

    fn keyed(&mut self, kind: Kind, key: &[u8]) -> Result<Named> {
        if let Some(number) = self.keys.get(&KeyRef(kind, key)) {
            return Ok(Named::Term(*number));
        }
        let next = self.next()?;
        self.keys.insert((kind, key.into()), next);
        self.entries.push(Entry::Keyed(kind));
        self.keys_bytes += key.len();
        Ok(Named::Term(next))
    }

    fn next(&self) -> Result<u32> {
        let next = u32::try_from(self.entries.len());
        next.map_err(|_| Error::Internal("a batch of 4 G terms".to_owned()))
    }

    /// Reserves what the batch and the labels take.
    fn reserve(&mut self) -> Result<()> {
        let bytes = self.quads.len() * QUAD_BYTES
            + self.entries.len() * TERM_BYTES
            + 2 * self.keys_bytes
            + self.labels.len() * TERM_BYTES
            + self.labels_bytes;
        if bytes > self.reserved {
            let more = (bytes - self.reserved).next_multiple_of(1 << 16);
            reserve(&mut self.reservation, &self.budget, more as u64)?;
            self.reserved += more;
        }
        Ok(())
    }

    /// Hands the batch to the transaction.
    fn hand_over(&mut self) -> Result<()> {
        if self.quads.is_empty() {
            return Ok(());
        }
        let mut ids = Ids::new(self.transaction);
        let found = self.found(&mut ids)?;
        let id = |named: Named| match named {
            Named::Known(id) => Some(id),
            Named::Term(number) => found.get(number as usize).copied(),
        };
        let mut pending = Pending::default();
        for quad in self.quads.drain(..) {
            let [Some(subject), Some(predicate), Some(object), Some(graph)] = quad.map(id) else {
                return Err(Error::Internal("a quad of a term without an id".to_owned()));
            };
            let quad = [subject, predicate, object, graph];
            if self.remove {
                pending.remove(quad, &self.budget)?;
            } else {
                pending.add(quad, &self.budget)?;
            }
        }
        let counts = pending.apply(self.transaction, &ids, &|| true)?;
        self.counts.added += counts.added;
        self.counts.removed += counts.removed;
        self.entries.clear();
        self.keys.clear();
        self.keys_bytes = 0;
        self.epoch += 1;
        self.name_graph()
    }

    /// The ids of the terms of the batch.
    fn found(&self, ids: &mut Ids) -> Result<Vec<TermId>> {
        let nothing: (Kind, &[u8]) = (Kind::Special, &[]);
        let mut keys = vec![nothing; self.entries.len()];
        for ((kind, key), number) in &self.keys {
            if let Some(slot) = keys.get_mut(*number as usize) {
                *slot = (*kind, &**key);
            }
        }
        let wanted: Vec<(Kind, &[u8])> = keys
            .iter()
            .filter(|(kind, _)| *kind != Kind::Special)
            .copied()
            .collect();
        let mut known = ids.known(&wanted)?.into_iter();
        let mut found: Vec<TermId> = Vec::with_capacity(self.entries.len());
        for (entry, (_, key)) in self.entries.iter().zip(&keys) {
            let id = match entry {
                Entry::Keyed(kind) => match known.next().flatten() {
                    Some(id) => id,
                    None => ids.keyed(*kind, key)?,
                },
                // Its parts come before it.
                Entry::Triple(parts) => {
                    let part = |named: Named| match named {
                        Named::Known(id) => id,
                        Named::Term(number) => {
                            found.get(number as usize).copied().unwrap_or_default()
                        }
                    };
                    ids.triple(parts.map(part))?
                }
            };
            found.push(id);
        }
        Ok(found)
    }
}

impl QuadSink for Sink<'_> {
    type Term = Named;

    fn start_file(&mut self, _number: u64) {}

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn iri(&mut self, iri: &str) -> Result<Named> {
        self.keyed(Kind::Iri, iri.as_bytes())
    }

    fn blank(&mut self, label: &str) -> Result<Named> {
        if let Some(id) = self.labels.get(label) {
            return Ok(Named::Known(*id));
        }
        let digits = label.strip_prefix('b');
        let shown = digits.and_then(|digits| digits.parse::<u64>().ok());
        // Only as Stoa writes it.
        let shown =
            shown.filter(|number| digits.is_some_and(|digits| digits == number.to_string()));
        let id = match shown.filter(|number| *number < self.shown_below) {
            Some(number) => TermId::new(Kind::BlankNode, number),
            None => self.transaction.blank_node(),
        };
        self.labels_bytes += label.len();
        self.labels.insert(label.into(), id);
        Ok(Named::Known(id))
    }

    fn literal(&mut self, lexical: &str, suffix: LiteralSuffix<'_>) -> Result<Named> {
        if let Some(id) = suffix.inline(lexical) {
            return Ok(Named::Known(id));
        }
        let mut bytes = std::mem::take(&mut self.key);
        bytes.clear();
        let kind = suffix.key(lexical, &mut bytes);
        let named = self.keyed(kind, &bytes);
        self.key = bytes;
        named
    }

    fn triple(&mut self, subject: Named, predicate: Named, object: Named) -> Result<Named> {
        let number = self.next()?;
        self.entries
            .push(Entry::Triple([subject, predicate, object]));
        Ok(Named::Term(number))
    }

    fn quad(
        &mut self,
        subject: Named,
        predicate: Named,
        object: Named,
        graph: Option<Named>,
    ) -> Result<()> {
        if self.refuse_graphs && graph.is_some() {
            return Err(Error::NamesGraphs);
        }
        let graph = graph
            .or(self.graph_named)
            .unwrap_or(Named::Known(TermId::DEFAULT_GRAPH));
        self.quads.push([subject, predicate, object, graph]);
        if self.quads.len().is_multiple_of(1024) || self.keys_bytes >= BATCH_BYTES {
            self.reserve()?;
        }
        if self.quads.len() >= BATCH_QUADS || self.keys_bytes >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }
}
