// SPDX-License-Identifier: Apache-2.0
//! Parses bytes from the server into answers: one parser for both text dialects, one for the binary
//! one.
//!
//! [`crate::connection`] feeds each received piece, wherever the network cut it, and is told of
//! values and of the ends of answers. Bytes of values are passed on in place; they are neither
//! copied nor read here. Only a line that was cut is gathered. Nothing is allocated once the buffer
//! for such lines exists.

use crate::changes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// `END`, `EN`, or the binary "not found": no (more) values.
    NoMore,
    /// `STORED`, `HD`, or the binary "no error" for a set, an append or a prepend.
    Stored,
    /// The number that an `incr` or a `decr` answers.
    Number(u64),
    /// `NOT_FOUND`, `NOT_STORED`, `NF`, `NS`, or the binary statuses for these, for a change: the
    /// key does not exist. It has the server's text.
    Absent(&'a [u8]),
    /// `MN`, `VERSION`, or the binary NOOP: everything before it was answered.
    Sync,
    /// Anything else, with the server's text.
    Failed(&'a [u8]),
}

/// Receives what is parsed.
pub trait Answers {
    /// A value begins. `key` is empty if the dialect did not repeat it.
    fn value(&mut self, key: &[u8], flags: u32, len: usize);
    fn body(&mut self, part: &[u8]);
    fn value_end(&mut self);
    fn end(&mut self, end: End<'_>);
}

/// The bytes do not follow the protocol; the connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// The longest accepted line or binary head; keys have at most 250 bytes.
const LONGEST_LINE: usize = 2048;
/// Bytes of a malformed line that its error shows.
const SHOWN: usize = 60;

/// A parser of one connection's answers.
pub enum Parser {
    Text(TextParser),
    Binary(BinaryParser),
}

impl Parser {
    /// Takes the next bytes.
    #[inline]
    pub fn feed<A: Answers>(&mut self, data: &[u8], to: &mut A) -> Result<(), Malformed> {
        match self {
            Parser::Text(parser) => parser.feed(data, to),
            Parser::Binary(parser) => parser.feed(data, to),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextState {
    Line,
    Body(usize),
    /// After a value: this many bytes of CR LF are still to come.
    Tail(u8),
}

/// `VALUE key flags n`, `VA n flags`, and lines.
pub struct TextParser {
    state: TextState,
    line: Vec<u8>,
}

impl Default for TextParser {
    fn default() -> TextParser {
        TextParser {
            state: TextState::Line,
            line: Vec::with_capacity(512),
        }
    }
}

impl TextParser {
    fn feed<A: Answers>(&mut self, mut data: &[u8], to: &mut A) -> Result<(), Malformed> {
        while !data.is_empty() {
            match self.state {
                TextState::Line => {
                    let Some(at) = memchr::memchr(b'\n', data) else {
                        if self.line.len() + data.len() > LONGEST_LINE {
                            return Err(malformed("a line without end", &self.line));
                        }
                        self.line.extend_from_slice(data);
                        return Ok(());
                    };
                    let (line, rest) = data.split_at(at + 1);
                    data = rest;
                    self.state = if self.line.is_empty() {
                        text_line(line, to)?
                    } else {
                        self.line.extend_from_slice(line);
                        let next = text_line(&self.line, to)?;
                        self.line.clear();
                        next
                    };
                }
                TextState::Body(left) => {
                    let (part, rest) = data.split_at(left.min(data.len()));
                    data = rest;
                    to.body(part);
                    self.state = match left - part.len() {
                        0 => TextState::Tail(2),
                        left => TextState::Body(left),
                    };
                }
                TextState::Tail(left) => {
                    let end = &b"\r\n"[2 - left as usize..];
                    let (part, rest) = data.split_at(end.len().min(data.len()));
                    if !end.starts_with(part) {
                        return Err(malformed(
                            "a value that does not end where its length says",
                            data,
                        ));
                    }
                    data = rest;
                    self.state = match left - part.len() as u8 {
                        0 => {
                            to.value_end();
                            TextState::Line
                        }
                        left => TextState::Tail(left),
                    };
                }
            }
        }
        Ok(())
    }
}

/// One whole line, with its LF.
#[inline]
fn text_line<A: Answers>(line: &[u8], to: &mut A) -> Result<TextState, Malformed> {
    let line = &line[..line.len() - 1];
    let Some(line) = line.strip_suffix(b"\r") else {
        return Err(malformed("a line that does not end with CR LF", line));
    };
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        let wrong = || malformed("a VALUE line of unknown form", line);
        let mut words = rest.split(|byte| *byte == b' ');
        let key = words.next().ok_or_else(wrong)?;
        let flags = words
            .next()
            .and_then(number)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(wrong)?;
        let len = words.next().and_then(number).ok_or_else(wrong)?;
        to.value(key, flags, len as usize);
        return Ok(body(len as usize));
    }
    if let Some(rest) = line.strip_prefix(b"VA ") {
        let wrong = || malformed("a VA line of unknown form", line);
        let mut words = rest.split(|byte| *byte == b' ');
        let len = words.next().and_then(number).ok_or_else(wrong)?;
        let (mut key, mut flags) = (&[][..], 0);
        for word in words {
            match word.split_first() {
                Some((b'k', rest)) => key = rest,
                Some((b'f', rest)) => {
                    flags = number(rest)
                        .and_then(|n| u32::try_from(n).ok())
                        .ok_or_else(wrong)?
                }
                _ => {}
            }
        }
        to.value(key, flags, len as usize);
        return Ok(body(len as usize));
    }
    to.end(match line {
        b"END" | b"EN" => End::NoMore,
        b"STORED" | b"HD" => End::Stored,
        b"MN" => End::Sync,
        // Some releases repeat the key, or an opaque, here as well.
        _ if line.starts_with(b"EN ") => End::NoMore,
        _ if line.starts_with(b"HD ") => End::Stored,
        _ if line.starts_with(b"VERSION ") => End::Sync,
        _ => rare_line(line),
    });
    Ok(TextState::Line)
}

/// A line that answers no get or set, except as a failure.
fn rare_line(line: &[u8]) -> End<'_> {
    if let Some(number) = changes::number(line) {
        return End::Number(number);
    }
    let absent = matches!(line, b"NOT_FOUND" | b"NOT_STORED" | b"NF" | b"NS");
    if absent || line.starts_with(b"NF ") || line.starts_with(b"NS ") {
        End::Absent(line)
    } else {
        End::Failed(line)
    }
}

fn body(len: usize) -> TextState {
    if len == 0 {
        TextState::Tail(2)
    } else {
        TextState::Body(len)
    }
}

/// A decimal number of at most 10 digits.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

#[cold]
fn malformed(what: &str, bytes: &[u8]) -> Malformed {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    Malformed(format!(
        "the server sent {what}: \"{}\"",
        shown.escape_ascii()
    ))
}

const HEADER: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BinaryState {
    /// The header and what follows it except the value are gathered in `head`, up to this length.
    Head(usize),
    Body(usize),
    /// Bytes of an error's text beyond what is kept.
    Skip(usize),
}

/// Headers of 24 bytes, extras, key, value.
pub struct BinaryParser {
    state: BinaryState,
    head: Vec<u8>,
}

impl Default for BinaryParser {
    fn default() -> BinaryParser {
        BinaryParser {
            state: BinaryState::Head(HEADER),
            head: Vec::with_capacity(512),
        }
    }
}

impl BinaryParser {
    fn feed<A: Answers>(&mut self, mut data: &[u8], to: &mut A) -> Result<(), Malformed> {
        while !data.is_empty() {
            match self.state {
                BinaryState::Head(wanted) => {
                    let (part, rest) = data.split_at((wanted - self.head.len()).min(data.len()));
                    data = rest;
                    self.head.extend_from_slice(part);
                    if self.head.len() == wanted {
                        self.head_complete(to)?;
                    }
                }
                BinaryState::Body(left) => {
                    let (part, rest) = data.split_at(left.min(data.len()));
                    data = rest;
                    to.body(part);
                    self.state = BinaryState::Body(left - part.len());
                    if left == part.len() {
                        to.value_end();
                        self.next();
                    }
                }
                BinaryState::Skip(left) => {
                    let part = left.min(data.len());
                    data = &data[part..];
                    self.state = BinaryState::Skip(left - part);
                    if left == part {
                        self.next();
                    }
                }
            }
        }
        Ok(())
    }

    fn next(&mut self) {
        self.head.clear();
        self.state = BinaryState::Head(HEADER);
    }

    fn head_complete<A: Answers>(&mut self, to: &mut A) -> Result<(), Malformed> {
        let head = self.head.as_slice();
        let be16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (opcode, status) = (head[1], be16(6));
        let (key_len, extras) = (be16(2) as usize, head[4] as usize);
        let total = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if head[0] != 0x81 || total < key_len + extras {
            return Err(malformed("a binary header of unknown form", head));
        }
        let is_value = matches!(opcode, 0x00 | 0x09 | 0x0C | 0x0D) && status == 0;
        let gathered = if is_value {
            key_len + extras
        } else {
            total.min(LONGEST_LINE)
        };
        if head.len() < HEADER + gathered {
            self.state = BinaryState::Head(HEADER + gathered);
            return Ok(());
        }
        let rest = total - gathered;
        if is_value {
            if extras < 4 {
                return Err(malformed("a binary value without flags", head));
            }
            let flags = u32::from_be_bytes([head[24], head[25], head[26], head[27]]);
            to.value(
                &head[HEADER + extras..HEADER + extras + key_len],
                flags,
                rest,
            );
            if rest > 0 {
                self.state = BinaryState::Body(rest);
                return Ok(());
            }
            to.value_end();
        } else {
            to.end(match (opcode, status) {
                (0x00 | 0x09 | 0x0C | 0x0D, 1) => End::NoMore,
                (0x01 | 0x11 | 0x0E | 0x0F, 0) => End::Stored,
                (0x05 | 0x06, 0) => match head[HEADER + extras + key_len..].first_chunk() {
                    Some(number) if total == extras + key_len + 8 => {
                        End::Number(u64::from_be_bytes(*number))
                    }
                    _ => return Err(malformed("a binary number of unknown length", head)),
                },
                // Not found, or not stored.
                (0x05 | 0x06 | 0x0E | 0x0F, 1 | 5) => End::Absent(&head[HEADER..]),
                (0x0A, 0) => End::Sync,
                _ if total > 0 => End::Failed(&head[HEADER..]),
                _ => End::Failed(b"an error without text"),
            });
            if rest > 0 {
                self.state = BinaryState::Skip(rest);
                return Ok(());
            }
        }
        self.next();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The events as text, for tests.
    #[derive(Default, Debug, PartialEq)]
    struct Seen(Vec<String>, Vec<u8>);

    impl Answers for Seen {
        fn value(&mut self, key: &[u8], flags: u32, len: usize) {
            self.0
                .push(format!("value {} {flags} {len}", key.escape_ascii()));
        }
        fn body(&mut self, part: &[u8]) {
            self.1.extend_from_slice(part);
        }
        fn value_end(&mut self) {
            self.0.push(format!(
                "end of {}",
                std::mem::take(&mut self.1).escape_ascii()
            ));
        }
        fn end(&mut self, end: End<'_>) {
            self.0.push(format!("{end:?}"));
        }
    }

    fn parse(mut parser: Parser, pieces: &[&[u8]]) -> Result<Seen, Malformed> {
        let mut seen = Seen::default();
        for piece in pieces {
            parser.feed(piece, &mut seen)?;
        }
        Ok(seen)
    }

    fn text() -> Parser {
        Parser::Text(TextParser::default())
    }

    fn binary() -> Parser {
        Parser::Binary(BinaryParser::default())
    }

    const CLASSIC: &[u8] = b"VALUE key1 7 5\r\nab\r\nc\r\nVALUE k 0 0\r\n\r\nEND\r\nSTORED\r\nSERVER_ERROR out of memory\r\nEND\r\n18446744073709551615\r\n18446744073709551616\r\nNOT_FOUND\r\n";
    const META: &[u8] = b"VA 3 f4294967295 kfoo\r\nEN\r\r\nEN\r\nHD\r\nVA 0 kx f1\r\n\r\nMN\r\nNS\r\nVERSION 1.6\r\nEN kfoo\r\nNF\r\n";

    fn binary_answer(opcode: u8, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut answer = vec![0x81, opcode];
        answer.extend_from_slice(&(key.len() as u16).to_be_bytes());
        answer.extend_from_slice(&[extras.len() as u8, 0]);
        answer.extend_from_slice(&status.to_be_bytes());
        answer.extend_from_slice(&((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
        answer.extend_from_slice(&[0; 12]);
        for part in [extras, key, value] {
            answer.extend_from_slice(part);
        }
        answer
    }

    fn binary_stream() -> Vec<u8> {
        [
            binary_answer(0x00, 0, &[0, 0, 1, 0], b"", b"value\x81"),
            binary_answer(0x0D, 0, &[0, 0, 0, 9], b"key", b""),
            binary_answer(0x00, 1, b"", b"", b"Not found"),
            binary_answer(0x0A, 0, b"", b"", b""),
            binary_answer(0x01, 0, b"", b"", b""),
            binary_answer(0x01, 3, b"", b"", &b"Too large. ".repeat(300)),
            binary_answer(0x01, 0x82, b"", b"", b"Out of memory"),
            binary_answer(0x05, 0, b"", b"", &7u64.to_be_bytes()),
            binary_answer(0x06, 1, b"", b"", b"Not found"),
            binary_answer(0x0E, 0, b"", b"", b""),
            binary_answer(0x0F, 5, b"", b"", b"Not stored"),
        ]
        .concat()
    }

    #[test]
    fn text_in_one_piece() {
        let seen = parse(text(), &[CLASSIC]).expect("well formed");
        let wanted = [
            "value key1 7 5",
            "end of ab\\r\\nc",
            "value k 0 0",
            "end of ",
            "NoMore",
            "Stored",
            &format!("{:?}", End::Failed(b"SERVER_ERROR out of memory")),
            "NoMore",
            "Number(18446744073709551615)",
            &format!("{:?}", End::Failed(b"18446744073709551616")),
            &format!("{:?}", End::Absent(b"NOT_FOUND")),
        ];
        assert_eq!(seen.0, wanted);
        let seen = parse(text(), &[META]).expect("well formed");
        let ns = format!("{:?}", End::Absent(b"NS"));
        let nf = format!("{:?}", End::Absent(b"NF"));
        let wanted = [
            "value foo 4294967295 3",
            "end of EN\\r",
            "NoMore",
            "Stored",
            "value x 1 0",
            "end of ",
            "Sync",
            &ns,
            "Sync",
            "NoMore",
            &nf,
        ];
        assert_eq!(seen.0, wanted);
    }

    #[test]
    fn binary_in_one_piece() {
        let seen = parse(binary(), &[&binary_stream()]).expect("well formed");
        assert_eq!(
            seen.0[..6],
            [
                "value  256 6",
                "end of value\\x81",
                "value key 9 0",
                "end of ",
                "NoMore",
                "Sync"
            ]
        );
        assert_eq!(seen.0[6], "Stored");
        assert_eq!(seen.0[8], format!("{:?}", End::Failed(b"Out of memory")));
        let changed = [
            "Number(7)".to_owned(),
            format!("{:?}", End::Absent(b"Not found")),
            "Stored".to_owned(),
            format!("{:?}", End::Absent(b"Not stored")),
        ];
        assert_eq!(seen.0[9..], changed);
    }

    #[test]
    fn malformed_answers_are_refused() {
        for bad in [
            &b"VALUE k 0 2\r\nabc\r\n"[..],
            b"VALUE k 0\r\n",
            b"VALUE k 99999999999 1\r\n",
            b"VALUE k 0 -1\r\n",
            b"VA x\r\n",
            b"VA 1 fy\r\n",
            b"STORED\n",
            b"VALUE k 0 2\r\nab\n\r",
        ] {
            assert!(parse(text(), &[bad]).is_err(), "{}", bad.escape_ascii());
        }
        assert!(parse(text(), &[&[b'x'; 4000]]).is_err());
        assert!(parse(binary(), &[&[0x80; 24]]).is_err());
        assert!(parse(binary(), &[&binary_answer(0, 0, b"", b"", b"no flags")]).is_err());
        assert!(parse(binary(), &[&binary_answer(5, 0, b"", b"", b"short")]).is_err());
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(cuts in prop::collection::vec(0usize..4000, 0..12), every in 1usize..9) {
            for (stream, parser) in [(CLASSIC, text as fn() -> Parser), (META, text), (&binary_stream(), binary)] {
                let whole = parse(parser(), &[stream]).expect("well formed");
                let mut places: Vec<usize> = cuts.iter().map(|cut| cut % stream.len()).chain([0, stream.len()]).collect();
                places.sort_unstable();
                let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
                prop_assert_eq!(&parse(parser(), &pieces).expect("well formed"), &whole);
                let pieces: Vec<&[u8]> = stream.chunks(every).collect();
                prop_assert_eq!(&parse(parser(), &pieces).expect("well formed"), &whole);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let cut = cut.min(bytes.len());
            let _ = parse(text(), &[&bytes[..cut], &bytes[cut..]]);
            let _ = parse(binary(), &[&bytes[..cut], &bytes[cut..]]);
        }
    }

    #[test]
    fn every_single_cut_changes_nothing() {
        for (stream, parser) in [
            (CLASSIC, text as fn() -> Parser),
            (META, text),
            (&binary_stream(), binary),
        ] {
            let whole = parse(parser(), &[stream]).expect("well formed");
            for cut in 0..=stream.len() {
                let (a, b) = stream.split_at(cut);
                assert_eq!(
                    parse(parser(), &[a, b]).expect("well formed"),
                    whole,
                    "cut at {cut}"
                );
            }
        }
    }
}
