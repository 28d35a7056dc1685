//! Queries as SPARQL text.

use std::fmt::Write as _;

use super::ast::{
    Duplicates, Element, Expr, Form, Group, Path, Query, Reified, Rows, Select, Slot, Triple, Var,
    name,
};

const XSD: &str = "http://www.w3.org/2001/XMLSchema#";

/// Operators that are written between their operands.
pub const INFIX: [&str; 12] = [
    "||", "&&", "=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/",
];

/// Writes a query.
#[must_use]
pub fn query(query: &Query) -> String {
    let mut out = Printer(String::new());
    match &query.form {
        Form::Select(select) => {
            out.head(select);
            out.dataset(query);
            out.tail(select);
        }
        Form::Ask(pattern) => {
            out.put("ASK ");
            out.dataset(query);
            out.group(pattern);
        }
        Form::Construct(template, pattern) => {
            out.put("CONSTRUCT { ");
            out.triples(template);
            out.put("} ");
            out.dataset(query);
            out.put("WHERE ");
            out.group(pattern);
        }
    }
    out.0.trim_end().to_owned()
}

/// Writes a group.
#[must_use]
pub fn group(group: &Group) -> String {
    let mut out = Printer(String::new());
    out.group(group);
    out.0
}

/// Writes triple patterns, each with its dot.
#[must_use]
pub fn triples(triples: &[Triple]) -> String {
    let mut out = Printer(String::new());
    out.triples(triples);
    out.0
}

/// Writes what stands in a position of a pattern.
#[must_use]
pub fn slot(slot: &Slot) -> String {
    let mut out = Printer(String::new());
    out.slot(slot);
    out.0
}

struct Printer(String);

impl Printer {
    fn put(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn var(&mut self, var: Var) {
        self.put("?");
        self.put(&name(var));
        self.put(" ");
    }

    fn dataset(&mut self, query: &Query) {
        for graph in &query.from {
            let _ = write!(self.0, "FROM {graph} ");
        }
        for graph in &query.from_named {
            let _ = write!(self.0, "FROM NAMED {graph} ");
        }
    }

    fn head(&mut self, select: &Select) {
        self.put(match select.duplicates {
            Duplicates::Kept => "SELECT ",
            Duplicates::Distinct => "SELECT DISTINCT ",
            Duplicates::Reduced => "SELECT REDUCED ",
        });
        let Some(items) = &select.items else {
            return self.put("* ");
        };
        for (expression, var) in items {
            match expression {
                None => self.var(*var),
                Some(expression) => self.named(expression, *var),
            }
        }
    }

    fn named(&mut self, expression: &Expr, var: Var) {
        self.put("(");
        self.expression(expression);
        self.put(" AS ");
        self.var(var);
        self.put(") ");
    }

    fn tail(&mut self, select: &Select) {
        self.put("WHERE ");
        self.group(&select.pattern);
        if !select.group_by.is_empty() {
            self.put("GROUP BY ");
        }
        for (key, var) in &select.group_by {
            match (key, var) {
                (Expr::Var(key), None) => self.var(*key),
                (key, Some(var)) => self.named(key, *var),
                (key, None) => self.bracketed(key),
            }
        }
        if !select.having.is_empty() {
            self.put("HAVING ");
        }
        for condition in &select.having {
            self.bracketed(condition);
        }
        if !select.order_by.is_empty() {
            self.put("ORDER BY ");
        }
        for (descending, key) in &select.order_by {
            self.put(if *descending { "DESC" } else { "ASC" });
            self.bracketed(key);
        }
        if let Some(limit) = select.limit {
            let _ = write!(self.0, "LIMIT {limit} ");
        }
        if let Some(offset) = select.offset {
            let _ = write!(self.0, "OFFSET {offset} ");
        }
        if let Some((vars, rows)) = &select.values {
            self.values(vars, rows);
        }
    }

    fn bracketed(&mut self, expression: &Expr) {
        self.put("(");
        self.expression(expression);
        self.put(") ");
    }

    fn group(&mut self, group: &Group) {
        self.put("{ ");
        for element in &group.elements {
            self.element(element);
        }
        self.put("} ");
    }

    fn element(&mut self, element: &Element) {
        match element {
            Element::Triples(triples) => self.triples(triples),
            Element::Reified(reified) => self.reified(reified),
            Element::Path(subject, path, object) => {
                self.slot(subject);
                self.path(path);
                self.put(" ");
                self.slot(object);
                self.put(". ");
            }
            Element::Filter(condition) => {
                self.put("FILTER ");
                self.bracketed(condition);
            }
            Element::Optional(inner) => {
                self.put("OPTIONAL ");
                self.group(inner);
            }
            Element::Union(branches) => {
                for (number, branch) in branches.iter().enumerate() {
                    self.put(if number > 0 { "UNION " } else { "" });
                    self.group(branch);
                }
            }
            Element::Minus(inner) => {
                self.put("MINUS ");
                self.group(inner);
            }
            Element::Graph(slot, inner) => {
                self.put("GRAPH ");
                self.slot(slot);
                self.group(inner);
            }
            Element::Bind(expression, var) => {
                self.put("BIND ");
                self.named(expression, *var);
            }
            Element::Values(vars, rows) => self.values(vars, rows),
            Element::Select(select) => {
                self.put("{ ");
                self.head(select);
                self.tail(select);
                self.put("} ");
            }
        }
    }

    fn values(&mut self, vars: &[Var], rows: &Rows) {
        self.put("VALUES ( ");
        for var in vars {
            self.var(*var);
        }
        self.put(") { ");
        for row in rows {
            self.put("( ");
            for cell in row {
                match cell {
                    Some(term) => {
                        let _ = write!(self.0, "{term} ");
                    }
                    None => self.put("UNDEF "),
                }
            }
            self.put(") ");
        }
        self.put("} ");
    }

    fn triples(&mut self, triples: &[Triple]) {
        for triple in triples {
            for slot in triple {
                self.slot(slot);
            }
            self.put(". ");
        }
    }

    fn reified(&mut self, reified: &Reified) {
        self.put(if reified.asserted { "" } else { "<< " });
        reified.triple.iter().for_each(|slot| self.slot(slot));
        self.put("~ ");
        self.slot(&reified.reifier);
        let (open, close) = match (reified.asserted, reified.about.is_empty()) {
            (true, false) => ("{| ", "|} "),
            (true, true) => ("", ""),
            (false, _) => (">> ", ""),
        };
        self.put(open);
        for (number, said) in reified.about.iter().enumerate() {
            self.put(if number > 0 { "; " } else { "" });
            said.iter().for_each(|slot| self.slot(slot));
        }
        self.put(close);
        self.put(". ");
    }

    fn path(&mut self, path: &Path) {
        let mut between = |first: &Path, sign: &str, second: &Path| {
            self.put("(");
            self.path(first);
            self.put(sign);
            self.path(second);
            self.put(")");
        };
        match path {
            Path::Iri(iri) => {
                let _ = write!(self.0, "{iri}");
            }
            Path::Sequence(first, second) => between(first, "/", second),
            Path::Alternative(first, second) => between(first, "|", second),
            Path::Inverse(inner) => {
                self.put("^");
                self.in_brackets(inner, "");
            }
            Path::ZeroOrOne(inner) => self.in_brackets(inner, "?"),
            Path::ZeroOrMore(inner) => self.in_brackets(inner, "*"),
            Path::OneOrMore(inner) => self.in_brackets(inner, "+"),
            Path::Negated(ahead, back) => {
                let ahead = ahead.iter().map(ToString::to_string);
                let back = back.iter().map(|iri| format!("^{iri}"));
                let all: Vec<String> = ahead.chain(back).collect();
                let _ = write!(self.0, "!({})", all.join("|"));
            }
        }
    }

    fn in_brackets(&mut self, path: &Path, sign: &str) {
        self.put("(");
        self.path(path);
        self.put(")");
        self.put(sign);
    }

    fn slot(&mut self, slot: &Slot) {
        match slot {
            Slot::Var(var) => self.var(*var),
            Slot::Blank(var) => {
                let _ = write!(self.0, "_:n{var} ");
            }
            Slot::Term(term) => {
                let _ = write!(self.0, "{term} ");
            }
            Slot::Triple(triple) => {
                self.put("<<( ");
                triple.iter().for_each(|slot| self.slot(slot));
                self.put(")>> ");
            }
        }
    }

    fn expression(&mut self, expression: &Expr) {
        match expression {
            Expr::Var(var) => self.put(&format!("?{}", name(*var))),
            Expr::Term(term) => self.put(&term.to_string()),
            Expr::Exists(wanted, pattern) => {
                self.put(if *wanted { "EXISTS " } else { "NOT EXISTS " });
                self.group(pattern);
            }
            Expr::Aggregate(aggregate) => {
                self.put(aggregate.function);
                self.put("(");
                self.put(if aggregate.distinct { "DISTINCT " } else { "" });
                match &aggregate.argument {
                    Some(argument) => self.expression(argument),
                    None => self.put("*"),
                }
                if let Some(separator) = &aggregate.separator {
                    let _ = write!(self.0, "; SEPARATOR=\"{separator}\"");
                }
                self.put(")");
            }
            Expr::Call(function, arguments) => self.call(function, arguments),
        }
    }

    fn call(&mut self, function: &'static str, arguments: &[Expr]) {
        match (function, arguments) {
            (infix, [left, right]) if INFIX.contains(&infix) => {
                self.bracketed(left);
                self.put(infix);
                self.put(" ");
                self.bracketed(right);
            }
            ("!" | "unary +" | "unary -", [inner]) => {
                self.put(function.trim_start_matches("unary "));
                self.bracketed(inner);
            }
            ("IN" | "NOT IN", [needle, list @ ..]) => {
                self.bracketed(needle);
                self.put(function);
                self.put(" ");
                self.list(list);
            }
            _ => {
                match function.strip_prefix("xsd:") {
                    Some(local) => self.put(&format!("<{XSD}{local}>")),
                    None => self.put(function),
                }
                self.list(arguments);
            }
        }
    }

    fn list(&mut self, arguments: &[Expr]) {
        self.put("(");
        for (number, argument) in arguments.iter().enumerate() {
            self.put(if number > 0 { ", " } else { "" });
            self.expression(argument);
        }
        self.put(")");
    }
}
