// SPDX-License-Identifier: Apache-2.0
//! Other engines as contenders: a C program for each, which is compiled during the run and driven
//! over pipes.
//!
//! So no build needs a rival's library, and a rival that is not installed affects no other. The
//! program is `rival.c`. Always holds: it dies with its owner, and a killed program is an error,
//! not a hang.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{Contender, Order, Ran, Script, Work};
use crate::kv::session::rivals;
use crate::rig::cleanup::{self, Guard, Undo};
use crate::rig::sys;

const SOURCE: &str = include_str!("rival.c");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in keys and tables.
    pub name: &'static str,
    /// Its name in the source.
    define: &'static str,
    library: &'static str,
    /// Debian's package with it.
    package: &'static str,
    /// Whether threads may commit concurrently.
    pub threads: bool,
    /// Its settings, for people.
    pub settings: &'static str,
}

/// LevelDB: an LSM tree.
pub const LEVELDB: Kind = Kind {
    name: "leveldb",
    define: "LEVELDB",
    library: "leveldb",
    package: "libleveldb-dev",
    threads: true,
    settings: "64 MiB cache, filters of 10 bits, no compression",
};
/// RocksDB: an LSM tree after it.
pub const ROCKSDB: Kind = Kind {
    name: "rocksdb",
    define: "ROCKSDB",
    library: "rocksdb",
    package: "librocksdb-dev",
    threads: true,
    settings: "64 MiB cache, filters of 10 bits, no compression, 4 recycled logs",
};
/// LMDB: a B+ tree that is copied on write, in a memory map.
pub const LMDB: Kind = Kind {
    name: "lmdb",
    define: "LMDB",
    library: "lmdb",
    package: "liblmdb-dev",
    threads: true,
    settings: "MDB_NORDAHEAD, MDB_APPEND where keys ascend, MDB_NOSYNC where nothing is synced",
};
/// SQLite: a B tree with a log.
pub const SQLITE: Kind = Kind {
    name: "sqlite",
    define: "SQLITE",
    library: "sqlite3",
    package: "libsqlite3-dev",
    threads: false,
    settings: "WAL, synchronous=FULL (OFF where nothing is synced), 64 MiB cache",
};
/// GDBM: a hash file.
pub const GDBM: Kind = Kind {
    name: "gdbm",
    define: "GDBM",
    library: "gdbm",
    package: "libgdbm-dev",
    threads: false,
    settings: "gdbm_sync after each transaction's records: a crash may tear it",
};
/// Kyoto Cabinet: its B+ tree.
pub const KYOTO: Kind = Kind {
    name: "kyoto",
    define: "KYOTO",
    library: "kyotocabinet",
    package: "libkyotocabinet-dev",
    threads: false,
    settings: "TreeDB, 64 MiB cache, hard transactions where synced",
};
/// Berkeley DB: its B tree, with transactions.
pub const BERKELEY: Kind = Kind {
    name: "berkeley",
    define: "BERKELEY",
    library: "db-5.3",
    package: "libdb5.3-dev",
    threads: true,
    settings: "B tree, 64 MiB cache, DB_TXN_WRITE_NOSYNC where nothing is synced",
};

/// All, in the order of the tables.
pub const ALL: [Kind; 7] = [LEVELDB, ROCKSDB, LMDB, SQLITE, GDBM, KYOTO, BERKELEY];

impl Kind {
    /// Compiles its program in `folder`, unless that was done already, with other `sizes` than the
    /// source's: `VALUE`, bytes of a value, a multiple of 8, and `WRITE_BUFFER`, bytes of RocksDB's
    /// write buffer. An error says how to install what is missing.
    pub fn build(&self, folder: &Path, sizes: &[(&str, u64)]) -> Result<PathBuf, String> {
        let of_sizes: String = sizes.iter().map(|(_, size)| format!("-{size}")).collect();
        let program = folder.join(format!("rival-{}{of_sizes}", self.name));
        if program.is_file() {
            return Ok(program);
        }
        let install = format!("apt-get install gcc libc6-dev {}", self.package);
        let library = format!("-l{}", self.library);
        let sizes = sizes.iter().map(|(name, size)| format!("-D{name}={size}"));
        let built = compile(&program, self.define, sizes, &[&library]);
        let why = match built {
            Ok(()) => return Ok(program),
            Err(why) => why,
        };
        Err(format!("{} is not installed ({why}); {install}", self.name))
    }

    /// Starts it on files in `folder`, which is made.
    pub fn start(&self, programs: &Path, folder: &Path, synced: bool) -> Result<Rival, String> {
        self.start_with(programs, folder, synced, &[])
    }

    /// As [`Kind::start`], with the sizes of [`Kind::build`].
    pub fn start_with(
        &self,
        programs: &Path,
        folder: &Path,
        synced: bool,
        sizes: &[(&str, u64)],
    ) -> Result<Rival, String> {
        let program = self.build(programs, sizes)?;
        let command = Command::new(&program);
        Rival::start_in(command, folder, synced, Vec::new())
            .map_err(|error| format!("{}: {error:#}", self.name))
    }
}

/// Compiles the program of one engine, beside its source.
fn compile(
    program: &Path,
    define: &str,
    sizes: impl Iterator<Item = String>,
    library: &[&str],
) -> Result<(), String> {
    let source = program.with_file_name("rival.c");
    let wrote = std::fs::write(&source, SOURCE);
    wrote.map_err(|error| format!("{} cannot be written: {error}", source.display()))?;
    let output = Command::new("cc")
        .args(["-O2", "-std=gnu11", "-o"])
        .arg(program)
        .arg(format!("-D{define}"))
        .args(sizes)
        .arg(&source)
        .args(library)
        .arg("-lpthread")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("there is no C compiler: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let is_error = |line: &&str| line.contains("rror:") || line.contains("cannot find");
    let why = said.lines().find(is_error).unwrap_or("cc gave no reason");
    Err(why.rsplit("rror: ").next().unwrap_or(why).to_owned())
}

/// Our DBM's name behind the interface of ndbm.
pub const NDBM: &str = "ndbm";
const NDBM_HEADER: &str = include_str!("../../../../bindings/ndbm/include/senko/ndbm.h");

/// Starts a program on our library of ndbm, with its transactions. The library is looked for beside
/// `senko-lab`.
pub fn ndbm(lab: &Path, programs: &Path, folder: &Path, synced: bool) -> Result<Rival, String> {
    let started = || {
        let library = lab.with_file_name("libsenko_ndbm.so");
        ensure!(library.is_file(), "there is no {}", library.display());
        let program = programs.join("rival-ndbm");
        if !program.is_file() {
            std::fs::write(programs.join("senko_ndbm.h"), NDBM_HEADER)?;
            // The name by which programs look for it.
            let named = programs.join("libsenko_ndbm.so.0");
            std::os::unix::fs::symlink(&library, &named)?;
            let looked_for = format!("-Wl,-rpath,{}", programs.display());
            let library = named.display().to_string();
            compile(&program, "NDBM", [].into_iter(), &[&library, &looked_for])
                .map_err(|why| anyhow!("{}: {why}", library))?;
        }
        Rival::start_in(Command::new(&program), folder, synced, Vec::new())
    };
    started().map_err(|error| format!("{NDBM}: {error:#}; `cargo xtask lab` builds the library"))
}

/// redb's name. It is not a C library, and is in the program of the store's rivals.
pub const REDB: &str = "redb";

/// Starts redb in `senko-rivals`, which is looked for beside `senko-lab`. Its values have so many
/// bytes, a multiple of 8.
pub fn redb(lab: &Path, folder: &Path, synced: bool, value: usize) -> Result<Rival, String> {
    let started = rivals(lab).and_then(|mut command| {
        command.args(["commits", REDB]);
        let mut rival = Rival::start_in(command, folder, synced, Vec::new())?;
        rival.ask(&format!("value {value}"), "sized")?;
        Ok(rival)
    });
    started.map_err(|error| format!("{REDB}: {error:#}"))
}

pub struct Rival {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The engine's own name and version.
    pub version: String,
    _guard: Guard,
}

impl Rival {
    /// Starts a program of this protocol, as a member of the groups whose `cgroup.procs` files are
    /// given.
    pub fn start_in(
        mut command: Command,
        folder: &Path,
        synced: bool,
        groups: Vec<File>,
    ) -> Result<Rival> {
        std::fs::create_dir_all(folder)?;
        let program = PathBuf::from(command.get_program());
        command
            .arg(folder)
            .arg(if synced { "1" } else { "0" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        sys::prepare(&mut command, &sys::cores()?, groups);
        let mut child = command
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let guard = cleanup::later(Undo::Kill(child.id()));
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a process without pipes");
        };
        let mut rival = Rival {
            child,
            to,
            from: BufReader::new(from),
            version: String::new(),
            _guard: guard,
        };
        rival.version = rival.answer("ready ")?;
        Ok(rival)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Puts the keys below `keys`, ascending.
    pub fn fill(&mut self, keys: u64) -> Result<()> {
        self.resume();
        self.ask(&format!("fill {keys}"), "filled").map(drop)
    }

    fn ask(&mut self, request: &str, answer: &str) -> Result<String> {
        writeln!(self.to, "{request}").context("the process is gone")?;
        self.answer(answer)
    }

    fn ran(&mut self, commits: u64) -> Result<Ran> {
        let seconds = self.answer("ran ")?.parse()?;
        let mut bytes = vec![0; commits as usize * 8];
        self.from.read_exact(&mut bytes)?;
        let times = bytes.chunks_exact(8).map(|time| {
            let mut word = [0; 8];
            word.copy_from_slice(time);
            u64::from_le_bytes(word)
        });
        Ok(Ran::new(commits, seconds, times.collect()))
    }

    /// The rest of the next line, which must begin with `with`.
    fn answer(&mut self, with: &str) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if let Some(rest) = line.strip_prefix(with) {
            return Ok(rest.trim().to_owned());
        }
        match line.strip_prefix("error ") {
            Some(why) => bail!("{}", why.trim()),
            None => bail!("its process ended, or said {:?}", line.trim()),
        }
    }
}

impl Contender for Rival {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let Work {
            commits,
            records,
            threads,
            seed,
            ..
        } = work;
        let request = match work.order {
            Order::Ascending => format!("run {commits} {records} {threads} 0 {seed}"),
            Order::Random(keys) => format!("run {commits} {records} {threads} {keys} {seed}"),
            Order::Reads(keys) => format!("get {commits} {threads} {keys} {seed}"),
        };
        writeln!(self.to, "{request}").context("the process is gone")?;
        self.ran(*commits)
    }

    fn script(&mut self, script: &Script) -> Result<Ran> {
        let gone = "the process is gone";
        writeln!(self.to, "script {}", script.operations().len()).context(gone)?;
        self.to.write_all(&script.to_bytes()).context(gone)?;
        self.ran(script.transactions())
    }

    fn check(&mut self, keys: u64) -> Result<()> {
        self.ask(&format!("check {keys}"), "checked").map(drop)
    }

    fn pause(&mut self) {
        sys::signal(self.child.id(), libc::SIGSTOP);
    }

    fn resume(&mut self) {
        sys::signal(self.child.id(), libc::SIGCONT);
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // Its guard would wait for it forever: only its parent can reap it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
