//! A client of HTTP/1.1 for tests: one request a connection, the answer taken apart.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a tool of tests: whatever is malformed fails them"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Without the chunks' lengths, encoded as it came.
    pub(crate) body: Vec<u8>,
    /// Whether the end of the body was marked as such.
    pub(crate) is_whole: bool,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request and reads its answer to the end.
pub(crate) fn request(
    address: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut head =
        format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parse(&bytes, method == "HEAD")
}

/// Takes the bytes of an answer apart.
pub(crate) fn parse(bytes: &[u8], is_head: bool) -> Response {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap()[9..12].parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        })
        .collect();
    let rest = &bytes[end + 4..];
    let mut response = Response {
        status,
        headers,
        body: rest.to_vec(),
        is_whole: true,
    };
    if is_head {
        return response;
    }
    if response.header("transfer-encoding") == Some("chunked") {
        (response.body, response.is_whole) = dechunk(rest);
    } else if let Some(length) = response.header("content-length") {
        response.is_whole = response.body.len() == length.parse::<usize>().unwrap();
    }
    response
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let length = String::from_utf8(rest[..end].to_vec()).unwrap();
        let length = usize::from_str_radix(&length, 16).unwrap();
        rest = &rest[end + 2..];
        if length == 0 {
            return (body, true);
        }
        if rest.len() < length + 2 {
            body.extend_from_slice(rest);
            return (body, false);
        }
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}
