//! What is open before a row of a graph, told by ids, so that a further writer can go on there.
//!
//! Turtle and the like group what follows each other: what a row is written as depends on rows before it. These are
//! few: a writer that has written them alone stands where one stands that has written all.
//!
//! # Limits
//! At most [`ROWS_MAX`] rows.

use stoa_executor::Batch;

use crate::format::GraphFormat;

/// A node of JSON-LD that has more properties so far is gone on with by the writer that began it.
const ROWS_MAX: usize = 256;

/// See the module header. Columns are subject, predicate, object and, where there are graphs, graph.
pub(super) struct Open {
    format: Option<GraphFormat>,
    /// In the order of the answer.
    rows: Batch,
    is_known: bool,
}

impl Open {
    /// Before the first row; without a format, of what is written row by row.
    pub(super) fn new(format: Option<GraphFormat>) -> Self {
        Self {
            format,
            rows: Batch::default(),
            is_known: true,
        }
    }

    /// The rows; `None` where there would be too many.
    pub(super) fn rows(&self) -> Option<&Batch> {
        self.is_known.then_some(&self.rows)
    }

    /// Goes on to what is open after a batch, and gives what is open before it. `None` where there would be too many
    /// rows after it: nothing is changed then.
    pub(super) fn advance(&mut self, batch: &Batch) -> Option<Batch> {
        let before = self.rows()?.clone();
        self.write(batch);
        if !self.is_known {
            self.rows = before;
            self.is_known = true;
            return None;
        }
        Some(before)
    }

    /// Goes on to what is open after a batch, however much that is.
    pub(super) fn write(&mut self, batch: &Batch) {
        let Some(last) = batch.rows.checked_sub(1) else {
            return;
        };
        match self.format {
            None | Some(GraphFormat::NTriples | GraphFormat::NQuads) => {}
            // Subject, predicate and graph of the last row.
            Some(GraphFormat::Turtle | GraphFormat::TriG) => self.begin(batch, last),
            // The element of a subject may have the name of a class, if that is what its first row tells.
            Some(GraphFormat::RdfXml) => {
                let first = last_run(batch, &[0]);
                if first > 0 || !self.goes_on(batch, &[0]) {
                    self.begin(batch, first);
                }
            }
            Some(GraphFormat::JsonLd) => self.write_node(batch),
        }
    }

    /// A node of JSON-LD has each property once: what comes again later begins another object of the same node.
    fn write_node(&mut self, batch: &Batch) {
        let keys: &[usize] = match batch.columns.len() {
            4 => &[0, 3],
            _ => &[0],
        };
        let mut row = last_run(batch, keys);
        if row > 0 || !self.goes_on(batch, keys) {
            self.begin(batch, row);
            row += 1;
        }
        while self.is_known && row < batch.rows {
            let predicate = batch.get(1, row);
            let known = self.rows.column(1);
            if known.last() != Some(&predicate) {
                if known.contains(&predicate) {
                    self.begin(batch, row);
                } else {
                    self.rows.append_range(batch, row, row + 1);
                    self.is_known = self.rows.rows <= ROWS_MAX;
                }
            }
            row += 1;
        }
    }

    /// What is open begins with a row.
    fn begin(&mut self, batch: &Batch, row: usize) {
        self.rows = Batch::with_columns(batch.columns.len());
        self.rows.append_range(batch, row, row + 1);
        self.is_known = true;
    }

    /// Whether a batch has in these columns, from its first row on, what is open.
    fn goes_on(&self, batch: &Batch, columns: &[usize]) -> bool {
        let is_same = |column: &usize| self.rows.get(*column, 0) == batch.get(*column, 0);
        !self.rows.is_empty() && columns.iter().all(is_same)
    }
}

/// The first of the rows at the end of a batch that have the same ids in these columns.
fn last_run(batch: &Batch, columns: &[usize]) -> usize {
    let is_same = |column: &usize, row: usize| {
        let ids = batch.column(*column);
        ids.get(row) == ids.last()
    };
    let other = (0..batch.rows)
        .rev()
        .find(|row| !columns.iter().all(|column| is_same(column, *row)));
    other.map_or(0, |row| row + 1)
}

#[cfg(test)]
mod tests {
    use stoa_terms::{Kind, TermId};

    use super::*;

    fn batch(rows: &[[u64; 4]]) -> Batch {
        let mut batch = Batch::with_columns(4);
        for row in rows {
            batch.push_row(&row.map(|number| TermId::new(Kind::Iri, number)));
        }
        batch
    }

    fn open(format: GraphFormat, batches: &[&[[u64; 4]]]) -> Option<Vec<[u64; 4]>> {
        let mut open = Open::new(Some(format));
        batches.iter().for_each(|rows| open.write(&batch(rows)));
        let rows = open.rows()?;
        let id = |row: usize, column: usize| rows.get(column, row).payload();
        let row = |row: usize| [0, 1, 2, 3].map(|column| id(row, column));
        Some((0..rows.rows).map(row).collect())
    }

    #[test]
    fn lines_leave_nothing_open() {
        for format in [GraphFormat::NTriples, GraphFormat::NQuads] {
            assert_eq!(open(format, &[&[[1, 1, 1, 1]]]), Some(vec![]));
        }
    }

    #[test]
    fn turtle_has_the_last_row_open() {
        for format in [GraphFormat::Turtle, GraphFormat::TriG] {
            let batches: [&[_]; 3] = [&[[1, 1, 1, 1], [1, 1, 2, 1]], &[[1, 2, 3, 1]], &[]];
            assert_eq!(open(format, &batches), Some(vec![[1, 2, 3, 1]]));
        }
    }

    #[test]
    fn rdf_xml_has_an_element_open() {
        let open = |batches: &[&[_]]| open(GraphFormat::RdfXml, batches);
        let first = [[1, 1, 1, 1], [2, 1, 2, 1], [2, 2, 3, 1]];
        assert_eq!(open(&[&first]), Some(vec![[2, 1, 2, 1]]));
        let more = [[2, 1, 4, 1], [2, 1, 5, 1]];
        assert_eq!(open(&[&first, &more, &more]), Some(vec![[2, 1, 2, 1]]));
        let other = [[3, 1, 6, 1], [3, 1, 7, 1]];
        assert_eq!(open(&[&first, &other]), Some(vec![[3, 1, 6, 1]]));
        let again = [[3, 1, 6, 1], [2, 1, 7, 1]];
        assert_eq!(open(&[&first, &again]), Some(vec![[2, 1, 7, 1]]));
    }

    #[test]
    fn json_ld_has_properties_of_a_node_open() {
        let open = |batches: &[&[_]]| open(GraphFormat::JsonLd, batches);
        let first = [[1, 1, 1, 1], [2, 1, 2, 1], [2, 1, 3, 1], [2, 2, 3, 1]];
        let node = vec![[2, 1, 2, 1], [2, 2, 3, 1]];
        assert_eq!(open(&[&first]), Some(node.clone()));
        assert_eq!(open(&[&first, &[[2, 2, 4, 1]]]), Some(node));
        let further = vec![[2, 1, 2, 1], [2, 2, 3, 1], [2, 3, 4, 1]];
        assert_eq!(open(&[&first, &[[2, 3, 4, 1]]]), Some(further));
        // A property that comes back, another graph, another node.
        for other in [[2, 1, 4, 1], [2, 3, 4, 2], [3, 1, 4, 1]] {
            assert_eq!(open(&[&first, &[other]]), Some(vec![other]));
        }
    }

    #[test]
    fn a_node_with_very_many_properties_is_not_told() {
        let properties: Vec<_> = (0..1_000).map(|number| [1, number, 1, 1]).collect();
        let (few, many) = properties.split_at(ROWS_MAX);
        let open = |batches: &[&[_]]| open(GraphFormat::JsonLd, batches);
        assert_eq!(open(&[few]), Some(few.to_vec()));
        assert_eq!(open(&[few, many]), None);
        // Which of its objects this is in is not known.
        assert_eq!(open(&[few, many, few]), None);
        let other = [2, 1, 1, 1];
        assert_eq!(open(&[few, many, &[other]]), Some(vec![other]));
        let mut open = Open::new(Some(GraphFormat::JsonLd));
        assert_eq!(open.advance(&batch(few)), Some(Batch::default()));
        assert_eq!(open.advance(&batch(many)), None);
        assert_eq!(open.rows(), Some(&batch(few)));
    }
}
