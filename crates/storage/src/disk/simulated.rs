//! `SimulatedDisk`: a directory in memory that can lose what was not made durable.
//!
//! Every file has its bytes as programs see them and its bytes as the platter has them; between the
//! two stand the writes since the last sync. A power loss keeps, drops or tears each of these writes
//! (by sectors of 512 bytes) and may apply them in any order; files whose directory was not synced
//! may be gone. The same seed and the same calls lose the same.
//!
//! Operations that change something are numbered from 1; faults are set for such a number.
//!
//! # Concurrency
//! One mutex around everything. Runs with several threads are not repeatable.

mod image;
#[cfg(test)]
mod tests;

use super::{Access, Disk, File, IoInfo, IoMode, Lock, LockError, OpenMode};
use crate::bytes::to_usize;
use crate::format::SECTOR_BYTES;
use image::{Image, Random};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A directory in memory; shared by cloning.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

/// What goes wrong, and when.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// The operation with this number is under way when the machine or the process stops: every
    /// call fails from then on, until [`SimulatedDisk::restart`].
    pub crash_at: Option<u64>,
    /// The operation with this number fails; a sync that fails loses writes for good.
    pub fail_at: Option<u64>,
    /// The read with this number fails; reads have numbers of their own.
    pub fail_read_at: Option<u64>,
    /// The read with this number gives one byte that is not what was written, none of padding with zeros if there are
    /// others; later ones are sound.
    pub damage_read_at: Option<u64>,
    /// Syncs report success but make nothing durable.
    pub sync_does_nothing: bool,
    /// More bytes than this, over all files, do not fit on the disk.
    pub capacity_bytes: Option<u64>,
}

/// How the users of a disk came to their end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Crash {
    /// The process was killed: everything that was written is still there.
    Process,
    /// The machine lost power: of what was not synced anything may be there.
    Power,
}

struct State {
    files: BTreeMap<u64, Image>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Pairs of names of which both ends are durable or none.
    renamed: Vec<(String, String)>,
    next_file: u64,
    directory: bool,
    random: Random,
    faults: Faults,
    operations: u64,
    reads: u64,
    crashed: bool,
    /// Handles and locks of an earlier epoch are dead.
    epoch: u64,
    locks: BTreeMap<u64, (Access, String)>,
    next_lock: u64,
}

impl SimulatedDisk {
    /// An absent directory; `seed` decides what is lost.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            renamed: Vec::new(),
            next_file: 0,
            directory: false,
            random: Random::new(seed),
            faults: Faults::default(),
            operations: 0,
            reads: 0,
            crashed: false,
            epoch: 0,
            locks: BTreeMap::new(),
            next_lock: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Replaces the faults. The numbers of operations go on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock_state().faults = faults;
    }

    /// How many operations that change something there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// How many reads there were.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.lock_state().reads
    }

    /// Whether the operation of `Faults::crash_at` was reached.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.lock_state().crashed
    }

    /// Ends all users of the disk, loses what such an end loses, and makes the disk usable again,
    /// without faults.
    pub fn restart(&self, crash: Crash) {
        let mut state = self.lock_state();
        state.epoch += 1;
        state.locks.clear();
        state.crashed = false;
        state.faults = Faults::default();
        if crash == Crash::Power {
            state.lose_power();
        }
        let State {
            files,
            names,
            durable_names,
            ..
        } = &mut *state;
        let named = names.values().chain(durable_names.values());
        let named: Vec<u64> = named.copied().collect();
        files.retain(|number, _| named.contains(number));
    }

    /// The bytes of a file as programs see them.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock_state();
        let number = state.names.get(name)?;
        state.files.get(number).map(|image| image.bytes().to_vec())
    }

    /// Makes a file with these bytes, all durable, or replaces one.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock_state();
        state.directory = true;
        let number = state.new_file(Image::durable(bytes.to_vec()));
        state.names.insert(name.to_owned(), number);
        state.durable_names.insert(name.to_owned(), number);
    }

    /// Damages a byte for good; `false` if the file does not reach so far.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) -> bool {
        let mut state = self.lock_state();
        let number = state.names.get(name).copied();
        number
            .and_then(|number| state.files.get_mut(&number))
            .is_some_and(|image| image.flip(offset, mask))
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, number: u64, writable: bool, epoch: u64) -> Arc<dyn File> {
        Arc::new(SimulatedFile {
            disk: self.clone(),
            number,
            writable,
            epoch,
        })
    }
}

/// What becomes of an operation.
enum Fate {
    Succeeds,
    Fails,
    /// It is under way when everything stops.
    Crashes,
}

impl State {
    /// Counts an operation that changes something and decides what becomes of it.
    fn operation(&mut self) -> io::Result<Fate> {
        self.check_alive()?;
        self.operations += 1;
        if self.faults.crash_at == Some(self.operations) {
            self.crashed = true;
            return Ok(Fate::Crashes);
        }
        if self.faults.fail_at == Some(self.operations) {
            return Ok(Fate::Fails);
        }
        Ok(Fate::Succeeds)
    }

    /// Like `operation` for what is not done at all if it does not succeed.
    fn whole_operation(&mut self) -> io::Result<()> {
        match self.operation()? {
            Fate::Succeeds => Ok(()),
            Fate::Fails => Err(failure("the operation failed")),
            Fate::Crashes => Err(failure("the machine stopped")),
        }
    }

    fn check_alive(&self) -> io::Result<()> {
        if self.crashed {
            return Err(failure("the machine stopped"));
        }
        Ok(())
    }

    fn new_file(&mut self, image: Image) -> u64 {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, image);
        number
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(Image::len).sum()
    }

    /// Refuses to let the files grow by `bytes` beyond the capacity.
    fn check_capacity(&self, bytes: u64) -> io::Result<()> {
        match self.faults.capacity_bytes {
            Some(capacity) if bytes > 0 && self.used_bytes() + bytes > capacity => {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Ok(()),
        }
    }

    fn lose_power(&mut self) {
        let candidates: Vec<String> = self
            .names
            .keys()
            .chain(self.durable_names.keys())
            .cloned()
            .collect();
        let groups = rename_groups(&std::mem::take(&mut self.renamed));
        let mut fates: BTreeMap<usize, bool> = BTreeMap::new();
        let mut names = BTreeMap::new();
        for name in candidates {
            let (now, durable) = (self.names.get(&name), self.durable_names.get(&name));
            let lost = now == durable
                || match groups.get(&name) {
                    Some(group) => *fates.entry(*group).or_insert_with(|| self.random.coin()),
                    None => self.random.coin(),
                };
            let kept = if lost { durable } else { now };
            if let Some(number) = kept {
                names.insert(name, *number);
            }
        }
        self.durable_names.clone_from(&names);
        self.names = names;
        for image in self.files.values_mut() {
            image.lose_power(&mut self.random);
        }
    }
}

/// For each name that a renaming touched the number of its group: a renaming is one step for the file
/// system, so that its names share a fate.
fn rename_groups(renamed: &[(String, String)]) -> BTreeMap<String, usize> {
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for (number, (from, to)) in renamed.iter().enumerate() {
        let touched: Vec<usize> = [from, to]
            .into_iter()
            .filter_map(|name| groups.insert(name.clone(), number))
            .collect();
        for group in groups.values_mut().filter(|g| touched.contains(g)) {
            *group = number;
        }
    }
    groups
}

fn failure(reason: &str) -> io::Error {
    io::Error::other(format!("simulated disk: {reason}"))
}

impl Disk for SimulatedDisk {
    fn location(&self) -> String {
        "(simulated disk)".to_owned()
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.lock_state();
        state.check_alive()?;
        if !state.directory {
            return Err(io::ErrorKind::NotFound.into());
        }
        let existing = state.names.get(name).copied();
        let number = match (existing, mode) {
            (Some(number), OpenMode::Create) => {
                state.whole_operation()?;
                if let Some(image) = state.files.get_mut(&number) {
                    image.set_len(0);
                }
                number
            }
            (Some(number), _) => number,
            (None, OpenMode::Create) => {
                state.whole_operation()?;
                let number = state.new_file(Image::default());
                state.names.insert(name.to_owned(), number);
                number
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(self.handle(number, mode != OpenMode::Read, state.epoch))
    }

    fn open_data(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.open(name, mode)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.lock_state();
        state.check_alive()?;
        if !state.directory {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(state.names.keys().cloned().collect())
    }

    fn create_directory(&self) -> io::Result<bool> {
        let mut state = self.lock_state();
        state.check_alive()?;
        Ok(!std::mem::replace(&mut state.directory, true))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        state.whole_operation()?;
        match state.names.remove(name) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        state.whole_operation()?;
        let number = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), number);
        state.renamed.push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock_state();
        state.whole_operation()?;
        if !state.faults.sync_does_nothing {
            state.renamed.clear();
            let names = state.names.clone();
            state.durable_names = names;
        }
        Ok(())
    }

    fn lock(&self, access: Access, holder: &str) -> Result<Box<dyn Lock>, LockError> {
        let mut state = self.lock_state();
        state.check_alive()?;
        let other = state
            .locks
            .values()
            .find(|(held, _)| access == Access::Exclusive || *held == Access::Exclusive);
        if let Some((_, holder)) = other {
            return Err(LockError::Held(format!("process 1 ({holder})")));
        }
        let number = state.next_lock;
        state.next_lock += 1;
        state.locks.insert(number, (access, holder.to_owned()));
        Ok(Box::new(SimulatedLock {
            disk: self.clone(),
            number,
        }))
    }

    fn temporary(&self) -> io::Result<Arc<dyn File>> {
        let mut state = self.lock_state();
        state.whole_operation()?;
        let number = state.new_file(Image::default());
        Ok(Arc::new(TemporaryFile(SimulatedFile {
            disk: self.clone(),
            number,
            writable: true,
            epoch: state.epoch,
        })))
    }

    fn clear_temporary(&self) -> io::Result<()> {
        self.lock_state().check_alive()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.lock_state();
        let capacity = state.faults.capacity_bytes.unwrap_or(u64::MAX);
        Ok(capacity.saturating_sub(state.used_bytes()))
    }

    fn total_bytes(&self) -> io::Result<u64> {
        let state = self.lock_state();
        state
            .faults
            .capacity_bytes
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn io_info(&self) -> IoInfo {
        IoInfo {
            calls: "simulated",
            mode: IoMode::Buffered,
            fallback: None,
        }
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    number: u64,
}

impl Lock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        // After a restart there is nothing under this number any more.
        self.disk.lock_state().locks.remove(&self.number);
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    number: u64,
    writable: bool,
    epoch: u64,
}

impl SimulatedFile {
    /// The state, if this handle is of its epoch.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock_state();
        state.check_alive()?;
        if state.epoch != self.epoch {
            return Err(failure("the file was opened before the restart"));
        }
        Ok(state)
    }

    fn writable_state(&self) -> io::Result<MutexGuard<'_, State>> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.state()
    }
}

fn image(files: &mut BTreeMap<u64, Image>, number: u64) -> io::Result<&mut Image> {
    files
        .get_mut(&number)
        .ok_or_else(|| failure("the file was removed"))
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        state.reads += 1;
        if state.faults.fail_read_at == Some(state.reads) {
            return Err(failure("the read failed"));
        }
        let read = image(&mut state.files, self.number)?.read(buffer, offset);
        if state.faults.damage_read_at == Some(state.reads) && read > 0 {
            let first = to_usize(state.random.below(read as u64));
            let mut places = (first..read).chain(0..first);
            let is_data = |at: &usize| buffer.get(*at).is_some_and(|byte| *byte != 0);
            let at = places.find(is_data).unwrap_or(first);
            if let Some(byte) = buffer.get_mut(at) {
                *byte ^= 1_u8 << state.random.below(8);
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.writable_state()?;
        let fate = state.operation()?;
        let grown = image(&mut state.files, self.number)?.growth(offset + bytes.len() as u64);
        state.check_capacity(grown)?;
        let State { files, random, .. } = &mut *state;
        let image = image(files, self.number)?;
        match fate {
            Fate::Succeeds => {
                image.write(offset, bytes);
                Ok(())
            }
            Fate::Fails => {
                // Some of it was written, from the front, up to the end of a sector.
                let end = offset + random.below(bytes.len() as u64 + 1);
                let length = (end - end % SECTOR_BYTES as u64).saturating_sub(offset);
                let part = bytes.get(..to_usize(length)).unwrap_or_default();
                image.write(offset, part);
                Err(failure("the write failed"))
            }
            Fate::Crashes => {
                image.write(offset, bytes);
                Err(failure("the machine stopped"))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let fate = state.operation()?;
        let nothing = state.faults.sync_does_nothing;
        let State { files, random, .. } = &mut *state;
        let image = image(files, self.number)?;
        match fate {
            Fate::Succeeds => {
                if !nothing {
                    image.sync();
                }
                Ok(())
            }
            Fate::Fails => {
                image.fail_sync(random);
                Err(failure("the sync failed"))
            }
            Fate::Crashes => Err(failure("the machine stopped")),
        }
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        Ok(image(&mut state.files, self.number)?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.writable_state()?;
        let grown = image(&mut state.files, self.number)?.growth(length);
        state.check_capacity(grown)?;
        state.whole_operation()?;
        image(&mut state.files, self.number)?.set_len(length);
        Ok(())
    }
}

/// A file without a name: its bytes go with the handle.
struct TemporaryFile(SimulatedFile);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let number = self.0.number;
        self.0.disk.lock_state().files.remove(&number);
    }
}

impl File for TemporaryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}
