// SPDX-License-Identifier: Apache-2.0
//! The machine and the commit that a report names, read from `/proc` and `git`. A fact that cannot
//! be found out is `null`, never a guess.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cpu: Option<String>,
    /// How many cores this process may use.
    pub cores: Option<usize>,
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: Option<String>,
}

impl Machine {
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").map(str::to_string),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: field(&meminfo, "MemTotal")
                .and_then(|text| text.strip_suffix(" kB"))
                .and_then(|kib| kib.parse::<u64>().ok())
                .map(|kib| kib << 10),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|text| text.trim().to_string()),
        }
    }

    /// As in a result line.
    pub fn to_json(&self) -> Value {
        json!({ "cpu": self.cpu, "cores": self.cores, "memory_bytes": self.memory_bytes, "kernel": self.kernel })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.as_deref().unwrap_or("an unknown processor");
        let kernel = self.kernel.as_deref().unwrap_or("of unknown release");
        write!(f, "{cpu}")?;
        if let Some(cores) = self.cores {
            write!(f, ", {cores} cores")?;
        }
        if let Some(bytes) = self.memory_bytes {
            write!(f, ", {:.1} GiB", bytes as f64 / (1u64 << 30) as f64)?;
        }
        write!(f, ", Linux {kernel}")
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// The source that a run measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The full hash; `None` outside a git checkout or without git.
    pub hash: Option<String>,
    /// Whether tracked files differ from it.
    pub changed: bool,
}

impl Commit {
    /// The checkout that this program was built from, in its present state. A program that was
    /// moved to a machine without the checkout has no commit.
    pub fn current() -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(["-C", env!("CARGO_MANIFEST_DIR")])
                .args(arguments)
                .stdin(Stdio::null())
                .output()
                .ok()
                .filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
        };
        let hash = git(&["rev-parse", "HEAD"])
            .filter(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let changed = hash.is_some()
            && git(&["status", "--porcelain", "--untracked-files=no"])
                .is_none_or(|list| !list.is_empty());
        Self { hash, changed }
    }

    /// As in a result line: the hash, with `+changes` after it if the checkout differs, or `null`.
    pub fn to_json(&self) -> Value {
        self.hash
            .as_ref()
            .map_or(Value::Null, |_| json!(self.to_string()))
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hash {
            Some(hash) => write!(f, "{hash}{}", if self.changed { "+changes" } else { "" }),
            None => write!(f, "unknown"),
        }
    }
}
