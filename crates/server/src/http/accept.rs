//! Content negotiation: which of the offered media types a client wants most.
//!
//! # References
//! RFC 9110 section 12.5.1.

/// Picks the best of `offers` for an `Accept` header. An offer is a media type and what stands for
/// it; earlier offers win ties. Without a header, or with an empty one, the first offer is taken.
///
/// Returns `None` if nothing offered is acceptable.
pub(crate) fn negotiate<T: Copy>(accept: Option<&str>, offers: &[(&str, T)]) -> Option<T> {
    let accept = accept.map(str::trim).filter(|accept| !accept.is_empty());
    let Some(accept) = accept else {
        return offers.first().map(|offer| offer.1);
    };
    let ranges: Vec<Range<'_>> = list(accept).filter_map(Range::parse).collect();
    let mut best: Option<(u32, T)> = None;
    for &(media_type, value) in offers {
        // The most specific range that matches decides, as the RFC asks for.
        let quality = ranges
            .iter()
            .filter_map(|range| range.specificity(media_type).map(|s| (s, range.quality)))
            .max_by_key(|&(specificity, _)| specificity)
            .map_or(0, |(_, quality)| quality);
        if quality > 0 && best.is_none_or(|(other, _)| quality > other) {
            best = Some((quality, value));
        }
    }
    best.map(|(_, value)| value)
}

/// What a client makes of a token such as a content coding, in thousandths: that of the token
/// itself, else that of `*`; `None` if neither occurs.
pub(super) fn quality(accept: &str, token: &str) -> Option<u32> {
    let mut rest = None;
    for part in list(accept) {
        let mut parts = part.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let quality = parts
            .find_map(|parameter| {
                parameter
                    .strip_prefix("q=")
                    .or(parameter.strip_prefix("Q="))
            })
            .map_or(Some(1000), parse_quality)
            .unwrap_or(0);
        if name.eq_ignore_ascii_case(token) {
            return Some(quality);
        }
        if name == "*" {
            rest = Some(quality);
        }
    }
    rest
}

/// The elements of a list; a comma between quotes, as a parameter may have it, divides none.
fn list(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' => return !quoted,
            _ => {}
        }
        false
    })
}

struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// In thousandths.
    quality: u32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            // As the client of Java's library writes it.
            "*" => ("*", "*"),
            media_type => media_type.split_once('/')?,
        };
        let quality = parts
            .find_map(|parameter| {
                parameter
                    .strip_prefix("q=")
                    .or(parameter.strip_prefix("Q="))
            })
            .map_or(Some(1000), parse_quality)?;
        Some(Self {
            kind: kind.trim(),
            subtype: subtype.trim(),
            quality,
        })
    }

    /// How closely the range names the media type; `None` if it does not match.
    fn specificity(&self, media_type: &str) -> Option<u8> {
        let (kind, subtype) = media_type.split_once('/')?;
        if self.kind == "*" && self.subtype == "*" {
            return Some(0);
        }
        if !self.kind.eq_ignore_ascii_case(kind) {
            return None;
        }
        if self.subtype == "*" {
            return Some(1);
        }
        self.subtype.eq_ignore_ascii_case(subtype).then_some(2)
    }
}

/// `0`, `1`, or a fraction of up to three digits, in thousandths. Some clients leave the 0 before the point out.
fn parse_quality(text: &str) -> Option<u32> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u32 = match whole {
        "" if !fraction.is_empty() => 0,
        whole => whole.parse().ok()?,
    };
    let fraction: u32 = format!("{fraction:0<3}").parse().ok()?;
    let quality = whole.checked_mul(1000)?.checked_add(fraction)?;
    (quality <= 1000).then_some(quality)
}

#[cfg(test)]
mod tests {
    use super::negotiate;

    const OFFERS: [(&str, u8); 3] = [
        ("application/sparql-results+json", 1),
        ("application/sparql-results+xml", 2),
        ("text/csv", 3),
    ];

    #[test]
    fn picks_by_quality_then_by_our_order() {
        assert_eq!(negotiate(None, &OFFERS), Some(1));
        assert_eq!(negotiate(Some("*/*"), &OFFERS), Some(1));
        assert_eq!(negotiate(Some("text/csv"), &OFFERS), Some(3));
        assert_eq!(
            negotiate(
                Some("text/csv;q=0.5, application/sparql-results+xml;q=0.9"),
                &OFFERS
            ),
            Some(2)
        );
        assert_eq!(negotiate(Some("text/*;q=0.2, */*;q=0.1"), &OFFERS), Some(3));
        assert_eq!(
            negotiate(Some("*/*, application/sparql-results+json;q=0"), &OFFERS),
            Some(2)
        );
        assert_eq!(negotiate(Some("image/png"), &OFFERS), None);
        assert_eq!(negotiate(Some(""), &OFFERS), Some(1));
        assert_eq!(negotiate(Some("text/csv;q=2"), &OFFERS), None);
        let java = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2";
        assert_eq!(negotiate(Some(java), &OFFERS), Some(1));
        assert_eq!(negotiate(Some("*"), &OFFERS), Some(1));
        assert_eq!(negotiate(Some("text/csv;q="), &OFFERS), None);
        let quoted = r#"image/png;a="x, application/sparql-results+xml, \", text/csv", */*;q=0.1"#;
        assert_eq!(negotiate(Some(quoted), &OFFERS), Some(1));
    }
}
