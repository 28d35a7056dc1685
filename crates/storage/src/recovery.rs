//! Creating and opening a database directory: which root counts, and whether the files are its own.
//!
//! Creation makes the data files and the header of the root file durable, then writes the first slot;
//! a directory in which no root was ever whole is an unfinished creation and is created again. Opening takes the
//! newest whole slot. A torn slot is a checkpoint that was never acknowledged; a damaged slot is an
//! error unless it surely is the older one.
//!
//! # Invariants
//! 1. Before an exclusive user writes anything, the root that it found is made durable: a root that
//!    was written by a killed process may still be only in the memory of the operating system, and
//!    the space that it freed must not be used before (`make_durable`, `tests/crash.rs`).
//! 2. Nothing is made or changed in a directory that is not a database.
//!
//! The files of the write-ahead log are found and their headers checked after the root is chosen; its records
//! are read by whoever takes it (`Store::take_log`).

use crate::bytes::{put, to_usize};
use crate::disk::{Access, Disk, File, Lock, LockError, OpenMode};
use crate::error::{Error, Result};
use crate::extent::PartRef;
use crate::file_header::{FileHeader, Page};
use crate::format::{
    DATA_FILE_PREFIX, DATA_FILES_MAX, KIND_DATA, KIND_ROOT, LOCK_FILE, LOG_FILE_PREFIX, MAGIC,
    PAGE_BYTES, PAGE_LENGTH, RESTORING_FILE, ROOT_FILE, ROOT_FILE_BYTES, ROOT_LOG_END_OFFSET,
    ROOT_SLOT_BYTES, ROOT_SLOT_OFFSET, ROOT_SLOTS, SECTOR_BYTES, TEMPORARY_DIRECTORY,
    data_file_name,
};
use crate::free_list;
use crate::free_space::FreeSpace;
use crate::history::{Retained, decode_directory};
use crate::log::{LogMark, LogRecovery, Lsn, decode_end};
use crate::root_slot::{Damage, RootRecord, SlotState, read_slot, slot_of, slot_offset};
use crate::store::{Identity, Inner, Root};
use std::io;
use std::sync::Arc;

/// What is needed to run a store.
pub(crate) struct Recovered {
    pub(crate) identity: Identity,
    pub(crate) root: Root,
    pub(crate) root_file: Arc<dyn File>,
    pub(crate) data: Vec<Arc<dyn File>>,
    pub(crate) free: FreeSpace,
    pub(crate) free_list: PartRef,
    pub(crate) free_pages: u64,
    /// Earlier roots that can be read, oldest first, and what lists them.
    pub(crate) retained: Vec<Retained>,
    pub(crate) directory: PartRef,
    pub(crate) log: LogRecovery,
}

/// Makes a database and takes its lock.
pub(crate) fn create(
    disk: &Arc<dyn Disk>,
    identity: Identity,
) -> Result<(Recovered, Box<dyn Lock>)> {
    let files = usize::from(identity.data_files);
    if files == 0 || files > DATA_FILES_MAX {
        return Err(Error::LimitExceeded {
            what: "the number of data files",
            limit: DATA_FILES_MAX as u64,
            found: files as u64,
        });
    }
    let directory = disk.location();
    disk.create_directory()
        .map_err(|error| Error::io(&directory, "create", 0, error))?;
    check_creatable(disk)?;
    let lock = take_lock(disk, Access::Exclusive)?;
    // Once more under the lock: another process may have been faster.
    check_creatable(disk)?;
    clear_temporary(disk)?;
    for number in 0..identity.data_files {
        let name = data_file_name(number);
        let header = FileHeader::new(&identity, KIND_DATA, u32::from(number));
        let file = open_file(disk, &name, OpenMode::Create)?;
        write(disk, file.as_ref(), &name, &header.encode(), 0)?;
        sync(disk, file.as_ref(), &name)?;
    }
    let file = open_file(disk, ROOT_FILE, OpenMode::Create)?;
    let record = RootRecord {
        identity,
        checkpoint: 1,
        commit: 0,
        free_list: PartRef::NONE,
        free_pages: 0,
        file_ends: vec![1; files],
        log: LogMark::default(),
        history: PartRef::NONE,
        payload: Vec::new(),
    };
    let mut bytes = vec![0; to_usize(ROOT_FILE_BYTES)];
    put(
        &mut bytes,
        0,
        &FileHeader::new(&identity, KIND_ROOT, 0).encode(),
    );
    write(disk, file.as_ref(), ROOT_FILE, &bytes, 0)?;
    // All of it before the slot: where there is a slot, there are headers and names.
    sync(disk, file.as_ref(), ROOT_FILE)?;
    disk.sync_directory()
        .map_err(|error| Error::io(&directory, "sync", 0, error))?;
    let offset = slot_offset(slot_of(record.checkpoint));
    write(disk, file.as_ref(), ROOT_FILE, &record.encode(), offset)?;
    sync(disk, file.as_ref(), ROOT_FILE)?;
    let recovered = read_root(disk, Access::Exclusive)?;
    Ok((recovered, lock))
}

/// Opens a database and takes its lock.
pub(crate) fn open(disk: &Arc<dyn Disk>, access: Access) -> Result<(Recovered, Box<dyn Lock>)> {
    let directory = disk.location();
    let names = disk.list().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_a_database(&directory, "there is no such directory"),
        io::ErrorKind::NotADirectory => not_a_database(&directory, "it is a file"),
        _ => Error::io(&directory, "list", 0, error),
    })?;
    if names.is_empty() {
        return Err(not_a_database(&directory, "the directory is empty"));
    }
    if !names.iter().any(|name| name == ROOT_FILE) {
        if names.iter().any(|name| name == RESTORING_FILE) {
            let reason = "its restore was not finished; restore it again";
            return Err(not_a_database(&directory, reason));
        }
        return Err(not_a_database(&directory, "it has no file `root`"));
    }
    check_root_header(disk)?;
    let lock = take_lock(disk, access)?;
    let recovered = read_root(disk, access)?;
    if access == Access::Exclusive {
        clear_temporary(disk)?;
        for (file, end) in recovered.data.iter().zip(recovered.free.ends()) {
            // What a checkpoint that was not finished has left; a longer file is valid.
            drop(file.set_len(end * PAGE_BYTES));
        }
    }
    Ok((recovered, lock))
}

/// Removes the files of a database whose lock is held. After an interruption at any point the rest is a new database
/// still, or an unfinished creation.
pub(crate) fn remove_files(disk: &Arc<dyn Disk>) -> Result<()> {
    let directory = disk.location();
    clear_temporary(disk)?;
    let mut names = disk
        .list()
        .map_err(|error| Error::io(&directory, "list", 0, error))?;
    names.retain(|name| {
        [ROOT_FILE, LOCK_FILE].contains(&name.as_str())
            || name.starts_with(DATA_FILE_PREFIX)
            || name.starts_with(LOG_FILE_PREFIX)
    });
    names.sort_by_key(|name| match name.as_str() {
        ROOT_FILE => 1,
        LOCK_FILE => 3,
        name if name.starts_with(DATA_FILE_PREFIX) => 2,
        _ => 0,
    });
    for name in names {
        disk.remove(&name)
            .map_err(|error| Error::io(&directory, "remove", 0, error))?;
    }
    Ok(())
}

/// Whether the directory is empty or an unfinished creation.
fn check_creatable(disk: &Arc<dyn Disk>) -> Result<()> {
    let directory = disk.location();
    let names = disk
        .list()
        .map_err(|error| Error::io(&directory, "list", 0, error))?;
    let has_root = names.iter().any(|name| name == ROOT_FILE);
    let foreign = names.iter().find(|name| {
        ![ROOT_FILE, LOCK_FILE, TEMPORARY_DIRECTORY].contains(&name.as_str())
            && !name.starts_with(DATA_FILE_PREFIX)
    });
    if has_root {
        match read_root_magic(disk)? {
            RootMagic::Stoa if has_slot(disk)? || has_extents(disk, &names)? => {
                return Err(Error::AlreadyADatabase { directory });
            }
            RootMagic::Stoa | RootMagic::Unwritten => {}
            RootMagic::Other => {
                return Err(Error::ForeignFiles {
                    directory,
                    example: ROOT_FILE.to_owned(),
                });
            }
        }
    }
    match foreign {
        Some(example) => Err(Error::ForeignFiles {
            directory,
            example: example.clone(),
        }),
        None => Ok(()),
    }
}

/// Whether a root was ever acknowledged, as far as the slots tell.
fn has_slot(disk: &Arc<dyn Disk>) -> Result<bool> {
    let file = open_file(disk, ROOT_FILE, OpenMode::Read)?;
    match read_slots(disk, file.as_ref()) {
        Ok(slots) => Ok(slots
            .iter()
            .any(|slot| matches!(slot, SlotState::Whole(_) | SlotState::Damaged(_)))),
        // Shorter than its slots: the first write did not get that far.
        Err(Error::Corruption(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a data file holds more than its header, which no unfinished creation leaves.
fn has_extents(disk: &Arc<dyn Disk>, names: &[String]) -> Result<bool> {
    for name in names.iter().filter(|n| n.starts_with(DATA_FILE_PREFIX)) {
        let length = open_file(disk, name, OpenMode::Read)?
            .len()
            .map_err(|error| Error::io(format!("{}/{name}", disk.location()), "read", 0, error))?;
        if length > PAGE_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The error for a root file without a root: a creation that was not finished, or damage.
fn no_root(disk: &Arc<dyn Disk>, damage: Error) -> Error {
    let directory = disk.location();
    let names = match disk.list() {
        Ok(names) => names,
        Err(error) => return Error::io(&directory, "list", 0, error),
    };
    match has_extents(disk, &names) {
        Ok(true) => damage,
        Ok(false) => not_a_database(&directory, "its creation was not finished"),
        Err(error) => error,
    }
}

/// What the first bytes of the root file are.
enum RootMagic {
    Stoa,
    /// Nothing: a creation that was not finished.
    Unwritten,
    Other,
}

fn read_root_magic(disk: &Arc<dyn Disk>) -> Result<RootMagic> {
    let file = open_file(disk, ROOT_FILE, OpenMode::Read)?;
    let mut magic = [0; MAGIC.len()];
    read(disk, file.as_ref(), ROOT_FILE, &mut magic, 0)?;
    Ok(if magic == MAGIC {
        RootMagic::Stoa
    } else if magic == [0; MAGIC.len()] {
        RootMagic::Unwritten
    } else {
        RootMagic::Other
    })
}

/// Refuses what no version of Stoa, or another version, has written.
fn check_root_header(disk: &Arc<dyn Disk>) -> Result<FileHeader> {
    let directory = disk.location();
    match read_root_magic(disk)? {
        RootMagic::Stoa => {}
        RootMagic::Unwritten => {
            let damage = Error::corruption(
                ROOT_FILE,
                0,
                PAGE_BYTES,
                "a file header",
                "nothing, or zeros",
            );
            return Err(no_root(disk, damage));
        }
        RootMagic::Other => {}
    }
    let file = open_file(disk, ROOT_FILE, OpenMode::Read)?;
    let mut page: Page = [0; PAGE_LENGTH];
    // A page that is cut short has a wrong checksum.
    read(disk, file.as_ref(), ROOT_FILE, &mut page, 0)?;
    let mut with_magic = page;
    put(&mut with_magic, 0, &MAGIC);
    // A header that is right but for its magic bytes is a damaged one of ours.
    if !page.starts_with(&MAGIC) && FileHeader::decode(&with_magic, ROOT_FILE).is_err() {
        return Err(not_a_database(&directory, "its file `root` is not Stoa's"));
    }
    let header = FileHeader::decode(&page, ROOT_FILE)?;
    header.check_version(&directory)?;
    Ok(header)
}

fn read_root(disk: &Arc<dyn Disk>, access: Access) -> Result<Recovered> {
    let header = check_root_header(disk)?;
    let mode = match access {
        Access::Shared => OpenMode::Read,
        Access::Exclusive => OpenMode::ReadWrite,
    };
    let root_file = open_file(disk, ROOT_FILE, mode)?;
    let slots = match read_slots(disk, root_file.as_ref()) {
        Err(error @ Error::Corruption(_)) => return Err(no_root(disk, error)),
        slots => slots?,
    };
    let record = choose(disk, slots)?;
    header.check_belongs(&FileHeader::new(&record.identity, KIND_ROOT, 0), ROOT_FILE)?;
    let data = open_data_files(disk, mode, &record)?;
    let free = read_free_list(disk, &data, &record, access)?;
    let retained = read_directory(disk, &data, &record)?;
    let oldest = retained.first().map_or(record.log, |one| one.root.log);
    let log = LogRecovery::find(
        disk,
        record.identity,
        access,
        (oldest.position, record.log),
        record.commit,
    )?;
    // A damaged mark says nothing; `check` tells of it.
    let log = match read_log_end(disk, root_file.as_ref()) {
        Err(Error::Corruption(_)) => log,
        end => log.reaching(end?),
    };
    if access == Access::Exclusive {
        make_durable(disk, root_file.as_ref(), &record)?;
    }
    Ok(Recovered {
        identity: record.identity,
        root: Root {
            commit: record.commit,
            checkpoint: record.checkpoint,
            log: record.log,
            payload: record.payload.into(),
            pin: Arc::new(()),
            list_pin: Arc::new(()),
        },
        root_file,
        data,
        free,
        free_list: record.free_list,
        free_pages: record.free_pages,
        retained,
        directory: record.history,
        log,
    })
}

/// Checks the header and both slots of the root file of an open store.
pub(crate) fn check_root_file(inner: &Inner) -> Vec<Result<()>> {
    let header = check_root_header(&inner.disk).and_then(|header| {
        let expected = FileHeader::new(&inner.identity, KIND_ROOT, 0);
        header.check_belongs(&expected, ROOT_FILE)
    });
    let mut results = vec![header];
    match read_slots(&inner.disk, inner.root_file.as_ref()) {
        Ok(slots) => {
            for (number, state) in (0..).zip(slots) {
                if let SlotState::Damaged(damage) = state {
                    results.push(Err(damage_error(number, &damage)));
                }
            }
        }
        Err(error) => results.push(Err(error)),
    }
    results.push(read_log_end(&inner.disk, inner.root_file.as_ref()).map(drop));
    results
}

/// How far the log surely reaches, as the root file says.
fn read_log_end(disk: &Arc<dyn Disk>, file: &dyn File) -> Result<Lsn> {
    let mut sector = [0; SECTOR_BYTES];
    let read = read(disk, file, ROOT_FILE, &mut sector, ROOT_LOG_END_OFFSET)?;
    decode_end(sector.get(..read).unwrap_or_default())
}

/// Makes the root durable that was found.
///
/// The process that wrote it may have been killed before its sync, or the sync may have failed: then
/// the operating system shows the slot but takes its page for written, and only writing the same
/// bytes again makes the next sync write them.
fn make_durable(disk: &Arc<dyn Disk>, file: &dyn File, record: &RootRecord) -> Result<()> {
    let offset = slot_offset(slot_of(record.checkpoint));
    write(disk, file, ROOT_FILE, &record.encode(), offset)?;
    sync(disk, file, ROOT_FILE)?;
    disk.sync_directory()
        .map_err(|error| Error::io(disk.location(), "sync", 0, error))
}

/// The state of both slots.
fn read_slots(disk: &Arc<dyn Disk>, file: &dyn File) -> Result<Vec<SlotState>> {
    let mut slots = Vec::new();
    for number in 0..ROOT_SLOTS {
        let mut slot = [0; ROOT_SLOT_BYTES];
        let offset = slot_offset(number);
        let read = read(disk, file, ROOT_FILE, &mut slot, offset)?;
        if read < slot.len() {
            return Err(Error::corruption(
                ROOT_FILE,
                offset,
                slot.len() as u64,
                "a root slot",
                format!("{read} bytes before the end of the file"),
            ));
        }
        slots.push(read_slot(number, &slot));
    }
    Ok(slots)
}

/// The root that counts.
fn choose(disk: &Arc<dyn Disk>, slots: Vec<SlotState>) -> Result<RootRecord> {
    let mut newest: Option<Box<RootRecord>> = None;
    let mut damaged = None;
    for (number, state) in (0..).zip(slots) {
        match state {
            SlotState::Whole(record) => {
                if newest
                    .as_ref()
                    .is_none_or(|other| other.checkpoint < record.checkpoint)
                {
                    newest = Some(record);
                }
            }
            SlotState::Damaged(damage) => damaged = Some((number, damage)),
            SlotState::Empty | SlotState::Torn => {}
        }
    }
    if let Some((number, damage)) = damaged {
        // It may have been the newest, and acknowledged, unless a sector proves that it is older.
        let older = match (&newest, damage.checkpoint) {
            (Some(record), Some(checkpoint)) => checkpoint < record.checkpoint,
            _ => false,
        };
        if !older {
            return Err(damage_error(number, &damage));
        }
    }
    match newest {
        Some(record) => Ok(*record),
        None => {
            let length = ROOT_LOG_END_OFFSET - ROOT_SLOT_OFFSET;
            let damage = Error::corruption(
                ROOT_FILE,
                ROOT_SLOT_OFFSET,
                length,
                "a root in one of two slots",
                "none that is whole",
            );
            Err(no_root(disk, damage))
        }
    }
}

/// The error for a damaged slot.
fn damage_error(slot: u64, damage: &Damage) -> Error {
    Error::corruption(
        ROOT_FILE,
        slot_offset(slot) + damage.offset as u64,
        damage.length as u64,
        damage.expected.clone(),
        damage.found.clone(),
    )
}

fn open_data_files(
    disk: &Arc<dyn Disk>,
    mode: OpenMode,
    record: &RootRecord,
) -> Result<Vec<Arc<dyn File>>> {
    let mut files = Vec::new();
    for (number, end) in (0_u16..).zip(&record.file_ends) {
        let name = data_file_name(number);
        let path = format!("{}/{name}", disk.location());
        let file = disk
            .open_data(&name, mode)
            .map_err(|error| Error::io(&path, "open", 0, error))?;
        check_data_header(disk, file.as_ref(), &record.identity, number)?;
        let length = file
            .len()
            .map_err(|error| Error::io(&path, "read", 0, error))?;
        let expected = end.saturating_mul(PAGE_BYTES);
        if length < expected {
            return Err(Error::corruption(
                name,
                length,
                expected - length,
                format!("{expected} bytes in the file"),
                format!("{length} bytes"),
            ));
        }
        files.push(file);
    }
    Ok(files)
}

/// Checks the header page of a data file.
pub(crate) fn check_data_header(
    disk: &Arc<dyn Disk>,
    file: &dyn File,
    identity: &Identity,
    number: u16,
) -> Result<()> {
    let name = data_file_name(number);
    let mut page: Page = [0; PAGE_LENGTH];
    let read = read(disk, file, &name, &mut page, 0)?;
    if read < page.len() {
        return Err(Error::corruption(
            name,
            0,
            PAGE_BYTES,
            "a file header",
            format!("{read} bytes before the end of the file"),
        ));
    }
    let expected = FileHeader::new(identity, KIND_DATA, u32::from(number));
    FileHeader::decode(&page, &name)?.check_belongs(&expected, &name)
}

/// The free space; a reader needs only the ends of the files.
fn read_free_list(
    disk: &Arc<dyn Disk>,
    data: &[Arc<dyn File>],
    record: &RootRecord,
    access: Access,
) -> Result<FreeSpace> {
    let list = record.free_list;
    let ends = record.file_ends.clone();
    if list.is_none() || access == Access::Shared {
        return Ok(FreeSpace::with_ends(ends));
    }
    let bytes = read_part(disk, data, record, &list, "a free list")?;
    let free = free_list::decode(&bytes, &list, ends)?;
    if free.free_pages() != record.free_pages {
        return Err(list.corruption(
            format!("{} free pages", record.free_pages),
            format!("{} free pages", free.free_pages()),
        ));
    }
    Ok(free)
}

/// The roots before that are retained.
fn read_directory(
    disk: &Arc<dyn Disk>,
    data: &[Arc<dyn File>],
    record: &RootRecord,
) -> Result<Vec<Retained>> {
    let part = record.history;
    if part.is_none() {
        return Ok(Vec::new());
    }
    let bytes = read_part(disk, data, record, &part, "a list of retained roots")?;
    let pages = record.file_ends.iter().sum();
    decode_directory(&bytes, &part, (record.checkpoint, pages))
}

/// Reads a part that the root points to, before there is a store.
fn read_part(
    disk: &Arc<dyn Disk>,
    data: &[Arc<dyn File>],
    record: &RootRecord,
    part: &PartRef,
    what: &str,
) -> Result<Vec<u8>> {
    let file = data.get(usize::from(part.extent.file()));
    let end = record.file_ends.get(usize::from(part.extent.file()));
    let (Some(file), Some(end)) = (file, end) else {
        return Err(part.corruption(format!("{what} in a data file"), "no such file"));
    };
    if part.byte_end() > end.saturating_mul(PAGE_BYTES) {
        let expected = format!("{what} within its file");
        return Err(part.corruption(expected, "one that reaches out of it"));
    }
    let mut bytes = vec![0; to_usize(u64::from(part.length))];
    let name = part.file_name();
    read(disk, file.as_ref(), &name, &mut bytes, part.byte_offset())?;
    part.verify(&bytes)?;
    Ok(bytes)
}

fn not_a_database(directory: &str, reason: &str) -> Error {
    Error::NotADatabase {
        directory: directory.to_owned(),
        reason: reason.to_owned(),
    }
}

fn take_lock(disk: &Arc<dyn Disk>, access: Access) -> Result<Box<dyn Lock>> {
    let directory = disk.location();
    let command = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    disk.lock(access, &command).map_err(|error| match error {
        LockError::Held(holder) => Error::Locked { directory, holder },
        LockError::Io(error) => Error::io(format!("{directory}/{LOCK_FILE}"), "lock", 0, error),
    })
}

fn clear_temporary(disk: &Arc<dyn Disk>) -> Result<()> {
    disk.clear_temporary().map_err(|error| {
        let path = format!("{}/{TEMPORARY_DIRECTORY}", disk.location());
        Error::io(path, "clear", 0, error)
    })
}

fn open_file(disk: &Arc<dyn Disk>, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
    disk.open(name, mode)
        .map_err(|error| Error::io(format!("{}/{name}", disk.location()), "open", 0, error))
}

fn read(
    disk: &Arc<dyn Disk>,
    file: &dyn File,
    name: &str,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize> {
    file.read_at(buffer, offset)
        .map_err(|error| Error::io(format!("{}/{name}", disk.location()), "read", 0, error))
}

fn write(
    disk: &Arc<dyn Disk>,
    file: &dyn File,
    name: &str,
    bytes: &[u8],
    offset: u64,
) -> Result<()> {
    file.write_at(bytes, offset).map_err(|error| {
        let path = format!("{}/{name}", disk.location());
        Error::io(path, "write", bytes.len() as u64, error)
    })
}

fn sync(disk: &Arc<dyn Disk>, file: &dyn File, name: &str) -> Result<()> {
    file.sync()
        .map_err(|error| Error::io(format!("{}/{name}", disk.location()), "sync", 0, error))
}
