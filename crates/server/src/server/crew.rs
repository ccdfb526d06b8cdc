// SPDX-License-Identifier: Apache-2.0
//! The workers' threads: either all of them serve, or none.

use std::sync::mpsc;
use std::thread::JoinHandle;

use senko_cache::Recovered;
use senko_io::counted;

use super::Control;
use super::data_dir::Stopped;
use super::plan;
use super::report::ServerError;
use crate::settings::Settings;
use crate::worker::{LoopReport, StartError, Worker, WorkerConfig};

/// A worker's thread, and the state that it left.
pub(super) type Thread = JoinHandle<Result<Vec<Stopped>, String>>;

/// Workers that are ready, or about to be, and wait to be released. Dropping it makes their threads
/// end.
pub(super) struct Crew {
    go: Vec<mpsc::Sender<()>>,
    threads: Vec<Thread>,
    reports: mpsc::Receiver<Result<LoopReport, StartError>>,
}

impl Crew {
    pub fn start(
        configs: impl Iterator<Item = WorkerConfig>,
        control: &Control,
    ) -> Result<Crew, ServerError> {
        let (ready, reports) = mpsc::channel();
        let mut crew = Crew {
            go: Vec::new(),
            threads: Vec::new(),
            reports,
        };
        for config in configs {
            let (go_on, wait) = mpsc::channel();
            let (ready, control) = (ready.clone(), control.clone());
            let thread = std::thread::Builder::new()
                .name(format!("senko-worker{}", config.index))
                .spawn(move || work(config, &ready, &wait, control))
                .map_err(|e| ServerError(format!("cannot start a thread: {e}")))?;
            crew.threads.push(thread);
            crew.go.push(go_on);
        }
        Ok(crew)
    }

    /// Returns when all workers are ready, in their order, or with the first reason why one is not.
    pub fn ready(&self) -> Result<Vec<LoopReport>, Option<StartError>> {
        let mut loops = Vec::new();
        let mut failed = None;
        for report in self.reports.iter().take(self.threads.len()) {
            match report {
                Ok(report) => loops.push(report),
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        if loops.len() < self.threads.len() {
            return Err(failed);
        }
        loops.sort_by_key(|report: &LoopReport| report.index);
        Ok(loops)
    }

    /// Ends the workers. When all have ended, they hold nothing that a next start needs.
    pub fn call_off(self) {
        drop(self.go);
        for thread in self.threads {
            let _ = thread.join();
        }
    }

    pub fn go(self) -> Vec<Thread> {
        for go_on in &self.go {
            // If a worker is gone, joining its thread shows that.
            let _ = go_on.send(());
        }
        self.threads
    }
}

/// Why a worker can't be made, with the memory that would suffice.
pub(super) fn not_made(why: StartError, settings: &Settings, sizes: &[u64]) -> ServerError {
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

/// The restored items of all shards together. Each reason for an empty shard is logged once.
pub(super) fn warm_report(loops: &[LoopReport]) -> Recovered {
    let mut all = Recovered::default();
    let mut shards: Vec<_> = loops.iter().flat_map(|l| &l.recovered).collect();
    shards.sort_by_key(|(shard, _)| *shard);
    for (shard, r) in shards {
        all.flash_items += r.flash_items;
        all.dram_items += r.dram_items;
        all.dropped += r.dropped;
        all.damaged += r.damaged;
        all.lost += r.lost;
        if let Some(why) = &r.why_empty
            && all.why_empty.as_ref() != Some(why)
        {
            tracing::warn!("shard {shard} starts empty: {why}");
            all.why_empty = Some(why.clone());
        }
    }
    if all.damaged > 0 {
        let places = counted(all.damaged, "place");
        tracing::warn!("the saved files are damaged in {places}");
    }
    if all.lost > 0 {
        let items = counted(all.lost, "item");
        tracing::warn!(
            "lost {items} of DRAM, which the stop saved, and of which flash has no copy"
        );
    }
    all
}

pub(super) fn empty_because(why: String) -> Recovered {
    Recovered {
        why_empty: Some(why),
        ..Recovered::default()
    }
}

fn work(
    config: WorkerConfig,
    ready: &mpsc::Sender<Result<LoopReport, StartError>>,
    go: &mpsc::Receiver<()>,
    control: Control,
) -> Result<Vec<Stopped>, String> {
    let worker = match Worker::new(config) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(Vec::new()); // `Bound::start` reports it
        }
    };
    if ready.send(Ok(worker.report())).is_err() || go.recv().is_err() {
        return Ok(Vec::new()); // another worker could not start
    }
    // When this worker ends for any reason, the server ends. A cache that lost a shard would answer
    // misses forever.
    let _guard = EndsAll(control);
    worker.run()
}

struct EndsAll(Control);

impl Drop for EndsAll {
    fn drop(&mut self) {
        if !self.0.draining() {
            self.0.abort();
        }
    }
}
