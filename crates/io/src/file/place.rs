// SPDX-License-Identifier: Apache-2.0
//! Names in `/dev` that are no device. A file that is made there lies in memory, although its name
//! says that it is a disk: a drive that is missing after a boot would cost DRAM. Called before a
//! file is made or opened for writing.

use std::fs::metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::folder_of;

/// The folder of devices.
const DEVICES: &str = "/dev";
/// The folder in it that is meant for files in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// Links that lead to one another, at most: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where the links of a name lead to, also if there is nothing yet.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(to) = std::fs::read_link(&path) else {
            break;
        };
        path = folder_of(&path).join(to);
    }
    match (std::fs::canonicalize(folder_of(&path)), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => std::path::absolute(&path).unwrap_or(path),
    }
}

/// Checks a name at which a file or folder may be made. A file system that is mounted below `/dev`,
/// such as `/dev/shm`, is a place like any other.
///
/// # Errors
/// One sentence, if the name is in `/dev`, and nothing or a regular file is there.
pub fn refuse_file_in_dev(path: &Path) -> io::Result<()> {
    let (end, found) = (end_of_links(path), metadata(path).ok());
    if !end.starts_with(DEVICES) || end.starts_with(SHARED_MEMORY) {
        return Ok(());
    }
    let device = |path: &Path| metadata(path).map(|meta| meta.dev()).ok();
    // Folders on the way that are missing would be made in the last one that exists.
    let mut folder = end.ancestors().skip(1);
    if folder.find_map(device) != device(Path::new(DEVICES)) {
        return Ok(());
    }
    let name = path.display();
    match found {
        Some(found) if !found.is_file() => Ok(()),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{name} is no device: it is a file, which lies in memory as all files in {DEVICES} \
                 do; remove it"
            ),
        )),
        None => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "there is no device {name}; no file is made there, because files in {DEVICES} lie \
                 in memory"
            ),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{FileOptions, FlashFile, Output, Unfinished};

    /// `--flash /dev/nvme9n1:64m` on a machine without that drive made a file of that name in
    /// memory, and the server used it. So did a store, a database and a measurement.
    #[test]
    fn a_device_that_is_missing_is_not_made() {
        let folder = std::env::temp_dir().join(format!("senko-place-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let name = format!("/dev/senko-none-{}", std::process::id());
        let link = folder.join("link");
        std::os::unix::fs::symlink(&name, &link).unwrap();
        let around = PathBuf::from(format!("/dev/../dev/{}", &name[5..]));
        for path in [Path::new(&name), &link, &around] {
            let options = FileOptions {
                bytes: 1 << 20,
                ..FileOptions::default()
            };
            for told in [
                FlashFile::open(path, &options).map(drop),
                Output::check(path, &[]),
                Unfinished::create(&around).map(drop),
            ] {
                let told = told.unwrap_err().to_string();
                assert!(told.contains("there is no device"), "{told}");
            }
            assert!(!Path::new(&name).exists());
        }
        let below = Path::new(&name).join("data/file");
        assert!(refuse_file_in_dev(&below).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        // Devices, and folders that are not of devices.
        assert!(refuse_file_in_dev(Path::new("/dev/null")).is_ok());
        assert!(refuse_file_in_dev(Path::new("/dev/shm/senko")).is_ok());
        assert!(refuse_file_in_dev(&std::env::temp_dir().join("dev")).is_ok());
    }
}
