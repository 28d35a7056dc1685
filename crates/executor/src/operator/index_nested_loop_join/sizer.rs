//! How many rows are collected before they are looked up: more where batches go back to where the one before had been.

use stoa_terms::TermId;

use crate::context::QueryContext;
use crate::operator::FIRST_ROWS;

/// What the keys of a batch look like.
pub(super) struct Shape {
    /// Whether they ascend as they came.
    pub(super) ascending: bool,
    first: Vec<TermId>,
    last: Vec<TermId>,
}

impl Shape {
    /// The shape of keys given column by column. Constants among them do not matter.
    pub(super) fn of(keys: &[&[TermId]], rows: usize) -> Self {
        if let [ids] = keys {
            // One varying column is the rule.
            return Self {
                ascending: ids.is_sorted(),
                first: ids.iter().min().copied().into_iter().collect(),
                last: ids.iter().max().copied().into_iter().collect(),
            };
        }
        let key = |row: usize| keys.iter().map(move |column| column.get(row).copied());
        let (mut first, mut last) = (0, 0);
        let mut ascending = true;
        for row in 1..rows {
            ascending &= key(row - 1).le(key(row));
            if key(row).lt(key(first)) {
                first = row;
            }
            if key(last).lt(key(row)) {
                last = row;
            }
        }
        Self {
            ascending,
            first: key(first).flatten().collect(),
            last: key(last).flatten().collect(),
        }
    }
}

/// How many rows whose keys jump about are collected, if there are so many, before the first are looked up: enough for
/// some keys in each row group that is read of a predicate with some hundred thousand triples.
pub(in crate::operator) const AT_ONCE_ROWS: usize = 64 * 1024;

/// Decides how many rows are collected before they are looked up.
pub(super) struct Sizer {
    /// How many to collect now.
    pub(super) rows: usize,
    rows_max: usize,
    /// Whether few rows may be asked for.
    limited: bool,
    /// The largest key of the batch before.
    last: Option<Vec<TermId>>,
}

impl Sizer {
    pub(super) fn new(limited: bool, context: &QueryContext) -> Self {
        let rows = context.settings().batch_rows.max(1);
        Self {
            rows: match limited {
                true => FIRST_ROWS.min(rows),
                false => rows,
            },
            rows_max: match limited {
                true => rows,
                false => context.settings().lookup_rows_max.max(rows),
            },
            limited,
            last: None,
        }
    }

    /// Whether keys begin behind the end of those before.
    fn goes_on(&self, shape: &Shape) -> bool {
        match &self.last {
            Some(last) => *last <= shape.first,
            None => shape.ascending,
        }
    }

    /// Whether rows are better looked up with more of them: a few whose keys jump about.
    pub(super) fn wants_more(&mut self, shape: &Shape, rows: usize) -> bool {
        let most = AT_ONCE_ROWS.min(self.rows_max);
        if self.limited || self.goes_on(shape) || rows >= most {
            return false;
        }
        self.rows = self.rows.max(most);
        true
    }

    /// Grows if a full batch went back to where the one before had been.
    pub(super) fn learn(&mut self, shape: &Shape, rows: usize) {
        let is_worth = self.limited || !self.goes_on(shape);
        if is_worth && rows >= self.rows {
            self.rows = (self.rows * 2).min(self.rows_max);
        }
        self.last = Some(shape.last.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_where_keys_jump_about() {
        let ids = |ids: &[u64]| {
            ids.iter()
                .copied()
                .map(TermId::from_bits)
                .collect::<Vec<_>>()
        };
        let mut sizer = Sizer {
            rows: 2,
            rows_max: 8,
            limited: false,
            last: None,
        };
        for (keys, rows) in [([1, 2], 2), ([2, 5], 2), ([1, 9], 4), ([3, 4], 4)] {
            sizer.learn(&Shape::of(&[&ids(&keys)], 2), 2);
            assert_eq!(sizer.rows, rows, "after {keys:?}");
        }
        for _ in 0..9 {
            sizer.learn(&Shape::of(&[&ids(&[3, 1])], 2), 1000);
        }
        assert_eq!(sizer.rows, 8);
        // Keys that ascend go out as they come, others with more of them.
        let mut sizer = Sizer {
            rows: 2,
            rows_max: 8,
            limited: false,
            last: None,
        };
        assert!(!sizer.wants_more(&Shape::of(&[&ids(&[1, 2])], 2), 2));
        assert_eq!(sizer.rows, 2);
        assert!(sizer.wants_more(&Shape::of(&[&ids(&[2, 1])], 2), 2));
        assert_eq!(sizer.rows, 8);
        assert!(!sizer.wants_more(&Shape::of(&[&ids(&[2, 1])], 2), 8));
        let shape = Shape::of(&[&ids(&[3, 3, 2]), &ids(&[1, 0, 7])], 3);
        assert!(!shape.ascending);
        assert_eq!((shape.first, shape.last), (ids(&[2, 7]), ids(&[3, 1])));
    }

    #[test]
    fn where_few_may_be_asked_for_batches_double() {
        let mut sizer = Sizer {
            rows: 2,
            rows_max: 5,
            limited: true,
            last: None,
        };
        let keys = [9, 3].map(TermId::from_bits);
        let jumping = Shape::of(&[&keys], 2);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            sizes.push(sizer.rows);
            assert!(!sizer.wants_more(&jumping, sizer.rows));
            sizer.learn(&jumping, sizer.rows);
        }
        assert_eq!(sizes, [2, 4, 5, 5]);
    }
}
