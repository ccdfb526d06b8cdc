// SPDX-License-Identifier: Apache-2.0
//! The list of addresses to listen on (`-l`), with their prefixes.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use senko_server::settings::{Dialect, Settings, TlsMode};

use super::resolve_all;

const TLS_PREFIXES: [(&str, TlsMode); 3] = [
    ("notls:", TlsMode::Off),
    ("btls:", TlsMode::Basic),
    ("mtls:", TlsMode::Mutual),
];

/// memcached's names of protocols. `negotiating` is the usual one: each connection's first byte
/// decides.
const PROTOCOLS: [(&str, Option<Dialect>); 3] = [
    ("ascii", Some(Dialect::Ascii)),
    ("binary", Some(Dialect::Binary)),
    ("negotiating", None),
];

/// The prefixes of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Prefixes {
    noauth: bool,
    tls: Option<TlsMode>,
    only: Option<Dialect>,
}

impl Prefixes {
    /// Takes the prefixes off a word. Returns what is left: the address.
    fn take<'a>(&mut self, word: &'a str) -> Result<&'a str> {
        let mut rest = word;
        loop {
            if let Some(after) = rest.strip_prefix("noauth:") {
                (self.noauth, rest) = (true, after);
            } else if let Some((text, mode)) =
                TLS_PREFIXES.iter().find(|(p, _)| rest.starts_with(p))
            {
                if self.tls.replace(*mode).is_some() {
                    bail!("\"{word}\" has two of notls:, btls: and mtls: in front");
                }
                rest = &rest[text.len()..];
            } else if let Some((name, after)) = bracketed(rest, "proto") {
                let known = PROTOCOLS.iter().find(|(known, _)| *known == name);
                let Some((_, only)) = known else {
                    bail!("\"{word}\": proto[] is ascii, binary or negotiating, not \"{name}\"");
                };
                (self.only, rest) = (*only, after);
            } else if let Some((_, after)) = tag(rest) {
                // It names the listener for memcached's proxy, which is not here.
                rest = after;
            } else {
                return Ok(rest);
            }
        }
    }
}

/// `proto[ascii]:` and what follows it.
fn bracketed<'a>(text: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(kind)?.strip_prefix('[')?.split_once("]:")
}

/// `tag_NAME_:` or `tag[NAME]:`, and what follows it.
fn tag(text: &str) -> Option<(&str, &str)> {
    bracketed(text, "tag").or_else(|| text.strip_prefix("tag_")?.split_once("_:"))
}

/// The listening addresses, and how they differ.
#[derive(Debug, Default, PartialEq)]
pub struct Doors {
    pub listen: Vec<SocketAddr>,
    /// Those without a password.
    noauth: Vec<SocketAddr>,
    tls_modes: Vec<(SocketAddr, TlsMode)>,
    protocols: Vec<(SocketAddr, Dialect)>,
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
        settings.protocols = self.protocols;
    }
}

/// Resolves a list as [`resolve_all`] does, with commas or semicolons between. An address may have
/// the prefixes `noauth:`, one of `notls:`, `btls:` and `mtls:`, `proto[NAME]:`, and a tag.
pub fn resolve_doors(list: &[String], port: u16) -> Result<Doors> {
    let mut doors = Doors::default();
    let mut all: Vec<(SocketAddr, Prefixes)> = Vec::new();
    let words = list.iter().flat_map(|l| l.split([',', ';'])).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let mut own = Prefixes::default();
        let rest = own.take(word)?;
        for address in resolve_all(&[rest.to_owned()], port)? {
            match all.iter().find(|(a, _)| *a == address) {
                None => all.push((address, own)),
                Some((_, other)) if other.noauth != own.noauth => {
                    bail!("{address} is in the list of addresses (-l) with and without noauth:");
                }
                Some((_, other)) if other.tls != own.tls => {
                    bail!("{address} is in the list of addresses (-l) with TLS in two ways");
                }
                Some((_, other)) if other.only != own.only => {
                    bail!("{address} is in the list of addresses (-l) with two protocols");
                }
                Some(_) => {}
            }
        }
    }
    for (address, own) in all {
        doors.listen.push(address);
        doors.noauth.extend(own.noauth.then_some(address));
        doors.tls_modes.extend(own.tls.map(|mode| (address, mode)));
        doors.protocols.extend(own.only.map(|only| (address, only)));
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

    /// Lists that memcached takes used to be refused.
    #[test]
    fn protocols_and_tags_stand_in_front_too() {
        let list = "proto[ascii]:127.0.0.1:1;tag_a_:mtls:proto[binary]:127.0.0.2,tag[b]:127.0.0.3,proto[negotiating]:127.0.0.4";
        let all = doors(list).unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (first, second) = (address("127.0.0.1:1"), address("127.0.0.2:7"));
        assert_eq!(
            all.listen,
            [
                first,
                second,
                address("127.0.0.3:7"),
                address("127.0.0.4:7")
            ]
        );
        assert_eq!(
            all.protocols,
            [(first, Dialect::Ascii), (second, Dialect::Binary)]
        );
        assert_eq!(all.tls_modes, [(second, TlsMode::Mutual)]);
        let wrong = |list| doors(list).unwrap_err().to_string();
        assert!(wrong("proto[proxy]:::1").contains("is ascii, binary or negotiating"));
        assert!(wrong("proto[ascii]:::1,::1").contains("two protocols"));
    }
}
