// SPDX-License-Identifier: Apache-2.0
//! The cost of a second worker for each request. Keys belong to shards, so half of the requests
//! arrive at the wrong worker. This worker reads items in DRAM and on flash from the other's shard
//! while that worker waits, and sends the other requests to it.
//!
//! Three contenders take turns: one worker, two workers, and two servers with one worker each. Two
//! clients ask all of them in the same way, each for its own half of the items. So the two servers
//! have nothing to hand over and nothing in common: what two workers take beyond them is what the
//! crossing costs. In an open loop, where all have the same requests a second, one worker finds
//! larger batches than two. So in an open loop two workers are compared with the two servers. They
//! are compared with one worker in a closed loop, where requests wait at all times.
//!
//! The kernel counts the processor time. On a machine with two cores, servers and load share both.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use senko_io::PAGE_SIZE;
use senko_load::ServerCpu;
use serde_json::json;

use crate::rig::series::Alone;
use crate::rig::traffic;
use crate::rig::{Bench, Figure, Items, Load, Rounds, Server, Steps, Window, median, some};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// Most of its core that one worker may use in the open loop.
const BUSY: f64 = 0.75;
const CONNECTIONS: usize = 32;
const PREFIXES: [&str; 2] = ["one", "two"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-cores",
    paper: Paper::Design,
    source: "design question: a shard a worker, requests that arrive at the wrong one",
    text: "two workers take for a GET about the processor time of two servers with one worker each",
    sentences: &[],
    bars: &[
        Bar::less("flash_closed_cpu_t2_over_t1", 1.15, 1.05),
        Bar::less("flash_closed_user_t2_over_t1", 1.40, 1.20),
        Bar::more("flash_closed_gets_t2_over_t1", 0.92, 1.0),
        Bar::less("flash_share_handed_over_t2", 0.15, 0.10),
        Bar::less("flash_open_cpu_t2_over_two_servers", 1.10, 1.05),
        Bar::less("dram_user_us_t2_over_two_servers", 1.15, 1.05),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut run = Run {
        steps: Steps::new(progress, 8),
        bench,
        rounds: bench.scaled(4, 15),
        window: Duration::from_secs(bench.scaled(1, 3)),
        outcome,
        table: Table::titled("One worker, two, and two servers: medians of the rounds"),
    };
    run.outcome
        .setting("connections_of_each_client", CONNECTIONS);
    run.outcome.setting("rounds", run.rounds);
    run.outcome.setting("window_seconds", run.window.as_secs());
    run.outcome
        .setting("cores_of_two_workers", json!(bench.cores()[..2]));
    let keys = bench.scaled(50_000, 500_000);
    let ended = run.compare("dram", keys, 1000, None);
    run.outcome
        .part(&["dram_user_us_t2_over_two_servers"], ended);
    let pages = bench.scaled(1 << 15, 1 << 19);
    let ended = run.compare("flash", pages, 3900, Some(pages * PAGE_SIZE as u64));
    let flash = EXPERIMENT.bars.iter().map(|bar| bar.key);
    let flash: Vec<&str> = flash.filter(|key| key.starts_with("flash")).collect();
    run.outcome.part(&flash, ended);
    run.outcome.tables.push(run.table);
    Ok(())
}

/// A contender: one server, or two with one half of the items each.
struct Side {
    name: &'static str,
    servers: Vec<Server>,
}

impl Side {
    /// The server that client `n` asks.
    fn of(&self, client: usize) -> &Server {
        &self.servers[client % self.servers.len()]
    }
}

/// What both clients saw in a window, and what the contender took for it.
struct Turn {
    rate: f64,
    /// Microseconds of processor time a request.
    server_us: f64,
    /// Of them in user mode.
    user_us: f64,
    /// Shares of the requests.
    read_across: f64,
    handed_over: f64,
    sent_for_others: f64,
}

impl Turn {
    fn of(windows: &[Window; 2], is_one_server: bool) -> Turn {
        let requests: u64 = windows.iter().map(|one| one.step.counts.requests).sum();
        // Each client's window has all that its server did.
        let all = |of: &dyn Fn(&Window) -> f64| match (is_one_server, windows.each_ref().map(of)) {
            (true, [one, other]) => one.max(other),
            (false, [one, other]) => one + other,
        };
        let us = |time: &dyn Fn(&ServerCpu) -> Duration| {
            let seconds = |window: &Window| {
                let server = window.step.server;
                server.map_or(f64::NAN, |server| time(&server).as_secs_f64())
            };
            all(&seconds) * 1e6 / requests as f64
        };
        let share = |counter: &str| all(&|window| window.grown(counter)) / requests as f64;
        Turn {
            rate: windows.iter().map(Window::rate).sum(),
            server_us: us(&|server| server.time.total()),
            user_us: us(&|server| server.time.user),
            read_across: share("senko_read_across"),
            handed_over: share("senko_forwarded"),
            sent_for_others: share("senko_sent_for_others"),
        }
    }
}

/// The median of some turns.
fn figure(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> Figure {
    median(turns.iter().map(of).collect()).ok_or_else(|| "no round showed it".to_owned())
}

/// One contender's turns over another's.
fn over(one: &[Turn], other: &[Turn], of: impl Fn(&Turn) -> f64) -> Rounds {
    let rounds = one.iter().zip(other);
    some(rounds.map(|(one, other)| of(one) / of(other))).ok_or_else(|| "no round".to_owned())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    rounds: usize,
    window: Duration,
    steps: Steps<'a>,
    outcome: &'a mut Outcome,
    table: Table,
}

impl Run<'_> {
    /// Starts and fills a contender of `cores.len()` servers with `threads` workers each. A client
    /// has `keys` items, which take `flash` bytes of flash.
    fn start(
        &mut self,
        name: &'static str,
        threads: usize,
        cores: &[&[usize]],
        items: &[Items; 2],
        flash: Option<u64>,
    ) -> Result<Side> {
        self.steps.next(&format!("filling {name}"));
        let halves = 2 / cores.len() as u64;
        let keys = items[0].keys * halves;
        let mut servers = Vec::new();
        for (n, cores) in cores.iter().enumerate() {
            let place = if flash.is_some() { "flash" } else { "dram" };
            let of = format!("{place}-{threads}-of-{halves}-{n}");
            let spec = match flash {
                None => self.bench.senko(&of, keys * 1536 + (64 << 20)).dram_only(),
                Some(bytes) => {
                    let bytes = bytes * halves;
                    self.bench
                        .on_flash(&of, (bytes / 8).max(64 << 20), bytes / 2 * 3)
                }
            };
            let spec = spec.with(&["-t", &threads.to_string()]).on(cores);
            servers.push(self.bench.start(&spec, self.outcome)?);
        }
        let side = Side { name, servers };
        for (client, items) in items.iter().enumerate() {
            traffic::fill(self.bench, side.of(client), items, None)?;
        }
        Ok(side)
    }

    /// One window: both clients at once.
    fn turn(&self, side: &Side, items: &[Items; 2], load: &Load) -> Result<Turn> {
        let (bench, time) = (self.bench, self.window);
        let one =
            |client: usize| traffic::measure(bench, side.of(client), &items[client], load, time);
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| one(1));
            (one(0), second.join())
        });
        let second = second.map_err(|_| anyhow!("a thread of the experiment panicked"))?;
        Ok(Turn::of(&[first?, second?], side.servers.len() == 1))
    }

    /// Lets the contenders take turns. The others are stopped meanwhile.
    fn turns(
        &mut self,
        sides: &[Side; 3],
        items: &[Items; 2],
        load: &Load,
        what: &str,
    ) -> Result<[Vec<Turn>; 3]> {
        let pids = |side: &Side| side.servers.iter().map(Server::pid).collect::<Vec<u32>>();
        let mut all = [const { Vec::new() }; 3];
        for round in 0..self.rounds {
            let load = load.clone().round(round);
            for (side, turns) in sides.iter().zip(&mut all) {
                let awake = pids(side);
                let _alone = Alone::among(sides.iter().flat_map(pids), &awake);
                turns.push(self.turn(side, items, &load)?);
            }
        }
        for (side, turns) in sides.iter().zip(&all) {
            let cell = |digits: usize, of: &dyn Fn(&Turn) -> f64| {
                figure(turns, of).map_or("-".to_owned(), |number| format!("{number:.digits$}"))
            };
            self.table.add([
                ("contender", side.name.to_owned()),
                ("load", what.to_owned()),
                ("requests/s", cell(0, &|turn| turn.rate)),
                ("server us", cell(2, &|turn| turn.server_us)),
                ("of it user", cell(2, &|turn| turn.user_us)),
                ("read across %", cell(1, &|turn| turn.read_across * 100.0)),
                ("handed over %", cell(1, &|turn| turn.handed_over * 100.0)),
            ]);
        }
        Ok(all)
    }

    /// The search for a client's rate begins here and goes down, until one worker keeps up and has
    /// some of its core left. Requests of an open loop come one by one and cost more than those of
    /// a closed loop.
    fn rate_with_room(&self, one: &Side, items: &[Items; 2], from: f64) -> Result<f64> {
        let mut rate = from.round();
        for round in 0..12 {
            let turn = self.turn(one, items, &open_loop(rate).round(round))?;
            if turn.rate * turn.server_us / 1e6 <= BUSY && turn.rate >= 2.0 * rate * 0.99 {
                return Ok(rate);
            }
            rate = (rate * 0.85).round();
        }
        Err(anyhow!("one worker keeps up with no rate that was tried"))
    }

    /// The three contenders over the same items; keys of figures begin with `place`.
    fn compare(&mut self, place: &str, keys: u64, value: usize, flash: Option<u64>) -> Result<()> {
        self.bench.scratch.need(flash.unwrap_or(0) * 9)?;
        let items = PREFIXES.map(|prefix| Items {
            prefix,
            ..Items::fixed(keys, 16, value)
        });
        let cores = [self.bench.cores()[0], self.bench.cores()[1]];
        let [first, second] = [&cores[..1], &cores[1..]];
        let sides = [
            self.start("-t 1", 1, &[first], &items, flash)?,
            self.start("-t 2", 2, &[&cores], &items, flash)?,
            self.start("two servers", 1, &[first, second], &items, flash)?,
        ];
        self.steps.next(&format!("{place}, in turns"));
        let closed = Load::gets(CONNECTIONS);
        let [one, two, _] =
            self.turns(&sides, &items, &closed, &format!("{place}, closed loop"))?;
        let mut put =
            |key: &str, rounds: Rounds| self.outcome.put(format!("{place}_{key}"), rounds);
        let ratio = |of: fn(&Turn) -> f64| over(&two, &one, of);
        put("closed_cpu_t2_over_t1", ratio(|turn| turn.server_us));
        put("closed_user_t2_over_t1", ratio(|turn| turn.user_us));
        put("closed_gets_t2_over_t1", ratio(|turn| turn.rate));
        let share = |of: fn(&Turn) -> f64| some(two.iter().map(of)).ok_or_else(String::new);
        put("share_handed_over_t2", share(|turn| turn.handed_over));
        put("share_read_across_t2", share(|turn| turn.read_across));
        put(
            "share_sent_for_others_t2",
            share(|turn| turn.sent_for_others),
        );
        let peak = figure(&one, |turn| turn.rate).map_err(|why| anyhow!(why))?;
        let others = sides[1..].iter().flat_map(|side| &side.servers);
        let alone = Alone::among(others.map(Server::pid), &[]);
        let rate = self.rate_with_room(&sides[0], &items, peak / 4.0)?;
        drop(alone);
        self.outcome
            .setting(format!("{place}_open_loop_rate"), 2.0 * rate);
        let what = format!("{place}, {:.0}/s", 2.0 * rate);
        let [_, two, servers] = self.turns(&sides, &items, &open_loop(rate), &what)?;
        let behind = [&two, &servers]
            .into_iter()
            .flatten()
            .find(|turn| turn.rate < 2.0 * rate * 0.97);
        let cost = |of: fn(&Turn) -> f64| match behind {
            Some(turn) => Err(format!(
                "only {:.0} requests a second were answered",
                turn.rate
            )),
            None => over(&two, &servers, of),
        };
        let mut put =
            |key: &str, rounds: Rounds| self.outcome.put(format!("{place}_{key}"), rounds);
        put("open_cpu_t2_over_two_servers", cost(|turn| turn.server_us));
        put("user_us_t2_over_two_servers", cost(|turn| turn.user_us));
        Ok(())
    }
}

/// One client's part of an open loop.
fn open_loop(rate: f64) -> Load {
    Load::gets(CONNECTIONS).at_rate(rate)
}
