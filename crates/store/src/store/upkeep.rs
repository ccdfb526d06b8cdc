// SPDX-License-Identifier: Apache-2.0
//! A caller's operations besides reading and writing: sealing, compaction, the work of the
//! background, a backup. The work itself is in `seal.rs`, `compact.rs`, `merge.rs`, `jobs.rs` and
//! `backup.rs`.

use std::path::Path;

use crate::read::snapshot::{Snapshot, again_if_ended};
use crate::store::backup::{BackupReport, GoOn};
use crate::{Store, StoreError};

impl Store {
    /// Seals the logs: everything is in sorted blocks afterwards.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// store.seal()?;
    /// assert_eq!((store.stats().block_elements, store.stats().log_elements), (1, 0));
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn seal(&self) -> Result<(), StoreError> {
        self.core.seal_everything()
    }

    /// Seals the logs, merges all maps into one, and compacts until no dead elements are left, as
    /// far as the store knows.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn compact(&self) -> Result<(), StoreError> {
        self.compact_while(|| true).map(|_| ())
    }

    /// As [`Store::compact`], while `go_on` returns true. `go_on` is called before each piece of
    /// work, which is about a block. Returns false if the work ended early; the store is intact all
    /// the same.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// let done = store.compact_while(|| false)?;
    /// assert!(!done && store.contains(b"colour")?);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn compact_while(&self, go_on: impl Fn() -> bool) -> Result<bool, StoreError> {
        if !go_on() {
            return Ok(false);
        }
        // If there is no space for another log, compaction comes first.
        let sealed = match self.seal() {
            Err(StoreError::NoSpace(_)) => false,
            other => other.map(|()| true)?,
        };
        // Merging finds the dead elements and drops old tombstones. After that, compaction has
        // something to drop.
        for _ in 0..2 {
            if !go_on() {
                return Ok(false);
            }
            self.core.merge_all()?;
            // Under steady overwriting there are always dead elements, so this ends after as many
            // pieces as there are blocks now. Logs are sealed between pieces, because writers wait
            // for that.
            let blocks = self.core.current().blocks().count();
            for _ in 0..blocks {
                if !go_on() {
                    return Ok(false);
                }
                match self.core.seal_frozen() {
                    // Compaction may free the missing space.
                    Ok(()) | Err(StoreError::NoSpace(_)) => {}
                    Err(error) => return Err(error),
                }
                let _working = self.core.requests.block_work();
                let compacted = match self.core.compact_emptiest() {
                    Err(StoreError::NoSpace(_)) => {
                        // A merge in the background may still hold removed blocks.
                        drop(self.core.requests.map_work());
                        self.core.compact_emptiest()?
                    }
                    other => other?,
                };
                if !compacted {
                    break;
                }
            }
        }
        if !go_on() {
            return Ok(false);
        }
        self.core.merge_all()?;
        if !sealed {
            self.seal()?;
        }
        Ok(true)
    }

    /// Does one piece of the work that background threads would do; false if there is none.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?; // with `Options::background` off
    /// while store.maintain()? {}
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn maintain(&self) -> Result<bool, StoreError> {
        self.core.maintain()
    }

    /// Copies the current state of the store into a new one at `to`, which must not exist. Writes
    /// continue meanwhile. The copy is named `TO.part` until it is complete, and removed after a
    /// failure. `progress` gets the number of written elements, and may stop the work ([`GoOn`]).
    /// If a full store needs the space that the copy still reads, the copy begins again.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// # let copy = std::env::temp_dir().join(format!("senko-doc-backup-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&copy);
    /// store.put(b"colour", b"green")?;
    /// let report = store.backup(&copy, |elements| println!("{elements} elements"))?;
    /// assert_eq!(report.elements, 1);
    /// # std::fs::remove_file(&copy).unwrap();
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The device fails, or the file exists.
    pub fn backup<G: GoOn>(
        &self,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(u64) -> G,
    ) -> Result<BackupReport, StoreError> {
        // A draft that is begun again lies where the first one lay. Errors of the first have the
        // path as it was given.
        let absolute = std::path::absolute(to.as_ref()).map_err(StoreError::open)?;
        let mut to = to.as_ref().to_owned();
        again_if_ended(|| {
            let snapshot = Snapshot::new(&self.core);
            let done = crate::store::backup::backup(&self.core, &snapshot, &to, &mut progress);
            to.clone_from(&absolute);
            done
        })
    }
}
