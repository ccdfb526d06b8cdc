# SPDX-License-Identifier: Apache-2.0
"""`senko ssd` as a user calls it: every command's answer, its JSON and CSV, and what it refuses."""

import csv
import gzip
import io
import json
import subprocess
import xml.etree.ElementTree

import pytest

# Twelve requests of two devices in the SPC format, written for this test.
SPC = "".join("%d,%d,%d,%s,%.3f\n" % (n % 2, n % 5 * 16, 4096 + n % 3 * 4096, "wWrR"[n % 4], n * 0.01) for n in range(12))
SMALL = "hotcold:count=3e4,pages=65536,rate=1000,writes=0.8,trims=0.05"


def run(senko, *options, ok=True, **more):
    answer = subprocess.run([senko, "ssd", *map(str, options)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **more)
    assert (answer.returncode == 0) == ok, answer.stderr
    assert "panicked" not in answer.stderr, answer.stderr
    return answer


def objects(answer):
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture
def spc(tmp_path):
    path = tmp_path / "small.spc"
    path.write_text(SPC)
    return path


def names(senko, kind):
    return [part["name"] for part in objects(run(senko, "parts", "--json")) if part["kind"] == kind]


def test_run_says_where_every_page_went(senko):
    (result,) = objects(run(senko, "run", SMALL, "--profile", "paper-1gb", "--buffer", "lru", "--json", "--check"))
    pages, flash = result["report"]["pages"], result["report"]["flash"]
    assert result["report"]["all"]["count"] == 30_000
    programs = flash["programs"]
    assert programs["host"] == pages["evicted"] + pages["padded"]
    assert pages["host_writes"] - pages["write_hits"] - pages["evicted"] <= 512 + pages["trims"]
    assert result["derived"]["write_amplification"] == pytest.approx(sum(programs.values()) / pages["host_writes"])
    assert 0 < result["report"]["writes"]["p50_us"] <= result["report"]["writes"]["p99_us"] <= result["report"]["writes"]["max_us"]


def test_every_profile_runs(senko):
    for profile in names(senko, "profile"):
        (result,) = objects(run(senko, "run", "uniform:count=2000,pages=1000", "--profile", profile, "--json"))
        assert result["profile"] == profile and result["derived"]["host_bytes_written"] == 2000 * 4096
        # A request is within a page, but for the flash chip of the thesis with its pages of 2 KiB.
        assert result["report"]["pages"]["host_writes"] == (4000 if profile == "hy27-4gb" else 2000)


def test_compare_has_a_row_for_each_combination(senko):
    ftls, buffers = names(senko, "ftl"), names(senko, "buffer")
    assert len(ftls) >= 8 and len(buffers) >= 8
    options = ["--profile", "paper-1gb"] + [word for ftl in ftls for word in ("--ftl", ftl)] + [word for buffer in buffers for word in ("--buffer", buffer)]
    answer = run(senko, "compare", "hotcold:count=3000,pages=65536", *options, "--csv")
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert len(rows) == len(ftls) * len(buffers)
    assert [(row["ftl"].split(":")[0], row["buffer"].split(":")[0]) for row in rows] == [(ftl, buffer) for ftl in ftls for buffer in buffers]
    # One page write is one page written, whatever the parts; runs are the same however many go at
    # once.
    assert {row["host_pages_written"] for row in rows} == {"3000"}
    again = run(senko, "compare", "hotcold:count=3000,pages=65536", *options, "--csv", "--jobs", "1")
    assert again.stdout == answer.stdout


def test_traces_are_described_converted_and_drawn(senko, spc, tmp_path):
    (info,) = objects(run(senko, "trace", "info", spc, "--json"))
    assert info["summary"]["format"] == "spc" and set(info["summary"]["devices"]) == {"0", "1"}
    packed = tmp_path / "small.spc.gz"
    packed.write_bytes(gzip.compress(SPC.encode()))
    (same,) = objects(run(senko, "trace", "info", packed, "--json"))
    assert same["summary"]["mix"] == info["summary"]["mix"]
    for format in ("spc", "msr", "columns:unit=us", "fio", "senko"):
        made = tmp_path / ("made." + format.split(":")[0])
        run(senko, "trace", "convert", spc, made, "--to", format)
        (back,) = objects(run(senko, "trace", "info", made, "--json"))
        assert back["summary"]["mix"] == info["summary"]["mix"], format
        refused = run(senko, "trace", "convert", spc, made, ok=False)
        assert str(made) in refused.stderr and "exists" in refused.stderr
    picture = tmp_path / "requests.svg"
    run(senko, "trace", "plot", spc, "-o", picture)
    text = xml.etree.ElementTree.parse(picture).getroot().itertext()
    assert "6 writes" in "\n".join(text)


def test_generated_traces_run_like_their_generator(senko, tmp_path):
    made = tmp_path / "made.senko"
    run(senko, "trace", "gen", SMALL, made)
    (direct,) = objects(run(senko, "run", SMALL, "--json"))
    (read,) = objects(run(senko, "run", made, "--json"))
    assert read["report"]["pages"] == direct["report"]["pages"] and read["report"]["flash"] == direct["report"]["flash"]


def test_lifetime_counts_years(senko, tmp_path):
    workload = "uniform:count=1e5,pages=200000,rate=5000"
    (result,) = objects(run(senko, "lifetime", workload, "--profile", "paper-1gb", "--ftl", "page", "--precondition", "100", "--json"))
    life, amplification = result["lifetime"], result["derived"]["write_amplification"]
    # A block's 128 pages of 4096 bytes are programmed once between erases.
    by_hand = 2304 * 128 * 4096 * 100_000 / amplification
    assert life["host_bytes"] == pytest.approx(by_hand, rel=0.05)
    assert life["bytes_a_day"] == pytest.approx(5000 * 4096 * 86400, rel=0.05)
    halved = objects(run(senko, "lifetime", workload, "--profile", "paper-1gb", "--ftl", "page", "--precondition", "100", "--cycles", "50000", "--json"))[0]["lifetime"]
    assert halved["years"] == pytest.approx(life["years"] / 2)
    pictures = [tmp_path / "erases.svg", tmp_path / "responses.svg"]
    run(senko, "run", SMALL, "--plot-erases", pictures[0], "--plot-responses", pictures[1])
    for picture in pictures:
        xml.etree.ElementTree.parse(picture)


def test_transfer_is_near_the_paper(senko):
    found = {line["model"]["drives"]: line["outcome"] for line in objects(run(senko, "transfer", "--json"))}
    for drives, qps, latency in ((1, 45e3, 467), (2, 60e3, 477), (4, 65e3, 502)):
        assert found[drives]["qps"] == pytest.approx(qps, rel=0.04)
        assert found[drives]["mean_us"] == pytest.approx(latency, rel=0.08)


@pytest.mark.parametrize(
    "options, words",
    [
        (["run", "no/such/file"], ["no/such/file"]),
        (["run", "SPC", "--profile", "floppy"], ["floppy", "paper-1gb"]),
        (["run", "SPC", "--ftl", "magic"], ["magic", "bast"]),
        (["run", "SPC", "--buffer", "lru:size=3"], ["lru", "size"]),
        (["run", "SPC", "--ftl", "bast:log-blocks=x"], ["log-blocks"]),
        (["run", "SPC", "--ftl", "bast:log-blocks=100000"], ["log"]),
        (["run", "uniform:pages=1e7"], ["fold"]),
        (["run", "SPC", "--precondition", "120"], ["120"]),
        (["run", "SPC", "--speed", "0"], ["speed"]),
        (["run", "SPC", "--rounds", "0"], ["--rounds", "at least 1"]),
        (["run", "SPC", "--drives", "0"], ["0"]),
        (["run", "SPC", "--drives", "2", "--stripe", "100"], ["stripe"]),
        (["lifetime", "uniform:count=100"], ["times"]),
        (["lifetime", "SPC"], ["erased no block"]),
        (["trace", "gen", "SPC", "out"], ["is a file"]),
        (["trace", "convert", "SPC", "out", "--to", "vscsi"], ["vscsi"]),
        (["transfer", "--lanes", "0"], ["lanes"]),
        (["transfer", "--rate=-1"], ["-1"]),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(senko, spc, tmp_path, options, words):
    options = [str(spc) if word == "SPC" else word for word in options]
    said = run(senko, *options, ok=False, cwd=str(tmp_path)).stderr.replace("For more information, try '--help'.", "")
    said = said.strip().splitlines()[-1]
    assert all(word in said for word in words), said


def test_damaged_profiles_are_told(senko, tmp_path):
    profile = tmp_path / "drive.toml"
    for text, word in [
        ("name = 3", "name"),
        ("", "name"),
    ]:
        profile.write_text(text)
        answer = run(senko, "run", "uniform:count=10,pages=10", "--profile", profile, ok=False)
        assert str(profile) in answer.stderr and word in answer.stderr
