//! Bodies of responses and of requests.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use super::answering::AnswerBody;
use super::changes::FeedBody;
use super::encoding::Coding;
use super::problem::Problem;

/// The longest body of a request, in bytes after decoding; a query that long is far beyond what
/// people write.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A response's body: all at once, or an answer as it comes.
pub(super) enum ResponseBody {
    Whole(Full<Bytes>),
    Answer(AnswerBody),
    Feed(FeedBody),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never: Infallible| match never {}),
            Self::Answer(body) => Pin::new(body).poll_frame(context),
            Self::Feed(body) => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Answer(_) | Self::Feed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Answer(_) | Self::Feed(_) => SizeHint::default(),
        }
    }
}

/// A response that is there as a whole.
pub(super) fn whole(content_type: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(body.into())));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The coding of a request's body.
///
/// # Errors
/// 415 if it is unknown.
pub(super) fn coding_of(headers: &HeaderMap) -> Result<Coding, Problem> {
    let Some(name) = headers.get(CONTENT_ENCODING) else {
        return Ok(Coding::Identity);
    };
    let coding = name.to_str().ok().and_then(Coding::from_name);
    coding.ok_or_else(|| {
        let mut problem = Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-coding",
            "a request may be encoded with gzip or zstd",
        );
        problem.accept_encoding = true;
        problem
    })
}

/// The text of a request's body, decoded.
///
/// # Errors
/// As [`read_bytes`], and 400 if it is not UTF-8.
pub(super) async fn read_text(
    headers: &HeaderMap,
    body: Incoming,
    patience: Duration,
) -> Result<String, Problem> {
    let bytes = read_bytes(headers, body, patience).await?;
    String::from_utf8(bytes).map_err(|_| Problem::bad_request("the request is not UTF-8"))
}

/// The whole of a request's body, decoded.
///
/// # Errors
/// 413 if it is longer than a request may be, 408 if it has not arrived after `patience`, 415 for an
/// unknown coding, 400 if it is damaged.
pub(super) async fn read_bytes(
    headers: &HeaderMap,
    body: Incoming,
    patience: Duration,
) -> Result<Vec<u8>, Problem> {
    let coding = coding_of(headers)?;
    let announced: Option<u64> = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length| usize::try_from(length).is_ok_and(|n| n > BODY_BYTES_MAX)) {
        return Err(too_large());
    }
    let reading = Limited::new(body, BODY_BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(patience, reading).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(Problem::bad_request("the request broke off")),
        Err(_) => {
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "slow-request",
                "the request did not arrive in time; see --client-timeout",
            ));
        }
    };
    if coding == Coding::Identity {
        return Ok(Vec::from(bytes));
    }
    // Decoding may take long: other connections of this thread go on meanwhile.
    tokio::task::spawn_blocking(move || decode(coding, &bytes))
        .await
        .map_err(|_| Problem::bad_request("the request could not be decoded"))?
}

fn too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too-large",
        format!("a request has at most {BODY_BYTES_MAX} bytes"),
    )
}

fn decode(coding: Coding, bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    let damaged = |_| Problem::bad_request("the request is not what its Content-Encoding says");
    let mut text = Vec::new();
    // One byte more than is allowed tells that there is more.
    let limit = BODY_BYTES_MAX as u64 + 1;
    coding
        .reader(bytes)
        .map_err(damaged)?
        .take(limit)
        .read_to_end(&mut text)
        .map_err(damaged)?;
    if text.len() > BODY_BYTES_MAX {
        return Err(too_large());
    }
    Ok(text)
}
