// SPDX-License-Identifier: Apache-2.0
//! A connection that waits for its answers, for [`super::dump`] and [`super::restore`]. It looks at
//! the caller's flag several times a second.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use senko_io::{connect_tcp, connect_unix};

use super::{Peer, TransferError};
use crate::settings::{Target, Wire};
use crate::tls::{Link, TlsClient};

/// The longest line: a list of keys in URI form.
const MOST_LINE: usize = 8192;
/// Bytes that a read takes, and that are gathered before a write.
const PART: usize = 64 << 10;
/// How often the flag is looked at while the server is silent.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Client<'a> {
    socket: TcpStream,
    link: Option<Box<Link>>,
    /// Received bytes; those before `at` were taken.
    input: Vec<u8>,
    at: usize,
    output: Vec<u8>,
    part: Box<[u8]>,
    name: String,
    timeout: Duration,
    stop: &'a AtomicBool,
}

impl<'a> Client<'a> {
    pub fn connect(peer: &Peer, stop: &'a AtomicBool) -> Result<Client<'a>, TransferError> {
        let stream = match &peer.target {
            Target::Tcp(address) => connect_tcp(*address),
            Target::Unix(path) => connect_unix(path),
        };
        let stream = stream.map_err(|error| TransferError::Server(error.to_string()))?;
        let failed =
            |why| TransferError::Server(format!("cannot connect to {}: {why}", peer.target));
        // A Unix socket has the same calls.
        let mut socket = TcpStream::from(stream);
        let mut link = None;
        match (&peer.tls, &peer.target) {
            (None, _) => {}
            (Some(_), Target::Unix(_)) => {
                return Err(failed("a Unix socket has no TLS".to_owned()));
            }
            (Some(tls), Target::Tcp(address)) => {
                let tls = TlsClient::new(tls, address.ip()).map_err(TransferError::Server)?;
                link = Some(Box::new(
                    tls.connect(&mut socket, peer.timeout).map_err(failed)?,
                ));
            }
        }
        if let Some(login) = &peer.login {
            let done = login.perform(Wire::Meta, &mut socket, link.as_deref_mut(), peer.timeout);
            done.map_err(failed)?;
        }
        let ready = socket
            .set_nonblocking(false)
            .and_then(|()| socket.set_read_timeout(Some(LOOK)))
            .and_then(|()| socket.set_write_timeout(Some(LOOK)));
        ready.map_err(|error| failed(error.to_string()))?;
        let name = peer.target.to_string();
        let mut client = Client::of(socket, link, name, peer.timeout, stop);
        client.greet()?;
        Ok(client)
    }

    /// A connection to this process's own server.
    pub fn over(
        socket: OwnedFd,
        timeout: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Client<'a>, TransferError> {
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(LOOK))?;
        let name = "the other end".to_owned();
        Ok(Client::of(socket, None, name, timeout, stop))
    }

    fn of(
        socket: TcpStream,
        link: Option<Box<Link>>,
        name: String,
        timeout: Duration,
        stop: &'a AtomicBool,
    ) -> Client<'a> {
        Client {
            socket,
            link,
            input: Vec::new(),
            at: 0,
            output: Vec::new(),
            part: vec![0; PART].into(),
            name,
            timeout,
            stop,
        }
    }

    /// The own address, if the connection is one of TCP.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Asks whether the server serves this connection. One that wants a user would take the first
    /// item for a login, and hangs up at a short line.
    fn greet(&mut self) -> Result<(), TransferError> {
        self.push(b"get senko-greeting\r\n")?;
        self.flush()?;
        let line = self.line()?.to_vec();
        if line == b"END" {
            return Ok(());
        }
        // Somebody has such a key.
        let words = line.strip_prefix(b"VALUE senko-greeting ");
        let len = words.and_then(|words| words.rsplit(|byte| *byte == b' ').next());
        let len = len.and_then(|len| std::str::from_utf8(len).ok()?.parse().ok());
        let Some(len) = len else {
            return self.refused("does not serve", &line);
        };
        self.value(len, |_| Ok(()))?;
        self.line().map(drop)
    }

    /// Gathers bytes to send; sends them when there are many.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        for part in bytes.chunks(PART) {
            self.output.extend_from_slice(part);
            if self.output.len() >= PART {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends what was gathered.
    pub fn flush(&mut self) -> Result<(), TransferError> {
        if let Some(link) = &mut self.link {
            link.seal(&mut self.output).map_err(TransferError::Server)?;
        }
        let output = std::mem::take(&mut self.output);
        let (mut done, mut since) = (0, Instant::now());
        while done < output.len() {
            match self.socket.write(&output[done..]) {
                Ok(0) => return self.gone("it takes nothing any more"),
                Ok(sent) => (done, since) = (done + sent, Instant::now()),
                Err(error) => self.wait(&error, since, "took")?,
            }
        }
        self.output = output;
        self.output.clear();
        Ok(())
    }

    /// The next line of an answer, without its end.
    pub fn line(&mut self) -> Result<&[u8], TransferError> {
        let mut looked = self.at;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.input[looked..]) {
                let (from, end) = (self.at, looked + found);
                self.at = end + 1;
                let line = &self.input[from..end];
                return Ok(line.strip_suffix(b"\r").unwrap_or(line));
            }
            if self.input.len() - self.at > MOST_LINE {
                return self.failed("sends a line without an end");
            }
            // Reading moves what is left to the front.
            looked = self.input.len() - self.at;
            self.receive()?;
        }
    }

    /// Passes the next `len` bytes of an answer on, in parts, and takes the line end behind them.
    pub fn value(
        &mut self,
        len: usize,
        mut to: impl FnMut(&[u8]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let mut left = len;
        while left > 0 {
            if self.at == self.input.len() {
                self.receive()?;
            }
            let part = left.min(self.input.len() - self.at);
            to(&self.input[self.at..self.at + part])?;
            (self.at, left) = (self.at + part, left - part);
        }
        match self.line()? {
            b"" => Ok(()),
            _ => self.failed("sends a value with another length than it said"),
        }
    }

    /// An error that names the server.
    pub fn failed<T>(&self, what: &str) -> Result<T, TransferError> {
        let text = format!("the server at {} {what}", self.name);
        Err(TransferError::Server(text))
    }

    /// An error for an answer that is none to the request.
    pub fn refused<T>(&self, what: &str, line: &[u8]) -> Result<T, TransferError> {
        let text = line.escape_ascii().to_string();
        let advice = match text.contains("unauthenticated") || text.contains("authentication") {
            true => "; it wants a user (--user, --password-file)",
            false => "",
        };
        self.failed(&format!("{what}: {text}{advice}"))
    }

    fn gone<T>(&self, why: &str) -> Result<T, TransferError> {
        self.failed(&format!("is gone: {why}"))
    }

    /// Receives more bytes; first drops those that were taken.
    fn receive(&mut self) -> Result<(), TransferError> {
        self.input.drain(..self.at);
        self.at = 0;
        let (had, since) = (self.input.len(), Instant::now());
        // A record of TLS may have no bytes for us.
        while self.input.len() == had {
            let got = match self.socket.read(&mut self.part) {
                Ok(0) => return self.gone("it closed the connection"),
                Ok(got) => got,
                Err(error) => {
                    self.wait(&error, since, "sent")?;
                    continue;
                }
            };
            match &mut self.link {
                None => self.input.extend_from_slice(&self.part[..got]),
                Some(link) => {
                    let opened = link.open(&self.part[..got], &mut self.input);
                    if !opened.map_err(TransferError::Server)? && self.input.len() == had {
                        return self.gone("it closed the connection");
                    }
                }
            }
        }
        Ok(())
    }

    /// Decides whether to go on after an error of the socket.
    fn wait(
        &self,
        error: &std::io::Error,
        since: Instant,
        done: &str,
    ) -> Result<(), TransferError> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
            _ => return self.gone(&error.to_string()),
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(TransferError::Stopped);
        }
        match since.elapsed() > self.timeout {
            true => self.gone(&format!("it {done} nothing for {:?}", self.timeout)),
            false => Ok(()),
        }
    }

    /// An error once the caller wants to stop.
    pub fn go_on(&self) -> Result<(), TransferError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(TransferError::Stopped),
            false => Ok(()),
        }
    }
}
