// SPDX-License-Identifier: Apache-2.0
//! The things that a run has made on the machine and must undo: processes, swap areas, groups,
//! folders.
//!
//! Code that makes something registers its [`Undo`] with [`later`] and keeps the [`Guard`]
//! (`senko_io::undo`). The newest is undone first: a swap file is in use until its server is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use senko_io::undo::{Guard, on_signals, on_signals_tell, wait_if_stopped};
use senko_io::{tell, undo};

use super::{process, sys};

/// A step to execute.
#[derive(Clone, Debug)]
pub enum Undo {
    /// Kill a process and wait until it is gone.
    Kill(u32),
    /// Ask a run in another process to end, and wait until it has undone everything it made.
    Stop(u32),
    /// Take a swap file out of use and remove it.
    SwapOff(PathBuf),
    RemoveGroup(PathBuf),
    RemoveFolder(PathBuf),
    /// Restore a setting of the kernel.
    WriteBack(PathBuf, String),
    /// Remove a file, if it is still there.
    RemoveFile(PathBuf),
    /// Unmount a file system. Processes that still use it lose it when they end.
    Unmount(PathBuf),
}

/// Where servers keep items for their successor with the same data folder.
const SHARED_MEMORY: &str = "/dev/shm";

/// How long to wait for a killed process, or for a group that was just left.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for a run that was asked to end: it may have servers to stop and files to
/// remove.
const STOPPING: Duration = Duration::from_secs(60);

/// Registers `undo`, which is executed when the guard is dropped or a signal stops the run.
pub fn later(undo: Undo) -> Guard {
    undo::later(move || undo.carry_out())
}

impl Undo {
    fn carry_out(self) {
        match self {
            Undo::Kill(pid) => {
                // A server's shared memory, kept for its successor, would outlive it.
                let shared = process::mapped(pid, Path::new(SHARED_MEMORY)).unwrap_or_default();
                sys::signal(pid, libc::SIGKILL);
                wait_until(|| !is_alive(pid));
                for file in shared.iter().filter(|file| is_ours(file)) {
                    drop(fs::remove_file(file));
                }
            }
            Undo::Stop(pid) => {
                sys::signal(pid, libc::SIGTERM);
                let start = Instant::now();
                while is_alive(pid) && start.elapsed() < STOPPING {
                    thread::sleep(Duration::from_millis(20));
                }
                sys::signal(pid, libc::SIGKILL);
            }
            Undo::SwapOff(path) => {
                let off = Command::new("swapoff")
                    .arg(&path)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                if off.is_ok_and(|status| status.success()) || !is_swap(&path) {
                    drop(fs::remove_file(&path));
                } else {
                    tell!(
                        "warning: {} is still in use as swap; run swapoff and remove it",
                        path.display()
                    );
                }
            }
            Undo::Unmount(path) => {
                // Lazily: a run that a signal ends may have open files on it.
                let _ = Command::new("umount")
                    .arg("-l")
                    .arg(&path)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
            Undo::RemoveGroup(path) => {
                wait_until(|| fs::remove_dir(&path).is_ok() || !path.exists())
            }
            Undo::WriteBack(path, was) => drop(fs::write(path, was)),
            Undo::RemoveFile(path) => drop(fs::remove_file(&path)),
            Undo::RemoveFolder(path) => {
                // Under another name nobody adds files to it.
                let mut aside = path.clone().into_os_string();
                aside.push(".removed");
                let path = match fs::rename(&path, &aside) {
                    Ok(()) => PathBuf::from(aside),
                    Err(_) => path,
                };
                if let Err(error) = fs::remove_dir_all(&path)
                    && path.exists()
                {
                    tell!("warning: {} cannot be removed: {error}", path.display());
                }
            }
        }
    }
}

fn wait_until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
}

/// The beginning of the names of folders and groups; the number of the process that made it
/// follows.
pub const PREFIX: &str = "senko-lab-";

/// What runs that were killed have left in a folder: entries named after processes that are gone.
pub fn leftovers(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let pid = path.file_name().and_then(|name| {
            let number = name.to_str()?.strip_prefix(PREFIX)?.split('-').next()?;
            number.parse::<u32>().ok()
        });
        pid.is_some_and(|pid| !is_alive(pid))
    })
}

/// Whether a process runs; one that ended but was not waited for does not count.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat[stat.rfind(')')? + 1..].trim_start().chars().next())
        .is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a file of shared memory is one of senko's.
fn is_ours(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("senko")
}

fn is_swap(path: &std::path::Path) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps
        .lines()
        .any(|line| line.split_whitespace().next() == path.to_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_once() {
        let folder = std::env::temp_dir().join(format!("senko-cleanup-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let guard = later(Undo::RemoveFolder(folder.clone()));
        fs::write(folder.join("file"), "x").unwrap();
        drop(guard);
        assert!(!folder.exists());
        fs::create_dir(&folder).unwrap();
        later(Undo::RemoveFolder(folder.clone())).forget();
        assert!(folder.exists());
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_killed_process_is_not_alive() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(is_alive(child.id()));
        drop(later(Undo::Kill(child.id())));
        assert!(
            !is_alive(child.id()),
            "it is a zombie until waited for, and that is not alive"
        );
        child.wait().unwrap();
    }
}
