//! The datatypes that Stoa knows by a one-byte code: those of XSD and RDF, and `geo:wktLiteral`.
//!
//! # Format
//! The codes stand in dictionary keys (docs/format.md#dictionary-keys) and never change.

use crate::Kind;

const XSD: &str = "http://www.w3.org/2001/XMLSchema#";
const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";

macro_rules! datatypes {
    ($($name:ident = $code:literal, $local:literal, $prefix:literal;)*) => {
        /// A datatype with a code of its own.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum Datatype {
            $(
                #[doc = concat!("`<", $prefix, $local, ">`")]
                $name = $code,
            )*
        }

        impl Datatype {
            /// All datatypes, by code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The datatype with this code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The whole IRI.
            #[must_use]
            pub const fn iri(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($prefix, $local),)*
                }
            }
        }
    };
}

datatypes! {
    String = 1, "string", "http://www.w3.org/2001/XMLSchema#";
    Boolean = 2, "boolean", "http://www.w3.org/2001/XMLSchema#";
    Decimal = 3, "decimal", "http://www.w3.org/2001/XMLSchema#";
    Integer = 4, "integer", "http://www.w3.org/2001/XMLSchema#";
    Double = 5, "double", "http://www.w3.org/2001/XMLSchema#";
    Float = 6, "float", "http://www.w3.org/2001/XMLSchema#";
    Date = 7, "date", "http://www.w3.org/2001/XMLSchema#";
    Time = 8, "time", "http://www.w3.org/2001/XMLSchema#";
    DateTime = 9, "dateTime", "http://www.w3.org/2001/XMLSchema#";
    DateTimeStamp = 10, "dateTimeStamp", "http://www.w3.org/2001/XMLSchema#";
    GYear = 11, "gYear", "http://www.w3.org/2001/XMLSchema#";
    GMonth = 12, "gMonth", "http://www.w3.org/2001/XMLSchema#";
    GDay = 13, "gDay", "http://www.w3.org/2001/XMLSchema#";
    GYearMonth = 14, "gYearMonth", "http://www.w3.org/2001/XMLSchema#";
    GMonthDay = 15, "gMonthDay", "http://www.w3.org/2001/XMLSchema#";
    Duration = 16, "duration", "http://www.w3.org/2001/XMLSchema#";
    YearMonthDuration = 17, "yearMonthDuration", "http://www.w3.org/2001/XMLSchema#";
    DayTimeDuration = 18, "dayTimeDuration", "http://www.w3.org/2001/XMLSchema#";
    Byte = 19, "byte", "http://www.w3.org/2001/XMLSchema#";
    Short = 20, "short", "http://www.w3.org/2001/XMLSchema#";
    Int = 21, "int", "http://www.w3.org/2001/XMLSchema#";
    Long = 22, "long", "http://www.w3.org/2001/XMLSchema#";
    UnsignedByte = 23, "unsignedByte", "http://www.w3.org/2001/XMLSchema#";
    UnsignedShort = 24, "unsignedShort", "http://www.w3.org/2001/XMLSchema#";
    UnsignedInt = 25, "unsignedInt", "http://www.w3.org/2001/XMLSchema#";
    UnsignedLong = 26, "unsignedLong", "http://www.w3.org/2001/XMLSchema#";
    PositiveInteger = 27, "positiveInteger", "http://www.w3.org/2001/XMLSchema#";
    NonNegativeInteger = 28, "nonNegativeInteger", "http://www.w3.org/2001/XMLSchema#";
    NegativeInteger = 29, "negativeInteger", "http://www.w3.org/2001/XMLSchema#";
    NonPositiveInteger = 30, "nonPositiveInteger", "http://www.w3.org/2001/XMLSchema#";
    HexBinary = 31, "hexBinary", "http://www.w3.org/2001/XMLSchema#";
    Base64Binary = 32, "base64Binary", "http://www.w3.org/2001/XMLSchema#";
    AnyUri = 33, "anyURI", "http://www.w3.org/2001/XMLSchema#";
    Language = 34, "language", "http://www.w3.org/2001/XMLSchema#";
    NormalizedString = 35, "normalizedString", "http://www.w3.org/2001/XMLSchema#";
    Token = 36, "token", "http://www.w3.org/2001/XMLSchema#";
    NmToken = 37, "NMTOKEN", "http://www.w3.org/2001/XMLSchema#";
    Name = 38, "Name", "http://www.w3.org/2001/XMLSchema#";
    NcName = 39, "NCName", "http://www.w3.org/2001/XMLSchema#";
    LangString = 40, "langString", "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    DirLangString = 41, "dirLangString", "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    Html = 42, "HTML", "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    XmlLiteral = 43, "XMLLiteral", "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    Json = 44, "JSON", "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    Wkt = 45, "wktLiteral", "http://www.opengis.net/ont/geosparql#";
}

impl Datatype {
    /// The datatype with this IRI, if it has a code.
    #[must_use]
    pub fn from_iri(iri: &str) -> Option<Self> {
        if let Some(local) = iri.strip_prefix(XSD) {
            return Self::from_xsd(local);
        }
        if let Some(local) = iri.strip_prefix(RDF) {
            return match local {
                "langString" => Some(Self::LangString),
                "dirLangString" => Some(Self::DirLangString),
                "HTML" => Some(Self::Html),
                "XMLLiteral" => Some(Self::XmlLiteral),
                "JSON" => Some(Self::Json),
                _ => None,
            };
        }
        (iri == Self::Wkt.iri()).then_some(Self::Wkt)
    }

    fn from_xsd(local: &str) -> Option<Self> {
        Some(match local {
            "integer" => Self::Integer,
            "string" => Self::String,
            "date" => Self::Date,
            "dateTime" => Self::DateTime,
            "double" => Self::Double,
            "decimal" => Self::Decimal,
            "float" => Self::Float,
            "boolean" => Self::Boolean,
            "gYear" => Self::GYear,
            "int" => Self::Int,
            "long" => Self::Long,
            "nonNegativeInteger" => Self::NonNegativeInteger,
            "anyURI" => Self::AnyUri,
            "time" => Self::Time,
            "dateTimeStamp" => Self::DateTimeStamp,
            "gMonth" => Self::GMonth,
            "gDay" => Self::GDay,
            "gYearMonth" => Self::GYearMonth,
            "gMonthDay" => Self::GMonthDay,
            "duration" => Self::Duration,
            "yearMonthDuration" => Self::YearMonthDuration,
            "dayTimeDuration" => Self::DayTimeDuration,
            "byte" => Self::Byte,
            "short" => Self::Short,
            "unsignedByte" => Self::UnsignedByte,
            "unsignedShort" => Self::UnsignedShort,
            "unsignedInt" => Self::UnsignedInt,
            "unsignedLong" => Self::UnsignedLong,
            "positiveInteger" => Self::PositiveInteger,
            "negativeInteger" => Self::NegativeInteger,
            "nonPositiveInteger" => Self::NonPositiveInteger,
            "hexBinary" => Self::HexBinary,
            "base64Binary" => Self::Base64Binary,
            "language" => Self::Language,
            "normalizedString" => Self::NormalizedString,
            "token" => Self::Token,
            "NMTOKEN" => Self::NmToken,
            "Name" => Self::Name,
            "NCName" => Self::NcName,
            _ => return None,
        })
    }

    /// The kind under which a literal of this datatype stands in the dictionary if it is not
    /// inline. An ill-typed literal has the kind of its datatype, too.
    #[must_use]
    pub const fn dictionary_kind(self) -> Kind {
        if self.is_numeric() {
            Kind::NumericLiteral
        } else if self.is_temporal() {
            Kind::TemporalLiteral
        } else {
            Kind::Literal
        }
    }

    /// `xsd:decimal`, `xsd:double`, `xsd:float`, `xsd:integer` and what derives from it.
    #[must_use]
    pub const fn is_numeric(self) -> bool {
        matches!(self, Self::Decimal | Self::Double | Self::Float) || self.is_integer()
    }

    /// `xsd:integer` and what derives from it.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        let code = self as u8;
        code == Self::Integer as u8
            || (code >= Self::Byte as u8 && code <= Self::NonPositiveInteger as u8)
    }

    /// Dates, times, their parts, and durations.
    #[must_use]
    pub const fn is_temporal(self) -> bool {
        let code = self as u8;
        code >= Self::Date as u8 && code <= Self::DayTimeDuration as u8
    }
}

/// The kind under which a literal with this datatype stands in the dictionary; `None` is
/// `xsd:string` or a language string.
#[must_use]
pub fn dictionary_kind(datatype: Option<&str>) -> Kind {
    datatype
        .and_then(Datatype::from_iri)
        .map_or(Kind::Literal, Datatype::dictionary_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_iris_lead_back() {
        for datatype in Datatype::ALL {
            assert_eq!(Datatype::from_code(*datatype as u8), Some(*datatype));
            assert_eq!(Datatype::from_iri(datatype.iri()), Some(*datatype));
        }
        assert_eq!(Datatype::from_code(0), None);
        assert_eq!(Datatype::from_iri("http://example.com/"), None);
        assert!(Datatype::NonPositiveInteger.is_numeric() && !Datatype::HexBinary.is_numeric());
        assert!(Datatype::DayTimeDuration.is_temporal() && !Datatype::Byte.is_temporal());
    }
}
