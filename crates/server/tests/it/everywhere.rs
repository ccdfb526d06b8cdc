// SPDX-License-Identifier: Apache-2.0
//! Commands for the whole server: they hold at every worker from their answer on, and a value that
//! the server reports can be given back to it.

use senko_server::settings::{BackendChoice, Settings};
use senko_server::shards::Deal;
use senko_server::shared::{Shared, Shutdown};

use crate::across::one_at_each;
use crate::admin::{admin, samples, watched};
use crate::serve::client::{Place, on_both};

/// The other worker zeroed its counters up to a tenth of a second after the answer. So it lost what
/// it had counted since, and its own clients saw the old counts until then.
#[test]
fn a_reset_holds_at_every_worker_from_its_answer_on() {
    on_both(2, |place| {
        let mut clients = one_at_each(&place);
        for n in 0..200 {
            let [one, other] = &mut clients;
            // Keys of both shards, found and not found.
            other.ask(&format!("set k{n} 0 0 1\r\nx\r\n"), "STORED\r\n");
            one.ask("stats reset\r\n", "RESET\r\n");
            if n % 3 == 0 {
                assert_eq!(other.stat("cmd_set"), 0, "{n}");
            }
            for client in [&mut *other, &mut *one] {
                client.ask(
                    &format!("get k{n}\r\n"),
                    &format!("VALUE k{n} 0 1\r\nx\r\nEND\r\n"),
                );
                client.ask(&format!("get none{n}\r\n"), "END\r\n");
            }
            for client in [&mut *one, &mut *other] {
                let counts = ["get_hits", "get_misses", "cmd_set"].map(|name| client.stat(name));
                assert_eq!(counts, [2, 2, 0], "{n}");
            }
            clients.rotate_left(n % 2);
        }
    });
}

/// A worker lowered the limit, and another restored it within a tenth of a second. The first kept
/// its part lowered, because it compared the limit with the last that it had not set itself.
#[test]
fn a_memory_limit_that_is_restored_at_once_holds_for_all_workers() {
    let place = watched(BackendChoice::Auto, 2);
    let mut clients = one_at_each(&place);
    for n in 0..20 {
        for (at, limit) in [(n % 2, 24), (n % 2, 12), (1 - n % 2, 24)] {
            clients[at].ask(&format!("cache_memlimit {limit}\r\n"), "OK\r\n");
            if limit == 24 {
                // Each makes the other worker publish its counters.
                for client in &mut clients {
                    assert_eq!(client.stat("limit_maxbytes"), 24 << 20);
                }
                let parts = samples(admin(&place))["senko_capacity_bytes{tier=\"dram\"}"];
                assert_eq!(parts, f64::from(24 << 20), "{n}");
            }
        }
    }
}

/// A server with less than 8 MiB for items refused the limit that it had, as memcached refuses all
/// that small.
#[test]
fn a_limit_that_is_reported_can_be_given_back() {
    for mib in [31, 34, 64] {
        let place = Place::start(BackendChoice::Auto, 1).restart(|settings| {
            settings.memory = mib << 20;
            settings.max_connections = 1024;
        });
        let mut client = place.connect();
        let limit = client.stat("limit_maxbytes") >> 20;
        assert_eq!(limit < 8, mib < 64, "{limit} of {mib}");
        client.ask(&format!("cache_memlimit {limit}\r\n"), "OK\r\n");
        assert_eq!(client.stat("limit_maxbytes"), limit << 20);
        client.ask(
            &format!("cache_memlimit {}\r\n", limit.min(8) - 1),
            "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        );
    }
}

/// `shutdown graceful` right after `shutdown`: workers that had not looked between the two used to
/// wait for their clients.
#[test]
fn a_stop_at_once_is_not_taken_back() {
    let shared = Shared::new(Settings::default(), Deal::new(2, 2), 1);
    shared.request_shutdown(Shutdown::Graceful);
    assert_eq!(shared.shutdown(), Shutdown::Graceful);
    shared.request_shutdown(Shutdown::Now);
    shared.request_shutdown(Shutdown::Graceful);
    assert_eq!(shared.shutdown(), Shutdown::Now);
}
