//! Sizes and durations as people write them.

use std::time::Duration;

/// Bytes: a number, with `K`, `M`, `G` or `T` for powers of 1024 and an optional `B` or `iB`.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower
        .strip_suffix("ib")
        .or(lower.strip_suffix('b'))
        .unwrap_or(&lower);
    let (number, shift) = match number.as_bytes().last() {
        Some(b'k') => (&number[..number.len() - 1], 10),
        Some(b'm') => (&number[..number.len() - 1], 20),
        Some(b'g') => (&number[..number.len() - 1], 30),
        Some(b't') => (&number[..number.len() - 1], 40),
        _ => (number, 0),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong(text))?;
    let bytes = value * f64::from(1_u32 << (shift / 2)) * f64::from(1_u32 << (shift - shift / 2));
    if !(1.0..9e18).contains(&bytes) {
        return Err(wrong(text));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 9e18, as was just checked"
    )]
    Ok(bytes as u64)
}

fn wrong(text: &str) -> String {
    format!(
        "'{text}' is no size: write a number of bytes, or one with K, M, G or T, such as 512M or 1.5G"
    )
}

/// Seconds, with an optional unit: `ms`, `s`, `m`, `h`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, factor) = units
        .iter()
        .find_map(|&(unit, factor)| text.strip_suffix(unit).map(|number| (number, factor)))
        .unwrap_or((text, 1.0));
    let seconds = number
        .trim()
        .parse::<f64>()
        .map_or(f64::NAN, |value| value * factor);
    if !(seconds > 0.0 && seconds < 1e9) {
        return Err(format!(
            "'{text}' is no duration: write seconds, or 500ms, 30s, 5m, 1h"
        ));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A count and what is counted, in the plural unless it is one.
pub(super) fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(number))
}

/// Bytes for people: three digits and a unit of powers of 1024.
pub(super) fn bytes(count: u64) -> String {
    let mut value = to_f64(count);
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{count} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A count with thousands kept apart by commas.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// For figures that people read, where the last of 53 bits does not matter.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// How many of something went by in a second, for people; `seconds` is above zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, positive and far below 2^63"
)]
pub(super) fn rate(done: u64, seconds: f64) -> String {
    count((to_f64(done) / seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_powers_of_1024() {
        assert_eq!(parse_bytes("1G"), Ok(1 << 30));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("512mb"), Ok(512 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for wrong in ["", "0", "-1G", "G", "1X", "nan", "inf"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "0", "-1", "s", "nan", "5 days"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(count(1), "1");
        assert_eq!(count(10_095_723), "10,095,723");
        assert_eq!(bytes(10), "10 B");
        assert_eq!(bytes(353 << 20), "353.0 MiB");
    }
}
