// SPDX-License-Identifier: Apache-2.0
//! The parts of a certificate (X.509, DER) that the server reads itself: validity, names, key and
//! signature. rustls's verifier reads current certificates; certificates of version 1, which have
//! no extensions, are verified with these parts (`clients.rs`).
//!
//! The bytes may come from a client, so nothing here panics (`fuzz/targets/tls_pem.rs`).

const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BOOLEAN: u8 = 0x01;
const IDENTIFIER: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// The version, which current certificates have.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The identifiers of two extensions.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// The bit of the key usage for signing certificates, in its first byte.
const SIGNS_CERTIFICATES: u8 = 0x04;

/// Parts of a certificate. Each is the content of its element, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    /// Whether it is of version 1, from before there were extensions.
    pub is_version_1: bool,
    /// What its issuer signed: an element with its header.
    pub signed: &'a [u8],
    /// The name of its issuer.
    pub issuer: &'a [u8],
    /// Unix seconds of the first and the last moment at which it is valid.
    pub validity: (i64, i64),
    /// The name of its owner.
    pub subject: &'a [u8],
    /// Key and algorithm of its owner: an element with its header.
    pub key_info: &'a [u8],
    /// The algorithm of `key`.
    pub key_algorithm: &'a [u8],
    /// The key of its owner.
    pub key: &'a [u8],
    /// The algorithm of `signature`.
    pub signature_algorithm: &'a [u8],
    /// The issuer's signature.
    pub signature: &'a [u8],
    pub extensions: Extensions,
}

/// What a certificate says of itself as an issuer (RFC 5280, 4.2.1.3 and 4.2.1.9).
#[derive(Clone, Copy, Debug)]
pub struct Extensions {
    /// Whether it calls itself a CA.
    pub is_ca: bool,
    /// Whether its key may sign certificates.
    pub signs: bool,
    /// The most CAs between it and the certificate of a client.
    pub most_between: Option<usize>,
}

impl Extensions {
    /// Without extensions.
    const NONE: Extensions = Extensions {
        is_ca: false,
        signs: true,
        most_between: None,
    };

    const UNREADABLE: Extensions = Extensions {
        signs: false,
        ..Extensions::NONE
    };

    /// Reads what follows the key in a certificate.
    fn read(mut rest: &[u8]) -> Option<Extensions> {
        let mut extensions = Extensions::NONE;
        while let Some(&kind) = rest.first() {
            let mut content = element(&mut rest, kind)?;
            if kind != EXTENSIONS {
                continue;
            }
            let mut list = element(&mut content, SEQUENCE)?;
            while !list.is_empty() {
                let mut extension = element(&mut list, SEQUENCE)?;
                let identifier = element(&mut extension, IDENTIFIER)?;
                if extension.first() == Some(&BOOLEAN) {
                    // Whether it is critical.
                    element(&mut extension, BOOLEAN)?;
                }
                let value = element(&mut extension, OCTETS)?;
                match identifier {
                    BASIC_CONSTRAINTS => extensions.constrain(value)?,
                    KEY_USAGE => extensions.limit_use(value)?,
                    _ => {}
                }
            }
        }
        Some(extensions)
    }

    fn constrain(&mut self, mut value: &[u8]) -> Option<()> {
        let mut constraints = element(&mut value, SEQUENCE)?;
        if constraints.first() == Some(&BOOLEAN) {
            self.is_ca = element(&mut constraints, BOOLEAN)? == [0xff];
        }
        if !constraints.is_empty() {
            let most = element(&mut constraints, INTEGER)?.iter();
            self.most_between =
                Some(most.fold(0, |most: usize, &byte| most << 8 | usize::from(byte)));
        }
        Some(())
    }

    fn limit_use(&mut self, mut value: &[u8]) -> Option<()> {
        let (_, bits) = element(&mut value, BIT_STRING)?.split_first()?;
        self.signs = bits
            .first()
            .is_some_and(|bits| bits & SIGNS_CERTIFICATES != 0);
        Some(())
    }
}

impl<'a> Certificate<'a> {
    /// `None`: the bytes are not a certificate.
    pub fn read(der: &'a [u8]) -> Option<Certificate<'a>> {
        let mut outer = der;
        let mut whole = element(&mut outer, SEQUENCE)?;
        let (signed, mut rest) = with_header(&mut whole, SEQUENCE)?;
        let signature_algorithm = element(&mut whole, SEQUENCE)?;
        let signature = bits(&mut whole)?;
        let is_version_1 = rest.first() != Some(&VERSION);
        if !is_version_1 {
            element(&mut rest, VERSION)?;
        }
        element(&mut rest, INTEGER)?;
        // The algorithm of the signature once more, here under it.
        if element(&mut rest, SEQUENCE)? != signature_algorithm {
            return None;
        }
        let issuer = element(&mut rest, SEQUENCE)?;
        let mut times = element(&mut rest, SEQUENCE)?;
        let validity = (time(&mut times)?, time(&mut times)?);
        let subject = element(&mut rest, SEQUENCE)?;
        let (key_info, mut of_key) = with_header(&mut rest, SEQUENCE)?;
        let key_algorithm = element(&mut of_key, SEQUENCE)?;
        let key = bits(&mut of_key)?;
        let extensions = Extensions::read(rest).unwrap_or(Extensions::UNREADABLE);
        Some(Certificate {
            is_version_1,
            signed,
            issuer,
            validity,
            subject,
            key_info,
            key_algorithm,
            key,
            signature_algorithm,
            signature,
            extensions,
        })
    }

    /// Whether it may vouch for others. One of version 1 can't say so; as its own issuer it may.
    pub fn vouches(&self) -> bool {
        let Extensions { is_ca, signs, .. } = self.extensions;
        signs && (is_ca || self.is_version_1 && self.issuer == self.subject)
    }
}

/// The algorithm of RSA keys: its identifier, as an element.
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
];

impl Certificate<'_> {
    /// Bytes of the modulus, if it is an RSA key.
    pub fn rsa_bytes(&self) -> Option<usize> {
        let mut key = self.key_algorithm.starts_with(RSA).then_some(self.key)?;
        let modulus = element(&mut element(&mut key, SEQUENCE)?, INTEGER)?;
        Some(modulus.strip_prefix(&[0]).unwrap_or(modulus).len())
    }
}

/// The Unix second at which a certificate expires; `None`: the bytes are not a certificate.
pub fn end(certificate: &[u8]) -> Option<i64> {
    Certificate::read(certificate).map(|certificate| certificate.validity.1)
}

/// Takes off the next element, which must be of this kind; returns its content.
fn element<'a>(data: &mut &'a [u8], kind: u8) -> Option<&'a [u8]> {
    with_header(data, kind).map(|(_, content)| content)
}

/// As [`element`]; returns the element with its header, and its content.
fn with_header<'a>(data: &mut &'a [u8], kind: u8) -> Option<(&'a [u8], &'a [u8])> {
    let whole = *data;
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
    (tag == kind).then(|| (&whole[..whole.len() - rest.len()], content))
}

/// Takes off a string of whole bytes.
fn bits<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    match element(data, BIT_STRING)?.split_first()? {
        (0, bytes) => Some(bytes),
        _ => None,
    }
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
