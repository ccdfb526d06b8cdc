// SPDX-License-Identifier: Apache-2.0
//! A server from start to end: bind, open the flash files, divide the memory, run the workers,
//! drain.
//!
//! ```text
//! Server::bind -> Bound::start -> RunningServer::join
//!  sockets         flash files,      every worker has closed its connections
//!  (as root)       workers
//! ```
//!
//! Each worker makes its event loop and its shards on its own thread, because neither may move, and
//! reports back. The server is ready when all have reported. Only then does a worker accept
//! connections. An error in one worker ends the others before any client was served.

mod crew; // the workers' threads: all serve, or none
pub mod data_dir; // the data directory
mod flash; // the flash files, and each shard's part of them
mod keeper; // a thread that may wait for the data directory's disk
pub mod plan; // how the memory is divided
pub(crate) mod report; // reports of a start and of a stop
mod sockets; // the listening sockets, opened here or by a service manager
mod security; // password files, and warnings about who may reach the server

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_cache::{DeviceSlice, Recovered, ShardConfig};
use senko_io::Unfinished;
use senko_io::trace::{MAGIC, Recorder};
use senko_io::{Backend, FlashFile, Listener, PAGE_SIZE, SocketFile, counted};

use crate::admin::Admin;
use crate::auth::Auth;
use crate::clock::Clock;
use crate::connection::Newcomer;
use crate::ctl;
use crate::filler;
use crate::operator::OperatorThread;
use crate::route::Mesh;
use crate::settings::{FlashSpec, Settings, Terms};
use crate::shards::Deal;
use crate::shared::{ConnEntry, Shared, Shutdown};
use crate::tls::Tls;
use crate::tuning::Tuning;
use crate::worker::{Door, LoopReport, WorkerConfig};
use crew::Crew;
use data_dir::{DataDir, NewFolder};
use flash::{open_flash, slices};
use keeper::Keeper;
use plan::{LABEL_PAGES, MemoryPlan, memory_plan};
pub use report::{DoorReport, FlashReport, ServerError, StartReport, StopReport};
use sockets::{listen, listen_for_admin};

pub struct Server;

impl Server {
    /// Binds and starts in one step.
    ///
    /// # Errors
    /// One sentence about the problem with the settings or the machine.
    pub fn start(settings: Settings) -> Result<RunningServer, ServerError> {
        Server::bind(settings)?.start()
    }

    /// Checks the settings and binds the sockets. Clients that connect wait until [`Bound::start`].
    pub fn bind(settings: Settings) -> Result<Bound, ServerError> {
        check(&settings)?;
        let auth = security::open(&settings)?;
        let tls = security::certificate(&settings)?;
        // Check the sizes that are known now, before a file of gigabytes is made.
        let sizes: Vec<u64> = settings
            .flash
            .iter()
            .map(|f| if f.bytes == 0 { 1 << 40 } else { f.bytes })
            .collect();
        memory_plan(&settings, &sizes).map_err(ServerError)?;
        let listeners = listen(&settings)?;
        let admin = listen_for_admin(&settings)?;
        let ctl = sockets::listen_for_ctl(&settings)?;
        Ok(Bound {
            settings,
            auth,
            tls,
            listeners,
            admin,
            ctl,
        })
    }
}

#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    auth: Auth,
    tls: Option<Tls>,
    listeners: Vec<Listening>,
    admin: Option<(Listener, SocketAddr)>,
    ctl: Option<Listener>,
}

#[derive(Clone, Debug)]
struct Listening {
    listener: Listener,
    address: Option<SocketAddr>,
    /// The socket as `stats conns` shows it.
    name: Arc<str>,
    terms: Terms,
}

impl Listening {
    fn door(&self) -> Door {
        Door {
            listener: self.listener.clone(),
            name: Arc::clone(&self.name),
            terms: self.terms,
        }
    }
}

impl Bound {
    /// The bound TCP addresses, with the ports that the kernel chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|l| l.address).collect()
    }

    /// Opens flash and starts the workers; returns when all of them serve.
    pub fn start(self) -> Result<RunningServer, ServerError> {
        let addresses = self.addresses();
        let Bound {
            mut settings,
            auth,
            tls,
            listeners,
            admin,
            ctl,
        } = self;
        let admin_address = admin.as_ref().map(|(_, address)| *address);
        // Started first, so that it can report that the server is starting.
        let admin = admin.map(|(l, _)| Admin::start(l, &settings.admin_hosts));
        let admin = admin.transpose()?;
        // Flash files may lie in it.
        let made = settings.data_dir.as_deref().map(NewFolder::make);
        let _made = made.transpose()?;
        let (unfinished, recorder) = begin_recording(&settings)?;
        let (files, untouched) = open_flash(&settings, recorder.as_ref())?;
        let data_dir = open_data_dir(&settings, &files)?;
        let (plan, sizes) = settle(&mut settings, data_dir.as_deref(), &files)?;
        let deal = Deal::new(plan.shards, settings.threads);
        let shared = Arc::new(
            share(&settings, deal, data_dir.as_deref())
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
            files: (listeners.iter().map(|l| &l.listener).chain(&ctl))
                .filter_map(Listener::file)
                .collect(),
        };
        let shards: Vec<ShardConfig> = slices(&plan, &sizes)
            .into_iter()
            .enumerate()
            .map(|(shard, slices)| shard_config(&settings, &plan, shard, slices))
            .collect();
        let configs = (0..settings.threads).map(|index| WorkerConfig {
            index,
            loop_config: plan.loop_config.clone(),
            pending: plan.pending,
            shards: deal.of(index).map(|shard| shards[shard].clone()).collect(),
            like: shards[0].clone(),
            files: files.clone(),
            data_dir: data_dir.clone(),
            // One worker accepts for all. It sees every connection, so limit and distribution
            // need no agreement between workers.
            doors: if index == 0 {
                listeners.iter().map(Listening::door).collect()
            } else {
                Vec::new()
            },
            shared: Arc::clone(&shared),
            mesh: Arc::clone(&mesh),
        });
        let crew = Crew::start(configs, &control)?;
        let loops = match crew.ready() {
            Ok(loops) => loops,
            Err(why) => {
                crew.call_off();
                return Err(match why {
                    Some(why) => crew::not_made(why, &settings, &sizes),
                    None => ServerError("a worker thread ended before it was ready".into()),
                });
            }
        };
        let begun = match &data_dir {
            Some(data_dir) => data_dir.begin(if files.is_empty() { 0 } else { plan.region }),
            None => data_dir::label_as_free(&files),
        };
        if let Err(error) = begun {
            crew.call_off();
            return Err(error);
        }
        untouched.settle();
        let mut warm = data_dir.as_ref().map(|_| crew::warm_report(&loops));
        if let Some(why) = (data_dir.as_ref()).and_then(|data_dir| data_dir.too_late(&settings)) {
            tracing::warn!("the start took too long, and begins empty: {why}");
            shared.flush();
            warm = Some(crew::empty_because(why));
        }
        let threads = crew.go();
        let report = StartReport {
            addresses,
            doors: sockets::reports(&settings, &listeners),
            admin: admin_address,
            warm,
            ..start_report(&settings, &plan, &files, &loops[0])
        };
        let keeper = data_dir.map(Keeper::start).transpose()?;
        let brings = Arc::clone(&mesh);
        let bring = move |stream, fill| brings.bring(Newcomer::of_fill(stream, fill));
        shared.fill.serve(Box::new(bring));
        if let Some((peer, how)) = &settings.fill_from {
            begin_fill(&shared, peer, how, report.warm.as_ref());
        }
        if let Some(admin) = &admin {
            admin.serving(Arc::clone(&shared), report.clone());
        }
        let ctl = ctl.map(|listener| {
            let (control, asked) = (control.clone(), settings.on_drained);
            let stop = move || asked.map_or_else(|| control.shutdown(), |ask| ask());
            ctl::start(listener, shared, Box::new(stop))
        });
        security::warn(&settings, &listeners, &control.shared);
        Ok(RunningServer {
            admin,
            ctl: ctl.transpose()?,
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

/// Begins the fill that the settings ask for, unless the cache came back with items: a key that was
/// deleted before may be there at the peer.
fn begin_fill(shared: &Arc<Shared>, peer: &str, how: &str, warm: Option<&Recovered>) {
    let back = warm.map_or(0, |warm| warm.flash_items + warm.dram_items);
    if back > 0 {
        tracing::warn!(
            "--fill-from {peer} is left out: the cache came back with {}; senko ctl fill fills it all \
             the same",
            counted(back, "item")
        );
    } else if let Err(why) = filler::begin(shared, peer, how) {
        tracing::warn!("--fill-from {peer}: {why}");
    }
}

/// Starts the recording, if the settings ask for one. The file gets its name when it is complete,
/// so that a truncated file does not look complete.
#[allow(clippy::type_complexity)]
fn begin_recording(
    settings: &Settings,
) -> Result<(Option<Unfinished>, Option<Arc<Recorder>>), ServerError> {
    let Some(path) = &settings.trace else {
        return Ok((None, None));
    };
    let unfinished = Unfinished::restarting(path, &MAGIC)?;
    let recorder = Recorder::create(unfinished.draft())?;
    Ok((Some(unfinished), Some(Arc::new(recorder))))
}

/// Opens the data directory. Without a data directory, flash files that belong to one are refused.
fn open_data_dir(
    settings: &Settings,
    files: &[Arc<FlashFile>],
) -> Result<Option<Arc<DataDir>>, ServerError> {
    match &settings.data_dir {
        Some(dir) => {
            let settings = Settings {
                shards: Some(plan::shards(settings, &usable(files))),
                ..settings.clone()
            };
            Ok(Some(Arc::new(DataDir::open(dir, &settings, files)?)))
        }
        None => {
            if !settings.reinit {
                data_dir::check_unlabelled(files, None, settings)?;
            }
            Ok(None)
        }
    }
}

/// The bytes of each file that items can use.
fn usable(files: &[Arc<FlashFile>]) -> Vec<u64> {
    let pages = files.iter().map(|f| f.pages().saturating_sub(LABEL_PAGES));
    pages.map(|pages| pages * PAGE_SIZE as u64).collect()
}

/// Decides what the settings leave open, and divides the memory. Also returns the bytes of each
/// file that items can use.
fn settle(
    settings: &mut Settings,
    data_dir: Option<&DataDir>,
    files: &[Arc<FlashFile>],
) -> Result<(MemoryPlan, Vec<u64>), ServerError> {
    let sizes = usable(files);
    if let Some(data_dir) = data_dir {
        settings.region = data_dir.region().or(settings.region);
        settings.shards = Some(data_dir.shards());
    }
    settings.hash_seed = match data_dir {
        Some(data_dir) => data_dir.hash_seed(),
        None => data_dir::hash_seed(settings),
    };
    let plan = memory_plan(settings, &sizes).map_err(ServerError)?;
    if let Some(data_dir) = data_dir {
        data_dir.check_room((plan.shard * plan.shards) as u64)?;
    }
    if !files.is_empty() {
        settings.region = Some(plan.region);
    }
    settings.shards = Some(plan.shards);
    settings.max_item = plan.max_item;
    if settings.seed == 0 {
        settings.seed = data_dir::random();
    }
    Ok((plan, sizes))
}

/// The running server, except for its sockets and restored items.
fn start_report(
    settings: &Settings,
    plan: &MemoryPlan,
    files: &[Arc<FlashFile>],
    first: &LoopReport,
) -> StartReport {
    StartReport {
        unix_socket: settings.unix_socket.clone(),
        threads: settings.threads,
        shards: plan.shards,
        backend: match first.backend {
            Backend::Uring => "io_uring",
            Backend::Posix => "posix",
        },
        fallback_reason: first.fallback.clone(),
        memory: plan.total,
        shard_memory: (plan.shard * plan.shards) as u64,
        region: match files.is_empty() {
            true => 0,
            false => plan.region as u64,
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
        ..StartReport::default()
    }
}

/// Stops a server, from any thread.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
    mesh: Arc<Mesh>,
    /// Names of Unix sockets.
    files: Arc<[SocketFile]>,
}

impl Control {
    /// Stops accepting, answers every request that was received, closes the connections, and ends.
    pub fn shutdown(&self) {
        if self.shared.shutdown() == Shutdown::No {
            self.shared.request_shutdown(Shutdown::Graceful);
        }
        self.mesh.wake_all();
    }

    /// Closes all connections and ends, even with unanswered requests.
    pub fn abort(&self) {
        self.shared.request_shutdown(Shutdown::Now);
        self.mesh.wake_all();
    }

    /// Removes the names of Unix sockets, for a process that ends without [`RunningServer::join`].
    pub fn remove_socket_files(&self) {
        self.files.iter().for_each(SocketFile::remove);
    }

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

/// A running server. If it is dropped without [`RunningServer::join`], its threads run until
/// [`Control::shutdown`].
#[derive(Debug)]
pub struct RunningServer {
    control: Control,
    keeper: Option<Keeper>,
    threads: Vec<crew::Thread>,
    report: StartReport,
    recorder: Option<Arc<Recorder>>,
    /// Gives the recording its name when it is complete.
    unfinished: Option<Unfinished>,
    listeners: Vec<Listening>,
    /// Reports until the end that the server drains.
    admin: Option<Admin>,
    ctl: Option<OperatorThread>,
}

impl RunningServer {
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// The port of the first bound TCP address.
    pub fn local_port(&self) -> Option<u16> {
        self.listeners.iter().find_map(|l| l.listener.local_port())
    }

    /// A handle to stop the server from elsewhere.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// As [`Control::shutdown`].
    pub fn shutdown(&self) {
        self.control.shutdown();
    }

    /// Waits for the end: a shutdown, or a failure of a worker.
    pub fn join(self) -> Result<StopReport, ServerError> {
        let mut failed = None;
        let keeps = self.keeper.is_some();
        let mut stopped = Vec::new();
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(saved)) => stopped.extend(saved),
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
        drop((self.admin, self.ctl));
        let kept = StopReport {
            keeps,
            flash_items: stopped.iter().map(|s| s.flash_items).sum(),
            dram_items: stopped.iter().map(|s| s.dram_items).sum(),
        };
        failed.map_or(Ok(kept), |error| Err(ServerError(error)))
    }
}

/// The state that workers share, restored from the data directory if there is one.
fn share(settings: &Settings, deal: Deal, data_dir: Option<&DataDir>) -> Shared {
    let second = data_dir.map_or(0, DataDir::second);
    let clock = settings.clock.as_deref();
    let ahead = Clock::ahead(clock, second);
    if clock.is_none() && ahead > 1 {
        tracing::warn!(
            "the system's clock is {ahead} s behind the last second of the previous server: time continues from there"
        );
    }
    let started = (Clock::start(settings.clock.clone(), second).now_ms() / 1000) as u32;
    let shared = Shared::new(settings.clone(), deal, started);
    match data_dir {
        Some(data_dir) => shared.going_on(Arc::clone(data_dir.words()), second),
        None => shared,
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
    if let Some(trace) = &settings.trace {
        // Neither needs to exist yet, so the paths where they would be are compared.
        let place =
            |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let same = |file: &FlashSpec| place(&file.path).ok() == place(trace).ok();
        if settings.flash.iter().any(same) {
            return wrong("--trace and --flash name the same file");
        }
    }
    Ok(())
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
        admission: Tuning::of(settings).now().share(plan.shards),
        promote_after: settings.promote_after,
        sort_small: settings.sort_small,
        upload_over: settings.stream_over,
        upload_bytes: plan.upload_bytes,
        reinsert: settings.reinsert,
        no_evict: settings.no_evict,
        shard: index as u32,
        shards: plan.shards as u32,
        seed: settings.seed.wrapping_add(index as u64),
        hash_seed: settings.hash_seed,
    }
}

/// How long an address may still belong to a killed server: the kernel closes its ring's sockets a
/// little later.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);

/// Listens. If another socket has the address, it tries again for a while.
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
