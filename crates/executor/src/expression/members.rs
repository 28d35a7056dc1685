//! What is known of a long list behind IN, so that a row is not compared with each item.
//!
//! IRIs and strings are equal if they are one term, integers if they have one value. So items of these
//! kinds are looked up in sets, and only the first one of each kind is compared, to tell what a row is
//! that equals none: false, or an error. All items of a kind tell the same, but to decimals, doubles,
//! triple terms and what has no id yet: such rows are compared with the whole list.

use hashbrown::HashSet;
use rapidhash::fast::RandomState;
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId};

use super::column::Cell;
use super::node::Node;

/// Shorter lists are compared item by item.
const LONG: usize = 16;

/// Sets of the items of a list.
pub(crate) struct Members {
    /// IRIs and strings.
    terms: HashSet<TermId, RandomState>,
    integers: HashSet<i64, RandomState>,
    /// The items that every row is compared with.
    compared: Vec<usize>,
}

impl Members {
    /// `None` if the list is short.
    pub(super) fn of(list: &[Node]) -> Option<Self> {
        if list.len() < LONG {
            return None;
        }
        let mut members = Self {
            terms: HashSet::default(),
            integers: HashSet::default(),
            compared: Vec::new(),
        };
        // Whether there was an IRI, a string, an integer.
        let mut seen = [false; 3];
        for (number, item) in list.iter().enumerate() {
            let kind = match item {
                Node::Constant(constant) => match (constant.kind, &constant.value) {
                    (Kind::Iri, _) => {
                        members.terms.insert(constant.id);
                        seen.get_mut(0)
                    }
                    (_, Some(Value::String(_))) => {
                        members.terms.insert(constant.id);
                        seen.get_mut(1)
                    }
                    (Kind::Integer, Some(Value::Integer(value))) => {
                        members.integers.insert(*value);
                        seen.get_mut(2)
                    }
                    _ => None,
                },
                _ => None,
            };
            if !kind.is_some_and(|seen| std::mem::replace(seen, true)) {
                members.compared.push(number);
            }
        }
        Some(members)
    }

    /// The items that every row is compared with.
    pub(super) fn compared(&self) -> &[usize] {
        &self.compared
    }

    /// Whether a row is equal to an item that it is not compared with exactly if [`Self::contain`]
    /// says so.
    pub(super) fn decide(&self, cell: Cell<'_>) -> bool {
        if cell.is_error() {
            return true;
        }
        let Cell::Id { kind, .. } = cell else {
            return false;
        };
        match kind {
            Kind::Decimal | Kind::Double | Kind::NumericLiteral => self.integers.is_empty(),
            Kind::Triple | Kind::Local => false,
            _ => true,
        }
    }

    /// Whether one of the items is the same IRI, string or integer.
    pub(super) fn contain(&self, cell: Cell<'_>) -> bool {
        let Cell::Id { id, kind, .. } = cell else {
            return false;
        };
        match kind {
            Kind::Integer => cell.value().is_some_and(
                |value| matches!(*value, Value::Integer(n) if self.integers.contains(&n)),
            ),
            _ => self.terms.contains(&id),
        }
    }
}
