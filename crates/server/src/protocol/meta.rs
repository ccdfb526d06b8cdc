// SPDX-License-Identifier: Apache-2.0
//! The meta commands `mg`, `ms`, `md`, `ma`, `me`: key, flags and their arguments.
//!
//! The flags of a command are read twice. Here they decide how the command runs. The reply reads
//! them again, because it returns flags in the order of the request; `t` before `T` shows the old
//! time.

use super::classic::{Refusal, StoreMode};
use super::number::{expiry, plain_time, plain_u32, plain_u64, read_base64, read_length};
use super::{BAD_FORMAT, MAX_KEY, Tokens, refused_value};

/// Most tokens of a meta command, including its name.
const MAX_TOKENS: usize = 20;
/// Longest opaque token, including its `O`.
const MAX_OPAQUE: usize = 32;

/// The flags of a meta command that decide how it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `v`: the value is requested.
    pub value: bool,
    /// `q`: no reply in the nominal case.
    pub quiet: bool,
    /// `b`: the key is in base64.
    pub base64: bool,
    /// `u`: do not count as an access.
    pub no_update: bool,
    /// `I`: mark stale (`md`), or accept an older CAS value (`ms`).
    pub invalidate: bool,
    /// `x`: remove the value, keep the item (`md`).
    pub remove_value: bool,
    /// `h` or `l`: data about the last accesses is requested.
    pub history: bool,
    /// `N`: make the item on a miss, with this expiry.
    pub vivify: Option<u32>,
    /// `T`: the new expiry.
    pub ttl: Option<u32>,
    /// `R`: recache if the expiry is before this second.
    pub recache: Option<u32>,
    /// `C`: only if the CAS value equals this.
    pub compare: Option<u64>,
    /// `E`: the new CAS value.
    pub cas: Option<u64>,
    /// `F`: the client's flags.
    pub client_flags: u32,
    /// `M`: the mode, 0 if not given.
    pub mode: u8,
    /// `J`: the initial value.
    pub initial: u64,
    /// `D`: the difference.
    pub delta: u64,
}

/// Space for a decoded key, made when a key has to be decoded.
pub type KeyBuf = Option<[u8; MAX_KEY]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The key, decoded.
    pub key: &'a [u8],
    pub flags: Flags,
    /// The flags as they were sent.
    pub text: &'a [u8],
}

/// The times that times in flags are relative to.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Unix seconds.
    pub now: u32,
    pub started: u32,
}

/// A refusal, which is sent even with `q`.
fn refuse<T>(text: &'static str) -> Result<T, Refusal> {
    Err(Refusal::loud(text))
}

/// Whether a token can be a flag at all: memcached's tokenizer accepts letters, digits and the
/// ASCII characters between the letters.
fn may_be_flag(token: &[u8]) -> bool {
    matches!(token[0], b'A'..=b'z' | b'0'..=b'9')
}

/// Parses flags; returns the text of the first error. Later errors of well-known flags override
/// earlier ones, as in memcached.
fn read_flags(text: &[u8], clock: Clock) -> Result<Flags, &'static str> {
    let mut flags = Flags {
        delta: 1,
        ..Flags::default()
    };
    let mut seen = 0u128;
    let mut error = None;
    let bad_token = "CLIENT_ERROR bad token in command line format";
    if !Tokens::new(text).all(may_be_flag) {
        return Err(BAD_FORMAT);
    }
    for token in Tokens::new(text) {
        let (flag, argument) = (token[0], &token[1..]);
        if seen >> flag & 1 != 0 {
            return Err("CLIENT_ERROR duplicate flag");
        }
        seen |= 1 << flag;
        let time = || plain_time(argument).map(|t| expiry(t, clock.now, clock.started));
        match flag {
            b'b' => flags.base64 = true,
            b'N' | b'T' | b'R' => match time() {
                None => error = Some(bad_token),
                time if flag == b'N' => flags.vivify = time,
                time if flag == b'T' => flags.ttl = time,
                time => flags.recache = time,
            },
            b'h' | b'l' => flags.history = true,
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' => {}
            b'v' => flags.value = true,
            b'u' => flags.no_update = true,
            b'q' => flags.quiet = true,
            b'x' => flags.remove_value = true,
            b'I' => flags.invalidate = true,
            b'F' => match plain_u32(argument) {
                Some(n) => flags.client_flags = n,
                None => error = error.or(Some(BAD_FORMAT)),
            },
            b'C' | b'E' => match plain_u64(argument) {
                None => error = Some(bad_token),
                n if flag == b'C' => flags.compare = n,
                n => flags.cas = n,
            },
            // The first letter counts. An empty mode is invalid.
            b'M' => flags.mode = argument.first().copied().unwrap_or(b' '),
            b'J' => match plain_u64(argument) {
                Some(n) => flags.initial = n,
                None => error = Some("CLIENT_ERROR invalid numeric initial value"),
            },
            b'D' => match plain_u64(argument) {
                Some(n) => flags.delta = n,
                None => error = Some("CLIENT_ERROR invalid numeric delta value"),
            },
            _ => return Err("CLIENT_ERROR invalid flag"),
        }
    }
    error.map_or(Ok(flags), Err)
}

fn opaque_too_long(text: &[u8]) -> bool {
    Tokens::new(text).any(|t| t[0] == b'O' && t.len() > MAX_OPAQUE)
}

const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// Decodes the key if it is in base64.
fn decode<'a>(key: &'a [u8], base64: bool, room: &'a mut KeyBuf) -> Option<&'a [u8]> {
    if !base64 {
        return Some(key);
    }
    let room = room.insert([0; MAX_KEY]);
    let len = read_base64(key, room)?;
    Some(&room[..len])
}

/// Key and flag text of a command; `least` is the least number of tokens after the name.
fn split(rest: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let mut tokens = Tokens::new(rest);
    let Some(key) = tokens.next() else {
        return refuse(BAD_FORMAT);
    };
    if key.len() > MAX_KEY {
        return refuse(BAD_FORMAT);
    }
    Ok((key, tokens.rest()))
}

const TOO_MANY_FLAGS: &str = "CLIENT_ERROR options flags are too long";

pub fn keyed<'a>(
    rest: &'a [u8],
    clock: Clock,
    room: &'a mut KeyBuf,
) -> Result<Command<'a>, Refusal> {
    let (key, text) = split(rest)?;
    if Tokens::new(rest).count() + 1 > MAX_TOKENS {
        return refuse(TOO_MANY_FLAGS);
    }
    let flags = read_flags(text, clock).or_else(refuse)?;
    let Some(key) = decode(key, flags.base64, room) else {
        return refuse("CLIENT_ERROR error decoding key");
    };
    if opaque_too_long(text) {
        return refuse(OPAQUE_TOO_LONG);
    }
    Ok(Command { key, flags, text })
}

/// `ma`, whose error does not say what was wrong with key or flags.
pub fn arith<'a>(
    rest: &'a [u8],
    clock: Clock,
    room: &'a mut KeyBuf,
) -> Result<Command<'a>, Refusal> {
    if Tokens::new(rest).next().is_none() || !Tokens::new(rest).skip(1).all(may_be_flag) {
        return refuse(BAD_FORMAT);
    }
    keyed(rest, clock, room).or_else(|refusal| match refusal.text {
        OPAQUE_TOO_LONG => Err(refusal),
        _ => refuse("CLIENT_ERROR invalid or duplicate flag"),
    })
}

/// The mode of `ma`: true to increment.
pub fn arith_mode(flags: &Flags) -> Result<bool, Refusal> {
    match flags.mode {
        0 | b'I' | b'+' => Ok(true),
        b'D' | b'-' => Ok(false),
        _ => refuse("CLIENT_ERROR invalid mode for ma M token"),
    }
}

/// `ms`: the command, how to store, and the bytes of the value that follows. The value of a refused
/// line is skipped if its length can be read.
pub fn store<'a>(
    rest: &'a [u8],
    clock: Clock,
    room: &'a mut KeyBuf,
) -> Result<(Command<'a>, StoreMode, usize), Refusal> {
    let skip = refused_value(Tokens::new(rest).nth(1));
    read_store(rest, clock, room).map_err(|text| Refusal {
        skip,
        ..Refusal::loud(text)
    })
}

fn read_store<'a>(
    rest: &'a [u8],
    clock: Clock,
    room: &'a mut KeyBuf,
) -> Result<(Command<'a>, StoreMode, usize), &'static str> {
    let (key, text) = split(rest).map_err(|refusal| refusal.text)?;
    let mut tokens = Tokens::new(text);
    let len = tokens.next().and_then(read_length).ok_or(BAD_FORMAT)?;
    if Tokens::new(rest).count() + 1 > MAX_TOKENS {
        return Err(TOO_MANY_FLAGS);
    }
    let text = tokens.rest();
    let flags = read_flags(text, clock)?;
    let key = decode(key, flags.base64, room).ok_or("CLIENT_ERROR error decoding key")?;
    let mode = match flags.mode {
        0 | b'S' => StoreMode::Set,
        b'E' => StoreMode::Add,
        b'A' => StoreMode::Append,
        b'P' => StoreMode::Prepend,
        b'R' => StoreMode::Replace,
        _ => return Err("CLIENT_ERROR invalid mode for ms M token"),
    };
    if opaque_too_long(text) {
        return Err(OPAQUE_TOO_LONG);
    }
    let mode = match mode {
        StoreMode::Set | StoreMode::Replace if flags.compare.is_some() => StoreMode::Cas,
        mode => mode,
    };
    Ok((Command { key, flags, text }, mode, len))
}

/// `me`: the decoded key. The base64 flag counts only in the first position.
pub fn debug<'a>(rest: &'a [u8], room: &'a mut KeyBuf) -> Result<Command<'a>, Refusal> {
    let mut tokens = Tokens::new(rest);
    let Some(key) = tokens.next().filter(|key| key.len() <= MAX_KEY) else {
        return refuse(BAD_FORMAT);
    };
    if !tokens.clone().all(may_be_flag) {
        return refuse(BAD_FORMAT);
    }
    let base64 = tokens.next() == Some(b"b");
    let Some(key) = decode(key, base64, room) else {
        return refuse(BAD_FORMAT);
    };
    Ok(Command {
        key,
        flags: Flags {
            base64,
            ..Flags::default()
        },
        text: &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock {
        now: 1_000_000_000,
        started: 999_999_990,
    };

    fn mg(line: &str) -> Result<Flags, &'static str> {
        keyed(line.as_bytes(), CLOCK, &mut None)
            .map(|c| c.flags)
            .map_err(|e| e.text)
    }

    #[test]
    fn errors_of_mg() {
        assert_eq!(mg(""), Err(BAD_FORMAT));
        assert_eq!(mg("a v v"), Err("CLIENT_ERROR duplicate flag"));
        assert_eq!(mg("a z"), Err("CLIENT_ERROR invalid flag"));
        assert_eq!(mg("a 1"), Err("CLIENT_ERROR invalid flag"));
        for token in ["!", "@", "{", "~", "\u{ff}"] {
            assert_eq!(mg(&format!("a v {token} v")), Err(BAD_FORMAT), "{token}");
        }
        assert_eq!(mg("a M").map(|flags| flags.mode), Ok(b' '));
        assert_eq!(mg("a MSE").map(|flags| flags.mode), Ok(b'S'));
        for time in ["T2147483648", "N+5", "R4294967296", "T5x"] {
            let text = "CLIENT_ERROR bad token in command line format";
            assert_eq!(mg(&format!("a {time}")), Err(text), "{time}");
        }
        assert_eq!(
            mg("a T"),
            Err("CLIENT_ERROR bad token in command line format")
        );
        assert_eq!(mg("YW b v"), Err("CLIENT_ERROR error decoding key"));
        assert_eq!(mg(&format!("a O{}", "1".repeat(32))), Err(OPAQUE_TOO_LONG));
        assert!(mg(&format!("a O{}", "1".repeat(31))).is_ok());
        assert_eq!(
            mg("a s t f c k v q h l u T1 N1 R1 O1 E1 I L P F1"),
            Err(TOO_MANY_FLAGS)
        );
        assert!(mg("a s t f c k v q h l u T1 N1 R1 O1 E1 I L P").is_ok());
    }

    #[test]
    fn ma_does_not_say_which_flag_is_wrong() {
        let ma = |line: &str| {
            arith(line.as_bytes(), CLOCK, &mut None)
                .map(|_| ())
                .map_err(|refusal| refusal.text)
        };
        let text = "CLIENT_ERROR invalid or duplicate flag";
        for line in ["a v v", "a z", "a Dx", "YW b", &"k".repeat(MAX_KEY + 1)] {
            assert_eq!(ma(line), Err(text), "{line}");
        }
        assert_eq!(ma(""), Err(BAD_FORMAT));
        assert_eq!(ma("a !"), Err(BAD_FORMAT));
        assert_eq!(ma(&format!("a O{}", "1".repeat(32))), Err(OPAQUE_TOO_LONG));
    }

    #[test]
    fn values_of_refused_lines_are_swallowed_where_their_length_can_be_read() {
        let long = format!("{} 2", "k".repeat(MAX_KEY + 1));
        let flags = format!("a 2{}", " v".repeat(MAX_TOKENS));
        for (line, text, skip) in [
            ("", BAD_FORMAT, 0),
            ("a", BAD_FORMAT, 0),
            ("a +1", BAD_FORMAT, 0),
            ("a 2 !", BAD_FORMAT, 4),
            ("a 2 F4294967296", BAD_FORMAT, 4),
            ("a 2 M", "CLIENT_ERROR invalid mode for ms M token", 4),
            ("a S2", BAD_FORMAT, 0),
            ("a -1", BAD_FORMAT, 0),
            ("a 2 S2", "CLIENT_ERROR invalid flag", 4),
            ("a 2 MX", "CLIENT_ERROR invalid mode for ms M token", 4),
            ("a 2 Fx", BAD_FORMAT, 4),
            (&long, BAD_FORMAT, 4),
            (&flags, TOO_MANY_FLAGS, 4),
        ] {
            let refusal = store(line.as_bytes(), CLOCK, &mut None)
                .map(|_| ())
                .expect_err("a refusal");
            assert_eq!((refusal.text, refusal.skip), (text, skip), "{line}");
        }
        let mut room = None;
        let stored = store(b"a 2 F4294967295 T2147483647", CLOCK, &mut room);
        let flags = stored.expect("memcached stores it").0.flags;
        assert_eq!(
            (flags.client_flags, flags.ttl),
            (u32::MAX, Some(2_147_483_647))
        );
    }

    #[test]
    fn flags_of_mg() {
        let flags = mg("a v q T30 N-1 R60 E5").expect("good flags");
        assert_eq!(flags.ttl, Some(CLOCK.now + 30));
        assert_eq!(flags.vivify, Some(1));
        assert_eq!(flags.recache, Some(CLOCK.now + 60));
        assert_eq!(flags.cas, Some(5));
        assert!(flags.value && flags.quiet);
    }
}
