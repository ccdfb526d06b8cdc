// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask test`: sets up, then runs the steps, each with a heading and its time, and ends
//! with a table and one line `N passed, N failed, N skipped`. A failed step does not stop those
//! after it.
//!
//! Two lanes of steps run at the same time: cargo's tests, and programs of others against the
//! release binary. Both wait for disks and for each other's answers more than they compute. A
//! lane's steps run in order. The second lane's lines are printed between the steps of the first.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::limits::{OrdinaryUser, without_io_uring};
use crate::out::Block;
use crate::run::{self, Counts};
use crate::setup::{self, Setup};
use crate::times::Times;
use crate::{Workspace, install, limits, out, python, release};

struct Step {
    name: &'static str,
    what: &'static str,
    /// When it is run without being named.
    by_default: When,
    lane: Lane,
    run: fn(&Workspace, &Setup) -> Result<Done>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    NotQuick,
    Named,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Cargo's tests, of the `test` profile.
    Cargo,
    /// Programs of others, against what the `release` profile built.
    Programs,
}

/// What a step did.
enum Done {
    Ran { ok: bool, counts: Counts },
    Skipped(String),
}

/// A row for each step: its name, when and in which lane it runs, its function, and what it is.
macro_rules! steps {
    ($($name:literal $when:ident $lane:ident $run:ident $what:literal)*) => {
        [$(Step { name: $name, what: $what, by_default: When::$when, lane: Lane::$lane, run: $run }),*]
    };
}

const STEPS: [Step; 17] = steps! {
    "fmt"           Always   Cargo    fmt           "the formatting"
    "clippy"        Always   Cargo    clippy        "clippy, warnings as errors"
    "unit"          Always   Cargo    unit          "cargo test, the whole workspace"
    "schedules"     Always   Cargo    schedules     "the DBM under a scheduler that tries interleavings of threads"
    "tidy"          Named    Cargo    tidy          "the crates' edges, and what the documents name"
    "transcripts"   Named    Cargo    transcripts   "the transcripts"
    "docs"          Always   Cargo    docs          "the documentation, warnings as errors"
    "build"         Always   Programs build         "the release build"
    "clients"       Always   Programs clients       "pymemcache, pylibmc, bmemcached, meta-memcache and Dalli, on DRAM and on flash"
    "e2e"           Always   Programs e2e           "memccapable, the drop-in, bad starts, three nodes behind nutcracker"
    "ndbm"          Always   Programs ndbm          "Perl, Ruby, Python and C programs on the ndbm library"
    "python"        Always   Programs python        "the Python package, its wheel in a fresh environment"
    "site"          Always   Programs site          "the documents as a site, without a dead link"
    "release"       Named    Programs released      "a release made twice has the same bytes, and its Python packages install"
    "ordinary-user" NotQuick Cargo    ordinary_user "the server's tests as an ordinary user, ulimit -l 8192"
    "no-uring"      NotQuick Cargo    no_uring      "the server's tests with io_uring refused"
    "main-job"      NotQuick Programs main_job      "twice the flash, through a sixteenth of it as memory"
};

/// Told before the first step.
const ONE_TEST: &str = "\
One step alone: cargo xtask test --only NAME; --list shows the names.
One test alone: cargo test -p senko_cache --test it model::all_that_fits_flash_is_found";

/// The model tests run so many times their usual seeds.
const FACTOR: &str = "SENKO_TEST_FACTOR";
/// That of the whole tests: CI runs often.
const UNIT_FACTOR: &str = "0.5";
/// That of a quick run.
const QUICK_FACTOR: &str = "0.1";

/// The servers that clients are tested with. In a quick run only the one that is fastest: a test on
/// flash waits until its items have left DRAM.
const SERVERS: &str = "SENKO_SERVERS";

/// How many tests of a program run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";
/// So many for each core: they wait for disks, timers and each other's answers for most of their
/// time.
const THREADS_PER_CORE: usize = 4;

/// How many test programs run at the same time.
const PROGRAMS_AT_ONCE: usize = 2;
/// How long one may run: one that hangs must say so, and leave time for the others.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(25 * 60);

/// Gives a command that runs tests as many threads as suit them, if the caller named no number.
fn with_threads(command: &mut std::process::Command) {
    if std::env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (cores * THREADS_PER_CORE).to_string());
    }
}

/// Which steps to run.
pub struct Selection {
    only: Vec<String>,
    /// Without the long steps, and with fewer rounds.
    pub quick: bool,
    list: bool,
}

impl Selection {
    /// Just these.
    pub fn of(names: &[&str]) -> Selection {
        Selection {
            only: names.iter().map(|n| (*n).to_owned()).collect(),
            quick: false,
            list: false,
        }
    }

    /// From the command line.
    pub fn parse(args: &[String]) -> Result<Selection> {
        let mut selection = Selection::of(&[]);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => selection.quick = true,
                "--list" => selection.list = true,
                "--only" => {
                    let names = args
                        .next()
                        .context("--only takes the names of steps; --list shows them")?;
                    selection.only.extend(names.split(',').map(str::to_owned));
                }
                _ => bail!("`cargo xtask test` takes no {arg:?}"),
            }
        }
        for name in &selection.only {
            if !STEPS.iter().any(|s| s.name == name) {
                bail!("there is no step {name:?}; --list shows them");
            }
        }
        Ok(selection)
    }

    fn takes(&self, step: &Step) -> bool {
        if self.only.is_empty() {
            step.by_default == When::Always || (step.by_default == When::NotQuick && !self.quick)
        } else {
            self.only.iter().any(|n| n == step.name)
        }
    }
}

/// Runs the steps; true if nothing failed.
pub fn test(workspace: &Workspace, selection: &Selection) -> Result<bool> {
    if selection.list {
        for step in &STEPS {
            tell!("{:14} {}", step.name, step.what);
        }
        return Ok(true);
    }
    let started = Instant::now();
    let steps: Vec<&Step> = STEPS.iter().filter(|s| selection.takes(s)).collect();
    let lane = |lane| -> Vec<&Step> {
        let steps = steps.iter().copied();
        steps.filter(|step| step.lane == lane).collect()
    };
    let (cargo, programs) = (lane(Lane::Cargo), lane(Lane::Programs));
    let mut times = Times::read(workspace);
    let names = |lane: &[&Step]| lane.iter().map(|step| step.name).collect::<Vec<_>>();
    tell!(
        "{}\n{ONE_TEST}",
        times.expected(&[&names(&cargo), &names(&programs)])
    );

    let mut rows = Vec::new();
    let only_cargo = steps
        .iter()
        .all(|s| ["fmt", "clippy", "tidy", "docs", "build"].contains(&s.name));
    let setup = if only_cargo {
        Setup {
            python: None,
            missing: Vec::new(),
        }
    } else {
        let (setup, row) = set_up(workspace)?;
        rows.push(row);
        setup
    };
    rows.extend(run_lanes(workspace, &setup, &cargo, &programs)?);
    for row in &rows {
        times.note(row.name, row.time);
    }
    let mut total = Counts::default();
    for row in &rows {
        total += row.counts.clone();
    }
    summary(&rows, &setup, &total, started.elapsed());
    Ok(total.failed == 0)
}

/// What came of a step.
struct Row {
    name: &'static str,
    result: String,
    counts: Counts,
    time: Duration,
}

fn set_up(workspace: &Workspace) -> Result<(Setup, Row)> {
    heading("setup", "what the tests need");
    let started = Instant::now();
    let setup = setup::setup(workspace)?;
    let missing = setup.missing.len() as u64;
    let row = Row {
        name: "setup",
        result: match missing {
            0 => "ok".to_owned(),
            _ => format!("{missing} missing"),
        },
        counts: Counts {
            failed: if workspace.ci { missing } else { 0 },
            ..Counts::default()
        },
        time: started.elapsed(),
    };
    Ok((setup, row))
}

/// Runs both lanes at the same time, or the one that has steps.
fn run_lanes(
    workspace: &Workspace,
    setup: &Setup,
    cargo: &[&Step],
    programs: &[&Step],
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if cargo.is_empty() {
        rows.extend(programs.iter().map(|step| run_step(workspace, setup, step)));
        return Ok(rows);
    }
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("programs".to_owned())
            .spawn_scoped(scope, move || {
                for step in programs {
                    let block = Block::default();
                    out::go_to(Some(Arc::clone(&block)));
                    let row = run_step(workspace, setup, step);
                    // The receiver goes away only when the other lane panicked.
                    let _ = done.send((block, row));
                }
            })
            .context("cannot start a thread")?;
        let print = |(block, row): (Block, Row)| {
            out::append(&None, &block);
            row
        };
        for step in cargo {
            rows.push(run_step(workspace, setup, step));
            rows.extend(ended.try_iter().map(print));
        }
        rows.extend(ended.iter().map(print));
        Ok(rows)
    })
}

fn run_step(workspace: &Workspace, setup: &Setup, step: &Step) -> Row {
    heading(step.name, step.what);
    let started = Instant::now();
    let (result, counts) = match (step.run)(workspace, setup) {
        Ok(Done::Ran { ok, counts }) => result_of(ok, counts),
        Ok(Done::Skipped(why)) if workspace.ci => (format!("FAILED: {why}"), Counts::one(false)),
        Ok(Done::Skipped(why)) => {
            tell!("skipped: {why}");
            let skipped = Counts {
                skipped: 1,
                ..Counts::default()
            };
            (format!("skipped: {why}"), skipped)
        }
        Err(error) => {
            tell!("{error:#}");
            ("FAILED".to_owned(), Counts::one(false))
        }
    };
    let time = started.elapsed();
    tell!("-- {}: {result} ({:.0} s)", step.name, time.as_secs_f64());
    Row {
        name: step.name,
        result,
        counts,
        time,
    }
}

/// A step without tests of its own counts as one; a failed one counts as failed, whatever its tests
/// said.
fn result_of(ok: bool, mut counts: Counts) -> (String, Counts) {
    if counts == Counts::default() {
        counts = Counts::one(ok);
    }
    if !ok && counts.failed == 0 {
        counts.failed = 1;
    }
    let result = if counts.failed > 0 {
        format!("FAILED: {counts}")
    } else {
        counts.to_string()
    };
    (result, counts)
}

fn heading(name: &str, what: &str) {
    tell!("\n== {name}: {what}");
}

fn summary(rows: &[Row], setup: &Setup, total: &Counts, all: Duration) {
    tell!("\n== summary");
    for row in rows {
        tell!(
            "{:14} {:6.0} s  {}",
            row.name,
            row.time.as_secs_f64(),
            row.result
        );
    }
    tell!("{:14} {:6.0} s", "all", all.as_secs_f64());
    for line in &setup.missing {
        tell!("{line}");
    }
    // A program that a test expects to fail may say so, too.
    if total.failed > 0 {
        tell!("\n{}", total.failures.join("\n"));
    }
    tell!("\n{total}");
}

fn ran(command: &mut std::process::Command) -> Result<Done> {
    let ran = run::show(command)?;
    Ok(Done::Ran {
        ok: ran.ok,
        counts: ran.counts,
    })
}

fn fmt(workspace: &Workspace, _: &Setup) -> Result<Done> {
    ran(&mut workspace.cargo("fmt --all --check"))
}

fn clippy(workspace: &Workspace, _: &Setup) -> Result<Done> {
    // Rivals are built by nobody else; to check them needs no library of theirs.
    let line = "clippy --workspace --all-targets --features senko_rivals/all -- -D warnings";
    ran(&mut workspace.cargo(line))
}

fn unit(workspace: &Workspace, _: &Setup) -> Result<Done> {
    let mut programs = tests_of(workspace, |_| true)?;
    // The largest take longest: none of them should begin when all others have ended.
    let size = |test: &TestProgram| std::fs::metadata(&test.program).map_or(0, |meta| meta.len());
    programs.sort_by_key(|test| std::cmp::Reverse(size(test)));
    at_once(programs.into_iter().map(Some).chain([None]), |program| {
        let Some(test) = program else {
            return run::show(&mut workspace.cargo("test --workspace --doc"));
        };
        let mut command = std::process::Command::new(&test.program);
        command.current_dir(&test.folder);
        with_threads(&mut command);
        if std::env::var_os(FACTOR).is_none() {
            let quick = workspace.quick;
            command.env(FACTOR, if quick { QUICK_FACTOR } else { UNIT_FACTOR });
        }
        run::show_for(&mut command, PROGRAM_PATIENCE)
    })
}

/// Runs test programs, [`PROGRAMS_AT_ONCE`] at a time: most of them wait for one slow test in the
/// end. The lines of each are printed when it has ended.
fn at_once<T: Send>(
    programs: impl Iterator<Item = T> + Send,
    run: impl Fn(T) -> Result<run::Ran> + Sync,
) -> Result<Done> {
    let programs = Mutex::new(programs);
    let next = || programs.lock().expect("no thread panics with it").next();
    let outer = out::block();
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..PROGRAMS_AT_ONCE {
            let (next, run, sender) = (&next, &run, sender.clone());
            scope.spawn(move || {
                while let Some(program) = next() {
                    let block = Block::default();
                    out::go_to(Some(Arc::clone(&block)));
                    let ran = run(program);
                    // The receiver goes away only after an error.
                    let _ = sender.send((block, ran));
                }
            });
        }
        drop(sender);
        let (mut ok, mut counts) = (true, Counts::default());
        for (block, ran) in ended {
            out::append(&outer, &block);
            let ran = ran?;
            ok &= ran.ok;
            counts += ran.counts;
        }
        Ok(Done::Ran { ok, counts })
    })
}

fn schedules(workspace: &Workspace, _: &Setup) -> Result<Done> {
    // Of the whole workspace, or its features would be unified in another way and all be built
    // again.
    ran(&mut workspace.cargo("test --workspace --features senko_dbm/shuttle --test shuttle"))
}

fn tidy(workspace: &Workspace, _: &Setup) -> Result<Done> {
    ran(&mut workspace.cargo("test -p xtask"))
}

fn transcripts(workspace: &Workspace, _: &Setup) -> Result<Done> {
    let line = "test -p senko_server --test it --no-fail-fast -- transcript";
    ran(&mut workspace.cargo(line))
}

fn docs(workspace: &Workspace, _: &Setup) -> Result<Done> {
    // The binary's comments are the texts of its --help, where `[:S]` is no link.
    let line = "doc --workspace --exclude senko --no-deps --document-private-items";
    let flags = "-D warnings -A rustdoc::private-intra-doc-links";
    ran(workspace.cargo(line).env("RUSTDOCFLAGS", flags))
}

fn build(workspace: &Workspace, _: &Setup) -> Result<Done> {
    ran(&mut release_build(workspace))
}

/// The binary and the C libraries. They are built at once: for the libraries alone, cargo would
/// choose other features, and build what they share again.
fn release_build(workspace: &Workspace) -> std::process::Command {
    workspace.cargo(&format!("build --release -p senko {}", install::PACKAGES))
}

/// pytest in the environment, if there is one.
fn pytest_command(
    workspace: &Workspace,
    setup: &Setup,
    args: &[&str],
) -> Option<std::process::Command> {
    let mut command = std::process::Command::new(setup.python.as_ref()?);
    command
        .args(["-m", "pytest", "-q", "-ra", "--durations=10"])
        .args(args)
        .current_dir(workspace.root.join("tests"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if workspace.quick {
        command.args(["-m", "not slow"]);
        if std::env::var_os(SERVERS).is_none() {
            command.env(SERVERS, "dram");
        }
    }
    Some(command)
}

fn no_python() -> Done {
    Done::Skipped("there is no Python environment".to_owned())
}

/// pytest in the environment, with the release binary.
fn pytest(workspace: &Workspace, setup: &Setup, args: &[&str]) -> Result<Done> {
    let Some(mut command) = pytest_command(workspace, setup, args) else {
        return Ok(no_python());
    };
    let binary = binary(workspace)?;
    let scratch = workspace.target.join("e2e");
    std::fs::create_dir_all(&scratch)?;
    ran(command.env("SENKO_BIN", binary).env("SENKO_TMP", scratch))
}

/// Builds the release binary, and gives its path.
fn binary(workspace: &Workspace) -> Result<PathBuf> {
    if !run::show(&mut release_build(workspace))?.ok {
        bail!("the release build failed");
    }
    Ok(workspace.target.join("release/senko"))
}

fn ndbm(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    let Some(mut command) = pytest_command(workspace, setup, &["ndbm"]) else {
        return Ok(no_python());
    };
    let prefix = workspace.target.join("installed");
    binary(workspace)?;
    install::built_to(workspace, &prefix)?;
    command.env("SENKO_PREFIX", prefix);
    match setup::perl_sources(workspace) {
        Ok(folder) => {
            command.env("SENKO_PERL_SOURCES", folder);
        }
        Err(error) => tell!("Perl's own tests cannot run: {error:#}"),
    }
    ran(&mut command)
}

fn python(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    if setup.python.is_none() {
        return Ok(no_python());
    }
    let mut command = std::process::Command::new(python::installed(workspace)?);
    command
        .args(["-m", "pytest", "-q", "-ra", "."])
        .current_dir(workspace.root.join("bindings/python/tests"))
        .env("SENKO_BIN", binary(workspace)?)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    ran(&mut command)
}

fn site(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    if setup.python.is_none() {
        return Ok(no_python());
    }
    release::pages(workspace)?;
    Ok(Done::Ran {
        ok: true,
        counts: Counts::one(true),
    })
}

fn released(workspace: &Workspace, _: &Setup) -> Result<Done> {
    let ok = release::check(workspace)?;
    Ok(Done::Ran {
        ok,
        counts: Counts::one(ok),
    })
}

fn clients(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    pytest(workspace, setup, &["clients"])
}

fn e2e(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    pytest(workspace, setup, &["e2e", "--ignore=e2e/test_main_job.py"])
}

fn main_job(workspace: &Workspace, setup: &Setup) -> Result<Done> {
    pytest(workspace, setup, &["-s", "e2e/test_main_job.py"])
}

/// A test program, and the folder of its package, where cargo would run it.
struct TestProgram {
    program: PathBuf,
    folder: PathBuf,
}

/// Builds the tests of all of the workspace: another selection would unify features in another way
/// and build everything again.
fn build_tests(workspace: &Workspace) -> Result<()> {
    let built = run::show(&mut workspace.cargo("test --workspace --no-run"))?;
    if !built.ok {
        bail!("the tests do not build");
    }
    Ok(())
}

/// Builds the tests, and finds the programs of the packages in some folders.
fn tests_of(workspace: &Workspace, of: impl Fn(&Path) -> bool) -> Result<Vec<TestProgram>> {
    build_tests(workspace)?;
    let line = "test --workspace --no-run --message-format=json-render-diagnostics";
    let lines = run::output(&mut workspace.cargo(line))?;
    let mut programs = Vec::new();
    for line in lines.lines().filter(|l| l.starts_with('{')) {
        let message: serde_json::Value =
            serde_json::from_str(line).context("cargo's messages are JSON")?;
        let (Some(program), true) = (
            message["executable"].as_str(),
            message["profile"]["test"] == true,
        ) else {
            continue;
        };
        let manifest = message["manifest_path"].as_str();
        let manifest = Path::new(manifest.context("a message without manifest")?);
        let folder = manifest.parent().context("a manifest without folder")?;
        if of(folder) {
            programs.push(TestProgram {
                program: PathBuf::from(program),
                folder: folder.to_path_buf(),
            });
        }
    }
    if programs.is_empty() {
        bail!("cargo named no test program");
    }
    Ok(programs)
}

/// The test programs of the server, the load generator and the layer below.
fn server_tests(workspace: &Workspace) -> Result<Vec<TestProgram>> {
    let tested = ["crates/server", "crates/load", "crates/io"];
    tests_of(workspace, |folder| {
        tested.iter().any(|of| folder.ends_with(of))
    })
}

fn ordinary_user(workspace: &Workspace, _: &Setup) -> Result<Done> {
    if limits::is_root() && !run::installed("setpriv") {
        return Ok(Done::Skipped("setpriv is not installed".to_owned()));
    }
    let programs = server_tests(workspace)?;
    let user = OrdinaryUser::new(&workspace.root)?;
    all(&programs, |test| Ok(user.command(&test.program)))
}

fn no_uring(workspace: &Workspace, _: &Setup) -> Result<Done> {
    all(&server_tests(workspace)?, |test| {
        without_io_uring(&test.program)
    })
}

/// Runs test programs under other limits.
fn all(
    programs: &[TestProgram],
    command: impl Fn(&TestProgram) -> Result<std::process::Command> + Sync,
) -> Result<Done> {
    at_once(programs.iter(), |test| {
        let mut command = command(test)?;
        command.current_dir(&test.folder);
        // They play much on both backends, or on devices in memory, and ran in the unit tests.
        let skipped = [
            "property::",
            "transcript::",
            "session::",
            "model::",
            "stream::",
            "upload::",
            "calls::",
            "faults::",
            "lend::",
        ];
        for what in skipped {
            command.args(["--skip", what]);
        }
        // The unit tests ran all seeds. Here the system's limits are what is tested.
        if std::env::var_os(FACTOR).is_none() {
            command.env(FACTOR, QUICK_FACTOR);
        }
        with_threads(&mut command);
        run::show_for(&mut command, PROGRAM_PATIENCE)
    })
}
