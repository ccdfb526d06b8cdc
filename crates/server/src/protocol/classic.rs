// SPDX-License-Identifier: Apache-2.0
//! The classic text commands: one line in, one [`Line`] out.
//!
//! A line with too few arguments, or a storage line with an unreadable length, is refused even with
//! `noreply`. Every other refusal is silent if the last word is `noreply`. Surplus arguments are
//! ignored. All of this is as in memcached 1.6.45. Spaces before the command are skipped, as in
//! earlier releases.

use super::number::{plain_time, plain_u32, plain_u64, read_flags, read_length, read_time};
use super::{BAD_FORMAT, ERROR, MAX_KEY, Tokens, refused_value};

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// In any case.
    Set,
    /// Only if the key is absent.
    Add,
    /// Only if the key exists.
    Replace,
    /// Appended to the existing value.
    Append,
    /// Prepended to the existing value.
    Prepend,
    /// Only if the key's CAS value is the given one.
    Cas,
}

/// A line that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The text, without line end.
    pub text: &'static str,
    /// Whether `noreply` was given: no answer is sent.
    pub silent: bool,
    /// Bytes of a value after the line, which are skipped.
    pub skip: usize,
}

impl Refusal {
    const fn new(text: &'static str, silent: bool) -> Refusal {
        Refusal {
            text,
            silent,
            skip: 0,
        }
    }

    pub(crate) const fn loud(text: &'static str) -> Refusal {
        Refusal::new(text, false)
    }
}

/// A command of the classic protocol (or the name and arguments of a meta command).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// `get`, `gets`, `gat`, `gats`: the keys are not parsed yet, since a line may have any number
    /// of them.
    Get {
        /// Whether CAS values are requested.
        cas: bool,
        /// A new expiry for each key.
        touch: Option<i64>,
        /// The rest of the line: keys and spaces.
        keys: &'a [u8],
    },
    /// The storage commands; a value of `len` bytes and a line end follow.
    Store {
        mode: StoreMode,
        key: &'a [u8],
        flags: u32,
        /// The expiry as given.
        exptime: i64,
        len: usize,
        /// `cas`'s CAS value.
        cas: u64,
        noreply: bool,
    },
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arith {
        key: &'a [u8],
        incr: bool,
        delta: u64,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        /// The expiry as given.
        exptime: i64,
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`, `mn`: the second letter and the rest of the line.
    Meta {
        /// `g`, `s`, `d`, `a`, `e` or `n`.
        which: u8,
        rest: &'a [u8],
    },
    FlushAll {
        /// The delay as given; `None`: the argument is not a number, which is refused only after
        /// the permission was checked.
        delay: Option<i64>,
        noreply: bool,
    },
    Verbosity {
        level: u32,
        noreply: bool,
    },
    /// `cache_memlimit`, in MiB; `None`: not a number.
    MemLimit {
        mib: Option<u32>,
        noreply: bool,
    },
    Version,
    Quit,
    /// `shutdown`; the rest is its mode.
    Shutdown(&'a [u8]),
    /// `stats`; the rest is the section.
    Stats(&'a [u8]),
    LruCrawler(&'a [u8]),
    Slabs(&'a [u8]),
    Lru(&'a [u8]),
    /// `watch`; the rest is what to watch.
    Watch(&'a [u8]),
    RefreshCerts {
        noreply: bool,
    },
    /// The first line of an HTTP request: the client mistakes this server for a web server.
    Http,
}

impl Line<'_> {
    /// Whether it is a command about the server, which a `noreply` at its end silences.
    pub(crate) fn may_be_silent(&self) -> bool {
        matches!(
            self,
            Line::Shutdown(_) | Line::LruCrawler(_) | Line::Slabs(_) | Line::Lru(_)
        )
    }
}

/// At most this many arguments are parsed.
const MAX_ARGS: usize = 5;

/// The arguments of a command: the first [`MAX_ARGS`], the true count, and the last.
struct Args<'a> {
    list: [&'a [u8]; MAX_ARGS],
    count: usize,
    last: &'a [u8],
}

impl<'a> Args<'a> {
    fn new(rest: &'a [u8]) -> Args<'a> {
        let mut args = Args {
            list: [&[]; MAX_ARGS],
            count: 0,
            last: &[],
        };
        for token in Tokens::new(rest) {
            if let Some(place) = args.list.get_mut(args.count) {
                *place = token;
            }
            args.count += 1;
            args.last = token;
        }
        args
    }
    /// Requires this many arguments.
    fn want(self, least: usize) -> Result<Args<'a>, Refusal> {
        if self.count >= least {
            Ok(self)
        } else {
            Err(Refusal::loud(BAD_FORMAT))
        }
    }
    /// The key, which comes first.
    fn key(&self) -> Result<&'a [u8], Refusal> {
        match self.list[0] {
            key if key.len() > MAX_KEY => Err(Refusal::new(BAD_FORMAT, self.noreply())),
            key => Ok(key),
        }
    }
    /// Whether the last argument is `noreply`.
    fn noreply(&self) -> bool {
        self.last == b"noreply"
    }
}

/// Whether the last word of a line is `noreply`.
pub fn ends_with_noreply(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.ends_with(b" noreply")
}

/// Shortest line, without its end.
const LEAST_LINE: usize = 2;

/// Parses one line (without its end).
pub fn parse(line: &[u8]) -> Result<Line<'_>, Refusal> {
    if line.len() < LEAST_LINE {
        return Err(Refusal::loud(BAD_FORMAT));
    }
    let mut tokens = Tokens::new(line);
    let name = tokens.next().unwrap_or(&[]);
    let rest = tokens.rest();
    match name {
        b"get" => get(rest, false, false),
        b"gets" => get(rest, true, false),
        b"set" => store(StoreMode::Set, rest),
        [b'm', which] => match which {
            b'g' | b's' | b'd' | b'a' | b'e' | b'n' => Ok(Line::Meta {
                which: *which,
                rest,
            }),
            _ => Err(unknown(line)),
        },
        b"gat" => get(rest, false, true),
        b"gats" => get(rest, true, true),
        b"add" => store(StoreMode::Add, rest),
        b"replace" => store(StoreMode::Replace, rest),
        b"append" => store(StoreMode::Append, rest),
        b"prepend" => store(StoreMode::Prepend, rest),
        b"cas" => store(StoreMode::Cas, rest),
        b"incr" => arith(true, rest),
        b"decr" => arith(false, rest),
        b"delete" => delete(rest),
        b"touch" => touch(rest),
        b"flush_all" => flush_all(rest),
        b"version" => Ok(Line::Version),
        b"quit" => Ok(Line::Quit),
        b"verbosity" => verbosity(rest),
        b"cache_memlimit" => memlimit(rest),
        b"shutdown" => Ok(Line::Shutdown(rest)),
        b"stats" => Ok(Line::Stats(rest)),
        b"lru_crawler" => Ok(Line::LruCrawler(rest)),
        b"slabs" => Ok(Line::Slabs(rest)),
        b"lru" => Ok(Line::Lru(rest)),
        b"watch" => Ok(Line::Watch(rest)),
        b"refresh_certs" => {
            let noreply = Args::new(rest).noreply();
            Ok(Line::RefreshCerts { noreply })
        }
        name if is_http(name, rest) => Ok(Line::Http),
        _ => Err(unknown(line)),
    }
}

/// The refusal of an unknown command.
fn unknown(line: &[u8]) -> Refusal {
    Refusal::new(ERROR, ends_with_noreply(line))
}

/// Whether a line begins an HTTP request.
pub fn is_http_line(line: &[u8]) -> bool {
    let mut tokens = Tokens::new(line);
    (tokens.next()).is_some_and(|name| is_http(name, tokens.rest()))
}

/// The same, for a line that was split at its first word. A stranger may have chosen the text after
/// such a line, through somebody's browser.
fn is_http(name: &[u8], rest: &[u8]) -> bool {
    let mut tokens = Tokens::new(rest);
    let target = tokens.next().unwrap_or(&[]);
    let version = Tokens::new(rest).last().unwrap_or(&[]);
    let method = !name.is_empty() && name.iter().all(u8::is_ascii_uppercase);
    version.starts_with(b"HTTP/")
        || method && (target.starts_with(b"/") || target.starts_with(b"http"))
}

fn get(rest: &[u8], cas: bool, touch: bool) -> Result<Line<'_>, Refusal> {
    let mut tokens = Tokens::new(rest);
    let mut exptime = None;
    if touch {
        exptime = tokens.next();
    }
    let keys = tokens.rest();
    if tokens.next().is_none() {
        return Err(Refusal::loud(BAD_FORMAT));
    }
    let exptime = match exptime {
        Some(text) => {
            Some(plain_time(text).ok_or(Refusal::loud("CLIENT_ERROR invalid exptime argument"))?)
        }
        None => None,
    };
    Ok(Line::Get {
        cas,
        touch: exptime,
        keys,
    })
}

/// Index of the length among the arguments of every storage command.
const LENGTH: usize = 3;

fn store(mode: StoreMode, rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let skip = refused_value(Tokens::new(rest).nth(LENGTH));
    read_store(mode, rest).map_err(|refusal| Refusal { skip, ..refusal })
}

fn read_store(mode: StoreMode, rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest).want(LENGTH + 1)?;
    let len = read_length(args.list[LENGTH]).ok_or(Refusal::loud(BAD_FORMAT))?;
    let noreply = args.noreply();
    let bad = Refusal::new(BAD_FORMAT, noreply);
    let key = args.key()?;
    let flags = read_flags(args.list[1]).ok_or(bad)?;
    let exptime = read_time(args.list[2]).ok_or(bad)?;
    let cas = if mode == StoreMode::Cas {
        plain_u64(args.list[LENGTH + 1]).ok_or(bad)?
    } else {
        0
    };
    Ok(Line::Store {
        mode,
        key,
        flags,
        exptime,
        len,
        cas,
        noreply,
    })
}

fn arith(incr: bool, rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest).want(2)?;
    let noreply = args.noreply();
    let key = args.key()?;
    let bad = Refusal::new("CLIENT_ERROR invalid numeric delta argument", noreply);
    let delta = plain_u64(args.list[1]).ok_or(bad)?;
    Ok(Line::Arith {
        key,
        incr,
        delta,
        noreply,
    })
}

fn touch(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest).want(2)?;
    let noreply = args.noreply();
    let key = args.key()?;
    let bad = Refusal::new("CLIENT_ERROR invalid exptime argument", noreply);
    let exptime = plain_time(args.list[1]).ok_or(bad)?;
    Ok(Line::Touch {
        key,
        exptime,
        noreply,
    })
}

fn delete(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest).want(1)?;
    let noreply = args.noreply();
    let key = args.key()?;
    Ok(Line::Delete { key, noreply })
}

fn flush_all(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest);
    let noreply = args.noreply();
    let delay = if args.count == usize::from(noreply) {
        Some(0)
    } else {
        plain_time(args.list[0])
    };
    Ok(Line::FlushAll { delay, noreply })
}

fn verbosity(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest);
    let noreply = args.noreply();
    let level = plain_u32(args.list[0]).ok_or(Refusal::new(BAD_FORMAT, noreply))?;
    Ok(Line::Verbosity { level, noreply })
}

fn memlimit(rest: &[u8]) -> Result<Line<'_>, Refusal> {
    let args = Args::new(rest);
    Ok(Line::MemLimit {
        mib: plain_u32(args.list[0]),
        noreply: args.noreply(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_noreply() {
        let silent = |line: &str| parse(line.as_bytes()).expect_err("a refusal");
        let value = |text, silent, skip| Refusal { text, silent, skip };
        let long = format!("set {} 0 0 9", "k".repeat(MAX_KEY + 1));
        for (line, refusal) in [
            ("set a 0 0 -1 noreply", value(BAD_FORMAT, false, 0)),
            ("set a 0 0 x", value(BAD_FORMAT, false, 0)),
            ("set a 0 0", value(BAD_FORMAT, false, 0)),
            ("set", value(BAD_FORMAT, false, 0)),
            ("set a 0 0 +1", value(BAD_FORMAT, false, 0)),
            ("set a 0 0 2147483646", value(BAD_FORMAT, false, 0)),
            ("add a x 0 7", value(BAD_FORMAT, false, 9)),
            ("append a 0 x 7 noreply", value(BAD_FORMAT, true, 9)),
            ("cas a 0 0 7", value(BAD_FORMAT, false, 9)),
            ("cas a 0 0 7 noreply", value(BAD_FORMAT, true, 9)),
            ("cas a 0 0 7 x", value(BAD_FORMAT, false, 9)),
            (&long, value(BAD_FORMAT, false, 11)),
        ] {
            assert_eq!(silent(line), refusal, "{line}");
        }
        assert_eq!(silent("verbosity noreply"), Refusal::new(BAD_FORMAT, true));
        for line in [
            "", " ", "\r", "g", "get", "gat 0", "delete", "incr a", "touch a",
        ] {
            assert_eq!(silent(line), Refusal::loud(BAD_FORMAT), "{line:?}");
        }
        assert_eq!(silent("   "), Refusal::loud(ERROR));
        assert_eq!(silent("mx a"), Refusal::loud(ERROR));
        assert_eq!(silent("bogus noreply"), Refusal::new(ERROR, true));
        assert_eq!(silent("get\ta"), Refusal::loud(ERROR));
        for http in [
            "GET / HTTP/1.1",
            "POST /set",
            "PRI * HTTP/2.0",
            "PROPFIND /a HTTP/1.0",
            "DELETE HTTP/1.1",
        ] {
            assert_eq!(parse(http.as_bytes()), Ok(Line::Http), "{http}");
        }
        assert_eq!(silent("GET k"), Refusal::loud(ERROR));
        assert_eq!(
            silent("gat x a"),
            Refusal::loud("CLIENT_ERROR invalid exptime argument")
        );
    }

    #[test]
    fn arguments() {
        assert_eq!(
            parse(b"  delete a 0"),
            Ok(Line::Delete {
                key: b"a",
                noreply: false
            })
        );
        assert_eq!(
            parse(b"flush_all noreply"),
            Ok(Line::FlushAll {
                delay: Some(0),
                noreply: true
            })
        );
        assert_eq!(
            parse(b"flush_all noreply 0"),
            Ok(Line::FlushAll {
                delay: None,
                noreply: false
            })
        );
        assert_eq!(
            parse(b"flush_all 5 noreply"),
            Ok(Line::FlushAll {
                delay: Some(5),
                noreply: true
            })
        );
        assert_eq!(
            parse(b"gat 10 a"),
            Ok(Line::Get {
                cas: false,
                touch: Some(10),
                keys: b" a"
            })
        );
        assert_eq!(
            parse(b"touch a 5 foo"),
            Ok(Line::Touch {
                key: b"a",
                exptime: 5,
                noreply: false
            })
        );
        assert_eq!(
            parse(b"cas k 1 2 3 4 more than enough noreply"),
            Ok(Line::Store {
                mode: StoreMode::Cas,
                key: b"k",
                flags: 1,
                exptime: 2,
                len: 3,
                cas: 4,
                noreply: true
            })
        );
    }
}
