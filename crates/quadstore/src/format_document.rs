//! The tables of docs/format.md on quads against the constants of this crate.
//!
//! Every numeric constant of the modules stands in the document with its value, the document names
//! no others, and the fields of each byte table follow each other without gap or overlap.

use std::collections::BTreeMap;

use crate::bulk as changes;
use crate::characteristic_sets::format as sets;
use crate::commit::load_record;
use crate::commit::record;
use crate::permutation::format as tree;
use crate::root;
use crate::segment::format as segment;

const DOCUMENT: &str = include_str!("../../../docs/format.md");
const SOURCES: [&str; 7] = [
    include_str!("root.rs"),
    include_str!("commit/record.rs"),
    include_str!("commit/load_record.rs"),
    include_str!("bulk/change_file.rs"),
    include_str!("permutation/format.rs"),
    include_str!("segment/format.rs"),
    include_str!("characteristic_sets/format.rs"),
];

macro_rules! constants {
    ($($module:ident: $($name:ident)*;)*) => {
        BTreeMap::from([
            $($((stringify!($name), u64::try_from($module::$name).unwrap())),*),*
        ])
    };
}

fn constants() -> BTreeMap<&'static str, u64> {
    constants! {
        root: ROOT_TREES ROOT_TREE_COUNT ROOT_NEXT_BLANK_NODE ROOT_DEFAULT_QUADS ROOT_SCHEME
            ROOT_GRAPH_FIRST ROOT_RETENTION ROOT_IS_LOAD ROOT_RETAINED ROOT_LOADED ROOT_NUMBERING
            ROOT_UNLOADED ROOT_TREE_ROOTS
            RETENTION_NONE RETENTION_ALL RETENTION_COMMITS RETENTION_SECONDS RETENTION_AUTO
            ROOT_DICTIONARY DICTIONARY_BYTES_MAX LOAD_MESSAGE_BYTES_MAX SCHEME_FULL
            SCHEME_LEAN;
        record: RECORD_COMMIT RECORD_CLEARING CLEARED_SOME CLEARED_ALL_BUT;
        load_record: RECORD_LOAD RECORD_COMPACTION;
        changes: CHANGES_TERMS CHANGES_GRAPHS CHANGES_ROWS;
        tree: NODE_HEADER_BYTES NODE_LEVEL NODE_COUNT NODE_CHILDREN HEIGHT_MAX CHILD_FIRST
            CHILD_LAST CHILD_ROWS CHILD_DISTINCT_ONE CHILD_DISTINCT_TWO CHILD_PART
            CHILD_EXTENT_BYTES CHILD_CHECKPOINT CHILD_BYTES TREE_HEIGHT TREE_PRESENT TREE_TOP
            TREE_ROOT_BYTES;
        segment: GROUP_ROWS SEGMENT_ROWS HEADER_ROWS HEADER_BYTES GROUP_ENTRY_BYTES
            GROUP_ENTRY_OFFSET GROUP_ENTRY_LENGTH GROUP_ENTRY_CRC GROUP_ENTRY_KEY
            GROUP_HEADER_BYTES LANES TAG_CONSTANT TAG_PACKED TAG_DELTA TAG_RUNS TAG_DICTIONARY
            TAG_SPLIT CONSTANT_BYTES PACKED_HEADER_BYTES DELTA_HEADER_BYTES RESTART_BYTES
            RESTARTS_MAX RUNS_HEADER_BYTES DICTIONARY_HEADER_BYTES DICTIONARY_ENTRIES_MAX
            SPLIT_HEADER_BYTES FRAME_ENTRY_BYTES FRAMES_MAX STREAM_DEPTH_MAX;
        sets: SETS_ARE_ALL SETS_PREDICATES SETS_COUNT SETS_MEMBERS SETS_HEADER_BYTES SETS_KEPT
            MEMBERS_KEPT SET_MEMBERS_MAX;
    }
}

fn sections() -> Vec<&'static str> {
    let named = |section: &&str| {
        let names = [
            "Quad root",
            "Commit records",
            "Trees",
            "Segments",
            "Characteristic sets",
        ];
        names
            .iter()
            .any(|name| section.starts_with(&format!("{name}\n")))
    };
    let sections: Vec<_> = DOCUMENT.split("\n## ").filter(named).collect();
    assert_eq!(sections.len(), 5);
    sections
}

/// The tables of the sections, as rows of cells.
fn tables() -> Vec<Vec<Vec<&'static str>>> {
    let mut tables = vec![Vec::new()];
    for line in sections().into_iter().flat_map(str::lines) {
        match line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) {
            Some(row) => {
                let cells = row.split('|').map(str::trim).collect();
                tables.last_mut().unwrap().push(cells);
            }
            None => tables.push(Vec::new()),
        }
    }
    tables.retain(|table| !table.is_empty());
    tables
}

#[test]
fn the_document_has_every_constant_with_its_value() {
    let mut constants = constants();
    for table in tables() {
        let column = |name| table[0].iter().position(|cell| *cell == name);
        let number = column("offset").or_else(|| column("value"));
        let (Some(constant), Some(number)) = (column("constant"), number) else {
            panic!("a table without constants: {table:?}");
        };
        for row in table[2..].iter().filter(|row| !row[constant].is_empty()) {
            let name = row[constant].trim_matches('`');
            let value = constants.remove(name);
            assert_eq!(value, Some(row[number].parse().unwrap()), "{name}");
        }
    }
    assert!(constants.is_empty(), "not in the document: {constants:?}");
}

#[test]
fn this_test_has_every_constant_of_the_modules() {
    let constants = constants();
    let numeric = SOURCES
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| line.strip_prefix("pub(crate) const "))
        .filter(|line| !line.contains("MAGIC"));
    let names: Vec<_> = numeric
        .map(|line| line.split(':').next().unwrap())
        .collect();
    for name in &names {
        assert!(constants.contains_key(name), "{name} is not compared");
    }
    assert_eq!(names.len(), constants.len());
}

#[test]
fn the_fields_of_byte_tables_follow_each_other() {
    let mut checked = 0;
    for table in tables() {
        if table[0][..2] != ["offset", "bytes"] {
            continue;
        }
        let mut end = Some(0);
        for row in &table[2..] {
            let offset: u64 = row[0].parse().unwrap();
            assert_eq!(Some(offset), end, "{row:?}");
            end = row[1].parse::<u64>().ok().map(|bytes| offset + bytes);
        }
        assert_eq!(end, None, "the last row is the end, or open: {table:?}");
        checked += 1;
    }
    assert_eq!(checked, 16);
}

#[test]
fn the_document_has_the_magic_bytes() {
    for (magic, section) in [
        (root::ROOT_MAGIC, "Quad root"),
        (tree::NODE_MAGIC, "Trees"),
        (segment::SEGMENT_MAGIC, "Segments"),
        (sets::SETS_MAGIC, "Characteristic sets"),
    ] {
        let magic = format!("`{}`", std::str::from_utf8(&magic.to_le_bytes()).unwrap());
        let sections = sections();
        let section = sections.iter().find(|text| text.starts_with(section));
        assert!(section.unwrap().contains(&magic), "{magic}");
    }
}
