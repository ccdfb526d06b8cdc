// SPDX-License-Identifier: Apache-2.0
//! Requests and replies on the wire: a command as the checker knows it, and its reply as read from
//! the socket.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub type Bytes = Arc<Vec<u8>>;

/// How a storage command stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// The effect of a command on one key. Expiries are absolute Unix seconds (0: never).
#[derive(Clone, Debug)]
pub enum Act {
    Get {
        touch: Option<u32>,
    },
    Store {
        mode: Mode,
        value: Bytes,
        flags: u32,
        expiry: u32,
        compare: u64,
        /// Append and prepend make a missing item.
        vivify: bool,
    },
    Delete {
        compare: u64,
    },
    Arith {
        incr: bool,
        delta: u64,
        initial: Option<(u64, u32)>,
    },
    Touch {
        expiry: u32,
    },
    MetaGet,
    /// `md` with `I`, and possibly a new expiry.
    Invalidate {
        expiry: Option<u32>,
    },
    /// `flush_all`; its key number has no meaning.
    Flush,
    /// The last command of a batch, `mn` or the binary noop.
    Mark,
}

/// The dialect of a command, and everything that determines its reply.
#[derive(Clone, Debug)]
pub enum Form {
    Text {
        noreply: bool,
        cas: bool,
    },
    /// The flags in the order in which they were sent, each with its number (times are absolute).
    Meta {
        flags: Vec<(u8, u64)>,
    },
    Binary {
        opcode: u8,
        quiet: bool,
        opaque: u32,
    },
}

impl Form {
    pub fn flag(&self, letter: u8) -> Option<u64> {
        match self {
            Form::Meta { flags } => flags.iter().find(|f| f.0 == letter).map(|f| f.1),
            _ => None,
        }
    }
}

/// A command: one key, or, for a `get` of many, several.
#[derive(Clone, Debug)]
pub struct Command {
    pub form: Form,
    pub parts: Vec<(usize, Act)>,
}

/// A reply for one key of a command, without the parts that must not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Silent,
    /// Text and meta: the line without its end (empty: a missing key of a `get`), and the value if
    /// one followed. Binary: status, extras and key; the rest of the body.
    Said {
        head: Vec<u8>,
        value: Option<Bytes>,
        /// The CAS value, if the reply has one.
        cas: u64,
    },
}

/// The reading half of a connection.
pub struct Reader {
    stream: Box<dyn Read + Send>,
    buf: Vec<u8>,
    at: usize,
    /// The time (of the test's own counter) at which all bytes read so far had arrived.
    pub came: u64,
}

impl Reader {
    pub fn new(stream: impl Read + Send + 'static) -> Reader {
        Reader {
            stream: Box::new(stream),
            buf: Vec::new(),
            at: 0,
            came: 0,
        }
    }

    /// Whether the stream has ended, and everything was taken.
    pub fn is_done(&mut self) -> bool {
        self.at == self.buf.len() && self.stream.read(&mut [0]).is_ok_and(|got| got == 0)
    }

    /// Reads until there are `n` bytes.
    fn need(&mut self, n: usize, time: &AtomicU64) {
        while self.buf.len() - self.at < n {
            if self.at > 1 << 20 {
                self.buf.drain(..self.at);
                self.at = 0;
            }
            let mut piece = [0; 16 << 10];
            let got = match self.stream.read(&mut piece) {
                Ok(got) => got,
                Err(error) => panic!("{error}, with {:?} unread", show(&self.buf[self.at..])),
            };
            assert!(
                got > 0,
                "the server closed the connection, with {:?} unread",
                show(&self.buf[self.at..])
            );
            self.buf.extend_from_slice(&piece[..got]);
            self.came = time.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Bytes of the next line, its end included.
    fn line_len(&mut self, time: &AtomicU64) -> usize {
        let mut from = 0;
        loop {
            if let Some(end) = self.buf[self.at + from..].iter().position(|&b| b == b'\n') {
                return from + end + 1;
            }
            from = self.buf.len() - self.at;
            self.need(from + 1, time);
        }
    }

    fn take(&mut self, n: usize, time: &AtomicU64) -> Vec<u8> {
        self.need(n, time);
        let bytes = self.buf[self.at..self.at + n].to_vec();
        self.at += n;
        bytes
    }

    fn peek_line(&mut self, time: &AtomicU64) -> &[u8] {
        let len = self.line_len(time);
        let line = &self.buf[self.at..self.at + len];
        line.strip_suffix(b"\r\n").unwrap_or(line)
    }

    fn line(&mut self, time: &AtomicU64) -> Vec<u8> {
        let len = self.line_len(time);
        let mut line = self.take(len, time);
        assert!(
            line.ends_with(b"\r\n"),
            "a line that ends in a bare newline: {:?}",
            show(&line)
        );
        line.truncate(len - 2);
        line
    }

    /// A value of this many bytes, and its line end.
    fn value(&mut self, len: usize, time: &AtomicU64) -> Bytes {
        let mut value = self.take(len + 2, time);
        assert_eq!(
            &value[len..],
            b"\r\n",
            "what follows a value of {len} bytes"
        );
        value.truncate(len);
        Arc::new(value)
    }

    /// The whole reply of a command: one for each key.
    pub fn replies(
        &mut self,
        command: &Command,
        names: &[Vec<u8>],
        time: &AtomicU64,
    ) -> Vec<Reply> {
        match &command.form {
            Form::Binary { quiet, opaque, .. } => vec![self.packet(*quiet, *opaque, time)],
            Form::Text { noreply: true, .. } => {
                // A silent command is done when a reply to a later command arrives; a batch ends
                // with a command that is answered.
                self.need(1, time);
                vec![Reply::Silent]
            }
            Form::Text { .. } => match command.parts[0].1 {
                Act::Get { .. } => self.values(command, names, time),
                _ => vec![said(self.line(time), None, 0)],
            },
            Form::Meta { .. } => vec![self.meta(&command.form, time)],
        }
    }

    fn values(&mut self, command: &Command, names: &[Vec<u8>], time: &AtomicU64) -> Vec<Reply> {
        let mut all = Vec::new();
        for (key, _) in &command.parts {
            let line = self.peek_line(time);
            let mut tokens = line.split(|&b| b == b' ');
            if tokens.next() != Some(b"VALUE") || tokens.next() != Some(&names[*key][..]) {
                all.push(said(Vec::new(), None, 0));
                continue;
            }
            let head = self.line(time);
            let numbers: Vec<u64> = head
                .split(|&b| b == b' ')
                .skip(2)
                .map(|t| std::str::from_utf8(t).unwrap().parse().unwrap())
                .collect();
            let value = self.value(numbers[1] as usize, time);
            all.push(said(
                head,
                Some(value),
                numbers.get(2).copied().unwrap_or(0),
            ));
        }
        let end = self.line(time);
        assert!(
            end == b"END",
            "{:?} where END was expected, after {:?}",
            show(&end),
            all.iter().map(head_of).collect::<Vec<_>>()
        );
        all
    }

    fn meta(&mut self, form: &Form, time: &AtomicU64) -> Reply {
        if form.flag(b'q').is_some() {
            let ours = format!("O{}", form.flag(b'O').unwrap());
            let line = self.peek_line(time);
            if !line.split(|&b| b == b' ').any(|t| t == ours.as_bytes()) {
                return Reply::Silent;
            }
        }
        let head = self.line(time);
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut tokens = text.split(' ');
        let code = tokens.next().unwrap();
        let value = (code == "VA").then(|| {
            let len = tokens.next().unwrap().parse().unwrap();
            self.value(len, time)
        });
        let mut cas = 0;
        if form.flag(b'c').is_some() && (code == "VA" || code == "HD") {
            cas = tokens
                .find_map(|t| t.strip_prefix('c'))
                .and_then(|t| t.parse().ok())
                .unwrap();
        }
        said(head, value, cas)
    }

    fn packet(&mut self, quiet: bool, opaque: u32, time: &AtomicU64) -> Reply {
        self.need(24, time);
        let b = &self.buf[self.at..self.at + 24];
        let word = |at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
        if quiet && word(12) != opaque {
            return Reply::Silent;
        }
        assert_eq!((b[0], word(12)), (0x81, opaque), "magic byte and opaque");
        let (key, extras) = (usize::from(b[2]) << 8 | usize::from(b[3]), b[4] as usize);
        let body = word(8) as usize;
        let cas = u64::from(word(16)) << 32 | u64::from(word(20));
        let mut head = b[6..8].to_vec();
        self.at += 24;
        let mut body = self.take(body, time);
        let value = body.split_off(key + extras);
        head.extend_from_slice(&body);
        said(head, Some(Arc::new(value)), cas)
    }
}

pub fn said(head: Vec<u8>, value: Option<Bytes>, cas: u64) -> Reply {
    Reply::Said { head, value, cas }
}

pub fn head_of(reply: &Reply) -> String {
    match reply {
        Reply::Silent => "(nothing)".to_owned(),
        Reply::Said { head, value, cas } => {
            let value = value
                .as_ref()
                .map(|v| format!(" + {} bytes {:?}", v.len(), show(v)));
            format!("{:?}{} cas {cas}", show(head), value.unwrap_or_default())
        }
    }
}

/// The beginning of some bytes, in readable form.
pub fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(70)].escape_ascii().to_string()
}

/// A command for a message.
pub fn short(act: &Act) -> String {
    match act {
        Act::Store {
            mode,
            value,
            flags,
            expiry,
            compare,
            ..
        } => format!(
            "{mode:?} of {} bytes {:?}, flags {flags}, expiry {expiry}, compare {compare}",
            value.len(),
            show(value)
        ),
        other => format!("{other:?}"),
    }
}
