//! `TermId`: a term as 64 bits, a 4-bit kind above a 60-bit payload.
//!
//! Kinds are numbered so that ids sort roughly as SPARQL's ORDER BY does: unbound, blank nodes,
//! IRIs, literals (numbers, dates, strings, the rest), triple terms. Within an inline kind the order
//! of ids is the order of values.
//!
//! # Format
//! docs/format.md#term-ids

use std::fmt;

/// What a [`TermId`] stands for; its upper four bits.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Kind {
    /// Unbound, the default graph, and the booleans `true` and `false`.
    Special = 0,
    /// A blank node; the payload is its number. Labels are not kept.
    BlankNode = 1,
    /// An IRI; the payload is its number in the dictionary.
    Iri = 2,
    /// An inline integer of `xsd:integer` or a type derived from it.
    Integer = 3,
    /// An inline `xsd:decimal`.
    Decimal = 4,
    /// An inline `xsd:double` or `xsd:float`.
    Double = 5,
    /// A literal of a numeric datatype that is not inline, in the dictionary.
    NumericLiteral = 6,
    /// An inline date, year, month, day or time without time zone.
    Date = 7,
    /// An inline date, year, month, day or time with time zone.
    DateZoned = 8,
    /// An inline `xsd:dateTime` without time zone.
    DateTime = 9,
    /// An inline `xsd:dateTime` with time zone.
    DateTimeZoned = 10,
    /// A literal of a date, time or duration datatype that is not inline, in the dictionary.
    TemporalLiteral = 11,
    /// An inline `xsd:string` of at most seven bytes.
    ShortString = 12,
    /// Any other literal, in the dictionary.
    Literal = 13,
    /// A triple term of RDF 1.2; the payload is its number in the table of triple terms.
    Triple = 14,
    /// A term computed by a query that no dictionary holds; known to that query alone.
    Local = 15,
}

impl Kind {
    /// All kinds in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Special,
        Self::BlankNode,
        Self::Iri,
        Self::Integer,
        Self::Decimal,
        Self::Double,
        Self::NumericLiteral,
        Self::Date,
        Self::DateZoned,
        Self::DateTime,
        Self::DateTimeZoned,
        Self::TemporalLiteral,
        Self::ShortString,
        Self::Literal,
        Self::Triple,
        Self::Local,
    ];

    /// Whether terms of this kind stand in the dictionary under a key (see [`crate::key`]).
    #[must_use]
    pub const fn is_in_dictionary(self) -> bool {
        matches!(
            self,
            Self::Iri | Self::NumericLiteral | Self::TemporalLiteral | Self::Literal
        )
    }

    /// Whether terms of this kind are literals; booleans, which are [`Kind::Special`], are not
    /// covered, see [`TermId::is_literal`].
    #[must_use]
    pub const fn is_literal(self) -> bool {
        (self as u8) >= (Self::Integer as u8) && (self as u8) <= (Self::Literal as u8)
    }
}

/// A term, the default graph, or "unbound" (0), in 64 bits.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct TermId(u64);

impl TermId {
    /// No term: an unbound variable.
    pub const UNBOUND: Self = Self(0);
    /// The name under which quads of the unnamed default graph are stored.
    pub const DEFAULT_GRAPH: Self = Self(1);
    /// `"false"^^xsd:boolean`
    pub const FALSE: Self = Self(2);
    /// `"true"^^xsd:boolean`
    pub const TRUE: Self = Self(3);
    /// The smallest and the largest id that bits can form; not terms.
    pub const MIN: Self = Self(0);
    /// See [`TermId::MIN`].
    pub const MAX: Self = Self(u64::MAX);
    /// Bits of a payload.
    pub const PAYLOAD_BITS: u32 = 60;
    /// The largest payload.
    pub const PAYLOAD_MAX: u64 = (1 << Self::PAYLOAD_BITS) - 1;

    /// The id of `kind` with `payload`.
    ///
    /// # Panics
    /// If `payload` is larger than [`TermId::PAYLOAD_MAX`].
    #[must_use]
    pub const fn new(kind: Kind, payload: u64) -> Self {
        assert!(payload <= Self::PAYLOAD_MAX, "a payload has 60 bits");
        Self(((kind as u64) << Self::PAYLOAD_BITS) | payload)
    }

    /// The id with these bits; every pattern of bits is an id.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits, as they stand on disk.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The upper four bits.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "four bits select one of sixteen kinds"
    )]
    pub const fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> Self::PAYLOAD_BITS) as usize]
    }

    /// The lower 60 bits.
    #[must_use]
    pub const fn payload(self) -> u64 {
        self.0 & Self::PAYLOAD_MAX
    }

    /// Whether this is [`TermId::UNBOUND`].
    #[must_use]
    pub const fn is_unbound(self) -> bool {
        self.0 == 0
    }

    /// Whether this is a literal, booleans included; not known (`false`) for [`Kind::Local`].
    #[must_use]
    pub const fn is_literal(self) -> bool {
        self.kind().is_literal() || self.0 == Self::TRUE.0 || self.0 == Self::FALSE.0
    }

    /// Whether the id alone gives the term back, without a dictionary.
    #[must_use]
    pub const fn is_inline(self) -> bool {
        matches!(
            self.kind(),
            Kind::Special
                | Kind::Integer
                | Kind::Decimal
                | Kind::Double
                | Kind::Date
                | Kind::DateZoned
                | Kind::DateTime
                | Kind::DateTimeZoned
                | Kind::ShortString
        )
    }
}

impl From<bool> for TermId {
    fn from(value: bool) -> Self {
        if value { Self::TRUE } else { Self::FALSE }
    }
}

impl fmt::Debug for TermId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNBOUND => f.write_str("unbound"),
            Self::DEFAULT_GRAPH => f.write_str("default-graph"),
            Self::FALSE => f.write_str("false"),
            Self::TRUE => f.write_str("true"),
            _ => write!(f, "{:?}:{:x}", self.kind(), self.payload()),
        }
    }
}

/// A range of ids, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct IdRange {
    /// The smallest id of the range.
    pub first: TermId,
    /// The largest id of the range, at least `first`.
    pub last: TermId,
}

impl IdRange {
    /// All ids of one kind.
    #[must_use]
    pub const fn of_kind(kind: Kind) -> Self {
        Self {
            first: TermId::new(kind, 0),
            last: TermId::new(kind, TermId::PAYLOAD_MAX),
        }
    }

    /// Whether `id` lies in the range.
    #[must_use]
    pub const fn contains(self, id: TermId) -> bool {
        self.first.0 <= id.0 && id.0 <= self.last.0
    }
}
