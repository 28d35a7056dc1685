//! Aggregates over NOT EXISTS of a cross product, which the planner may take as the difference of total and part.
//!
//! Most of them it can: groups that bind the keys and nothing else, once each; something to aggregate that shares no
//! variable with them; a pattern that sees both. Now and then a piece is any other, so that what cannot be taken so is
//! met as well.

use oxrdf::Term;

use super::ast::{
    Aggregate, Duplicates, Element, Expr, Group, Select, Slot, Triple, Var, in_scope,
};
use super::data::iri;
use super::query::Generator;

/// The variables of such a query.
struct Names {
    /// By which it is grouped.
    key: Var,
    /// Another key, or a variable beside it.
    other: Var,
    /// What is aggregated.
    subject: Var,
    value: Var,
    more: Var,
}

impl Generator<'_> {
    /// Such a query, without modifiers.
    pub(super) fn difference(&mut self) -> Select {
        let names = Names {
            key: self.new_variable(),
            other: self.new_variable(),
            subject: self.new_variable(),
            value: self.new_variable(),
            more: self.new_variable(),
        };
        let (groups, keys) = self.groups(&names);
        let mut elements = vec![groups];
        elements.extend(self.total(&names));
        if self.random.chance(15) {
            let condition = self.boolean(&[names.key], 1);
            elements.push(Element::Filter(condition));
        }
        if self.random.chance(20) {
            elements.swap(0, 1);
        }
        let more = in_scope(&Group {
            elements: elements.clone(),
        })
        .contains(&names.more);
        let pattern = self.excluded(&names, more);
        let negated = Expr::Exists(self.random.chance(5), pattern);
        elements.push(Element::Filter(negated));
        let mut select = Select::all(Group { elements });
        select.group_by = keys.iter().map(|key| (Expr::Var(*key), None)).collect();
        let mut items: Vec<(Option<Expr>, Var)> = keys.iter().map(|key| (None, *key)).collect();
        for _ in 0..1 + self.random.below(3) {
            let aggregate = self.subtractable(&names, &keys);
            items.push((Some(aggregate), self.new_variable()));
        }
        if self.random.chance(20) {
            let aggregate = self.subtractable(&names, &keys);
            let operator = *self.random.pick(&["!=", "<", ">="]);
            let bound = super::expression::integer(self.random.below(4));
            select
                .having
                .push(Expr::Call(operator, vec![aggregate, bound]));
        }
        select.items = Some(items);
        select
    }

    /// What gives the keys, and which they are.
    fn groups(&mut self, names: &Names) -> (Element, Vec<Var>) {
        let (key, other) = (names.key, names.other);
        let link = self.link();
        let (key_slot, other_slot) = (Slot::Var(key), Slot::Var(other));
        let triple = match self.random.below(3) {
            0 => [key_slot, link, other_slot],
            1 => [other_slot, link, key_slot],
            _ => [other_slot, Slot::Var(self.new_variable()), key_slot],
        };
        let is_distinct = self.random.chance(92);
        let distinct = |keys: &[Var]| {
            let pattern = Group {
                elements: vec![Element::Triples(vec![triple.clone()])],
            };
            let mut select = Select::all(pattern);
            select.items = Some(keys.iter().map(|key| (None, *key)).collect());
            if is_distinct {
                select.duplicates = Duplicates::Distinct;
            }
            Element::Select(Box::new(select))
        };
        match self.random.below(12) {
            0..=4 => (distinct(&[key]), vec![key]),
            5 | 6 => (distinct(&[key, other]), vec![key, other]),
            7 | 8 => {
                let mut rows: Vec<Vec<Option<Term>>> = Vec::new();
                for _ in 0..1 + self.random.below(3) {
                    let cell = self.cell();
                    let again = rows.iter().any(|row| *row == [cell.clone()]);
                    if !again || self.random.chance(20) {
                        rows.push(vec![cell]);
                    }
                }
                (Element::Values(vec![key], rows), vec![key])
            }
            9 => {
                let subject = self.random.pick(&self.data.nodes).clone();
                let triple = [Slot::Term(subject.into()), self.link(), Slot::Var(key)];
                (Element::Triples(vec![triple]), vec![key])
            }
            10 => (Element::Triples(vec![triple]), vec![key, other]),
            _ => (Element::Triples(vec![triple]), vec![key]),
        }
    }

    /// What is aggregated.
    fn total(&mut self, names: &Names) -> Vec<Element> {
        let (subject, value) = (Slot::Var(names.subject), Slot::Var(names.value));
        let predicate = match self.random.below(10) {
            0..=6 => Slot::Term(iri("p1").into()),
            7 | 8 => self.link(),
            _ => Slot::Var(self.new_variable()),
        };
        let mut triples = vec![[subject.clone(), predicate, value]];
        let mut elements = Vec::new();
        let more: Triple = [subject, self.link(), Slot::Var(names.more)];
        match self.random.below(10) {
            0 | 1 => triples.push(more),
            2 | 3 => elements.push(Element::Optional(Group {
                elements: vec![Element::Triples(vec![more])],
            })),
            4 => elements.push(Element::Minus(Group {
                elements: vec![Element::Triples(vec![more])],
            })),
            5 => {
                let expression = self.number(&[names.value], 1);
                elements.push(Element::Bind(expression, names.more));
            }
            _ => {}
        }
        elements.insert(0, Element::Triples(triples));
        if self.random.chance(20) {
            let condition = self.boolean(&[names.subject, names.value, names.more], 1);
            elements.push(Element::Filter(condition));
        }
        if self.random.chance(10) {
            let scope = [names.subject, names.value];
            let pattern = Group {
                elements: vec![Element::Triples(vec![self.triple(&scope, None)])],
            };
            let exists = Expr::Exists(self.random.chance(50), pattern);
            elements.push(Element::Filter(exists));
        }
        elements
    }

    /// What a group does not have; `more` says whether there is a variable of that name.
    fn excluded(&mut self, names: &Names, more: bool) -> Group {
        let key = match self.random.chance(85) {
            true => names.key,
            false => names.other,
        };
        // One that is unbound in some solutions is compatible with all groups.
        let ours = match self.random.below(10) {
            0..=3 if more => names.more,
            8 | 9 => names.value,
            _ => names.subject,
        };
        let (key, ours) = (Slot::Var(key), Slot::Var(ours));
        let between = Slot::Var(self.new_variable());
        let predicate = match self.random.chance(50) {
            true => self.link(),
            false => Slot::Var(self.new_variable()),
        };
        let mut elements = match self.random.below(10) {
            0..=2 => vec![Element::Triples(vec![[ours, predicate, key]])],
            3 | 4 => vec![Element::Triples(vec![[key, predicate, ours]])],
            5 => vec![Element::Triples(vec![
                [ours, predicate, between.clone()],
                [key, self.link(), between],
            ])],
            6 => vec![Element::Triples(vec![
                [ours, predicate, between.clone()],
                [between, self.link(), key],
            ])],
            7 => {
                let one = |triple| Group {
                    elements: vec![Element::Triples(vec![triple])],
                };
                let there = one([ours.clone(), predicate, key.clone()]);
                let back = one([key, self.link(), ours]);
                vec![Element::Union(vec![there, back])]
            }
            8 => {
                let optional = Group {
                    elements: vec![Element::Triples(vec![[ours, predicate, key.clone()]])],
                };
                vec![
                    Element::Triples(vec![[between, self.link(), key]]),
                    Element::Optional(optional),
                ]
            }
            9 if self.random.chance(60) => vec![
                Element::Triples(vec![[ours, predicate, between]]),
                Element::Triples(vec![[key, self.link(), Slot::Var(self.new_variable())]]),
            ],
            _ => {
                let scope = [names.key, names.subject, names.value];
                return self.group(&scope, 1);
            }
        };
        if self.random.chance(20) {
            let condition = self.boolean(&[names.key, names.subject, names.value], 1);
            elements.push(Element::Filter(condition));
        }
        Group { elements }
    }

    /// Mostly a count, sum or average over what is not grouped by.
    fn subtractable(&mut self, names: &Names, keys: &[Var]) -> Expr {
        let scope = [names.value, names.subject, names.more];
        if self.random.chance(8) {
            return self.aggregate(&scope, keys);
        }
        let function = *self.random.pick(&["COUNT", "SUM", "SUM", "AVG", "AVG"]);
        let argument = match self.random.below(10) {
            0..=2 if function == "COUNT" => None,
            0..=4 => Some(Expr::Var(names.value)),
            5 | 6 => {
                let value = vec![Expr::Var(names.value)];
                // Those of derived types are few, since spareval has none.
                let casts: &[&'static str] = match self.random.chance(5) {
                    true => &["xsd:int", "xsd:long", "xsd:nonPositiveInteger"],
                    false => &["xsd:integer", "xsd:decimal", "xsd:double"],
                };
                let cast = *self.random.pick(casts);
                let one = super::expression::integer(1);
                Some(Expr::Call("COALESCE", vec![Expr::Call(cast, value), one]))
            }
            _ => Some(self.number(&scope, 1)),
        };
        Expr::Aggregate(Box::new(Aggregate {
            function,
            distinct: self.random.chance(3),
            argument,
            separator: None,
        }))
    }

    /// A predicate, rather one between nodes.
    fn link(&mut self) -> Slot {
        let predicate = match self.random.chance(60) {
            true => iri("p0"),
            false => self.random.pick(&self.data.predicates).clone(),
        };
        Slot::Term(predicate.into())
    }
}
