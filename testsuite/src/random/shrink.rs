//! Queries with one thing less, for making a failing query smaller.

use super::ast::{Duplicates, Element, Expr, Form, Group, Path, Query, Select};

/// Smaller queries, the boldest cuts first. Some of them may not be valid SPARQL.
#[must_use]
pub fn query(query: &Query) -> Vec<Query> {
    let mut smaller = Vec::new();
    let with = |form: Form| Query {
        form,
        ..query.clone()
    };
    if !query.from.is_empty() || !query.from_named.is_empty() {
        smaller.push(Query {
            from: Vec::new(),
            from_named: Vec::new(),
            ..query.clone()
        });
    }
    match &query.form {
        Form::Ask(pattern) => {
            smaller.extend(group(pattern).into_iter().map(|g| with(Form::Ask(g))))
        }
        Form::Construct(template, pattern) => {
            for at in 0..template.len() {
                let mut template = template.clone();
                template.remove(at);
                smaller.push(with(Form::Construct(template, pattern.clone())));
            }
            for pattern in group(pattern) {
                smaller.push(with(Form::Construct(template.clone(), pattern)));
            }
        }
        Form::Select(inner) => {
            smaller.extend(select(inner).into_iter().map(|s| with(Form::Select(s))));
        }
    }
    smaller
}

fn without<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    (0..list.len())
        .map(|at| {
            let mut list = list.to_vec();
            list.remove(at);
            list
        })
        .collect()
}

fn select(select: &Select) -> Vec<Select> {
    let mut smaller = Vec::new();
    let mut push = |change: &dyn Fn(&mut Select)| {
        let mut changed = select.clone();
        change(&mut changed);
        if changed != *select {
            smaller.push(changed);
        }
    };
    push(&|s| {
        (s.limit, s.offset) = (None, None);
        s.order_by.clear();
    });
    push(&|s| (s.limit, s.offset) = (None, None));
    push(&|s| s.values = None);
    push(&|s| s.having.clear());
    push(&|s| s.duplicates = Duplicates::Kept);
    for keys in without(&select.order_by) {
        push(&|s| s.order_by.clone_from(&keys));
    }
    for keys in without(&select.group_by) {
        push(&|s| s.group_by.clone_from(&keys));
    }
    if select.group_by.is_empty() {
        push(&|s| s.items = None);
    }
    if let Some(items) = &select.items {
        if items.len() > 1 {
            for items in without(items) {
                push(&|s| s.items = Some(items.clone()));
            }
        }
        for (at, (item, var)) in items.iter().enumerate() {
            for item in item.iter().flat_map(expression) {
                let mut items = items.clone();
                if let Some(place) = items.get_mut(at) {
                    *place = (Some(item), *var);
                }
                push(&|s| s.items = Some(items.clone()));
            }
        }
    }
    for pattern in group(&select.pattern) {
        push(&|s| s.pattern = pattern.clone());
    }
    smaller
}

fn group(whole: &Group) -> Vec<Group> {
    let mut smaller: Vec<Group> = without(&whole.elements)
        .into_iter()
        .map(|elements| Group { elements })
        .collect();
    for (at, inner) in whole.elements.iter().enumerate() {
        for replacement in element(inner) {
            let mut elements = whole.elements.clone();
            elements.splice(at..=at, replacement);
            smaller.push(Group { elements });
        }
    }
    smaller
}

/// What may stand instead of an element.
#[expect(clippy::too_many_lines, reason = "one match over all elements")]
fn element(whole: &Element) -> Vec<Vec<Element>> {
    let mut smaller: Vec<Vec<Element>> = Vec::new();
    let mut one = |element: Element| smaller.push(vec![element]);
    match whole {
        Element::Triples(triples) if triples.len() > 1 => {
            without(triples)
                .into_iter()
                .for_each(|t| one(Element::Triples(t)));
        }
        Element::Triples(_) => {}
        Element::Path(subject, inner, object) => {
            path(inner)
                .into_iter()
                .for_each(|p| one(Element::Path(subject.clone(), p, object.clone())));
        }
        Element::Reified(reified) => {
            one(Element::Triples(reified.triples()));
            for about in without(&reified.about) {
                let mut shorter = reified.clone();
                shorter.about = about;
                one(Element::Reified(shorter));
            }
        }
        Element::Filter(condition) => {
            expression(condition)
                .into_iter()
                .for_each(|e| one(Element::Filter(e)));
        }
        Element::Optional(inner) => {
            group(inner)
                .into_iter()
                .for_each(|g| one(Element::Optional(g)));
            smaller.push(inner.elements.clone());
        }
        Element::Union(branches) => {
            if branches.len() > 1 {
                without(branches)
                    .into_iter()
                    .for_each(|b| one(Element::Union(b)));
            }
            for (at, branch) in branches.iter().enumerate() {
                for replacement in group(branch) {
                    let mut branches = branches.clone();
                    branches.splice(at..=at, [replacement]);
                    one(Element::Union(branches));
                }
            }
            if let [only] = branches.as_slice() {
                smaller.push(only.elements.clone());
            }
        }
        Element::Minus(inner) => {
            group(inner)
                .into_iter()
                .for_each(|g| one(Element::Minus(g)));
        }
        Element::Graph(slot, inner) => {
            group(inner)
                .into_iter()
                .for_each(|g| one(Element::Graph(slot.clone(), g)));
            smaller.push(inner.elements.clone());
        }
        Element::Bind(value, var) => {
            expression(value)
                .into_iter()
                .for_each(|e| one(Element::Bind(e, *var)));
        }
        Element::Values(vars, rows) => {
            without(rows)
                .into_iter()
                .for_each(|r| one(Element::Values(vars.clone(), r)));
        }
        Element::Select(inner) => {
            select(inner)
                .into_iter()
                .for_each(|s| one(Element::Select(Box::new(s))));
            smaller.push(inner.pattern.elements.clone());
        }
    }
    smaller
}

fn path(whole: &Path) -> Vec<Path> {
    let one = |inner: &Path, make: fn(Box<Path>) -> Path| {
        let mut smaller = vec![inner.clone()];
        smaller.extend(path(inner).into_iter().map(|inner| make(Box::new(inner))));
        smaller
    };
    let two = |a: &Path, b: &Path, make: fn(Box<Path>, Box<Path>) -> Path| {
        let mut smaller = vec![a.clone(), b.clone()];
        let (left, right) = (path(a).into_iter(), path(b).into_iter());
        smaller.extend(left.map(|a| make(Box::new(a), Box::new(b.clone()))));
        smaller.extend(right.map(|b| make(Box::new(a.clone()), Box::new(b))));
        smaller
    };
    match whole {
        Path::Iri(_) => Vec::new(),
        Path::Inverse(inner) => one(inner, Path::Inverse),
        Path::Sequence(a, b) => two(a, b, Path::Sequence),
        Path::Alternative(a, b) => two(a, b, Path::Alternative),
        Path::ZeroOrOne(inner) => one(inner, Path::ZeroOrOne),
        Path::ZeroOrMore(inner) => one(inner, Path::ZeroOrMore),
        Path::OneOrMore(inner) => one(inner, Path::OneOrMore),
        Path::Negated(ahead, back) => {
            let mut smaller = Vec::new();
            for list in without(ahead) {
                smaller.push(Path::Negated(list, back.clone()));
            }
            for list in without(back) {
                smaller.push(Path::Negated(ahead.clone(), list));
            }
            smaller.retain(|p| !matches!(p, Path::Negated(a, b) if a.is_empty() && b.is_empty()));
            smaller
        }
    }
}

fn expression(whole: &Expr) -> Vec<Expr> {
    let mut smaller = Vec::new();
    match whole {
        Expr::Var(_) | Expr::Term(_) => {}
        Expr::Exists(wanted, inner) => {
            smaller.extend(group(inner).into_iter().map(|g| Expr::Exists(*wanted, g)));
        }
        Expr::Aggregate(aggregate) => {
            for argument in aggregate.argument.iter().flat_map(expression) {
                let mut aggregate = aggregate.clone();
                aggregate.argument = Some(argument);
                smaller.push(Expr::Aggregate(aggregate));
            }
        }
        Expr::Call(function, arguments) => {
            // BOUND takes a variable only.
            if *function == "BOUND" {
                return smaller;
            }
            smaller.extend(arguments.iter().cloned());
            for (at, argument) in arguments.iter().enumerate() {
                for replacement in expression(argument) {
                    let mut arguments = arguments.clone();
                    arguments.splice(at..=at, [replacement]);
                    smaller.push(Expr::Call(function, arguments));
                }
            }
        }
    }
    smaller
}
