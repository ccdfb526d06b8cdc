// SPDX-License-Identifier: Apache-2.0
//! Reads certificates, keys and passwords. They may be read again while workers serve, so reading
//! neither waits long nor takes much memory, whatever has the file's name by then.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Most bytes of such a file.
const MOST: u64 = 16 << 20;
/// How often a pipe is looked at whose writer writes nothing, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The content of a file, or of a pipe (`-Y <(pass show senko)`).
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without this flag, opening a pipe waits for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut limited = file.take(MOST + 1);
    let mut text = Vec::new();
    let mut tries = 0;
    loop {
        match limited.read_to_end(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other("nothing is written to it"));
            }
            Err(error) => return Err(error),
            Ok(_) if text.len() as u64 > MOST => {
                return Err(io::Error::other("it is larger than 16 MiB"));
            }
            Ok(_) => return Ok(text),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A pipe in place of a certificate stopped the worker that read it again, for good.
    #[test]
    fn a_pipe_is_not_waited_for_and_a_device_without_end_is_refused() {
        let folder = std::env::temp_dir().join(format!("senko-small-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(read(&pipe).unwrap(), b"", "without a writer");
        let mut how = OpenOptions::new();
        let mut writer = how.read(true).write(true).open(&pipe).unwrap();
        let error = read(&pipe).unwrap_err().to_string();
        assert_eq!(error, "nothing is written to it");
        // What is written stays in the pipe while a reader has it open.
        let _reader = how.write(false).custom_flags(libc::O_NONBLOCK).open(&pipe);
        writer.write_all(b"secret").unwrap();
        drop(writer);
        assert_eq!(read(&pipe).unwrap(), b"secret");
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "it is larger than 16 MiB");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
