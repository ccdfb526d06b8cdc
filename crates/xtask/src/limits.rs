// SPDX-License-Identifier: Apache-2.0
//! Runs programs under an ordinary user's limits, and with io_uring refused, as containers refuse
//! it. Both apply only to the program: no setting of the machine is changed.

#![allow(unsafe_code)] // prctl: the standard library has none

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// The limit of locked memory that Debian gives an ordinary user, in bytes; registered buffers
/// count against it.
const LOCKED_MEMORY: u64 = 8192 << 10;
/// Debian's user and group that own nothing.
const NOBODY: u32 = 65534;

/// The program and arguments that run others as an ordinary user.
pub struct OrdinaryUser {
    wrapper: Vec<String>,
    /// A folder that this user may write.
    pub folder: PathBuf,
}

impl OrdinaryUser {
    /// As root: the user nobody, who must be able to read `tree`. For any other user: that user.
    pub fn new(tree: &Path) -> Result<OrdinaryUser> {
        let folder = std::env::temp_dir().join(format!("senko-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let limit = format!("--memlock={LOCKED_MEMORY}:{LOCKED_MEMORY}");
        let mut wrapper = vec!["prlimit".to_owned(), limit];
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY))
                .with_context(|| format!("cannot give {} away", folder.display()))?;
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
            let become_nobody = [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ]
            .map(str::to_owned);
            let readable = run::succeeds(
                Command::new("setpriv")
                    .args(&become_nobody[1..])
                    .args(["test", "-r"])
                    .arg(tree.join("Cargo.toml")),
            );
            wrapper.extend(become_nobody);
            if !readable {
                // A clone in root's home, for example. This capability only allows reading files;
                // limits stay an ordinary user's.
                tell!(
                    "{} is closed to others: the user nobody may read it for this step",
                    tree.display()
                );
                wrapper.extend(
                    [
                        "--inh-caps=+dac_read_search",
                        "--ambient-caps=+dac_read_search",
                    ]
                    .map(str::to_owned),
                );
            }
        }
        Ok(OrdinaryUser { wrapper, folder })
    }

    /// A command that runs `program`.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.wrapper[0]);
        command
            .args(&self.wrapper[1..])
            .arg(program)
            .env("TMPDIR", &self.folder)
            .env("HOME", &self.folder);
        command
    }
}

impl Drop for OrdinaryUser {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Whether we are root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// A command that runs `program` with io_uring refused: this program again, which confines itself
/// and becomes the other.
pub fn without_io_uring(program: &Path) -> Result<Command> {
    let mut command =
        Command::new(std::env::current_exe().context("cannot find this program's file")?);
    command.arg("refuse-io-uring").arg(program);
    Ok(command)
}

/// Confines this process so that every io_uring call ends in EPERM, then becomes the program that
/// `words` name.
pub fn refuse_io_uring_and_run(words: &[String]) -> Result<bool> {
    let Some((program, args)) = words.split_first() else {
        bail!("refuse-io-uring takes a command")
    };
    refuse_io_uring()?;
    let error = Command::new(program).args(args).exec();
    Err(error).with_context(|| format!("cannot run {program}"))
}

fn refuse_io_uring() -> Result<()> {
    // io_uring_setup, _enter and _register have these numbers on every architecture.
    const FIRST: u32 = 425;
    const LAST: u32 = 427;
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let above = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The system call's number is the first field of what the filter sees.
    let mut filter = [
        op(load_number, 0, 0, 0),
        op(at_least, 0, 2, FIRST),
        op(above, 1, 0, LAST),
        op(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        op(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `program` and the filter that it points to live until the call returns, and the
    // kernel copies them.
    let confined = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            std::ptr::from_ref(&program),
        )
    };
    if promised != 0 || confined != 0 {
        return Err(std::io::Error::last_os_error())
            .context("the kernel took no filter of system calls");
    }
    Ok(())
}
