// SPDX-License-Identifier: Apache-2.0
//! The options of `senko serve`: one struct, which the command line and the TOML file fill in. The
//! two are merged and turned into [`Settings`].
//!
//! Every option has the same name in both places (`--max-item-size 2m` is `max-item-size = "2m"`),
//! and an unknown name in the file is refused. It opens nothing; it only resolves host names.

mod doors; // addresses with their prefixes
mod fill; // the peer from which the server is filled
mod file; // the TOML file
mod tls; // TLS

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgAction, Args};
use senko_io::FileSystem;
use senko_server::server::data_dir::make_folder;
use senko_server::settings::{FlashSpec, Settings};
use senko_workload::units::count;

pub use doors::{Doors, resolve_doors};
pub use fill::FillOptions;
pub use tls::TlsOptions;

use crate::machine;
use crate::units::{
    Bytes, Flash, Io, Megabytes, Octal, Policy, Protocol, Rule, WriteBudget, whole_seconds, within,
};

/// The default port of memcached servers.
pub const DEFAULT_PORT: u16 = 11211;
/// The default flash file.
const DEFAULT_FLASH_BYTES: u64 = 4 << 30;
/// Most time for polling; no device is worth polling longer for a read.
const MOST_SPIN_US: u32 = 1000;
/// With less memory than this, no flash file is made by default.
const LEAST_DEFAULT_FLASH_BYTES: u64 = 64 << 20;

/// Options of `senko serve` and of its TOML file. `None` and empty mean: not given.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ServeOptions {
    /// TCP port [default: 11211]; 0 takes any free port
    #[arg(value_parser = count::<u16>, short = 'p', long, value_name = "PORT", help_heading = "Network")]
    pub port: Option<u16>,
    /// Address, name or address:port to listen on, comma-separated or repeated; noauth: in front
    /// asks for no password, notls:, btls: and mtls: choose how it is encrypted, proto[ascii]: and
    /// proto[binary]: which protocol it speaks [default: 127.0.0.1]
    #[arg(
        short = 'l',
        long,
        value_name = "ADDR",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    pub listen: Vec<String>,
    /// Ask for a user and password in the ascii protocol, as memcached's -Y: a file with a line
    /// user:password for each, 8 at most
    #[arg(short = 'Y', long, value_name = "FILE", help_heading = "Security")]
    pub auth_file: Option<PathBuf>,
    /// Ask for a user and password in the binary protocol (SASL PLAIN): a file with a line
    /// user:password for each, 64 at most
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub sasl_file: Option<PathBuf>,
    /// TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// Unix socket to listen on; TCP is then off unless -p or -l is also given
    #[arg(short = 's', long, value_name = "PATH", help_heading = "Network")]
    pub unix_socket: Option<PathBuf>,
    /// Access mask of the Unix socket, in octal [default: 700]
    #[arg(short = 'a', long, value_name = "MASK", help_heading = "Network")]
    pub unix_mask: Option<Octal>,
    /// Most simultaneous connections [default: 1024]
    #[arg(
        value_parser = count::<usize>,
        short = 'c',
        long,
        visible_alias = "conn-limit",
        value_name = "N",
        help_heading = "Network"
    )]
    pub connections: Option<usize>,
    /// Close a connection after this time without a request; a plain number is seconds [default: 0:
    /// never]
    #[arg(value_parser = whole_seconds, long, value_name = "TIME", help_heading = "Network")]
    pub idle_timeout: Option<u32>,
    /// Connections that may wait to be accepted; 0 is the least that the system has [default: 1024]
    #[arg(value_parser = count::<u32>, short = 'b', long, value_name = "N", help_heading = "Network")]
    pub listen_backlog: Option<u32>,
    /// Must be 0, as there is no UDP; accepted for compatibility with memcached
    #[arg(value_parser = count::<u32>, short = 'U', long, value_name = "0", help_heading = "Network")]
    pub udp_port: Option<u32>,

    /// Serve metrics, health and a page for operators over HTTP on this address: ADDR:PORT, or a
    /// port of 127.0.0.1 [default: off]
    #[arg(long, value_name = "ADDR", value_parser = admin_address, help_heading = "Network")]
    pub admin: Option<SocketAddr>,
    /// Name by which the admin listener may be called, besides localhost and IP addresses; may be
    /// repeated, * allows any
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    pub admin_host: Vec<String>,
    /// Make a Unix socket at this path by which senko ctl asks the running server; only the
    /// server's user may use it [default: off]
    #[arg(long, value_name = "PATH", help_heading = "Network")]
    pub ctl: Option<PathBuf>,
    /// Filling.
    #[command(flatten)]
    pub fill: FillOptions,

    /// Cap on all memory: items, index, buffers; 256m, 4g, or a number of megabytes [default: 1g,
    /// at most a quarter of RAM]
    #[arg(
        short = 'm',
        long,
        visible_alias = "memory-limit",
        value_name = "SIZE",
        help_heading = "Memory"
    )]
    pub memory: Option<Megabytes>,
    /// Largest item: key, value and header, 1k to 1g [default: 1m; with flash up to 64m]
    #[arg(short = 'I', long, value_name = "SIZE", help_heading = "Memory")]
    pub max_item_size: Option<Bytes>,
    /// Which items leave DRAM first: s3-fifo or lru
    #[arg(long, value_name = "POLICY", help_heading = "Memory")]
    pub policy: Option<Policy>,
    /// Answer with an error when memory and flash are full of live items, instead of evicting
    #[arg(short = 'M', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Memory")]
    pub disable_evictions: Option<bool>,

    /// Flash file (created if missing) and its size, or a block device; may be repeated
    #[arg(long, value_name = "PATH:SIZE", help_heading = "Flash")]
    pub flash: Vec<Flash>,
    /// Restart warm: items on flash survive a stop and a kill of the process; also the folder of
    /// the flash file if --flash names none
    #[arg(long, value_name = "DIR", help_heading = "Flash")]
    pub data_dir: Option<PathBuf>,
    /// With --data-dir: a stop also saves the items of DRAM
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub keep_dram: Option<bool>,
    /// With --data-dir: begin empty if the server was down for longer, for use behind a proxy that
    /// ejects failing nodes; a plain number is seconds [default: off]
    #[arg(value_parser = absence, long, value_name = "TIME", help_heading = "Flash")]
    pub max_absence: Option<u32>,
    /// Start with an empty cache, whatever --data-dir or --flash contain (another format, size
    /// or device; files of another directory)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub reinit: Option<bool>,
    /// DRAM only
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub no_flash: Option<bool>,
    /// Bytes written and reclaimed at a time [default: 16m, less when memory is small]
    #[arg(long, value_name = "SIZE", help_heading = "Flash")]
    pub region: Option<Bytes>,
    /// Which items leaving DRAM are written to flash: all, fetched, random:P, or bytes:SIZE, which
    /// writes items larger than SIZE more seldom the larger they are
    #[arg(long, value_name = "RULE", help_heading = "Flash")]
    pub admission: Option<Rule>,
    /// Most bytes written to flash: 20m/s, 100g/day
    #[arg(long, value_name = "SIZE/TIME", help_heading = "Flash")]
    pub flash_write_budget: Option<WriteBudget>,
    /// Bytes that all flash devices together are rated for, such as 600t: the metrics then show
    /// their years of life
    #[arg(long, value_name = "SIZE", help_heading = "Flash")]
    pub flash_rated_writes: Option<Bytes>,
    /// Recent hits on flash after which an item is copied back to DRAM, 1 to 3 [default: 2]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1_u8, 3), help_heading = "Flash")]
    pub promote_after: Option<u8>,
    /// Values above this size go to flash as they arrive, and take no memory for items; 64k or more
    /// [default: 64k]
    #[arg(long, value_name = "SIZE", help_heading = "Flash")]
    pub stream_over: Option<Bytes>,
    /// How long reclaim of flash waits for a client that reads a value above 64 KiB, before the
    /// client is closed; 0: it is closed at the next look, within a second [default: 10]
    #[arg(value_parser = whole_seconds, long, value_name = "TIME", help_heading = "Flash")]
    pub stall: Option<u32>,
    /// When a region is reclaimed, drop its hit items too instead of writing them again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub no_reinsert: Option<bool>,
    /// Write items of up to 1 KiB to flash in the order of their hashes: there a sorted item takes
    /// about 4 bytes of DRAM instead of 9
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub sort_small: Option<bool>,
    /// How long a worker polls for the end of a flash read before it sleeps; 0 to sleep at once
    /// [default: 20]
    #[arg(long, value_name = "US", value_parser = |text: &str| within(text, 0, MOST_SPIN_US), help_heading = "Flash")]
    pub spin_us: Option<u32>,
    /// Pass discards on to a block device
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Flash")]
    pub discard: Option<bool>,
    /// Record every operation that reaches the flash devices to FILE
    #[arg(long, value_name = "FILE", help_heading = "Flash")]
    pub trace: Option<PathBuf>,

    /// Worker threads; a data directory may be started with any number [default: 1]
    #[arg(value_parser = count::<usize>, short = 't', long, value_name = "N", help_heading = "Running")]
    pub threads: Option<usize>,
    /// Sample one lookup in N for the list of hot keys: `stats hotkeys`, and the admin page
    /// [default: off]
    #[arg(value_parser = sampling, long, value_name = "N", help_heading = "Running")]
    pub hot_keys: Option<u32>,
    /// Count commands by the part of the key before this character: `stats detail`, and the admin
    /// page [default: off]
    #[arg(value_parser = delimiter, short = 'D', long, value_name = "CHAR", help_heading = "Running")]
    pub prefix_delimiter: Option<u8>,
    /// I/O backend: auto, uring, posix
    #[arg(long, value_name = "BACKEND", help_heading = "Running")]
    pub io: Option<Io>,
    /// Requests of one connection before others get their turn [default: 20]
    #[arg(value_parser = count::<usize>, short = 'R', long, value_name = "N", help_heading = "Running")]
    pub max_reqs_per_event: Option<usize>,
    /// Log more on stderr; -vv and -vvv even more
    #[arg(short = 'v', long, action = ArgAction::Count, help_heading = "Running")]
    pub verbose: u8,
    /// Format of lines on stderr: text, or json with one object a line [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Running")]
    pub log_format: Option<LogFormat>,
    /// Run as this user (when started as root)
    #[arg(short = 'u', long, value_name = "USER", help_heading = "Running")]
    pub user: Option<String>,
    /// Write the process number to FILE
    #[arg(short = 'P', long, value_name = "FILE", help_heading = "Running")]
    pub pidfile: Option<PathBuf>,
    /// Leave core dumps, as large as the hard limit allows. They have keys, values, passwords and
    /// the keys of TLS; without this option there are none
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Running")]
    pub core_dumps: Option<bool>,
    /// Run in the background
    #[arg(short = 'd', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Running")]
    pub daemon: Option<bool>,

    /// Speak only ascii or binary [default: auto: each connection's first byte decides]
    #[arg(short = 'B', long, value_name = "PROTOCOL", help_heading = "Protocol")]
    pub protocol: Option<Protocol>,
    /// Turn CAS off
    #[arg(short = 'C', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Protocol")]
    pub disable_cas: Option<bool>,
    /// Refuse flush_all
    #[arg(short = 'F', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Protocol")]
    pub disable_flush_all: Option<bool>,
    /// Allow the shutdown command
    #[arg(short = 'A', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Protocol")]
    pub enable_shutdown: Option<bool>,
    /// Refuse what shows keys: stats cachedump, stats detail, stats hotkeys, lru_crawler metadump
    #[arg(short = 'X', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Protocol")]
    pub disable_dumping: Option<bool>,
}

/// The format of lines on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl ServeOptions {
    /// Merges the options: those of the command line win over those of `file`.
    pub fn over(self, file: ServeOptions) -> ServeOptions {
        let many = |own: Vec<String>, other: Vec<String>| if own.is_empty() { other } else { own };
        // An address list in the file must not bring TCP back if the command line asked for a Unix
        // socket alone. A flash option on the command line replaces all flash options of the file.
        let says_flash = !self.flash.is_empty() || self.no_flash.is_some();
        macro_rules! merged {
            ($($name:ident)*; $($rest:tt)*) => {
                ServeOptions { $($name: self.$name.or(file.$name),)* $($rest)* }
            };
        }
        merged! {
            port auth_file sasl_file unix_socket unix_mask connections idle_timeout
            listen_backlog udp_port admin ctl memory max_item_size policy disable_evictions
            data_dir keep_dram max_absence reinit region admission flash_write_budget
            flash_rated_writes promote_after stream_over stall no_reinsert sort_small spin_us discard trace
            threads hot_keys prefix_delimiter io max_reqs_per_event log_format user pidfile
            core_dumps daemon protocol disable_cas disable_flush_all enable_shutdown
            disable_dumping;
            listen: many(self.listen, file.listen),
            fill: self.fill.over(file.fill),
            admin_host: many(self.admin_host, file.admin_host),
            tls: self.tls.over(file.tls),
            flash: if says_flash { self.flash } else { file.flash },
            no_flash: if says_flash { self.no_flash } else { file.no_flash },
            verbose: if self.verbose > 0 { self.verbose } else { file.verbose },
        }
    }

    /// The settings, without defaults for flash ([`ServeOptions::flash_or_default`]): everything
    /// that `senko serve` and the drop-in share.
    pub fn settings(&self) -> Result<Settings> {
        if self.udp_port.is_some_and(|port| port != 0) {
            bail!("UDP is not supported; leave out -U or give -U 0");
        }
        let mut settings = Settings {
            auth_file: self.auth_file.clone(),
            sasl_file: self.sasl_file.clone(),
            unix_socket: self.unix_socket.clone(),
            ctl: self.ctl.clone(),
            tls: self.tls.settings()?,
            pull: Some(crate::fill::pull),
            fill_from: self.fill.settings()?,
            ..Settings::default()
        };
        self.addresses()?.enter(&mut settings);
        if let Some(Octal(mask)) = self.unix_mask {
            settings.unix_mask = mask;
        }
        settings.memory = match self.memory {
            Some(Megabytes(0)) => {
                bail!("--memory 0 leaves no room for anything; give a size such as 256m")
            }
            Some(Megabytes(bytes)) => bytes,
            None => machine::default_memory(),
        };
        set(
            &mut settings.max_connections,
            self.connections,
            "the connection limit (-c)",
        )?;
        set(
            &mut settings.threads,
            self.threads,
            "the number of threads (-t)",
        )?;
        set(
            &mut settings.requests_per_turn,
            self.max_reqs_per_event,
            "the number of requests per event (-R)",
        )?;
        if settings.threads > 256 {
            bail!(
                "{} threads are too many; at most 256 can run",
                settings.threads
            );
        }
        if let Some(Bytes(bytes)) = self.max_item_size {
            if !(1024..=1 << 30).contains(&bytes) {
                bail!("the largest item size (-I) is 1k to 1g, not {bytes}");
            }
            settings.max_item = bytes as usize;
        }
        settings.raise_max_item = self.max_item_size.is_none();
        if let Some(Bytes(bytes)) = self.region {
            if !(64 << 10..=1 << 30).contains(&bytes) || !bytes.is_multiple_of(4096) {
                bail!("a region (--region) is 64k to 1g in steps of 4k, not {bytes}");
            }
            settings.region = Some(bytes as usize);
        }
        settings.idle_timeout = self.idle_timeout.unwrap_or(0);
        settings.backlog = self.listen_backlog.unwrap_or(settings.backlog);
        settings.no_evict = self.disable_evictions.unwrap_or(false);
        settings.no_cas = self.disable_cas.unwrap_or(false);
        settings.no_flush_all = self.disable_flush_all.unwrap_or(false);
        settings.allow_shutdown = self.enable_shutdown.unwrap_or(false);
        settings.no_dump = self.disable_dumping.unwrap_or(false);
        settings.verbosity = self.verbose.min(3);
        settings.only_protocol = self.protocol.and_then(|p| p.0);
        settings.policy = self.policy.map_or(settings.policy, |p| p.0);
        settings.admission.rule = self.admission.map_or(settings.admission.rule, |r| r.0);
        settings.admin = self.admin;
        settings.admin_hosts.clone_from(&self.admin_host);
        settings.hot_keys = self.hot_keys;
        settings.prefix_delimiter = self.prefix_delimiter;
        if self.flash_rated_writes == Some(Bytes(0)) {
            bail!(
                "--flash-rated-writes 0 says that the devices take no write at all; give what they \
                 are rated to take, such as 600t"
            );
        }
        settings.rated_writes = self.flash_rated_writes.map(|Bytes(bytes)| bytes);
        settings.admission.budget = self.flash_write_budget.map(|b| b.0);
        if let Some(hits) = self.promote_after {
            if !(1..=3).contains(&hits) {
                bail!("promote-after is 1 to 3 hits; {hits} is not");
            }
            settings.promote_after = hits;
        }
        if let Some(Bytes(bytes)) = self.stream_over {
            if !(64 << 10..=1 << 30).contains(&bytes) {
                bail!("--stream-over is 64k to 1g, not {bytes}");
            }
            settings.stream_over = bytes as usize;
        }
        settings.stall = self.stall.unwrap_or(settings.stall);
        settings.reinsert = !self.no_reinsert.unwrap_or(false);
        settings.sort_small = self.sort_small.unwrap_or(false);
        if let Some(micros) = self.spin_us {
            if micros > MOST_SPIN_US {
                bail!("spin-us is 0 to {MOST_SPIN_US}; {micros} is not");
            }
            settings.spin = Duration::from_micros(micros.into());
        }
        settings.io = self.io.map_or(settings.io, |io| io.0);
        settings.trace.clone_from(&self.trace);
        settings.discard = self.discard.unwrap_or(false);
        settings.max_absence = self.max_absence;
        settings.data_dir.clone_from(&self.data_dir);
        settings.keep_dram = self.keep_dram.unwrap_or(false);
        settings.reinit = self.reinit.unwrap_or(false);
        settings.flash = self.flash.iter().map(|f| f.0.clone()).collect();
        if self.no_flash == Some(true) && !settings.flash.is_empty() {
            bail!("--flash and --no-flash contradict each other");
        }
        Ok(settings)
    }

    /// The folder of the default flash file, if that file is used: the data directory, or
    /// `senko-data`.
    pub fn default_folder(&self) -> Option<PathBuf> {
        if self.no_flash == Some(true) || !self.flash.is_empty() {
            return None;
        }
        let data_dir = self.data_dir.clone();
        Some(data_dir.unwrap_or_else(|| PathBuf::from("senko-data")))
    }

    /// The flash files to use: those named, or one in the data folder, which is made here. The flag
    /// says whether it is the default one.
    pub fn flash_or_default(&self) -> Result<(Vec<FlashSpec>, bool)> {
        let Some(folder) = self.default_folder() else {
            return Ok((self.flash.iter().map(|f| f.0.clone()).collect(), false));
        };
        make_folder(&folder)?;
        let path = folder.join("flash.senko");
        let present = std::fs::metadata(&path).map_or(0, |m| m.len());
        let bytes = if present >= LEAST_DEFAULT_FLASH_BYTES {
            present // a file from an earlier start keeps its size
        } else {
            let free = FileSystem::of(&folder)
                .with_context(|| format!("cannot tell the free space of {}", folder.display()))?
                .free;
            let bytes = DEFAULT_FLASH_BYTES.min((free + present) / 4) & !((1 << 20) - 1);
            if bytes < LEAST_DEFAULT_FLASH_BYTES {
                bail!(
                    "{} has {} of free space, a quarter of which would be too little for a flash file ({} is the least); name a place and size with --flash PATH:SIZE, or start with --no-flash",
                    folder.display(),
                    crate::units::show_size(free),
                    crate::units::show_size(LEAST_DEFAULT_FLASH_BYTES)
                );
            }
            bytes
        };
        Ok((vec![FlashSpec { path, bytes }], true))
    }

    /// The listening addresses.
    fn addresses(&self) -> Result<Doors> {
        if self.unix_socket.is_some() && self.port.is_none() && self.listen.is_empty() {
            return Ok(Doors::default());
        }
        let port = self.port.unwrap_or(DEFAULT_PORT);
        if self.listen.is_empty() {
            return Ok(Doors::one(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        resolve_doors(&self.listen, port)
    }
}

/// Resolves a list of `host`, `host:port`, `[v6]:port`, `v6`.
pub fn resolve_all(list: &[String], port: u16) -> Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for text in list
        .iter()
        .flat_map(|l| l.split(','))
        .map(str::trim)
        .filter(|t| !t.is_empty())
    {
        for address in resolve(text, port)? {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    if all.is_empty() {
        bail!("the list of addresses to listen on (-l) is empty");
    }
    Ok(all)
}

/// One in this many. The character behind a prefix of keys, as `-D` takes it.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [delimiter] if delimiter.is_ascii_graphic() => Ok(*delimiter),
        _ => Err("it takes a single character, the delimiter between prefix and key".to_owned()),
    }
}

fn sampling(text: &str) -> Result<u32, String> {
    within(text, 1_u32, 1_000_000)
}

/// A time of whole seconds, at least one, because every restart takes some time.
fn absence(text: &str) -> Result<u32, String> {
    match whole_seconds(text)? {
        0 => Err("an absence of 0 s is none; --reinit starts over with an empty cache".to_owned()),
        seconds => Ok(seconds),
    }
}

/// An address with a port, or a port of the loopback address.
fn admin_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("\"{text}\" is neither an address with a port, such as 127.0.0.1:11212 or [::1]:11212, nor a port")
    })
}

fn resolve(text: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let (host, port) = split_host(text, port)?;
    if host == "*" {
        return Ok(vec![
            SocketAddr::from(([0, 0, 0, 0], port)),
            SocketAddr::from(([0_u16; 8], port)),
        ]);
    }
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve the address \"{text}\" to listen on"))?
        .collect();
    Ok(found)
}

fn split_host(text: &str, port: u16) -> Result<(&str, u16)> {
    let parse = |digits: &str| {
        digits.parse::<u16>().map_err(|_| {
            anyhow!("\"{digits}\" in the address \"{text}\" is not a port, 0 to 65535")
        })
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .with_context(|| format!("the address \"{text}\" lacks its ]"))?;
        return match after.strip_prefix(':') {
            Some(digits) => Ok((host, parse(digits)?)),
            None if after.is_empty() => Ok((host, port)),
            None => bail!("\"{text}\" is not an address; write [v6-address]:port"),
        };
    }
    match text.matches(':').count() {
        1 => {
            let (host, digits) = text.split_once(':').expect("the colon was counted");
            Ok((host, parse(digits)?))
        }
        _ => Ok((text, port)), // none: a host; several: an IPv6 address
    }
}

/// Sets a count, if one was given; none may be 0.
fn set(into: &mut usize, value: Option<usize>, what: &str) -> Result<()> {
    match value {
        Some(0) => bail!("{what} must be greater than 0"),
        Some(n) => *into = n,
        None => {}
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from_toml(text: &str) -> Result<ServeOptions> {
        let mut path = std::env::temp_dir();
        path.push(format!(
            "senko-options-{}-{:?}.toml",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, text).unwrap();
        let options = ServeOptions::from_file(&path);
        std::fs::remove_file(&path).unwrap();
        options
    }

    #[test]
    fn prefixes_end_at_one_character() {
        let settings = from_toml("prefix-delimiter = '/'\n").unwrap().settings();
        assert_eq!(settings.unwrap().prefix_delimiter, Some(b'/'));
        for text in ["''", "'::'", "' '", "'ü'"] {
            let error = from_toml(&format!("prefix-delimiter = {text}\n")).unwrap_err();
            assert!(error.to_string().contains("a single character"), "{error}");
        }
    }

    /// The package's example, with the options in its comments.
    #[test]
    fn the_packages_example_is_understood() {
        let text = include_str!("../../../contrib/debian/senko.toml");
        let proposed = |line: &&str| {
            let setting = line
                .strip_prefix("# ")
                .and_then(|line| line.split_once(" = "));
            setting.is_some_and(|(name, _)| !name.contains(' '))
        };
        let names = text.lines().filter(proposed).count();
        let lines: Vec<&str> = text
            .lines()
            .map(|line| match proposed(&line) {
                true => &line[2..],
                false => line,
            })
            .collect();
        let options = from_toml(&lines.join("\n")).unwrap();
        assert!(names > 5 && options.hot_keys.is_some() && options.tls.tls_chain_cert.is_some());
    }

    #[test]
    fn the_file_says_all_that_the_command_line_can() {
        let options = from_toml(
            "port = 0\nlisten = ['127.0.0.1', '::1']\nmemory = 256\nmax-item-size = '2m'\nthreads = 2\nflash = 'a:4g'\n\
             policy = 'lru'\nadmission = 'random:50'\nflash-write-budget = '20m/s'\npromote-after = 3\nno-reinsert = true\nsort-small = true\n\
             verbose = 2\ndisable-cas = true\nio = 'posix'\nunix-mask = 755\n",
        )
        .unwrap();
        let settings = options.settings().unwrap();
        assert_eq!(settings.memory, 256 << 20);
        assert_eq!(settings.max_item, 2 << 20);
        assert_eq!(settings.listen.len(), 2);
        assert_eq!(settings.flash[0].bytes, 4 << 30);
        assert_eq!(settings.unix_mask, 0o755);
        assert!(!settings.reinsert && settings.sort_small && settings.no_cas);
    }

    /// A misspelt name was once answered in terms of the parser's programming language.
    #[test]
    fn a_file_is_refused_in_plain_words() {
        for (text, words) in [
            (
                "memroy = '1g'",
                "line 1: there is no option memroy; did you mean memory?",
            ),
            (
                "flash_write_budget = '1g/day'",
                "did you mean flash-write-budget?",
            ),
            ("nonsense = 1", "line 1: there is no option nonsense"),
            ("port = 'x'", "line 1: port: \"x\" is not a whole number"),
            (
                "threads = -1",
                "line 1: threads: \"-1\" is not a whole number",
            ),
            ("threads = 1.5", "threads: \"1.5\" is not a whole number"),
            ("port = 70000", "at most 65535"),
            ("memory = true", "memory: \"true\" is not a size"),
            (
                "daemon = 'perhaps'",
                "\"perhaps\" is neither true nor false",
            ),
            ("policy = 'mru'", "s3-fifo, lru"),
            ("[cache]\nmemory = '1g'", "there is no option cache"),
            ("memory = {}", "memory is a table"),
            ("flash = [['a:1g']]", "flash is a list of lists"),
            ("port = ", "line 1"),
        ] {
            let error = from_toml(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            for word in [
                "invalid type",
                "expected u",
                "variant",
                "field",
                "invalid digit",
                "struct",
            ] {
                assert!(!error.contains(word), "{text}: {error}");
            }
            assert_eq!(error.lines().count(), 1, "{text}: {error}");
        }
    }

    /// The grammar of the command line, also for values that have a TOML type.
    #[test]
    fn numbers_in_the_file_are_those_of_the_command_line() {
        let options = from_toml(
            "connections = '2k'\nidle-timeout = '2m'\nmemory = '4e2'\nlisten = '127.0.0.1,::1'\nverbose = 2\nno-reinsert = false\n",
        )
        .unwrap();
        let settings = options.settings().unwrap();
        assert_eq!(
            (settings.max_connections, settings.idle_timeout),
            (2000, 120)
        );
        assert_eq!((settings.memory, settings.verbosity), (400 << 20, 2));
        assert_eq!((settings.listen.len(), settings.reinsert), (2, true));
    }

    #[test]
    fn the_command_line_goes_over_the_file() {
        let file = ServeOptions {
            port: Some(1),
            threads: Some(2),
            flash: vec!["x:1g".parse().unwrap()],
            ..ServeOptions::default()
        };
        let line = ServeOptions {
            port: Some(3),
            no_flash: Some(true),
            ..ServeOptions::default()
        };
        let both = line.over(file);
        assert_eq!((both.port, both.threads), (Some(3), Some(2)));
        assert!(both.flash.is_empty());
        assert_eq!(both.flash_or_default().unwrap().0, Vec::new());
    }

    #[test]
    fn addresses() {
        let all = |list: &[&str]| {
            resolve_all(
                &list.iter().map(|s| (*s).to_string()).collect::<Vec<_>>(),
                7,
            )
        };
        assert_eq!(all(&["127.0.0.1,127.0.0.2:8"]).unwrap().len(), 2);
        assert_eq!(all(&["[::1]:9"]).unwrap()[0].port(), 9);
        assert_eq!(all(&["::1"]).unwrap()[0].port(), 7);
        assert_eq!(all(&["*"]).unwrap().len(), 2);
        assert!(all(&["127.0.0.1:http"]).is_err());
        assert!(all(&[""]).is_err());
        let unix = ServeOptions {
            unix_socket: Some("s".into()),
            ..ServeOptions::default()
        };
        assert!(unix.settings().unwrap().listen.is_empty());
    }
}
