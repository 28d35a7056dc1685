//! EXPLAIN: a plan as a tree of text, one operator a line, inputs indented below it.

use std::fmt::{self, Write};

use hashbrown::HashSet;
use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNodeRef, Term};
use rapidhash::fast::RandomState;
use stoa_terms::{GraphSet, IdRange, Permutation, TermId, inline};

use crate::Reading;
use crate::cardinality::{float, scanned};
use crate::expression::{Aggregate, AggregateFunction, ArithmeticOperator, Comparison, Expression};
use crate::logical::{path_variables, pattern_variables};
use crate::physical::{
    JoinKind, Operator, PathPattern, PathStart, PathStep, PatternTerm, Plan, PredicateSet,
    QuadPattern, QueryForm, QueryPlan, ServiceEndpoint, SortKey, Switch, Variable,
};
use crate::query::is_made_up;

/// Of a longer list of ranges the first ones are told.
const RANGES_TOLD: usize = 16;

/// What a query gives, and its operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The form of the query with its variables, such as `select ?a ?b`.
    pub form: String,
    /// The operators, each before its inputs, the left one first.
    pub operators: Vec<ExplainedOperator>,
}

/// An operator of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedOperator {
    /// How many stand above it.
    pub depth: usize,
    /// Its name and arguments; what it gives, if it leaves variables of its inputs or its pattern out.
    pub text: String,
    /// How many rows the planner expects.
    pub estimated_rows: f64,
    /// The variables, with `?`, that its solutions are sorted by.
    pub sorted_by: Vec<String>,
    /// The number of the common subplan that it reads.
    pub subplan: Option<usize>,
}

/// How the terms of a plan are told.
pub struct Names<'a> {
    /// The term behind the id of a constant of the query; where it gives none, the id is told.
    pub term: &'a dyn Fn(TermId) -> Option<Term>,
    /// An IRI as a prefixed name; where it gives none, the IRI is told whole.
    pub name: &'a dyn Fn(&str) -> Option<String>,
}

impl Names<'static> {
    /// Ids of the dictionary as they are, and whole IRIs.
    pub const NONE: Self = Self {
        term: &|_| None,
        name: &|_| None,
    };
}

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

/// Explains a plan.
#[must_use]
pub fn explain(plan: &QueryPlan, terms: &Names<'_>) -> Explanation {
    let mut known = HashSet::with_hasher(RandomState::new());
    let names = plan.variable_names.iter();
    let again = names.map(|name| !name.is_empty() && !known.insert(name.as_str()));
    let mut printer = Printer {
        names: &plan.variable_names,
        again: again.collect(),
        readings: &plan.readings,
        terms,
        text: String::new(),
    };
    printer.form(&plan.form);
    let form = std::mem::take(&mut printer.text);
    let mut operators = Vec::new();
    // Without recursion, since plans may be deep.
    let mut stack = vec![(&plan.root, 0)];
    while let Some((plan, depth)) = stack.pop() {
        printer.operator(plan);
        if leaves_out(plan) {
            printer.text.push_str(" gives");
            match plan.columns.as_slice() {
                [] => printer.text.push_str(" nothing"),
                columns => printer.list(" ", columns),
            }
        }
        let text = std::mem::take(&mut printer.text);
        let sorted_by = plan.sorted_by.iter().map(|variable| {
            printer.list("", &[*variable]);
            std::mem::take(&mut printer.text)
        });
        operators.push(ExplainedOperator {
            depth,
            text,
            estimated_rows: plan.estimated_rows,
            sorted_by: sorted_by.collect(),
            subplan: match &plan.operator {
                Operator::CommonSubplan { number, .. } => Some(*number),
                _ => None,
            },
        });
        let inputs = plan.inputs();
        stack.extend(inputs.into_iter().rev().map(|input| (input, depth + 1)));
    }
    Explanation { form, operators }
}

/// A tree of text: each operator in a line of its own with its arguments and expected rows.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.form)?;
        self.operators
            .iter()
            .try_for_each(|operator| writeln!(f, "{operator}"))
    }
}

/// Its line in the tree.
impl fmt::Display for ExplainedOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for _ in 0..(self.depth + 1).min(60) {
            f.write_str("  ")?;
        }
        write!(f, "{}  rows={}", self.text, rounded(self.estimated_rows))?;
        if !self.sorted_by.is_empty() {
            write!(f, " sorted {}", self.sorted_by.join(" "))?;
        }
        Ok(())
    }
}

/// Whether an operator that reads, joins or tests does not give all variables of its pattern and its inputs.
fn leaves_out(plan: &Plan) -> bool {
    let is_given = |variable: Variable| plan.columns.contains(&variable);
    let gives = |input: &Plan| input.columns.iter().copied().all(is_given);
    let gives_pattern = |pattern: &QuadPattern| pattern_variables(pattern).all(is_given);
    let is_test = |kind: &JoinKind| !matches!(kind, JoinKind::Inner | JoinKind::Left { .. });
    let gives_all = match &plan.operator {
        Operator::IndexScan { pattern, .. } => gives_pattern(pattern),
        Operator::LeapfrogJoin { patterns, .. } => {
            patterns.iter().all(|read| gives_pattern(&read.pattern))
        }
        Operator::IndexNestedLoopJoin {
            input,
            pattern,
            kind,
            count,
            ..
        } => gives(input) && (is_test(kind) || count.is_some() || gives_pattern(pattern)),
        Operator::MergeJoin {
            left, right, kind, ..
        }
        | Operator::HashJoin {
            left, right, kind, ..
        }
        | Operator::Apply {
            input: left,
            inner: right,
            kind,
            ..
        } => gives(left) && (is_test(kind) || gives(right)),
        Operator::ParameterizedJoin { input, inner, .. } => gives(input) && gives(inner),
        Operator::PathSearch { input, pattern, .. } => {
            input.as_deref().is_none_or(gives) && path_variables(pattern).all(is_given)
        }
        Operator::Filter { input, .. } => gives(input),
        _ => true,
    };
    !gives_all
}

struct Printer<'a> {
    names: &'a [String],
    /// Whether an earlier variable is called so, in another scope.
    again: Vec<bool>,
    readings: &'a [(Permutation, Vec<TermId>, GraphSet, Reading)],
    terms: &'a Names<'a>,
    text: String,
}

impl<'a> Printer<'a> {
    fn form(&mut self, form: &QueryForm) {
        match form {
            QueryForm::Select(variables) => {
                self.text.push_str("select");
                self.list(" ", variables);
            }
            QueryForm::Ask => self.text.push_str("ask"),
            QueryForm::Construct(template) => {
                self.put(format_args!("construct {} triples", template.len()));
            }
            QueryForm::Describe {
                variables,
                constants,
            } => {
                self.text.push_str("describe");
                self.list(" ", variables);
                for constant in constants {
                    self.text.push(' ');
                    self.term(&constant.term);
                }
            }
        }
    }

    fn put(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(arguments);
    }

    #[expect(clippy::too_many_lines, reason = "one match over all operators")]
    fn operator(&mut self, plan: &Plan) {
        match &plan.operator {
            Operator::Unit => self.text.push_str("unit"),
            Operator::Empty => self.text.push_str("empty"),
            Operator::Values(rows) => {
                self.put(format_args!("values {} x", rows.len()));
                self.list(" ", &plan.columns);
            }
            Operator::OuterBindings => {
                self.text.push_str("outer_bindings");
                self.list(" ", &plan.columns);
            }
            Operator::IndexScan {
                pattern,
                permutation,
                prefix_length,
                ranges,
            } => {
                self.text.push_str("index_scan ");
                self.read(pattern, *permutation, *prefix_length);
                self.ranges(ranges);
            }
            Operator::IndexGroups {
                pattern,
                permutation,
                prefix_length,
                ranges,
                key,
                counts,
            } => {
                self.text.push_str("index_groups");
                self.list(" ", key.as_slice());
                for count in counts {
                    self.list(" ", &[*count]);
                    self.text.push_str("=count(*)");
                }
                self.text.push_str(" of ");
                self.read(pattern, *permutation, *prefix_length);
                self.ranges(ranges);
            }
            Operator::LeapfrogJoin {
                variables,
                patterns,
            } => {
                self.text.push_str("leapfrog_join");
                for one in variables {
                    self.list(" ", &[one.variable]);
                    self.ranges(&one.ranges);
                }
                for (number, read) in patterns.iter().enumerate() {
                    self.text.push_str(if number == 0 { " of " } else { ", " });
                    self.read(&read.pattern, read.permutation, read.prefix_length);
                }
            }
            Operator::GraphScan { graphs } => {
                self.text.push_str("graph_scan");
                self.list(" ", &plan.columns);
                self.graphs(graphs);
            }
            Operator::IndexNestedLoopJoin {
                pattern,
                permutation,
                key_length,
                kind,
                switch,
                count,
                ..
            } => {
                self.text.push_str("index_nested_loop_join");
                self.kind(kind);
                if let Some(count) = count {
                    self.list(" ", &[*count]);
                    self.text.push_str("=count(*) of");
                }
                self.put(format_args!(" {}/{key_length} ", permutation.name()));
                self.pattern(pattern);
                if let Some(switch) = switch {
                    self.switch(switch);
                }
            }
            Operator::PathSearch {
                pattern,
                start,
                checked,
                ..
            } => {
                self.text.push_str(match start {
                    PathStart::Subject => "path_search from subject ",
                    PathStart::Object => "path_search from object ",
                    PathStart::Both => "path_search from both ",
                });
                self.path(pattern);
                if *checked {
                    self.text.push_str(" of nodes");
                }
            }
            Operator::Service { input, call } => {
                self.text.push_str("service");
                if call.silent {
                    self.text.push_str(" silent");
                }
                match &call.endpoint {
                    ServiceEndpoint::Constant(iri) => self.put(format_args!(" {iri}")),
                    ServiceEndpoint::Variable(variable) => self.list(" ", &[*variable]),
                }
                let variables = call.variables.iter().map(|(variable, _)| *variable);
                let (sent, new): (Vec<_>, Vec<_>) =
                    variables.partition(|variable| input.columns.contains(variable));
                self.text
                    .push_str(if sent.is_empty() { "" } else { " for" });
                self.list(" ", &sent);
                self.text
                    .push_str(if new.is_empty() { "" } else { " gives" });
                self.list(" ", &new);
                self.put(format_args!(" {{ {} }}", call.pattern));
            }
            Operator::Apply { outer, kind, .. } => {
                self.text.push_str("apply");
                self.kind(kind);
                self.list(" ", outer);
            }
            Operator::ParameterizedJoin { parameters, .. } => {
                self.text.push_str("parameterized_join");
                self.list(" ", parameters);
            }
            Operator::MergeJoin { key, kind, .. } => {
                self.text.push_str("merge_join");
                self.kind(kind);
                self.list(" ", &[*key]);
            }
            Operator::HashJoin {
                keys,
                compatible,
                kind,
                ..
            } => {
                self.text.push_str("hash_join");
                self.kind(kind);
                self.list(" ", keys);
                self.list(" ~", compatible);
                if keys.is_empty() && compatible.is_empty() {
                    self.text.push_str(" all");
                }
            }
            Operator::Filter { condition, .. } => {
                self.text.push_str("filter ");
                self.expression(condition);
            }
            Operator::Extend {
                variable,
                expression,
                ..
            } => {
                self.text.push_str("extend");
                self.list(" ", &[*variable]);
                self.text.push_str(" = ");
                self.expression(expression);
            }
            Operator::Union(_) => self.text.push_str("union"),
            Operator::HashAggregate {
                keys, aggregates, ..
            } => {
                self.text.push_str("hash_aggregate");
                self.list(" ", keys);
                for aggregate in aggregates {
                    self.aggregate(aggregate);
                }
            }
            Operator::AggregateDifference {
                keys, aggregates, ..
            } => {
                self.text.push_str("aggregate_difference");
                self.list(" ", keys);
                for aggregate in aggregates {
                    self.aggregate(aggregate);
                }
            }
            Operator::Distinct(_) => self.text.push_str("distinct"),
            Operator::SkipDistinct(_) => self.text.push_str("skip_distinct"),
            Operator::Reduced(_) => self.text.push_str("reduced"),
            Operator::Sort { keys, .. } => {
                self.text.push_str("sort");
                self.keys(keys);
            }
            Operator::TopK { keys, limit, .. } => {
                self.put(format_args!("top_k {limit}"));
                self.keys(keys);
            }
            Operator::RangeSort { keys, limit, .. } => {
                self.text.push_str("range_sort");
                if let Some(limit) = limit {
                    self.put(format_args!(" {limit}"));
                }
                self.keys(keys);
            }
            Operator::Slice {
                by, offset, limit, ..
            } => {
                self.text.push_str("slice");
                if !by.is_empty() {
                    self.list(" by ", by);
                }
                if *offset > 0 {
                    self.put(format_args!(" offset {offset}"));
                }
                if let Some(limit) = limit {
                    self.put(format_args!(" limit {limit}"));
                }
            }
            Operator::Project(_) => {
                self.text.push_str("project");
                self.list(" ", &plan.columns);
            }
            Operator::CommonSubplan {
                number,
                readers,
                input,
                ..
            } => {
                self.put(format_args!("common_subplan {number}"));
                self.list(" ", &plan.columns);
                match input {
                    Some(_) => self.put(format_args!(" for {readers} readers")),
                    None => self.text.push_str(" again"),
                }
            }
        }
    }

    fn switch(&mut self, switch: &Switch) {
        let name = switch.permutation.name();
        self.put(format_args!(
            ", switches to {name}/{}",
            switch.prefix_length
        ));
        self.ranges(&switch.ranges);
        let after_rows = rounded(float(switch.after_rows));
        self.put(format_args!(" after {after_rows} rows"));
    }

    fn kind(&mut self, kind: &JoinKind) {
        match kind {
            JoinKind::Inner => {}
            JoinKind::Left { condition: None } => self.text.push_str(" left"),
            JoinKind::Left {
                condition: Some(condition),
            } => {
                self.text.push_str(" left if ");
                self.expression(condition);
                self.text.push_str(" on");
            }
            JoinKind::Semi => self.text.push_str(" semi"),
            JoinKind::Anti => self.text.push_str(" anti"),
            JoinKind::Minus { .. } => self.text.push_str(" minus"),
            JoinKind::Mark(mark) => {
                self.text.push_str(" mark");
                self.list(" ", &[*mark]);
                self.text.push_str(" on");
            }
        }
    }

    fn keys(&mut self, keys: &[SortKey]) {
        for key in keys {
            self.text.push(' ');
            if key.descending {
                self.text.push_str("desc ");
            }
            self.expression(&key.expression);
        }
    }

    fn aggregate(&mut self, aggregate: &Aggregate) {
        let name = match &aggregate.function {
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Avg => "avg",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
            AggregateFunction::Sample => "sample",
            AggregateFunction::GroupConcat(_) => "group_concat",
        };
        self.list(" ", &[aggregate.output]);
        self.put(format_args!("={name}("));
        if aggregate.distinct {
            self.text.push_str("distinct ");
        }
        match &aggregate.argument {
            Some(argument) => self.expression(argument),
            None => self.text.push('*'),
        }
        self.text.push(')');
    }

    fn pattern(&mut self, pattern: &QuadPattern) {
        for (position, term) in pattern.triple.iter().enumerate() {
            if position > 0 {
                self.text.push(' ');
            }
            self.place(*term);
        }
        if let Some(graph) = pattern.graph_variable {
            self.list(" graph ", &[graph]);
        }
        self.graphs(&pattern.graphs);
    }

    /// A pattern, and the sort order that it is read in.
    fn read(&mut self, pattern: &QuadPattern, permutation: Permutation, prefix_length: usize) {
        self.put(format_args!("{}/{prefix_length} ", permutation.name()));
        let scanned = scanned(pattern, permutation, prefix_length);
        let known = self
            .readings
            .iter()
            .find(|(permutation, prefix, graphs, _)| {
                (permutation, prefix, graphs) == (&scanned.0, &scanned.1, &scanned.2)
            });
        match known.map(|(.., reading)| *reading) {
            Some(Reading::Stored(tree)) => self.put(format_args!("in {tree} ")),
            Some(Reading::Composed(trees)) => self.put(format_args!("by {trees} ")),
            Some(Reading::Filtered(tree)) => self.put(format_args!("filtering {tree} ")),
            None => {}
        }
        self.pattern(pattern);
    }

    fn place(&mut self, term: PatternTerm) {
        match term {
            PatternTerm::Constant(id) => self.id(id),
            PatternTerm::Variable(variable) => self.list("", &[variable]),
        }
    }

    fn path(&mut self, pattern: &PathPattern) {
        self.place(pattern.subject);
        self.text.push(' ');
        self.repeated(&pattern.step, pattern.zero, pattern.repeats);
        self.text.push(' ');
        self.place(pattern.object);
        if let Some(graph) = pattern.graph_variable {
            self.list(" graph ", &[graph]);
        }
        self.graphs(&pattern.graphs);
    }

    fn repeated(&mut self, step: &PathStep, zero: bool, repeats: bool) {
        self.step(step);
        self.text.push(match (zero, repeats) {
            (true, true) => '*',
            (true, false) => '?',
            (false, _) => '+',
        });
    }

    fn step(&mut self, step: &PathStep) {
        let (between, parts) = match step {
            PathStep::Edge {
                predicates,
                inverse,
            } => return self.edge(predicates, *inverse),
            PathStep::Closure {
                step,
                zero,
                repeats,
            } => return self.repeated(step, *zero, *repeats),
            PathStep::Sequence(parts) => ('/', parts),
            PathStep::Alternative(parts) => ('|', parts),
        };
        self.text.push('(');
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                self.text.push(between);
            }
            self.step(part);
        }
        self.text.push(')');
    }

    fn edge(&mut self, predicates: &PredicateSet, inverse: bool) {
        let (sign, ids) = match predicates {
            PredicateSet::Of(ids) => ("", ids),
            PredicateSet::AllBut(ids) => ("!", ids),
        };
        self.text.push_str(sign);
        let alone = ids.len() == 1;
        if !alone {
            self.text.push('(');
        }
        for (number, id) in ids.iter().enumerate() {
            if number > 0 {
                self.text.push('|');
            }
            if inverse {
                self.text.push('^');
            }
            self.id(*id);
        }
        if !alone {
            self.text.push(')');
        }
        if inverse && ids.is_empty() {
            self.text.push('^');
        }
    }

    fn graphs(&mut self, graphs: &GraphSet) {
        match graphs {
            GraphSet::Default => {}
            GraphSet::One(graph) => {
                self.text.push_str(" in ");
                self.id(*graph);
            }
            GraphSet::Some(graphs) => self.put(format_args!(" in {} graphs", graphs.len())),
            GraphSet::All => self.text.push_str(" in all graphs"),
            GraphSet::Named => self.text.push_str(" in named graphs"),
            GraphSet::AllBut(graphs) => {
                self.put(format_args!(" in all graphs but {}", graphs.len()));
            }
        }
    }

    fn ranges(&mut self, ranges: &[IdRange]) {
        if ranges.is_empty() {
            return;
        }
        self.text.push_str(" in");
        for (number, range) in ranges.iter().take(RANGES_TOLD).enumerate() {
            self.text.push_str(if number > 0 { ", " } else { " " });
            self.end(range.first);
            if range.first != range.last {
                self.text.push_str("..");
                self.end(range.last);
            }
        }
        if ranges.len() > RANGES_TOLD {
            self.put(format_args!(" and {} more", ranges.len() - RANGES_TOLD));
        }
    }

    /// A constant of the query.
    fn id(&mut self, id: TermId) {
        let term = (!id.is_inline()).then(|| (self.terms.term)(id));
        match term.flatten() {
            Some(term) => self.term(&term),
            None => self.end(id),
        }
    }

    /// The end of a range. What it is in the dictionary is not told: that may be any text of the data, of any length.
    fn end(&mut self, id: TermId) {
        match inline::decode(id) {
            Some(literal) => self.literal(&literal),
            None => self.put(format_args!("{id:?}")),
        }
    }

    fn list(&mut self, before: &str, variables: &[Variable]) {
        for variable in variables {
            self.text.push_str(before);
            let index = usize::try_from(variable.0).unwrap_or(usize::MAX);
            match self.names.get(index) {
                Some(name) if !name.is_empty() && !is_made_up(name) => {
                    self.put(format_args!("?{name}"));
                    if self.again.get(index) == Some(&true) {
                        self.put(format_args!("'{}", variable.0));
                    }
                }
                _ => self.put(format_args!("?_{}", variable.0)),
            }
        }
    }

    fn term(&mut self, term: &Term) {
        match term {
            Term::NamedNode(iri) => self.iri(iri.as_ref()),
            Term::Literal(literal) => self.literal(literal),
            Term::BlankNode(_) | Term::Triple(_) => self.put(format_args!("{term}")),
        }
    }

    fn literal(&mut self, literal: &Literal) {
        let datatype = literal.datatype();
        if literal.language().is_some() || datatype == xsd::STRING {
            return self.put(format_args!("{literal}"));
        }
        self.put(format_args!("{}^^", Literal::from(literal.value())));
        self.iri(datatype);
    }

    fn iri(&mut self, iri: NamedNodeRef<'_>) {
        match (self.terms.name)(iri.as_str()) {
            Some(name) => self.text.push_str(&name),
            None => self.put(format_args!("{iri}")),
        }
    }

    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Constant(constant) => self.term(&constant.term),
            Expression::Variable(variable) => self.list("", &[*variable]),
            Expression::Parameter(variable) => {
                self.text.push_str("parameter ");
                self.list("", &[*variable]);
            }
            Expression::Bound(variable) => {
                self.text.push_str("bound(");
                self.list("", &[*variable]);
                self.text.push(')');
            }
            Expression::Not(inner) => self.prefixed("!", inner),
            Expression::Plus(inner) => self.prefixed("+", inner),
            Expression::Minus(inner) => self.prefixed("-", inner),
            Expression::And(list) => self.chained("(", " && ", list),
            Expression::Or(list) => self.chained("(", " || ", list),
            Expression::Coalesce(list) => self.chained("coalesce(", ", ", list),
            Expression::Call(function, list) => {
                self.text.push_str(&format!("{function:?}").to_lowercase());
                self.chained("(", ", ", list);
            }
            Expression::Compare(comparison, left, right) => {
                let sign = match comparison {
                    Comparison::Equal => " = ",
                    Comparison::NotEqual => " != ",
                    Comparison::Less => " < ",
                    Comparison::LessOrEqual => " <= ",
                    Comparison::Greater => " > ",
                    Comparison::GreaterOrEqual => " >= ",
                    Comparison::SameTerm => " sameterm ",
                };
                self.binary(sign, left, right);
            }
            Expression::Arithmetic(operator, left, right) => {
                let sign = match operator {
                    ArithmeticOperator::Add => " + ",
                    ArithmeticOperator::Subtract => " - ",
                    ArithmeticOperator::Multiply => " * ",
                    ArithmeticOperator::Divide => " / ",
                };
                self.binary(sign, left, right);
            }
            Expression::In(needle, list) => {
                self.expression(needle);
                self.chained(" in (", ", ", list);
            }
            Expression::If(a, b, c) => {
                self.text.push_str("if(");
                self.expression(a);
                self.text.push_str(", ");
                self.expression(b);
                self.text.push_str(", ");
                self.expression(c);
                self.text.push(')');
            }
        }
    }

    fn prefixed(&mut self, sign: &str, inner: &Expression) {
        self.text.push_str(sign);
        self.expression(inner);
    }

    fn binary(&mut self, sign: &str, left: &Expression, right: &Expression) {
        self.text.push('(');
        self.expression(left);
        self.text.push_str(sign);
        self.expression(right);
        self.text.push(')');
    }

    fn chained(&mut self, open: &str, between: &str, list: &[Expression]) {
        self.text.push_str(open);
        for (number, inner) in list.iter().enumerate() {
            if number > 0 {
                self.text.push_str(between);
            }
            self.expression(inner);
        }
        self.text.push(')');
    }
}

/// Expected rows to two digits, so that printed plans do not change with every quad.
fn rounded(rows: f64) -> String {
    if rows < 1.0 && rows > 0.0 {
        return "<1".to_owned();
    }
    if rows < 100.0 {
        return format!("{rows:.0}");
    }
    format!("{rows:.1e}")
}
