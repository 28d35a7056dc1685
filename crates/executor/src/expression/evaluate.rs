//! Evaluation of a compiled expression over one batch.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use stoa_terms::TermId;

use super::column::{Column, FREE_BYTES, HeldTexts, Texts, fetch_texts_beyond};
use super::node::Node;
use super::number::Number;
use super::{arithmetic, compare, integers, numbers, operand};
use crate::batch::{Batch, gather};
use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::function;
use crate::memory::{Memory, UNNAMED};
use crate::steps::{CALL_STEPS, Steps};

/// What a row of a column costs at least.
const ROW_STEPS: u64 = 4;

/// One batch while an expression is evaluated over it.
pub(crate) struct Evaluation<'a> {
    pub(super) batch: &'a Batch,
    pub(super) context: &'a QueryContext,
    /// So many bytes of each column of texts are not reserved.
    pub(super) free_bytes: usize,
    /// Texts of the batch's columns, inline literals included, fetched at most once.
    texts: RefCell<Vec<Option<Rc<HeldTexts>>>>,
    /// What BNODE gave for a string in a row.
    pub(super) blank_nodes: RefCell<HashMap<(usize, String), TermId>>,
    /// How many bytes these strings have, and the account of what they take.
    pub(super) labels: RefCell<(Option<Memory>, usize)>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(batch: &'a Batch, context: &'a QueryContext) -> Self {
        Self {
            batch,
            context,
            free_bytes: FREE_BYTES,
            texts: RefCell::new(vec![None; batch.columns.len()]),
            blank_nodes: RefCell::new(HashMap::new()),
            labels: RefCell::new((None, 0)),
        }
    }

    /// The same with so many bytes of each column of texts that are not reserved.
    pub(super) fn with_free_bytes(self, free_bytes: usize) -> Self {
        Self { free_bytes, ..self }
    }

    /// An evaluation over some rows, as a part of this one.
    fn of_part<'b>(&self, batch: &'b Batch) -> Evaluation<'b>
    where
        'a: 'b,
    {
        Evaluation::new(batch, self.context).with_free_bytes(self.free_bytes)
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
        if let Column::Numbers(numbers) = &column {
            return operand::of_numbers(numbers, self.context);
        }
        match operand::of_values(&column) {
            Some(operands) => Ok(operands),
            None => Ok(operand::of_terms(self.resolve(column)?)),
        }
    }

    pub(super) fn resolve(&self, column: Column<'_>) -> Result<Vec<TermId>> {
        match column {
            Column::Ids(ids, _) => Ok(ids.into_owned()),
            Column::Constant(constant) => Ok(vec![constant.id; self.rows()]),
            Column::Error => Ok(vec![TermId::UNBOUND; self.rows()]),
            Column::Booleans(values) => Ok(values
                .into_iter()
                .map(|value| value.map_or(TermId::UNBOUND, TermId::from))
                .collect()),
            Column::Numbers(numbers) => numbers.resolve(Number::id, self.context),
            column => {
                let cell = |row| column.cell(row, self.context);
                let bytes = |row| cell(row).text_bytes();
                let is_long = column.text_bytes(self.rows()) > FREE_BYTES;
                self.resolve_rows(is_long.then_some(&bytes), &mut |row| cell(row).computed())
            }
        }
    }

    /// The ids of the terms that `term` makes for each row. Where these are long they are made a few at a time, and `bytes`
    /// says how long they are at most.
    pub(super) fn resolve_rows(
        &self,
        bytes: Option<&dyn Fn(usize) -> usize>,
        term: &mut dyn FnMut(usize) -> Computed,
    ) -> Result<Vec<TermId>> {
        let Some(bytes) = bytes else {
            return self.context.resolve((0..self.rows()).map(term).collect());
        };
        let mut memory = self.context.memory(UNNAMED);
        let mut ids = Vec::with_capacity(self.rows());
        let (mut terms, mut waiting) = (Vec::new(), 0);
        for row in 0..self.rows() {
            let more = bytes(row);
            if waiting + more > FREE_BYTES {
                ids.extend(self.context.resolve(std::mem::take(&mut terms))?);
                self.context.check()?;
                waiting = 0;
                if more > FREE_BYTES {
                    memory.require(more as u64)?;
                }
            }
            waiting += more;
            terms.push(term(row));
        }
        ids.extend(self.context.resolve(terms)?);
        Ok(ids)
    }

    /// The values for each row; texts of ids are not fetched.
    pub(super) fn column<'n>(&self, node: &'n Node) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        // Large expressions are many columns.
        self.context.take_steps(self.rows() as u64 * ROW_STEPS)?;
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
                let steps = Steps::new(self.context);
                let general = |row| {
                    steps.take(CALL_STEPS)?;
                    let left = left.cell(row, self.context).value()?;
                    let right = right.cell(row, self.context).value()?;
                    arithmetic::calculate(*operator, &left, &right)
                };
                let column =
                    match numbers::calculate(*operator, &left, &right, self.rows(), general) {
                        Some(numbers) => Column::Numbers(numbers),
                        None => Column::Values(self.each_row(general)),
                    };
                steps.check()?;
                column
            }
            Node::Plus(inner) => Column::Ids(self.plus(inner)?.into(), None),
            Node::Minus(inner) => {
                let column = self.with_texts(inner, Texts::Dictionary)?;
                let general = |row| {
                    let value = column.cell(row, self.context).value()?;
                    arithmetic::negate(&value)
                };
                match numbers::negate(&column, self.rows(), general) {
                    Some(numbers) => Column::Numbers(numbers),
                    None => Column::Values(self.each_row(general)),
                }
            }
            Node::If(parts) => Column::Ids(self.choose(parts)?.into(), None),
            Node::Coalesce(parts) => Column::Ids(self.coalesce(parts)?.into(), None),
            Node::NumberOfTerm(column, inner, memo) => self.number_of_term(*column, inner, memo)?,
            Node::Call(function, arguments) => self.call(*function, arguments)?,
            Node::Pattern(function, arguments, regex) => {
                self.pattern(*function, arguments, regex)?
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

    pub(super) fn each_row<T>(&self, value: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.rows()).map(value).collect()
    }

    pub(super) fn with_texts<'n>(&self, node: &'n Node, wanted: Texts) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let column = self.column(node)?;
        match column {
            Column::Ids(ids, _) if numbers::has_texts(&ids, wanted) => {
                let texts = match node {
                    Node::Column(number) => self.column_texts(*number, &ids, wanted)?,
                    _ => Rc::new(self.fetch_texts(&ids, wanted != Texts::Dictionary)?),
                };
                Ok(Column::Ids(ids, Some(texts)))
            }
            column => Ok(column),
        }
    }

    fn fetch_texts(&self, ids: &[TermId], with_inline: bool) -> Result<HeldTexts> {
        fetch_texts_beyond(self.free_bytes, ids, with_inline, self.context)
    }

    /// The texts of a column of the batch. What was fetched for one use serves the others.
    fn column_texts(&self, number: usize, ids: &[TermId], wanted: Texts) -> Result<Rc<HeldTexts>> {
        if let Some(Some(texts)) = self.texts.borrow().get(number) {
            return Ok(Rc::clone(texts));
        }
        if wanted == Texts::Dictionary && ids.iter().all(|id| id.is_inline()) {
            return Ok(Rc::new(HeldTexts::empty(self.context)));
        }
        let texts = Rc::new(self.fetch_texts(ids, true)?);
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
                    self.of_part(&batch).booleans(part, errors)?
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
            self.of_part(&batch).ids(node)?
        };
        for (row, id) in rows.iter().zip(ids) {
            if let Some(slot) = result.get_mut(*row as usize) {
                *slot = id;
            }
        }
        Ok(())
    }
}
