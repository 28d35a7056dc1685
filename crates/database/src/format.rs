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
            // Turtle is the part of N3 that is RDF.
            "ttl"
            | "turtle"
            | "text/turtle"
            | "application/turtle"
            | "application/x-turtle"
            | "n3"
            | "text/n3"
            | "text/rdf+n3" => Self::Turtle,
            "trig" | "application/trig" | "application/x-trig" => Self::TriG,
            "rdf"
            | "rdfxml"
            | "rdf/xml"
            | "rdf-xml"
            | "rdf+xml"
            | "owl"
            | "application/rdf+xml" => Self::RdfXml,
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
            "rdf" | "owl" | "rdfs" => Some(Self::RdfXml),
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
    /// bzip2, one stream or several
    Bzip2,
    /// xz, one stream or several
    Xz,
}

impl Compression {
    /// How many bytes at the start of a file [`Compression::from_magic`] looks at.
    pub const MAGIC_BYTES: usize = 10;

    /// The compression that the first [`Compression::MAGIC_BYTES`] of a file tell.
    #[must_use]
    pub fn from_magic(start: &[u8]) -> Self {
        if start.starts_with(Self::Gzip.magic()) {
            Self::Gzip
        } else if start.starts_with(Self::Zstd.magic()) {
            Self::Zstd
        } else if start.starts_with(Self::Xz.magic()) {
            Self::Xz
        } else if is_bzip2(start) {
            Self::Bzip2
        } else {
            Self::None
        }
    }

    /// What messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// How all files of the compression begin.
    pub(crate) const fn magic(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Gzip => &[0x1f, 0x8b],
            Self::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            Self::Bzip2 => b"BZh",
            Self::Xz => b"\xfd7zXZ\0",
        }
    }

    const EXTENSIONS: [(&str, Self); 4] = [
        (".gz", Self::Gzip),
        (".zst", Self::Zstd),
        (".bz2", Self::Bzip2),
        (".xz", Self::Xz),
    ];

    /// Takes `.gz`, `.zst`, `.bz2` or `.xz` off a file name.
    #[must_use]
    pub fn strip_extension(name: &str) -> (&str, Self) {
        for (extension, compression) in Self::EXTENSIONS {
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

/// `BZh`, the size of blocks, and the number that begins a block or, in an empty stream, its end. The
/// letters alone could be the start of a text.
fn is_bzip2(start: &[u8]) -> bool {
    let Some((head, rest)) = start.split_at_checked(4) else {
        return false;
    };
    let [b'B', b'Z', b'h', b'1'..=b'9'] = head else {
        return false;
    };
    rest.is_empty()
        || rest.starts_with(&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59])
        || rest.starts_with(&[0x17, 0x72, 0x45, 0x38, 0x50, 0x90])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_media_types_and_extensions_lead_back() {
        for format in GraphFormat::ALL {
            assert_eq!(GraphFormat::from_name(format.name()), Some(format));
            assert_eq!(GraphFormat::from_name(format.media_type()), Some(format));
            for compressed in ["", ".GZ", ".zst", ".Bz2", ".xz"] {
                let file = format!("a.b/x.{}{compressed}", format.name().to_uppercase());
                assert_eq!(GraphFormat::from_file_name(&file), Some(format));
            }
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
