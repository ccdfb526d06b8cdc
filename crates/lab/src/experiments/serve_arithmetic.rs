// SPDX-License-Identifier: Apache-2.0
//! What do `incr` and `append` cost on either tier? Paper B describes them (section 3.4: the value
//! is read, changed and written back) and leaves their cost open (section 6).
//!
//! Expected shape: on flash one read a command and no write of its own, since the changed item is
//! an item of DRAM again, which leaves for flash later among others. In DRAM both cost little more
//! than a set.
//!
//! Counters are set once, so many that the first of them lie on flash. Each kind of command then
//! has keys of its own among those, and each key one command. The same commands go to a server
//! without flash. Touches and sets stand beside them: on flash a touch reads, a plain set does not.
//! Commands come on one connection, 64 at a time. Reads are the kernel's account of the process,
//! times the server's processor time.

use anyhow::{Result, anyhow, ensure};
use senko_load::cpu::ProcessCpu;
use senko_workload::KeySpace;

use crate::rig::wire::Client;
use crate::rig::{Bench, Items, Server, Steps, end, process};
use crate::{Claim, Experiment, Options, Outcome, Progress, Table};

/// The experiment.
pub struct ServeArithmetic;

/// A kind of command: its word, what follows the key, the answer, and what it is called.
const COMMANDS: [(&str, &str, &str); 4] = [
    ("touch", " 0", "TOUCHED"),
    ("set", " 0 0 7\r\n2000000", "STORED"),
    ("incr", " 1", "1000001"),
    ("append", " 0 0 1\r\n5", "STORED"),
];
/// What sets a counter.
const COUNTER: &str = " 0 0 7\r\n1000000";
/// Bytes of a key.
const KEY: usize = 16;

impl Experiment for ServeArithmetic {
    fn name(&self) -> &'static str {
        "serve-arithmetic"
    }

    fn claim(&self) -> Claim {
        Claim {
            source: "paper B, sections 3.4 and 6",
            text: "incr and append read a value, change it and write it back: one read of flash each, and no write of its own",
        }
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let bench = Bench::open(options)?;
        let mut outcome = Outcome::new();
        let steps = Steps::new(progress, 2 + 2 * COMMANDS.len() as u64 + 1);
        let mut table = Table::new(
            "Commands on counters, one connection, 64 at a time",
            &[
                "tier",
                "command",
                "server us",
                "reads a command",
                "bytes written a command",
            ],
        );
        let ended = tier(&bench, &steps, true, &mut outcome, &mut table);
        outcome.part(&["reads_per_incr_flash", "reads_per_append_flash"], ended);
        let ended = tier(&bench, &steps, false, &mut outcome, &mut table);
        outcome.part(&["cpu_us_incr_dram", "cpu_us_append_dram"], ended);
        for word in ["incr", "append"] {
            let cpu = |of: &str| outcome.bars().get(&format!("cpu_us_{of}_dram")).copied();
            if let (Some(this), Some(set)) = (cpu(word), cpu("set")) {
                outcome.bar(format!("{word}_cpu_over_set_dram"), this / set);
            }
        }
        end(&bench, &steps, outcome, [table])
    }
}

/// All commands on the counters of one tier.
fn tier(
    bench: &Bench<'_>,
    steps: &Steps<'_>,
    on_flash: bool,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<()> {
    let name = if on_flash { "flash" } else { "dram" };
    let each: u64 = bench.scaled(50_000, 500_000);
    let asked = each * COMMANDS.len() as u64;
    let memory: u64 = bench.scaled(64 << 20, 512 << 20);
    // Behind those that are asked for come as many more as DRAM holds, twice.
    let keys = if on_flash { asked + memory / 50 } else { asked };
    let items = Items::fixed(keys, KEY, 7);
    let spec = bench.senko(name, memory);
    let spec = if on_flash {
        let flash = (keys * 160).next_multiple_of(1 << 20);
        bench.scratch.need(flash)?;
        spec.flash(&bench.scratch.path("counters"), flash)
    } else {
        spec.dram_only()
    };
    let server = spec.start(&bench.scratch)?;
    outcome.setting(format!("command_{name}"), server.command.clone());
    steps.next(&format!("setting counters, {name}"));
    let space = KeySpace::new(items.prefix, items.key, items.keys)?;
    let mut client = Client::connect(server.address)?;
    let stored = client.for_keys("set", COUNTER, "STORED", &space, 0..keys)?;
    ensure!(
        stored * 100 >= keys * 99,
        "{name} stored {stored} of {keys} counters"
    );
    let stats = server.stats()?;
    for key in ["dram_items", "flash_items"] {
        outcome.setting(
            format!("{key}_{name}"),
            stats.get(key).copied().unwrap_or(0.0),
        );
    }
    for (at, (word, tail, good)) in COMMANDS.into_iter().enumerate() {
        steps.next(&format!("{word}, {name}"));
        let first = at as u64 * each;
        let before = Seen::now(&server)?;
        let done = client.for_keys(word, tail, good, &space, first..first + each)?;
        let after = Seen::now(&server)?;
        ensure!(
            done * 100 >= each * 99,
            "{word} on {name} was done for {done} of {each} counters"
        );
        let commands = each as f64;
        let us = after.cpu.time.since(&before.cpu.time).total().as_secs_f64() * 1e6 / commands;
        let reads = (after.io.read - before.io.read) as f64 / 4096.0 / commands;
        let written = (after.io.written - before.io.written) as f64 / commands;
        table.row(vec![
            name.to_owned(),
            word.to_owned(),
            format!("{us:.2}"),
            format!("{reads:.3}"),
            format!("{written:.0}"),
        ]);
        outcome.bar(format!("cpu_us_{word}_{name}"), us);
        if on_flash {
            outcome.bar(format!("reads_per_{word}_{name}"), reads);
            outcome.bar(format!("written_bytes_per_{word}_{name}"), written);
        }
    }
    outcome.setting("commands_of_a_kind", each);
    Ok(())
}

/// What the kernel says of a server.
struct Seen {
    cpu: ProcessCpu,
    io: process::Io,
}

impl Seen {
    fn now(server: &Server) -> Result<Seen> {
        let pid = server.pid();
        Ok(Seen {
            cpu: ProcessCpu::read(pid).map_err(|why| anyhow!(why))?,
            io: process::io(pid).map_err(|why| anyhow!(why))?,
        })
    }
}
