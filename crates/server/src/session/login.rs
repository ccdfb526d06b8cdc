// SPDX-License-Identifier: Apache-2.0
//! Commands that a connection may send before its user is known: name and password.
//!
//! In the ascii protocol these are the value of a `set`, as in memcached (`-Y`). The key is
//! ignored, and any other line is refused. In the binary protocol they are a SASL PLAIN message.
//! Input before the right password never reaches the parser: the session asks [`Gate::step`] first.
//!
//! ```text
//!          right password                        wrong password (SASL)
//! Locked ------------------> Known      Known ------------------------> Locked
//! ```

use senko_io::Queue;

use super::parser::incomplete;
use super::{FeedState, Step};
use crate::auth::plain;
use crate::context::Ctx;
use crate::protocol::binary::{self, Broken, HEADER, Header, Kind, Status};
use crate::protocol::classic::is_http_line;
use crate::protocol::number::plain_u32;
use crate::protocol::{MAX_LINE, Tokens, split_line};
use crate::reply::ReplyQueue;
use crate::settings::Dialect;

const MECHANISM: &[u8] = b"PLAIN";
/// Longest SASL message, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// Shortest line that is answered, in bytes without the line feed: none with a password is shorter.
/// memcached closes the connection too, so `quit` does what it says.
const SHORTEST_LINE: usize = 6;
/// Longest value that is kept to be compared, in bytes: two words of a password file are shorter.
const LONGEST_VALUE: usize = MAX_LINE - 2;
/// Longest value that counts as an attempt, in bytes, as in memcached.
const LONGEST_ATTEMPT: usize = 16 << 10;
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
const BAD_TOKEN: &str = "CLIENT_ERROR bad authentication token format";
const TOO_LONG: &str = "CLIENT_ERROR auth token too long";

/// Whether a connection needs a password, and whether it has given one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gate {
    /// It needs none.
    #[default]
    Open,
    /// It has not given the right password.
    Locked {
        /// The next bytes are name and password (ascii only).
        value: Option<Value>,
    },
    /// It has given the right password.
    Known,
}

/// Name and password, as the value of a `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Bytes that have not been taken, including the line end.
    left: usize,
    /// The value is longer than [`LONGEST_VALUE`], so it is wrong and was not kept; whether it had
    /// a space.
    wrong: Option<bool>,
}

impl Gate {
    /// The gate of a connection that needs a password.
    pub const SHUT: Gate = Gate::Locked { value: None };

    /// Handles the next bytes if they belong to a login; `None` if they are for commands.
    #[inline]
    pub fn step(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        dialect: Dialect,
        out: &mut ReplyQueue,
    ) -> Option<Step> {
        match (*self, dialect) {
            (Gate::Open, _) | (Gate::Known, Dialect::Ascii) => None,
            (Gate::Locked { value: Some(value) }, _) => Some(self.value(ctx, input, value, out)),
            (Gate::Locked { value: None }, Dialect::Ascii) => Some(self.line(ctx, input, out)),
            (Gate::Locked { .. } | Gate::Known, Dialect::Binary) => self.packet(ctx, input, out),
        }
    }

    /// `set KEY FLAGS EXPTIME BYTES`.
    fn line(&mut self, ctx: &Ctx<'_, impl Queue>, input: &[u8], out: &mut ReplyQueue) -> Step {
        if input.first() == Some(&binary::REQUEST) {
            // It would wait for an answer for ever, since no line end may come.
            return Step::HangUp(input.len());
        }
        if input.len() < 2 {
            return Step::Stop(0, FeedState::NeedMore);
        }
        let Some((line, used)) = split_line(input) else {
            if input.len() > MAX_LINE {
                return Step::Close(input.len());
            }
            return Step::Stop(0, FeedState::NeedMore);
        };
        // A page in a browser may have made such a request, with passwords to try in its body.
        if used <= SHORTEST_LINE || is_http_line(line) {
            return Step::HangUp(input.len());
        }
        let mut tokens = Tokens::new(line);
        let is_set = tokens.next() == Some(b"set");
        match tokens.nth(3).and_then(plain_u32).filter(|_| is_set) {
            Some(bytes) if bytes as usize > LONGEST_ATTEMPT => {
                out.open().line(TOO_LONG);
                // It may be a client without a password that stores an item. Its value follows,
                // unless no item could be so large.
                if bytes as usize <= ctx.shared.settings.max_item {
                    return Step::Skip(used, u64::from(bytes) + 2);
                }
            }
            Some(bytes) => {
                let value = Some(Value {
                    left: bytes as usize + 2,
                    wrong: (bytes as usize > LONGEST_VALUE).then_some(false),
                });
                *self = Gate::Locked { value };
            }
            None => out.open().line(UNAUTHENTICATED),
        }
        Step::Took(used)
    }

    /// `USER PASSWORD`. As in memcached, the password is all behind the first space.
    fn value(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        value: Value,
        out: &mut ReplyQueue,
    ) -> Step {
        if let Some(spaced) = value.wrong
            && value.left > 2
            && !input.is_empty()
        {
            let take = input.len().min(value.left - 2);
            let value = Some(Value {
                left: value.left - take,
                wrong: Some(spaced || memchr::memchr(b' ', &input[..take]).is_some()),
            });
            *self = Gate::Locked { value };
            return Step::Took(take);
        }
        let bytes = value.left;
        if input.len() < bytes {
            return Step::Stop(0, FeedState::NeedMore);
        }
        *self = Gate::SHUT;
        let text = match input[..bytes].strip_suffix(b"\r\n") {
            None => "CLIENT_ERROR bad command line termination",
            Some(text) => {
                let space = memchr::memchr(b' ', text);
                let given = space.map(|space| (&text[..space], &text[space + 1..]));
                match given {
                    None if value.wrong != Some(true) => BAD_TOKEN,
                    given => match self.admit(ctx, Dialect::Ascii, given) {
                        true => "STORED",
                        false => "CLIENT_ERROR authentication failure",
                    },
                }
            }
        };
        out.open().line(text);
        Step::Took(bytes)
    }

    /// Counts an attempt, and accepts or refuses the connection.
    fn admit(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        dialect: Dialect,
        given: Option<(&[u8], &[u8])>,
    ) -> bool {
        let auth = &ctx.shared.auth;
        let right = given.is_some_and(|(user, password)| auth.check(dialect, user, password));
        ctx.stats.auth_cmds += 1;
        ctx.stats.auth_errors += u64::from(!right);
        if !right && let Some(left_out) = ctx.shared.wrong_passwords.may(ctx.shared.clock.now_ms())
        {
            // Neither name nor password: a user may have typed one in place of the other.
            let from = ctx.entry.map_or("a client", |entry| &entry.addr);
            tracing::warn!("a wrong password came from {from}{left_out}");
        }
        *self = if right { Gate::Known } else { Gate::SHUT };
        right
    }

    /// A SASL packet, or a packet before the password.
    fn packet(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        out: &mut ReplyQueue,
    ) -> Option<Step> {
        if let Some(step) = incomplete(input) {
            return Some(step);
        }
        let header = match Header::read(input) {
            Ok(header) => header,
            // Impossible lengths get the usual answer. Nothing else is parsed before the password.
            Err(Broken::Answer(header, Status::Invalid))
                if *self != Gate::Known && !is_open_to_all(header.kind) =>
            {
                header
            }
            Err(_) => return None,
        };
        if header.kind == Kind::Sasl {
            return Some(self.sasl(ctx, input, &header, out));
        }
        if *self == Gate::Known || is_open_to_all(header.kind) {
            return None;
        }
        let out = &mut out.open().bytes;
        header.loud().refuse(out, Status::AuthError);
        Some(Step::Close(input.len()))
    }

    /// A SASL opcode: 0x20 lists the mechanisms, 0x21 starts an authentication, 0x22 continues it.
    fn sasl(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        header: &Header,
        out: &mut ReplyQueue,
    ) -> Step {
        let used = HEADER + header.key_len;
        let head = header.loud();
        if header.opcode == 0x20 {
            let out = &mut out.open().bytes;
            head.push(out, Status::Success, 0, 0, MECHANISM.len(), 0);
            out.extend_from_slice(MECHANISM);
            return Step::Took(used);
        }
        let whole = used + header.value_len;
        let fits = header.value_len <= LONGEST_MESSAGE;
        if input.len() < if fits { whole } else { used } {
            return Step::Stop(0, FeedState::NeedMore);
        }
        // PLAIN needs only its first message, so there is nothing to continue.
        let asked = header.opcode == 0x21 && &input[HEADER..used] == MECHANISM && fits;
        let given = asked.then(|| plain(&input[used..whole])).flatten();
        let right = self.admit(ctx, Dialect::Binary, given);
        let out = &mut out.open().bytes;
        if right {
            let text = b"Authenticated";
            head.push(out, Status::Success, 0, 0, text.len(), 0);
            out.extend_from_slice(text);
        } else {
            head.refuse(out, Status::AuthError);
        }
        match fits {
            true => Step::Took(whole),
            false => Step::Skip(used, header.value_len as u64),
        }
    }
}

/// Commands that memcached answers without a password.
fn is_open_to_all(kind: Kind) -> bool {
    matches!(kind, Kind::Version | Kind::Sasl)
}
