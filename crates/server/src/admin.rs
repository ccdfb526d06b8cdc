// SPDX-License-Identifier: Apache-2.0
//! The listener for operators: HTTP on an address and its own thread.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | everything that is counted, in Prometheus' text format 0.0.4 |
//! | `/` | a page for people |
//! | `/healthz` | 200 while the server serves, 503 while it starts or drains |
//! | `/healthz/filled` | the same, and 503 while a fill runs |
//!
//! Workers know nothing of it. They publish their counters about ten times a second anyway
//! ([`crate::shared::Shared::publish`]), and answers are made from those. So a scraper costs a
//! worker only a lock that is held while 10 KB are copied.
//!
//! Always holds:
//! - ADMIN-1. Clients of this listener hold bounded memory for a bounded time:
//!   [`listener::MOST_CONNECTIONS`] connections, one request and one answer each, for
//!   [`listener::PATIENCE`]. Answers that are not sent take a MiB at most. All of it is counted in
//!   `--memory` (`server/plan.rs`).
//! - ADMIN-2. A new connection is answered whatever the others do: the oldest connection is closed
//!   to make room.
//! - ADMIN-3. This listener changes no state of the server.
//! - ADMIN-4. It answers only to its own names: a page in a browser must not read it by a name that
//!   was made to resolve to this machine (DNS rebinding).

mod chart; // lines as pictures
mod history; // samples of the last minute, ten minutes and day
mod http; // a request's head, an answer's
mod listener; // the loop and its bounds
mod metrics; // the text of /metrics
mod page; // the page for people
mod sums; // the counters of all workers, added up
mod text; // Prometheus' format, line by line

use std::sync::{Arc, OnceLock};

use senko_io::Listener;

use crate::operator::OperatorThread;
use crate::server::report::{ServerError, StartReport};
use crate::shared::{Shared, Shutdown};
use history::History;

/// The server's phase, for `/healthz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    /// It serves, and a fill runs.
    Filling,
    Serving,
    Draining,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Filling => "filling",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
        }
    }
}

/// A server that has started.
#[derive(Debug)]
struct Started {
    shared: Arc<Shared>,
    report: StartReport,
}

/// The state that the server shares with its admin thread.
#[derive(Debug, Default)]
struct Watched {
    started: OnceLock<Started>,
    /// Names besides localhost and addresses by which clients may call it.
    names: Vec<String>,
}

impl Watched {
    fn phase(&self) -> Phase {
        match self.started.get() {
            None => Phase::Starting,
            Some(Started { shared, .. })
                if shared.shutdown() == Shutdown::No && !shared.is_draining() =>
            {
                Phase::Serving
            }
            Some(_) => Phase::Draining,
        }
    }

    fn answer(&self, request: &http::Request<'_>, history: &History) -> Vec<u8> {
        // ADMIN-4
        if request
            .host
            .is_some_and(|host| !http::is_own(host, &self.names))
        {
            let text = "this name is not the server's: use its address, or allow the name with --admin-host\n";
            return http::answer(request, http::MISDIRECTED, http::PLAIN, text);
        }
        match request.path {
            "/healthz" => health(request, self.phase()),
            "/healthz/filled" => health(
                request,
                match self.started.get() {
                    Some(started) if started.shared.fill.number() != 0 => Phase::Filling,
                    _ => self.phase(),
                },
            ),
            "/metrics" => match self.started.get() {
                Some(started) => {
                    let text = metrics::text(&started.shared, &started.report, history);
                    http::answer(request, http::OK, http::METRICS, &text)
                }
                None => http::answer(request, http::UNAVAILABLE, http::PLAIN, "starting\n"),
            },
            "/" => {
                let html = match self.started.get() {
                    Some(started) => page::html(started, self.phase(), history),
                    None => "<!doctype html><meta http-equiv=refresh content=2>starting".to_owned(),
                };
                http::answer(request, http::OK, http::HTML, &html)
            }
            _ => http::answer(
                request,
                http::NOT_FOUND,
                http::PLAIN,
                "there is /, /metrics, /healthz and /healthz/filled\n",
            ),
        }
    }
}

fn health(request: &http::Request<'_>, phase: Phase) -> Vec<u8> {
    let status = match phase {
        Phase::Serving => http::OK,
        Phase::Starting | Phase::Filling | Phase::Draining => http::UNAVAILABLE,
    };
    http::answer(request, status, http::PLAIN, &format!("{}\n", phase.name()))
}

/// The running admin thread; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Admin {
    watched: Arc<Watched>,
    thread: OperatorThread,
}

impl Admin {
    /// Starts the thread. Until [`Admin::serving`] is called, it reports that the server is
    /// starting.
    pub(crate) fn start(listener: Listener, names: &[String]) -> Result<Admin, ServerError> {
        let watched = Arc::new(Watched {
            names: names.to_vec(),
            ..Watched::default()
        });
        let seen = Arc::clone(&watched);
        let clients = (listener, listener::MOST_CONNECTIONS);
        let thread = OperatorThread::start("admin", "admin listener", clients, move |ev, end| {
            listener::Loop::new(ev).run(&seen, end)
        })?;
        Ok(Admin { watched, thread })
    }

    /// Notes that the server serves from now on.
    pub(crate) fn serving(&self, shared: Arc<Shared>, report: StartReport) {
        let _ = self.watched.started.set(Started { shared, report });
        // The history begins now.
        self.thread.wake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::shards::Deal;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn get(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A load balancer must send no clients to a server that starts or drains.
    #[test]
    fn health_follows_the_server() {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
        let port = listener.local_port().unwrap();
        let admin = Admin::start(listener, &[]).unwrap();
        let health = || get(port, "/healthz");
        assert!(health().starts_with("HTTP/1.1 503 ") && health().ends_with("\r\n\r\nstarting\n"));
        assert!(get(port, "/metrics").starts_with("HTTP/1.1 503 "));
        let shared = Arc::new(Shared::new(Settings::default(), Deal::new(1, 1), 0));
        admin.serving(Arc::clone(&shared), StartReport::default());
        assert!(health().starts_with("HTTP/1.1 200 ") && health().ends_with("\r\n\r\nserving\n"));
        assert!(get(port, "/metrics").contains("\nsenko_threads 1\n"));
        assert!(get(port, "/nothing").starts_with("HTTP/1.1 404 "));
        shared.request_shutdown(Shutdown::Graceful);
        assert!(health().starts_with("HTTP/1.1 503 ") && health().ends_with("\r\n\r\ndraining\n"));
        drop(admin);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
