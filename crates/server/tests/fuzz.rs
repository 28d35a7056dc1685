//! Changed requests, sent as bytes to a server: it goes on to answer, has no fault of its own, and
//! takes no more memory than it may.
//!
//! Inputs and their making are those of the package `stoa-fuzz` (fuzz/src/driver.rs).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use stoa_fuzz::driver;
use stoa_fuzz::target::http::TARGET;
use stoa_fuzz::target::query::DATA;
use tempfile::TempDir;

use crate::support::{Running, command, output};

/// What the process may take in all: its budget, 64 MB, with stacks, buffers of sockets, its own code.
const RESIDENT_KB_MAX: u64 = 160 << 10;

/// How long a client waits for the rest of an answer before it counts as never coming.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    process: Running,
    address: String,
    log: PathBuf,
    log_bytes: u64,
    _folder: TempDir,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a log of the test's own")]
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("data.trig"), DATA).unwrap();
        output(folder.path(), &["load", "--db", "db", "data.trig"]);
        let log = folder.path().join("log");
        let options = ["--memory", "96MB", "--timeout", "2", "--cors", "*"];
        let child = command(folder.path())
            .args(["serve", "--db", "db", "--bind", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::from(File::create(&log).unwrap()))
            .spawn()
            .unwrap();
        let process = Running(child);
        // It says where it listens as soon as it does.
        let address = loop {
            let mut line = String::new();
            let file = File::open(&log).unwrap();
            BufReader::new(file).read_line(&mut line).unwrap();
            if let Some(address) = line.strip_prefix("listening on http://")
                && line.ends_with('\n')
            {
                break address.trim().to_owned();
            }
            std::thread::yield_now();
        };
        let log_bytes = fs::metadata(&log).unwrap().len();
        Self {
            process,
            address,
            log,
            log_bytes,
            _folder: folder,
        }
    }

    /// Sends bytes and takes what comes.
    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        // The server may close the connection before it has read all.
        drop(stream.write_all(bytes));
        // Whether the request is complete only the server knows. If nothing comes for a moment, or when
        // something has come, the client has no more to say.
        let moment = Duration::from_millis(5);
        stream.set_read_timeout(Some(moment)).unwrap();
        if let Ok(length) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..length]);
        }
        drop(stream.shutdown(Shutdown::Write));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return answer,
                Ok(length) => answer.extend_from_slice(&buffer[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    panic!("the server neither answers nor closes the connection")
                }
                Err(_) => return answer,
            }
        }
    }

    /// What came of an input, or what is wrong about it.
    fn judge(&self, input: &[u8]) -> Result<String, String> {
        let answer = String::from_utf8_lossy(&self.send(input)).into_owned();
        if fs::metadata(&self.log).unwrap().len() != self.log_bytes {
            return Err(fs::read_to_string(&self.log).unwrap());
        }
        let health =
            self.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        if !health.ends_with(b"ok\n") {
            return Err("it does not answer any more".to_owned());
        }
        let status = answer.get(9..12).unwrap_or("").to_owned();
        if status == "500" {
            return Err(answer);
        }
        let kind = answer
            .split("\r\n")
            .find(|line| line.starts_with("content-type"));
        Ok(format!("{status} {}", kind.unwrap_or("")))
    }

    /// The most memory that the process ever had, in KB, where the system tells.
    fn resident_kb_max(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

#[test]
fn http() {
    let server = Server::start();
    driver::run(&TARGET, driver::corpus(TARGET.name), &mut |input| {
        server.judge(input)
    });
    if let Some(resident) = server.resident_kb_max() {
        println!("the server took {resident} KB");
        assert!(resident < RESIDENT_KB_MAX, "{resident} KB");
    }
}
