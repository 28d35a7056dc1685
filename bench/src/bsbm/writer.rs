//! N-Triples and Turtle of the benchmark's instances.

use super::date;

/// The format of the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Format {
    /// N-Triples
    Nt,
    /// Turtle
    Ttl,
}

const NAMESPACES: [(&str, &str); 8] = [
    (
        "b",
        "http://www4.wiwiss.fu-berlin.de/bizer/bsbm/v01/vocabulary/",
    ),
    ("c", "http://downlode.org/rdf/iso-3166/countries#"),
    ("dc", "http://purl.org/dc/elements/1.1/"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("rev", "http://purl.org/stuff/rev#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

pub(super) const INSTANCES: &str = "http://www4.wiwiss.fu-berlin.de/bizer/bsbm/v01/instances/";

/// A datatype of the benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) enum Datatype {
    String,
    Integer,
    Date,
    DateTime,
    Usd,
}

impl Datatype {
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::String => ("xsd", "string"),
            Self::Integer => ("xsd", "integer"),
            Self::Date => ("xsd", "date"),
            Self::DateTime => ("xsd", "dateTime"),
            Self::Usd => ("b", "USD"),
        }
    }
}

/// Writes the triples of one instance after another into a block.
pub(super) struct Writer {
    format: Format,
    pub(super) out: Vec<u8>,
    pub(super) triples: u64,
    subject: Vec<u8>,
    /// Turtle: whether the subject's statement is open.
    open: bool,
}

impl Writer {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            out: Vec::new(),
            triples: 0,
            subject: Vec::new(),
            open: false,
        }
    }

    /// What a file begins with.
    pub(super) fn header(format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        if format == Format::Ttl {
            for (prefix, namespace) in NAMESPACES {
                out.extend_from_slice(format!("@prefix {prefix}: <{namespace}> .\n").as_bytes());
            }
            out.push(b'\n');
        }
        out
    }

    /// Begins the next instance, `path` below the namespace of instances.
    pub(super) fn subject(&mut self, path: &str) {
        self.end();
        self.subject.clear();
        self.subject.push(b'<');
        self.subject.extend_from_slice(INSTANCES.as_bytes());
        self.subject.extend_from_slice(path.as_bytes());
        self.subject.push(b'>');
    }

    /// Ends the last instance.
    pub(super) fn end(&mut self) {
        if self.open {
            self.out.extend_from_slice(b" .\n");
            self.open = false;
        }
    }

    fn predicate(&mut self, prefix: &str, name: &str) {
        self.triples += 1;
        match self.format {
            Format::Nt => {
                self.out.extend_from_slice(&self.subject);
                self.out.push(b' ');
            }
            Format::Ttl if self.open => self.out.extend_from_slice(b" ;\n    "),
            Format::Ttl => {
                self.out.extend_from_slice(&self.subject);
                self.out.push(b' ');
                self.open = true;
            }
        }
        self.name(prefix, name);
        self.out.push(b' ');
    }

    fn name(&mut self, prefix: &str, name: &str) {
        match self.format {
            Format::Ttl => {
                self.out.extend_from_slice(prefix.as_bytes());
                self.out.push(b':');
                self.out.extend_from_slice(name.as_bytes());
            }
            Format::Nt => {
                let namespace = NAMESPACES.iter().find(|namespace| namespace.0 == prefix);
                self.out.push(b'<');
                self.out
                    .extend_from_slice(namespace.map_or("", |found| found.1).as_bytes());
                self.out.extend_from_slice(name.as_bytes());
                self.out.push(b'>');
            }
        }
    }

    fn end_triple(&mut self) {
        if self.format == Format::Nt {
            self.out.extend_from_slice(b" .\n");
        }
    }

    /// A triple whose object is a name of one of the vocabularies.
    pub(super) fn named(&mut self, predicate: (&str, &str), object: (&str, &str)) {
        self.predicate(predicate.0, predicate.1);
        self.name(object.0, object.1);
        self.end_triple();
    }

    /// A triple whose object is an instance.
    pub(super) fn instance(&mut self, predicate: (&str, &str), path: &str) {
        self.predicate(predicate.0, predicate.1);
        self.out.push(b'<');
        self.out.extend_from_slice(INSTANCES.as_bytes());
        self.out.extend_from_slice(path.as_bytes());
        self.out.push(b'>');
        self.end_triple();
    }

    /// A triple whose object is any other IRI.
    pub(super) fn iri(&mut self, predicate: (&str, &str), iri: &str) {
        self.predicate(predicate.0, predicate.1);
        self.out.push(b'<');
        self.out.extend_from_slice(iri.as_bytes());
        self.out.push(b'>');
        self.end_triple();
    }

    /// A triple with a literal; `write` appends text that needs no escapes.
    pub(super) fn plain(&mut self, predicate: (&str, &str), write: impl FnOnce(&mut Vec<u8>)) {
        self.predicate(predicate.0, predicate.1);
        self.out.push(b'"');
        write(&mut self.out);
        self.out.push(b'"');
        self.end_triple();
    }

    /// As `plain`, with a language.
    pub(super) fn tagged(
        &mut self,
        predicate: (&str, &str),
        language: &str,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.predicate(predicate.0, predicate.1);
        self.out.push(b'"');
        write(&mut self.out);
        self.out.extend_from_slice(b"\"@");
        self.out.extend_from_slice(language.as_bytes());
        self.end_triple();
    }

    /// As `plain`, with a datatype.
    pub(super) fn typed(
        &mut self,
        predicate: (&str, &str),
        datatype: Datatype,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.predicate(predicate.0, predicate.1);
        self.out.push(b'"');
        write(&mut self.out);
        self.out.extend_from_slice(b"\"^^");
        let (prefix, name) = datatype.name();
        self.name(prefix, name);
        self.end_triple();
    }

    pub(super) fn integer(&mut self, predicate: (&str, &str), value: u64) {
        self.typed(predicate, Datatype::Integer, |out| {
            out.extend_from_slice(value.to_string().as_bytes());
        });
    }

    /// An `xsd:date`, in days since 1970-01-01.
    pub(super) fn date(&mut self, predicate: (&str, &str), days: i64) {
        self.typed(predicate, Datatype::Date, |out| date::write(days, out));
    }

    /// An `xsd:dateTime` at midnight without time zone.
    pub(super) fn midnight(&mut self, predicate: (&str, &str), days: i64) {
        self.typed(predicate, Datatype::DateTime, |out| {
            date::write(days, out);
            out.extend_from_slice(b"T00:00:00");
        });
    }
}
