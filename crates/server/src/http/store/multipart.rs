//! Bodies of several documents: `multipart/form-data`.
//!
//! # References
//! RFC 2046 section 5.1; RFC 7578.

use stoa_database::GraphFormat;

use crate::http::problem::Problem;
use crate::http::upload::unknown_media_type;

/// The most parts of a body.
const PARTS_MAX: usize = 1_000;

/// One document.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Part<'a> {
    /// What messages call it.
    pub(super) name: String,
    pub(super) format: GraphFormat,
    pub(super) body: &'a [u8],
}

/// The documents of a body, in their order.
///
/// # Errors
/// 400 if the body is not divided by `boundary` to its end, 415 for a part in no format.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, Problem> {
    let broken =
        || Problem::bad_request("the parts of the request are not divided as they should be");
    let first = format!("--{boundary}");
    let next = format!("\r\n{first}");
    // What stands before the first boundary is not meant for programs.
    let mut rest = match body.strip_prefix(first.as_bytes()) {
        Some(rest) => rest,
        None => divide(body, next.as_bytes()).ok_or_else(broken)?.1,
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        let (padding, after) = divide(rest, b"\r\n").ok_or_else(broken)?;
        if !padding.iter().all(|byte| b" \t".contains(byte)) || parts.len() == PARTS_MAX {
            return Err(broken());
        }
        let (content, behind) = divide(after, next.as_bytes()).ok_or_else(broken)?;
        // Without headers a part begins with the empty line.
        let (head, body) = match content.strip_prefix(b"\r\n") {
            Some(body) => (&[][..], body),
            None => divide(content, b"\r\n\r\n").ok_or_else(broken)?,
        };
        parts.push(part(&String::from_utf8_lossy(head), body, parts.len() + 1)?);
        rest = behind;
    }
    Ok(parts)
}

fn part<'a>(head: &str, body: &'a [u8], number: usize) -> Result<Part<'a>, Problem> {
    let header = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim()
                .eq_ignore_ascii_case(wanted)
                .then(|| value.trim())
        })
    };
    let file = header("content-disposition").and_then(|value| {
        let (_, rest) = value.split_once("filename=\"")?;
        rest.split_once('"').map(|(name, _)| name)
    });
    let format = match header("content-type") {
        Some(media_type) => GraphFormat::from_name(media_type),
        None => file.and_then(GraphFormat::from_file_name),
    };
    let name = file.map_or_else(|| format!("part {number}"), str::to_owned);
    match format {
        Some(format) => Ok(Part { name, format, body }),
        None => Err(unknown_media_type(&name)),
    }
}

/// What stands before a mark and behind it.
fn divide<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + mark.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_with_their_formats() {
        let body = b"ignored\r\n--x\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a.ttl\"\r\n\r\none\
            \r\n--x \t\r\ncontent-type: application/n-triples\r\n\r\n\r\n--x--\r\nignored";
        let parts = parts(body, "x").unwrap();
        let found: Vec<_> = parts
            .iter()
            .map(|part| (part.name.as_str(), part.format, part.body))
            .collect();
        assert_eq!(
            found,
            [
                ("a.ttl", GraphFormat::Turtle, b"one".as_slice()),
                ("part 2", GraphFormat::NTriples, b"".as_slice())
            ]
        );
        assert_eq!(super::parts(b"--x--", "x").unwrap(), []);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for (body, status) in [
            ("", 400),
            ("--y\r\n", 400),
            ("--x\r\nContent-Type: text/turtle\r\n\r\nno end", 400),
            ("--x\r\nno head\r\n--x--", 400),
            ("--x nonsense\r\n\r\n\r\n--x--", 400),
            ("--x\r\nContent-Type: image/png\r\n\r\n\r\n--x--", 415),
            ("--x\r\n\r\n<http://a/s> <http://a/p> 1 .\r\n--x--", 415),
        ] {
            let problem = parts(body.as_bytes(), "x").unwrap_err();
            assert_eq!(problem.status.as_u16(), status, "{body:?}");
        }
    }
}
