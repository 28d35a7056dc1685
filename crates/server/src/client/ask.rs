//! What a command asks a server that is running: one request whose body is short, and an answer that is handed on
//! while it comes.
//!
//! An answer counts as whole only when its end is marked as such: a connection that breaks off in the middle is
//! an error. Everything happens on the thread that asks, so a reader of standard output that is slow
//! holds the server back.

use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use hyper::{Method, Request, Response};
use serde_json::Value;

use super::{ANSWER_BYTES_MAX, INTERRUPT_POLL, ServerUrl, begun, respond};

/// A request.
pub(crate) struct Ask {
    /// Below the address of the database, with the query.
    pub(crate) path: String,
    pub(crate) accept: Option<&'static str>,
    /// The body and its type; a request without one is a GET.
    pub(crate) body: Option<(&'static str, String)>,
}

/// Takes an answer as it comes.
pub(crate) trait Taker {
    /// The head of an answer that is one.
    fn head(&mut self, headers: &HeaderMap);

    /// The next piece of the body.
    ///
    /// # Errors
    /// If it cannot be taken, which ends the request.
    fn piece(&mut self, bytes: &[u8]) -> anyhow::Result<()>;
}

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refuses.
    Refused {
        /// The name of the problem, if it tells one.
        code: String,
        /// What it says, for the user.
        detail: String,
        /// What a query had done that ended before it was done, if that was asked for.
        plan: Option<String>,
    },
    /// It cannot be reached, or the connection broke off.
    Broken(String),
    /// What came could not be taken.
    NotTaken(anyhow::Error),
    Interrupted,
}

/// Asks a server. The taker may have a part of the answer when this fails.
///
/// # Errors
/// Why there is no whole answer.
pub(crate) fn ask(
    server: &ServerUrl,
    request: Ask,
    token: Option<&str>,
    interrupted: &AtomicBool,
    taker: &mut dyn Taker,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Broken(error.to_string()))?;
    let done = runtime.block_on(async {
        let interruption = async {
            while !interrupted.load(Ordering::Relaxed) {
                tokio::time::sleep(INTERRUPT_POLL).await;
            }
        };
        tokio::select! {
            biased;
            () = interruption => Err(Failure::Interrupted),
            done = exchange(server, request, token, interrupted, taker) => done,
        }
    });
    runtime.shutdown_background();
    done
}

async fn exchange(
    server: &ServerUrl,
    request: Ask,
    token: Option<&str>,
    interrupted: &AtomicBool,
    taker: &mut dyn Taker,
) -> Result<(), Failure> {
    let target = server.below(&request.path);
    let method = match request.body {
        None => Method::GET,
        Some(_) => Method::POST,
    };
    let mut head = begun(method, &target, token).map_err(Failure::Broken)?;
    if let Some(accept) = request.accept {
        head = head.header(ACCEPT, accept);
    }
    let body = match request.body {
        None => Bytes::new(),
        Some((content_type, body)) => {
            head = head.header(CONTENT_TYPE, content_type);
            Bytes::from(body)
        }
    };
    let message: Request<Full<Bytes>> = head
        .body(Full::new(body))
        .map_err(|error| Failure::Broken(error.to_string()))?;
    let response = respond(&target, message).await.map_err(Failure::Broken)?;
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let is_chunked = response.headers().contains_key(TRANSFER_ENCODING);
    if !is_chunked && response.body().size_hint().exact().is_none() {
        return Err(Failure::Broken(
            "the end of its answer could not be told from a broken connection".to_owned(),
        ));
    }
    taker.head(response.headers());
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::Broken(format!("its answer broke off and is not whole: {error}"))
        })?;
        if let Ok(bytes) = frame.into_data() {
            taker.piece(&bytes).map_err(Failure::NotTaken)?;
        }
        // An answer that comes without a pause is interrupted, too.
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
    }
    Ok(())
}

/// What a server says that does not answer.
async fn refusal(response: Response<Incoming>) -> Failure {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let problem: Option<Value> = match body.collect().await {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).ok(),
        Err(_) => None,
    };
    let text = |name: &str| problem.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let plan = problem.as_ref().and_then(|problem| problem.get("plan"));
    Failure::Refused {
        plan: plan.map(|plan| match plan {
            Value::String(text) => text.clone(),
            object => format!("{object}\n"),
        }),
        code: text("code").unwrap_or_default(),
        detail: text("detail").unwrap_or_else(|| format!("it answers {status}")),
    }
}

/// The query of an address with these parameters.
pub(crate) fn query_of(parameters: &[(&str, String)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                query.push(char::from(byte));
            } else {
                query.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    query
}

#[cfg(test)]
mod tests {
    use super::query_of;

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(query_of(&[]), "");
        let of = |name, value: &str| (name, value.to_owned());
        assert_eq!(
            query_of(&[
                of("at", "2026-11-21T16:00:00Z"),
                of("message", "a b&\u{e9}%")
            ]),
            "?at=2026-11-21T16%3A00%3A00Z&message=a%20b%26%C3%A9%25"
        );
    }
}
