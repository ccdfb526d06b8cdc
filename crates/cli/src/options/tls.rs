// SPDX-License-Identifier: Apache-2.0
//! The options of TLS. A certificate turns it on, for all TCP listeners.

use std::num::NonZeroU16;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use senko_server::settings::TlsSettings;

use crate::units::{TlsVersion, Verify};

/// TLS options of `senko serve` and its file.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TlsOptions {
    /// Encrypt TCP connections; --tls-chain-cert implies it
    #[arg(short = 'Z', long, visible_alias = "enable-ssl", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Security")]
    pub tls: Option<bool>,
    /// PEM file with the server's certificate, followed by those that lead to its CA
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub tls_chain_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key [default: the file of --tls-chain-cert]
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub tls_key: Option<PathBuf>,
    /// Which clients need a certificate: none, request (a bad one is refused), require [default:
    /// none]
    #[arg(long, value_name = "MODE", help_heading = "Security")]
    pub tls_verify_mode: Option<Verify>,
    /// PEM file of the CAs that vouch for clients
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub tls_ca_cert: Option<PathBuf>,
    /// Oldest version of TLS: 1.2 or 1.3 [default: 1.2]
    #[arg(long, value_name = "VERSION", help_heading = "Security")]
    pub tls_min_version: Option<TlsVersion>,
    /// Cipher suites by OpenSSL's names, separated by colons [default: all safe suites]
    #[arg(long, value_name = "LIST", help_heading = "Security")]
    pub tls_ciphers: Option<String>,
    /// Clients may resume sessions with tickets
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true, help_heading = "Security")]
    pub tls_session_cache: Option<bool>,
    /// Of the drop-in only: memcached's `ssl_wbuf_size`.
    #[arg(skip)]
    pub write_kib: Option<NonZeroU16>,
}

impl TlsOptions {
    /// Merges these options over those of the file.
    pub fn over(self, file: TlsOptions) -> TlsOptions {
        TlsOptions {
            tls: self.tls.or(file.tls),
            tls_chain_cert: self.tls_chain_cert.or(file.tls_chain_cert),
            tls_key: self.tls_key.or(file.tls_key),
            tls_verify_mode: self.tls_verify_mode.or(file.tls_verify_mode),
            tls_ca_cert: self.tls_ca_cert.or(file.tls_ca_cert),
            tls_min_version: self.tls_min_version.or(file.tls_min_version),
            tls_ciphers: self.tls_ciphers.or(file.tls_ciphers),
            tls_session_cache: self.tls_session_cache.or(file.tls_session_cache),
            write_kib: self.write_kib,
        }
    }

    /// The settings; `None`: TLS is off.
    pub fn settings(&self) -> Result<Option<TlsSettings>> {
        if self.tls == Some(false) {
            return Ok(None);
        }
        let Some(chain) = &self.tls_chain_cert else {
            if *self == TlsOptions::default() {
                return Ok(None);
            }
            bail!("TLS needs a certificate and its key: --tls-chain-cert FILE --tls-key FILE");
        };
        let key = self.tls_key.as_ref().unwrap_or(chain);
        Ok(Some(TlsSettings {
            chain: chain.clone(),
            key: key.clone(),
            verify: self.tls_verify_mode.map(|v| v.0).unwrap_or_default(),
            ca: self.tls_ca_cert.clone(),
            only_1_3: self.tls_min_version.is_some_and(|v| v.0),
            ciphers: self.tls_ciphers.clone(),
            session_cache: self.tls_session_cache.unwrap_or(false),
            write_kib: self.write_kib,
        }))
    }
}
