// SPDX-License-Identifier: Apache-2.0
//! Warns at the start about listeners that anybody may use, and reads password files and
//! certificate again while the server runs.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use senko_io::counted;

use super::{Control, Listening, ServerError};
use crate::auth::Auth;
use crate::clock::Clock;
use crate::settings::{Dialect, Settings, TlsMode, TlsVerify};
use crate::shared::Shared;
use crate::tls::{Refused, Tls};

const ENDED: &str = "the certificate has ended, and clients will refuse it";

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
        (_, ascii, sasl)
            if settings.protocols.iter().any(|(address, only)| {
                let has_file = match only {
                    Dialect::Ascii => ascii.is_some(),
                    Dialect::Binary => sasl.is_some(),
                };
                let asks = ascii.is_some() || sasl.is_some();
                asks && !has_file && !settings.noauth.contains(address)
            }) =>
        {
            return wrong(
                "proto[] in -l leaves a listener only a protocol for which there is no password file (-Y, --auth-file, -S, --sasl-file)",
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

/// The sockets that other machines may reach and that require no password.
fn open_to_all<'a>(
    settings: &'a Settings,
    all: &'a [Listening],
) -> impl Iterator<Item = SocketAddr> + 'a {
    let asks = settings.auth_file.is_some() || settings.sasl_file.is_some();
    all.iter()
        .filter(move |l| !asks || !l.terms.guarded)
        .filter(|l| !shows_certificate(settings, l.terms.tls))
        .filter_map(|l| l.address)
        .filter(|address| !address.ip().is_loopback())
}

/// Whether each client of a listener has to show a certificate.
pub(super) fn shows_certificate(settings: &Settings, mode: TlsMode) -> bool {
    match mode {
        TlsMode::Mutual => true,
        TlsMode::Default => {
            let tls = settings.tls.as_ref();
            tls.is_some_and(|tls| tls.verify == TlsVerify::Require)
        }
        TlsMode::Basic | TlsMode::Off => false,
    }
}

/// Warns if anybody who reaches a socket may read and change all items, if every user of the
/// machine may read a password or a key, or if the certificate has ended. A socket may be one that
/// a service manager passed.
pub(super) fn warn(settings: &Settings, all: &[Listening], shared: &Shared) {
    if shared.certificate_days().is_some_and(|days| days < 0) {
        tracing::warn!("{ENDED}");
    }
    let open: Vec<String> = open_to_all(settings, all).map(|a| a.to_string()).collect();
    if !open.is_empty() {
        tracing::warn!(
            "everybody who reaches {} can read and change every item: the server asks for no password (--auth-file, --sasl-file) and no client certificate",
            open.join(" or ")
        );
    }
    let key = settings.tls.as_ref().map(|tls| &tls.key);
    for (what, path) in [
        ("the password file", settings.auth_file.as_ref()),
        ("the password file", settings.sasl_file.as_ref()),
        ("the private key", key),
    ] {
        if let Some(path) = path.filter(|path| others_may_read(path)) {
            let path = path.display();
            tracing::warn!("every user of this machine can read {what} {path}: chmod o= {path}");
        }
    }
}

/// Whether users outside of a file's group may read it, and reach it through all folders.
fn others_may_read(path: &Path) -> bool {
    let may = |path: &Path, bit| {
        let there = std::fs::metadata(path);
        there.is_ok_and(|there| there.permissions().mode() & bit != 0)
    };
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    path.is_file() && may(&path, 0o004) && path.ancestors().skip(1).all(|it| may(it, 0o001))
}

impl Control {
    /// Reads the password files and the certificate again, and logs the result of each. If a file
    /// is bad or can't be read, the old users, or the old certificate and key, stay. Open
    /// connections are not affected.
    ///
    /// Returns how many of how many were read: each password file, and the certificate with its
    /// key.
    pub fn reload(&self) -> (usize, usize) {
        let files = self.shared.auth.reload();
        for (path, read) in &files {
            match read {
                Ok(users) => {
                    let users = counted(users, "user");
                    tracing::info!("{} has {users} now", path.display());
                }
                Err(why) => tracing::error!("{why}; the users before stay"),
            }
        }
        let certificate = self.shared.refresh_certificate();
        if let Some(read) = &certificate {
            tell_of_certificate(read, "");
        }
        let read = files.iter().filter(|(_, read)| read.is_ok()).count();
        let all = files.len() + usize::from(certificate.is_some());
        (read + usize::from(matches!(certificate, Some(Ok(_)))), all)
    }
}

impl Shared {
    /// Reads certificate, key and CA again; `None`: TLS is not in use. Returns the days until the
    /// certificate ends.
    fn refresh_certificate(&self) -> Option<Result<i64, Refused>> {
        let refreshed = self
            .tls
            .as_ref()?
            .refresh((self.clock.now_ms() / 1000) as u32);
        let days = self.certificate_days()?;
        Some(refreshed.map(|()| days))
    }

    /// Days until the certificate ends; `None`: TLS is not in use.
    fn certificate_days(&self) -> Option<i64> {
        let now = (self.clock.now_ms() / 1000) as i64;
        Some((self.tls.as_ref()?.expires() - now).div_euclid(86_400))
    }

    /// The same, because a client asked for it. Any client may, and often. Lines of success never
    /// take the place of those that say why a certificate was refused.
    pub(crate) fn refresh_for_client(&self) -> Option<Result<(), Refused>> {
        let read = self.refresh_certificate()?;
        let lines = match &read {
            Ok(_) => &self.refreshes,
            Err(_) => &self.refused_refreshes,
        };
        if let Some(left_out) = lines.may(self.clock.now_ms()) {
            tell_of_certificate(&read, &left_out.to_string());
        }
        Some(read.map(drop))
    }
}

fn tell_of_certificate(read: &Result<i64, Refused>, more: &str) {
    match read {
        Ok(days @ 0..) => {
            let days = counted(days, "day");
            tracing::info!("the certificate was read again; it ends in {days}{more}");
        }
        Ok(_) => tracing::warn!("the certificate was read again; {ENDED}{more}"),
        Err(refused) => {
            let why = &refused.why;
            tracing::error!("{why}; the certificate and key before stay{more}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::settings::TlsSettings;
    use senko_io::Listener;

    /// A password file and a private key of mode 644 were accepted without a word.
    #[test]
    fn a_secret_that_others_may_read_is_known() {
        let folder = std::env::temp_dir().join(format!("senko-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("users");
        std::fs::write(&path, "a:b\n").unwrap();
        for (of_folder, of_file, known) in [
            (0o755, 0o644, true),
            (0o755, 0o604, true),
            (0o755, 0o640, false),
            (0o755, 0o600, false),
            (0o700, 0o644, false),
        ] {
            let set = |path: &Path, mode| {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            set(&folder, of_folder);
            set(&path, of_file);
            assert_eq!(others_may_read(&path), known, "{of_folder:o} {of_file:o}");
        }
        assert!(!others_may_read(Path::new("/dev/null")));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_listeners_without_a_password_beyond_loopback_are_open() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let listener = Listener::tcp(address("127.0.0.1:0"), 1).unwrap();
        let mut settings = Settings::default();
        let open = |settings: &Settings| {
            let all = ["127.0.0.1:1", "0.0.0.0:2", "[::1]:3"].map(|text| Listening {
                listener: listener.clone(),
                address: Some(address(text)),
                name: "".into(),
                terms: settings.terms(&address(text)),
            });
            open_to_all(settings, &all).collect::<Vec<_>>()
        };
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
