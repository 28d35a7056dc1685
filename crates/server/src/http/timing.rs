//! `Server-Timing`: how long the server took for a response.
//!
//! From the head of the request to the head of the response, which goes out with the first chunk of an answer: for
//! answers of less than that, and for all that writes, it is the whole time, commit included; for longer ones that to
//! their beginning. What a client measures has its own time and that of the network in it as well.
//!
//! # References
//! W3C Server Timing.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Says in the head of a response how long it took.
pub(super) fn mark(headers: &mut HeaderMap, spent: Duration) {
    let milliseconds = spent.as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::from_str(&format!("answer;dur={milliseconds:.3}")) {
        headers.insert(SERVER_TIMING, value);
    }
}
