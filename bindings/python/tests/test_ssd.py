# SPDX-License-Identifier: Apache-2.0
"""The simulator from Python: the command's numbers, columns, pictures, Ctrl-C."""

import doctest
import inspect
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import warnings

import pytest

import senko_flash._columns
import senko_flash._result
import senko_flash._run
from senko_flash import ssd

SENKO = os.environ.get("SENKO_BIN")
TRACE = """\
0,0,4096,w,0.0
0,8,8192,w,0.5
0,1000,4096,r,1.0
0,8,4096,w,1.5
"""


def command(*args):
    if SENKO is None:
        if os.environ.get("CI") == "true":
            raise AssertionError("SENKO_BIN names no binary")
        pytest.skip("skipped: SENKO_BIN names no binary")
    words = [SENKO, "ssd", *args, "--json"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def spc(tmp_path):
    path = tmp_path / "small.spc"
    path.write_text(TRACE)
    return path


def test_the_examples_of_the_documentation_run():
    for module in (ssd, senko_flash._columns, senko_flash._result, senko_flash._run):
        done = doctest.testmod(module)
        assert done.attempted > 0 and done.failed == 0


@pytest.mark.parametrize(
    "options",
    [
        {
            "workload": "zipf:rate=2000,count=20000,pages=100000",
            "ftl": "page",
            "precondition": 90.0,
        },
        {
            "workload": "hotcold:count=30k,writes=0.7,rate=300",
            "ftl": "bast:log-blocks=8",
            "buffer": "bplru",
        },
        {
            "workload": "uniform:count=5k,size=3k,rate=50",
            "buffer": "adaptive",
            "buffer_size": "1m",
            "drain": True,
        },
        {"workload": "seq:count=2000,size=64k", "wa": True, "rounds": 3, "profile": "x25-m"},
        {"workload": "uniform:count=4000", "drives": 2, "stripe": "32k", "closed": 8, "seed": 7},
        {"workload": "zipf:rate=1e5,count=20k", "speed": 2.0, "limit": 9000, "check": True},
        {"workload": "uniform:count=4000,pages=9k", "scale": 512, "precondition": "random:1x"},
        {"workload": "uniform:count=500,rate=500,pages=9m", "scale": 8, "wa": True},
    ],
)
def test_results_are_the_commands_to_the_last_digit(options):
    args = ["run", options["workload"]]
    for name, value in options.items():
        if name != "workload":
            args += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    options = dict(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ssd.simulate(options.pop("workload"), **options)
    # As text: two floats that differ in the last digit differ here.
    assert [json.dumps(result.to_dict())] == [json.dumps(line) for line in command(*args)]


def test_each_option_of_the_command_is_one_of_python(spc):
    """`--scale` was missing here: only the command could simulate more of a large drive."""
    if SENKO is None:
        command()
    help = subprocess.run([SENKO, "ssd", "run", "--help"], capture_output=True, text=True)
    names = re.findall(r"^ +(?:-., )?--([a-z-]+)", help.stdout, re.M)
    options = {name.replace("-", "_") for name in names}
    # These say how results are shown.
    shown = {"force", "json", "csv", "plot_erases", "plot_responses", "help"}
    assert shown < options
    taken = set(inspect.signature(ssd.simulate).parameters) - {"workload"}
    assert options - shown == taken == {*senko_flash._run.READING, *senko_flash._run.DRIVE}


def test_a_scale_simulates_more_or_less_of_a_drive():
    beyond = [(0, "write", 12 << 30, 4096)]
    with pytest.raises(ssd.error, match="scale"):
        ssd.simulate(beyond)
    assert ssd.simulate(beyond, scale=16, wa=True).host_bytes_written == 4096
    table = ssd.sweep({"workload": beyond, "scale": [None, 32, 16], "wa": True}, progress=False)
    assert [row.error is None for row in table] == [False, True, True]
    with pytest.raises(ssd.error, match="scale is a whole number from 1 to"):
        ssd.simulate(beyond, scale=0)
    with pytest.raises(ssd.error, match="scale 4000000000: user_bytes is 0"):
        ssd.simulate(beyond, scale=4_000_000_000)


def test_a_trace_is_read_as_the_command_reads_it(spc):
    options = {"fold": "compact:extent=64k", "buffer": "lru", "ftl": "page"}
    result = ssd.simulate(spc, **options)
    args = ["--fold", "compact:extent=64k", "--buffer", "lru", "--ftl", "page"]
    [told] = command("run", str(spc), *args)
    assert result.to_dict() == told
    assert result.requests == 4 and result.host_bytes_written == 16384
    [told] = command("trace", "info", str(spc))
    assert ssd.trace(spc).summary == told["summary"]


def test_requests_of_a_program_run_as_the_same_trace_does(tmp_path):
    draw = random.Random(3)
    requests = [
        (
            (4000 + n) / 400,
            draw.choice("rw"),
            draw.randrange(100_000) * 4096,
            draw.choice([4096, 16384]),
        )
        for n in range(5000)
    ]
    path = tmp_path / "same.spc"
    path.write_text(
        "".join(f"0,{offset // 512},{size},{op},{time}\n" for time, op, offset, size in requests)
    )
    options = {"ftl": "page", "buffer": "lru", "fold": "modulo", "rounds": 2}
    result = ssd.simulate(iter(requests), **options).to_dict()
    columns = ssd.trace(path).requests()
    again = zip(*(columns[name].tolist() for name in ("time_ns", "op", "offset", "bytes")))
    again = ssd.simulate(((ns / 1e9, *others) for ns, *others in again), **options)
    assert json.dumps(again.to_dict()) == json.dumps(result)
    flat = ["--fold", "modulo", "--rounds", "2"]
    [told] = command("run", str(path), "--ftl", "page", "--buffer", "lru", *flat)
    assert result["workload"] == "requests" and told["workload"] == "same.spc"
    # Warnings about a file do not apply to requests.
    for names, one, other in (
        (["report", "derived", "lifetime", "profile", "stopped"], result, told),
        (["mix", "devices", "duration_ns", "footprint_pages"], result["trace"], told["trace"]),
    ):
        for name in names:
            assert json.dumps(one[name]) == json.dumps(other[name]), name


def test_every_operation_and_device_can_be_requested():
    result = ssd.simulate(
        [
            (0, "write", 0, 4096),
            (0.5, "r", 0, 4096, 0),
            (0.5, "w", 8192, 512, 1),
            [1, "trim", 0, 4096],
            (2, "flush", 0, 0),
        ],
        fold="compact",
        ftl="page",
    )
    mix = result.to_dict()["trace"]["mix"]
    counts = [mix[name] for name in ("reads", "writes", "trims", "flushes")]
    assert counts == [1, 2, 1, 1] and list(result.to_dict()["trace"]["devices"]) == ["0", "1"]
    assert result.to_dict()["trace"]["duration_ns"] == 2_000_000_000


@pytest.mark.parametrize(
    "item, error, words",
    [
        ((1, "w", 0), TypeError, "it is (time, op, offset, bytes)"),
        ("1w00", TypeError, "it is (time, op, offset, bytes)"),
        (7, TypeError, "it is (time, op, offset, bytes)"),
        (("1", "w", 0, 4096), TypeError, "its time is a number of seconds"),
        ((float("nan"), "w", 0, 4096), ssd.error, "its time is 0 s or more"),
        ((1, "x", 0, 4096), ssd.error, "its op is"),
        ((1, 4, 0, 4096), ssd.error, "its op is"),
        ((1, "w", -1, 4096), TypeError, "its offset must be a whole number"),
        ((1, "w", 0, 1.5), TypeError, "its bytes must be a whole number"),
        ((1, "w", 0, 0), ssd.error, "it has 0 bytes"),
        ((1, "f", 0, 4096), ssd.error, "a flush has offset 0 and 0 bytes"),
        ((1, "w", 2**64 - 1, 2), ssd.error, "it ends beyond"),
        # Each page of it used to be counted, without an end.
        ((1, "w", 0, 2**54), ssd.error, "it is for 18014398509481984 bytes"),
        ((1, "r", 0, 2**32 + 1), ssd.error, "it is for 4294967297 bytes"),
        # The drive used to count from 1.
        ((1, "w", 2**40, 2**32), ssd.error, "is for 4294967296 bytes at 1099511627776"),
        ((1, "t", 0, 2**54), ssd.error, "is for 18014398509481984 bytes at 0"),
        ((1, "w", 0, 4096, 2**32), ssd.error, "its device is below 2^32"),
        ((0.5, "w", 0, 4096), ssd.error, "its time is before that of request 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(item, error, words):
    with pytest.raises(error, match="^request 1:? " + re.escape(words)):
        ssd.simulate([(1, "w", 0, 4096), item])


def test_what_is_no_workload_is_refused():
    with pytest.raises(ssd.error, match="there is no request"):
        ssd.simulate([])
    with pytest.raises(TypeError, match="a workload is"):
        ssd.simulate(7)
    with pytest.raises(TypeError, match="format is given for a trace's file"):
        ssd.simulate([(0, "w", 0, 4096)], format="spc")
    with pytest.raises(ZeroDivisionError):
        ssd.simulate((n, "w", 0, 4096 // (3 - n)) for n in range(9))


def test_what_can_be_named_is_what_the_command_names():
    assert [part._asdict() for part in ssd.parts()] == command("parts")
    assert {part.kind for part in ssd.traces()} == {"format", "load"}
    assert "x25-m" in [part.name for part in ssd.profiles()]


def test_columns_are_shown_without_a_copy(spc):
    numpy = pytest.importorskip("numpy")
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    result = ssd.simulate("uniform:count=2000,rate=100", ftl="page")
    one, two = result.series.mean_us, result.series["mean_us"]
    assert one.dtype == numpy.float64 and numpy.shares_memory(one, two) and not one.flags.writeable
    assert list(one) == [point["mean_us"] for point in result.to_dict()["report"]["series"]]
    table = result.to_arrow()
    assert isinstance(table, pyarrow.Table)
    chunk = table["mean_us"].chunk(0)
    assert chunk.buffers()[1].address == one.__array_interface__["data"][0]
    frame = result.to_pandas()
    assert list(frame) == ["second", "count", "mean_us", "max_us"] and frame["count"].sum() == 2000
    assert list(frame["mean_us"]) == list(one)
    assert result.wear.blocks.sum() == result.to_dict()["report"]["blocks"]
    requests = ssd.trace(spc).requests()
    assert requests.offset.tolist() == [0, 4096, 512000, 4096]
    assert requests.time_ns.tolist() == [0, 500_000_000, 1_000_000_000, 1_500_000_000]
    assert requests.op.tolist() == [1, 1, 0, 1]
    assert requests.bytes.tolist() == [4096, 8192, 4096, 4096]
    with pytest.raises(AttributeError, match="no column 'absent'"):
        requests.absent


def test_without_numpy_a_column_is_a_memoryview(monkeypatch, spc):
    monkeypatch.setitem(sys.modules, "numpy", None)
    column = ssd.trace(spc).requests().bytes
    assert isinstance(column, memoryview) and column.tolist() == [4096, 8192, 4096, 4096]


def test_pictures(monkeypatch, tmp_path, spc):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = ssd.simulate("uniform:count=2000,rate=100", ftl="page", precondition=100.0)
    axes = result.plot()
    assert len(axes.lines) == 2 and result.plot("erases", ax=axes) is axes
    assert len(axes.patches) == len(result.wear["blocks"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for what in ("responses", "erases"):
        picture = result.plot(what)
        assert picture._repr_svg_().startswith("<svg") and "uniform" in picture.svg
    picture.save(tmp_path / "erases.svg")
    assert (tmp_path / "erases.svg").read_text() == picture.svg
    shown = result._repr_html_()
    assert "<table>" in shown and "<svg" in shown and "write_amplification" in shown
    assert "3 writes" in ssd.trace(spc)._repr_html_()
    with pytest.raises(ValueError, match="what to plot"):
        result.plot("x")


def test_a_result_can_be_sent_elsewhere():
    result = ssd.simulate("uniform:count=100")
    again = pickle.loads(pickle.dumps(result))
    assert again == result and again.figures() == result.figures()
    assert again.series.count.tolist() == result.series.count.tolist()


def test_what_is_wrong_is_said_in_the_engines_words(tmp_path):
    with pytest.raises(ssd.error, match="there is no file"):
        ssd.simulate(tmp_path / "absent")
    with pytest.raises(ssd.error, match="there is no profile and no file"):
        ssd.simulate("uniform:count=10", profile="absent")
    with pytest.raises(ssd.error, match="^precondition is 101, and must be 0 to 100"):
        ssd.simulate("uniform:count=10", precondition=101)
    with pytest.raises(ssd.error, match="stripe: "):
        ssd.simulate("uniform:count=10", stripe="x")
    with pytest.raises(TypeError, match="there is no option 'absent'; there are workload, format"):
        senko_flash._run.run({"workload": "uniform:count=10", "absent": 1})
    assert issubclass(ssd.error, ValueError)
    profile = tmp_path / "profile.toml"
    profile.mkdir()
    with pytest.raises(OSError, match="profile.toml"):
        ssd.simulate("uniform:count=10", profile=profile)


def test_doubts_of_a_trace_are_warnings(tmp_path):
    path = tmp_path / "two.spc"
    path.write_text("0,0,4096,w,0.0\n1,0,4096,w,1.0\n" * 1)
    with pytest.warns(UserWarning, match="two.spc: the 2 devices of the trace overlap"):
        ssd.simulate(path, fold="modulo")


@pytest.mark.parametrize(
    "load", ["uniform:count=1e12", "uniform:count=1e12,rate=1e9", "seq:count=1e12,size=64k"]
)
def test_ctrl_c_ends_a_run(load):
    program = """
import sys, threading
from senko_flash import ssd
try:
    threading.Timer(0.3, lambda: print("running", flush=True)).start()
    ssd.simulate(sys.argv[1], wa=True)
except KeyboardInterrupt:
    print("ended", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, load], stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"running\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"ended\n"
    assert running.returncode == 0
