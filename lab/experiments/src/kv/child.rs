// SPDX-License-Identifier: Apache-2.0
//! The process with an engine: reads requests from stdin, executes them, and answers on stdout.
//!
//! `senko-lab` runs it for our engine (a hidden subcommand), `senko-rivals` for the others;
//! [`super::session`] is at the other end. A request that fails is answered with the reason and
//! does not end the process; the end of stdin does.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::driver::{self, Times, Worked};
use super::protocol::{Answer, Opened, Request};
use super::{Engine, ItemShape, Maker, Tuning, items, limit};

/// Puts of [`Request::WriteUntilKilled`] between two progress reports.
const SAY_EVERY: u64 = 256;

/// Serves one experiment on stdin and stdout.
pub fn main(makers: &[&dyn Maker]) -> Result<()> {
    serve(
        makers,
        &mut std::io::stdin().lock(),
        &mut std::io::stdout().lock(),
    )
}

pub fn serve(
    makers: &[&dyn Maker],
    requests: &mut dyn BufRead,
    answers: &mut dyn Write,
) -> Result<()> {
    let mut open: Option<Box<dyn Engine>> = None;
    let mut line = String::new();
    loop {
        line.clear();
        if requests.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let request: Request = serde_json::from_str(&line)
            .with_context(|| format!("no request of an experiment: {}", line.trim()))?;
        let answer = carry_out(makers, &mut open, request, answers)
            .unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        say(answers, &answer)?;
    }
}

fn say(answers: &mut dyn Write, answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    answers.write_all(line.as_bytes())?;
    Ok(answers.flush()?)
}

fn carry_out(
    makers: &[&dyn Maker],
    open: &mut Option<Box<dyn Engine>>,
    request: Request,
    answers: &mut dyn Write,
) -> Result<Answer> {
    if let Request::Open {
        engine,
        folder,
        tuning,
        first,
    } = &request
    {
        ensure!(open.is_none(), "an engine is open already");
        let (engine, opened) = open_engine(makers, engine, folder, tuning, *first)?;
        *open = Some(engine);
        return Ok(Answer::Opened(opened));
    }
    if request == Request::Close {
        let start = Instant::now();
        open.take().context("no engine is open")?.close()?;
        return Ok(Answer::Done(start.elapsed().as_secs_f64()));
    }
    let engine = open.as_deref().context("no engine is open")?;
    let start = Instant::now();
    let done = || Answer::Done(start.elapsed().as_secs_f64());
    match request {
        Request::Fill(fill) => Ok(Answer::Worked(Box::new(driver::fill(engine, &fill)?))),
        Request::Work(work) => Ok(Answer::Worked(Box::new(driver::work(engine, &work)?))),
        Request::WriteUntilKilled { keys, shape } => {
            write_on(engine, keys, shape, u64::MAX, &mut |reached| {
                say(answers, &Answer::Reached(reached))
            })?;
            bail!("nobody killed it")
        }
        Request::CheckReached {
            keys,
            shape,
            reached,
            back,
        } => {
            let worked = check_reached(engine, keys, shape, reached, back)?;
            Ok(Answer::Worked(Box::new(worked)))
        }
        Request::DeviceReads(reads) => {
            let device = engine
                .device()
                .context("this engine does not lend its device")?;
            let worked = limit::reads(&*device, &reads)?;
            Ok(Answer::Worked(Box::new(worked)))
        }
        Request::Settle => engine.settle().map(|()| done()),
        Request::Sync => engine.sync().map(|()| done()),
        Request::Facts => {
            let mut facts = engine.facts()?;
            facts.insert("process".to_owned(), Value::from(std::process::id()));
            Ok(Answer::Facts(facts))
        }
        Request::Open { .. } | Request::Close => bail!("it was answered above"),
    }
}

fn open_engine(
    makers: &[&dyn Maker],
    name: &str,
    folder: &Path,
    tuning: &Tuning,
    first: Option<u64>,
) -> Result<(Box<dyn Engine>, Opened)> {
    let Some(maker) = makers.iter().find(|maker| maker.name() == name) else {
        let names: Vec<&str> = makers.iter().map(|maker| maker.name()).collect();
        bail!(
            "this program has no engine \"{name}\"; it has: {}",
            names.join(", ")
        );
    };
    let start = Instant::now();
    let engine = maker.open(folder, tuning)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut first_get_seconds = None;
    if let Some(number) = first {
        let mut value = Vec::new();
        let found = engine.get(&items::present(number), &mut value)?;
        first_get_seconds = Some(start.elapsed().as_secs_f64());
        ensure!(found, "key {number} was put and is not there");
        let shape = ItemShape {
            value_bytes: tuning.value_bytes,
        };
        shape.check(number, &value, true)?;
    }
    let opened = Opened {
        seconds,
        first_get_seconds,
        description: maker.describe(tuning),
        deep_from_one_thread: maker.deep_from_one_thread(),
        file: maker.file_name().map(|name| folder.join(name)),
        fill_ascending: maker.fill_ascending(),
    };
    Ok((engine, opened))
}

/// The key number and version of the `n`-th put of a writer that runs until it is killed.
fn nth(n: u64, keys: u64) -> Result<(u64, u32)> {
    let version =
        u32::try_from(n / keys + 1).context("a writer has no more versions than 32 bits hold")?;
    Ok((n % keys, version))
}

/// Puts from the first on, at most `most`, and reports its progress.
pub fn write_on(
    engine: &dyn Engine,
    keys: u64,
    shape: ItemShape,
    most: u64,
    reached: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    ensure!(keys > 0, "a writer without keys has nothing to put");
    let mut value = Vec::new();
    for n in 0..most {
        let (key, version) = nth(n, keys)?;
        shape.value(key, version, &mut value);
        engine.put(&items::present(key), &value)?;
        if (n + 1).is_multiple_of(SAY_EVERY) {
            reached(n + 1)?;
        }
    }
    Ok(())
}

/// Reads the last puts of [`write_on`] before it reported `reached`, and checks them.
/// None may be missing, wrong, or older than was reported.
pub fn check_reached(
    engine: &dyn Engine,
    keys: u64,
    shape: ItemShape,
    reached: u64,
    back: u64,
) -> Result<Worked> {
    let mut worked = Worked::default();
    let start = Instant::now();
    let mut value = Vec::new();
    for n in reached.saturating_sub(back.min(keys))..reached {
        let (key, version) = nth(n, keys)?;
        let found = engine.get(&items::present(key), &mut value)?;
        ensure!(
            found,
            "key {key} was put before the process was killed, and is lost"
        );
        let have = shape.check(key, &value, true)?;
        ensure!(
            have >= version,
            "key {key} has version {have}, and version {version} was put before the process was killed"
        );
        worked.gets += 1;
        worked.found += 1;
    }
    worked.seconds = start.elapsed().as_secs_f64();
    worked.get = Times {
        count: worked.gets,
        ..Times::default()
    };
    Ok(worked)
}
