// SPDX-License-Identifier: Apache-2.0
//! Sums and differences of structs of counters: of workers, shards, devices and simulated drives,
//! in the crates above.

/// Adds the methods `add` and `since` to a struct of whole numbers.
///
/// The macro takes the names of all fields. If one is left out, the code does not compile, so no
/// sum can lack a counter. Sums wrap around. A difference is 0 if the counter was reset.
///
/// ```
/// #[derive(Default)]
/// struct Passed {
///     reads: u64,
///     writes: u64,
/// }
/// senko_io::counters! { Passed: reads writes }
///
/// let mut sum = Passed { reads: 3, writes: 1 };
/// sum.add(&Passed { reads: 2, writes: 0 });
/// let recent = sum.since(&Passed { reads: 3, writes: 1 });
/// assert_eq!((sum.reads, recent.reads, recent.writes), (5, 2, 0));
/// ```
#[macro_export]
macro_rules! counters {
    ($type:ident: $($name:ident)+) => {
        #[allow(dead_code)] // some structs need one of the two
        impl $type {
            /// Adds another struct's counts.
            pub fn add(&mut self, other: &$type) {
                let $type { $($name),+ } = *other;
                $(self.$name = self.$name.wrapping_add($name);)+
            }

            /// The counts since `earlier`, an older copy of these counters.
            pub fn since(&self, earlier: &$type) -> $type {
                $type { $($name: self.$name.saturating_sub(earlier.$name)),+ }
            }
        }
    };
}
