// SPDX-License-Identifier: Apache-2.0
//! The TLS options of `senko load`, which [`super::LoadArgs`] includes.

use std::path::PathBuf;

use clap::Args;
use senko_load::TlsOptions;

/// TLS options of `senko load`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Encrypt connections
    #[arg(long)]
    tls: bool,
    /// PEM file of the CAs that vouch for the server [default: /etc/ssl/certs/ca-certificates.crt]
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Accept any certificate of the server
    #[arg(long, requires = "tls", conflicts_with = "tls_ca")]
    tls_insecure: bool,
    /// Name that the server's certificate has to have [default: the server's IP address]
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,
    /// PEM file of the certificate to show to the server, and those that lead to its CA
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// PEM file of its private key [default: it is in the file of --tls-cert]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The only cipher suite to offer, such as TLS_AES_128_GCM_SHA256 [default: all that are safe]
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_cipher: Option<String>,
}

impl TlsArgs {
    /// The settings from these options; `None`: no TLS.
    pub fn options(&self) -> Option<TlsOptions> {
        self.tls.then(|| TlsOptions {
            ca: self.tls_ca.clone(),
            insecure: self.tls_insecure,
            name: self.tls_name.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            cipher: self.tls_cipher.clone(),
        })
    }
}
