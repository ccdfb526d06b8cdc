# SPDX-License-Identifier: Apache-2.0
"""`senko store` as a user calls it: keys in and out, files loaded and dumped, damage found and
repaired, and what it refuses.
"""

import base64
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

SMALL = ["--block-size", "1m"]
PAGE = 4096


def run(senko, *options, code=0, data=None, cwd=None):
    """Runs a command; `data` is its stdin. Gives stdout as bytes and stderr as text."""
    answer = subprocess.run([senko, "store", *map(str, options)], input=data if data is not None else b"", capture_output=True, timeout=300, cwd=cwd)
    said = answer.stderr.decode(errors="replace")
    assert answer.returncode == code, (answer.returncode, options, said)
    assert "panicked" not in said, said
    return answer.stdout, said


def lines(senko, *options, **more):
    return [json.loads(line) for line in run(senko, *options, "--json", **more)[0].splitlines()]


@pytest.fixture
def store(senko, tmp_path):
    """A store with some thousand keys in blocks and in the log, and one large value."""
    path = tmp_path / "data.kv"
    rows = b"".join(b'{"key":"key%d","value":"%s"}\n' % (n, b"v%d-" % n * 40) for n in range(6000))
    run(senko, "load", path, *SMALL, "--inline-max", "64k", data=rows)
    run(senko, "compact", path)
    (tmp_path / "large").write_bytes(os.urandom(300_000))
    run(senko, "put", path, "large", "--from", tmp_path / "large")
    run(senko, "put", path, "fresh", "from the log")
    return path


def test_one_key_comes_and_goes(senko, tmp_path):
    path = tmp_path / "one.kv"
    assert run(senko, "put", path, "colour", "green", *SMALL, "--synced")[0] == b""
    assert run(senko, "get", path, "colour")[0] == b"green"
    (got,) = lines(senko, "get", path, "colour")
    assert got["key"] == "colour" and got["value"] == "green" and got["time"] > 1.7e15
    assert run(senko, "get", path, "colour", "nothing", code=1)[0] == b"colour\tgreen\n"
    run(senko, "delete", path, "colour", "never")
    assert run(senko, "get", path, "colour", code=1)[0] == b""
    assert run(senko, "get", path, "colour", "--json", code=1)[0] == b""


def test_any_bytes_are_kept(senko, tmp_path):
    path = tmp_path / "bytes.kv"
    value = bytes(range(256)) * 20 + b"\n"
    run(senko, "put", path, "raw", "--from", "-", *SMALL, data=value)
    assert run(senko, "get", path, "raw")[0] == value
    run(senko, "put", path, "--hex", "00ff0a", "fe2c22")
    assert run(senko, "get", path, "--hex", "00FF0a")[0] == b"fe2c22\n"
    run(senko, "put", path, "empty", "")
    assert run(senko, "get", path, "empty")[0] == b""
    found = {base64.b64decode(row["key_base64"]) if "key_base64" in row else row["key"].encode(): row for row in lines(senko, "scan", path)}
    assert base64.b64decode(found[b"raw"]["value_base64"]) == value
    assert base64.b64decode(found[b"\x00\xff\n"]["value_base64"]) == b'\xfe,"'
    assert run(senko, "scan", path, "--count")[0] == b"3\n"
    assert run(senko, "scan", path, "--prefix", "em")[0] == b"empty\t\n"


def test_dumps_are_read_back(senko, store, tmp_path):
    run(senko, "put", store, "--hex", "00ff0d0a22", "0d0a2c")
    whole = sorted((row.get("key_base64", row.get("key")), row.get("value_base64", row.get("value"))) for row in lines(senko, "dump", store))
    assert len(whole) == 6003
    for name, options in (("a.jsonl", []), ("b.csv", []), ("c.csv", ["--encoding", "hex"]), ("d.txt", ["--format", "csv", "--encoding", "base64"])):
        run(senko, "dump", store, "--to", tmp_path / name, *options)
        other = tmp_path / (name + ".kv")
        (told,) = lines(senko, "load", other, tmp_path / name, *SMALL, "--synced")
        assert told["rows"] == 6003 and told["deletes"] == 0
        again = sorted((row.get("key_base64", row.get("key")), row.get("value_base64", row.get("value"))) for row in lines(senko, "dump", other))
        assert again == whole, name
        _, said = run(senko, "dump", store, "--to", tmp_path / name, code=2)
        assert name in said
    csv.field_size_limit(1 << 24)
    table = list(csv.reader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert table[0] == ["key_hex", "value_hex", "expires_at"] and len(table) == 6004


def test_versions_and_times(senko, tmp_path):
    path = tmp_path / "versions.kv"
    times = [lines(senko, "put", path, "k", text, "--keep-versions", "3", *SMALL)[0]["time"] for text in ("one", "two", "three", "four")]
    times.append(lines(senko, "delete", path, "k")[0]["time"])
    assert times == sorted(set(times))
    history = lines(senko, "history", path, "k")
    assert [version["value"] for version in history] == [None, "four", "three"]
    assert [version["time"] for version in history] == times[:1:-1]
    assert run(senko, "get", path, "k", "--at", times[3])[0] == b"four"
    assert run(senko, "get", path, "k", "--at", times[3] - 1)[0] == b"three"
    assert run(senko, "get", path, "k", "--at", "1d", code=1)[0] == b""
    assert b"(deleted)" in run(senko, "history", path, "k")[0]
    run(senko, "history", path, "nothing", code=1)


def test_what_expires_is_gone(senko, tmp_path):
    path = tmp_path / "ttl.kv"
    now = int(time.time())
    run(senko, "put", path, "long", "x", "--ttl", "1h", *SMALL)
    rows = b'{"key":"past","value":"x","expires_at":1000}\n{"key":"soon","value":"x","ttl":3000}\n{"key":"gone","value":null}\n'
    run(senko, "load", path, data=rows)
    found = {row["key"]: row for row in lines(senko, "scan", path)}
    assert set(found) == {"long", "soon"}
    assert now + 3590 <= found["long"]["expires_at"] and now + 2990 <= found["soon"]["expires_at"]


def test_an_expired_version_is_told_from_a_deletion(senko, tmp_path):
    path = tmp_path / "versions.kv"
    run(senko, "load", path, "--keep-versions", "3", *SMALL, data=b'{"key":"k","value":"short","expires_at":1000}\n')
    run(senko, "put", path, "k", "long")
    run(senko, "compact", path)
    newest, expired = lines(senko, "history", path, "k")
    assert newest["value"] == "long" and "expires_at" not in newest
    assert expired["value"] is None and expired["expires_at"] == 1000
    assert b"(expired)" in run(senko, "history", path, "k")[0]


def test_stats_compact_and_backup(senko, store, tmp_path):
    (stats,) = lines(senko, "stats", store)
    assert stats["block_elements"] == 6000 and stats["log_elements"] == 2 and stats["page_bytes"] == PAGE
    assert 0 < stats["dram_bytes_per_key"] < 20
    assert b"keep_versions" in run(senko, "stats", store)[0]
    (compacted,) = lines(senko, "compact", store)
    assert compacted["generations"] == 1
    copy = tmp_path / "copy.kv"
    (told,) = lines(senko, "backup", store, copy)
    assert told["elements"] == 6002
    assert sorted(run(senko, "dump", copy)[0].splitlines()) == sorted(run(senko, "dump", store)[0].splitlines())
    assert lines(senko, "verify", copy)[-1]["problems"] == 0
    _, said = run(senko, "backup", store, copy, code=2)
    assert "exists" in said and str(copy) in said


def test_a_killed_load_leaves_a_prefix(senko, tmp_path):
    path = tmp_path / "killed.kv"
    load = subprocess.Popen([senko, "store", "load", str(path), *SMALL, "--batch", "50"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    sent = 0
    # Some megabytes are known to be under way; where the kill meets it does not matter.
    while sent < 20_000:
        load.stdin.write(b"".join(b'{"key":"key%d","value":"%s"}\n' % (n, b"x%d" % n * 30) for n in range(sent, sent + 500)))
        load.stdin.flush()
        sent += 500
    os.kill(load.pid, signal.SIGKILL)
    load.wait()
    assert lines(senko, "verify", path)[-1]["problems"] == 0
    found = {row["key"]: row["value"] for row in lines(senko, "scan", path)}
    for n in range(len(found)):
        assert found["key%d" % n] == "x%d" % n * 30, n
    assert len(found) % 50 == 0, "batches are whole"
    run(senko, "put", path, "after", "the kill")
    assert run(senko, "get", path, "after")[0] == b"the kill"


def test_the_lock_names_its_holder(senko, store):
    holder = subprocess.Popen([senko, "store", "load", str(store), "--batch", "1"], stdin=subprocess.PIPE)
    try:
        holder.stdin.write(b'{"key":"a","value":"held while this is there"}\n')
        holder.stdin.flush()
        # Once the row has reached the file, its writer has the lock.
        for _ in range(1200):
            if b"held while this is there" in store.read_bytes():
                break
            time.sleep(0.05)
        _, said = run(senko, "get", store, "fresh", code=2)
        assert str(holder.pid) in said and str(store) in said, said
        for command in (["put", store, "k", "v"], ["verify", store], ["repair", store, str(store) + ".saved"]):
            assert str(holder.pid) in run(senko, *command, code=2)[1]
    finally:
        holder.stdin.close()
        assert holder.wait(timeout=300) == 0
    assert run(senko, "get", store, "a")[0] == b"held while this is there"


def test_a_file_that_is_only_read_is_shared_and_stays_as_it_is(senko, store):
    store.chmod(0o444)
    before, modified = store.read_bytes(), store.stat().st_mtime_ns
    # It has more to say than a pipe takes, so it holds the file until it is heard.
    reader = subprocess.Popen([senko, "store", "dump", str(store)], stdout=subprocess.PIPE)
    try:
        assert reader.stdout.read(1)
        assert run(senko, "get", store, "fresh")[0] == b"from the log"
        assert run(senko, "scan", store, "--count")[0] == b"6002\n"
        assert lines(senko, "stats", store)
        assert lines(senko, "verify", store)[-1]["problems"] == 0
        assert str(reader.pid) in run(senko, "put", store, "k", "v", code=2)[1]
    finally:
        reader.stdout.read()
        assert reader.wait(timeout=300) == 0
    assert store.read_bytes() == before and store.stat().st_mtime_ns == modified


# A process counts as its own what its parent had in memory when it was started, and pytest has
# much: a small one stands between.
WATCHER = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(child.pid, 0)
open(sys.argv[1], "w").write("%d %d" % (os.waitstatus_to_exitcode(status), used.ru_maxrss))
"""


def most_memory(folder, senko, *options, **files):
    """The most memory that a command had, in bytes."""
    said = folder / "memory"
    subprocess.run([sys.executable, "-c", WATCHER, said, senko, "store", *map(str, options)], check=True, **files)
    status, kib = map(int, said.read_text().split())
    assert status == 0
    return kib * 1024


def test_a_large_value_is_in_memory_once(senko, tmp_path):
    path, given, got = tmp_path / "large.kv", tmp_path / "given", tmp_path / "got"
    size = 192 << 20
    with open(given, "wb") as file:
        for piece in range(size >> 20):
            file.write(bytes([piece % 251]) * (1 << 20))
    most = size + size // 2
    assert most_memory(tmp_path, senko, "put", path, "one", "--from", given, *SMALL) < most
    with open(given, "rb") as file:
        assert most_memory(tmp_path, senko, "put", path, "two", stdin=file) < most
    pipe = subprocess.Popen(["cat", given], stdout=subprocess.PIPE)
    assert most_memory(tmp_path, senko, "put", path, "three", stdin=pipe.stdout) < most
    assert pipe.wait() == 0
    with open(got, "wb") as file:
        assert most_memory(tmp_path, senko, "get", path, "three", stdout=file) < most
    assert got.read_bytes() == given.read_bytes()
    assert run(senko, "scan", path, "--count")[0] == b"3\n"


def flip(path, offset, bytes=1):
    with open(path, "r+b") as file:
        file.seek(offset)
        old = file.read(bytes)
        file.seek(offset)
        file.write(b"".join(b"%c" % (byte ^ 0x5A) for byte in old))


def problems(senko, path):
    found = lines(senko, "verify", path, code=1)
    assert found[-1]["problems"] == len(found) - 1 > 0
    return found[:-1]


def offset_of(path, text):
    with open(path, "rb") as file:
        return file.read().index(text)


def test_damage_is_found_and_the_rest_saved(senko, store, tmp_path):
    before = {row["key"]: row.get("value", row.get("value_base64")) for row in lines(senko, "dump", store)}
    # The log's old bytes may still be in their place, besides the copy in a block.
    pages = {found.start() // PAGE * PAGE: found.start() for found in re.finditer(b"v1234-v1234-", store.read_bytes())}
    for at in pages.values():
        flip(store, at)
    damaged = {problem["offset"] // PAGE * PAGE for problem in problems(senko, store)}
    assert len(damaged) == 1 and damaged <= pages.keys()
    (page,) = damaged
    assert b"byte" in run(senko, "verify", store, code=1)[0]
    _, said = run(senko, "get", store, "key1234", code=2)
    assert "damaged at byte" in said and str(store) in said
    saved = tmp_path / "saved.kv"
    told = lines(senko, "repair", store, saved, code=1)
    assert told[-1]["losses"] == len(told) - 1 == 1
    assert told[0]["offset"] == page and told[0]["bytes"] == PAGE
    after = {row["key"]: row.get("value", row.get("value_base64")) for row in lines(senko, "dump", saved)}
    assert "key1234" not in after and 6002 - 40 < len(after) < 6002
    assert all(before[key] == value for key, value in after.items())
    assert lines(senko, "verify", saved)[-1]["problems"] == 0
    _, said = run(senko, "repair", store, saved, code=2)
    assert "exists" in said


def test_a_damaged_large_value_is_told_by_its_key(senko, store, tmp_path):
    large = (tmp_path / "large").read_bytes()
    at = offset_of(store, large[:4096])
    flip(store, at + 200_000)
    assert at in {problem["offset"] for problem in problems(senko, store)}
    told = lines(senko, "repair", store, tmp_path / "saved.kv", code=1)
    assert any("large" in loss["lost"] and loss["bytes"] == 300_000 for loss in told[:-1])
    assert run(senko, "scan", tmp_path / "saved.kv", "--count")[0] == b"6001\n"


def test_without_superblock_and_manifest_the_keys_are_found(senko, store, tmp_path):
    before = sorted((row["key"], row.get("value", row.get("value_base64"))) for row in lines(senko, "dump", store))
    for slot in range(4):
        flip(store, slot * 4 * PAGE, PAGE)
    _, said = run(senko, "get", store, "fresh", code=2)
    assert "not a Senko store" in said
    told = lines(senko, "repair", store, tmp_path / "saved.kv", code=1)
    assert told[-1]["manifest_lost"] and told[-1]["secret_lost"]
    after = sorted((row["key"], row.get("value", row.get("value_base64"))) for row in lines(senko, "dump", tmp_path / "saved.kv"))
    assert after == before


def test_a_truncated_file_is_told_and_saved(senko, store, tmp_path):
    # Blocks lie before the log or behind it, and something of them is to be left.
    content = store.read_bytes()
    last = max(content.rindex(text) for text in [b"from the log", *(b"v%d-v%d-" % (n, n) for n in range(0, 6000, 500))])
    os.truncate(store, last // PAGE * PAGE)
    _, said = run(senko, "get", store, "fresh", code=2)
    assert "byte" in said and str(store) in said
    found = lines(senko, "repair", store, tmp_path / "saved.kv", code=1)
    assert found[-1]["salvaged"] > 0
    run(senko, "verify", tmp_path / "saved.kv")


def test_other_files_are_refused(senko, store, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"Not a store at all.\n" * 10_000)
    short = tmp_path / "short"
    short.write_bytes(b"Only a note.\n" * 500)
    newer = tmp_path / "newer"
    newer.write_bytes(store.read_bytes())
    for path, words in ((foreign, "not a Senko store"), (short, "not a Senko store")):
        content = path.read_bytes()
        for command in (["get", path, "k"], ["put", path, "k", "v"], ["verify", path], ["stats", path], ["dump", path], ["repair", path, tmp_path / "to"]):
            _, said = run(senko, *command, code=2)
            assert words in said and str(path) in said, said
        assert path.read_bytes() == content and not (tmp_path / "to").exists()
    for slot in range(4):
        later(newer, slot * 4 * PAGE)
    for command in (["get", newer, "fresh"], ["verify", newer], ["repair", newer, tmp_path / "to"]):
        _, said = run(senko, *command, code=2)
        assert "version 3" in said, said


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def later(path, offset):
    """Gives a superblock page the next format version, with the checksum that belongs to it."""
    with open(path, "r+b") as file:
        file.seek(offset)
        page = bytearray(file.read(PAGE))
        page[8:12] = (3).to_bytes(4, "little")
        page[12:16] = bytes(4)
        page[12:16] = crc32c(page).to_bytes(4, "little")
        file.seek(offset)
        file.write(page)


@pytest.mark.parametrize("mix", ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f"])
def test_bench_runs_ycsb_and_checks_every_value(senko, tmp_path, mix):
    path = tmp_path / "bench.kv"
    load, ran = lines(senko, "bench", path, "--keys", "4000", "--mix", mix, "-n", "6000", "--threads", "3", "--value-size", "100-900", "--verify", *SMALL)
    assert load["step"] == "load" and load["puts"] == 4000
    assert ran["operations"] == 6000 and ran["gets"] > 0
    # Under "latest" (D), gets ask most for the key whose put is under way in another thread, which
    # may be kept waiting in it.
    assert 0 < ran["hits"] <= ran["gets"] if mix == "ycsb-d" else ran["hits"] == ran["gets"]
    assert ran["verify"]["faults"] == 0 and ran["verify"]["checked"] in (ran["gets"], ran["hits"])
    assert (ran["put_us"] is not None) == (mix in ("ycsb-a", "ycsb-b", "ycsb-d"))
    assert (ran["read_modify_write_us"] is not None) == (mix == "ycsb-f")
    assert not path.exists()


def test_bench_asks_for_absent_keys_in_depth(senko, tmp_path):
    path = tmp_path / "bench.kv"
    options = ["--keys", "3000", "--get-ratio", "1", "--dist", "uniform", "--absent", "0.5", "--depth", "16", "--compact", "-n", "4000", "--verify", "--keep"]
    _, ran = lines(senko, "bench", path, *options, *SMALL)
    assert ran["gets"] == 4000 == ran["hits"] + ran["absent"] and ran["verify"]["faults"] == 0
    assert ran["get_us"]["count"] == 4000 and ran["device"]["written_bytes"] == 0
    run(senko, "bench", path, "--keys", "3000", "-n", "10", code=2)
    (ran,) = lines(senko, "bench", path, "--existing", "--keys", "3000", "--get-ratio", "1", "-n", "100", "--verify")
    assert ran["hits"] == 100 and path.exists()
    # A value that is not what was put is noticed.
    key = json.loads(run(senko, "scan", path, "--limit", "1", "--json")[0])["key"]
    run(senko, "put", path, key, "x" * 1000)
    (ran,) = lines(senko, "bench", path, "--existing", "--keys", "3000", "--get-ratio", "1", "--dist", "sequential", "-n", "3000", "--verify", code=1)
    assert ran["verify"]["faults"] == 1


def test_a_bench_trace_runs_on_a_simulated_drive(senko, tmp_path):
    trace = tmp_path / "bench.trace"
    options = ["--keys", "3000", "--get-ratio", "0.5", "-n", "2000", "--durability", "synced", *SMALL]
    _, ran = lines(senko, "bench", tmp_path / "bench.kv", *options, "--trace", trace)
    answer = subprocess.run([senko, "ssd", "run", str(trace), "--fold", "modulo", "--wa", "--json"], capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    pages = json.loads(answer.stdout)["report"]["pages"]
    assert pages["host_writes"] * PAGE >= ran["device"]["written_bytes"] > 0


@pytest.mark.parametrize(
    "options, words",
    [
        (["get", "no/such/store", "k"], ["no/such/store"]),
        (["put", "no/such/folder/store", "k", "v"], ["no/such/folder"]),
        (["delete", "absent.kv", "k"], ["no store", "absent.kv"]),
        (["put", "x.kv", "", "v"], ["key", "0 bytes"]),
        (["put", "x.kv", "k" * 65537, "v"], ["65537"]),
        (["put", "x.kv", "--hex", "0g", "00"], ["key", "0g"]),
        (["put", "x.kv", "k", "--from", "no/such/file"], ["no/such/file"]),
        (["put", "x.kv", "k", "v", "--ttl", "soon"], ["soon"]),
        (["put", "x.kv", "k", "v", "--page-size", "5000"], ["5000"]),
        (["put", "x.kv", "k", "v", "--block-size", "1k"], ["not 1 KiB"]),
        (["put", "DATA", "k", "v", "--keep-versions", "7"], ["keep-versions 1", "7"]),
        (["get", "DATA", "k", "--at", "yesterday"], ["yesterday"]),
        (["load", "x.kv", "no/such/rows"], ["no/such/rows"]),
        (["load", "x.kv", "ROWS"], ["line 2", "\"value\""]),
        (["load", "x.kv", "TABLE"], ["line 3", "2 fields"]),
        (["load", "x.kv", "HEADLESS"], ["first line", "\"key\""]),
        (["load", "x.kv", "BROKEN"], ["line 1", "JSON"]),
        (["load", "x.kv", "NUMBER"], ["line 1", "not a string"]),
        (["bench", "x.kv", "--keys", "0"], ["--keys"]),
        (["bench", "x.kv", "--mix", "ycsb-e"], ["scans keys in order"]),
        (["bench", "x.kv", "--get-ratio", "2"], ["--get-ratio"]),
        (["bench", "x.kv", "--absent", "2"], ["--absent"]),
        (["bench", "x.kv", "--key-size", "3"], ["keys of 3 bytes"]),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(senko, store, tmp_path, options, words):
    texts = {
        "ROWS": '{"key":"a","value":"1"}\n{"key":"b"}\n',
        "TABLE": "key,value,ttl\na,1,\nb,2\n",
        "HEADLESS": "a,1\nb,2\n",
        "BROKEN": '{"key":"a"\n',
        "NUMBER": '{"key":"a","value":1}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    options = [str(store) if word == "DATA" else word for word in options]
    _, said = run(senko, *options, code=2, cwd=str(tmp_path))
    sentence = said.strip()
    assert all(word in sentence for word in words), sentence
