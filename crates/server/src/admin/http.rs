// SPDX-License-Identifier: Apache-2.0
//! The part of HTTP that a scraper, a health check and a browser need. It parses the head of a
//! request, and makes answers after which the connection is closed. `listener.rs` calls it, with
//! bytes that anybody may have sent.

/// Status lines.
pub(super) const OK: &str = "200 OK";
pub(super) const BAD: &str = "400 Bad Request";
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
/// Most bytes of a head.
pub(super) const MOST_HEAD: usize = 8 << 10;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// Whether only the head of the answer is requested.
    pub head: bool,
}

/// The state of a head that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The head is incomplete.
    Half,
    /// A request.
    Whole(Request<'a>),
    /// Refused with this status.
    Refused(&'static str),
}

/// Parses a request's head; ignores what follows it.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return match bytes.len() {
            0..MOST_HEAD => Parsed::Half,
            _ => Parsed::Refused(TOO_LARGE),
        };
    };
    if end > MOST_HEAD {
        return Parsed::Refused(TOO_LARGE);
    }
    let line = bytes[..end].split(|&b| b == b'\r').next().unwrap_or(&[]);
    let Ok(line) = std::str::from_utf8(line) else {
        return Parsed::Refused(BAD);
    };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Parsed::Refused(BAD);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Parsed::Refused(BAD);
    }
    let head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Parsed::Refused(NOT_ALLOWED),
    };
    let path = target.split('?').next().unwrap_or(target);
    Parsed::Whole(Request { path, head })
}

/// A whole answer.
pub(super) fn answer(request: &Request<'_>, status: &str, kind: &str, body: &str) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
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
    };
    answer(&request, status, PLAIN, &format!("{status}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let whole = |path, head| Parsed::Whole(Request { path, head });
        let get = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\nrest";
        assert_eq!(parse(get), whole("/metrics", false));
        assert_eq!(parse(b"HEAD / HTTP/1.0\r\n\r\n"), whole("/", true));
        for n in 0..get.len() - 4 {
            assert_eq!(parse(&get[..n]), Parsed::Half, "{n}");
        }
        for bad in [
            "GET\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET x HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
            "GET / HTTP/1.1 x\r\n\r\n",
        ] {
            assert_eq!(parse(bad.as_bytes()), Parsed::Refused(BAD), "{bad:?}");
        }
        assert_eq!(parse(b"\xff\xfe / \r\n\r\n"), Parsed::Refused(BAD));
        let post = parse(b"POST / HTTP/1.1\r\n\r\n");
        assert_eq!(post, Parsed::Refused(NOT_ALLOWED));
        let long = vec![b'a'; MOST_HEAD];
        assert_eq!(parse(&long), Parsed::Refused(TOO_LARGE));
    }

    #[test]
    fn an_answer_says_its_length_and_a_head_has_no_body() {
        let request = |head| Request { path: "/", head };
        let text = String::from_utf8_lossy(&answer(&request(false), OK, PLAIN, "ab")).into_owned();
        assert!(text.contains("Content-Length: 2\r\n") && text.ends_with("\r\n\r\nab"));
        let head = answer(&request(true), OK, PLAIN, "ab");
        assert!(head.ends_with(b"\r\n\r\n"));
    }
}
