//! Evaluation of a compiled expression over one batch.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use stoa_planner::expression::Function;
use stoa_terms::TermId;

use super::column::{Cell, Column, FREE_BYTES, HeldTexts, Strings, Texts, fetch_texts};
use super::node::Node;
use super::{arithmetic, compare, integers, operand};
use crate::batch::{Batch, gather};
use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::function::regex::Pattern;
use crate::function::{self, Implementation};

/// One batch while an expression is evaluated over it.
pub(crate) struct Evaluation<'a> {
    pub(super) batch: &'a Batch,
    pub(super) context: &'a QueryContext,
    /// Texts of the batch's columns, inline literals included, fetched at most once.
    texts: RefCell<Vec<Option<Rc<HeldTexts>>>>,
    /// What BNODE gave for a string in a row.
    blank_nodes: RefCell<HashMap<(usize, String), TermId>>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(batch: &'a Batch, context: &'a QueryContext) -> Self {
        Self {
            batch,
            context,
            texts: RefCell::new(vec![None; batch.columns.len()]),
            blank_nodes: RefCell::new(HashMap::new()),
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.batch.rows
    }

    /// The id for each row, unbound for an error.
    pub(crate) fn ids(&self, node: &Node) -> Result<Vec<TermId>> {
        let column = self.column(node)?;
        self.resolve(column)
    }

    /// The operand of an aggregate for each row, unbound for an error.
    pub(super) fn operands(&self, node: &Node) -> Result<Vec<TermId>> {
        let column = self.column(node)?;
        match operand::operands(&column) {
            Some(operands) => Ok(operands),
            None => self.resolve(column),
        }
    }

    fn resolve(&self, column: Column<'_>) -> Result<Vec<TermId>> {
        match column {
            Column::Ids(ids, _) => Ok(ids.into_owned()),
            Column::Constant(constant) => Ok(vec![constant.id; self.rows()]),
            Column::Error => Ok(vec![TermId::UNBOUND; self.rows()]),
            Column::Booleans(values) => Ok(values
                .into_iter()
                .map(|value| value.map_or(TermId::UNBOUND, TermId::from))
                .collect()),
            column => {
                let bytes = match &column {
                    Column::Strings(strings) => strings.size_bytes(),
                    _ => 0,
                };
                // Long strings are copied a few at a time.
                let parts = bytes / FREE_BYTES + 1;
                let mut ids = Vec::with_capacity(self.rows());
                let step = self.rows().div_ceil(parts).max(1);
                for start in (0..self.rows()).step_by(step) {
                    let end = self.rows().min(start + step);
                    let computed = (start..end)
                        .map(|row| column.cell(row, self.context).computed())
                        .collect();
                    ids.extend(self.context.resolve(computed)?);
                    if parts > 1 {
                        self.context.check()?;
                    }
                }
                Ok(ids)
            }
        }
    }

    /// The values for each row; texts of ids are not fetched.
    pub(super) fn column<'n>(&self, node: &'n Node) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        Ok(match node {
            Node::Constant(constant) => Column::Constant(constant),
            Node::Column(column) => Column::Ids(Cow::Borrowed(self.batch.column(*column)), None),
            Node::Error => Column::Error,
            Node::Bound(_)
            | Node::Not(_)
            | Node::And(_)
            | Node::Or(_)
            | Node::Compare(..)
            | Node::In(..)
            | Node::OncePerTerm(..) => Column::Booleans(self.booleans(node, true)?),
            Node::Arithmetic(operator, parts) => {
                let [left, right] = &**parts;
                let left = self.with_texts(left, Texts::Dictionary)?;
                let right = self.with_texts(right, Texts::Dictionary)?;
                if let Some(ids) = integers::calculate(*operator, &left, &right, self.rows()) {
                    return Ok(Column::Ids(ids.into(), None));
                }
                Column::Values(self.each_row(|row| {
                    let left = left.cell(row, self.context).value()?;
                    let right = right.cell(row, self.context).value()?;
                    arithmetic::calculate(*operator, &left, &right)
                }))
            }
            Node::Plus(inner) => Column::Ids(self.plus(inner)?.into(), None),
            Node::Minus(inner) => {
                let column = self.with_texts(inner, Texts::Dictionary)?;
                Column::Values(self.each_row(|row| {
                    let value = column.cell(row, self.context).value()?;
                    arithmetic::negate(&value)
                }))
            }
            Node::If(parts) => Column::Ids(self.choose(parts)?.into(), None),
            Node::Coalesce(parts) => Column::Ids(self.coalesce(parts)?.into(), None),
            Node::Call(function, arguments) => self.call(*function, arguments)?,
            Node::Pattern(function, arguments, regex) => {
                self.pattern(*function, arguments, regex.as_deref())?
            }
        })
    }

    /// Unary plus gives its operand, as it is written; one of a derived type gives its base type.
    fn plus(&self, inner: &Node) -> Result<Vec<TermId>> {
        let column = self.with_texts(inner, Texts::Dictionary)?;
        let computed = self.each_row(|row| {
            let cell = column.cell(row, self.context);
            let value = cell.value().filter(|value| value.is_numeric());
            let Some(literal) = value.and_then(|value| value.to_literal()) else {
                return Computed::Unbound;
            };
            let mut datatype = String::new();
            function::datatype(&[cell], &mut datatype);
            if literal.datatype().as_str() == datatype {
                cell.computed()
            } else {
                Computed::Term(literal.into())
            }
        });
        self.context.resolve(computed)
    }

    fn each_row<T>(&self, value: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.rows()).map(value).collect()
    }

    fn with_texts<'n>(&self, node: &'n Node, wanted: Texts) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let column = self.column(node)?;
        match column {
            Column::Ids(ids, _) if wanted != Texts::None => {
                let texts = match node {
                    Node::Column(number) => self.column_texts(*number, &ids, wanted)?,
                    _ => Rc::new(fetch_texts(&ids, wanted == Texts::All, self.context)?),
                };
                Ok(Column::Ids(ids, Some(texts)))
            }
            column => Ok(column),
        }
    }

    /// The texts of a column of the batch. What was fetched for one use serves the others.
    fn column_texts(&self, number: usize, ids: &[TermId], wanted: Texts) -> Result<Rc<HeldTexts>> {
        if let Some(Some(texts)) = self.texts.borrow().get(number) {
            return Ok(Rc::clone(texts));
        }
        if wanted == Texts::Dictionary && ids.iter().all(|id| id.is_inline()) {
            return Ok(Rc::new(HeldTexts::empty(self.context)));
        }
        let texts = Rc::new(fetch_texts(ids, true, self.context)?);
        if let Some(slot) = self.texts.borrow_mut().get_mut(number) {
            *slot = Some(Rc::clone(&texts));
        }
        Ok(texts)
    }

    // ---- booleans ----

    /// The effective boolean value for each row. Where `errors` is false the caller takes an error
    /// for false, which spares reading texts that could only tell the two apart.
    pub(crate) fn booleans(&self, node: &Node, errors: bool) -> Result<Vec<Option<bool>>> {
        match node {
            Node::Bound(column) => Ok(self
                .batch
                .column(*column)
                .iter()
                .map(|id| Some(!id.is_unbound()))
                .collect()),
            Node::Not(inner) => {
                let mut values = self.booleans(inner, true)?;
                for value in &mut values {
                    *value = value.map(|value| !value);
                }
                Ok(values)
            }
            Node::And(parts) => self.logic(parts, false, errors),
            Node::Or(parts) => self.logic(parts, true, errors),
            Node::Compare(comparison, parts) => compare::compare(self, *comparison, parts, errors),
            Node::In(inner, list, members) => {
                compare::is_in(self, inner, list, members.as_deref(), errors)
            }
            Node::OncePerTerm(column, condition, memo) => {
                self.once_per_term(*column, condition, memo)
            }
            _ => {
                let column = self.with_texts(node, Texts::Dictionary)?;
                if let Column::Booleans(values) = column {
                    return Ok(values);
                }
                Ok(self.each_row(|row| column.cell(row, self.context).effective_boolean()))
            }
        }
    }

    /// AND (`decisive` is false) and OR (true): the decisive value wins over an error, an error
    /// over the rest. Rows that are decided are not evaluated further.
    fn logic(&self, parts: &[Node], decisive: bool, errors: bool) -> Result<Vec<Option<bool>>> {
        let mut result = vec![Some(!decisive); self.rows()];
        // The rows that are not decided, if not all.
        let mut open: Option<Vec<u32>> = None;
        for part in parts {
            let values = match &open {
                None => self.booleans(part, errors)?,
                Some(rows) if rows.is_empty() => break,
                Some(rows) => {
                    let batch = self.selected(rows, part);
                    Evaluation::new(&batch, self.context).booleans(part, errors)?
                }
            };
            let rows: Vec<u32> = match open.take() {
                Some(rows) => rows,
                None => (0..).take(self.rows()).collect(),
            };
            let mut still_open = Vec::with_capacity(rows.len());
            for (row, value) in rows.into_iter().zip(values) {
                let Some(slot) = result.get_mut(row as usize) else {
                    continue;
                };
                if value == Some(decisive) {
                    *slot = value;
                } else {
                    if value.is_none() {
                        *slot = None;
                    }
                    // Where errors count as false, AND is decided by an error.
                    if value.is_some() || errors || decisive {
                        still_open.push(row);
                    }
                }
            }
            open = (still_open.len() < self.rows()).then_some(still_open);
        }
        Ok(result)
    }

    /// Some rows of the columns that `node` reads.
    fn selected(&self, rows: &[u32], node: &Node) -> Batch {
        let mut used = vec![false; self.batch.columns.len()];
        node.visit(&mut |node| {
            if let Node::Column(column) | Node::Bound(column) = node
                && let Some(used) = used.get_mut(*column)
            {
                *used = true;
            }
        });
        let columns = self.batch.columns.iter().zip(used);
        Batch {
            columns: columns
                .map(|(column, used)| {
                    if used {
                        gather(column, rows)
                    } else {
                        Vec::new()
                    }
                })
                .collect(),
            rows: rows.len(),
        }
    }

    // ---- functional forms ----

    /// IF: each branch is evaluated for the rows that take it.
    fn choose(&self, parts: &[Node; 3]) -> Result<Vec<TermId>> {
        let [condition, yes, no] = parts;
        let conditions = self.booleans(condition, true)?;
        let mut result = vec![TermId::UNBOUND; self.rows()];
        for (branch, taken) in [(yes, true), (no, false)] {
            let rows: Vec<u32> = (0..)
                .zip(&conditions)
                .filter(|(_, condition)| **condition == Some(taken))
                .map(|(row, _)| row)
                .collect();
            self.fill(branch, &rows, &mut result)?;
        }
        Ok(result)
    }

    /// COALESCE: each part is evaluated for the rows that have no value yet.
    fn coalesce(&self, parts: &[Node]) -> Result<Vec<TermId>> {
        let mut result = vec![TermId::UNBOUND; self.rows()];
        for part in parts {
            let rows: Vec<u32> = (0..)
                .zip(&result)
                .filter(|(_, id)| id.is_unbound())
                .map(|(row, _)| row)
                .collect();
            self.fill(part, &rows, &mut result)?;
        }
        Ok(result)
    }

    fn fill(&self, node: &Node, rows: &[u32], result: &mut [TermId]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let ids = if rows.len() == self.rows() {
            self.ids(node)?
        } else {
            let batch = self.selected(rows, node);
            Evaluation::new(&batch, self.context).ids(node)?
        };
        for (row, id) in rows.iter().zip(ids) {
            if let Some(slot) = result.get_mut(*row as usize) {
                *slot = id;
            }
        }
        Ok(())
    }

    // ---- functions ----

    fn call<'n>(&self, function: Function, arguments: &'n [Node]) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let implementation = function::implementation(function);
        let texts = function::texts(function);
        let columns = arguments
            .iter()
            .map(|argument| self.with_texts(argument, texts))
            .collect::<Result<Vec<_>>>()?;
        if let Some(ids) = integers::of_dates(function, &columns) {
            return Ok(Column::Ids(ids.into(), None));
        }
        Ok(match implementation {
            Implementation::String(call) => {
                let mut strings = Strings::new(self.context);
                self.each_call(&columns, |cells| {
                    // The tag may borrow from the arguments, never from the buffer.
                    let tag = call(cells, strings.buffer());
                    strings.finish(tag);
                });
                strings.into_column()?
            }
            Implementation::Boolean(call) => {
                let mut values = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells| values.push(call(cells)));
                Column::Booleans(values)
            }
            Implementation::Value(call) => {
                let mut values = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells| values.push(call(cells, self.context)));
                Column::Values(values)
            }
            Implementation::Term(call) => {
                let mut terms = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells| {
                    terms.push(call(cells, self.context).unwrap_or(Computed::Unbound));
                });
                Column::Ids(self.context.resolve(terms)?.into(), None)
            }
            Implementation::Cast(datatype) => {
                let mut terms = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells| {
                    let term = function::derived::cast_to(datatype, cells);
                    terms.push(term.unwrap_or(Computed::Unbound));
                });
                Column::Ids(self.context.resolve(terms)?.into(), None)
            }
            Implementation::Id(call) => {
                let columns = columns
                    .into_iter()
                    .map(|column| self.resolve(column))
                    .collect::<Result<Vec<_>>>()?;
                Column::Ids(call(&columns, self.context)?.into(), None)
            }
            Implementation::BlankNode => Column::Ids(self.blank_nodes(&columns)?.into(), None),
            Implementation::Pattern => self.dynamic_pattern(function, &columns)?,
        })
    }

    /// Calls `call` for each row with its arguments.
    fn each_call(&self, columns: &[Column<'_>], mut call: impl FnMut(&[Cell<'_>])) {
        let mut cells = Vec::with_capacity(columns.len());
        for row in 0..self.rows() {
            cells.clear();
            cells.extend(columns.iter().map(|column| column.cell(row, self.context)));
            call(&cells);
        }
    }

    fn blank_nodes(&self, columns: &[Column<'_>]) -> Result<Vec<TermId>> {
        if let [labels, solutions] = columns {
            let give = |row| {
                let label = labels.cell(row, self.context).plain();
                match (label, solutions.cell(row, self.context)) {
                    (Some(label), Cell::Id { id, .. }) => {
                        self.context.labelled_blank_node(id, &label)
                    }
                    _ => Ok(TermId::UNBOUND),
                }
            };
            return (0..self.rows()).map(give).collect();
        }
        Ok(self.each_row(|row| {
            let Some(column) = columns.first() else {
                return self.context.new_blank_node();
            };
            match column.cell(row, self.context).plain() {
                None => TermId::UNBOUND,
                Some(label) => *self
                    .blank_nodes
                    .borrow_mut()
                    .entry((row, label.into_owned()))
                    .or_insert_with(|| self.context.new_blank_node()),
            }
        }))
    }

    /// REGEX and REPLACE with a constant pattern.
    fn pattern<'n>(
        &self,
        function: Function,
        arguments: &'n [Node],
        regex: Option<&Pattern>,
    ) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let Some(regex) = regex else {
            return Ok(Column::Error);
        };
        let columns = arguments
            .iter()
            .map(|argument| self.with_texts(argument, Texts::All))
            .collect::<Result<Vec<_>>>()?;
        if function == Function::Regex {
            let mut values = Vec::with_capacity(self.rows());
            self.each_call(&columns, |cells| {
                values.push(function::regex::matches(cells, regex));
            });
            return Ok(Column::Booleans(values));
        }
        let mut strings = Strings::new(self.context);
        self.each_call(&columns, |cells| {
            let tag = function::regex::replace(cells, regex, strings.buffer());
            strings.finish(tag);
        });
        strings.into_column()
    }

    /// REGEX and REPLACE with a pattern that differs from row to row.
    fn dynamic_pattern<'n>(
        &self,
        function: Function,
        columns: &[Column<'_>],
    ) -> Result<Column<'n>> {
        let mut last: Option<(String, String, Option<Pattern>)> = None;
        let mut values = Vec::new();
        let mut strings = Strings::new(self.context);
        let flags_place = if function == Function::Regex { 2 } else { 3 };
        self.each_call(columns, |cells| {
            let pattern = cells.get(1).and_then(Cell::plain);
            let flags = match cells.get(flags_place) {
                None => Some(Cow::Borrowed("")),
                Some(flags) => flags.plain(),
            };
            let regex = pattern.zip(flags).and_then(|(pattern, flags)| {
                let known = last
                    .as_ref()
                    .is_some_and(|last| last.0 == pattern && last.1 == flags);
                if !known {
                    let regex = function::regex::compile(&pattern, &flags);
                    last = Some((pattern.into_owned(), flags.into_owned(), regex));
                }
                last.as_ref().and_then(|last| last.2.as_ref())
            });
            if function == Function::Regex {
                values.push(regex.and_then(|regex| function::regex::matches(cells, regex)));
            } else {
                let tag = regex
                    .and_then(|regex| function::regex::replace(cells, regex, strings.buffer()));
                strings.finish(tag);
            }
        });
        if function == Function::Regex {
            Ok(Column::Booleans(values))
        } else {
            strings.into_column()
        }
    }
}
