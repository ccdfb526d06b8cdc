// SPDX-License-Identifier: Apache-2.0
//! `senko dump` and `senko restore`: parse options and print results; [`senko_load::transfer`] does
//! the work.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use senko_io::{Unfinished, out, tell};
use senko_load::Target;
use senko_load::transfer::{self, Dumped, Peer, Reader, Restored, Sink, Source, TransferError};
use senko_workload::units::time_above_zero;
use serde_json::json;

use crate::client::{LoginArgs, TlsArgs};
use crate::process::{self, Interrupted};
use crate::progress::Bar;
use crate::stdin;
use crate::units::{ByteRate, counted, show_size};

/// How to reach the server.
#[derive(Args, Clone, Debug)]
struct PeerArgs {
    /// HOST, HOST:PORT, or the path of a Unix socket
    #[arg(
        short = 's',
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:11211"
    )]
    server: Target,
    /// How long to wait while the server sends or takes nothing
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_above_zero, help_heading = "Connections")]
    timeout: Duration,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

impl PeerArgs {
    fn peer(&self) -> Result<Peer> {
        Ok(Peer {
            target: self.server.clone(),
            tls: self.tls.options(),
            login: self.login.login()?,
            timeout: self.timeout,
        })
    }
}

/// Arguments of `senko dump`.
#[derive(Args, Debug)]
#[command(
    after_help = "The server is senko, or memcached 1.6 or newer. It serves its clients meanwhile. The dump has the items that were \
    there all the time. One that changes is in it as it was before or after; one that is new or goes meanwhile may be in it or \
    not. Stale items (md with I) are left out. The keys are listed by lru_crawler metadump, which memcached gives to one client \
    at a time.\n\n\
    A dump that was interrupted has no last block, and restore says so.\n\n\
    Exit codes: 0 the dump is whole; 1 it is not, and stderr says why; 2 a wrong option; 130 Ctrl-C.\n\n\
    Examples:\n  \
    senko dump -s 127.0.0.1:11211 --to cache.dump\n  \
    senko dump -s 127.0.0.1:11211 --prefix user: > users.dump\n  \
    senko dump -s 127.0.0.1:11211 | senko restore -s 127.0.0.1:11213"
)]
pub struct DumpArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Writes to this file, which must not exist, instead of stdout; it is FILE.part until it is
    /// complete
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Only items whose keys begin with this
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// Bytes of items to read at most [default: no bound]
    #[arg(long, value_name = "SIZE/TIME")]
    rate: Option<ByteRate>,
    /// One JSON object on stdout at the end
    #[arg(long, requires = "to")]
    json: bool,
}

/// Arguments of `senko restore`.
#[derive(Args, Debug)]
#[command(
    after_help = "The server is senko, memcached, or a proxy before them: items are stored by set or add. Only keys with bytes that \
    are no text need the meta commands. Flags and times of expiry are those of the dump. An item that has expired since is left \
    out. Without --keep an item replaces what the server has under its key.\n\n\
    If the dump turns out not to be whole, the items before are stored, and the exit code is 1.\n\n\
    Exit codes: 0 every item of the dump was stored, kept or has expired; 1 some were not, and stderr says why; 2 a wrong \
    option; 130 Ctrl-C. The items that were stored are printed in any case.\n\n\
    Examples:\n  \
    senko restore --check old.dump        is it whole? No server is asked\n  \
    senko restore -s 127.0.0.1:11213 old.dump\n  \
    senko restore -s 127.0.0.1:11213 --keep --prefix user: old.dump"
)]
pub struct RestoreArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// The dump; - or nothing for stdin
    #[arg(value_name = "FILE")]
    from: Option<PathBuf>,
    /// Only items whose keys begin with this
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// Leave items alone whose keys the server has
    #[arg(long)]
    keep: bool,
    /// Bytes of items to store at most [default: no bound]
    #[arg(long, value_name = "SIZE/TIME")]
    rate: Option<ByteRate>,
    /// Only reads the dump to its end, and says what it has; no server is asked
    #[arg(long, conflicts_with_all = ["keep", "prefix", "rate", "server"])]
    check: bool,
    /// One JSON object on stdout at the end
    #[arg(long)]
    json: bool,
}

/// Runs `senko dump`.
pub fn dump(args: &DumpArgs) -> Result<()> {
    if args.to.is_none() && out::stdout().is_terminal() {
        bail!("a dump is no text for a terminal: name a file with --to, or redirect stdout");
    }
    if let Some(to) = &args.to
        && to.symlink_metadata().is_ok()
    {
        bail!("{} exists already", to.display());
    }
    let mut source = Source::connect(&args.peer.peer()?, process::stop_flag()).map_err(told)?;
    source.limit(args.rate.map_or(0, |rate| rate.0));
    process::stop_on_signals();
    let Some(to) = &args.to else {
        let dumped = write(source, &args.prefix, out::stdout());
        tell!(
            "{}",
            text_of(&dumped.map_err(|error| named(error, "write to stdout"))?)
        );
        return Ok(());
    };
    let (unfinished, file) = Unfinished::create(to)?;
    let done = write(source, &args.prefix, file);
    let dumped = done.map_err(|error| named(error, &format!("write {}", to.display())))?;
    unfinished.finish()?;
    let line = json!({
        "items": dumped.items, "bytes": dumped.bytes, "gone": dumped.gone, "stale": dumped.stale,
    });
    print(args.json, &line, &text_of(&dumped))
}

fn write(source: Source<'_>, prefix: &str, to: impl Write) -> Result<Dumped, TransferError> {
    let mut bar = Bar::new("dumping", "keys", source.items().unwrap_or_default());
    let to = BufWriter::with_capacity(1 << 18, to);
    source.dump(prefix.as_bytes(), to, &mut |dumped| bar.done(dumped.listed))
}

fn text_of(dumped: &Dumped) -> String {
    let mut text = format!(
        "{} dumped, {} of keys and values",
        counted(dumped.items, "item"),
        show_size(dumped.bytes)
    );
    for (count, what) in [
        (dumped.gone, "gone before they were read"),
        (dumped.stale, "stale and left out"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}

/// Runs `senko restore`.
pub fn restore(args: &RestoreArgs) -> Result<()> {
    let (file, total) = open(args.from.as_deref())?;
    let read = Rc::new(Cell::new(0));
    let counting = Counting {
        from: BufReader::with_capacity(1 << 18, file),
        read: Rc::clone(&read),
    };
    let what = match &args.from {
        Some(path) if path != Path::new("-") => path.display().to_string(),
        _ => "stdin".to_owned(),
    };
    let fail = |error| named(error, &format!("read {what}"));
    if args.check {
        process::stop_on_signals();
        let totals = Reader::new(counting).and_then(transfer::check);
        let totals = totals.map_err(fail).with_context(|| what.clone())?;
        let line = json!({ "items": totals.items, "bytes": totals.bytes, "ended": totals.ended });
        let items = counted(totals.items, "item");
        let size = show_size(totals.bytes);
        return print(
            args.json,
            &line,
            &format!("a whole dump: {items}, {size} of keys and values"),
        );
    }
    let mut sink = Sink::connect(&args.peer.peer()?, process::stop_flag()).map_err(told)?;
    sink.limit(args.rate.map_or(0, |rate| rate.0));
    process::stop_on_signals();
    let mut restored = Restored::default();
    let mut bar = total.map(|total| Bar::new("restoring", "bytes", total));
    let done = Reader::new(counting).and_then(|reader| {
        let watch = &mut |_: &Restored| {
            if let Some(bar) = &mut bar {
                bar.done(read.get());
            }
        };
        let prefix = args.prefix.as_bytes();
        sink.restore(reader, prefix, args.keep, &mut restored, watch)
    });
    drop(bar);
    let line = json!({
        "items": restored.items, "bytes": restored.bytes, "kept": restored.kept,
        "expired": restored.expired, "others": restored.others, "refused": restored.refused,
        "whole": done.is_ok(),
    });
    print(args.json, &line, &text_of_restored(&restored))?;
    done.map_err(|error| match error {
        TransferError::Damaged(why) if args.from.is_some() => anyhow!("{what}: {why}"),
        error => fail(error),
    })?;
    let Some(reason) = restored.reason() else {
        return Ok(());
    };
    let most = if restored.reasons.len() > 1 {
        ", most of them"
    } else {
        ""
    };
    match restored.refused {
        1 => bail!("1 item was not stored: {reason}"),
        refused => bail!("{refused} items were not stored{most}: {reason}"),
    }
}

fn text_of_restored(restored: &Restored) -> String {
    let mut text = format!(
        "{} stored, {} of keys and values",
        counted(restored.items, "item"),
        show_size(restored.bytes)
    );
    for (count, what) in [
        (restored.kept, "kept as the server has them"),
        (restored.expired, "expired since the dump"),
        (restored.refused, "refused"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}

fn print(json: bool, line: &serde_json::Value, text: &str) -> Result<()> {
    let mut out = out::stdout();
    let done = match json {
        true => writeln!(out, "{line}"),
        false => writeln!(out, "{text}"),
    };
    done.context("cannot write to stdout")
}

/// The error of the library as one of this command.
fn told(error: TransferError) -> anyhow::Error {
    match (Interrupted::now(), error) {
        (Some(interrupted), _) => interrupted.into(),
        (None, error) => anyhow!("{error}"),
    }
}

/// As [`told`]; an error of the system is about what the command does: "write FILE".
fn named(error: TransferError, doing: &str) -> anyhow::Error {
    match error {
        TransferError::Io(error) if Interrupted::now().is_none() => {
            anyhow!("cannot {doing}: {error}")
        }
        error => told(error),
    }
}

/// The input, and its length if that is known.
fn open(path: Option<&Path>) -> Result<(Box<dyn Read>, Option<u64>)> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok((Box::new(Piped::new(stdin::open()?)), None));
    };
    stdin::check(path)?;
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let meta = file.metadata()?;
    Ok(match meta.is_file() {
        true => (Box::new(file), Some(meta.len())),
        false => (Box::new(Piped::new(file)), None),
    })
}

/// Counts the bytes that were read.
struct Counting<R> {
    from: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(to)?;
        self.read.set(self.read.get() + got as u64);
        Ok(got)
    }
}

/// Reads a pipe in a thread of its own, since a read may take forever, and a signal is to end the
/// command with what was done.
struct Piped {
    parts: Receiver<io::Result<Vec<u8>>>,
    part: Vec<u8>,
    at: usize,
}

impl Piped {
    fn new(mut from: impl Read + Send + 'static) -> Piped {
        let (to, parts) = mpsc::sync_channel(2);
        std::thread::spawn(move || {
            loop {
                let mut part = vec![0; 1 << 16];
                let read = from.read(&mut part).map(|got| {
                    part.truncate(got);
                    part
                });
                // The end of the thread is the end of the input.
                let over = read.as_ref().map_or(true, Vec::is_empty);
                if to.send(read).is_err() || over {
                    return;
                }
            }
        });
        Piped {
            parts,
            part: Vec::new(),
            at: 0,
        }
    }
}

impl Read for Piped {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.part.len() {
            match self.parts.recv_timeout(Duration::from_millis(100)) {
                Ok(part) => (self.part, self.at) = (part?, 0),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Interrupted::now().is_some() {
                return Err(io::Error::other("interrupted"));
            }
        }
        let len = to.len().min(self.part.len() - self.at);
        to[..len].copy_from_slice(&self.part[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
