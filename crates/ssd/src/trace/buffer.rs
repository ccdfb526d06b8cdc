// SPDX-License-Identifier: Apache-2.0
//! The bytes of a trace after decompression. Its head comes first, for recognising the format, then
//! lines or records of a fixed size. One buffer serves all of them, and is filled again when it is
//! empty.
//!
//! Always holds: everything that was read before an error of the source is delivered first. An
//! incomplete line or record at the error is not taken for a complete one.

use std::io::{self, Read};
use std::ops::Range;

const CAPACITY: usize = 256 << 10;
pub(super) const HEAD: usize = 64 << 10;
/// A longer line than this is damaged, whatever it contains.
pub(super) const MAX_LINE: usize = 64 << 10;

/// A buffered source of lines and records.
pub(super) struct Buffer {
    source: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that were returned and dropped from the buffer before `start`.
    dropped: u64,
    /// Whether no more bytes come: the source has ended, or its error is still to be returned.
    ended: bool,
    error: Option<io::Error>,
}

pub(super) enum Line {
    /// Where it is in the buffer, without its end of line; see [`Buffer::slice`].
    At(Range<usize>),
    /// A line of more than [`MAX_LINE`] bytes, skipped.
    TooLong,
    End,
}

impl Buffer {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Buffer {
        Buffer {
            source,
            bytes: vec![0; CAPACITY],
            start: 0,
            end: 0,
            dropped: 0,
            ended: false,
            error: None,
        }
    }

    /// Up to [`HEAD`] bytes from the current place on, without consuming them.
    pub(super) fn head(&mut self) -> &[u8] {
        while self.end - self.start < HEAD && self.more() {}
        &self.bytes[self.start..self.end.min(self.start + HEAD)]
    }

    /// Drops the byte order mark that some editors put before UTF-8.
    pub(super) fn skip_mark(&mut self) {
        if self.head().starts_with(b"\xef\xbb\xbf") {
            self.start += 3;
        }
    }

    /// The error that ended the stream, if there was one and nothing is left before it.
    pub(super) fn broken(&mut self) -> Option<io::Error> {
        if self.start == self.end {
            self.error.take()
        } else {
            None
        }
    }

    /// The number of bytes returned so far.
    pub(super) fn position(&self) -> u64 {
        self.dropped + self.start as u64
    }

    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    #[inline]
    pub(super) fn line(&mut self) -> io::Result<Line> {
        let mut searched = 0;
        loop {
            let window = &self.bytes[self.start + searched..self.end];
            if let Some(at) = memchr::memchr(b'\n', window) {
                let from = self.start;
                let to = self.start + searched + at;
                self.start = to + 1;
                return Ok(Line::At(self.trimmed(from, to)));
            }
            searched = self.end - self.start;
            if searched > MAX_LINE {
                return self.skip_line();
            }
            if !self.more() {
                if let Some(error) = self.error.take() {
                    self.start = self.end;
                    return Err(error);
                }
                if searched == 0 {
                    return Ok(Line::End);
                }
                let (from, to) = (self.start, self.end);
                self.start = to;
                return Ok(Line::At(self.trimmed(from, to)));
            }
        }
    }

    /// The next `count` bytes (at most a few dozen); fewer at the end.
    pub(super) fn record(&mut self, count: usize) -> io::Result<Range<usize>> {
        while self.end - self.start < count {
            if !self.more() {
                if let Some(error) = self.error.take() {
                    self.start = self.end;
                    return Err(error);
                }
                break;
            }
        }
        let from = self.start;
        self.start = self.end.min(from + count);
        Ok(from..self.start)
    }

    fn trimmed(&self, from: usize, to: usize) -> Range<usize> {
        if to > from && self.bytes[to - 1] == b'\r' {
            from..to - 1
        } else {
            from..to
        }
    }

    /// Drops everything up to the next end of line.
    fn skip_line(&mut self) -> io::Result<Line> {
        loop {
            match memchr::memchr(b'\n', &self.bytes[self.start..self.end]) {
                Some(at) => {
                    self.start += at + 1;
                    return Ok(Line::TooLong);
                }
                None => self.start = self.end,
            }
            if !self.more() {
                return match self.error.take() {
                    Some(error) => Err(error),
                    None => Ok(Line::TooLong),
                };
            }
        }
    }

    #[cold]
    fn more(&mut self) -> bool {
        if self.ended {
            return false;
        }
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.dropped += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.source.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(got) => {
                    self.end += got;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.ended = true;
                    self.error = Some(error);
                }
            }
            return false;
        }
    }
}

/// For a reader that takes a stream: that of the native format.
impl Read for Buffer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.start == self.end && !self.more() {
            return match self.error.take() {
                Some(error) => Err(error),
                None => Ok(0),
            };
        }
        let got = into.len().min(self.end - self.start);
        into[..got].copy_from_slice(&self.bytes[self.start..self.start + got]);
        self.start += got;
        Ok(got)
    }
}
