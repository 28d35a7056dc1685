//! Turtle and TriG with damaged statements, which are left out one by one.
//!
//! A piece is parsed as a whole first, as nearly all are good. If it is not, its units are told apart,
//! and a unit is left out if it cannot be parsed on its own behind the good directives before it. So
//! what is left out depends neither on the pieces nor on threads.

use oxrdf::Quad;
use oxttl::TurtleSyntaxError;

use crate::error::Result;
use crate::load::document::move_place;
use crate::load::sink::QuadSink;
use crate::load::source::Source;
use crate::load::terms::Terms;
use crate::load::terse::scan::{Kind, Scanner, Unit};
use crate::load::terse::statements::{Graph, Piece, Start, unit_text};
use crate::load::terse::{complete, place_in, too_deep, too_deep_reason};

const NOT_CLOSED: &str = "the graph before is not closed by '}'";

/// Is told line and column, from 1, and what is wrong there.
type OnMistake<'a> = &'a mut dyn FnMut((u64, u64), String);

/// Parses a piece into a sink and returns the number of quads; what is damaged is left out.
///
/// # Errors
/// What the sink says.
pub(crate) fn parse_lenient<S: QuadSink>(
    piece: &Piece,
    text: &[u8],
    source: &Source,
    sink: &mut S,
    on_mistake: OnMistake<'_>,
) -> Result<u64> {
    let mut slow = Slow {
        text,
        source,
        sink,
        on_mistake,
        start: piece.start.clone(),
        seen: 0,
        quads: 0,
    };
    if piece.is_too_deep {
        let mut scanner = slow.scanner();
        let unit = scanner.next(text, true);
        let place = slow.place(unit.map_or(0, |unit| unit.start));
        (slow.on_mistake)(place, too_deep_reason());
        return Ok(0);
    }
    if piece.start.graph != Graph::InDamaged {
        let mut whole = text.to_vec();
        complete(&mut whole, piece.start.graph.header(), piece.ends_in_graph);
        if let Ok(quads) = collect(&piece.start, &whole)? {
            slow.hand_over(&quads)?;
            return Ok(slow.quads);
        }
    }
    slow.units()?;
    if !piece.ends_in_graph && matches!(slow.start.graph, Graph::In(_)) {
        let place = slow.place(text.len());
        (slow.on_mistake)(place, NOT_CLOSED.to_owned());
    }
    Ok(slow.quads)
}

/// All quads of a text, if there is no mistake in it.
fn collect(start: &Start, text: &[u8]) -> Result<Result<Vec<Quad>, TurtleSyntaxError>> {
    let parser = start.environment.parser(text, start.with_graphs)?;
    Ok(parser.collect())
}

/// A piece that is read unit by unit.
struct Slow<'a, S> {
    text: &'a [u8],
    source: &'a Source,
    sink: &'a mut S,
    on_mistake: OnMistake<'a>,
    /// What holds, and the place of `seen`.
    start: Start,
    seen: usize,
    quads: u64,
}

impl<S: QuadSink> Slow<'_, S> {
    fn scanner(&self) -> Scanner {
        Scanner::new(self.start.with_graphs, self.start.graph != Graph::Outside)
    }

    /// Moves to a position behind all that were asked for before, and returns its place.
    fn place(&mut self, position: usize) -> (u64, u64) {
        let between = self.text.get(self.seen..position).unwrap_or(&[]);
        move_place(&mut self.start.place, between);
        self.seen = self.seen.max(position);
        self.start.place
    }

    fn hand_over(&mut self, quads: &[Quad]) -> Result<()> {
        let mut terms = Terms::default();
        let place = self.start.place;
        for quad in quads {
            let done = terms
                .hand_over(quad, self.sink)
                .map_err(|error| self.source.refused(place.0, error))?;
            if !done {
                return Err(too_deep(self.source, place));
            }
            self.quads += 1;
        }
        Ok(())
    }

    fn units(&mut self) -> Result<()> {
        let mut scanner = self.scanner();
        // Units in the same graph that have not been parsed yet.
        let mut run = Vec::new();
        while let Some(unit) = scanner.next(self.text, true) {
            match unit.kind {
                Kind::Triples | Kind::Directive if self.start.graph == Graph::InDamaged => {}
                Kind::Triples | Kind::Directive => run.push(unit),
                Kind::Open | Kind::OpenInGraph => {
                    self.run(&run)?;
                    run.clear();
                    self.open(&unit)?;
                }
                Kind::Close => {
                    self.run(&run)?;
                    run.clear();
                    self.start.graph = Graph::Outside;
                }
            }
        }
        if scanner.start() < self.text.len() && self.start.graph != Graph::InDamaged {
            run.push(Unit {
                start: scanner.start(),
                end: self.text.len(),
                kind: Kind::Triples,
                is_too_deep: false,
            });
        }
        self.run(&run)
    }

    fn open(&mut self, unit: &Unit) -> Result<()> {
        let place = self.place(unit.start);
        if unit.kind == Kind::OpenInGraph && self.start.graph != Graph::InDamaged {
            (self.on_mistake)(place, NOT_CLOSED.to_owned());
        }
        self.start.graph = Graph::Outside;
        let text = unit_text(self.text, unit);
        if let Some(header) = self.start.environment.graph_header(text) {
            self.start.graph = Graph::In(header.text.into());
            return Ok(());
        }
        let text = [text, b"\n}"].concat();
        let (place, reason) = match collect(&self.start, &text)? {
            Err(error) => {
                let place = place_in(&text, &error, &self.start, true);
                (place, error.message().to_owned())
            }
            Ok(_) => (place, "this is no name of a graph".to_owned()),
        };
        (self.on_mistake)(place, reason);
        self.start.graph = Graph::InDamaged;
        Ok(())
    }

    /// Parses units in the same graph that follow each other.
    fn run(&mut self, units: &[Unit]) -> Result<()> {
        let mut rest = units;
        while let Some(first) = rest.first() {
            let error = match self.quads_of(rest)? {
                Ok(quads) => return self.accept(rest, &quads),
                Err(error) => error,
            };
            let header = self.start.graph.header().len();
            let offset = usize::try_from(error.location().start.offset).unwrap_or(usize::MAX);
            let offset = offset.saturating_sub(header).saturating_add(first.start);
            let bad = rest.partition_point(|unit| unit.end <= offset);
            let (good, others) = rest.split_at(bad.min(rest.len() - 1));
            match self.quads_of(good)? {
                Ok(quads) => self.accept(good, &quads)?,
                Err(_) => {
                    for unit in good {
                        self.single(unit)?;
                    }
                }
            }
            if let Some((bad, others)) = others.split_first() {
                self.single(bad)?;
                rest = others;
            }
        }
        Ok(())
    }

    fn single(&mut self, unit: &Unit) -> Result<()> {
        self.place(unit.start);
        let text = self.completed(&[*unit]);
        match collect(&self.start, &text)? {
            Ok(quads) => self.accept(&[*unit], &quads),
            Err(error) => {
                let in_graph = self.start.graph != Graph::Outside;
                let place = place_in(&text, &error, &self.start, in_graph);
                (self.on_mistake)(place, error.message().to_owned());
                Ok(())
            }
        }
    }

    /// The quads of units that follow each other.
    fn quads_of(&self, units: &[Unit]) -> Result<Result<Vec<Quad>, TurtleSyntaxError>> {
        collect(&self.start, &self.completed(units))
    }

    /// The text of units that follow each other.
    fn completed(&self, units: &[Unit]) -> Vec<u8> {
        let start = units.first().map_or(0, |unit| unit.start);
        let end = units.last().map_or(0, |unit| unit.end);
        let mut text = self.text.get(start..end).unwrap_or(&[]).to_vec();
        let in_graph = self.start.graph != Graph::Outside;
        complete(&mut text, self.start.graph.header(), in_graph);
        text
    }

    fn accept(&mut self, units: &[Unit], quads: &[Quad]) -> Result<()> {
        for unit in units.iter().filter(|unit| unit.kind == Kind::Directive) {
            self.start.environment.learn(unit_text(self.text, unit));
        }
        self.hand_over(quads)
    }
}
