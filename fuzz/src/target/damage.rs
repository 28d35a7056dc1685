//! Files of a database, damaged and opened.
//!
//! An input is a list of changes, 12 bytes each, to the files of a small database. Some are what disks
//! do: flipped bytes, ends cut off, ranges copied elsewhere. Others are made behind the checksums
//! ([`crate::checksum`]), as a mistake of ours or somebody's malice would: parts of extents and root
//! slots whose contents are nonsense but whose checksums are right.
//!
//! A database whose checksums tell the damage answers rightly or fails. Nothing more is asked of one
//! whose checksums lie than that it neither panics nor hangs nor takes more memory than it may.

use std::time::Duration;

use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Error, ForcedChoices, GraphFormat, QueryOptions,
    QueryResult, Runtime, Scheme,
};
use stoa_storage::{PartRef, SimulatedDisk, crc32c, format};

use super::{kind_of, load, open, query, runtime};
use crate::checksum::forge;
use crate::driver::Target;

/// What a database may take, in bytes.
const MEMORY_BYTES: u64 = 24 << 20;

/// The target.
pub const TARGET: Target = Target {
    name: "database",
    words: &[],
    input_bytes_max: 20 * CHANGE_BYTES,
    memory_bytes_max: 64 << 20,
    cases: 3_000,
};

/// The length of a change.
pub(super) const CHANGE_BYTES: usize = 12;

/// Questions that read all parts of a database.
const QUERIES: &[&str] = &[
    "SELECT * { ?s ?p ?o } LIMIT 300",
    "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g",
    "SELECT * { <http://a/a> ?p ?o . ?o <http://a/p> ?x OPTIONAL { ?x <http://a/q> ?y } }",
    "SELECT * { ?s <http://a/p>+ ?o } LIMIT 50",
    "SELECT DISTINCT ?t { ?s ?p ?t FILTER(isLITERAL(?t) && STR(?t) > \"a\") } ORDER BY DESC(?t) LIMIT 9",
    "DESCRIBE <http://a/a>",
    "SELECT * { ?s <http://a/p> ?o ; <http://a/q> ?x } LIMIT 50",
];

/// The files of a database, and where its parts lie.
#[derive(Debug)]
struct Base {
    files: Vec<(String, Vec<u8>)>,
    parts: Vec<PartRef>,
    /// What dumps may give: the states after each commit.
    dumps: Vec<Vec<u8>>,
}

/// Damages databases.
#[derive(Debug)]
pub struct Databases {
    runtime: Runtime,
    bases: Vec<Base>,
}

impl Default for Databases {
    /// Makes the databases that are damaged: one with terms of all kinds, one of the other scheme, one
    /// with several segments to a tree.
    fn default() -> Self {
        let runtime = runtime(MEMORY_BYTES);
        let many: String = (0..20_000)
            .map(|n: u32| {
                let (s, o) = (n % 5_003, n.wrapping_mul(2_654_435_761) >> 20);
                format!(
                    "<http://a/{s}> <http://a/p{}> <http://b/object/{o}> .\n",
                    n % 3
                )
            })
            .collect();
        let bases = vec![
            Base::new(&runtime, query::DATA, Scheme::Full),
            Base::new(&runtime, query::DATA, Scheme::Lean),
            Base::new(&runtime, &many, Scheme::Full),
        ];
        Self { runtime, bases }
    }
}

impl Base {
    fn new(runtime: &Runtime, data: &str, scheme: Scheme) -> Self {
        let disk = SimulatedDisk::new(1);
        let mut dumps = vec![Vec::new()];
        let database = open(runtime, &disk, Access::Exclusive).expect("a database can be made");
        let more = "<http://a/a> <http://a/p> <http://a/new> , \"new\" .";
        for text in [data, more] {
            load_with(&database, text, scheme).expect("the data can be loaded");
            dumps.push(dump(&database).expect("a dump can be made"));
        }
        drop(database);
        let names = [format::ROOT_FILE.to_owned(), format::data_file_name(0)];
        let files: Vec<(String, Vec<u8>)> = names
            .into_iter()
            .filter_map(|name| disk.bytes(&name).map(|bytes| (name, bytes)))
            .collect();
        let parts = find_parts(&files);
        assert!(parts.len() > 10, "only {} parts", parts.len());
        Self {
            files,
            parts,
            dumps,
        }
    }
}

fn load_with(database: &Database, text: &str, scheme: Scheme) -> Result<(), Error> {
    let options = stoa_database::LoadOptions {
        inputs: vec![stoa_database::Input::from_bytes("data", text)],
        format: Some(GraphFormat::TriG),
        scheme: (database.commit() == 0).then_some(scheme),
        threads: Some(1),
        ..stoa_database::LoadOptions::default()
    };
    database.load(options, &()).map(drop)
}

fn dump(database: &Database) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    database.dump(DumpFormat::NQuads, &mut out, &CancelHandle::new())?;
    Ok(out)
}

/// All parts that something refers to: twenty bytes anywhere are a reference if they have the checksum of
/// what they refer to.
fn find_parts(files: &[(String, Vec<u8>)]) -> Vec<PartRef> {
    let mut found: Vec<PartRef> = Vec::new();
    for (_, bytes) in files {
        for at in 0..bytes.len() {
            let Some(part) = bytes.get(at..).and_then(PartRef::decode_from) else {
                break;
            };
            let content = files
                .iter()
                .find(|(name, _)| *name == part.file_name())
                .and_then(|(_, bytes)| content(bytes, &part));
            if part.length > 3
                && content.is_some_and(|content| crc32c(content) == part.crc32c)
                && !found.contains(&part)
            {
                found.push(part);
            }
        }
    }
    found
}

fn content<'a>(file: &'a [u8], part: &PartRef) -> Option<&'a [u8]> {
    let start = usize::try_from(part.byte_offset()).ok()?;
    let end = usize::try_from(part.byte_end()).ok()?;
    file.get(start..end)
}

/// A change as its bytes say.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) kind: u8,
    pub(super) small: u8,
    pub(super) short: usize,
    pub(super) a: usize,
    pub(super) b: usize,
    /// The bytes of `b`.
    pub(super) number: [u8; 4],
}

impl Change {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [kind, small, c, d, e, f, g, h, i, j, k, l] = *bytes else {
            return None;
        };
        let wide = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(0);
        Some(Self {
            kind,
            small,
            short: usize::from(u16::from_le_bytes([c, d])),
            a: wide([e, f, g, h]),
            b: wide([i, j, k, l]),
            number: [i, j, k, l],
        })
    }
}

impl Databases {
    /// Damages a database and reads it.
    ///
    /// # Errors
    /// If damage that checksums tell was returned as data, or for an internal error.
    pub fn run(&mut self, input: &[u8]) -> Result<String, String> {
        let first = input.first().copied().unwrap_or(0);
        // The large one is slow.
        let which = match first {
            0..=127 => 0,
            128..=223 => 1,
            _ => 2,
        };
        let base = self.bases.get(which).ok_or("a base")?;
        let mut files = base.files.clone();
        let mut lies = false;
        for bytes in input.get(1..).unwrap_or_default().chunks(CHANGE_BYTES) {
            if let Some(change) = Change::read(bytes) {
                lies |= apply(&change, &mut files, &base.parts);
            }
        }
        let disk = SimulatedDisk::new(1);
        for (name, bytes) in &files {
            disk.put(name, bytes);
        }
        let told = self.read(&disk, base, lies)?;
        if input.len().is_multiple_of(3) {
            self.write(&disk, lies)?;
        }
        Ok(format!("{lies} {told}"))
    }

    /// Opens, checks, asks, dumps.
    fn read(&self, disk: &SimulatedDisk, base: &Base, lies: bool) -> Result<String, String> {
        let database = match open(&self.runtime, disk, Access::Shared) {
            Ok(database) => database,
            Err(error) => return told(&error, lies),
        };
        let mut outcome = match database.info() {
            Ok(_) => String::new(),
            Err(error) => told(&error, lies)?,
        };
        match database.check(&(), &CancelHandle::new()) {
            Ok(summary) => {
                for problem in summary.problems.iter().take(2) {
                    outcome += &kind_of(problem);
                }
            }
            Err(error) => outcome += &told(&error, lies)?,
        }
        match dump(&database) {
            Ok(out) if !lies && !base.dumps.contains(&out) => {
                return Err(format!("wrong quads: {}", String::from_utf8_lossy(&out)));
            }
            Ok(_) => {}
            Err(error) => outcome += &told(&error, lies)?,
        }
        for text in QUERIES {
            if let Err(error) = ask(&database, text) {
                outcome += &told(&error, lies)?;
            }
        }
        Ok(outcome)
    }

    /// Loads a little more.
    fn write(&self, disk: &SimulatedDisk, lies: bool) -> Result<(), String> {
        let database = match open(&self.runtime, disk, Access::Exclusive) {
            Ok(database) => database,
            Err(error) => return told(&error, lies).map(drop),
        };
        let more = "<http://a/b> <http://a/p> <http://a/newer> , \"newer\", 5 .";
        if let Err(error) = load(&database, more.as_bytes(), Some(GraphFormat::TriG)) {
            told(&error, lies)?;
        }
        match dump(&database) {
            Ok(_) => Ok(()),
            Err(error) => told(&error, lies).map(drop),
        }
    }
}

fn ask(database: &Database, text: &str) -> Result<(), Error> {
    let options = QueryOptions {
        timeout: Some(Duration::from_millis(300)),
        forced: ForcedChoices {
            sets: Some(true),
            top_values: Some(true),
            ..ForcedChoices::NONE
        },
        ..QueryOptions::default()
    };
    match database.query(text, &options)? {
        QueryResult::Solutions(solutions) => {
            for solution in solutions {
                drop(solution?);
            }
        }
        QueryResult::Graph(triples) => {
            for triple in triples {
                drop(triple?);
            }
        }
        QueryResult::Boolean(_) => {}
    }
    Ok(())
}

/// What came of an input. Files whose checksums lie are a mistake of ours, so that an internal error is
/// an answer; without lies there is none.
fn told(error: &Error, lies: bool) -> Result<String, String> {
    match error {
        Error::Internal(_) if !lies => Err(error.to_string()),
        other => Ok(kind_of(other)),
    }
}

/// Changes files; returns whether checksums lie now.
fn apply(change: &Change, files: &mut [(String, Vec<u8>)], parts: &[PartRef]) -> bool {
    // Twice as often in the data as in the root.
    let count = files.len();
    let at = if change.small.is_multiple_of(3) {
        0
    } else {
        1 % count
    };
    match change.kind % 8 {
        0 => {
            let Some((_, bytes)) = files.get_mut(at) else {
                return false;
            };
            let place = change.a % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= change.small | 1;
            }
            false
        }
        1 => {
            if let Some((_, bytes)) = files.get_mut(at) {
                bytes.truncate(change.a % (bytes.len() + 1));
            }
            false
        }
        2 => {
            // A write that went elsewhere, of sectors.
            if let Some((_, bytes)) = files.get_mut(at) {
                let sectors = bytes.len() / format::SECTOR_BYTES;
                let place = |n: usize| n % sectors.max(1) * format::SECTOR_BYTES;
                let end = (place(change.a) + (1 + change.short % 8) * format::SECTOR_BYTES)
                    .min(bytes.len());
                let range = place(change.a).min(end)..end;
                let to = place(change.b).min(bytes.len() - range.len());
                bytes.copy_within(range, to);
            }
            false
        }
        3 => change_root(change, files),
        _ => change_part(change, files, parts),
    }
}

/// Changes a part and keeps its checksum.
fn change_part(change: &Change, files: &mut [(String, Vec<u8>)], parts: &[PartRef]) -> bool {
    let pick = |n: usize| parts.get(n % parts.len().max(1));
    let (Some(part), Some(other)) = (pick(change.short), pick(change.b)) else {
        return false;
    };
    let find = |files: &[(String, Vec<u8>)], part: &PartRef| {
        let (_, bytes) = files.iter().find(|(name, _)| *name == part.file_name())?;
        content(bytes, part).map(<[u8]>::to_vec)
    };
    let (Some(mut bytes), Some(donor)) = (find(files, part), find(files, other)) else {
        return false;
    };
    let length = bytes.len().max(1);
    // Rather the front, where the headers are.
    let at = match change.small % 4 {
        0 => change.a % length,
        1 => change.a % length.min(256),
        _ => change.a % length.min(48),
    };
    let little = change.number;
    let new: &[u8] = match change.kind >> 3 & 7 {
        0 | 1 => little.get(..1).unwrap_or_default(),
        2 => &[0xff; 8],
        3 => &[0; 8],
        4 => &little,
        5 => &[0xff, 0xff, 0xff, 0x7f],
        6 => donor.get(at..donor.len().min(at + 40)).unwrap_or_default(),
        _ => &donor,
    };
    for (to, from) in bytes.iter_mut().skip(at).zip(new) {
        *to = *from;
    }
    // Anywhere behind, rather at the very end.
    let place = if change.small & 0x80 == 0 {
        length.saturating_sub(4)
    } else {
        (change.a >> 8) % length
    };
    forge(&mut bytes, place, part.crc32c);
    let start = usize::try_from(part.byte_offset()).unwrap_or(usize::MAX);
    if let Some((_, file)) = files.iter_mut().find(|(name, _)| *name == part.file_name())
        && let Some(place) = file.get_mut(start..start + bytes.len())
    {
        place.copy_from_slice(&bytes);
    }
    true
}

/// Changes the content of a root slot and keeps all its checksums.
pub(super) fn change_root(change: &Change, files: &mut [(String, Vec<u8>)]) -> bool {
    let start = usize::try_from(format::ROOT_SLOT_OFFSET).unwrap_or(0)
        + usize::from(change.small & 1) * format::ROOT_SLOT_BYTES;
    let Some((_, bytes)) = files
        .iter_mut()
        .find(|(name, _)| *name == format::ROOT_FILE)
    else {
        return false;
    };
    let Some(slot) = bytes.get_mut(start..start + format::ROOT_SLOT_BYTES) else {
        return false;
    };
    let mut root: Vec<u8> = slot
        .chunks(format::SECTOR_BYTES)
        .flat_map(|sector| {
            sector
                .get(format::SECTOR_CONTENT..)
                .unwrap_or_default()
                .to_vec()
        })
        .collect();
    // Rather the front: the back is zero.
    let at = change.a
        % if change.short & 1 == 0 {
            400
        } else {
            root.len().max(1)
        };
    let little = change.number;
    let new: &[u8] = match change.kind >> 3 & 3 {
        0 => little.get(..1).unwrap_or_default(),
        1 => &little,
        2 => &[0xff; 8],
        _ => &[0; 8],
    };
    for (to, from) in root.iter_mut().skip(at).zip(new) {
        *to = *from;
    }
    if let Some(place) = root.get_mut(format::ROOT_CRC..format::ROOT_CRC + 4) {
        place.fill(0);
    }
    let checksum = crc32c(&root).to_le_bytes();
    if let Some(place) = root.get_mut(format::ROOT_CRC..format::ROOT_CRC + 4) {
        place.copy_from_slice(&checksum);
    }
    let contents = root.chunks(format::SECTOR_BYTES - format::SECTOR_CONTENT);
    for (sector, content) in slot.chunks_mut(format::SECTOR_BYTES).zip(contents) {
        if let Some(place) = sector.get_mut(format::SECTOR_CONTENT..) {
            place.copy_from_slice(content);
        }
        let checksum = crc32c(sector.get(format::SECTOR_CHECKPOINT..).unwrap_or_default());
        if let Some(place) = sector.get_mut(format::SECTOR_CRC..format::SECTOR_CRC + 4) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }
    true
}
