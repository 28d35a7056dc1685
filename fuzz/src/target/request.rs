//! Requests of the protocol's grammar, whole or broken off, for measuring what a server holds for what it was sent.
//!
//! Unlike [`super::http`], which changes bytes, this makes requests that mean something: each method at each address, with
//! parameters, media types, content codings and bodies that belong there, and some that do not. The driver then changes
//! them as any other input. The harness is in crates/server/src/cli/serve/held_tests.rs, where the server is.

use std::path::PathBuf;

use crate::driver::Target;
use crate::random::Random;

/// The target.
pub const TARGET: Target = Target {
    name: "request",
    words: super::http::TARGET.words,
    input_bytes_max: 256 << 10,
    memory_bytes_max: 128 << 20,
    cases: 200,
};

/// How many requests are made of the grammar.
const REQUESTS: usize = 300;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"];

const ADDRESSES: &[&str] = &[
    "/sparql",
    "/store",
    "/store/some/graph",
    "/load",
    "/log",
    "/diff",
    "/changes",
    "/checkpoint",
    "/compact",
    "/status",
    "/health",
    "/repositories/default",
    "/repositories/default/statements",
    "/repositories/default/transactions",
    "/repositories/default/namespaces/a",
];

const PARAMETERS: &[&str] = &[
    "default",
    "graph=http%3A%2F%2Fa%2Fg",
    "query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D",
    "query=ASK%7B%7D",
    "update=INSERT%20DATA%20%7B%7D",
    "format=csv",
    "timeout=2",
    "since=0",
    "from=0&to=1",
    "at=1",
    "explain=analyze",
    "base=http%3A%2F%2Fb%2F",
];

const MEDIA_TYPES: &[&str] = &[
    "application/sparql-query",
    "application/sparql-update",
    "application/x-www-form-urlencoded",
    "text/turtle",
    "application/n-triples",
    "application/n-quads",
    "application/trig",
    "application/rdf+xml",
    "application/ld+json",
    "multipart/form-data; boundary=x",
    "application/x-binary-rdf",
    "text/plain",
];

const ACCEPTS: &[&str] = &[
    "*/*",
    "text/csv",
    "application/sparql-results+json",
    "text/turtle",
    "application/ld+json",
];

const CODINGS: &[&str] = &["identity", "gzip", "zstd"];

/// What bodies begin with, are made of, and end with.
const BODIES: &[[&str; 3]] = &[
    ["SELECT * { ", "?s ?p ?o . ", "}"],
    ["SELECT * { VALUES ?x { ", "1 ", "} }"],
    ["SELECT * { ?s ?p ?o FILTER(?o IN (1", ", 'text'", ")) }"],
    ["ASK ", "{", "}"],
    ["# ", "a comment ", "\nASK {}"],
    ["INSERT DATA { ", "<http://a/s> <http://a/p> 'o' . ", "}"],
    ["", "CLEAR GRAPH <http://a/g> ; ", ""],
    ["query=ASK%7B%7D", "&x=%20", ""],
    ["update=", "+", "CLEAR+ALL"],
    ["", "<http://a/s> <http://a/p> <http://a/o> .\n", ""],
    ["@prefix : <http://a/> . :s :p ", "'o', ", "1 ."],
    ["<http://a/s> <http://a/p> \"", "long ", "\" ."],
    ["[", "{\"@id\": \"http://a/s\"}, ", "{}]"],
    [
        "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>",
        "<rdf:Description/>",
        "</rdf:RDF>",
    ],
    [
        "--x\r\nContent-Type: text/turtle\r\n\r\n",
        "<http://a/s> <http://a/p> 1 .\n",
        "\r\n--x--",
    ],
    ["", "\u{0}", ""],
];

/// Requests to begin with. `encode` gives bytes in a content coding, by its name.
pub fn seeds(encode: &dyn Fn(&str, &[u8]) -> Vec<u8>) -> Vec<(PathBuf, Vec<u8>)> {
    let mut random = Random::new(20_261_128);
    let mut requests = Vec::new();
    for number in 0..REQUESTS {
        let name = PathBuf::from(format!("request {number} of the grammar"));
        requests.push((name, request(&mut random, encode)));
    }
    requests
}

fn request(random: &mut Random, encode: &dyn Fn(&str, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let method = *random.pick(METHODS);
    let mut target = (*random.pick(ADDRESSES)).to_owned();
    for number in 0..random.below(3) {
        target.push(if number == 0 { '?' } else { '&' });
        target += *random.pick(PARAMETERS);
    }
    let version = if random.chance(85) { "1.1" } else { "1.0" };
    let mut head = format!("{method} {target} HTTP/{version}\r\nHost: localhost\r\n");
    for (name, values) in [
        ("Accept", ACCEPTS),
        ("Accept-Encoding", CODINGS),
        ("Connection", &["close", "keep-alive"]),
    ] {
        if random.chance(40) {
            head.push_str(&format!("{name}: {}\r\n", random.pick(values)));
        }
    }
    if !matches!(method, "POST" | "PUT") {
        head.push_str("\r\n");
        return head.into_bytes();
    }
    let mut body = body(random);
    head.push_str(&format!("Content-Type: {}\r\n", random.pick(MEDIA_TYPES)));
    if random.chance(30) {
        let coding = *random.pick(CODINGS);
        head.push_str(&format!("Content-Encoding: {coding}\r\n"));
        body = encode(coding, &body);
    }
    let mut bytes = head.into_bytes();
    if random.chance(80) {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.append(&mut body);
    } else {
        bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        for chunk in body.chunks(10_000) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    if random.chance(20) {
        // The client stops in the middle.
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// A body that is short, as a rule, and now and then several megabytes long before it is encoded.
fn body(random: &mut Random) -> Vec<u8> {
    let [begin, middle, end] = random.pick(BODIES);
    let bytes_max = *random.pick(&[100, 10_000, 10_000, 1 << 20]);
    let times = random.below(bytes_max / middle.len()) + 1;
    [begin, &*middle.repeat(times), end].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_and_address_is_asked() {
        let seeds = seeds(&|_, body| body.to_vec());
        let has = |part: &str| {
            let mut all = seeds.iter();
            all.any(|(_, bytes)| {
                bytes
                    .windows(part.len())
                    .any(|window| window == part.as_bytes())
            })
        };
        for method in METHODS {
            assert!(has(&format!("{method} /")), "{method}");
        }
        for address in ADDRESSES {
            assert!(has(&format!(" {address}")), "{address}");
        }
    }
}
