// SPDX-License-Identifier: Apache-2.0
//! `senko ctl`: asks a running server on this machine, by the socket of its `--ctl`. The server
//! does the work and says what it did (`crates/server/src/ctl.rs`); this file prints it.

mod top; // how fast counts change

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use senko_io::out;
use senko_server::settings::AdmissionRule;
use senko_workload::units::time_above_zero;
use serde_json::{Map, Value, json};

use crate::client::{LoginArgs, TlsArgs};
use crate::fill;
use crate::units::{ByteRate, Rule, WriteBudget, size_of};
use top::TopArgs;

/// How long the server may take beyond what was asked for. Its stop may save a cache.
const PATIENCE: Duration = Duration::from_secs(600);

/// Arguments of `senko ctl`.
#[derive(Args, Debug)]
#[command(after_help = "The server was started with --ctl PATH.\n\n\
    Exit codes: 0 it was done; 1 it was not, and stderr says why; 2 a wrong option.\n\n\
    Examples:\n  \
    senko ctl --socket /run/senko.ctl status")]
pub struct CtlArgs {
    /// The socket of the server's --ctl
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Prints the state of the server: connections, items, hits, flash
    #[command(
        after_help = "Sizes are in bytes, uptime is in seconds, counts are those since the start or stats reset.\n\n\
        Examples:\n  \
        senko ctl --socket /run/senko.ctl status\n  \
        senko ctl --socket /run/senko.ctl status --json"
    )]
    Status,
    /// Shows rates, hit ratios, tiers, drives and the hottest keys, again and again
    #[command(
        after_help = "In a terminal the picture is drawn again every interval. Elsewhere --json prints a line for each: counts a second, \
        and the rows of status. The hottest keys are there if the server was started with --hot-keys. Bytes of keys other than \
        letters, digits and -._~ are shown as %XX.\n\n\
        Examples:\n  \
        senko ctl --socket /run/senko.ctl top --count 1 --json\n  \
        senko ctl --socket /run/senko.ctl top --interval 100ms --count 3 --json"
    )]
    Top(TopArgs),
    /// Changes an option until the server stops
    #[command(
        after_help = "verbosity           0 to 3: as many as -v is given to senko serve\n\
        item-memory         a size such as 2g: memory of items in DRAM, within --memory, as memcached's cache_memlimit\n\
        flash-write-budget  a rate such as 100g/day or 20m/s, as of senko serve, or none\n\
        admission           all, fetched, random:P or bytes:SIZE, as of senko serve\n\
        promote-after       1 to 3 hits, as of senko serve\n\n\
        Other options need another start. status shows the values in force.\n\n\
        Examples:\n  \
        senko ctl --socket /run/senko.ctl set verbosity 1\n  \
        senko ctl --socket /run/senko.ctl set flash-write-budget 20m/s"
    )]
    Set(SetArgs),
    /// Stores another server's items, while this one serves
    #[command(
        after_help = "The peer is senko, or memcached 1.6 or newer. An item is left out if its key is here, or has been stored, \
        deleted or touched here since the fill began. status says how far the fill is. flush_all, a drain and a stop end it. \
        The server reads the files of TLS, as its user.\n\n\
        Examples:\n  \
        senko ctl --socket /run/senko.ctl fill 127.0.0.1:11211\n  \
        senko ctl --socket /run/senko.ctl fill 127.0.0.1:11211 --rate 100m/s\n  \
        senko ctl --socket /run/senko.ctl fill stop"
    )]
    Fill(FillArgs),
    /// Turns new clients away, waits for the others to leave, and stops the server
    #[command(
        after_help = "The stop is that of SIGTERM. Clients that are still there when the time is over get the answers to what \
        they have asked for. The command ends when the server has. It goes on if this command is interrupted.\n\n\
        Examples:\n  \
        senko ctl --socket /run/senko.ctl drain --within 1m"
    )]
    Drain(DrainArgs),
}

/// What a running server can change (`crates/server/src/ctl.rs`).
const OPTIONS: [&str; 5] = [
    "verbosity",
    "item-memory",
    "flash-write-budget",
    "admission",
    "promote-after",
];

#[derive(Args, Debug)]
struct SetArgs {
    /// What to change
    #[arg(value_name = "OPTION", value_parser = OPTIONS)]
    option: String,
    /// Its new value
    #[arg(value_name = "VALUE")]
    value: String,
}

#[derive(Args, Debug)]
struct FillArgs {
    /// HOST or HOST:PORT of the peer; stop: end the fill that runs
    #[arg(value_name = "PEER")]
    peer: String,
    /// Bytes of items to read at most [default: 32m/s]
    #[arg(long, value_name = "SIZE/TIME")]
    rate: Option<ByteRate>,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

impl FillArgs {
    fn request(&self) -> Result<String> {
        if self.peer == "stop" {
            return Ok("fill stop".to_owned());
        }
        fill::check_peer(&self.peer)?;
        let rate = self.rate.map_or(fill::DEFAULT_RATE, |rate| rate.0);
        let how = fill::how(rate, self.login.login()?, self.tls.options())?;
        Ok(format!("fill {} {how}", self.peer))
    }
}

#[derive(Args, Debug)]
struct DrainArgs {
    /// How long clients may take to leave
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_above_zero)]
    within: Duration,
}

/// Runs `senko ctl`.
pub fn main(args: &CtlArgs) -> Result<()> {
    let socket = args.socket.as_deref().context(
        "which server? Name the socket that it was given by --ctl: senko ctl --socket PATH",
    );
    let (request, time) = match &args.command {
        CtlCommand::Status => ("status".to_owned(), PATIENCE),
        CtlCommand::Top(top) => return top::main(socket?, top, args.json),
        CtlCommand::Set(set) => (format!("set {}", words(set)?), PATIENCE),
        CtlCommand::Fill(fill) => (fill.request()?, PATIENCE),
        CtlCommand::Drain(drain) => {
            // The server counts whole seconds.
            let seconds = drain.within.as_millis().div_ceil(1000);
            (format!("drain {seconds}"), drain.within + PATIENCE)
        }
    };
    let said = ask(socket?, &request, time, args.json)?;
    // Without what it takes to reach a peer.
    let shown = request
        .split_once(" {")
        .map_or(&request[..], |(shown, _)| shown);
    said.end(args, shown)
}

/// Sends a request to a server, and waits for its answer.
fn ask(path: &Path, request: &str, time: Duration, json: bool) -> Result<Said> {
    let shown = path.display();
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow!("cannot connect to {shown}: {error}; only the server's user and root may")
        }
        _ => anyhow!("cannot connect to {shown}: {error}"),
    })?;
    stream.set_read_timeout(Some(time))?;
    let failed = |error| anyhow!("the server at {shown} does not answer: {error}");
    stream
        .write_all(format!("{request}\n").as_bytes())
        .map_err(failed)?;
    let mut said = Said::default();
    for line in BufReader::new(stream).lines() {
        said.take(&line.map_err(failed)?, json)?;
    }
    Ok(said)
}

/// The words of a `set`, in the server's units.
fn words(set: &SetArgs) -> Result<String> {
    let SetArgs { option, value } = set;
    if value.is_empty() || value.contains(char::is_whitespace) {
        bail!("VALUE is one word");
    }
    Ok(match &option[..] {
        "flash-write-budget" if value != "none" => {
            let WriteBudget(budget) = value.parse().map_err(|why| anyhow!("{option}: {why}"))?;
            format!("{option} {}/{}", budget.bytes_per_second, budget.burst)
        }
        "admission" if value.starts_with("bytes:") => {
            let Rule(rule) = value.parse().map_err(|why| anyhow!("{option}: {why}"))?;
            match rule {
                AdmissionRule::Bytes(most) => format!("{option} bytes:{most}"),
                _ => format!("{option} {value}"),
            }
        }
        "item-memory" => {
            let bytes = size_of(value).map_err(|why| anyhow!("item-memory: {why}"))?;
            format!("{option} {bytes}")
        }
        _ => format!("{option} {value}"),
    })
}

/// What the server has said.
#[derive(Default)]
struct Said {
    rows: Vec<(String, String)>,
    done: Option<String>,
}

impl Said {
    fn take(&mut self, line: &str, json: bool) -> Result<()> {
        let (word, text) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "=" => {
                let (name, value) = text.split_once(' ').unwrap_or((text, ""));
                self.rows.push((name.to_owned(), value.to_owned()));
            }
            "-" if json => {}
            "-" => writeln!(out::stdout(), "{text}").context("cannot write to stdout")?,
            "ok" => self.done = Some(text.to_owned()),
            "no" => bail!("{text}"),
            _ => bail!("this is no server's ctl socket: {}", line.escape_debug()),
        }
        Ok(())
    }

    fn end(self, args: &CtlArgs, request: &str) -> Result<()> {
        let mut out = out::stdout();
        let done = match (&self.done, self.rows.is_empty(), args.json) {
            (None, true, _) => bail!("the server ended before it had done what it was asked for"),
            (Some(text), _, false) => writeln!(out, "{text}"),
            (Some(text), _, true) => {
                writeln!(out, "{}", json!({ "request": request, "done": text }))
            }
            (None, false, true) => writeln!(out, "{}", Value::Object(object(&self.rows))),
            (None, false, false) => {
                let width = self.rows.iter().map(|(name, _)| name.len()).max();
                let width = width.unwrap_or_default();
                self.rows
                    .iter()
                    .try_for_each(|(name, value)| writeln!(out, "{name:width$}  {value}"))
            }
        };
        done.context("cannot write to stdout")
    }
}

/// Rows as an object: numbers are numbers, and devices and hot keys are lists.
fn object(rows: &[(String, String)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in rows {
        let value = match value.parse::<u64>() {
            Ok(number) => json!(number),
            Err(_) => json!(value),
        };
        match name == "flash-device" || name == "hot-key" {
            true => {
                let list = all.entry(name.clone()).or_insert_with(|| json!([]));
                list.as_array_mut()
                    .expect("it was made as a list")
                    .push(value);
            }
            false => drop(all.insert(name.clone(), value)),
        }
    }
    all
}
