// SPDX-License-Identifier: Apache-2.0
//! Checks that settings, data directory and flash files belong together, and refuses a mismatch in
//! one sentence.

use std::path::Path;
use std::sync::Arc;

use senko_cache::{DeviceLabel, Superblock, SuperblockError};
use senko_io::{FlashFile, PAGE_SIZE, counted, exact_size};

use crate::server::ServerError;
use crate::settings::Settings;

/// Checks that the directory belongs to these flash files and regions.
pub(super) fn check_block(
    dir: &Path,
    block: &Superblock,
    settings: &Settings,
    files: &[Arc<FlashFile>],
) -> Result<(), ServerError> {
    let dir = dir.display();
    if block.devices.len() != files.len() {
        return Err(ServerError(format!(
            "the data in {dir} is of {}, not of {}: name the same, or start over with --reinit",
            counted(block.devices.len(), "flash file"),
            files.len()
        )));
    }
    for (&pages, file) in block.devices.iter().zip(files) {
        if pages != file.pages() {
            return Err(ServerError(format!(
                "the data in {dir} is of {} of {}, {} are given: give as many, or start over with --reinit",
                exact_size(pages * PAGE_SIZE as u64),
                file.path().display(),
                exact_size(file.pages() * PAGE_SIZE as u64)
            )));
        }
    }
    match settings.region {
        Some(region) if block.region != 0 && region as u64 != block.region => {
            Err(ServerError(format!(
                "the data in {dir} is in regions of {}, not of {}: leave out --region, or start over with --reinit",
                exact_size(block.region),
                exact_size(region as u64)
            )))
        }
        _ => Ok(()),
    }
}

/// Checks that each flash file is the one that the directory was last used with, and not an older
/// copy.
pub(super) fn check_labels(
    dir: &Path,
    block: &Superblock,
    files: &[Arc<FlashFile>],
) -> Result<(), ServerError> {
    for (number, file) in files.iter().enumerate() {
        let why = match DeviceLabel::read(&**file) {
            // A start that was killed before it served may have written some labels.
            Ok(label)
                if (label.id, label.number) == (block.id, number as u32)
                    && [block.opened, block.opening].contains(&label.opened) =>
            {
                continue;
            }
            Ok(label) if label.id == 0 => "it was last used without a data directory".to_owned(),
            Ok(label) if label.id != block.id => "it is another directory's".to_owned(),
            Ok(label) if label.number != number as u32 => {
                "the order of the files is another".to_owned()
            }
            Ok(label) if label.opened > block.opened => "the directory is an older copy".to_owned(),
            Ok(_) => "it is an older copy".to_owned(),
            Err(error) => format!("its label {error}"),
        };
        return Err(ServerError(format!(
            "{} is not the flash file that {} was last used with: {why}; name the right one with --flash, or start over with --reinit",
            file.path().display(),
            dir.display()
        )));
    }
    Ok(())
}

/// Checks that each flash file is complete. Opening it has made it as long as it was before.
pub(super) fn check_whole(
    dir: &Path,
    block: &Superblock,
    files: &[Arc<FlashFile>],
) -> Result<(), ServerError> {
    let cut = |(pages, file): &(&u64, &Arc<FlashFile>)| file.found_pages() < **pages;
    match block.devices.iter().zip(files).find(cut) {
        None => Ok(()),
        Some((pages, file)) => Err(ServerError(format!(
            "{} has {}, and the data in {} is of {}: it was cut off; bring it back, or start over with --reinit",
            file.path().display(),
            exact_size(file.found_pages() * PAGE_SIZE as u64),
            dir.display(),
            exact_size(pages * PAGE_SIZE as u64)
        ))),
    }
}

/// The option by which a user allows a start to erase existing data.
pub fn reinit_option(settings: &Settings) -> &'static str {
    if settings.drop_in {
        "`reinit = true` in the file of -o senko_config"
    } else {
        "--reinit"
    }
}

/// Checks that no flash file belongs to another directory than the one with this number.
pub fn check_unlabelled(
    files: &[Arc<FlashFile>],
    ours: Option<u64>,
    settings: &Settings,
) -> Result<(), ServerError> {
    let reinit = reinit_option(settings);
    for file in files {
        let why = match DeviceLabel::read(&**file) {
            // The file belongs to no directory, or to this one.
            Ok(label) if label.id == 0 || Some(label.id) == ours => continue,
            // The file belongs to another directory, or to this one when it was to start over and
            // failed.
            Ok(_) if ours.is_some() => "is not of the given data directory, or that has lost its super.senko: give the right one, or".to_owned(),
            Ok(_) => "belongs to a data directory that is not given: give that one, or".to_owned(),
            Err(error @ (SuperblockError::Version { .. } | SuperblockError::Io(_))) => {
                format!("has a label that {error}:")
            }
            Err(_) => continue,
        };
        return Err(ServerError(format!(
            "{} {why} start over with {reinit}",
            file.path().display()
        )));
    }
    Ok(())
}

/// Labels flash files as those of a server without a data directory, so that the next start knows
/// them.
pub fn label_as_free(files: &[Arc<FlashFile>]) -> Result<(), ServerError> {
    for (number, file) in files.iter().enumerate() {
        let label = DeviceLabel {
            id: 0,
            number: number as u32,
            pages: file.pages(),
            opened: 0,
        };
        label
            .write(&**file)
            .map_err(|e| ServerError(format!("the label of {} {e}", file.path().display())))?;
    }
    Ok(())
}
