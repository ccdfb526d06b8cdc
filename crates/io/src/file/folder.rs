// SPDX-License-Identifier: Apache-2.0
//! The folder of a file, and the durability of a name in it. Files and unfinished files call this.

use std::fs::File;
use std::io;
use std::path::Path;

use super::failed;

/// Makes the name of a new file durable. After a failure the file does not exist.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    sync_folder(path).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Makes the name of an existing file durable. Its maker may have been killed before it did so.
pub(super) fn sync_found_name(path: &Path) -> io::Result<()> {
    // The name of a link's file may be in another folder.
    let target = std::fs::canonicalize(path);
    match sync_folder(target.as_deref().unwrap_or(path)) {
        // Without the right to read the folder it cannot be done.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Makes the names in a file's folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let synced = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    match synced {
        // Such a file system cannot do this, and does not need it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => Ok(()),
        Err(error) => Err(failed(path, "cannot sync the folder of", &error)),
        Ok(()) => Ok(()),
    }
}

/// The directory of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
