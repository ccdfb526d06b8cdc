// SPDX-License-Identifier: Apache-2.0
//! What commands answer: exact bytes, in both tiers, whatever the pieces in which they arrive, and in order.

use crate::rig::{Plan, Rig, START};

/// Commands and the answers that memcached 1.6.18 gave to them, in one session from an empty server.
const CLASSIC: &[(&str, &str)] = &[
    ("get\r\n", "ERROR\r\n"),
    ("get \r\n", "ERROR\r\n"),
    ("get a\r\n", "END\r\n"),
    ("get a\nversion\n", "END\r\nVERSION 1.6.18\r\n"),
    ("set a 5 0 1\r\nx\r\n", "STORED\r\n"),
    ("get a\r\n", "VALUE a 5 1\r\nx\r\nEND\r\n"),
    ("get a b  a \r\n", "VALUE a 5 1\r\nx\r\nVALUE a 5 1\r\nx\r\nEND\r\n"),
    ("set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("set a 0 0 2147483646\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("set a 0 0 1\r\nxyz\r\nversion\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION 1.6.18\r\n"),
    ("set a 0 0 1\r\nxy\nversion\r\n", "CLIENT_ERROR bad data chunk\r\nVERSION 1.6.18\r\n"),
    ("set a 0 0 3\r\nx\r\nversion\r\nversion\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION 1.6.18\r\n"),
    ("set a 0 0 1 noreply\r\nxyz\r\n", "ERROR\r\n"),
    ("set a 0 0\r\n", "ERROR\r\n"),
    ("set a 0 0 1 noreply\r\ny\r\nget a\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n"),
    ("set a 0 0 1 foo\r\nx\r\n", "STORED\r\n"),
    ("set a 0 0 1 noreply foo\r\nx\r\n", "ERROR\r\nERROR\r\n"),
    ("set a -1 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    ("set a 0 abc 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    ("set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n"),
    ("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    ("set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\n", "STORED\r\n9\r\nVALUE n 0 2\r\n9 \r\nEND\r\n"),
    ("incr n 1\r\nincr n 100\r\nget n\r\n", "10\r\n110\r\nVALUE n 0 3\r\n110\r\nEND\r\n"),
    ("decr n 1000\r\nget n\r\n", "0\r\nVALUE n 0 3\r\n0  \r\nEND\r\n"),
    ("set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nincr n 5\r\n", "STORED\r\n0\r\n5\r\n"),
    ("set n 0 0 5\r\n12 ab\r\nincr n 1\r\nget n\r\n", "STORED\r\n13\r\nVALUE n 0 5\r\n13   \r\nEND\r\n"),
    (
        "set n 0 0 3\r\nabc\r\nincr n 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "set n 0 0 0\r\n\r\nincr n 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    ("incr n -1\r\nincr n x\r\nincr n\r\nincr n 1 2 3\r\n",
     "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nERROR\r\nERROR\r\n"),
    ("incr nope 1\r\ndecr nope 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n"),
    ("touch n 10\r\ntouch nope 10\r\ntouch n x\r\ntouch n\r\n",
     "TOUCHED\r\nNOT_FOUND\r\nCLIENT_ERROR invalid exptime argument\r\nERROR\r\n"),
    ("set g 1 0 2\r\ngg\r\ngat 10 g\r\ngat 10 g nope g\r\n",
     "STORED\r\nVALUE g 1 2\r\ngg\r\nEND\r\nVALUE g 1 2\r\ngg\r\nVALUE g 1 2\r\ngg\r\nEND\r\n"),
    ("gat x g\r\ngat 10\r\ngat\r\n", "CLIENT_ERROR invalid exptime argument\r\nEND\r\nERROR\r\n"),
    ("gat -1 g\r\nget g\r\n", "VALUE g 1 2\r\ngg\r\nEND\r\nEND\r\n"),
    ("set d 0 0 1\r\nx\r\ndelete d\r\ndelete d\r\ndelete d 0\r\n", "STORED\r\nDELETED\r\nNOT_FOUND\r\nNOT_FOUND\r\n"),
    ("delete d 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
    ("delete d noreply\r\ndelete d 0 noreply\r\ndelete d b noreply\r\ndelete\r\n", "ERROR\r\n"),
    ("cas a 0 0 1\r\n", "ERROR\r\n"),
    ("cas a 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
    ("set a 0 0 1\r\n1\r\ncas a 0 0 1 0\r\nx\r\ncas a 0 0 1 99999\r\ny\r\n", "STORED\r\nEXISTS\r\nEXISTS\r\n"),
    ("cas nope 0 0 1 0\r\nx\r\n", "NOT_FOUND\r\n"),
    ("append nope 0 0 1\r\nx\r\nprepend nope 0 0 1\r\nx\r\nreplace nope 0 0 1\r\nx\r\n",
     "NOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\n"),
    ("append a 7 0 1\r\nx\r\nprepend a 5 0 1\r\ny\r\nget a\r\n", "STORED\r\nSTORED\r\nVALUE a 0 3\r\ny1x\r\nEND\r\n"),
    ("add a 0 0 1\r\nx\r\nadd fresh 3 0 1\r\nx\r\nget fresh\r\n", "NOT_STORED\r\nSTORED\r\nVALUE fresh 3 1\r\nx\r\nEND\r\n"),
    ("replace a 9 0 2\r\nzz\r\nget a\r\n", "STORED\r\nVALUE a 9 2\r\nzz\r\nEND\r\n"),
    ("verbosity\r\nverbosity 0\r\nverbosity x\r\nverbosity 0 noreply\r\nverbosity 0 a b\r\nverbosity noreply\r\n",
     "ERROR\r\nOK\r\nCLIENT_ERROR bad command line format\r\nERROR\r\n"),
    ("shutdown\r\nshutdown graceful\r\n", "ERROR: shutdown not enabled\r\nERROR: shutdown not enabled\r\n"),
    ("\r\n", "ERROR\r\n"),
    ("\n", "ERROR\r\n"),
    (" \r\n", "ERROR\r\n"),
    ("   version\r\nversion foo\r\n", "VERSION 1.6.18\r\nVERSION 1.6.18\r\n"),
    ("m\r\nmx\r\ng\r\nmop\r\nGET a\r\nget\t a\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
    ("cache_memlimit\r\ncache_memlimit 1\r\ncache_memlimit x\r\ncache_memlimit 1000000001\r\n",
     "ERROR\r\nMEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nERROR\r\nMEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
    ("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n"),
    ("slabs reassign 1 2\r\n", "CLIENT_ERROR slab reassignment disabled\r\n"),
    ("stats detail\r\nstats detail on\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\nOK\r\n"),
    ("set pfx:a 0 0 1\r\nx\r\nget pfx:a\r\nget pfx:b\r\ndelete pfx:a\r\nget zz\r\nstats detail dump\r\nstats detail off\r\n",
     "STORED\r\nVALUE pfx:a 0 1\r\nx\r\nEND\r\nEND\r\nDELETED\r\nEND\r\nPREFIX pfx get 2 hit 1 set 1 del 1\r\nEND\r\nOK\r\n"),
    ("stats foo\r\nstats reset\r\n", "ERROR\r\nRESET\r\n"),
    ("stats cachedump\r\nstats cachedump 1 x\r\nstats cachedump 65 0\r\n",
     "CLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR Illegal slab id\r\n"),
    ("lru_crawler\r\nlru_crawler metadump 0\r\nlru_crawler metadump x\r\nlru_crawler crawl 99999\r\n",
     "ERROR\r\nBADCLASS invalid class id\r\nBADCLASS invalid class id\r\nBADCLASS invalid class id\r\n"),
    ("flush_all\r\nflush_all 0\r\nflush_all noreply\r\nflush_all x\r\nflush_all -1\r\nflush_all 1 2 3\r\nget a\r\n",
     "OK\r\nOK\r\nCLIENT_ERROR invalid exptime argument\r\nOK\r\nERROR\r\nEND\r\n"),
];

/// As [`CLASSIC`], for the meta commands. `{n}` stands for a unique.
const META: &[(&str, &str)] = &[
    ("mg\r\n", "ERROR\r\n"),
    ("mg a\r\nmg a v\r\nmg a v q\r\nmn\r\n", "EN\r\nEN\r\nMN\r\n"),
    ("mg a O123 k\r\n", "EN O123 ka\r\n"),
    ("ms a 1\r\nx\r\nmg a\r\n", "HD\r\nHD\r\n"),
    ("ms a 1 c\r\nx\r\n", "HD c{n}\r\n"),
    ("mg a s t c f h l v\r\n", "VA 1 s1 t-1 c{n} f0 h0 l0\r\nx\r\n"),
    ("mg a h l\r\n", "HD h1 l0\r\n"),
    ("mg a t T30\r\nmg a t\r\nmg a T-1\r\nmg a v\r\n", "HD t-1\r\nHD t30\r\nHD\r\nEN\r\n"),
    ("mg a v v\r\nmg a !\r\nmg a T\r\n",
     "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\n"),
    ("ms a\r\nms a abc\r\nms a -1\r\n",
     "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"),
    ("ms a 2 Fabc\r\nxx\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"),
    ("ms a 2 S2\r\nxx\r\nmn\r\n", "CLIENT_ERROR invalid flag\r\nMN\r\n"),
    ("ms a 2 T0 F5 c k q\r\nxx\r\nmg a v f c k\r\n", "VA 2 f5 c{n} ka\r\nxx\r\n"),
    ("ms a 2 b\r\nxx\r\nmn\r\n", "CLIENT_ERROR error decoding key\r\nMN\r\n"),
    ("ms YWJj 2 b k O1\r\nxx\r\nmg YWJj b k v s\r\nmg abc k v\r\n",
     "HD kYWJj b O1\r\nVA 2 kYWJj b s2\r\nxx\r\nVA 2 kYWJj b\r\nxx\r\n"),
    ("md YWJj b k\r\n", "HD kYWJj b\r\n"),
    ("ms a 2 ME\r\nxx\r\nms n1 2 ME c\r\nxx\r\nms n1 1 MA c\r\ny\r\nms n1 1 MP k\r\nz\r\nmg n1 v\r\n",
     "NS\r\nHD c{n}\r\nHD c{n}\r\nHD kn1\r\nVA 4\r\nzxxy\r\n"),
    ("ms nope 1 MR\r\nx\r\nms nope 1 MA\r\nx\r\nms n1 1 MR\r\nq\r\nms n1 1 MS\r\nr\r\nms n1 1 MX\r\nq\r\nms n1 1 M\r\nq\r\nmn\r\n",
     "NS\r\nNS\r\nHD\r\nHD\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR incorrect length for M token\r\nMN\r\n"),
    ("ms n1 1 C1\r\nx\r\nms nope 1 C1\r\nx\r\nms n1 1 MA C1\r\nx\r\nms n1 1 ME C1\r\nx\r\nms nope2 1 ME C1\r\nx\r\nms n1 1 C0\r\nx\r\n",
     "EX\r\nNF\r\nEX\r\nNS\r\nHD\r\nEX\r\n"),
    ("ms n1 1 q\r\nxyz\r\nmn\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n"),
    ("ms n1 1 q\r\nx\r\nms n1 1 ME q\r\ny\r\nmn\r\n", "NS\r\nMN\r\n"),
    ("ms q 1 T0 F3 C1 q c k O1\r\nx\r\nms q 1 q MR k O1\r\nx\r\nmn\r\n", "NF c0 kq O1\r\nNS kq O1\r\nMN\r\n"),
    ("md\r\nmd nope\r\nmd nope q\r\nmd n1 q O5 k\r\nmn\r\n", "ERROR\r\nNF\r\nNF\r\nMN\r\n"),
    ("ms n1 1\r\nx\r\nmd n1 O5 k\r\nmd a !\r\nmd a v v\r\n",
     "HD\r\nHD O5 kn1\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n"),
    ("ms s 1 T100\r\nx\r\nmg s c t v\r\nmd s I T30\r\nmg s c t v\r\nmg s c t v\r\n",
     "HD\r\nVA 1 c{n} t100\r\nx\r\nHD\r\nVA 1 c{n} t30 X W\r\nx\r\nVA 1 c{n} t30 Z X\r\nx\r\n"),
    ("md s I\r\nmg s v\r\nms s 2 I C1\r\nnn\r\nmg s v\r\nms s 2 I C9999999999999\r\nnn\r\nms s 1\r\ny\r\nmg s v\r\n",
     "HD\r\nVA 1 X W\r\nx\r\nHD\r\nVA 2 Z X\r\nnn\r\nEX\r\nHD\r\nVA 1\r\ny\r\n"),
    ("mg viv N30 v t\r\nmg viv N30 v t c\r\nms viv 1 T90\r\nx\r\nmg viv N30 v t R30\r\n",
     "VA 0 t30 W\r\n\r\nVA 0 t30 c{n} Z\r\n\r\nHD\r\nVA 1 t90\r\nx\r\n"),
    ("mg viv R100 t v\r\nmg viv R100 t v\r\n", "VA 1 t90 W\r\nx\r\nVA 1 t90 Z\r\nx\r\n"),
    ("ma nope\r\nma nope N0 J10 v\r\nma nope v\r\nma nope D10 v c t\r\nma nope MD v\r\nma nope M- D100 v\r\nmg nope v s\r\n",
     "NF\r\nVA 2\r\n10\r\nVA 2\r\n11\r\nVA 2 c{n} t-1\r\n21\r\nVA 2\r\n20\r\nVA 1\r\n0\r\nVA 2 s2\r\n0 \r\n"),
    ("ma nope MI\r\nma nope M+ D18446744073709551615 v\r\nma nope MX\r\nma nope Dx\r\nma nope T30 t v\r\nma nope q\r\nma nope O1 k q\r\nmn\r\n",
     "HD\r\nVA 1\r\n0\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\nVA 1 t30\r\n1\r\nMN\r\n"),
    ("ma nope C1 v\r\nma gone O1 k\r\nma gone q\r\nms na 1\r\nx\r\nma na\r\nma na q\r\nmn\r\nma gone N0 q v\r\nmg gone v\r\n",
     "EX\r\nNF O1 kgone\r\nNF\r\nHD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nMN\r\nVA 1\r\n0\r\nVA 1\r\n0\r\n"),
    ("ma n N0 J5 t c v k O1 q T5 MI D2\r\nma n v N0 J5 T5 MI D2\r\nmg n v t\r\n",
     "VA 1 t-1 c{n} kn O1\r\n5\r\nVA 1\r\n7\r\nVA 1 t5\r\n7\r\n"),
    ("ms e 0\r\n\r\nmg e v s\r\nmg e k\r\nms e 0 c O1 k\r\n\r\n", "HD\r\nVA 0 s0\r\n\r\nHD ke\r\nHD c{n} O1 ke\r\n"),
    ("me\r\nme nope3\r\nmn foo\r\n", "CLIENT_ERROR bad command line format\r\nEN\r\nMN\r\n"),
];

/// Replaces uniques by `{n}`.
fn mask(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer).into_owned();
    let mut out = String::new();
    for line in text.split_inclusive("\r\n") {
        if !line.starts_with("VA ") && !line.starts_with("HD ") {
            out.push_str(line);
            continue;
        }
        for (n, token) in line.trim_end().split(' ').enumerate() {
            if n > 0 {
                out.push(' ');
            }
            match token.strip_prefix('c') {
                Some(unique) if unique.parse::<u64>().is_ok() => out.push_str("c{n}"),
                _ => out.push_str(token),
            }
        }
        out.push_str("\r\n");
    }
    out
}

fn drop_in(plan: Plan) -> Plan {
    let mut plan = plan;
    plan.settings.drop_in = true;
    plan
}

#[test]
fn classic_and_meta_answer_as_memcached_does() {
    for shards in [1, 3] {
        for table in [CLASSIC, META] {
            let mut rig = Rig::new(&drop_in(Plan { shards, memory: 32 << 20, ..Plan::default() }));
            let id = rig.connect();
            for (input, expected) in table {
                assert_eq!(mask(&rig.ask(id, input.as_bytes())), *expected, "{input:?} with {shards} shards");
                assert!(rig.idle(id), "{input:?}");
            }
        }
    }
}

/// The pieces in which bytes arrive must not matter.
#[test]
fn answers_do_not_depend_on_how_bytes_arrive() {
    for table in [CLASSIC, META] {
        let whole: Vec<u8> = table.iter().flat_map(|(input, _)| input.bytes()).collect();
        let expected: String = table.iter().map(|(_, answer)| *answer).collect();
        for piece in [1, 2, 3, 7, 100, usize::MAX] {
            for shards in [1, 2] {
                let mut rig = Rig::new(&drop_in(Plan { shards, memory: 32 << 20, ..Plan::default() }));
                let id = rig.connect();
                let mut answer = Vec::new();
                for part in whole.chunks(piece.min(whole.len())) {
                    rig.send(id, part);
                    if piece < 7 {
                        rig.settle();
                    }
                    answer.extend(rig.answers(id));
                }
                rig.settle();
                answer.extend(rig.answers(id));
                assert_eq!(mask(&answer), expected, "in pieces of {piece}, {shards} shards");
            }
        }
    }
}

fn flash_plan() -> Plan {
    drop_in(Plan { memory: 6 << 20, flash_pages: 16 << 10, ..Plan::default() })
}

/// Each command on an item that lies on flash only.
#[test]
fn commands_on_flash_items() {
    let big = "B".repeat(40_000);
    let cases: Vec<(&str, String, String)> = vec![
        ("x", "get k\r\n".into(), "VALUE k 7 1\r\nx\r\nEND\r\n".into()),
        ("x", "get k nope k\r\n".into(), "VALUE k 7 1\r\nx\r\nVALUE k 7 1\r\nx\r\nEND\r\n".into()),
        ("", "get k\r\nmg k v s\r\n".into(), "VALUE k 7 0\r\n\r\nEND\r\nVA 0 s0\r\n\r\n".into()),
        (&big, "get k\r\n".into(), format!("VALUE k 7 40000\r\n{big}\r\nEND\r\n")),
        (&big, "mg k v f t\r\n".into(), format!("VA 40000 f7 t-1\r\n{big}\r\n")),
        ("x", "mg k v f t s k O9\r\n".into(), "VA 1 f7 t-1 s1 kk O9\r\nx\r\n".into()),
        ("x", "mg k f u\r\n".into(), "HD f7\r\n".into()),
        ("x", "mg k h\r\nmg k h\r\n".into(), "HD h0\r\nHD h1\r\n".into()),
        ("x", "mg k T30 t\r\nmg k t\r\n".into(), "HD t30\r\nHD t30\r\n".into()),
        ("x", "delete k\r\nget k\r\n".into(), "DELETED\r\nEND\r\n".into()),
        ("x", "md k\r\nmg k\r\n".into(), "HD\r\nEN\r\n".into()),
        ("x", "md k C99999\r\nmd k C0\r\nmg k v\r\n".into(), "EX\r\nEX\r\nVA 1\r\nx\r\n".into()),
        ("x", "md k I T30\r\nmg k v t\r\nmg k v\r\n".into(), "HD\r\nVA 1 t30 X W\r\nx\r\nVA 1 Z X\r\nx\r\n".into()),
        ("x", "md k x F3\r\nmg k v f\r\n".into(), "HD\r\nVA 0 f3\r\n\r\n".into()),
        ("x", "add k 0 0 1\r\ny\r\nget k\r\n".into(), "NOT_STORED\r\nVALUE k 7 1\r\nx\r\nEND\r\n".into()),
        ("x", "replace k 0 0 1\r\ny\r\nget k\r\n".into(), "STORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n".into()),
        ("x", "set k 0 0 1\r\ny\r\nget k\r\n".into(), "STORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n".into()),
        ("x", "append k 0 0 1\r\ny\r\nget k\r\n".into(), "STORED\r\nVALUE k 7 2\r\nxy\r\nEND\r\n".into()),
        ("x", "prepend k 0 0 1\r\ny\r\nget k\r\n".into(), "STORED\r\nVALUE k 7 2\r\nyx\r\nEND\r\n".into()),
        (&big, "append k 0 0 1\r\ny\r\nmg k s\r\n".into(), "STORED\r\nHD s40001\r\n".into()),
        ("x", "cas k 0 0 1 99999\r\ny\r\nget k\r\n".into(), "EXISTS\r\nVALUE k 7 1\r\nx\r\nEND\r\n".into()),
        ("41", "incr k 1\r\nget k\r\n".into(), "42\r\nVALUE k 7 2\r\n42\r\nEND\r\n".into()),
        ("10", "decr k 1\r\nget k\r\n".into(), "9\r\nVALUE k 7 2\r\n9 \r\nEND\r\n".into()),
        ("10", "ma k D5 v\r\n".into(), "VA 2\r\n15\r\n".into()),
        ("x", "incr k 1\r\n".into(), "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".into()),
        ("x", "touch k 30\r\nmg k t\r\n".into(), "TOUCHED\r\nHD t30\r\n".into()),
        ("x", "gat 30 k\r\nmg k t\r\n".into(), "VALUE k 7 1\r\nx\r\nEND\r\nHD t30\r\n".into()),
        ("x", "mg k N30 v\r\n".into(), "VA 1\r\nx\r\n".into()),
        ("x", "mg k R30 v\r\n".into(), "VA 1\r\nx\r\n".into()),
        ("x", "flush_all\r\nget k\r\n".into(), "OK\r\nEND\r\n".into()),
        // Later commands see what earlier ones did, though those wait.
        ("x", "get k\r\nset k 0 0 1\r\ny\r\nget k\r\n".into(),
         "VALUE k 7 1\r\nx\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n".into()),
        ("x", "get k\r\ndelete k\r\nget k\r\n".into(), "VALUE k 7 1\r\nx\r\nEND\r\nDELETED\r\nEND\r\n".into()),
        ("x", "get k\r\nflush_all\r\nget k\r\nversion\r\n".into(),
         "VALUE k 7 1\r\nx\r\nEND\r\nOK\r\nEND\r\nVERSION 1.6.18\r\n".into()),
        ("1", "incr k 1\r\nincr k 1\r\nincr k 1 noreply\r\nget k\r\n".into(),
         "2\r\n3\r\nVALUE k 7 1\r\n4\r\nEND\r\n".into()),
    ];
    let mut waited = 0;
    for (value, input, expected) in &cases {
        let mut rig = Rig::new(&flash_plan());
        let id = rig.connect();
        let store = format!("set k 7 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(rig.ask(id, store.as_bytes()), b"STORED\r\n");
        rig.press(id, &[b"k"], value.len());
        rig.send(id, input.as_bytes());
        waited += usize::from(!rig.idle(id));
        rig.settle();
        let answer = String::from_utf8(rig.answers(id)).expect("text");
        assert_eq!(answer, *expected, "{input:?}");
    }
    // `set`, `flush_all` alone do not wait; nearly all others must have come from flash.
    assert!(waited + 4 >= cases.len(), "only {waited} of {} waited for flash", cases.len());
}

/// The binary protocol on an item that lies on flash only.
#[test]
fn binary_commands_on_flash_items() {
    let mut rig = Rig::new(&flash_plan());
    let text = rig.connect();
    assert_eq!(rig.ask(text, b"set k 7 0 2\r\n40\r\n"), b"STORED\r\n");
    rig.press(text, &[b"k"], 2);
    let id = rig.connect();
    let get = packet(0x0c, b"k", &[], b"", 0);
    let answer = rig.ask(id, &get);
    assert_eq!(&answer[..8], &[0x81, 0x0c, 0, 1, 4, 0, 0, 0]);
    assert_eq!(&answer[24..], b"\0\0\0\x07k40");
    let incr: Vec<u8> = [2u64.to_be_bytes(), 0u64.to_be_bytes()].concat().into_iter().chain([0; 4]).collect();
    let answer = rig.ask(id, &packet(0x05, b"k", &incr, b"", 0));
    assert_eq!(&answer[24..], &42u64.to_be_bytes());
    let answer = rig.ask(id, &packet(0x0e, b"k", &[], b"!", 0));
    assert_eq!(answer[6..8], [0, 0]);
    let answer = rig.ask(id, &packet(0x1d, b"k", &5u32.to_be_bytes(), b"", 0));
    assert_eq!(&answer[24..], b"\0\0\0\x0742!");
    rig.advance(6);
    let answer = rig.ask(id, &packet(0x00, b"k", &[], b"", 0));
    assert_eq!(answer[6..8], [0, 1]);
}

pub fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let mut b = vec![0x80, opcode];
    b.extend((key.len() as u16).to_be_bytes());
    b.extend([extras.len() as u8, 0, 0, 0]);
    b.extend(((key.len() + extras.len() + value.len()) as u32).to_be_bytes());
    b.extend(7u32.to_be_bytes());
    b.extend(cas.to_be_bytes());
    b.extend_from_slice(extras);
    b.extend_from_slice(key);
    b.extend_from_slice(value);
    b
}

/// Status and text of each reply in a binary answer.
fn replies(mut answer: &[u8]) -> Vec<(u8, u16, Vec<u8>)> {
    let mut list = Vec::new();
    while !answer.is_empty() {
        let body = u32::from_be_bytes(answer[8..12].try_into().unwrap()) as usize;
        assert_eq!(answer[0], 0x81);
        list.push((answer[1], u16::from_be_bytes([answer[6], answer[7]]), answer[24..24 + body].to_vec()));
        answer = &answer[24 + body..];
    }
    list
}

#[test]
fn binary_answers_as_memcached_does() {
    let extras = [0u8, 0, 0, 5, 0, 0, 0, 0];
    // Request; opcode, status and body of each reply; whether the connection is closed.
    #[allow(clippy::type_complexity)]
    let cases: Vec<(Vec<u8>, Vec<(u8, u16, &str)>, bool)> = vec![
        (packet(1, b"a", &extras, b"val", 0), vec![(1, 0, "")], false),
        (packet(0, b"a", &[], b"", 0), vec![(0, 0, "\0\0\0\x05val")], false),
        (packet(9, b"zz", &[], b"", 0), vec![], false),
        (packet(0, b"zz", &[], b"", 0), vec![(0, 1, "Not found")], false),
        (packet(12, b"zz", &[], b"", 0), vec![(12, 1, "zz")], false),
        (packet(0x11, b"a", &extras, b"v2", 0), vec![], false),
        (packet(1, b"a", &extras, b"x", 99_999), vec![(1, 2, "Data exists for key.")], false),
        (packet(1, b"zz", &extras, b"x", 5), vec![(1, 1, "Not found")], false),
        (packet(2, b"a", &extras, b"x", 0), vec![(2, 2, "Data exists for key.")], false),
        (packet(2, b"nn", &extras, b"x", 3), vec![(2, 1, "Not found")], false),
        (packet(3, b"zz", &extras, b"x", 0), vec![(3, 1, "Not found")], false),
        (packet(0x14, b"zz", &[], b"", 0), vec![(0x14, 1, "Not found")], false),
        (packet(4, b"a", &[], b"", 99_999), vec![(4, 2, "Data exists for key.")], false),
        (packet(0x0e, b"zz", &[], b"x", 0), vec![(0x0e, 5, "Not stored.")], false),
        (packet(0x0a, b"", &[], b"", 0), vec![(0x0a, 0, "")], false),
        (packet(0x0b, b"", &[], b"", 0), vec![(0x0b, 0, "1.6.18")], false),
        (packet(0x1b, b"", &[0, 0, 0, 1], b"", 0), vec![(0x1b, 0, "")], false),
        (packet(0x20, b"", &[], b"", 0), vec![(0x20, 0x81, "Unknown command")], false),
        (packet(0x21, b"PLAIN", &[], b"\0u\0p", 0), vec![(0x21, 0x81, "Unknown command")], false),
        (packet(0x60, b"k", &[], b"v", 0), vec![(0x60, 0x81, "Unknown command")], false),
        (packet(0x10, b"foo", &[], b"", 0), vec![(0x10, 1, "Not found")], false),
        (packet(0x10, b"reset", &[], b"", 0), vec![(0x10, 0, "")], false),
        (packet(1, b"a", &extras, &vec![b'x'; 2_000_000], 0), vec![(1, 3, "Too large.")], false),
        (packet(0, b"a", &[], b"", 0), vec![(0, 1, "Not found")], false),
        (packet(8, b"", &[], b"", 0), vec![(8, 0, "")], false),
        (packet(0x17, b"", &[], b"", 0), vec![], true),
        (packet(7, b"", &[], b"", 0), vec![(7, 0, "")], true),
        (packet(0, b"", &[], b"", 0), vec![(0, 4, "Invalid arguments")], true),
        (packet(1, b"a", &[], b"val", 0), vec![(1, 4, "Invalid arguments")], true),
        (packet(0, &[b'k'; 251], &[], b"", 0), vec![(0, 4, "Invalid arguments")], true),
        (b"\x80".iter().chain(&[0u8; 23]).copied().collect(), vec![(0, 4, "Invalid arguments")], true),
    ];
    for shards in [1, 2] {
        let mut rig = Rig::new(&drop_in(Plan { shards, memory: 32 << 20, ..Plan::default() }));
        let mut id = rig.connect();
        for (input, expected, closes) in &cases {
            let got = replies(&rig.ask(id, input));
            let expected: Vec<(u8, u16, Vec<u8>)> =
                expected.iter().map(|(op, status, text)| (*op, *status, text.as_bytes().to_vec())).collect();
            assert_eq!(got, expected, "{:?}", &input[..input.len().min(40)]);
            assert_eq!(rig.closed(id), *closes);
            if *closes {
                rig.vanish(id);
                id = rig.connect();
            }
        }
        // A wrong first byte behind a good packet closes without a word.
        let mut input = packet(0x0a, b"", &[], b"", 0);
        input.extend_from_slice(b"version\r\n");
        assert_eq!(replies(&rig.ask(id, &input)).len(), 1);
        assert!(rig.closed(id));
    }
}

#[test]
fn too_large_values_are_skipped_and_take_the_old_value_along() {
    for shards in [1, 3] {
        let mut rig = Rig::new(&drop_in(Plan { shards, memory: 32 << 20, ..Plan::default() }));
        let id = rig.connect();
        let big = "x".repeat(2_000_000);
        rig.ask(id, b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
        let answer = rig.ask(id, format!("set a 0 0 2000000\r\n{big}\r\nget a\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), "SERVER_ERROR object too large for cache\r\nEND\r\n");
        let answer = rig.ask(id, format!("add b 0 0 2000000 noreply\r\n{big}\r\nget b\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), "VALUE b 0 1\r\nx\r\nEND\r\n");
        let answer = rig.ask(id, format!("ms b 2000000 q\r\n{big}\r\nmg b v\r\nmn\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), "SERVER_ERROR object too large for cache\r\nEN\r\nMN\r\n");
        let half = "y".repeat(600_000);
        let answer = rig.ask(id, format!("set h 0 0 600000\r\n{half}\r\nappend h 0 0 600000\r\n{half}\r\nmg h s\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), "STORED\r\nNOT_STORED\r\nHD s600000\r\n");
        let answer = rig.ask(id, b"get h\r\n");
        assert_eq!(answer.len(), "VALUE h 0 600000\r\n\r\nEND\r\n".len() + 600_000);
        assert!(answer.starts_with(b"VALUE h 0 600000\r\nyyy") && answer.ends_with(b"yyy\r\nEND\r\n"));
    }
}

#[test]
fn long_lines() {
    let mut rig = Rig::new(&drop_in(Plan::default()));
    let id = rig.connect();
    rig.ask(id, b"set a 0 0 1\r\nx\r\n");
    // No line end in sight, and no `get`.
    assert_eq!(rig.ask(id, &[b'x'; 3000]), b"");
    assert!(rig.closed(id));
    // A `get` may have any number of keys: they are answered as they come.
    let id = rig.connect();
    let mut answer = Vec::new();
    rig.send(id, b"get ");
    for _ in 0..20_000 {
        rig.send(id, b"a b ");
        answer.extend(rig.answers(id));
    }
    answer.extend(rig.ask(id, b"\r\nversion\r\n"));
    let expected = "VALUE a 0 1\r\nx\r\n".repeat(20_000) + "END\r\nVERSION 1.6.18\r\n";
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    // Keys of 250 bytes are good, of 251 spoil the line.
    let (good, bad) = ("k".repeat(250), "k".repeat(251));
    assert_eq!(rig.ask(id, format!("get {good}\r\n").as_bytes()), b"END\r\n");
    let answer = rig.ask(id, format!("get a {bad} a\r\nget a\r\n").as_bytes());
    assert_eq!(String::from_utf8_lossy(&answer), "CLIENT_ERROR bad command line format\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    for command in ["set {} 0 0 1", "delete {}", "incr {} 1", "touch {} 1", "mg {} v", "md {}", "ma {}", "me {}"] {
        let line = command.replace("{}", &bad);
        assert_eq!(rig.ask(id, format!("{line}\r\n").as_bytes()), b"CLIENT_ERROR bad command line format\r\n", "{command}");
    }
    // Too many spaces before an endless `get`.
    let line = " ".repeat(101) + "get " + &"a ".repeat(1500);
    rig.ask(id, line.as_bytes());
    assert!(rig.closed(id));
}

#[test]
fn time_passes() {
    let mut rig = Rig::new(&drop_in(flash_plan()));
    let id = rig.connect();
    rig.ask(id, b"set r 0 10 1\r\nx\r\n");
    rig.ask(id, format!("set abs 0 {} 1\r\nx\r\n", START + 20).as_bytes());
    rig.ask(id, format!("set past 0 {} 1\r\nx\r\n", START - 100).as_bytes());
    assert_eq!(rig.ask(id, b"get past\r\n"), b"END\r\n");
    rig.press(id, &[b"r", b"abs"], 1);
    assert_eq!(rig.ask(id, b"mg r t\r\nmg abs t\r\n"), b"HD t10\r\nHD t20\r\n");
    rig.advance(9);
    assert_eq!(rig.ask(id, b"mg r t\r\n"), b"HD t1\r\n");
    rig.advance(1);
    assert_eq!(rig.ask(id, b"get r\r\nmg abs t\r\n"), b"END\r\nHD t10\r\n");
    assert_eq!(rig.ask(id, b"set f 0 0 1\r\nx\r\nflush_all 5\r\nget f\r\n"), b"STORED\r\nOK\r\nVALUE f 0 1\r\nx\r\nEND\r\n");
    rig.advance(4);
    assert_eq!(rig.ask(id, b"get f\r\n"), b"VALUE f 0 1\r\nx\r\nEND\r\n");
    rig.advance(1);
    assert_eq!(rig.ask(id, b"get f\r\nget abs\r\n"), b"END\r\nEND\r\n");
    assert_eq!(rig.ask(id, b"set f 0 0 1\r\nx\r\nget f\r\n"), b"STORED\r\nVALUE f 0 1\r\nx\r\nEND\r\n");
    // An immediate flush replaces a delayed one.
    rig.ask(id, b"flush_all 5\r\nflush_all\r\nset f 0 0 1\r\nx\r\n");
    rig.advance(10);
    assert_eq!(rig.ask(id, b"get f\r\n"), b"VALUE f 0 1\r\nx\r\nEND\r\n");
}

/// A flush that was acknowledged holds on every shard, for every connection; what was sent before it is gone.
#[test]
fn flush_all_reaches_every_shard() {
    let mut rig = Rig::new(&drop_in(Plan { shards: 4, memory: 32 << 20, ..Plan::default() }));
    let (a, b) = (rig.connect_to(0), rig.connect_to(3));
    let mut sets = String::new();
    let mut keys = String::from("get");
    for n in 0..100 {
        sets += &format!("set k{n} 0 0 1 noreply\r\nx\r\n");
        keys += &format!(" k{n}");
    }
    keys += "\r\n";
    assert_eq!(rig.ask(a, sets.as_bytes()), b"");
    assert_eq!(rig.ask(b, keys.as_bytes()).len(), "END\r\n".len() + (0..100).map(|n| format!("VALUE k{n} 0 1\r\nx\r\n").len()).sum::<usize>());
    // Everything in one piece: the flush waits for the sets before it.
    let answer = rig.ask(a, (sets.clone() + "flush_all\r\n" + &keys).as_bytes());
    assert_eq!(String::from_utf8_lossy(&answer), "OK\r\nEND\r\n");
    assert_eq!(rig.ask(b, keys.as_bytes()), b"END\r\n");
}

#[test]
fn items_are_listed_across_shards() {
    for shards in [1, 3] {
        let mut rig = Rig::new(&drop_in(Plan { shards, memory: 32 << 20, ..Plan::default() }));
        let id = rig.connect();
        let mut expected = Vec::new();
        for n in 0..500 {
            rig.ask(id, format!("set key,{n} 0 0 3\r\nabc\r\n").as_bytes());
            expected.push(format!("key=key%2C{n}"));
        }
        let answer = String::from_utf8(rig.ask(id, b"lru_crawler metadump all\r\n")).unwrap();
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.last(), Some(&"END"));
        let mut found: Vec<String> =
            lines[..lines.len() - 1].iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert!(lines[0].contains(" exp=-1 ") && lines[0].contains(&format!(" la={START} ")), "{}", lines[0]);
        let sizes = String::from_utf8(rig.ask(id, b"stats sizes\r\n")).unwrap();
        let count: u64 = sizes.lines().filter_map(|line| line.split(' ').nth(2)).map(|n| n.parse::<u64>().unwrap()).sum();
        assert_eq!(count, 500);
        let class: &str = lines[0].split("cls=").nth(1).unwrap().split(' ').next().unwrap();
        let dump = String::from_utf8(rig.ask(id, format!("stats cachedump {class} 7\r\n").as_bytes())).unwrap();
        assert_eq!(dump.lines().count(), 8);
        assert!(dump.starts_with("ITEM key,") && dump.contains(" [3 b; 0 s]\r\n"), "{dump}");
        assert_eq!(rig.ask(id, b"version\r\n"), b"VERSION 1.6.18\r\n");
    }
}

#[test]
fn statistics_count() {
    let mut rig = Rig::new(&drop_in(Plan::default()));
    let id = rig.connect();
    rig.ask(id, b"set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\ndecr z 1\r\ntouch a 0\r\ndelete q\r\ncas a 0 0 1 1\r\nx\r\ngat 0 a\r\nme a\r\n");
    let text = String::from_utf8(rig.ask(id, b"stats\r\n")).unwrap();
    for (name, value) in [
        ("cmd_get", 2), ("get_hits", 1), ("get_misses", 1), ("cmd_set", 2), ("incr_hits", 1), ("decr_misses", 1),
        ("cmd_touch", 2), ("touch_hits", 2), ("delete_misses", 1), ("cas_badval", 1), ("cmd_meta", 1), ("curr_items", 1),
    ] {
        assert!(text.contains(&format!("STAT {name} {value}\r\n")), "{name} {value} in {text}");
    }
    assert!(text.ends_with("END\r\n"));
    for section in ["settings", "items", "slabs", "conns"] {
        let text = String::from_utf8(rig.ask(id, format!("stats {section}\r\n").as_bytes())).unwrap();
        assert!(text.ends_with("END\r\n"), "{section}: {text}");
        assert!(text.lines().all(|line| line == "END" || line.starts_with("STAT ")), "{section}: {text}");
    }
    assert_eq!(rig.ask(id, b"stats reset\r\n"), b"RESET\r\n");
    let text = String::from_utf8(rig.ask(id, b"stats\r\n")).unwrap();
    assert!(text.contains("STAT cmd_get 0\r\n") && text.contains("STAT curr_items 1\r\n"), "{text}");
}

/// With several workers, `stats` counts what was sent before it, whichever worker did it.
#[test]
fn statistics_of_all_shards_are_up_to_date() {
    let mut rig = Rig::new(&drop_in(Plan { shards: 4, memory: 32 << 20, ..Plan::default() }));
    let id = rig.connect_to(2);
    let mut commands = String::new();
    for n in 0..100 {
        commands += &format!("set k{n} 0 0 1 noreply\r\nx\r\nget k{n}\r\n");
    }
    let text = String::from_utf8(rig.ask(id, (commands + "stats\r\n").as_bytes())).unwrap();
    for line in ["STAT curr_items 100\r\n", "STAT cmd_set 100\r\n", "STAT get_hits 100\r\n"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let binary = rig.connect_to(1);
    let answer = replies(&rig.ask(binary, &packet(0x10, b"", &[], b"", 0)));
    assert!(answer.iter().any(|(_, _, body)| body == b"curr_items100"), "{answer:?}");
    let text = String::from_utf8(rig.ask(id, b"stats reset\r\nstats\r\nstats items\r\n")).unwrap();
    assert!(text.contains("STAT cmd_set 0\r\n") && text.contains("STAT curr_items 100\r\n"), "{text}");
}

/// Clients that vanish at any point leave nothing behind: memory, pins and frames come back.
#[test]
fn vanished_clients_leave_nothing() {
    let value = "v".repeat(100_000);
    let script = format!(
        "set a 0 0 100000\r\n{value}\r\nget a a a\r\nset b 0 0 5\r\nhello\r\nappend b 0 0 3\r\nabc\r\nget b k1 k2 k3\r\nincr k4 1\r\ngat 0 k5\r\n"
    );
    let mut rig = Rig::new(&Plan { shards: 2, ..flash_plan() });
    let main = rig.connect();
    for n in 0..10 {
        rig.ask(main, format!("set k{n} 0 0 1\r\n1\r\n").as_bytes());
    }
    rig.press(main, &[b"k1", b"k2", b"k3", b"k4", b"k5"], 1);
    for cut in (0..script.len()).step_by(997).chain(script.len() - 150..script.len()) {
        for happens in [0, 1, 3] {
            let id = rig.connect();
            rig.send(id, &script.as_bytes()[..cut]);
            for _ in 0..happens {
                rig.happen();
            }
            rig.vanish(id);
        }
    }
    rig.settle();
    for node in &rig.nodes {
        assert_eq!(node.queue.frames().usage().1, 0, "frames are back");
    }
    assert_eq!(rig.ask(main, b"delete a\r\nset a 0 0 1\r\nx\r\nget a\r\n").split_off(9), b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_dialect_can_be_forced() {
    use senko_server::settings::Dialect;
    let mut plan = drop_in(Plan::default());
    plan.settings.only_protocol = Some(Dialect::Ascii);
    let mut rig = Rig::new(&plan);
    let id = rig.connect();
    assert_eq!(rig.ask(id, b"\x80\r\n"), b"ERROR\r\n");
    plan.settings.only_protocol = Some(Dialect::Binary);
    let mut rig = Rig::new(&plan);
    let id = rig.connect();
    assert_eq!(rig.ask(id, b"version\r\n"), b"");
    assert!(rig.closed(id));
}
