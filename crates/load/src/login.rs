// SPDX-License-Identifier: Apache-2.0
//! The login of a connection, before its first request. It waits for the server's answer and blocks
//! its thread, like connecting. [`crate::engine`] calls it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::settings::{Login, Wire};
use crate::tls::Link;

/// An answer is a line or a binary head with a short text.
const MOST: usize = 4096;
/// Bytes of a binary head.
const HEAD: usize = 24;
/// The binary protocol's SASL authentication, and its one mechanism.
const SASL_AUTH: u8 = 0x21;
const PLAIN: &[u8] = b"PLAIN";

impl Login {
    /// The request that logs in. memcached's text protocol takes the value of a set with any key.
    fn request(&self, wire: Wire) -> Vec<u8> {
        let Login { user, password } = self;
        match wire {
            Wire::Classic | Wire::Meta => {
                let value = format!("{user} {password}");
                format!("set login 0 0 {}\r\n{value}\r\n", value.len()).into_bytes()
            }
            Wire::Binary => {
                let value = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
                let mut request = vec![0; HEAD];
                (request[0], request[1]) = (0x80, SASL_AUTH);
                request[2..4].copy_from_slice(&(PLAIN.len() as u16).to_be_bytes());
                let body = (PLAIN.len() + value.len()) as u32;
                request[8..12].copy_from_slice(&body.to_be_bytes());
                request.extend_from_slice(PLAIN);
                request.extend(value);
                request
            }
        }
    }

    /// Logs a connected socket in; waits for the server up to `timeout` at a time.
    ///
    /// # Errors
    /// One clause, if the server refuses the user or does not answer.
    pub fn perform(
        &self,
        wire: Wire,
        socket: &mut TcpStream,
        mut link: Option<&mut Link>,
        timeout: Duration,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("no answer to the login within {timeout:?}")
            }
            _ => format!("logging in: {error}"),
        };
        let mut request = self.request(wire);
        if let Some(link) = &mut link {
            link.seal(&mut request)?;
        }
        let ready = socket
            .set_nonblocking(false)
            .and_then(|()| socket.set_read_timeout(Some(timeout)))
            .and_then(|()| socket.set_write_timeout(Some(timeout)))
            .and_then(|()| socket.write_all(&request));
        ready.map_err(failed)?;
        let (mut answer, mut part) = (Vec::new(), [0; MOST]);
        loop {
            if let Some(outcome) = outcome(wire, &answer) {
                outcome
                    .map_err(|text| format!("the server refuses the user {}: {text}", self.user))?;
                return socket.set_nonblocking(true).map_err(failed);
            }
            if answer.len() > MOST {
                return Err("the server's answer to the login has no end".to_owned());
            }
            match socket.read(&mut part).map_err(failed)? {
                0 => return Err("the server hung up at the login".to_owned()),
                got => match &mut link {
                    Some(link) => drop(link.open(&part[..got], &mut answer)?),
                    None => answer.extend_from_slice(&part[..got]),
                },
            }
        }
    }
}

/// What the server answered; `None` if there is more to come.
fn outcome(wire: Wire, answer: &[u8]) -> Option<Result<(), String>> {
    let shown = |text: &[u8]| text.trim_ascii().escape_ascii().to_string();
    match wire {
        Wire::Classic | Wire::Meta => {
            let line = answer.strip_suffix(b"\n")?.trim_ascii_end();
            Some(match line {
                b"STORED" => Ok(()),
                line => Err(shown(line)),
            })
        }
        Wire::Binary => {
            let head = answer.get(..HEAD)?;
            let body = u32::from_be_bytes(head[8..12].try_into().ok()?) as usize;
            let text = answer.get(HEAD..HEAD + body)?;
            Some(match (head[0], &head[6..8]) {
                (0x81, [0, 0]) => Ok(()),
                (0x81, _) => Err(shown(text)),
                _ => Err("its answer is not of the binary protocol".to_owned()),
            })
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login {
            user: "bob".to_owned(),
            password: "correct horse".to_owned(),
        }
    }

    #[test]
    fn requests_are_those_of_the_protocols() {
        assert_eq!(
            login().request(Wire::Meta),
            b"set login 0 0 17\r\nbob correct horse\r\n"
        );
        let binary = login().request(Wire::Binary);
        assert_eq!(binary.len(), 24 + 5 + 18);
        assert_eq!(binary[..12], [0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, 23]);
        assert_eq!(&binary[24..], b"PLAIN\0bob\0correct horse");
    }

    #[test]
    fn answers_are_whole_before_they_count() {
        assert_eq!(outcome(Wire::Classic, b"STOR"), None);
        assert_eq!(outcome(Wire::Classic, b"STORED\r\n"), Some(Ok(())));
        let refused = b"CLIENT_ERROR authentication failure\r\n";
        let told = outcome(Wire::Meta, refused).unwrap().unwrap_err();
        assert_eq!(told, "CLIENT_ERROR authentication failure");
        let mut binary = vec![0; 24];
        (binary[0], binary[1]) = (0x81, 0x21);
        assert_eq!(outcome(Wire::Binary, &binary), Some(Ok(())));
        (binary[7], binary[11]) = (0x20, 4);
        assert_eq!(outcome(Wire::Binary, &binary), None);
        binary.extend(b"Auth");
        assert_eq!(outcome(Wire::Binary, &binary), Some(Err("Auth".to_owned())));
    }
}
