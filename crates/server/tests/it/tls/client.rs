// SPDX-License-Identifier: Apache-2.0
//! Certificates made for a test, and clients that check the server's.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};
use senko_server::settings::TlsSettings;

use crate::serve::client::{Client, Scratch, open};

/// A CA, and a folder with the certificates that it signed.
pub struct Authority {
    pub folder: Scratch,
    issuer: Issuer<'static, KeyPair>,
    /// In PEM.
    pub ca: String,
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let folder = Scratch::new();
        std::fs::write(folder.join("ca.pem"), &ca).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { folder, issuer, ca }
    }

    /// A certificate and its key, in PEM.
    pub fn sign(&self, name: &str, ends: Option<i32>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if let Some(year) = ends {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A new certificate for the server, in the files of [`Authority::settings`].
    pub fn roll(&self, ends: Option<i32>) {
        let (certificate, key) = self.sign("localhost", ends);
        std::fs::write(self.path("chain.pem"), certificate).unwrap();
        std::fs::write(self.path("key.pem"), key).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Settings with a new certificate.
    pub fn settings(&self) -> TlsSettings {
        self.roll(None);
        TlsSettings {
            chain: self.path("chain.pem"),
            key: self.path("key.pem"),
            ..TlsSettings::default()
        }
    }

    /// A client that trusts this authority, with its own certificate if it has one.
    pub fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<(String, String)>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

/// A client that takes any certificate of the server.
pub fn trusting(
    versions: &[&'static SupportedProtocolVersion],
    own: Option<(String, String)>,
) -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let chain = chain.collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let key = provider.key_provider.load_private_key(key).unwrap();
            // rustls would compare the two, and reads no certificate of version 1.
            let own = SingleCertAndKey::from(CertifiedKey::new(chain, key));
            builder.with_client_cert_resolver(Arc::new(own))
        }
    })
}

/// Runs openssl in this folder.
pub fn openssl(folder: &Path, line: &str) {
    let mut openssl = Command::new("openssl");
    let done = openssl.args(line.split(' ')).current_dir(folder).output();
    let done = done.expect("openssl is installed");
    assert!(done.status.success(), "{line}: {done:?}");
}

/// Takes any certificate.
#[derive(Debug)]
struct Anyone;

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
        let algorithms = ring::default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Of both versions.
pub const ALL: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// A connection with TLS.
pub type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

impl Secure {
    pub fn secure(address: SocketAddr, config: &Arc<ClientConfig>) -> Secure {
        Client::over(opened(address, config).unwrap())
    }

    /// Completes the handshake, however the server reacts.
    pub fn shake(&mut self) -> std::io::Result<()> {
        shake(&mut self.stream)
    }

    /// Reads to the end; returns whether the server announced it.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        match self.stream.read_to_end(&mut all) {
            Ok(_) => (all, true),
            Err(error) => {
                let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                assert!(kinds.contains(&error.kind()), "{error}");
                (all, false)
            }
        }
    }
}

/// A connected socket with TLS; the handshake is still to come.
pub fn opened(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    let link = ClientConnection::new(Arc::clone(config), name).unwrap();
    Ok(StreamOwned::new(link, open(address)?))
}

/// Completes the handshake, however the server reacts.
pub fn shake(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}
