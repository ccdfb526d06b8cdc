// SPDX-License-Identifier: Apache-2.0
//! Commands and the answers that memcached 1.6.45 gave to them when it was run.

/// Commands and the answers that memcached 1.6.45 gave to them, in one session from an empty
/// server.
pub const CLASSIC: &[(&str, &str)] = &[
    ("get\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("get \r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("get a\r\n", "END\r\n"),
    ("get a\nversion\n", "END\r\nVERSION 1.6.45\r\n"),
    ("set a 5 0 1\r\nx\r\n", "STORED\r\n"),
    ("get a\r\n", "VALUE a 5 1\r\nx\r\nEND\r\n"),
    (
        "get a b  a \r\n",
        "VALUE a 5 1\r\nx\r\nVALUE a 5 1\r\nx\r\nEND\r\n",
    ),
    (
        "set a 0 0 1\r\nxyz\r\nversion\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVERSION 1.6.45\r\n",
    ),
    (
        "set a 0 0 1\r\nxy\nversion\r\n",
        "CLIENT_ERROR bad data chunk\r\nVERSION 1.6.45\r\n",
    ),
    (
        "set a 0 0 3\r\nx\r\nversion\r\nversion\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION 1.6.45\r\n",
    ),
    (
        "set a 0 0 1 noreply\r\nxyz\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    (
        "set a 0 0 1 noreply\r\ny\r\nget a\r\n",
        "VALUE a 0 1\r\ny\r\nEND\r\n",
    ),
    ("set a 0 0 1 foo\r\nx\r\n", "STORED\r\n"),
    ("set a 0 0 1 noreply foo\r\nx\r\n", "STORED\r\n"),
    (
        "set a -1 0 1\r\nx\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    (
        "set a 0 abc 1\r\nx\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    (
        "set e 0 0 0\r\n\r\nget e\r\n",
        "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n",
    ),
    ("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    (
        "set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\n",
        "STORED\r\n9\r\nVALUE n 0 2\r\n9 \r\nEND\r\n",
    ),
    (
        "incr n 1\r\nincr n 100\r\nget n\r\n",
        "10\r\n110\r\nVALUE n 0 3\r\n110\r\nEND\r\n",
    ),
    (
        "decr n 1000\r\nget n\r\n",
        "0\r\nVALUE n 0 3\r\n0  \r\nEND\r\n",
    ),
    // Numbers have digits and nothing else.
    (
        "set n 0 0 1\r\n5\r\nincr n +1\r\nincr n -1\r\nma n D+1 v\r\nincr n 01\r\n",
        "STORED\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid or duplicate flag\r\n6\r\n",
    ),
    (
        "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nincr n 5\r\n",
        "STORED\r\n0\r\n5\r\n",
    ),
    (
        "set n 0 0 5\r\n12 ab\r\nincr n 1\r\nget n\r\n",
        "STORED\r\n13\r\nVALUE n 0 5\r\n13   \r\nEND\r\n",
    ),
    (
        "set n 0 0 3\r\nabc\r\nincr n 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "set n 0 0 0\r\n\r\nincr n 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "incr n -1\r\nincr n x\r\nincr n\r\nincr n 1 2 3\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "incr nope 1\r\ndecr nope 1\r\n",
        "NOT_FOUND\r\nNOT_FOUND\r\n",
    ),
    (
        "touch n 10\r\ntouch nope 10\r\ntouch n x\r\ntouch n\r\n",
        "TOUCHED\r\nNOT_FOUND\r\nCLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (
        "set g 1 0 2\r\ngg\r\ngat 10 g\r\ngat 10 g nope g\r\n",
        "STORED\r\nVALUE g 1 2\r\ngg\r\nEND\r\nVALUE g 1 2\r\ngg\r\nVALUE g 1 2\r\ngg\r\nEND\r\n",
    ),
    (
        "gat x g\r\ngat 10\r\ngat\r\n",
        "CLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (
        "gat -1 g\r\nget g\r\n",
        "VALUE g 1 2\r\ngg\r\nEND\r\nEND\r\n",
    ),
    (
        "set d 0 0 1\r\nx\r\ndelete d\r\ndelete d\r\ndelete d 0\r\n",
        "STORED\r\nDELETED\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    ),
    ("delete d 5\r\n", "NOT_FOUND\r\n"),
    (
        "delete d noreply\r\ndelete d 0 noreply\r\ndelete d b noreply\r\ndelete\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    (
        "cas a 0 0 1\r\nx\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    ("cas a 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
    (
        "set a 0 0 1\r\n1\r\ncas a 0 0 1 0\r\nx\r\ncas a 0 0 1 99999\r\ny\r\n",
        "STORED\r\nEXISTS\r\nEXISTS\r\n",
    ),
    ("cas nope 0 0 1 0\r\nx\r\n", "NOT_FOUND\r\n"),
    (
        "append nope 0 0 1\r\nx\r\nprepend nope 0 0 1\r\nx\r\nreplace nope 0 0 1\r\nx\r\n",
        "NOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\n",
    ),
    (
        "append a 7 0 1\r\nx\r\nprepend a 5 0 1\r\ny\r\nget a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 0 3\r\ny1x\r\nEND\r\n",
    ),
    (
        "add a 0 0 1\r\nx\r\nadd fresh 3 0 1\r\nx\r\nget fresh\r\n",
        "NOT_STORED\r\nSTORED\r\nVALUE fresh 3 1\r\nx\r\nEND\r\n",
    ),
    (
        "replace a 9 0 2\r\nzz\r\nget a\r\n",
        "STORED\r\nVALUE a 9 2\r\nzz\r\nEND\r\n",
    ),
    (
        "verbosity\r\nverbosity 0\r\nverbosity x\r\nverbosity 0 noreply\r\nverbosity 0 a b\r\nverbosity noreply\r\n",
        "CLIENT_ERROR bad command line format\r\nOK\r\nCLIENT_ERROR bad command line format\r\nOK\r\n",
    ),
    (
        "shutdown\r\nshutdown graceful\r\n",
        "SERVER_ERROR: shutdown not enabled\r\nSERVER_ERROR: shutdown not enabled\r\n",
    ),
    ("\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("\n", "CLIENT_ERROR bad command line format\r\n"),
    (" \r\n", "CLIENT_ERROR bad command line format\r\n"),
    (
        "   version\r\nversion foo\r\n",
        "VERSION 1.6.45\r\nVERSION 1.6.45\r\n",
    ),
    (
        "m\r\nmx\r\ng\r\nmop\r\nGET a\r\nget\t a\r\n",
        "CLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    (
        "cache_memlimit\r\ncache_memlimit 1\r\ncache_memlimit x\r\ncache_memlimit 1000000001\r\n",
        "ERROR\r\nMEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nERROR\r\nMEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
    ),
    ("watch nothing\r\n", "ERROR\r\n"),
    (
        "slabs automove invalid\r\nslabs automove 3\r\nslabs automove window 1\r\nslabs automove 1 noreply\r\n",
        "CLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR automove window too low or too high\r\n",
    ),
    (
        "bogus noreply\r\nget\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    ),
    (
        "slabs reassign 1 2\r\n",
        "CLIENT_ERROR slab reassignment disabled\r\n",
    ),
    (
        "stats detail\r\nstats detail on\r\n",
        "CLIENT_ERROR usage: stats detail on|off|dump\r\nOK\r\n",
    ),
    (
        "set pfx:a 0 0 1\r\nx\r\nget pfx:a\r\nget pfx:b\r\ndelete pfx:a\r\nget zz\r\nstats detail dump\r\nstats detail off\r\n",
        "STORED\r\nVALUE pfx:a 0 1\r\nx\r\nEND\r\nEND\r\nDELETED\r\nEND\r\nPREFIX pfx get 2 hit 1 set 1 del 1\r\nEND\r\nOK\r\n",
    ),
    ("stats foo\r\nstats reset\r\n", "ERROR\r\nRESET\r\n"),
    (
        "stats cachedump\r\nstats cachedump 1 x\r\nstats cachedump 65 0\r\n",
        "CLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR Illegal slab id\r\n",
    ),
    (
        "lru_crawler\r\nlru_crawler metadump 0\r\nlru_crawler metadump x\r\nlru_crawler crawl 99999\r\n",
        "ERROR\r\nBADCLASS invalid class id\r\nBADCLASS invalid class id\r\nBADCLASS invalid class id\r\n",
    ),
    (
        "flush_all\r\nflush_all 0\r\nflush_all noreply\r\nflush_all x\r\nflush_all -1\r\nflush_all 0 2 3\r\nget a\r\n",
        "OK\r\nOK\r\nCLIENT_ERROR invalid exptime argument\r\nOK\r\nOK\r\nEND\r\n",
    ),
];

/// As [`CLASSIC`], for the meta commands. `{n}` stands for a CAS value.
pub const META: &[(&str, &str)] = &[
    ("mg\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("mg a\r\nmg a v\r\nmg a v q\r\nmn\r\n", "EN\r\nEN\r\nMN\r\n"),
    ("mg a O123 k\r\n", "EN O123 ka\r\n"),
    ("ms a 1\r\nx\r\nmg a\r\n", "HD\r\nHD\r\n"),
    ("ms a 1 c\r\nx\r\n", "HD c{n}\r\n"),
    (
        "mg a s t c f h l v\r\n",
        "VA 1 s1 t-1 c{n} f0 h0 l0\r\nx\r\n",
    ),
    ("mg a h l\r\n", "HD h1 l0\r\n"),
    (
        "mg a t T30\r\nmg a t\r\nmg a T-1\r\nmg a v\r\n",
        "HD t-1\r\nHD t30\r\nHD\r\nEN\r\n",
    ),
    (
        "mg a v v\r\nmg a !\r\nmg a T\r\n",
        "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad token in command line format\r\n",
    ),
    (
        "ms a 2 Fabc\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR bad command line format\r\nMN\r\n",
    ),
    (
        "ms a 2 S2\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR invalid flag\r\nMN\r\n",
    ),
    (
        "ms a 2 T0 F5 c k q\r\nxx\r\nmg a v f c k\r\n",
        "VA 2 f5 c{n} ka\r\nxx\r\n",
    ),
    (
        "ms a 2 b\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR error decoding key\r\nMN\r\n",
    ),
    (
        "ms YWJj 2 b k O1\r\nxx\r\nmg YWJj b k v s\r\nmg abc k v\r\n",
        "HD kYWJj b O1\r\nVA 2 kYWJj b s2\r\nxx\r\nVA 2 kYWJj b\r\nxx\r\n",
    ),
    ("md YWJj b k\r\n", "HD kYWJj b\r\n"),
    (
        "ms a 2 ME\r\nxx\r\nms n1 2 ME c\r\nxx\r\nms n1 1 MA c\r\ny\r\nms n1 1 MP k\r\nz\r\nmg n1 v\r\n",
        "NS\r\nHD c{n}\r\nHD c{n}\r\nHD kn1\r\nVA 4\r\nzxxy\r\n",
    ),
    (
        "ms nope 1 MR\r\nx\r\nms nope 1 MA\r\nx\r\nms n1 1 MR\r\nq\r\nms n1 1 MS\r\nr\r\nms n1 1 MX\r\nq\r\nms n1 1 M\r\nq\r\nmn\r\n",
        "NS\r\nNS\r\nHD\r\nHD\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid mode for ms M token\r\nMN\r\n",
    ),
    (
        "ms n1 1 C1\r\nx\r\nms nope 1 C1\r\nx\r\nms n1 1 MA C1\r\nx\r\nms n1 1 ME C1\r\nx\r\nms nope2 1 ME C1\r\nx\r\nms n1 1 C0\r\nx\r\n",
        "EX\r\nNF\r\nEX\r\nNS\r\nHD\r\nEX\r\n",
    ),
    (
        "ms n1 1 q\r\nxyz\r\nmn\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nMN\r\n",
    ),
    (
        "ms n1 1 q\r\nx\r\nms n1 1 ME q\r\ny\r\nmn\r\n",
        "NS\r\nMN\r\n",
    ),
    (
        "ms q 1 T0 F3 C1 q c k O1\r\nx\r\nms q 1 q MR k O1\r\nx\r\nmn\r\n",
        "NF c0 kq O1\r\nNS kq O1\r\nMN\r\n",
    ),
    (
        "md\r\nmd nope\r\nmd nope q\r\nmd n1 q O5 k\r\nmn\r\n",
        "CLIENT_ERROR bad command line format\r\nNF\r\nNF\r\nMN\r\n",
    ),
    (
        "ms n1 1\r\nx\r\nmd n1 O5 k\r\nmd a !\r\nmd a v v\r\n",
        "HD\r\nHD O5 kn1\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR duplicate flag\r\n",
    ),
    (
        "ms s 1 T100\r\nx\r\nmg s c t v\r\nmd s I T30\r\nmg s c t v\r\nmg s c t v\r\n",
        "HD\r\nVA 1 c{n} t100\r\nx\r\nHD\r\nVA 1 c{n} t30 X W\r\nx\r\nVA 1 c{n} t30 Z X\r\nx\r\n",
    ),
    (
        "md s I\r\nmg s v\r\nms s 2 I C1\r\nnn\r\nmg s v\r\nms s 2 I C9999999999999\r\nnn\r\nms s 1\r\ny\r\nmg s v\r\n",
        "HD\r\nVA 1 X W\r\nx\r\nHD\r\nVA 2 Z X\r\nnn\r\nEX\r\nHD\r\nVA 1\r\ny\r\n",
    ),
    (
        "mg viv N30 v t\r\nmg viv N30 v t c\r\nms viv 1 T90\r\nx\r\nmg viv N30 v t R30\r\n",
        "VA 0 t30 W\r\n\r\nVA 0 t30 c{n} Z\r\n\r\nHD\r\nVA 1 t90\r\nx\r\n",
    ),
    (
        "mg viv R100 t v\r\nmg viv R100 t v\r\n",
        "VA 1 t90 W\r\nx\r\nVA 1 t90 Z\r\nx\r\n",
    ),
    (
        "ma nope\r\nma nope N0 J10 v\r\nma nope v\r\nma nope D10 v c t\r\nma nope MD v\r\nma nope M- D100 v\r\nmg nope v s\r\n",
        "NF\r\nVA 2\r\n10\r\nVA 2\r\n11\r\nVA 2 c{n} t-1\r\n21\r\nVA 2\r\n20\r\nVA 1\r\n0\r\nVA 2 s2\r\n0 \r\n",
    ),
    (
        "ma nope MI\r\nma nope M+ D18446744073709551615 v\r\nma nope MX\r\nma nope Dx\r\nma nope T30 t v\r\nma nope q\r\nma nope O1 k q\r\nmn\r\n",
        "HD\r\nVA 1\r\n0\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\nVA 1 t30\r\n1\r\nMN\r\n",
    ),
    (
        "ma nope C1 v\r\nma gone O1 k\r\nma gone q\r\nms na 1\r\nx\r\nma na\r\nma na q\r\nmn\r\nma gone N0 q v\r\nmg gone v\r\n",
        "EX\r\nNF O1 kgone\r\nNF\r\nHD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nMN\r\nVA 1\r\n0\r\n",
    ),
    (
        "ma n N0 J5 t c v k O1 q T5 MI D2\r\nma n v N0 J5 T5 MI D2\r\nmg n v t\r\n",
        "VA 1\r\n7\r\nVA 1 t5\r\n7\r\n",
    ),
    (
        "ms e 0\r\n\r\nmg e v s\r\nmg e k\r\nms e 0 c O1 k\r\n\r\n",
        "HD\r\nVA 0 s0\r\n\r\nHD ke\r\nHD c{n} O1 ke\r\n",
    ),
    (
        "me\r\nme nope3\r\nmn foo\r\n",
        "CLIENT_ERROR bad command line format\r\nEN\r\nMN\r\n",
    ),
];
