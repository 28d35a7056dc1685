//! The difference of two commits: the quads that one has and the other has not.
//!
//! A commit is a root and a delta, so the difference is that of the two deltas and that of the two roots. Roots
//! share what was not changed between them: their trees are walked side by side, and a child that
//! both have is passed over. All three come in the order of PSOG, and their signs are added up. Where the deltas hide
//! different graphs of their roots, children that both have are read as well.
//!
//! A compaction gives all terms other ids, and has a state in both numberings. What leads over one is what leads
//! to it, and then what leads on from it: a quad that was changed on both sides is told twice.
//!
//! # Limits
//! A leaf of each tree in memory, and the inner nodes that were walked.

use std::sync::Arc;

use stoa_storage::{PartRef, Store};
use stoa_terms::TermId;

use crate::delta::{DeltaCursor, GraphMask};
use crate::error::Result;
use crate::permutation::Tree;
use crate::permutation::node::Node;
use crate::permutation::tree::child_node;
use crate::quad_store::QuadStore;
use crate::root::TreeName;
use crate::segment::Row;
use crate::segment::reader::read_rows;
use crate::snapshot::Snapshot;

/// A row of PSOG, and whether it is removed.
type Event = (Row, bool);

/// A quad that was added or removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuadChange {
    /// Subject, predicate, object, graph.
    pub quad: [TermId; 4],
    /// Whether it was removed; else it was added.
    pub is_removed: bool,
}

impl QuadChange {
    /// That of a row of PSOG.
    pub(super) fn of_row([predicate, subject, object, graph]: Row, is_removed: bool) -> Self {
        Self {
            quad: [subject, predicate, object, graph].map(TermId::from_bits),
            is_removed,
        }
    }
}

/// What leads from one commit to another, in the order of PSOG, but that what came before a compaction
/// is told before what came after it (or behind, if it leads back).
pub struct Difference {
    leg: Leg,
    /// What is told after that, the last one first.
    rest: Vec<Leg>,
}

/// What leads from one commit to another of the same numbering.
struct Leg {
    /// The later one of the two.
    snapshot: Snapshot,
    /// Whether it leads back.
    is_reverse: bool,
    /// What the delta of the earlier one changes.
    before: Option<DeltaCursor>,
    trees: Option<TreeDifference>,
    /// What the delta of the later one changes.
    after: Option<DeltaCursor>,
}

impl QuadStore {
    /// What leads from one commit to another, which may be the earlier one.
    ///
    /// # Errors
    /// As [`QuadStore::at`] for both.
    pub fn difference(
        &self,
        from: u64,
        to: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Difference> {
        let mut earlier = self.at(from.min(to), is_cancelled)?;
        let later = self.at(from.max(to), is_cancelled)?;
        let is_reverse = from > to;
        let mut rest = Vec::new();
        while !earlier.numbers_as(&later) {
            let [old, new] = self.next_compaction(&earlier, is_cancelled)?;
            rest.push(Leg::of(&earlier, old, is_reverse)?);
            earlier = new;
        }
        let mut leg = Leg::of(&earlier, later, is_reverse)?;
        if !is_reverse {
            // Those before it come first.
            rest.reverse();
            if let Some(first) = rest.pop() {
                rest.insert(0, std::mem::replace(&mut leg, first));
            }
        }
        Ok(Difference { leg, rest })
    }
}

impl Difference {
    /// What leads from `earlier` to `later`, which are of one numbering.
    pub(crate) fn of(earlier: &Snapshot, later: Snapshot) -> Result<Self> {
        Ok(Self {
            leg: Leg::of(earlier, later, false)?,
            rest: Vec::new(),
        })
    }

    /// A snapshot that knows all terms of the changes that were told last.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.leg.snapshot
    }

    /// Gives back what was read ahead: the next changes will not be asked for at once.
    pub fn rest(&mut self) {
        self.leg.rest();
    }

    /// Puts the next changes, at most `limit` of them, in the place of those in `changes`; none at the end.
    ///
    /// # Errors
    /// What the files give.
    pub fn next(&mut self, limit: usize, changes: &mut Vec<QuadChange>) -> Result<()> {
        loop {
            self.leg.next(limit, changes)?;
            if !changes.is_empty() {
                return Ok(());
            }
            match self.rest.pop() {
                Some(leg) => self.leg = leg,
                None => return Ok(()),
            }
        }
    }
}

impl Leg {
    /// What leads from `earlier` to `later`, or back.
    fn of(earlier: &Snapshot, later: Snapshot, is_reverse: bool) -> Result<Self> {
        let trees = TreeDifference::of(earlier, &later)?;
        Ok(Self {
            before: cursor(earlier),
            trees,
            after: cursor(&later),
            snapshot: later,
            is_reverse,
        })
    }

    /// As [`Difference::rest`].
    fn rest(&mut self) {
        if let Some(trees) = &mut self.trees {
            trees.old.rest();
            trees.new.rest();
        }
    }

    /// As [`Difference::next`].
    fn next(&mut self, limit: usize, changes: &mut Vec<QuadChange>) -> Result<()> {
        changes.clear();
        if let Some(trees) = &mut self.trees {
            trees.old.wake()?;
            trees.new.wake()?;
        }
        while changes.len() < limit
            && let Some((row, is_removed)) = self.advance()?
        {
            changes.push(QuadChange::of_row(row, is_removed != self.is_reverse));
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Event>> {
        loop {
            let tree = match &mut self.trees {
                Some(trees) => trees.peek()?,
                None => None,
            };
            let before = self.before.as_ref().and_then(DeltaCursor::peek);
            let after = self.after.as_ref().and_then(DeltaCursor::peek);
            let rows = [before, tree, after].into_iter().flatten();
            let Some(row) = rows.map(|(row, _)| row).min() else {
                return Ok(None);
            };
            let at_row = |event: Option<Event>| event.filter(|(other, _)| *other == row);
            let sign = |event: Event| if event.1 { -1 } else { 1 };
            let mut sum = 0_i32;
            if let (Some(event), Some(cursor)) = (at_row(before), &mut self.before) {
                sum -= sign(event);
                cursor.advance();
            }
            if let (Some(event), Some(trees)) = (at_row(tree), &mut self.trees) {
                sum += sign(event);
                trees.next = None;
            }
            if let (Some(event), Some(cursor)) = (at_row(after), &mut self.after) {
                sum += sign(event);
                cursor.advance();
            }
            if sum != 0 {
                return Ok(Some((row, sum < 0)));
            }
        }
    }
}

/// All that the delta of a snapshot changes.
fn cursor(snapshot: &Snapshot) -> Option<DeltaCursor> {
    let mut cursor = DeltaCursor::over(snapshot.delta(), TreeName::Psog)?;
    cursor.seek(&[0; 4], &[u64::MAX; 4]);
    Some(cursor)
}

/// The difference of two trees that share most of their parts.
struct TreeDifference {
    old: Walk,
    new: Walk,
    /// Whether both hide the same graphs, so that a child that both have is the same in both.
    hide_same: bool,
    next: Option<Event>,
}

/// One of the trees that are walked.
struct Walk {
    store: Arc<Store>,
    /// Graphs whose rows are hidden.
    mask: Arc<GraphMask>,
    /// From the top on nodes, and the child that comes next in each.
    path: Vec<(Arc<Node>, usize)>,
    /// Where the leaf at work lies, and how many rows it has.
    leaf: Option<(PartRef, u64)>,
    /// Its rows, and which of them comes next. None while the walk rests.
    rows: Vec<Row>,
    at: usize,
}

/// What comes next in a tree.
#[derive(Clone, Copy)]
enum Place {
    Row(Row),
    /// A child that was not opened: its first row, and how high it stands above the leaves.
    Child(Row, u8),
    End,
}

impl TreeDifference {
    /// That of the roots of two snapshots; `None` if they have the same.
    fn of(old: &Snapshot, new: &Snapshot) -> Result<Option<Self>> {
        let hide_same = old.delta().mask() == new.delta().mask();
        let are_of_roots = old.is_of_root() && new.is_of_root();
        let is_same = are_of_roots && old.0.base.root.checkpoint == new.0.base.root.checkpoint;
        if hide_same && is_same {
            return Ok(None);
        }
        Ok(Some(Self {
            old: Walk::of(old),
            new: Walk::of(new),
            hide_same,
            next: None,
        }))
    }

    fn peek(&mut self) -> Result<Option<Event>> {
        if self.next.is_none() {
            self.next = self.find()?;
        }
        Ok(self.next)
    }

    /// The next row that only one of the trees has.
    fn find(&mut self) -> Result<Option<Event>> {
        let (old, new) = (&mut self.old, &mut self.new);
        loop {
            match (old.place(), new.place()) {
                (Place::End, Place::End) => return Ok(None),
                (Place::Row(a), Place::Row(b)) if a == b => {
                    old.at += 1;
                    new.at += 1;
                }
                (Place::Row(a), Place::Row(b) | Place::Child(b, _)) if a < b => {
                    old.at += 1;
                    return Ok(Some((a, true)));
                }
                (Place::Row(a), Place::End) => {
                    old.at += 1;
                    return Ok(Some((a, true)));
                }
                (Place::Row(_), Place::Child(..)) => new.open()?,
                (Place::Child(a, _), Place::Row(b)) if a <= b => old.open()?,
                (_, Place::Row(b)) => {
                    new.at += 1;
                    return Ok(Some((b, false)));
                }
                (Place::Child(..), Place::End) => old.open()?,
                (Place::End, Place::Child(..)) => new.open()?,
                (Place::Child(a, a_height), Place::Child(b, b_height)) => {
                    if self.hide_same && old.child() == new.child() {
                        old.pass();
                        new.pass();
                    } else if (a_height, b) > (b_height, a) {
                        // The higher one, or else the one that begins first.
                        old.open()?;
                    } else {
                        new.open()?;
                    }
                }
            }
        }
    }
}

impl Walk {
    fn of(snapshot: &Snapshot) -> Self {
        let tree: &Tree = snapshot.tree(TreeName::Psog);
        let mut walk = Self {
            store: Arc::clone(snapshot.store()),
            mask: Arc::clone(snapshot.delta().mask()),
            path: vec![(Arc::clone(&tree.above), 0)],
            leaf: None,
            rows: Vec::new(),
            at: 0,
        };
        walk.leave();
        walk
    }

    fn place(&self) -> Place {
        if let Some(row) = self.rows.get(self.at) {
            return Place::Row(*row);
        }
        match self.path.last() {
            None => Place::End,
            Some((node, index)) => match node.children.get(*index) {
                None => Place::End,
                Some(child) => Place::Child(child.first, node.level),
            },
        }
    }

    /// The child that comes next, by where it lies.
    fn child(&self) -> Option<PartRef> {
        let (node, index) = self.path.last()?;
        node.children.get(*index).map(|child| child.part)
    }

    /// Leaves the next child out.
    fn pass(&mut self) {
        if let Some((_, index)) = self.path.last_mut() {
            *index += 1;
        }
        self.leave();
    }

    /// Leaves nodes that have no more children.
    fn leave(&mut self) {
        while let Some((node, index)) = self.path.last()
            && *index >= node.children.len()
        {
            self.path.pop();
        }
    }

    /// Goes down into the next child.
    fn open(&mut self) -> Result<()> {
        let Some((node, index)) = self.path.last() else {
            return Ok(());
        };
        let (node, index) = (Arc::clone(node), *index);
        self.pass();
        if node.level > 1 {
            let below = child_node(&self.store, &node, index)?;
            self.path.push((below, 0));
        } else if let Some(leaf) = node.children.get(index) {
            self.leaf = Some((leaf.part, leaf.rows));
            self.at = 0;
            self.read()?;
        }
        Ok(())
    }

    /// Reads the rows of the leaf.
    fn read(&mut self) -> Result<()> {
        let Some((part, rows)) = self.leaf else {
            return Ok(());
        };
        self.rows = read_rows(&self.store, part, rows)?;
        if !self.mask.is_none() {
            let mask = &self.mask;
            let is_hidden = |[.., graph]: &Row| mask.contains(TermId::from_bits(*graph));
            self.rows.retain(|row| !is_hidden(row));
        }
        Ok(())
    }

    /// Gives the rows back, which are read again when the walk goes on.
    fn rest(&mut self) {
        if self.at >= self.rows.len() {
            self.leaf = None;
        }
        self.rows = Vec::new();
    }

    fn wake(&mut self) -> Result<()> {
        match self.rows.is_empty() {
            true => self.read(),
            false => Ok(()),
        }
    }
}
