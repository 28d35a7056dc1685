//! The pages for people, and the headers that keep browsers from taking answers for what they are not.
//!
//! Each response has `X-Content-Type-Options`, and a content security policy under which nothing is loaded or run and
//! nobody may frame it; data of the database that a browser shows can then do nothing. The query page alone may run
//! its own script and style, which its policy knows by their hashes, and ask this server.
//!
//! # Invariants
//! 1. The hashes are those of the page (test `the_policy_of_the_page_has_the_hashes_of_its_script_and_style` of
//!    crates/server/tests, which says what they should be).
//!
//! # References
//! The Fetch standard, "X-Content-Type-Options"; Content Security Policy Level 3; Referrer Policy.

use hyper::Response;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use super::Service;
use super::body::{ResponseBody, whole};

const PAGE: &str = include_str!("page.html");

/// The policy of the query page.
const PAGE_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-snR/wS3QY1rR6nnFQhnegj45BmDO0+3viHrQV/RnNXE='; \
    style-src 'sha256-fgMEfKfzeiJDu1JZDbULfXj7ogL2tv2NBVqcfO6jOmg='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The policy of all else.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The query page of a database.
pub(super) fn page() -> Response<ResponseBody> {
    html(PAGE, PAGE_POLICY)
}

/// The page that leads to the databases of the server; their names need no escaping.
pub(super) fn list(service: &Service) -> Response<ResponseBody> {
    let items: String = service
        .databases
        .named
        .iter()
        .map(|(name, database)| {
            format!(
                "<li><a href=\"{name}/\">{name}</a>, {} quads</li>\n",
                database.quads()
            )
        })
        .collect();
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Stoa</title></head>\n\
         <body><h1>Databases</h1>\n<ul>\n{items}</ul></body></html>\n"
    );
    html(text, POLICY)
}

fn html(text: impl Into<hyper::body::Bytes>, policy: &'static str) -> Response<ResponseBody> {
    let mut response = whole("text/html; charset=utf-8", text);
    let headers = response.headers_mut();
    let mut insert = |name: HeaderName, value| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    insert(CONTENT_SECURITY_POLICY, policy);
    insert(X_FRAME_OPTIONS, "DENY");
    insert(REFERRER_POLICY, "no-referrer");
    response
}

/// Adds what every response says to browsers.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(CONTENT_SECURITY_POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    }
}
