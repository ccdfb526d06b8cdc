// SPDX-License-Identifier: Apache-2.0
//! The senko binary: subcommands, and memcached's command line when it is called by that name.
//!
//! It is a thin user of the libraries: it parses, starts and reports. Bad input ends with one
//! sentence on stderr and a non-zero exit. Stdout has only results (with `--json`, one object per
//! line). All writes to stderr and stdout go through `senko_io::say` and `out`.

#![deny(unsafe_code)]

mod client; // TLS and login of commands that are clients
mod ctl; // asks a running server
mod dbm; // the transactional DBM
mod device; // a device, measured
mod dropin; // the meaning of memcached's options
mod existing; // --force, for files that results replace
mod fill; // a server is filled from another
mod getopt; // parses a command line as memcached does
mod load; // the load generator
mod machine; // memory and cores, for the defaults
mod manual; // man pages and completions
mod options; // the options of `senko serve`, from the command line and TOML
mod plan; // DRAM and flash to buy
mod process; // limits, user, signals, the background, the pid file
mod progress; // a line with percentage and remaining time
mod serve; // starts a server and waits for its end
mod prose; // stdout whose long lines a terminal gets folded
mod service; // messages to a service manager
mod ssd; // the simulator of drives
mod stdin; // reading a closed standard input is an error
mod store; // the unordered store
mod together; // options of `senko serve` that have no effect with others
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod texts; // tests of the command line as a whole
mod transfer; // a server's items into a dump, and back
mod units; // sizes, rates and words that options and the TOML file share

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use senko_io::{out, tell};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version that `senko version` and memcached's `-V` print.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version, and the commit of the build if it is known.
const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), env!("SENKO_COMMIT"));

#[derive(Debug, Parser)]
#[command(
    name = "senko",
    version = BUILD,
    about = "Key-value software made for flash memory",
    // As wide as a terminal is at least, also when piped: examples are written for this width.
    max_term_width = 80,
    after_help = "Examples:\n  \
        senko serve              a cache on 127.0.0.1:11211, its flash in ./senko-data\n  \
        senko serve -m 256 --flash /mnt/nvme/cache:100g -t 4 -l 0.0.0.0\n  \
        senko load --help        the load generator\n  \
        senko store --help       the unordered key-value store\n  \
        senko dbm --help         the ordered, transactional one\n\n\
        If the reader closes stdout early, as head does, a command exits with 141.\n\
        Under the name memcached (a link to this binary), it accepts memcached's command line."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the cache server: memcached's protocols over DRAM and flash
    Serve(Box<serve::ServeArgs>),
    /// Loads and checks any memcached-compatible server
    Load(Box<load::LoadArgs>),
    /// Asks and changes a running server on this machine: status, top, set, fill, drain
    Ctl(ctl::CtlArgs),
    /// Dumps a running server's items, with values, into a file or a pipe
    Dump(transfer::DumpArgs),
    /// Restores a dump into a running server
    Restore(transfer::RestoreArgs),
    /// The unordered store: puts, gets, loads, dumps, checks and measures
    Store(Box<store::StoreArgs>),
    /// The transactional DBM: puts, gets, ranges, loads, dumps, checks and measures
    Dbm(Box<dbm::DbmArgs>),
    /// Simulates solid-state drives: what a workload does to the flash
    Ssd(Box<ssd::SsdArgs>),
    /// Measures a device, a file or a simulated drive: times, queue depths, how it maps pages
    Device(device::DeviceArgs),
    /// Plans a cache: DRAM and flash to buy, hit ratios, writes, years, price
    Plan(plan::PlanArgs),
    /// Prints the version
    Version,
    /// Writes man pages and completions for shells
    #[command(after_help = "Examples:\n  senko manual texts")]
    Manual(manual::ManualArgs),
}

fn main() -> ExitCode {
    out::end(run())
}

fn run() -> ExitCode {
    process::survive_long_files();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let called = std::path::Path::new(&name).file_name().unwrap_or_default();
    if called == "memcached" {
        return dropin::main(args.collect());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and succeed; clap knows which of these it is.
            let printed = error.print();
            if !error.use_stderr()
                && let Err(why) = out::seen(out::present().and(printed))
            {
                return refused(&anyhow::Error::from(why).context("cannot write to stdout"));
            }
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    // The server has its own.
    if !matches!(cli.command, Command::Serve(_)) {
        process::tell_of_signals();
    }
    let done = match cli.command {
        Command::Serve(args) => serve::main(*args),
        Command::Load(args) => load::main(*args),
        Command::Ctl(args) => ctl::main(&args),
        Command::Dump(args) => transfer::dump(&args),
        Command::Restore(args) => transfer::restore(&args),
        // Its exit codes distinguish the answer "no" from a failure.
        Command::Store(args) => return store::main(*args),
        Command::Dbm(args) => return dbm::main(&args),
        Command::Ssd(args) => ssd::main(*args),
        Command::Device(args) => device::main(&args),
        Command::Plan(args) => plan::main(&args),
        Command::Manual(args) => manual::main(&args, Cli::command()),
        Command::Version => {
            writeln!(out::stdout(), "senko {BUILD}").context("cannot write to stdout")
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refused(&error),
    }
}

/// Reports the failure of a command whose exit code 1 is the answer "no", and gives its code. An
/// error of stdout is named as one: a full disk behind stdout does not mean a full store.
fn failed(error: anyhow::Error) -> ExitCode {
    let interrupted = error.downcast_ref::<process::Interrupted>();
    let code = interrupted.map_or(2, process::Interrupted::exit_code);
    if !out::closed() {
        let error = match out::failed() && error.is::<std::io::Error>() {
            true => error.context("cannot write to stdout"),
            false => error,
        };
        tell!("senko: {error:#}");
    }
    ExitCode::from(code)
}

/// Whether a file's first bytes are these, by which the other engine marks its files.
fn begins_with(path: &std::path::Path, magic: &[u8; 8]) -> bool {
    let mut first = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == *magic
}

/// Reports why a command could not do its work.
fn refused(error: &anyhow::Error) -> ExitCode {
    if !out::closed() {
        tell!("senko: {error:#}");
    }
    match error.downcast_ref::<process::Interrupted>() {
        Some(interrupted) => ExitCode::from(interrupted.exit_code()),
        None => ExitCode::FAILURE,
    }
}
