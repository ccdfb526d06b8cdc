// SPDX-License-Identifier: Apache-2.0
//! `senko serve`: starts a server, prints its addresses and settings, and waits for its end.
//!
//! The order matters. The process enters the background while it has one thread. It binds sockets
//! and writes the pid file as root, and opens flash files as the user that the server runs as. The
//! process that put it in the background is released when the server answers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use senko_io::{note, say, tell};
use senko_server::server::{Server, ServerError, StartReport, StopReport};
use senko_server::settings::{Dialect, Settings, TlsMode};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use crate::options::{LogFormat, ServeOptions};
use crate::process::{self, Background, PidFile, Signal, Signals, User};
use crate::service::Service;
use crate::units::{counted, show_size};

/// A stop signal counts as a second one only this long after the first. Supervisors, `timeout` and
/// shells signal a process and its group, so one request to stop may come twice within
/// milliseconds.
const SECOND_SIGNAL: Duration = Duration::from_secs(5);

/// Arguments of `senko serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko serve\n      \
      listens on 127.0.0.1:11211, with a flash file of 4 GiB in ./senko-data\n  \
    senko serve -m 256 --flash /mnt/nvme/cache:100g\n      \
      256 MiB of memory in all, 100 GiB of flash\n  \
    senko serve -l 0.0.0.0 -t 4 --flash /dev/nvme1n1 --flash-write-budget 2t/day\n      \
      four threads on a whole device that is to live for years\n  \
    senko serve --data-dir /var/lib/senko --flash /mnt/nvme/cache:100g --keep-dram\n      \
      comes back with all it had after a stop, with its flash after a kill\n  \
    senko serve --no-flash -s /run/senko.sock\n      \
      DRAM only, on a Unix socket\n  \
    senko serve --config senko.toml\n      \
      the same options from a file, as memory = \"4g\"")]
pub struct ServeArgs {
    #[command(flatten)]
    options: ServeOptions,
    /// Read options from a TOML file; the command line overrides it
    #[arg(long, value_name = "FILE", help_heading = "Running")]
    config: Option<PathBuf>,
    /// Print one JSON object a line on stdout: start and stop
    #[arg(long, help_heading = "Running")]
    json: bool,
}

/// The process of the server.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Run as this user.
    pub user: Option<User>,
    /// Where to write the process number.
    pub pidfile: Option<PathBuf>,
    /// Run in the background.
    pub daemon: bool,
    /// Where to write the bound ports (`MEMCACHED_PORT_FILENAME`).
    pub port_file: Option<PathBuf>,
    /// Lock all memory (`-k`).
    pub lock_memory: bool,
    /// Leave core dumps (`-r`), and stay in the working directory for them.
    pub core_dumps: bool,
    /// Whether to report on stderr what was started.
    pub banner: bool,
    /// Whether the flash file is the default one, and new.
    pub new_flash: bool,
    /// The format of that, and of log lines.
    pub log_format: LogFormat,
    /// Whether to report it on stdout as JSON.
    pub json: bool,
}

/// Runs `senko serve`.
pub fn main(args: ServeArgs) -> Result<()> {
    let options = match &args.config {
        Some(path) => args.options.over(ServeOptions::from_file(path)?),
        None => args.options,
    };
    let missing = |folder: &PathBuf| folder.symlink_metadata().is_err();
    let folder = options.default_folder().filter(missing);
    let done = start(&options, args.json);
    if let (Err(_), Some(folder)) = (&done, folder) {
        // Only an empty folder can be removed: a start that was refused leaves none.
        let _ = std::fs::remove_dir(folder);
    }
    done
}

fn start(options: &ServeOptions, json: bool) -> Result<()> {
    let mut settings = options.settings()?;
    let user = match &options.user {
        Some(name) if process::is_root() => {
            Some(User::find(name)?.with_context(|| format!("there is no user {name} to run as"))?)
        }
        _ => None,
    };
    let (flash, made) = options.flash_or_default()?;
    if made && options.memory.is_none() && settings.memory < 64 << 20 {
        // Flash of gigabytes with a few megabytes of memory would fail at start with an error about
        // the index.
        settings.memory = 64 << 20;
    }
    // Told once it is made, so that a start that is refused does not tell of it.
    let new_flash = made && flash.iter().all(|spec| !spec.path.exists());
    settings.flash = flash;
    for text in crate::together::without_effect(options) {
        tell_one(
            options.log_format.unwrap_or_default(),
            &format!("warning: {text}"),
        );
    }
    let around = Surroundings {
        user,
        pidfile: options.pidfile.clone(),
        daemon: options.daemon.unwrap_or(false),
        port_file: std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from),
        lock_memory: false,
        core_dumps: options.core_dumps.unwrap_or(false),
        banner: true,
        new_flash,
        log_format: options.log_format.unwrap_or_default(),
        json,
    };
    run(settings, around)
}

/// Starts a server and waits for its end.
pub fn run(mut settings: Settings, mut around: Surroundings) -> Result<()> {
    // For tests, which also run on busy disks, and are not about that.
    if let Some(patience) = std::env::var("SENKO_TEST_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        settings.patience = patience;
    }
    settings.passed = senko_io::passed_listeners()?;
    let asked = settings.item_memory.unwrap_or(settings.memory);
    if let Some(has) = crate::machine::usable_memory().filter(|&has| has < asked) {
        let (asked, has) = (show_size(asked), show_size(has));
        let text = format!(
            "warning: --memory is {asked}, and this machine or container has {has}: the kernel may end the server once it uses them"
        );
        tell_one(around.log_format, &text);
    }
    process::raise_open_files(settings.max_connections, settings.threads)?;
    if settings.item_memory.unwrap_or(settings.memory) < 1 << 30 {
        process::keep_memory_tight();
    }
    process::set_core_dumps(around.core_dumps)?;
    let background = if around.daemon {
        absolute_paths(&mut settings, &mut around)?;
        let background = Background::enter()?;
        if !around.core_dumps {
            // A server in the background must not block the unmounting of the file system from
            // which it was started.
            std::env::set_current_dir("/").context("cannot change to /")?;
        }
        Some(background)
    } else {
        // Done before root is dropped: the owner of stderr's pipe decides who may write to it.
        say::as_service();
        None
    };
    start_log(settings.verbosity, around.log_format);
    settings.on_verbosity = Some(change_log);
    settings.on_drained = Some(process::ask_to_stop);
    let signals = Signals::block();
    let service = Arc::new(Service::from_env());
    let patience = service.patience();
    let data_dir = settings.data_dir.clone();
    let began = Instant::now();
    let bound = Server::bind(settings)?;
    // The pid file names the serving process, and is removed at its end.
    let mut pidfile = around.pidfile.as_deref().map(PidFile::begin).transpose()?;
    if let Some(path) = &around.port_file {
        write_ports(path, &bound.addresses())?;
    }
    if let Some(user) = &around.user {
        user.become_it()?;
        process::set_core_dumps(around.core_dumps)?;
    }
    if around.lock_memory
        && let Err(error) = process::lock_memory()
    {
        let text = format!("warning: -k has no effect: locking memory failed: {error}");
        tell_one(around.log_format, &text);
    }
    let server = bound.start().map_err(|error| {
        let text = error.to_string();
        match &around.user {
            Some(user) if text.contains("ermission denied") => anyhow!(
                "{text}; the server runs as {} (-u), which may not do that",
                user.name()
            ),
            _ => anyhow!(text),
        }
    })?;
    let report = server.report().clone();
    if let Some(flash) = report.flash.first().filter(|_| around.new_flash) {
        let (size, path) = (show_size(flash.bytes), flash.path.display());
        let text = format!(
            "senko: made a flash file of {size} at {path}; --flash PATH:SIZE names another, --no-flash uses none"
        );
        tell_one(around.log_format, &text);
    }
    if let Some(pidfile) = &mut pidfile {
        pidfile.settle()?;
    }
    warn_of_open_admin(report.admin, around.log_format);
    let took = began.elapsed();
    match around.log_format {
        _ if !around.banner => {}
        LogFormat::Text => print_banner(&report, data_dir.as_deref(), took),
        LogFormat::Json => note!("{}", start_json(&report, took)),
    }
    if around.json {
        say::result(format_args!("{}", start_json(&report, took)));
    }
    if let Some(background) = background {
        background.ready()?;
        say::as_service();
    }

    drop(patience);
    let status = status(&report);
    service.ready(&status);
    let manager = Arc::clone(&service);
    let control = server.control();
    let asked_at = Arc::new(OnceLock::new());
    let asks = Arc::clone(&asked_at);
    let pidfile = Arc::new(Mutex::new(pidfile));
    let names = Arc::clone(&pidfile);
    let (format, json) = (around.log_format, around.json);
    std::thread::Builder::new().name("senko-signals".into()).spawn(move || {
        // More time is requested until the process ends.
        let mut saving = Vec::new();
        loop {
            match signals.wait() {
                Signal::Hangup => {
                    manager.reloading();
                    match control.reload() {
                        (_, 0) => tracing::info!("SIGHUP: nothing to reload"),
                        (read, all) if read == all => tracing::info!("SIGHUP: all was read again"),
                        (read, all) => tracing::error!("SIGHUP: {} of {all} could not be read again", all - read),
                    }
                    manager.ready(&status);
                }
                Signal::Stop(name, number) => match asks.get().map(Instant::elapsed) {
                    None => {
                        let seconds = SECOND_SIGNAL.as_secs();
                        tracing::info!("{name}: finishing the requests received, then stopping; a signal after {seconds} s stops at once");
                        let _ = asks.set(Instant::now());
                        manager.stopping();
                        saving.extend(manager.patience());
                        control.shutdown();
                    }
                    Some(since) if since < SECOND_SIGNAL => {
                        tracing::info!("{name} again: the stop goes on");
                    }
                    Some(since) => {
                        control.remove_socket_files();
                        drop(names.lock().unwrap_or_else(PoisonError::into_inner).take());
                        let text = format!("the stop was cut short by {name} after {}: what was not saved by then is lost", show_time(since));
                        let cut = Err(ServerError(text.clone()));
                        match format {
                            LogFormat::Text => tell!("senko: {text}"),
                            LogFormat::Json => note!("{}", stop_json(&cut, Some(since))),
                        }
                        if json {
                            say::result(format_args!("{}", stop_json(&cut, Some(since))));
                        }
                        std::process::exit(128 + i32::from(number));
                    }
                },
            }
        }
    })?;
    let ended = server.join();
    let took = asked_at.get().map(Instant::elapsed);
    match (&ended, around.log_format) {
        _ if !around.banner => {}
        (Ok(left), LogFormat::Text) => note!("{}", stop_text(*left, data_dir.as_deref(), took)),
        // The caller reports the error.
        (Err(_), LogFormat::Text) => {}
        (_, LogFormat::Json) => note!("{}", stop_json(&ended, took)),
    }
    if around.json {
        say::result(format_args!("{}", stop_json(&ended, took)));
    }
    drop(
        pidfile
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
    );
    ended?;
    Ok(())
}

/// The admin listener asks for no password, so a public address gets a warning.
fn warn_of_open_admin(admin: Option<std::net::SocketAddr>, format: LogFormat) {
    if let Some(address) = admin.filter(|address| !address.ip().is_loopback()) {
        let text = format!(
            "warning: the admin address {address} asks for no password: everybody who reaches it can read metrics"
        );
        tell_one(format, &text);
    }
}

/// One line for the service manager's status.
fn status(report: &StartReport) -> String {
    let clients: Vec<String> = report.doors.iter().map(ToString::to_string).collect();
    let back = report.warm.as_ref().map_or(String::new(), |warm| {
        format!(
            "; came back with {} on flash and {} in DRAM",
            counted(warm.flash_items, "item"),
            warm.dram_items
        )
    });
    format!("serving on {}{back}", clients.join(", "))
}

/// Writes one sentence to stderr.
fn tell_one(format: LogFormat, text: &str) {
    match format {
        LogFormat::Text => note!("{text}"),
        LogFormat::Json => note!("{}", json!({ "event": "note", "message": text })),
    }
}

/// A duration in readable form.
fn show_time(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

fn stop_text(left: StopReport, data_dir: Option<&Path>, took: Option<Duration>) -> String {
    let after = took.map_or(String::new(), |took| format!(" after {}", show_time(took)));
    let (flash, dram) = (left.flash_items, left.dram_items);
    let kept = match data_dir.filter(|_| left.keeps) {
        Some(path) => format!(
            "{} on flash and {dram} of DRAM are kept in {}",
            counted(flash, "item"),
            path.display()
        ),
        None => "nothing is kept without --data-dir".to_owned(),
    };
    format!("senko stopped{after}: {kept}")
}

fn stop_json(ended: &Result<StopReport, ServerError>, took: Option<Duration>) -> serde_json::Value {
    let mut stop = json!({ "event": "stop", "clean": ended.is_ok() });
    if let Err(error) = ended {
        stop["message"] = error.to_string().into();
    }
    if let Some(took) = took {
        stop["seconds"] = took.as_secs_f64().into();
    }
    if let Ok(left) = ended
        && left.keeps
    {
        stop["kept"] = json!({ "flash_items": left.flash_items, "dram_items": left.dram_items });
    }
    stop
}

/// A server in the background leaves the working directory, so relative paths are made absolute
/// first.
fn absolute_paths(settings: &mut Settings, around: &mut Surroundings) -> Result<()> {
    let optional = [
        &mut settings.unix_socket,
        &mut settings.ctl,
        &mut settings.data_dir,
        &mut settings.auth_file,
        &mut settings.sasl_file,
        &mut settings.trace,
        &mut around.pidfile,
        &mut around.port_file,
    ];
    let tls = settings.tls.iter_mut().flat_map(|tls| {
        let ca = tls.ca.as_mut();
        [&mut tls.chain, &mut tls.key].into_iter().chain(ca)
    });
    for path in optional
        .into_iter()
        .flatten()
        .chain(tls)
        .chain(settings.flash.iter_mut().map(|f| &mut f.path))
    {
        *path = std::path::absolute(&*path)
            .with_context(|| format!("cannot tell where \"{}\" is", path.display()))?;
    }
    Ok(())
}

/// The lines that the log has now.
static LOG_LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Log lines go to stderr; `-v` turns on lines that help to find a fault.
fn start_log(verbosity: u8, format: LogFormat) {
    let (level, handle) = reload::Layer::new(log_level(verbosity));
    let _ = LOG_LEVEL.set(handle);
    let log = tracing_subscriber::registry().with(level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| say::Log)
        .with_ansi(say::terminal())
        .with_target(false);
    let _ = match format {
        LogFormat::Text => log.with(lines).try_init(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_ansi(false);
            log.with(lines).try_init()
        }
    };
}

fn log_level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// The `verbosity` command has the effect of so many `-v`.
fn change_log(verbosity: u8) {
    if let Some(handle) = LOG_LEVEL.get() {
        // It fails only where the log itself is gone.
        let _ = handle.reload(log_level(verbosity));
    }
}

/// One line `TCP INET: port` for each port, in memcached's form.
fn write_ports(path: &std::path::Path, addresses: &[std::net::SocketAddr]) -> Result<()> {
    let text: String = addresses
        .iter()
        .map(|a| {
            format!(
                "TCP {}: {}\n",
                if a.is_ipv4() { "INET" } else { "INET6" },
                a.port()
            )
        })
        .collect();
    crate::process::Note::Ports
        .write(path, ".lck", &text)
        .map(drop)
        .with_context(|| {
            format!(
                "cannot write the ports to {} (MEMCACHED_PORT_FILENAME)",
                path.display()
            )
        })
}

fn print_banner(report: &StartReport, data_dir: Option<&Path>, took: Duration) {
    let listening: Vec<String> = report.doors.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "senko {} ready\n  listening  {}\n",
        crate::VERSION,
        listening.join(", ")
    );
    let why = report
        .fallback_reason
        .as_ref()
        .map_or(String::new(), |why| format!(" ({why})"));
    let threads = counted(report.threads, "thread");
    let shards = match report.shards == report.threads {
        true => String::new(),
        false => format!(" with {}", counted(report.shards, "shard")),
    };
    if let Some(admin) = report.admin {
        text += &format!("  admin      http://{admin}/metrics\n");
    }
    text += &format!(
        "  running    {threads}{shards} on {}{why}\n",
        report.backend
    );
    text += &format!(
        "  memory     {}, of which items, index and write buffers {}\n",
        show_size(report.memory),
        show_size(report.shard_memory)
    );
    if report.flash.is_empty() {
        text += "  flash      none\n";
    }
    for flash in &report.flash {
        let direct = if flash.direct {
            ""
        } else {
            ", through the page cache"
        };
        text += &format!(
            "  flash      {}, {}{direct}\n",
            flash.path.display(),
            show_size(flash.bytes)
        );
    }
    if let Some(warm) = &report.warm {
        let (flash, dram) = (warm.flash_items, warm.dram_items);
        text += &match &warm.why_empty {
            Some(why) if flash + dram == 0 => format!("  back       empty: {why}\n"),
            _ => {
                let from =
                    data_dir.map_or(String::new(), |dir| format!(", from {}", dir.display()));
                let flash = counted(flash, "item");
                format!("  back       {flash} on flash, {dram} in DRAM{from}\n")
            }
        };
    }
    text += &format!(
        "  items      keys to 250 bytes, with value and header to {}\n",
        show_size(report.max_item)
    );
    text += &format!("  start      took {}\n", show_time(took));
    note!("{}", text.trim_end());
}

fn start_json(report: &StartReport, took: Duration) -> serde_json::Value {
    json!({
        "event": "start",
        "seconds": took.as_secs_f64(),
        "version": crate::VERSION,
        "pid": std::process::id(),
        "listen": report.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "doors": report.doors.iter().map(|door| json!({
            "address": door.address,
            "tls": door.tls != TlsMode::Off,
            "certificate": door.certificate,
            "password": door.password,
            "protocol": door.only.map(|only| match only {
                Dialect::Ascii => "ascii",
                Dialect::Binary => "binary",
            }),
        })).collect::<Vec<_>>(),
        "admin": report.admin,
        "unix_socket": report.unix_socket,
        "threads": report.threads,
        "shards": report.shards,
        "io": report.backend,
        "io_fallback": report.fallback_reason,
        "memory": report.memory,
        "shard_memory": report.shard_memory,
        "region": report.region,
        "max_item": report.max_item,
        "warm": report.warm.as_ref().map(|w| json!({
            "flash_items": w.flash_items, "dram_items": w.dram_items, "dropped": w.dropped, "damaged": w.damaged, "lost": w.lost, "why_empty": w.why_empty,
        })),
        "flash": report.flash.iter().map(|f| json!({ "path": f.path, "bytes": f.bytes, "direct": f.direct })).collect::<Vec<_>>(),
    })
}
