// SPDX-License-Identifier: Apache-2.0
//! From bytes to commands. The parser owns what it knows about the bytes to come: the dialect, and
//! the `get` line whose keys are taken one by one.
//!
//! What it refuses, it answers itself.

mod binary; // packets
mod text; // lines of the classic and meta dialects

use senko_io::Queue;

pub(super) use binary::incomplete;

use super::{FeedState, Step};
use crate::commands::{Form, INTERNAL, Op, Request};
use crate::context::Ctx;
use crate::protocol::binary::{Header, REQUEST};
use crate::protocol::classic::Line;
use crate::protocol::meta::KeyBuf;
use crate::protocol::{BAD_FORMAT, MAX_KEY};
use crate::reply::ReplyQueue;
use crate::settings::Dialect;

#[derive(Debug)]
pub(super) struct Parser {
    dialect: Option<Dialect>,
    /// Whether another worker sends the commands.
    remote: bool,
    /// The rest of a `get` line follows: keys.
    keys: Option<Keys>,
}

/// How the keys of a `get` line are answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub cas: bool,
    pub touch: Option<i64>,
}

/// A storage command. Its value follows.
pub(super) struct NewItem<'a> {
    pub req: Request<'a>,
    pub flags: u32,
    pub expiry: u32,
    pub len: usize,
    /// Whether the key was sent in base64.
    pub base64: bool,
    /// Bytes of the line or packet before the value.
    pub used: usize,
}

/// What the next bytes are.
#[allow(clippy::large_enum_variant)] // it lives for one step
pub(super) enum Parsed<'a> {
    /// A command of one key and no value.
    Keyed(Request<'a>, usize),
    /// One key of a `get` line, and whether it is the last.
    Key(Request<'a>, Keys, bool, usize),
    Store(NewItem<'a>),
    /// A `get` line up to its keys.
    Keys(Keys, usize),
    /// A text command about the server, and whether its answer is left out.
    Line(Line<'a>, bool, usize),
    /// A binary command about the server, its extras and its key.
    Packet(Header, &'a [u8], &'a [u8], usize),
    /// No command, or a refused one.
    Nothing(Step),
}

impl Parser {
    pub fn new(remote: bool, dialect: Option<Dialect>) -> Parser {
        Parser {
            dialect,
            remote,
            keys: None,
        }
    }

    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// The dialect, which the first byte decides.
    #[inline]
    pub fn dialect_of(&mut self, first: u8) -> Dialect {
        *self.dialect.get_or_insert(match first {
            REQUEST => Dialect::Binary,
            _ => Dialect::Ascii,
        })
    }

    /// Whether a command of another worker itself begins with this byte.
    #[inline]
    pub fn is_internal(&self, first: u8) -> bool {
        self.remote && first == INTERNAL
    }

    /// Whether it is in the middle of a line of keys.
    pub fn is_in_keys(&self) -> bool {
        self.keys.is_some()
    }

    #[inline]
    pub fn next<'a>(
        &mut self,
        ctx: &Ctx<'_, impl Queue>,
        input: &'a [u8],
        room: &'a mut KeyBuf,
        out: &mut ReplyQueue,
    ) -> Parsed<'a> {
        if let Some(keys) = self.keys {
            return self.key(ctx, keys, input, out);
        }
        match self.dialect {
            Some(Dialect::Binary) => binary::packet(ctx, self.remote, input, out),
            _ => text::line(ctx, self.remote, input, room, out),
        }
    }

    /// Notes that keys follow, or (`None`) that the last one was taken.
    pub fn set_keys(&mut self, keys: Option<Keys>) {
        self.keys = keys;
    }

    /// The next key of a line of keys, or the line's end.
    #[inline]
    fn key<'a>(
        &mut self,
        ctx: &Ctx<'_, impl Queue>,
        keys: Keys,
        input: &'a [u8],
        out: &mut ReplyQueue,
    ) -> Parsed<'a> {
        let start = input.iter().take_while(|&&b| b == b' ').count();
        let rest = &input[start..];
        let Some(len) = rest.iter().position(|&b| b == b' ' || b == b'\n') else {
            if rest.len() > MAX_KEY + 1 {
                out.open().line(BAD_FORMAT);
                return Parsed::Nothing(Step::Close(input.len()));
            }
            return Parsed::Nothing(Step::Stop(start, FeedState::NeedMore));
        };
        let last = rest[len] == b'\n';
        let used = start + len + usize::from(last);
        let key = match &rest[..len] {
            [key @ .., b'\r'] if last => key,
            key => key,
        };
        if key.is_empty() {
            // Only spaces are left, so this is the end of the line.
            out.open().bytes.extend_from_slice(b"END\r\n");
            self.keys = None;
            return Parsed::Nothing(Step::Took(used));
        }
        if key.len() > MAX_KEY {
            out.open().line(BAD_FORMAT);
            return Parsed::Nothing(Step::Close(input.len()));
        }
        let op = Op::Get {
            touch: keys.touch.map(|t| ctx.expiry(t)),
            extended: keys.cas,
            last,
        };
        let form = Form::Text { noreply: false };
        let req = Request::new(ctx, self.remote, op, form, key);
        Parsed::Key(req, keys, last, used)
    }
}
