//! What sampling may cost: a share of what the plan is expected to take, and never more than some matches of each pattern.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::Cell;

use oxrdf::Term;
use spargebra::SparqlParser;
use stoa_planner::{ForcedChoices, PlannerOptions, Statistics, StatisticsError, plan};
use stoa_terms::{GraphSet, IdRange, Kind, Position, TermId};

/// Each predicate has so many quads, with subjects of their own and a tenth as many objects.
struct Even {
    rows: u64,
    /// Quads that were drawn, and those whose partners were looked up.
    looked_up: Cell<u64>,
}

impl Even {
    fn looks_up(&self, quads: usize) {
        self.looked_up.set(self.looked_up.get() + quads as u64);
    }
}

impl Statistics for Even {
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
        let text = term.to_string();
        Ok(text
            .bytes()
            .rev()
            .nth(1)
            .map(|last| TermId::new(Kind::Iri, u64::from(last))))
    }

    fn count(&self, triple: [Option<TermId>; 3], _: &GraphSet) -> Result<u64, StatisticsError> {
        Ok(match triple {
            [None, None, None] => self.rows * 10,
            [None, _, None] => self.rows,
            [None, _, Some(_)] => 10,
            _ => 1,
        })
    }

    fn distinct(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        let rows = self.count(triple, graphs)?;
        Ok(match position {
            Position::Object => rows.div_ceil(10),
            _ => rows,
        })
    }

    fn sample(
        &self,
        triple: [Option<TermId>; 3],
        _: Option<(Position, &[IdRange])>,
        graphs: &GraphSet,
        most: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, StatisticsError> {
        let rows = usize::try_from(self.count(triple, graphs)?).unwrap();
        let drawn = rows.min(most);
        self.looks_up(drawn);
        let term = |number: usize| TermId::new(Kind::Iri, 1_000 + number as u64);
        let quad = |number: usize| {
            let [subject, predicate, object] = triple;
            [
                subject.unwrap_or(term(number)),
                predicate.unwrap_or(term(0)),
                object.unwrap_or(term(number / 10)),
            ]
        };
        Ok(Some((0..drawn).map(quad).collect()))
    }

    fn partners(
        &self,
        triples: &[[Option<TermId>; 3]],
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, StatisticsError> {
        self.looks_up(triples.len());
        triples
            .iter()
            .map(|triple| self.count(*triple, graphs))
            .collect()
    }

    fn quads(&self) -> u64 {
        self.rows * 10
    }
}

/// What planning looks up with so many quads of each predicate.
fn looked_up(text: &str, rows: u64, samples: Option<bool>) -> u64 {
    let statistics = Even {
        rows,
        looked_up: Cell::new(0),
    };
    let options = PlannerOptions {
        forced: ForcedChoices {
            samples,
            ..ForcedChoices::NONE
        },
        ..PlannerOptions::default()
    };
    let query = SparqlParser::new()
        .parse_query(&format!("PREFIX : <http://a/> {text}"))
        .unwrap();
    plan(&query, &options, &statistics).unwrap();
    statistics.looked_up.get()
}

/// A look-up is taken for 3 microseconds and a quarter of the time may go into it at most, of which a row takes less than half a
/// microsecond: one look-up for 24 quads that the patterns have.
#[test]
fn samples_take_a_share_of_what_is_expected() {
    const QUADS_A_LOOKUP: u64 = 24;
    // Drawn, and looked up in up to two others from either end.
    const LOOKUPS_A_PATTERN: u64 = 64 * 6;
    for (text, patterns) in [
        ("SELECT * { ?s :a ?x ; :b ?y }", 2),
        ("SELECT * { ?s :a ?x ; :b ?y ; :c ?z }", 3),
        ("SELECT * { ?s :a ?x . ?x :b ?y . ?y :c ?z . ?z :d ?w }", 4),
        ("SELECT * { ?s :a ?x ; :b ?y . ?y :c ?z FILTER(?x > 5) }", 3),
    ] {
        for rows in [
            1,
            10,
            100,
            1_000,
            10_000,
            100_000,
            10_000_000,
            1_000_000_000,
        ] {
            let all = looked_up(text, rows, None);
            assert!(
                all * QUADS_A_LOOKUP <= rows * patterns,
                "{text}: {all} of {rows}"
            );
            assert!(
                all <= LOOKUPS_A_PATTERN * patterns,
                "{text}: {all} of {rows}"
            );
        }
        assert!(
            looked_up(text, 10_000_000, None) > 8 * patterns,
            "{text} is not sampled"
        );
        assert!(
            looked_up(text, 100, Some(true)) > 8 * patterns,
            "{text} cannot be sampled"
        );
        assert_eq!(looked_up(text, 10_000_000, Some(false)), 0, "{text}");
    }
}
