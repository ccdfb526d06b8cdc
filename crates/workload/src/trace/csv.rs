// SPDX-License-Identifier: Apache-2.0
//! The simple form that people export: `key,op,size`, no quotes.

use xxhash_rust::xxh3::xxh3_64;

use super::text::{next_line, number};
use super::{Record, TraceOp, TraceReader, Trouble};

pub(super) fn next(reader: &mut TraceReader<'_>) -> Result<Option<Record>, Trouble> {
    while next_line(reader)? {
        let fields: [&[u8]; 3] = {
            let mut fields = reader
                .line
                .split(|&byte| byte == b',')
                .map(<[u8]>::trim_ascii);
            let three = [(); 3].map(|()| fields.next());
            match (three, fields.next()) {
                ([Some(key), Some(op), Some(size)], None) => [key, op, size],
                _ => {
                    return Err(Trouble::Bad(
                        "it does not have the three fields key,op,size".to_string(),
                    ));
                }
            }
        };
        let [key, op, size] = fields;
        if reader.position == 1 + reader.blank_lines && op.eq_ignore_ascii_case(b"op") {
            continue;
        }
        if key.is_empty() || key.contains(&b'"') {
            return Err(Trouble::Bad("its key is empty or quoted".to_string()));
        }
        let op = operation(op)?;
        // 007 and 7 are two keys.
        let is_number = key.iter().all(u8::is_ascii_digit) && (key == b"0" || key[0] != b'0');
        let key = if is_number && key.len() < 20 {
            number(key, "key")?
        } else {
            xxh3_64(key)
        };
        let size = if size.is_empty() {
            None
        } else {
            Some(number(size, "size")?)
        };
        return Ok(Some(Record { key, size, op }));
    }
    Ok(None)
}

fn operation(op: &[u8]) -> Result<TraceOp, Trouble> {
    const NAMES: [(&[u8], TraceOp); 7] = [
        (b"get", TraceOp::Get),
        (b"read", TraceOp::Get),
        (b"set", TraceOp::Set),
        (b"put", TraceOp::Set),
        (b"write", TraceOp::Set),
        (b"delete", TraceOp::Delete),
        (b"del", TraceOp::Delete),
    ];
    NAMES
        .iter()
        .find(|(name, _)| op.eq_ignore_ascii_case(name))
        .map(|(_, op)| *op)
        .ok_or_else(|| {
            let shown = String::from_utf8_lossy(&op[..op.len().min(40)]).into_owned();
            Trouble::Bad(format!(
                "the op \"{}\" is not get, set or delete",
                shown.escape_debug()
            ))
        })
}
