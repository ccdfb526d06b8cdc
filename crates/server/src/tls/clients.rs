// SPDX-License-Identifier: Apache-2.0
//! Which certificates of clients the server takes. rustls's verifier decides, except for two kinds
//! that OpenSSL makes and takes, and it refuses:
//!
//! - a certificate that is itself among the trusted ones, such as a self-signed one of `openssl req
//!   -x509`, which calls itself a CA;
//! - a certificate of version 1 that a trusted CA signed, such as one of `openssl x509 -req`
//!   without extensions. It can't be a CA, so no certificate may stand between the two.
//!
//! Each must be valid now, and its client must have the key, as for all others.
//!
//! rustls takes each certificate of the file for a CA. Here one vouches for others only if it is
//! one, may sign certificates, is valid now, and allows as many CAs below it as there are.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::words::UnusableKey;
use super::x509::Certificate;

/// Bytes of the smallest RSA key.
const LEAST_RSA: usize = 256;

/// Verifies the certificates of clients.
#[derive(Debug)]
pub(super) struct Clients {
    /// For all certificates but the two kinds.
    pub usual: Arc<dyn ClientCertVerifier>,
    /// The certificates of the CA file.
    pub trusted: Arc<[CertificateDer<'static>]>,
    pub provider: Arc<CryptoProvider>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    /// A key of another kind would only make a signature wrong.
    fn takes_key(&self, of: &Certificate<'_>) -> Result<(), CertificateError> {
        let known = (self.algorithms.all.iter())
            .any(|algorithm| algorithm.public_key_alg_id().as_ref() == of.key_algorithm);
        match known && of.rsa_bytes().is_none_or(|bytes| bytes >= LEAST_RSA) {
            true => Ok(()),
            false => Err(CertificateError::Other(OtherError(Arc::new(UnusableKey)))),
        }
    }

    /// A certificate that rustls verifies, with those of the file that may vouch for it.
    fn verify_usual(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let signs = |der: &&CertificateDer<'_>| {
            Certificate::read(der).is_some_and(|ca| ca.extensions.signs)
        };
        let between: Vec<_> = between.iter().filter(signs).cloned().collect();
        let issued = |der: &&CertificateDer<'_>| {
            Certificate::read(der).is_none_or(|ca| ca.issuer != ca.subject)
        };
        let below = between.iter().filter(issued).count();
        let vouches = |der: &&CertificateDer<'_>| {
            Certificate::read(der).is_some_and(|ca| {
                let most = ca.extensions.most_between.unwrap_or(usize::MAX);
                ca.vouches() && in_time(&ca, now).is_ok() && below <= most
            })
        };
        let vouching = || self.trusted.iter().filter(vouches);
        match vouching().count() {
            0 => Err(CertificateError::UnknownIssuer.into()),
            all if all == self.trusted.len() => self.usual.verify_client_cert(shown, &between, now),
            _ => {
                let mut roots = RootCertStore::empty();
                vouching().try_for_each(|der| roots.add(der.clone()))?;
                let provider = Arc::clone(&self.provider);
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|_| CertificateError::UnknownIssuer)?
                    .verify_client_cert(shown, &between, now)
            }
        }
    }

    /// A certificate of version 1.
    fn verify_version_1(
        &self,
        shown: &Certificate<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let issuers = (self.trusted.iter()).filter_map(|der| Certificate::read(der));
        let issuers: Vec<_> = issuers
            .filter(|ca| ca.subject == shown.issuer && ca.vouches() && in_time(ca, now).is_ok())
            .collect();
        let Some(last) = issuers.last() else {
            return Err(CertificateError::UnknownIssuer);
        };
        let signed = issuers.iter().any(|ca| {
            self.algorithms.all.iter().any(|algorithm| {
                algorithm.signature_alg_id().as_ref() == shown.signature_algorithm
                    && algorithm.public_key_alg_id().as_ref() == ca.key_algorithm
                    && (algorithm.verify_signature(ca.key, shown.signed, shown.signature)).is_ok()
            })
        });
        match signed {
            true => Ok(()),
            false => self
                .takes_key(last)
                .and(Err(CertificateError::BadSignature)),
        }
    }
}

/// Whether it is valid now.
fn in_time(shown: &Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (from, to) = shown.validity;
    match now.as_secs() as i64 {
        now if now < from => Err(CertificateError::NotValidYet),
        now if now > to => Err(CertificateError::Expired),
        _ => Ok(()),
    }
}

/// A certificate of version 1, which rustls does not read.
fn version_1<'a>(der: &'a CertificateDer<'_>) -> Option<Certificate<'a>> {
    Certificate::read(der).filter(|certificate| certificate.is_version_1)
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.usual.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.usual.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.usual.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let known = self
            .trusted
            .iter()
            .any(|der| der.as_ref() == shown.as_ref());
        let read = Certificate::read(shown);
        if let Some(read) = &read {
            self.takes_key(read)?;
        }
        let Some(read) = read.filter(|read| known || read.is_version_1) else {
            return self.verify_usual(shown, between, now);
        };
        let verified = match known {
            true => Ok(()),
            false => self.verify_version_1(&read, now),
        };
        verified.and_then(|()| in_time(&read, now))?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(read) = version_1(shown) else {
            return self.usual.verify_tls12_signature(message, shown, signed);
        };
        let of_scheme = self.algorithms.mapping.iter();
        let mut of_scheme = of_scheme.filter(|(scheme, _)| *scheme == signed.scheme);
        let good = of_scheme.any(|(_, algorithms)| {
            algorithms.iter().any(|algorithm| {
                algorithm.public_key_alg_id().as_ref() == read.key_algorithm
                    && (algorithm.verify_signature(read.key, message, signed.signature())).is_ok()
            })
        });
        match good {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(read) = version_1(shown) else {
            return self.usual.verify_tls13_signature(message, shown, signed);
        };
        let key = SubjectPublicKeyInfoDer::from(read.key_info);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
