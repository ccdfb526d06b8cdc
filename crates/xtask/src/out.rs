// SPDX-License-Identifier: Apache-2.0
//! Where a task's lines go: to standard output as they come, or into a block that is printed when
//! its step ended. Steps that run at the same time have a block each, so that their lines do not
//! mix.

use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The lines of one step.
pub type Block = Arc<Mutex<Vec<u8>>>;

thread_local! {
    static BLOCK: RefCell<Option<Block>> = const { RefCell::new(None) };
}

/// Writes one line. A reader that went away (`cargo xtask circles | head`) does not end a task.
pub fn line(line: Arguments<'_>) {
    match block() {
        Some(block) => {
            let mut lines = block.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writeln!(lines, "{line}");
        }
        None => {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}

/// The block of this thread, for a thread that it starts.
pub fn block() -> Option<Block> {
    BLOCK.with_borrow(Clone::clone)
}

/// Lines of this thread go there from now on; `None` is standard output.
pub fn go_to(block: Option<Block>) {
    BLOCK.set(block);
}

/// Prints the lines of a block, or adds them to another one.
pub fn append(to: &Option<Block>, block: &Block) {
    let lines = block.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(to) = to {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        to.extend_from_slice(&lines);
        return;
    }
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&lines).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_thread_go_to_its_block() {
        let mine = Block::default();
        go_to(Some(Arc::clone(&mine)));
        tell!("one");
        let passed_on = block();
        let started = std::thread::spawn(move || {
            go_to(passed_on);
            tell!("two");
        });
        started.join().expect("it ends");
        go_to(None);
        assert_eq!(*mine.lock().expect("no panic"), b"one\ntwo\n");
    }
}
