//! The second oracle: spareval over a dataset in memory, and where it is known to differ.

use std::rc::Rc;
use std::sync::LazyLock;

use anyhow::Context as _;
use oxrdf::{Dataset, GraphName, Quad};
use regex::Regex;
use spareval::{QueryEvaluator, QueryResults};
use spargebra::SparqlParser;

use super::Seen;
use crate::compare::{Answer, Solutions};
use crate::random::ast::Query;
use crate::random::print;
use stoa_planner::expression::DERIVED;

/// A legitimate difference between spareval and the specification. It excuses spareval alone: the
/// product must give the answer of the naive evaluator.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// What it is called in reports.
    pub name: &'static str,
    /// The sentence of the specification that spareval does not follow, or that leaves it free.
    pub sentence: &'static str,
    /// Whether a case may meet it.
    pub applies: fn(&Query, &Seen) -> bool,
}

/// The note of a case in which spareval panicked.
pub const PANIC: &str = "a sort without a total order";

/// The note of a case in which spareval would have had to make a triple term of what can be none.
pub const NO_TRIPLE: &str = "triple terms that cannot be";

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "casts to other types",
        sentence: "17.5 lists the casts that every engine has; spareval has no others",
        applies: |query, _| {
            let text = print::query(query);
            DERIVED
                .iter()
                .any(|datatype| text.contains(&format!("<{}>(", datatype.iri())))
        },
    },
    Difference {
        name: "regular expressions of XPath",
        sentence: "17.4.3.14: fn:matches, with its classes, blocks, back-references and flags; spareval has \
                   those of the regex crate, in which $ and the dot differ, too",
        applies: |query, _| {
            let text = print::query(query);
            text.contains("REGEX(") || text.contains("REPLACE(")
        },
    },
    Difference {
        name: "a number beyond 64 bits",
        sentence: "XPath functions and operators 3.1, 4.2: integers are unbounded where an implementation does \
                   not say otherwise; spareval holds 64 bits, and 18 digits behind the point",
        applies: |_, seen| seen.noted("a number beyond 64 bits"),
    },
    Difference {
        name: "zero divided by a decimal",
        sentence: "XPath functions and operators 3.1, 4.2.4: op:numeric-divide is an error for a divisor of \
                   zero; spareval's 0 / 1.5 is one, too",
        applies: |_, seen| seen.noted("zero divided"),
    },
    Difference {
        name: "order of booleans",
        sentence: "17.3: A < B and A > B are defined for two xsd:boolean, false before true; spareval has \
                   no order of them",
        applies: |_, seen| seen.noted("order of booleans"),
    },
    Difference {
        name: "lexical form of computed doubles",
        sentence: "XPath 3.1 does not say which lexical form a computed xsd:double has as an RDF \
                   literal; ours is canonical (\"1.0E2\"), spareval writes \"100\", and terms that \
                   differ do not join",
        applies: |_, seen| seen.computed_float.get(),
    },
    Difference {
        name: "literals lose their lexical form in expressions and triple terms",
        sentence: "17.4.2.5: STR returns the lexical form of ltrl; 17.4.1.8: sameTerm compares RDF \
                   terms. spareval turns literals into values first, so \"007\" becomes \"7\"",
        applies: |_, seen| seen.odd_literal.get(),
    },
    Difference {
        name: NO_TRIPLE,
        sentence: "18.3.1: a basic graph pattern matches where an instance of it is a subgraph; what would \
                   have a literal or triple term as a subject is in no graph, so that there is no solution. spareval ends \
                   with an error where a variable within <<( )>> is bound so",
        applies: |_, seen| seen.noted(NO_TRIPLE),
    },
    Difference {
        name: PANIC,
        sentence: "15.1: the order of other terms is not defined. The order of spareval is not \
                   transitive then: what has an order comes in another, or the sort panics",
        applies: |_, seen| seen.noted(PANIC),
    },
    Difference {
        name: "errors in aggregates",
        sentence: "18.5.1.2: N = Flatten(M), remove error elements from N, Count(M) = card[N]. \
                   spareval: COUNT is unbound if an expression other than a variable is an error",
        applies: |_, seen| seen.noted("error in an aggregate"),
    },
    Difference {
        name: "COUNT(DISTINCT *) over blank nodes of the query",
        sentence: "18.5.1.2: card[Distinct(G)] counts solutions, whose domain are variables (18.1.7); \
                   spareval counts blank nodes of the query, too",
        applies: |_, seen| seen.noted("blank node") && seen.noted("COUNT(DISTINCT *)"),
    },
    Difference {
        name: "GROUP_CONCAT of other than strings",
        sentence: "18.5.1.7 does not say how a value becomes a string; the product takes STR, spareval \
                   an error",
        applies: |_, seen| seen.noted("GROUP_CONCAT of other than strings"),
    },
    Difference {
        name: "FROM of several graphs",
        sentence: "13.2.1: the default graph is the RDF merge of the graphs, and a graph is a set; \
                   spareval finds a triple once for each graph that holds it",
        applies: |query, _| query.from.len() > 1,
    },
    Difference {
        name: "times with and without zone",
        sentence: "17.3, XPath: without an implicit time zone the order of the two is not determined \
                   within 14 hours (W3C test date-2), which is an error; spareval: not equal",
        applies: |_, seen| seen.noted("times without order"),
    },
    Difference {
        name: "EXISTS sees bindings of the patterns around its group",
        sentence: "18.6: substitute(pattern, mu) takes the mapping that the filter judges, which is \
                   one of the filter's own group; spareval hands bindings of joined groups in",
        applies: |_, seen| seen.noted("free variable in EXISTS"),
    },
    Difference {
        name: "MINUS in EXISTS",
        sentence: "18.5: Minus(O1, O2) keeps a solution of O1 whose domain is disjoint from that of a solution \
                   of O2; spareval counts what it hands into EXISTS",
        applies: |_, seen| seen.noted("MINUS in EXISTS"),
    },
    Difference {
        name: "OPTIONAL within OPTIONAL",
        sentence: "18.6: eval(D(G), LeftJoin(P1, P2, F)) evaluates P2 by itself (bottom-up); spareval \
                   hands bindings of P1 into an OPTIONAL within P2",
        applies: |_, seen| seen.noted("OPTIONAL within OPTIONAL"),
    },
    Difference {
        name: "alternatives that connect a pair twice",
        sentence: "18.4: eval(Path(X, alt(P,Q), Y)) = Union(eval(Path(X, P, Y)), eval(Path(X, Q, Y))), and \
                   Union adds cardinalities. spareval gives each pair once",
        applies: |_, seen| seen.noted("alternatives that connect a pair twice"),
    },
    Difference {
        name: "paths of no step from a term that is no node",
        sentence: "18.4: eval(Path(X:term, ZeroOrOnePath(P), Y:var)) = {(Y, X)} and more: a term that is \
                   written connects with itself whatever the graph. spareval: nodes of the graph alone",
        applies: |_, seen| seen.noted("path from no node"),
    },
    Difference {
        name: "equality of ill-typed literals",
        sentence: "17.4.1.7: RDFterm-equal produces a type error if the arguments are both literal but are \
                   not the same RDF term. spareval, in NOT IN: \"abc\"^^xsd:integer is not a date",
        applies: |_, seen| seen.noted("literals without a value"),
    },
    Difference {
        name: "IN of nothing",
        sentence: "17.4.1.9: the list of terms may be empty, and then IN is false and NOT IN true. \
                   spareval: an error",
        applies: |_, seen| seen.noted("IN of nothing"),
    },
    Difference {
        name: "GRAPH of an IRI that names no graph",
        sentence: "18.6: eval(D(G), Graph(IRI,P)) = the empty multiset if IRI is not a graph name in \
                   D. spareval evaluates what needs no triples nevertheless",
        applies: |_, seen| seen.noted("graph that does not exist"),
    },
    Difference {
        name: "GRAPH with a variable around other than triples",
        sentence: "18.6: eval(D(G), Graph(var,P)) joins each eval(D(D[i]),P) with {var->IRI i}. \
                   spareval binds the variable where triples are read: it gives solutions of paths several \
                   times, loses it where a subquery projects it away, shares it with MINUS and expressions, and gives solutions of VALUES though there is no named graph",
        applies: |_, seen| seen.noted("GRAPH with a variable around other than triples"),
    },
    Difference {
        name: "< and <= of a term with itself",
        sentence: "17.3: A < B and A <= B are defined for numbers, strings, booleans and times only, anything \
                   else is a type error. spareval compares a term that is no literal with itself",
        applies: |_, seen| seen.noted("same terms without order"),
    },
];

/// `(?v AS ?w)`. Compiling it took a quarter of a run when each case did.
static NAMED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\((\?\w+) AS (\?\w+) ?\)").expect("the pattern is right"));

/// Asks spareval.
///
/// # Errors
/// If the text is no query, or the evaluation fails.
pub fn answer(dataset: &Dataset, text: &str) -> anyhow::Result<Answer> {
    // The parser loses the name in `GROUP BY (?v AS ?w)`.
    let text = NAMED.replace_all(text, "(COALESCE($1) AS $2)");
    let query = SparqlParser::new()
        .parse_query(&text)
        .context("spargebra")?;
    Ok(
        match QueryEvaluator::new().prepare(&query).execute(dataset)? {
            QueryResults::Boolean(value) => Answer::Boolean(value),
            QueryResults::Graph(triples) => {
                let mut graph = Dataset::new();
                for triple in triples {
                    let t = triple?;
                    graph.insert(&Quad::new(
                        t.subject,
                        t.predicate,
                        t.object,
                        GraphName::DefaultGraph,
                    ));
                }
                Answer::Graph(Box::new(graph))
            }
            QueryResults::Solutions(solutions) => {
                let names: Rc<[_]> = solutions.variables().into();
                let mut rows = Vec::new();
                for solution in solutions {
                    let solution = solution?;
                    rows.push(
                        names
                            .iter()
                            .map(|name| solution.get(name).cloned())
                            .collect(),
                    );
                }
                let variables = names.iter().map(|name| name.as_str().to_owned()).collect();
                Answer::Solutions(Solutions { variables, rows })
            }
        },
    )
}
