// SPDX-License-Identifier: Apache-2.0
//! A server from start to end: bind, open the flash files, deal out memory, run the workers, drain.
//!
//! ```text
//! Server::bind -> Bound::start -> RunningServer::join
//!  sockets         flash files,      every worker has closed its connections
//!  (as root)       workers
//! ```
//!
//! Each worker makes its event loop and its shard on its own thread (neither may move) and reports
//! back; the server is ready when all have, and only then does a worker accept. An error in one
//! ends the others before anybody was served.

pub mod data_dir; // the data directory
mod keeper; // a thread that may wait for the data directory's disk
pub mod plan; // how one memory cap is dealt out
mod report; // what a start and a stop tell
mod sockets; // what it listens on, opened here or by a service manager
mod security; // password files, and warnings about who may reach the server

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use senko_cache::{DeviceLabel, DeviceSlice, Recovered, ShardConfig};
use senko_io::Unfinished;
use senko_io::trace::Recorder;
use senko_io::{Backend, FileOptions, FlashFile, Listener, PAGE_SIZE};

use crate::admin::Admin;
use crate::auth::Auth;
use crate::clock::Clock;
use crate::route::Mesh;
use crate::settings::{Settings, TlsMode};
use crate::shared::{ConnEntry, Shared, Shutdown};
use crate::tls::Tls;
use crate::worker::{Door, StartError, Worker, WorkerConfig};
use data_dir::{DataDir, LABEL_PAGES, Stopped};
use keeper::Keeper;
use plan::{MemoryPlan, memory_plan};
pub use report::{FlashReport, StartReport, StopReport};
use sockets::{listen, listen_for_admin};

/// Why a server did not start, or did not end well: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(pub String);

impl From<std::io::Error> for ServerError {
    fn from(error: std::io::Error) -> ServerError {
        ServerError(error.to_string())
    }
}

/// Starts servers.
pub struct Server;

impl Server {
    /// Binds and starts in one step.
    ///
    /// # Errors
    /// One sentence on what was wrong with the settings or the machine.
    pub fn start(settings: Settings) -> Result<RunningServer, ServerError> {
        Server::bind(settings)?.start()
    }

    /// Checks the settings and binds the sockets. Clients that connect wait until [`Bound::start`].
    ///
    /// # Errors
    /// One sentence on what was wrong.
    pub fn bind(settings: Settings) -> Result<Bound, ServerError> {
        check(&settings)?;
        let auth = security::open(&settings)?;
        let tls = security::certificate(&settings)?;
        // Sizes that are known now are checked before a file of gigabytes is made.
        let sizes: Vec<u64> = settings
            .flash
            .iter()
            .map(|f| if f.bytes == 0 { 1 << 40 } else { f.bytes })
            .collect();
        memory_plan(&settings, &sizes).map_err(ServerError)?;
        let listeners = listen(&settings)?;
        let admin = listen_for_admin(&settings)?;
        Ok(Bound {
            settings,
            auth,
            tls,
            listeners,
            admin,
        })
    }
}

/// A server whose sockets are bound.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    auth: Auth,
    tls: Option<Tls>,
    listeners: Vec<Listening>,
    admin: Option<(Listener, SocketAddr)>,
}

#[derive(Clone, Debug)]
struct Listening {
    listener: Listener,
    address: Option<SocketAddr>,
    /// As `stats conns` writes it.
    name: Arc<str>,
    guarded: bool,
    tls: TlsMode,
}

impl Listening {
    fn door(&self) -> Door {
        Door {
            listener: self.listener.clone(),
            name: Arc::clone(&self.name),
            guarded: self.guarded,
            tls: self.tls,
        }
    }
}

impl Bound {
    /// The TCP addresses bound, ports as the kernel chose them.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|l| l.address).collect()
    }

    /// Opens flash, starts the workers; returns when all of them serve.
    ///
    /// # Errors
    /// One sentence on what was wrong.
    pub fn start(self) -> Result<RunningServer, ServerError> {
        let addresses = self.addresses();
        let Bound {
            mut settings,
            auth,
            tls,
            listeners,
            admin,
        } = self;
        let admin_address = admin.as_ref().map(|(_, address)| *address);
        // First, so that it can say that the server is starting.
        let admin = admin.map(|(l, _)| Admin::start(l)).transpose()?;
        if let Some(dir) = &settings.data_dir {
            data_dir::make_folder(dir)?; // flash files may be to lie in it
        }
        let (unfinished, recorder) = match &settings.trace {
            Some(path) => {
                // A recording that is broken off would look whole.
                let (unfinished, _) = Unfinished::restarting(path)?;
                let recorder = Recorder::create(unfinished.draft())?;
                (Some(unfinished), Some(Arc::new(recorder)))
            }
            None => (None, None),
        };
        let (files, untouched) = open_flash(&settings, recorder.as_ref())?;
        let data_dir = match settings.data_dir.clone() {
            Some(dir) => Some(Arc::new(DataDir::open(&dir, &settings, &files)?)),
            None if settings.reinit => None,
            None => {
                data_dir::check_unlabelled(&files, None, &settings)?;
                None
            }
        };
        if let Some(region) = data_dir.as_ref().and_then(|data_dir| data_dir.region()) {
            settings.region = Some(region);
        }
        let seed = data_dir.as_ref().map(|data_dir| data_dir.hash_seed());
        settings.hash_seed = seed.unwrap_or_else(|| data_dir::hash_seed(&settings));
        let sizes: Vec<u64> = files
            .iter()
            .map(|f| f.pages().saturating_sub(LABEL_PAGES) * PAGE_SIZE as u64)
            .collect();
        let plan = memory_plan(&settings, &sizes).map_err(ServerError)?;
        if let Some(data_dir) = &data_dir {
            data_dir.check_room((plan.shard * settings.threads) as u64)?;
        }
        if !files.is_empty() {
            settings.region = Some(plan.region);
        }
        let slices = slices(&settings, &plan, &sizes, LABEL_PAGES);
        if settings.seed == 0 {
            settings.seed = data_dir::random();
        }
        let shared = Arc::new(
            share(&settings, data_dir.as_deref())
                .guarded(auth)
                .ciphered(tls),
        );
        for socket in &listeners {
            let row = ConnEntry::new(socket.name.to_string(), String::new(), shared.started);
            shared.register(socket.listener.number(), Arc::new(row));
        }
        let mesh = Arc::new(Mesh::new(settings.threads, plan.pending / 4, plan.pending));
        let control = Control {
            shared: Arc::clone(&shared),
            mesh: Arc::clone(&mesh),
        };

        let (ready, reports) = mpsc::channel();
        let mut threads = Vec::new();
        let mut go = Vec::new();
        for (index, slices) in slices.into_iter().enumerate() {
            let (go_on, wait) = mpsc::channel();
            let config = WorkerConfig {
                index,
                loop_config: plan.loop_config.clone(),
                pending: plan.pending,
                shard: shard_config(&settings, &plan, index, slices),
                files: files.clone(),
                data_dir: data_dir.clone(),
                // One worker accepts for all: it sees every connection, so the limit and the
                // spreading need no agreement.
                doors: if index == 0 {
                    listeners.iter().map(Listening::door).collect()
                } else {
                    Vec::new()
                },
                shared: Arc::clone(&shared),
                mesh: Arc::clone(&mesh),
            };
            let ready = ready.clone();
            let control = control.clone();
            let thread = std::thread::Builder::new()
                .name(format!("senko-worker{index}"))
                .spawn(move || work(config, &ready, &wait, control))
                .map_err(|e| ServerError(format!("cannot start a thread: {e}")))?;
            threads.push(thread);
            go.push(go_on);
        }
        drop(ready);

        let mut loops: Vec<LoopReport> = Vec::new();
        let mut unmade = None;
        for report in reports.iter().take(threads.len()) {
            match report {
                Ok(report) => loops.push(report),
                Err(why) => unmade = unmade.or(Some(why)),
            }
        }
        if loops.len() < threads.len() {
            call_off(go, threads);
            return Err(match unmade {
                Some(why) => not_made(why, &settings, &sizes),
                None => ServerError("a worker thread ended before it was ready".into()),
            });
        }
        loops.sort_by_key(|report| report.index);
        let begun = match &data_dir {
            Some(data_dir) => data_dir.begin(if files.is_empty() { 0 } else { plan.region }),
            None => data_dir::label_as_free(&files),
        };
        if let Err(error) = begun {
            call_off(go, threads);
            return Err(error);
        }
        untouched.settle();
        let mut warm = data_dir.as_ref().map(|_| warm_report(&loops));
        if let Some(why) = data_dir
            .as_ref()
            .and_then(|data_dir| data_dir.too_late(&settings))
        {
            tracing::warn!("the start took too long, and begins empty: {why}");
            shared.flush();
            warm = Some(empty_because(why));
        }
        for go_on in &go {
            // A worker that is gone shows in `join`.
            let _ = go_on.send(());
        }
        let report = StartReport {
            addresses,
            admin: admin_address,
            unix_socket: settings.unix_socket.clone(),
            threads: settings.threads,
            backend: match loops[0].backend {
                Backend::Uring => "io_uring",
                Backend::Posix => "posix",
            },
            fallback_reason: loops[0].fallback.clone(),
            memory: plan.total,
            shard_memory: (plan.shard * settings.threads) as u64,
            region: if files.is_empty() {
                0
            } else {
                plan.region as u64
            },
            max_item: settings.max_item as u64,
            flash: files
                .iter()
                .map(|f| FlashReport {
                    path: f.path().to_path_buf(),
                    bytes: f.pages() * PAGE_SIZE as u64,
                    direct: f.direct(),
                })
                .collect(),
            warm,
        };
        let keeper = data_dir.map(Keeper::start).transpose()?;
        if let Some(admin) = &admin {
            admin.serving(shared, report.clone());
        }
        security::warn(&settings);
        Ok(RunningServer {
            admin,
            keeper,
            control,
            threads,
            report,
            recorder,
            unfinished,
            listeners,
        })
    }
}

/// Stops a server from any thread.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
    mesh: Arc<Mesh>,
}

impl Control {
    /// Stops accepting, lets every request that was received be answered, closes, ends.
    pub fn shutdown(&self) {
        if self.shared.shutdown() == Shutdown::No {
            self.shared.request_shutdown(Shutdown::Graceful);
        }
        self.mesh.wake_all();
    }

    /// Closes everything and ends, answered or not.
    pub fn abort(&self) {
        self.shared.request_shutdown(Shutdown::Now);
        self.mesh.wake_all();
    }

    /// Whether the end was asked for.
    pub fn draining(&self) -> bool {
        self.shared.shutdown() != Shutdown::No
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("draining", &self.draining())
            .finish_non_exhaustive()
    }
}

/// A server that serves. Dropping it without [`RunningServer::join`] leaves the threads running
/// until [`Control::shutdown`].
#[derive(Debug)]
pub struct RunningServer {
    control: Control,
    keeper: Option<Keeper>,
    threads: Vec<JoinHandle<Result<Option<Stopped>, String>>>,
    report: StartReport,
    recorder: Option<Arc<Recorder>>,
    /// Gives the recording its name once it is whole.
    unfinished: Option<Unfinished>,
    listeners: Vec<Listening>,
    /// Says until the end that the server drains.
    admin: Option<Admin>,
}

impl RunningServer {
    /// What was started.
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// The first TCP port bound.
    pub fn local_port(&self) -> Option<u16> {
        self.listeners.iter().find_map(|l| l.listener.local_port())
    }

    /// Stops it from elsewhere.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// As [`Control::shutdown`].
    pub fn shutdown(&self) {
        self.control.shutdown();
    }

    /// Waits for the end: a shutdown, or a failure of a worker.
    ///
    /// # Errors
    /// When a worker failed.
    pub fn join(self) -> Result<StopReport, ServerError> {
        let mut failed = None;
        let keeps = self.keeper.is_some();
        let mut stopped = Vec::new();
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(left)) => stopped.extend(left),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(_) => {
                    failed = failed.or(Some(
                        "a worker thread panicked; its message is above".into(),
                    ))
                }
            }
        }
        self.control.mesh.release_memory();
        if let Some(keeper) = self.keeper {
            let data_dir = keeper.end();
            if failed.is_none()
                && let Err(error) =
                    data_dir.finish(&stopped, self.control.shared.flush_generation())
            {
                failed = Some(error.0);
            }
        }
        if let (Some(recorder), Some(unfinished)) = (&self.recorder, self.unfinished) {
            let whole = recorder.flush().and_then(|()| unfinished.finish());
            if let Err(error) = whole {
                let path = self.control.shared.settings.trace.as_deref();
                failed = failed.or(Some(format!(
                    "the trace {} is incomplete: {error}",
                    path.unwrap_or(recorder.path()).display()
                )));
            }
        }
        drop(self.admin);
        let kept = StopReport {
            keeps,
            flash_items: stopped.iter().map(|s| s.flash_items).sum(),
            dram_items: stopped.iter().map(|s| s.dram_items).sum(),
        };
        failed.map_or(Ok(kept), |error| Err(ServerError(error)))
    }
}

/// What a worker tells once it is ready.
struct LoopReport {
    index: usize,
    backend: Backend,
    fallback: Option<String>,
    recovered: Recovered,
}

/// Why a worker can't be made, with the memory that would do.
fn not_made(why: StartError, settings: &Settings, sizes: &[u64]) -> ServerError {
    let least = why
        .least_shard
        .and_then(|shard| plan::least_memory(settings, sizes, shard));
    ServerError(match least {
        Some(least) if settings.item_memory.is_some() => {
            format!("{}; give -m {} or more", why.text, least >> 20)
        }
        Some(least) => format!("{}; give --memory {}m or more", why.text, least >> 20),
        None => why.text,
    })
}

/// What all shards together came back with; each reason for emptiness goes to the log once.
fn warm_report(loops: &[LoopReport]) -> Recovered {
    let mut all = Recovered::default();
    for (shard, r) in loops.iter().map(|l| &l.recovered).enumerate() {
        all.flash_items += r.flash_items;
        all.dram_items += r.dram_items;
        all.dropped += r.dropped;
        all.damaged += r.damaged;
        if let Some(why) = &r.why_empty
            && all.why_empty.as_ref() != Some(why)
        {
            tracing::warn!("shard {shard} starts empty: {why}");
            all.why_empty = Some(why.clone());
        }
    }
    if all.damaged > 0 {
        tracing::warn!("{} parts of the saved files were damaged", all.damaged);
    }
    all
}

fn empty_because(why: String) -> Recovered {
    Recovered {
        why_empty: Some(why),
        ..Recovered::default()
    }
}

/// What the workers share, going on from the data directory if there is one.
fn share(settings: &Settings, data_dir: Option<&DataDir>) -> Shared {
    let second = data_dir.map_or(0, DataDir::second);
    let clock = settings.clock.as_deref();
    let ahead = Clock::ahead(clock, second);
    if clock.is_none() && ahead > 1 {
        tracing::warn!(
            "the system's clock is {ahead} s behind the last second of the server before: time goes on from that"
        );
    }
    let started = (Clock::start(settings.clock.clone(), second).now_ms() / 1000) as u32;
    let shared = Shared::new(settings.clone(), settings.threads, started);
    match data_dir {
        Some(data_dir) => shared.going_on(Arc::clone(data_dir.words()), second),
        None => shared,
    }
}

/// A worker's thread.
fn work(
    config: WorkerConfig,
    ready: &mpsc::Sender<Result<LoopReport, StartError>>,
    go: &mpsc::Receiver<()>,
    control: Control,
) -> Result<Option<Stopped>, String> {
    let index = config.index;
    let worker = match Worker::new(config) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(None); // `Bound::start` reports it
        }
    };
    let fallback = worker.fallback_reason().map(str::to_owned);
    let report = LoopReport {
        index,
        backend: worker.backend(),
        fallback,
        recovered: worker.recovered().clone(),
    };
    if ready.send(Ok(report)).is_err() || go.recv().is_err() {
        return Ok(None); // another worker could not start
    }
    // Whatever ends this worker ends the server: a cache that lost a shard would answer misses for
    // ever.
    let _guard = EndsAll(control);
    worker.run()
}

/// Ends the workers that wait to be let go. When all have ended, nothing is held any more that a
/// next start needs.
fn call_off(go: Vec<mpsc::Sender<()>>, threads: Vec<JoinHandle<Result<Option<Stopped>, String>>>) {
    drop(go);
    for thread in threads {
        let _ = thread.join();
    }
}

struct EndsAll(Control);

impl Drop for EndsAll {
    fn drop(&mut self) {
        if !self.0.draining() {
            self.0.abort();
        }
    }
}

fn check(settings: &Settings) -> Result<(), ServerError> {
    let wrong = |text: &str| Err(ServerError(text.to_string()));
    if settings.threads == 0 || settings.max_connections == 0 || settings.requests_per_turn == 0 {
        return wrong("threads, connections and requests per turn must be greater than 0");
    }
    if settings.listen.is_empty() && settings.unix_socket.is_none() && settings.passed.is_empty() {
        return wrong("there is nothing to listen on: neither an address nor a Unix socket");
    }
    for (n, spec) in settings.flash.iter().enumerate() {
        if settings.flash[..n]
            .iter()
            .any(|other| other.path == spec.path)
        {
            return Err(ServerError(format!(
                "the flash file {} is named twice",
                spec.path.display()
            )));
        }
    }
    if settings.data_dir.is_none() && settings.keep_dram {
        return wrong("--keep-dram keeps items in a data directory: name one with --data-dir");
    }
    if settings.data_dir.is_none() && settings.max_absence.is_some() {
        return wrong(
            "--max-absence is about what --data-dir brings back, and there is no --data-dir",
        );
    }
    if settings.data_dir.is_none() && settings.flash.is_empty() && settings.reinit {
        return wrong(
            "--reinit starts over what is kept, and neither --data-dir nor --flash is given",
        );
    }
    if settings.data_dir.is_some() && settings.flash.is_empty() && !settings.keep_dram {
        return wrong(
            "without flash a data directory keeps nothing: add --keep-dram, or leave out --data-dir",
        );
    }
    if settings.trace.is_some() && settings.flash.is_empty() {
        return wrong("--trace records what reaches flash devices, and there is none");
    }
    Ok(())
}

fn open_flash(
    settings: &Settings,
    recorder: Option<&Arc<Recorder>>,
) -> Result<(Vec<Arc<FlashFile>>, Untouched), ServerError> {
    let mut untouched = Untouched(Vec::new());
    let mut files = Vec::new();
    for (number, spec) in settings.flash.iter().enumerate() {
        let options = FileOptions {
            bytes: spec.bytes,
            discard: settings.discard,
            recorder: recorder.map(|r| (Arc::clone(r), number as u16)),
            faults: settings.faults.get(number).cloned(),
            ours: (!settings.reinit).then_some(DeviceLabel::marks),
            ..FileOptions::default()
        };
        let found = std::fs::metadata(&spec.path);
        let missing = (found.as_ref()).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
        let before = found.ok();
        if missing && spec.bytes == 0 {
            let path = spec.path.display();
            return Err(ServerError(format!(
                "the flash file {path} does not exist: to make it, give its size, as in --flash {path}:4g"
            )));
        }
        let opened = FlashFile::open(&spec.path, &options).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => ServerError(format!(
                "{error}: name another file, or start over with {}, and lose what is in it",
                data_dir::reinit_option(settings)
            )),
            _ => error.into(),
        });
        files.push(Arc::new(opened?));
        if before.as_ref().is_none_or(|meta| meta.is_file()) {
            let bytes = before.map(|meta| meta.len());
            untouched.0.push((spec.path.clone(), bytes));
        }
    }
    Ok((files, untouched))
}

/// Flash files, with the bytes that each had before this start, if it was there. A start that fails
/// leaves them so: gigabytes that a wrong path or size took are given back.
struct Untouched(Vec<(PathBuf, Option<u64>)>);

impl Untouched {
    /// The start did not fail.
    fn settle(mut self) {
        self.0.clear();
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            // The refusal is told; what can't be undone besides costs space only.
            let _ = match before {
                None => std::fs::remove_file(path),
                Some(bytes) => {
                    std::fs::OpenOptions::new()
                        .write(true)
                        .open(path)
                        .and_then(|file| {
                            if file.metadata()?.len() > *bytes {
                                file.set_len(*bytes)?;
                            }
                            Ok(())
                        })
                }
            };
        }
    }
}

/// Each worker's part of each file: the same number of whole regions, side by side, behind the
/// label.
fn slices(
    settings: &Settings,
    plan: &MemoryPlan,
    sizes: &[u64],
    label: u64,
) -> Vec<Vec<DeviceSlice>> {
    let region_pages = (plan.region / PAGE_SIZE) as u64;
    let slice = |worker: usize, device: usize, bytes: u64| {
        let pages =
            bytes / PAGE_SIZE as u64 / settings.threads as u64 / region_pages * region_pages;
        DeviceSlice {
            device: device as u16,
            first_page: label + worker as u64 * pages,
            pages,
        }
    };
    (0..settings.threads)
        .map(|worker| {
            sizes
                .iter()
                .enumerate()
                .map(|(device, bytes)| slice(worker, device, *bytes))
                .collect()
        })
        .collect()
}

fn shard_config(
    settings: &Settings,
    plan: &MemoryPlan,
    index: usize,
    flash: Vec<DeviceSlice>,
) -> ShardConfig {
    ShardConfig {
        memory: plan.shard,
        max_item: settings.max_item,
        flash,
        region: plan.region,
        policy: settings.policy,
        admission: share_of_budget(settings),
        promote_after: settings.promote_after,
        reinsert: settings.reinsert,
        no_evict: settings.no_evict,
        shard: index as u32,
        shards: settings.threads as u32,
        seed: settings.seed.wrapping_add(index as u64),
        hash_seed: settings.hash_seed,
    }
}

/// The write budget is the server's, so each shard has its share of it.
fn share_of_budget(settings: &Settings) -> senko_cache::Admission {
    let mut admission = settings.admission;
    if let Some(budget) = &mut admission.budget {
        budget.bytes_per_second = (budget.bytes_per_second / settings.threads as u64).max(1);
        budget.burst = (budget.burst / settings.threads as u64).max(1);
    }
    admission
}

/// How long an address may still belong to a server that was killed: the kernel closes what its
/// ring held a little later.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);

/// Listens, and tries again for a while if another socket has the address.
fn listen_soon(listen: impl Fn() -> std::io::Result<Listener>) -> std::io::Result<Listener> {
    let start = Instant::now();
    loop {
        match listen() {
            Err(e)
                if e.kind() == std::io::ErrorKind::AddrInUse
                    && start.elapsed() < ADDRESS_PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}
