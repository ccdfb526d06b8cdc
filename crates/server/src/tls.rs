// SPDX-License-Identifier: Apache-2.0
//! TLS: the server's certificate, and the cipher of one connection. No other file uses rustls.
//!
//! ```text
//!  files -> pem.rs, ciphers.rs -> Tls (one a server, in Shared) -> Stream (one a connection)
//!              SIGHUP, refresh_certs --^ `- clients.rs, tickets.rs    ^ worker/cipher.rs
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
mod clients; // which certificates of clients are taken
pub mod pem; // certificates and keys in files
pub mod stream; // the cipher of one connection
mod tickets; // resumed sessions
mod words; // why a connection was ended
pub mod x509; // the parts of a certificate

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, RootCertStore, ServerConfig};

use crate::settings::{TlsMode, TlsSettings, TlsVerify};
use crate::small_file;
use clients::Clients;
pub use stream::{CIPHERED, Fault, Stream};
use tickets::Tickets;
use x509::Certificate;

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
    /// The bytes of the CA file.
    ca: Option<Vec<u8>>,
    /// `None`: no session can be resumed.
    tickets: Option<DoorTickets>,
}

/// TICKET-1: the tickets of each configuration.
#[derive(Clone)]
struct DoorTickets {
    usual: Arc<Tickets>,
    basic: Arc<Tickets>,
    mutual: Arc<Tickets>,
}

impl DoorTickets {
    fn new(time: &Arc<dyn TimeProvider>, trusted: &Option<Trusted>) -> Result<DoorTickets, String> {
        let cas = trusted.iter().flat_map(|trusted| &*trusted.certificates);
        let ends: Arc<[i64]> = cas.filter_map(|der| x509::end(der)).collect();
        let new = || Tickets::new(Arc::clone(time), Arc::clone(&ends));
        Ok(DoorTickets {
            usual: new()?,
            basic: new()?,
            mutual: new()?,
        })
    }
}

/// The time that certificates are valid at: the system's, unless a test drives it. The server's
/// own clock does not follow the system's when it is set, and a certificate has to.
#[derive(Debug)]
struct Driven(Arc<AtomicU64>);

impl TimeProvider for Driven {
    fn current_time(&self) -> Option<UnixTime> {
        let now = Duration::from_millis(self.0.load(Ordering::Acquire));
        Some(UnixTime::since_unix_epoch(now))
    }
}

/// A server's TLS.
pub struct Tls {
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    time: Arc<dyn TimeProvider>,
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
    /// Reads the files that the settings name, at Unix second `now`. `driven` has a test's Unix
    /// milliseconds.
    pub fn open(
        settings: &TlsSettings,
        now: u32,
        driven: Option<Arc<AtomicU64>>,
    ) -> Result<Tls, String> {
        let suites = match &settings.ciphers {
            Some(list) => ciphers::read(list)?,
            None => ring::DEFAULT_CIPHER_SUITES.to_vec(),
        };
        let provider = Arc::new(CryptoProvider {
            cipher_suites: suites.into_iter().map(ciphers::endless).collect(),
            ..ring::default_provider()
        });
        let time: Arc<dyn TimeProvider> = match driven {
            Some(clock) => Arc::new(Driven(clock)),
            None => Arc::new(DefaultTimeProvider),
        };
        let loaded = load(settings, &provider, &time, None).map_err(|refused| refused.why)?;
        Ok(Tls {
            settings: settings.clone(),
            provider,
            time,
            loaded: RwLock::new(Arc::new(loaded)),
            refreshed: AtomicU32::new(now),
        })
    }

    /// Reads certificate, key and CA again, at Unix second `now` (TLS-1). Tickets outlive a new
    /// certificate, and end with a new CA file (TICKET-2).
    ///
    /// # Errors
    /// Why the old ones stay.
    pub fn refresh(&self, now: u32) -> Result<(), Refused> {
        let before = self.loaded();
        let loaded = load(&self.settings, &self.provider, &self.time, Some(&before))?;
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
    time: &Arc<dyn TimeProvider>,
    before: Option<&Loaded>,
) -> Result<Loaded, Refused> {
    const CHAIN: &str = "Error loading the certificate chain";
    const KEY: &str = "Error loading the key";
    const CA: &str = "Error loading the CA certificate";
    let refused = |path: &Path, why: String| Refused::new(CHAIN, path, why);
    let chain = read(&settings.chain)
        .and_then(|text| pem::certificates(&text))
        .map_err(|why| refused(&settings.chain, why))?;
    let ends = chain.iter().map(|certificate| x509::end(certificate));
    let ends: Option<Vec<i64>> = ends.collect();
    let expires = ends
        .and_then(|ends| ends.into_iter().min())
        .ok_or_else(|| refused(&settings.chain, "it tells no end of its validity".into()))?;
    let key = read(&settings.key)
        .and_then(|text| pem::key(&text))
        .and_then(|key| {
            let signer = provider.key_provider.load_private_key(key.clone_key());
            signer.map_err(|_| pem::unusable(&key))
        })
        .map_err(|why| Refused::new(KEY, &settings.key, why))?;
    let ca = match &settings.ca {
        Some(path) => Some(read(path).map_err(|why| Refused::new(CA, path, why))?),
        None => None,
    };
    let trusted = match (&settings.ca, &ca) {
        (Some(path), Some(text)) => {
            Some(Trusted::read(text).map_err(|why| Refused::new(CA, path, why))?)
        }
        _ => None,
    };
    let unfit = |why: String| Refused {
        short: "Error validating the certificate".to_owned(),
        why: format!(
            "the certificate {} is refused with the key {}: {why}",
            settings.chain.display(),
            settings.key.display()
        ),
    };
    let of_first = chain.first().and_then(|der| Certificate::read(der));
    let of_key = key.public_key();
    if of_first.map(|first| first.key_info) != of_key.as_ref().map(AsRef::as_ref) {
        return Err(unfit("the key belongs to another certificate".to_owned()));
    }
    let own = Arc::new(CertifiedKey::new(chain, key));
    let tickets = match before {
        _ if !settings.session_cache => None,
        Some(before) if before.ca == ca => before.tickets.clone(),
        _ => Some(DoorTickets::new(time, &trusted).map_err(&unfit)?),
    };
    let make = |client: Client, tickets: Option<&Arc<Tickets>>| {
        let made = configure(settings, provider, time, &trusted, client, &own);
        let mut config = made.map_err(unfit)?;
        if let Some(tickets) = tickets {
            config.ticketer = Arc::clone(tickets) as _;
            config.send_tls13_tickets = TICKETS;
        }
        Ok(Arc::new(config))
    };
    let of = tickets.as_ref();
    let usual = match settings.verify {
        TlsVerify::None => Client::Unknown,
        TlsVerify::Request | TlsVerify::Once => Client::Either,
        TlsVerify::Require => Client::Known,
    };
    Ok(Loaded {
        usual: make(usual, of.map(|tickets| &tickets.usual))?,
        basic: make(Client::Unknown, of.map(|tickets| &tickets.basic))?,
        mutual: match &trusted {
            Some(_) => Some(make(Client::Known, of.map(|tickets| &tickets.mutual))?),
            None => None,
        },
        expires,
        ca,
        tickets,
    })
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    Unknown,
    Either,
    Known,
}

/// A configuration without tickets.
fn configure(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    time: &Arc<dyn TimeProvider>,
    trusted: &Option<Trusted>,
    client: Client,
    own: &Arc<CertifiedKey>,
) -> Result<ServerConfig, String> {
    let versions = match settings.only_1_3 {
        true => vec![&TLS13],
        false => vec![&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_details(Arc::clone(provider), Arc::clone(time))
        .with_protocol_versions(&versions)
        .map_err(|_| "no cipher suite is left for the versions of TLS".to_owned())?;
    let builder = match (client, trusted) {
        (Client::Unknown, _) => builder.with_no_client_auth(),
        (_, None) => return Err("clients are to be verified, and there is no CA".to_owned()),
        (client, Some(trusted)) => {
            let roots = Arc::clone(&trusted.roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            let verifier = match client {
                Client::Either => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let usual = verifier.build().map_err(|error| error.to_string())?;
            builder.with_client_cert_verifier(Arc::new(Clients {
                usual,
                trusted: Arc::clone(&trusted.certificates),
                provider: Arc::clone(provider),
                algorithms: provider.signature_verification_algorithms,
            }))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The certificates of the CA file.
struct Trusted {
    certificates: Arc<[CertificateDer<'static>]>,
    /// The same for rustls.
    roots: Arc<RootCertStore>,
}

impl Trusted {
    fn read(text: &[u8]) -> Result<Trusted, String> {
        let certificates = pem::certificates(text)?;
        let mut roots = RootCertStore::empty();
        for (index, certificate) in certificates.iter().enumerate() {
            roots.add(certificate.clone()).map_err(|error| {
                let number = index + 1;
                match error {
                    rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
                        format!("its certificate {number} is damaged")
                    }
                    error => format!("its certificate {number} can't be used: {error}"),
                }
            })?;
        }
        Ok(Trusted {
            certificates: certificates.into(),
            roots: Arc::new(roots),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    small_file::read(path).map_err(|error| error.to_string())
}
