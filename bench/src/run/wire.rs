//! A client that costs little: one connection that stays open, a request as one piece of bytes, and of an answer what
//! tells whether it is right: status, length, the count of what was added.
//!
//! For small requests, where a client of more parts would be heavier than the server. Blocking, without TLS; it repeats
//! nothing, since an update without an answer may have been done or not.
//!
//! # References
//! RFC 9112 (HTTP/1.1), sections 4 to 7.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::endpoint::{Failure, UpdateForm, Updates};

/// Sends updates to one address.
#[derive(Debug)]
pub(super) struct Wire {
    /// Host and port.
    address: String,
    /// The head of a request up to its length.
    head: Vec<u8>,
    form: UpdateForm,
    timeout: Option<Duration>,
    stream: Option<TcpStream>,
    /// The request that is sent.
    out: Vec<u8>,
    /// What was read; before `at` it is used up.
    read: Vec<u8>,
    at: usize,
}

/// An answer that came whole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Of the field `Stoa-Added`, which other engines do not have.
    pub(super) added: Option<u64>,
    pub(super) body: Vec<u8>,
}

/// How the body of an answer ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Length {
    Bytes(usize),
    Chunked,
    /// With the connection.
    Open,
}

/// What the head of an answer says.
#[derive(Debug)]
struct Head {
    status: u16,
    length: Length,
    /// Whether the server closes the connection.
    closes: bool,
    added: Option<u64>,
}

/// The longest head, and the longest line of a chunk.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The longest body: answers to updates are short.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a message of failure.
const MESSAGE_BYTES: usize = 400;
/// Bytes that are asked for at once.
const READ_BYTES: usize = 16 << 10;

fn error(message: impl Into<String>) -> Failure {
    Failure::Error(message.into())
}

impl Wire {
    /// # Errors
    /// When the address is not one of http.
    pub(super) fn new(updates: &Updates, timeout: Option<Duration>) -> Result<Self, Failure> {
        let url = &updates.url;
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| error(format!("{url} does not begin with http://")))?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let name = host.rsplit(']').next().unwrap_or(host);
        let address = if name.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let kind = match updates.form {
            UpdateForm::Body => "application/sparql-update",
            UpdateForm::Update | UpdateForm::Query => "application/x-www-form-urlencoded",
        };
        let head = format!(
            "POST {slash}{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: stoa-bench\r\nContent-Type: {kind}\r\nContent-Length: "
        );
        Ok(Self {
            address,
            head: head.into_bytes(),
            form: updates.form,
            timeout,
            stream: None,
            out: Vec::new(),
            read: Vec::new(),
            at: 0,
        })
    }

    /// Sends an update and reads the answer to its end.
    ///
    /// # Errors
    /// When it does not come whole in time, or its status is one of failure.
    pub(super) fn update(&mut self, text: &str) -> Result<Reply, Failure> {
        let reply = self.exchange(text);
        if reply.is_err() {
            // What comes later on this connection would be of this request.
            self.stream = None;
        }
        let reply = reply?;
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let message = reply.body.get(..MESSAGE_BYTES).unwrap_or(&reply.body);
        let message = String::from_utf8_lossy(message);
        Err(error(format!(
            "status {}: {}",
            reply.status,
            message.trim()
        )))
    }

    fn exchange(&mut self, text: &str) -> Result<Reply, Failure> {
        self.fill(text);
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        self.read.clear();
        self.at = 0;
        stream
            .write_all(&self.out)
            .map_err(|error| broken(&error))?;
        let head = self.head(&mut stream)?;
        let body = self.body(&mut stream, head.length)?;
        if !head.closes && head.length != Length::Open {
            self.stream = Some(stream);
        }
        Ok(Reply {
            status: head.status,
            added: head.added,
            body,
        })
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let open = || {
            let stream = TcpStream::connect(&self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(self.timeout)?;
            stream.set_write_timeout(self.timeout)?;
            Ok(stream)
        };
        open().map_err(|error| broken(&error))
    }

    /// Puts the request together.
    fn fill(&mut self, text: &str) {
        let encoded;
        let body = match self.form {
            UpdateForm::Body => text,
            UpdateForm::Update => {
                encoded = format!("update={}", form_encoded(text));
                &encoded
            }
            UpdateForm::Query => {
                encoded = format!("query={}", form_encoded(text));
                &encoded
            }
        };
        self.out.clear();
        self.out.extend_from_slice(&self.head);
        self.out
            .extend_from_slice(body.len().to_string().as_bytes());
        self.out.extend_from_slice(b"\r\n\r\n");
        self.out.extend_from_slice(body.as_bytes());
    }

    /// Reads more.
    fn more(&mut self, stream: &mut TcpStream) -> Result<(), Failure> {
        if self.more_or_end(stream)? {
            Ok(())
        } else {
            Err(error("the connection ended before the answer did"))
        }
    }

    /// Reads more; gives whether there was any.
    fn more_or_end(&mut self, stream: &mut TcpStream) -> Result<bool, Failure> {
        let before = self.read.len();
        self.read.resize(before + READ_BYTES, 0);
        let free = self.read.get_mut(before..).unwrap_or_default();
        let count = loop {
            match stream.read(free) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        let count = count.map_err(|error| broken(&error))?;
        self.read.truncate(before + count);
        Ok(count > 0)
    }

    /// What is read and not used up.
    fn rest(&self) -> &[u8] {
        self.read.get(self.at..).unwrap_or_default()
    }

    /// Reads up to and with `end`; gives what stands before it.
    fn until(&mut self, stream: &mut TcpStream, end: &[u8]) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(found) = memchr::memmem::find(self.rest(), end) {
                let piece = self.rest().get(..found).unwrap_or_default().to_vec();
                self.at += found + end.len();
                return Ok(piece);
            }
            if self.rest().len() > HEAD_BYTES_MAX {
                return Err(error("the head of the answer does not end"));
            }
            self.more(stream)?;
        }
    }

    fn exactly(&mut self, stream: &mut TcpStream, count: usize) -> Result<Vec<u8>, Failure> {
        if count > BODY_BYTES_MAX {
            return Err(error(format!("the answer has {count} bytes and more")));
        }
        while self.rest().len() < count {
            self.more(stream)?;
        }
        let bytes = self.rest().get(..count).unwrap_or_default().to_vec();
        self.at += count;
        Ok(bytes)
    }

    fn head(&mut self, stream: &mut TcpStream) -> Result<Head, Failure> {
        loop {
            let head = self.until(stream, b"\r\n\r\n")?;
            let head = parse_head(&String::from_utf8_lossy(&head))?;
            // Those below 200 go before the one that counts.
            if head.status >= 200 {
                return Ok(head);
            }
        }
    }

    fn body(&mut self, stream: &mut TcpStream, length: Length) -> Result<Vec<u8>, Failure> {
        match length {
            Length::Bytes(count) => self.exactly(stream, count),
            Length::Open => {
                while self.more_or_end(stream)? {
                    if self.rest().len() > BODY_BYTES_MAX {
                        return Err(error("the answer does not end"));
                    }
                }
                Ok(self.rest().to_vec())
            }
            Length::Chunked => {
                let mut body = Vec::new();
                loop {
                    let line = self.until(stream, b"\r\n")?;
                    let size = chunk_size(&line)?;
                    if size == 0 {
                        break;
                    }
                    if body.len() > BODY_BYTES_MAX {
                        return Err(error("the answer does not end"));
                    }
                    body.extend(self.exactly(stream, size)?);
                    self.until(stream, b"\r\n")?;
                }
                // Trailers, and an empty line.
                while !self.until(stream, b"\r\n")?.is_empty() {}
                Ok(body)
            }
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Failure> {
    let line = String::from_utf8_lossy(line);
    let digits = line.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16)
        .map_err(|_| error(format!("{digits} is no length of a chunk")))
}

fn parse_head(head: &str) -> Result<Head, Failure> {
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| {
        let (_, rest) = rest.split_once(' ')?;
        rest.get(..3)?.parse().ok()
    });
    let status: u16 = status.ok_or_else(|| error(format!("{first} is no status of HTTP/1.1")))?;
    let mut parsed = Head {
        status,
        length: Length::Open,
        closes: first.starts_with("HTTP/1.0"),
        added: None,
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") && parsed.length != Length::Chunked {
            let length = value.parse();
            let length = length.map_err(|_| error(format!("{value} is no Content-Length")))?;
            parsed.length = Length::Bytes(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            parsed.length = Length::Chunked;
        } else if name.eq_ignore_ascii_case("connection") {
            parsed.closes |= value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("stoa-added") {
            parsed.added = value.parse().ok();
        }
    }
    if status < 200 || status == 204 || status == 304 {
        parsed.length = Length::Bytes(0);
    }
    Ok(parsed)
}

fn broken(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::TimeOut,
        _ => Failure::Error(error.to_string()),
    }
}

/// A value as a form has it.
fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
