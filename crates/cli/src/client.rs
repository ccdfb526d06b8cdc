// SPDX-License-Identifier: Apache-2.0
//! The options of commands that are clients of a server: TLS and login. `senko load`, `senko dump`,
//! `senko restore` and `senko ctl fill` include them.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use senko_load::{Login, TlsOptions};

/// The user of a connection.
#[derive(Args, Clone, Debug)]
pub struct LoginArgs {
    /// Log in as this user, with --password-file or --password
    #[arg(long, value_name = "NAME", requires = "secret", help_heading = "Connections",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// File whose first line is the user's password
    #[arg(
        long,
        value_name = "FILE",
        requires = "user",
        group = "secret",
        help_heading = "Connections"
    )]
    password_file: Option<PathBuf>,
    /// The user's password; other users of this machine can see it in the list of processes
    #[arg(
        long,
        value_name = "TEXT",
        requires = "user",
        group = "secret",
        help_heading = "Connections"
    )]
    password: Option<String>,
}

impl LoginArgs {
    /// The user and the password; `None`: connections do not log in.
    pub fn login(&self) -> Result<Option<Login>> {
        let Some(user) = self.user.clone() else {
            return Ok(None);
        };
        if user.contains(char::is_whitespace) {
            bail!("--user \"{user}\": a user's name has no space");
        }
        let password = match (&self.password, &self.password_file) {
            (Some(password), _) => password.clone(),
            (None, Some(file)) => password_in(file)?,
            (None, None) => String::new(),
        };
        Ok(Some(Login { user, password }))
    }
}

/// The first line of a file.
pub fn password_in(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// How connections are encrypted.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// Encrypt connections; the other TLS options imply it
    #[arg(long, help_heading = "TLS")]
    tls: bool,
    /// PEM file of the CAs that vouch for the server [default: /etc/ssl/certs/ca-certificates.crt]
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_ca: Option<PathBuf>,
    /// Accept any certificate of the server
    #[arg(long, help_heading = "TLS", conflicts_with = "tls_ca")]
    tls_insecure: bool,
    /// Name that the server's certificate has to have [default: the server's IP address]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    tls_name: Option<String>,
    /// PEM file of the certificate to show to the server, and those that lead to its CA
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// PEM file of its private key [default: it is in the file of --tls-cert]
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The only cipher suite to offer, such as TLS_AES_128_GCM_SHA256 [default: all that are safe]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    tls_cipher: Option<String>,
}

impl TlsArgs {
    /// The settings from these options; `None`: no TLS.
    pub fn options(&self) -> Option<TlsOptions> {
        let on = self.tls
            || self.tls_insecure
            || self.tls_ca.is_some()
            || self.tls_name.is_some()
            || self.tls_cert.is_some()
            || self.tls_cipher.is_some();
        on.then(|| TlsOptions {
            ca: self.tls_ca.clone(),
            insecure: self.tls_insecure,
            name: self.tls_name.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            cipher: self.tls_cipher.clone(),
        })
    }
}
