// SPDX-License-Identifier: Apache-2.0
//! `watch`: the lines of watchers, over real sockets; and watchers that do not read.

use std::time::Instant;

use senko_server::watch::MOST_WATCHERS;

use crate::serve::client::{Client, PATIENCE, Place, on_both};

/// A connection that watches.
fn watcher(place: &Place, topics: &str) -> Client {
    let mut client = place.connect();
    client.ask(&format!("watch {topics}\r\n"), "OK\r\n");
    client
}

/// The next line, without its time and number.
fn line(watcher: &mut Client) -> String {
    let line = String::from_utf8(watcher.until(b"\n")).unwrap();
    let line = line.strip_suffix('\n').unwrap();
    if line.starts_with("skipped=") {
        return line.to_owned();
    }
    let mut words = line.splitn(3, ' ');
    let (ts, gid) = (words.next().unwrap(), words.next().unwrap());
    let ts = ts.strip_prefix("ts=").and_then(|ts| ts.split_once('.'));
    let (seconds, micros) = ts.unwrap_or_else(|| panic!("{line}"));
    assert!(seconds.parse::<u64>().is_ok() && micros.parse::<u32>().is_ok_and(|n| n < 1_000_000));
    let gid = gid.strip_prefix("gid=").map(str::parse::<u64>);
    assert!(gid.is_some_and(|gid| gid.is_ok()), "{line}");
    words.next().unwrap().to_owned()
}

/// The same without the numbers that depend on sizes of memory.
fn event(watcher: &mut Client) -> String {
    let line = line(watcher);
    let words = line.split(' ').filter(|word| !word.starts_with("clsid="));
    words.collect::<Vec<_>>().join(" ")
}

/// The number of a connection in `stats conns`.
fn number_of(client: &mut Client) -> String {
    let rows = client.text("stats conns\r\n", "END\r\n");
    let own = rows
        .lines()
        .find(|line| line.ends_with(":state conn_parse_cmd"));
    let own = own.unwrap_or_else(|| panic!("{rows}"));
    own.strip_prefix("STAT ")
        .unwrap()
        .split(':')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn each_topic_has_memcacheds_lines() {
    for threads in [1, 3] {
        on_both(threads, |place| {
            let mut asker = place.connect();
            let fd = number_of(&mut asker);
            let mut fetchers = watcher(&place, "");
            let mut mutations = watcher(&place, "mutations");
            let mut deletions = watcher(&place, "deletions");
            asker.ask("get a%20b\r\n", "END\r\n");
            asker.ask("set k 7 100 3\r\nabc\r\n", "STORED\r\n");
            asker.ask("get k\r\n", "VALUE k 7 3\r\nabc\r\nEND\r\n");
            asker.ask("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
            asker.ask("cas nope 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n");
            asker.ask("ms k 2 ME\r\nxx\r\n", "NS\r\n");
            asker.ask(
                "set k 0 0 2000000\r\n",
                "SERVER_ERROR object too large for cache\r\n",
            );
            asker.send(vec![b'x'; 2_000_000]);
            asker.ask("\r\nmn\r\n", "MN\r\n");
            asker.ask("set k 0 0 3\r\nabc\r\n", "STORED\r\n");
            asker.ask("delete k\r\ndelete k\r\n", "DELETED\r\nNOT_FOUND\r\n");
            asker.ask("ms k 1\r\nx\r\nmd k q\r\nmn\r\n", "HD\r\nMN\r\n");
            for wanted in [
                format!("type=item_get key=a%2520b status=not_found cfd={fd} size=0"),
                format!("type=item_get key=k status=not_found cfd={fd} size=0"),
                format!("type=item_get key=k status=found cfd={fd} size=3"),
                format!("type=item_get key=k status=found cfd={fd} size=3"),
                format!("type=item_get key=nope status=not_found cfd={fd} size=0"),
                format!("type=item_get key=k status=found cfd={fd} size=3"),
            ] {
                assert_eq!(event(&mut fetchers), wanted, "{threads} threads");
            }
            for wanted in [
                format!("type=item_store key=k status=stored cmd=set ttl=100 cfd={fd} size=3"),
                format!("type=item_store key=k status=not_stored cmd=add ttl=0 cfd={fd} size=1"),
                format!("type=item_store key=nope status=not_found cmd=cas ttl=0 cfd={fd} size=1"),
                format!("type=item_store key=k status=not_stored cmd=add ttl=0 cfd={fd} size=2"),
                format!("type=item_store key=k status=too_large cmd=set ttl=0 cfd={fd} size=0"),
                format!("type=item_store key=k status=stored cmd=set ttl=0 cfd={fd} size=3"),
                format!("type=item_store key=k status=stored cmd=set ttl=0 cfd={fd} size=1"),
            ] {
                assert_eq!(event(&mut mutations), wanted, "{threads} threads");
            }
            assert_eq!(
                event(&mut deletions),
                "type=deleted key=k cmd=delete size=3"
            );
            assert_eq!(event(&mut deletions), "type=deleted key=k cmd=md size=1");
            let rows = asker.text("stats conns\r\n", "END\r\n");
            assert_eq!(rows.matches(":state conn_watch\r\n").count(), 3, "{rows}");
            assert_eq!(asker.stat("log_watchers"), 3);
            // A watcher that leaves is forgotten.
            drop((fetchers, mutations, deletions));
            let deadline = Instant::now() + PATIENCE;
            while asker.stat("log_watchers") != 0 {
                assert!(Instant::now() < deadline, "they are still there");
            }
        });
    }
}

#[test]
fn connections_that_come_and_go_are_told() {
    on_both(2, |place| {
        let mut watcher = watcher(&place, "connevents");
        let mut client = place.connect();
        let port = client.stream.local_addr().unwrap().port();
        let fd = number_of(&mut client);
        client.send(b"quit\r\n");
        assert!(client.rest().is_empty());
        let mut web = place.connect();
        let web_port = web.stream.local_addr().unwrap().port();
        web.send(b"GET / HTTP/1.1\r\n\r\n");
        assert!(web.rest().is_empty());
        let came = |port| format!("type=conn_new rip=127.0.0.1 rport={port} transport=tcp cfd=");
        let went = |port, reason| {
            format!("type=conn_close rip=127.0.0.1 rport={port} transport=tcp reason={reason} cfd=")
        };
        assert_eq!(line(&mut watcher), came(port) + &fd);
        assert_eq!(line(&mut watcher), went(port, "normal") + &fd);
        assert!(line(&mut watcher).starts_with(&came(web_port)));
        assert!(line(&mut watcher).starts_with(&went(web_port, "error")));
    });
}

#[test]
fn evictions_are_told() {
    on_both(1, |place| {
        let place = place.restart(|settings| settings.flash.clear());
        let mut watcher = watcher(&place, "evictions");
        let mut client = place.connect();
        let value = vec![b'v'; 100_000];
        let mut n = 0;
        while client.stat("evictions") == 0 {
            client.store(&format!("n,{n}"), &value);
            n += 1;
        }
        let told = event(&mut watcher);
        assert!(told.starts_with("type=eviction key=n%2C"), "{told}");
        assert!(
            told.ends_with(" fetch=no ttl=-1 la=0 size=100000"),
            "{told}"
        );
    });
}

/// The lines of a watcher that does not read are dropped. All others are answered, and the watcher
/// learns how many lines it lost.
#[test]
fn a_watcher_that_does_not_read_loses_lines_and_stalls_nobody() {
    on_both(2, |place| {
        let mut slow = watcher(&place, "fetchers");
        let mut client = place.connect();
        let key = "k".repeat(200);
        let request = format!("get {key}\r\n").repeat(500);
        let answer = "END\r\n".repeat(500);
        let deadline = Instant::now() + PATIENCE;
        while client.stat("log_watcher_skipped") < 1000 {
            assert!(Instant::now() < deadline, "nothing was dropped");
            client.ask(&request, &answer);
        }
        let written = client.stat("log_worker_written");
        let wanted = format!("type=item_get key={key} status=not_found clsid=0");
        let mut told = 0;
        // It reads now. The lines that were kept come first.
        let skipped: u64 = loop {
            let next = line(&mut slow);
            if let Some(skipped) = next.strip_prefix("skipped=") {
                break skipped.parse().unwrap();
            }
            assert!(next.starts_with(&wanted), "{next}");
            told += 1;
        };
        assert!(skipped > 0 && told + skipped <= written);
        client.ask("get last\r\n", "END\r\n");
        let mut skipped_later = 0;
        loop {
            let next = line(&mut slow);
            if let Some(more) = next.strip_prefix("skipped=") {
                skipped_later += more.parse::<u64>().unwrap();
            } else if next.contains(" key=last ") {
                break;
            } else {
                told += 1;
            }
        }
        // Every line was sent or counted.
        assert_eq!(told + skipped + skipped_later, written);
        assert_eq!(client.stat("log_watcher_skipped"), skipped + skipped_later);
        assert_eq!(client.stat("senko_slow_readers_closed"), 0);
    });
}

#[test]
fn watchers_are_few_and_can_be_forbidden() {
    on_both(1, |place| {
        let all: Vec<Client> = (0..MOST_WATCHERS)
            .map(|_| watcher(&place, "fetchers"))
            .collect();
        let mut client = place.connect();
        client.ask(
            "watch fetchers\r\nwatch nothing\r\n",
            "WATCHER_TOO_MANY log watcher limit reached\r\nERROR\r\n",
        );
        client.ask("mn\r\n", "MN\r\n");
        drop(all);
        let place = place.restart(|settings| settings.no_watch = true);
        let mut client = place.connect();
        client.ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
        client.ask("mn\r\n", "MN\r\n");
    });
}

/// `stats conns` used to report every connection as being between commands.
#[test]
fn rows_of_connections_tell_what_each_is_doing() {
    on_both(2, |place| {
        let mut client = place.connect();
        let mut half = place.connect();
        half.send(b"set k 0 0 100000\r\nabc");
        let mut refused = place.connect();
        refused.ask(
            "set k x 0 100\r\n",
            "CLIENT_ERROR bad command line format\r\n",
        );
        let deadline = Instant::now() + PATIENCE;
        let rows = loop {
            let rows = client.text("stats conns\r\n", "END\r\n");
            if rows.contains(":state conn_nread\r\n") && rows.contains(":state conn_swallow\r\n") {
                break rows;
            }
            assert!(Instant::now() < deadline, "{rows}");
        };
        let port = place.port();
        let listening = rows
            .lines()
            .find_map(|line| line.strip_suffix(&format!(":addr tcp:127.0.0.1:{port}")));
        let listening = listening.unwrap_or_else(|| panic!("{rows}"));
        assert!(
            rows.contains(&format!("{listening}:state conn_listening\r\n")),
            "{rows}"
        );
        assert!(
            !rows.contains(&format!("{listening}:listen_addr")),
            "{rows}"
        );
    });
}
