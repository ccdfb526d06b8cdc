// SPDX-License-Identifier: Apache-2.0
//! Parses numbers the way memcached does, base64 keys, and expiry times.
//!
//! memcached has two ways. Flags and time of the classic storage commands are read with the C
//! library's `strtol` family: leading white space and a sign are accepted, and white space may end
//! the number. Numbers may have 64 bits. Only the lower 32 bits of flags count. A time beyond 32
//! bits counts as the last time of a 32-bit clock.
//!
//! All other numbers are plain: digits and nothing else, in a bounded number of places. Only a
//! signed number may begin with a minus. A number that does not fit its type is refused.

/// Longest relative expiry: 30 days, in seconds. A larger number is an absolute time.
pub const MAX_RELATIVE: i64 = 60 * 60 * 24 * 30;

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Sign and magnitude of the number that `text` starts with; `None` if there is none, it is larger
/// than 64 bits, or something other than white space follows it.
fn magnitude(text: &[u8]) -> Option<(bool, u64)> {
    let mut i = 0;
    while i < text.len() && is_space(text[i]) {
        i += 1;
    }
    let negative = text.get(i) == Some(&b'-');
    if negative || text.get(i) == Some(&b'+') {
        i += 1;
    }
    let first = i;
    let mut value = 0u64;
    while let Some(digit) = text.get(i).filter(|b| b.is_ascii_digit()) {
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        i += 1;
    }
    if i == first || text.get(i).is_some_and(|&b| !is_space(b)) {
        return None;
    }
    Some((negative, value))
}

/// A plain unsigned number of at most `places` digits.
fn plain(text: &[u8], places: usize) -> Option<u64> {
    if text.is_empty() || text.len() > places {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Most characters of a plain 32-bit number, including a sign: as many as memcached accepts.
const PLACES_32: usize = 11;
/// Most digits of a plain number of 64 bits.
const PLACES_64: usize = 22;

/// A plain unsigned 64-bit number.
pub fn plain_u64(text: &[u8]) -> Option<u64> {
    plain(text, PLACES_64)
}

/// A plain unsigned 32-bit number.
pub fn plain_u32(text: &[u8]) -> Option<u32> {
    u32::try_from(plain(text, PLACES_32)?).ok()
}

/// A plain signed 32-bit number.
pub fn plain_i32(text: &[u8]) -> Option<i32> {
    let value = match text {
        [b'-', digits @ ..] => -i64::try_from(plain(digits, PLACES_32 - 1)?).ok()?,
        digits => i64::try_from(plain(digits, PLACES_32)?).ok()?,
    };
    i32::try_from(value).ok()
}

/// A plain time: a signed number of 32 bits.
pub fn plain_time(text: &[u8]) -> Option<i64> {
    plain_i32(text).map(i64::from)
}

/// An unsigned 64-bit number.
pub fn read_u64(text: &[u8]) -> Option<u64> {
    let (negative, value) = magnitude(text)?;
    if !negative {
        return Some(value);
    }
    // strtoull negates; memcached refuses the result only if its top bit is set.
    let value = value.wrapping_neg();
    (value >> 63 == 0).then_some(value)
}

/// An unsigned 32-bit number.
pub fn read_u32(text: &[u8]) -> Option<u32> {
    let (negative, value) = magnitude(text)?;
    if negative && value != 0 {
        return None;
    }
    u32::try_from(value).ok()
}

/// A client's flags. Bits beyond 32 are dropped, as in memcached.
pub fn read_flags(text: &[u8]) -> Option<u32> {
    read_u64(text).map(|flags| flags as u32)
}

/// A time as clients give it: any signed 64-bit number ([`expiry`] says what it means).
pub fn read_time(text: &[u8]) -> Option<i64> {
    let (negative, value) = magnitude(text)?;
    match negative {
        true => 0_i64.checked_sub_unsigned(value),
        false => i64::try_from(value).ok(),
    }
}

/// The length of a value: not negative, and small enough that 31 bits can count it with its line
/// end.
pub fn read_length(text: &[u8]) -> Option<usize> {
    let n = plain_i32(text)?;
    (0..=i32::MAX - 2).contains(&n).then_some(n as usize)
}

/// Converts a client's `exptime` at `now` to an expiry in Unix seconds (0: never). `started` is
/// when the server started. An absolute time before that, or a negative one, has already passed.
pub fn expiry(exptime: i64, now: u32, started: u32) -> u32 {
    match exptime {
        0 => 0,
        _ if exptime < 0 => 1,
        _ if exptime <= MAX_RELATIVE => now.saturating_add(exptime as u32),
        _ if exptime <= i64::from(started) => 1,
        _ => u32::try_from(exptime).unwrap_or(u32::MAX),
    }
}

/// Writes a number in decimal into `room`; returns the part of `room` with the digits.
#[inline]
pub fn decimal(mut n: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &room[at..];
        }
    }
}

/// Appends a number in decimal.
#[inline]
pub fn push_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(decimal(n, &mut [0; 20]));
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64 with padding.
pub fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let n = u32::from(chunk[0]) << 16
            | u32::from(chunk.get(1).copied().unwrap_or(0)) << 8
            | u32::from(chunk.get(2).copied().unwrap_or(0));
        for i in 0..4 {
            out.push(if i <= chunk.len() {
                ALPHABET[(n >> (18 - 6 * i) & 63) as usize]
            } else {
                b'='
            });
        }
    }
}

/// Decodes base64 with padding into `out`; returns the number of bytes, or `None` if it is
/// malformed, empty or longer than `out`.
pub fn read_base64(text: &[u8], out: &mut [u8]) -> Option<usize> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let mut len = 0;
    let last = text.len() / 4 - 1;
    for (index, chunk) in text.chunks(4).enumerate() {
        let mut n = 0u32;
        let mut padding = 0;
        for &b in chunk {
            let digit = match b {
                b'A'..=b'Z' => b - b'A',
                b'a'..=b'z' => b - b'a' + 26,
                b'0'..=b'9' => b - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' => {
                    padding += 1;
                    0
                }
                _ => return None,
            };
            if padding > 0 && b != b'=' {
                return None;
            }
            n = n << 6 | u32::from(digit);
        }
        if padding > 2 || (padding > 0 && index != last) {
            return None;
        }
        let bytes = [(n >> 16) as u8, (n >> 8) as u8, n as u8];
        let bytes = &bytes[..3 - padding];
        out.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_the_c_library_reads_them() {
        assert_eq!(read_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(read_u64(b"18446744073709551616"), None);
        assert_eq!(read_u64(b" 12"), Some(12));
        assert_eq!(read_u64(b"+1"), Some(1));
        assert_eq!(read_u64(b"-1"), None);
        assert_eq!(read_u64(b"12 ab"), Some(12));
        assert_eq!(read_u64(b"12ab"), None);
        assert_eq!(read_u64(b""), None);
        assert_eq!(read_u64(b"-"), None);
        assert_eq!(read_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(read_u32(b"4294967296"), None);
        assert_eq!(read_u32(b"-1"), None);
        assert_eq!(read_flags(b"4294967297"), Some(1));
        assert_eq!(read_flags(b"-1"), None);
        assert_eq!(read_flags(b"18446744073709551616"), None);
        assert_eq!(read_time(b"2200000000"), Some(2_200_000_000));
        assert_eq!(read_time(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(read_time(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(read_time(b"9223372036854775808"), None);
        assert_eq!(read_length(b"2147483645"), Some(2147483645));
        assert_eq!(read_length(b"2147483646"), None);
        assert_eq!(read_length(b"-1"), None);
    }

    #[test]
    fn plain_numbers_are_digits_and_nothing_else() {
        for bad in ["", "-", "+1", " 1", "1 ", "1x", "1\rx", "--1", "x"] {
            assert_eq!(plain_u64(bad.as_bytes()), None, "{bad:?}");
            assert_eq!(plain_u32(bad.as_bytes()), None, "{bad:?}");
            assert_eq!(plain_i32(bad.as_bytes()), None, "{bad:?}");
            assert_eq!(read_length(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(plain_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(plain_u64(b"18446744073709551616"), None);
        assert_eq!(plain_u64(b"0000000000000000000001"), Some(1));
        assert_eq!(plain_u64(b"00000000000000000000001"), None);
        assert_eq!(plain_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(plain_u32(b"4294967296"), None);
        assert_eq!(plain_u32(b"-1"), None);
        assert_eq!(plain_u32(b"000000000001"), None);
        assert_eq!(plain_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(plain_i32(b"-2147483649"), None);
        assert_eq!(plain_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(plain_time(b"2147483648"), None);
        assert_eq!(read_length(b"01"), Some(1));
    }

    #[test]
    fn expiry_times() {
        assert_eq!(expiry(0, 1000, 900), 0);
        assert_eq!(expiry(-1, 1000, 900), 1);
        assert_eq!(expiry(5, 1000, 900), 1005);
        let now = 1_700_000_000;
        assert_eq!(
            expiry(MAX_RELATIVE, now, now - 5),
            now + MAX_RELATIVE as u32
        );
        assert_eq!(expiry(MAX_RELATIVE + 1, now, now - 5), 1);
        assert_eq!(expiry(i64::from(now) + 7, now, now - 5), now + 7);
        assert_eq!(expiry(0xffff_ffff, now, now), u32::MAX);
        assert_eq!(expiry(i64::MAX, now, now), u32::MAX);
        assert_eq!(expiry(i64::MIN, now, now), 1);
    }

    #[test]
    fn base64_round_trip() {
        for len in 1..=250usize {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 + len) as u8).collect();
            let mut text = Vec::new();
            push_base64(&mut text, &bytes);
            let mut back = [0u8; 250];
            assert_eq!(read_base64(&text, &mut back), Some(len));
            assert_eq!(&back[..len], &bytes);
        }
        for bad in ["", "YW", "!!!!", "YW=j", "Y===", "YWJj====", "YQ==YWJj"] {
            assert_eq!(read_base64(bad.as_bytes(), &mut [0u8; 250]), None, "{bad}");
        }
    }
}
