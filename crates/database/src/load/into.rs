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

use hashbrown::{Equivalent, HashMap, HashSet};
use oxrdf::GraphName;
use rapidhash::fast::RandomState;
use stoa_quadstore::{ChangeCounts, Changes};
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{Kind, TermId};

use crate::error::{Error, Result};
use crate::limits::EXCERPT_CHARACTERS_MAX;
use crate::load::driver::{self, Job};
use crate::load::seen::{Seen, SeenRow};
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::load::store::line_bytes_max;
use crate::load::{Input, source};
use crate::options::{DocumentOptions, JsonLdOptions};
use crate::runtime::Runtime;
use crate::update::{Destination, Ids, Pending, reserve, verify_share};

/// Quads that are handed on together.
const BATCH_QUADS: usize = 1 << 15;

/// The keys of terms after which a batch is handed on, in bytes.
const BATCH_BYTES: usize = 4 << 20;

/// About what a term of a batch takes beside its key, and a quad, in bytes.
const TERM_BYTES: usize = 64;
const QUAD_BYTES: usize = size_of::<[Named; 4]>();

/// How many quads are shown that are not as a patch expects them.
const UNMET_EXAMPLES_MAX: usize = 20;

/// Adds the quads of a document to a transaction, or removes them; says what changed and how many quads the document
/// has. After an error some are done.
///
/// # Errors
/// `Data` with line and column, `Input`, `UnknownFormat`, `Cancelled`, `MemoryExceeded`, `InvalidOption`, `NamesGraphs`.
pub(crate) fn load_into(
    runtime: &Runtime,
    destination: &mut (dyn Destination + Send),
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
    let sink = Mutex::new(Some(Sink::new(runtime, destination, options)?));
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
pub(crate) enum Named {
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

/// A quad of a batch, and what is to become of it.
struct Wish {
    quad: [TermId; 4],
    is_removed: bool,
    /// Its number within the batch.
    row: usize,
}

/// Takes quads for a transaction.
pub(crate) struct Sink<'a> {
    pub(crate) destination: &'a mut (dyn Destination + Send),
    budget: MemoryBudget,
    /// Whether the quads that come now are removed instead of added.
    pub(crate) remove: bool,
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
    /// Which of them are removed, where some are and some are not: from each of these numbers on, up to the next.
    turns: Vec<(usize, bool)>,
    /// Whether each quad must have an effect; what has none.
    pub(crate) expected: Option<Expected>,
    /// What the operation was about so far, where it must end before a row that comes to undo one of it.
    pub(crate) seen: Option<Seen>,
    /// Whether batches are dropped.
    pub(crate) discards: bool,
    /// What the changes of a transaction may take of the memory, in bytes.
    pub(crate) changes_bytes_max: u64,
    /// Whether labels of blank nodes are another database's, so that no quad with one can be removed.
    pub(crate) is_foreign: bool,
    key: Vec<u8>,
    reservation: Option<Reservation>,
    reserved: usize,
    pub(crate) counts: ChangeCounts,
}

/// What changes are compared with where each must have an effect.
#[derive(Default)]
pub(crate) struct Expected {
    /// What the rows of the batch are called in messages, one after the other.
    texts: String,
    /// Where the text of each row ends.
    ends: Vec<usize>,
    /// How many rows had no effect.
    pub(crate) unmet: u64,
    /// The first of them.
    pub(crate) examples: Vec<String>,
}

impl Expected {
    /// Notes what the next row is called.
    pub(crate) fn name_row(&mut self, text: &str) {
        self.texts.push_str(text);
        self.ends.push(self.texts.len());
    }

    /// Takes down that a row of the batch has no effect.
    fn miss(&mut self, row: usize, is_removal: bool) {
        self.unmet += 1;
        if self.examples.len() >= UNMET_EXAMPLES_MAX {
            return;
        }
        let end = self.ends.get(row).copied().unwrap_or(0);
        let start = row.checked_sub(1).and_then(|row| self.ends.get(row));
        let text = self.texts.get(start.copied().unwrap_or(0)..end);
        let mut shown: String = text
            .unwrap_or("")
            .chars()
            .take(EXCERPT_CHARACTERS_MAX)
            .collect();
        if shown.len() < text.map_or(0, str::len) {
            shown.push_str("...");
        }
        let state = if is_removal {
            "not there"
        } else {
            "there already"
        };
        self.examples.push(format!("{state}: {shown}"));
    }
}

impl Expected {
    /// Forgets the rows without effect behind the first `unmet`.
    pub(crate) fn roll_back_to(&mut self, unmet: u64) {
        self.unmet = unmet;
        let kept = usize::try_from(unmet).unwrap_or(usize::MAX);
        self.examples.truncate(kept);
    }
}

impl<'a> Sink<'a> {
    pub(crate) fn new(
        runtime: &Runtime,
        destination: &'a mut (dyn Destination + Send),
        options: &DocumentOptions,
    ) -> Result<Self> {
        let shown_below = match options.keep_blank_nodes {
            // The next one that would be given; all below were given before.
            true => destination.store().blank_node().payload(),
            false => 0,
        };
        let mut sink = Self {
            destination,
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
            turns: vec![(0, options.remove)],
            expected: None,
            seen: None,
            discards: false,
            changes_bytes_max: u64::MAX,
            is_foreign: false,
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
        let texts = self
            .expected
            .as_ref()
            .map_or(0, |expected| expected.texts.len());
        // The wishes of a batch that both adds and removes are put into a table.
        let quad_bytes = if self.turns.len() > 1 {
            4 * QUAD_BYTES
        } else {
            QUAD_BYTES
        };
        let bytes = self.quads.len() * quad_bytes
            + texts
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

    /// Adds quads from now on, or removes them.
    pub(crate) fn turn(&mut self, remove: bool) {
        self.remove = remove;
        let quads = self.quads.len();
        match self.turns.last_mut() {
            Some(last) if last.1 == remove => {}
            Some(last) if last.0 == quads => last.1 = remove,
            _ => self.turns.push((quads, remove)),
        }
    }

    /// Labels of blank nodes mean new nodes from now on.
    pub(crate) fn make_foreign(&mut self) {
        self.is_foreign = true;
        self.shown_below = 0;
    }

    /// Hands terms to the sink again even if their tokens are those of the last row.
    pub(crate) fn forget_tokens(&mut self) {
        self.epoch += 1;
    }

    /// Drops the batch.
    pub(crate) fn drop_batch(&mut self) -> Result<()> {
        self.quads.clear();
        self.end_batch()
    }

    fn end_batch(&mut self) -> Result<()> {
        self.turns.clear();
        self.turns.push((0, self.remove));
        if let Some(expected) = &mut self.expected {
            expected.texts.clear();
            expected.ends.clear();
        }
        self.entries.clear();
        self.keys.clear();
        self.keys_bytes = 0;
        self.epoch += 1;
        self.name_graph()
    }

    /// The quads of the batch with their ids, whether each is removed, and the number of its row. Of a quad that
    /// several rows are about the last one counts.
    fn wishes(&mut self, found: &[TermId]) -> Result<Vec<Wish>> {
        let id = |named: Named| match named {
            Named::Known(id) => Some(id),
            Named::Term(number) => found.get(number as usize).copied(),
        };
        let removals = self.removals();
        let mut wishes = Vec::with_capacity(self.quads.len());
        for (row, (quad, is_removed)) in self.quads.drain(..).zip(removals).enumerate() {
            let [Some(subject), Some(predicate), Some(object), Some(graph)] = quad.map(id) else {
                return Err(Error::Internal("a quad of a term without an id".to_owned()));
            };
            wishes.push(Wish {
                quad: [subject, predicate, object, graph],
                is_removed,
                row,
            });
        }
        if self.turns.len() > 1 {
            let mut last: HashMap<[TermId; 4], usize, RandomState> = HashMap::default();
            last.reserve(wishes.len());
            for wish in &wishes {
                last.insert(wish.quad, wish.row);
            }
            wishes.retain(|wish| last.get(&wish.quad) == Some(&wish.row));
        }
        Ok(wishes)
    }

    /// Whether each row of the batch removes its quad.
    fn removals(&self) -> Vec<bool> {
        let mut turns = self.turns.iter().copied().peekable();
        let mut is_removed = self.remove;
        let rows = (0..self.quads.len()).map(|row| {
            while let Some((_, remove)) = turns.next_if(|(from, _)| *from <= row) {
                is_removed = remove;
            }
            is_removed
        });
        rows.collect()
    }

    /// The rows of the batch by what tells their quads apart. A term is told by its id, or, if the operation does not know
    /// it, by its key.
    fn seen_rows(&self, seen: &Seen, found: &[TermId]) -> Vec<SeenRow> {
        let mut hashes = vec![0; self.entries.len()];
        for ((kind, key), number) in &self.keys {
            if let Some(hash) = hashes.get_mut(*number as usize) {
                *hash = seen.hash((kind, key));
            }
        }
        let of = |named: Named, hashes: &[u64]| match named {
            Named::Known(id) => seen.hash(id),
            Named::Term(number) => hashes.get(number as usize).copied().unwrap_or_default(),
        };
        for (number, (entry, id)) in self.entries.iter().zip(found).enumerate() {
            let told = match entry {
                _ if id.kind() != Kind::Local => seen.hash(*id),
                // Its parts come before it.
                Entry::Triple(parts) => seen.hash(parts.map(|part| of(part, &hashes))),
                Entry::Keyed(_) => continue,
            };
            if let Some(hash) = hashes.get_mut(number) {
                *hash = told;
            }
        }
        let quads = self.quads.iter();
        let quads = quads.map(|quad| seen.hash(quad.map(|term| of(term, &hashes))));
        quads.zip(self.removals()).collect()
    }

    /// Notes the rows of the batch, with the ids of their terms; `false` if the operation must end before them.
    fn meet(&mut self, found: &[TermId]) -> Result<bool> {
        let Some(mut seen) = self.seen.take() else {
            return Ok(true);
        };
        let rows = self.seen_rows(&seen, found);
        let met = seen.meet(&rows);
        self.seen = Some(seen);
        met
    }

    /// Ends the operation of the destination. What is in the batch is part of the next one.
    pub(crate) fn end_operation(&mut self) -> Result<()> {
        let counts = self.destination.end_operation();
        let counts = counts.map_err(Error::from)?;
        self.counts.added += counts.added;
        self.counts.removed += counts.removed;
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
        Ok(())
    }

    /// Notes which wishes would have no effect on what the transaction reads. Those that have one are recorded as
    /// read, so that nobody else changes them before the commit.
    fn compare(&mut self, wishes: &[Wish]) -> Result<()> {
        let Some(expected) = &mut self.expected else {
            return Ok(());
        };
        let mut changes = Changes::default();
        let is_new = |wish: &Wish| wish.quad.iter().any(|id| id.kind() == Kind::Local);
        for wish in wishes.iter().filter(|wish| !is_new(wish)) {
            match wish.is_removed {
                true => changes.removed.push(wish.quad),
                false => changes.added.push(wish.quad),
            }
        }
        let wanted = changes.removed.len() + changes.added.len();
        let effective = self.destination.view().probe(&changes)?.effective();
        let effects = effective.added().len() + effective.removed().len();
        if effects == wanted && wanted == wishes.len() {
            return Ok(());
        }
        let effects: HashSet<[TermId; 4], RandomState> =
            effective.added().chain(effective.removed()).collect();
        for wish in wishes {
            let has_effect = match is_new(wish) {
                true => !wish.is_removed,
                false => effects.contains(&wish.quad),
            };
            if !has_effect {
                expected.miss(wish.row, wish.is_removed);
            }
        }
        Ok(())
    }

    /// Hands the batch to the transaction.
    pub(crate) fn hand_over(&mut self) -> Result<()> {
        if self.quads.is_empty() {
            return Ok(());
        }
        if self.discards {
            return self.drop_batch();
        }
        let mut ids = Ids::new(self.destination);
        let mut found = self.found(&mut ids)?;
        if !self.meet(&found)? {
            self.end_operation()?;
            ids = Ids::new(self.destination);
            found = self.found(&mut ids)?;
            self.meet(&found)?;
        }
        let wishes = self.wishes(&found)?;
        self.compare(&wishes)?;
        let mut pending = Pending::default();
        for wish in wishes {
            if wish.is_removed {
                pending.remove(wish.quad, &self.budget)?;
            } else {
                pending.add(wish.quad, &self.budget)?;
            }
        }
        let counts = pending.apply(self.destination, &ids, &|| true)?;
        self.counts.added += counts.added;
        self.counts.removed += counts.removed;
        let bytes = self.destination.memory_bytes();
        verify_share(&self.budget, bytes, self.changes_bytes_max)?;
        self.end_batch()
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
            None if self.is_foreign && self.remove => {
                return Err(Error::Unsupported(format!(
                    "a row removes a quad with the blank node _:{label} of another database: which node that is here \
                     cannot be told"
                )));
            }
            None => self.destination.store().blank_node(),
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
