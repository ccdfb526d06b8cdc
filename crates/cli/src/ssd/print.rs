// SPDX-License-Identifier: Apache-2.0
//! A run's results for people, and as JSON and CSV.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, Result};
use senko_io::counted;
use senko_ssd::catalogue::{self, Named};
use senko_ssd::lifetime::{Lifetime, show_years};
use senko_ssd::nand::Cause;
use senko_ssd::profile::{BUILT_IN, Profile};
use senko_ssd::report::{Report, ResponseTimes, show_bytes as bytes};
use serde_json::json;

/// A share in percent, or a dash.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

/// A number with two places, or a dash.
pub fn two(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.2}"))
}

/// The report for people.
pub fn report(profile: &Profile, report: &Report, life: Option<&Lifetime>) -> String {
    let mut text = String::new();
    let drives = if report.drives == 1 {
        String::new()
    } else {
        format!("{} x ", report.drives)
    };
    let part = match profile.scale {
        1 => String::new(),
        scale => format!(" (one part in {scale} of its capacity)"),
    };
    let _ = writeln!(
        text,
        "{drives}{}{part}, layer {}, buffer {}",
        profile.name, report.ftl, report.buffer
    );
    if report.all.count > 0 && report.seconds > 0.0 {
        text.push_str(&times(report));
    }
    let pages = &report.pages;
    let size = |count: u64| bytes((count * report.page_bytes) as f64);
    let _ = writeln!(
        text,
        "\nhost        {} written in {}, {} read in {}; buffer hits: {} of writes, {} of reads",
        bytes(report.host_bytes_written as f64),
        counted(pages.host_writes, "page"),
        bytes(report.host_bytes_read as f64),
        pages.host_reads,
        percent(report.write_hit_ratio()),
        percent(report.read_hit_ratio()),
    );
    let _ = writeln!(
        text,
        "buffer      {} left it, {} more to make blocks whole; {} of tables",
        counted(pages.evicted, "page"),
        pages.padded,
        bytes(report.buffer_table_bytes as f64)
    );
    let flash = &report.flash;
    let _ = writeln!(
        text,
        "flash       {} programmed ({}), {} read, {} erased, {}",
        counted(flash.all_programs(), "page"),
        size(flash.all_programs()),
        flash.all_reads(),
        counted(flash.all_erases(), "block"),
        counted(flash.copy_backs, "copy-back")
    );
    for (at, cause) in Cause::ALL.iter().enumerate() {
        let (reads, programs, erases) = (flash.reads[at], flash.programs[at], flash.erases[at]);
        if reads + programs + erases > 0 {
            let _ = writeln!(
                text,
                "  {:<9} {programs} programmed, {reads} read, {erases} erased",
                cause.name()
            );
        }
    }
    let _ = writeln!(
        text,
        "write amplification {} by bytes, {} by pages (of pages that left the buffer {})",
        two(report.write_amplification()),
        two(report.page_write_amplification()),
        two(report.flash_write_amplification())
    );
    let layer = &report.layer;
    if layer.switch_merges + layer.partial_merges + layer.full_merges > 0 {
        let _ = writeln!(
            text,
            "merges      {} switch, {} partial, {} full",
            layer.switch_merges, layer.partial_merges, layer.full_merges
        );
    }
    if layer.gc_blocks > 0 {
        let _ = writeln!(
            text,
            "collection  {} freed, {} moved",
            counted(layer.gc_blocks, "block"),
            counted(layer.gc_pages, "page")
        );
    }
    if layer.slc_pages > 0 {
        let _ = writeln!(
            text,
            "SLC cache   {} written to it, {} folded, {} moved for that",
            counted(layer.slc_pages, "page"),
            counted(layer.folded_blocks, "block"),
            counted(layer.folded_pages, "page")
        );
    }
    if layer.map_lookups > 0 {
        let hits = layer.map_hits as f64 / layer.map_lookups as f64;
        let _ = writeln!(
            text,
            "cached map  {} of {} lookups found ({})",
            layer.map_hits,
            layer.map_lookups,
            percent(Some(hits))
        );
    }
    let _ = writeln!(
        text,
        "mapping     {} in RAM with entries of whole bits, {} with fractions of bits, {} on flash",
        bytes(report.mapping.bits as f64 / 8.0),
        bytes(report.mapping.fractional_bits / 8.0),
        bytes(report.mapping.flash_bytes as f64)
    );
    if let Some(before) = &report.preparation
        && before.pages_written > 0
    {
        let _ = writeln!(
            text,
            "before      precondition {}: {} written, {} erased{}",
            before.way,
            size(before.pages_written),
            counted(before.erases, "block"),
            match before.write_amplification() {
                Some(last) => format!(", write amplification {last:.2} at its end"),
                None => String::new(),
            }
        );
    }
    let wear = &report.wear;
    let _ = writeln!(
        text,
        "wear        {:.2} erases a block, deviation {:.2}, {} to {}; {} replaced",
        wear.mean,
        wear.deviation,
        wear.min,
        wear.max,
        counted(report.retired, "block")
    );
    if let Some(life) = life {
        text.push('\n');
        text.push_str(&lifetime(report, life));
    }
    text.push_str(&notes(report));
    text
}

/// Notes for the reader of a report, a line each.
pub fn notes(report: &Report) -> String {
    let notes = report.notes();
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

/// Rates and response times. For a drive that does not keep up, only the rates and the reason.
fn times(report: &Report) -> String {
    let mut text = String::new();
    if let (Some(pace), Some((read, written))) =
        (report.requests_a_second(), report.bytes_a_second())
    {
        let _ = writeln!(
            text,
            "\npace        {pace:.0} IOPS, {} read, {} written, over {:.3} s of virtual time; at most {} at once",
            rate(read),
            rate(written),
            report.seconds,
            counted(report.pace.most_under_way, "request")
        );
    }
    match behind(report) {
        Some(behind) => {
            let _ = writeln!(text, "{behind}");
        }
        None => {
            let _ = writeln!(
                text,
                "response times (us)   requests       mean        p50        p99      p99.9    longest"
            );
            let kinds = [
                ("reads", &report.reads),
                ("writes", &report.writes),
                ("others", &report.others),
                ("all", &report.all),
            ];
            for (name, times) in kinds.iter().filter(|kind| kind.1.count > 0) {
                let _ = writeln!(text, "{}", responses(name, times));
            }
        }
    }
    text
}

/// `12.3 MB/s`: always in MB, so that rates compare.
fn rate(bytes_a_second: f64) -> String {
    format!("{:.2} MB/s", bytes_a_second / 1e6)
}

/// Reports that requests came faster than the drive completes them, if so.
pub fn behind(report: &Report) -> Option<String> {
    let pace = report.requests_a_second()?;
    report.falls_behind().then(|| {
        let asked = report.all.count as f64 / report.arrival_seconds.max(1e-9);
        format!(
            "The drive can't keep up: {asked:.0} requests/s came for {:.3} s, and it does {pace:.0}/s. {} requests were not done when the last one came.\n\
             Response times grow with the length of such a run, so none are shown. A slower load (--speed {:.2}) or the drive's own pace (--closed 32) can be measured.",
            report.arrival_seconds,
            report.pace.under_way_at_last_arrival,
            (pace / asked * 0.8).max(0.01)
        )
    })
}

fn responses(name: &str, times: &ResponseTimes) -> String {
    format!(
        "{name:<18} {:>11} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
        times.count, times.mean_us, times.p50_us, times.p99_us, times.p999_us, times.max_us
    )
}

/// A drive's lifetime for people: four figures, each with when to trust it.
pub fn lifetime(report: &Report, life: &Lifetime) -> String {
    let rows = [
        (
            "average wear",
            show_years(life.years),
            "at this rate; trust it where wear levelling keeps all blocks alike",
        ),
        (
            "most worn block",
            show_years(life.years_as_worn),
            "at this rate; trust it if the run was long, since few erases are uneven by chance",
        ),
        (
            "TBW",
            bytes(life.host_bytes),
            "that the host can write; compare it with data sheets, whose workload differs",
        ),
        (
            "DWPD",
            format!("{:.3} drive writes a day", life.dwpd_5_years),
            "for 5 years; trust it to compare drives of different sizes",
        ),
    ];
    let mut text = format!(
        "life        {} cycles a block, {} a day written by the host, layer {}\n",
        life.cycles,
        bytes(life.bytes_a_day),
        report.ftl
    );
    if life.scale > 1 {
        let _ = writeln!(
            text,
            "  of the whole drive, which is {} times what is simulated; a workload of a smaller share of it wears it less",
            life.scale
        );
    }
    for (name, value, when) in rows {
        let _ = writeln!(text, "  {name:<16} {value:>24}   {when}");
    }
    text
}

/// Names and values of a run as two lines of CSV.
pub fn csv(workload: &str, profile: &Profile, report: &Report) -> (String, String) {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let text = |value: &str| format!("\"{}\"", value.replace('"', "\"\""));
    let flash = &report.flash;
    // Response times of a drive that does not keep up mean nothing.
    let time = |us: f64| {
        if report.falls_behind() {
            String::new()
        } else {
            us.to_string()
        }
    };
    let columns = [
        ("workload", text(workload)),
        ("profile", text(&profile.name)),
        ("ftl", text(&report.ftl)),
        ("buffer", text(&report.buffer)),
        ("requests", report.all.count.to_string()),
        ("seconds", report.seconds.to_string()),
        ("mean_us", time(report.all.mean_us)),
        ("p50_us", time(report.all.p50_us)),
        ("p99_us", time(report.all.p99_us)),
        ("p999_us", time(report.all.p999_us)),
        ("write_mean_us", time(report.writes.mean_us)),
        ("read_mean_us", time(report.reads.mean_us)),
        ("host_pages_written", report.pages.host_writes.to_string()),
        ("host_pages_read", report.pages.host_reads.to_string()),
        ("write_hit_ratio", number(report.write_hit_ratio())),
        ("read_hit_ratio", number(report.read_hit_ratio())),
        ("pages_evicted", report.pages.evicted.to_string()),
        ("pages_padded", report.pages.padded.to_string()),
        ("pages_programmed", flash.all_programs().to_string()),
        ("pages_read", flash.all_reads().to_string()),
        ("erases", flash.all_erases().to_string()),
        ("write_amplification", number(report.write_amplification())),
        ("switch_merges", report.layer.switch_merges.to_string()),
        ("partial_merges", report.layer.partial_merges.to_string()),
        ("full_merges", report.layer.full_merges.to_string()),
        ("gc_pages", report.layer.gc_pages.to_string()),
        ("map_lookups", report.layer.map_lookups.to_string()),
        ("map_hits", report.layer.map_hits.to_string()),
        ("mapping_bytes", report.mapping.bits.div_ceil(8).to_string()),
        ("wear_mean", report.wear.mean.to_string()),
        ("wear_deviation", report.wear.deviation.to_string()),
        ("wear_max", report.wear.max.to_string()),
        ("host_bytes_written", report.host_bytes_written.to_string()),
        ("host_bytes_read", report.host_bytes_read.to_string()),
        (
            "page_write_amplification",
            number(report.page_write_amplification()),
        ),
        ("requests_per_second", number(report.requests_a_second())),
        ("keeps_up", (!report.falls_behind()).to_string()),
    ];
    let join = |parts: Vec<&str>| parts.join(",");
    (
        join(columns.iter().map(|column| column.0).collect()),
        join(columns.iter().map(|column| column.1.as_str()).collect()),
    )
}

/// The file of a profile.
pub fn profile(name: &str) -> Result<()> {
    Profile::find(name)?;
    let text = match BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        Some((_, text)) => (*text).to_owned(),
        None => std::fs::read_to_string(name)?,
    };
    write!(crate::out::stdout(), "{text}").context("cannot write to stdout")
}

/// Everything that can be named on the command line.
pub fn parts(as_json: bool) -> Result<()> {
    let mut out = crate::prose::stdout();
    for part in catalogue::all()? {
        let Named {
            kind, name, about, ..
        } = &part;
        if as_json {
            writeln!(out, "{}", json!(part))
        } else {
            let options = match &part.options[..] {
                [] => String::new(),
                options => format!("  [{}]", options.join(", ")),
            };
            writeln!(out, "{kind:<8} {name:<14} {about}{options}")
        }
        .context("cannot write to stdout")?;
    }
    Ok(())
}
