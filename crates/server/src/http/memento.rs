//! Earlier states over HTTP: `?at=` and Memento.
//!
//! What can be read at an address can be read as it was: `?at=COMMIT|TIME` is the address of an earlier state,
//! `Accept-Datetime` at the address itself asks for the state that was current at the end of that second. In
//! the words of Memento the address is the original resource and its own time gate, and answers at once
//! (pattern 1.2). The answer says when the commit was made (`Memento-Datetime`), what its number is
//! (`Stoa-Commit`), and where what is current stands (`Link`); for a GET that was negotiated, also where the same state
//! stays (`Content-Location`). A time that is still to come means what is current; one from before what is kept
//! is the error that `?at=` gives.
//!
//! # References
//! RFC 7089, sections 2 and 4.1.2; RFC 9110, section 5.6.7 (dates).

use std::time::{Duration, UNIX_EPOCH};

use hyper::Method;
use hyper::header::{CONTENT_LOCATION, HeaderMap, HeaderName, HeaderValue, LINK, VARY};
use stoa_database::{CancelHandle, Database, Error, Moment, State};

use super::parameters::pairs;
use super::problem::Problem;
use super::route::{Client, joined};
use super::writing::STOA_COMMIT;

const ACCEPT_DATETIME: HeaderName = HeaderName::from_static("accept-datetime");
const MEMENTO_DATETIME: HeaderName = HeaderName::from_static("memento-datetime");

/// The longest address that is told in the head of a response, in bytes: clients and proxies limit heads.
const ADDRESS_BYTES_MAX: usize = 2_048;

/// The end of the year 9999, in seconds since 1970: what comes after it has no date in a head.
const DATE_SECONDS_END: u64 = 253_402_300_800;

const MICROSECONDS: u64 = 1_000_000;

/// Which state a request asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Asked {
    /// As a parameter says.
    at: Option<Moment>,
    /// The last microsecond of what `Accept-Datetime` says, since 1970.
    until_us: Option<u64>,
    /// The address without `at`; none if it is too long to be told.
    original: Option<String>,
    /// Whether the address tells all that is asked.
    is_get: bool,
}

impl Asked {
    /// What the head of a request says; a parameter is still to be added with [`Asked::at`].
    ///
    /// # Errors
    /// 400 if `Accept-Datetime` is no date.
    pub(super) fn of<B>(request: &hyper::Request<B>, client: &Client) -> Result<Self, Problem> {
        let date = joined(request.headers(), &ACCEPT_DATETIME)?;
        let until_us = date.map(|date| end_of_second(&date)).transpose()?;
        let query = request.uri().query().unwrap_or("");
        Ok(Self {
            at: None,
            until_us,
            original: original(&client.endpoint, query),
            is_get: matches!(*request.method(), Method::GET | Method::HEAD),
        })
    }

    /// The same with the moment that a parameter names, which goes before a header.
    pub(super) fn at(mut self, at: Option<Moment>) -> Self {
        self.at = at;
        self
    }

    /// The state that is asked, and what the head of the response says of it. May read from disk, for no longer
    /// than `timeout`.
    ///
    /// # Errors
    /// 404 for a commit that is not there yet, 410 for what is not kept any more, 503 if it took too long.
    pub(super) fn open(
        &self,
        database: &Database,
        timeout: Option<Duration>,
        cancel: &CancelHandle,
    ) -> Result<(State, HeaderMap), Problem> {
        let open = |at: Option<&Moment>| database.state(at, timeout, cancel);
        let mut headers = HeaderMap::new();
        let state = match (self.at, self.until_us) {
            (None, None) => {
                headers.insert(VARY, HeaderValue::from_static("Accept-Datetime"));
                return Ok((open(None)?, headers));
            }
            (Some(at), _) => open(Some(&at))?,
            (None, Some(until_us)) => {
                headers.insert(VARY, HeaderValue::from_static("Accept-Datetime"));
                match open(Some(&Moment::Time(until_us))) {
                    // The time is still to come.
                    Err(Error::NoSuchCommit {
                        is_expired: false, ..
                    }) => open(None)?,
                    state => state?,
                }
            }
        };
        // The answer does not depend on it, and it may have left the window since.
        let time_us = database.time_of(state.commit()).unwrap_or(0);
        self.tell(&state, time_us, &mut headers);
        Ok((state, headers))
    }

    /// Whether another state than the current one may be asked.
    pub(super) fn is_earlier(&self) -> bool {
        self.at.is_some() || self.until_us.is_some()
    }

    /// Adds what is to be known of an earlier state.
    fn tell(&self, state: &State, time_us: u64, headers: &mut HeaderMap) {
        headers.insert(STOA_COMMIT, HeaderValue::from(state.commit()));
        if let Some(date) = date(time_us).filter(|_| time_us > 0) {
            headers.insert(MEMENTO_DATETIME, date);
        }
        let Some(original) = &self.original else {
            return;
        };
        let link = format!("<{original}>; rel=\"original timegate\"");
        headers.extend(HeaderValue::from_str(&link).map(|link| (LINK, link)));
        if self.at.is_none() && self.is_get {
            let separator = if original.contains('?') { '&' } else { '?' };
            let own = format!("{original}{separator}at={}", state.commit());
            let own = HeaderValue::from_str(&own);
            headers.extend(own.map(|own| (CONTENT_LOCATION, own)));
        }
    }
}

/// Refuses the parameter `at` in the address of a request that is about the present.
///
/// # Errors
/// 400 if it is there.
pub(super) fn refuse_at(query: &str) -> Result<(), Problem> {
    for (name, _) in pairs(query)? {
        if name == "at" {
            return Err(not_at());
        }
    }
    Ok(())
}

/// The parameter `at` where it does not belong.
pub(super) fn not_at() -> Problem {
    Problem::bad_request(
        "the parameter at asks an earlier state, which can be read and not changed: it goes with queries and \
         with GET, and not with a request that writes or is part of a transaction",
    )
}

/// The address without the parameter `at`, fit to stand in a head between angle brackets.
fn original(endpoint: &str, query: &str) -> Option<String> {
    if endpoint.len() + query.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    let mut original = endpoint.to_owned();
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some("at");
    for (number, pair) in query.split('&').filter(is_other).enumerate() {
        original.push(if number == 0 { '?' } else { '&' });
        original.push_str(pair);
    }
    let fit = original.replace('<', "%3C").replace('>', "%3E");
    Some(fit.replace('"', "%22").replace(' ', "%20"))
}

/// The last microsecond since 1970 of the second that a date names.
fn end_of_second(date: &str) -> Result<u64, Problem> {
    let wrong = || {
        Problem::bad_request(format!(
            "the header Accept-Datetime is '{date}' and no date since 1970 such as \
             Sat, 21 Nov 2026 16:00:00 GMT"
        ))
    };
    let time = httpdate::parse_http_date(date.trim()).map_err(|_| wrong())?;
    let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
    let begin = seconds.as_secs().checked_mul(MICROSECONDS);
    begin
        .and_then(|begin| begin.checked_add(MICROSECONDS - 1))
        .ok_or_else(wrong)
}

/// A time in microseconds since 1970 as a head has it.
fn date(time_us: u64) -> Option<HeaderValue> {
    let seconds = time_us / MICROSECONDS;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    (seconds < DATE_SECONDS_END)
        .then(|| HeaderValue::from_str(&httpdate::fmt_http_date(time)).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sat, 21 Nov 2026 16:00:00 GMT", 1_795_276_800),
            ("Fri, 31 Dec 9999 23:59:59 GMT", DATE_SECONDS_END - 1),
        ] {
            let end = (seconds + 1) * MICROSECONDS - 1;
            assert_eq!(end_of_second(text).unwrap(), end, "{text}");
            assert_eq!(date(end).unwrap(), text);
        }
        assert_eq!(date(DATE_SECONDS_END * MICROSECONDS), None);
        assert_eq!(date(u64::MAX), None);
        for wrong in [
            "",
            "now",
            "2026-11-21T16:00:00Z",
            "Sat, 31 Feb 2026 16:00:00 GMT",
            "Sat, 21 Nov 2026 16:00:00 CET",
            "Wed, 31 Dec 1969 23:59:59 GMT",
        ] {
            assert!(end_of_second(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_original_is_the_address_without_a_moment() {
        let endpoint = "http://a/store";
        for (query, expected) in [
            ("", "http://a/store"),
            ("at=17", "http://a/store"),
            ("at=17&default", "http://a/store?default"),
            (
                "graph=http://b/%3E&at=1&format=nq",
                "http://a/store?graph=http://b/%3E&format=nq",
            ),
            ("graph=<b>", "http://a/store?graph=%3Cb%3E"),
        ] {
            assert_eq!(original(endpoint, query).unwrap(), expected, "{query}");
        }
        assert_eq!(original(endpoint, &"x".repeat(ADDRESS_BYTES_MAX)), None);
    }

    #[test]
    fn writing_requests_have_no_moment() {
        assert!(refuse_at("graph=http://a/&data=1").is_ok());
        assert!(refuse_at("graph=http://a/&at=1").is_err());
        assert!(refuse_at("%61t=1").is_err());
    }
}
