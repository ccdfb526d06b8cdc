// SPDX-License-Identifier: Apache-2.0
//! `senko plan`: DRAM and flash to buy for a cache, from a trace of keys or a number of items; and
//! what a store or a DBM writes to its drive.

mod engine; // what an engine writes
mod ratios; // flash for each byte of DRAM

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use senko_cache::Footprint;
use senko_io::exact_size;
use senko_plan::count::Basis;
use senko_plan::curve::server::{Served, Servers};
use senko_plan::curve::tiers::Machine;
use senko_plan::curve::{self, Curve, FOLLOWED, HIT_RATIO_ERROR, WRITTEN_ERROR};
use senko_plan::ratios::Premises;
use senko_plan::requests::from_trace;
use senko_plan::wear::Engine;
use senko_plan::{Table, short};
use senko_server::settings::PolicyKind;
use senko_ssd::chart::Unit;
use senko_ssd::lifetime::{LONGEST_YEARS, show_years};
use senko_ssd::trace::{Reader, TraceSpec};
use senko_workload::units::{count, number, rate, share};
use senko_workload::zipf::MAX_EXPONENT;
use serde_json::json;

use crate::units::{Policy, counted};

const DAY: f64 = 86_400.0;
/// Years that a drive must last.
const YEARS: f64 = 5.0;
/// The share of requests to be found, if no other is asked for.
const HIT: f64 = 0.8;
/// The same in DRAM.
const DRAM_HIT: f64 = 0.5;
/// Bytes of all items, at most: an exabyte.
const MOST_BYTES: f64 = 1e18;
/// Bytes of an item, at most, as in the server.
const MOST_ITEM: u64 = 1 << 30;
/// Ends of a range, and the price of DRAM alone, are sought with so much more hits.
const ROUGHLY: f64 = 0.004;
/// If a server with so much less finds so much less, the plan says so.
const LESS: f64 = 0.05;
const CLIFF: f64 = 0.1;
/// Items of one size that are placed on pages, to see how many a page holds.
const PLACED: u64 = 4096;

/// Arguments of `senko plan`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko plan --items 100m --bytes 1000 --rate 50000\n      \
      keys as Zipf has them\n  \
    senko plan keys.trace.gz --hit 90% --dram-price 4 --flash-price 0.1\n  \
    senko plan --engine dbm --items 10m --bytes 200 --rate 2000 --drive 1t\n      \
      what a database writes, and how long its drive lives\n  \
    senko plan --ratios --paper\n      \
      flash for each byte of DRAM by price, machine and index (paper A, 8)\n\n\
    Hits and writes are those of small simulations of both tiers of senko serve, with a part of the items. Hits are counted over the gets of a trace; each miss is stored, and each set.")]
pub struct PlanArgs {
    /// A trace of keys, compressed or not
    trace: Option<PathBuf>,
    /// What keeps the items: cache, the server; store or dbm, an engine that keeps all of them
    #[arg(long, value_name = "NAME", default_value = "cache")]
    engine: EngineName,
    /// Without a trace: how many items there are
    #[arg(long, value_name = "N", value_parser = count::<u64>, conflicts_with = "trace")]
    items: Option<u64>,
    /// Bytes of an item, where the trace has no sizes
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of, default_value = "1000")]
    bytes: u64,
    /// Without a trace: the exponent of Zipf's law; 0 draws all items alike
    #[arg(long, value_name = "FACTOR", value_parser = exponent, default_value_t = 0.99, conflicts_with = "trace")]
    zipf: f64,
    /// Which items leave first: s3-fifo, as in senko serve, or lru [default: s3-fifo]
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
    /// Requests a second; with an engine, puts of items that are there
    #[arg(long, value_name = "RATE", value_parser = some_rate, default_value = "10000")]
    rate: f64,
    /// The share of requests to be found at all [default: 80%]
    #[arg(long, value_name = "SHARE", value_parser = some_share)]
    hit: Option<f64>,
    /// The share of requests to be found in DRAM, at most that of --hit; 0 leaves them all to flash
    /// [default: 50%, or --hit where that is less]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    dram_hit: Option<f64>,
    /// Price of DRAM, a GB [default: 4, or 9 with --paper]
    #[arg(long, value_name = "PRICE", value_parser = quantity)]
    dram_price: Option<f64>,
    /// Price of flash, a GB [default: 0.1, or 2 with --paper]
    #[arg(long, value_name = "PRICE", value_parser = quantity)]
    flash_price: Option<f64>,
    /// Bits of DRAM for each item in the index [default: what senko serve takes, with --ratios 72
    /// or, with --paper, 16]
    #[arg(long, value_name = "FACTOR", value_parser = quantity)]
    index_bits: Option<f64>,
    /// Writes that a block of the drive survives
    #[arg(long, value_name = "FACTOR", value_parser = quantity, default_value_t = 3000.0)]
    cycles: f64,
    /// Bytes that the drive writes to its flash for each byte of the host
    #[arg(long, value_name = "FACTOR", value_parser = quantity, default_value_t = 1.2)]
    write_amplification: f64,
    /// With an engine: puts that become durable together
    #[arg(long, value_name = "N", value_parser = crate::units::at_least_one::<u64>)]
    batch: Option<u64>,
    /// With an engine: bytes of the drive; as many as the file has, if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of)]
    drive: Option<u64>,
    /// With --engine dbm: bytes of DRAM for pages [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of)]
    cache: Option<u64>,
    /// Instead of a plan, print how much flash goes with a byte of DRAM: by price, by what a
    /// machine holds, and by the index for items of several sizes
    #[arg(long, conflicts_with_all = ["engine", "trace", "items", "bytes", "zipf", "policy", "rate", "hit",
        "dram_hit", "cycles", "write_amplification"])]
    ratios: bool,
    /// With --ratios: the prices, the machine and the index of paper A (2012)
    #[arg(long, requires = "ratios", conflicts_with_all = ["trace", "items"])]
    paper: bool,
    /// With --ratios: DRAM that a machine holds [default: 1536 GB, or 96 GB with --paper]
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of, requires = "ratios",
        conflicts_with_all = ["trace", "items"])]
    machine_dram: Option<u64>,
    /// With --ratios: flash that it holds [default: 368.64 TB, or 3600 GB with --paper]
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of, requires = "ratios",
        conflicts_with_all = ["trace", "items"])]
    machine_flash: Option<u64>,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What keeps the items.
#[derive(Clone, Copy, Debug)]
struct EngineName(Option<Engine>);

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cache" => Ok(EngineName(None)),
            "store" => Ok(EngineName(Some(Engine::Store))),
            "dbm" => Ok(EngineName(Some(Engine::Dbm))),
            _ => Err(format!("no engine {text:?}: use cache, store or dbm")),
        }
    }
}

impl PlanArgs {
    /// Refuses options that do not belong to what keeps the items.
    fn check_engine(&self) -> Result<()> {
        let (of_cache, of_engines) = (
            [
                ("a trace", self.trace.is_some()),
                ("--policy", self.policy.is_some()),
                ("--hit", self.hit.is_some()),
                ("--dram-hit", self.dram_hit.is_some()),
                ("--dram-price", self.dram_price.is_some()),
                ("--flash-price", self.flash_price.is_some()),
                ("--index-bits", self.index_bits.is_some()),
            ],
            [
                ("--batch", self.batch.is_some()),
                ("--drive", self.drive.is_some()),
                ("--cache", self.cache.is_some()),
            ],
        );
        let given = |options: &[(&'static str, bool)]| {
            let given = options.iter().find(|(_, given)| *given);
            given.map(|(name, _)| *name)
        };
        match self.engine.0 {
            None => match given(&of_engines) {
                Some(name) => bail!("{name} is for --engine store or dbm"),
                None => Ok(()),
            },
            Some(engine) => match given(&of_cache) {
                Some(name) => bail!("{name} is for a cache: an engine keeps all items"),
                None if engine == Engine::Store && self.cache.is_some() => {
                    bail!("--cache is for --engine dbm: the store's cache saves no writes")
                }
                None => Ok(()),
            },
        }
    }
}

/// A share that is not 0.
fn some_share(text: &str) -> Result<f64, String> {
    match share(text) {
        Ok(0.0) => Err("a share of 0 needs no cache".to_owned()),
        share => share.map_err(|error| error.to_string()),
    }
}

/// Prices, factors and counts for which the arithmetic has a meaning.
fn within(value: f64) -> Result<f64, String> {
    match value {
        0.0 => Err("it must be more than 0".to_owned()),
        1e-6..=1e12 => Ok(value),
        _ => Err("it must be from 0.000001 to 1000000000000".to_owned()),
    }
}

fn quantity(text: &str) -> Result<f64, String> {
    within(number(text).map_err(|error| error.to_string())?)
}

fn some_rate(text: &str) -> Result<f64, String> {
    within(rate(text).map_err(|error| error.to_string())?)
}

/// An exponent of Zipf's law.
fn exponent(text: &str) -> Result<f64, String> {
    match number(text) {
        Ok(value) if value > MAX_EXPONENT => Err(format!("it must be from 0 to {MAX_EXPONENT}")),
        value => value.map_err(|error| error.to_string()),
    }
}

/// What a drive is given, and how long it lives.
struct Writes {
    /// By the host; data sheets rate drives by these.
    host_a_day: f64,
    /// By the drive, to its cells.
    written_a_day: f64,
    /// `None` if nothing is written, or for more than [`LONGEST_YEARS`].
    years: Option<f64>,
}

impl Writes {
    /// Those to a drive of so many bytes.
    fn of(host_a_day: f64, drive: f64, args: &PlanArgs) -> Writes {
        let written_a_day = host_a_day * args.write_amplification;
        Writes {
            host_a_day,
            written_a_day,
            years: (written_a_day > 0.0)
                .then(|| drive * args.cycles / written_a_day / 365.0)
                .filter(|years| *years <= LONGEST_YEARS),
        }
    }

    /// Bytes written to the flash's cells in [`YEARS`].
    fn endurance(&self) -> f64 {
        self.written_a_day * 365.0 * YEARS
    }

    /// Why there is no number of years.
    fn years_missing(&self) -> Option<&'static str> {
        match self.years {
            Some(_) => None,
            None if self.written_a_day > 0.0 => Some(LONG),
            None => Some("nothing is written"),
        }
    }

    /// The life for people.
    fn life(&self) -> String {
        self.years.map_or(LONG.to_owned(), show_years)
    }
}

/// A server of one size.
struct Row {
    dram: f64,
    flash: f64,
    hit: f64,
    writes: Writes,
    price: f64,
}

impl Row {
    fn of(served: &Served, args: &PlanArgs, premises: &Premises) -> Row {
        let Machine { dram, index, flash } = served.machine;
        Row {
            dram: dram + index,
            flash,
            hit: served.hits,
            writes: Writes::of(served.written * args.rate * DAY, flash, args),
            price: price(premises, dram + index, flash),
        }
    }
}

/// The price of so many bytes of each.
fn price(premises: &Premises, dram: f64, flash: f64) -> f64 {
    (dram * premises.dram_price + flash * premises.flash_price) / 1e9
}

/// The items, their requests, and what items take in each tier.
struct Population {
    /// Its unit is an item, or a byte of a record where items have sizes of their own.
    curve: Curve,
    /// Bytes of keys and values.
    bytes: f64,
    /// Bytes of chunks of DRAM and of pages on flash for a unit.
    unit: Machine,
    /// Bytes of each item, or of all.
    sizes: Vec<u64>,
}

/// The format of a file that is no trace of keys, if it is one of requests to a drive.
fn block_format(path: &Path) -> Option<&'static str> {
    let mut requests = Reader::open(path, &TraceSpec::default()).ok()?;
    requests.next()?.ok()?;
    Some(requests.format().name())
}

/// Runs `senko plan`.
pub fn main(args: &PlanArgs) -> Result<()> {
    let premises = ratios::premises(args);
    for (name, value) in [
        ("--machine-dram", premises.machine_dram),
        ("--machine-flash", premises.machine_flash),
    ] {
        if value <= 0.0 {
            bail!("{name} is {value}, and must be above 0");
        }
    }
    if args.ratios {
        return ratios::main(args);
    }
    if args.bytes == 0 {
        bail!("--bytes 0: items without bytes need no cache");
    }
    args.check_engine()?;
    if let Some(engine) = args.engine.0 {
        return engine::main(args, engine);
    }
    let hit = args.hit.unwrap_or(HIT);
    if let Some(dram) = args.dram_hit
        && dram > hit
    {
        bail!(
            "--dram-hit {}% is more than the {}% of --hit",
            dram * 100.0,
            hit * 100.0
        );
    }
    let population = Population::of(args)?;
    let Population { curve, sizes, .. } = &population;
    let policy = match args.policy.map(|policy| policy.0) {
        Some(PolicyKind::Lru) => curve::Policy::Lru,
        Some(PolicyKind::S3Fifo) | None => curve::Policy::S3Fifo,
    };
    let size = |item: usize| sizes[item.min(sizes.len() - 1)];
    let of_item = args.index_bits.map(|bits| bits / 8.0);
    let mut servers = Servers::new(curve, policy, size, (population.unit, of_item));
    let dram_hit = args.dram_hit.unwrap_or(DRAM_HIT.min(hit));
    let Some(served) = servers.least_of(hit, dram_hit) else {
        bail!(
            "no cache finds {} % of these requests: with room for all it is {:.2} %, since a trace begins with an empty cache; ask for less with --hit",
            (hit * 1e8).round() / 1e6,
            curve.hit_ratio(u64::MAX) * 100.0
        );
    };
    let row = |served: &Served| Row::of(served, args, &premises);
    let Machine { dram, index, flash } = served.machine;
    let chosen = row(&served);
    // DRAM finds everything that is asked for.
    let alone = flash == 0.0;
    servers.search_roughly(ROUGHLY);
    let bounds = Bounds::of(&servers, &served, (hit, dram_hit), row);
    // Where requests go in a loop, a few bytes less may find hardly anything.
    let smaller = servers.of(dram * (1.0 - LESS), flash * (1.0 - LESS)).hits;
    let cliff = match served.hits - smaller > CLIFF {
        true => format!(
            "  cliff  with {:.0} % less of both, {:.1} % of the requests are found: plan more\n",
            LESS * 100.0,
            smaller * 100.0
        ),
        false => String::new(),
    };
    let endurance = chosen.writes.endurance();
    let drive = (endurance / args.cycles).max(flash);
    let lasting = price(&premises, chosen.dram, drive);
    let all_in_dram = match alone {
        true => served,
        false => servers
            .least_of(hit, hit)
            .unwrap_or_else(|| servers.of(servers.dram_for_all(), 0.0)),
    };
    let all_in_dram = row(&all_in_dram).price;
    let all = servers.room_for_all();
    let sizes: Vec<Row> = (0..7)
        .rev()
        .map(|halved| row(&servers.of(dram, all / f64::from(1 << halved))))
        .collect();
    let mut out = crate::prose::stdout();
    if args.json {
        let show = |row: &Row| {
            let writes = &row.writes;
            json!({ "flash_bytes": row.flash, "hit_ratio": row.hit, "host_bytes_a_day": writes.host_a_day, "written_bytes_a_day": writes.written_a_day,
                "years": writes.years, "years_missing": writes.years_missing(), "price": row.price })
        };
        let line = json!({
            "items": curve.objects, "footprint_bytes": population.bytes, "followed_share": curve.share,
            "five_years_drive_bytes": drive, "five_years_price": lasting,
            "five_years_host_bytes": endurance / args.write_amplification, "dram_bytes": chosen.dram, "index_bytes": index, "plan": show(&chosen),
            "dram_hit_ratio": served.dram_hits, "hit_ratio_with_5_percent_less": smaller,
            "all_in_dram_price": all_in_dram, "sizes": sizes.iter().map(show).collect::<Vec<_>>(),
            "hit_ratio_error": HIT_RATIO_ERROR, "written_error": WRITTEN_ERROR,
            "flash_bytes_within": bounds.flash, "dram_bytes_within": bounds.dram,
            "host_bytes_a_day_within": bounds.host_a_day, "price_within": bounds.price,
            "dram_alone": alone,
        });
        return writeln!(out, "{line}").context("cannot write to stdout");
    }
    let bytes = |value: f64| Unit::Bytes.show(value);
    let within = |[less, more]: [f64; 2]| format!("{} to {}", bytes(less), bytes(more));
    let columns = ["flash", "hits", "written a day", "life", "price"];
    let mut table = Table::new("Sizes of flash", &columns);
    for row in &sizes {
        table.row(vec![
            bytes(row.flash),
            format!("{:.1} %", row.hit * 100.0),
            bytes(row.writes.host_a_day),
            row.writes.life(),
            money(row.price),
        ]);
    }
    let followed = if curve.times > 1.0 {
        format!(
            "simulated in groups of at most {} items",
            short(curve.times.ceil())
        )
    } else {
        format!("{:.1} % of the items were followed", curve.share * 100.0)
    };
    write!(
        out,
        "{} of {} on average, {} in all; {followed}\n\n\
         to find {:.1} % of the requests, {:.1} % of them in DRAM:\n",
        counted(curve.objects.round(), "item"),
        bytes(population.bytes / curve.objects.max(1.0)),
        bytes(population.bytes),
        chosen.hit * 100.0,
        served.dram_hits * 100.0,
    )
    .context("cannot write to stdout")?;
    if alone {
        writeln!(out, "  flash  none: DRAM alone finds them")
    } else {
        writeln!(
            out,
            "  flash  {} ({}), with {} written a day ({}; {} to its cells) at {} requests a second: {} at {} cycles a block\n  \
             for {YEARS:.0} years: a drive of {}, or one rated for {} of writes",
            bytes(chosen.flash),
            within(bounds.flash),
            bytes(chosen.writes.host_a_day),
            within(bounds.host_a_day),
            bytes(chosen.writes.written_a_day),
            short(args.rate),
            chosen.writes.life(),
            short(args.cycles),
            bytes(drive),
            bytes(endurance / args.write_amplification),
        )
    }
    .context("cannot write to stdout")?;
    let cheaper = match all_in_dram < chosen.price && !alone {
        true => ", which is cheaper",
        false => "",
    };
    write!(
        out,
        "  DRAM   {} ({}), of which {} index the items\n  \
         price  {} ({} to {}), or {} with the drive for {YEARS:.0} years; all in DRAM it would be {}{cheaper}; in the currency of \
         --dram-price and --flash-price\n  \
         error  a filled server's hits are within {} points of 100, and its writes within {:.0} %; \
         what is in brackets is for so many fewer and more\n{cliff}\n{}",
        bytes(chosen.dram),
        within(bounds.dram),
        bytes(index),
        money(chosen.price),
        money(bounds.price[0]),
        money(bounds.price[1]),
        money(lasting),
        money(all_in_dram),
        short(HIT_RATIO_ERROR * 100.0),
        WRITTEN_ERROR * 100.0,
        table.to_markdown()
    )
    .context("cannot write to stdout")
}

/// The figures of a plan for as many hits fewer and more as it may be off.
struct Bounds {
    flash: [f64; 2],
    dram: [f64; 2],
    host_a_day: [f64; 2],
    price: [f64; 2],
}

impl Bounds {
    fn of(
        servers: &Servers<'_>,
        served: &Served,
        (hit, dram_hit): (f64, f64),
        row: impl Fn(&Served) -> Row,
    ) -> Bounds {
        let Machine { dram, flash, .. } = served.machine;
        let alone = flash == 0.0;
        let ends = [-HIT_RATIO_ERROR, HIT_RATIO_ERROR].map(|off| {
            let flash = match alone {
                true => 0.0,
                // More hits than any cache has need room for all.
                false => servers
                    .flash_for((hit + off).max(0.0), dram, flash)
                    .unwrap_or(servers.room_for_all().max(flash)),
            };
            let wanted = if alone { hit } else { dram_hit };
            let dram = match dram > 0.0 {
                true => servers
                    .dram_for((wanted + off).max(0.0), served.machine.flash, dram)
                    .unwrap_or(servers.dram_for_all().max(dram)),
                false => 0.0,
            };
            // What is written follows from the hits of both.
            let written = servers.of(served.machine.dram, flash);
            (
                row(&servers.near(&served.machine, dram, flash)),
                row(&written).writes.host_a_day,
            )
        });
        let both = |of: fn(&Row) -> f64| [of(&ends[0].0), of(&ends[1].0)];
        Bounds {
            flash: both(|row| row.flash),
            dram: both(|row| row.dram),
            host_a_day: [
                ends[1].1 * (1.0 - WRITTEN_ERROR),
                ends[0].1 * (1.0 + WRITTEN_ERROR),
            ],
            price: both(|row| row.price),
        }
    }
}

/// A life that is longer than a drive's.
const LONG: &str = "more than 100 years";

/// A price: cents are its smallest part.
fn money(price: f64) -> String {
    if price > 0.0 && price < 0.01 {
        return "below 0.01".to_owned();
    }
    format!("{price:.2}")
}

impl Population {
    /// That of a trace, for which the cache begins empty, or of keys by Zipf's law.
    fn of(args: &PlanArgs) -> Result<Population> {
        let policy = curve::Policy::Lru;
        let Some(trace) = &args.trace else {
            return match args.items {
                Some(0) => bail!("--items 0: there is nothing to cache"),
                Some(items) => {
                    check_bytes(items as f64 * args.bytes as f64)?;
                    let curve = Curve::of_zipf(policy, items, args.zipf, 1)?;
                    Population::of_one_size(curve, args.bytes)
                }
                None => {
                    bail!("give a trace of keys, or --items N for keys by Zipf's law; or --ratios")
                }
            };
        };
        ensure!(
            !trace.is_dir(),
            "{} is a folder, and no trace",
            trace.display()
        );
        let mut requests = from_trace(trace).map_err(|error| match block_format(trace) {
            Some(format) => anyhow!(
                "{} is a trace of blocks ({format}), for senko ssd run; a plan needs one of keys, \
                 such as lines of key,op,size",
                trace.display()
            ),
            None => error,
        })?;
        let curve = |requests, basis| Curve::of_policy(policy, requests, basis, 0, (FOLLOWED, 1));
        let Some(sizes) = &mut requests.sizes else {
            return Population::of_one_size(curve(&requests, Basis::Objects), args.bytes);
        };
        let bytes: f64 = sizes.iter().map(|size| *size as f64).sum::<f64>() / requests.share;
        check_bytes(bytes)?;
        let mut taken = Footprint::default();
        let own: Vec<u64> = sizes.iter().map(|size| (*size).min(MOST_ITEM)).collect();
        for (record, size) in sizes.iter_mut().zip(&own) {
            taken.add(0, *size as u32);
            *record = Footprint::record_bytes(0, *size as u32);
        }
        let curve = curve(&requests, Basis::Bytes);
        let units = curve.footprint * requests.share;
        Ok(Population {
            curve,
            bytes,
            unit: unit(&taken, units),
            sizes: own,
        })
    }

    fn of_one_size(curve: Curve, size: u64) -> Result<Population> {
        let bytes = curve.objects * size as f64;
        check_bytes(bytes)?;
        ensure!(
            size <= MOST_ITEM,
            "--bytes {}: an item has at most {}",
            exact_size(size),
            exact_size(MOST_ITEM)
        );
        let mut taken = Footprint::default();
        for _ in 0..PLACED {
            taken.add(0, size as u32);
        }
        Ok(Population {
            curve,
            bytes,
            unit: unit(&taken, PLACED as f64),
            sizes: vec![size],
        })
    }
}

/// What a unit takes, if so many take this.
fn unit(taken: &Footprint, units: f64) -> Machine {
    Machine {
        dram: taken.dram_bytes() as f64 / units,
        index: 0.0,
        flash: taken.flash_bytes() as f64 / units,
    }
}

fn check_bytes(bytes: f64) -> Result<()> {
    ensure!(
        bytes <= MOST_BYTES,
        "all items have {}, which is more than a cache can hold; an exabyte is the limit here",
        Unit::Bytes.show(bytes)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache that holds all its items once had a lifetime of 8219178082.2 years.
    #[test]
    fn a_life_that_is_no_number_has_its_reason() {
        let row = |years: Option<f64>, written_a_day| Writes {
            host_a_day: written_a_day,
            written_a_day,
            years,
        };
        let none = row(None, 0.0);
        assert_eq!(none.life(), "more than 100 years");
        assert_eq!(none.years_missing(), Some("nothing is written"));
        assert_eq!(row(None, 5.0).years_missing(), Some("more than 100 years"));
        assert_eq!(row(Some(2.0), 5.0).years_missing(), None);
    }
}
