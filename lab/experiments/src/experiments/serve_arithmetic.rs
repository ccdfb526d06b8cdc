// SPDX-License-Identifier: Apache-2.0
//! What do `incr` and `append` cost on either tier? Paper B describes them (section 3.4: the value
//! is read, changed and written back) and leaves their cost open (section 6).
//!
//! Expected shape: on flash a command needs one read and causes no separate write. The changed item
//! is in DRAM again, and leaves for flash later with others. In DRAM both cost little more than a
//! set, and no more than in memcached.
//!
//! Each kind of command has its own items, which are set first. On flash, so many other items
//! follow that these have left DRAM. Then each item gets one command, in the order of their keys,
//! on one connection, 64 at a time. Touches and sets are measured for comparison: on flash a touch
//! reads, a plain set does not. The same commands go to a server without flash, and to memcached.
//!
//! At the end comes a mix of gets, sets, `incr` and `append` on its own items. These are drawn at
//! random, and get four requests each on average. The load generator checks every answer: each
//! number, and each byte of each text.
//!
//! Reads are the kernel's count for the process; times are the server's processor time.

use anyhow::{Result, anyhow, ensure};
use senko_load::Requests;
use senko_load::cpu::ProcessCpu;
use senko_workload::{KeyShape, KeySpace, Op, Popularity, ValueLen};

use crate::rig::wire::Client;
use crate::rig::{Bench, Items, Load, Server, Spec, Steps, process, traffic};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table, judged, near};

/// A kind of command: its name, and the mix that consists only of it. The load generator has no
/// touches.
const COMMANDS: [(&str, Option<&str>); 6] = [
    ("touch", None),
    ("set", Some("set=1")),
    ("incr", Some("incr=1")),
    ("decr", Some("decr=1")),
    ("append", Some("append=1")),
    ("prepend", Some("prepend=1")),
];
/// The mix at the end.
const MIX: &str = "set=0.1,incr=0.2,append=0.2";
/// Bytes of a key, and of a value: as many as a counter's digits.
const KEY: usize = 16;
const VALUE: usize = 10;
/// Requests under way where each item gets one command.
const PIPELINE: usize = 64;
const CONNECTIONS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Flash,
    Dram,
    Memcached,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Tier::Flash => "flash",
            Tier::Dram => "dram",
            Tier::Memcached => "memcached",
        }
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-arithmetic",
    paper: Paper::B,
    source: "paper B, sections 3.4 and 6",
    text: "reads, writes and processor time of incr and append, on DRAM and on flash",
    sentences: &[judged(
        "sections 3.4 and 6",
        "arithmetic and appending read the value once, and write it back",
        &["crates/server/src/commands/change.rs"],
        "2026-11-28: the process's reads for each command: a twentieth is no second read, half a read goes against it",
        &[
            near("reads_per_incr_flash", 1.0, 0.05, 0.5),
            near("reads_per_append_flash", 1.0, 0.05, 0.5),
        ],
    )
    .steady()],
    bars: &[
        Bar::less("wrong_answers_flash", 0.0, 0.0),
        Bar::less("wrong_answers_dram", 0.0, 0.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let steps = Steps::new(progress, 3 * (2 + COMMANDS.len() as u64) + 1);
    let mut tables = [
        Table::titled("One command an item, one connection, 64 at a time"),
        Table::titled(format!(
            "{MIX}, and gets: {CONNECTIONS} connections, every answer checked"
        )),
    ];
    outcome.setting("mix", MIX);
    for tier in [Tier::Flash, Tier::Dram, Tier::Memcached] {
        let ended = run_tier(bench, &steps, tier, outcome, &mut tables);
        let cost = match tier {
            Tier::Flash => "reads_per",
            Tier::Dram | Tier::Memcached => "cpu_us",
        };
        let figures = [
            &format!("{cost}_incr"),
            &format!("{cost}_append"),
            "wrong_answers",
        ];
        let keys = figures.map(|figure| format!("{figure}_{}", tier.name()));
        outcome.part(&keys.each_ref().map(String::as_str), ended);
    }
    for word in ["incr", "append"] {
        let cpu = |of: &str| outcome.bars().get(&format!("cpu_us_{of}")).copied();
        let this = cpu(&format!("{word}_dram"));
        for (name, other) in [
            ("set_dram", cpu("set_dram")),
            ("memcached", cpu(&format!("{word}_memcached"))),
        ] {
            if let (Some(this), Some(other)) = (this, other) {
                outcome.bar(format!("{word}_cpu_over_{name}"), this / other);
            }
        }
    }
    outcome.tables.extend(tables);
    Ok(())
}

fn items(prefix: &'static str, keys: u64) -> Items {
    Items {
        keys,
        prefix,
        key: KeyShape::Fixed(KEY),
        value: ValueLen::Fixed(VALUE),
    }
}

fn load(mix: &str) -> Result<Load> {
    let Requests { mix, changes } = mix.parse().map_err(|why: String| anyhow!(why))?;
    Ok(Load {
        gets: mix.share(Op::Read),
        changes,
        ..Load::gets(CONNECTIONS)
    })
}

/// A server, with room for all items of `each` keys a command and those behind them.
fn start(
    bench: &Bench<'_>,
    tier: Tier,
    memory: u64,
    keys: u64,
    outcome: &mut Outcome,
) -> Result<Server> {
    let name = tier.name();
    let spec: Spec = match tier {
        Tier::Flash => {
            let flash = (keys * 160).next_multiple_of(1 << 20);
            bench.scratch.need(flash)?;
            bench.on_flash(name, memory, flash)
        }
        Tier::Dram => bench.senko(name, memory).dram_only(),
        Tier::Memcached => bench.memcached(name, memory).map_err(|why| anyhow!(why))?,
    };
    bench.start(&spec, outcome)
}

/// All commands, and the mix, on the items of one server.
fn run_tier(
    bench: &Bench<'_>,
    steps: &Steps<'_>,
    tier: Tier,
    outcome: &mut Outcome,
    tables: &mut [Table; 2],
) -> Result<()> {
    let name = tier.name();
    let each: u64 = bench.scaled(25_000, 500_000);
    let memory: u64 = bench.scaled(64 << 20, 512 << 20);
    // After the requested items come as many more as DRAM holds, twice. Without flash, DRAM holds
    // them all.
    let (memory, behind) = match tier {
        Tier::Flash => (memory, memory / 50),
        Tier::Dram | Tier::Memcached => (memory * 2, 0),
    };
    let keys = each * (COMMANDS.len() as u64 + 1) + behind;
    let server = start(bench, tier, memory, keys, outcome)?;
    outcome.setting("commands_of_a_kind", each);
    steps.next(&format!("setting items, {name}"));
    for (word, mix) in COMMANDS {
        let load = load(mix.unwrap_or("set=1"))?;
        traffic::fill_as(bench, &server, &items(word, each), &load)?;
    }
    let mixed = items("mixed", each);
    let mix = load(MIX)?;
    traffic::fill_as(bench, &server, &mixed, &mix)?;
    if behind > 0 {
        traffic::fill_fast(bench, &server, &items("behind", behind))?;
    }
    let stats = server.stats()?;
    for key in ["dram_items", "flash_items"] {
        if let Some(items) = stats.get(key) {
            outcome.setting(format!("{key}_{name}"), *items);
        }
    }
    for (word, mix) in COMMANDS {
        steps.next(&format!("{word}, {name}"));
        let cost = match mix {
            Some(mix) => one_each(bench, &server, &items(word, each), mix)?,
            None => touch(&server, &items(word, each))?,
        };
        tables[0].add([
            ("server", name.to_owned()),
            ("command", word.to_owned()),
            ("server us", format!("{:.2}", cost.us)),
            ("reads a command", format!("{:.3}", cost.reads)),
            ("bytes written a command", format!("{:.0}", cost.written)),
        ]);
        outcome.bar(format!("cpu_us_{word}_{name}"), cost.us);
        if tier == Tier::Flash {
            outcome.bar(format!("reads_per_{word}_{name}"), cost.reads);
            outcome.bar(format!("written_bytes_per_{word}_{name}"), cost.written);
        }
    }
    steps.next(&format!("mix, {name}"));
    let mix = Load {
        verify: true,
        ..mix
    };
    let window = traffic::measure_requests(bench, &server, &mixed, &mix, each * 4)?;
    let (counts, wrong) = (&window.step.counts, window.step.fault_count());
    let p99 = traffic::us(&window.step.change, 0.99);
    tables[1].add([
        ("server", name.to_owned()),
        ("requests a second", format!("{:.0}", window.rate())),
        ("server us", format!("{:.2}", window.server_us())),
        ("change p99 us", format!("{p99:.0}")),
        ("changes", counts.changed.to_string()),
        ("answers checked", counts.verified.to_string()),
        ("wrong answers", wrong.to_string()),
    ]);
    outcome.bar(format!("mix_us_{name}"), window.server_us());
    outcome.bar(format!("wrong_answers_{name}"), wrong as f64);
    Ok(())
}

struct Cost {
    /// Processor time of the server, in microseconds.
    us: f64,
    reads: f64,
    written: f64,
}

/// Every item gets one command, in the order of their keys.
fn one_each(bench: &Bench<'_>, server: &Server, items: &Items, mix: &str) -> Result<Cost> {
    let load = Load {
        connections: 1,
        pipeline: PIPELINE,
        popularity: Popularity::Sequential,
        ..load(mix)?
    };
    let window = traffic::measure_requests(bench, server, items, &load, items.keys)?;
    let counts = &window.step.counts;
    // A change of a missing key is followed by a set.
    let done = match counts.changes {
        0 => counts.stored,
        _ => counts.changed,
    };
    ensure!(
        done * 100 >= items.keys * 99,
        "{mix} on {} was done for {done} of {} items",
        server.name,
        items.keys
    );
    let commands = items.keys as f64;
    Ok(Cost {
        us: window.server_us(),
        reads: window.process_pages_per(commands),
        written: window.io.map_or(f64::NAN, |io| io.written as f64) / commands,
    })
}

/// As [`one_each`], for the command that the load generator does not have.
fn touch(server: &Server, items: &Items) -> Result<Cost> {
    let space = KeySpace::new(items.prefix, items.key, items.keys)?;
    let mut client = Client::connect(server.address)?;
    let look = || -> Result<_> {
        let cpu = ProcessCpu::read(server.pid()).map_err(|why| anyhow!(why))?;
        Ok((cpu, process::io(server.pid())?))
    };
    let before = look()?;
    let done = client.for_keys("touch", " 0", "TOUCHED", &space, 0..items.keys)?;
    let after = look()?;
    ensure!(
        done * 100 >= items.keys * 99,
        "touch on {} was done for {done} of {} items",
        server.name,
        items.keys
    );
    let commands = items.keys as f64;
    let cpu = after.0.time.since(&before.0.time).total();
    Ok(Cost {
        us: cpu.as_secs_f64() * 1e6 / commands,
        reads: (after.1.read - before.1.read) as f64 / senko_io::PAGE_SIZE as f64 / commands,
        written: (after.1.written - before.1.written) as f64 / commands,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_a_mix_of_itself() {
        for (word, mix) in COMMANDS {
            let Some(mix) = mix else { continue };
            let load = load(mix).expect("a good mix");
            let changes = load.changes.total();
            assert_eq!(changes == 1.0, word != "set", "{word}");
            assert!(word != "set" || load.gets == 0.0);
        }
        let mix = load(MIX).expect("a good mix");
        assert!((mix.changes.total() - 0.4).abs() < 1e-9);
        assert!((mix.gets - 0.5 / 0.6).abs() < 1e-9);
    }
}
