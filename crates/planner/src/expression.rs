//! Expressions of a physical plan: SPARQL's operators and functions over variables, as data.
//!
//! EXISTS does not occur here: the planner turns it into a join that leaves a boolean in a variable
//! (see [`crate::physical::JoinKind::Mark`]).

use oxrdf::{Literal, Term};
use stoa_terms::datatype::Datatype;
use stoa_terms::{TermId, inline};

use crate::physical::Variable;

/// An expression, evaluated for every solution of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A fixed term.
    Constant(Constant),
    /// The value of a variable; an expression error where it is unbound.
    Variable(Variable),
    /// `BOUND(?v)`
    Bound(Variable),
    /// What a variable is bound to on the left of the [`Operator::ParameterizedJoin`] around the operator; a constant by
    /// the time that it is run.
    ///
    /// [`Operator::ParameterizedJoin`]: crate::physical::Operator::ParameterizedJoin
    Parameter(Variable),
    /// `!`, of the effective boolean value.
    Not(Box<Self>),
    /// `&&` of two or more, with SPARQL's logic of errors.
    And(Vec<Self>),
    /// `||` of two or more, with SPARQL's logic of errors.
    Or(Vec<Self>),
    /// A comparison of values.
    Compare(Comparison, Box<Self>, Box<Self>),
    /// `IN`; NOT IN is its negation.
    In(Box<Self>, Vec<Self>),
    /// Arithmetic with XPath's promotion of types.
    Arithmetic(ArithmeticOperator, Box<Self>, Box<Self>),
    /// Unary `+`
    Plus(Box<Self>),
    /// Unary `-`
    Minus(Box<Self>),
    /// `IF`
    If(Box<Self>, Box<Self>, Box<Self>),
    /// `COALESCE`
    Coalesce(Vec<Self>),
    /// A function with strict arguments: an error in one is the error of the call.
    Call(Function, Vec<Self>),
}

impl Expression {
    /// The constant `true` or `false`.
    pub(crate) fn boolean(value: bool) -> Self {
        Self::Constant(Constant {
            term: Literal::from(value).into(),
            id: Some(if value { TermId::TRUE } else { TermId::FALSE }),
        })
    }

    /// A constant of the type `xsd:integer`.
    pub(crate) fn integer(value: i64) -> Self {
        Self::Constant(Constant {
            term: Literal::from(value).into(),
            id: inline::encode_i64(value),
        })
    }
}

/// A term of the query's text, with its id if the snapshot that was planned for has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// The term itself.
    pub term: Term,
    /// Its id, `None` if it is neither inline nor in the dictionary.
    pub id: Option<TermId>,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Comparison {
    /// `=`: equality of values.
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `sameTerm`: identity of terms.
    SameTerm,
}

/// The four operations of arithmetic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// Functions of SPARQL 1.1 and 1.2, and the casts of XPath constructor functions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "each is named as in the specification")]
pub enum Function {
    // On terms
    Str,
    Lang,
    LangMatches,
    LangDir,
    HasLang,
    HasLangDir,
    Datatype,
    Iri,
    /// With a second argument, the solution's name: one node for one string and solution.
    BNode,
    StrDt,
    StrLang,
    StrLangDir,
    IsIri,
    IsBlank,
    IsLiteral,
    IsNumeric,
    /// Not SPARQL's: whether `=` may hold between the term and another one, since its value can be written in several
    /// ways. Never false for such a term, but true for some others.
    HasOtherForms,
    IsTriple,
    Triple,
    Subject,
    Predicate,
    Object,
    Uuid,
    StrUuid,
    // On strings
    StrLen,
    SubStr,
    UCase,
    LCase,
    StrStarts,
    StrEnds,
    Contains,
    StrBefore,
    StrAfter,
    EncodeForUri,
    Concat,
    Replace,
    Regex,
    // On numbers
    Abs,
    Round,
    Ceil,
    Floor,
    Rand,
    // On dates and times
    Now,
    Year,
    Month,
    Day,
    Hours,
    Minutes,
    Seconds,
    Timezone,
    Tz,
    Adjust,
    // Hashes
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
    // Casts
    CastBoolean,
    CastInteger,
    CastDecimal,
    CastFloat,
    CastDouble,
    CastString,
    CastDate,
    CastDateTime,
    CastTime,
    CastDuration,
    CastYearMonthDuration,
    CastDayTimeDuration,
    /// To one of [`DERIVED`].
    CastDerived(Datatype),
}

/// The other types that a cast gives: all atomic ones of XSD but those that are unsuitable for RDF.
pub const DERIVED: [Datatype; 27] = [
    Datatype::Byte,
    Datatype::Short,
    Datatype::Int,
    Datatype::Long,
    Datatype::UnsignedByte,
    Datatype::UnsignedShort,
    Datatype::UnsignedInt,
    Datatype::UnsignedLong,
    Datatype::PositiveInteger,
    Datatype::NonNegativeInteger,
    Datatype::NegativeInteger,
    Datatype::NonPositiveInteger,
    Datatype::DateTimeStamp,
    Datatype::GYear,
    Datatype::GMonth,
    Datatype::GDay,
    Datatype::GYearMonth,
    Datatype::GMonthDay,
    Datatype::HexBinary,
    Datatype::Base64Binary,
    Datatype::AnyUri,
    Datatype::Language,
    Datatype::NormalizedString,
    Datatype::Token,
    Datatype::NmToken,
    Datatype::Name,
    Datatype::NcName,
];

/// One aggregate of a GROUP BY.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// What is computed.
    pub function: AggregateFunction,
    /// What is aggregated; `None` for `COUNT(*)`.
    pub argument: Option<Expression>,
    /// Whether each value counts once.
    pub distinct: bool,
    /// The variable that takes the result.
    pub output: Variable,
}

/// The aggregates of SPARQL 1.1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AggregateFunction {
    /// `COUNT`
    Count,
    /// `SUM`
    Sum,
    /// `AVG`
    Avg,
    /// `MIN`
    Min,
    /// `MAX`
    Max,
    /// `SAMPLE`
    Sample,
    /// `GROUP_CONCAT` with its separator.
    GroupConcat(String),
}
