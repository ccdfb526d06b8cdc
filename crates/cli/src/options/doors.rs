// SPDX-License-Identifier: Apache-2.0
//! The list of addresses to listen on (`-l`), with their prefixes.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use senko_server::settings::{Settings, TlsMode};

use super::resolve_all;

const TLS_PREFIXES: [(&str, TlsMode); 3] = [
    ("notls:", TlsMode::Off),
    ("btls:", TlsMode::Basic),
    ("mtls:", TlsMode::Mutual),
];

/// The listening addresses, and how they differ.
#[derive(Debug, Default, PartialEq)]
pub struct Doors {
    pub listen: Vec<SocketAddr>,
    /// Those without a password.
    noauth: Vec<SocketAddr>,
    tls_modes: Vec<(SocketAddr, TlsMode)>,
}

impl Doors {
    /// One address without a prefix.
    pub fn one(address: SocketAddr) -> Doors {
        Doors {
            listen: vec![address],
            ..Doors::default()
        }
    }

    /// Puts them into the settings.
    pub fn enter(self, settings: &mut Settings) {
        settings.listen = self.listen;
        settings.noauth = self.noauth;
        settings.tls_modes = self.tls_modes;
    }
}

/// Resolves a list as [`resolve_all`] does. An address may have the prefixes `noauth:`, and one of
/// `notls:`, `btls:` and `mtls:`.
pub fn resolve_doors(list: &[String], port: u16) -> Result<Doors> {
    let mut doors = Doors::default();
    let words = list.iter().flat_map(|l| l.split(',')).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let (mut noauth, mut tls, mut rest) = (false, None, word);
        loop {
            if let Some(after) = rest.strip_prefix("noauth:") {
                (noauth, rest) = (true, after);
                continue;
            }
            let prefix = TLS_PREFIXES.iter().find(|(p, _)| rest.starts_with(p));
            let Some((text, mode)) = prefix else { break };
            if tls.replace(*mode).is_some() {
                bail!("\"{word}\" has two of notls:, btls: and mtls: in front");
            }
            rest = &rest[text.len()..];
        }
        for address in resolve_all(&[rest.to_owned()], port)? {
            let own = doors.tls_modes.iter().find(|(a, _)| *a == address);
            let own = own.map(|(_, mode)| *mode);
            match doors.listen.contains(&address) {
                true if doors.noauth.contains(&address) != noauth => {
                    bail!("{address} is in the list of addresses (-l) with and without noauth:");
                }
                true if own != tls => {
                    bail!("{address} is in the list of addresses (-l) with TLS in two ways");
                }
                true => continue,
                false => doors.listen.push(address),
            }
            if noauth {
                doors.noauth.push(address);
            }
            doors.tls_modes.extend(tls.map(|mode| (address, mode)));
        }
    }
    if doors.listen.is_empty() {
        bail!("the list of addresses to listen on (-l) is empty");
    }
    Ok(doors)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn doors(list: &str) -> Result<Doors> {
        resolve_doors(&[list.to_owned()], 7)
    }

    #[test]
    fn prefixes_stand_in_any_order() {
        let both = doors("notls:noauth:127.0.0.1:1,noauth:mtls:127.0.0.2,127.0.0.3").unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (first, second) = (address("127.0.0.1:1"), address("127.0.0.2:7"));
        assert_eq!(both.listen, [first, second, address("127.0.0.3:7")]);
        assert_eq!(both.noauth, [first, second]);
        assert_eq!(
            both.tls_modes,
            [(first, TlsMode::Off), (second, TlsMode::Mutual)]
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let wrong = |list| doors(list).unwrap_err().to_string();
        assert!(wrong("notls:mtls:::1").contains("has two of"));
        assert!(wrong("btls:::1,::1").contains("in two ways"));
        assert!(wrong("noauth:::1,::1").contains("with and without noauth:"));
        assert!(wrong(" , ").contains("is empty"));
    }
}
