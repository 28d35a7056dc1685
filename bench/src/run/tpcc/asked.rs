//! What the transactions ask, without anything being changed: for looking at the plans.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::inputs::{Kind, Terminal};
use super::session::{Ask, Rows, Session, Target, updates};
use super::{by_update, interactive, told, validate};
use crate::bsbm::random::{Random, Stream};
use crate::run::drawn::{Template, without_repeats};
use crate::run::endpoint::{Connection, Failure, UpdateForm};
use crate::run::updates::wheres;
use crate::tpcc::Scale;
use crate::tpcc::laws::Constants;

/// The benchmark's name.
const SET: &str = "tpcc-rdf";
/// When everything happens.
const TIME: &str = "2026-01-01T00:00:00Z";

/// For each of the five transactions the queries of the first one of so many clients, as SPARQL Update and as a transaction of
/// the RDF4J protocol, and the patterns of its updates as queries; those that are equal once. Of a delivery one district.
///
/// # Errors
/// When the data of `url` are others, or a query has no answer.
pub(in crate::run) fn queries(
    url: &str,
    scale: Scale,
    (seed, clients): (u64, u64),
    timeout: Duration,
) -> anyhow::Result<Vec<Template>> {
    let session = Session::new(&Target {
        url: url.to_owned(),
        updates: updates(url, None, UpdateForm::Body),
        repository: None,
        connection: Connection::Keep,
        timeout: Some(timeout),
    });
    validate(&session, scale)?;
    let constants = Constants::of_a_run(&mut Random::new(seed, Stream::Terminal, 0));
    let mut templates: Vec<Template> = Vec::new();
    for (_, name, _) in Kind::ALL {
        templates.push(Template {
            set: SET.to_owned(),
            name: format!("{SET}/{name}"),
            queries: Vec::new(),
        });
    }
    for client in 0..clients {
        let mut terminal = Terminal::new(scale, constants, "estimates", client, seed);
        for ((kind, name, _), template) in Kind::ALL.iter().zip(&mut templates) {
            let input = loop {
                let (drawn, input) = terminal.next(TIME);
                if drawn == *kind {
                    break input;
                }
            };
            let parts = input.parts();
            let part = usize::try_from(client)? % parts.len().max(1);
            let part = parts.get(part).context("a transaction has no parts")?;
            let noted = Noting {
                session: &session,
                queries: RefCell::default(),
            };
            let ran = by_update::perform(&noted, part);
            let ran = ran.and_then(|_| interactive::within(&noted, part));
            if let Err(failure) = ran {
                bail!("{name}: {}", told(&failure));
            }
            template.queries.extend(noted.queries.into_inner());
        }
    }
    for template in &mut templates {
        without_repeats(&mut template.queries);
    }
    Ok(templates)
}

/// Asks, and notes what was asked; of updates their patterns, and does not send them.
struct Noting<'a> {
    session: &'a Session,
    queries: RefCell<Vec<String>>,
}

impl Ask for Noting<'_> {
    fn rows(&self, query: &str) -> Result<Rows, Failure> {
        self.queries.borrow_mut().push(query.to_owned());
        self.session.rows(query)
    }

    fn update(&self, text: &str) -> Result<(), Failure> {
        let queries = wheres(text).map_err(|error| Failure::Error(format!("{error:#}")))?;
        self.queries.borrow_mut().extend(queries);
        Ok(())
    }
}
