// SPDX-License-Identifier: Apache-2.0
//! TLS: the server's certificate, and the cipher of one connection. No other file uses rustls.
//!
//! ```text
//!  files -> pem.rs, ciphers.rs -> Tls (one a server, in Shared) -> Stream (one a connection)
//!              SIGHUP, refresh_certs --^                              ^ worker/cipher.rs
//! ```
//! Nothing here has a socket or waits, except for reading files in [`Tls::open`] and
//! [`Tls::refresh`].
//!
//! - (TLS-1) Certificate, key and CA change together. If one of the files is bad, none changes.
//!   Open connections are not affected.
//! - (TLS-2) A connection may hold at most two records of ciphertext without a whole record or
//!   message. More than that ends the connection.
//! - (TLS-3) No text made here contains a part of a key.

mod ciphers; // OpenSSL's names of cipher suites
pub mod pem; // certificates in a file, and when they expire
pub mod stream; // the cipher of one connection

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, Ticketer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use crate::settings::{TlsMode, TlsSettings, TlsVerify};
pub use stream::{CIPHERED, Fault, Stream};

/// Tickets that a client of TLS 1.3 gets for resuming its session.
const TICKETS: usize = 2;

/// Why certificates can't be used.
#[derive(Debug)]
pub struct Refused {
    /// memcached's words for it, as the answer to `refresh_certs`.
    pub short: String,
    /// One sentence with the reason.
    pub why: String,
}

impl Refused {
    fn new(short: &str, path: &Path, why: impl fmt::Display) -> Refused {
        let path = path.display();
        Refused {
            short: format!("{short}: {path}"),
            why: format!("{short} {path}: {why}"),
        }
    }
}

/// Configurations made from the files.
struct Loaded {
    /// As `ssl_verify_mode` says.
    usual: Arc<ServerConfig>,
    /// Without client certificates.
    basic: Arc<ServerConfig>,
    /// With required client certificates; `None`: no CA was named.
    mutual: Option<Arc<ServerConfig>>,
    /// Unix seconds at which the first certificate of the chain expires.
    expires: i64,
}

/// A server's TLS.
pub struct Tls {
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    /// Encrypts the tickets of sessions, and outlives certificates; `None`: no session can be
    /// resumed.
    tickets: Option<Arc<dyn ProducesTickets>>,
    loaded: RwLock<Arc<Loaded>>,
    /// Unix seconds of the last refresh.
    refreshed: AtomicU32,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files that the settings name, at Unix second `now`.
    ///
    /// # Errors
    /// One sentence.
    pub fn open(settings: &TlsSettings, now: u32) -> Result<Tls, String> {
        let suites = match &settings.ciphers {
            Some(list) => ciphers::read(list)?,
            None => ring::DEFAULT_CIPHER_SUITES.to_vec(),
        };
        let provider = Arc::new(CryptoProvider {
            cipher_suites: suites,
            ..ring::default_provider()
        });
        let tickets = match settings.session_cache {
            true => Some(Ticketer::new().map_err(|e| format!("there is no randomness: {e}"))?),
            false => None,
        };
        let loaded = load(settings, &provider, tickets.as_ref()).map_err(|refused| refused.why)?;
        Ok(Tls {
            settings: settings.clone(),
            provider,
            tickets,
            loaded: RwLock::new(Arc::new(loaded)),
            refreshed: AtomicU32::new(now),
        })
    }

    /// Reads certificate, key and CA again, at Unix second `now` (TLS-1).
    ///
    /// # Errors
    /// Why the old ones stay.
    pub fn refresh(&self, now: u32) -> Result<(), Refused> {
        let loaded = load(&self.settings, &self.provider, self.tickets.as_ref())?;
        let mut place = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(loaded);
        self.refreshed.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// The cipher of a new connection; `None`: the connection is not encrypted.
    pub fn accept(&self, mode: TlsMode) -> Option<Stream> {
        let loaded = self.loaded();
        let config = match mode {
            TlsMode::Off => return None,
            TlsMode::Default => &loaded.usual,
            TlsMode::Basic => &loaded.basic,
            TlsMode::Mutual => loaded.mutual.as_ref()?,
        };
        let made = UnbufferedServerConnection::new(Arc::clone(config));
        made.ok().map(Stream::new)
    }

    /// Unix seconds of the last time that the files were read without an error.
    pub fn refreshed(&self) -> u32 {
        self.refreshed.load(Ordering::Relaxed)
    }

    /// Unix seconds at which the first certificate of the chain expires.
    pub fn expires(&self) -> i64 {
        self.loaded().expires
    }

    fn loaded(&self) -> Arc<Loaded> {
        let place = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&place)
    }
}

fn load(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    tickets: Option<&Arc<dyn ProducesTickets>>,
) -> Result<Loaded, Refused> {
    const CHAIN: &str = "Error loading the certificate chain";
    const KEY: &str = "Error loading the key";
    const CA: &str = "Error loading the CA certificate";
    let refused = |path: &Path, why: String| Refused::new(CHAIN, path, why);
    let chain = read(&settings.chain)
        .and_then(|text| pem::certificates(&text))
        .map_err(|why| refused(&settings.chain, why))?;
    let ends = chain.iter().map(|certificate| pem::end(certificate));
    let ends: Option<Vec<i64>> = ends.collect();
    let expires = ends
        .and_then(|ends| ends.into_iter().min())
        .ok_or_else(|| refused(&settings.chain, "it tells no end of its validity".into()))?;
    let key = read(&settings.key)
        .and_then(|text| {
            PrivateKeyDer::from_pem_slice(&text)
                .map_err(|_| "there is no private key in it".to_owned())
        })
        .map_err(|why| Refused::new(KEY, &settings.key, why))?;
    let roots = match &settings.ca {
        Some(path) => Some(roots(path).map_err(|why| Refused::new(CA, path, why))?),
        None => None,
    };
    // Both are there, so the error is that they do not match.
    let make = |client: Client| {
        let made = configure(settings, provider, tickets, &chain, &key, &roots, client);
        made.map_err(|why| Refused {
            short: "Error validating the certificate".to_owned(),
            why: format!(
                "the certificate {} is refused with the key {}: {why}",
                settings.chain.display(),
                settings.key.display()
            ),
        })
    };
    Ok(Loaded {
        usual: make(match settings.verify {
            TlsVerify::None => Client::Unknown,
            TlsVerify::Request | TlsVerify::Once => Client::Either,
            TlsVerify::Require => Client::Known,
        })?,
        basic: make(Client::Unknown)?,
        mutual: match &roots {
            Some(_) => Some(make(Client::Known)?),
            None => None,
        },
        expires,
    })
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    Unknown,
    Either,
    Known,
}

fn configure(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    tickets: Option<&Arc<dyn ProducesTickets>>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    roots: &Option<Arc<RootCertStore>>,
    client: Client,
) -> Result<Arc<ServerConfig>, String> {
    let versions = match settings.only_1_3 {
        true => vec![&TLS13],
        false => vec![&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&versions)
        .map_err(|_| "no cipher suite is left for the versions of TLS".to_owned())?;
    let builder = match (client, roots) {
        (Client::Unknown, _) => builder.with_no_client_auth(),
        (_, None) => return Err("clients are to be verified, and there is no CA".to_owned()),
        (client, Some(roots)) => {
            let roots = Arc::clone(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            let verifier = match client {
                Client::Either => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let built = verifier.build().map_err(|error| error.to_string())?;
            builder.with_client_cert_verifier(built)
        }
    };
    let mut config = builder
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|error| error.to_string())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    match tickets {
        Some(tickets) => {
            config.ticketer = Arc::clone(tickets);
            config.send_tls13_tickets = TICKETS;
        }
        None => config.send_tls13_tickets = 0,
    }
    Ok(Arc::new(config))
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut store = RootCertStore::empty();
    for certificate in pem::certificates(&read(path)?)? {
        store.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(Arc::new(store))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| error.to_string())
}
