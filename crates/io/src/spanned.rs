// SPDX-License-Identifier: Apache-2.0
//! One device over several files. It grows by a new file, so no commit waits for growth.
//!
//! `fdatasync` of a file waits for all of that file's metadata. So in a growing file, each commit
//! waits for the file system's journal. Here the device of path `X` grows by a further file: `X.1`,
//! `X.2` and so on. A new one is made as `X.1.new`, written with zeros and flushed, and only then
//! gets its name. So a file with that name is complete, and all of its extents were written.
//!
//! A file with such a name may be foreign. A file that is shorter than any growth is refused, and
//! so is a draft that holds anything but zeros. Only the engine can interpret a further file
//! ([`SpannedFile::parts`]).
//!
//! Empty files at the end are removed again ([`Device::shrink`]). No commit waits for that either.
//!
//! With `one_file` the last file is extended instead, for programs that rename, copy and delete the
//! one file that they know. A synced commit may then wait for the journal.
//!
//! Always holds: the files' numbers have no gap, and the lock of the first file covers all.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::file::FileOptions;
use crate::{AlignedBuf, Device, FlashFile, IoError, PAGE_SIZE, Tag};

/// The least and the most pages of a further file. Within these bounds a new file has an eighth of
/// the existing pages, so that unused space stays a small part.
const STEP: std::ops::RangeInclusive<u64> = (256 << 10)..=(1 << 30);

/// The least and the most pages by which one file is extended; also an eighth in between.
const LONGER: std::ops::RangeInclusive<u64> = (256 << 10)..=(64 << 20);

/// Most files; with the largest step this is 64 TiB.
const MOST_FILES: usize = 65_536;

struct Part {
    file: FlashFile,
    /// The first page of the file in the device.
    first: u64,
    /// Whether it was written since its last flush.
    dirty: AtomicBool,
}

/// A device that grows by further files; see the module.
pub struct SpannedFile {
    path: PathBuf,
    options: FileOptions,
    parts: RwLock<Vec<Arc<Part>>>,
    growing: Mutex<()>,
    /// Whether the first file was empty when it was opened.
    made: bool,
}

impl SpannedFile {
    /// Opens or makes the device of `path`. A new first file has `first_bytes`.
    ///
    /// # Errors
    /// One clear sentence with the path, as [`FlashFile::open`].
    pub fn open(path: &Path, first_bytes: u64, options: &FileOptions) -> io::Result<SpannedFile> {
        let reads = options.read_only || options.beside_writer;
        let there = std::fs::metadata(path).map_or(0, |meta| meta.len());
        let options = FileOptions {
            bytes: 0,
            written: true,
            ..options.clone()
        };
        let make = !reads && there < first_bytes;
        let first = FileOptions {
            bytes: if make { first_bytes } else { 0 },
            ..options.clone()
        };
        let other = name_of(path, 1);
        if make && other.exists() {
            let text = format!(
                "{} belongs to a file {} that is gone; put that back, or move this one away",
                other.display(),
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let mut parts = Vec::new();
        let mut pages = add(&mut parts, FlashFile::open(path, &first)?, 0);
        for number in 1..MOST_FILES {
            let name = name_of(path, number);
            if !reads {
                // The remains of an interrupted growth.
                remove_draft(&draft_of(&name))?;
            }
            if !name.exists() {
                break;
            }
            let file = FlashFile::open(&name, &options)?;
            check_length(&file, &name)?;
            pages = add(&mut parts, file, pages);
        }
        Ok(SpannedFile {
            path: path.to_owned(),
            options,
            parts: RwLock::new(parts),
            growing: Mutex::new(()),
            made: make,
        })
    }

    /// Whether this opening made the first file, or extended it to its length.
    pub fn made(&self) -> bool {
        self.made
    }

    /// Pins `number`, as [`FlashFile::pin`] of the first file.
    ///
    /// # Errors
    /// The system's error for the lock.
    pub fn pin(&self, number: u64) -> io::Result<()> {
        self.part(0).file.pin(number)
    }

    /// The further files that the device of `path` has.
    pub fn further_files(path: &Path) -> Vec<PathBuf> {
        let names = (1..MOST_FILES).map(|number| name_of(path, number));
        names.take_while(|name| name.exists()).collect()
    }

    /// The files, the first one first.
    pub fn files(&self) -> Vec<PathBuf> {
        (0..self.count()).map(|n| name_of(&self.path, n)).collect()
    }

    /// The files, each with its first page and the page after its last one; the first file first.
    pub fn parts(&self) -> Vec<(PathBuf, Range<u64>)> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(number, part): (usize, &Arc<Part>)| {
            let end = part.first + part.file.pages();
            (name_of(&self.path, number), part.first..end)
        };
        parts.iter().enumerate().map(of).collect()
    }

    fn count(&self) -> usize {
        self.parts
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    fn part(&self, number: usize) -> Arc<Part> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&parts[number])
    }

    /// Cuts `pages` pages from `page` on at the borders of files. Calls `work` for each piece with
    /// the file, the piece's first page in the file and its first page in the device.
    fn pieces(
        &self,
        page: u64,
        pages: u64,
        mut work: impl FnMut(&Part, u64, u64, u64) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let mut done = 0;
        while done < pages {
            let at = page + done;
            let part = {
                let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
                let next = parts.partition_point(|part| part.first <= at);
                Arc::clone(&parts[next - 1])
            };
            let within = at - part.first;
            let here = part
                .file
                .pages()
                .checked_sub(within)
                .filter(|here| *here > 0);
            let Some(here) = here else {
                return Err(IoError::Os(libc::EINVAL));
            };
            let here = here.min(pages - done);
            work(&part, within, done, here)?;
            done += here;
        }
        Ok(())
    }

    /// Makes the last file longer, by an eighth of it.
    fn lengthen(&self, pages: u64) -> Result<(), IoError> {
        let last = self.part(self.count() - 1);
        let have = last.file.pages();
        let step = (have / 8).clamp(
            LONGER.start() / PAGE_SIZE as u64,
            LONGER.end() / PAGE_SIZE as u64,
        );
        Device::grow(&last.file, (pages - last.first).max(have + step))?;
        last.file.write_zeros(have)
    }

    fn grow_once(&self) -> io::Result<()> {
        let number = self.count();
        if number == MOST_FILES {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let have = Device::pages(self);
        let bytes = (have * PAGE_SIZE as u64 / 8).clamp(*STEP.start(), *STEP.end());
        let bytes = bytes.next_multiple_of(64 << 10);
        let name = name_of(&self.path, number);
        let draft = draft_of(&name);
        let options = FileOptions {
            bytes,
            ..self.options.clone()
        };
        remove_draft(&draft).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::from_raw_os_error(libc::EEXIST),
            _ => error,
        })?;
        let made = FlashFile::open(&draft, &options).and_then(|file| {
            // A rename would replace a foreign file.
            if name.try_exists()? {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            std::fs::rename(&draft, &name)?;
            crate::file::sync_name(&name)?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
                add(&mut parts, file, have);
                Ok(())
            }
            Err(error) => {
                let _ = std::fs::remove_file(&draft);
                Err(error)
            }
        }
    }
}

/// Refuses a further file that is shorter than any growth makes it. A longer file may belong to a
/// device that was once larger.
fn check_length(file: &FlashFile, name: &Path) -> io::Result<()> {
    let (found, least) = (file.pages() * PAGE_SIZE as u64, *STEP.start());
    if found >= least {
        return Ok(());
    }
    let text = format!(
        "{} has {found} bytes, and a further file has at least {least}: it was cut, or is not ours; \
         put back what was there, or move it away",
        name.display()
    );
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

/// Removes the zeros that an interrupted growth left. Anything else is foreign data.
fn remove_draft(draft: &Path) -> io::Result<()> {
    let in_the_way = |what: String| {
        let text = format!(
            "{} {what}: it is in the way of a growth, move it away",
            draft.display()
        );
        io::Error::new(io::ErrorKind::AlreadyExists, text)
    };
    let meta = match std::fs::symlink_metadata(draft) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if !meta.is_file() {
        return Err(in_the_way("is not a regular file".to_owned()));
    }
    let file = std::fs::File::open(draft)?;
    if let Some(content) = crate::file::content(&file, meta.len())? {
        return Err(in_the_way(format!("holds {content}")));
    }
    std::fs::remove_file(draft)
}

fn add(parts: &mut Vec<Arc<Part>>, file: FlashFile, first: u64) -> u64 {
    let end = first + file.pages();
    parts.push(Arc::new(Part {
        file,
        first,
        dirty: AtomicBool::new(false),
    }));
    end
}

fn name_of(path: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn draft_of(name: &Path) -> PathBuf {
    let mut draft = name.as_os_str().to_owned();
    draft.push(".new");
    draft.into()
}

impl Device for SpannedFile {
    fn pages(&self) -> u64 {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        parts
            .last()
            .map_or(0, |part| part.first + part.file.pages())
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.part(0).file.check_own()?;
        let _one = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.options.one_file && Device::pages(self) < pages {
            return self.lengthen(pages);
        }
        while Device::pages(self) < pages {
            self.grow_once().map_err(|error| {
                IoError::Os(match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => libc::ENOSPC,
                    io::ErrorKind::FileTooLarge => libc::EFBIG,
                    _ => error.raw_os_error().unwrap_or(libc::EIO),
                })
            })?;
        }
        Ok(())
    }

    fn extent(&self, page: u64) -> Option<Range<u64>> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let behind = parts.partition_point(|part| part.first + part.file.pages() <= page);
        parts[behind..].iter().find_map(|part| {
            let found = Device::extent(&part.file, page.saturating_sub(part.first))?;
            Some(found.start + part.first..found.end + part.first)
        })
    }

    fn border(&self, page: u64) -> Option<u64> {
        if self.options.one_file {
            return None;
        }
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let further = parts.iter().skip(1).map(|part| part.first);
        further.into_iter().find(|first| *first >= page)
    }

    /// Removes the further files that begin at `pages` or later. It removes their names from the
    /// last one on, so that the remaining numbers have no gap. Open descriptors keep their access.
    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        self.part(0).file.check_own()?;
        let _one = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: io::Error| IoError::Os(error.raw_os_error().unwrap_or(libc::EIO));
        loop {
            let number = self.count() - 1;
            if number == 0 || self.part(number).first < pages {
                return Ok(());
            }
            let name = name_of(&self.path, number);
            std::fs::remove_file(&name).map_err(failed)?;
            let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
            parts.pop();
            drop(parts);
            crate::file::sync_name(&name).map_err(failed)?;
        }
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        let pages = (buf.len() / PAGE_SIZE) as u64;
        self.pieces(page, pages, |part, at, done, count| {
            let from = done as usize * PAGE_SIZE;
            let to = from + count as usize * PAGE_SIZE;
            part.file.read(at, &mut buf[from..to], tag)
        })
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        let pages = (buf.len() / PAGE_SIZE) as u64;
        self.pieces(page, pages, |part, at, done, count| {
            let from = done as usize * PAGE_SIZE;
            let to = from + count as usize * PAGE_SIZE;
            part.dirty.store(true, Ordering::Release);
            part.file.write(at, &buf[from..to], tag)
        })
    }

    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        let pages = (buf.len() / PAGE_SIZE) as u64;
        self.pieces(page, pages, |part, at, done, count| {
            let from = done as usize * PAGE_SIZE;
            let to = from + count as usize * PAGE_SIZE;
            part.file.write_durable(at, &buf[from..to], tag)
        })
    }

    fn oldest_pin(&self, below: u64) -> Option<u64> {
        self.part(0).file.oldest_pin(below)
    }

    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        let first = self.part(0);
        if page + pages as u64 > first.file.pages() {
            return Ok(None);
        }
        first.file.map(page, pages)
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<Arc<Part>> = parts.iter().map(Arc::clone).collect();
        for part in parts {
            if part.dirty.swap(false, Ordering::AcqRel) {
                part.file.flush(tag)?;
            }
        }
        Ok(())
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.pieces(page, pages, |part, at, _, count| {
            part.file.discard(at, count, tag)
        })
    }
}

impl std::fmt::Debug for SpannedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, files) = (self.path.display(), self.count());
        write!(f, "SpannedFile({path}, {files} files)")
    }
}
