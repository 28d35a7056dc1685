//! A moment in the life of a database: a commit, or a time.

use std::fmt;
use std::str::FromStr;

use oxsdatatypes::{DateTime, Decimal, Integer};

use crate::history::time_text;

/// A moment: a commit by its number, or the last commit that is not later than a time.
///
/// ```
/// use stoa_database::Moment;
///
/// assert_eq!("12".parse(), Ok(Moment::Commit(12)));
/// assert_eq!("1970-01-01T00:00:01.5Z".parse(), Ok(Moment::Time(1_500_000)));
/// assert_eq!("1970-01-02T01:00:00+01:00".parse(), Ok(Moment::Time(86_400_000_000)));
/// assert_eq!("1970-01-02".parse(), Ok(Moment::Time(86_400_000_000)));
/// assert_eq!(Moment::Time(1_500_000).to_string(), "1970-01-01T00:00:01.5Z");
/// assert!("yesterday".parse::<Moment>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// The commit with this number.
    Commit(u64),
    /// The last commit that is not later, in microseconds since 1970.
    Time(u64),
}

impl fmt::Display for Moment {
    /// As it is read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit(commit) => write!(f, "{commit}"),
            Self::Time(time_us) => f.write_str(&time_text(*time_us)),
        }
    }
}

/// What is no moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MomentError;

impl fmt::Display for MomentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "give the number of a commit, or a time since 1970 such as 2026-11-21T16:00:00Z (UTC if it \
             names no zone)",
        )
    }
}

impl std::error::Error for MomentError {}

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Commit).map_err(|_| MomentError);
        }
        microseconds(text).map(Self::Time).ok_or(MomentError)
    }
}

/// The microseconds from 1970 to a time, or to the beginning of a day.
fn microseconds(text: &str) -> Option<u64> {
    let text = match text.contains('T') {
        true => text.to_owned(),
        false => format!("{text}T00:00:00"),
    };
    let time: DateTime = text.parse().ok()?;
    let time = match time.timezone_offset() {
        Some(_) => time,
        None => format!("{text}Z").parse().ok()?,
    };
    let epoch: DateTime = "1970-01-01T00:00:00Z".parse().ok()?;
    let seconds = time.checked_sub(epoch)?.as_seconds();
    let microseconds = seconds.checked_mul(Decimal::from(1_000_000))?;
    let whole = Integer::try_from(microseconds.checked_floor()?).ok()?;
    u64::try_from(i64::from(whole)).ok()
}
