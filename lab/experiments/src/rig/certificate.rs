// SPDX-License-Identifier: Apache-2.0
//! A certificate for contenders that speak TLS, made by the `openssl` program in the scratch
//! folder.
//!
//! The load generator accepts any certificate of a contender; there are no other clients.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::scratch::Scratch;

/// The one cipher suite that comparisons offer, so that all contenders use the same.
pub const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

#[derive(Clone, Debug)]
pub struct Certificate {
    /// PEM: the certificate, signed by its own key.
    pub chain: PathBuf,
    /// PEM: its private key, on the curve P-256.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes a certificate, which is removed with the scratch folder.
    pub fn new(scratch: &Scratch) -> Result<Certificate, String> {
        let (chain, key) = (scratch.path("chain.pem"), scratch.path("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "9"])
            .args(["-subj", "/CN=localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&chain)
            .stdin(Stdio::null())
            .output()
            .map_err(|_| "openssl is not installed (Debian package openssl)".to_owned())?;
        if !made.status.success() {
            let told = String::from_utf8_lossy(&made.stderr);
            let last = told.lines().last().unwrap_or("no reason is known");
            return Err(format!("openssl made no certificate: {last}"));
        }
        Ok(Certificate { chain, key })
    }
}
