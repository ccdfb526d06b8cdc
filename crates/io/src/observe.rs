// SPDX-License-Identifier: Apache-2.0
//! For tests of kills: a call before each word that goes into shared memory. `page.rs` and
//! `shared.rs` announce their stores here.

#[cfg(debug_assertions)]
thread_local! {
    static OBSERVER: std::cell::RefCell<Option<Box<dyn FnMut()>>> = const { std::cell::RefCell::new(None) };
}

/// Calls `observer` before each word that this thread stores into shared memory, or no longer. A
/// test takes a copy of the memory there, which is what a kill at that instant would leave. Only in
/// builds with debug assertions; false in others.
pub fn observe_stores(observer: Option<Box<dyn FnMut()>>) -> bool {
    #[cfg(debug_assertions)]
    OBSERVER.with(|place| *place.borrow_mut() = observer);
    #[cfg(not(debug_assertions))]
    drop(observer);
    cfg!(debug_assertions)
}

/// This thread is about to store a word.
#[inline]
pub(crate) fn observed() {
    #[cfg(debug_assertions)]
    OBSERVER.with(|place| {
        // Stores by the observer itself are not observed.
        let taken = place.borrow_mut().take();
        if let Some(mut observer) = taken {
            observer();
            place.borrow_mut().get_or_insert(observer);
        }
    });
}
