// SPDX-License-Identifier: Apache-2.0
//! `senko dbm load` and `dump`: many records, in and out.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use senko_dbm::{Database, Durability, Options, Table};
use senko_io::{Unfinished, tell};
use serde_json::json;

use super::formats::{Format, Input, Output};
use super::rows::Row;
use super::{MAIN, Place};
use crate::process::{Interrupted, stop_on_signals};
use crate::units::counted;

/// Most bytes of keys and values in one transaction.
const BATCH_BYTES: usize = 1 << 20;

struct Loading<'a> {
    place: &'a Place,
    /// Opened with the first records, so that an input without records makes no database.
    db: Option<Database>,
    /// Whether the database was made for this load.
    is_new: bool,
    table: Option<Table>,
    rows: Vec<Row>,
    bytes: usize,
    loaded: u64,
}

impl Loading<'_> {
    /// Puts the gathered rows as one transaction.
    fn put(&mut self) -> Result<()> {
        let told = |error| self.place.told(&error);
        if self.db.is_none() {
            let options = Options {
                transaction_bytes: usize::MAX,
                ..self.place.options(true)
            };
            super::refuse_kind(&self.place.file)?;
            let absent = self.place.is_absent();
            let db = Database::open(&self.place.file, options).map_err(told)?;
            // Another process may have made it meanwhile.
            self.is_new = absent && db.tables().is_empty();
            self.db = Some(db);
        }
        let db = self.db.as_ref().context("the database was opened")?;
        let mut tables: Vec<Table> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let name = row.table.as_deref().unwrap_or(self.place.name());
            let table = match tables.last().or(self.table.as_ref()) {
                Some(last) if last.name() == name => last.clone(),
                _ => db.create_table(name).map_err(told)?,
            };
            tables.push(table);
        }
        let work = |tx: &mut senko_dbm::Transaction| {
            let rows = tables.iter().zip(&self.rows);
            rows.into_iter()
                .try_for_each(|(table, row)| tx.put(table, &row.key, &row.value))
        };
        db.run(Durability::Buffered, work).map_err(told)?;
        self.table = tables.pop();
        self.loaded += self.rows.len() as u64;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match &self.db {
            Some(db) => db.sync().map_err(|error| self.place.told(&error)),
            None => Ok(()),
        }
    }
}

/// Runs `senko dbm load`. `batch` is the number of records per transaction; without it, all records
/// are one transaction. `drop_expiry`: records may have an expiry, which is
/// lost.
pub fn load(
    place: &Place,
    input: Option<&Path>,
    format: Option<Format>,
    batch: Option<usize>,
    drop_expiry: bool,
    out: &mut impl Write,
) -> Result<bool> {
    if place.hex {
        bail!(
            "load does not accept --hex: the names in the input say what is hexadecimal (key_hex)"
        );
    }
    place.check_name()?;
    let mut input = Input::open(input, format)?;
    input.lost_expiries = drop_expiry.then_some(0);
    // A read from a terminal or a pipe may take forever, so a signal ends it in the usual way.
    if input.file {
        stop_on_signals();
    }
    let mut loading = Loading {
        place,
        db: None,
        is_new: false,
        table: None,
        rows: Vec::new(),
        bytes: 0,
        loaded: 0,
    };
    while Interrupted::now().is_none() {
        let row = match input.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => {
                // The records before the bad one are kept and counted.
                if batch.is_some() && !loading.rows.is_empty() {
                    put(&mut loading)?;
                }
                loading.sync()?;
                match loading.loaded {
                    0 => bail!("{error:#}; nothing is loaded"),
                    1 => bail!("{error:#}; the record before it is loaded"),
                    loaded => bail!("{error:#}; the {loaded} records before it are loaded"),
                }
            }
        };
        loading.bytes += row.key.len() + row.value.len();
        loading.rows.push(row);
        if batch.is_some_and(|most| loading.rows.len() >= most || loading.bytes >= BATCH_BYTES) {
            put(&mut loading)?;
        }
    }
    let interrupted = Interrupted::now();
    if interrupted.is_none() || batch.is_some() && !loading.rows.is_empty() {
        put(&mut loading)?;
    }
    let loaded = loading.loaded;
    if let Some(db) = loading.db.take() {
        // Tables without records are kept too.
        for name in input.tables() {
            let made = db.create_table(name.as_deref().unwrap_or(place.name()));
            made.map_err(|error| place.told(&error))?;
        }
        db.close().map_err(|error| place.told(&error))?;
    }
    let lost = input.lost_expiries.unwrap_or(0);
    let records = counted(loaded, "record");
    match place.json {
        true => writeln!(
            out,
            "{}",
            json!({ "records": loaded, "lost_expiries": lost })
        )?,
        false if lost > 0 => tell!("{records} loaded, {lost} of them without their expiry"),
        false => tell!("{records} loaded"),
    }
    match interrupted {
        Some(interrupted) => Err(interrupted.into()),
        None => Ok(true),
    }
}

fn put(loading: &mut Loading<'_>) -> Result<()> {
    let before = loading.loaded;
    let done = loading.put();
    if done.is_err() && before == 0 && loading.is_new {
        loading.place.remove();
    }
    done.with_context(|| match before {
        0 => "nothing is loaded".to_owned(),
        1 => "only the first record is loaded".to_owned(),
        loaded => format!("only the first {loaded} records are loaded"),
    })
}

/// Runs `senko dbm dump`. An unfinished dump never gets the file's name.
pub fn dump(
    place: &Place,
    format: Option<Format>,
    to: Option<&Path>,
    out: &mut impl Write,
) -> Result<bool> {
    let by_name = || to.and_then(Format::of_path);
    let format = match (format, place.json) {
        (None | Some(Format::Json), true) => Format::Json,
        (Some(_), true) => bail!("--json and another --format contradict each other"),
        (format, false) => format.or_else(by_name).unwrap_or(Format::Json),
    };
    if place.hex && !matches!(format, Format::Json | Format::Csv) {
        bail!("--hex is for json and csv: the other formats have bytes in their own way");
    }
    let Some(to) = to else {
        return write(place, format, out);
    };
    stop_on_signals();
    let (unfinished, file) = Unfinished::create(to)?;
    let mut file = std::io::BufWriter::with_capacity(1 << 18, file);
    write(place, format, &mut file)
        .and_then(|_| Ok(file.flush()?))
        .map_err(|error| match error.is::<std::io::Error>() {
            true => error.context(format!("cannot write {}", to.display())),
            false => error,
        })?;
    unfinished.finish()?;
    Ok(true)
}

fn write(place: &Place, format: Format, out: &mut impl Write) -> Result<bool> {
    let db = place.read()?;
    let tables = match &place.table {
        Some(_) => vec![place.found(&db)?],
        None => db.tables(),
    };
    if format == Format::GdbmDump && tables.len() > 1 {
        let count = tables.len();
        bail!("gdbm_dump has one table, and the database {count}: name one with --table");
    }
    let snapshot = db.snapshot();
    let mut output = Output::new(format, place.hex);
    output.begin(out)?;
    for table in &tables {
        output.table(out, table.name(), tables.len() == 1)?;
        let cursor = snapshot.cursor(table, ..);
        for record in cursor.map_err(|error| place.told(&error))? {
            if let Some(interrupted) = Interrupted::now() {
                return Err(interrupted.into());
            }
            let (key, value) = record.map_err(|error| place.told(&error))?;
            output.record(out, table.name(), &key, &value)?;
        }
        output.end(out)?;
    }
    if tables.is_empty() {
        output.table(out, MAIN, true)?;
        output.end(out)?;
    }
    Ok(true)
}
