//! Labels of blank nodes that clients keep from one request to the next.
//!
//! A blank node of the database has the label `b` and its number wherever it is shown, and is found by it. A
//! client that makes blank nodes of its own labels them as it likes, and sends what it says of one in
//! several requests; so the labels of a database are remembered, for a time.
//!
//! # Limits
//! At least [`GENERATION_LABELS`] labels are remembered, at most twice as many; longer ones than
//! [`LABEL_BYTES_MAX`] only within their request.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use stoa_database::oxrdf::BlankNode;
use stoa_database::sync::Mutex;

/// How many labels come after one before it can be forgotten.
const GENERATION_LABELS: usize = 1 << 16;

/// The longest label that is remembered.
const LABEL_BYTES_MAX: usize = 256;

/// The labels of all databases of a server.
#[derive(Default)]
pub(crate) struct Labels(Mutex<Generations>);

/// Labels by database and name. Old ones are moved to the young when they are used.
#[derive(Default)]
struct Generations {
    young: BTreeMap<(String, String), BlankNode>,
    old: BTreeMap<(String, String), BlankNode>,
}

impl Generations {
    fn get(&mut self, key: &(String, String)) -> Option<BlankNode> {
        if let Some(node) = self.young.get(key) {
            return Some(node.clone());
        }
        let node = self.old.get(key)?.clone();
        self.put(key.clone(), node.clone());
        Some(node)
    }

    fn put(&mut self, key: (String, String), node: BlankNode) {
        if self.young.len() >= GENERATION_LABELS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, node);
    }
}

/// The labels of one database for the length of a request.
pub(super) struct RequestLabels<'a> {
    shared: Option<&'a Labels>,
    database: &'a str,
    own: BTreeMap<String, BlankNode>,
}

impl<'a> RequestLabels<'a> {
    /// With `shared`, labels mean what they meant in earlier requests about the database.
    pub(super) fn new(shared: Option<&'a Labels>, database: &'a str) -> Self {
        Self {
            shared,
            database,
            own: BTreeMap::new(),
        }
    }

    /// The node behind a label, if it is known.
    pub(super) fn find(&mut self, label: &str) -> Option<BlankNode> {
        if let Some(node) = self.own.get(label) {
            return Some(node.clone());
        }
        let shared = self.shared?;
        if is_shown(label) {
            return Some(BlankNode::new_unchecked(label));
        }
        let key = (self.database.to_owned(), label.to_owned());
        shared
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
    }

    /// The node behind a label, which `make` makes if it is not known.
    pub(super) fn find_or_make(
        &mut self,
        label: &str,
        make: impl FnOnce() -> BlankNode,
    ) -> BlankNode {
        if let Some(node) = self.find(label) {
            return node;
        }
        let node = make();
        match self.shared {
            Some(shared) if label.len() <= LABEL_BYTES_MAX => {
                let key = (self.database.to_owned(), label.to_owned());
                let mut labels = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                labels.put(key, node.clone());
            }
            _ => drop(self.own.insert(label.to_owned(), node.clone())),
        }
        node
    }
}

/// Whether a label is one that the database shows. If there is no such node, it is found nowhere.
fn is_shown(label: &str) -> bool {
    label
        .strip_prefix('b')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kept_by_database_as_long_as_they_are_used() {
        let shared = Labels::default();
        let mut made = 0;
        let mut node = |labels: &mut RequestLabels<'_>, label: &str| {
            let make = || {
                made += 1;
                BlankNode::new(format!("b{made}")).unwrap()
            };
            labels.find_or_make(label, make).into_string()
        };
        let labels = || RequestLabels::new(Some(&shared), "a");
        let first = node(&mut labels(), "x");
        assert_eq!(node(&mut labels(), "x"), first);
        assert_eq!(node(&mut labels(), "b17"), "b17");
        assert_ne!(
            node(&mut RequestLabels::new(Some(&shared), "b"), "x"),
            first
        );
        for other in 0..GENERATION_LABELS * 3 {
            node(&mut labels(), &format!("other{other}"));
            if other % GENERATION_LABELS == 0 {
                assert_eq!(node(&mut labels(), "x"), first);
            }
        }
        assert_eq!(labels().find("other0"), None);
        let long = "x".repeat(LABEL_BYTES_MAX + 1);
        let mut request = labels();
        let of_request = node(&mut request, &long);
        assert_eq!(node(&mut request, &long), of_request);
        assert_ne!(node(&mut labels(), &long), of_request);
        // In a document of its own, a label means nothing outside.
        let mut own = RequestLabels::new(None, "a");
        let of_document = node(&mut own, "x");
        assert_ne!(of_document, first);
        assert_eq!(node(&mut own, "x"), of_document);
        assert_eq!(own.find("b17"), None);
    }
}
