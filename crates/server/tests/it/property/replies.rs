// SPDX-License-Identifier: Apache-2.0
//! The required form of a reply in each dialect, once the result of a command is known.

use std::sync::Arc;

use super::keys;
use super::own::{Context, End, Entry, plain};
use super::wire::{Act, Bytes, Form, Mode, Reply, said};

/// The reply to any command but `mg`. `state` is the key's content now.
pub fn reply(at: &Context<'_>, act: &Act, end: End, state: Option<&Entry>) -> Reply {
    match &at.command.form {
        Form::Text { noreply: true, .. } => Reply::Silent,
        Form::Text { cas, .. } => text_reply(at, act, &end, state, *cas),
        Form::Meta { flags } => meta_reply(at, act, &end, state, flags),
        Form::Binary { opcode, quiet, .. } => binary_reply(at, act, &end, state, *opcode, *quiet),
    }
}

fn text_reply(at: &Context<'_>, act: &Act, end: &End, state: Option<&Entry>, cas: bool) -> Reply {
    let line = match end {
        End::Hit => {
            let e = state.expect("a hit has an entry");
            let mut head = b"VALUE ".to_vec();
            head.extend_from_slice(at.key);
            head.extend_from_slice(format!(" {} {}", e.flags, e.value.len()).as_bytes());
            if cas {
                head.extend_from_slice(format!(" {}", e.cas).as_bytes());
            }
            let cas = if cas { e.cas } else { 0 };
            return said(head, Some(Arc::clone(&e.value)), cas);
        }
        End::Missing if matches!(act, Act::Get { .. }) => String::new(),
        End::Missing => "NOT_FOUND".into(),
        End::Stored => "STORED".into(),
        End::NotStored => "NOT_STORED".into(),
        End::Exists => "EXISTS".into(),
        End::Deleted => "DELETED".into(),
        End::Number(n, _) => n.to_string(),
        End::NotNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value".into(),
        End::Touched => "TOUCHED".into(),
        End::TooLarge => "SERVER_ERROR object too large for cache".into(),
    };
    said(line.into_bytes(), None, 0)
}

/// The flags that are returned with any result.
fn echo(head: &mut Vec<u8>, flag: (u8, u64), key: &[u8], base64: bool) {
    match flag.0 {
        b'O' => head.extend_from_slice(format!(" O{}", flag.1).as_bytes()),
        b'k' if base64 => {
            head.extend_from_slice(format!(" k{} b", keys::base64(key)).as_bytes());
        }
        b'k' => {
            head.extend_from_slice(b" k");
            head.extend_from_slice(key);
        }
        _ => {}
    }
}

fn left(expiry: u32, now: u32) -> String {
    if expiry == 0 {
        " t-1".to_owned()
    } else {
        format!(" t{}", expiry.saturating_sub(now))
    }
}

fn meta_reply(
    at: &Context<'_>,
    act: &Act,
    end: &End,
    state: Option<&Entry>,
    flags: &[(u8, u64)],
) -> Reply {
    let quiet = at.command.form.flag(b'q').is_some();
    let base64 = at.command.form.flag(b'b').is_some();
    let draft = match act {
        Act::Store { value, .. } => value.len(),
        _ => 0,
    };
    let mut value = None;
    let (code, well) = match end {
        End::Stored | End::Deleted if quiet => return Reply::Silent,
        End::Stored | End::Deleted => ("HD".to_owned(), true),
        End::Missing => ("NF".to_owned(), false),
        End::Exists => ("EX".to_owned(), false),
        End::NotStored => ("NS".to_owned(), false),
        End::Number(n, _) => {
            if at.command.form.flag(b'v').is_some() {
                let text = n.to_string().into_bytes();
                let code = format!("VA {}", text.len());
                value = Some(Arc::new(text));
                (code, true)
            } else {
                ("HD".to_owned(), true)
            }
        }
        End::Hit | End::Touched | End::NotNumeric | End::TooLarge => {
            return text_reply(at, act, end, state, false);
        }
    };
    let mut head = code.into_bytes();
    let mut cas = 0;
    // A new counter has no expiry before `N` has taken effect.
    let mut expiry = match end {
        End::Number(_, true) => 0,
        _ => state.map_or(0, |e| e.expiry),
    };
    for &flag in flags {
        match (flag.0, act) {
            (b'c', Act::Store { .. }) | (b'c', Act::Arith { .. }) => {
                let n = state.filter(|_| well).map_or(0, |e| e.cas);
                cas = n;
                if well || matches!(act, Act::Store { .. }) {
                    head.extend_from_slice(format!(" c{n}").as_bytes());
                }
            }
            (b's', Act::Store { .. }) => {
                let n = state.filter(|_| well).map_or(draft, |e| e.value.len());
                head.extend_from_slice(format!(" s{n}").as_bytes());
            }
            (b'N', Act::Arith { .. }) => expiry = state.map_or(0, |e| e.expiry),
            (b't', Act::Arith { .. }) if well => {
                head.extend_from_slice(left(expiry, at.now).as_bytes());
            }
            _ => echo(&mut head, flag, at.key, base64),
        }
    }
    said(head, value, cas)
}

/// `mg`: flags take effect in their order.
pub fn meta_get(at: &Context<'_>, old: Option<Entry>, cas: u64) -> (Reply, Option<Entry>) {
    let Form::Meta { flags } = &at.command.form else {
        unreachable!("mg is a meta command")
    };
    let asked = |letter: u8| at.command.form.flag(letter);
    let base64 = asked(b'b').is_some();
    let created = old.is_none() && asked(b'N').is_some();
    let Some(mut e) = old.or_else(|| {
        // Without an expiry, before `N` has taken effect.
        asked(b'N')?;
        Some(Entry {
            base64,
            ..plain(Bytes::default())
        })
    }) else {
        if asked(b'q').is_some() {
            return (Reply::Silent, None);
        }
        let mut head = b"EN".to_vec();
        flags
            .iter()
            .for_each(|&flag| echo(&mut head, flag, at.key, base64));
        return (said(head, None, 0), None);
    };
    if e.cas == 0 {
        e.cas = cas;
    }
    let with_value = asked(b'v').is_some();
    let mut head = if with_value {
        format!("VA {}", e.value.len()).into_bytes()
    } else {
        b"HD".to_vec()
    };
    let (mut wins, was_won) = (false, e.won);
    for &(letter, n) in flags {
        match letter {
            b'T' => e.expiry = n as u32,
            b'N' if created => (e.expiry, wins) = (n as u32, true),
            b'N' => {}
            b'R' => wins |= e.expiry != 0 && e.expiry < n as u32 && !was_won && !created,
            b's' => head.extend_from_slice(format!(" s{}", e.value.len()).as_bytes()),
            b't' => head.extend_from_slice(left(e.expiry, at.now).as_bytes()),
            b'c' => head.extend_from_slice(format!(" c{}", e.cas).as_bytes()),
            b'f' => head.extend_from_slice(format!(" f{}", e.flags).as_bytes()),
            _ => echo(&mut head, (letter, n), at.key, e.base64),
        }
    }
    if was_won {
        head.extend_from_slice(b" Z");
    }
    if e.stale {
        head.extend_from_slice(b" X");
        wins |= !was_won;
    }
    if wins {
        head.extend_from_slice(b" W");
        e.won = true;
    }
    let cas = if asked(b'c').is_some() { e.cas } else { 0 };
    let value = with_value.then(|| Arc::clone(&e.value));
    (said(head, value, cas), Some(e))
}

fn binary_reply(
    at: &Context<'_>,
    act: &Act,
    end: &End,
    state: Option<&Entry>,
    opcode: u8,
    quiet: bool,
) -> Reply {
    let packet = |status: u16, body: &[u8], value: &[u8], cas: u64| {
        let mut head = status.to_be_bytes().to_vec();
        head.extend_from_slice(body);
        said(head, Some(Arc::new(value.to_vec())), cas)
    };
    let get = matches!(act, Act::Get { .. });
    let with_key = matches!(opcode, 0x0c | 0x0d | 0x23 | 0x24);
    let cas = state.map_or(0, |e| e.cas);
    match end {
        End::Hit | End::Touched => {
            let e = state.expect("a hit has an entry");
            let mut body = e.flags.to_be_bytes().to_vec();
            if with_key {
                body.extend_from_slice(at.key);
            }
            let value: &[u8] = if get { &e.value } else { &[] };
            packet(0, &body, value, cas)
        }
        End::Missing if get && quiet => Reply::Silent,
        End::Missing if with_key => packet(1, at.key, &[], 0),
        End::Missing => packet(1, &[], b"Not found", 0),
        End::Stored | End::Deleted | End::Number(..) if quiet => Reply::Silent,
        End::Stored => packet(0, &[], &[], cas),
        End::Deleted => packet(0, &[], &[], 0),
        End::Number(n, _) => packet(0, &[], &n.to_be_bytes(), cas),
        End::Exists => packet(2, &[], b"Data exists for key.", 0),
        End::NotStored => match act {
            Act::Store {
                mode: Mode::Add, ..
            } => packet(2, &[], b"Data exists for key.", 0),
            Act::Store {
                mode: Mode::Replace,
                ..
            } => packet(1, &[], b"Not found", 0),
            _ => packet(5, &[], b"Not stored.", 0),
        },
        End::NotNumeric => packet(6, &[], b"Non-numeric server-side value for incr or decr", 0),
        End::TooLarge => packet(3, &[], b"Too large.", 0),
    }
}
