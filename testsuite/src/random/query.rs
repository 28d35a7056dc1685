//! Random queries.
//!
//! What the specification leaves open or contradicts itself about is not generated, each with its
//! reason beside it: slices of subqueries without a total order, and what `substitute` (18.6) leaves open
//! inside EXISTS (the evaluator finds those and refuses the case).

use oxrdf::vocab::rdf;
use oxrdf::{NamedNode, Term};

use super::Random;
use super::ast::{
    Aggregate, Duplicates, Element, Expr, Form, Group, Path, Query, Reified, Rows, Select, Slot,
    Triple, Var, in_scope,
};
use super::data::{Data, iri};

/// Makes queries for data.
pub struct Generator<'a> {
    pub(super) random: &'a mut Random,
    pub(super) data: &'a Data,
    /// The next variable that nothing else names.
    fresh: Var,
    /// Whether the pattern stands inside EXISTS.
    in_exists: bool,
    /// A variable that should not be named: that of the GRAPH around.
    avoid: Option<Var>,
    /// Whether expressions name nothing but what is in scope.
    pub(super) strict: bool,
    /// The only one of [`DERIVED`](super::expression::DERIVED) that is called, if not any of them.
    pub(super) cast: Option<&'static str>,
}

/// How many variables patterns share.
const SHARED: usize = 6;

impl<'a> Generator<'a> {
    /// Starts.
    #[must_use]
    pub fn new(random: &'a mut Random, data: &'a Data) -> Self {
        Self {
            random,
            data,
            fresh: 10,
            in_exists: false,
            avoid: None,
            strict: false,
            cast: None,
        }
    }

    /// One that calls no more than one of the many casts that 17.5 does not list.
    #[must_use]
    pub const fn with_cast(self, cast: &'static str) -> Self {
        let mut one = self;
        one.cast = Some(cast);
        one
    }

    /// Makes a query.
    pub fn query(&mut self) -> Query {
        self.fresh = 10;
        let form = match self.random.below(20) {
            0 => Form::Ask(self.group(&[], 2)),
            1 | 2 => {
                let pattern = self.group(&[], 2);
                let template = self.template(&pattern);
                Form::Construct(template, pattern)
            }
            _ => Form::Select(self.select(2, true)),
        };
        let (mut from, mut from_named) = (Vec::new(), Vec::new());
        if self.random.chance(10) {
            for _ in 0..self.random.below(3) {
                // One that does not exist adds nothing.
                from.push(iri(self.random.pick(&["g0", "g1", "s0", "nowhere"])));
            }
            for _ in 0..self.random.below(3) {
                // Whether a dataset has a named graph that is empty is left open (13.1).
                if !self.data.graphs.is_empty() {
                    from_named.push(self.random.pick(&self.data.graphs).clone());
                }
            }
            from.sort();
            from.dedup();
            from_named.sort();
            from_named.dedup();
        }
        Query {
            form,
            from,
            from_named,
        }
    }

    pub(super) fn new_variable(&mut self) -> Var {
        self.fresh += 1;
        self.fresh
    }

    /// A variable of the shared few, rather one that is in scope.
    fn shared(&mut self, scope: &[Var]) -> Var {
        loop {
            let var = if !scope.is_empty() && self.random.chance(55) {
                *self.random.pick(scope)
            } else {
                self.random.below(SHARED)
            };
            if Some(var) != self.avoid || self.random.chance(3) {
                return var;
            }
        }
    }

    pub(super) fn triple(&mut self, scope: &[Var], blank: Option<Var>) -> Triple {
        let random = self.random.below(100);
        let subject = match random {
            0..=9 => Slot::Term(self.random.pick(&self.data.nodes).clone().into()),
            18..=25 if blank.is_some() => Slot::Blank(blank.unwrap_or_default()),
            _ => Slot::Var(self.shared(scope)),
        };
        let predicate = if self.random.chance(80) {
            Slot::Term(self.random.pick(&self.data.predicates).clone().into())
        } else {
            Slot::Var(self.shared(scope))
        };
        let object = match self.random.below(100) {
            0..=3 => Slot::Term(self.random.pick(&self.data.literals).clone().into()),
            6..=13 => Slot::Term(self.random.pick(&self.data.nodes).clone().into()),
            14..=18 if blank.is_some() => Slot::Blank(blank.unwrap_or_default()),
            _ => Slot::Var(self.shared(scope)),
        };
        [subject, predicate, object]
    }

    /// A triple pattern whose object is a triple term, or a triple with a reifier.
    fn about_triples(&mut self, scope: &[Var]) -> Element {
        let blank = self.random.chance(20).then(|| self.new_variable());
        let mut inner = self.triple(scope, blank);
        if self.random.chance(10) {
            let innermost = self.triple(scope, blank);
            inner[2] = Slot::Triple(Box::new(innermost));
        }
        if self.random.chance(50) {
            let [subject, predicate, _] = self.triple(scope, blank);
            let predicate = match self.random.below(3) {
                0 => predicate,
                1 => Slot::Term(NamedNode::from(rdf::REIFIES).into()),
                _ => Slot::Var(self.shared(scope)),
            };
            return Element::Triples(vec![[subject, predicate, Slot::Triple(Box::new(inner))]]);
        }
        let reifier = match self.random.below(10) {
            0 | 1 => Slot::Blank(blank.unwrap_or_else(|| self.new_variable())),
            2 => Slot::Term(self.random.pick(&self.data.nodes).clone().into()),
            _ => Slot::Var(self.shared(scope)),
        };
        let about = (0..self.random.below(3)).map(|_| {
            let [_, predicate, object] = self.triple(scope, blank);
            [predicate, object]
        });
        let about = about.collect();
        Element::Reified(Box::new(Reified {
            asserted: self.random.chance(50),
            triple: inner,
            reifier,
            about,
        }))
    }

    /// A property path; like `triple` but with a path.
    fn path_pattern(&mut self, scope: &[Var]) -> Element {
        let [mut subject, _, mut object] = self.triple(scope, None);
        match self.random.below(100) {
            // A literal, which a path against the predicate may begin with.
            0..=5 => subject = Slot::Term(self.random.pick(&self.data.literals).clone().into()),
            6..=11 => object = Slot::Blank(self.new_variable()),
            // A term that the data does not have as subject or object.
            12..=19 => subject = Slot::Term(iri(self.random.pick(&["nowhere", "p0"])).into()),
            20..=25 => object = Slot::Term(iri(self.random.pick(&["nowhere", "p0"])).into()),
            26..=30 => object = subject.clone(),
            _ => {}
        }
        Element::Path(subject, self.path(3), object)
    }

    fn path(&mut self, depth: usize) -> Path {
        if depth == 0 || self.random.chance(15) {
            return Path::Iri(self.path_predicate());
        }
        let inner = Box::new(self.path(depth - 1));
        match self.random.below(10) {
            0 => Path::Inverse(inner),
            1 | 2 => Path::Sequence(inner, Box::new(self.path(depth - 1))),
            3 | 4 => Path::Alternative(inner, Box::new(self.path(depth - 1))),
            5 => Path::ZeroOrOne(inner),
            6 => Path::ZeroOrMore(inner),
            7 | 8 => Path::OneOrMore(inner),
            _ => {
                let ahead = self.random.below(3);
                let back = self.random.below(3);
                let ahead: Vec<_> = (0..ahead).map(|_| self.path_predicate()).collect();
                let mut back: Vec<_> = (0..back).map(|_| self.path_predicate()).collect();
                if ahead.is_empty() && back.is_empty() {
                    back.push(self.path_predicate());
                }
                Path::Negated(ahead, back)
            }
        }
    }

    /// Rather one that links nodes, sometimes one that the data does not have.
    fn path_predicate(&mut self) -> NamedNode {
        match self.random.below(10) {
            0 => iri("nowhere"),
            1..=5 => iri("p0"),
            _ => self.random.pick(&self.data.predicates).clone(),
        }
    }

    /// Three or four triple patterns that form a cycle, each in either direction, sometimes with a chord.
    fn cycle(&mut self, scope: &[Var]) -> Element {
        let corners: Vec<Slot> = (0..3 + self.random.below(2))
            .map(|_| Slot::Var(self.shared(scope)))
            .collect();
        let mut ends: Vec<_> = corners.iter().zip(corners.iter().cycle().skip(1)).collect();
        if self.random.chance(20)
            && let [a, _, c, ..] = corners.as_slice()
        {
            ends.push((a, c));
        }
        let mut triples = Vec::new();
        for (a, b) in ends {
            let predicate = match self.random.below(10) {
                0 => Slot::Var(self.shared(scope)),
                _ => Slot::Term(self.path_predicate().into()),
            };
            triples.push(match self.random.chance(70) {
                true => [a.clone(), predicate, b.clone()],
                false => [b.clone(), predicate, a.clone()],
            });
        }
        Element::Triples(triples)
    }

    fn triples(&mut self, scope: &[Var]) -> Element {
        if self.random.chance(8) {
            return self.cycle(scope);
        }
        if self.random.chance(15) {
            return self.path_pattern(scope);
        }
        if self.random.chance(8) {
            return self.about_triples(scope);
        }
        let blank = self.random.chance(10).then(|| self.new_variable());
        let many = match self.random.below(10) {
            0..=5 => 1,
            6..=8 => 2,
            _ => 3,
        };
        let mut known = scope.to_vec();
        let mut triples = Vec::new();
        for _ in 0..many {
            let triple = self.triple(&known, blank);
            for slot in &triple {
                if let Slot::Var(var) = slot {
                    known.push(*var);
                }
            }
            triples.push(triple);
        }
        Element::Triples(triples)
    }

    /// A group; `outer` are the variables that its filters may see besides its own.
    pub(super) fn group(&mut self, outer: &[Var], depth: usize) -> Group {
        let mut group = Group::default();
        let many = 1 + self.random.below(if depth == 0 { 2 } else { 4 });
        for number in 0..many {
            let own: Vec<Var> = in_scope(&group).into_iter().collect();
            let mut seen = own.clone();
            seen.extend(outer);
            let element = if number == 0 && self.random.chance(85) {
                self.triples(&seen)
            } else {
                self.element(&own, &seen, depth)
            };
            group.elements.push(element);
        }
        group
    }

    pub(super) fn element(&mut self, own: &[Var], seen: &[Var], depth: usize) -> Element {
        let next = depth.saturating_sub(1);
        match self.random.below(if depth == 0 { 8 } else { 24 }) {
            0..=2 => self.triples(seen),
            3..=5 => Element::Filter(self.condition(seen, depth)),
            6 => {
                let var = self.new_variable();
                let value = if self.random.chance(25) {
                    self.condition(seen, depth)
                } else {
                    self.any(seen, 2)
                };
                Element::Bind(value, var)
            }
            7 => {
                let (vars, rows) = self.values(own);
                Element::Values(vars, rows)
            }
            8..=11 => Element::Optional(self.group(own, next)),
            12 | 13 => {
                let many = 2 + self.random.below(2);
                Element::Union((0..many).map(|_| self.group(own, next)).collect())
            }
            14 if self.random.chance(5) => self.equality(),
            14 => Element::Union(vec![self.group(own, next)]),
            15 | 16 => Element::Minus(self.group(own, next)),
            17..=19 => self.graph(own, next),
            20 | 21 => self.repeated(own, next),
            _ => {
                // Inside EXISTS one that gives all its variables, so that they are those of the
                // solution that is tested.
                let select = self.select(next, false);
                Element::Select(Box::new(select))
            }
        }
    }

    /// Two patterns that nothing but an equality connects.
    fn equality(&mut self) -> Element {
        let mut pattern = || {
            let (subject, object) = (self.new_variable(), self.new_variable());
            let predicate = Slot::Term(self.random.pick(&self.data.predicates).clone().into());
            ([Slot::Var(subject), predicate, Slot::Var(object)], object)
        };
        let ((one, a), (other, b)) = (pattern(), pattern());
        let equal = Expr::Call("=", vec![Expr::Var(a), Expr::Var(b)]);
        Element::Union(vec![Group {
            elements: vec![Element::Triples(vec![one, other]), Element::Filter(equal)],
        }])
    }

    /// One part several times, under UNION or joined, with other names for its variables or something done with them.
    fn repeated(&mut self, own: &[Var], depth: usize) -> Element {
        // Mostly small ones, so that there are not many expressions more than in other queries.
        let depth = self.random.below(depth + 1);
        let part = if self.random.chance(50) {
            let select = self.select(depth, false);
            Group {
                elements: vec![Element::Select(Box::new(select))],
            }
        } else {
            self.group(own, depth)
        };
        // A blank node may not stand in two groups.
        if format!("{part:?}").contains("Blank(") {
            return Element::Union(vec![part]);
        }
        let many = 2 + usize::from(self.random.chance(20));
        let parts: Vec<Group> = (0..many).map(|_| self.varied(part.clone())).collect();
        if self.random.chance(50) {
            return Element::Union(parts);
        }
        let nested = parts.into_iter().map(|part| Element::Union(vec![part]));
        Element::Union(vec![Group {
            elements: nested.collect(),
        }])
    }

    /// A part with other names for its variables, or with a condition, or as it is.
    fn varied(&mut self, part: Group) -> Group {
        let scope: Vec<Var> = in_scope(&part).into_iter().collect();
        let mut part = part;
        // Inside EXISTS variables are those of the solution that is tested.
        if self.random.chance(40) && !self.in_exists && !scope.is_empty() {
            let renamed = scope.iter().map(|var| {
                let name = match self.random.chance(30) {
                    true => *var,
                    false => self.new_variable(),
                };
                let value = (name != *var).then_some(Expr::Var(*var));
                (value, name)
            });
            let items = renamed.collect();
            let mut select = Select::all(part);
            select.items = Some(items);
            part = Group {
                elements: vec![Element::Select(Box::new(select))],
            };
        } else if self.random.chance(30) {
            let condition = self.boolean(&scope, 1);
            part.elements.push(Element::Filter(condition));
        }
        part
    }

    fn graph(&mut self, own: &[Var], depth: usize) -> Element {
        let slot = if self.random.chance(60) {
            Slot::Var(if self.random.chance(60) {
                self.new_variable()
            } else {
                self.shared(own)
            })
        } else {
            Slot::Term(iri(self.random.pick(&["g0", "g1", "s0", "nowhere"])).into())
        };
        if self.random.chance(8) {
            return Element::Graph(slot, Group::default());
        }
        let before = self.avoid;
        if let Slot::Var(var) = slot {
            self.avoid = Some(var);
        }
        let known: Vec<Var> = own
            .iter()
            .copied()
            .filter(|v| Some(*v) != self.avoid)
            .collect();
        let inner = self.group(&known, depth);
        self.avoid = before;
        Element::Graph(slot, inner)
    }

    /// A condition of FILTER or HAVING.
    fn condition(&mut self, scope: &[Var], depth: usize) -> Expr {
        if depth > 0 && self.random.chance(30) {
            let exists = self.exists(scope, depth);
            if self.random.chance(20) {
                let operator = *self.random.pick(&["&&", "||"]);
                let other = self.boolean(scope, 1);
                return Expr::Call(operator, vec![other, exists]);
            }
            return exists;
        }
        self.boolean(scope, 2)
    }

    fn exists(&mut self, scope: &[Var], depth: usize) -> Expr {
        let before = std::mem::replace(&mut self.in_exists, true);
        let pattern = self.group(scope, depth - 1);
        self.in_exists = before;
        Expr::Exists(self.random.chance(50), pattern)
    }

    /// `COUNT(IF(EXISTS { ... }, 1, 1/0))`
    fn count_of_exists(&mut self, scope: &[Var], depth: usize) -> Expr {
        let (one, nothing) = (super::expression::integer(1), super::expression::integer(0));
        let error = Expr::Call("/", vec![one.clone(), nothing]);
        let argument = Expr::Call("IF", vec![self.exists(scope, depth), one, error]);
        Expr::Aggregate(Box::new(Aggregate {
            function: "COUNT",
            distinct: false,
            argument: Some(argument),
            separator: None,
        }))
    }

    fn values(&mut self, own: &[Var]) -> (Vec<Var>, Rows) {
        let mut vars = vec![self.shared(own)];
        if self.random.chance(40) {
            vars.push(self.shared(own));
        }
        vars.sort_unstable();
        vars.dedup();
        let rows = (0..self.random.below(4))
            .map(|_| vars.iter().map(|_| self.cell()).collect())
            .collect();
        (vars, rows)
    }

    pub(super) fn cell(&mut self) -> Option<Term> {
        match self.random.below(10) {
            0 | 1 => None,
            2..=5 => Some(self.random.pick(&self.data.nodes).clone().into()),
            6 => Some(self.random.pick(&self.data.predicates).clone().into()),
            _ => Some(self.random.pick(&self.data.literals).clone().into()),
        }
    }

    fn template(&mut self, pattern: &Group) -> Vec<Triple> {
        let scope: Vec<Var> = in_scope(pattern).into_iter().collect();
        let slot = |random: &mut Random| match scope.is_empty() {
            true => Slot::Var(0),
            false => Slot::Var(*random.pick(&scope)),
        };
        let many = 1 + self.random.below(2);
        let mut template = Vec::new();
        for _ in 0..many {
            let subject = match self.random.below(10) {
                0 => Slot::Blank(99),
                1 => Slot::Term(iri("s0").into()),
                _ => slot(self.random),
            };
            let predicate = match self.random.below(10) {
                0..=6 => Slot::Term(iri("made").into()),
                _ => slot(self.random),
            };
            let object = match self.random.below(14) {
                0 => Slot::Blank(99),
                1 => {
                    let made = Slot::Term(iri("made").into());
                    Slot::Triple(Box::new([slot(self.random), made, slot(self.random)]))
                }
                _ => slot(self.random),
            };
            template.push([subject, predicate, object]);
        }
        template
    }

    fn select(&mut self, depth: usize, top: bool) -> Select {
        if top && self.random.chance(8) {
            return self.ordered();
        }
        if depth > 0 && !self.in_exists && self.random.chance(6) {
            let mut select = self.difference();
            self.modifiers(&mut select, top);
            return select;
        }
        let before = self.avoid.take();
        let pattern = self.group(&[], depth);
        self.avoid = before;
        let scope: Vec<Var> = in_scope(&pattern).into_iter().collect();
        let mut select = Select::all(pattern);
        if self.random.chance(25) {
            self.grouping(&mut select, &scope, depth);
        } else if self.random.chance(60) && !scope.is_empty() {
            let mut items: Vec<(Option<Expr>, Var)> = scope
                .iter()
                .filter(|_| self.in_exists || self.random.chance(65))
                .map(|v| (None, *v))
                .collect();
            if items.is_empty() {
                items.push((None, *self.random.pick(&scope)));
            }
            if self.random.chance(35) {
                let var = self.new_variable();
                let item = if self.random.chance(20) {
                    self.condition(&scope, depth)
                } else {
                    self.any(&scope, 2)
                };
                items.push((Some(item), var));
            }
            select.items = Some(items);
        }
        if select.items.is_none() && scope.is_empty() {
            let var = self.new_variable();
            select.items = Some(vec![(Some(self.any(&scope, 1)), var)]);
        }
        if self.random.chance(5) {
            select.values = Some(self.values(&scope));
        }
        self.modifiers(&mut select, top);
        select
    }

    fn grouping(&mut self, select: &mut Select, scope: &[Var], depth: usize) {
        let mut items = Vec::new();
        let mut keys = Vec::new();
        if self.random.chance(75) && !scope.is_empty() {
            for _ in 0..1 + self.random.below(2) {
                if self.random.chance(70) {
                    let key = *self.random.pick(scope);
                    if !keys.contains(&key) {
                        keys.push(key);
                        select.group_by.push((Expr::Var(key), None));
                    }
                } else {
                    let var = self.new_variable();
                    let key = self.any(scope, 2);
                    select.group_by.push((key, Some(var)));
                    keys.push(var);
                }
            }
        }
        for key in &keys {
            if self.random.chance(85) {
                items.push((None, *key));
            }
        }
        let many = if items.is_empty() { 1 } else { 0 } + self.random.below(3);
        for _ in 0..many {
            let var = self.new_variable();
            let aggregate = if depth > 0 && self.random.chance(10) {
                self.count_of_exists(scope, depth)
            } else {
                self.aggregate(scope, &keys)
            };
            let expression = if self.random.chance(15) {
                Expr::Call("+", vec![aggregate, super::expression::integer(1)])
            } else {
                aggregate
            };
            items.push((Some(expression), var));
        }
        if self.random.chance(25) {
            let aggregate = self.aggregate(scope, &keys);
            let operator = *self.random.pick(&["=", "!=", "<", ">", ">="]);
            let other = super::expression::integer(self.random.below(3));
            select
                .having
                .push(Expr::Call(operator, vec![aggregate, other]));
            if depth > 0 && self.random.chance(30) {
                select.having.push(self.exists(&keys, depth));
            }
        }
        select.items = Some(items);
    }

    fn modifiers(&mut self, select: &mut Select, top: bool) {
        select.duplicates = match self.random.below(10) {
            0 | 1 => Duplicates::Distinct,
            // How many duplicates REDUCED keeps is open, so nothing may depend on it.
            2 if top => Duplicates::Reduced,
            _ => Duplicates::Kept,
        };
        let visible = select.variables();
        if self.random.chance(if top { 30 } else { 15 }) && !visible.is_empty() {
            for _ in 0..1 + self.random.below(2) {
                let grouped = select.group_by.len() + select.having.len() > 0
                    || select
                        .items
                        .iter()
                        .flatten()
                        .any(|(item, _)| item.is_some());
                let key = if grouped || self.random.chance(80) {
                    Expr::Var(*self.random.pick(&visible))
                } else {
                    // The order of an answer is judged by what its rows show.
                    self.strict = true;
                    let key = self.any(&visible, 1);
                    self.strict = false;
                    key
                };
                select.order_by.push((self.random.chance(40), key));
            }
        }
        let slice = if select.order_by.is_empty() { 6 } else { 45 };
        if select.duplicates != Duplicates::Reduced && self.random.chance(slice) {
            if self.random.chance(80) {
                select.limit = Some(self.random.below(8));
            }
            if self.random.chance(40) {
                select.offset = Some(self.random.below(4));
            }
        }
    }
}

/// The names of graphs that queries use.
#[must_use]
pub fn graph_names() -> Vec<NamedNode> {
    ["g0", "g1", "s0"].map(iri).to_vec()
}
