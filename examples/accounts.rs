// SPDX-License-Identifier: Apache-2.0
//! Moves money between two accounts in one transaction, lists them in order, takes a backup.
//!
//!     cargo run -p senko_dbm --example accounts -- accounts.db

use std::path::Path;

use senko_dbm::{Database, DbmError, Durability, Options, Table, Transaction};

fn balance(tx: &mut Transaction, table: &Table, name: &str) -> Result<u64, DbmError> {
    let value = tx.get(table, name.as_bytes())?;
    let digits = value.map_or(String::new(), |v| String::from_utf8_lossy(&v).into_owned());
    Ok(digits.parse().unwrap_or(100))
}

pub fn run(path: &Path) -> Result<Vec<String>, DbmError> {
    let db = Database::open(path, Options::default())?;
    let accounts = db.create_table("accounts")?;
    // It runs again if another thread's commit conflicts with it.
    db.run(Durability::Synced, |tx| {
        let (ann, ben) = (
            balance(tx, &accounts, "ann")?,
            balance(tx, &accounts, "ben")?,
        );
        tx.put(&accounts, b"ann", (ann - 30).to_string().as_bytes())?;
        tx.put(&accounts, b"ben", (ben + 30).to_string().as_bytes())
    })?;
    let mut lines = Vec::new();
    for record in db.snapshot().cursor(&accounts, ..)? {
        let (name, value) = record?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        lines.push(format!("{} has {}", text(&name), text(&value)));
    }
    db.backup(&path.with_extension("backup"), |_records| true)?;
    db.close()?;
    Ok(lines)
}

fn main() -> Result<(), DbmError> {
    let path = std::env::args_os().nth(1).unwrap_or("accounts.db".into());
    run(Path::new(&path))?
        .iter()
        .for_each(|line| println!("{line}"));
    Ok(())
}
