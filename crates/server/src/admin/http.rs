// SPDX-License-Identifier: Apache-2.0
//! The part of HTTP that a scraper, a health check and a browser need. It parses the head of a
//! request, and makes answers after which the connection is closed. `listener.rs` calls it, with
//! bytes that anybody may have sent.

use std::net::IpAddr;

/// Status lines.
pub(super) const OK: &str = "200 OK";
pub(super) const BAD: &str = "400 Bad Request";
pub(super) const MISDIRECTED: &str = "421 Misdirected Request";
pub(super) const NOT_FOUND: &str = "404 Not Found";
pub(super) const NOT_ALLOWED: &str = "405 Method Not Allowed";
pub(super) const TOO_LARGE: &str = "431 Request Header Fields Too Large";
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable";
/// Content types.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
/// The page's content security policy: it loads nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
pub(super) const MOST_HEAD: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// Whether only the head of the answer is requested.
    pub head: bool,
    /// The name by which the client calls this server, without a port; `None`: it tells none, as
    /// clients of HTTP/1.0.
    pub host: Option<&'a str>,
}

/// The state of a head that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The head is incomplete.
    Half,
    Whole(Request<'a>),
    Refused(&'static str),
}

/// Parses a request's head (RFC 9112); ignores what follows it. Lines may end without a carriage
/// return, and empty lines may come first.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let start = bytes.iter().position(|b| !b"\r\n".contains(b));
    let head = &bytes[start.unwrap_or(bytes.len())..];
    let Some(end) = end_of_head(head) else {
        return match bytes.len() {
            0..MOST_HEAD => Parsed::Half,
            _ => Parsed::Refused(TOO_LARGE),
        };
    };
    if end > MOST_HEAD {
        return Parsed::Refused(TOO_LARGE);
    }
    let Ok(head) = std::str::from_utf8(&head[..end]) else {
        return Parsed::Refused(BAD);
    };
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().trim_end_matches('\r');
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Parsed::Refused(BAD);
    };
    if !version.starts_with("HTTP/1.") {
        return Parsed::Refused(BAD);
    }
    let hosts = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let hosts: Vec<&str> = hosts.collect();
    let (target, host) = match (absolute(target), &hosts[..]) {
        // Two names are none.
        (_, [_, _, ..]) => return Parsed::Refused(BAD),
        // A proxy sends the whole address, which counts more than the line.
        (Some((host, path)), _) => (path, Some(host)),
        (None, hosts) => (target, hosts.first().copied()),
    };
    if !target.starts_with('/') {
        return Parsed::Refused(BAD);
    }
    let head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Parsed::Refused(NOT_ALLOWED),
    };
    // Only requests of HTTP/1.0 may name no host, and no browser sends them.
    if host.is_none() && version != "HTTP/1.0" {
        return Parsed::Refused(BAD);
    }
    let path = target.split('?').next().unwrap_or(target);
    let host = host.map(without_port);
    Parsed::Whole(Request { path, head, host })
}

/// Where the empty line begins that ends a head.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let ends = memchr::memchr_iter(b'\n', bytes);
    let is_empty = |at: &usize| {
        let next = &bytes[at + 1..];
        next.starts_with(b"\n") || next.starts_with(b"\r\n")
    };
    ends.into_iter().find(is_empty)
}

/// Host and path of `http://HOST/PATH`.
fn absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    Some(match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest.split_at(at),
        Some(at) => (&rest[..at], "/"),
        None => (rest, "/"),
    })
}

/// A host without the port behind it.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => {
            match name.contains(':') && !name.ends_with(']') {
                true => host, // an IPv6 address without brackets
                false => name,
            }
        }
        _ => host,
    }
}

/// Whether a client may call this server so. Any page in a browser can have its own name resolve to
/// this machine, and then read what it asks for by that name. An address and `localhost` are nobody
/// else's.
pub(super) fn is_own(host: &str, names: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (names.iter()).any(|known| known == "*" || known.eq_ignore_ascii_case(name))
}

pub(super) fn answer(request: &Request<'_>, status: &str, kind: &str, body: &str) -> Vec<u8> {
    let allow = match status {
        NOT_ALLOWED => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let mut out = format!(
        "HTTP/1.1 {status}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: {POLICY}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if !request.head {
        out.extend_from_slice(body.as_bytes());
    }
    out
}

/// The answer to a malformed request.
pub(super) fn refusal(status: &str) -> Vec<u8> {
    let request = Request {
        path: "",
        head: false,
        host: None,
    };
    answer(&request, status, PLAIN, &format!("{status}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let whole = |path, head, host| Parsed::Whole(Request { path, head, host });
        let get = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\nrest";
        assert_eq!(parse(get), whole("/metrics", false, Some("a")));
        assert_eq!(parse(b"HEAD / HTTP/1.0\r\n\r\n"), whole("/", true, None));
        for n in 0..get.len() - 4 {
            assert_eq!(parse(&get[..n]), Parsed::Half, "{n}");
        }
        for bad in [
            "GET\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET x HTTP/1.1\r\n\r\n",
            "GET ftp://a/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(parse(bad.as_bytes()), Parsed::Refused(BAD), "{bad:?}");
        }
        assert_eq!(parse(b"\r\n\r\n"), Parsed::Half);
        assert_eq!(parse(b"\xff\xfe / \r\n\r\n"), Parsed::Refused(BAD));
        let post = parse(b"POST / HTTP/1.1\r\n\r\n");
        assert_eq!(post, Parsed::Refused(NOT_ALLOWED));
        let long = vec![b'a'; MOST_HEAD];
        assert_eq!(parse(&long), Parsed::Refused(TOO_LARGE));
    }

    /// A scraper behind a proxy sends the whole address, some clients end lines with a line feed
    /// alone, and some send an empty line first. All of them were refused or never answered.
    #[test]
    fn heads_of_other_forms() {
        let whole = |path, host| {
            Parsed::Whole(Request {
                path,
                head: false,
                host,
            })
        };
        for (text, path, host) in [
            (
                "GET http://a:1/metrics?x HTTP/1.1\r\nHost: b\r\n\r\n",
                "/metrics",
                "a",
            ),
            ("GET HTTP://a HTTP/1.1\r\nHost: b\r\n\r\n", "/", "a"),
            ("GET http://[::1]:1?x HTTP/1.1\r\n\r\n", "/", "[::1]"),
            ("GET /metrics HTTP/1.1\nHOST:  b:1 \n\n", "/metrics", "b"),
            ("\r\n\nGET / HTTP/1.1\r\nHost: ::1\r\n\r\n", "/", "::1"),
        ] {
            assert_eq!(parse(text.as_bytes()), whole(path, Some(host)), "{text:?}");
        }
        let text = String::from_utf8_lossy(&refusal(NOT_ALLOWED)).into_owned();
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
    }

    /// A page of any name could read hot keys, once that name resolved to this machine.
    #[test]
    fn only_own_names_are_answered() {
        let names = ["Cache-1.example".to_owned()];
        for own in [
            "127.0.0.1",
            "[::1]",
            "::1",
            "10.0.0.7",
            "LocalHost",
            "localhost.",
        ] {
            assert!(is_own(own, &[]), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_own(other, &names), "{other}");
            assert!(is_own(other, &["*".to_owned()]), "{other}");
        }
        assert!(is_own("cache-1.EXAMPLE", &names));
    }
    #[test]
    fn an_answer_says_its_length_and_a_head_has_no_body() {
        let request = |head| Request {
            path: "/",
            head,
            host: None,
        };
        let text = String::from_utf8_lossy(&answer(&request(false), OK, PLAIN, "ab")).into_owned();
        assert!(text.contains("Content-Length: 2\r\n") && text.ends_with("\r\n\r\nab"));
        let head = answer(&request(true), OK, PLAIN, "ab");
        assert!(head.ends_with(b"\r\n\r\n"));
    }
}
