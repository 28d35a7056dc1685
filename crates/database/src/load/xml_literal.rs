//! The canonical form of `rdf:parseType="Literal"`: exclusive XML canonicalization.
//!
//! The parser writes such a literal with all namespaces that are in scope on its outermost elements,
//! attributes in the order of the file, and all that can be escaped in text escaped. Comments and
//! processing instructions it leaves out.
//!
//! # Limits
//! Memory: a copy of the literal, and the namespaces that are in scope.
//!
//! # References
//! <https://www.w3.org/TR/rdf11-concepts/#section-XMLLiteral>, <https://www.w3.org/TR/xml-exc-c14n/>

use oxrdf::vocab::rdf;
use oxrdf::{Literal, Term};

const RDF_NAMESPACE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";

/// Brings an XML literal, also one in a triple term, into its canonical form. Where a file gives that
/// datatype as any other (`is_named`), a literal that was not written by the parser stays as it is.
pub(crate) fn canonicalize(object: &mut Term, is_named: bool) {
    match object {
        Term::Literal(literal) if literal.datatype() == rdf::XML_LITERAL => {
            let canonical = canonical(literal.value(), is_named);
            if let Some(canonical) = canonical.filter(|text| text != literal.value()) {
                *literal = Literal::new_typed_literal(canonical, rdf::XML_LITERAL);
            }
        }
        Term::Triple(triple) => canonicalize(&mut triple.object, is_named),
        _ => {}
    }
}

/// A namespace by its prefix, and how many elements are open where it was declared.
type Namespace<'a> = (&'a str, String, usize);

/// An attribute: its name, and its value without escapes.
type Attribute<'a> = (&'a str, String);

#[derive(Default)]
struct Canonicalizer<'a> {
    out: String,
    in_scope: Vec<Namespace<'a>>,
    /// Those that stand in `out`.
    written: Vec<Namespace<'a>>,
    /// The names of open elements.
    open: Vec<&'a str>,
}

/// `None` if the text is not what the parser writes.
fn canonical(text: &str, must_be_written_by_parser: bool) -> Option<String> {
    let mut canonicalizer = Canonicalizer::default();
    let mut rest = text;
    let mut elements = 0_usize;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        push_text(&unescaped(before)?, &mut canonicalizer.out);
        let is_outermost = canonicalizer.open.is_empty();
        if let Some(end_tag) = tag.strip_prefix("</") {
            let (name, after) = end_tag.split_once('>')?;
            canonicalizer.end(name)?;
            rest = after;
            continue;
        }
        let (name, attributes, after) = start_tag(tag)?;
        elements += 1;
        let is_rdf = |(_, value): &Attribute<'_>| value == RDF_NAMESPACE;
        if must_be_written_by_parser && is_outermost && !attributes.iter().any(is_rdf) {
            return None;
        }
        canonicalizer.start(name, attributes)?;
        rest = after;
    }
    push_text(&unescaped(rest)?, &mut canonicalizer.out);
    let is_good = canonicalizer.open.is_empty() && (elements > 0 || !must_be_written_by_parser);
    is_good.then_some(canonicalizer.out)
}

impl<'a> Canonicalizer<'a> {
    fn start(&mut self, name: &'a str, attributes: Vec<Attribute<'a>>) -> Option<()> {
        let depth = self.open.len();
        self.open.push(name);
        let mut others = Vec::new();
        for (name, value) in attributes {
            match name.strip_prefix("xmlns") {
                Some("") => self.in_scope.push(("", value, depth)),
                Some(prefix) if prefix.starts_with(':') => {
                    let prefix = prefix.trim_start_matches(':');
                    self.in_scope.push((prefix, value, depth));
                }
                _ => others.push((String::new(), local(name), name, value)),
            }
        }
        // Prefixes may be declared behind the attributes that have them. Without one, an attribute is in
        // no namespace.
        for (namespace, _, name, _) in &mut others {
            if !prefix(name).is_empty() {
                self.namespace(prefix(name))?.clone_into(namespace);
            }
        }
        let mut prefixes: Vec<&str> = others.iter().map(|other| prefix(other.2)).collect();
        prefixes.retain(|prefix| !prefix.is_empty());
        prefixes.push(prefix(name));
        prefixes.sort_unstable();
        prefixes.dedup();
        self.out.push('<');
        self.out.push_str(name);
        for prefix in prefixes {
            self.declare(prefix, depth)?;
        }
        others.sort();
        for (_, _, name, value) in others {
            push_attribute(name, &value, &mut self.out);
        }
        self.out.push('>');
        Some(())
    }

    /// Declares the namespace of a prefix unless it is known from outside.
    fn declare(&mut self, prefix: &'a str, depth: usize) -> Option<()> {
        let namespace = self.namespace(prefix)?.to_owned();
        let written = last(&self.written, prefix).unwrap_or("");
        if prefix == "xml" || namespace == written {
            return Some(());
        }
        let name = if prefix.is_empty() {
            "xmlns".to_owned()
        } else {
            format!("xmlns:{prefix}")
        };
        push_attribute(&name, &namespace, &mut self.out);
        self.written.push((prefix, namespace, depth));
        Some(())
    }

    /// The namespace of a prefix; `None` if it has none.
    fn namespace(&self, prefix: &str) -> Option<&str> {
        match prefix {
            "xml" => Some("http://www.w3.org/XML/1998/namespace"),
            "" => Some(last(&self.in_scope, "").unwrap_or("")),
            prefix => last(&self.in_scope, prefix),
        }
    }

    fn end(&mut self, name: &str) -> Option<()> {
        if self.open.pop()? != name.trim_end() {
            return None;
        }
        let depth = self.open.len();
        self.in_scope.retain(|(_, _, declared)| *declared < depth);
        self.written.retain(|(_, _, declared)| *declared < depth);
        self.out.push_str("</");
        self.out.push_str(name.trim_end());
        self.out.push('>');
        Some(())
    }
}

fn last<'n>(namespaces: &'n [Namespace<'_>], prefix: &str) -> Option<&'n str> {
    let found = namespaces.iter().rev().find(|(known, ..)| *known == prefix);
    found.map(|(_, namespace, _)| namespace.as_str())
}

fn prefix(name: &str) -> &str {
    name.split_once(':').map_or("", |(prefix, _)| prefix)
}

fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

/// Name and attributes of the tag that `text` begins with, and what follows it.
fn start_tag(text: &str) -> Option<(&str, Vec<Attribute<'_>>, &str)> {
    let inside = text.strip_prefix('<')?;
    let end = inside.find(|c: char| c.is_ascii_whitespace() || c == '>' || c == '/')?;
    let (name, mut rest) = inside.split_at(end);
    if name.is_empty() || name.starts_with(['!', '?']) {
        return None;
    }
    let mut attributes: Vec<Attribute<'_>> = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix('>') {
            return Some((name, attributes, after));
        }
        let (attribute, value) = rest.split_once("=\"")?;
        let (value, after) = value.split_once('"')?;
        let is_name = |c: char| !c.is_ascii_whitespace() && !"<>\"'=/".contains(c);
        if attribute.is_empty() || !attribute.chars().all(is_name) {
            return None;
        }
        // The parser repeats namespaces that the element itself declares.
        if !attributes.iter().any(|(known, _)| *known == attribute) {
            let spaces = value.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
            attributes.push((attribute, unescaped(&spaces)?));
        }
        rest = after;
    }
}

/// Resolves references; `None` if one is unknown.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (name, after) = after.split_once(';')?;
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = name.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => number.parse(),
                };
                char::from_u32(code.ok()?)?
            }
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

fn push_text(text: &str, out: &mut String) {
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#xD;"),
            c => out.push(c),
        }
    }
}

fn push_attribute(name: &str, value: &str, out: &mut String) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_that_are_used_are_declared() {
        let rdf = format!("xmlns:rdf=\"{RDF_NAMESPACE}\"");
        for (text, expected) in [
            (format!("<br {rdf} xmlns:e=\"http://e/\"></br>"), "<br></br>"),
            (
                format!("a <e:b {rdf} xmlns:e=\"http://e/\"><e:c></e:c></e:b> <d {rdf}></d>"),
                "a <e:b xmlns:e=\"http://e/\"><e:c></e:c></e:b> <d></d>",
            ),
            (
                "<b z:q=\"1\" a=\"2\" y:r=\"3\" xmlns:y=\"http://z\" xmlns:z=\"http://y\"></b>".to_owned(),
                "<b xmlns:y=\"http://z\" xmlns:z=\"http://y\" a=\"2\" z:q=\"1\" y:r=\"3\"></b>",
            ),
            (
                "<b xmlns=\"http://x\"><c><d xmlns=\"\"><e></e></d></c><e:f xmlns:e=\"u:\"><g></g></e:f></b>"
                    .to_owned(),
                "<b xmlns=\"http://x\"><c><d xmlns=\"\"><e></e></d></c><e:f xmlns:e=\"u:\"><g></g></e:f></b>",
            ),
            (
                "<p:a xmlns:p=\"u:\"><b><p:c xml:lang=\"en\"></p:c></b></p:a>".to_owned(),
                "<p:a xmlns:p=\"u:\"><b><p:c xml:lang=\"en\"></p:c></b></p:a>",
            ),
        ] {
            assert_eq!(canonical(&text, false).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn escapes_are_those_of_the_canonical_form() {
        let text =
            "It&apos;s &quot;1 &gt; 2 &amp; 3&quot;\r\n<a b=\"x > &apos;&#10;\n&quot;&#x41;\"></a>";
        let expected = "It's \"1 &gt; 2 &amp; 3\"\n<a b=\"x > '&#xA; &quot;A\"></a>";
        assert_eq!(canonical(text, false).as_deref(), Some(expected));
    }

    #[test]
    fn what_the_parser_did_not_write_stays() {
        for text in [
            "<a",
            "<a>",
            "</a>",
            "<a></b>",
            "<p:a></p:a>",
            "&x;",
            "<a b='1'></a>",
            "<a/>",
            "<!-- -->",
        ] {
            assert_eq!(canonical(text, false), None, "{text}");
        }
        for text in ["a &quot; b", "<a xmlns:b=\"u:\"></a>"] {
            assert_eq!(canonical(text, true), None, "{text}");
        }
    }
}
