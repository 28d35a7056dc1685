//! Relative references against a base, as the standard has it and without any other change.
//!
//! # References
//! RFC 3986, section 5.2

/// The parts of an IRI or of a relative reference.
#[derive(Debug)]
struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

/// The scheme of an IRI, and what follows the colon.
pub(super) fn split_scheme(iri: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = iri.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

fn parts(text: &str) -> Parts<'_> {
    let (rest, fragment) = split_at(text, '#');
    let (rest, query) = split_at(rest, '?');
    let (scheme, rest) = match split_scheme(rest) {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, rest),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            (Some(authority), path)
        }
        None => (None, rest),
    };
    Parts {
        scheme,
        authority,
        path,
        query,
        fragment,
    }
}

fn split_at(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// What a reference stands for at this base.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    let base = parts(base);
    let reference = parts(reference);
    let mut out = String::new();
    let scheme = reference.scheme.or(base.scheme);
    if let Some(scheme) = scheme {
        out.push_str(scheme);
        out.push(':');
    }
    let is_absolute = reference.scheme.is_some() || reference.authority.is_some();
    let authority = if is_absolute {
        reference.authority
    } else {
        base.authority
    };
    if let Some(authority) = authority {
        out.push_str("//");
        out.push_str(authority);
    }
    let mut query = reference.query;
    if is_absolute || reference.path.starts_with('/') {
        push_without_dots(reference.path, &mut out);
    } else if reference.path.is_empty() {
        out.push_str(base.path);
        query = query.or(base.query);
    } else {
        let folder = match base.path.rfind('/') {
            Some(end) => base.path.get(..=end).unwrap_or_default(),
            None if base.authority.is_some() => "/",
            None => "",
        };
        push_without_dots(&format!("{folder}{}", reference.path), &mut out);
    }
    for (mark, part) in [('?', query), ('#', reference.fragment)] {
        if let Some(part) = part {
            out.push(mark);
            out.push_str(part);
        }
    }
    out
}

/// Appends a path without its dot segments (section 5.2.4).
fn push_without_dots(path: &str, out: &mut String) {
    let start = out.len();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("../").or(rest.strip_prefix("./")) {
            rest = after;
        } else if rest.starts_with("/./") {
            rest = rest.get(2..).unwrap_or_default();
        } else if rest == "/." {
            rest = "/";
        } else if rest.starts_with("/../") || rest == "/.." {
            rest = rest.get(3..).unwrap_or_default();
            if rest.is_empty() {
                rest = "/";
            }
            let kept = out.get(start..).and_then(|path| path.rfind('/'));
            out.truncate(start + kept.unwrap_or(0));
        } else if rest == "." || rest == ".." {
            rest = "";
        } else {
            let mut slashes = rest.match_indices('/').filter(|(at, _)| *at > 0);
            let end = slashes.next().map_or(rest.len(), |(at, _)| at);
            let (segment, after) = rest.split_at(end);
            out.push_str(segment);
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3986, section 5.4, and what W3C's t0122, t0123 and te062 ask for beyond it.
    #[test]
    fn references_are_resolved_as_the_standard_says() {
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q#s"),
            ("g#s", "http://a/b/c/g#s"),
            ("g?y#s", "http://a/b/c/g?y#s"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("g#s/../x", "http://a/b/c/g#s/../x"),
            ("\u{e9}/\u{e9}", "http://a/b/c/\u{e9}/\u{e9}"),
            ("//example.org/../x", "http://example.org/x"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{reference}");
        }
        for (base, reference, expected) in [
            ("http://a/b/../d;p?q", "#s", "http://a/b/../d;p?q#s"),
            ("http://a/b/./d;p?q", "?y", "http://a/b/./d;p?y"),
            ("http://a/b/../d", "e", "http://a/e"),
            ("http://a", "e", "http://a/e"),
            ("urn:a", "e", "urn:e"),
            ("urn:a", "\u{e9}/x", "urn:\u{e9}/x"),
            ("file:///a/b", "../../c", "file:///c"),
            ("http://invalid/<>/", "test", "http://invalid/<>/test"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{base} {reference}");
        }
    }
}
