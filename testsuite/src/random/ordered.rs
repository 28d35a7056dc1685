//! Queries whose order, or whose different values, an index has: ORDER BY or DISTINCT of a variable that a pattern binds,
//! among whatever else a group has.

use super::ast::{Duplicates, Element, Expr, Group, Select, Slot, Var, in_scope};
use super::data::iri;
use super::query::Generator;

impl Generator<'_> {
    /// Such a query.
    pub(super) fn ordered(&mut self) -> Select {
        let (subject, value) = (0, 1);
        let predicate = match self.random.chance(80) {
            true => Slot::Term(self.random.pick(&self.data.predicates).clone().into()),
            false => Slot::Var(2),
        };
        let first = Element::Triples(vec![[Slot::Var(subject), predicate, Slot::Var(value)]]);
        let mut pattern = Group {
            elements: vec![self.in_graph(first)],
        };
        for _ in 0..self.random.below(3) {
            let own: Vec<Var> = in_scope(&pattern).into_iter().collect();
            let element = self.element(&own, &own, 1);
            pattern.elements.push(element);
        }
        let visible: Vec<Var> = in_scope(&pattern).into_iter().collect();
        let key = match self.random.chance(70) {
            true => value,
            false => *self.random.pick(&visible),
        };
        let mut select = Select::all(pattern);
        if self.random.chance(30) {
            select.duplicates = Duplicates::Distinct;
            select.items = Some(vec![(None, key)]);
        }
        if select.items.is_none() || self.random.chance(30) {
            let more = *self.random.pick(&visible);
            let is_shown = select.items.is_none() && self.random.chance(50);
            for key in [Some(key), Some(more).filter(|_| is_shown)]
                .into_iter()
                .flatten()
            {
                select
                    .order_by
                    .push((self.random.chance(50), Expr::Var(key)));
            }
            if self.random.chance(60) {
                select.limit = Some(self.random.below(8));
            }
            if self.random.chance(20) {
                select.offset = Some(self.random.below(4));
            }
        }
        select
    }

    /// An element within GRAPH, sometimes.
    fn in_graph(&mut self, element: Element) -> Element {
        let slot = match self.random.below(10) {
            0 => Slot::Var(3),
            1 | 2 => Slot::Term(iri(self.random.pick(&["g0", "g1", "s0"])).into()),
            _ => return element,
        };
        let elements = vec![element];
        Element::Graph(slot, Group { elements })
    }
}
