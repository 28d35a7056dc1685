//! Which earlier commits are kept.

use std::fmt;
use std::str::FromStr;

use stoa_storage::RetainedRoot;

/// Which earlier commits can be read; stored in the database.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Retention {
    /// None: space is used again at once.
    #[default]
    None,
    /// So many before the last one.
    Commits(u64),
    /// What was the last one within so many seconds before now.
    Seconds(u64),
    /// All, from when this was chosen.
    All,
}

/// Units of time in which a retention is told, the longest first, and their seconds.
const UNITS: [(char, u64); 5] = [
    ('w', 7 * 86_400),
    ('d', 86_400),
    ('h', 3_600),
    ('m', 60),
    ('s', 1),
];

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Commits(count) => write!(f, "{count}c"),
            Self::Seconds(seconds) => {
                let mut units = UNITS.into_iter().skip(1);
                let unit = units.find(|(_, length)| seconds.is_multiple_of(*length));
                let (unit, length) = unit.unwrap_or(('s', 1));
                write!(f, "{}{unit}", seconds / length)
            }
        }
    }
}

impl FromStr for Retention {
    type Err = &'static str;

    /// `none`, `all`, `100c` for commits, or a number with `s`, `m`, `h`, `d` or `w` for time.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected none, all, a number of commits such as 100c, or a time such \
             as 7d (s, m, h, d, w)";
        match text {
            "none" => return Ok(Self::None),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let unit = text.chars().next_back().ok_or(EXPECTED)?;
        let number = text.strip_suffix(unit).unwrap_or_default();
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(EXPECTED);
        }
        let number: u64 = number.parse().map_err(|_| EXPECTED)?;
        if number == 0 {
            return Ok(Self::None);
        }
        if unit == 'c' {
            return Ok(Self::Commits(number));
        }
        let found = UNITS.into_iter().find(|(other, _)| *other == unit);
        let (_, length) = found.ok_or(EXPECTED)?;
        let seconds = number.checked_mul(length).ok_or(EXPECTED)?;
        Ok(Self::Seconds(seconds))
    }
}

impl Retention {
    /// The first of `roots` (the oldest first, the current one last) that stays when a checkpoint of
    /// commit `commit` and time `time` follows at `now`, by the number of its checkpoint; `None` if
    /// none does. Times are in microseconds since 1970.
    pub(crate) fn first_kept(
        self,
        roots: &[RetainedRoot],
        (commit, time): (u64, u64),
        now: u64,
    ) -> Option<u64> {
        let is_before = |root: &RetainedRoot| match self {
            Self::None | Self::All => false,
            Self::Commits(count) => root.commit <= commit.saturating_sub(count),
            Self::Seconds(seconds) => root.log.time <= past(now, seconds),
        };
        let unneeded = match self {
            Self::None => true,
            Self::All => false,
            Self::Commits(count) => count == 0,
            Self::Seconds(seconds) => time <= past(now, seconds),
        };
        if unneeded {
            return None;
        }
        // The last one from which everything in the window can be made.
        let first = roots.iter().rposition(is_before).unwrap_or(0);
        roots.get(first).map(|root| root.checkpoint)
    }

    /// The oldest commit that may be read, where `kept` could be made and `last` is the last one.
    pub(crate) fn oldest(self, kept: u64, last: u64) -> u64 {
        match self {
            Self::None => last,
            Self::Commits(count) => kept.max(last.saturating_sub(count)),
            Self::Seconds(_) | Self::All => kept,
        }
    }
}

fn past(now: u64, seconds: u64) -> u64 {
    now.saturating_sub(seconds.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use stoa_storage::LogMark;

    use super::*;

    #[test]
    fn retentions_are_read_as_they_are_written() {
        for text in ["none", "all", "1c", "100c", "7d", "36h", "90m", "5s"] {
            assert_eq!(text.parse::<Retention>().unwrap().to_string(), text);
        }
        assert_eq!("2w".parse(), Ok(Retention::Seconds(14 * 86_400)));
        assert_eq!("0d".parse(), Ok(Retention::None));
        for text in [
            "",
            "7",
            "d",
            "-1d",
            "7 d",
            "7y",
            "+7d",
            "99999999999999999999c",
            "All",
        ] {
            assert!(text.parse::<Retention>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_root_before_the_window_stays() {
        let root = |checkpoint: u64| RetainedRoot {
            commit: checkpoint * 10,
            checkpoint,
            log: LogMark {
                time: checkpoint * 1_000_000,
                ..LogMark::default()
            },
        };
        let roots: Vec<_> = (1..=4).map(root).collect();
        let kept = |retention: Retention| retention.first_kept(&roots, (50, 5_000_000), 6_000_000);
        assert_eq!(kept(Retention::None), None);
        assert_eq!(kept(Retention::All), Some(1));
        for (count, first) in [(5, 4), (10, 4), (11, 3), (30, 2), (39, 1), (40, 1), (90, 1)] {
            assert_eq!(kept(Retention::Commits(count)), Some(first), "{count}");
        }
        for (seconds, first) in [
            (1, None),
            (2, Some(4)),
            (3, Some(3)),
            (5, Some(1)),
            (9, Some(1)),
        ] {
            assert_eq!(kept(Retention::Seconds(seconds)), first, "{seconds}");
        }
    }
}
