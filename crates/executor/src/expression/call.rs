//! Calls of functions, by columns where there is a kernel for them, and else row by row.

use std::borrow::Cow;

use stoa_planner::expression::Function;
use stoa_terms::TermId;

use super::column::{Cell, Column, Strings, Texts};
use super::evaluate::Evaluation;
use super::node::Node;
use super::{integers, numbers};
use crate::context::Computed;
use crate::error::Result;
use crate::function::regex::Pattern;
use crate::function::{self, Implementation};

impl<'a> Evaluation<'a> {
    pub(super) fn call<'n>(&self, function: Function, arguments: &'n [Node]) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let implementation = function::implementation(function);
        let texts = numbers::texts(function);
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
                let general = |row| {
                    let cell = columns.first()?.cell(row, self.context);
                    call(&[cell], self.context)
                };
                if let Some(numbers) = numbers::call(function, &columns, self.rows(), general) {
                    return Ok(Column::Numbers(numbers));
                }
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
    pub(super) fn pattern<'n>(
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
