// SPDX-License-Identifier: Apache-2.0
//! Locks and atomic words of the crate, in one place, so that tests can run them under a scheduler
//! (`tests/shuttle`).
//!
//! With the feature `shuttle` each operation on them is a point at which the scheduler may continue
//! with another thread. It runs one thread at a time. So every memory ordering counts as the
//! strongest one, and bugs that only weaker ones allow are not found.
//!
//! Two kinds of words are left out. A wrong hint costs only time (HINT-1 in `inner.rs`). A chunk
//! of `growing.rs` is made in one step.

#[cfg(not(feature = "shuttle"))]
pub(crate) use real::*;
#[cfg(feature = "shuttle")]
pub(crate) use stepped::*;

/// The number of the calling thread.
pub(crate) fn this_thread() -> ThreadId {
    current().id()
}

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread::{ThreadId, current, yield_now};
    pub(crate) use std::thread_local;

    pub(crate) use arc_swap::ArcSwapOption;
    pub(crate) use once_cell::race::OnceBox;
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

    /// A lock whose condition wakes all waiters at once.
    pub(crate) mod waiting {
        pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    }
}

/// The same interfaces, with points for the scheduler.
#[cfg(feature = "shuttle")]
mod stepped {
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, PoisonError, TryLockError};

    use arc_swap::Guard;
    use shuttle::sync::atomic::AtomicU8;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use shuttle::thread::{ThreadId, current, yield_now};
    pub(crate) use shuttle::thread_local;

    pub(crate) mod waiting {
        pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    }

    /// Another thread may continue here.
    fn point() {
        AtomicU8::new(0).load(Ordering::SeqCst);
    }

    /// `parking_lot`'s lock.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// Empty while its thread waits for a condition.
    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(Some(guard))),
                Err(TryLockError::Poisoned(poisoned)) => {
                    Some(MutexGuard(Some(poisoned.into_inner())))
                }
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("nobody waits with it")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("nobody waits with it")
        }
    }

    /// `parking_lot`'s condition.
    #[derive(Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("nobody waits with it");
            let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
            guard.0 = Some(held);
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    /// Its steps are one step for the scheduler.
    pub(crate) struct ArcSwapOption<T>(arc_swap::ArcSwapOption<T>);

    impl<T> Default for ArcSwapOption<T> {
        fn default() -> ArcSwapOption<T> {
            ArcSwapOption::new(None)
        }
    }

    impl<T> ArcSwapOption<T> {
        pub fn new(value: Option<Arc<T>>) -> ArcSwapOption<T> {
            ArcSwapOption(arc_swap::ArcSwapOption::new(value))
        }

        pub fn load(&self) -> Guard<Option<Arc<T>>> {
            point();
            self.0.load()
        }

        pub fn load_full(&self) -> Option<Arc<T>> {
            point();
            self.0.load_full()
        }

        pub fn store(&self, value: Option<Arc<T>>) {
            drop(self.swap(value));
        }

        pub fn into_inner(self) -> Option<Arc<T>> {
            self.0.into_inner()
        }

        pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
            point();
            self.0.swap(value)
        }
    }

    /// Its steps are one step for the scheduler.
    pub(crate) struct OnceBox<T>(once_cell::race::OnceBox<T>);

    impl<T> Default for OnceBox<T> {
        fn default() -> OnceBox<T> {
            OnceBox::new()
        }
    }

    impl<T> OnceBox<T> {
        pub fn new() -> OnceBox<T> {
            OnceBox(once_cell::race::OnceBox::new())
        }

        pub fn get(&self) -> Option<&T> {
            point();
            self.0.get()
        }

        pub fn set(&self, value: Box<T>) -> Result<(), Box<T>> {
            point();
            self.0.set(value)
        }
    }
}
