// SPDX-License-Identifier: Apache-2.0
//! The server's settings in one struct. The command line, a TOML file or the drop-in's options fill
//! it in.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

pub use senko_cache::{Admission, AdmissionRule, Budget, HashSeed, PolicyKind};
pub use senko_io::BackendChoice;
use senko_io::Listener;

use crate::fill::Pull;

/// A flash file or device and how much of it to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSpec {
    /// Path of a file (made if missing) or block device.
    pub path: PathBuf,
    /// Bytes; 0 means the whole of an existing device.
    pub bytes: u64,
}

/// How the connections of a TCP listener are encrypted, if the server has a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all (`notls:`).
    Off,
    /// As [`TlsSettings::verify`] says (no prefix).
    #[default]
    Default,
    /// Clients are not asked for a certificate (`btls:`).
    Basic,
    /// Clients need a certificate signed by the CA (`mtls:`).
    Mutual,
}

/// Which clients need a certificate: memcached's `ssl_verify_mode`, in the order of its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVerify {
    /// None is requested.
    #[default]
    None,
    /// A certificate is optional, but if a client shows one, it has to be valid.
    Request,
    /// All clients.
    Require,
    /// Same as `Request`: there is no second handshake that could ask again.
    Once,
}

impl TlsVerify {
    /// memcached's number for it.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Settings of TLS (`-Z`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file: the server's certificate, then those that lead to the CA (`ssl_chain_cert`).
    pub chain: PathBuf,
    /// PEM file of its private key (`ssl_key`).
    pub key: PathBuf,
    /// Which clients need a certificate (`ssl_verify_mode`).
    pub verify: TlsVerify,
    /// PEM file of the CAs that sign clients' certificates (`ssl_ca_cert`).
    pub ca: Option<PathBuf>,
    /// Whether TLS 1.2 is refused (`ssl_min_version`).
    pub only_1_3: bool,
    /// Names of cipher suites, separated by colons; `None`: all (`ssl_ciphers`).
    pub ciphers: Option<String>,
    /// Whether clients may resume sessions (`ssl_session_cache`).
    pub session_cache: bool,
    /// KiB of its answers that a connection encrypts at a time (`ssl_wbuf_size`); `None`: as many
    /// as an emptied buffer of a sent answer keeps.
    pub write_kib: Option<NonZeroU16>,
}

impl TlsSettings {
    /// Bytes of its answers that a connection encrypts at a time.
    pub fn write_bytes(&self) -> usize {
        self.write_kib
            .map_or(crate::tls::CIPHERED, |kib| usize::from(kib.get()) << 10)
    }
}

/// On which terms a listener serves its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Whether they need a password, if the server has any.
    pub guarded: bool,
    /// How they are encrypted.
    pub tls: TlsMode,
    /// The only protocol that they may speak; `None`: as the server's settings say.
    pub only: Option<Dialect>,
}

/// Largest item of a server with flash whose settings give none.
pub const LARGE_ITEM: usize = 64 << 20;

/// The settings of a server. [`Default`] is what `senko serve` starts with, without the flash file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP addresses; empty: none.
    pub listen: Vec<SocketAddr>,
    /// Those addresses of `listen` whose connections need no password.
    pub noauth: Vec<SocketAddr>,
    /// Password file of the ascii protocol (`-Y`).
    pub auth_file: Option<PathBuf>,
    /// Password file of the binary protocol (`-S`).
    pub sasl_file: Option<PathBuf>,
    /// Certificate and key of TLS; `None`: nothing is encrypted.
    pub tls: Option<TlsSettings>,
    /// Those addresses of `listen` for which `tls` does not apply unchanged.
    pub tls_modes: Vec<(SocketAddr, TlsMode)>,
    /// Those addresses of `listen` that speak one protocol only.
    pub protocols: Vec<(SocketAddr, Dialect)>,
    /// Sockets that already listen, with their names, in place of the addresses of `listen`,
    /// `unix_socket` and `admin`. The socket named `admin` is the admin listener.
    pub passed: Vec<(String, Listener)>,
    /// Addresses for HTTP with metrics, health and the page for operators.
    pub admin: Option<SocketAddr>,
    /// Unix socket by which the operator asks the running server (`senko ctl`); `None`: none.
    pub ctl: Option<PathBuf>,
    /// Pulls the items of a fill from another server; `None`: this server cannot be filled.
    pub pull: Option<Pull>,
    /// The server from which it is filled once it serves, and how to reach it, for
    /// [`Settings::pull`].
    pub fill_from: Option<(String, String)>,
    /// Called when a drain has ended and the server is to stop; `None`: it stops by itself.
    pub on_drained: Option<fn()>,
    /// Names besides localhost and IP addresses by which browsers and scrapers may call it; `*`:
    /// any.
    pub admin_hosts: Vec<String>,
    /// One lookup in this many is sampled for the list of hot keys; `None`: no sampling.
    pub hot_keys: Option<u32>,
    /// Rated lifetime writes of all flash devices together, in bytes; `None`: unknown.
    pub rated_writes: Option<u64>,
    pub unix_socket: Option<PathBuf>,
    /// Its access mask (octal in memcached's `-a`).
    pub unix_mask: u32,
    /// Bytes for everything: items, index, write buffers, frames, connection buffers.
    pub memory: u64,
    /// `-m` of the drop-in: bytes for items alone; overrides the part of `memory` that is left for
    /// items.
    pub item_memory: Option<u64>,
    pub max_item: usize,
    /// Whether [`Settings::max_item`] may be raised to what flash takes well
    /// ([`LARGE_ITEM`]), since nobody asked for a size.
    pub raise_max_item: bool,
    pub max_connections: usize,
    /// Worker threads.
    pub threads: usize,
    /// Shards of a cache that begins empty; `None`: by threads, memory and flash. An existing data
    /// directory keeps its number.
    pub shards: Option<usize>,
    /// At the connection limit: answer `ERROR Too many open connections` and close (memcached's
    /// `maxconns_fast`). Otherwise new connections stay in the kernel's queue.
    pub refuse_fast: bool,
    /// Connections that the kernel keeps waiting for an accept (memcached's `-b`).
    pub backlog: u32,
    /// Seconds after which an idle connection is closed; 0: never.
    pub idle_timeout: u32,
    /// Seconds that reclaim of flash waits for a client that reads a large value, before the client
    /// is closed.
    pub stall: u32,
    /// Most requests of one connection before others get their turn (memcached's `-R`).
    pub requests_per_turn: usize,
    /// Return errors instead of evicting (`-M`).
    pub no_evict: bool,
    /// CAS is off (`-C`): clients see CAS values of 0.
    pub no_cas: bool,
    /// `flush_all` is refused (`-F`).
    pub no_flush_all: bool,
    /// The `shutdown` command is allowed (`-A`).
    pub allow_shutdown: bool,
    /// `stats cachedump` and `lru_crawler metadump` are refused (`-X`).
    pub no_dump: bool,
    /// `watch` is refused (`-W`).
    pub no_watch: bool,
    /// Count requests by key prefix from the start, with this delimiter (`-D`). `None`: with `:`,
    /// after `stats detail on`.
    pub prefix_delimiter: Option<u8>,
    /// Verbosity, 0 to 3.
    pub verbosity: u8,
    /// Called with the new verbosity by a `verbosity` command, so that the log can follow it.
    pub on_verbosity: Option<fn(u8)>,
    /// Only this protocol (`-B`): ascii, binary; `None`: each connection's first byte decides.
    pub only_protocol: Option<Dialect>,
    pub flash: Vec<FlashSpec>,
    /// State that survives the process is kept here and in `shared_memory`; `None`: no state
    /// survives.
    pub data_dir: Option<PathBuf>,
    /// Whether a clean stop keeps the items of DRAM too.
    pub keep_dram: bool,
    /// A start more than this many seconds after the previous server begins empty.
    pub max_absence: Option<u32>,
    /// Start over with an empty cache if the data directory or a flash file belongs to something
    /// else.
    pub reinit: bool,
    /// Folder on a file system in memory.
    pub shared_memory: PathBuf,
    /// Bytes of a region; `None`: by memory, 16 MiB at most.
    pub region: Option<usize>,
    /// Eviction from DRAM.
    pub policy: PolicyKind,
    pub admission: Admission,
    /// Hits on flash after which an item is promoted.
    pub promote_after: u8,
    /// Values larger than this many bytes go to flash as they arrive; at least 64 KiB.
    pub stream_over: usize,
    /// Reinsert items with hits.
    pub reinsert: bool,
    /// Small items go to flash in the order of their hashes.
    pub sort_small: bool,
    /// How long a worker polls for the end of a flash read before it sleeps, if polling usually
    /// succeeds.
    pub spin: Duration,
    pub io: BackendChoice,
    /// Record what reaches the flash devices.
    pub trace: Option<PathBuf>,
    /// Pass discards to block devices.
    pub discard: bool,
    /// A clock driven by a test: Unix milliseconds; `None`: the system's.
    pub clock: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
    /// Makes the flash files fail, for tests: one switch per file, in their order; empty: none.
    pub faults: Vec<std::sync::Arc<senko_io::fault::FaultSwitch>>,
    /// How many times longer than usual a device may take before it counts as stalled, and a stop
    /// may take. For tests, which also run on busy disks and cores.
    pub patience: u32,
    /// Whether it was called by the name `memcached`. Then `stats settings`, `version` and defaults
    /// are memcached's.
    pub drop_in: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether a random seed is drawn for the hashes of keys. `false`: `hash_seed` is used
    /// unchanged, for tests.
    pub draw_hash_seed: bool,
    /// Seed of the hashes of keys. An existing data directory keeps its own seed.
    pub hash_seed: HashSeed,
}

impl Settings {
    /// Whether there is an admin listener.
    pub fn watched(&self) -> bool {
        self.admin.is_some() || self.passed.iter().any(|(name, _)| name == ADMIN)
    }

    /// On which terms this address of `listen` serves.
    pub(crate) fn terms(&self, address: &SocketAddr) -> Terms {
        let only = self.protocols.iter().find(|(a, _)| a == address);
        Terms {
            guarded: !self.noauth.contains(address),
            tls: self.tls_mode(address),
            only: only.map(|(_, only)| *only),
        }
    }

    /// The addresses of `listen` whose terms differ from the usual ones.
    pub(crate) fn prefixed(&self) -> impl Iterator<Item = &SocketAddr> {
        let tls = self.tls_modes.iter().map(|(address, _)| address);
        let only = self.protocols.iter().map(|(address, _)| address);
        self.noauth.iter().chain(tls).chain(only)
    }

    /// How connections to this address of `listen` are encrypted.
    pub fn tls_mode(&self, address: &SocketAddr) -> TlsMode {
        let own = self.tls_modes.iter().find(|(a, _)| a == address);
        match (&self.tls, own) {
            (None, _) => TlsMode::Off,
            (Some(_), own) => own.map_or(TlsMode::Default, |(_, mode)| *mode),
        }
    }
}

/// The name that a service manager gives to the socket of the admin listener.
pub(crate) const ADMIN: &str = "admin";

/// The protocols of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Classic text and meta commands.
    Ascii,
    Binary,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 11211))],
            noauth: Vec::new(),
            auth_file: None,
            sasl_file: None,
            tls: None,
            tls_modes: Vec::new(),
            protocols: Vec::new(),
            passed: Vec::new(),
            admin: None,
            admin_hosts: Vec::new(),
            ctl: None,
            pull: None,
            fill_from: None,
            on_drained: None,
            hot_keys: None,
            rated_writes: None,
            unix_socket: None,
            unix_mask: 0o700,
            memory: 1 << 30,
            item_memory: None,
            max_item: 1 << 20,
            raise_max_item: false,
            max_connections: 1024,
            threads: 1,
            shards: None,
            refuse_fast: true,
            backlog: 1024,
            idle_timeout: 0,
            stall: 10,
            requests_per_turn: 20,
            no_evict: false,
            no_cas: false,
            no_flush_all: false,
            allow_shutdown: false,
            no_dump: false,
            no_watch: false,
            prefix_delimiter: None,
            verbosity: 0,
            on_verbosity: None,
            only_protocol: None,
            flash: Vec::new(),
            data_dir: None,
            keep_dram: false,
            max_absence: None,
            reinit: false,
            shared_memory: PathBuf::from("/dev/shm"),
            region: None,
            policy: PolicyKind::S3Fifo,
            admission: Admission {
                rule: AdmissionRule::All,
                budget: None,
            },
            promote_after: 2,
            stream_over: 64 << 10,
            reinsert: true,
            sort_small: false,
            spin: Duration::from_micros(20),
            io: BackendChoice::Auto,
            trace: None,
            discard: false,
            clock: None,
            faults: Vec::new(),
            patience: 1,
            drop_in: false,
            seed: 0,
            draw_hash_seed: true,
            hash_seed: HashSeed::default(),
        }
    }
}
