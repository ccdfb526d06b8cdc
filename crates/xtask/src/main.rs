// SPDX-License-Identifier: Apache-2.0
//! The project's own tasks: `cargo xtask TASK`, and `cargo xtask help` lists them.
//! It depends on no other crate of the workspace, so that it builds in seconds. It still runs when
//! they do not build.

/// Prints a line, or puts it into the block of a step that runs beside another (`out.rs`).
macro_rules! tell {
    ($($arg:tt)*) => { crate::out::line(format_args!($($arg)*)) };
}

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod circles; // files that import each other in a circle
mod fuzz; // fuzz targets, each for some minutes
mod install; // the C libraries, put in place
mod lab; // the experiments, built and run
mod lines; // lines of Rust by crate
mod limits; // an ordinary user's limits; io_uring refused
mod python; // the wheel, and an environment that has it
mod out; // where lines go
mod package; // packages for Debian and others
mod release; // everything that a release has
mod run; // runs commands, shows and counts what they did
mod setup; // what the tests need of the machine
mod signals; // ends programs that take too long, takes Ctrl-C
mod test; // the steps of `cargo xtask test`
mod times; // how long the steps took
mod wrap; // lines of at most 100 columns

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
cargo xtask TASK

  setup                       install what the tests need: Debian packages, a Python environment in target/venv
  test [--quick] [--only NAME[,NAME]] [--list]
                              set up, then run all tests, and say how long they take;
                              --quick leaves the long steps out, and model tests do fewer rounds
  install --prefix DIR        build the C libraries and put them, their headers and pkg-config files into DIR
  python                      build the wheel of senko-flash into target/wheels
  package [--binary FILE] [--out DIR] [--version V]
                              build a Debian package in target/package
  release [--out DIR]         build everything that a release has into target/reproducible/dist, with checksums
  site                        build the documents as a site, with the libraries' reference, and check its links
  lint                        format check and clippy
  lines [--store]             print the lines of Rust of each crate, and how they changed since they were stored
  circles [CRATE...]          print the files of a crate that import each other in a circle
  wrap [PATH...] [--check]    wrap comments and Markdown at 100 columns
  lab ARGS                    build senko, senko-lab and the rivals whose libraries are installed, and run
                              senko-lab ARGS: list, run NAME [--quick], report
  fuzz [--minutes N] [--only NAME]
                              run each fuzz target for N minutes (default 10)
  bench [NAME]                run the benchmarks
  docs                        build the documentation, warnings as errors, and check what it names

With CI=true a program that is missing is a failure, and not skipped.";

fn main() -> ExitCode {
    signals::take_interrupts();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<bool> {
    let Some((task, rest)) = args.split_first() else {
        tell!("{USAGE}");
        return Ok(true);
    };
    match task.as_str() {
        "setup" => {
            no_more(rest)?;
            Ok(setup::setup(&Workspace::find()?)?.missing.is_empty())
        }
        "test" => {
            let selection = test::Selection::parse(rest)?;
            let workspace = Workspace {
                quick: selection.quick,
                ..Workspace::find()?
            };
            test::test(&workspace, &selection)
        }
        "lint" => {
            no_more(rest)?;
            test::test(
                &Workspace::find()?,
                &test::Selection::of(&["fmt", "clippy"]),
            )
        }
        "docs" => {
            no_more(rest)?;
            test::test(&Workspace::find()?, &test::Selection::of(&["docs", "tidy"]))
        }
        "lines" => lines::lines(&Workspace::find()?, rest),
        "circles" => circles::circles(rest),
        "wrap" => wrap::wrap(rest),
        "lab" => lab::lab(&Workspace::find()?, rest),
        "install" => install::install(&Workspace::find()?, rest),
        "python" => {
            no_more(rest)?;
            python::wheel(&Workspace::find()?)
        }
        "package" => package::package(&Workspace::find()?, rest),
        "release" => release::release(&Workspace::find()?, rest),
        "site" => {
            no_more(rest)?;
            release::documents(&Workspace::find()?)
        }
        "fuzz" => fuzz::fuzz(&Workspace::find()?, rest),
        "bench" => fuzz::bench(&Workspace::find()?, rest),
        // Not for people: how the steps confine what they run.
        "release-into" => release::into(&Workspace::find()?, rest),
        "refuse-io-uring" => limits::refuse_io_uring_and_run(rest),
        "help" | "-h" | "--help" => {
            tell!("{USAGE}");
            Ok(true)
        }
        _ => bail!("there is no task {task:?}; `cargo xtask help` lists them"),
    }
}

fn no_more(rest: &[String]) -> Result<()> {
    match rest.first() {
        Some(word) => bail!("this task takes no {word:?}"),
        None => Ok(()),
    }
}

/// The workspace's root.
pub fn root() -> Result<&'static Path> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().nth(2);
    root.context("crates/xtask is two levels below the root")
}

/// Where things are.
pub struct Workspace {
    /// The workspace's root.
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// CI=true: what is missing is a failure.
    pub ci: bool,
    /// The long tests do fewer rounds.
    pub quick: bool,
}

impl Workspace {
    fn find() -> Result<Workspace> {
        let root = root()?.to_path_buf();
        let output = run::output(
            std::process::Command::new(run::cargo())
                .args(["metadata", "--format-version", "1", "--no-deps"])
                .current_dir(&root),
        )?;
        let metadata: serde_json::Value =
            serde_json::from_str(&output).context("cargo metadata is not JSON")?;
        let target = metadata["target_directory"]
            .as_str()
            .context("cargo metadata names no target directory")?;
        let ci = std::env::var("CI").as_deref() == Ok("true");
        Ok(Workspace {
            root,
            target: PathBuf::from(target),
            ci,
            quick: false,
        })
    }

    /// A cargo command in the root, with the words of a line.
    pub fn cargo(&self, line: &str) -> std::process::Command {
        let mut command = std::process::Command::new(run::cargo());
        command.args(line.split(' ')).current_dir(&self.root);
        command
    }
}
