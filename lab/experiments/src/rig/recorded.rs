// SPDX-License-Identifier: Apache-2.0
//! A disk whose requests are recorded: a file system on a loop device, and the kernel's trace of
//! what reaches that device. Root only.
//!
//! Every engine is recorded in the same way, whatever calls it makes. Requests of page cache and
//! file system are recorded too: journal, metadata and discards.
//!
//! ```text
//! engine -> ext4 (discard) -> loop device -> image in the scratch folder
//!                                 |
//!                  block_rq_issue of a trace instance -> a file of text -> requests
//! ```
//!
//! Always: the instance records only this device, and does not change the machine's other traces.
//! Mount, instance and image are removed with the value, also when a signal ends the run. A trace
//! that lost events is an error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use senko_ssd::{Op, Request};

use super::cleanup::{self, Guard, PREFIX, Undo};
use super::sys::{self, run};

/// Bytes of a sector in the kernel's counts.
const SECTOR: u64 = 512;
/// KiB of the trace's buffer for each core.
const BUFFER_KIB: &str = "16384";
/// The event that is recorded: a request goes to the device.
const EVENT: &str = "block_rq_issue";
/// A mark that ends the recording.
const END: &str = "senko-recorded-all";
/// How long to wait for the end of a recording.
const PATIENCE: Duration = Duration::from_secs(60);
/// The mount point of the kernel's traces, if they are mounted.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A mounted file system on a device that is recorded.
#[derive(Debug)]
pub struct RecordedDisk {
    folder: PathBuf,
    instance: PathBuf,
    text: PathBuf,
    reader: Child,
    // Undone in this order: the reader of the trace, the instance, the mounts, the files. A reader
    // that still runs would keep the instance.
    reader_guard: Option<Guard>,
    _instance: Guard,
    _mount: Guard,
    _tracing: Option<Guard>,
    _files: [Guard; 2],
}

/// The kernel's traces, mounted in `scratch` if they are not mounted elsewhere.
fn tracing(scratch: &Path) -> Result<(PathBuf, Option<Guard>)> {
    for known in TRACING {
        if Path::new(known).join("instances").is_dir() {
            return Ok((known.into(), None));
        }
    }
    // The next run recognises a leftover mount by this name.
    let folder = scratch.join("tracing.mounted");
    fs::create_dir_all(&folder)?;
    run(Command::new("mount")
        .args(["-t", "tracefs", "nodev"])
        .arg(&folder))
    .context("the kernel's traces (tracefs) are not available")?;
    let guard = cleanup::later(Undo::Unmount(folder.clone()));
    Ok((folder, Some(guard)))
}

impl RecordedDisk {
    /// Makes a disk of `bytes` bytes with an empty file system, in files of the scratch folder that
    /// begin with `name`. Recording begins at once.
    /// It needs root, a loop device and the kernel's traces.
    pub fn new(scratch: &Path, name: &str, bytes: u64) -> Result<RecordedDisk> {
        ensure!(
            sys::is_root(),
            "recording at the device needs root: a loop device and the kernel's traces of it"
        );
        let image = scratch.join(format!("{name}.image"));
        let text = scratch.join(format!("{name}.requests"));
        let files =
            [image.clone(), text.clone()].map(|file| cleanup::later(Undo::RemoveFile(file)));
        File::create(&image)?.set_len(bytes)?;
        // Pages of 4 KiB, as on flash; small disks would get smaller ones.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-b", "4096"])
            .arg(&image))?;
        let folder = scratch.join(format!("{name}.mounted"));
        fs::create_dir_all(&folder)?;
        // The loop device is removed with the mount.
        run(Command::new("mount")
            .args(["-o", "loop,discard,noatime"])
            .args([&image, &folder]))
        .context("no loop device can be mounted")?;
        let mount = cleanup::later(Undo::Unmount(folder.clone()));
        let (tracing, tracing_guard) = tracing(scratch)?;
        for left in cleanup::leftovers(&tracing.join("instances")) {
            let _ = fs::remove_dir(left);
        }
        let instance = tracing
            .join("instances")
            .join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&instance)
            .with_context(|| format!("{} cannot be made", instance.display()))?;
        let instance_guard = cleanup::later(Undo::RemoveGroup(instance.clone()));
        let device = fs::metadata(&folder)?.dev();
        let event = instance.join("events/block").join(EVENT);
        let set = |file: PathBuf, value: &str| {
            fs::write(&file, value).with_context(|| format!("{} cannot be set", file.display()))
        };
        set(instance.join("buffer_size_kb"), BUFFER_KIB)?;
        // The kernel's own form of a device number: 12 bits and 20.
        let number = u64::from(libc::major(device)) << 20 | u64::from(libc::minor(device));
        set(event.join("filter"), &format!("dev == {number}"))?;
        set(event.join("enable"), "1")?;
        // A separate process reads the trace while it grows, because the kernel's buffer is small.
        // An instance that is being read cannot be removed.
        let mut reader = Command::new("cat");
        reader
            .arg(instance.join("trace_pipe"))
            .stdin(Stdio::null())
            .stdout(File::create(&text)?);
        sys::prepare(&mut reader, &sys::cores()?, Vec::new());
        let reader = reader.spawn().context("cat cannot be run")?;
        let reader_guard = Some(cleanup::later(Undo::Kill(reader.id())));
        Ok(RecordedDisk {
            folder,
            instance,
            text,
            reader,
            reader_guard,
            _instance: instance_guard,
            _mount: mount,
            _tracing: tracing_guard,
            _files: files,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes back the page cache, ends the recording, and returns its requests in order.
    /// Lost events are an error.
    pub fn finish(self) -> Result<Vec<Request>> {
        run(Command::new("sync").arg("-f").arg(&self.folder))?;
        let event = self.instance.join("events/block").join(EVENT);
        fs::write(event.join("enable"), "0")?;
        fs::write(self.instance.join("trace_marker"), END)?;
        let start = Instant::now();
        // The mark is in the text as soon as everything before it is.
        while !self.is_whole()? {
            ensure!(start.elapsed() < PATIENCE, "the kernel's trace has no end");
            thread::sleep(Duration::from_millis(20));
        }
        requests(BufReader::new(File::open(&self.text)?))
    }

    /// Whether the mark is at the end of the text.
    fn is_whole(&self) -> Result<bool> {
        use std::os::unix::fs::FileExt;
        let file = File::open(&self.text)?;
        let length = file.metadata()?.len();
        let mut tail = vec![0; length.min(512) as usize];
        let from = length - tail.len() as u64;
        file.read_exact_at(&mut tail, from)?;
        Ok(String::from_utf8_lossy(&tail).contains(END))
    }
}

impl Drop for RecordedDisk {
    fn drop(&mut self) {
        let _ = self.reader.kill();
        if let Some(guard) = self.reader_guard.take() {
            guard.forget();
        }
        // Only its parent can reap it.
        let _ = self.reader.wait();
    }
}

/// The requests in a trace's text. Lines of other events are skipped.
fn requests(text: impl BufRead) -> Result<Vec<Request>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.context("the kernel's trace is not text")?;
        ensure!(
            !line.contains("LOST"),
            "the kernel's trace lost events ({}); the disk's requests are not all known",
            line.trim()
        );
        let Some((_, event)) = line.split_once("block_rq_issue: ") else {
            continue;
        };
        found.extend(request(event).with_context(|| format!("not understood: {event}"))?);
    }
    Ok(found)
}

/// One event: `7,0 WS 1310720 () 32770 + 2560 be,0,4 [name]`. `None` if it is not a request for
/// data.
fn request(event: &str) -> Result<Option<Request>> {
    let mut words = event.split_whitespace();
    let kind = words.nth(1).context("it has no kind")?;
    let sectors: Vec<&str> = words
        .skip_while(|word| !word.ends_with(')'))
        .skip(1)
        .collect();
    let (sector, count): (u64, u64) = match sectors[..] {
        [sector, "+", count, ..] => (sector.parse()?, count.parse()?),
        _ => bail!("it has no sectors"),
    };
    // A letter for the operation, followed by letters that qualify it. A flush may precede a write.
    let op = if kind.contains('D') {
        Op::Trim
    } else if kind.contains('W') {
        Op::Write
    } else if kind.starts_with('F') {
        return Ok(Some(Request::flush(0)));
    } else if kind.starts_with('R') {
        Op::Read
    } else {
        return Ok(None);
    };
    Ok((count > 0).then_some(Request {
        time: 0,
        device: 0,
        op,
        offset: sector * SECTOR,
        bytes: count * SECTOR,
        stream: 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_requests() {
        let text = "\
# tracer: nop
           mkfs-1 [001] .....  1.1: block_rq_issue: 7,0 RAM 2048 () 520 + 4 be,0,4 [a name]
           dd-12 [001] .....  1.2: block_rq_issue: 7,0 WS 1310720 () 32768 + 2560 be,0,4 [dd]
           kworker/0:1H-44 [000] .....  1.3: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [k]
           kworker/0:1H-44 [000] .....  1.3: block_rq_issue: 7,0 FWS 4096 () 8 + 8 none,0,0 [k]
           kworker/0:1H-44 [000] .....  1.4: block_rq_issue: 7,0 D 8388608 () 32768 + 16384 be,0,4 [k]
           x-1 [000] .....  1.5: tracing_mark_write: senko-recorded-all
";
        let found = requests(text.as_bytes()).unwrap();
        let short: Vec<_> = found.iter().map(|r| (r.op, r.offset, r.bytes)).collect();
        assert_eq!(
            short,
            [
                (Op::Read, 520 * 512, 2048),
                (Op::Write, 16 << 20, 1_310_720),
                (Op::Flush, 0, 0),
                (Op::Write, 4096, 4096),
                (Op::Trim, 16 << 20, 8 << 20),
            ]
        );
        let lost = requests("CPU:0 [LOST 12 EVENTS]\n".as_bytes()).unwrap_err();
        assert!(lost.to_string().contains("LOST 12"), "{lost}");
        assert!(requests("x: block_rq_issue: 7,0 W\n".as_bytes()).is_err());
    }

    /// The recording has everything that a program writes and syncs, and nothing of the disk is
    /// left afterwards.
    #[test]
    fn a_disk_records_what_is_written_to_it() {
        let scratch = crate::rig::scratch::Scratch::new(&crate::rig::scratch::default_parent());
        let Ok(scratch) = scratch else {
            eprintln!("skipped: no folder on a disk");
            return;
        };
        let disk = match RecordedDisk::new(scratch.folder(), "test", 64 << 20) {
            Ok(disk) => disk,
            Err(why) => {
                eprintln!("skipped: {why:#}");
                return;
            }
        };
        let (folder, instance) = (disk.folder().to_owned(), disk.instance.clone());
        let mut file = File::create(folder.join("data")).unwrap();
        std::io::Write::write_all(&mut file, &vec![7; 8 << 20]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::remove_file(folder.join("data")).unwrap();
        let requests = disk.finish().unwrap();
        let sum = |op| {
            let of = requests.iter().filter(|request| request.op == op);
            of.map(|request| request.bytes).sum::<u64>()
        };
        assert!(sum(Op::Write) >= 8 << 20, "{requests:?}");
        assert!(requests.iter().any(|request| request.op == Op::Flush));
        assert!(
            requests
                .iter()
                .all(|request| request.offset + request.bytes <= 64 << 20)
        );
        assert!(!instance.exists(), "the trace's instance stayed");
        assert!(
            fs::read_dir(&folder).unwrap().next().is_none(),
            "it is still mounted"
        );
    }
}
