// SPDX-License-Identifier: Apache-2.0
//! Every operation of the experiments, on a few keys: each engine must pass before its figures mean
//! anything.
//!
//! Called by tests: by this crate's for our own engine, by the rivals' crate's for the others.
//! Always: values are read back and checked, also after the engine was closed and opened again.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::child;
use super::driver::{Amount, Fill, Work, Worked};
use super::protocol::{Answer, Request};
use super::{Durability, ItemShape, Maker, Tuning};

const KEYS: u64 = 3000;
const SHAPE: ItemShape = ItemShape { value_bytes: 500 };
const OPS: u64 = 2000;

fn tuning(durability: Durability) -> Tuning {
    Tuning {
        memory: 64 << 20,
        cache: 1 << 20,
        keys: KEYS,
        value_bytes: SHAPE.value_bytes,
        durability,
        read_only: false,
        space_ratio: 1.3,
        block_bytes: 1 << 20,
        bloom: false,
    }
}

/// The answers of a process with this engine to these requests.
pub fn answers(maker: &dyn Maker, requests: &[Request]) -> Result<Vec<Answer>> {
    let mut lines = String::new();
    for request in requests {
        lines.push_str(&serde_json::to_string(request)?);
        lines.push('\n');
    }
    let mut out = Vec::new();
    child::serve(&[maker], &mut lines.as_bytes(), &mut out)?;
    let out = String::from_utf8(out)?;
    Ok(out
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

/// The same; the first failure is an error.
fn ask(maker: &dyn Maker, requests: &[Request]) -> Result<Vec<Answer>> {
    let answers = answers(maker, requests)?;
    for (request, answer) in requests.iter().zip(&answers) {
        if let Answer::Failed(why) = answer {
            bail!("{}: {request:?} failed: {why}", maker.name());
        }
    }
    ensure!(
        answers.len() == requests.len(),
        "each request has its answer"
    );
    Ok(answers)
}

pub fn worked(answer: &Answer) -> Result<&Worked> {
    match answer {
        Answer::Worked(worked) => Ok(worked),
        other => bail!("no work was done: {other:?}"),
    }
}

fn work(gets: f64, missing: f64, depth: usize, threads: usize) -> Request {
    Request::Work(Work {
        gets,
        missing,
        depth,
        threads,
        ..Work::gets(KEYS, SHAPE, Amount::Ops(OPS), 9)
    })
}

/// Fills, gets, puts, closes and opens again, in an empty folder.
pub fn rehearse(maker: &dyn Maker, folder: &Path, durability: Durability) -> Result<()> {
    let open = |first| Request::Open {
        engine: maker.name().to_owned(),
        folder: folder.to_owned(),
        tuning: tuning(durability),
        first,
    };
    let fill = |from, to, batch| {
        Request::Fill(Fill {
            from,
            to,
            shape: SHAPE,
            version: 0,
            ascending: from == 0,
            batch,
            threads: 2,
            seed: 5,
        })
    };
    let (hits, misses, many, mixed, puts) = (
        work(1.0, 0.0, 1, 2),
        work(1.0, 1.0, 1, 1),
        work(1.0, 0.0, 100, 1),
        work(0.5, 0.1, 1, 3),
        work(0.0, 0.0, 1, 1),
    );
    let first = [
        open(None),
        fill(0, KEYS / 2, 64),
        fill(KEYS / 2, KEYS, 1),
        hits.clone(),
        Request::Settle,
        hits.clone(),
        misses.clone(),
        many.clone(),
        mixed,
        puts,
        Request::Sync,
        hits.clone(),
        Request::Facts,
        Request::Close,
    ];
    let answers = ask(maker, &first)?;
    ensure!(worked(&answers[1])?.puts + worked(&answers[2])?.puts == KEYS);
    for at in [3, 5, 7, 11] {
        let shown = worked(&answers[at])?;
        ensure!(
            (shown.gets, shown.found, shown.puts) == (OPS, OPS, 0),
            "work {at} of {} showed {shown:?}",
            maker.name()
        );
    }
    ensure!(worked(&answers[6])?.found == 0, "an absent key was found");
    let shown = worked(&answers[8])?;
    ensure!(shown.gets + shown.puts == OPS && shown.gets > shown.found && shown.puts > 0);
    ensure!(worked(&answers[9])?.puts == OPS);
    let Answer::Opened(opened) = &answers[0] else {
        bail!("it did not say that it is open");
    };
    if let Some(file) = &opened.file {
        std::fs::metadata(file)
            .with_context(|| format!("{} has no file {}", maker.name(), file.display()))?;
    }
    let again = [open(Some(KEYS - 1)), hits, misses, many, Request::Close];
    let answers = ask(maker, &again)?;
    ensure!(worked(&answers[1])?.found == OPS && worked(&answers[2])?.found == 0);
    Ok(())
}
