// SPDX-License-Identifier: Apache-2.0
//! The drop-in: the meaning of memcached 1.6's options when senko is called by that program's name.
//!
//! There are three kinds. Options with a meaning here are used ([`Meaning::overlay`]). Tuning
//! options for parts that senko does not have are accepted, and named once in a warning. Options
//! that promise security, or a protocol that senko does not have, are refused, because ignoring
//! them would silently break the promise. Exit codes are memcached's (64 for usage, 1 for an
//! unknown option or a number that must not be 0, 67 for no such user).
//!
//! Flash is used if `-o ext_path=FILE:SIZE` asks for it, as in memcached, or if a TOML file does.
//! `-o senko_config=FILE` names that file. It has the options of `senko serve`, and the command
//! line overrides it.

use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::ExitCode;

use senko_io::{note, tell};
use senko_server::settings::Settings;

use crate::getopt;
use crate::machine;
use crate::options::{DEFAULT_PORT, Doors, ServeOptions, delimiter, resolve_doors};
use crate::process::{self, User};
use crate::serve::{self, Surroundings};
use crate::units::{Bytes, Flash, Megabytes, Protocol, TlsVersion};

/// The memcached release whose behaviour is copied; scripts read it as the version.
const MEMCACHED_VERSION: &str = "1.6.45";
/// Names the password file of `-S`, as in memcached builds that support one.
const SASL_FILE: &str = "MEMCACHED_SASL_PWDB";
/// memcached's `ssl_wbuf_size`, in KiB, and the most that is taken.
const WRITE_KIB: NonZeroU16 = NonZeroU16::new(16).expect("not zero");
const MOST_WRITE_KIB: NonZeroU16 = NonZeroU16::new(1024).expect("not zero");
const FAILED: u8 = 1;
const EX_USAGE: u8 = 64;
const EX_NOUSER: u8 = 67;

/// A refusal: exit code and sentence.
#[derive(Debug)]
struct Refusal(u8, String);

type Answer<T> = Result<T, Refusal>;

fn usage<T>(text: impl ToString) -> Answer<T> {
    Err(Refusal(EX_USAGE, text.to_string()))
}

/// Runs as memcached.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<String> = args
        .into_iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    match start(&args) {
        _ if crate::out::closed() => ExitCode::SUCCESS, // `out::end` has the right one
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal(code, text)) => {
            tell!("{text}");
            ExitCode::from(code)
        }
    }
}

fn start(args: &[String]) -> Answer<()> {
    let given = getopt::parse(args).map_err(|why| Refusal(FAILED, why))?;
    for (option, _) in &given {
        match option {
            'h' => {
                return print(&format!("{}\n{USAGE}", version()));
            }
            'V' => {
                return print(&version());
            }
            'i' => {
                return print(&format!(
                    "{}\n\nsenko is licensed under the Apache License, Version 2.0, and shares no code with memcached.",
                    version()
                ));
            }
            _ => {}
        }
    }
    let mut meaning = Meaning::default();
    for (option, value) in &given {
        meaning.overlay(*option, value)?;
    }
    let (settings, mut around) = meaning.finish()?;
    if process::is_root() {
        let Some(name) = &meaning.options.user else {
            return usage("can't run as root without the -u switch");
        };
        match User::find(name) {
            Ok(Some(user)) => around.user = Some(user),
            _ => {
                return Err(Refusal(
                    EX_NOUSER,
                    format!("can't find the user {name} to switch to"),
                ));
            }
        }
    }
    if !meaning.unused.is_empty() {
        note!(
            "warning: accepted without effect here: {}",
            meaning.unused.join(", ")
        );
    }
    serve::run(settings, around).map_err(|error| Refusal(1, format!("{error:#}")))
}

fn print(text: &str) -> Answer<()> {
    writeln!(crate::out::stdout(), "{text}")
        .map_err(|why| Refusal(1, format!("cannot write to stdout: {why}")))
}

fn version() -> String {
    format!("memcached {MEMCACHED_VERSION} (senko {})", crate::VERSION)
}

/// The combined options so far.
#[derive(Debug)]
struct Meaning {
    /// The options that `senko serve` has too.
    options: ServeOptions,
    /// `-p`: `Some(None)` is port 0, TCP off.
    port: Option<Option<u16>>,
    /// `-o senko_config`.
    config: Option<PathBuf>,
    refuse_fast: bool,
    no_watch: bool,
    /// A suboption about TLS.
    ssl: Option<String>,
    /// `-S`.
    sasl: bool,
    lock_memory: bool,
    core_dumps: bool,
    /// Accepted options without an effect.
    unused: Vec<String>,
}

impl Default for Meaning {
    fn default() -> Meaning {
        Meaning {
            options: ServeOptions::default(),
            port: None,
            config: None,
            refuse_fast: true,
            no_watch: false,
            ssl: None,
            sasl: false,
            lock_memory: false,
            core_dumps: false,
            unused: Vec::new(),
        }
    }
}

impl Meaning {
    /// Handles one option.
    fn overlay(&mut self, option: char, value: &str) -> Answer<()> {
        let to = &mut self.options;
        // memcached ends with 1 where a number is 0 that can't be, and for an option that it has
        // not.
        let counted = |refusal: Refusal| Refusal(FAILED, refusal.1);
        match option {
            'p' => {
                self.port = Some(match value {
                    "-1" => Some(0), // any free port, as memcached's own tests request it
                    "0" => None,
                    _ => Some(number(value, 'p')?),
                });
            }
            'U' => {
                to.udp_port = Some(if value == "-1" {
                    1
                } else {
                    number(value, 'U')?
                })
            }
            's' => to.unix_socket = Some(PathBuf::from(value)),
            'a' => to.unix_mask = Some(value.parse().or_else(usage)?),
            'A' => to.enable_shutdown = Some(true),
            'l' => to.listen.push(value.to_string()),
            'd' => to.daemon = Some(true),
            'r' => self.core_dumps = true,
            'u' => to.user = Some(value.to_string()),
            'm' => to.memory = Some(value.parse().or_else(usage)?),
            'M' => to.disable_evictions = Some(true),
            'c' => to.connections = Some(positive(value, 'c').map_err(counted)?),
            'k' => self.lock_memory = true,
            'v' => to.verbose = to.verbose.saturating_add(1),
            'P' => to.pidfile = Some(PathBuf::from(value)),
            'f' | 'n' | 'L' | 'N' => self.unused.push(format!("-{option}")),
            'D' => match delimiter(value) {
                Ok(byte) => to.prefix_delimiter = Some(byte),
                Err(why) => return usage(format!("-D: {why}")),
            },
            't' => to.threads = Some(positive(value, 't').map_err(counted)?),
            'R' => to.max_reqs_per_event = Some(positive(value, 'R').map_err(counted)?),
            'C' => to.disable_cas = Some(true),
            'b' => to.listen_backlog = Some(number(value, 'b')?),
            'B' => to.protocol = Some(value.parse::<Protocol>().or_else(usage)?),
            'I' => to.max_item_size = Some(value.parse::<Bytes>().or_else(usage)?),
            'F' => to.disable_flush_all = Some(true),
            'X' => to.disable_dumping = Some(true),
            'W' => self.no_watch = true,
            'S' => self.sasl = true,
            'Y' => to.auth_file = Some(PathBuf::from(value)),
            'Z' => to.tls.tls = Some(true),
            'e' => {
                return usage(
                    "a memory file (-e) is not supported; -o ext_path=FILE:SIZE keeps items on flash",
                );
            }
            'o' => {
                for part in value.split(',').filter(|p| !p.is_empty()) {
                    let (name, value) = part
                        .split_once('=')
                        .map_or((part, None), |(n, v)| (n, Some(v)));
                    self.extended(name, value).map_err(counted)?;
                }
            }
            _ => return usage(format!("there is no option -{option}")),
        }
        Ok(())
    }

    /// Handles one `-o` option.
    fn extended(&mut self, name: &str, value: Option<&str>) -> Answer<()> {
        let need = || {
            value.map_or_else(
                || usage(format!("Missing value for the suboption {name}")),
                Ok,
            )
        };
        match name {
            "maxconns_fast" => self.refuse_fast = true,
            "no_maxconns_fast" => self.refuse_fast = false,
            "idle_timeout" => {
                self.options.idle_timeout = Some(
                    need()?
                        .parse()
                        .or_else(|_| usage("idle_timeout is a number of seconds"))?,
                );
            }
            "ext_path" => self.options.flash.push(ext_path(need()?)?),
            "ext_page_size" => {
                let Megabytes(bytes) = need()?.parse().or_else(usage)?;
                self.options.region = Some(Bytes(bytes));
            }
            "senko_config" => self.config = Some(PathBuf::from(need()?)),
            _ if name.starts_with("ssl_") => {
                // Only -Z turns encryption on, and an unused certificate would be a broken promise.
                self.ssl = Some(name.to_owned());
                return self.ssl(name, value);
            }
            _ if name.starts_with("proxy_") => {
                return usage(format!(
                    "the proxy is not supported, so the suboption {name} is refused"
                ));
            }
            "no_modern" | "modern" => {}
            _ if UNUSED_EXTENDED.contains(&name) => self.unused.push(format!("-o {name}")),
            _ => return usage(format!("Illegal suboption \"{name}\"")),
        }
        Ok(())
    }

    /// Handles one of the suboptions of TLS.
    fn ssl(&mut self, name: &str, value: Option<&str>) -> Answer<()> {
        let tls = &mut self.options.tls;
        if name == "ssl_session_cache" {
            tls.tls_session_cache = Some(true);
            return Ok(());
        }
        if name == "ssl_kernel_tls" {
            self.unused.push(format!("-o {name}"));
            return Ok(());
        }
        let Some(value) = value else {
            return usage(format!("Missing value for the suboption {name}"));
        };
        match (name, value) {
            ("ssl_chain_cert", _) => tls.tls_chain_cert = Some(PathBuf::from(value)),
            ("ssl_key", _) => tls.tls_key = Some(PathBuf::from(value)),
            ("ssl_ca_cert", _) => tls.tls_ca_cert = Some(PathBuf::from(value)),
            ("ssl_ciphers", _) => tls.tls_ciphers = Some(value.to_owned()),
            ("ssl_verify_mode", "0" | "1" | "2" | "3") => {
                tls.tls_verify_mode = Some(value.parse().or_else(usage)?);
            }
            ("ssl_verify_mode", _) => return usage("ssl_verify_mode is 0, 1, 2 or 3"),
            ("ssl_min_version", "2") => tls.tls_min_version = Some(TlsVersion(false)),
            ("ssl_min_version", "3") => tls.tls_min_version = Some(TlsVersion(true)),
            ("ssl_min_version", _) => {
                return usage(
                    "ssl_min_version is 2 (tlsv1.2) or 3 (tlsv1.3); older versions are not served",
                );
            }
            ("ssl_keyformat", "1" | "PEM") => {}
            ("ssl_keyformat", _) => return usage("ssl_keyformat is PEM"),
            ("ssl_wbuf_size", _) => match value.parse() {
                Ok(kib) if kib <= MOST_WRITE_KIB => tls.write_kib = Some(kib),
                _ => return usage(format!("ssl_wbuf_size is 1 to {MOST_WRITE_KIB} kilobytes")),
            },
            _ => return usage(format!("Illegal suboption \"{name}\"")),
        }
        Ok(())
    }

    /// Settings and process options, with memcached's defaults.
    fn finish(&mut self) -> Answer<(Settings, Surroundings)> {
        if let (Some(name), None) = (&self.ssl, self.options.tls.tls) {
            return usage(format!("{name} is about TLS, and -Z turns that on"));
        }
        let file = match &self.config {
            Some(path) => ServeOptions::from_file(path).or_else(|e| usage(format!("{e:#}")))?,
            None => ServeOptions::default(),
        };
        let cap = if self.options.memory.is_none() {
            file.memory
        } else {
            None
        };
        let own = self.options.memory;
        let mut options = self.options.clone();
        options.memory = None;
        let mut options = options.over(ServeOptions {
            memory: None,
            ..file
        });
        options.port = self.port.unwrap_or(options.port);
        let port = options.port.unwrap_or(DEFAULT_PORT);
        // The network settings are completed below: memcached's defaults differ from those of
        // `senko serve`.
        let listen = std::mem::take(&mut options.listen);
        let mut settings = options.settings().or_else(|e| usage(format!("{e:#}")))?;
        (settings.drop_in, settings.raise_max_item) = (true, false);
        if let Some(tls) = &mut settings.tls {
            tls.write_kib.get_or_insert(WRITE_KIB);
        }
        if self.sasl && settings.sasl_file.is_none() {
            let Some(path) = std::env::var_os(SASL_FILE) else {
                return usage(format!(
                    "-S needs a password file with lines user:password: name it in {SASL_FILE}"
                ));
            };
            settings.sasl_file = Some(PathBuf::from(path));
        }
        let doors = if options.unix_socket.is_some() {
            Doors::default()
        } else if self.port == Some(None) {
            return usage("-p 0 turns TCP off, and without -s nothing is left to listen on");
        } else {
            let all = if listen.is_empty() {
                vec!["*".to_string()]
            } else {
                listen
            };
            resolve_doors(&all, port).or_else(|e| usage(format!("{e:#}")))?
        };
        doors.enter(&mut settings);
        if options.threads.is_none() {
            settings.threads = machine::cores().min(4);
        }
        settings.refuse_fast = self.refuse_fast;
        settings.no_watch = self.no_watch;
        match (own, cap) {
            (None, Some(Megabytes(bytes))) => settings.memory = bytes, // the file's cap on everything
            (own, _) => {
                let Megabytes(bytes) = own.unwrap_or(Megabytes(64 << 20));
                if bytes == 0 {
                    return usage("-m 0 leaves no memory for items");
                }
                if settings.max_item as u64 > bytes / 2 {
                    return usage("Cannot set item size limit higher than 1/2 of memory max.");
                }
                settings.item_memory = Some(bytes);
            }
        }
        let around = Surroundings {
            pidfile: options.pidfile.clone(),
            daemon: options.daemon.unwrap_or(false),
            port_file: std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from),
            lock_memory: self.lock_memory,
            core_dumps: self.core_dumps,
            banner: options.verbose > 0,
            log_format: options.log_format.unwrap_or_default(),
            ..Surroundings::default()
        };
        self.options.user.clone_from(&options.user);
        Ok((settings, around))
    }
}

/// `FILE:SIZE`, or `FILE:SIZE:BUCKET` with one of extstore's page buckets, which have no meaning
/// here.
fn ext_path(text: &str) -> Answer<Flash> {
    let spec = match text.rsplit_once(':') {
        Some((rest, "compact" | "lowttl" | "chunked" | "default" | "coldcompact" | "old")) => rest,
        _ => text,
    };
    let flash: Flash = spec.parse().or_else(usage)?;
    if flash.0.bytes == 0 {
        return usage(format!("ext_path needs a size: -o ext_path={text}:1G"));
    }
    Ok(flash)
}

fn number<T: std::str::FromStr>(text: &str, option: char) -> Answer<T> {
    text.trim()
        .parse()
        .or_else(|_| usage(format!("\"{text}\" is not a number that -{option} accepts")))
}

/// A number above 0.
fn positive(text: &str, option: char) -> Answer<usize> {
    match number(text, option)? {
        0 => usage(format!("-{option} must be greater than 0")),
        number => Ok(number),
    }
}

/// Suboptions that tune parts of memcached that senko does not have.
const UNUSED_EXTENDED: &[&str] = &[
    "hashpower",
    "tail_repair_time",
    "hash_algorithm",
    "no_hashexpand",
    "slab_reassign",
    "no_slab_reassign",
    "slab_automove",
    "no_slab_automove",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "slab_chunk_max",
    "slab_sizes",
    "chunked_items",
    "no_chunked_items",
    "lru_crawler",
    "no_lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "no_lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "read_buf_mem_limit",
    "resp_obj_mem_limit",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "expirezero_does_not_evict",
    "watcher_logbuf_size",
    "worker_logbuf_size",
    "track_sizes",
    "drop_privileges",
    "no_drop_privileges",
    "relaxed_privileges",
    "sock_cookie_id",
    "ext_wbuf_size",
    "ext_threads",
    "ext_io_depth",
    "ext_item_size",
    "ext_item_age",
    "ext_low_ttl",
    "ext_drop_unread",
    "ext_recache_rate",
    "ext_compact_under",
    "ext_drop_under",
    "ext_max_frag",
    "ext_max_sleep",
];

/// Scripts search this text for `ext_path`, `unix-socket` and the like to learn what the server can
/// do. So it names only what the server can do.
const USAGE: &str = "\
-p, --port=<num>          TCP port to listen on (default: 11211; 0: off, -1: any free one)
-U, --udp-port=<num>      must be 0: there is no UDP
-s, --unix-socket=<file>  UNIX socket to listen on (disables network support)
-a, --unix-mask=<mask>    access mask for UNIX socket, in octal (default: 700)
-A, --enable-shutdown     enable ascii \"shutdown\" command
-l, --listen=<addr>       interface to listen on (default: INADDR_ANY); noauth: in front asks
                          for no password there; notls: is not encrypted, btls: asks for no
                          client certificate, mtls: for one that ssl_ca_cert vouches for;
                          proto[ascii]: and proto[binary]: speak that protocol only
-d, --daemon              run as a daemon
-r, --enable-coredumps    maximize core file limit; without it no core file is written
-u, --user=<user>         assume identity of <username> (only when run as root)
-m, --memory-limit=<num>  item memory in megabytes (default: 64)
-M, --disable-evictions   return error on memory exhausted instead of evicting
-c, --conn-limit=<num>    max simultaneous connections (default: 1024)
-k, --lock-memory         lock down all paged memory
-v, --verbose             verbose (print errors/warnings while in event loop)
-vv                       very verbose
-vvv                      extremely verbose
-h, --help                print this help and exit
-i, --license             print the license and exit
-V, --version             print version and exit
-P, --pidfile=<file>      save PID in <file>
-D <char>                 delimiter between key prefixes and IDs, for \"stats detail\"
-t, --threads=<num>       number of threads to use (default: one a core, at most 4)
-R, --max-reqs-per-event  maximum number of requests per event, limits the
                          requests processed per connection to prevent
                          starvation (default: 20)
-C, --disable-cas         disable use of CAS
-b, --listen-backlog=<num> set the backlog queue limit (default: 1024)
-B, --protocol=<name>     protocol - one of ascii, binary, or auto (default: auto-negotiate)
-I, --max-item-size=<num> adjusts max item size
                          (default: 1m, min: 1k, max: 1024m)
-F, --disable-flush-all   disable flush_all command
-X, --disable-dumping     disable stats cachedump, stats detail, stats hotkeys
                          and lru_crawler metadump
-S, --enable-sasl         ask for a user and password in the binary protocol (SASL PLAIN)
-Y, --auth-file=<file>    ask for a user and password in the ascii protocol; the file has a
                          line user:password for each of 8 users at most
-Z, --enable-ssl          encrypt TCP connections (-o ssl_chain_cert and ssl_key)
-W  --disable-watch       disable watch commands (live logging)
-f, -n, -L, -N            accepted, without effect
-o, --extended            comma separated list of extended options
   - maxconns_fast:       immediately close new connections after limit (default: enabled;
                          no_maxconns_fast leaves them waiting)
   - idle_timeout:        timeout for idle connections. (default: 0, no timeout)
   - ext_path:            file or device to keep items on, and its size; may be repeated
                          ie: ext_path=/mnt/d1/extstore:1G
   - ext_page_size:       size in megabytes of the regions that are written and reclaimed at a time;
                          less where ext_path has no room for 4 of them a thread
   - ssl_chain_cert:      certificate chain file in PEM format
   - ssl_key:             private key in PEM format, if not part of ssl_chain_cert
   - ssl_verify_mode:     clients' certificates: 0(None), 1(Request), 2(Require) or 3(Once)
                          (default: 0)
   - ssl_ca_cert:         PEM format file of acceptable client CA's
   - ssl_min_version:     2(tlsv1.2) or 3(tlsv1.3) (default: 2)
   - ssl_ciphers:         cipher suites by OpenSSL's names, with colons between
   - ssl_session_cache:   clients may resume sessions
   - ssl_wbuf_size:       kilobytes of its answers that a connection encrypts and sends at a time
                          (default: 16, max: 1024)
   - senko_config:        TOML file with the options of `senko serve`, under this command line
   - memcached's other extended options are accepted, without effect

Environment variables:
MEMCACHED_SASL_PWDB       password file of -S, as that of -Y, with 64 users at most
MEMCACHED_PORT_FILENAME   file to write port information to";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use senko_server::settings::{TlsMode, TlsVerify};

    use super::*;

    fn read(line: &str) -> Answer<(Settings, Surroundings, Vec<String>)> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let mut meaning = Meaning::default();
        for (option, value) in getopt::parse(&args).map_err(|why| Refusal(FAILED, why))? {
            meaning.overlay(option, &value)?;
        }
        let (settings, around) = meaning.finish()?;
        Ok((settings, around, meaning.unused))
    }

    #[test]
    fn defaults_are_memcacheds() {
        let (settings, around, unused) = read("").unwrap();
        assert_eq!(settings.item_memory, Some(64 << 20));
        assert_eq!(settings.max_connections, 1024);
        assert!(
            settings
                .listen
                .iter()
                .any(|a| a.to_string() == "0.0.0.0:11211")
        );
        assert!(settings.flash.is_empty() && settings.drop_in && settings.refuse_fast);
        assert!(!around.daemon && unused.is_empty());
    }

    #[test]
    fn a_service_files_line() {
        let (settings, around, unused) =
            read("-d -m 128 -p 0 -s /run/x.sock -a 0777 -u memcache -c 2048 -t 2 -P /run/x.pid -f 1.1 -o modern,hashpower=20,no_maxconns_fast,idle_timeout=30").unwrap();
        assert_eq!(settings.item_memory, Some(128 << 20));
        assert_eq!(settings.prefix_delimiter, None);
        let (with_prefixes, ..) = read("-D /").unwrap();
        assert_eq!(with_prefixes.prefix_delimiter, Some(b'/'));
        assert!(read("-D ::").is_err_and(|refused| refused.0 == EX_USAGE));
        assert_eq!(
            (
                settings.threads,
                settings.max_connections,
                settings.idle_timeout
            ),
            (2, 2048, 30)
        );
        assert!(settings.listen.is_empty() && settings.unix_mask == 0o777 && !settings.refuse_fast);
        assert!(around.daemon && around.pidfile.is_some());
        assert_eq!(unused, ["-f", "-o hashpower"]);
    }

    #[test]
    fn flash_by_ext_path() {
        let (settings, _, _) =
            read("-m 1024 -o ext_path=/mnt/a:64G:compact,ext_path=/mnt/b:1T,ext_page_size=8")
                .unwrap();
        assert_eq!(settings.flash.len(), 2);
        assert_eq!(settings.flash[0].bytes, 64 << 30);
        assert_eq!(settings.region, Some(8 << 20));
        assert!(read("-o ext_path=/mnt/a").is_err());
        assert!(read("-o ext_path").is_err());
    }

    #[test]
    fn refused() {
        for line in [
            "-S",
            "-Z",
            "--enable-ssl",
            "-Z -o ssl_key=k",
            "-o ssl_chain_cert=c,ssl_key=k",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_min_version=1",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_verify_mode=4",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_keyformat=2",
            "-Z -o ssl_chain_cert=c,ssl_key=k -l btls:mtls:1.2.3.4",
            "--enable-sasl",
            "-U 1",
            "-e f",
            "-o ssl_key=x",
            "-o nonsense",
            "-p 0",
            "-m 0",
            "-m lots",
            "-t 0",
            "-c 0",
            "-R 0",
            "-I 10",
            "-I 40m",
            "-B udp",
            "-p 99999",
            "-Q",
            "-c",
        ] {
            let Refusal(code, text) = read(line).expect_err(line);
            let failed = ["-t 0", "-c 0", "-R 0", "-Q", "-c", "-o nonsense"];
            let of_suboption = line.contains("_min_version=")
                || line.contains("_mode=4")
                || line.contains("_keyformat=");
            let is_failed = failed.contains(&line) || of_suboption;
            assert_eq!(code == FAILED, is_failed, "{line}: {code}");
            assert!(is_failed || code == EX_USAGE, "{line}: {code}");
            assert!(!text.is_empty() && !text.contains('\n'), "{line}: {text}");
        }
    }

    #[test]
    fn passwords() {
        let (settings, ..) = read("-Y f -l 10.0.0.1,noauth:127.0.0.1 -p 7").unwrap();
        assert_eq!(settings.auth_file, Some(PathBuf::from("f")));
        assert_eq!(settings.listen.len(), 2);
        assert_eq!(settings.noauth, ["127.0.0.1:7".parse().unwrap()]);
        let (settings, ..) = read("-l noauth:127.0.0.1").unwrap();
        assert_eq!(settings.listen, settings.noauth);
        assert!(read("-l 127.0.0.1,noauth:127.0.0.1").is_err());
    }

    #[test]
    fn tls() {
        let (settings, _, unused) = read(
            "-Z -p 7 -l 10.0.0.1,notls:127.0.0.1 -o ssl_chain_cert=c,ssl_key=k,ssl_verify_mode=2,ssl_ca_cert=a,ssl_min_version=3,ssl_ciphers=TLS_AES_128_GCM_SHA256,ssl_session_cache,ssl_wbuf_size=64",
        )
        .unwrap();
        let tls = settings.tls.clone().unwrap();
        assert_eq!((tls.chain, tls.key), ("c".into(), "k".into()));
        assert_eq!((tls.verify, tls.ca), (TlsVerify::Require, Some("a".into())));
        assert!(tls.only_1_3 && tls.session_cache);
        assert_eq!(tls.ciphers.as_deref(), Some("TLS_AES_128_GCM_SHA256"));
        assert_eq!(unused, <[&str; 0]>::default());
        assert_eq!(tls.write_kib, NonZeroU16::new(64));
        let (usual, ..) = read("-Z -o ssl_chain_cert=c,ssl_key=k").unwrap();
        assert_eq!(usual.tls.unwrap().write_kib, Some(WRITE_KIB));
        for size in ["0", "1025", "-1", "16k", ""] {
            let line = format!("-Z -o ssl_chain_cert=c,ssl_key=k,ssl_wbuf_size={size}");
            assert!(read(&line).is_err(), "{size}");
        }
        let mode = |address: &str| settings.tls_mode(&address.parse().unwrap());
        assert_eq!(mode("10.0.0.1:7"), TlsMode::Default);
        assert_eq!(mode("127.0.0.1:7"), TlsMode::Off);
        let (settings, ..) = read("-Z -o ssl_chain_cert=both").unwrap();
        assert_eq!(settings.tls.unwrap().key, PathBuf::from("both"));
    }

    #[test]
    fn any_port_and_addresses() {
        let (settings, _, _) = read("-p -1 -l 127.0.0.1 -U 0").unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:0".parse().unwrap()]);
        let (settings, _, _) = read("-l 127.0.0.1,[::1]:7 -p 5").unwrap();
        assert_eq!(settings.listen.len(), 2);
    }
}
