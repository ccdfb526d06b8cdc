// SPDX-License-Identifier: Apache-2.0
//! TLS between the requests and the socket. No other file of the load generator uses rustls.
//!
//! ```text
//!   request -> batch of plain bytes -- Link::seal --> the same batch, ciphered -> socket
//!   reply   <- plain bytes          <-- Link::open -- received bytes           <- socket
//! ```
//! [`crate::plan`] makes one [`TlsClient`] of a run's settings; [`crate::engine`] makes a [`Link`]
//! a connection. The handshake is done before the connection joins the event loop, and blocks its
//! thread, like connecting. rustls allocates memory for each record. That processor time is this
//! program's, and [`crate::Counts::cipher_ns`] has it.

use std::fmt;
use std::io::{BufRead, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error, InconsistentKeys, ProtocolVersion, RootCertStore, SignatureScheme,
};
use serde::{Deserialize, Serialize};

/// Where Debian and most other systems keep the trusted CAs.
pub const SYSTEM_CAS: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsOptions {
    /// PEM file of the CAs that may sign the server's certificate; `None`: [`SYSTEM_CAS`].
    pub ca: Option<PathBuf>,
    /// Whether any certificate of the server is accepted.
    pub insecure: bool,
    /// The name that the certificate must have; `None`: the server's IP address.
    pub name: Option<String>,
    /// PEM file of the client certificate, and of the certificates that lead to its CA.
    pub cert: Option<PathBuf>,
    /// PEM file of its private key; `None`: it is in the file of `cert`.
    pub key: Option<PathBuf>,
    /// The only cipher suite to offer, by its registered name such as `TLS_AES_128_GCM_SHA256`;
    /// `None`: all that rustls has.
    pub cipher: Option<String>,
}

/// The TLS state that all connections of a run share.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsClient({:?})", self.name)
    }
}

impl TlsClient {
    /// Reads the files that `options` name, for a server at `address`.
    ///
    /// # Errors
    /// One sentence, if a file or a name is invalid.
    pub fn new(options: &TlsOptions, address: IpAddr) -> Result<TlsClient, String> {
        let name = match &options.name {
            Some(name) => ServerName::try_from(name.clone())
                .map_err(|_| format!("\"{name}\" is not a name that a certificate can have"))?,
            None => ServerName::from(address),
        };
        let provider = Arc::new(provider(options.cipher.as_deref())?);
        let keys = provider.key_provider;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let builder = if options.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            let path = options.ca.as_deref().unwrap_or(Path::new(SYSTEM_CAS));
            let roots = Arc::new(roots(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| format!("{} is of no use: {error}", path.display()))?;
            builder.with_webpki_verifier(verifier)
        };
        let config = match (&options.cert, &options.key) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(_)) => return Err("a key needs its certificate".to_owned()),
            (Some(cert), key) => {
                let key = key.as_ref().unwrap_or(cert);
                let chain = certificates(cert)?;
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| bad_file(key, "a private key", &error))?;
                let (shown, of) = (cert.display(), key.display());
                let signer = keys.load_private_key(private);
                let signer =
                    signer.map_err(|error| format!("the key {of} is of no use: {error}"))?;
                let own = CertifiedKey::new(chain, signer);
                // It can't tell about a certificate of version 1; then the server does.
                if let Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) =
                    own.keys_match()
                {
                    return Err(format!(
                        "the key {of} belongs to another certificate than {shown}"
                    ));
                }
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        Ok(TlsClient {
            config: Arc::new(config),
            name,
        })
    }

    /// The first message of a handshake, as it goes over the wire.
    ///
    /// # Errors
    /// One clause, if there is no randomness.
    pub fn hello(&self) -> Result<Vec<u8>, String> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut bytes = Vec::new();
        let written = session.map_err(|error| told(&error))?.write_tls(&mut bytes);
        written.map_err(|error| format!("TLS: {error}"))?;
        Ok(bytes)
    }

    /// Does a handshake over a connected socket; waits for the server up to `timeout` at a time.
    ///
    /// # Errors
    /// One clause, if the handshake fails.
    pub fn connect(&self, socket: &mut TcpStream, timeout: Duration) -> Result<Link, String> {
        let mut session = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| told(&error))?;
        // A batch may be longer than rustls's default buffer.
        session.set_buffer_limit(None);
        let mut shake = || {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(timeout))?;
            socket.set_write_timeout(Some(timeout))?;
            while session.is_handshaking() || session.wants_write() {
                session.complete_io(socket)?;
            }
            socket.set_nonblocking(true)
        };
        match shake() {
            Ok(()) => Ok(Link { session }),
            Err(error) => Err(match error.get_ref().and_then(|e| e.downcast_ref()) {
                Some(error) => told(error),
                None => match error.kind() {
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                        format!("TLS: no answer to the handshake within {timeout:?}")
                    }
                    std::io::ErrorKind::UnexpectedEof => {
                        "TLS: the server hung up in the handshake".to_owned()
                    }
                    _ => format!("TLS: {error}"),
                },
            }),
        }
    }
}

pub struct Link {
    session: ClientConnection,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?})", self.session.negotiated_cipher_suite())
    }
}

impl Link {
    /// Encrypts the requests in `bytes`, in place, together with other pending messages of the
    /// session.
    ///
    /// # Errors
    /// One clause, if the session is over.
    pub fn seal(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let taken = self.session.writer().write_all(bytes);
        taken.map_err(|error| format!("TLS: {error}"))?;
        bytes.clear();
        while self.session.wants_write() {
            let written = self.session.write_tls(bytes);
            written.map_err(|error| format!("TLS: {error}"))?;
        }
        Ok(())
    }

    /// Decrypts `received`, and appends the answers to `plain`. False: the server has sent its last
    /// message.
    ///
    /// # Errors
    /// One clause, if the bytes do not belong to the session.
    pub fn open(&mut self, mut received: &[u8], plain: &mut Vec<u8>) -> Result<bool, String> {
        while !received.is_empty() {
            self.session
                .read_tls(&mut received)
                .map_err(|error| format!("TLS: {error}"))?;
            let state = self
                .session
                .process_new_packets()
                .map_err(|error| told(&error))?;
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.session.reader();
            while left > 0 {
                let part = reader.fill_buf().map_err(|error| format!("TLS: {error}"))?;
                let len = part.len();
                plain.extend_from_slice(part);
                reader.consume(len);
                left = left.saturating_sub(len);
            }
            if state.peer_has_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The version and the suite in use, such as `1.3 TLS_AES_128_GCM_SHA256`.
    pub fn suite(&self) -> String {
        let version = match self.session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let suite = self.session.negotiated_cipher_suite();
        suite.map_or_else(String::new, |suite| {
            format!("{version} {}", registered(&suite.suite()))
        })
    }
}

/// rustls has its own names for suites of TLS 1.3.
fn registered(suite: &rustls::CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

fn provider(cipher: Option<&str>) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    if let Some(name) = cipher {
        let all = std::mem::take(&mut provider.cipher_suites);
        let mut names = Vec::new();
        for suite in all {
            let known = registered(&suite.suite());
            if known == name {
                provider.cipher_suites.push(suite);
            }
            names.push(known);
        }
        if provider.cipher_suites.is_empty() {
            let names = names.join(", ");
            return Err(format!(
                "there is no cipher suite {name}; there are {names}"
            ));
        }
    }
    Ok(provider)
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates(path)?);
    if store.is_empty() {
        return Err(format!(
            "there is no CA that can be read in {}",
            path.display()
        ));
    }
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error| bad_file(path, "certificates", &error))?;
    match all.is_empty() {
        true => Err(format!("there is no certificate in {}", path.display())),
        false => Ok(all),
    }
}

fn bad_file(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error::{Io, MissingSectionEnd, NoItemsFound};
    let path = path.display();
    match error {
        Io(error) => format!("cannot read {path}: {error}"),
        NoItemsFound => format!("there is no private key in {path}"),
        MissingSectionEnd { .. } => {
            format!("{path} is no whole PEM file of {what}: its last block has no END line")
        }
        _ => format!("{path} is no PEM file of {what}"),
    }
}

/// An error of rustls as a clause; for common ones with advice.
fn told(error: &Error) -> String {
    let reason = match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => {
                "no known CA vouches for the server's certificate (--tls-ca)"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for other names (--tls-name)"
            }
            CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
                "the server's certificate is one of a CA, as openssl req -x509 makes it unless it is told CA:FALSE, and such a one is taken for no server (--tls-insecure takes any)"
            }
            _ => return format!("TLS: the server's certificate is refused: {why}"),
        },
        Error::InvalidMessage(_) => "the server does not speak TLS",
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown,
        ) => "the server wants a client's certificate that it can trust (--tls-cert)",
        _ => return format!("TLS: {error}"),
    };
    format!("TLS: {reason}")
}

/// Accepts any certificate, also one that rustls can't read (of version 1, with a key of P-521).
/// The server's signature by it is not checked, because without a known certificate it proves
/// nothing.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(options: TlsOptions) -> Result<TlsClient, String> {
        TlsClient::new(&options, IpAddr::from([127, 0, 0, 1]))
    }

    fn insecure() -> TlsOptions {
        TlsOptions {
            insecure: true,
            ..TlsOptions::default()
        }
    }

    /// The numbers of the suites that a hello offers. They come after the record's header (5
    /// bytes), the message's (4), the version (2), the random bytes (32) and the session's number.
    fn offered(hello: &[u8]) -> Vec<u16> {
        let at = 5 + 4 + 2 + 32;
        let at = at + 1 + usize::from(hello[at]);
        let len = usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
        let suites = hello[at + 2..at + 2 + len].chunks_exact(2);
        suites
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect()
    }

    #[test]
    fn one_suite_alone_is_offered() {
        let all = client(insecure()).expect("good options");
        let all = offered(&all.hello().expect("randomness"));
        assert!(all.len() > 3, "{all:04x?}");
        let one = client(TlsOptions {
            cipher: Some("TLS_AES_128_GCM_SHA256".to_owned()),
            ..insecure()
        });
        let hello = one.expect("good options").hello().expect("randomness");
        // 0x00ff, of TLS 1.2, is no suite.
        let suites: Vec<u16> = offered(&hello).into_iter().filter(|&s| s != 0xff).collect();
        assert_eq!(suites, [0x1301]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let key_alone = TlsOptions {
            key: Some("/k".into()),
            ..insecure()
        };
        for (options, words) in [
            (key_alone, "a key needs its certificate"),
            (
                TlsOptions {
                    cipher: Some("TLS13_AES_128_GCM_SHA256".to_owned()),
                    ..insecure()
                },
                "there is no cipher suite TLS13_AES_128_GCM_SHA256; there are TLS_AES_256_GCM_SHA384,",
            ),
            (
                TlsOptions {
                    ca: Some("/no/such/ca".into()),
                    ..TlsOptions::default()
                },
                "cannot read /no/such/ca: ",
            ),
            (
                TlsOptions {
                    name: Some("a b".to_owned()),
                    ..insecure()
                },
                "\"a b\" is not a name that a certificate can have",
            ),
        ] {
            let error = client(options.clone()).expect_err("bad options");
            assert!(error.starts_with(words), "{options:?}: {error}");
        }
    }
}
