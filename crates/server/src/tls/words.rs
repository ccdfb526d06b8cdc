// SPDX-License-Identifier: Apache-2.0
//! Why a connection with TLS was ended, as clauses for the log. rustls's own texts are partly in
//! Rust's debug form, and do not say what to do.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// Keys that the server takes, its own and those of others.
pub(super) const KEYS: &str = "RSA keys of 2048 to 4096 bits, and keys of P-256, P-384 and Ed25519";

/// A certificate has a key that the server does not take.
#[derive(Debug)]
pub(super) struct UnusableKey;

impl fmt::Display for UnusableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the client's certificate, or that of its CA, has a key that the server does not take; it takes {KEYS}"
        )
    }
}

impl std::error::Error for UnusableKey {}

/// Why the server or the client ended the connection.
pub(super) fn of(error: &Error) -> String {
    match error {
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => "what the client sent is no TLS".to_owned(),
        Error::PeerIncompatible(why) => of_hello(why),
        Error::NoCertificatesPresented => format!(
            "the client showed no certificate, and this listener requires one; it takes {KEYS}"
        ),
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::DecryptError => "a record of the client can't be decrypted".to_owned(),
        error => error.to_string(),
    }
}

/// What a client's first message lacks.
fn of_hello(why: &PeerIncompatible) -> String {
    use PeerIncompatible as No;
    let what = match why {
        No::NoCipherSuitesInCommon => {
            "cipher suite that the server takes: they have forward secrecy, AES-GCM or ChaCha20-Poly1305, and fit the server's kind of key (--tls-ciphers)"
        }
        No::NoKxGroupsInCommon
        | No::NamedGroupsExtensionRequired
        | No::KeyShareExtensionRequired => {
            "key exchange that the server takes, which are X25519, P-256 and P-384"
        }
        No::NoSignatureSchemesInCommon => {
            "signature that the server's kind of key can make; a certificate with another kind would do"
        }
        No::SignatureAlgorithmsExtensionRequired => {
            "signature algorithm, as clients from before TLS 1.2"
        }
        No::Tls12NotOffered
        | No::Tls12NotOfferedOrEnabled
        | No::SupportedVersionsExtensionRequired => {
            "version of TLS that the server takes (--tls-min-version)"
        }
        why => return format!("the client does not fit the server ({why:?})"),
    };
    format!("the client offers no {what}")
}

fn of_certificate(why: &CertificateError) -> String {
    use CertificateError as Why;
    let why = match why {
        Why::Expired | Why::ExpiredContext { .. } => "has expired",
        Why::NotValidYet | Why::NotValidYetContext { .. } => "is not valid yet",
        Why::UnknownIssuer => "is signed by no CA in the file of --tls-ca-cert",
        Why::BadSignature => "or the proof that it is the client's has a wrong signature",
        Why::UnsupportedSignatureAlgorithmContext { .. }
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            return UnusableKey.to_string();
        }
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => {
            "is not for clients: its extended key usage has no clientAuth"
        }
        Why::UnhandledCriticalExtension => "has a critical extension that the server doesn't know",
        Why::BadEncoding => "is damaged",
        Why::Other(other) => match other.0.downcast_ref::<UnusableKey>() {
            Some(words) => return words.to_string(),
            None if other.to_string().contains("CaUsedAsEndEntity") => {
                "is that of a CA; such a one is taken only if it stands itself in the file of --tls-ca-cert"
            }
            None => return format!("the client's certificate is refused ({other})"),
        },
        why => return format!("the client's certificate is refused ({why})"),
    };
    format!("the client's certificate {why}")
}

fn of_alert(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::UnknownCA => {
            "it does not trust the CA of the server's certificate".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "to it, the server's certificate has expired".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "it does not take the server's certificate".to_owned()
        }
        alert => format!("it sent the alert {alert:?}"),
    };
    format!("the client gave up: {why}")
}

/// What begins a first message of TLS with its record: content, message and length.
const HELLO: usize = 11;
/// TLS 1.2 in messages. Clients of TLS 1.3 say it too, and name 1.3 elsewhere.
const VERSION_1_2: [u8; 2] = [3, 3];

/// Whether these bytes are the first message of a client that ends before TLS 1.2; and its words.
pub(super) fn of_old_hello(data: &[u8]) -> Option<String> {
    let [22, _, _, _, _, 1, _, _, _, major, minor] = *data.first_chunk::<HELLO>()? else {
        return None;
    };
    ([major, minor] < VERSION_1_2).then(|| {
        let version = match minor {
            1 => "TLS 1.0",
            2 => "TLS 1.1",
            _ => "SSL 3",
        };
        format!("the client speaks {version} at most, and TLS 1.2 is the least")
    })
}

/// The record of a fatal alert: the version can't be agreed on.
pub(super) const BAD_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];
