// SPDX-License-Identifier: Apache-2.0
//! The options of a fill at the start.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use senko_load::{Login, TlsOptions};

use crate::client::password_in;
use crate::fill;
use crate::units::ByteRate;

/// Options of `senko serve` and its file about the peer from which it is filled.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Filling")]
pub struct FillOptions {
    /// Once it serves, store the items of this senko or memcached, HOST or HOST:PORT, that are not
    /// here and did not change here [default: off]
    #[arg(long, value_name = "ADDR")]
    pub fill_from: Option<String>,
    /// Bytes of items that --fill-from reads at most [default: 32m/s]
    #[arg(long, value_name = "SIZE/TIME")]
    pub fill_rate: Option<ByteRate>,
    /// Log in to the peer as this user, with --fill-password-file
    #[arg(long, value_name = "NAME")]
    pub fill_user: Option<String>,
    /// File whose first line is that user's password
    #[arg(long, value_name = "FILE")]
    pub fill_password_file: Option<PathBuf>,
    /// Encrypt the connections to the peer; the other --fill-tls options imply it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_possible_values = true)]
    pub fill_tls: Option<bool>,
    /// PEM file of the CAs that vouch for the peer [default:
    /// /etc/ssl/certs/ca-certificates.crt]
    #[arg(long, value_name = "FILE")]
    pub fill_tls_ca: Option<PathBuf>,
    /// Name that the peer's certificate has to have [default: the peer's IP address]
    #[arg(long, value_name = "NAME")]
    pub fill_tls_name: Option<String>,
    /// PEM file of the certificate to show to the peer, and of its private key
    #[arg(long, value_name = "FILE")]
    pub fill_tls_cert: Option<PathBuf>,
}

impl FillOptions {
    /// Merges these options over those of the file.
    pub fn over(self, file: FillOptions) -> FillOptions {
        FillOptions {
            fill_from: self.fill_from.or(file.fill_from),
            fill_rate: self.fill_rate.or(file.fill_rate),
            fill_user: self.fill_user.or(file.fill_user),
            fill_password_file: self.fill_password_file.or(file.fill_password_file),
            fill_tls: self.fill_tls.or(file.fill_tls),
            fill_tls_ca: self.fill_tls_ca.or(file.fill_tls_ca),
            fill_tls_name: self.fill_tls_name.or(file.fill_tls_name),
            fill_tls_cert: self.fill_tls_cert.or(file.fill_tls_cert),
        }
    }

    /// The peer, and how to reach it; `None`: nothing is filled.
    pub fn settings(&self) -> Result<Option<(String, String)>> {
        let Some(peer) = &self.fill_from else {
            return Ok(None);
        };
        fill::check_peer(peer)?;
        let login = match (&self.fill_user, &self.fill_password_file) {
            (None, None) => None,
            (Some(user), Some(file)) => Some(Login {
                user: user.clone(),
                password: password_in(file)?,
            }),
            _ => bail!("--fill-user and --fill-password-file belong together"),
        };
        let named = [
            self.fill_tls_ca.is_some(),
            self.fill_tls_name.is_some(),
            self.fill_tls_cert.is_some(),
        ];
        let tls = self.fill_tls.unwrap_or(named.contains(&true));
        let tls = tls.then(|| TlsOptions {
            ca: self.fill_tls_ca.clone(),
            name: self.fill_tls_name.clone(),
            cert: self.fill_tls_cert.clone(),
            ..TlsOptions::default()
        });
        let rate = self.fill_rate.map_or(fill::DEFAULT_RATE, |rate| rate.0);
        Ok(Some((peer.clone(), fill::how(rate, login, tls)?)))
    }
}
