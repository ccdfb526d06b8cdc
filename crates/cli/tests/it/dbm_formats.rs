// SPDX-License-Identifier: Apache-2.0
//! `senko dbm dump` and `load`: formats that other programs write and read, and errors in an input.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::process::{SENKO, Scratch, Words, have};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn go(folder: &Path, program: &str, args: impl Words, input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args.words())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that refuses its input does not read it to the end.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn done(folder: &Path, program: &str, args: impl Words, input: &[u8]) -> Vec<u8> {
    let output = go(folder, program, &args, input);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}");
    output.stdout
}

fn refused(folder: &Path, args: impl Words, input: &[u8], what: &str) {
    let output = go(folder, SENKO, [&["dbm"], &args.words()[..]].concat(), input);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(
        text.contains(what) && text.lines().count() == 1,
        "{what:?} is not in {text:?}"
    );
}

/// Keys and values with every byte, empty and long ones among them.
fn records() -> Records {
    let every: Vec<u8> = (0..=255).collect();
    let mut records = Records::new();
    for byte in 0..=255 {
        records.insert(vec![byte], vec![byte; usize::from(byte)]);
        records.insert(vec![b'k', byte, b'\n'], vec![b'\r', byte]);
    }
    records.insert(every.clone(), every.repeat(200));
    records.insert(b"empty".to_vec(), Vec::new());
    records.insert(b"back\\slash,\"quoted\"".to_vec(), b" a\\41 ".to_vec());
    records.insert(b"DATA=END".to_vec(), b"#:count=1".to_vec());
    records
}

/// A database with a table of all bytes and a second one of a few.
fn two_tables(folder: &Path) {
    let mut lines = String::new();
    for (key, value) in records() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        lines += &format!(
            "{{\"table\":\"first\",\"key_hex\":\"{}\",\"value_hex\":\"{}\"}}\n",
            hex(&key),
            hex(&value)
        );
    }
    lines += "{\"table\":\"über, \\\"2\\\"\",\"key\":\"\",\"value\":\"of an empty key\"}\n";
    done(folder, SENKO, "dbm load x.db", lines.as_bytes());
}

fn dump(folder: &Path, args: &str) -> Vec<u8> {
    done(folder, SENKO, format!("dbm dump {args}"), b"")
}

#[test]
fn each_format_brings_back_every_byte_of_every_table() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    two_tables(folder);
    let all = dump(folder, "x.db");
    for (nth, args) in [
        "--format json",
        "--format json --hex",
        "--format csv",
        "--format csv --hex",
        "--format db_dump",
        "--format db_dump-p",
    ]
    .iter()
    .enumerate()
    {
        let text = dump(folder, &format!("x.db {args}"));
        for whole in ["", "--whole"] {
            let name = format!("{nth}{}.db", whole.len());
            let load = format!("dbm load {name} {whole}");
            done(folder, SENKO, &load, &text);
            assert_eq!(dump(folder, &name), all, "{args:?} {whole:?}");
        }
        assert_eq!(dump(folder, &format!("{nth}0.db {args}")), text);
    }
    // The format also follows from a file's name; one of several tables.
    dump(folder, "x.db --table first --to one.csv");
    let csv = std::fs::read(scratch.join("one.csv")).unwrap();
    assert!(csv.starts_with(b"table,key,value\nfirst,"));
    let what = "one table, and the database 2";
    refused(folder, "dump x.db --format gdbm_dump", b"", what);
    let text = dump(folder, "x.db --format gdbm_dump --table first");
    let load = "dbm load g.db --table first";
    done(folder, SENKO, &load, &text);
    let one = dump(folder, "x.db --table first");
    assert_eq!(dump(folder, "g.db"), one);
    // Tables without records, and no table at all.
    let empty = b"VERSION=3\ntype=btree\ndatabase=a\nHEADER=END\nDATA=END\n";
    done(folder, SENKO, "dbm load e.db", empty);
    let tables = done(folder, SENKO, "dbm tables e.db", b"");
    assert_eq!(tables, b"           0  a\n");
    // A name is shown as a key is. One with a line's end or an escape went to the terminal as it
    // is.
    let empty = b"{\"key\":\"k\",\"value\":\"v\",\"table\":\"gr\xc3\xbcn\\n\\u001b[2J\\\\\"}\n";
    done(folder, SENKO, "dbm load n.db", empty);
    let tables = done(folder, SENKO, "dbm tables n.db", b"");
    let shown = "           1  gr\u{fc}n\\n\\x1b[2J\\\\\n";
    assert_eq!(tables, shown.as_bytes());
    assert_eq!(dump(folder, "e.db"), b"");
}

/// Berkeley DB reads what is written here and writes the same back.
#[test]
fn berkeley_db_and_this_read_each_other() {
    if !have("db_dump") || !have("db_load") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    two_tables(folder);
    let all = dump(folder, "x.db");
    for (format, theirs) in [("db_dump", "their.bdb"), ("db_dump-p", "-p their.bdb")] {
        let ours = dump(folder, &format!("x.db --format {format}"));
        drop(std::fs::remove_file(scratch.join("their.bdb")));
        done(folder, "db_load", "their.bdb", &ours);
        let theirs = done(folder, "db_dump", theirs, b"");
        let name = format!("{format}.db");
        done(folder, SENKO, &format!("dbm load {name}"), &theirs);
        assert_eq!(dump(folder, &name), all, "{format}");
    }
    // A single table without a name, as hash and with values of the same key.
    let one = dump(folder, "x.db --table first --format db_dump");
    let text = String::from_utf8(one).unwrap();
    let text = text.replace("database=first\ntype=btree", "type=hash");
    done(folder, "db_load", "hash.bdb", text.as_bytes());
    let hash = done(folder, "db_dump", "hash.bdb", b"");
    done(folder, SENKO, "dbm load hash.db -t first", &hash);
    let first = dump(folder, "x.db -t first");
    assert_eq!(dump(folder, "hash.db"), first);
    let twice = b"VERSION=3\nformat=print\ntype=btree\nduplicates=1\nHEADER=END\n a\n 1\n a\n 2\nDATA=END\n";
    done(folder, "db_load", "twice.bdb", twice);
    let twice = done(folder, "db_dump", "twice.bdb", b"");
    refused(
        folder,
        "load twice.db --whole",
        &twice,
        "has a second value, and a table holds one for each key; nothing is loaded",
    );
    assert!(!scratch.join("twice.db").exists());
    let recno = b"VERSION=3\nformat=print\ntype=recno\nHEADER=END\n a\n b\nDATA=END\n";
    done(folder, "db_load", "recno.bdb", recno);
    let recno = done(folder, "db_dump", "recno.bdb", b"");
    refused(
        folder,
        "load recno.db",
        &recno,
        "only tables with keys can be loaded; nothing is loaded",
    );
}

/// LMDB's programs use the same format. LMDB has no empty keys.
#[test]
fn lmdb_and_this_read_each_other() {
    if !have("mdb_dump") || !have("mdb_load") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    let lines = "{\"table\":\"a\",\"key\":\"k\\u0000\",\"value\":\"\"}\n\
                 {\"table\":\"b\",\"key_hex\":\"ff00\",\"value\":\"2\"}\n";
    done(folder, SENKO, "dbm load x.db", lines.as_bytes());
    let ours = dump(folder, "x.db --format db_dump");
    done(folder, "mdb_load", "-n their.mdb", &ours);
    for (name, args) in [("a.db", "-an"), ("b.db", "-pan")] {
        let theirs = done(folder, "mdb_dump", [args, "their.mdb"], b"");
        done(folder, SENKO, &format!("dbm load {name}"), &theirs);
        assert_eq!(dump(folder, name), dump(folder, "x.db"), "{args}");
    }
}

/// gdbm reads what is written here and writes the same back. Its `gdbm_load` refuses values without
/// a byte, also those of its own `gdbm_dump`.
#[test]
fn gdbm_and_this_read_each_other() {
    if !have("gdbm_dump") || !have("gdbm_load") || !have("gdbmtool") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    two_tables(folder);
    let first = "--table first";
    for key in ["00", "656d707479"] {
        let delete = format!("dbm delete x.db --hex {key} {first}");
        done(folder, SENKO, &delete, b"");
    }
    let ours = dump(folder, &format!("x.db --format gdbm_dump {first}"));
    done(folder, "gdbm_load", "- their.gdbm", &ours);
    done(folder, "gdbm_dump", "their.gdbm theirs", b"");
    let load = "dbm load back.db theirs --table first";
    done(folder, SENKO, &load, b"");
    let all = dump(folder, "x.db --table first");
    assert_eq!(dump(folder, "back.db"), all);
    let binary = "--format=binary their.gdbm binary";
    done(folder, "gdbm_dump", &binary, b"");
    let what = "a binary dump of gdbm";
    refused(folder, "load binary.db binary", b"", what);
    // A value without a byte.
    let stores = b"store a \"\"\nstore b 1\n";
    done(folder, "gdbmtool", "-q e.gdbm", stores);
    let theirs = done(folder, "gdbm_dump", "e.gdbm -", b"");
    done(folder, SENKO, "dbm load e.db", &theirs);
    let range = done(folder, SENKO, "dbm range e.db", b"");
    assert_eq!(range, b"a\t\nb\t1\n");
}

/// An input that contradicts itself or ends too early is refused with its line, and with how much
/// of it was loaded.
#[test]
fn what_is_wrong_with_an_input_has_its_line() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let head = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";
    let gdbm = "# GDBM dump file created by hand\n#:version=1.1\n# End of header\n";
    for (input, what) in rows! {
        "{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"1\"}",
            "line 1: \"key\" and \"key_hex\" say the same thing";
        "{\"key\":\"a\",\"key\":\"b\",\"value\":\"1\"}",
            "line 1, column 20: \"key\" is there twice";
        "[]", "line 1: it is not a JSON object;";
        "{\"key\":\"a\"", "line 1, column 10: it is not JSON, since it ends too early";
        "\n{\"key\":\"a\"}", "line 2: there is no \"value\"";
        "{\"key\":1,\"value\":\"\"}", "the field \"key\" is not a string";
        "{\"key\":\"\",\"value\":\"\",\"table\":\"\"}",
            "a table's name has 1 to 255 bytes, not 0";
        &format!("{{\"value\":\"\",\"key\":\"{}\"}}", "k".repeat(1025)),
            "line 1: the key has 1025 bytes; keys have at most 1024";
        "key,key_hex,value\n",
            "line 1: the line names the columns, and \"key\" and \"key_hex\"";
        "key,value,key\n", "line 1: column 3 is a second \"key\"";
        "key\n", "there is no \"value\"";
        "key,value\na\n", "line 2: the row has 1 field where the first line has 2";
        "key_hex,value\nfg,\n", "line 2, column 1: \"fg\" is not hexadecimal text";
        "key,value\n\"a,b\n", "a quoted field has no end";
        "VERSION=4\n", "line 1: VERSION=3 was expected";
        "VERSION=3\nformat=print\nformat=bytevalue\n",
            "line 3: \"format\" is there twice";
        "VERSION=3\ntype=queue\n", "line 2: type=queue";
        "VERSION=3\ntype=btree\n", "ends before HEADER=END";
        &format!("{head} 61\nDATA=END\n"), "line 6: the key of line 5 has no value";
        &format!("{head} 61\n 6\n"), "line 6: \"6\" is not hexadecimal text";
        &format!("{head} 61\n"), "ends before DATA=END";
        &format!("{head}61\n"), "line 5: a line of data begins with a space";
        &format!("{head}DATA=END\n{head}"), "line 9: there are two tables without a name";
        &format!("{head}DATA=END\nmore\n"), "line 6: VERSION=3 was expected";
        "VERSION=3\nformat=print\nHEADER=END\n a\\4\n", "line 4: after a backslash";
        &format!("{gdbm}#:len=1\nYQ==\n#:count=0\n"), "line 6: a key before the line has no value";
        &format!("{gdbm}#:len=2\nYQ==\n#:len=0\n"),
            "line 6: before the line comes data of 1 byte, whose \"len\" says 2";
        &format!("{gdbm}#:count=1\n# End of data\n"), "line 4: the count is 1, behind 0 records";
        &format!("{gdbm}#:count=0\n"), "ends before \"# End of data\"";
        &format!("{gdbm}#:count=0\n# End of data\nmore\n"), "after the end of the data";
        "# GDBM dump file\n#:version=2.0\n", "line 2: versions 1.x";
        &format!("{gdbm}#:len=1\n?\n#:len=0\n"), "not base64";
    } {
        refused(folder, "load x.db", input.as_bytes(), what);
        refused(folder, "load x.db", input.as_bytes(), "nothing is loaded");
        assert!(!scratch.join("x.db").exists(), "{input}");
    }
    // An input that was compressed, or that Windows wrote, used to be called a wrong line of CSV.
    for (input, what) in [
        (
            &b"\x1f\x8b\x08\0\0"[..],
            "it is compressed with gzip: zcat FILE |",
        ),
        (
            b"\x28\xb5\x2f\xfd\x24",
            "it is compressed with zstd: zstdcat FILE |",
        ),
        (b"\xff\xfe{\0\"\0", "it is UTF-16, and must be UTF-8"),
        (b"\xfe\xff\0{\0\"", "it is UTF-16, and must be UTF-8"),
    ] {
        for format in ["", " --format json", " --format db_dump"] {
            refused(folder, format!("load x.db{format}"), input, what);
        }
    }
    refused(folder, "load x.db none", b"", "cannot open none");
    refused(folder, "load x.db --hex", b"", "not accept --hex");
    assert!(!scratch.join("x.db").exists());
    let cut = format!("{head} 61\n 31\n 62\n 32\n");
    let tell = "ends before DATA=END; the 2 records before it are loaded";
    refused(folder, "load x.db", cut.as_bytes(), tell);
    assert_eq!(dump(folder, "x.db").split(|b| *b == b'\n').count(), 3);
    let whole = "load x.db --whole --table t";
    refused(folder, &whole, cut.as_bytes(), "nothing is loaded");
    let tables = done(folder, SENKO, "dbm tables x.db", b"");
    assert_eq!(tables, b"           2  main\n");
    refused(folder, "dump x.db --json --format csv", b"", "contradict");
    refused(
        folder,
        "dump x.db --hex --format db_dump",
        b"",
        "--hex is for json and csv",
    );
}

/// The database used to be made before the key was checked, and an empty one stayed.
#[test]
fn what_is_refused_makes_no_database() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let long = "k".repeat(1025);
    refused(folder, format!("put x.db {long} v"), b"", "1025 bytes");
    let table = ["put", "x.db", "k", "v", "--table", ""];
    refused(folder, &table, b"", "a table's name");
    let bench = format!("bench x.db --table {long}");
    refused(folder, &bench, b"", "a table's name");
    assert!(!scratch.join("x.db").exists());
    done(folder, SENKO, &["dbm", "put", "x.db", &long[1..], "v"], b"");
    refused(folder, format!("put x.db {long} v"), b"", "1025 bytes");
    assert!(scratch.join("x.db").exists());
}

/// Values of a batch may be larger than those of a transaction.
#[test]
fn long_values_are_loaded() {
    let scratch = Scratch::new();
    let lines: String = (0..40)
        .map(|n| {
            let value = char::from(b'a' + n % 26).to_string().repeat(2 << 20);
            format!("{{\"key\":\"{n}\",\"value\":\"{value}\"}}\n")
        })
        .collect();
    let folder = scratch.path();
    for load in ["dbm load x.db", "dbm load y.db --whole"] {
        done(folder, SENKO, load, lines.as_bytes());
    }
    assert_eq!(dump(folder, "x.db"), dump(folder, "y.db"));
}

/// `backup --table one` copied all tables: options that do nothing are refused.
#[test]
fn commands_of_a_whole_database_take_no_table() {
    let folder = Scratch::new();
    done(folder.path(), SENKO, "dbm put x.db k v", b"");
    for command in [
        "backup x.db y.db",
        "compact x.db",
        "verify x.db",
        "stats x.db",
    ] {
        for option in ["--table one", "--hex"] {
            let args = format!("dbm {command} {option}");
            let output = go(folder.path(), SENKO, &args, b"");
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args}: {told}");
            assert!(told.contains("unexpected argument"), "{args}: {told}");
        }
    }
    assert!(!folder.join("y.db").exists());
}
