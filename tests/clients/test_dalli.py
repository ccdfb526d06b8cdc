# SPDX-License-Identifier: Apache-2.0
"""Dalli, Ruby's client (binary protocol), every command it has: in plaintext, with a password (SASL
PLAIN) and with TLS.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import servers
from missing import missing

SCRIPT = Path(__file__).parent / "dalli.rb"
SECRET = "correct-horse"
RUBY = "/usr/bin/ruby"


@pytest.fixture(scope="module", autouse=True)
def dalli():
    if subprocess.run([RUBY, "-rdalli", "-e", "1"], capture_output=True).returncode:
        missing("Dalli is not installed (Debian package ruby-dalli)")


def play(address, server=None, **settings):
    """What the script says at its end. It asks for its items to be moved to flash where `server`
    has flash.
    """
    settings["server"] = "%s:%d" % address
    settings["seed"] = int.from_bytes(os.urandom(4))
    settings["settle"] = server is not None and server.kind == "flash"
    words = [RUBY, str(SCRIPT), json.dumps(settings)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line != "settle\n":
                process.stdin.close()
                assert process.wait(300) == 0
                return line.strip() + ("" if line == "ok\n" else " (seed %d)" % settings["seed"])
            server.settle()
            process.stdin.write("settled\n")
            process.stdin.flush()
    return "nothing"


def test_every_command(server):
    assert play(server.address, server) == "ok"


@pytest.fixture
def binary():
    if not os.environ.get("SENKO_BIN"):
        missing("SENKO_BIN is not set")


def test_with_a_password(binary, tmp_path):
    """SASL PLAIN, on each connection of Dalli's."""
    file = tmp_path / "users"
    file.write_text("shop:%s\n" % SECRET)
    file.chmod(0o600)
    # Here it is asked without a password whether it is up.
    exempt = ("127.0.0.2", servers.free_port())
    asks = ("127.0.0.1", servers.free_port())
    where = ["-l", "%s:%d,noauth:%s:%d" % (*asks, *exempt)]
    server = servers.start_senko("dram", *where, "--sasl-file", str(file), address=exempt)
    try:
        assert play(asks, server, username="shop", password=SECRET) == "ok"
        for wrong in [{"username": "shop", "password": "wrong"}, {"username": "other", "password": SECRET}, {}]:
            assert play(asks, refused=True, **wrong).startswith("refused: ")
    finally:
        server.stop()


@pytest.mark.parametrize("tier", [kind for kind in servers.KINDS if kind != "memcached"])
def test_with_tls(binary, tier, tmp_path):
    if not shutil.which("openssl"):
        missing("the openssl program is not installed")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["openssl", "req", "-x509", *curve, *name, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(words, check=True, capture_output=True)
    plain = ("127.0.0.2", servers.free_port())
    secure = ("127.0.0.1", servers.free_port())
    where = ["-l", "%s:%d,notls:%s:%d" % (*secure, *plain)]
    pem = ["--tls-chain-cert", str(chain), "--tls-key", str(key)]
    server = servers.start_senko(tier, *where, *pem, address=plain)
    try:
        assert play(secure, server, ca=str(chain)) == "ok"
        assert int(server.stats()["ssl_handshake_errors"]) == 0
        # Without TLS nothing is said, and a CA that did not sign is refused by Dalli itself.
        assert play(secure, refused=True).startswith("refused: ")
    finally:
        server.stop()
