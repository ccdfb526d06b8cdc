// SPDX-License-Identifier: Apache-2.0
//! A device in memory whose reads, writes and flushes a test watches, delays or ends.

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, IoError, Op, Tag};

/// The operation, its tag, and whether it is done or about to begin.
type Watch = Box<dyn Fn(Op, Tag, bool) + Send + Sync>;

/// See the module.
pub struct Watched {
    pub inner: Arc<FaultyDevice>,
    watch: Watch,
}

impl Watched {
    pub fn new(
        inner: Arc<FaultyDevice>,
        watch: impl Fn(Op, Tag, bool) + Send + Sync + 'static,
    ) -> Arc<Watched> {
        let watch = Box::new(watch);
        Arc::new(Watched { inner, watch })
    }

    fn around<T>(&self, op: Op, tag: Tag, call: impl FnOnce() -> T) -> T {
        (self.watch)(op, tag, false);
        let result = call();
        (self.watch)(op, tag, true);
        result
    }
}

impl Device for Watched {
    fn pages(&self) -> u64 {
        self.inner.pages()
    }
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.around(Op::Read, tag, || self.inner.read(page, buf, tag))
    }
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.around(Op::Write, tag, || self.inner.write(page, buf, tag))
    }
    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.around(Op::Flush, tag, || self.inner.flush(tag))
    }
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.inner.discard(page, pages, tag)
    }
}
