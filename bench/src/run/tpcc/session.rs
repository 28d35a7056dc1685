//! What a client says to the server: queries and updates, each for itself or within a transaction of the RDF4J protocol.
//!
//! # References
//! SPARQL 1.1 Protocol; the REST API of RDF4J, "Transactions".

use std::time::Duration;

use oxrdf::Term;
use ureq::http::StatusCode;

use crate::run::answer::{Answer, Row};
use crate::run::endpoint::{
    Connection, Endpoint, Failure, Measured, UpdateForm, Updates, agent, failure, transfer,
};

/// Where the server takes queries, updates and transactions.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) updates: Updates,
    /// Of the RDF4J protocol, such as `http://127.0.0.1:7878/repositories/NAME`.
    pub(super) repository: Option<String>,
    pub(super) connection: Connection,
    pub(super) timeout: Option<Duration>,
}

/// Something that queries and updates go to.
pub(super) trait Ask {
    /// # Errors
    /// When there is no answer, or it is no table.
    fn rows(&self, query: &str) -> Result<Rows, Failure>;

    /// # Errors
    /// When it was not done, or it is not known.
    fn update(&self, text: &str) -> Result<(), Failure>;
}

/// One client's way to the server.
#[derive(Debug)]
pub(super) struct Session {
    endpoint: Endpoint,
    updates: Updates,
    repository: Option<String>,
    agent: ureq::Agent,
}

impl Session {
    pub(super) fn new(target: &Target) -> Self {
        Self {
            endpoint: Endpoint::new(&target.url, target.connection, target.timeout),
            updates: target.updates.clone(),
            repository: target.repository.clone(),
            agent: agent(target.connection, target.timeout),
        }
    }

    /// # Errors
    /// When the server begins none.
    pub(super) fn begin(&self) -> Result<Transaction<'_>, Failure> {
        let said = |message: &str| Failure::Error(message.to_owned());
        let repository = self.repository.as_deref();
        let repository = repository.ok_or_else(|| said("there is no address of a repository"))?;
        let address = format!("{repository}/transactions");
        let answer = self.agent.post(&address).send_empty();
        let answer = answer.map_err(|error| failure(&error))?;
        let header = answer.headers().get("Location");
        let location = header.and_then(|location| location.to_str().ok());
        let location = location.map(|location| absolute(repository, location));
        read(Ok(answer), |status| *status == StatusCode::CREATED, None)?;
        Ok(Transaction {
            agent: &self.agent,
            location: location.ok_or_else(|| said("a transaction has no Location"))?,
        })
    }
}

impl Ask for Session {
    fn rows(&self, query: &str) -> Result<Rows, Failure> {
        let mut body = Vec::new();
        finished(self.endpoint.ask(query, Some(&mut body)))?;
        Rows::parse(&body)
    }

    fn update(&self, text: &str) -> Result<(), Failure> {
        finished(self.endpoint.update(&self.updates, text))
    }
}

/// A transaction that was begun.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    agent: &'a ureq::Agent,
    location: String,
}

impl Transaction<'_> {
    /// # Errors
    /// When it was not done, or it is not known.
    pub(super) fn commit(self) -> Result<(), Failure> {
        let request = self.agent.put(&self.location).query("action", "COMMIT");
        let committed = read(request.send_empty(), StatusCode::is_success, None);
        if committed.is_err() {
            // One that failed stays open until it is rolled back; others have ended already.
            self.roll_back().unwrap_or_default();
        }
        committed
    }

    /// # Errors
    /// When the server does not say that it was done.
    pub(super) fn roll_back(self) -> Result<(), Failure> {
        let request = self.agent.delete(&self.location);
        read(request.call(), StatusCode::is_success, None)
    }
}

impl Ask for Transaction<'_> {
    fn rows(&self, query: &str) -> Result<Rows, Failure> {
        let request = self.agent.put(&self.location).query("action", "QUERY");
        let request = request.content_type("application/sparql-query");
        let request = request.header("Accept", "application/sparql-results+xml");
        let mut body = Vec::new();
        read(request.send(query), StatusCode::is_success, Some(&mut body))?;
        Rows::parse(&body)
    }

    fn update(&self, text: &str) -> Result<(), Failure> {
        let request = self.agent.put(&self.location).query("action", "UPDATE");
        let request = request.content_type("application/sparql-update");
        read(request.send(text), StatusCode::is_success, None)
    }
}

/// Reads an answer to its end.
fn read(
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    is_answer: fn(&StatusCode) -> bool,
    body: Option<&mut dyn std::io::Write>,
) -> Result<(), Failure> {
    transfer(answer, is_answer, body, &mut Measured::default())
}

fn finished(measured: Measured) -> Result<(), Failure> {
    measured.failure.map_or(Ok(()), Err)
}

/// A Location as a whole address: it may be a path of the same server.
fn absolute(of: &str, location: &str) -> String {
    if !location.starts_with('/') {
        return location.to_owned();
    }
    let authority = of.find("://").map_or(0, |at| at + 3);
    let path = of.get(authority..).and_then(|rest| rest.find('/'));
    let server = path.and_then(|path| of.get(..authority + path));
    format!("{}{location}", server.unwrap_or(of))
}

/// A table that was asked for.
#[derive(Debug)]
pub(super) struct Rows {
    variables: Vec<String>,
    rows: Vec<Row>,
}

/// A row of it, read by the names of variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    variables: &'a [String],
    row: &'a Row,
}

impl Rows {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        match Answer::parse(body) {
            Ok(Answer::Solutions { variables, rows }) => Ok(Self { variables, rows }),
            Ok(_) => Err(Failure::Error("the answer is no table".to_owned())),
            Err(error) => Err(Failure::Error(format!("{error:#}"))),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Named<'_>> {
        self.rows.iter().map(|row| Named {
            variables: &self.variables,
            row,
        })
    }

    /// A row, from 0.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn at(&self, number: usize, what: &str) -> Result<Named<'_>, Failure> {
        let row = self.iter().nth(number);
        row.ok_or_else(|| Failure::Error(format!("no {what} where there must be one")))
    }

    /// The only row.
    ///
    /// # Errors
    /// When there are none or several.
    pub(super) fn only(&self, what: &str) -> Result<Named<'_>, Failure> {
        let count = self.len();
        if count > 1 {
            let message = format!("{count} times {what} where there must be one");
            return Err(Failure::Error(message));
        }
        self.at(0, what)
    }
}

impl<'a> Named<'a> {
    /// # Errors
    /// When the variable is not bound.
    pub(super) fn term(self, name: &str) -> Result<&'a Term, Failure> {
        let at = self.variables.iter().position(|variable| variable == name);
        let term = at.and_then(|at| self.row.get(at)).and_then(Option::as_ref);
        term.ok_or_else(|| Failure::Error(format!("?{name} is not bound where it must be")))
    }

    /// The term as SPARQL writes it.
    pub(super) fn written(self, name: &str) -> Result<String, Failure> {
        Ok(self.term(name)?.to_string())
    }

    /// The text of a literal, the IRI of a node.
    pub(super) fn text(self, name: &str) -> Result<String, Failure> {
        Ok(match self.term(name)? {
            Term::Literal(literal) => literal.value().to_owned(),
            Term::NamedNode(node) => node.as_str().to_owned(),
            other => other.to_string(),
        })
    }

    /// A whole number that is not negative.
    pub(super) fn count(self, name: &str) -> Result<u64, Failure> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| Failure::Error(format!("?{name} is no whole number: {text}")))
    }

    /// An amount of money, in cents.
    pub(super) fn cents(self, name: &str) -> Result<i64, Failure> {
        let text = self.text(name)?;
        cents(&text).ok_or_else(|| Failure::Error(format!("?{name} is no amount of money: {text}")))
    }
}

/// Cents of a decimal as it is written; none of one that has parts of cents.
pub(super) fn cents(text: &str) -> Option<i64> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text.strip_prefix('+').unwrap_or(text), 1),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = part.trim_end_matches('0');
    let numeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if part.len() > 2 || whole.len() + part.len() == 0 || !numeric(whole) || !numeric(part) {
        // A zero may be written without any digit that counts.
        let zero = digits.contains('0') && digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
        return zero.then_some(0);
    }
    format!("{whole}{part:0<2}")
        .parse::<i64>()
        .ok()
        .map(|cents| sign * cents)
}

/// Cents as SPARQL writes a decimal.
pub(super) fn decimal(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}", crate::tpcc::money(cents.unsigned_abs()))
}

/// How updates are sent, for an address of their own or that of queries.
pub(super) fn updates(url: &str, own: Option<&str>, form: UpdateForm) -> Updates {
    Updates {
        url: own.unwrap_or(url).to_owned(),
        form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_as_engines_write_it() {
        for (text, expected) in [
            ("12.34", Some(1_234)),
            ("-10.00", Some(-1_000)),
            ("300000", Some(30_000_000)),
            ("0.5", Some(50)),
            ("+.25", Some(25)),
            ("-0.0", Some(0)),
            (".0", Some(0)),
            ("0", Some(0)),
            ("1.005", None),
            ("1.5E3", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(cents(text), expected, "{text}");
        }
        assert_eq!(decimal(-1_005), "-10.05");
        assert_eq!(
            cents(&decimal(i64::from(i32::MIN))),
            Some(i64::from(i32::MIN))
        );
    }

    #[test]
    fn a_location_may_be_a_path() {
        let of = "http://127.0.0.1:7878/repositories/a";
        let whole = "http://127.0.0.1:7878/repositories/a/transactions/1";
        assert_eq!(absolute(of, "/repositories/a/transactions/1"), whole);
        assert_eq!(absolute(of, whole), whole);
    }
}
