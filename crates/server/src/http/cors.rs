//! Cross-origin requests: which web pages of other origins may read answers.
//!
//! # References
//! The Fetch standard, "CORS protocol".

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};

/// How long a browser may keep what a preflight request told it, in seconds.
const MAX_AGE: &str = "86400";

/// The headers of responses that pages may read beside those that they always may.
const EXPOSED: &str = "Content-Type, Content-Location, Link, Location, Memento-Datetime, Retry-After, Stoa-Note, Stoa-Commit, \
     Stoa-Added, Stoa-Removed, Stoa-Oldest-Commit, Stoa-Retention";

/// The origins that `--cors` allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(Vec<String>);

impl Origins {
    /// Origins as `https://example.org`, or `*` for all.
    pub(crate) fn new(origins: Vec<String>) -> Self {
        Self(origins)
    }

    /// Whether a page of this origin may write. `*` is about reading: without a token any page could
    /// write then.
    pub(super) fn may_write(&self, origin: &str, with_token: bool) -> bool {
        self.0
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(origin) || (with_token && allowed == "*"))
    }

    /// What a response to this request says about its origin.
    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        let text = origin.to_str().ok()?;
        if self.0.iter().any(|allowed| allowed == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        self.0
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(text))
            .then(|| origin.clone())
    }

    /// Adds the headers that let a page of another origin read the response.
    pub(super) fn mark(&self, request: &Asked, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        // Answers differ by origin, so caches must know.
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = &request.origin else {
            return;
        };
        let Some(allowed) = self.allowed(origin) else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(EXPOSED),
        );
        if request.is_preflight {
            headers.insert(
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("GET, HEAD, PUT, POST, DELETE, OPTIONS"),
            );
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
            if let Some(wanted) = &request.headers {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
            }
        }
    }
}

/// What a request says about where it comes from.
pub(super) struct Asked {
    origin: Option<HeaderValue>,
    headers: Option<HeaderValue>,
    is_preflight: bool,
}

impl Asked {
    pub(super) fn by<B>(request: &hyper::Request<B>) -> Self {
        let header = |name| request.headers().get(name).cloned();
        Self {
            origin: header(ORIGIN),
            headers: header(ACCESS_CONTROL_REQUEST_HEADERS),
            is_preflight: request.method() == hyper::Method::OPTIONS,
        }
    }
}
