// SPDX-License-Identifier: Apache-2.0
//! Recognises a trace's format by its first lines.

use std::fmt;
use std::io::{self, BufRead, Read};

use super::oracle;

/// How many decompressed bytes are read to recognise the format.
const PEEK: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Megiddo and Modha's `.lis`.
    Arc,
    /// Jiang and Zhang's `.trace`.
    Lirs,
    /// libCacheSim's 24-byte records.
    OracleGeneral,
    /// `key,op,size` lines.
    Csv,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::OracleGeneral => "oracle-general",
            Self::Csv => "csv",
        })
    }
}

impl Format {
    /// The format whose beginning is `head`, or what was found instead.
    pub(super) fn recognise(head: &[u8]) -> Result<Self, String> {
        if head.is_empty() {
            return Err("it is empty".to_string());
        }
        if head
            .iter()
            .any(|&byte| byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t'))
        {
            return if oracle::plausible(head) {
                Ok(Self::OracleGeneral)
            } else {
                Err(
                    "it is binary, and not of 24-byte records with sane times and next accesses"
                        .to_string(),
                )
            };
        }
        let line = head
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .find(|line| !line.is_empty() && *line != b"*")
            .ok_or_else(|| "it starts with blank lines only".to_string())?;
        if line.contains(&b',') {
            return Ok(Self::Csv);
        }
        let fields: Vec<&[u8]> = line
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty())
            .collect();
        let all_numbers = fields
            .iter()
            .all(|field| field.iter().all(u8::is_ascii_digit));
        match (all_numbers, fields.len()) {
            (true, 1) => Ok(Self::Lirs),
            (true, 4) => Ok(Self::Arc),
            _ => {
                let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                Err(format!("its first line is \"{}\"", shown.escape_debug()))
            }
        }
    }
}

/// The first [`PEEK`] bytes, or fewer if the input is shorter.
pub(super) fn peek(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(PEEK);
    input.take(PEEK as u64).read_to_end(&mut head)?;
    Ok(head)
}
