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
    /// Those of the last [`AUTO_SECONDS`], as long as they cost little: a tenth of the data, or [`AUTO_BYTES`] where that
    /// is more. The newest commit that emptied or replaced much stays [`WIPED_SECONDS`] whatever it costs, unless the
    /// device is nearly full.
    Auto,
}

/// How long [`Retention::Auto`] keeps commits.
pub const AUTO_SECONDS: u64 = 86_400;
/// What [`Retention::Auto`] may always cost, in bytes.
pub const AUTO_BYTES: u64 = 256 << 20;
/// Otherwise what it keeps costs at most this part of the data, by their largest size in that time.
pub const AUTO_SHARE: u64 = 10;
/// How long it keeps what was before the newest commit that emptied or replaced much.
pub const WIPED_SECONDS: u64 = 3_600;

/// What decides with the time which roots stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    /// The bytes that are kept for each root and those before it alone, in the order of the roots; of the last one,
    /// those that the checkpoint under way frees.
    pub(crate) root_bytes: Vec<u64>,
    /// The bytes of the newest root.
    pub(crate) data_bytes: u64,
    /// Where the log ends.
    pub(crate) log_end: u64,
    /// Number and time of the newest commit that emptied or replaced much.
    pub(crate) wiped: Option<(u64, u64)>,
    /// Whether less than a tenth of the device is free.
    pub(crate) is_device_full: bool,
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
            Self::Auto => f.write_str("auto"),
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

    /// `auto`, `none`, `all`, `100c` for commits, or a number with `s`, `m`, `h`, `d` or `w` for time.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected auto, none, all, a number of commits such as 100c, or a time such \
             as 7d (s, m, h, d, w)";
        match text {
            "none" => return Ok(Self::None),
            "all" => return Ok(Self::All),
            "auto" => return Ok(Self::Auto),
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
        costs: &Costs,
    ) -> Option<u64> {
        let is_before = |root: &RetainedRoot| match self {
            Self::None | Self::All => false,
            Self::Auto => root.log.time <= past(now, AUTO_SECONDS),
            Self::Commits(count) => root.commit <= commit.saturating_sub(count),
            Self::Seconds(seconds) => root.log.time <= past(now, seconds),
        };
        let unneeded = match self {
            Self::None => true,
            Self::All => false,
            Self::Commits(count) => count == 0,
            Self::Seconds(seconds) => time <= past(now, seconds),
            Self::Auto => time <= past(now, AUTO_SECONDS),
        };
        if unneeded {
            return None;
        }
        // The last one from which everything in the window can be made.
        let first = roots.iter().rposition(is_before).unwrap_or(0);
        let first = match self {
            Self::Auto => costs.first_affordable(roots, first, now)?,
            _ => first,
        };
        roots.get(first).map(|root| root.checkpoint)
    }

    /// The oldest commit that may be read, where `kept` could be made and `last` is the last one.
    pub(crate) fn oldest(self, kept: u64, last: u64) -> u64 {
        match self {
            Self::None => last,
            Self::Commits(count) => kept.max(last.saturating_sub(count)),
            Self::Seconds(_) | Self::All | Self::Auto => kept,
        }
    }
}

impl Costs {
    /// The first of `roots` from which on all can be kept, `first` at the earliest; `None` if not even the last one.
    fn first_affordable(&self, roots: &[RetainedRoot], first: usize, now: u64) -> Option<usize> {
        let (mut kept_bytes, mut found) = (0_u64, None);
        for (index, root) in roots.iter().enumerate().skip(first).rev() {
            kept_bytes += self.root_bytes.get(index).copied().unwrap_or(0);
            let log_bytes = self.log_end.saturating_sub(root.log.position.to_u64());
            // So much did the data take at most since that root.
            let largest = self.data_bytes + kept_bytes;
            if kept_bytes + log_bytes > AUTO_BYTES.max(largest / AUTO_SHARE) {
                break;
            }
            found = Some(index);
        }
        let wiped = self
            .wiped
            .filter(|(_, time)| *time > past(now, WIPED_SECONDS));
        let before = wiped
            .filter(|_| !self.is_device_full)
            .and_then(|(commit, _)| roots.iter().rposition(|root| root.commit < commit));
        match (found, before) {
            (Some(found), Some(before)) => Some(found.min(before)),
            (found, before) => found.or(before),
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
        for text in [
            "auto", "none", "all", "1c", "100c", "7d", "36h", "90m", "5s",
        ] {
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
        let kept = |retention: Retention| {
            retention.first_kept(&roots, (50, 5_000_000), 6_000_000, &Costs::default())
        };
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

    /// Roots of commits 10, 20, 30 and 40, an hour apart, at 4 o'clock; `costs` decides between them.
    fn first_commit(costs: &Costs, now_hours: u64) -> Option<u64> {
        const HOUR: u64 = 3_600_000_000;
        let root = |checkpoint: u64| RetainedRoot {
            commit: checkpoint * 10,
            checkpoint,
            log: LogMark {
                time: checkpoint * HOUR,
                ..LogMark::default()
            },
        };
        let roots: Vec<_> = (1..=4).map(root).collect();
        let first = Retention::Auto.first_kept(&roots, (50, 4 * HOUR), now_hours * HOUR, costs);
        first.map(|checkpoint| checkpoint * 10)
    }

    #[test]
    fn auto_keeps_a_day_while_it_costs_little() {
        const MB: u64 = 1 << 20;
        let costs = |root_bytes: [u64; 4], data_bytes: u64| Costs {
            root_bytes: root_bytes.map(|bytes| bytes * MB).to_vec(),
            data_bytes: data_bytes * MB,
            ..Costs::default()
        };
        let little = costs([1, 1, 1, 1], 1);
        assert_eq!(first_commit(&little, 5), Some(10));
        // A day later the root before the window is kept, then none.
        assert_eq!(first_commit(&little, 26), Some(20));
        assert_eq!(first_commit(&little, 28), None);
        // 256 MB, or a tenth of the data at their largest: of what is kept as well.
        assert_eq!(first_commit(&costs([100, 100, 100, 100], 0), 5), Some(30));
        assert_eq!(
            first_commit(&costs([100, 100, 100, 100], 3_599), 5),
            Some(20)
        );
        assert_eq!(
            first_commit(&costs([100, 100, 100, 100], 3_600), 5),
            Some(10)
        );
        assert_eq!(first_commit(&costs([0, 0, 0, 257], 2_000), 5), None);
        // The log counts, too.
        let mut long_log = little.clone();
        long_log.log_end = 257 * MB;
        assert_eq!(first_commit(&long_log, 5), None);
    }

    #[test]
    fn auto_keeps_what_was_wiped_for_an_hour() {
        const HOUR: u64 = 3_600_000_000;
        let mut costs = Costs {
            root_bytes: vec![0, 0, 0, 1 << 40],
            wiped: Some((45, 4 * HOUR + 1)),
            ..Costs::default()
        };
        assert_eq!(first_commit(&costs, 4), Some(40));
        assert_eq!(first_commit(&costs, 5), Some(40));
        assert_eq!(first_commit(&costs, 6), None);
        // What came since the one that is in the root of commit 30, too.
        costs.wiped = Some((25, 4 * HOUR + 1));
        assert_eq!(first_commit(&costs, 5), Some(20));
        costs.is_device_full = true;
        assert_eq!(first_commit(&costs, 5), None);
    }
}
