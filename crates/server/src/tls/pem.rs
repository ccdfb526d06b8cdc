// SPDX-License-Identifier: Apache-2.0
//! Certificates and keys in PEM files. The files are an operator's; a fuzz target
//! (`fuzz/targets/tls_pem.rs`) feeds it arbitrary bytes.
//!
//! Reasons are clauses without a byte of the file (TLS-3).

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::words::KEYS;

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
        all.push(certificate.map_err(|error| told(&error))?);
        if all.len() > MOST_CERTIFICATES {
            return Err(format!("it has more than {MOST_CERTIFICATES} certificates"));
        }
    }
    match all.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(all),
    }
}

/// The private key in a PEM file's text.
///
/// # Errors
/// Why there is none, as a clause.
///
/// ```
/// let error = senko_server::tls::pem::key(b"-----BEGIN ENCRYPTED PRIVATE KEY-----").unwrap_err();
/// assert!(error.contains("passphrase"), "{error}");
/// ```
pub fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let has = |words: &[u8]| memchr::memmem::find(text, words).is_some();
    // The second form is OpenSSL's own, from before PKCS #8.
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(
            "the key is encrypted with a passphrase, and the server can't ask for it: `openssl pkey -in FILE -out NEW` writes it without"
                .to_owned(),
        );
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        Error::NoItemsFound => "there is no private key in it".to_owned(),
        error => told(&error),
    })
}

/// OpenSSL's name of a curve in its keys: the identifier of P-521.
const P_521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// Why a key that was read can't be used, as a clause.
pub fn unusable(key: &PrivateKeyDer<'_>) -> String {
    let is = match memchr::memmem::find(key.secret_der(), P_521) {
        Some(_) => "it is a key of the curve P-521, and the server takes",
        None => "the server takes",
    };
    format!(
        "{is} {KEYS}; `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes a new one, which needs a new certificate"
    )
}

/// An error of the parser without its debug form.
fn told(error: &Error) -> String {
    let why = match error {
        Error::MissingSectionEnd { .. } => "its last block has no END line, so it is cut off",
        Error::IllegalSectionStart { .. } => "a BEGIN line is not whole",
        Error::Base64Decode(_) => "a block is not in base64",
        _ => "it cannot be read as one",
    };
    format!("it is no whole PEM file: {why}")
}
