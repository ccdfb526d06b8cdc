// SPDX-License-Identifier: Apache-2.0
//! Plays one case over sockets and compares the answers. The servers are [`super::target`]'s, the
//! steps [`super::script`]'s.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::script::{Case, Exchange, Expected, Packet, Sent, Step, Text, Token};
use super::target::{Stream, Target};

/// How long an answer may take before it counts as missing. Only a failing case waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// One connection, and the received bytes that no step has consumed.
struct Line {
    stream: Stream,
    received: Vec<u8>,
    ended: bool,
    /// Whether it speaks the binary protocol; known after the first request.
    binary: Option<bool>,
}

impl Line {
    fn open(target: &Target) -> Result<Line, String> {
        let stream = target.open().map_err(|e| format!("cannot connect: {e}"))?;
        if let Stream::Socket(socket) = &stream {
            socket.set_nodelay(true).map_err(|e| e.to_string())?;
        }
        Ok(Line {
            stream,
            received: Vec::new(),
            ended: false,
            binary: None,
        })
    }

    /// Waits for more bytes; false at the end of the stream or after the time limit.
    fn more(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if self.ended || left.is_zero() {
            return false;
        }
        let stream = match &mut self.stream {
            Stream::Socket(stream) => stream,
            Stream::Session { rig, id, .. } => {
                let answers = rig.borrow_mut().answers(*id);
                self.received.extend_from_slice(&answers);
                self.ended = rig.borrow().closed(*id);
                return !answers.is_empty();
            }
        };
        let mut buffer = [0u8; 65536];
        stream
            .set_read_timeout(Some(left))
            .expect("the time left is not zero");
        match stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => self.received.extend_from_slice(&buffer[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => self.ended = true,
        }
        !self.ended
    }
}

/// The numbers that a case remembered.
type Numbers = HashMap<String, Vec<u8>>;

/// The result of comparing a text with the bytes so far.
enum Match {
    /// It matches in full, with this many bytes.
    Full(usize),
    /// It matches so far.
    Partial,
    /// It can't match.
    No,
}

/// Plays a case. The error says what differed and where.
pub fn play(case: &Case, target: &mut Target) -> Result<(), String> {
    let mut lines: HashMap<String, Line> = HashMap::new();
    let mut numbers = Numbers::new();
    let mut current = "a".to_owned();
    for (number, step) in &case.steps {
        let at = |e: String| format!("line {number}: {e}");
        match step {
            Step::Connection(name) => current.clone_from(name),
            Step::Pause => std::thread::sleep(Duration::from_millis(20)),
            Step::Sleep(seconds) => target.sleep(*seconds),
            Step::Demote => target.demote().map_err(at)?,
            Step::Closed => {
                let line = lines
                    .get_mut(&current)
                    .ok_or_else(|| at("no connection to be closed".to_owned()))?;
                closed(line).map_err(at)?;
            }
            Step::Exchange(exchange) => {
                if !lines.contains_key(&current) {
                    lines.insert(current.clone(), Line::open(target).map_err(at)?);
                }
                let line = lines.get_mut(&current).expect("was just made");
                let expected = if target.is_reference() {
                    &exchange.memcached
                } else {
                    &exchange.senko
                };
                run(line, exchange, expected, &mut numbers).map_err(at)?;
            }
        }
    }
    if !case.unfinished {
        for line in lines.values_mut().filter(|l| !l.ended) {
            still_in_step(line).map_err(|e| format!("at the end: {e}"))?;
        }
    }
    Ok(())
}

fn run(
    line: &mut Line,
    exchange: &Exchange,
    expected: &Expected,
    numbers: &mut Numbers,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    for sent in &exchange.sent {
        match sent {
            Sent::Text(text) => write_text(text, numbers, &mut bytes)?,
            Sent::Packet(packet) => write_packet(packet, numbers, &mut bytes)?,
        }
    }
    line.binary.get_or_insert(bytes.first() == Some(&0x80));
    send(line, &bytes)?;
    let outcome = match expected {
        Expected::Texts(text) => expect_text(line, text, numbers),
        Expected::Somewhere(texts) => expect_somewhere(line, texts, numbers),
        Expected::Packets(packets) => packets
            .iter()
            .try_for_each(|p| expect_packet(line, p, numbers)),
    };
    outcome.map_err(|e| format!("{e}\n    sent     {}", show(&bytes)))
}

/// Writes a request and reads at the same time, so that a large answer to a large request cannot
/// block both sides.
fn send(line: &mut Line, bytes: &[u8]) -> Result<(), String> {
    let mut writer = match &line.stream {
        Stream::Socket(stream) => stream.try_clone().map_err(|e| e.to_string())?,
        Stream::Session { rig, id, piece } => {
            let mut rig = rig.borrow_mut();
            // Long values are not sent in millions of pieces.
            let piece = (*piece).max(bytes.len() / 2000);
            for part in bytes.chunks(piece) {
                if !rig.closed(*id) {
                    rig.send(*id, part);
                }
                if piece < 7 {
                    rig.settle();
                }
            }
            rig.settle();
            return Ok(());
        }
    };
    if bytes.len() < 32 * 1024 {
        return writer
            .write_all(bytes)
            .map_err(|e| format!("cannot send: {e}"));
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || writer.write_all(bytes));
        while !sending.is_finished() {
            if !line.more(Instant::now() + Duration::from_millis(5)) && line.ended {
                break;
            }
        }
        // A server may refuse a request and close before it has received all of it: the answer
        // decides, not the failed write.
        drop(sending.join());
    });
    Ok(())
}

fn expect_text(line: &mut Line, text: &Text, numbers: &mut Numbers) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut found = numbers.clone();
        match matches(text, &line.received, &mut found) {
            Match::Full(n) => {
                line.received.drain(..n);
                *numbers = found;
                return Ok(());
            }
            Match::Partial if line.more(until) => {}
            _ => break,
        }
    }
    // Bytes that arrive within a moment make the message clearer.
    while line.more(Instant::now() + Duration::from_millis(50))
        && line.received.len() < 4096
        && Instant::now() < until
    {}
    let end = if line.ended { " (and closed)" } else { "" };
    Err(format!(
        "\n    expected {}\n    got      {}{end}",
        show_text(text, numbers),
        show(&line.received)
    ))
}

fn expect_somewhere(line: &mut Line, texts: &[Text], numbers: &mut Numbers) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let end = loop {
        let at = line
            .received
            .windows(5)
            .enumerate()
            .find(|(i, w)| *w == b"END\r\n" && (*i == 0 || line.received[i - 1] == b'\n'));
        if let Some((i, _)) = at {
            break i + 5;
        }
        if !line.more(until) {
            return Err(format!(
                "\n    expected lines that end with END\n    got      {}",
                show(&line.received)
            ));
        }
    };
    let answer: Vec<u8> = line.received.drain(..end).collect();
    for text in texts {
        let found = answer
            .split_inclusive(|b| *b == b'\n')
            .any(|l| fits(text, l.strip_suffix(b"\r\n").unwrap_or(l), numbers));
        if !found {
            let name = show_text(text, numbers);
            let stem: Vec<u8> = match text.first() {
                Some(Token::Bytes(b)) => b.rsplitn(2, |c| *c == b' ').last().unwrap_or(b).to_vec(),
                _ => Vec::new(),
            };
            let near: Vec<String> = answer
                .split(|b| *b == b'\n')
                .filter(|l| l.starts_with(&stem))
                .map(show)
                .take(5)
                .collect();
            return Err(format!("\n    missing  {name}\n    near it  {near:?}"));
        }
    }
    Ok(())
}

fn expect_packet(line: &mut Line, packet: &Packet, numbers: &mut Numbers) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let length = loop {
        if line.received.len() >= 24 {
            let body =
                u32::from_be_bytes(line.received[8..12].try_into().expect("four bytes")) as usize;
            if line.received.len() >= 24 + body {
                break 24 + body;
            }
        }
        if !line.more(until) {
            return Err(format!(
                "\n    expected {packet:?}\n    got      {}",
                show(&line.received)
            ));
        }
    };
    let bytes: Vec<u8> = line.received.drain(..length).collect();
    let key_len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let extras_end = (24 + usize::from(bytes[4])).min(length);
    let key_end = (extras_end + key_len).min(length);
    let cas = u64::from_be_bytes(bytes[16..24].try_into().expect("eight bytes"))
        .to_string()
        .into_bytes();
    let cas_ok = fits(&packet.cas, &cas, numbers);
    let value = &bytes[key_end..];
    let value_ok = fits(&packet.value, value, numbers);
    let same = bytes[0] == 0x81
        && bytes[1] == packet.op
        && bytes[5] == 0
        && bytes[6..8] == packet.status.to_be_bytes()
        && bytes[12..16] == packet.opaque.to_be_bytes()
        && bytes[24..extras_end] == packet.extras[..]
        && bytes[extras_end..key_end] == packet.key[..];
    if same && cas_ok && value_ok {
        return Ok(());
    }
    Err(format!(
        "\n    expected {packet:?}\n    got      op={:02x} status={:02x} extras={:?} key={} value={} opaque={:x} cas={}",
        bytes[1],
        u16::from_be_bytes([bytes[6], bytes[7]]),
        &bytes[24..extras_end],
        show(&bytes[extras_end..key_end]),
        show(value),
        u32::from_be_bytes(bytes[12..16].try_into().expect("four bytes")),
        String::from_utf8_lossy(&cas)
    ))
}

/// The stream ends without further bytes.
fn closed(line: &mut Line) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    while line.more(until) {}
    if !line.received.is_empty() {
        return Err(format!(
            "the server sent {} before it closed",
            show(&line.received)
        ));
    }
    if line.ended {
        Ok(())
    } else {
        Err("the server did not close the connection".to_owned())
    }
}

/// A no-op is answered, with nothing before its answer.
fn still_in_step(line: &mut Line) -> Result<(), String> {
    if line.binary == Some(true) {
        let mut noop = vec![0u8; 24];
        (noop[0], noop[1], noop[15]) = (0x80, 0x0a, 0x77);
        send(line, &noop)?;
        let packet = Packet {
            op: 0x0a,
            opaque: 0x77,
            cas: vec![Token::Bytes(b"0".to_vec())],
            ..Packet::default()
        };
        return expect_packet(line, &packet, &mut Numbers::new());
    }
    send(line, b"mn\r\n")?;
    expect_text(
        line,
        &vec![Token::Bytes(b"MN\r\n".to_vec())],
        &mut Numbers::new(),
    )
}

fn write_text(text: &Text, numbers: &Numbers, out: &mut Vec<u8>) -> Result<(), String> {
    for token in text {
        match token {
            Token::Bytes(bytes) => out.extend_from_slice(bytes),
            Token::Num(name) => out.extend_from_slice(
                numbers
                    .get(name)
                    .ok_or_else(|| format!("no number {name:?} so far"))?,
            ),
            other => return Err(format!("{other:?} cannot be sent")),
        }
    }
    Ok(())
}

fn write_packet(packet: &Packet, numbers: &Numbers, out: &mut Vec<u8>) -> Result<(), String> {
    let (mut value, mut cas) = (Vec::new(), Vec::new());
    write_text(&packet.value, numbers, &mut value)?;
    write_text(&packet.cas, numbers, &mut cas)?;
    let cas: u64 = String::from_utf8_lossy(&cas)
        .parse()
        .map_err(|_| "the cas is not a number".to_owned())?;
    let body = packet.extras.len() + packet.key.len() + value.len();
    out.extend_from_slice(&[0x80, packet.op]);
    out.extend_from_slice(
        &packet
            .key_len
            .unwrap_or(packet.key.len() as u16)
            .to_be_bytes(),
    );
    out.extend_from_slice(&[packet.extras.len() as u8, packet.data_type]);
    out.extend_from_slice(&packet.status.to_be_bytes());
    out.extend_from_slice(&packet.body_len.unwrap_or(body as u32).to_be_bytes());
    out.extend_from_slice(&packet.opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(&packet.extras);
    out.extend_from_slice(&packet.key);
    out.extend_from_slice(&value);
    Ok(())
}

/// Whether a text matches all of `bytes`: with a line end after both, so that a last wildcard
/// matches the rest.
fn fits(text: &Text, bytes: &[u8], numbers: &mut Numbers) -> bool {
    let mut line = text.clone();
    line.push(Token::Bytes(b"\r\n".to_vec()));
    let bytes = [bytes, b"\r\n"].concat();
    matches!(matches(&line, &bytes, numbers), Match::Full(n) if n == bytes.len())
}

/// Compares; for [`Token::Any`] the shortest match is tried first.
fn matches(text: &[Token], bytes: &[u8], numbers: &mut Numbers) -> Match {
    let Some(token) = text.first() else {
        return Match::Full(0);
    };
    let rest = &text[1..];
    let then = |used: usize, numbers: &mut Numbers| match matches(rest, &bytes[used..], numbers) {
        Match::Full(n) => Match::Full(used + n),
        other => other,
    };
    match token {
        Token::Bytes(want) => {
            let n = want.len().min(bytes.len());
            if want[..n] != bytes[..n] {
                Match::No
            } else if n < want.len() {
                Match::Partial
            } else {
                then(n, numbers)
            }
        }
        Token::Any => {
            let longest = bytes
                .iter()
                .position(|b| matches!(b, b'\r' | b'\n'))
                .unwrap_or(bytes.len());
            let mut outcome = if longest == bytes.len() {
                Match::Partial
            } else {
                Match::No
            };
            for used in 0..=longest {
                match then(used, numbers) {
                    Match::Full(n) => return Match::Full(n),
                    Match::Partial => outcome = Match::Partial,
                    Match::No => {}
                }
            }
            outcome
        }
        _ => {
            let sign = usize::from(bytes.first() == Some(&b'-'));
            let digits = bytes[sign..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
            let number = &bytes[..sign + digits];
            // More digits of the number may follow.
            if number.len() == bytes.len() {
                return Match::Partial;
            }
            if digits == 0 || !number_fits(token, number, numbers) {
                return Match::No;
            }
            then(number.len(), numbers)
        }
    }
}

fn number_fits(token: &Token, number: &[u8], numbers: &mut Numbers) -> bool {
    match token {
        Token::Range(low, high) => std::str::from_utf8(number)
            .ok()
            .and_then(|t| t.parse::<i64>().ok())
            .is_some_and(|n| (*low..=*high).contains(&n)),
        Token::Num(name) => {
            *numbers
                .entry(name.clone())
                .or_insert_with(|| number.to_vec())
                == number
        }
        Token::Not(name) => numbers.get(name).is_some_and(|n| n != number),
        _ => true,
    }
}

/// Bytes for a message: escaped, the middle of long ones left out.
fn show(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    if bytes.len() <= 600 {
        return bytes.escape_ascii().to_string();
    }
    let (start, end) = (&bytes[..300], &bytes[bytes.len() - 100..]);
    format!(
        "{} ...{} bytes... {}",
        start.escape_ascii(),
        bytes.len() - 400,
        end.escape_ascii()
    )
}

fn show_text(text: &Text, numbers: &Numbers) -> String {
    let mut out = String::new();
    for token in text {
        match token {
            Token::Bytes(bytes) => out.push_str(&show(bytes)),
            Token::Num(name) => match numbers.get(name) {
                Some(n) => out.push_str(&String::from_utf8_lossy(n)),
                None => out.push_str(&format!("<num:{name}>")),
            },
            other => out.push_str(&format!("<{other:?}>")),
        }
    }
    out
}

#[test]
fn text_matches_in_parts() {
    let text = vec![
        Token::Bytes(b"a ".to_vec()),
        Token::Number,
        Token::Bytes(b"\r\n".to_vec()),
    ];
    let mut numbers = Numbers::new();
    for part in ["", "a", "a ", "a 1", "a 12\r"] {
        assert!(
            matches!(
                matches(&text, part.as_bytes(), &mut numbers),
                Match::Partial
            ),
            "{part:?}"
        );
    }
    assert!(matches!(
        matches(&text, b"a 12\r\nrest", &mut numbers),
        Match::Full(6)
    ));
    assert!(matches!(matches(&text, b"a x", &mut numbers), Match::No));
    assert!(matches!(matches(&text, b"b", &mut numbers), Match::No));
}

#[test]
fn numbers_are_remembered() {
    let text = vec![
        Token::Num("a".into()),
        Token::Bytes(b" ".to_vec()),
        Token::Num("a".into()),
        Token::Bytes(b"\n".to_vec()),
    ];
    assert!(matches!(
        matches(&text, b"7 7\n", &mut Numbers::new()),
        Match::Full(4)
    ));
    assert!(matches!(
        matches(&text, b"7 8\n", &mut Numbers::new()),
        Match::No
    ));
    let any = vec![Token::Any, Token::Bytes(b"END\r\n".to_vec())];
    assert!(matches!(
        matches(&any, b"xENDEND\r\n", &mut Numbers::new()),
        Match::Full(9)
    ));
    assert!(matches!(
        matches(&any, b"x\r\nEND\r\n", &mut Numbers::new()),
        Match::No
    ));
}
