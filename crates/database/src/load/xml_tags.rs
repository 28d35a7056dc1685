//! What XML and its namespaces demand of tags and references, where the parser of RDF/XML is lenient:
//! names are names, attributes differ, prefixes are declared.
//!
//! # Limits
//! Memory: the prefixes in scope, at most [`XML_PREFIXES_MAX`], with their namespaces. A tag has at
//! most [`XML_ATTRIBUTES_MAX`] attributes, since the parser compares each with all others.
//!
//! # References
//! XML 1.0, sections 2.2, 2.3, 3.1; Namespaces in XML 1.0, sections 3 to 6.

use crate::limits::{XML_ATTRIBUTES_MAX, XML_PREFIXES_MAX};
use crate::xml_characters::{is_character, is_name, is_name_start};

/// The prefixes in scope.
#[derive(Default)]
pub(super) struct Tags {
    /// How deep the element is that declares it, the prefix, and its namespace as written.
    prefixes: Vec<(usize, String, String)>,
}

/// A name: its prefix, which may be empty, and the rest.
type Name<'a> = (&'a str, &'a str);

impl Tags {
    /// Checks what stands between `<` and `>` of a tag that begins an element; `depth` counts it.
    pub(super) fn start(&mut self, tag: &[u8], depth: usize) -> Result<(), String> {
        let tag = text(tag)?;
        let (tag, is_empty) = match tag.strip_suffix('/') {
            Some(tag) => (tag, true),
            None => (tag, false),
        };
        let (name, rest) = tag.split_at(tag.find(is_space).unwrap_or(tag.len()));
        let element = qualified(name)?;
        let attributes = attributes(rest)?;
        for (name, value) in &attributes {
            self.declare(*name, value, depth)?;
        }
        self.namespace(element.0)?;
        let mut resolved = Vec::with_capacity(attributes.len());
        for &((prefix, local), _) in &attributes {
            // Without a prefix it has no namespace.
            let namespace = match prefix {
                "" => "",
                prefix => self.namespace(prefix)?,
            };
            resolved.push((local, namespace, prefix));
        }
        resolved.sort_unstable();
        for pair in resolved.windows(2) {
            if let [(local, namespace, prefix), (other, same, _)] = pair
                && local == other
                && namespace == same
            {
                let colon = if prefix.is_empty() { "" } else { ":" };
                return Err(format!(
                    "the attribute {prefix}{colon}{local} stands there twice"
                ));
            }
        }
        if is_empty {
            self.end(depth);
        }
        Ok(())
    }

    /// The element so deep is over.
    pub(super) fn end(&mut self, depth: usize) {
        let is_open = |(declared, ..): &(usize, String, String)| *declared < depth;
        let length = self
            .prefixes
            .iter()
            .rposition(is_open)
            .map_or(0, |at| at + 1);
        self.prefixes.truncate(length);
    }

    /// Adds what `xmlns` and `xmlns:prefix` declare.
    fn declare(&mut self, name: Name<'_>, value: &str, depth: usize) -> Result<(), String> {
        let prefix = match name {
            ("", "xmlns") => "",
            ("xmlns", prefix) => prefix,
            _ => return Ok(()),
        };
        if value.is_empty() && !prefix.is_empty() {
            return Err(format!("xmlns:{prefix} has no namespace"));
        }
        if self.prefixes.len() >= XML_PREFIXES_MAX {
            return Err(format!(
                "more than {XML_PREFIXES_MAX} prefixes are declared"
            ));
        }
        self.prefixes
            .push((depth, prefix.to_owned(), value.to_owned()));
        Ok(())
    }

    fn namespace(&self, prefix: &str) -> Result<&str, String> {
        let known = self
            .prefixes
            .iter()
            .rev()
            .find(|(_, known, _)| known == prefix);
        match (known, prefix) {
            (Some((.., namespace)), _) => Ok(namespace),
            (None, "") => Ok(""),
            (None, "xml") => Ok("http://www.w3.org/XML/1998/namespace"),
            (None, "xmlns") => Ok("http://www.w3.org/2000/xmlns/"),
            (None, prefix) => Err(format!("the prefix {prefix} is not declared")),
        }
    }
}

/// Checks what stands between `&` and `;`, if it is the number of a character.
pub(super) fn check_reference(reference: &[u8]) -> Result<(), String> {
    let Some(number) = text(reference)?.strip_prefix('#') else {
        return Ok(());
    };
    let number = match number.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    let has_sign = reference.contains(&b'+');
    match number.ok().filter(|_| !has_sign).and_then(char::from_u32) {
        Some(c) if is_character(c) => Ok(()),
        _ => Err(format!(
            "&{}; is no character that XML can have",
            String::from_utf8_lossy(reference)
        )),
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "the text is not UTF-8".to_owned())
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Takes a name apart.
fn qualified(name: &str) -> Result<Name<'_>, String> {
    let (prefix, local) = name.split_once(':').unwrap_or(("", name));
    let is_good = |part: &str| {
        let mut characters = part.chars();
        characters.next().is_some_and(is_name_start) && characters.all(is_name)
    };
    let has_prefix = name.contains(':');
    if !is_good(local) || (has_prefix && !is_good(prefix)) {
        let shown: String = name.chars().take(100).collect();
        return Err(match (has_prefix, local) {
            (true, "") => format!("{shown} has nothing behind the colon"),
            (false, "") => "a name is missing".to_owned(),
            _ => format!("{shown} is no name"),
        });
    }
    Ok((prefix, local))
}

/// The attributes of a tag, each behind white space.
fn attributes(mut rest: &str) -> Result<Vec<(Name<'_>, &str)>, String> {
    let mut all = Vec::new();
    loop {
        let next = rest.trim_start_matches(is_space);
        if next.is_empty() {
            return Ok(all);
        }
        if next.len() == rest.len() {
            return Err("white space is missing between two attributes".to_owned());
        }
        if all.len() >= XML_ATTRIBUTES_MAX {
            return Err(format!(
                "a tag has more than {XML_ATTRIBUTES_MAX} attributes"
            ));
        }
        let end = next.find(|c| c == '=' || is_space(c)).unwrap_or(next.len());
        let (name, behind) = next.split_at(end);
        let name = qualified(name)?;
        let value = behind.trim_start_matches(is_space).strip_prefix('=');
        let value = value.map(|value| value.trim_start_matches(is_space));
        let quoted = value.and_then(|value| {
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            value.get(1..)?.split_once(quote)
        });
        let Some((value, behind)) = quoted else {
            return Err(format!(
                "the attribute {} has no value in quotation marks",
                name.1
            ));
        };
        if value.contains('<') {
            return Err(format!(
                "the attribute {} has a <, which must be &lt;",
                name.1
            ));
        }
        all.push((name, value));
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(tags: &[&str]) -> Result<(), String> {
        let mut state = Tags::default();
        let mut depth = 0;
        for tag in tags {
            if let Some(_name) = tag.strip_prefix('/') {
                state.end(depth);
                depth -= 1;
                continue;
            }
            depth += 1;
            state.start(tag.as_bytes(), depth)?;
            if tag.ends_with('/') {
                depth -= 1;
            }
        }
        Ok(())
    }

    #[test]
    fn good_tags_pass() {
        for tags in [
            &["a xmlns='u' b='1' c = \"'\"", "d/", "/a"][..],
            &[
                "e:a xmlns:e='u'",
                "e:b e:c='' c='>'/",
                "f:d xmlns:f='v'/",
                "/e:a",
            ],
            &["a xml:lang='en' xml:base='http://a/' xmlns='' /"],
            &["\u{e9}t\u{e9} \u{4e2d}-1.x=''"],
        ] {
            assert_eq!(checked(tags), Ok(()), "{tags:?}");
        }
    }

    #[test]
    fn others_do_not() {
        for (tags, reason) in [
            (&["e:a"][..], "prefix e is not declared"),
            (&["a e:b=''"], "prefix e is not declared"),
            (
                &["a", "f:d xmlns:f='v'/", "f:d/"],
                "prefix f is not declared",
            ),
            (
                &["a", "f:d xmlns:f='v'", "/f:d", "f:d/"],
                "prefix f is not declared",
            ),
            (&["a xmlns:e=''"], "xmlns:e has no namespace"),
            (&["e: xmlns:e='u'/"], "e: has nothing behind the colon"),
            (&[":a/"], ":a is no name"),
            (&["a xmlns:e='u' e:=''/"], "e: has nothing behind the colon"),
            (&["1a"], "1a is no name"),
            (&["a:b:c xmlns:a='u'"], "a:b:c is no name"),
            (&["a b='' b=''"], "attribute b stands there twice"),
            (
                &["a xmlns:e='u' xmlns:f='u' e:b='' f:b=''"],
                "attribute e:b stands there twice",
            ),
            (&["a b"], "attribute b has no value"),
            (&["a b=c"], "attribute b has no value"),
            (&["a b='1'c='2'"], "white space is missing"),
            (&["a b='<'"], "which must be &lt;"),
            (&[" a"], "a name is missing"),
        ] {
            let message = checked(tags).unwrap_err();
            assert!(message.contains(reason), "{tags:?}: {message}");
        }
        let many: String = (0..=XML_ATTRIBUTES_MAX)
            .map(|i| format!(" a{i}=''"))
            .collect();
        assert!(
            checked(&[&format!("a{many}")])
                .unwrap_err()
                .contains("attributes")
        );
        let many: String = (0..XML_ATTRIBUTES_MAX)
            .map(|i| format!(" xmlns:a{i}='u'"))
            .collect();
        let tag = format!("a{many}");
        let tags = vec![tag.as_str(); XML_PREFIXES_MAX / XML_ATTRIBUTES_MAX + 1];
        assert!(
            checked(&tags)
                .unwrap_err()
                .contains("prefixes are declared")
        );
    }

    #[test]
    fn references_are_characters_of_xml() {
        for good in ["#9", "#xA", "#x10FFFF", "amp", "e"] {
            assert_eq!(check_reference(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "#0", "#1", "#x1F", "#xD800", "#xFFFF", "#x110000", "#", "#x", "#XA", "#-1", "#+9",
        ] {
            assert!(check_reference(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
