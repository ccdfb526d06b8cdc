// SPDX-License-Identifier: Apache-2.0
//! What a start says about who may reach the server, and the password files' reading while it runs.

use std::net::SocketAddr;

use super::{Control, ServerError};
use crate::auth::Auth;
use crate::settings::{Dialect, Settings};

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

/// The addresses that other machines may reach, and whose connections need no password.
fn open_to_all(settings: &Settings) -> impl Iterator<Item = &SocketAddr> {
    let asks = settings.auth_file.is_some() || settings.sasl_file.is_some();
    let reached = |a: &&SocketAddr| !a.ip().is_loopback();
    settings
        .listen
        .iter()
        .filter(reached)
        .filter(move |a| !asks || settings.noauth.contains(a))
}

/// Warns where anybody who reaches an address may read and change all items.
pub(super) fn warn(settings: &Settings) {
    let open: Vec<String> = open_to_all(settings).map(ToString::to_string).collect();
    if !open.is_empty() {
        tracing::warn!(
            "whoever reaches {} can read and change every item: there is no password (--auth-file, --sasl-file)",
            open.join(" or ")
        );
    }
}

impl Control {
    /// Reads the password files again, and tells the log of each. A file that can't be read or has
    /// a bad line leaves the users as they were. Connections stay as they are.
    ///
    /// Returns how many files there are.
    pub fn reload(&self) -> usize {
        let files = self.shared.auth.reload();
        for (path, read) in &files {
            match read {
                Ok(users) => tracing::info!("{users} users are in {} now", path.display()),
                Err(why) => tracing::error!("{why}; the users before stay"),
            }
        }
        files.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
    }
}
