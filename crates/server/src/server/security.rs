// SPDX-License-Identifier: Apache-2.0
//! Warns at the start about listeners that anybody may use, and reads password files and
//! certificate again while the server runs.

use std::net::SocketAddr;

use super::{Control, ServerError};
use crate::auth::Auth;
use crate::clock::Clock;
use crate::settings::{Dialect, Settings, TlsMode, TlsVerify};
use crate::shared::Shared;
use crate::tls::{Refused, Tls};

/// Refuses settings that contradict each other, and reads the password files.
pub(super) fn open(settings: &Settings) -> Result<Auth, ServerError> {
    let wrong = |text: &str| Err(ServerError(text.to_string()));
    match (
        settings.only_protocol,
        &settings.auth_file,
        &settings.sasl_file,
    ) {
        (Some(Dialect::Binary), Some(_), _) => {
            return wrong(
                "-Y and --auth-file ask for a password in the ascii protocol, and -B binary turns it off",
            );
        }
        (Some(Dialect::Ascii), _, Some(_)) => {
            return wrong(
                "-S and --sasl-file ask for a password in the binary protocol, and -B ascii turns it off",
            );
        }
        (_, None, None) if !settings.noauth.is_empty() => {
            return wrong(
                "noauth: in -l exempts a listener from passwords, and no password file is given",
            );
        }
        _ => {}
    }
    Auth::open(settings).map_err(ServerError)
}

/// Refuses settings of TLS that contradict each other, and reads certificate and key.
pub(super) fn certificate(settings: &Settings) -> Result<Option<Tls>, ServerError> {
    let wrong = |text: &str| Err(ServerError(text.to_string()));
    let asks = |mode| settings.tls_modes.iter().any(|(_, m)| *m == mode);
    let Some(tls) = &settings.tls else {
        return match settings.tls_modes.is_empty() {
            true => Ok(None),
            false => {
                wrong("notls:, btls: and mtls: in -l are about TLS, and there is no certificate")
            }
        };
    };
    if tls.ca.is_none() && (tls.verify != TlsVerify::None || asks(TlsMode::Mutual)) {
        return wrong(
            "clients must show certificates, and no CA is named to verify them (--tls-ca-cert, -o ssl_ca_cert)",
        );
    }
    let now = Clock::start(settings.clock.clone(), 0).now_ms() / 1000;
    Tls::open(tls, now as u32, settings.clock.clone())
        .map(Some)
        .map_err(ServerError)
}

/// The addresses that other machines may reach and that require no password.
fn open_to_all(settings: &Settings) -> impl Iterator<Item = &SocketAddr> {
    let asks = settings.auth_file.is_some() || settings.sasl_file.is_some();
    let reached = |a: &&SocketAddr| !a.ip().is_loopback();
    settings
        .listen
        .iter()
        .filter(reached)
        .filter(move |a| !asks || settings.noauth.contains(a))
        .filter(|a| !shows_certificate(settings, a))
}

/// Whether each client of an address has to show a certificate.
fn shows_certificate(settings: &Settings, address: &SocketAddr) -> bool {
    match settings.tls_mode(address) {
        TlsMode::Mutual => true,
        TlsMode::Default => {
            let tls = settings.tls.as_ref();
            tls.is_some_and(|tls| tls.verify == TlsVerify::Require)
        }
        TlsMode::Basic | TlsMode::Off => false,
    }
}

/// Warns if anybody who reaches an address may read and change all items.
pub(super) fn warn(settings: &Settings) {
    let open: Vec<String> = open_to_all(settings).map(ToString::to_string).collect();
    if !open.is_empty() {
        tracing::warn!(
            "everybody who reaches {} can read and change every item: the server asks for no password (--auth-file, --sasl-file) and no client certificate",
            open.join(" or ")
        );
    }
}

impl Control {
    /// Reads the password files and the certificate again, and logs the result of each. If a file
    /// is bad or can't be read, the old users, or the old certificate and key, stay. Open
    /// connections are not affected.
    ///
    /// Returns the number of files.
    pub fn reload(&self) -> usize {
        let files = self.shared.auth.reload();
        for (path, read) in &files {
            match read {
                Ok(users) => tracing::info!("{users} users are in {} now", path.display()),
                Err(why) => tracing::error!("{why}; the users before stay"),
            }
        }
        let certificate = self.shared.refresh_certificate();
        if let Some(Err(refused)) = &certificate {
            tracing::error!("{}; the certificate and key before stay", refused.why);
        }
        files.len() + usize::from(certificate.is_some())
    }
}

impl Shared {
    /// Reads certificate, key and CA again; `None`: TLS is not in use.
    pub(crate) fn refresh_certificate(&self) -> Option<Result<(), Refused>> {
        let tls = self.tls.as_ref()?;
        let now = (self.clock.now_ms() / 1000) as u32;
        let refreshed = tls.refresh(now);
        if refreshed.is_ok() {
            let days = (tls.expires() - i64::from(now)) / 86_400;
            tracing::info!("the certificate was read again; it ends in {days} days");
        }
        Some(refreshed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::settings::TlsSettings;

    #[test]
    fn only_listeners_without_a_password_beyond_loopback_are_open() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut settings = Settings {
            listen: vec![
                address("127.0.0.1:1"),
                address("0.0.0.0:2"),
                address("[::1]:3"),
            ],
            ..Settings::default()
        };
        let open = |settings: &Settings| open_to_all(settings).copied().collect::<Vec<_>>();
        assert_eq!(open(&settings), [address("0.0.0.0:2")]);
        settings.auth_file = Some("users".into());
        assert_eq!(open(&settings), []);
        settings.noauth = vec![address("127.0.0.1:1"), address("0.0.0.0:2")];
        assert_eq!(open(&settings), [address("0.0.0.0:2")]);
        // A required client certificate is as good as a password.
        settings.tls = Some(TlsSettings::default());
        assert_eq!(open(&settings), [address("0.0.0.0:2")]);
        settings.tls_modes = vec![(address("0.0.0.0:2"), TlsMode::Mutual)];
        assert_eq!(open(&settings), []);
    }
}
