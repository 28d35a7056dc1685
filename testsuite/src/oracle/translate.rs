//! From the tree of a query to the algebra (18.2).

use crate::random::ast::{
    Aggregate, Duplicates, Element, Expr, Group, Path, Rows, Select, Slot, Triple, Var,
};

/// The symbols of the algebra (18.2).
#[derive(Clone, Debug)]
pub enum Algebra {
    /// A basic graph pattern; the empty one is Z.
    Bgp(Vec<Triple>),
    /// Path.
    Path(Slot, Path, Slot),
    /// Join.
    Join(Box<Algebra>, Box<Algebra>),
    /// LeftJoin; no expression is `true`.
    LeftJoin(Box<Algebra>, Box<Algebra>, Option<Expr>),
    /// Filter.
    Filter(Expr, Box<Algebra>),
    /// Union.
    Union(Box<Algebra>, Box<Algebra>),
    /// Minus.
    Minus(Box<Algebra>, Box<Algebra>),
    /// Graph.
    Graph(Slot, Box<Algebra>),
    /// Extend.
    Extend(Box<Algebra>, Var, Expr),
    /// ToMultiSet of the data of VALUES.
    Values(Vec<Var>, Rows),
    /// Group and AggregateJoin: key expressions, each with the variable that takes its value, and
    /// aggregates.
    Group {
        /// Keys; none with `one` true is `Group((1), P)`.
        keys: Vec<(Expr, Option<Var>)>,
        /// Whether there is one group whatever the solutions, as GROUP BY is not written.
        one: bool,
        /// Aggregates and the variables that take their values.
        aggregates: Vec<(Var, Aggregate)>,
        /// What is grouped.
        pattern: Box<Algebra>,
        /// The variables in scope of the pattern, for `COUNT(DISTINCT *)`.
        scope: Vec<Var>,
    },
    /// OrderBy.
    OrderBy(Box<Algebra>, Vec<(bool, Expr)>),
    /// Project.
    Project(Box<Algebra>, Vec<Var>),
    /// Distinct.
    Distinct(Box<Algebra>),
    /// Reduced.
    Reduced(Box<Algebra>),
    /// Slice: start and length.
    Slice(Box<Algebra>, usize, Option<usize>),
}

/// Translates; `next` is the next variable that nothing names.
#[derive(Debug)]
pub struct Translator {
    /// How many variables there are.
    pub next: Var,
}

impl Translator {
    /// Translates a group graph pattern (18.2.2.6).
    pub fn group(&mut self, group: &Group) -> Algebra {
        // "Let FS := the empty set; Let G := the empty pattern, a basic graph pattern which is the
        // empty set." Filters of the group are collected first (18.2.2.2).
        let mut filters: Option<Expr> = None;
        let mut g = Algebra::Bgp(Vec::new());
        for element in &group.elements {
            g = match element {
                Element::Filter(condition) => {
                    filters = Some(match filters {
                        None => condition.clone(),
                        Some(before) => Expr::Call("&&", vec![before, condition.clone()]),
                    });
                    g
                }
                // "If E is of the form OPTIONAL{P}: Let A := Translate(P). If A is of the form
                // Filter(F, A2) G := LeftJoin(G, A2, F), else G := LeftJoin(G, A, true)."
                Element::Optional(inner) => match self.group(inner) {
                    Algebra::Filter(f, a2) => Algebra::LeftJoin(Box::new(g), a2, Some(f)),
                    a => Algebra::LeftJoin(Box::new(g), Box::new(a), None),
                },
                // "If E is of the form MINUS{P}: G := Minus(G, Translate(P))."
                Element::Minus(inner) => Algebra::Minus(Box::new(g), Box::new(self.group(inner))),
                // "If E is of the form BIND(expr AS var): G := Extend(G, var, expr)."
                Element::Bind(value, var) => Algebra::Extend(Box::new(g), *var, value.clone()),
                // "If E is any other form: Let A := Translate(E). G := Join(G, A)."
                Element::Triples(triples) => self.join(g, Algebra::Bgp(triples.clone())),
                // SPARQL 1.2, 4.3: reifiers and annotations stand for triple patterns.
                Element::Reified(reified) => self.join(g, Algebra::Bgp(reified.triples())),
                // 18.2.2.4 makes triple patterns of predicates and sequences, which mean the same.
                Element::Path(x, path, y) => {
                    self.join(g, Algebra::Path(x.clone(), path.clone(), y.clone()))
                }
                Element::Union(branches) => {
                    let union = self.union(branches);
                    self.join(g, union)
                }
                Element::Graph(slot, inner) => {
                    let inner = Box::new(self.group(inner));
                    self.join(g, Algebra::Graph(slot.clone(), inner))
                }
                Element::Values(vars, rows) => {
                    self.join(g, Algebra::Values(vars.clone(), rows.clone()))
                }
                Element::Select(select) => {
                    let inner = self.select(select);
                    self.join(g, inner)
                }
            };
        }
        // "If FS is not empty: Let G := Filter(X, G)."
        match filters {
            None => g,
            Some(condition) => Algebra::Filter(condition, Box::new(g)),
        }
    }

    /// Join with the simplification step (18.2.2.8): "join(Z, A) can be replaced by A". What comes of
    /// it must not look like a filter to an OPTIONAL around, since the test
    /// dawg-optional-filter-005-not-simplified says that the inner filter stays inside.
    fn join(&self, g: Algebra, a: Algebra) -> Algebra {
        match (&g, &a) {
            (Algebra::Bgp(triples), Algebra::Bgp(_) | Algebra::Path(..)) if triples.is_empty() => a,
            _ => Algebra::Join(Box::new(g), Box::new(a)),
        }
    }

    /// GroupOrUnionGraphPattern (18.2.2.6).
    fn union(&mut self, branches: &[Group]) -> Algebra {
        let mut all: Option<Algebra> = None;
        for branch in branches {
            let a = self.group(branch);
            all = Some(match all {
                None => a,
                Some(before) => Algebra::Union(Box::new(before), Box::new(a)),
            });
        }
        all.unwrap_or(Algebra::Bgp(Vec::new()))
    }

    /// SELECT: grouping and modifiers (18.2.4, 18.2.5).
    pub fn select(&mut self, select: &Select) -> Algebra {
        let mut x = self.group(&select.pattern);
        let scope = crate::random::ast::in_scope(&select.pattern)
            .into_iter()
            .collect();
        // 18.2.4.1: aggregates are replaced by variables.
        let mut aggregates = Vec::new();
        let mut items = Vec::new();
        for (item, var) in select.items.iter().flatten() {
            if let Some(item) = item {
                items.push((*var, self.pull(item, &mut aggregates)));
            }
        }
        let having: Vec<Expr> = select
            .having
            .iter()
            .map(|h| self.pull(h, &mut aggregates))
            .collect();
        let order: Vec<(bool, Expr)> = select
            .order_by
            .iter()
            .map(|(d, k)| (*d, self.pull(k, &mut aggregates)))
            .collect();
        if !select.group_by.is_empty() || !aggregates.is_empty() || !having.is_empty() {
            x = Algebra::Group {
                one: select.group_by.is_empty(),
                keys: select.group_by.clone(),
                aggregates,
                pattern: Box::new(x),
                scope,
            };
        }
        // 18.2.4.2: HAVING.
        for condition in having {
            x = Algebra::Filter(condition, Box::new(x));
        }
        // 18.2.4.3: VALUES.
        if let Some((vars, rows)) = &select.values {
            x = Algebra::Join(
                Box::new(x),
                Box::new(Algebra::Values(vars.clone(), rows.clone())),
            );
        }
        // 18.2.4.4: SELECT expressions.
        for (var, item) in items {
            x = Algebra::Extend(Box::new(x), var, item);
        }
        // 18.2.5: ORDER BY, projection, DISTINCT, REDUCED, OFFSET and LIMIT, in this order.
        if !order.is_empty() {
            x = Algebra::OrderBy(Box::new(x), order);
        }
        x = Algebra::Project(Box::new(x), select.variables());
        x = match select.duplicates {
            Duplicates::Kept => x,
            Duplicates::Distinct => Algebra::Distinct(Box::new(x)),
            Duplicates::Reduced => Algebra::Reduced(Box::new(x)),
        };
        if select.limit.is_some() || select.offset.is_some() {
            x = Algebra::Slice(Box::new(x), select.offset.unwrap_or(0), select.limit);
        }
        x
    }

    fn pull(&mut self, expression: &Expr, aggregates: &mut Vec<(Var, Aggregate)>) -> Expr {
        match expression {
            Expr::Aggregate(aggregate) => {
                let var = self.next;
                self.next += 1;
                aggregates.push((var, (**aggregate).clone()));
                Expr::Var(var)
            }
            Expr::Call(function, arguments) => Expr::Call(
                function,
                arguments.iter().map(|a| self.pull(a, aggregates)).collect(),
            ),
            other => other.clone(),
        }
    }
}
