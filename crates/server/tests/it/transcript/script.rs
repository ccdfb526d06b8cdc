// SPDX-License-Identifier: Apache-2.0
//! Parses transcript files (`tests/transcripts/README.md` describes them) into steps. The only I/O
//! is reading the file; every error names its line.

use std::path::Path;

/// A part of a text, sent or expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Anything within a line.
    Any,
    /// A decimal number.
    Number,
    /// A number in a range, both ends included.
    Range(i64, i64),
    /// A number that is stored under a name; in sent text, the stored number.
    Num(String),
    /// A number other than the stored one.
    Not(String),
}

/// A text made of parts.
pub type Text = Vec<Token>;

/// A packet of the binary protocol, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    pub op: u8,
    pub status: u16,
    pub data_type: u8,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Text,
    pub opaque: u32,
    pub cas: Text,
    pub key_len: Option<u16>,
    pub body_len: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Text(Text),
    Packet(Packet),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These texts, one after the other, in full.
    Texts(Text),
    /// Lines that occur anywhere in an answer that ends with `END`.
    Somewhere(Vec<Text>),
    /// Packets in order.
    Packets(Vec<Packet>),
}

/// Bytes to send, and the expected answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub sent: Vec<Sent>,
    pub memcached: Expected,
    pub senko: Expected,
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Exchange(Box<Exchange>),
    Connection(String),
    Pause,
    Sleep(f64),
    Demote,
    Closed,
}

/// One case: a fresh connection, an empty cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    pub name: String,
    pub line: usize,
    /// memcached's options.
    pub options: Vec<String>,
    /// Newer than the reference.
    pub since: Option<String>,
    /// Leaves half a request unsent.
    pub unfinished: bool,
    /// Steps with their line numbers.
    pub steps: Vec<(usize, Step)>,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub name: String,
    pub cases: Vec<Case>,
}

impl Script {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Script, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let folder = path
            .parent()
            .and_then(|p| p.file_name())
            .unwrap_or_default();
        let file = path.file_name().unwrap_or_default();
        let name = format!("{}/{}", folder.to_string_lossy(), file.to_string_lossy());
        let cases = parse(&text).map_err(|e| format!("{name}:{e}"))?;
        Ok(Script { name, cases })
    }
}

/// The exchange that is being read.
#[derive(Default)]
struct Open {
    line: usize,
    sent: Vec<Sent>,
    /// Answers with their server: `None` means both servers.
    answers: Vec<(Option<char>, Answer)>,
    silent: bool,
}

enum Answer {
    Text(Text),
    Somewhere(Text),
    Packet(Packet),
}

fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut open = Open::default();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |e: String| format!("{number}: {e}");
        if line.starts_with('#') || (line.is_empty() && open.sent.is_empty()) {
            continue;
        }
        if let Some(name) = line.strip_prefix("@case ") {
            finish(&mut cases, &mut open).map_err(fail)?;
            cases.push(Case {
                name: name.to_owned(),
                line: number,
                ..Case::default()
            });
            continue;
        }
        if cases.is_empty() {
            return Err(format!(
                "{number}: nothing but comments may stand before the first @case"
            ));
        }
        if is_sent(line) {
            if !open.answers.is_empty() || open.silent {
                finish(&mut cases, &mut open).map_err(fail)?;
            }
            if open.sent.is_empty() {
                open.line = number;
            }
            open.sent.push(parse_sent(line).map_err(fail)?);
        } else if matches!(line, "<-" | "m<-" | "s<-") {
            open.silent = true;
        } else if line.starts_with('@') {
            finish(&mut cases, &mut open).map_err(fail)?;
            let case = cases.last_mut().expect("checked above");
            directive(case, number, line).map_err(fail)?;
        } else if !line.is_empty() {
            open.answers.push(parse_expected(line).map_err(fail)?);
        }
    }
    finish(&mut cases, &mut open)?;
    Ok(cases)
}

fn directive(case: &mut Case, number: usize, line: &str) -> Result<(), String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let step = match word {
        "@server" => {
            case.options = rest.split_whitespace().map(str::to_owned).collect();
            return Ok(());
        }
        "@since" => {
            case.since = Some(rest.to_owned());
            return Ok(());
        }
        "@unfinished" => {
            case.unfinished = true;
            return Ok(());
        }
        "@differs" if !rest.is_empty() => return Ok(()),
        "@conn" if !rest.is_empty() => Step::Connection(rest.to_owned()),
        "@pause" => Step::Pause,
        "@sleep" => Step::Sleep(
            rest.parse()
                .map_err(|_| "@sleep takes seconds".to_owned())?,
        ),
        "@demote" => Step::Demote,
        "@closed" => Step::Closed,
        _ => return Err(format!("unknown directive {line:?}")),
    };
    case.steps.push((number, step));
    Ok(())
}

/// Ends the open exchange and adds it to the last case.
fn finish(cases: &mut [Case], open: &mut Open) -> Result<(), String> {
    let open = std::mem::take(open);
    if open.sent.is_empty() {
        return if open.answers.is_empty() {
            Ok(())
        } else {
            Err("an answer to nothing".to_owned())
        };
    }
    if open.answers.is_empty() && !open.silent {
        return Err(format!(
            "line {} has no answer: write <- if there is none",
            open.line
        ));
    }
    let memcached = answer_for('m', &open.answers)?;
    let senko = answer_for('s', &open.answers)?;
    let case = cases
        .last_mut()
        .ok_or("an exchange before the first @case")?;
    case.steps.push((
        open.line,
        Step::Exchange(Box::new(Exchange {
            sent: open.sent,
            memcached,
            senko,
        })),
    ));
    Ok(())
}

fn answer_for(server: char, answers: &[(Option<char>, Answer)]) -> Result<Expected, String> {
    let mine: Vec<&Answer> = answers
        .iter()
        .filter(|(who, _)| who.is_none_or(|c| c == server))
        .map(|(_, a)| a)
        .collect();
    let packets: Vec<Packet> = (mine.iter())
        .filter_map(|answer| match answer {
            Answer::Packet(packet) => Some(packet.clone()),
            _ => None,
        })
        .collect();
    if !packets.is_empty() {
        return if packets.len() == mine.len() {
            Ok(Expected::Packets(packets))
        } else {
            Err("packets and text in one answer".to_owned())
        };
    }
    let somewhere: Vec<Text> = (mine.iter())
        .filter_map(|answer| match answer {
            Answer::Somewhere(text) => Some(text.clone()),
            _ => None,
        })
        .collect();
    if !somewhere.is_empty() {
        return Ok(Expected::Somewhere(somewhere));
    }
    let mut all = Text::new();
    for answer in mine {
        if let Answer::Text(text) = answer {
            for token in text {
                push(&mut all, token.clone());
            }
        }
    }
    Ok(Expected::Texts(all))
}

fn is_sent(line: &str) -> bool {
    line == ">"
        || ["> ", ">> ", "b> ", "x> "]
            .iter()
            .any(|p| line.starts_with(p))
}

fn parse_sent(line: &str) -> Result<Sent, String> {
    if let Some(rest) = line.strip_prefix("b> ") {
        return Ok(Sent::Packet(parse_packet(rest)?));
    }
    if let Some(rest) = line.strip_prefix("x> ") {
        return Ok(Sent::Text(vec![Token::Bytes(hex(&rest.replace(' ', ""))?)]));
    }
    if let Some(rest) = line.strip_prefix(">> ") {
        return Ok(Sent::Text(parse_text(rest)?));
    }
    Ok(Sent::Text(with_line_end(parse_text(
        line[1..].strip_prefix(' ').unwrap_or(""),
    )?)))
}

fn parse_expected(line: &str) -> Result<(Option<char>, Answer), String> {
    let (who, line) = match line.as_bytes() {
        [b'm', b'<' | b'b', ..] => (Some('m'), &line[1..]),
        [b's', b'<' | b'b', ..] => (Some('s'), &line[1..]),
        _ => (None, line),
    };
    let answer = if let Some(rest) = line.strip_prefix("b< ") {
        Answer::Packet(parse_packet(rest)?)
    } else if let Some(rest) = line.strip_prefix("<? ") {
        Answer::Somewhere(parse_text(rest)?)
    } else if let Some(rest) = line.strip_prefix("<< ") {
        Answer::Text(parse_text(rest)?)
    } else if line == "<" {
        Answer::Text(with_line_end(Text::new()))
    } else if let Some(rest) = line.strip_prefix("< ") {
        Answer::Text(with_line_end(parse_text(rest)?))
    } else {
        return Err(format!("not a line of a transcript: {line:?}"));
    };
    Ok((who, answer))
}

fn with_line_end(mut text: Text) -> Text {
    push(&mut text, Token::Bytes(b"\r\n".to_vec()));
    text
}

/// Adds a token, joining bytes with bytes.
fn push(text: &mut Text, token: Token) {
    if let (Some(Token::Bytes(last)), Token::Bytes(more)) = (text.last_mut(), &token) {
        last.extend_from_slice(more);
    } else {
        text.push(token);
    }
}

fn parse_text(line: &str) -> Result<Text, String> {
    let mut text = Text::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let (token, used) = match c {
            '\\' => escape(rest)?,
            '<' => wildcard(rest)?,
            _ => (Token::Bytes(c.to_string().into_bytes()), c.len_utf8()),
        };
        push(&mut text, token);
        rest = &rest[used..];
    }
    Ok(text)
}

fn escape(rest: &str) -> Result<(Token, usize), String> {
    let bad = || format!("unknown escape at {rest:?}");
    let one = |b: u8| Ok((Token::Bytes(vec![b]), 2));
    match rest.as_bytes().get(1) {
        Some(b'r') => one(b'\r'),
        Some(b'n') => one(b'\n'),
        Some(b't') => one(b'\t'),
        Some(b's') => one(b' '),
        Some(b @ (b'\\' | b'<')) => one(*b),
        Some(b'x') => Ok((Token::Bytes(hex(rest.get(2..4).ok_or_else(bad)?)?), 4)),
        Some(b'{') => {
            let end = rest.find('}').ok_or_else(bad)?;
            let (count, byte) = rest[2..end].split_once('*').ok_or_else(bad)?;
            let count: usize = count.parse().map_err(|_| bad())?;
            Ok((Token::Bytes(byte.as_bytes().repeat(count)), end + 1))
        }
        _ => Err(bad()),
    }
}

fn wildcard(rest: &str) -> Result<(Token, usize), String> {
    let bad = || format!("unknown wildcard at {rest:?}");
    let end = rest.find('>').ok_or_else(bad)?;
    let inner = &rest[1..end];
    let token = if inner == "*" {
        Token::Any
    } else if inner == "#" {
        Token::Number
    } else if let Some(name) = inner.strip_prefix("num:") {
        Token::Num(name.to_owned())
    } else if let Some(name) = inner.strip_prefix("not:") {
        Token::Not(name.to_owned())
    } else {
        let (low, high) = inner.split_once("..").ok_or_else(bad)?;
        Token::Range(
            low.parse().map_err(|_| bad())?,
            high.parse().map_err(|_| bad())?,
        )
    };
    Ok((token, end + 1))
}

/// The names of the binary protocol's commands, by number.
const OPS: &str = "\
    get set add replace delete increment decrement quit flush getq noop version getk \
    getkq append prepend stat setq addq replaceq deleteq incrementq decrementq quitq \
    flushq appendq prependq verbosity touch gat gatq";

fn parse_packet(line: &str) -> Result<Packet, String> {
    let mut packet = Packet {
        cas: vec![Token::Bytes(b"0".to_vec())],
        ..Packet::default()
    };
    for word in line.split_whitespace() {
        let (field, value) = word
            .split_once('=')
            .ok_or_else(|| format!("{word:?} is not field=value"))?;
        let number = |radix| {
            u64::from_str_radix(value, radix).map_err(|_| format!("{word:?} is not a number"))
        };
        match field {
            "op" => packet.op = op_number(value)?,
            "status" => packet.status = number(16)? as u16,
            "type" => packet.data_type = number(16)? as u8,
            "extras" => packet.extras = hex(value)?,
            "key" => packet.key = only_bytes(parse_text(value)?)?,
            "value" => packet.value = parse_text(value)?,
            "opaque" => packet.opaque = number(16)? as u32,
            "cas" => packet.cas = parse_text(value)?,
            "keylen" => packet.key_len = Some(number(10)? as u16),
            "bodylen" => packet.body_len = Some(number(10)? as u32),
            _ => return Err(format!("unknown field {field:?}")),
        }
    }
    Ok(packet)
}

fn op_number(name: &str) -> Result<u8, String> {
    match name {
        "sasl_list" => Ok(0x20),
        "sasl_auth" => Ok(0x21),
        "gatk" => Ok(0x23),
        "gatkq" => Ok(0x24),
        _ => match OPS.split(' ').position(|n| n == name) {
            Some(i) => Ok(i as u8),
            None => u8::from_str_radix(name, 16).map_err(|_| format!("unknown command {name:?}")),
        },
    }
}

fn only_bytes(text: Text) -> Result<Vec<u8>, String> {
    match text.as_slice() {
        [] => Ok(Vec::new()),
        [Token::Bytes(bytes)] => Ok(bytes.clone()),
        _ => Err("a key has no wildcards".to_owned()),
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(format!("{text:?} is not hex"));
    }
    (0..text.len())
        .step_by(2)
        .map(|i| {
            u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| format!("{text:?} is not hex"))
        })
        .collect()
}

#[test]
fn refuses_what_it_does_not_know() {
    for bad in [
        "> get k",
        "@case a\n> get k\n",
        "@case a\n@nothing\n",
        "@case a\n> \\q\n<-\n",
        "@case a\n> k\n< <what>\n",
        "@case a\nhello\n",
    ] {
        assert!(parse(bad).is_err(), "{bad:?} was taken");
    }
}
