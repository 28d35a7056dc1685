//! Conditions of requests that write: none can be met, since neither graphs nor databases have entity tags or dates, and
//! a write that a client made to depend on one must not be done all the same.
//!
//! # References
//! RFC 9110, sections 13.1 and 14.5.

use hyper::StatusCode;
use hyper::header::{
    CONTENT_RANGE, HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};

use super::problem::Problem;

/// # Errors
/// 412 for a condition, 400 for a body that is a part of something.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    const CONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];
    if headers.contains_key(CONTENT_RANGE) {
        return Err(Problem::bad_request(
            "the body is a part of something, as Content-Range says: send all of it, or add triples with POST",
        ));
    }
    let Some(condition) = CONDITIONS.iter().find(|name| headers.contains_key(*name)) else {
        return Ok(());
    };
    Err(Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "condition",
        format!(
            "nothing was changed: graphs have no entity tags and no dates that {condition} could be compared with; \
             leave it out, or say what must be so in the WHERE of an update"
        ),
    ))
}
