// SPDX-License-Identifier: Apache-2.0
//! Certificates in a PEM file, and when they expire. The files are an operator's; a fuzz target
//! (`fuzz/targets/tls_pem.rs`) feeds it arbitrary bytes.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Most certificates of a file: a bundle of all public CAs has some 150.
const MOST_CERTIFICATES: usize = 1000;

/// All certificates in a PEM file's text, in their order.
///
/// # Errors
/// Why it has none, as a clause.
///
/// ```
/// let error = senko_server::tls::pem::certificates(b"no PEM").unwrap_err();
/// assert_eq!(error, "there is no certificate in it");
/// ```
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(text) {
        all.push(certificate.map_err(|error| format!("it is no PEM file: {error:?}"))?);
        if all.len() > MOST_CERTIFICATES {
            return Err(format!("it has more than {MOST_CERTIFICATES} certificates"));
        }
    }
    match all.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(all),
    }
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which current certificates have.
const VERSION: u8 = 0xa0;

/// The Unix second at which an X.509 certificate (DER) expires; `None`: it is not a certificate.
pub fn end(certificate: &[u8]) -> Option<i64> {
    let mut outer = certificate;
    let mut whole = element(&mut outer, SEQUENCE)?;
    let mut rest = element(&mut whole, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        element(&mut rest, VERSION)?;
    }
    element(&mut rest, INTEGER)?;
    // Signature algorithm and issuer.
    element(&mut rest, SEQUENCE)?;
    element(&mut rest, SEQUENCE)?;
    let mut validity = element(&mut rest, SEQUENCE)?;
    time(&mut validity)?;
    time(&mut validity)
}

/// Takes off the next element, which must be of this kind; returns its content.
fn element<'a>(data: &mut &'a [u8], kind: u8) -> Option<&'a [u8]> {
    let (&tag, rest) = data.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let len = match first {
        0..=0x7f => usize::from(first),
        // A length of one to three bytes, since no certificate is larger.
        0x81..=0x83 => {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 3))?;
            rest = after;
            bytes
                .iter()
                .fold(0, |len, &byte| len << 8 | usize::from(byte))
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *data = rest;
    (tag == kind).then_some(content)
}

/// Takes off a time: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(data: &mut &[u8]) -> Option<i64> {
    let kind = *data.first()?;
    let text = element(data, kind)?;
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |n, &byte| n * 10 + i64::from(byte - b'0'))
    };
    let (year, rest) = match (kind, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |n: usize| number(&rest[2 * n..2 * n + 2]);
    let (month, day) = (part(0), part(1));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(((days(year, month, day) * 24 + part(2)) * 60 + part(3)) * 60 + part(4))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that a leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2024, 2, 29) + 1, days(2024, 3, 1));
        assert_eq!(days(2100, 2, 28) + 1, days(2100, 3, 1));
    }

    #[test]
    fn times_of_both_kinds() {
        let of = |kind: u8, text: &[u8]| {
            let data = [&[kind, text.len() as u8], text].concat();
            time(&mut data.as_slice())
        };
        assert_eq!(of(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(
            of(GENERALIZED_TIME, b"20010909014640Z"),
            Some(1_000_000_000)
        );
        assert_eq!(of(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        for wrong in [&b"700101000001"[..], b"70010100000Z", b"701301000001Z", b""] {
            assert_eq!(of(UTC_TIME, wrong), None);
        }
        assert_eq!(of(GENERALIZED_TIME, b"700101000001Z"), None);
    }
}
