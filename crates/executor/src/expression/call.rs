//! Calls of functions, by columns where there is a kernel for them, and else row by row.

use std::borrow::Cow;

use stoa_planner::expression::Function;
use stoa_terms::TermId;

use super::column::{Cell, Column, FREE_BYTES, Strings, Tag, Texts};
use super::evaluate::Evaluation;
use super::node::Node;
use super::{integers, numbers};
use crate::context::Computed;
use crate::error::Result;
use crate::function::regex::{Pattern, PatternError};
use crate::function::{self, Implementation};
use crate::memory::UNNAMED;
use crate::steps::{CALL_STEPS, Steps};

/// How many bytes what is made of arguments has at most.
type BytesOf<'f> = &'f dyn Fn(&[Cell<'_>]) -> usize;

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
                self.text(function, &columns, |cells, out, _| call(cells, out))?
            }
            Implementation::Text(call) => self.text(function, &columns, call)?,
            Implementation::Boolean(call) => {
                let mut values = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells, _| values.push(call(cells)))?;
                Column::Booleans(values)
            }
            Implementation::Search(call) => {
                let mut values = Vec::with_capacity(self.rows());
                self.each_call(&columns, |cells, steps| values.push(call(cells, steps)))?;
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
                self.each_call(&columns, |cells, _| values.push(call(cells, self.context)))?;
                Column::Values(values)
            }
            Implementation::Term(call) => {
                self.terms(&columns, |cells| call(cells, self.context))?
            }
            Implementation::Cast(datatype) => self.terms(&columns, |cells| {
                function::derived::cast_to(datatype, cells)
            })?,
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

    /// The strings that a function writes for each row.
    fn text<'n>(
        &self,
        function: Function,
        columns: &[Column<'_>],
        call: impl for<'c> FnMut(&[Cell<'c>], &mut String, &Steps<'_>) -> Option<Tag<'c>>,
    ) -> Result<Column<'n>> {
        let growth = function::growth(function);
        let is_long = self.text_bytes(columns).saturating_mul(growth) > self.free_bytes;
        let bytes = |cells: &[Cell<'_>]| {
            let bytes = cells.iter().map(Cell::text_bytes);
            bytes.fold(0, usize::saturating_add).saturating_mul(growth)
        };
        let bytes: Option<BytesOf<'_>> = is_long.then_some(&bytes);
        self.strings(columns, bytes, call)
    }

    /// The strings that `write` writes for each row. Where they may be long, `bytes` says how long each is at most.
    fn strings<'n>(
        &self,
        columns: &[Column<'_>],
        bytes: Option<BytesOf<'_>>,
        mut write: impl for<'c> FnMut(&[Cell<'c>], &mut String, &Steps<'_>) -> Option<Tag<'c>>,
    ) -> Result<Column<'n>> {
        let mut strings = Strings::new(self.free_bytes, self.context);
        self.each_call(columns, |cells, steps| {
            let fits = bytes.is_none_or(|bytes| strings.expect(bytes(cells)));
            // The tag may borrow from the arguments, never from the buffer.
            let tag = match fits {
                true => write(cells, strings.buffer(), steps),
                false => None,
            };
            strings.finish(tag);
        })?;
        strings.into_column()
    }

    /// The ids of the terms that `make` makes for each row of its arguments.
    fn terms<'n>(
        &self,
        columns: &[Column<'_>],
        make: impl Fn(&[Cell<'_>]) -> Option<Computed>,
    ) -> Result<Column<'n>> {
        let cells = |row: usize| {
            columns
                .iter()
                .map(move |column| column.cell(row, self.context))
        };
        let bytes = |row: usize| cells(row).map(|cell| cell.text_bytes()).sum::<usize>();
        let is_long = self.text_bytes(columns) > FREE_BYTES;
        let steps = Steps::new(self.context);
        let mut arguments = Vec::with_capacity(columns.len());
        let ids = self.resolve_rows(is_long.then_some(&bytes), &mut |row| {
            arguments.clear();
            arguments.extend(cells(row));
            let bytes = arguments.iter().map(Cell::text_bytes).sum::<usize>();
            let taken = steps.take(CALL_STEPS + bytes as u64 / 4);
            taken
                .and_then(|()| make(&arguments))
                .unwrap_or(Computed::Unbound)
        });
        steps.check()?;
        let ids = ids?;
        Ok(Column::Ids(ids.into(), None))
    }

    /// How many bytes the texts of columns have together.
    fn text_bytes(&self, columns: &[Column<'_>]) -> usize {
        let bytes = columns.iter().map(|column| column.text_bytes(self.rows()));
        bytes.fold(0, usize::saturating_add)
    }

    /// Calls `call` for each row with its arguments, and takes steps for what these hold; `call` takes more if it does
    /// more with them than look at each byte once.
    ///
    /// # Errors
    /// Whatever ends the query meanwhile.
    fn each_call(
        &self,
        columns: &[Column<'_>],
        mut call: impl FnMut(&[Cell<'_>], &Steps<'_>),
    ) -> Result<()> {
        let steps = Steps::new(self.context);
        let mut cells = Vec::with_capacity(columns.len());
        for row in 0..self.rows() {
            cells.clear();
            cells.extend(columns.iter().map(|column| column.cell(row, self.context)));
            let bytes = cells.iter().map(Cell::text_bytes).sum::<usize>();
            self.context.take_steps(CALL_STEPS + bytes as u64 / 4)?;
            call(&cells, &steps);
            steps.check()?;
        }
        Ok(())
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
        let Some(column) = columns.first() else {
            return Ok(self.each_row(|_| self.context.new_blank_node()));
        };
        let mut nodes = Vec::with_capacity(self.rows());
        for row in 0..self.rows() {
            let Some(label) = column.cell(row, self.context).plain() else {
                nodes.push(TermId::UNBOUND);
                continue;
            };
            self.hold_label(label.len())?;
            let mut known = self.blank_nodes.borrow_mut();
            let node = known.entry((row, label.into_owned()));
            nodes.push(*node.or_insert_with(|| self.context.new_blank_node()));
        }
        Ok(nodes)
    }

    /// Reserves what a label of a blank node takes, beyond the first bytes of all of them.
    fn hold_label(&self, bytes: usize) -> Result<()> {
        let mut labels = self.labels.borrow_mut();
        labels.1 += bytes;
        let bytes = labels.1;
        match bytes <= FREE_BYTES {
            true => Ok(()),
            false => {
                let memory = labels.0.get_or_insert_with(|| self.context.memory(UNNAMED));
                memory.require(bytes as u64)
            }
        }
    }

    /// REGEX and REPLACE with a constant pattern.
    pub(super) fn pattern<'n>(
        &self,
        function: Function,
        arguments: &'n [Node],
        regex: &std::result::Result<Box<Pattern>, PatternError>,
    ) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let regex = match regex {
            Ok(regex) => regex,
            Err(_) if self.rows() == 0 => return Ok(Column::Error),
            Err(error) => return function::regex::refused(error).map(|()| Column::Error),
        };
        let columns = arguments
            .iter()
            .map(|argument| self.with_texts(argument, Texts::All))
            .collect::<Result<Vec<_>>>()?;
        if function == Function::Regex {
            let mut values = Vec::with_capacity(self.rows());
            self.each_call(&columns, |cells, steps| {
                values.push(function::regex::matches(cells, regex, steps));
            })?;
            regex.reserve(self.context)?;
            return Ok(Column::Booleans(values));
        }
        let strings = self.strings(&columns, Some(&replaced_bytes), |cells, out, steps| {
            function::regex::replace(cells, regex, out, steps)
        })?;
        regex.reserve(self.context)?;
        Ok(strings)
    }

    /// REGEX and REPLACE with a pattern that differs from row to row.
    fn dynamic_pattern<'n>(
        &self,
        function: Function,
        columns: &[Column<'_>],
    ) -> Result<Column<'n>> {
        let mut last: Option<(String, String, Option<Pattern>)> = None;
        let mut values = Vec::new();
        let mut strings = Strings::new(self.free_bytes, self.context);
        let flags_place = if function == Function::Regex { 2 } else { 3 };
        self.each_call(columns, |cells, steps| {
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
                    let regex = function::regex::compile_in(&pattern, &flags, steps);
                    last = Some((pattern.into_owned(), flags.into_owned(), regex));
                }
                last.as_ref().and_then(|last| last.2.as_ref())
            });
            if function == Function::Regex {
                values.push(regex.and_then(|regex| function::regex::matches(cells, regex, steps)));
            } else {
                let regex = regex.filter(|_| strings.expect(replaced_bytes(cells)));
                let buffer = strings.buffer();
                let tag =
                    regex.and_then(|regex| function::regex::replace(cells, regex, buffer, steps));
                strings.finish(tag);
            }
        })?;
        if function == Function::Regex {
            Ok(Column::Booleans(values))
        } else {
            strings.into_column()
        }
    }
}

/// How many bytes REPLACE makes of its arguments at most: before each character of the text there may be a match.
fn replaced_bytes(cells: &[Cell<'_>]) -> usize {
    let bytes = |number: usize| cells.get(number).map_or(0, Cell::text_bytes);
    let (text, replacement) = (bytes(0), bytes(2));
    text.saturating_mul(replacement + 1)
}
