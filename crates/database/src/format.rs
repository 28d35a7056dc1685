//! RDF formats and compressions: their names, media types, extensions and first bytes.

use std::fmt;

/// A format of graphs or datasets.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GraphFormat {
    /// N-Triples, `nt`
    NTriples,
    /// N-Quads, `nq`
    NQuads,
    /// Turtle, `ttl`
    Turtle,
    /// TriG, `trig`
    TriG,
    /// RDF/XML, `rdf`
    RdfXml,
    /// JSON-LD, `jsonld`
    JsonLd,
}

impl GraphFormat {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::NTriples,
        Self::NQuads,
        Self::Turtle,
        Self::TriG,
        Self::RdfXml,
        Self::JsonLd,
    ];

    /// The short name, which is also the extension of files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NTriples => "nt",
            Self::NQuads => "nq",
            Self::Turtle => "ttl",
            Self::TriG => "trig",
            Self::RdfXml => "rdf",
            Self::JsonLd => "jsonld",
        }
    }

    /// The media type without parameters.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::NTriples => "application/n-triples",
            Self::NQuads => "application/n-quads",
            Self::Turtle => "text/turtle",
            Self::TriG => "application/trig",
            Self::RdfXml => "application/rdf+xml",
            Self::JsonLd => "application/ld+json",
        }
    }

    /// Whether the format has named graphs.
    #[must_use]
    pub const fn has_graphs(self) -> bool {
        matches!(self, Self::NQuads | Self::TriG | Self::JsonLd)
    }

    /// The format with this name, long name, media type (parameters are ignored) or extension; upper
    /// or lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.split(';').next().unwrap_or("").trim();
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "nt" | "ntriples" | "n-triples" | "application/n-triples" | "text/plain" => {
                Self::NTriples
            }
            "nq" | "nquads" | "n-quads" | "application/n-quads" | "text/x-nquads" => Self::NQuads,
            "ttl" | "turtle" | "text/turtle" | "application/turtle" | "application/x-turtle" => {
                Self::Turtle
            }
            "trig" | "application/trig" | "application/x-trig" => Self::TriG,
            "rdf" | "rdfxml" | "rdf/xml" | "rdf-xml" | "owl" | "application/rdf+xml" => {
                Self::RdfXml
            }
            "jsonld" | "json-ld" | "application/ld+json" => Self::JsonLd,
            _ => return None,
        })
    }

    /// The format that the extension of a file name tells, an extension of compression left aside.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Self> {
        let (name, _) = Compression::strip_extension(name);
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "nt" => Some(Self::NTriples),
            "nq" => Some(Self::NQuads),
            "ttl" => Some(Self::Turtle),
            "trig" => Some(Self::TriG),
            "rdf" | "owl" => Some(Self::RdfXml),
            "jsonld" => Some(Self::JsonLd),
            _ => None,
        }
    }
}

impl fmt::Display for GraphFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NTriples => "N-Triples",
            Self::NQuads => "N-Quads",
            Self::Turtle => "Turtle",
            Self::TriG => "TriG",
            Self::RdfXml => "RDF/XML",
            Self::JsonLd => "JSON-LD",
        })
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one member or several
    Gzip,
    /// Zstandard, one frame or several
    Zstd,
}

impl Compression {
    /// The compression that the first four bytes of a file tell.
    #[must_use]
    pub fn from_magic(start: &[u8]) -> Self {
        if start.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::None
        }
    }

    /// Takes `.gz` or `.zst` off a file name.
    #[must_use]
    pub fn strip_extension(name: &str) -> (&str, Self) {
        for (extension, compression) in [(".gz", Self::Gzip), (".zst", Self::Zstd)] {
            if let Some(at) = name.len().checked_sub(extension.len())
                && let (Some(stem), Some(end)) = (name.get(..at), name.get(at..))
                && end.eq_ignore_ascii_case(extension)
            {
                return (stem, compression);
            }
        }
        (name, Self::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_media_types_and_extensions_lead_back() {
        for format in GraphFormat::ALL {
            assert_eq!(GraphFormat::from_name(format.name()), Some(format));
            assert_eq!(GraphFormat::from_name(format.media_type()), Some(format));
            let file = format!("a.b/x.{}.GZ", format.name().to_uppercase());
            assert_eq!(GraphFormat::from_file_name(&file), Some(format));
        }
        assert_eq!(
            GraphFormat::from_name("text/turtle; charset=utf-8"),
            Some(GraphFormat::Turtle)
        );
        assert_eq!(GraphFormat::from_file_name("x.gz"), None);
        assert_eq!(GraphFormat::from_file_name("nt"), None);
        assert_eq!(GraphFormat::from_file_name(""), None);
    }
}
