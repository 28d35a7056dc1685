//! Where the changes of an update go: into a transaction, or, beyond memory, through temporary files into trees that
//! are not committed yet.

use std::sync::mpsc::{SyncSender, sync_channel};

use stoa_quadstore::{
    BulkUpdate, ChangeCounts, Changes, Error, GraphChange, NewTerms, QuadStore, Result, Savepoint,
    Snapshot, Transaction,
};
use stoa_terms::GraphSet;

use crate::error::Result as DatabaseResult;

/// Adds a document; says what changed and how many quads it has.
pub(crate) type Loading<'a> = &'a mut (
            dyn FnMut(&mut (dyn Destination + Send)) -> DatabaseResult<(ChangeCounts, u64)> + Send
        );

/// Takes the changes of operations, one after the other.
pub(crate) trait Destination {
    /// What the operation reads; of a bulk update before all of its changes.
    fn view(&self) -> Snapshot;

    fn store(&self) -> &QuadStore;

    /// Takes changes; `go_on` is asked now and then. Returns what they came to, as far as that is known already.
    fn change(
        &mut self,
        terms: &NewTerms,
        changes: &Changes,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts>;

    /// Removes all quads of some graphs, then makes graphs exist or not. What was read before must not be read any
    /// more.
    fn clear(
        &mut self,
        graphs: &GraphSet,
        then: Vec<GraphChange>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts>;

    /// Ends an operation, as for [`Destination::clear`]. Returns what it came to, if that was not known before.
    fn end_operation(&mut self) -> Result<ChangeCounts>;

    /// Adds a document, with threads that parse it.
    fn load(&mut self, loading: Loading<'_>) -> DatabaseResult<(ChangeCounts, u64)>;

    /// What its changes take of the memory, in bytes, where that grows with them.
    fn memory_bytes(&self) -> u64;

    /// Whether changes take as much memory however many they are, if they are handed over in pieces.
    fn is_bulk(&self) -> bool;

    /// The state that it has now; `None` if it can go back to the beginning of the operation alone.
    fn savepoint(&self) -> Option<Savepoint>;

    /// Goes back to a savepoint, or to the beginning of the operation.
    fn roll_back_to(&mut self, savepoint: Option<Savepoint>);
}

impl Destination for Transaction {
    fn view(&self) -> Snapshot {
        self.snapshot()
    }

    fn store(&self) -> &QuadStore {
        self.store()
    }

    fn change(
        &mut self,
        terms: &NewTerms,
        changes: &Changes,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        self.change_while(terms, changes, go_on)
    }

    fn clear(
        &mut self,
        graphs: &GraphSet,
        then: Vec<GraphChange>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        self.clear(graphs, then, go_on)
    }

    fn end_operation(&mut self) -> Result<ChangeCounts> {
        Ok(ChangeCounts::default())
    }

    fn load(&mut self, loading: Loading<'_>) -> DatabaseResult<(ChangeCounts, u64)> {
        loading(self)
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn is_bulk(&self) -> bool {
        false
    }

    fn savepoint(&self) -> Option<Savepoint> {
        Some(self.savepoint())
    }

    fn roll_back_to(&mut self, savepoint: Option<Savepoint>) {
        if let Some(savepoint) = savepoint {
            self.roll_back_to(savepoint);
        }
    }
}

/// Its cancellation is looked at by whoever tells its progress.
impl Destination for BulkUpdate<'_> {
    fn view(&self) -> Snapshot {
        self.snapshot()
    }

    fn store(&self) -> &QuadStore {
        self.store()
    }

    fn change(
        &mut self,
        terms: &NewTerms,
        changes: &Changes,
        _go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        self.change(terms, changes)?;
        Ok(ChangeCounts::default())
    }

    fn clear(
        &mut self,
        graphs: &GraphSet,
        then: Vec<GraphChange>,
        _go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        self.clear(graphs, then)
    }

    fn end_operation(&mut self) -> Result<ChangeCounts> {
        self.end_operation()
    }

    /// The document is parsed by another thread: the lock that the update holds stays with its own.
    fn load(&mut self, loading: Loading<'_>) -> DatabaseResult<(ChangeCounts, u64)> {
        let (batches, received) = sync_channel(1);
        let mut relay = Relay {
            view: self.snapshot(),
            store: self.store().clone(),
            batches,
        };
        std::thread::scope(|scope| {
            let parsing = scope.spawn(move || loading(&mut relay));
            let taken = received.iter().try_for_each(|sent| match sent {
                Sent::Changes(terms, changes) => self.change(&terms, &changes),
                Sent::End(reply) => {
                    let counts = self.end_operation()?;
                    // Nobody waits for it if that thread has panicked.
                    reply.send((counts, self.snapshot())).unwrap_or_default();
                    Ok(())
                }
            });
            // What is sent from now on is refused.
            drop(received);
            let parsed = parsing.join();
            taken?;
            parsed.unwrap_or(Err(ENDED.into()))
        })
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn is_bulk(&self) -> bool {
        true
    }

    fn savepoint(&self) -> Option<Savepoint> {
        None
    }

    fn roll_back_to(&mut self, _savepoint: Option<Savepoint>) {
        self.drop_operation();
    }
}

const ENDED: Error = Error::Internal("a thread that parsed a document ended early");

/// Sends the changes of a document to the thread of a bulk update.
struct Relay {
    view: Snapshot,
    store: QuadStore,
    batches: SyncSender<Sent>,
}

/// What a relay sends.
enum Sent {
    Changes(NewTerms, Changes),
    /// The end of an operation; what it came to, and what the next one reads, is told.
    End(SyncSender<(ChangeCounts, Snapshot)>),
}

impl Destination for Relay {
    fn view(&self) -> Snapshot {
        self.view.clone()
    }

    fn store(&self) -> &QuadStore {
        &self.store
    }

    fn change(
        &mut self,
        terms: &NewTerms,
        changes: &Changes,
        _go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        let batch = Sent::Changes(terms.clone(), changes.clone());
        // That the update takes no more is told by what ended it.
        self.batches.send(batch).map_err(|_| Error::Cancelled)?;
        Ok(ChangeCounts::default())
    }

    fn clear(
        &mut self,
        _graphs: &GraphSet,
        _then: Vec<GraphChange>,
        _go_on: &dyn Fn() -> bool,
    ) -> Result<ChangeCounts> {
        Err(Error::Internal("a document that clears a graph"))
    }

    fn end_operation(&mut self) -> Result<ChangeCounts> {
        let (reply, ended) = sync_channel(1);
        let sent = self.batches.send(Sent::End(reply));
        sent.map_err(|_| Error::Cancelled)?;
        let (counts, view) = ended.recv().map_err(|_| Error::Cancelled)?;
        self.view = view;
        Ok(counts)
    }

    fn load(&mut self, loading: Loading<'_>) -> DatabaseResult<(ChangeCounts, u64)> {
        loading(self)
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn is_bulk(&self) -> bool {
        true
    }

    fn savepoint(&self) -> Option<Savepoint> {
        None
    }

    fn roll_back_to(&mut self, _savepoint: Option<Savepoint>) {}
}
