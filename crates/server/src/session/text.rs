// SPDX-License-Identifier: Apache-2.0
//! The classic and meta protocols: from lines to requests.

use senko_cache::{HashSeed, Key};
use senko_io::Queue;

use super::storing::NewItem;
use super::{FeedState, Session, State, Step, Wait};
use crate::commands::{self, Asked, Dump, Form, Op, Request};
use crate::context::Ctx;
use crate::protocol::classic::{self, Line, StoreMode};
use crate::protocol::meta::{self, Clock, KeyBuf};
use crate::protocol::number::expiry;
use crate::protocol::{BAD_FORMAT, MAX_KEY, MAX_LINE, Tokens, split_line};

/// How many spaces may come before a long `get`.
const MAX_INDENT: usize = 100;

impl Session {
    /// Runs one line.
    pub(super) fn step_line<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8]) -> Step {
        let Some((text, used)) = split_line(input) else {
            return self.unended_line(input);
        };
        match classic::parse(text) {
            Ok(Line::Get { cas, touch, keys }) => self.get_line(ctx, input, used, cas, touch, keys),
            Ok(Line::Store {
                mode,
                key,
                flags,
                exptime,
                len,
                cas,
                noreply,
            }) => {
                let compare = (mode == StoreMode::Cas).then_some(cas);
                let req = self.request(
                    ctx.shared.settings.hash_seed,
                    Op::Store { mode, compare },
                    Form::Text { noreply },
                    key,
                    &[],
                );
                let expiry = self.expiry(ctx, exptime);
                self.begin_store(
                    ctx,
                    input,
                    NewItem {
                        req,
                        flags,
                        expiry,
                        len,
                        base64: false,
                        used,
                    },
                )
            }
            Ok(Line::Delete { key, noreply }) => self.keyed(
                ctx,
                input,
                used,
                Op::Delete { compare: 0 },
                Form::Text { noreply },
                key,
                &[],
            ),
            Ok(Line::Arith {
                key,
                incr,
                delta,
                noreply,
            }) => {
                let op = Op::Arith {
                    incr,
                    delta,
                    compare: 0,
                    initial: None,
                };
                self.keyed(ctx, input, used, op, Form::Text { noreply }, key, &[])
            }
            Ok(Line::Touch {
                key,
                exptime,
                noreply,
            }) => {
                let expiry = self.expiry(ctx, exptime);
                self.keyed(
                    ctx,
                    input,
                    used,
                    Op::Touch { expiry },
                    Form::Text { noreply },
                    key,
                    &[],
                )
            }
            Ok(Line::Http) => self.hang_up(input.len()),
            // Its connection accepts no more commands, so earlier ones are answered first.
            Ok(Line::Watch(_)) if self.replies.waiting() > 0 => {
                Step::Stop(0, FeedState::Blocked(Wait::Fetch))
            }
            Ok(Line::Meta { which, rest }) => self.meta_line(ctx, input, used, which, rest),
            // Commands that read or stop all shards wait until earlier commands have taken effect.
            Ok(Line::LruCrawler(_) | Line::Shutdown(_)) if self.replies.waiting() > 0 => {
                Step::Stop(0, FeedState::Blocked(Wait::Fetch))
            }
            // It asks for counters only when it has a turn to use them.
            Ok(Line::Stats(_)) if ctx.work.heavy == 0 => {
                Step::Stop(0, FeedState::Blocked(Wait::Heavy))
            }
            Ok(Line::Stats(_)) if !self.counters_ready(ctx) => {
                Step::Stop(0, FeedState::Blocked(Wait::Fetch))
            }
            // This reads the certificate's files and checks its signatures.
            Ok(
                Line::Stats(_)
                | Line::LruCrawler(_)
                | Line::MemLimit { .. }
                | Line::RefreshCerts { .. },
            ) if !self.take_heavy(ctx) => Step::Stop(0, FeedState::Blocked(Wait::Heavy)),
            Ok(Line::FlushAll { delay, noreply }) => self.flush_line(ctx, used, delay, noreply),
            Ok(Line::Stats(rest)) => {
                let place = self.replies.begin();
                let dump = commands::text_stats(ctx, rest, self.replies.at(place));
                if let Some(kind) = dump {
                    self.state = State::Dump(Box::new(Dump::new(kind)));
                }
                Step::Took(used)
            }
            Ok(line) => {
                let place = self.replies.begin();
                let start = self.replies.at(place).bytes.len();
                match commands::admin(ctx, &line, self.replies.at(place)) {
                    Asked::Nothing => {
                        if classic::ends_with_noreply(text) && line.may_be_silent() {
                            self.replies.at(place).bytes.truncate(start);
                        }
                        Step::Took(used)
                    }
                    Asked::Close => self.close(used),
                    Asked::Watch(watcher) => {
                        self.watcher = Some(watcher);
                        self.state = State::Watching;
                        Step::Took(used)
                    }
                    Asked::Dump(kind) => {
                        self.state = State::Dump(Box::new(Dump::new(kind)));
                        Step::Took(used)
                    }
                }
            }
            Err(refusal) => {
                if !refusal.silent {
                    self.say(refusal.text);
                }
                self.skip_value(refusal.skip, used)
            }
        }
    }

    /// Appends a line to the answers.
    pub(super) fn say(&mut self, text: &str) {
        let place = self.replies.begin();
        self.replies.at(place).line(text);
    }

    /// Continues after a refused line of `used` bytes. A value that belongs to the line must not
    /// run as commands.
    fn skip_value(&mut self, bytes: usize, used: usize) -> Step {
        if bytes > 0 {
            self.state = State::Skip(bytes as u64);
        }
        Step::Took(used)
    }

    /// Closes because of what the client sent.
    pub(super) fn hang_up(&mut self, used: usize) -> Step {
        self.hung_up = true;
        self.close(used)
    }

    pub(super) fn close(&mut self, used: usize) -> Step {
        self.state = State::Closed;
        Step::Took(used)
    }

    pub(super) fn request<'a>(
        &self,
        seed: HashSeed,
        op: Op,
        form: Form,
        key: &'a [u8],
        text: &'a [u8],
    ) -> Request<'a> {
        Request {
            op,
            form,
            key: Key::new(key, seed),
            text,
            remote: self.remote,
        }
    }

    fn expiry<Q: Queue>(&self, ctx: &Ctx<'_, Q>, exptime: i64) -> u32 {
        expiry(exptime, ctx.shard.now(), ctx.shared.started)
    }

    /// Handles a line without its end. Only a `get` may be longer than [`MAX_LINE`]: its keys are
    /// answered as they arrive.
    fn unended_line(&mut self, input: &[u8]) -> Step {
        if input.len() <= MAX_LINE {
            return Step::Stop(0, FeedState::NeedMore);
        }
        let indent = input.iter().take_while(|&&b| b == b' ').count();
        let command = &input[indent..];
        let (cas, name) = match command {
            [b'g', b'e', b't', b' ', ..] => (false, 4),
            [b'g', b'e', b't', b's', b' ', ..] => (true, 5),
            _ => return self.hang_up(input.len()),
        };
        if indent > MAX_INDENT {
            return self.hang_up(input.len());
        }
        self.state = State::Keys {
            cas,
            touch: None,
            checked: false,
        };
        Step::Took(indent + name)
    }

    /// Runs a command with one key and no value.
    #[allow(clippy::too_many_arguments)]
    fn keyed<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        used: usize,
        op: Op,
        form: Form,
        key: &[u8],
        text: &[u8],
    ) -> Step {
        let req = self.request(ctx.shared.settings.hash_seed, op, form, key, text);
        if let Some(shard) = self.other_shard(ctx, &req.key) {
            if !self.read_across(ctx, shard, &req) {
                self.forward(ctx, shard, &input[..used], 0);
            }
        } else if self.hazard(&req.op, req.key.hash) {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        } else {
            self.execute(ctx, &req, None);
        }
        Step::Took(used)
    }

    /// Checks a whole line of keys.
    fn get_line<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        used: usize,
        cas: bool,
        touch: Option<i64>,
        keys: &[u8],
    ) -> Step {
        let mut tokens = Tokens::new(keys);
        let first = tokens.next().unwrap_or(&[]);
        if first.len() > MAX_KEY || tokens.clone().any(|key| key.len() > MAX_KEY) {
            // One invalid key makes the line invalid, as in memcached.
            self.say(BAD_FORMAT);
            return Step::Took(used);
        }
        if !first.is_empty() && tokens.next().is_none() {
            // The usual case: one key.
            let op = Op::Get {
                touch: touch.map(|t| self.expiry(ctx, t)),
                extended: cas,
                last: true,
            };
            return self.keyed(
                ctx,
                input,
                used,
                op,
                Form::Text { noreply: false },
                first,
                &[],
            );
        }
        self.state = State::Keys {
            cas,
            touch,
            checked: true,
        };
        // The keys are taken one by one, up to the line's end.
        Step::Took(keys.as_ptr() as usize - input.as_ptr() as usize)
    }

    /// Handles the next key of a `get` line, or its end.
    pub(super) fn step_keys<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        cas: bool,
        touch: Option<i64>,
        checked: bool,
    ) -> Step {
        let start = input.iter().take_while(|&&b| b == b' ').count();
        let rest = &input[start..];
        let Some(len) = rest.iter().position(|&b| b == b' ' || b == b'\n') else {
            if rest.len() > MAX_KEY + 1 {
                self.say(BAD_FORMAT);
                return self.close(input.len());
            }
            return Step::Stop(start, FeedState::NeedMore);
        };
        let ends = rest[len] == b'\n';
        let key = match &rest[..len] {
            [key @ .., b'\r'] if ends => key,
            key => key,
        };
        if key.is_empty() {
            // Only spaces are left, so the end of the line comes next.
            let place = self.replies.begin();
            self.replies.at(place).bytes.extend_from_slice(b"END\r\n");
            self.state = State::Command;
            return Step::Took(start + len + 1);
        }
        if key.len() > MAX_KEY {
            debug_assert!(!checked);
            self.say(BAD_FORMAT);
            return self.close(input.len());
        }
        let op = Op::Get {
            touch: touch.map(|t| self.expiry(ctx, t)),
            extended: cas,
            last: ends,
        };
        let req = self.request(
            ctx.shared.settings.hash_seed,
            op,
            Form::Text { noreply: false },
            key,
            &[],
        );
        if let Some(shard) = self.other_shard(ctx, &req.key) {
            if !self.read_across(ctx, shard, &req) {
                self.forward_key(ctx, shard, key, cas, touch, ends);
            }
        } else if self.hazard(&op, req.key.hash) {
            return Step::Stop(start, FeedState::Blocked(Wait::Fetch));
        } else {
            self.execute(ctx, &req, None);
        }
        if ends {
            self.state = State::Command;
        }
        Step::Took(start + len + usize::from(ends))
    }

    fn flush_line<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        used: usize,
        delay: Option<i64>,
        noreply: bool,
    ) -> Step {
        let text = match commands::parse_flush(ctx, delay) {
            Err(text) => text,
            Ok(_) if self.replies.waiting() > 0 => {
                return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
            }
            Ok(due) => {
                commands::flush_all(ctx, due);
                "OK"
            }
        };
        if !noreply {
            self.say(text);
        }
        Step::Took(used)
    }

    fn meta_line<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        used: usize,
        which: u8,
        rest: &[u8],
    ) -> Step {
        let clock = Clock {
            now: ctx.shard.now(),
            started: ctx.shared.started,
        };
        let mut room: KeyBuf = [0; MAX_KEY];
        let parsed = match which {
            b'n' => {
                self.say("MN");
                return Step::Took(used);
            }
            b'g' => meta::keyed(rest, clock, &mut room).map(|c| (Op::MetaGet(c.flags), c)),
            b'd' => meta::keyed(rest, clock, &mut room).map(|c| (Op::MetaDelete(c.flags), c)),
            b'a' => meta::arith(rest, clock, &mut room).and_then(|c| {
                let incr = meta::arith_mode(&c.flags)?;
                Ok((
                    Op::MetaArith {
                        incr,
                        flags: c.flags,
                    },
                    c,
                ))
            }),
            b'e' => meta::debug(rest, &mut room).map(|c| {
                (
                    Op::MetaDebug {
                        base64: c.flags.base64,
                    },
                    c,
                )
            }),
            _ => match meta::store(rest, clock, &mut room) {
                Ok((command, mode, len)) => {
                    let flags = command.flags;
                    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
                    let expiry = match flags.vivify {
                        Some(expiry) if joins => expiry,
                        _ => flags.ttl.unwrap_or(0),
                    };
                    let req = self.request(
                        ctx.shared.settings.hash_seed,
                        Op::MetaStore { mode, flags },
                        Form::Meta,
                        command.key,
                        command.text,
                    );
                    let item = NewItem {
                        req,
                        flags: flags.client_flags,
                        expiry,
                        len,
                        base64: flags.base64,
                        used,
                    };
                    return self.begin_store(ctx, input, item);
                }
                Err(refusal) => Err(refusal),
            },
        };
        match parsed {
            Ok((op, command)) => {
                self.keyed(ctx, input, used, op, Form::Meta, command.key, command.text)
            }
            Err(refusal) => {
                self.say(refusal.text);
                self.skip_value(refusal.skip, used)
            }
        }
    }
}
