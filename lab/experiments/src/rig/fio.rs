// SPDX-License-Identifier: Apache-2.0
//! The device's own limit: fio's random and sequential reads and sequential writes of a file, on
//! one core, with io_uring, fixed buffers and registered files.
//!
//! Reads only read (`--readonly`): senko's own flash file, within the range that the server has
//! written, or a file that fio has written whole. The file system answers reads of unwritten parts
//! without the device. Writes go to a file that fio writes once before (`--overwrite`).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::sys;

/// The results of fio; for a job that writes, those of its writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reads {
    pub per_second: f64,
    pub count: u64,
    /// Mean latency from submission to completion, in microseconds.
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Processor time of a read, in microseconds.
    pub cpu_us: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub file: &'a Path,
    /// Bytes from the file's start that are read.
    pub span: u64,
    pub block: u64,
    /// Reads under way.
    pub depth: u32,
    pub time: Duration,
    pub core: usize,
}

/// What fio calls itself.
pub fn version() -> Result<String, String> {
    let output = Command::new("fio").arg("--version").output();
    let output = output.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn random_reads(job: &Job<'_>) -> Result<Reads, String> {
    let random = ["--readonly", "--norandommap", "--randrepeat=0"];
    run(job, "randread", &random, "read")
}

/// Runs a job of sequential reads, again from the start at the span's end.
pub fn sequential_reads(job: &Job<'_>) -> Result<Reads, String> {
    run(job, "read", &["--readonly"], "read")
}

/// Runs a job of sequential writes, again from the start at the file's end.
pub fn sequential_writes(job: &Job<'_>) -> Result<Reads, String> {
    run(job, "write", &["--overwrite=1"], "write")
}

fn run(job: &Job<'_>, kind: &str, options: &[&str], direction: &str) -> Result<Reads, String> {
    let mut command = Command::new("fio");
    // A colon separates file names.
    let name = job.file.to_string_lossy().replace(':', "\\:");
    command.args(["--name=job", &format!("--rw={kind}")]);
    command.args(options).args([
        "--direct=1",
        "--ioengine=io_uring",
        "--fixedbufs",
        "--registerfiles",
        "--time_based",
        "--thread",
        "--output-format=json",
    ]);
    command
        .arg(format!("--filename={name}"))
        .arg(format!("--size={}", job.span))
        .arg(format!("--bs={}", job.block));
    command
        .arg(format!("--iodepth={}", job.depth))
        .arg(format!("--runtime={}ms", job.time.as_millis()));
    command.stdin(Stdio::null());
    sys::prepare(&mut command, &[job.core], Vec::new());
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "fio is not installed (Debian package fio)".to_owned(),
        _ => format!("fio cannot be run: {error}"),
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing");
        return Err(format!("fio failed: {}", words.trim()));
    }
    parse(&String::from_utf8_lossy(&output.stdout), direction)
}

fn parse(output: &str, direction: &str) -> Result<Reads, String> {
    let unknown = |what: &str| format!("fio's results have an unknown form: {what}");
    // Warnings may precede the JSON.
    let start = output.find('{').ok_or_else(|| unknown("no JSON"))?;
    let all: Value =
        serde_json::from_str(&output[start..]).map_err(|error| unknown(&error.to_string()))?;
    let job = &all["jobs"][0];
    if let Some(error) = job["error"].as_i64().filter(|&error| error != 0) {
        return Err(format!("fio failed with error {error}"));
    }
    let number = |value: &Value, what: &str| value.as_f64().ok_or_else(|| unknown(what));
    let read = &job[direction];
    let clat = &read["clat_ns"]["percentile"];
    let per_second = number(&read["iops"], "iops")?;
    // In percent of one core's time.
    let busy = number(&job["usr_cpu"], "usr_cpu")? + number(&job["sys_cpu"], "sys_cpu")?;
    if per_second <= 0.0 {
        return Err(format!("fio did not {direction}"));
    }
    Ok(Reads {
        per_second,
        count: number(&read["total_ios"], "total_ios")? as u64,
        mean_us: number(&read["lat_ns"]["mean"], "lat_ns")? / 1e3,
        p50_us: number(&clat["50.000000"], "percentile 50")? / 1e3,
        p99_us: number(&clat["99.000000"], "percentile 99")? / 1e3,
        cpu_us: busy / 100.0 / per_second * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"fio: this warning stands before the JSON
{"fio version": "fio-3.33", "jobs": [{"jobname": "reads", "error": 0, "read": {"total_ios": 220000, "iops": 110000.5,
 "lat_ns": {"mean": 580000.0}, "clat_ns": {"percentile": {"50.000000": 550000, "99.000000": 900000}}},
 "usr_cpu": 10.0, "sys_cpu": 23.0}], "disk_util": []}"#;

    #[test]
    fn results_are_read() {
        let reads = parse(OUTPUT, "read").unwrap();
        assert_eq!(reads.per_second, 110_000.5);
        assert_eq!(reads.count, 220_000);
        assert_eq!(
            (reads.mean_us, reads.p50_us, reads.p99_us),
            (580.0, 550.0, 900.0)
        );
        assert!((reads.cpu_us - 3.0).abs() < 0.001);
    }

    #[test]
    fn bad_results_are_refused() {
        assert!(parse("nothing", "read").unwrap_err().contains("no JSON"));
        assert!(parse("{}", "read").unwrap_err().contains("iops"));
        assert!(
            parse(&OUTPUT.replace("\"error\": 0", "\"error\": 5"), "read")
                .unwrap_err()
                .contains("error 5")
        );
        assert!(
            parse(&OUTPUT.replace("110000.5", "0"), "read")
                .unwrap_err()
                .contains("did not read")
        );
    }
}
