// SPDX-License-Identifier: Apache-2.0
//! Dumps and restores with a server that answers as written here: what goes wrong is said, and is
//! never counted as done.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use senko_load::Target;
use senko_load::transfer::{
    Dumped, Head, Peer, Reader, Restored, Sink, Source, TransferError, Writer, check, fill,
};

/// Answers of the server: a request begins with the first text, and gets the second one. One that
/// ends with [`CLOSES`] closes the connection behind it.
type Script = Vec<(&'static str, String)>;

const CLOSES: &str = "!";

fn start(script: Script) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = script.clone();
            // An error ends the connection.
            std::thread::spawn(move || answer(stream, &script));
        }
    });
    address
}

fn answer(mut stream: TcpStream, script: &Script) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with("set ") {
            let len: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
            std::io::copy(&mut (&mut input).take(len + 2), &mut std::io::sink())?;
        }
        let found = script.iter().find(|(request, _)| line.starts_with(request));
        let text = found.map_or("ERROR\r\n", |(_, text)| text);
        stream.write_all(text.trim_end_matches(CLOSES).as_bytes())?;
        if text.ends_with(CLOSES) {
            return Ok(());
        }
    }
}

fn peer(address: SocketAddr) -> Peer {
    Peer {
        target: Target::Tcp(address),
        tls: None,
        login: None,
        timeout: Duration::from_secs(60),
    }
}

fn dumped(script: Script) -> (Result<Dumped, TransferError>, Vec<u8>) {
    let stop = AtomicBool::new(false);
    let mut bytes = Vec::new();
    let done = Source::connect(&peer(start(script)), &stop)
        .and_then(|source| source.dump(b"", &mut bytes, &mut |_| {}));
    (done, bytes)
}

/// A server with these keys, and these answers to the requests for their values.
fn listing(keys: &[&str], answers: Script) -> Script {
    let list: String = keys
        .iter()
        .map(|key| format!("key={key} exp=-1 la=1 cas=1 fetch=no cls=1 size=60\n"))
        .collect();
    let mut script = vec![
        ("get ", "END\r\n".to_owned()),
        ("mn", "MN\r\n".to_owned()),
        ("stats", "STAT curr_items 9\r\nEND\r\n".to_owned()),
        ("lru_crawler metadump all", format!("{list}END\r\n")),
    ];
    script.extend(answers);
    script
}

/// An item that expires or is deleted after its key was listed is gone, and nothing else is.
#[test]
fn items_that_go_meanwhile_are_counted() {
    let one = "VA 3 ka t-1 f7 c1 O0\r\nabc\r\n".to_owned();
    let script = listing(
        &["a", "b", "c"],
        vec![
            ("mg a ", one),
            ("mg b ", "EN\r\n".to_owned()),
            // As memcached 1.6.18 says it.
            ("mg c ", "EN O2 kc\r\n".to_owned()),
        ],
    );
    let (done, bytes) = dumped(script);
    let done = done.unwrap();
    assert_eq!(
        (done.listed, done.items, done.bytes, done.gone),
        (3, 1, 4, 2)
    );
    let totals = check(Reader::new(&bytes[..]).unwrap()).unwrap();
    assert_eq!((totals.items, totals.bytes), (1, 4));
}

/// memcached's `metadump all` skips items that are in use, and a dump of 400,000 items lacked up to
/// 17. `metadump hash` lists nothing while the table grows, which is no empty server.
#[test]
fn keys_are_listed_by_hash_where_that_lists_any() {
    let one = |number: u32| format!("VA 3 ka t-1 f7 c1 O{number}\r\nabc\r\n");
    let line = "key=a exp=-1 la=1 cas=1 fetch=no cls=1 size=60\n";
    let hash = |text: String| ("lru_crawler metadump hash", text);
    let by_hash = vec![hash(format!("{line}END\r\n")), ("mg a ", one(0))];
    assert_eq!(dumped(listing(&[], by_hash)).0.unwrap().items, 1);
    let by_all = vec![hash("END\r\n".to_owned()), ("mg a ", one(0))];
    assert_eq!(dumped(listing(&["a"], by_all)).0.unwrap().items, 1);
    let mut none = listing(&["a"], vec![hash("END\r\n".to_owned())]);
    none[2].1 = "STAT curr_items 0\r\nEND\r\n".to_owned();
    assert_eq!(dumped(none).0.unwrap().listed, 0);
}

/// The server that a fill fills: it has keys, and tells which ones it gets.
fn filled(socket: UnixStream, has: &[&str]) -> Vec<String> {
    let mut input = BufReader::new(socket.try_clone().unwrap());
    let mut output = socket;
    let (mut line, mut stored) = (String::new(), Vec::new());
    while input.read_line(&mut line).unwrap() > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[0] {
            "mg" if has.contains(&words[1]) => "HD\r\n",
            "mg" => "EN\r\n",
            "add" => {
                let len: u64 = words[4].parse().unwrap();
                std::io::copy(&mut (&mut input).take(len + 2), &mut std::io::sink()).unwrap();
                stored.push(words[1].to_owned());
                "STORED\r\n"
            }
            _ => panic!("{line}"),
        };
        output.write_all(answer.as_bytes()).unwrap();
        line.clear();
    }
    stored
}

/// memcached's items come in the order of their last access, the latest first. Keys that are here
/// are left out before their values are asked for: this peer has no answer about them.
#[test]
fn a_fill_brings_the_hottest_first_and_nothing_twice() {
    let accessed = [("a", 5), ("b", 9), ("c", 1), ("d", 7), ("e", 3), ("f", 9)];
    let list: String = accessed
        .iter()
        .map(|(key, la)| format!("key={key} exp=-1 la={la} cas=1 fetch=no cls=1 size=60\n"))
        .collect();
    let mut script = listing(&[], Vec::new());
    script[3].1 = format!("{list}END\r\n");
    let answers = ["mg b ", "mg f ", "mg a ", "mg c "];
    for (number, request) in answers.into_iter().enumerate() {
        script.push((request, format!("VA 3 t-1 f7 c1 O{number}\r\nabc\r\n")));
    }
    let (own, other) = UnixStream::pair().unwrap();
    let stored = std::thread::spawn(|| filled(other, &["d", "e"]));
    let stop = AtomicBool::new(false);
    let done = fill(
        &peer(start(script)),
        0,
        &stop,
        &|_| Ok(()),
        &|| Ok(own.try_clone()?.into()),
        &mut |_| {},
    )
    .unwrap();
    drop(own);
    assert_eq!(stored.join().unwrap(), ["b", "f", "a", "c"]);
    assert_eq!(
        (done.read.listed, done.stored.items, done.stored.kept),
        (6, 4, 2)
    );
}

/// Whatever a server does in place of an answer, the dump has no last block, and the reason is
/// said.
#[test]
fn a_server_that_fails_leaves_no_whole_dump() {
    let value = |text: &str| listing(&["a", "b"], vec![("mg a ", text.to_owned())]);
    let whole = "VA 3 ka t-1 f0 c1 O0\r\nabc\r\n";
    let list = |text: &str| {
        let mut script = listing(&[], Vec::new());
        script[3].1 = text.to_owned();
        script
    };
    let cases: Vec<(Script, &str)> = vec![
        (
            vec![("get ", "END\r\n".to_owned())],
            "has no meta commands: a dump needs senko, or memcached 1.6 or newer",
        ),
        (
            vec![("get ", "CLIENT_ERROR unauthenticated\r\n".to_owned())],
            "it wants a user (--user, --password-file)",
        ),
        (
            list("BUSY currently processing crawler request\r\n"),
            "does not list its keys: BUSY currently processing crawler request",
        ),
        (
            list("ERROR metadump not allowed\r\n"),
            "ERROR metadump not allowed",
        ),
        (list("key=%zz exp=1\r\nEND\r\n"), "does not list its keys"),
        (
            list("key=a exp=-1 size=9\n!"),
            "is gone: it closed the connection",
        ),
        (
            value("VA 30 ka t-1 f0 c1 O0\r\nabc!"),
            "is gone: it closed the connection",
        ),
        (
            value("VA 2 ka t-1 f0 c1 O0\r\nabc\r\n"),
            "with another length than it said",
        ),
        (
            value("VA 3 ka t-1 f0 c1 O5\r\nabc\r\n"),
            "mixes up its answers",
        ),
        (
            value("SERVER_ERROR out of memory\r\n"),
            "does not give the value of a: SERVER_ERROR out of memory",
        ),
        // It does not know the second one.
        (value(whole), "does not give the value of b: ERROR"),
    ];
    for (script, words) in cases {
        let (done, bytes) = dumped(script);
        let told = done.expect_err(words).to_string();
        assert!(told.contains(words), "{words}: {told}");
        assert!(!told.contains('\n'), "{told}");
        let read = Reader::new(&bytes[..]).and_then(check);
        assert!(
            matches!(read, Err(TransferError::Damaged(_))),
            "{words}: {read:?}"
        );
    }
    let stop = AtomicBool::new(false);
    let never = Source::connect(&peer(SocketAddr::from(([127, 0, 0, 1], 1))), &stop);
    let told = never.err().unwrap().to_string();
    assert!(told.contains("cannot connect to 127.0.0.1:1"), "{told}");
}

fn dump_of(items: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1).unwrap();
    for number in 0..items {
        let head = Head {
            key: format!("key{number}").into_bytes(),
            binary_key: false,
            flags: 0,
            expiry: 0,
            len: len as u32,
        };
        writer.item(&head).unwrap();
        writer.value(&vec![b'x'; len]).unwrap();
    }
    writer.finish(2).unwrap();
    bytes
}

fn restored(script: Script, dump: &[u8], stop: bool) -> (Restored, Result<u64, TransferError>) {
    let stop = AtomicBool::new(stop);
    let mut restored = Restored::default();
    let done = Sink::connect(&peer(start(script)), &stop).and_then(|sink| {
        let reader = Reader::new(dump)?;
        sink.restore(reader, b"", false, &mut restored, &mut |_| {})
    });
    (restored, done.map(|totals| totals.items))
}

/// Only acknowledged items count as stored.
#[test]
fn only_what_the_server_acknowledged_is_stored() {
    let probe = || ("get ", "END\r\n".to_owned());
    let stored = || ("set ", "STORED\r\n".to_owned());
    let dump = dump_of(200, 100);
    let (counts, done) = restored(vec![probe(), stored()], &dump, false);
    assert_eq!((counts.items, done.unwrap()), (200, 200));
    // It has the key of the first question.
    let there = (
        "get ",
        "VALUE senko-greeting 0 5\r\nhello\r\nEND\r\n".to_owned(),
    );
    let (counts, done) = restored(vec![there, stored()], &dump, false);
    assert_eq!((counts.items, done.unwrap()), (200, 200));

    let gone = ("set key7 ", "STORED\r\n!".to_owned());
    let (counts, done) = restored(vec![probe(), gone, stored()], &dump, false);
    let told = done.unwrap_err().to_string();
    assert!(told.contains("is gone: "), "{told}");
    assert!(counts.items <= 8, "{counts:?}");
    let full = (
        "set key7 ",
        "SERVER_ERROR out of memory storing object\r\n".to_owned(),
    );
    let (counts, done) = restored(vec![probe(), full, stored()], &dump, false);
    assert_eq!((counts.items, counts.refused, done.unwrap()), (199, 1, 200));
    assert_eq!(
        counts.reason(),
        Some("SERVER_ERROR out of memory storing object")
    );
    let odd = ("set key7 ", "HTTP/1.1 400 Bad Request\r\n".to_owned());
    let (_, done) = restored(vec![probe(), odd, stored()], &dump, false);
    let told = done.unwrap_err().to_string();
    assert!(told.contains("does not answer as memcached does"), "{told}");
    let (counts, done) = restored(vec![probe(), stored()], &dump, true);
    assert!(matches!(done, Err(TransferError::Stopped)), "{done:?}");
    assert_eq!(counts.items, 0);
}
