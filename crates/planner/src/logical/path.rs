//! Property paths that are joins and unions of quad patterns.

use spargebra::algebra::PropertyPathExpression as Path;
use spargebra::term::TermPattern;

use super::Node;
use super::translate::Translator;
use crate::error::Error;
use crate::physical::PatternTerm;

impl<'a> Translator<'a> {
    #[inline(never)]
    pub(super) fn path(
        &mut self,
        subject: &'a TermPattern,
        path: &'a Path,
        object: &'a TermPattern,
    ) -> Result<Node, Error> {
        check_depth(path)?;
        let subject = self.term(subject)?;
        let object = self.term(object)?;
        self.steps(subject, path, object)
    }

    fn steps(
        &mut self,
        subject: Option<PatternTerm>,
        path: &Path,
        object: Option<PatternTerm>,
    ) -> Result<Node, Error> {
        match path {
            Path::NamedNode(predicate) => {
                let predicate = self.fixed(predicate.clone().into())?;
                Ok(self.quad_pattern([subject, predicate, object]))
            }
            Path::Reverse(inner) => self.steps(object, inner, subject),
            Path::Sequence(first, second) => {
                let middle = Some(PatternTerm::Variable(self.fresh_variable()));
                let first = self.steps(subject, first, middle)?;
                let second = self.steps(middle, second, object)?;
                Ok(self.build.join(vec![first, second]))
            }
            Path::Alternative(first, second) => {
                let first = self.steps(subject, first, object)?;
                let second = self.steps(subject, second, object)?;
                Ok(self.build.union(vec![first, second]))
            }
            Path::ZeroOrMore(_)
            | Path::OneOrMore(_)
            | Path::ZeroOrOne(_)
            | Path::NegatedPropertySet(_) => {
                Err(Error::Unsupported(format!("property path {path}")))
            }
        }
    }
}

/// Refuses a path nested deeper than the rest of a query may be.
fn check_depth(path: &Path) -> Result<(), Error> {
    let mut stack = vec![(path, 1_usize)];
    while let Some((path, depth)) = stack.pop() {
        if depth > crate::NESTING_MAX {
            return Err(Error::TooDeep);
        }
        match path {
            Path::NamedNode(_) | Path::NegatedPropertySet(_) => {}
            Path::Reverse(inner)
            | Path::ZeroOrMore(inner)
            | Path::OneOrMore(inner)
            | Path::ZeroOrOne(inner) => stack.push((inner, depth + 1)),
            Path::Sequence(first, second) | Path::Alternative(first, second) => {
                stack.push((first, depth + 1));
                stack.push((second, depth + 1));
            }
        }
    }
    Ok(())
}
