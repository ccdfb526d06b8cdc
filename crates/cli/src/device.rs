// SPDX-License-Identifier: Apache-2.0
//! `senko device`: measures a file, a raw device or a simulated drive; this file has only arguments
//! and printing.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use senko_io::{Output, bar, exact_size, tell, undo};
use senko_plan::device::fit::{Fit, fit, off_by};
use senko_plan::device::{
    FileTarget, Found, LEAST, Mapping, Measured, STEPS, SimulatedTarget, Target, measure,
};
use senko_plan::{Progress, Table};
use senko_ssd::chart::Unit;
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::profile::{DEFAULT, Profile};
use senko_workload::units::count;
use serde_json::json;

use crate::existing::Existing;

/// Arguments of `senko device`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko device test.bin --size 1g\n      \
      makes the file, measures through it, removes it\n  \
    senko device sim:x25-m --svg x25-m.svg\n      \
      a simulated drive, in its own time\n  \
    senko device test.bin --write-profile mine.toml\n      \
      and then: senko ssd run trace.csv --profile mine.toml\n  \
    sudo senko device /dev/sdX --destroy-data /dev/sdX\n\n\
    All data of a raw device, or of a file that is there already, is lost; so its name has to be typed twice.")]
pub struct DeviceArgs {
    /// A file, a raw device, or sim:PROFILE for a simulated drive
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    target: String,
    /// Allows the loss of all data of this file or device; repeat its full name
    #[arg(long, value_name = "NAME")]
    destroy_data: Option<String>,
    /// Bytes to measure over
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size_of, default_value = "256m")]
    size: u64,
    /// Seed of the random places
    #[arg(long, value_name = "N", value_parser = count::<u64>, default_value_t = 1)]
    seed: u64,
    /// Draws times by size, rates by depth, the series and the ranges
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Writes a profile for senko ssd: a drive with these times
    #[arg(long, value_name = "FILE.toml")]
    write_profile: Option<PathBuf>,
    /// The profile that has what a host can't see: capacity, cells, buffers [default: nvme-512gb]
    #[arg(long, value_name = "PROFILE", requires = "write_profile")]
    like: Option<String>,
    #[command(flatten)]
    existing: Existing,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A figure of a fitted profile that is off by a larger factor is told of.
const NEAR: f64 = 1.25;

/// Runs `senko device`.
pub fn main(args: &DeviceArgs) -> Result<()> {
    if args.size < LEAST {
        anyhow::bail!(
            "--size is {}, and the measurement needs at least {}",
            exact_size(args.size),
            exact_size(LEAST)
        );
    }
    undo::on_signals();
    let named = Path::new(&args.target);
    for path in args.svg.iter().chain(&args.write_profile) {
        args.existing.check(path, &[named])?;
    }
    let like = args.like.as_deref().unwrap_or(DEFAULT);
    let like = match args.write_profile {
        Some(_) => Some(Profile::find(like)?),
        None => None,
    };
    let mut made = None;
    let mut target: Box<dyn Target> = match args.target.strip_prefix("sim:") {
        Some(name) => {
            let profile = Profile::find(name)?;
            let parts = Parts {
                seed: args.seed,
                ..Parts::default()
            };
            let drive = Drive::new(&profile, &parts)?;
            Box::new(SimulatedTarget::new(SimulatedDevice::new(drive), args.size))
        }
        None => {
            let opened = FileTarget::open(named, args.destroy_data.as_deref(), args.size)?;
            let (path, found) = (named.to_owned(), opened.found());
            made = (found != Found::Data).then(|| {
                undo::later(move || {
                    drop(match found {
                        Found::Nothing => std::fs::remove_file(path),
                        // An empty file of somebody else stays, and stays empty.
                        _ => std::fs::write(path, ""),
                    });
                })
            });
            Box::new(opened)
        }
    };
    let (removes, fits) = (made.is_some(), like.is_some());
    let bar = Bar {
        steps: STEPS + u64::from(removes) + u64::from(fits),
    };
    let measured = measure(&mut *target, args.seed, &bar)?;
    let mut notes = measured.notes();
    if measured.bytes < args.size {
        let size = |bytes: u64| Unit::BinaryBytes.show(bytes as f64);
        notes.push(format!(
            "The target has only {} of the {} of --size.",
            size(measured.bytes),
            size(args.size)
        ));
    }
    if removes {
        bar.step(STEPS, STEPS, "removing what was written");
    }
    drop((target, made));
    let fitted = match &like {
        Some(like) => {
            bar.step(bar.steps - 1, STEPS, "fitting the profile");
            Some(fit(&measured, like)?)
        }
        None => None,
    };
    bar.step(bar.steps, STEPS, "done");
    notes.extend(fitted.as_ref().and_then(unlike));
    if senko_io::say::terminal() {
        bar!("\r\x1b[K");
    }
    let mut out = crate::prose::stdout();
    if args.json {
        let line = json!({ "target": args.target, "seed": args.seed, "measured": measured, "notes": notes });
        writeln!(out, "{line}")
    } else {
        write!(out, "{}", text(&args.target, &measured, &notes))
    }
    .context("cannot write to stdout")?;
    // A picture that cannot be written costs no figures.
    if let Some(path) = &args.svg {
        let svg = measured.chart(&args.target).to_svg();
        Output::write(path, &[named], svg.as_bytes())?;
    }
    if let (Some(path), Some(fitted), Some(like)) = (&args.write_profile, fitted, &like) {
        let text = profile(&args.target, &like.name, fitted, &notes)?;
        Output::write(path, &[named], text.as_bytes())?;
    }
    Ok(())
}

/// What is wrong with a fitted profile, if anything.
fn unlike(fit: &Fit) -> Option<String> {
    let time = |ns: f64| Unit::Nanoseconds.show(ns);
    let each = |(name, wanted, found): (&str, f64, f64)| {
        let times = off_by(wanted, found);
        format!(
            "{name} {} in the profile and {} measured ({times:.1} times)",
            time(found),
            time(wanted)
        )
    };
    let off: Vec<String> = fit.off(NEAR).into_iter().map(each).collect();
    (!off.is_empty()).then(|| {
        format!(
            "The profile is off: {}. If anything else used the drive meanwhile, measure again \
             when it is idle. If not, the drive is unlike the profile that this one is fitted \
             from, and --like names another.",
            off.join(", ")
        )
    })
}

/// A profile's file, which begins with its source: what was measured, and what a simulated drive of
/// it gives.
fn profile(target: &str, like: &str, mut fit: Fit, notes: &[String]) -> Result<String> {
    let time = |ns: f64| Unit::Nanoseconds.show(ns);
    let mut text = format!(
        "# Fitted to a measurement of {target}, from the profile {like}.\n#\n# Mean times, \
         measured and simulated:\n"
    );
    for ((name, wanted), (_, found)) in fit.wanted.named().into_iter().zip(fit.found.named()) {
        text += &format!("# {name}: {} and {}\n", time(wanted), time(found));
    }
    text += &format!(
        "#\n# Not measured, and as in {like}: capacity and spare room, cells and their wear, \
         erases, buffers, writes with many under way.\n"
    );
    for note in notes {
        text += &format!("#\n# {note}\n");
    }
    fit.profile.name = "fitted".to_owned();
    fit.profile.source = format!("fitted to a measurement of {target}, from {like}");
    let profile = toml::to_string(&fit.profile).context("a profile that is not TOML")?;
    Ok(text + &profile)
}

/// The progress of a measurement and of what follows it, in so many steps.
struct Bar {
    steps: u64,
}

impl Progress for Bar {
    fn step(&self, done: u64, _: u64, doing: &str) {
        let total = self.steps;
        if senko_io::say::terminal() {
            bar!("\r\x1b[K[{done}/{total}] {doing}");
        } else {
            tell!("[{done}/{total}] {doing}");
        }
    }
}

fn text(name: &str, measured: &Measured, notes: &[String]) -> String {
    let time = |ns: f64| Unit::Nanoseconds.show(ns);
    let size = |bytes: u64| Unit::BinaryBytes.show(bytes as f64);
    let title = format!("{name}: mean times over {}", size(measured.bytes));
    let columns = [
        "size",
        "read in order",
        "read random",
        "write in order",
        "write random",
    ];
    let mut sizes = Table::new(title, &columns);
    for row in &measured.sizes {
        let times = [
            row.read_in_order_ns,
            row.read_random_ns,
            row.write_in_order_ns,
            row.write_random_ns,
        ];
        let times = times.into_iter().map(time);
        sizes.row([size(row.bytes)].into_iter().chain(times).collect());
    }
    let mut depths = Table::new("Random reads of 4 KiB", &["under way", "a second"]);
    for row in &measured.depths {
        depths.row(vec![
            row.depth.to_string(),
            format!("{:.0}", row.reads_per_second),
        ]);
    }
    let told = if measured.series_after_discard {
        "all was discarded"
    } else {
        "all was written"
    };
    let mut flags = Table::new(
        "4 KiB in order, by the flags of the open file",
        &["O_DIRECT", "O_DSYNC", "read", "write"],
    );
    let yes = |set: bool| if set { "yes" } else { "no" }.to_owned();
    for row in &measured.flags {
        let cells = [yes(row.direct), yes(row.durable)];
        let times = [time(row.read_ns), time(row.write_ns)];
        flags.row(cells.into_iter().chain(times).collect());
    }
    let flags = match flags.rows.is_empty() {
        true => String::new(),
        false => format!("{}\n", flags.to_markdown()),
    };
    let mut series = Table::new(
        format!(
            "{} single writes of 4 KiB",
            measured.series_in_order.times_ns.len()
        ),
        &[
            "places",
            "before",
            "median",
            "10 times that in order or more",
        ],
    );
    for (places, before, of) in [
        ("in order", told, &measured.series_in_order),
        ("random", "all was written", &measured.series_random),
    ] {
        let median = time(of.median_ns as f64);
        let cells = [places, before, &median, &of.stalls.to_string()];
        series.row(cells.map(str::to_owned).into());
    }
    let verdict = &measured.verdict;
    let mut spans = Table::new("Random writes of 4 KiB", &["range", "mean"]);
    for row in &verdict.spans {
        spans.row(vec![size(row.bytes), time(row.mean_ns)]);
    }
    let kind = match verdict.mapping {
        Mapping::Pages => "it maps pages",
        Mapping::LogBlocks => "it has log blocks, or merges blocks as such drives do",
    };
    let notes: String = notes
        .iter()
        .map(|note| format!("\nnote: {note}\n"))
        .collect();
    format!(
        "{}\n{}\n{}\n{}{flags}flush after a write: {}\n\nverdict: {kind}\n  - {}\n{notes}",
        sizes.to_markdown(),
        depths.to_markdown(),
        spans.to_markdown(),
        format_args!("{}\n", series.to_markdown()),
        time(measured.flush_ns),
        verdict.evidence.join("\n  - ")
    )
}
