// SPDX-License-Identifier: Apache-2.0
//! A swap file: paper E's rival is a cache that leaves placement to the kernel. Needs root; always
//! turned off and removed.
//!
//! While it is in use, a fault reads one page (`vm.page-cluster` 0), the usual setting for swap on
//! flash, because neighbouring pages are not needed next.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cleanup::{self, Guard, Undo};
use super::sys::{self, run};

/// Swap in use. Servers that use it must have ended before it is dropped; otherwise their pages
/// must fit into memory first.
#[derive(Debug)]
pub struct SwapFile {
    _guard: Guard,
    _one_page_a_fault: Guard,
}

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";

impl SwapFile {
    /// Makes `path` of `bytes` bytes and takes it into use. Its name ends in `.swap`, by which the
    /// next run recognises a leftover file.
    pub fn new(path: &Path, bytes: u64) -> Result<SwapFile> {
        assert!(
            path.extension()
                .is_some_and(|extension| extension == "swap"),
            "a swap file is named *.swap"
        );
        ensure!(sys::is_root(), "a swap file needs root");
        let guard = cleanup::later(Undo::SwapOff(path.to_owned()));
        // Written, not only reserved: not every file system can swap to a file that was never
        // written.
        run(Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "oflag=direct", "status=none"])
            .arg(format!("count={}", bytes.div_ceil(1 << 20)))
            .arg({
                let mut of = std::ffi::OsString::from("of=");
                of.push(path);
                of
            }))?;
        run(Command::new("chmod").arg("600").arg(path))?;
        run(Command::new("mkswap").arg(path))?;
        run(Command::new("swapon").arg(path))?;
        let failed = || format!("{PAGE_CLUSTER} cannot be set");
        let was = fs::read_to_string(PAGE_CLUSTER).with_context(failed)?;
        let one_page_a_fault = cleanup::later(Undo::WriteBack(PAGE_CLUSTER.into(), was));
        fs::write(PAGE_CLUSTER, "0").with_context(failed)?;
        Ok(SwapFile {
            _guard: guard,
            _one_page_a_fault: one_page_a_fault,
        })
    }
}
