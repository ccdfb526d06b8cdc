// SPDX-License-Identifier: Apache-2.0
//! The unordered store: single keys, batches, many keys at once, versions, scans, maintenance.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use senko_store::{Durability, Options, StoreError, Value, WriteOptions};

use crate::arguments::{self, Argument};
use crate::at_exit::{self, AtExit};
use crate::bytes;
use crate::failure::{
    INVALID, NO_ENTRY, NO_SPACE, StoreFailure, begins_with, unpicklable, with_name,
};
use crate::guard::{Closable, Of, Owned};
use crate::interrupt::interruptible;
use crate::iteration::{Part, Records, Row};
use crate::reads::{Reads, Source};

/// With more keys than this, a look-up is long enough for its own thread.
const MANY_KEYS: usize = 256;

fn exception(failure: StoreError) -> PyErr {
    let text = failure.to_string();
    match &failure {
        StoreError::KeyLength(_)
        | StoreError::ValueTooLong(_)
        | StoreError::BatchTooLarge { .. }
        | StoreError::Invalid(_) => PyValueError::new_err(text),
        StoreError::NoSpace(_) => StoreFailure::new_err((NO_SPACE, text)),
        StoreError::Open(source) => match senko_io::error_number(source) {
            Some(number) => StoreFailure::new_err((number, text)),
            None => StoreFailure::new_err(text),
        },
        _ => StoreFailure::new_err(text),
    }
}

/// The exception of an opening, with the name of the file. A store that is `missing` is an argument
/// that does not fit, for the engine.
fn of_opening(failure: StoreError, path: &Path, missing: bool) -> PyErr {
    let mut text = failure.to_string();
    let number = match &failure {
        _ if missing => Some(NO_ENTRY),
        StoreError::Open(source) => senko_io::error_number(source),
        StoreError::Foreign(_) => {
            if begins_with(path, b"SENKODB\0") {
                text = "a database of the ordered kind: open it with senko_flash.dbm".to_owned();
            }
            Some(INVALID)
        }
        _ => None,
    };
    match number {
        Some(number) => StoreFailure::new_err(with_name(number, text, path)),
        None => exception(failure),
    }
}

/// One opening.
struct Opened {
    /// `None` when it is closed.
    store: Owned<RwLock<Option<senko_store::Store>>>,
    path: PathBuf,
    durability: Durability,
}

impl Opened {
    fn get(&self) -> PyResult<senko_store::Store> {
        let store = self.store.get()?;
        let store = store.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || Of::Store.error("the store is closed");
        store.as_ref().cloned().ok_or_else(closed)
    }

    /// Works on the store with the GIL released.
    fn on<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&senko_store::Store) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        let store = self.get()?;
        py.detach(|| work(&store)).map_err(exception)
    }

    fn write_options(
        &self,
        durability: Argument<'_, '_>,
        ttl: Argument<'_, '_>,
        expires_at: Argument<'_, '_>,
    ) -> PyResult<WriteOptions> {
        Ok(WriteOptions {
            durability: durability.map_or(Ok(self.durability), durability_of)?,
            expires_at: expiry_of(expires_at)?.unwrap_or(0),
            ttl: ttl.map(ttl_of).transpose()?,
        })
    }
}

fn durability_of(name: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let all = [Durability::None, Durability::Buffered, Durability::Synced];
    Ok(all[arguments::durability(name)?])
}

/// A value's time to live, from seconds.
fn ttl_of(seconds: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = arguments::number("ttl", seconds)?;
    // 0 could mean at once or never; None is never.
    let ttl = Duration::try_from_secs_f64(seconds).ok();
    ttl.filter(|ttl| !ttl.is_zero()).ok_or_else(|| {
        let text = format!(
            "ttl is above 0 and up to 1.8e19 seconds, not {seconds}; without it a value stays"
        );
        PyValueError::new_err(text)
    })
}

/// A second since 1970.
fn expiry_of(second: Argument<'_, '_>) -> PyResult<Option<u64>> {
    arguments::maybe_whole("expires_at", 0..=u64::MAX, second)
}

/// The first full second at which a value has lived for `ttl`.
fn second_after(ttl: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let end = now.unwrap_or_default().saturating_add(ttl);
    end.as_secs()
        .saturating_add(u64::from(end.subsec_nanos() > 0))
}

impl AtExit for Opened {
    fn is_ours(&self) -> bool {
        self.store.is_ours()
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let lock = self.store.get()?;
        let store = lock.read().unwrap_or_else(PoisonError::into_inner).clone();
        py.detach(|| store.map_or(Ok(()), |store| store.sync()))
            .map_err(exception)
    }
}

impl Source for Opened {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let found = self.on(py, |store| store.get(key))?;
        Ok(found.map(Value::into_vec))
    }
}

/// An open store.
#[pyclass(extends = Reads, subclass, module = "senko_flash._native", frozen)]
pub struct Store {
    opened: Arc<Opened>,
}

type Values<'py> = Vec<Option<Bound<'py, PyBytes>>>;
/// When a version was written, its value, and when it expires.
type Version<'py> = (u64, Option<Bound<'py, PyBytes>>, u64);
/// Where a store is damaged, and how.
type Problem = (u64, String);

/// The values of many keys, if `get` finds them.
fn many<'py>(
    py: Python<'py>,
    keys: Vec<Bound<'py, PyAny>>,
    get: impl FnOnce(&[&[u8]]) -> Vec<Result<Option<Value>, StoreError>> + Send + 'static,
) -> PyResult<Values<'py>> {
    let keys: PyResult<Vec<Vec<u8>>> = keys
        .iter()
        .map(|k| Ok(bytes::of(k)?.into_owned()))
        .collect();
    let keys = keys?;
    let long = keys.len() > MANY_KEYS;
    let work = move || {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        get(&keys)
    };
    let found = match long {
        true => interruptible(py, None, move |_| work())?,
        false => py.detach(work),
    };
    let value = |found: Result<Option<Value>, StoreError>| {
        Ok(found
            .map_err(exception)?
            .map(|value| PyBytes::new(py, &value)))
    };
    found.into_iter().map(value).collect()
}

fn entries(mut scan: senko_store::Scan, part: Part) -> Records {
    Records::new(Of::Store, part, move |batch| {
        let entry = scan.next().transpose().map_err(exception)?;
        if let Some(entry) = &entry {
            batch.push(&Row {
                key: &entry.key,
                value: &entry.value,
                time: entry.time,
                expires_at: entry.expires_at,
            });
        }
        Ok(entry.is_some())
    })
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, flag, *, durability, keep_versions, max_bytes, cache_bytes,
        block_bytes))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        flag: &Bound<'_, PyAny>,
        durability: &Bound<'_, PyAny>,
        keep_versions: Argument<'_, '_>,
        max_bytes: Argument<'_, '_>,
        cache_bytes: Argument<'_, '_>,
        block_bytes: Argument<'_, '_>,
    ) -> PyResult<PyClassInitializer<Store>> {
        let flag = ["r", "w", "c"][arguments::choice("flag", &["r", "w", "c"], flag)?];
        let durability = durability_of(durability)?;
        let usual = Options::default();
        let keep_versions = keep_versions
            .map(|versions| arguments::whole_u32("keep_versions", 1, versions))
            .transpose()?;
        let bytes = |name, object| arguments::maybe_whole(name, 0..=isize::MAX as u64, object);
        let options = Options {
            create: flag == "c",
            read_only: flag == "r",
            keep_versions: keep_versions.unwrap_or(usual.keep_versions),
            cache_bytes: bytes("cache_bytes", cache_bytes)?.unwrap_or(usual.cache_bytes),
            block_bytes: bytes("block_bytes", block_bytes)?.unwrap_or(usual.block_bytes),
            max_bytes: bytes("max_bytes", max_bytes)?,
            ..usual
        };
        let place = path.clone();
        let store = interruptible(py, None, move |_| senko_store::Store::open(place, options))?;
        let store = store.map_err(|failure| {
            let missing = flag != "c" && !path.exists();
            of_opening(failure, &path, missing)
        })?;
        let opened = Arc::new(Opened {
            store: Owned::new(Of::Store, RwLock::new(Some(store))),
            path,
            durability,
        });
        if flag != "r" {
            at_exit::add(&opened);
        }
        Ok(Reads::of(opened.clone()).add_subclass(Store { opened }))
    }

    /// Puts a value. It lives for `ttl` seconds, or until `expires_at` (seconds since 1970).
    /// Returns the time of the write, in microseconds since 1970.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, durability=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Argument<'_, '_>,
        expires_at: Argument<'_, '_>,
        durability: Argument<'_, '_>,
    ) -> PyResult<u64> {
        let options = self.opened.write_options(durability, ttl, expires_at)?;
        let (key, value) = (bytes::of(key)?, bytes::of(value)?);
        self.opened
            .on(py, |store| store.put_with(&key, &value, options))
    }

    /// Deletes a key, whether or not it exists. Returns the time of the write.
    #[pyo3(signature = (key, *, durability=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        durability: Argument<'_, '_>,
    ) -> PyResult<u64> {
        let options = self.opened.write_options(durability, None, None)?;
        let key = bytes::of(key)?;
        self.opened.on(py, |store| store.delete_with(&key, options))
    }

    /// Puts `new` if the key has the value `expected`; None is not a value. Returns the time of the
    /// write, or None if the key has another value.
    #[pyo3(signature = (key, expected, new, *, ttl=None, expires_at=None, durability=None))]
    #[allow(clippy::too_many_arguments)]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expected: Option<&Bound<'_, PyAny>>,
        new: Option<&Bound<'_, PyAny>>,
        ttl: Argument<'_, '_>,
        expires_at: Argument<'_, '_>,
        durability: Argument<'_, '_>,
    ) -> PyResult<Option<u64>> {
        let options = self.opened.write_options(durability, ttl, expires_at)?;
        let (key, expected, new) = (bytes::of(key)?, bytes::maybe(expected)?, bytes::maybe(new)?);
        self.opened.on(py, |store| {
            store.compare_and_swap_with(&key, expected.as_deref(), new.as_deref(), options)
        })
    }

    /// Writes a batch: all of it or nothing. Returns the time of its writes.
    #[pyo3(signature = (batch, *, durability=None))]
    fn write(&self, py: Python<'_>, batch: &Batch, durability: Argument<'_, '_>) -> PyResult<u64> {
        let options = self.opened.write_options(durability, None, None)?;
        drop(batch.open()?);
        self.opened.on(py, |store| {
            let gathered = batch.0.lock().unwrap_or_else(PoisonError::into_inner);
            store.write(&gathered.writes, options)
        })
    }

    /// The values of many keys at one moment, in their order. An absent key has None.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Values<'py>> {
        let store = self.opened.get()?;
        many(py, keys, move |keys| store.multi_get(keys))
    }

    /// The value that a key had at a time (microseconds since 1970), or None.
    fn _get_at<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        time: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::of(key)?;
        let time = arguments::whole("at", 0..=u64::MAX, time)?;
        let found = self.opened.on(py, |store| store.get_at(&key, time))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    /// The kept versions of a key, newest first: time, value, expiry.
    fn _history<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Version<'py>>> {
        let key = bytes::of(key)?;
        let versions = self.opened.on(py, |store| store.history(&key))?;
        let shown = versions.into_iter().map(|version| {
            let value = version.value.map(|value| PyBytes::new(py, &value));
            (version.time, value, version.expires_at)
        });
        Ok(shown.collect())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Records> {
        Ok(entries(
            self.opened.on(py, |store| store.scan())?,
            Part::Key,
        ))
    }

    fn _scan(&self, py: Python<'_>) -> PyResult<Records> {
        Ok(entries(
            self.opened.on(py, |store| store.scan())?,
            Part::Entry,
        ))
    }

    /// How many keys have a value. It reads the store.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let store = self.opened.get()?;
        let count = interruptible(py, None, move |_| store.len())?;
        Ok(count.map_err(exception)? as usize)
    }

    /// The present state, which does not change while writes continue.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<StoreSnapshot>> {
        let snapshot = self.opened.on(py, |store| store.snapshot())?;
        let view = Arc::new(View(Closable::new(Of::Store, snapshot)));
        let class = Reads::of(view.clone()).add_subclass(StoreSnapshot { view });
        Py::new(py, class)
    }

    /// Returns when everything written is on the device.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.opened.get()?;
        interruptible(py, None, move |_| store.sync())?.map_err(exception)
    }

    /// Reclaims the space of overwritten, deleted and expired values. The file shrinks.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.opened.get()?;
        let work = move |stop: &'static std::sync::atomic::AtomicBool| {
            if store.compact_while(|| !stop.load(Ordering::Relaxed))? {
                store.shrink()?;
            }
            Ok(())
        };
        interruptible(py, None, work)?.map_err(exception)
    }

    /// Copies the store as it is now into a new one, while writes continue. Returns the number of
    /// elements, their bytes, and the time of the state that was copied.
    fn backup<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        let store = self.opened.get()?;
        let work = move |stop: &'static std::sync::atomic::AtomicBool| {
            store.backup(path, |_| !stop.load(Ordering::Relaxed))
        };
        let report = interruptible(py, None, work)?.map_err(exception)?;
        let dict = PyDict::new(py);
        dict.set_item("elements", report.elements)?;
        dict.set_item("bytes", report.bytes)?;
        dict.set_item("time", report.time)?;
        Ok(dict)
    }

    /// Counts since the opening, and sizes now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.opened.on(py, |store| Ok(store.stats()))?;
        let dict = PyDict::new(py);
        for (name, number) in stats.named() {
            dict.set_item(name, number)?;
        }
        Ok(dict)
    }

    /// Makes everything durable and closes the store. Does nothing if it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let lock = self.opened.store.get()?;
        let store = lock.write().unwrap_or_else(PoisonError::into_inner).take();
        match store {
            Some(store) => interruptible(py, None, move |_| store.close())?.map_err(exception),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<senko_flash.store store {}>", self.opened.path.display())
    }
}

struct View(Closable<senko_store::Snapshot>);

impl Source for View {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let found = py.detach(|| self.0.read(|snapshot| snapshot.get(key)))?;
        Ok(found.map_err(exception)?.map(Value::into_vec))
    }
}

/// A state of a store that does not change.
#[pyclass(extends = Reads, module = "senko_flash._native", frozen)]
pub struct StoreSnapshot {
    view: Arc<View>,
}

#[pymethods]
impl StoreSnapshot {
    /// The time of the state: microseconds since 1970.
    #[getter]
    fn time(&self) -> PyResult<u64> {
        self.view.0.read(senko_store::Snapshot::time)
    }

    /// The values of many keys, in their order. An absent key has None.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Values<'py>> {
        let snapshot = self.view.0.read(Clone::clone)?;
        many(py, keys, move |keys| snapshot.multi_get(keys))
    }

    fn __iter__(&self) -> PyResult<Records> {
        let scan = self.view.0.read(senko_store::Snapshot::scan)?;
        Ok(entries(scan.map_err(exception)?, Part::Key))
    }

    fn _scan(&self) -> PyResult<Records> {
        let scan = self.view.0.read(senko_store::Snapshot::scan)?;
        Ok(entries(scan.map_err(exception)?, Part::Entry))
    }

    /// Ends the snapshot. Does nothing if it has ended. A scan that began before continues.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.view.0.close(py)
    }
}

/// Writes that are made together.
#[pyclass(subclass, module = "senko_flash._native", frozen)]
pub struct Batch(Mutex<Gathered>);

/// What a batch gathered, until its `with` block ends.
#[derive(Default)]
struct Gathered {
    writes: senko_store::Batch,
    ended: bool,
}

impl Batch {
    /// What is gathered; an error once the batch has ended.
    fn open(&self) -> PyResult<MutexGuard<'_, Gathered>> {
        let gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match gathered.ended {
            true => Err(Of::Store.error("the batch has ended")),
            false => Ok(gathered),
        }
    }
}

#[pymethods]
impl Batch {
    #[new]
    #[pyo3(signature = (durability))]
    fn new(durability: Argument<'_, '_>) -> PyResult<Batch> {
        // Checked before anything is collected; the write checks it again.
        durability.map(durability_of).transpose()?;
        Ok(Batch(Mutex::default()))
    }

    /// Puts a value. It lives for `ttl` seconds, or until `expires_at` (seconds since 1970).
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Argument<'_, '_>,
        expires_at: Argument<'_, '_>,
    ) -> PyResult<()> {
        let (key, value) = (bytes::of(key)?, bytes::of(value)?);
        let expires_at = match ttl {
            Some(ttl) => Some(second_after(ttl_of(ttl)?)),
            None => expiry_of(expires_at)?,
        };
        let mut gathered = self.open()?;
        match expires_at {
            Some(second) => gathered.writes.put_expiring(&key, &value, second),
            None => gathered.writes.put(&key, &value),
        };
        Ok(())
    }

    /// Deletes a key.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = bytes::of(key)?;
        self.open()?.writes.delete(&key);
        Ok(())
    }

    /// An error if the `with` block has ended.
    fn _check(&self) -> PyResult<()> {
        self.open().map(drop)
    }

    /// The end of the `with` block: what is gathered goes, and nothing is taken any more.
    fn _end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Gathered {
            ended: true,
            ..Gathered::default()
        };
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable())
    }

    fn __len__(&self) -> usize {
        let gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.writes.len()
    }
}

/// Checks a store that no process has open. Returns what was read, and the problems: byte and
/// sentence.
#[pyfunction]
pub fn verify_store<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Bound<'py, PyDict>, Vec<Problem>)> {
    let report = interruptible(py, None, move |_| senko_store::verify(path, |_, _| ()))?;
    let report = report.map_err(exception)?;
    let dict = PyDict::new(py);
    dict.set_item("pages", report.pages)?;
    dict.set_item("elements", report.elements)?;
    dict.set_item("blocks", report.blocks)?;
    dict.set_item("logs", report.logs)?;
    dict.set_item("large_values", report.large_values)?;
    let problems = report.problems.into_iter();
    Ok((dict, problems.map(|p| (p.offset, p.what)).collect()))
}

/// Adds the store to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("StoreFailure", module.py().get_type::<StoreFailure>())?;
    module.add_class::<Store>()?;
    module.add_class::<StoreSnapshot>()?;
    module.add_class::<Batch>()?;
    module.add_function(wrap_pyfunction!(verify_store, module)?)
}
