// SPDX-License-Identifier: Apache-2.0
//! Open files in the child of a fork. `lock.rs` has the list of them.
//!
//! A child has copies of the parent's descriptors, and thus shares the parent's locks. If the
//! parent closed a file, it could not open it again while the child lives. So the child replaces
//! these descriptors at once, and its files refuse every operation. The parent does not notice.
//!
//! Handlers of `pthread_atfork` do this. `posix_spawn`, which starts programs, runs none of them;
//! there `exec` closes the descriptors.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::{MutexGuard, Once};

use super::fork_count::count_fork;
use super::lock::{self, Books};

thread_local! {
    /// The list of open files, held between the handlers before and after a fork.
    static HELD: RefCell<Option<MutexGuard<'static, Books>>> = const { RefCell::new(None) };
}

/// Installs the handlers that notice forks.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes no memory but the three functions, which live as long as the program, or
        // as this library, whose handlers the system forgets when it is unloaded. Out of memory is
        // the only failure; then children keep descriptors, as they do without this module.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    // A thread that is ending has no such place any more, and forks without it.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(lock::books()));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| drop(held.borrow_mut().take()));
}

extern "C" fn in_child() {
    count_fork();
    let _ = HELD.try_with(|held| {
        if let Some(mut books) = held.borrow_mut().take() {
            books.leave(replace);
        }
    });
}

/// Replaces a descriptor by something without reads and writes at an offset. The number stays in
/// use, because the owning file will close it once more.
fn replace(fd: RawFd) {
    // SAFETY: these calls take numbers only, and may be made in the child of a process with
    // threads.
    unsafe {
        let event = libc::eventfd(0, libc::EFD_CLOEXEC);
        if event >= 0 {
            libc::dup3(event, fd, libc::O_CLOEXEC);
            libc::close(event);
        }
    }
}
