//! Index nested-loop joins that only ask whether there are partners; `index` compares them with the definition.

use std::sync::Arc;

use stoa_planner::physical::{JoinKind, Operator, PatternTerm, QuadPattern, Variable};
use stoa_terms::{Permutation, TermId};

use super::harness::*;
use super::switching::many;
use crate::QueryContext;

/// Rows of eight objects, in turns, of which each but the last one has some 3,000 subjects.
#[test]
fn a_key_of_many_rows_and_partners_is_looked_up_once() {
    let (snapshot, pattern) = many();
    let [_, predicate, _] = pattern.triple;
    let objects: Vec<Row> = (0..6_000).map(|number| vec![integer(number % 8)]).collect();
    let of_last = |is_last: bool| {
        let rows = objects
            .iter()
            .filter(|row| (row[0] == integer(7)) == is_last);
        rows.cloned().collect::<Vec<Row>>()
    };
    let marked: Vec<Row> = objects
        .iter()
        .map(|row| vec![row[0], TermId::from(row[0] != integer(7))])
        .collect();
    let kinds = [
        (JoinKind::Semi, &[0][..], of_last(false)),
        (JoinKind::Anti, &[0], of_last(true)),
        (JoinKind::Mark(Variable(5)), &[0, 5], marked),
    ];
    for (kind, columns, expected) in kinds {
        let join = Operator::IndexNestedLoopJoin {
            input: Box::new(values(&[0], &objects)),
            pattern: QuadPattern {
                triple: [
                    PatternTerm::Variable(Variable(1)),
                    predicate,
                    PatternTerm::Variable(Variable(0)),
                ],
                ..pattern.clone()
            },
            permutation: Permutation::Posg,
            key_length: 2,
            kind: kind.clone(),
            switch: None,
            count: None,
        };
        let mut settings = settings(1024, 1 << 30);
        settings.timed = true;
        let memory = settings.memory.clone();
        let context = Arc::new(QueryContext::new(snapshot.clone(), settings));
        let (given, profile) = try_run(&query(plan(join, columns)), context).unwrap();
        assert_eq!(memory.used(), 0, "memory is kept");
        // Rows come in their order.
        assert_eq!(given, expected, "{kind:?}");
        // Of each batch eight keys.
        let reads = profile[0].reads;
        assert!(reads.rnd <= 6 * 8 && reads.seq == 0, "{kind:?}: {reads:?}");
    }
}
