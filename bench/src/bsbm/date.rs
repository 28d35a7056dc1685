//! Days of the proleptic Gregorian calendar.
//!
//! # References
//! Hinnant, "chrono-compatible low-level date algorithms", 2013.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// "Today" of the benchmark: 2008-06-20, in days since 1970-01-01.
pub(crate) const TODAY: i64 = days(2008, 6, 20);

/// Days from 1970-01-01 to a date.
pub(crate) const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Appends `YYYY-MM-DD`.
pub(crate) fn write(days: i64, out: &mut Vec<u8>) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted - era * 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    out.extend_from_slice(format!("{year:04}-{month:02}-{day:02}").as_bytes());
}
