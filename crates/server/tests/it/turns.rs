// SPDX-License-Identifier: Apache-2.0
//! Who has a turn in a round of the event loop: a request that comes alone waits for a few turns of
//! those that send much, however many they are. Counted in rounds, which no pace of the machine
//! changes.

use std::time::Instant;

use crate::serve::client::{Client, PATIENCE, on_both};

/// Turns in a round of those whose input waits, and as many of those that bring much (TURNS-1).
const A_ROUND: u64 = 2 * 8;

/// Counts of the server's work so far.
#[derive(Clone, Copy)]
struct Work {
    gets: u64,
    turns: u64,
    rounds: u64,
    /// Rounds that left turns to the next.
    left: u64,
}

impl Work {
    /// All of one moment.
    fn of(client: &mut Client) -> Work {
        let stats = client.text("stats\r\n", "END\r\n");
        let number = |name: &str| {
            let prefix = format!("STAT {name} ");
            let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
            line.unwrap_or_else(|| panic!("{stats}")).parse().unwrap()
        };
        Work {
            gets: number("cmd_get"),
            turns: number("senko_turns"),
            rounds: number("senko_rounds"),
            left: number("senko_turn_rounds"),
        }
    }
}

/// A round once had a turn for each connection with unread input. Five hundred of them that sent
/// hundreds of requests each made rounds of ten milliseconds, for which everybody else waited.
#[test]
fn a_round_has_few_turns_for_those_that_send_much() {
    const CROWD: usize = 100;
    const REQUESTS: usize = 3000;
    const TRIES: usize = 20;
    on_both(1, |place| {
        let request = "get none\r\n".repeat(REQUESTS);
        let answer = "END\r\n".repeat(REQUESTS);
        let mut alone = place.connect();
        alone.store("k", b"v");
        for attempt in 0.. {
            // A machine that runs each client's requests before the next one comes shows nothing.
            assert!(attempt < TRIES, "nobody ever waited for a turn");
            let mut crowd: Vec<Client> = (0..CROWD).map(|_| place.connect()).collect();
            let first = Work::of(&mut alone);
            for client in &mut crowd {
                client.send(request.as_bytes());
            }
            let (mut last, until) = (first, Instant::now() + PATIENCE);
            while last.gets - first.gets < (CROWD * REQUESTS) as u64 {
                alone.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
                let now = Work::of(&mut alone);
                // The round that tells has not ended.
                let (turns, rounds) = (now.turns - last.turns, now.rounds - last.rounds + 1);
                assert!(turns <= A_ROUND * rounds, "{turns} in {rounds} rounds");
                last = now;
                assert!(Instant::now() < until, "not all requests ran");
            }
            for client in &mut crowd {
                client.expect(answer.as_bytes());
            }
            if last.left > first.left {
                break;
            }
        }
    });
}

/// Input that waits for a turn is neither lost nor reordered, whatever it is a part of: a value in
/// pieces, commands behind it, and the end of the connection.
#[test]
fn input_that_waits_keeps_its_order() {
    const CROWD: usize = 40;
    on_both(2, |place| {
        // With many lines, as what has to wait.
        let value = "v\n".repeat(4500);
        let clients: Vec<_> = (0..CROWD)
            .map(|n| {
                let mut request = String::new();
                let mut wanted = String::new();
                for round in 0..10 {
                    request += &format!("set k{n} {round} 0 9000\r\n{value}\r\n");
                    request += &format!("get k{n}\r\nincr none 1\r\n");
                    wanted += &format!("STORED\r\nVALUE k{n} {round} 9000\r\n{value}\r\nEND\r\n");
                    wanted += "NOT_FOUND\r\n";
                }
                request += "quit\r\n";
                (place.connect(), request, wanted)
            })
            .collect();
        std::thread::scope(|scope| {
            for (mut client, request, wanted) in clients {
                scope.spawn(move || {
                    client.send_while_reading(request.as_bytes(), wanted.as_bytes());
                    assert!(client.rest().is_empty());
                });
            }
        });
    });
}
