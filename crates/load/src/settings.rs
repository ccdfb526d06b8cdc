// SPDX-License-Identifier: Apache-2.0
//! The settings of a load run in one struct, filled by `senko load`'s options, by the lab and by
//! tests.
//!
//! [`crate::plan`] checks the settings against each other and binds them to numbers.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::changes::Changes;
use crate::tls::TlsOptions;
use senko_io::BackendChoice;
use senko_workload::{KeyShape, Mix, Op, Popularity, ValueLen};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A user of the server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The name, without a space.
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({:?})", self.user)
    }
}

/// Memcached's port, for an address without one.
pub const DEFAULT_PORT: u16 = 11211;

/// `HOST`, `HOST:PORT`, or the path of a Unix socket (any text with a `/`).
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if text.contains('/') {
            return Ok(Target::Unix(PathBuf::from(
                text.strip_prefix("unix:").unwrap_or(text),
            )));
        }
        let found = if text.contains(':') && !text.ends_with(']') && text.matches(':').count() == 1
            || text.contains("]:")
        {
            text.to_socket_addrs()
        } else {
            (text.trim_matches(['[', ']']), DEFAULT_PORT).to_socket_addrs()
        };
        if text.is_empty() {
            return Err(
                "an empty name is no server; write HOST, HOST:PORT or the path of a Unix socket"
                    .to_owned(),
            );
        }
        match found.map(|mut addresses| addresses.next()) {
            Ok(Some(address)) => Ok(Target::Tcp(address)),
            Ok(None) => Err(format!("the server's name {text} has no address")),
            Err(error) => Err(format!("\"{text}\" is no server: {error}")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "{address}"),
            Target::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `get` and `set`.
    Classic,
    /// `mg` and `ms`.
    Meta,
    Binary,
}

impl Wire {
    pub fn name(self) -> &'static str {
        match self {
            Wire::Classic => "classic",
            Wire::Meta => "meta",
            Wire::Binary => "binary",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCount {
    Keys(u64),
    /// As many as needed until keys and values, by their lengths, add up to this many bytes.
    Bytes(u64),
}

/// The part of the load order that a read-back covers. Places count from 0 in the order in which
/// the load step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    /// From the first place to the last, including both.
    Places(u64, u64),
    /// The places written last, whose keys and values add up to this many bytes.
    LastBytes(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Requests(u64),
    For(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Writes every key once.
    Load,
    /// Reads every key of [`Settings::part`] once.
    ReadBack,
    /// Runs the mix; counted, but not reported as a step.
    WarmUp(Duration),
    Mix(Amount),
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Step::Load => "load",
            Step::ReadBack => "read-back",
            Step::WarmUp(_) => "warm-up",
            Step::Mix(_) => "mix",
        }
    }
}

/// The law of the gaps in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    Even,
    Poisson,
    /// Facebook's ETC, stretched to the rate.
    Etc,
}

impl Gaps {
    pub fn name(self) -> &'static str {
        match self {
            Gaps::Even => "even",
            Gaps::Poisson => "poisson",
            Gaps::Etc => "etc",
        }
    }
}

/// What triggers the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// An answer: each connection keeps [`Settings::pipeline`] requests under way.
    Closed,
    /// A schedule that does not depend on the answers. Latency counts from the time a request was
    /// due.
    Open {
        /// Requests a second over all connections; `None` with [`Gaps::Etc`]: ETC's own rate.
        rate: Option<f64>,
        gaps: Gaps,
    },
}

/// Lets answers gather, so that one system call takes several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Answers to wait for (never more than are under way).
    pub answers: usize,
    pub wait: Duration,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub target: Target,
    /// How connections are encrypted; `None`: not encrypted.
    pub tls: Option<TlsOptions>,
    /// The user of each connection; `None`: connections do not log in.
    pub login: Option<Login>,
    pub wire: Wire,
    /// Connections over all threads.
    pub connections: usize,
    pub threads: usize,
    /// Requests under way on a connection.
    pub pipeline: usize,
    pub keys_per_get: usize,
    pub steps: Vec<Step>,
    /// What triggers the next request.
    pub pace: Pace,
    /// Operations and popularity of the mix.
    pub mix: Mix,
    /// The shares of `incr`, `decr`, `append` and `prepend`; [`Settings::mix`] describes the rest.
    /// They also determine the kind of each key's value, in all steps.
    pub changes: Changes,
    pub keys: KeyCount,
    /// What every key starts with.
    pub prefix: String,
    pub key_shape: KeyShape,
    pub value_len: ValueLen,
    /// Whether the versions of a key's value differ in length.
    pub vary_len: bool,
    /// Whether the load step writes the keys in a seeded random order instead of by number.
    pub permuted: bool,
    /// The part that a read-back covers.
    pub part: Part,
    /// The version that the load step writes.
    pub generation: u32,
    /// Whether the server is known to hold only [`Settings::generation`] before the first step, so
    /// that other versions are wrong.
    pub generation_known: bool,
    pub verify: bool,
    /// Whether a set of the key follows a miss (cache-aside).
    pub set_on_miss: bool,
    /// Whether sets suppress their answers.
    pub noreply: bool,
    /// Seconds until items expire; 0: never.
    pub expire: u32,
    pub timeout: Duration,
    /// How answers gather. `None`: never in an open loop; in a closed one, while this program is
    /// short of processor time.
    pub gather: Option<Gather>,
    /// The server's process, whose CPU time is reported.
    pub server_pid: Option<u32>,
    pub io: BackendChoice,
    /// Seed of every random choice.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: Target::Tcp(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))),
            tls: None,
            login: None,
            wire: Wire::Classic,
            connections: 64,
            threads: 1,
            pipeline: 1,
            keys_per_get: 1,
            steps: vec![Step::Mix(Amount::For(Duration::from_secs(10)))],
            pace: Pace::Closed,
            mix: reads_and_updates(
                0.9,
                Popularity::Zipf {
                    s: 0.99,
                    scrambled: true,
                },
            )
            .expect("0.9 and 0.1 add up to 1"),
            changes: Changes::default(),
            keys: KeyCount::Keys(1_000_000),
            prefix: "key".to_owned(),
            key_shape: KeyShape::Fixed(16),
            value_len: ValueLen::Fixed(1000),
            vary_len: false,
            permuted: false,
            part: Part::All,
            generation: 1,
            generation_known: false,
            verify: false,
            set_on_miss: false,
            noreply: false,
            expire: 0,
            timeout: Duration::from_secs(10),
            gather: None,
            server_pid: None,
            io: BackendChoice::Auto,
            seed: 1,
        }
    }
}

/// A mix of gets (a share `gets` of the requests) and sets.
///
/// # Errors
/// If `gets` is not in 0..=1.
pub fn reads_and_updates(
    gets: f64,
    popularity: Popularity,
) -> Result<Mix, senko_workload::SpecError> {
    Mix::new(gets, 1.0 - gets, 0.0, 0.0, popularity)
}

pub(crate) fn writes(mix: &Mix) -> bool {
    mix.share(Op::Read) < 1.0
}

/// Whether a mix makes new keys.
pub(crate) fn inserts(mix: &Mix) -> bool {
    mix.share(Op::Insert) > 0.0
}
