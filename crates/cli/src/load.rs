// SPDX-License-Identifier: Apache-2.0
//! `senko load`: parses options and prints results; [`senko_load`] does the work.
//!
//! The exit code is non-zero, with one sentence on stderr, if the work was not done. The run could
//! not start or finish, or an answer was wrong (`--verify`). Or fewer keys were found than expected
//! (`--expect-found`), more requests failed than allowed (`--max-failed`), or the rate was not
//! reached. Figures measured until then are still printed.

mod results; // for machines

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use senko_io::bar;
use senko_io::say::time_left;
use senko_load::{
    Amount, Changes, Gaps, Gather, KeyCount, Pace, Part, Requests, Second, Settings, Step, Stretch,
    Target, Watch, Wire,
};
use senko_workload::units::{count, rate, share, time, time_above_zero};
use senko_workload::{KeyShape, Popularity, ValueLen};

use crate::client::{LoginArgs, TlsArgs};
use crate::existing::Existing;
use crate::out;
use crate::process::{self, Interrupted};
use crate::units::{Bytes, Io, at_least_one, some_bytes, whole_seconds};

/// Arguments of `senko load`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Steps run in this order: --load, the mix (for --requests or --duration), --read-back. With none of them \
    named, the mix runs for 10 seconds. Keys and values follow from the options under Items, so runs that read what another \
    run wrote need the same options.\n\n\
    Exit codes: 0 all was done; 1 it was not, and stderr says why: the server could not be reached or died, a value was \
    wrong, too few keys were found, too many requests failed (--max-failed), or fewer than 95 % of the requests of --rate \
    could be sent in time; 2 a wrong option; 130 Ctrl-C. The results so far are printed in any case.\n\n\
    Examples:\n  \
    senko load --load --keys 1000000 --value-size 4096     write a million keys\n  \
    senko load --get-ratio 1 --keys 1000000 --duration 30\n      \
      then read them, Zipf 0.99, 64 connections\n  \
    senko load --mix ycsb-b --rate 50000 --gaps poisson --duration 60\n      \
      an open loop: latency counts from when each request was due\n  \
    senko load --load --keys 100000 --duration 30 \\\n      --mix set=0.1,incr=0.2,append=0.1 --verify\n      \
      counters, texts and values; a lost or half-made change ends with 1\n  \
    senko load --load --bytes 2g --key-size etc --value-size etc --verify\n  \
    senko load --read-back --last-bytes 1g --bytes 2g --key-size etc \\\n      --value-size etc --verify --expect-found 0.99\n      \
      in another process: every byte of the last gigabyte, and 99 % of its keys"
)]
pub struct LoadArgs {
    /// HOST, HOST:PORT, or the path of a Unix socket
    #[arg(
        short = 's',
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:11211"
    )]
    server: Target,
    /// Protocol: classic (get, set), meta (mg, ms) or binary
    #[arg(
        long,
        value_name = "NAME",
        default_value = "classic",
        help_heading = "Connections"
    )]
    protocol: ProtocolName,
    /// Connections, over all threads
    #[arg(
        value_parser = count::<usize>,
        short = 'c',
        long,
        value_name = "N",
        default_value_t = 64,
        help_heading = "Connections"
    )]
    connections: usize,
    /// Threads
    #[arg(
        value_parser = at_least_one::<usize>,
        short = 't',
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Connections"
    )]
    threads: usize,
    /// Requests under way on each connection
    #[arg(
        value_parser = count::<usize>,
        short = 'P',
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Connections"
    )]
    pipeline: usize,
    /// How long to wait for an answer before the connection is closed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_above_zero, help_heading = "Connections")]
    timeout: Duration,
    /// I/O backend: auto, uring or posix
    #[arg(
        long,
        value_name = "NAME",
        default_value = "auto",
        help_heading = "Connections"
    )]
    io: Io,
    /// Answers to wait for before the kernel wakes a thread, and for how many microseconds at most;
    /// 1 turns it off [default: off in an open loop; in a closed one 32:100 while a thread uses
    /// more than half of its processor]
    #[arg(long, value_name = "N[:US]", value_parser = gather, help_heading = "Connections")]
    gather: Option<Gather>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    login: LoginArgs,

    /// Write every key once
    #[arg(long, help_heading = "Steps")]
    load: bool,
    /// Read each key once (all, or the range of --first-key, --last-key or --last-bytes)
    #[arg(long, help_heading = "Steps")]
    read_back: bool,
    /// Run the mix for this many requests
    #[arg(
        value_parser = at_least_one::<u64>,
        short = 'n',
        long,
        value_name = "N",
        conflicts_with = "duration",
        help_heading = "Steps"
    )]
    requests: Option<u64>,
    /// Run the mix for this time
    #[arg(short = 'd', long, value_name = "TIME", value_parser = time_above_zero, help_heading = "Steps")]
    duration: Option<Duration>,
    /// Run the mix for this time first, unmeasured
    #[arg(long, value_name = "TIME", value_parser = time_above_zero, help_heading = "Steps")]
    warm_up: Option<Duration>,
    /// Requests a second over all connections (an open loop; without it each answer starts the next
    /// request). With --gaps etc alone, ETC's own rate
    #[arg(value_parser = rate, short = 'r', long, value_name = "RATE", help_heading = "Steps")]
    rate: Option<f64>,
    /// Gaps of the open loop: even, poisson or etc [default: poisson]
    #[arg(long, value_name = "LAW", help_heading = "Steps")]
    gaps: Option<GapsName>,

    /// Share of the requests that are gets; the rest are sets
    #[arg(
        value_parser = share,
        long,
        value_name = "SHARE",
        default_value_t = 0.9,
        help_heading = "Requests"
    )]
    get_ratio: f64,
    /// A mix instead: ycsb-a, b, c, d or f, or shares of get, set, incr, decr, append and prepend,
    /// such as set=0.1,incr=0.2 (gets are the rest). It also says what each key's value is, so
    /// --load and --read-back need the same one
    #[arg(
        long,
        value_name = "MIX",
        conflicts_with = "get_ratio",
        help_heading = "Requests"
    )]
    mix: Option<Requests>,
    /// Popularity of keys: uniform, zipf[:S], zipf-ordered[:S], latest[:S], hotcold[:KEYS:REQUESTS]
    /// or sequential [default: zipf:0.99, or what the mix says]
    #[arg(long, value_name = "LAW", help_heading = "Requests")]
    dist: Option<Popularity>,
    /// Keys of one get
    #[arg(value_parser = count::<usize>, long, value_name = "N", default_value_t = 1, help_heading = "Requests")]
    multi_get: usize,
    /// Set a key after its get missed, as a cache's user does
    #[arg(long, help_heading = "Requests")]
    set_on_miss: bool,
    /// Sets ask for no answer; not with incr, decr, append or prepend
    #[arg(long, help_heading = "Requests")]
    noreply: bool,
    /// Items expire after this time; 0 never
    #[arg(
        value_parser = whole_seconds,
        long,
        value_name = "TIME",
        default_value_t = 0,
        help_heading = "Requests"
    )]
    expire: u32,
    /// Seed of everything random
    #[arg(value_parser = count::<u64>, long, value_name = "N", default_value_t = 1, help_heading = "Requests")]
    seed: u64,

    /// How many keys there are
    #[arg(
        value_parser = count::<u64>,
        short = 'k',
        long,
        value_name = "N",
        default_value = "1m",
        help_heading = "Items"
    )]
    keys: u64,
    /// Use as many keys as it takes for keys and values to reach this size, such as 2g
    #[arg(
        long,
        value_name = "SIZE",
        conflicts_with = "keys",
        help_heading = "Items"
    )]
    bytes: Option<Bytes>,
    /// What every key starts with
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "key",
        help_heading = "Items"
    )]
    prefix: String,
    /// Length of keys: a number of bytes, etc (Facebook's) or shortest
    #[arg(long, value_name = "LEN", default_value = "16", help_heading = "Items")]
    key_size: KeyShape,
    /// Length of values: a number of bytes, MIN-MAX, etc or etc:CAP
    #[arg(
        long,
        value_name = "LEN",
        default_value = "1000",
        help_heading = "Items"
    )]
    value_size: ValueLen,
    /// A key's value changes its length when it is overwritten
    #[arg(long, help_heading = "Items")]
    vary_size: bool,
    /// --load writes keys in a random order (the same each time) instead of by number
    #[arg(long, help_heading = "Items")]
    permuted: bool,
    /// First place of the load order that --read-back reads
    #[arg(
        value_parser = count::<u64>,
        long,
        value_name = "N",
        conflicts_with = "last_bytes",
        help_heading = "Items"
    )]
    first_key: Option<u64>,
    /// Last place of the load order that --read-back reads
    #[arg(
        value_parser = count::<u64>,
        long,
        value_name = "N",
        conflicts_with = "last_bytes",
        help_heading = "Items"
    )]
    last_key: Option<u64>,
    /// --read-back reads the items written last, with this many bytes of keys and values
    #[arg(long, value_name = "SIZE", value_parser = some_bytes, help_heading = "Items")]
    last_bytes: Option<Bytes>,

    /// Check every byte of every value, and that no overwritten or expired value comes back
    #[arg(long, help_heading = "Checks")]
    verify: bool,
    /// Fail if a smaller share of the keys read is found
    #[arg(value_parser = share, long, value_name = "SHARE", help_heading = "Checks")]
    expect_found: Option<f64>,
    /// Fail if a larger share of a step's requests fails: errors, timeouts, lost connections
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share, help_heading = "Checks")]
    max_failed: f64,
    /// Version that --load writes; without --load, the version that every value must have
    #[arg(value_parser = count::<u32>, long, value_name = "N", help_heading = "Checks")]
    generation: Option<u32>,
    /// Process number of the server, to report its processor time
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", help_heading = "Results")]
    server_pid: Option<u32>,
    /// Write the latencies of each step into this folder, as percentiles in HdrHistogram's text
    /// form, in microseconds
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    histograms: Option<PathBuf>,
    #[command(flatten)]
    existing: Existing,
    /// One JSON object a line on stdout, and nothing else
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// With --json, also a line for each second
    #[arg(long, requires = "json", help_heading = "Results")]
    series: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolName {
    Classic,
    Meta,
    Binary,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GapsName {
    Even,
    Poisson,
    Etc,
}

fn gather(text: &str) -> Result<Gather, String> {
    let wrong =
        |_| format!("\"{text}\" is not a way to gather; write N or N:MICROSECONDS, such as 8:50");
    let (answers, wait) = text.split_once(':').unwrap_or((text, "50"));
    Ok(Gather {
        answers: match count(answers).map_err(wrong)? {
            0 => return Err("0 answers cannot gather; 1 turns it off".to_owned()),
            answers => answers,
        },
        wait: time(wait, Duration::from_micros(1)).map_err(wrong)?,
    })
}

impl LoadArgs {
    fn steps(&self) -> Vec<Step> {
        let amount = match (self.requests, self.duration) {
            (Some(requests), _) => Some(Amount::Requests(requests)),
            (None, Some(time)) => Some(Amount::For(time)),
            (None, None) => None,
        };
        let reads_back = self.reads_back();
        let mut steps = Vec::new();
        if self.load {
            steps.push(Step::Load);
        }
        if let Some(amount) =
            amount.or((!self.load && !reads_back).then_some(Amount::For(Duration::from_secs(10))))
        {
            steps.extend(self.warm_up.map(Step::WarmUp));
            steps.push(Step::Mix(amount));
        }
        if reads_back {
            steps.push(Step::ReadBack);
        }
        steps
    }

    fn reads_back(&self) -> bool {
        self.read_back
            || self.first_key.is_some()
            || self.last_key.is_some()
            || self.last_bytes.is_some()
    }

    fn settings(&self) -> Result<Settings> {
        let (mut mix, changes) = match &self.mix {
            Some(Requests { mix, changes }) => (mix.clone(), *changes),
            None => {
                let zipf = Popularity::Zipf {
                    s: 0.99,
                    scrambled: true,
                };
                let mix = senko_load::reads_and_updates(self.get_ratio, zipf).map_err(|_| {
                    anyhow!(
                        "--get-ratio is a share from 0 to 1, and {} is not",
                        self.get_ratio
                    )
                })?;
                (mix, Changes::default())
            }
        };
        if let Some(popularity) = &self.dist {
            mix.popularity = popularity.clone();
        }
        if self
            .expect_found
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            bail!("--expect-found is a share from 0 to 1");
        }
        let pace = match (self.rate, self.gaps) {
            (None, None) => Pace::Closed,
            (rate, gaps) => {
                let gaps = match gaps {
                    Some(GapsName::Even) => Gaps::Even,
                    Some(GapsName::Etc) => Gaps::Etc,
                    Some(GapsName::Poisson) | None => Gaps::Poisson,
                };
                if rate.is_none() && gaps != Gaps::Etc {
                    bail!("--gaps {} needs --rate", gaps.name());
                }
                Pace::Open { rate, gaps }
            }
        };
        let keys = self
            .bytes
            .map_or(KeyCount::Keys(self.keys), |bytes| KeyCount::Bytes(bytes.0));
        let part = match (self.first_key, self.last_key, self.last_bytes) {
            (_, _, Some(bytes)) => Part::LastBytes(bytes.0),
            (None, None, None) => Part::All,
            (first, Some(last), None) => Part::Places(first.unwrap_or(0), last),
            (Some(_), None, None) => bail!("--first-key needs --last-key"),
        };
        Ok(Settings {
            target: self.server.clone(),
            tls: self.tls.options(),
            login: self.login.login()?,
            wire: match self.protocol {
                ProtocolName::Classic => Wire::Classic,
                ProtocolName::Meta => Wire::Meta,
                ProtocolName::Binary => Wire::Binary,
            },
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            keys_per_get: self.multi_get,
            steps: self.steps(),
            pace,
            mix,
            changes,
            keys,
            prefix: self.prefix.clone(),
            key_shape: self.key_size,
            value_len: self.value_size,
            vary_len: self.vary_size,
            permuted: self.permuted,
            part,
            generation: self.generation.unwrap_or(1),
            generation_known: self.generation.is_some() && !self.load,
            verify: self.verify,
            set_on_miss: self.set_on_miss,
            noreply: self.noreply,
            expire: self.expire,
            timeout: self.timeout,
            gather: self.gather,
            server_pid: self.server_pid,
            io: self.io.0,
            seed: self.seed,
        })
    }
}

/// Runs `senko load`.
pub fn main(args: LoadArgs) -> Result<()> {
    let settings = args.settings()?;
    senko_load::check(&settings)?;
    if let Some(folder) = &args.histograms {
        results::make_folder(folder, args.existing)?;
    }
    process::raise_open_files(settings.connections, settings.threads)?;
    let mut shown = Shown {
        series: args.series,
        progress: senko_io::say::terminal(),
        began: Instant::now(),
    };
    let report = senko_load::run_until(&settings, process::stop_flag(), &mut shown);
    if shown.progress {
        bar!("\r\x1b[K");
    }
    let report = report?;
    let mut out = crate::prose::stdout();
    if args.json {
        for step in &report.steps {
            writeln!(
                out,
                "{}",
                results::step_json(&args, &settings, &report, step)
            )?;
        }
    } else if !report.steps.is_empty() {
        writeln!(out, "{report}")?;
    }
    if let Some(folder) = &args.histograms {
        results::write_histograms(folder, &report)?;
    }
    let interrupted = Interrupted::now();
    // A run that was ended early did not reach all keys, but a wrong answer counts at any time.
    let expected = args.expect_found.filter(|_| interrupted.is_none());
    report.verdict(expected).map_err(|why| anyhow!(why))?;
    match interrupted {
        Some(interrupted) => Err(interrupted.into()),
        None => report
            .completed(args.max_failed)
            .map_err(|why| anyhow!(why)),
    }
}

/// The progress line of a run.
struct Shown {
    series: bool,
    progress: bool,
    began: Instant,
}

impl Watch for Shown {
    fn begins(&mut self, _: Step) {
        self.began = Instant::now();
        // Before that, there is nothing to print, and connecting can take long. So a signal ends it
        // at once.
        process::stop_on_signals();
    }

    fn second(&mut self, second: &Second) {
        if self.series {
            // An error other than a closed pipe occurs again, and is reported, when the results are
            // written.
            let _ = writeln!(out::stdout(), "{}", results::second_json(second));
            out::end_if_closed();
        }
        if self.progress {
            show_progress(second, self.began.elapsed());
        }
    }
}

fn show_progress(second: &Second, past: Duration) {
    const WIDTH: usize = 24;
    let Stretch {
        counts,
        get,
        set,
        change,
        ..
    } = &second.stretch;
    let full = (second.done * WIDTH as f64) as usize;
    let mut latencies = get.clone();
    latencies.merge(set);
    latencies.merge(change);
    let found = match counts.reads {
        0 => String::new(),
        reads => format!(", {:.2} % found", counts.hits as f64 / reads as f64 * 100.0),
    };
    bar!(
        "\r\x1b[K{} [{}{}] {:3.0} %, {}  {}/s{found}, p99 {} us",
        second.step.name(),
        "#".repeat(full),
        " ".repeat(WIDTH - full),
        second.done * 100.0,
        time_left(past, second.done),
        counts.requests,
        latencies.quantile(0.99) / 1000
    );
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn parse(line: &str) -> Result<Settings> {
        Cli::try_parse_from(std::iter::once("load").chain(line.split_whitespace()))?
            .load
            .settings()
    }

    #[test]
    fn steps_follow_the_options() {
        let steps = |line| parse(line).expect("good options").steps;
        assert_eq!(steps(""), [Step::Mix(Amount::For(Duration::from_secs(10)))]);
        assert_eq!(steps("--load"), [Step::Load]);
        assert_eq!(steps("--load --read-back"), [Step::Load, Step::ReadBack]);
        assert_eq!(steps("--last-bytes 3g --bytes 8g"), [Step::ReadBack]);
        let warm = Step::WarmUp(Duration::from_secs(2));
        assert_eq!(
            steps("--load -n 5 --warm-up 2s --read-back"),
            [
                Step::Load,
                warm,
                Step::Mix(Amount::Requests(5)),
                Step::ReadBack
            ]
        );
    }

    #[test]
    fn options_reach_the_settings() {
        let settings = parse(
            "--rate 5000 -s [::1]:12 --value-size 4k --mix ycsb-d --gather 4:20 --generation 3",
        )
        .expect("good options");
        assert_eq!(
            settings.pace,
            Pace::Open {
                rate: Some(5000.0),
                gaps: Gaps::Poisson
            }
        );
        assert_eq!(settings.target.to_string(), "[::1]:12");
        assert_eq!(settings.value_len, ValueLen::Fixed(4096));
        assert_eq!(
            settings.gather,
            Some(Gather {
                answers: 4,
                wait: Duration::from_micros(20)
            })
        );
        assert!(settings.generation_known);
        assert_eq!(settings.mix.popularity, Popularity::Latest { s: 0.99 });
        let mixed = parse("--mix incr=0.25,set=0.25,prepend=0.25").expect("good options");
        assert_eq!(mixed.changes.share(senko_load::Change::Incr), 0.25);
        assert_eq!(mixed.changes.share(senko_load::Change::Prepend), 0.25);
        assert_eq!(mixed.mix.share(senko_workload::Op::Update), 0.5);
        assert_eq!(
            parse("--gaps etc").expect("good options").pace,
            Pace::Open {
                rate: None,
                gaps: Gaps::Etc
            }
        );
        assert_eq!(
            parse("-s /tmp/a.sock").expect("good options").target,
            Target::Unix("/tmp/a.sock".into())
        );
        assert_eq!(
            parse("-s 127.0.0.1")
                .expect("good options")
                .target
                .to_string(),
            "127.0.0.1:11211"
        );
    }

    #[test]
    fn bad_input_is_refused() {
        for line in [
            "--gaps even",
            "--get-ratio 1.5",
            "--mix ycsb-e",
            "--mix incr=0.7,append=0.7",
            "--mix touch=0.7",
            "--mix incr=0.5 --get-ratio 0.5",
            "--first-key 3",
            "-n 5 -d 5",
            "--value-size x",
            "--duration -1",
            "--expect-found 2",
            "--keys 5 --bytes 1g",
            "--series",
            "--tls-ca ca.pem --tls-insecure",
            "--tls-key key.pem",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
