// SPDX-License-Identifier: Apache-2.0
//! The requests of an experiment to a process with an engine, and the answers: one JSON object a
//! line, one answer for each request.
//!
//! Called by [`super::session`] on one side and [`super::child`] on the other. Always: an answer is
//! [`Answer::Failed`] or the kind that belongs to the request. Between answers the process prints
//! nothing on stdout, except [`Answer::Reached`] while it writes until it is killed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::driver::{Fill, Work, Worked};
use super::limit::DeviceReads;
use super::{ItemShape, Tuning};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Opens an engine; [`Answer::Opened`].
    Open {
        engine: String,
        /// The folder of its files.
        folder: PathBuf,
        tuning: Tuning,
        /// A key number that must exist after opening; the time to open ends when it was read.
        first: Option<u64>,
    },
    /// Puts each key once; [`Answer::Worked`].
    Fill(Fill),
    /// Gets and puts; [`Answer::Worked`].
    Work(Work),
    /// Puts until it is killed, and reports its progress now and then ([`Answer::Reached`]):
    /// version `v` of all keys `0..keys`, ascending, for `v` = 1, 2, ...
    WriteUntilKilled { keys: u64, shape: ItemShape },
    /// Reads the last `back` keys before `reached` of such a writer, and checks that none is older
    /// than was reported; [`Answer::Worked`].
    CheckReached {
        keys: u64,
        shape: ItemShape,
        reached: u64,
        /// The number of puts to check.
        back: u64,
    },
    /// Reads the engine's device without the engine; [`Answer::Worked`].
    DeviceReads(DeviceReads),
    /// Waits until all background work is done; [`Answer::Done`].
    Settle,
    /// Makes all puts durable; [`Answer::Done`].
    Sync,
    /// Asks for the engine's own statistics; [`Answer::Facts`].
    Facts,
    /// Closes the engine cleanly; [`Answer::Done`].
    Close,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It failed, with the reason in a sentence.
    Failed(String),
    /// It is done, after this many seconds.
    Done(f64),
    /// The engine is open.
    Opened(Opened),
    /// The results of the work.
    Worked(Box<Worked>),
    /// This many puts have returned.
    Reached(u64),
    /// The engine's own statistics.
    Facts(Map<String, Value>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Seconds until it was open.
    pub seconds: f64,
    /// Seconds until the first key was read, if one was requested.
    pub first_get_seconds: Option<f64>,
    /// Its version and settings.
    pub description: String,
    /// Whether one thread has many gets under way.
    pub deep_from_one_thread: bool,
    /// The file that the engine reads from.
    pub file: Option<PathBuf>,
    pub fill_ascending: bool,
}
