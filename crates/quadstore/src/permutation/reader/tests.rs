//! Tests of what readers count.

use stoa_storage::ReadCounts;
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use crate::permutation::TreeLimits;
use crate::permutation::tests::{Fixture, Shape, scan};
use crate::read::{Columns, LookupRows, LookupSpec, QuadColumns, ScanSpec};
use crate::root::TreeName;
use crate::segment::format::GROUP_ROWS;
use crate::snapshot::Snapshot;

const ROWS: u64 = 10_000;
const SEGMENT_ROWS: usize = 4 * GROUP_ROWS;

fn id(number: u64) -> TermId {
    TermId::new(Kind::Iri, number)
}

/// One quad for each of many subjects, in three segments: of PSOG the rows are the subjects.
fn fixture() -> Fixture {
    let limits = TreeLimits {
        segment_rows: SEGMENT_ROWS,
        node_children: 4,
    };
    let fixture = Fixture::shaped(limits, Shape::Full);
    let quads = (0..ROWS).map(|row| ([id(10 + row), id(1), id(2), TermId::DEFAULT_GRAPH], false));
    fixture.apply(&quads.collect::<Vec<_>>());
    fixture
}

fn all() -> ScanSpec {
    ScanSpec {
        permutation: Permutation::Psog,
        prefix: vec![id(1)],
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    }
}

/// Looks subjects up by their rows, a batch after the other; returns the counts.
fn look_up(snapshot: &Snapshot, batches: &[Vec<u64>]) -> ReadCounts {
    let snapshot = snapshot.counted();
    let spec = LookupSpec {
        permutation: Permutation::Psog,
        key_length: 2,
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
        is_counted: false,
    };
    let mut lookup = snapshot.lookup(&spec).unwrap();
    let mut out = LookupRows::default();
    for batch in batches {
        let predicates = vec![id(1); batch.len()];
        let subjects: Vec<_> = batch.iter().map(|row| id(10 + row)).collect();
        lookup.start(&[&predicates, &subjects]).unwrap();
        while lookup.next(1000, &mut out).unwrap() {}
    }
    snapshot.reads()
}

#[test]
fn a_scan_is_one_look_up_and_its_rows() {
    let fixture = fixture();
    let snapshot = fixture.quads.snapshot().counted();
    assert_eq!(scan(&snapshot, &all(), 1000).len() as u64, ROWS);
    let counts = ReadCounts {
        rnd: 1,
        seq: ROWS,
        ..ReadCounts::default()
    };
    let read = snapshot.reads();
    assert_eq!(read.of_disk().plus(counts), read);

    // A part of what a reader does counts for the whole.
    let part = snapshot.part();
    assert_eq!(scan(&part, &all(), 1000).len() as u64, ROWS);
    assert_eq!(part.reads(), counts);
    assert_eq!(snapshot.reads(), read.plus(counts));
    assert_eq!(
        fixture.quads.snapshot().counted().reads(),
        ReadCounts::default()
    );
}

#[test]
fn look_ups_know_the_segment_and_the_group_at_hand() {
    let fixture = fixture();
    let snapshot = fixture.quads.snapshot();
    let tree = snapshot.tree(TreeName::Psog);
    let top = tree.above.children.first().unwrap();
    assert_eq!(top.rows, ROWS);
    let expect = |batches: &[Vec<u64>]| {
        let segment = |row: u64| row / SEGMENT_ROWS as u64;
        let group = |row: u64| row / GROUP_ROWS as u64;
        // Where a group begins with a key, rows of the key may end the group before.
        let first_group = |row: u64| match row % SEGMENT_ROWS as u64 {
            0 => group(row),
            _ => group(row - 1),
        };
        let (mut counts, mut last) = (ReadCounts::default(), None);
        for row in batches.iter().flatten() {
            counts.rnd += 1;
            counts.seq += u64::from(*row < ROWS);
            if *row >= ROWS {
                // Known from the inner node: nothing was read.
                continue;
            }
            counts.same_segment += u64::from(last.map(segment) == Some(segment(*row)));
            counts.same_group += u64::from(last.map(group) == Some(first_group(*row)));
            last = Some(*row);
        }
        counts
    };
    let stepped = |step| (0..ROWS).step_by(step).collect::<Vec<u64>>();
    for batches in [
        vec![vec![0]],
        vec![vec![7; 5]],
        vec![stepped(1)],
        vec![stepped(700)],
        vec![stepped(3000)],
        vec![vec![0, 1], vec![1, 2], vec![5000], vec![5001, 9000]],
        vec![vec![ROWS - 1], vec![ROWS + 5]],
        vec![(ROWS..ROWS + 9).collect()],
    ] {
        let found = look_up(&snapshot, &batches);
        let expected = found.of_disk().plus(expect(&batches));
        assert_eq!(found, expected, "{} keys", batches.concat().len());
    }
}

/// The subjects that a scan gives that is sent ahead before each batch, and what that takes.
fn leap(snapshot: &Snapshot, spec: &ScanSpec, to: &[u64], batch: usize) -> (Vec<u64>, ReadCounts) {
    let snapshot = snapshot.counted();
    let mut scan = snapshot.scan(spec).unwrap();
    let (mut out, mut rows) = (QuadColumns::default(), Vec::new());
    for row in to {
        scan.skip_to(id(10 + row)).unwrap();
        scan.next(batch, &mut out).unwrap();
        let subjects = out.columns[1].iter();
        rows.extend(subjects.map(|subject| subject.payload() - 10));
    }
    (rows, snapshot.reads())
}

#[test]
fn rows_that_are_left_out_are_not_read() {
    let fixture = fixture();
    let snapshot = fixture.quads.snapshot();
    let group = GROUP_ROWS as u64;
    for to in [
        vec![0, 1, 2, 3, 500],
        vec![1023, 1024, 1025, 4095, 4096, 4097, 9999, 10_000],
        (0..ROWS).step_by(300).collect(),
        vec![2 * group + 7, 5 * group + 9, 9 * group],
    ] {
        let (rows, reads) = leap(&snapshot, &all(), &to, 3);
        let (mut wanted, mut next) = (Vec::new(), 0);
        for row in &to {
            next = next.max(*row);
            wanted.extend(next..ROWS.min(next + 3));
            next += 3;
        }
        assert_eq!(rows, wanted);
        assert_eq!(reads.seq, wanted.len() as u64, "{to:?}");
        assert!(reads.rnd <= 1 + to.len() as u64, "{reads:?}");
    }
}

#[test]
fn leaves_that_are_left_out_are_not_read() {
    let fixture = fixture().reopen();
    let snapshot = fixture.quads.snapshot();
    // The first group of the first segment, then one in the last: the second segment is passed.
    let (rows, reads) = leap(&snapshot, &all(), &[0, ROWS - 9], 2);
    assert_eq!(rows, [0, 1, ROWS - 9, ROWS - 8]);
    assert_eq!(reads.rnd, 2);
    // The inner node, two headers, the four groups of the first segment and the one of the row in the last.
    assert_eq!(reads.disk, 1 + 2 + 4 + 1);
}

#[test]
fn ranges_are_left_out_with_the_rows_between_them() {
    let fixture = fixture();
    let snapshot = fixture.quads.snapshot();
    let range = |first: u64, last: u64| stoa_terms::IdRange {
        first: id(10 + first),
        last: id(10 + last),
    };
    let spec = ScanSpec {
        ranges: vec![
            range(5, 8),
            range(20, 20),
            range(900, 6000),
            range(6001, 6001),
        ],
        ..all()
    };
    let (rows, _) = leap(&snapshot, &spec, &[7, 9, 5999, 6000, 6001], 2);
    assert_eq!(rows, [7, 8, 20, 900, 5999, 6000, 6001]);
    let keys = ScanSpec {
        ranges: (0..ROWS).step_by(100).map(|row| range(row, row)).collect(),
        ..all()
    };
    let (rows, reads) = leap(&snapshot, &keys, &[0, 450, 5000, 9900, 9901], 2);
    assert_eq!(rows, [0, 100, 500, 600, 5000, 5100, 9900]);
    assert_eq!(reads.seq, 7);
}

#[test]
fn what_comes_from_disk_is_counted_once() {
    let fixture = fixture().reopen();
    let store = fixture.quads.store();
    let structure = usize::from(TreeName::Psog.structure().number());
    let (before, tree_before) = (store.counters(), store.structures()[structure]);
    let snapshot = fixture.quads.snapshot().counted();
    assert_eq!(scan(&snapshot, &all(), 1000).len() as u64, ROWS);
    // An inner node, three headers of segments, ten groups; the first segment alone, then two together, and of each
    // time a header and a group were asked for.
    let read = snapshot.reads();
    assert_eq!((read.disk, read.read_ahead), (1 + 3 + 10, 3 + 1 + 5));
    let bytes = store.counters().bytes_read - before.bytes_read;
    assert_eq!(read.bytes, bytes);
    assert!(bytes > 0 && bytes.is_multiple_of(4096));

    let again = fixture.quads.snapshot().counted();
    assert_eq!(scan(&again, &all(), 1000).len() as u64, ROWS);
    assert_eq!(again.reads().of_disk(), ReadCounts::default());

    let tree = store.structures()[structure];
    assert_eq!(tree.touches - tree_before.touches, 2);
    assert_eq!(tree.disk_reads - tree_before.disk_reads, read.disk);
    assert_eq!(tree.disk_bytes - tree_before.disk_bytes, bytes);
    assert!(tree.resident_bytes > 0);
    store.cache().clear();
    assert_eq!(store.structures()[structure].resident_bytes, 0);
}
