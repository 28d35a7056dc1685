//! Evaluation of the algebra (18.3 to 18.6) over lists of solutions.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use oxrdf::Term;

use super::substitute::substitute;
use super::translate::{Algebra, Translator};
use super::{Dataset, Fault, Graph, Outcome, Seen, Solution, aggregate, order, path};
use crate::random::ast::{Aggregate, Element, Expr, Group, Path, Slot, Triple, Var};

/// The most solutions that a case may have in between.
const SOLUTIONS_MAX: usize = 6_000;
/// The most pairs of solutions that a case may compare.
const WORK_MAX: usize = 1_500_000;

/// Room for the aggregates of subqueries in an EXISTS, whose variables are made while it is evaluated.
const SPARE: usize = 32;

/// Evaluates over one dataset.
#[derive(Debug)]
pub struct Evaluator<'a> {
    /// The dataset D.
    pub dataset: &'a Dataset,
    /// How many variables a solution has room for.
    pub width: usize,
    /// What was met.
    pub seen: &'a Seen,
    work: Cell<usize>,
}

impl<'a> Evaluator<'a> {
    /// Starts.
    #[must_use]
    pub fn new(dataset: &'a Dataset, width: usize, seen: &'a Seen) -> Self {
        Self {
            dataset,
            width,
            seen,
            work: Cell::new(0),
        }
    }

    pub(super) fn work(&self, steps: usize) -> Outcome<()> {
        self.work.set(self.work.get().saturating_add(steps));
        if self.work.get() > WORK_MAX {
            Err(Fault::TooLarge)
        } else {
            Ok(())
        }
    }

    /// `eval(D(G), pattern)` (18.6).
    ///
    /// # Errors
    /// Never `Fault::Error`.
    pub fn evaluate(&self, pattern: &Algebra, graph: &Graph) -> Outcome<Vec<Solution>> {
        let solutions = self.node(pattern, graph)?;
        if solutions.len() > SOLUTIONS_MAX {
            return Err(Fault::TooLarge);
        }
        Ok(solutions)
    }

    fn node(&self, pattern: &Algebra, graph: &Graph) -> Outcome<Vec<Solution>> {
        match pattern {
            Algebra::Bgp(triples) => self.bgp(triples, graph),
            Algebra::Path(x, path, y) => self.path(x, path, y, graph),
            Algebra::Join(left, right) => {
                self.seen.count("Join");
                let left = self.evaluate(left, graph)?;
                let right = self.evaluate(right, graph)?;
                self.join(&left, &right)
            }
            Algebra::LeftJoin(left, right, condition) => {
                self.left_join(left, right, condition.as_ref(), graph)
            }
            Algebra::Filter(condition, inner) => {
                self.seen.count("Filter");
                let mut kept = Vec::new();
                for solution in self.evaluate(inner, graph)? {
                    if self.holds(condition, &solution, graph)? {
                        kept.push(solution);
                    }
                }
                Ok(kept)
            }
            Algebra::Union(left, right) => {
                self.seen.count("Union");
                let mut all = self.evaluate(left, graph)?;
                all.extend(self.evaluate(right, graph)?);
                Ok(all)
            }
            Algebra::Minus(left, right) => self.minus(left, right, graph),
            Algebra::Graph(slot, inner) => self.graph(slot, inner),
            Algebra::Extend(inner, var, value) => {
                // Extend (18.5): the variable stays unbound if the expression is an error.
                self.seen.count("Extend");
                let mut extended = self.evaluate(inner, graph)?;
                for solution in &mut extended {
                    let value = self.value(value, solution, graph)?;
                    set(solution, *var, value);
                }
                Ok(extended)
            }
            Algebra::Values(vars, rows) => {
                self.seen.count("Values");
                let row = |row: &Vec<Option<Term>>| {
                    let mut solution = self.empty();
                    for (var, cell) in vars.iter().zip(row) {
                        set(&mut solution, *var, cell.clone().map(Rc::new));
                    }
                    solution
                };
                Ok(rows.iter().map(row).collect())
            }
            Algebra::Group {
                keys,
                one,
                aggregates,
                pattern,
                scope,
            } => {
                self.seen.count("Group");
                let solutions = self.evaluate(pattern, graph)?;
                self.group(keys, *one, aggregates, &solutions, scope, graph)
            }
            other => self.modifier(other, graph),
        }
    }

    fn modifier(&self, pattern: &Algebra, graph: &Graph) -> Outcome<Vec<Solution>> {
        match pattern {
            Algebra::OrderBy(inner, keys) => {
                self.seen.count("OrderBy");
                let mut keyed = Vec::new();
                for solution in self.evaluate(inner, graph)? {
                    keyed.push((self.keys(keys, &solution, graph)?, solution));
                }
                let open = |(a, _): &(Solution, _), (b, _): &(Solution, _)| {
                    a.iter()
                        .zip(b)
                        .any(|(a, b)| order::specified(a.as_deref(), b.as_deref()).is_none())
                };
                if keyed.len() > 300 || keyed.iter().any(|a| keyed.iter().any(|b| open(a, b))) {
                    self.seen.note(super::reference::PANIC);
                }
                keyed.sort_by(|(a, _), (b, _)| {
                    keys.iter().zip(a.iter().zip(b)).fold(
                        std::cmp::Ordering::Equal,
                        |before, (key, (a, b))| {
                            let order = order::total(a.as_deref(), b.as_deref());
                            before.then(if key.0 { order.reverse() } else { order })
                        },
                    )
                });
                Ok(keyed.into_iter().map(|(_, solution)| solution).collect())
            }
            Algebra::Project(inner, vars) => {
                self.seen.count("Project");
                let keep: BTreeSet<Var> = vars.iter().copied().collect();
                let mut projected = self.evaluate(inner, graph)?;
                for solution in &mut projected {
                    for (var, cell) in solution.iter_mut().enumerate() {
                        if !keep.contains(&var) {
                            *cell = None;
                        }
                    }
                }
                Ok(projected)
            }
            Algebra::Distinct(inner) => {
                self.seen.count("Distinct");
                // "The order of solutions is kept": the first of each.
                let mut seen = BTreeSet::new();
                let mut kept = self.evaluate(inner, graph)?;
                kept.retain(|solution| seen.insert(text(solution)));
                Ok(kept)
            }
            Algebra::Reduced(inner) => {
                self.seen.count("Reduced");
                self.evaluate(inner, graph)
            }
            Algebra::Slice(inner, start, length) => {
                self.seen.count("Slice");
                self.slice(inner, *start, *length, graph)
            }
            _ => Err(Fault::Open("no such symbol")),
        }
    }

    /// The solution mapping with the empty domain.
    #[must_use]
    pub fn empty(&self) -> Solution {
        vec![None; self.width + SPARE]
    }

    /// Basic graph pattern matching (18.3.1): the mappings of variables and blank nodes that make a
    /// subgraph of the pattern; blank nodes are then dropped, multiplicities kept.
    fn bgp(&self, triples: &[Triple], graph: &Graph) -> Outcome<Vec<Solution>> {
        self.seen.count(if triples.is_empty() {
            "empty BGP"
        } else {
            "BGP"
        });
        let mut solutions = vec![self.empty()];
        for triple in triples {
            let mut extended = Vec::new();
            self.work(solutions.len() * graph.len())?;
            for solution in &solutions {
                for candidate in graph.iter() {
                    let mut matched = solution.clone();
                    if triple
                        .iter()
                        .zip(candidate)
                        .all(|(slot, term)| bind(&mut matched, slot, term))
                    {
                        extended.push(matched);
                    }
                }
            }
            if extended.len() > SOLUTIONS_MAX {
                return Err(Fault::TooLarge);
            }
            solutions = extended;
        }
        let mut blanks = BTreeSet::new();
        for slot in triples.iter().flatten() {
            if let Slot::Triple(parts) = slot {
                self.seen.count("triple term");
                if cannot_be(parts) {
                    self.seen.note(super::reference::NO_TRIPLE);
                }
                for [_, _, object] in graph.iter() {
                    self.inside(object);
                }
            }
            slot.blanks(&mut blanks);
        }
        for var in blanks {
            self.seen.count("blank node");
            self.seen.note("blank node");
            solutions
                .iter_mut()
                .for_each(|solution| set(solution, var, None));
        }
        Ok(solutions)
    }

    /// Notes literals within a triple term that are not in canonical form.
    fn inside(&self, term: &Term) {
        if let Term::Triple(triple) = term {
            self.look(&triple.object);
            self.inside(&triple.object);
        }
    }

    /// Path (18.4): the pairs as mappings of the ends that are variables.
    fn path(&self, x: &Slot, path: &Path, y: &Slot, graph: &Graph) -> Outcome<Vec<Solution>> {
        self.seen.count("Path");
        let term = |slot: &Slot| match slot {
            Slot::Term(term) => Some(Rc::new(term.clone())),
            Slot::Var(_) | Slot::Blank(_) | Slot::Triple(_) => None,
        };
        let (start, end) = (term(x), term(y));
        // The parser makes blank nodes of what lies between the steps.
        self.seen.note("blank node");
        let pairs = path::pairs(self, start.as_ref(), path, end.as_ref(), graph)?;
        let mut solutions = Vec::new();
        for (a, b) in &pairs {
            let mut solution = self.empty();
            if bind(&mut solution, x, a) && bind(&mut solution, y, b) {
                solutions.push(solution);
            }
        }
        for slot in [x, y] {
            if let Slot::Blank(var) = slot {
                self.seen.count("blank node");
                self.seen.note("blank node");
                solutions
                    .iter_mut()
                    .for_each(|solution| set(solution, *var, None));
            }
        }
        Ok(solutions)
    }

    /// Join (18.5): "{ merge(m1, m2) | m1 in O1 and m2 in O2, and m1 and m2 are compatible }".
    fn join(&self, left: &[Solution], right: &[Solution]) -> Outcome<Vec<Solution>> {
        self.work(left.len() * right.len())?;
        let mut joined = Vec::new();
        for a in left {
            for b in right {
                if compatible(a, b) {
                    joined.push(merge(a, b));
                }
            }
            if joined.len() > SOLUTIONS_MAX {
                return Err(Fault::TooLarge);
            }
        }
        Ok(joined)
    }

    /// LeftJoin (18.5): Filter(expr, Join(O1, O2)) union Diff(O1, O2, expr).
    fn left_join(
        &self,
        left: &Algebra,
        right: &Algebra,
        condition: Option<&Expr>,
        graph: &Graph,
    ) -> Outcome<Vec<Solution>> {
        self.seen.count(if condition.is_some() {
            "LeftJoin with condition"
        } else {
            "LeftJoin"
        });
        if has_left_join(right) {
            self.seen.note("OPTIONAL within OPTIONAL");
        }
        let left = self.evaluate(left, graph)?;
        let right = self.evaluate(right, graph)?;
        self.work(left.len() * right.len())?;
        let mut joined = Vec::new();
        for a in &left {
            let mut found = false;
            for b in right.iter().filter(|b| compatible(a, b)) {
                let merged = merge(a, b);
                let holds = match condition {
                    None => true,
                    Some(condition) => self.holds(condition, &merged, graph)?,
                };
                if holds {
                    found = true;
                    joined.push(merged);
                }
            }
            if !found {
                joined.push(a.clone());
            }
        }
        Ok(joined)
    }

    /// Minus (18.5): "m in O1 such that for all m' in O2, either m and m' are not compatible or
    /// dom(m) and dom(m') are disjoint".
    fn minus(&self, left: &Algebra, right: &Algebra, graph: &Graph) -> Outcome<Vec<Solution>> {
        self.seen.count("Minus");
        let mut kept = self.evaluate(left, graph)?;
        let right = self.evaluate(right, graph)?;
        self.work(kept.len() * right.len())?;
        let disjoint =
            |a: &Solution, b: &Solution| a.iter().zip(b).all(|(a, b)| a.is_none() || b.is_none());
        kept.retain(|a| right.iter().all(|b| !compatible(a, b) || disjoint(a, b)));
        Ok(kept)
    }

    /// `eval(D(G), Graph(..))` (18.6).
    fn graph(&self, slot: &Slot, inner: &Algebra) -> Outcome<Vec<Solution>> {
        match slot {
            Slot::Term(Term::NamedNode(name)) => {
                self.seen.count("Graph IRI");
                match self.dataset.named.get(name) {
                    Some(graph) => self.evaluate(inner, graph),
                    None => {
                        self.seen.note("graph that does not exist");
                        Ok(Vec::new())
                    }
                }
            }
            // Substitution may leave a term that names no graph.
            Slot::Term(_) | Slot::Triple(_) => Ok(Vec::new()),
            Slot::Var(var) | Slot::Blank(var) => {
                self.seen.count("Graph variable");
                if triples_are_lacking(inner) || expressions_name(inner, *var) {
                    self.seen
                        .note("GRAPH with a variable around other than triples");
                }
                let mut all = Vec::new();
                for (name, graph) in &self.dataset.named {
                    // Join(eval(D(D[i]), P), Omega(?var->i))
                    let mut omega = self.empty();
                    set(&mut omega, *var, Some(Rc::new(name.clone().into())));
                    let inner = self.evaluate(inner, graph)?;
                    all.extend(self.join(&inner, &[omega])?);
                }
                Ok(all)
            }
        }
    }

    /// Group, Aggregation and AggregateJoin (18.5.1).
    fn group(
        &self,
        keys: &[(Expr, Option<Var>)],
        one: bool,
        aggregates: &[(Var, Aggregate)],
        solutions: &[Solution],
        scope: &[Var],
        graph: &Graph,
    ) -> Outcome<Vec<Solution>> {
        // The values of the keys, and the members.
        let mut groups: BTreeMap<String, (Solution, Vec<Solution>)> = BTreeMap::new();
        if one {
            groups.insert(text(&[]), (Vec::new(), Vec::new()));
        }
        for solution in solutions {
            // ListEval keeps an error as a value of its own.
            let mut key = Vec::new();
            for (expression, _) in keys {
                key.push(self.value(expression, solution, graph)?);
            }
            // `GROUP BY (expr AS ?v)` extends the solutions, so that aggregates see ?v.
            let mut member = solution.clone();
            for ((_, var), value) in keys.iter().zip(&key) {
                if let Some(var) = var {
                    set(&mut member, *var, value.clone());
                }
            }
            groups
                .entry(text(&key))
                .or_insert_with(|| (key, Vec::new()))
                .1
                .push(member);
        }
        let mut answer = Vec::new();
        for (key, members) in groups.values() {
            let mut solution = self.empty();
            for ((expression, var), value) in keys.iter().zip(key) {
                let var = match (expression, var) {
                    (_, Some(var)) | (Expr::Var(var), None) => *var,
                    _ => continue,
                };
                set(&mut solution, var, value.clone());
            }
            for (var, aggregate) in aggregates {
                match aggregate::evaluate(self, aggregate, members, scope, graph) {
                    Ok(value) => set(&mut solution, *var, Some(value)),
                    Err(Fault::Error) => {}
                    Err(other) => return Err(other),
                }
            }
            answer.push(solution);
        }
        Ok(answer)
    }

    /// Slice (18.5) within a query: open where the order leaves open what is cut off.
    fn slice(
        &self,
        inner: &Algebra,
        start: usize,
        length: Option<usize>,
        graph: &Graph,
    ) -> Outcome<Vec<Solution>> {
        let rows = self.evaluate(inner, graph)?;
        let end = length.map_or(rows.len(), |length| {
            rows.len().min(start.saturating_add(length))
        });
        let start = start.min(rows.len()).min(end);
        let keys = order_keys(inner).unwrap_or(&[]);
        for (first, second) in [(0..start, start..rows.len()), (start..end, end..rows.len())] {
            for a in rows.get(first).unwrap_or(&[]) {
                for b in rows.get(second.clone()).unwrap_or(&[]) {
                    if text(a) == text(b) {
                        continue;
                    }
                    let (ka, kb) = (self.keys(keys, a, graph)?, self.keys(keys, b, graph)?);
                    if compare_keys(keys, &ka, &kb) != Some(std::cmp::Ordering::Less) {
                        return Err(Fault::Open("slice of an order that is not total"));
                    }
                }
            }
        }
        Ok(rows.get(start..end).unwrap_or(&[]).to_vec())
    }

    /// The values of sort keys; an error is as unbound.
    ///
    /// # Errors
    /// Never `Fault::Error`.
    pub fn keys(
        &self,
        keys: &[(bool, Expr)],
        solution: &Solution,
        graph: &Graph,
    ) -> Outcome<Vec<Option<Rc<Term>>>> {
        keys.iter()
            .map(|(_, key)| self.value(key, solution, graph))
            .collect()
    }

    /// The value of an expression, `None` if it is an error.
    ///
    /// # Errors
    /// Never `Fault::Error`.
    pub fn value(
        &self,
        expression: &Expr,
        solution: &Solution,
        graph: &Graph,
    ) -> Outcome<Option<Rc<Term>>> {
        match self.expression(expression, solution, graph) {
            Ok(value) => Ok(Some(value)),
            Err(Fault::Error) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Whether a filter keeps a solution: its effective boolean value is true; an error is not.
    fn holds(&self, condition: &Expr, solution: &Solution, graph: &Graph) -> Outcome<bool> {
        let value = self.expression(condition, solution, graph);
        match value.and_then(|value| self.truth(&value)) {
            Err(Fault::Error) => Ok(false),
            other => other,
        }
    }

    /// `exists(pattern)` (18.6): whether `eval(D(G), substitute(pattern, m))` has a solution.
    pub(super) fn exists(
        &self,
        pattern: &Group,
        solution: &Solution,
        graph: &Graph,
    ) -> Outcome<bool> {
        self.seen.count("exists");
        let substituted = substitute(pattern, solution)?;
        for element in &substituted.elements {
            match element {
                Element::Select(_) => self.seen.count("subquery in EXISTS"),
                Element::Minus(_) => {
                    self.seen.count("MINUS in EXISTS");
                    self.seen.note("MINUS in EXISTS");
                }
                Element::Values(..) => self.seen.count("VALUES in EXISTS"),
                _ => {}
            }
        }
        if !crate::random::ast::in_scope(&substituted).is_empty() {
            self.seen.note("free variable in EXISTS");
        }
        // Aggregates inside have variables of their own.
        let mut translator = Translator { next: self.width };
        let algebra = translator.group(&substituted);
        let inner = Evaluator {
            width: translator.next,
            work: Cell::new(self.work.get()),
            ..*self
        };
        let found = inner.evaluate(&algebra, graph);
        self.work.set(inner.work.get());
        Ok(!found?.is_empty())
    }
}

/// The keys of the ORDER BY under a projection.
#[must_use]
pub fn order_keys(pattern: &Algebra) -> Option<&[(bool, Expr)]> {
    match pattern {
        Algebra::OrderBy(_, keys) => Some(keys),
        Algebra::Project(inner, _) | Algebra::Distinct(inner) | Algebra::Reduced(inner) => {
            order_keys(inner)
        }
        _ => None,
    }
}

/// The order of rows by their keys, `None` where 15.1 leaves it open.
#[must_use]
pub fn compare_keys(
    keys: &[(bool, Expr)],
    a: &[Option<Rc<Term>>],
    b: &[Option<Rc<Term>>],
) -> Option<std::cmp::Ordering> {
    for ((descending, _), (a, b)) in keys.iter().zip(a.iter().zip(b)) {
        let order = order::specified(a.as_deref(), b.as_deref())?;
        if order.is_ne() {
            return Some(if *descending { order.reverse() } else { order });
        }
    }
    Some(std::cmp::Ordering::Equal)
}

/// A solution as text, the same for the same solution.
#[must_use]
pub fn text(solution: &[Option<Rc<Term>>]) -> String {
    let cell = |cell: &Option<Rc<Term>>| cell.as_ref().map_or("-".to_owned(), ToString::to_string);
    solution.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

/// Whether there is an OPTIONAL inside.
fn has_left_join(pattern: &Algebra) -> bool {
    match pattern {
        Algebra::LeftJoin(..) => true,
        Algebra::Join(a, b) | Algebra::Union(a, b) | Algebra::Minus(a, b) => {
            has_left_join(a) || has_left_join(b)
        }
        Algebra::Filter(_, a) | Algebra::Graph(_, a) | Algebra::Extend(a, ..) => has_left_join(a),
        _ => false,
    }
}

/// Whether there is a MINUS or subquery inside, or a part without triple patterns.
fn triples_are_lacking(pattern: &Algebra) -> bool {
    match pattern {
        Algebra::Bgp(triples) => triples.is_empty(),
        Algebra::Join(a, b) | Algebra::LeftJoin(a, b, _) | Algebra::Union(a, b) => {
            triples_are_lacking(a) || triples_are_lacking(b)
        }
        Algebra::Filter(_, a) | Algebra::Graph(_, a) | Algebra::Extend(a, ..) => {
            triples_are_lacking(a)
        }
        _ => true,
    }
}

/// Whether a FILTER, OPTIONAL or BIND inside names a variable, which that of the GRAPH around is not for it.
fn expressions_name(pattern: &Algebra, var: Var) -> bool {
    match pattern {
        Algebra::Join(a, b) | Algebra::Union(a, b) | Algebra::Minus(a, b) => {
            expressions_name(a, var) || expressions_name(b, var)
        }
        Algebra::LeftJoin(a, b, condition) => {
            condition.as_ref().is_some_and(|it| names(it, var))
                || expressions_name(a, var)
                || expressions_name(b, var)
        }
        Algebra::Filter(expression, a) | Algebra::Extend(a, _, expression) => {
            names(expression, var) || expressions_name(a, var)
        }
        Algebra::Graph(_, a) => expressions_name(a, var),
        _ => false,
    }
}

fn names(expression: &Expr, var: Var) -> bool {
    match expression {
        Expr::Var(other) => *other == var,
        Expr::Call(_, arguments) => arguments.iter().any(|argument| names(argument, var)),
        Expr::Term(_) | Expr::Exists(..) | Expr::Aggregate(_) => false,
    }
}

/// Whether EXISTS has put a literal or a triple term where no triple has one.
fn cannot_be([subject, predicate, object]: &Triple) -> bool {
    let is_resource = |slot: &Slot| match slot {
        Slot::Term(term) => matches!(term, Term::NamedNode(_) | Term::BlankNode(_)),
        Slot::Triple(_) => false,
        Slot::Var(_) | Slot::Blank(_) => true,
    };
    let nested = match object {
        Slot::Triple(parts) => cannot_be(parts),
        _ => false,
    };
    let is_verb = !matches!(predicate, Slot::Term(term) if !matches!(term, Term::NamedNode(_)));
    !is_resource(subject) || !is_verb || nested
}

fn set(solution: &mut Solution, var: Var, value: Option<Rc<Term>>) {
    if let Some(cell) = solution.get_mut(var) {
        *cell = value;
    }
}

fn bind(solution: &mut Solution, slot: &Slot, term: &Rc<Term>) -> bool {
    match slot {
        Slot::Term(wanted) => wanted == &**term,
        Slot::Var(var) | Slot::Blank(var) => match solution.get_mut(*var) {
            Some(Some(known)) => known == term,
            Some(cell) => {
                *cell = Some(Rc::clone(term));
                true
            }
            None => false,
        },
        Slot::Triple(parts) => {
            let Term::Triple(triple) = &**term else {
                return false;
            };
            let terms = [
                triple.subject.clone().into(),
                triple.predicate.clone().into(),
                triple.object.clone(),
            ];
            parts
                .iter()
                .zip(terms)
                .all(|(slot, term)| bind(solution, slot, &Rc::new(term)))
        }
    }
}

/// Compatible mappings (18.3): every variable in both domains has the same term.
fn compatible(a: &Solution, b: &Solution) -> bool {
    a.iter().zip(b).all(|(a, b)| match (a, b) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    })
}

fn merge(a: &Solution, b: &Solution) -> Solution {
    a.iter()
        .zip(b)
        .map(|(a, b)| a.clone().or_else(|| b.clone()))
        .collect()
}
