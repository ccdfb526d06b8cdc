// SPDX-License-Identifier: Apache-2.0
//! A folder for the flash files, swap files and logs of one run.
//!
//! It is on a disk, not in memory, because the experiments measure the disk. The next start removes
//! the files of runs that were killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use senko_io::FileSystem;

use super::cleanup::{self, Guard, PREFIX, Undo};

/// A folder that is removed with its owner.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    _guard: Guard,
}

/// The default folder for large files: the system's temporary folder, or `/var/tmp` if that is in
/// memory.
pub fn default_parent() -> PathBuf {
    let folder = std::env::temp_dir();
    match FileSystem::of(&folder) {
        Ok(system) if system.in_memory => PathBuf::from("/var/tmp"),
        _ => folder,
    }
}

impl Scratch {
    /// Makes the folder in `parent`.
    pub fn new(parent: &Path) -> Result<Scratch> {
        let parent = std::path::absolute(parent)
            .with_context(|| format!("cannot tell where {} is", parent.display()))?;
        let system = FileSystem::of(&parent)
            .with_context(|| format!("there is no folder {} (--scratch)", parent.display()))?;
        if system.in_memory {
            bail!(
                "{} lies in memory; name a folder on the disk to measure with --scratch",
                parent.display()
            );
        }
        Scratch::make(&parent)
    }

    /// Makes a folder in memory, for what is measured without a device.
    pub fn in_memory() -> Result<Scratch> {
        let parent = Path::new("/dev/shm");
        let system = FileSystem::of(parent).context("there is no folder /dev/shm")?;
        ensure!(system.in_memory, "/dev/shm does not lie in memory");
        Scratch::make(parent)
    }

    fn make(parent: &Path) -> Result<Scratch> {
        sweep(parent);
        // In tests, a second folder of this process gets its own name.
        let number = std::process::id();
        let made = (0..100)
            .map(|n| parent.join(format!("{PREFIX}{number}-{n}")))
            .find(|folder| fs::create_dir(folder).is_ok());
        let folder = made
            .with_context(|| format!("cannot make a folder in {} (--scratch)", parent.display()))?;
        let guard = cleanup::later(Undo::RemoveFolder(folder.clone()));
        Ok(Scratch {
            folder,
            _guard: guard,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes sure that there is room for `bytes` more. The files of killed servers are freed a
    /// moment after their processes end.
    pub fn need(&self, bytes: u64) -> Result<()> {
        const SPARE: u64 = 1 << 30;
        const PATIENCE: Duration = Duration::from_secs(2);
        let mut grown = Instant::now();
        let mut free = FileSystem::of(&self.folder)?.free;
        while free < bytes + SPARE && grown.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(50));
            let now = FileSystem::of(&self.folder)?.free;
            if now > free {
                (free, grown) = (now, Instant::now());
            }
        }
        ensure!(
            free >= bytes + SPARE,
            "{} has {:.1} GiB free, and the run needs {:.1}; name another folder with --scratch",
            self.folder.display(),
            free as f64 / (1u64 << 30) as f64,
            (bytes + SPARE) as f64 / (1u64 << 30) as f64
        );
        Ok(())
    }
}

/// Removes the files that ended runs have left.
fn sweep(parent: &Path) {
    for left in cleanup::leftovers(parent) {
        for file in fs::read_dir(&left).into_iter().flatten().flatten() {
            let path = file.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("swap") => drop(cleanup::later(Undo::SwapOff(path))),
                Some("mounted") => drop(cleanup::later(Undo::Unmount(path))),
                _ => {}
            }
        }
        drop(cleanup::later(Undo::RemoveFolder(left)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_owner_and_leftovers_with_the_next() {
        let parent = default_parent().join(format!("senko-scratch-test-{}", std::process::id()));
        fs::create_dir_all(parent.join(format!("{PREFIX}{}-0", u32::MAX - 7))).unwrap();
        if FileSystem::of(&parent).unwrap().in_memory {
            eprintln!("skipped: there is no folder on a disk");
            fs::remove_dir_all(&parent).unwrap();
            return;
        }
        let scratch = Scratch::new(&parent).unwrap();
        assert_eq!(
            fs::read_dir(&parent).unwrap().count(),
            1,
            "the leftover is gone"
        );
        assert!(scratch.folder().is_dir());
        assert!(scratch.need(0).is_ok() || scratch.need(u64::MAX >> 1).is_err());
        assert!(
            scratch
                .need(u64::MAX >> 2)
                .unwrap_err()
                .to_string()
                .contains("--scratch")
        );
        drop(scratch);
        fs::remove_dir(&parent).unwrap();
    }
}
