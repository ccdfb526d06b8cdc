// SPDX-License-Identifier: Apache-2.0
//! Results on disk: one JSON line for each run, appended. `senko-lab run` writes them,
//! `senko-lab report` reads them.
//!
//! A line is a result line's object with additions for people: claim, tables, time. Lines are only
//! ever appended, each with one write, so parallel runs do not mix. A truncated line, as after a
//! full disk, is skipped and counted.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::{Options, Outcome, Report};

/// The default file of results: `senko/lab.jsonl` in the user's state folder, which is
/// `$XDG_STATE_HOME` or `~/.local/state`; in the working directory if neither is known.
pub fn default_path() -> PathBuf {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let states = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    states.unwrap_or_default().join("senko/lab.jsonl")
}

/// Whether results can be appended, before a run of an hour whose results nobody could keep. The
/// file is there afterwards.
pub fn check(path: &Path) -> Result<()> {
    open(path).map(drop)
}

pub fn append(path: &Path, record: &Value) -> Result<()> {
    let mut file = open(path)?;
    // A line before that was cut short does not spoil this one: an empty line is skipped.
    let line = format!("\n{record}\n");
    file.write_all(line.as_bytes())
        .with_context(|| cannot_append(path))
}

fn cannot_append(path: &Path) -> String {
    format!("cannot append the results to {}", path.display())
}

/// The file for appending, and the folders above it.
fn open(path: &Path) -> Result<File> {
    let told = || cannot_append(path);
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).with_context(told)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(told)
}

pub fn record(report: &Report) -> Value {
    let mut record = report.to_json();
    if let Some(fields) = record.as_object_mut() {
        let tables = report.outcome.tables.iter();
        let tables: Vec<Value> = tables
            .map(|table| json!({ "title": table.title, "columns": table.columns, "rows": table.rows }))
            .collect();
        fields.insert("source".to_owned(), json!(report.experiment.source));
        fields.insert("claim".to_owned(), json!(report.experiment.text));
        fields.insert("tables".to_owned(), json!(tables));
        fields.insert("took_seconds".to_owned(), json!(report.took.as_secs_f64()));
        fields.insert("time".to_owned(), json!(now()));
    }
    record
}

/// The record of a run that was impossible, with the reason.
pub fn impossible(name: &str, options: &Options, why: &str) -> Result<Value> {
    let mut outcome = Outcome::new();
    outcome.miss("everything", why);
    Ok(record(&Report::new(crate::find(name)?, options, outcome)))
}

/// All records of a file, oldest first, and the number of lines that are not records.
pub fn read(path: &Path) -> Result<(Vec<Value>, usize)> {
    read_from(path, 0)
}

/// The records after the first `from` bytes of a file, which are whole lines.
pub fn read_from(path: &Path, from: u64) -> Result<(Vec<Value>, usize)> {
    let mut file = File::open(path).map_err(|error| {
        let path = path.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!(
                "there are no results in {path}: run an experiment first, as with senko-lab run --all --quick"
            ),
            _ => anyhow!("cannot open {path}: {error}"),
        }
    })?;
    if from > 0 {
        file.seek(SeekFrom::Start(from))
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    let (mut records, mut broken) = (Vec::new(), 0);
    for line in BufReader::new(file).split(b'\n') {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(record) if record["experiment"].is_string() => records.push(record),
            _ => broken += 1,
        }
    }
    Ok((records, broken))
}

/// The newest record of an experiment, with figures or without.
pub fn newest<'a>(records: &'a [Value], experiment: &str) -> Option<&'a Value> {
    records
        .iter()
        .rev()
        .find(|one| one["experiment"] == experiment)
}

/// The newest record of an experiment after the first `from` bytes of a file. Results from before
/// the run began belong to an older run.
pub fn newest_from(path: &Path, from: u64, experiment: &str) -> Option<Value> {
    let (records, _) = read_from(path, from).ok()?;
    newest(&records, experiment).cloned()
}

/// The newest record of an experiment that measured something, or else the newest.
pub fn latest<'a>(records: &'a [Value], experiment: &str) -> Option<&'a Value> {
    let of_it = || {
        records
            .iter()
            .rev()
            .filter(|one| one["experiment"] == experiment)
    };
    let measured = |record: &&Value| {
        record["bars"]
            .as_object()
            .is_some_and(|bars| !bars.is_empty())
    };
    of_it().find(measured).or_else(|| of_it().next())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The last second that has a date here: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// Seconds since 1970 as `2026-03-01 12:30 UTC`; a number that cannot be a time of a run as it is.
pub fn date(seconds: u64) -> String {
    if seconds > LAST_SECOND {
        return format!("second {seconds}");
    }
    // Years begin in March, so that a leap day is the last of its year, and eras of 400 years all
    // have the same days (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        era * 400 + year + later,
        seconds % 86_400 / 3_600,
        seconds % 3_600 / 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00 UTC");
        assert_eq!(date(253_402_300_799), "9999-12-31 23:59 UTC");
        // A time of 2^63 kept the report busy for years: it counted one year after the other.
        assert_eq!(date(1 << 63), "second 9223372036854775808");
        for day in 0..40_000 {
            assert!(date(day * 86_400) < date((day + 1) * 86_400));
        }
    }

    #[test]
    fn a_line_that_was_cut_short_spoils_no_other() {
        let path = std::env::temp_dir().join(format!("senko-results-{}", std::process::id()));
        std::fs::write(&path, "{\"experiment\":\"cut").unwrap();
        let old = json!({ "experiment": "a", "bars": { "x": 1.0 } });
        let empty = json!({ "experiment": "a", "bars": {} });
        append(&path, &old).unwrap();
        append(&path, &empty).unwrap();
        let (records, broken) = read(&path).unwrap();
        assert_eq!((records.len(), broken), (2, 1));
        assert_eq!(latest(&records, "a").unwrap(), &old);
        assert_eq!(newest(&records, "a").unwrap(), &empty);
        assert!(latest(&records, "b").is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("senko-lab run")
        );
    }
}
