//! One page at an address of this machine that nobody can guess.
//!
//! The address begins with 127.0.0.1, so no other machine reaches it, and its path is random, so no other user of this one
//! and no page of another site does: whoever asks for anything else learns nothing.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// The longest request, with its headers.
const LONGEST: u64 = 64 << 10;
/// How long to wait for a request, and for a reader. Browsers open connections that they may never use.
const PATIENCE: Duration = Duration::from_secs(2);
const READERS_PATIENCE: Duration = Duration::from_secs(60);

/// Where one page is given out.
pub struct Server {
    listener: TcpListener,
    port: u16,
    path: String,
}

impl Server {
    /// Takes a port, or any that is free for 0.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        // Keyed by the system's random numbers, of which nothing else tells.
        let [a, b] = [0, 1].map(|half: u8| RandomState::new().hash_one(half));
        Ok(Self { listener, port, path: format!("/{a:016x}{b:016x}/") })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }

    /// Gives the page to whoever asks for it, one after the other, until the process ends.
    pub fn run(&self, page: &[u8]) {
        for stream in self.listener.incoming() {
            // Whoever goes away is nobody to tell.
            let _ = stream.and_then(|stream| self.answer(&stream, page));
        }
    }

    fn answer(&self, mut stream: &TcpStream, page: &[u8]) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(READERS_PATIENCE))?;
        let line = request_line(stream)?;
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

/// The first line of a request. The headers are read, too, since what is left unread when a connection is closed may cost
/// the answer.
fn request_line(stream: &TcpStream) -> io::Result<String> {
    let mut lines = BufReader::new(stream.take(LONGEST)).lines();
    let first = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    Ok(first)
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
}
