// SPDX-License-Identifier: Apache-2.0
//! A result in plain words: the host's requests, the flash's work for them and its reasons, and the
//! limit of the drive. `senko ssd explain` prints it, from a run or from the JSON of one.

use serde::Deserialize;

use crate::lifetime::{Lifetime, show_years};
use crate::nand::Cause;
use crate::report::{Report, show_bytes};

/// A share of the time above which a part of the drive is called its limit.
const LIMIT: f64 = 0.7;

/// The slowest thousandth of writes is called a stall if it takes this many times the median.
const STALL: f64 = 5.0;

/// The output of `senko ssd run --json`, as far as this explains it.
#[derive(Clone, Debug, Deserialize)]
pub struct Told {
    pub workload: String,
    pub profile: String,
    pub report: Report,
    pub lifetime: Option<Lifetime>,
}

impl Told {
    /// The events of the run and their reasons: about ten lines of a sentence or two.
    pub fn explain(&self) -> Vec<String> {
        let mut lines = vec![self.scene(), self.pace(), self.host(), self.flash()];
        lines.extend(self.collections());
        lines.extend(self.folds());
        lines.extend(self.merges());
        lines.extend(self.map());
        lines.extend(self.stalls());
        lines.extend(self.reads());
        lines.push(self.limit());
        lines.extend(self.life());
        lines.extend(self.report.notes());
        lines
    }

    fn scene(&self) -> String {
        let Report {
            ftl,
            buffer,
            preparation,
            ..
        } = &self.report;
        let before = match preparation {
            Some(before) if before.pages_written > 0 => format!(
                "it began on a drive that {} had been written to ({})",
                show_bytes((before.pages_written * self.report.page_bytes) as f64),
                before.way
            ),
            _ => "it began on an erased drive".to_owned(),
        };
        format!(
            "{} ran on {} with the layer {ftl} and the buffer {buffer}; {before}.",
            self.workload, self.profile
        )
    }

    fn pace(&self) -> String {
        let report = &self.report;
        let (Some(pace), Some((read, written))) =
            (report.requests_a_second(), report.bytes_a_second())
        else {
            return match report.all.count {
                1 => "1 request was counted, without times.".to_owned(),
                count => format!("{count} requests were counted, without times."),
            };
        };
        let times = if report.falls_behind() {
            "requests came faster than that, so response times grow with the run and say nothing"
                .to_owned()
        } else {
            format!(
                "a request took {:.0} us on average, {:.0} us at p99",
                report.all.mean_us, report.all.p99_us
            )
        };
        format!(
            "The drive did {pace:.0} requests a second, {}/s read and {}/s written; {times}.",
            show_bytes(read),
            show_bytes(written)
        )
    }

    fn host(&self) -> String {
        let pages = &self.report.pages;
        let mut line = format!(
            "The host wrote {} in {} pages and read {}.",
            show_bytes(self.report.host_bytes_written as f64),
            pages.host_writes,
            show_bytes(self.report.host_bytes_read as f64)
        );
        if pages.write_hits > 0 {
            line += &format!(
                " The buffer took {} of the writes in RAM, as overwrites of what it held.",
                percent(pages.write_hits, pages.host_writes)
            );
        }
        if pages.padded > 0 {
            line += &format!(
                " It wrote {} pages more to make blocks whole.",
                pages.padded
            );
        }
        if pages.partial_reads > 0 {
            line += &format!(
                " {} writes covered a part of a page, whose rest was read first.",
                pages.partial_reads
            );
        }
        line
    }

    fn flash(&self) -> String {
        let flash = &self.report.flash;
        let all = flash.all_programs();
        if all == 0 {
            return "The flash programmed nothing.".to_owned();
        }
        let causes = Cause::ALL.iter().enumerate();
        let causes: Vec<String> = causes
            .filter(|(at, _)| flash.programs[*at] > 0)
            .map(|(at, cause)| format!("{} for {}", percent(flash.programs[at], all), why(*cause)))
            .collect();
        let amplification = match self.report.write_amplification() {
            Some(times) => format!(", {times:.2} bytes for each of the host's"),
            None => String::new(),
        };
        format!(
            "The flash programmed {all} pages{amplification}: {}.",
            causes.join(", ")
        )
    }

    fn collections(&self) -> Option<String> {
        let layer = &self.report.layer;
        (layer.gc_blocks > 0).then(|| {
            let held = layer.gc_blocks * u64::from(self.report.pages_per_block);
            format!(
                "Collection freed {} blocks, of which {} was still valid and had to be moved; the less spare room and the more random the writes, the more that is.",
                layer.gc_blocks,
                percent(layer.gc_pages, held)
            )
        })
    }

    fn folds(&self) -> Option<String> {
        let layer = &self.report.layer;
        (layer.slc_pages > 0).then(|| {
            format!(
                "The SLC cache took {} pages, {} of what reached the flash; {} blocks of it were folded, and {} pages were moved for that. Once it is full, each write waits for a part of a fold.",
                layer.slc_pages,
                percent(layer.slc_pages, self.report.flash.programs[Cause::Host as usize]),
                layer.folded_blocks,
                layer.folded_pages
            )
        })
    }

    fn merges(&self) -> Option<String> {
        let layer = &self.report.layer;
        let all = layer.switch_merges + layer.partial_merges + layer.full_merges;
        (all > 0).then(|| {
            let moved = self.report.flash.programs[Cause::Merge as usize];
            format!(
                "Log blocks were merged {all} times: {} by switching blocks, which costs an erase, {} by filling one up, {} by writing a new block. {:.0} pages were copied in each on average.",
                layer.switch_merges,
                layer.partial_merges,
                layer.full_merges,
                moved as f64 / all as f64
            )
        })
    }

    fn map(&self) -> Option<String> {
        let layer = &self.report.layer;
        let flash = &self.report.flash;
        (layer.map_lookups > 0).then(|| {
            format!(
                "The map lies on the flash: {} of {} lookups were found in RAM; the others cost {} map reads and {} map writes.",
                percent(layer.map_hits, layer.map_lookups),
                layer.map_lookups,
                flash.reads[Cause::Map as usize],
                flash.programs[Cause::Map as usize]
            )
        })
    }

    fn stalls(&self) -> Option<String> {
        let (report, writes) = (&self.report, &self.report.writes);
        if !report.timed || report.falls_behind() || writes.count == 0 {
            return None;
        }
        let times = writes.p999_us / writes.p50_us.max(0.001);
        let longest = format!("the longest write took {:.2} ms", writes.max_us / 1000.0);
        if times < STALL {
            return Some(format!(
                "Writes hardly stalled: {longest}, and one in a thousand more than {:.1} times the median.",
                times
            ));
        }
        let cause = match self.work() {
            Some((work, block)) => format!("a write that needs a {block} waits for {work}"),
            None => "they waited for writes before them".to_owned(),
        };
        Some(format!(
            "Writes stalled: one in a thousand took more than {:.2} ms, {times:.0} times the median; {longest}. The reason: {cause}.",
            writes.p999_us / 1000.0
        ))
    }

    /// The layer's work that requests may wait for, and the block that it makes.
    fn work(&self) -> Option<(&'static str, &'static str)> {
        let layer = &self.report.layer;
        if layer.full_merges + layer.partial_merges > 0 {
            Some(("a merge", "log block"))
        } else if layer.folded_blocks > 0 {
            Some(("a fold", "block of the full SLC cache"))
        } else {
            (layer.gc_blocks > 0).then_some(("a collection", "block"))
        }
    }

    /// What reads waited for.
    fn reads(&self) -> Option<String> {
        let (report, reads) = (&self.report, &self.report.reads);
        if !report.timed || report.falls_behind() || reads.count == 0 {
            return None;
        }
        let times = reads.p99_us / reads.p50_us.max(0.001);
        let (cause, _) = self.work()?;
        (times >= STALL).then(|| {
            format!(
                "Reads waited: one in a hundred took more than {:.2} ms, {times:.0} times the median. A read that comes to a plane during {cause} waits until all valid pages of the block are moved, because the simulated drive interrupts neither that nor a program or an erase for a read. Drives that do have shorter tails.",
                reads.p99_us / 1000.0
            )
        })
    }

    /// The busiest part, and whether it limits the drive.
    fn limit(&self) -> String {
        let report = &self.report;
        let Some((planes, buses)) = report.busy_shares() else {
            return "Without times nothing is known of what limits the drive.".to_owned();
        };
        let busy = &report.busy;
        let cells = [
            ("reads", busy.read_seconds),
            ("programs", busy.program_seconds),
            ("erases", busy.erase_seconds),
        ];
        let most = cells.iter().fold(
            cells[0],
            |most, one| {
                if one.1 > most.1 { *one } else { most }
            },
        );
        let mut used = format!(
            "the flash's planes were busy for {:.0} % of the time, the buses for {:.0} %",
            planes * 100.0,
            buses * 100.0
        );
        let link = report.link_share().unwrap_or(0.0);
        if report.busy.links > 0 {
            used += &format!(", the link to the host for {:.0} %", link * 100.0);
        }
        if link >= LIMIT && link >= planes && link >= buses {
            format!("The link to the host limits the drive: {used}.")
        } else if planes >= LIMIT && planes >= buses {
            format!("The cells limit the drive, with {} first: {used}.", most.0)
        } else if buses >= LIMIT {
            format!("The buses between controller and flash limit the drive: {used}.")
        } else if report.falls_behind() {
            format!("Single busy planes and waiting requests limit the drive: {used}.")
        } else {
            format!(
                "Nothing in the drive is near its limit: {used}. Requests under way at once: {} at most; more at once (--closed) or faster ones would use more of it.",
                report.pace.most_under_way
            )
        }
    }

    fn life(&self) -> Option<String> {
        let wear = &self.report.wear;
        let life = self.lifetime?;
        Some(format!(
            "At this rate the flash's {} cycles last {} by the average block, and {} by the most worn one ({} erases, {:.1} on average).",
            life.cycles,
            show_years(life.years),
            show_years(life.years_as_worn),
            wear.max,
            wear.mean
        ))
    }
}

/// A cause in words.
fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "the host's own data",
        Cause::Pad => "blocks made whole by the buffer",
        Cause::Gc => "valid pages that collection moved",
        Cause::Merge => "merges of log blocks",
        Cause::Map => "the map",
        Cause::Wear => "wear levelling",
        Cause::Retire => "failed blocks",
        Cause::Fold => "pages folded out of the SLC cache",
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 / whole.max(1) as f64 * 100.0)
}
