// SPDX-License-Identifier: Apache-2.0
//! The flash files, and each shard's part of them.

use std::path::PathBuf;
use std::sync::Arc;

use senko_cache::{DeviceLabel, DeviceSlice};
use senko_io::trace::Recorder;
use senko_io::{FileOptions, FlashFile, PAGE_SIZE};

use super::data_dir;
use super::plan::{LABEL_PAGES, MemoryPlan};
use super::report::ServerError;
use crate::settings::Settings;

/// Opens or makes the flash files, in the order of the settings.
pub(super) fn open_flash(
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
            private: true,
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
                "{error}: name another file, or start over with {}, which discards its contents",
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

/// Flash files, each with its bytes before this start, if it existed. If a start fails, it restores
/// these sizes, so that a wrong path or size does not cost gigabytes.
pub(super) struct Untouched(Vec<(PathBuf, Option<u64>)>);

impl Untouched {
    /// Notes that the start succeeded.
    pub fn settle(mut self) {
        self.0.clear();
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            // The refusal is reported. If the clean-up fails too, it costs only space.
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

/// Each shard's part of each file: the same number of whole regions, side by side, after the
/// label.
pub(super) fn slices(plan: &MemoryPlan, sizes: &[u64]) -> Vec<Vec<DeviceSlice>> {
    let region_pages = (plan.region / PAGE_SIZE) as u64;
    let slice = |shard: usize, device: usize, bytes: u64| {
        let pages = bytes / PAGE_SIZE as u64 / plan.shards as u64 / region_pages * region_pages;
        DeviceSlice {
            device: device as u16,
            first_page: LABEL_PAGES + shard as u64 * pages,
            pages,
        }
    };
    (0..plan.shards)
        .map(|shard| {
            sizes
                .iter()
                .enumerate()
                .map(|(device, bytes)| slice(shard, device, *bytes))
                .collect()
        })
        .collect()
}
