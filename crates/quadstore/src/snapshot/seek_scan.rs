//! A scan that is sent to other rows: the cursor of joins that skip.
//!
//! A scan of a prefix of which a join wants few rows is sent from one place to the next. Where the rows stand in one
//! tree in the wanted order, the reader of that tree is kept and starts again at another key; else the scan is opened
//! anew each time, so that every scheme and every set of graphs gives the same rows.

use stoa_terms::{IdRange, Permutation, TermId};

use super::composed::Places;
use super::ways::{Way, only_graph, stored_prefix};
use super::{Snapshot, Visible};
use crate::error::{Error, Result};
use crate::permutation::{Intervals, RowFilter};
use crate::read::{QuadColumns, ScanSpec};

/// A scan of a prefix, in an order that does not begin with the graph, that can be sent to any of its rows.
pub struct SeekScan {
    spec: ScanSpec,
    /// What the graph set leaves; `None` if that is nothing.
    filter: Option<RowFilter>,
    /// What gives the rows from where the scan was sent; `None` before.
    way: Option<Way>,
    /// Keeps the extents.
    snapshot: Snapshot,
    /// Whether the prefix is still to be recorded as read.
    is_unread: bool,
}

impl Snapshot {
    /// Prepares a scan of all rows of a prefix, which gives none before it is sent somewhere. A transaction takes
    /// down that it read all of the prefix.
    ///
    /// # Errors
    /// [`Error::Internal`] if there are ranges, if the permutation begins with the graph, or if the graph is to be a
    /// part of rows; if the catalogue of graphs cannot be read.
    pub fn seek_scan(&self, spec: &ScanSpec) -> Result<SeekScan> {
        let begins_with_graph = Permutation::GRAPH_FIRST.contains(&spec.permutation);
        if !spec.ranges.is_empty() || begins_with_graph || spec.with_graph {
            return Err(Error::Internal("a scan that cannot be sent to a row"));
        }
        let filter = match self.visible(&spec.graphs, false)? {
            Visible::Nothing => None,
            Visible::Rows(filter) => Some(filter),
        };
        Ok(SeekScan {
            spec: spec.clone(),
            filter,
            way: None,
            snapshot: self.clone(),
            is_unread: self.is_recorded(),
        })
    }
}

impl SeekScan {
    /// Goes on with the rows that start with the prefix and then `fixed`, and whose next column is not below `from`.
    /// Prefix and `fixed` have at most two ids together.
    ///
    /// # Errors
    /// [`Error::Internal`] if they have more; if the trees cannot be read.
    pub fn seek(&mut self, fixed: &[TermId], from: TermId) -> Result<()> {
        let Some(filter) = &self.filter else {
            return Ok(());
        };
        let mut prefix = self.spec.prefix.clone();
        prefix.extend_from_slice(fixed);
        if prefix.len() > 2 {
            return Err(Error::Internal("a seek behind the third position"));
        }
        let ranges: Vec<_> = (from.to_bits() > 0)
            .then_some(IdRange {
                first: from,
                last: TermId::from_bits(u64::MAX),
            })
            .into_iter()
            .collect();
        if let Some(Way::Tree(reader, places)) = &mut self.way
            && let Some(stored) = in_tree(*places, only_graph(filter), &prefix)
        {
            reader.restart(Intervals::new(&stored, &ranges)?);
            return Ok(());
        }
        let spec = ScanSpec {
            prefix,
            ranges,
            ..self.spec.clone()
        };
        self.way = Some(self.snapshot.way(&spec, filter.clone())?);
        Ok(())
    }

    /// Clears `out` and fills it with at most `max_rows` further rows, sorted by the permutation. Returns `false` at
    /// the end of what was sought. There may be fewer rows than asked for, even none, before.
    ///
    /// # Errors
    /// If the trees cannot be read, or the snapshot had to end.
    pub fn next(&mut self, max_rows: usize, out: &mut QuadColumns) -> Result<bool> {
        out.clear();
        self.snapshot.check_kept()?;
        if std::mem::take(&mut self.is_unread)
            && let Some(recorder) = self.snapshot.recorder()
        {
            let spec = &self.spec;
            recorder.rows(spec.permutation, &spec.prefix, &[], &spec.graphs);
        }
        match &mut self.way {
            Some(way) => way.next(max_rows, out, None),
            None => Ok(false),
        }
    }
}

/// A wanted prefix as one of the rows of a tree; `None` if these are not sorted by it, and by the next wanted
/// position behind it. A tree that begins with the graph holds rows of one graph alone there.
pub(super) fn in_tree(
    places: Places,
    graph: Option<TermId>,
    prefix: &[TermId],
) -> Option<Vec<TermId>> {
    let before: Vec<TermId> = match places.stored(3) {
        0 => vec![graph?],
        _ => Vec::new(),
    };
    let behind = before.len() + prefix.len();
    let are_first = (0..prefix.len()).all(|place| places.stored(place) < behind);
    (are_first && places.stored(prefix.len()) == behind)
        .then(|| stored_prefix(places, &before, prefix))
}
