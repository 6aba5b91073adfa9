//! Serves one page at an address of this machine that nobody can guess.
//!
//! The address starts with 127.0.0.1, so no other machine can reach it, and its path is random, so neither other users of
//! this machine nor pages of other sites can: requests for any other path get no information.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest request in bytes, including headers.
const LONGEST: u64 = 64 << 10;
/// The most connections at a time; further ones are closed at once.
const MOST: usize = 32;
/// How long a request may take, and how long a reader may be inactive. Browsers open connections that they may never use.
const PATIENCE: Duration = Duration::from_secs(2);
const READERS_PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    listener: TcpListener,
    port: u16,
    path: String,
    patience: Duration,
}

impl Server {
    /// Binds to a port, or to any free port for 0.
    /// Fails if the port is not available.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        // From the system's random numbers, which are used for nothing else.
        let [a, b] = [0, 1].map(|half: u8| RandomState::new().hash_one(half));
        Ok(Self { listener, port, path: format!("/{a:016x}{b:016x}/"), patience: PATIENCE })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }

    /// Sends the page to each valid request until the process ends.
    pub fn run(&self, page: &[u8]) {
        // Each connection has a reference to it, so they can be counted.
        let connections = Arc::new(());
        thread::scope(|scope| {
            for stream in self.listener.incoming().flatten() {
                if Arc::strong_count(&connections) > MOST {
                    continue;
                }
                let connection = Arc::clone(&connections);
                let answer = move || {
                    // If the client disconnects, there is nobody to report it to.
                    let _ = self.answer(&stream, page);
                    drop(connection);
                };
                // Without a thread, the connection is closed, like when there are too many.
                let _ = thread::Builder::new().spawn_scoped(scope, answer);
            }
        });
    }

    fn answer(&self, mut stream: &TcpStream, page: &[u8]) -> io::Result<()> {
        stream.set_write_timeout(Some(READERS_PATIENCE))?;
        let line = request_line(stream, self.patience)?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (status, kind, body) = match words.as_slice() {
            ["GET", path, _] if *path == self.path => ("200 OK", "text/html; charset=utf-8", page),
            ["GET", ..] => ("404 Not Found", "text/plain", &b"not found\n"[..]),
            _ => ("405 Method Not Allowed", "text/plain", &b"only GET\n"[..]),
        };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(body)?;
        stream.flush()
    }
}

/// The first line of a request. The headers are read, too, since closing a connection with unread data may discard the
/// answer.
fn request_line(stream: &TcpStream, patience: Duration) -> io::Result<String> {
    let until = Until { stream, end: Instant::now() + patience };
    let mut lines = BufReader::new(until.take(LONGEST)).lines();
    let first = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    Ok(first)
}

struct Until<'s> {
    stream: &'s TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        // The standard library rejects a timeout of zero.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_cannot_be_guessed() {
        let [a, b] = [0, 0].map(|port| Server::bind(port).unwrap());
        assert_ne!(a.path, b.path);
        assert!(a.path.len() == 34 && a.url().starts_with("http://127.0.0.1:"), "{}", a.url());
        assert!(Server::bind(a.port()).is_err(), "it has that port");
    }

    #[test]
    fn nobody_waits_for_a_slow_reader() {
        let server = Server { patience: Duration::from_secs(3600), ..Server::bind(0).unwrap() };
        let (port, path) = (server.port(), server.path.clone());
        thread::spawn(move || server.run(b"a page"));
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let mut slow = connect();
        slow.write_all(b"GET /").unwrap();
        let mut quick = connect();
        write!(quick, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        quick.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na page"), "{answer}");
    }

    #[test]
    fn requests_have_one_time_for_all_their_bytes() {
        let server = Server { patience: Duration::ZERO, ..Server::bind(0).unwrap() };
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        let (stream, _) = server.listener.accept().unwrap();
        (&client).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(request_line(&stream, server.patience).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(request_line(&stream, Duration::from_secs(60)).unwrap(), "GET / HTTP/1.1");
    }
}
