// SPDX-License-Identifier: Apache-2.0
//! Parsers of the three dialects: bytes in, requests out. No I/O, no state.
//!
//! [`crate::session`] passes them the receive buffer in place; their results borrow from it. The
//! refused lines and their texts are those of memcached 1.6.45, which was run for comparison.
//! `docs/cache/replacing-memcached.md` lists the differences. Always holds: a parser never panics,
//! never allocates, and reads only its input.

pub mod binary; // the binary protocol: header, opcodes, validity of lengths
pub mod classic; // the classic text commands
pub mod meta; // the meta commands and their flags
pub mod number; // numbers as memcached reads them, base64, expiry times

/// Longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// If this many bytes come without a line end, the connection is closed, unless it is sending a
/// `get`.
pub const MAX_LINE: usize = 2048;

/// The reply to a line that is not a command.
pub const ERROR: &str = "ERROR";
/// The reply to a command with invalid arguments.
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";

/// Bytes to skip after a refused storage line with this length token: the value and its line end.
/// If the length cannot be read, the next line is a command, as in memcached.
pub fn refused_value(length: Option<&[u8]>) -> usize {
    length
        .and_then(number::read_length)
        .map_or(0, |len| len + 2)
}

/// Splits at spaces and skips empty parts, as memcached's tokenizer does. Tabs are not separators.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The parts of `line`.
    pub fn new(line: &'a [u8]) -> Tokens<'a> {
        Tokens { rest: line }
    }
    /// The input that has not been consumed yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&b| b != b' ')?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }
}

/// A line without its end, and the number of bytes including the end.
#[inline]
pub fn split_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', input)?;
    let line = &input[..end];
    // As in memcached, a carriage return is stripped only after at least one byte, so "\r\n" alone
    // is an (invalid) command.
    let line = if line.len() > 1 && line[line.len() - 1] == b'\r' {
        &line[..line.len() - 1]
    } else {
        line
    };
    Some((line, end + 1))
}

/// Appends a key as a word of a line. A key that is valid in the classic protocol is appended
/// unchanged. Any other key, which the meta protocol's base64 allows, is URI-encoded, because a
/// line end in it would forge the next line.
pub(crate) fn push_key(out: &mut Vec<u8>, key: &[u8]) {
    if is_word(key) {
        out.extend_from_slice(key);
    } else {
        push_uri(out, key);
    }
}

/// Whether a key is valid in the classic protocol.
pub(crate) fn is_word(key: &[u8]) -> bool {
    key.iter().all(|b| *b > b' ' && *b != 0x7f)
}

/// Appends a key URI-encoded.
pub(crate) fn push_uri(out: &mut Vec<u8>, key: &[u8]) {
    for &b in key {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(b);
        } else {
            out.extend_from_slice(format!("%{b:02X}").as_bytes());
        }
    }
}
