# SPDX-License-Identifier: Apache-2.0
"""Clients with TLS, on senko's DRAM, on senko's flash, and on memcached where it has TLS."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import bmemcached
import pytest
from pymemcache.client.base import Client

import servers
from missing import missing


def run(*words, **kwargs):
    return subprocess.run(words, check=True, capture_output=True, timeout=600, **kwargs)


class Authority:
    """A CA in a folder, made with the openssl program."""

    def __init__(self, folder):
        self.folder = folder
        self.request("ca", "-x509", "-days", "100", "-addext", "basicConstraints=critical,CA:TRUE")

    def request(self, name, *options):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key"]
        run("openssl", "req", "-new", *key, "-out", name + ".pem", "-subj", "/CN=" + name, *options, cwd=self.folder)

    def sign(self, name):
        self.request(name)
        extra = self.folder / "san"
        extra.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        words = ["openssl", "x509", "-req", "-in", name + ".pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "99"]
        run(*words, "-CAcreateserial", "-extfile", str(extra), "-out", name + ".pem", cwd=self.folder)

    def path(self, name):
        return str(self.folder / name)

    def context(self, own=None, version=None):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if own:
            context.load_cert_chain(self.path(own + ".pem"), self.path(own + ".key"))
        if version:
            context.minimum_version = context.maximum_version = version
        return context


class Running:
    """A server with an address that has TLS, and one that has none."""

    def __init__(self, kind, authority, folder, verify=0):
        self.secure = ("127.0.0.1", servers.free_port())
        self.plain = ("127.0.0.2", servers.free_port())
        self.log = folder / "log"
        where = "%s:%d,notls:%s:%d" % (*self.secure, *self.plain)
        pem = {"ssl_chain_cert": "server.pem", "ssl_key": "server.key", "ssl_ca_cert": "ca.pem"}
        ssl_options = ["%s=%s" % (name, authority.path(file)) for name, file in pem.items()]
        ssl_options.append("ssl_verify_mode=%d" % verify)
        if kind == "memcached":
            program = shutil.which("memcached")
            flash = []
        else:
            link = folder / "memcached"
            link.symlink_to(os.path.abspath(os.environ["SENKO_BIN"]))
            program = str(link)
            flash = ["ext_path=%s:128M" % (folder / "flash")] if kind == "flash" else []
        user = ["-u", "root"] if os.getuid() == 0 else []
        words = [program, "-Z", "-l", where, "-U", "0", "-vv", *user, "-o", ",".join(ssl_options + flash)]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=open(self.log, "w"), cwd=folder)
        end = time.monotonic() + 600
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def answers(self):
        try:
            socket.create_connection(self.plain, timeout=10).close()
            return True
        except OSError:
            return False

    def stat(self, name):
        stats = Client(self.plain, timeout=600).stats()
        return int(stats[name.encode()])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(600)


@pytest.fixture
def authority(tmp_path):
    if not shutil.which("openssl"):
        missing("the openssl program is not installed")
    folder = tmp_path / "ca"
    folder.mkdir()
    made = Authority(folder)
    made.sign("server")
    return made


@pytest.fixture(params=["dram", "flash", "memcached"])
def kind(request):
    if request.param != "memcached":
        if not os.environ.get("SENKO_BIN"):
            missing("SENKO_BIN is not set")
        return request.param
    if not shutil.which("memcached"):
        missing("memcached is not installed")
    if "enable-ssl" not in run("memcached", "-h").stdout.decode():
        pytest.skip("this memcached is built without TLS")
    return request.param


def test_pymemcache(kind, authority, tmp_path):
    with Running(kind, authority, tmp_path) as server:
        for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
            context = authority.context(version=version)
            client = Client(server.secure, tls_context=context, timeout=600, no_delay=True)
            values = {"k%d" % n: os.urandom(n * 997) for n in range(60)}
            values["big"] = os.urandom(900_000)
            assert client.set_many(values, noreply=False) == []
            for key, value in values.items():
                assert client.get(key) == value
            assert client.get_many(list(values)) == values
            assert client.incr("n", 1) is None
            client.close()
        if kind == "flash":
            # Items that nobody read leave DRAM first, so the oldest of these are on flash.
            filler = Client(server.plain, timeout=600)
            fillers = {"filler%d" % n: bytes([n % 256]) * (3000 + n * 10) for n in range(5000)}
            assert filler.set_many(fillers, noreply=False) == []
            client = Client(server.secure, tls_context=authority.context(), timeout=600)
            for key in list(fillers)[:2000]:
                assert client.get(key) in (fillers[key], None)
            assert server.stat("flash_hits") > 0
        assert server.stat("ssl_handshake_errors") == 0


def test_bmemcached(kind, authority, tmp_path):
    with Running(kind, authority, tmp_path) as server:
        name = "%s:%d" % server.secure
        client = bmemcached.Client([name], tls_context=authority.context(), socket_timeout=600)
        for n in range(50):
            assert client.set("k%d" % n, "v" * n * 500)
        for n in range(50):
            assert client.get("k%d" % n) == "v" * n * 500
        client.disconnect_all()


def test_clients_show_certificates(kind, authority, tmp_path):
    authority.sign("client")
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other)
    stranger.sign("client")
    with Running(kind, authority, tmp_path, verify=2) as server:
        known = Client(server.secure, tls_context=authority.context("client"), timeout=600)
        assert known.set("k", b"v", noreply=False) and known.get("k") == b"v"
        unknown = authority.context()
        unknown.load_cert_chain(stranger.path("client.pem"), stranger.path("client.key"))
        for context in [authority.context(), unknown]:
            with pytest.raises(OSError):
                Client(server.secure, tls_context=context, timeout=600).get("k")
        if kind != "memcached":  # 1.6.18 counts no handshake that fails for the client's certificate
            assert server.stat("ssl_handshake_errors") == 2
        assert known.get("k") == b"v"


def shown(server, authority):
    """The certificate that the server shows, and an answer."""
    with socket.create_connection(server.secure, timeout=600) as plain:
        with authority.context().wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"get none\r\n")
            assert secure.recv(100) == b"END\r\n"
            return secure.getpeercert(binary_form=True)


def test_refresh_certs(kind, authority, tmp_path):
    with Running(kind, authority, tmp_path) as server:
        first = shown(server, authority)
        authority.sign("server")
        assert shown(server, authority) == first
        admin = Client(server.secure, tls_context=authority.context(), timeout=600)
        assert admin.raw_command(b"refresh_certs") == b"OK"
        second = shown(server, authority)
        assert second != first
        key = authority.folder / "server.key"
        good = key.read_text()
        key.write_text("nothing\n")
        # memcached lets OpenSSL's words follow.
        assert admin.raw_command(b"refresh_certs").startswith(b"Error loading the key: " + str(key).encode())
        if kind != "memcached":
            assert shown(server, authority) == second
            # Of what clients ask for in one second, the log has one line.
            told = server.log.read_text().count("the certificate and key before stay")
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 600
            while server.log.read_text().count("the certificate and key before stay") == told:
                assert time.monotonic() < end
                time.sleep(0.02)
            assert shown(server, authority) == second
        key.write_text(good)
        assert admin.raw_command(b"refresh_certs") == b"OK"
        assert shown(server, authority) == second
        assert server.stat("time_since_server_cert_refresh") < 600


def s_client(server, authority, text, *options):
    where = "%s:%d" % server.secure
    words = ["openssl", "s_client", "-connect", where, "-CAfile", authority.path("ca.pem"), "-verify_return_error"]
    return subprocess.run([*words, *options], input=text, capture_output=True, timeout=600)


def test_openssl_s_client(kind, authority, tmp_path):
    with Running(kind, authority, tmp_path) as server:
        for version in ["-tls1_2", "-tls1_3"]:
            text = b"set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n"
            done = s_client(server, authority, text, version, "-quiet")
            assert b"STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\n" in done.stdout
            assert done.returncode == 0, done.stderr
        old = s_client(server, authority, b"", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0")
        assert old.returncode != 0
        # A line with R asks for another handshake, which TLS 1.2 has.
        again = s_client(server, authority, b"R\n", "-tls1_2")
        assert again.returncode != 0 and b"renegotiation" in again.stderr.lower(), again.stderr
        assert shown(server, authority)


def test_a_watcher_with_tls_reads_its_lines(kind, authority, tmp_path):
    """memcached's workers begin to make lines a little after `watch` was answered, so the client
    asks until one comes.
    """
    with Running(kind, authority, tmp_path) as server:
        plain = socket.create_connection(server.secure, timeout=600)
        with authority.context().wrap_socket(plain, server_hostname="localhost") as watcher:
            lines = watcher.makefile("rb")
            watcher.sendall(b"watch fetchers\r\n")
            assert lines.readline() == b"OK\r\n"
            stop = threading.Event()

            def ask():
                client = Client(server.plain, timeout=600)
                while not stop.wait(0.01):
                    client.get("watched")

            asker = threading.Thread(target=ask)
            asker.start()
            try:
                line = lines.readline()
            finally:
                stop.set()
                asker.join()
            assert b" type=item_get key=watched status=not_found " in line, line
