# SPDX-License-Identifier: Apache-2.0
"""Sweeps: the order of the grid, failed cells, processes that die, Ctrl-C."""

import concurrent.futures
import doctest
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings

import pytest

import senko_flash._sweep
from senko_flash import ssd

GRID = {
    "workload": ["uniform:count=300,rate=200", "zipf:count=300,rate=200"],
    "buffer_size": ["256k", "1m"],
    "ftl": ["page", "bast", "absent"],
    "buffer": ["none", "lru"],
    "seed": [1, 2],
}


def serial(grid):
    return ssd.sweep(grid, concurrent.futures.ThreadPoolExecutor(1), progress=False)


def test_the_examples_of_the_documentation_run():
    done = doctest.testmod(senko_flash._sweep)
    assert done.attempted > 0 and done.failed == 0


def test_rows_come_in_the_order_of_the_grid():
    seen = []
    table = ssd.sweep(GRID, progress=lambda done, total: seen.append((done, total)))
    assert len(table) == 48 and seen == [(done, 48) for done in range(1, 49)]
    options = [row.options for row in table]
    assert options[0] == {name: values[0] for name, values in GRID.items()}
    assert [cell["seed"] for cell in options[:4]] == [1, 2, 1, 2]
    assert options[-1] == {name: values[-1] for name, values in GRID.items()}
    for row in table:
        failed = row.options["ftl"] == "absent"
        assert (row.error is not None) == failed and (row.result is None) == failed
        if failed:
            assert "absent" in row.error
        else:
            assert row.result == ssd.simulate(**row.options)
    assert table == serial(GRID)
    best = table.best("mean_us")
    assert best.result.mean_us == min(row.result.mean_us for row in table if row.result)
    assert "failed" in repr(table) and table._repr_html_().count("<tr>") == 49


def test_a_sweep_leaves_the_filters_of_warnings_alone():
    """Cells on threads set the filters and set them back, in any order: after a sweep, all later
    warnings of the program could be silent for good.
    """
    before = list(warnings.filters)
    grid = {"workload": [f"uniform:count={n}" for n in (50, 3000, 300, 9000)], "seed": [1, 2]}
    for _ in range(5):
        ssd.sweep(grid, progress=False)
        assert list(warnings.filters) == before


def test_a_workload_can_be_requests():
    """"The cell was not run: expected str, bytes or os.PathLike object, not list"."""
    few = [(n / 100, "write", n * 4096, 4096) for n in range(20)]
    more = few + [(1.0, "read", 0, 4096)]
    one = ssd.sweep({"workload": few, "seed": [1, 2]}, progress=False)
    assert [row.result.requests for row in one] == [20, 20]
    two = ssd.sweep({"workload": [few, iter(more)], "seed": [1, 2]}, progress=False)
    assert [row.result.requests for row in two] == [20, 20, 21, 21]
    cells = ssd.sweep([{"workload": iter(few)}, {"workload": more}], progress=False)
    assert [row.result for row in cells] == [ssd.simulate(few), ssd.simulate(more)]
    with concurrent.futures.ProcessPoolExecutor(1) as processes:
        assert ssd.sweep({"workload": few, "seed": [1, 2]}, processes, progress=False) == one


def test_a_table_for_others():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    cells = [
        {"workload": "uniform:count=100", "ftl": "absent"},
        {"workload": "uniform:count=100", "wa": True},
        {"ftl": "page"},
        {"workload": "uniform:count=100", "absent": 1},
    ]
    table = ssd.sweep(cells, progress=False)
    frame = table.to_pandas()
    assert list(frame["requests"].fillna(0)) == [0, 100, 0, 0]
    assert [pandas.isna(error) for error in frame["error"]] == [False, True, False, False]
    assert "needs a workload" in frame["error"][2] and "no option 'absent'" in frame["error"][3]
    assert table.to_arrow().num_rows == 4
    assert len(ssd.sweep([], progress=False)) == 0
    with pytest.raises(ValueError, match="no row has the figure"):
        table[:1] and ssd.Table(table[:1]).best("erases")


def test_what_is_no_grid_and_no_executor_is_refused():
    with pytest.raises(TypeError, match="a grid is"):
        ssd.sweep("uniform:count=100", progress=False)
    with pytest.raises(TypeError, match="not int"):
        ssd.sweep({"workload": "uniform:count=100"}, 2, progress=False)
    with pytest.raises(TypeError, match="a workload is"):
        ssd.simulate(None)
    assert repr(ssd.sweep({"workload": "uniform:count=100"}, progress=False)) == "<1 row, 0 failed>"


def test_processes_give_what_threads_give():
    # A fork of a process with threads may hang.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as processes:
        assert ssd.sweep(GRID, processes, progress=False) == serial(GRID)


def test_the_hash_of_a_trace_travels_and_is_held(tmp_path, monkeypatch):
    path = tmp_path / "small.spc"
    path.write_text("0,0,4096,w,0.0\n")
    monkeypatch.chdir(tmp_path)
    sent = senko_flash._sweep._sent({"workload": "small.spc"})
    assert sent["workload"] == str(path) and len(sent["sha256"]) == 64
    assert senko_flash._sweep._run(sent)[0].requests == 1
    path.write_text("0,0,4096,w,0.0\n0,8,4096,w,1.0\n")
    result, error = senko_flash._sweep._run(sent)
    assert result is None and "is another file" in error
    path.unlink()
    assert "there is no file" in senko_flash._sweep._run(sent)[1]


def test_a_dask_cluster_loses_no_cell_when_a_process_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    trace = tmp_path / "many.spc"
    lines = (
        f"0,{n * 7919 % 100000 * 8},4096,{'rw'[n % 3 > 0]},{n / 500}\n" for n in range(5000)
    )
    trace.write_text("".join(lines))
    grid = {
        "workload": [trace, "zipf:count=20000,rate=300"],
        "ftl": ["page", "bast", "fast", "absent"],
        "buffer": ["none", "lru", "bplru"],
    }
    expected = serial(grid)
    assert sum(row.error is not None for row in expected) == 6
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    with cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        victims = client.run(os.getpid)
        killed = []

        def kill_one(done, total):
            if done == 5:
                killed.append(victims.popitem()[1])
                os.kill(killed[0], signal.SIGKILL)

        table = ssd.sweep(grid, client.get_executor(), progress=kill_one)
        assert len(killed) == 1
        assert killed[0] not in client.run(os.getpid).values()
    assert table == expected


def test_ctrl_c_ends_all_runs():
    program = """
from senko_flash import ssd
import threading
try:
    threading.Timer(0.3, lambda: print("running", flush=True)).start()
    ssd.sweep({"workload": "uniform:count=1e12", "seed": range(8), "wa": True}, progress=False)
except KeyboardInterrupt:
    print("ended", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"running\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"ended\n"
    assert running.returncode == 0
