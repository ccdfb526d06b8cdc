// SPDX-License-Identifier: Apache-2.0
//! Commands about the server, not about a key, and the refusals of unsupported ones.
//!
//! | not served | answer | why |
//! |---|---|---|
//! | `slabs reassign`, `slabs automove` | `CLIENT_ERROR slab reassignment disabled` | memory moves between classes by itself |
//! | `lru` | `CLIENT_ERROR lru tuning is not supported` | the policy is chosen at start |
//! | `lru_crawler disable, sleep, tocrawl` | `CLIENT_ERROR lru crawler tuning is not supported` | expired items are collected all the time |

use senko_io::Queue;

use super::DumpKind;
use super::dump::{Classes, MAX_CLASSES};
use super::stats::text_stats;
use crate::context::Ctx;
use crate::protocol::classic::Line;
use crate::protocol::number::{plain_i32, plain_u32};
use crate::protocol::{BAD_FORMAT, ERROR, Tokens};
use crate::reply::Reply;
use crate::shared::Shutdown;
use crate::watch::{self, Watcher};

use std::sync::Arc;

/// Actions that an administrative command asks of its session.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// No further action.
    Nothing,
    /// Close the connection after the answer.
    Close,
    /// Walk over all items.
    Dump(DumpKind),
    /// Send this watcher's lines from now on.
    Watch(Arc<Watcher>),
}

/// Runs an administrative command.
pub(crate) fn admin(ctx: &mut Ctx<'_, impl Queue>, line: &Line<'_>, out: &mut Reply) -> Asked {
    match *line {
        Line::Version => {
            let version = ctx.shared.version();
            out.bytes.extend_from_slice(b"VERSION ");
            out.line(&version);
        }
        Line::Verbosity { level, noreply } => {
            ctx.shared.set_verbosity(level);
            if !noreply {
                out.line("OK");
            }
        }
        Line::MemLimit { mib, noreply } => {
            let text = memory_limit(ctx, mib);
            if !noreply {
                out.line(text);
            }
        }
        Line::FlushAll { delay, noreply } => {
            let text = match parse_flush(ctx, delay) {
                Ok(due) => {
                    flush_all(ctx, due);
                    "OK"
                }
                Err(text) => text,
            };
            if !noreply {
                out.line(text);
            }
        }
        Line::Stats(rest) => return text_stats(ctx, rest, out).map_or(Asked::Nothing, Asked::Dump),
        Line::Quit => return Asked::Close,
        Line::Shutdown(rest) => return shutdown(ctx, rest, out),
        Line::LruCrawler(rest) => return crawler(ctx, rest, out),
        Line::Slabs(rest) => out.line(slabs(rest)),
        Line::Lru(rest) => out.line(lru(rest)),
        Line::Watch(rest) => return watch(ctx, rest, out),
        Line::RefreshCerts { noreply } => {
            let text = refresh_certs(ctx);
            if !noreply {
                out.line(&text);
            }
        }
        _ => unreachable!("commands with keys do not come here"),
    }
    Asked::Nothing
}

/// `watch`: from now on the connection gets the watched lines, and accepts no more commands.
fn watch(ctx: &Ctx<'_, impl Queue>, rest: &[u8], out: &mut Reply) -> Asked {
    if ctx.shared.settings.no_watch {
        out.line("CLIENT_ERROR watch commands not allowed");
        return Asked::Nothing;
    }
    let Some(topics) = watch::topics(Tokens::new(rest)) else {
        out.line(ERROR);
        return Asked::Nothing;
    };
    match ctx.shared.watchers.add(topics) {
        Some(watcher) => {
            out.line("OK");
            Asked::Watch(watcher)
        }
        None => {
            out.line("WATCHER_TOO_MANY log watcher limit reached");
            Asked::Nothing
        }
    }
}

/// `slabs`. Invalid commands are refused like in memcached.
fn slabs(rest: &[u8]) -> &'static str {
    const DISABLED: &str = "CLIENT_ERROR slab reassignment disabled";
    let words: Vec<&[u8]> = Tokens::new(rest).take(4).collect();
    let is_ratio = |text: &[u8]| {
        let text = std::str::from_utf8(text).unwrap_or("");
        text.parse::<f64>().is_ok()
    };
    match words[..] {
        [b"reassign", _, _] => DISABLED,
        [b"automove", b"ratio" | b"freeratio", value, ..] if is_ratio(value) => DISABLED,
        [b"automove", b"ratio" | b"freeratio", ..] => ERROR,
        [b"automove", b"window", value, ..] => match plain_u32(value) {
            None => BAD_FORMAT,
            Some(3..=1800) => DISABLED,
            Some(_) => "CLIENT_ERROR automove window too low or too high",
        },
        [b"automove", level, ..] => match plain_u32(level) {
            None => BAD_FORMAT,
            Some(0..=2) => DISABLED,
            Some(_) => ERROR,
        },
        _ => ERROR,
    }
}

/// `lru`. Invalid commands are refused like in memcached.
fn lru(rest: &[u8]) -> &'static str {
    let words: Vec<&[u8]> = Tokens::new(rest).take(5).collect();
    let valid = match words[..] {
        [b"tune", _, _, _, _] | [b"mode", b"flat" | b"segmented", ..] => true,
        [b"temp_ttl", ttl, ..] => plain_i32(ttl).is_some(),
        _ => false,
    };
    match valid {
        true => "CLIENT_ERROR lru tuning is not supported",
        false => ERROR,
    }
}

/// Reads the certificate again, as SIGHUP does. The reason for a refusal goes to the log.
fn refresh_certs(ctx: &Ctx<'_, impl Queue>) -> String {
    match ctx.shared.refresh_for_client() {
        None => "Error TLS not enabled".to_owned(),
        Some(Ok(())) => "OK".to_owned(),
        Some(Err(refused)) => refused.short,
    }
}

fn shutdown(ctx: &mut Ctx<'_, impl Queue>, rest: &[u8], out: &mut Reply) -> Asked {
    if !ctx.shared.settings.allow_shutdown {
        out.line("SERVER_ERROR: shutdown not enabled");
        return Asked::Nothing;
    }
    let mut tokens = Tokens::new(rest);
    let how = match (tokens.next(), tokens.next()) {
        (None, _) => Shutdown::Now,
        (Some(b"graceful"), None) => Shutdown::Graceful,
        _ => {
            out.line("CLIENT_ERROR invalid shutdown mode");
            return Asked::Nothing;
        }
    };
    ctx.shared.request_shutdown(how);
    Asked::Close
}

/// memcached's smallest memory limit.
const LEAST_MIB: u64 = 8;

fn memory_limit(ctx: &mut Ctx<'_, impl Queue>, mib: Option<u32>) -> &'static str {
    let most = ctx.shared.most_dram();
    match mib {
        None => ERROR,
        // A server with less than that accepts what `stats` says that it has.
        Some(mib) if u64::from(mib) < LEAST_MIB.min(most >> 20) => {
            "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"
        }
        Some(1_000_000_001..) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        Some(mib) => {
            let settings = &ctx.shared.settings;
            let given = settings.item_memory.unwrap_or(settings.memory);
            let asked = u64::from(mib) << 20;
            // `--memory` covers more than items. If the same value is set again, items get the
            // memory that they had at the start.
            let bytes = if asked <= given {
                asked.min(most)
            } else {
                asked
            };
            match ctx.cursor.limit_memory(ctx.shared, ctx.shard, bytes) {
                true => "OK",
                false => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
            }
        }
    }
}

fn crawler(ctx: &mut Ctx<'_, impl Queue>, rest: &[u8], out: &mut Reply) -> Asked {
    let mut tokens = Tokens::new(rest);
    let (name, argument, extra) = (tokens.next().unwrap_or(&[]), tokens.next(), tokens.next());
    let text = match (name, argument, extra) {
        (b"metadump", Some(_), None) if ctx.shared.settings.no_dump => "ERROR metadump not allowed",
        (b"mgdump", Some(_), None) if ctx.shared.settings.no_dump => "ERROR key dump not allowed",
        (b"metadump" | b"mgdump", Some(which), None) => {
            let dram_only = name == b"metadump" && which == b"dram";
            // `hash` is all, in the order of memcached's table of hashes.
            match classes(if dram_only || which == b"hash" {
                b"all"
            } else {
                which
            }) {
                Some(classes) => {
                    out.line("OK");
                    return Asked::Dump(match name {
                        b"mgdump" => DumpKind::Mgdump { classes },
                        _ => DumpKind::Metadump { classes, dram_only },
                    });
                }
                None => "BADCLASS invalid class id",
            }
        }
        (b"crawl", Some(which), None) => match classes(which) {
            Some(_) => "OK",
            None => "BADCLASS invalid class id",
        },
        (b"sleep" | b"tocrawl", Some(n), None) => match plain_u32(n) {
            None => BAD_FORMAT,
            Some(1_000_001..) if name == b"sleep" => {
                "CLIENT_ERROR sleep must be one second or less"
            }
            Some(_) => NO_CRAWLER_TUNING,
        },
        (b"disable", None, None) => NO_CRAWLER_TUNING,
        (b"enable", None, None) => "OK",
        _ => ERROR,
    };
    out.line(text);
    Asked::Nothing
}

const NO_CRAWLER_TUNING: &str = "CLIENT_ERROR lru crawler tuning is not supported";

/// The classes of a crawl or dump: `all`, `hash`, or numbers separated by commas.
fn classes(text: &[u8]) -> Option<Classes> {
    if text == b"all" || text == b"hash" {
        return Some(Classes::ALL);
    }
    let mut numbers = text.split(|&b| b == b',').map(plain_u32);
    numbers.try_fold(Classes::NONE, |classes, class| {
        let class = class.filter(|class| (1..MAX_CLASSES).contains(class))?;
        Some(classes.with(class))
    })
}

/// When a flush is due: `Ok(0)` now, otherwise the Unix second.
pub(crate) fn parse_flush(
    ctx: &Ctx<'_, impl Queue>,
    delay: Option<i64>,
) -> Result<u32, &'static str> {
    if ctx.shared.settings.no_flush_all {
        return Err("CLIENT_ERROR flush_all not allowed");
    }
    let delay = delay.ok_or("CLIENT_ERROR invalid exptime argument")?;
    if delay <= 0 {
        return Ok(0);
    }
    let now = ctx.shard.now();
    let due = ctx.expiry(delay);
    Ok(if due > now { due } else { 0 })
}

/// Flushes now (0) or at `due`. The session has made sure that none of its commands is under way on
/// another shard.
pub(crate) fn flush_all(ctx: &mut Ctx<'_, impl Queue>, due: u32) {
    // A planned flush that has become due must not be replaced any more.
    ctx.cursor.flush(ctx.shared, ctx.shard);
    if due == 0 {
        ctx.shared.flush();
    } else {
        ctx.shared.flush_at(due);
    }
    ctx.cursor.flush(ctx.shared, ctx.shard);
}
