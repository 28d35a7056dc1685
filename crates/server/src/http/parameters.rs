//! The parameters of a SPARQL Protocol request, and what all requests do with theirs: no parameter is ignored, so one
//! that is not known is an error.
//!
//! # References
//! SPARQL 1.1 Protocol section 2.1; the URL standard's form decoding.

use std::collections::BTreeSet;

use stoa_database::oxrdf::{Term, Variable};
use stoa_database::results::ResultFormat;
use stoa_database::{Moment, MomentError};

use super::problem::Problem;
use super::rdf4j;

/// What is no longer than this is parsed in about the time of two changes of threads, as a rule.
pub(super) const SHORT_BYTES: usize = 8 << 10;

/// A query or update request, before it is parsed as SPARQL.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) query: Option<String>,
    pub(crate) update: Option<String>,
    pub(crate) default_graphs: Vec<String>,
    pub(crate) named_graphs: Vec<String>,
    /// What WHERE of an update reads.
    pub(crate) using_graphs: Vec<String>,
    pub(crate) using_named_graphs: Vec<String>,
    /// What the log says of the commit of an update.
    pub(crate) message: Option<String>,
    /// The moment whose state is asked.
    pub(crate) at: Option<Moment>,
    /// Seconds, as the client asked for.
    pub(crate) timeout: Option<f64>,
    /// What relative IRIs are relative to.
    pub(crate) base: Option<String>,
    /// Values that variables have from outside, given as `$name=`.
    pub(crate) bindings: Vec<(Variable, Term)>,
    /// A format by name, or media types as `Accept` has them; it goes before that header. Other stores call it
    /// `output` or `results`, and some clients send all of these.
    pub(crate) format: Option<String>,
    /// Whether `action` says what to do in a transaction.
    pub(crate) has_action: bool,
    /// Whether what reads without a dataset of its own reads all graphs together; by default as the server
    /// was told.
    pub(crate) default_graph_union: Option<bool>,
    /// What is wanted of a query instead of its answer.
    pub(crate) explain: Option<Explain>,
    /// Whether a query is planned though an earlier one's plan would do.
    pub(crate) fresh_plan: bool,
    /// The graph that takes what an update adds to the default graph.
    pub(crate) insert_graphs: Vec<String>,
    /// The graphs from which goes what an update removes from the default graph.
    pub(crate) remove_graphs: Vec<String>,
    /// How much was sent, in bytes.
    pub(crate) bytes: usize,
    /// The names of those that came and may come once.
    pub(super) given: BTreeSet<String>,
}

/// What is told of a query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Explain {
    /// Its plan, without running it.
    Plan,
    /// Its plan, and what the operators did when it was run.
    Analyze,
}

impl Explain {
    fn of(value: &str) -> Result<Option<Self>, Problem> {
        match value {
            "false" => Ok(None),
            "" | "true" | "plan" => Ok(Some(Self::Plan)),
            "analyze" => Ok(Some(Self::Analyze)),
            _ => Err(Problem::bad_request(
                "the parameter explain is plan or analyze",
            )),
        }
    }
}

impl Parameters {
    /// Whether the thread that has read the request may begin it: what is parsed is as short as what was sent.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes <= SHORT_BYTES
    }

    /// Adds what a query string or a form holds.
    ///
    /// # Errors
    /// A 400 if the text is not form-encoded UTF-8, if what may come once comes twice, if `timeout` is no
    /// positive number, `at` no moment, the language not SPARQL, a value of a variable no term, or a parameter not known.
    pub(crate) fn add_form(&mut self, form: &str) -> Result<(), Problem> {
        self.bytes += form.len();
        for (name, value) in pairs(form)? {
            if !SEVERAL.contains(&name.as_str()) && !self.given.insert(name.clone()) {
                return Err(given_twice(&name));
            }
            match name.as_str() {
                "query" => self.query = Some(value),
                "update" => self.update = Some(value),
                "default-graph-uri" => self.default_graphs.push(value),
                "named-graph-uri" => self.named_graphs.push(value),
                "using-graph-uri" => self.using_graphs.push(value),
                "using-named-graph-uri" => self.using_named_graphs.push(value),
                "message" => self.message = Some(value),
                "timeout" => {
                    let seconds: f64 = value.parse().unwrap_or(f64::NAN);
                    if !(seconds > 0.0 && seconds.is_finite()) {
                        return Err(Problem::bad_request(
                            "the parameter timeout is a number of seconds above 0, such as 0.5 or 30; the --timeout of \
                             the server is the most",
                        ));
                    }
                    self.timeout = Some(seconds);
                }
                "at" => self.at = Some(moment(&name, &value)?),
                "default-graph" => {
                    self.default_graph_union = Some(match value.as_str() {
                        "union" => true,
                        "unnamed" => false,
                        _ => {
                            return Err(Problem::bad_request(
                                "the parameter default-graph is unnamed or union; a graph with a name is given as \
                                 default-graph-uri",
                            ));
                        }
                    });
                }
                "explain" => self.explain = Explain::of(&value)?,
                "plan" => {
                    self.fresh_plan = match value.as_str() {
                        "fresh" => true,
                        "reused" => false,
                        _ => {
                            return Err(Problem::bad_request(
                                "the parameter plan is reused or fresh",
                            ));
                        }
                    };
                }
                "insert-graph-uri" => self.insert_graphs.push(value),
                "remove-graph-uri" => self.remove_graphs.push(value),
                "format" | "output" | "results" => self.add_format(value)?,
                "baseURI" => self.base = Some(value),
                "queryLn" if !value.eq_ignore_ascii_case("sparql") => {
                    let mut problem = Problem::bad_request("queries are in SPARQL");
                    problem.code = "query-language";
                    return Err(problem);
                }
                // Nothing is inferred here, so with and without it answers are the same.
                "queryLn" | "infer" => {}
                "action" if self.has_action => {}
                name if name.starts_with('$') => {
                    let variable =
                        Variable::new(name.trim_start_matches('$')).map_err(|error| {
                            Problem::bad_request(format!("{name} is no variable: {error}"))
                        })?;
                    self.bindings.push((variable, rdf4j::term(name, &value)?));
                }
                name => return Err(unknown(name, KNOWN)),
            }
        }
        Ok(())
    }

    /// Takes one of the names of `format`. SPARQLWrapper sends a short name under one of them and media types under
    /// another; the short name counts if it is known.
    fn add_format(&mut self, value: String) -> Result<(), Problem> {
        let Some(format) = &self.format else {
            self.format = Some(value);
            return Ok(());
        };
        let known = ResultFormat::from_name(format);
        let is_same =
            *format == value || known.is_some() && known == ResultFormat::from_name(&value);
        if !is_same && format.contains('/') == value.contains('/') {
            return Err(Problem::bad_request(format!(
                "the request asks for the format {format} and for {value}; format, output and results mean the same"
            )));
        }
        if known.is_none() {
            self.format = Some(value);
        }
        Ok(())
    }

    /// Refuses what only updates have.
    ///
    /// # Errors
    /// A 400 that names the parameter.
    pub(crate) fn check_query(&self) -> Result<(), Problem> {
        refuse(
            "a query",
            &[
                ("using-graph-uri", !self.using_graphs.is_empty()),
                ("using-named-graph-uri", !self.using_named_graphs.is_empty()),
                ("insert-graph-uri", !self.insert_graphs.is_empty()),
                ("remove-graph-uri", !self.remove_graphs.is_empty()),
                ("message", self.message.is_some()),
            ],
        )
    }

    /// Refuses what only queries have.
    ///
    /// # Errors
    /// A 400 that names the parameter.
    pub(crate) fn check_update(&self) -> Result<(), Problem> {
        let graphs = [
            ("default-graph-uri", &self.default_graphs),
            ("named-graph-uri", &self.named_graphs),
        ];
        if let Some((name, _)) = graphs.iter().find(|(_, given)| !given.is_empty()) {
            return Err(Problem::bad_request(format!(
                "the parameter {name} does not go with an update; what WHERE reads is given as using-graph-uri and \
                 using-named-graph-uri"
            )));
        }
        refuse(
            "an update",
            &[
                ("query", self.query.is_some()),
                ("explain", self.explain.is_some()),
                ("plan", self.fresh_plan),
            ],
        )
    }
}

fn refuse(what: &str, given: &[(&str, bool)]) -> Result<(), Problem> {
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => Err(Problem::bad_request(format!(
            "the parameter {name} does not go with {what}"
        ))),
    }
}

/// The parameters that may be given several times; a format only if it is the same.
const SEVERAL: [&str; 9] = [
    "default-graph-uri",
    "named-graph-uri",
    "using-graph-uri",
    "using-named-graph-uri",
    "insert-graph-uri",
    "remove-graph-uri",
    "format",
    "output",
    "results",
];

/// The parameters that are known, for messages.
const KNOWN: &str = "a query takes query, default-graph-uri, named-graph-uri, default-graph, format (or output, results), \
     timeout, at, explain, plan, baseURI, queryLn, infer and $NAME; an update takes update, using-graph-uri, \
     using-named-graph-uri, insert-graph-uri, remove-graph-uri, default-graph, timeout, message, baseURI, queryLn, infer \
     and $NAME";

/// What is said of a parameter that is not known; `known` says which are.
pub(super) fn unknown(name: &str, known: &str) -> Problem {
    let mut problem =
        Problem::bad_request(format!("the parameter '{name}' is not known here: {known}"));
    problem.code = "unknown-parameter";
    problem
}

/// Refuses all parameters.
///
/// # Errors
/// A 400 if there is one.
pub(super) fn refuse_all(query: &str) -> Result<(), Problem> {
    match pairs(query)?.first() {
        None => Ok(()),
        Some((name, _)) => Err(unknown(name, "this address takes none")),
    }
}

/// A moment that a parameter names.
///
/// # Errors
/// A 400 if it is none.
pub(super) fn moment(name: &str, value: &str) -> Result<Moment, Problem> {
    value.parse().map_err(|error: MomentError| {
        Problem::bad_request(format!("the parameter {name}: {error}"))
    })
}

/// Refuses a parameter that is given twice, which would leave one of its values without effect.
///
/// # Errors
/// A 400 unless it is one of those that may be given several times.
pub(super) fn check_once(pairs: &[(String, String)], several: &[&str]) -> Result<(), Problem> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    names.retain(|name| !several.contains(name));
    names.sort_unstable();
    let twice = names.windows(2).find(|two| two.first() == two.last());
    match twice.and_then(<[_]>::first) {
        None => Ok(()),
        Some(name) => Err(given_twice(name)),
    }
}

fn given_twice(name: &str) -> Problem {
    Problem::bad_request(format!("the parameter {name} is given twice"))
}

/// The decoded names and values of a query string or a form, in their order.
///
/// # Errors
/// A 400 if the text is not form-encoded UTF-8.
pub(super) fn pairs(form: &str) -> Result<Vec<(String, String)>, Problem> {
    form.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// The media type in lower case, and the charset if one is named.
pub(super) fn split_content_type(content_type: &str) -> (String, Option<&str>) {
    let media_type = content_type.split(';').next().unwrap_or("");
    let charset = parameter_of(content_type, "charset");
    (media_type.trim().to_ascii_lowercase(), charset)
}

/// A parameter of a media type, without quotes.
pub(super) fn parameter_of<'a>(content_type: &'a str, wanted: &str) -> Option<&'a str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case(wanted)
            .then(|| value.trim().trim_matches('"'))
    })
}

/// Undoes `application/x-www-form-urlencoded`.
fn decode(text: &str) -> Result<String, Problem> {
    decoded(text, true)
}

/// Undoes the encoding of a part of an address.
///
/// # Errors
/// A 400 if the text is not encoded UTF-8.
pub(super) fn percent_decoded(text: &str) -> Result<String, Problem> {
    decoded(text, false)
}

fn decoded(text: &str, plus_is_space: bool) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = rest.next().and_then(hex).zip(rest.next().and_then(hex));
                let (high, low) = digits.ok_or_else(|| {
                    Problem::bad_request("a % in the request is not followed by two hex digits")
                })?;
                bytes.push(high * 16 + low);
            }
            b'+' if plus_is_space => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| Problem::bad_request("a parameter of the request is not UTF-8"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::Parameters;

    #[test]
    fn decodes_a_form() {
        let mut parameters = Parameters::default();
        parameters
            .add_form(
                "query=SELECT+%2A%20%7B%7D&default-graph-uri=http%3A%2F%2Fa&timeout=1.5&message=%C3%A9",
            )
            .unwrap();
        assert_eq!(parameters.message.as_deref(), Some("\u{e9}"));
        assert_eq!(parameters.query.as_deref(), Some("SELECT * {}"));
        assert_eq!(parameters.default_graphs, ["http://a"]);
        assert_eq!(parameters.timeout, Some(1.5));
    }

    #[test]
    fn bindings_are_terms() {
        let mut parameters = Parameters::default();
        let form = "%24x=%22a%22%40en&$y=%3Chttp%3A%2F%2Fa%2F%3E&queryLn=SPARQL&baseURI=http://b/";
        parameters.add_form(form).unwrap();
        let bindings: Vec<String> = parameters
            .bindings
            .iter()
            .map(|(variable, value)| format!("{variable} {value}"))
            .collect();
        assert_eq!(bindings, ["?x \"a\"@en", "?y <http://a/>"]);
        assert_eq!(parameters.base.as_deref(), Some("http://b/"));
    }

    #[test]
    fn formats_have_several_names() {
        for form in [
            "format=csv",
            "output=csv",
            "results=csv&format=csv&output=csv",
        ] {
            let mut parameters = Parameters::default();
            parameters.add_form(form).unwrap();
            assert_eq!(parameters.format.as_deref(), Some("csv"), "{form}");
        }
        let mut parameters = Parameters::default();
        let same = "format=tsv&output=text/tab-separated-values";
        assert!(parameters.add_form(same).is_ok());
        assert!(parameters.add_form("results=csv").is_err());
        let mut parameters = Parameters::default();
        let list = "format=json-ld&output=application/ld%2Bjson,application/x-json%2Bld";
        assert!(parameters.add_form(list).is_ok());
        assert_eq!(parameters.format.as_deref(), Some("json-ld"));
    }

    #[test]
    fn queries_and_updates_have_parameters_of_their_own() {
        for (form, for_query, for_update) in [
            ("timeout=1&default-graph=union&infer=true", true, true),
            ("default-graph-uri=http://a", true, false),
            ("explain", true, false),
            ("plan=fresh", true, false),
            ("using-graph-uri=http://a", false, true),
            ("message=a", false, true),
        ] {
            let mut parameters = Parameters::default();
            parameters.add_form(form).unwrap();
            assert_eq!(parameters.check_query().is_ok(), for_query, "{form}");
            assert_eq!(parameters.check_update().is_ok(), for_update, "{form}");
        }
    }

    #[test]
    fn refuses_what_is_malformed() {
        for form in [
            "queryLn=SeRQL",
            "$x=a",
            "$=%22a%22",
            "query=a&query=b",
            "update=a&update=a",
            "timeout=1&timeout=2",
            "$x=%22a%22&$x=%22b%22",
            "query=%G0",
            "query=%C3",
            "timeout=0",
            "timeout=nan",
            "at=now",
            "default-graph=all",
            "query=%1",
            "x=1",
            "Query=a",
            "action=QUERY",
            "format=json&output=xml",
        ] {
            assert!(Parameters::default().add_form(form).is_err(), "{form}");
        }
    }
}
