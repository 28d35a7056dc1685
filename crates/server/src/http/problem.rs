//! Errors as `application/problem+json`, one `match` from error to status.
//!
//! # References
//! RFC 9457.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// What goes to the client instead of an answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A short name for programs, such as `syntax`.
    pub(crate) code: &'static str,
    /// The sentence for people: what is wrong and what to do.
    pub(crate) detail: String,
    /// What the document has beside the usual: `line`, `column` and `near` of a syntax error,
    /// `suggestion`, `notes`.
    pub(crate) members: Vec<(&'static str, Value)>,
    /// The methods of a 405.
    pub(crate) allow: Option<&'static str>,
    /// Whether the response names the codings that requests may have.
    pub(crate) accept_encoding: bool,
    /// Whether the response asks for the token.
    pub(crate) authenticate: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            members: Vec::new(),
            allow: None,
            accept_encoding: false,
            authenticate: false,
        }
    }

    /// The same, with one more member of the document.
    pub(crate) fn with(mut self, name: &'static str, value: Value) -> Self {
        self.members.push((name, value));
        self
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let mut problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            format!("this address answers {allow}"),
        );
        problem.allow = Some(allow);
        problem
    }

    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        let mut body = json!({
            "type": format!("urn:stoa:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("error"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(fields) = body.as_object_mut() {
            let members = self.members.iter();
            fields.extend(members.map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
        self.head("application/problem+json", format!("{body}\n"))
    }

    /// The problem as a text, as the client of RDF4J reads it: what stands before the colon decides
    /// which exception it throws.
    pub(crate) fn rdf4j_response(self) -> Response<Full<Bytes>> {
        let kind = match self.code {
            "syntax" => "MALFORMED QUERY: ",
            "data" | "input" | "names-graphs" => "MALFORMED DATA: ",
            "unsupported-media-type" => "UNSUPPORTED FILE FORMAT: ",
            "query-language" => "UNSUPPORTED QUERY LANGUAGE: ",
            _ => "",
        };
        let text = format!("{kind}{}", self.detail);
        self.head("text/plain; charset=utf-8", text)
    }

    /// A response with this body and what belongs to the problem in its head.
    fn head(self, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.accept_encoding {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd"));
        }
        if self.authenticate {
            let wanted = HeaderValue::from_static("Bearer realm=\"stoa\"");
            headers.insert(WWW_AUTHENTICATE, wanted);
        }
        // The same would happen to it again, or somebody wanted it to end.
        let is_final = matches!(self.code, "timeout" | "cancelled");
        let is_busy = matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        if is_busy && !is_final {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
