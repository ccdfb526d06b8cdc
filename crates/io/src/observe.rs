// SPDX-License-Identifier: Apache-2.0
//! For tests of kills: a call before each store of a word to shared memory. `page.rs` and
//! `shared.rs` report their stores here.

#[cfg(debug_assertions)]
thread_local! {
    static OBSERVER: std::cell::RefCell<Option<Box<dyn FnMut()>>> = const { std::cell::RefCell::new(None) };
}

/// Sets or removes an `observer`, which is called before each word that this thread stores to
/// shared memory. A test copies the memory there: a kill at that moment would leave that copy. This
/// works only in builds with debug assertions, and returns false in others.
pub fn observe_stores(observer: Option<Box<dyn FnMut()>>) -> bool {
    #[cfg(debug_assertions)]
    OBSERVER.with(|place| *place.borrow_mut() = observer);
    #[cfg(not(debug_assertions))]
    drop(observer);
    cfg!(debug_assertions)
}

/// Reports that this thread is about to store a word.
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
