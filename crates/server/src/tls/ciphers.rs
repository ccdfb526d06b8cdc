// SPDX-License-Identifier: Apache-2.0
//! OpenSSL's names of cipher suites, which memcached's `ssl_ciphers` uses.
//!
//! OpenSSL's classes (`HIGH`, `!aNULL`) are refused. Their meaning changes with OpenSSL's version,
//! and all suites here are in its highest class.

use std::sync::OnceLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite};

/// OpenSSL's name of a suite. Of TLS 1.2's it leaves out what all of them have.
fn name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "-");
    let name = name.replace("AES_", "AES").replace('_', "-");
    name.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
}

/// The suites of a list separated by colons, in its order. A list without suites of TLS 1.3 keeps
/// the default ones, as OpenSSL's lists do.
pub(super) fn read(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut suites = Vec::new();
    for wanted in list.split([':', ' ']).filter(|name| !name.is_empty()) {
        let known = ALL_CIPHER_SUITES.iter().find(|suite| name(suite) == wanted);
        let Some(suite) = known else {
            let all: Vec<String> = ALL_CIPHER_SUITES.iter().map(name).collect();
            return Err(format!(
                "there is no cipher suite {wanted} here; there are {}",
                all.join(", ")
            ));
        };
        if !suites.contains(suite) {
            suites.push(*suite);
        }
    }
    if suites.is_empty() {
        return Err("the list of cipher suites is empty".to_owned());
    }
    let is_1_3 = |suite: &SupportedCipherSuite| {
        let version: &SupportedProtocolVersion = suite.version();
        version == &rustls::version::TLS13
    };
    if !suites.iter().any(is_1_3) {
        let all = ALL_CIPHER_SUITES.iter().filter(|suite| is_1_3(suite));
        suites.splice(0..0, all.copied());
    }
    Ok(suites)
}

/// The same suite, without the end that rustls sets to a connection of TLS 1.2 with AES-GCM: after
/// 2^24 records, which a busy connection sends within the hour. TLS 1.3 changes its key then. TLS
/// 1.2 can't without a new handshake, so OpenSSL's servers go on, and a client expects that. Up to
/// 2^32 records of 16 KiB, an attacker tells the cipher from a random one with a chance of 2^-44 or
/// less.
pub(super) fn endless(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static ALL: OnceLock<Vec<(SupportedCipherSuite, Tls12CipherSuite)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let suites = ALL_CIPHER_SUITES.iter();
        suites
            .filter_map(|suite| {
                let SupportedCipherSuite::Tls12(suite) = suite else {
                    return None;
                };
                let common = &suite.common;
                let without_end = Tls12CipherSuite {
                    common: CipherSuiteCommon {
                        suite: common.suite,
                        hash_provider: common.hash_provider,
                        confidentiality_limit: u64::MAX,
                    },
                    prf_provider: suite.prf_provider,
                    kx: suite.kx,
                    sign: suite.sign,
                    aead_alg: suite.aead_alg,
                };
                Some((SupportedCipherSuite::Tls12(suite), without_end))
            })
            .collect()
    });
    let own = all.iter().find(|(of, _)| *of == suite);
    own.map_or(suite, |(_, own)| SupportedCipherSuite::Tls12(own))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_its_order() {
        let names = |list| -> Vec<String> {
            let suites = read(list).unwrap();
            suites.iter().map(|s| format!("{:?}", s.suite())).collect()
        };
        assert_eq!(
            names("TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256"),
            [
                "TLS13_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            ]
        );
        let kept = names("ECDHE-RSA-AES128-GCM-SHA256");
        assert_eq!(kept.len(), 4, "those of TLS 1.3 stay: {kept:?}");
        assert!(read("HIGH:!aNULL").unwrap_err().contains("suite HIGH"));
        assert!(read("").unwrap_err().contains("empty"));
        let all: Vec<String> = ALL_CIPHER_SUITES.iter().map(name).collect();
        assert_eq!(
            all.join(" "),
            "TLS_AES_256_GCM_SHA384 TLS_AES_128_GCM_SHA256 TLS_CHACHA20_POLY1305_SHA256 \
             ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES128-GCM-SHA256 \
             ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-AES256-GCM-SHA384 \
             ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-CHACHA20-POLY1305"
        );
    }

    /// A connection of TLS 1.2 with AES-GCM used to be closed after 2^24 records, with its answers.
    #[test]
    fn no_suite_of_tls_1_2_ends_a_connection() {
        for suite in ALL_CIPHER_SUITES.iter().copied() {
            let used = endless(suite);
            assert_eq!(used.suite(), suite.suite());
            if let SupportedCipherSuite::Tls12(of_1_2) = used {
                assert_eq!(of_1_2.common.confidentiality_limit, u64::MAX);
            }
        }
    }
}
