// SPDX-License-Identifier: Apache-2.0
//! Keys and values as text: any bytes in, any bytes out, for people, for JSON and for CSV.
//!
//! JSON has no type for bytes. A key or value in UTF-8 is a string in the field `key` or `value`.
//! Any other is base64 in the field with `_base64` appended to the name. Nothing is ever replaced
//! or cut, so a load reads back exactly the rows of a dump.

use serde_json::{Map, Value};

use crate::units::counted;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How keys and values are written on the command line and in CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// As they are
    Raw,
    /// Two hexadecimal digits a byte
    Hex,
    /// Base64 with padding
    Base64,
}

impl Encoding {
    /// The meaning of a column.
    pub fn suffix(self) -> &'static str {
        match self {
            Encoding::Raw => "",
            Encoding::Hex => "_hex",
            Encoding::Base64 => "_base64",
        }
    }

    /// The bytes that a text encodes.
    pub fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Encoding::Raw => Ok(text.to_vec()),
            Encoding::Hex => from_hex(text)
                .ok_or_else(|| format!("\"{}\" is not hexadecimal text", shorten(text))),
            Encoding::Base64 => {
                from_base64(text).ok_or_else(|| format!("\"{}\" is not base64", shorten(text)))
            }
        }
    }

    /// Writes bytes.
    pub fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Raw => out.extend_from_slice(bytes),
            Encoding::Hex => out.extend(bytes.iter().flat_map(|byte| {
                [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
            })),
            Encoding::Base64 => out.extend(to_base64(bytes).into_bytes()),
        }
    }
}

/// The start of an input without a byte order mark, which some programs put before UTF-8. It is an
/// error that names what the input is, if that is no text in UTF-8.
pub fn without_mark(mut start: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    if start.starts_with(b"\x1f\x8b") {
        return Err("it is compressed with gzip: zcat FILE | senko ... load ...");
    }
    if start.starts_with(b"\x28\xb5\x2f\xfd") {
        return Err("it is compressed with zstd: zstdcat FILE | senko ... load ...");
    }
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return Err(
            "it is UTF-16, and must be UTF-8: iconv -f UTF-16 -t UTF-8 FILE | senko ... load ...",
        );
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        start.drain(..3);
    }
    Ok(start)
}

/// The error of a CSV row that has not as many fields as the first line.
pub fn wrong_width(found: usize, wanted: usize) -> String {
    let found = counted(found as u64, "field");
    format!("the row has {found} where the first line has {wanted}")
}

/// The start of a text, for a message.
pub fn shorten(text: &[u8]) -> String {
    const MOST: usize = 40;
    let shown = shown(&text[..text.len().min(MOST)]);
    if text.len() > MOST {
        format!("{shown}...")
    } else {
        shown
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
        .collect()
}

fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for nth in 0..4 {
            if nth <= chunk.len() {
                let letter = word >> (18 - 6 * nth) & 63;
                out.push(LETTERS[letter as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let letters = &text[..text.len() - padding];
    let mut out = Vec::with_capacity(letters.len() / 4 * 3 + 2);
    for chunk in letters.chunks(4) {
        let mut word = 0;
        for &byte in chunk {
            let letter = LETTERS.iter().position(|&letter| letter == byte)?;
            word = word << 6 | letter as u32;
        }
        word <<= 6 * (4 - chunk.len()) as u32;
        let bytes = word.to_be_bytes();
        // Unused bits must be zero, so that every text encodes different bytes.
        if bytes[chunk.len()..].iter().any(|&byte| byte != 0) {
            return None;
        }
        out.extend_from_slice(&bytes[1..chunk.len()]);
    }
    Some(out)
}

/// Bytes in readable form: printable ones unchanged, others as `\xNN`, a backslash doubled.
pub fn shown(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                letter if letter.is_control() => {
                    let mut four = [0; 4];
                    for byte in letter.encode_utf8(&mut four).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                letter => out.push(letter),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// Puts bytes into an object: a string, or base64 under another name.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(to_base64(bytes))),
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    #[test]
    fn bytes_survive_each_encoding() {
        let mut rng = Rng::new(11);
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
            for encoding in [Encoding::Raw, Encoding::Hex, Encoding::Base64] {
                let mut text = Vec::new();
                encoding.encode(&bytes, &mut text);
                assert_eq!(encoding.decode(&text).unwrap(), bytes, "{encoding:?}");
            }
            let mut object = Map::new();
            put_json(&mut object, "key", &bytes);
            let read = match (object.get("key"), object.get("key_base64")) {
                (Some(text), None) => text.as_str().unwrap().as_bytes().to_vec(),
                (None, Some(text)) => from_base64(text.as_str().unwrap().as_bytes()).unwrap(),
                other => panic!("{other:?}"),
            };
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn base64_is_the_usual_one() {
        // The examples of RFC 4648.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(to_base64(bytes.as_bytes()), text);
        }
        for wrong in [
            "Zg=", "Zg", "Z===", "Zh==", "Zm9=", "Zm9v!Q==", "=Zg=", "====",
        ] {
            assert_eq!(from_base64(wrong.as_bytes()), None, "{wrong}");
        }
        for wrong in ["a", "0g", "a b "] {
            assert_eq!(from_hex(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn people_see_what_is_not_text() {
        assert_eq!(shown("grün\n".as_bytes()), "grün\\n");
        assert_eq!(shown(b"\x00\xff\\"), "\\x00\\xff\\\\");
    }
}
