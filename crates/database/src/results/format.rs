//! Names, media types and content negotiation of result formats.

use std::fmt;

use crate::format::GraphFormat;

/// A format for the solutions of SELECT and, but for the table, the answer of ASK.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SolutionsFormat {
    /// SPARQL 1.1 Query Results JSON Format.
    Json,
    /// SPARQL Query Results XML Format.
    Xml,
    /// SPARQL 1.1 Query Results CSV Format.
    Csv,
    /// SPARQL 1.1 Query Results TSV Format.
    Tsv,
    /// Columns aligned for reading in a terminal.
    Table,
    /// RDF4J's binary table, for SELECT alone.
    Binary,
}

/// A format by one of its names, before it is known what kind of answer a query has.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ResultFormat {
    /// A format for solutions.
    Solutions(SolutionsFormat),
    /// A format for triples.
    Graph(GraphFormat),
}

impl SolutionsFormat {
    const ALL: [Self; 6] = [
        Self::Json,
        Self::Xml,
        Self::Csv,
        Self::Tsv,
        Self::Table,
        Self::Binary,
    ];

    /// The formats that HTTP offers, the preferred one first; [`SolutionsFormat::Binary`] only for
    /// SELECT.
    pub const NEGOTIABLE: [Self; 5] = [Self::Json, Self::Xml, Self::Tsv, Self::Csv, Self::Binary];

    /// The short name, as the command line takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Xml => "xml",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Table => "table",
            Self::Binary => "brt",
        }
    }

    /// The media type, without parameters.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/sparql-results+json",
            Self::Xml => "application/sparql-results+xml",
            Self::Csv => "text/csv",
            Self::Tsv => "text/tab-separated-values",
            Self::Table => "text/plain",
            Self::Binary => "application/x-binary-rdf-results-table",
        }
    }

    /// The value of a `Content-Type` header.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Tsv => "text/tab-separated-values; charset=utf-8; header=present",
            Self::Table => "text/plain; charset=utf-8",
            Self::Json | Self::Xml | Self::Binary => self.media_type(),
        }
    }

    const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["application/json", "srj"],
            Self::Xml => &["application/xml", "text/xml", "srx"],
            Self::Csv | Self::Table | Self::Binary => &[],
            Self::Tsv => &["text/tsv"],
        }
    }
}

impl ResultFormat {
    /// The format with this short name, alias or media type (design: names are interchangeable
    /// everywhere); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.trim().to_ascii_lowercase();
        let solutions = SolutionsFormat::ALL.into_iter().find(|format| {
            format.name() == lower
                || (format.media_type() == lower && *format != SolutionsFormat::Table)
                || format.aliases().contains(&lower.as_str())
        });
        match solutions {
            Some(format) => Some(Self::Solutions(format)),
            None => GraphFormat::from_name(name).map(Self::Graph),
        }
    }
}

impl fmt::Display for ResultFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Solutions(format) => format.name(),
            Self::Graph(format) => format.name(),
        })
    }
}
