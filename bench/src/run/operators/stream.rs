//! Answers that are not held in memory: their end is looked at, and their rows are counted and hashed as they come.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context as _, bail};
use oxrdf::Term;
use sha1::{Digest as _, Sha1};
use sparesults::{QueryResultsFormat, QueryResultsParser, ReaderQueryResultsParserOutput};

use crate::run::answer::number;
use crate::run::endpoint::{Endpoint, Failure};

/// Rows of an answer, in whatever order they came.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Rows {
    pub(super) count: u64,
    /// The sum of the rows' hashes.
    hash: u64,
}

impl Rows {
    fn add(&mut self, row: &str) {
        let digest = Sha1::digest(row);
        let word = digest.first_chunk::<8>().copied().unwrap_or_default();
        self.count += 1;
        self.hash = self.hash.wrapping_add(u64::from_le_bytes(word));
    }
}

/// Bytes from one thread to another.
struct Pipe {
    from: Receiver<Vec<u8>>,
    rest: io::Cursor<Vec<u8>>,
}

struct Sink(SyncSender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map_err(|_| io::Error::other("the answer is no SPARQL result in XML"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.rest.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match self.from.recv() {
                Ok(bytes) => self.rest = io::Cursor::new(bytes),
                Err(_) => return Ok(0),
            }
        }
    }
}

/// Asks for an answer of any size and gives its rows.
///
/// # Errors
/// When there is no answer, or it is no SPARQL result in XML that is whole.
pub(super) fn rows(endpoint: &Endpoint, query: &str) -> anyhow::Result<Rows> {
    let (sender, from) = sync_channel(16);
    let pipe = Pipe {
        from,
        rest: io::Cursor::default(),
    };
    std::thread::scope(|scope| {
        let parsing = scope.spawn(move || parsed(pipe));
        let mut sink = Sink(sender);
        let failure = endpoint.ask(query, Some(&mut sink)).failure;
        drop(sink);
        let rows = parsing.join();
        match failure {
            Some(Failure::TimeOut) => bail!("time-out"),
            Some(Failure::Error(message)) => bail!(message),
            None => rows.unwrap_or_else(|_| bail!("the answer could not be read")),
        }
    })
}

fn parsed(input: impl Read) -> anyhow::Result<Rows> {
    let parser = QueryResultsParser::from_format(QueryResultsFormat::Xml);
    let context = "the answer is no SPARQL result in XML";
    let mut rows = Rows::default();
    match parser.for_reader(input).context(context)? {
        ReaderQueryResultsParserOutput::Boolean(_) => bail!("a boolean, where rows were expected"),
        ReaderQueryResultsParserOutput::Solutions(solutions) => {
            let mut variables = solutions.variables().to_vec();
            variables.sort();
            for solution in solutions {
                let solution = solution.context(context)?;
                let cells = variables.iter().map(|name| written(solution.get(name)));
                rows.add(&cells.collect::<Vec<_>>().join("\t"));
            }
        }
    }
    Ok(rows)
}

/// A term as its value is: numbers by value, blank nodes alike.
fn written(term: Option<&Term>) -> String {
    match term {
        None => String::new(),
        Some(Term::BlankNode(_)) => "_:".to_owned(),
        Some(Term::Literal(literal)) => match number(literal) {
            Some(value) => format!("{:x}", value.to_bits()),
            None => literal.to_string(),
        },
        Some(term) => term.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&str]) -> anyhow::Result<Rows> {
        let rows: String = rows
            .iter()
            .map(|it| {
                format!("<result><binding name=\"a\"><literal>{it}</literal></binding></result>")
            })
            .collect();
        let text = format!(
            "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head><variable name=\"a\"/></head><results>{rows}</results></sparql>"
        );
        parsed(text.as_bytes())
    }

    #[test]
    fn rows_are_hashed_in_any_order() {
        assert_eq!(of(&["1", "2", "2"]).unwrap(), of(&["2", "1", "2"]).unwrap());
        for wrong in [&["1", "2", "3"][..], &["1", "1", "2"], &["1", "2"]] {
            assert_ne!(of(&["1", "2", "2"]).unwrap(), of(wrong).unwrap());
        }
    }
}
