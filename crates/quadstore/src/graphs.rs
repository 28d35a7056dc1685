//! Which graphs there are, and which subjects they hold: what a merge has to change about both.
//!
//! Two trees go with the permutations: the *pairs* (graph, subject, 0, 0) of all quads, and the
//! *catalogue* (graph, quads, created, 0), where `created` is 1 if the graph exists even if it is
//! empty. Both are derived from the changes that took effect in SPOG, where the quads of a subject
//! stand together, or, in the lean scheme, in PSOG: for each stretch of a subject and each graph the
//! number of quads gained or lost is noted, sorted by graph and subject, and read twice, once for
//! each tree.
//!
//! # Limits
//! Notes beyond `NOTES_MAX` (16 MB, or 4 where there is little memory) go to a temporary file, as sorted runs that are merged with
//! 32 KB of memory each. With a single graph notes come sorted and make one run, whatever their
//! number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stoa_storage::{Store, TempFile};
use stoa_terms::TermId;

use crate::error::{Error, Result};
use crate::permutation::{ChangeBatch, Changes, RowReader};
use crate::read::QuadColumns;

/// Notes kept in memory: 24 bytes each; where there is little memory, at least a quarter of them.
const NOTES_MAX: usize = 700_000;
const NOTES_MIN: usize = NOTES_MAX / 4;
/// The part of the memory that notes take where they are to be fewer.
const MEMORY_SHARE: u64 = 8;
/// Notes that are read from a run at a time.
const RUN_NOTES: usize = 1365;
/// Notes that are written to a run at a time.
const SPILLED_NOTES: usize = 4 * RUN_NOTES;
/// Bytes of a note in a temporary file.
const NOTE_BYTES: usize = 24;
/// Changes handed to a merge at a time.
const BATCH_ROWS: usize = 4096;

/// Graph, subject, and how many quads the subject gained there, as a wrapping difference.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Note {
    graph: u64,
    subject: u64,
    gained: u64,
}

impl Note {
    fn encode(self) -> [[u8; 8]; 3] {
        [self.graph, self.subject, self.gained].map(u64::to_le_bytes)
    }

    fn decode(bytes: &[u8; NOTE_BYTES]) -> Self {
        let number = |at: usize| {
            bytes
                .as_chunks::<8>()
                .0
                .get(at)
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Self {
            graph: number(0),
            subject: number(1),
            gained: number(2),
        }
    }
}

/// A sorted run of notes in the temporary file.
#[derive(Clone, Copy, Debug)]
struct Run {
    offset: u64,
    notes: u64,
}

/// Takes the effects on a permutation, in its order.
pub(crate) struct NoteTaker<'a> {
    store: &'a Store,
    subject: u64,
    /// Graphs of the subject's effects, and whether each was a deletion.
    effects: Vec<(u64, bool)>,
    notes: Vec<Note>,
    notes_max: usize,
    sorted: bool,
    last: Option<Note>,
    file: Option<TempFile>,
    runs: Vec<Run>,
}

impl<'a> NoteTaker<'a> {
    /// Nothing noted yet.
    pub(crate) fn new(store: &'a Store) -> Self {
        Self {
            store,
            subject: 0,
            effects: Vec::new(),
            notes: Vec::new(),
            notes_max: NOTES_MAX,
            sorted: true,
            last: None,
            file: None,
            runs: Vec::new(),
        }
    }

    /// Keeps fewer notes in memory where there is little of it.
    pub(crate) fn within(mut self, memory_bytes: u64) -> Self {
        let notes = usize::try_from(memory_bytes / MEMORY_SHARE).unwrap_or(usize::MAX) / NOTE_BYTES;
        self.notes_max = notes.clamp(NOTES_MIN, NOTES_MAX);
        self
    }

    /// Notes that a quad was inserted or deleted. Those of a subject should come together.
    pub(crate) fn effect(&mut self, subject: u64, graph: u64, deleted: bool) -> Result<()> {
        if subject != self.subject {
            self.finish_subject()?;
            self.subject = subject;
        }
        self.effects.push((graph, deleted));
        Ok(())
    }

    fn finish_subject(&mut self) -> Result<()> {
        if !self.effects.is_sorted() {
            self.effects.sort_unstable();
        }
        let mut effects = std::mem::take(&mut self.effects);
        for run in effects.chunk_by(|one, next| one.0 == next.0) {
            let deleted = run.iter().filter(|effect| effect.1).count() as u64;
            let inserted = run.len() as u64 - deleted;
            if let Some((graph, _)) = run.first() {
                self.note(Note {
                    graph: *graph,
                    subject: self.subject,
                    gained: inserted.wrapping_sub(deleted),
                })?;
            }
        }
        effects.clear();
        self.effects = effects;
        Ok(())
    }

    fn note(&mut self, note: Note) -> Result<()> {
        self.sorted &= self.last.is_none_or(|last| last < note);
        self.last = Some(note);
        self.notes.push(note);
        if self.notes.len() >= self.notes_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Moves the notes in memory to the temporary file.
    fn spill(&mut self) -> Result<()> {
        // What is sorted up to here continues the one run there is.
        let extends = self.sorted;
        self.notes.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.store.temp_space().file()?),
        };
        let (mut first, mut bytes) = (None, Vec::new());
        for notes in self.notes.chunks(SPILLED_NOTES) {
            bytes.clear();
            for note in notes {
                bytes.extend_from_slice(note.encode().as_flattened());
            }
            // Nobody else writes to the file, so the pieces follow each other.
            let offset = file.append(&bytes)?;
            first.get_or_insert(offset);
        }
        let offset = first.unwrap_or_default();
        let notes = self.notes.len() as u64;
        match self.runs.last_mut() {
            Some(run) if extends => run.notes += notes,
            _ => self.runs.push(Run { offset, notes }),
        }
        self.notes.clear();
        Ok(())
    }

    /// Ends taking notes.
    pub(crate) fn finish(mut self) -> Result<Notes> {
        self.finish_subject()?;
        if !self.runs.is_empty() && !self.notes.is_empty() {
            self.spill()?;
        }
        self.notes.sort_unstable();
        Ok(Notes {
            notes: self.notes,
            file: self.file,
            runs: self.runs,
        })
    }
}

/// All notes, by graph, then subject; may be read several times.
pub(crate) struct Notes {
    /// All of them, if there are no runs.
    notes: Vec<Note>,
    file: Option<TempFile>,
    runs: Vec<Run>,
}

impl Notes {
    fn read(&self) -> Result<NoteReader<'_>> {
        let mut reader = NoteReader {
            memory: self.notes.iter(),
            runs: Vec::with_capacity(self.runs.len()),
            heads: BinaryHeap::new(),
        };
        if let Some(file) = &self.file {
            for (index, run) in self.runs.iter().enumerate() {
                let mut run = RunReader {
                    file,
                    rest: *run,
                    buffer: Vec::new(),
                    at: 0,
                };
                if let Some(head) = run.next()? {
                    reader.heads.push(Reverse((head, index)));
                }
                reader.runs.push(run);
            }
        }
        Ok(reader)
    }

    /// The pairs that come into being, or lose quads, as changes of the tree of pairs.
    ///
    /// `remains` says whether a subject that lost quads in a graph still has some there.
    pub(crate) fn pair_changes<'a>(&'a self, remains: Remains<'a>) -> Result<PairChanges<'a>> {
        Ok(PairChanges {
            notes: self.read()?,
            remains,
        })
    }

    /// The graphs that gained or lost quads, as changes of the catalogue; and those, ascending, of which
    /// it was said that they exist though empty, or do not.
    pub(crate) fn graph_changes<'a>(
        &'a self,
        catalogue: &'a mut RowReader,
        created: Vec<(u64, bool)>,
        default_quads: &'a mut u64,
    ) -> Result<GraphChanges<'a>> {
        let mut notes = self.read()?;
        Ok(GraphChanges {
            next: notes.next()?,
            notes,
            created: created.into_iter().peekable(),
            catalogue,
            emptied: None,
            default_quads,
        })
    }
}

struct RunReader<'a> {
    file: &'a TempFile,
    rest: Run,
    buffer: Vec<u8>,
    at: usize,
}

impl RunReader<'_> {
    fn next(&mut self) -> Result<Option<Note>> {
        if self.at == self.buffer.len() {
            let notes = self.rest.notes.min(RUN_NOTES as u64);
            if notes == 0 {
                return Ok(None);
            }
            let bytes = usize::try_from(notes).unwrap_or(RUN_NOTES) * NOTE_BYTES;
            self.buffer.resize(bytes, 0);
            self.file.read_at(&mut self.buffer, self.rest.offset)?;
            self.rest.offset += bytes as u64;
            self.rest.notes -= notes;
            self.at = 0;
        }
        let note = self.buffer.get(self.at..).and_then(<[u8]>::first_chunk);
        self.at += NOTE_BYTES;
        note.map(|bytes| Some(Note::decode(bytes)))
            .ok_or(Error::Internal("a run of notes that ends within one"))
    }
}

struct NoteReader<'a> {
    memory: std::slice::Iter<'a, Note>,
    runs: Vec<RunReader<'a>>,
    heads: BinaryHeap<Reverse<(Note, usize)>>,
}

impl NoteReader<'_> {
    fn next(&mut self) -> Result<Option<Note>> {
        let Some(Reverse((note, index))) = self.heads.pop() else {
            return Ok(self.memory.next().copied());
        };
        if let Some(run) = self.runs.get_mut(index)
            && let Some(head) = run.next()?
        {
            self.heads.push(Reverse((head, index)));
        }
        Ok(Some(note))
    }
}

/// Whether each of some subjects (second) has quads in a graph (first).
pub(crate) type Remains<'a> = Box<dyn FnMut(TermId, &[TermId]) -> Result<Vec<bool>> + 'a>;

/// Notes as changes of the tree of pairs.
pub(crate) struct PairChanges<'a> {
    notes: NoteReader<'a>,
    remains: Remains<'a>,
}

impl Changes for PairChanges<'_> {
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()> {
        while batch.rows.len() < BATCH_ROWS {
            let Some(note) = self.notes.next()? else {
                break;
            };
            // Who gained more than lost has quads; otherwise only the quads themselves tell.
            let lost = i64::try_from(note.gained).is_err() || note.gained == 0;
            batch.rows.push([note.graph, note.subject, 0, 0]);
            batch.deletes.push(lost);
        }
        let pairs = batch.rows.chunk_by(|[a, ..], [b, ..]| a == b);
        let mut lost = batch.deletes.iter_mut();
        for pairs in pairs {
            let Some([graph, ..]) = pairs.first() else {
                continue;
            };
            let (mut subjects, mut slots) = (Vec::new(), Vec::new());
            for ([_, subject, ..], slot) in pairs.iter().zip(&mut lost) {
                if *slot {
                    subjects.push(TermId::from_bits(*subject));
                    slots.push(slot);
                }
            }
            if subjects.is_empty() {
                continue;
            }
            let remains = (self.remains)(TermId::from_bits(*graph), &subjects)?;
            for (slot, remains) in slots.into_iter().zip(remains) {
                *slot = !remains;
            }
        }
        Ok(())
    }
}

/// Notes as changes of the catalogue.
pub(crate) struct GraphChanges<'a> {
    notes: NoteReader<'a>,
    next: Option<Note>,
    /// Graphs that are to exist though empty, or not.
    created: std::iter::Peekable<std::vec::IntoIter<(u64, bool)>>,
    /// Reads the catalogue as it was.
    catalogue: &'a mut RowReader,
    /// The graphs of the catalogue, if none of their quads counts.
    emptied: Option<std::iter::Peekable<std::vec::IntoIter<TermId>>>,
    default_quads: &'a mut u64,
}

impl GraphChanges<'_> {
    /// Lets none of the quads count that the graphs of the catalogue had, which are all told.
    pub(crate) fn begin_empty(&mut self, graphs: Vec<TermId>) {
        self.emptied = Some(graphs.into_iter().peekable());
    }

    /// The next graph: what it gained, as a wrapping difference, and whether it was created.
    fn next_graph(&mut self) -> Result<Option<Change>> {
        let graphs = [
            self.next.map(|note| note.graph),
            self.created.peek().map(|(graph, _)| *graph),
            self.emptied
                .as_mut()
                .and_then(|graphs| graphs.peek())
                .map(|graph| graph.to_bits()),
        ];
        let Some(graph) = graphs.into_iter().flatten().min() else {
            return Ok(None);
        };
        let mut gained = 0_u64;
        while let Some(note) = self.next.filter(|note| note.graph == graph) {
            gained = gained.wrapping_add(note.gained);
            self.next = self.notes.next()?;
        }
        let created = self.created.next_if(|(name, _)| *name == graph);
        if let Some(graphs) = &mut self.emptied {
            graphs.next_if(|name| name.to_bits() == graph);
        }
        Ok(Some(Change {
            graph: TermId::from_bits(graph),
            gained,
            created: created.map(|(_, created)| created),
        }))
    }

    /// The entries of `graphs` (ascending) as they were: graph, quads, created.
    fn entries(&mut self, graphs: &[TermId]) -> Result<Vec<[TermId; 3]>> {
        let mut intervals = self.catalogue.take_intervals();
        intervals.take_keys(&[graphs], &mut Vec::new());
        self.catalogue.restart(intervals);
        let mut out = QuadColumns::default();
        while self.catalogue.next(out.rows + BATCH_ROWS, &mut out, None)? {
            if out.rows >= graphs.len() {
                break;
            }
        }
        let [names, quads, created, _] = &out.columns;
        let entries = names.iter().zip(quads).zip(created);
        Ok(entries
            .map(|((graph, quads), created)| [*graph, *quads, *created])
            .collect())
    }
}

/// What changes about a graph.
struct Change {
    graph: TermId,
    gained: u64,
    created: Option<bool>,
}

impl Changes for GraphChanges<'_> {
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()> {
        let mut wanted = Vec::new();
        while wanted.len() < BATCH_ROWS
            && let Some(change) = self.next_graph()?
        {
            wanted.push(change);
        }
        let at_end = wanted.is_empty();
        let graphs: Vec<TermId> = wanted.iter().map(|change| change.graph).collect();
        let mut entries = self.entries(&graphs)?.into_iter().peekable();
        for change in wanted {
            let old = entries.next_if(|[name, ..]| *name == change.graph);
            let old = old.map(|[_, quads, created]| (quads.to_bits(), created.to_bits()));
            let (before, was_created) = old.unwrap_or((0, 0));
            let before = if self.emptied.is_some() { 0 } else { before };
            let after = before.wrapping_add(change.gained);
            let created = change.created.map_or(was_created, u64::from);
            if change.graph == TermId::DEFAULT_GRAPH {
                *self.default_quads = after;
            }
            let new = (after != 0 || created != 0).then_some((after, created));
            if old == new {
                continue;
            }
            let row = |(quads, created)| [change.graph.to_bits(), quads, created, 0];
            let old = old.map(|entry| (row(entry), true));
            let new = new.map(|entry| (row(entry), false));
            let mut changes: Vec<_> = old.into_iter().chain(new).collect();
            changes.sort_unstable();
            for (row, delete) in changes {
                batch.rows.push(row);
                batch.deletes.push(delete);
            }
        }
        if batch.rows.is_empty() && !at_end {
            return Changes::next(self, batch);
        }
        Ok(())
    }
}

/// Ascending changes that are made by a closure, which leaves the batch empty at the end.
pub(crate) struct FromFn<F>(pub(crate) F);

impl<F: FnMut(&mut ChangeBatch) -> Result<()>> Changes for FromFn<F> {
    fn next(&mut self, batch: &mut ChangeBatch) -> Result<()> {
        (self.0)(batch)
    }
}

#[cfg(test)]
mod tests;
