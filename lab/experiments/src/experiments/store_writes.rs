// SPDX-License-Identifier: Apache-2.0
//! Write amplification of the store, and the longest time of a put.
//!
//! Claim: paper A (section 6.2) writes elements into unsorted blocks and later again into sorted
//! ones, and leaves updates for the future (section 11.2). Here a load writes each element twice:
//! to the log, then to a sorted block. Uniform overwriting within 1.3 times the data's space writes
//! each element three to four times. Meanwhile no put waits longer than a few milliseconds.
//! Expected shape: write amplification starts near two when overwriting begins. It rises while
//! blocks fill with dead elements, and is steady once the data was overwritten about once.
//!
//! Write amplification is the bytes that the disk counts (`/proc/diskstats`) over the bytes of keys
//! and values put (8 B and 1000 B). The kernel's count for the process is shown too; it includes
//! neither other processes nor the file system itself. The load ends when no background work is
//! left. Overwriting runs in windows without pauses. The bar is taken from the last windows, which
//! together put as many bytes as the store holds. The ratio of space on the disk to live bytes is
//! measured after each window, because a store that takes more space writes less.
//!
//! Then puts arrive at 80 % of the rate that was just sustained, in an open loop: each is due at
//! its time, even if the one before has not returned. The longest time is measured from the time at
//! which the put was due.

use anyhow::Result;
use serde_json::{Value, json};

use crate::kv::driver::{Amount, Work};
use crate::kv::plan::{self, Home, Plan, cell};
use crate::kv::{OURS, Session, Step};
use crate::rig::{Bench, Figure, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// The store's own ratio counts bytes as stored, including headers and hash lists: about 1.05 times
/// keys and values. With this setting, the used space is 1.3 times keys and values.
const SPACE_RATIO: f64 = 1.29;
/// The share of the sustained rate at which the longest put is measured.
const SHARE: f64 = 0.8;
/// The number of windows in which the data is overwritten once.
const WINDOWS_A_PASS: u64 = 4;

pub static EXPERIMENT: Experiment = Experiment {
    name: "store-writes",
    paper: Paper::A,
    source: "paper A, sections 6.2 and 11.2; design: blocks are written once",
    text: "a load writes each byte about twice, uniform overwriting within 1.3 times the data's space about four times, and no put waits long for it",
    sentences: &[],
    bars: &[
        Bar::less("wa_load", 2.2, 2.05),
        Bar::less("wa_overwrite", 4.5, 3.5),
        Bar::less("max_put_ms", 50.0, 10.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let keys = bench.scaled(1_000_000, 16_000_000);
    let mut plan = Plan::new(bench, outcome, keys, 1000, 1.7)?;
    plan.tuning.space_ratio = SPACE_RATIO;
    plan.note(outcome, "");
    let passes: u64 = bench.scaled(3, 4);
    outcome.setting("overwritten_passes", passes);
    let mut run = Run {
        bench,
        steps: Steps::new(progress, 3 + passes * WINDOWS_A_PASS),
        outcome,
        table: Table::titled("Writing"),
        plan,
    };
    run.measure(passes)?;
    run.outcome.tables.push(run.table);
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    steps: Steps<'a>,
    outcome: &'a mut Outcome,
    table: Table,
    plan: Plan,
}

impl Run<'_> {
    fn put_bytes(&self, step: &Step) -> f64 {
        (step.worked.puts * self.plan.shape.bytes()) as f64
    }

    /// Bytes that the disk wrote over bytes put, for several windows together.
    fn amplification(&self, steps: &[Step]) -> Figure {
        let put: f64 = steps.iter().map(|step| self.put_bytes(step)).sum();
        let written = steps
            .iter()
            .map(|step| step.disk.map(|disk| disk.written_bytes as f64))
            .sum::<Option<f64>>();
        match written {
            Some(written) if put > 0.0 => Ok(written / put),
            _ => Err("the kernel's disk statistics are not available".to_owned()),
        }
    }

    fn own_amplification(&self, steps: &[Step]) -> f64 {
        let put: f64 = steps.iter().map(|step| self.put_bytes(step)).sum();
        steps.iter().map(|step| step.io.written as f64).sum::<f64>() / put
    }

    /// Adds a row to the table. Returns the space of the files, and the part of it that the store
    /// reports as used, both over live data.
    fn row(
        &mut self,
        what: &str,
        step: &Step,
        session: &mut Session<'_>,
        home: &Home,
    ) -> Result<(f64, f64)> {
        let put = self.put_bytes(step);
        let live = self.plan.tuning.live_bytes() as f64;
        let in_use = session.facts()?.get("used_bytes").and_then(Value::as_f64);
        let space = (
            home.bytes() as f64 / live,
            in_use.unwrap_or(f64::NAN) / live,
        );
        let all = std::slice::from_ref(step);
        let times = if step.worked.put_due.count > 0 {
            step.worked.put_due
        } else {
            step.worked.put
        };
        let read = step
            .disk
            .map_or(f64::NAN, |disk| disk.read_bytes as f64 / put);
        self.table.add([
            ("what", what.to_owned()),
            ("put MB", cell(put / 1e6, 0)),
            ("put MB/s", cell(put / 1e6 / step.worked.seconds, 1)),
            (
                "written/put",
                cell(self.amplification(all).unwrap_or(f64::NAN), 2),
            ),
            ("own written/put", cell(self.own_amplification(all), 2)),
            ("read/put", cell(read, 2)),
            ("space/data", cell(space.0, 3)),
            ("in use/data", cell(space.1, 3)),
            ("p99 us", cell(times.p99_us, 0)),
            ("p99.9 us", cell(times.p999_us, 0)),
            ("longest ms", cell(times.max_us / 1e3, 1)),
            ("cpu us", cell(step.cpu_us_per_op(), 2)),
        ]);
        Ok(space)
    }

    fn measure(&mut self, passes: u64) -> Result<()> {
        let home = Home::new(self.bench, OURS);
        let (mut session, opened) = plan::start(self.bench, OURS, &home, &self.plan, None)?;
        self.outcome.setting("senko", opened.description);
        self.steps.next("loading");
        let fill = self.plan.fill(0, self.plan.keys(), self.bench.options.seed);
        let load = session.fill_and_settle(&fill)?;
        self.row(
            "load, until nothing is left to do",
            &load,
            &mut session,
            &home,
        )?;
        let wa = self.amplification(std::slice::from_ref(&load));
        self.outcome.put("wa_load", wa);
        let own = self.own_amplification(std::slice::from_ref(&load));
        self.outcome.put("own_wa_load", Ok(own));
        let rate = self.overwrite(&mut session, &home, passes)?;
        self.steady(&mut session, &home, rate)?;
        session.close()?;
        Ok(())
    }

    /// Overwrites for some passes, and returns the puts a second of the last pass.
    fn overwrite(&mut self, session: &mut Session<'_>, home: &Home, passes: u64) -> Result<f64> {
        let mut last = Vec::new();
        let mut most = (0.0_f64, 0.0_f64);
        let windows = passes * WINDOWS_A_PASS;
        for window in 0..windows {
            self.steps
                .next(&format!("overwriting, window {}", window + 1));
            let work = self.plan.puts(
                Amount::Ops(self.plan.keys() / WINDOWS_A_PASS),
                1 + window as u32,
                self.bench.options.seed * 100 + window,
            );
            let step = session.work(&work)?;
            let what = format!("overwrite {}", window + 1);
            let (space, in_use) = self.row(&what, &step, session, home)?;
            most = (most.0.max(space), most.1.max(in_use));
            if window >= windows - WINDOWS_A_PASS {
                last.push(step);
            }
        }
        let wa = self.amplification(&last);
        self.outcome.put("wa_overwrite", wa);
        let own = self.own_amplification(&last);
        self.outcome.put("own_wa_overwrite", Ok(own));
        self.outcome.put("space_over_data", Ok(most.0));
        self.outcome.put("in_use_over_data", Ok(most.1));
        let puts: u64 = last.iter().map(|step| step.worked.puts).sum();
        let seconds: f64 = last.iter().map(|step| step.worked.seconds).sum();
        let rate = puts as f64 / seconds;
        self.outcome.put("overwrites_a_second", Ok(rate));
        Ok(rate)
    }

    fn steady(&mut self, session: &mut Session<'_>, home: &Home, rate: f64) -> Result<()> {
        self.steps.next("puts at a fixed rate");
        let rate = (rate * SHARE).round();
        self.outcome.setting("steady_rate", json!(rate));
        let seconds = self.bench.scaled(5.0, 120.0);
        let work = Work {
            rate: Some(rate),
            ..self.plan.puts(
                Amount::Seconds(seconds),
                u32::MAX,
                self.bench.options.seed * 100 + 99,
            )
        };
        let step = session.work(&work)?;
        self.row(&format!("puts at {rate:.0}/s"), &step, session, home)?;
        let ms = |us: f64| Ok(us / 1e3);
        self.outcome
            .put("max_put_ms", ms(step.worked.put_due.max_us));
        self.outcome
            .put("max_put_call_ms", ms(step.worked.put.max_us));
        self.outcome
            .put("p999_put_ms", ms(step.worked.put_due.p999_us));
        let kept = step.worked.puts_per_second() / rate;
        self.outcome.setting("steady_rate_kept", json!(kept));
        Ok(())
    }
}
