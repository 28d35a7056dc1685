//! The functions of SPARQL 1.1 and 1.2 and the casts of XPath, each a plain Rust function over the
//! cells of one row.
//!
//! # References
//! SPARQL 1.1 section 17.4, SPARQL 1.2 section 17.4, XPath functions and operators 3.1.

mod cast;
pub(crate) mod date;
pub(crate) mod derived;
mod hash;
mod number;
pub(crate) mod regex;
mod string;
mod term;
#[cfg(test)]
mod tests;
mod xml_name;

pub(crate) use term::datatype;

use stoa_planner::expression::Function;
use stoa_terms::TermId;
use stoa_terms::datatype::Datatype;
use stoa_terms::value::Value;

use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::expression::{Cell, Tag, Texts};
use crate::steps::Steps;

/// Writes a string or IRI to the end of a buffer; what it is may borrow from the arguments.
type StringFunction = for<'c> fn(&[Cell<'c>], &mut String) -> Option<Tag<'c>>;

/// The same, with steps to take.
type TextFunction = for<'c> fn(&[Cell<'c>], &mut String, &Steps<'_>) -> Option<Tag<'c>>;

/// Gives a column of ids for columns of ids.
type IdFunction = fn(&[Vec<TermId>], &QueryContext) -> Result<Vec<TermId>>;

/// A function as it is called for a row. `None` is an expression error.
pub(crate) enum Implementation {
    /// Writes a string or IRI and says what it is.
    String(StringFunction),
    /// As `String`, and works on each character of a text, which may be long.
    Text(TextFunction),
    /// Gives a boolean.
    Boolean(fn(&[Cell<'_>]) -> Option<bool>),
    /// Gives a boolean, and looks for something in a text.
    Search(fn(&[Cell<'_>], &Steps<'_>) -> Option<bool>),
    /// Gives a value.
    Value(fn(&[Cell<'_>], &QueryContext) -> Option<Value>),
    /// Gives a term whose spelling matters.
    Term(fn(&[Cell<'_>], &QueryContext) -> Option<Computed>),
    /// A cast to a type that SPARQL does not list.
    Cast(Datatype),
    /// Works on whole columns of ids.
    Id(IdFunction),
    /// BNODE, which remembers what it gave.
    BlankNode,
    /// REGEX and REPLACE, whose pattern is compiled apart.
    Pattern,
}

/// Whether equal arguments give equal results, within one query.
pub(crate) const fn is_deterministic(function: Function) -> bool {
    !matches!(
        function,
        Function::BNode | Function::Uuid | Function::StrUuid | Function::Rand
    )
}

/// How many times as long as its arguments together a string is at most that a function makes, with what it needs on the way.
pub(crate) const fn growth(function: Function) -> usize {
    match function {
        // A character has up to three in the other case, made beside the result.
        Function::UCase | Function::LCase => 6,
        Function::EncodeForUri => 3,
        _ => 1,
    }
}

/// Which texts of its arguments a function reads.
pub(crate) const fn texts(function: Function) -> Texts {
    match function {
        Function::IsIri
        | Function::IsBlank
        | Function::IsLiteral
        | Function::IsTriple
        | Function::Triple
        | Function::Subject
        | Function::Predicate
        | Function::Object => Texts::None,
        Function::Lang
        | Function::LangDir
        | Function::HasLang
        | Function::HasLangDir
        | Function::Datatype
        | Function::IsNumeric
        | Function::HasOtherForms
        | Function::Abs
        | Function::Round
        | Function::Ceil
        | Function::Floor
        | Function::Year
        | Function::Month
        | Function::Day
        | Function::Hours
        | Function::Minutes
        | Function::Seconds
        | Function::Timezone
        | Function::Tz
        | Function::Adjust => Texts::Dictionary,
        _ => Texts::All,
    }
}

/// How `function` is called.
pub(crate) fn implementation(function: Function) -> Implementation {
    use Implementation as I;
    match function {
        Function::Str => I::String(term::str),
        Function::Lang => I::String(term::lang),
        Function::LangMatches => I::Boolean(term::lang_matches),
        Function::LangDir => I::String(term::lang_dir),
        Function::HasLang => I::Boolean(term::has_lang),
        Function::HasLangDir => I::Boolean(term::has_lang_dir),
        Function::Datatype => I::String(datatype),
        Function::Iri => I::Term(term::iri),
        Function::BNode => I::BlankNode,
        Function::StrDt => I::Term(term::str_dt),
        Function::StrLang => I::Term(term::str_lang),
        Function::StrLangDir => I::Term(term::str_lang_dir),
        Function::IsIri => I::Boolean(term::is_iri),
        Function::IsBlank => I::Boolean(term::is_blank),
        Function::IsLiteral => I::Boolean(term::is_literal),
        Function::IsNumeric => I::Boolean(term::is_numeric),
        Function::HasOtherForms => I::Boolean(term::has_other_forms),
        Function::IsTriple => I::Boolean(term::is_triple),
        Function::Triple => I::Id(term::triple),
        Function::Subject => I::Id(term::subject),
        Function::Predicate => I::Id(term::predicate),
        Function::Object => I::Id(term::object),
        Function::Uuid => I::Term(term::uuid),
        Function::StrUuid => I::Value(term::str_uuid),
        Function::StrLen => I::Value(string::str_len),
        Function::SubStr => I::Text(string::sub_str),
        Function::UCase => I::Text(string::u_case),
        Function::LCase => I::Text(string::l_case),
        Function::StrStarts => I::Boolean(string::str_starts),
        Function::StrEnds => I::Boolean(string::str_ends),
        Function::Contains => I::Search(string::contains),
        Function::StrBefore => I::Text(string::str_before),
        Function::StrAfter => I::Text(string::str_after),
        Function::EncodeForUri => I::Text(string::encode_for_uri),
        Function::Concat => I::String(string::concat),
        Function::Replace | Function::Regex => I::Pattern,
        Function::Abs => I::Value(number::abs),
        Function::Round => I::Value(number::round),
        Function::Ceil => I::Value(number::ceil),
        Function::Floor => I::Value(number::floor),
        Function::Rand => I::Value(number::rand),
        _ => date_hash_or_cast(function),
    }
}

fn date_hash_or_cast(function: Function) -> Implementation {
    use Implementation as I;
    match function {
        Function::Now => I::Value(date::now),
        Function::Year => I::Value(date::year),
        Function::Month => I::Value(date::month),
        Function::Day => I::Value(date::day),
        Function::Hours => I::Value(date::hours),
        Function::Minutes => I::Value(date::minutes),
        Function::Seconds => I::Value(date::seconds),
        Function::Timezone => I::Value(date::timezone),
        Function::Tz => I::String(date::tz),
        Function::Adjust => I::Value(date::adjust),
        Function::Md5 => I::Text(hash::md5),
        Function::Sha1 => I::Text(hash::sha1),
        Function::Sha256 => I::Text(hash::sha256),
        Function::Sha384 => I::Text(hash::sha384),
        Function::Sha512 => I::Text(hash::sha512),
        Function::CastBoolean => I::Value(cast::boolean),
        Function::CastInteger => I::Value(|cells, _| cast::integer(cells)),
        Function::CastDecimal => I::Value(cast::decimal),
        Function::CastFloat => I::Value(cast::float),
        Function::CastDouble => I::Value(cast::double),
        Function::CastString => I::String(cast::string),
        Function::CastDate => I::Value(cast::date),
        Function::CastDateTime => I::Value(cast::date_time),
        Function::CastTime => I::Value(cast::time),
        Function::CastDuration => I::Value(cast::duration),
        Function::CastYearMonthDuration => I::Value(cast::year_month_duration),
        Function::CastDayTimeDuration => I::Value(cast::day_time_duration),
        Function::CastDerived(datatype) => I::Cast(datatype),
        // All that is left has an entry in `implementation`.
        _ => I::Boolean(|_| None),
    }
}
