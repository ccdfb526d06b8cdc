# SPDX-License-Identifier: Apache-2.0
"""The admin listener's page in headless Chromium: light, dark and on a phone. Where SENKO_SHOTS
names a folder, screenshots are left there.
"""

import os
import pathlib
import re
import subprocess
import time
import urllib.request

import pytest

import servers

PATIENCE = 300


@pytest.fixture
def page(senko):
    """The address of the page of a server that was used."""
    port = servers.free_port()
    server = servers.start_senko("flash", "--admin", str(port), "--flash-write-budget", "2g/day")
    try:
        server.ask(b"set <i>key</i> 0 0 1\r\n1\r\n", b"STORED\r\n")
        for _ in range(50):
            server.ask(b"get <i>key</i> nothing\r\n")
        server.settle()
        address = "http://127.0.0.1:%d/" % port
        # The lines begin when ten seconds are over.
        while b"<figure>" not in urllib.request.urlopen(address, timeout=PATIENCE).read():
            server.ask(b"get <i>key</i> nothing\r\n")
            time.sleep(0.1)
        yield address
    finally:
        server.stop()


@pytest.fixture
def chromium(program, tmp_path):
    """Runs it; gives what it prints."""
    path = program("chromium")

    def run(*options):
        command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        command += ["--user-data-dir=%s" % (tmp_path / "profile"), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_it_is_shown(page, chromium):
    done = chromium("--enable-logging=stderr", "--dump-dom", page)
    for title in ("Gets", "Latency in the server", "Tiers", "Writes to flash", "Items lost", "The last ten minutes", "The last day", "Devices", "Connections", "The last start"):
        assert "<h2>%s</h2>" % title in done.stdout
    for chart in ("Gets a second", "Hit ratio", "Latency of gets", "Written to flash", "Items lost a second", "Memory for items"):
        assert done.stdout.count('aria-label="%s"' % chart) == 1
    # Nothing was refused by the page's own policy, or went wrong.
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize("name,size,dark", [("light", (1280, 900), False), ("dark", (1280, 900), True), ("phone", (360, 1900), False), ("narrow", (800, 1500), True)])
def test_it_fits_and_follows_the_readers_taste(page, chromium, tmp_path, name, size, dark):
    shots = pathlib.Path(os.environ.get("SENKO_SHOTS", tmp_path))
    options = ["--window-size=%d,%d" % size]
    options += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    shot = shots / ("page-%s.png" % name)
    chromium(*options, "--screenshot=%s" % shot, page)
    assert shot.stat().st_size > 10_000
    # The same document with a script that measures it: no part is wider than the window, none is
    # cut off.
    html = urllib.request.urlopen(page, timeout=PATIENCE).read().decode()
    measure = """<script>addEventListener("load", () => {
        const wide = [...document.querySelectorAll("section")].filter(s => s.scrollWidth > s.clientWidth + 1).length;
        document.title = "measured " + (document.documentElement.scrollWidth <= innerWidth) + " " + wide + " "
            + getComputedStyle(document.body).backgroundColor;
    })</script>"""
    copy = tmp_path / "copy.html"
    copy.write_text(html.replace("http-equiv=refresh", "x=refresh") + measure)
    title = re.search("<title>measured (.*)</title>", chromium(*options, "--dump-dom", "file://%s" % copy).stdout)[1]
    assert title == "true 0 " + ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")
