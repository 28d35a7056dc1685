//! What a client was told about its new orders, and what became of them.
//!
//! Every order has a mark of the client's own, so that what is there in the end can be compared with the record, whatever
//! number the order got.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::reads::prologue;
use super::session::Ask;
use crate::run::endpoint::Failure;

/// What was said about an order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Said {
    /// It is done; when that came, since the run began.
    Done(Duration),
    /// It is not done: it was rolled back, or gave way to others until nobody tried again.
    NotDone,
    /// There was no answer, or an error: it may be there or not.
    Nothing,
}

/// New orders by their marks.
#[derive(Debug, Default)]
pub(super) struct Record(BTreeMap<String, Said>);

/// What became of the orders of a record.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Survival {
    /// Done within the time that counts, and there.
    pub(super) counted: u64,
    /// Done at any time.
    pub(super) done: u64,
    /// Done, and not there.
    pub(super) lost: Vec<String>,
    /// There, though not done; or there twice.
    pub(super) unexpected: Vec<String>,
    /// Of those without an answer: there, and not there.
    pub(super) unanswered: (u64, u64),
}

impl Record {
    pub(super) fn add(&mut self, mark: &str, said: Said) {
        self.0.insert(mark.to_owned(), said);
    }

    pub(super) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Compares with the marks that are there; `counts` is the time in which orders count.
    pub(super) fn survival(&self, there: &[String], counts: &Range<Duration>) -> Survival {
        let mut survival = Survival::default();
        let mut seen = BTreeSet::new();
        for mark in there {
            if !seen.insert(mark.as_str()) || !self.0.contains_key(mark) {
                survival.unexpected.push(mark.clone());
            }
        }
        for (mark, said) in &self.0 {
            let is_there = seen.contains(mark.as_str());
            match said {
                Said::Done(when) => {
                    survival.done += 1;
                    if !is_there {
                        survival.lost.push(mark.clone());
                    } else if counts.contains(when) {
                        survival.counted += 1;
                    }
                }
                Said::NotDone if is_there => survival.unexpected.push(mark.clone()),
                Said::NotDone => {}
                Said::Nothing if is_there => survival.unanswered.0 += 1,
                Said::Nothing => survival.unanswered.1 += 1,
            }
        }
        survival
    }
}

/// The marks of a run that are in the database.
///
/// # Errors
/// When there is no answer.
pub(super) fn marks(ask: &impl Ask, run: &str) -> Result<Vec<String>, Failure> {
    let rows = ask.rows(&format!(
        "{}SELECT ?mark {{ ?o t:mark ?mark FILTER(STRSTARTS(?mark, \"{run}-\")) }}",
        prologue()
    ))?;
    rows.iter().map(|row| row.text("mark")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_must_be_there_once_and_what_was_not_must_not() {
        let mut record = Record::default();
        let second = Duration::from_secs;
        for (mark, said) in [
            ("early", Said::Done(second(1))),
            ("there", Said::Done(second(10))),
            ("twice", Said::Done(second(15))),
            ("lost", Said::Done(second(16))),
            ("late", Said::Done(second(20))),
            ("rolled back", Said::NotDone),
            ("ghost", Said::NotDone),
            ("in flight", Said::Nothing),
            ("never came", Said::Nothing),
        ] {
            record.add(mark, said);
        }
        let there = [
            "early",
            "there",
            "twice",
            "twice",
            "late",
            "ghost",
            "in flight",
            "stranger",
        ];
        let there = there.map(str::to_owned);
        let survival = record.survival(&there, &(second(10)..second(20)));
        let expected = Survival {
            counted: 2,
            done: 5,
            lost: vec!["lost".to_owned()],
            unexpected: vec![
                "twice".to_owned(),
                "stranger".to_owned(),
                "ghost".to_owned(),
            ],
            unanswered: (1, 1),
        };
        assert_eq!(survival, expected);
    }
}
