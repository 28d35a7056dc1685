//! Answers in pieces, answers that break off, and what a request looks like.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::run::tests::{decoded, fake, serve, status};

fn updates(url: &str, form: UpdateForm) -> Updates {
    Updates {
        url: url.to_owned(),
        form,
    }
}

/// What `answers`, sent one for each request on one connection and byte by byte, is taken for.
fn replies(answers: &'static [&'static str]) -> Vec<Result<Reply, Failure>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/sparql", listener.local_addr().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"END") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    request.push(byte[0]);
                }
                for byte in answer.bytes() {
                    stream.write_all(&[byte]).unwrap();
                }
            }
        });
        let mut wire = Wire::new(&updates(&url, UpdateForm::Body), None).unwrap();
        answers.iter().map(|_| wire.update("END")).collect()
    })
}

fn ok(status: u16, added: Option<u64>, body: &str) -> Result<Reply, Failure> {
    Ok(Reply {
        status,
        added,
        body: body.into(),
    })
}

#[test]
fn answers_on_one_connection_are_told_apart() {
    let found = replies(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nstoa-added: 17\r\n\r\nabc",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nde\r\nb\r\nfghijklmnop\r\n0\r\nTrailer: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nto the end",
    ]);
    let expected = [
        ok(200, Some(17), "abc"),
        ok(204, None, ""),
        ok(200, None, "defghijklmnop"),
        ok(200, None, "to the end"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_no_whole_answer_is_an_error() {
    for (answer, said) in [
        (
            "HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops",
            "status 500: oops",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "ended before",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "ended before",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nlong\r\n",
            "no length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            "no Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "99999999999 bytes",
        ),
        ("SSH-2.0\r\n\r\n", "no status"),
        ("", "ended before"),
    ] {
        let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
        match replies(answers).remove(0) {
            Err(Failure::Error(message)) => assert!(message.contains(said), "{message}"),
            other => panic!("{answer}: {other:?}"),
        }
    }
}

#[test]
fn a_connection_that_the_server_closes_is_opened_again() {
    let count = AtomicU64::new(0);
    let url = serve(move |request| {
        assert_eq!(request.body, "INSERT DATA { }");
        let number = count.fetch_add(1, Ordering::Relaxed);
        status("200 OK", &format!("Stoa-Added: {number}\r\n"))
    });
    let mut wire = Wire::new(&updates(&url, UpdateForm::Body), None).unwrap();
    for number in 0..3 {
        let reply = wire.update("INSERT DATA { }").unwrap();
        assert_eq!(reply.added, Some(number));
    }
}

#[test]
fn requests_go_where_and_how_it_is_said() {
    let text = "INSERT DATA { <a:b> <c:d> \"\u{e9}&=%+\" }";
    for (url, form, first, field) in [
        (
            "http://h:81/sparql?x=1",
            UpdateForm::Body,
            "POST /sparql?x=1 HTTP/1.1\r\nHost: h:81\r\n",
            "",
        ),
        (
            "http://[::1]?x",
            UpdateForm::Update,
            "POST /?x HTTP/1.1\r\nHost: [::1]\r\n",
            "update=",
        ),
        (
            "http://h",
            UpdateForm::Query,
            "POST / HTTP/1.1\r\nHost: h\r\n",
            "query=",
        ),
    ] {
        let mut wire = Wire::new(&updates(url, form), None).unwrap();
        wire.fill(text);
        let request = String::from_utf8(wire.out.clone()).unwrap();
        assert!(request.starts_with(first), "{request}");
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(
            head.ends_with(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        let sent = body.strip_prefix(field).unwrap();
        match form {
            UpdateForm::Body => assert_eq!(sent, text),
            _ => assert_eq!(decoded(sent), text),
        }
    }
    let addresses = [
        "http://[::1]/",
        "http://[::1]:9/",
        "http://h/",
        "http://h:9/",
    ];
    let addresses = addresses.map(|url| {
        Wire::new(&updates(url, UpdateForm::Body), None)
            .unwrap()
            .address
    });
    assert_eq!(addresses, ["[::1]:80", "[::1]:9", "h:80", "h:9"]);
    assert!(Wire::new(&updates("https://h/", UpdateForm::Body), None).is_err());
}

#[test]
fn an_answer_that_does_not_come_is_late() {
    let url = fake(String::new());
    let patience = Some(Duration::from_millis(20));
    let mut wire = Wire::new(&updates(&url, UpdateForm::Body), patience).unwrap();
    assert_eq!(wire.update("ASK"), Err(Failure::TimeOut));
}
