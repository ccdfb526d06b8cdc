# SPDX-License-Identifier: Apache-2.0
"""The container recipe, as far as no container is needed: its command under its seccomp profile,
and what its build reads.
"""

import ctypes
import json
import pathlib
import platform
import re
import shlex
import signal
import struct
import subprocess

import pytest

import servers
from missing import missing

PROJECT = pathlib.Path(__file__).parents[2]
CONTAINER = PROJECT / "contrib" / "container"
PATIENCE = 300
# The kernel's number for each kind of machine, and where its headers list the system calls.
MACHINES = {
    "x86_64": (0xC000003E, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": (0xC00000B7, "/usr/include/asm-generic/unistd.h"),
}
RING = {"io_uring_setup", "io_uring_enter", "io_uring_register"}


def rules(without=frozenset()):
    """The profile's rules, without those for these names."""
    profile = json.loads((CONTAINER / "seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    for rule in profile["syscalls"]:
        yield {**rule, "names": [name for name in rule["names"] if name not in without]}


def program(rules):
    """A filter for the kernel (classic BPF) that does what the rules say and answers EPERM to all
    other system calls, as a container's runtime makes one of the profile."""
    if platform.machine() not in MACHINES:
        missing("the numbers of the system calls of %s" % platform.machine())
    machine, header = MACHINES[platform.machine()]
    if not pathlib.Path(header).is_file():
        missing("linux-libc-dev is not installed")
    numbers = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", pathlib.Path(header).read_text()))
    load, mask, equal, back = 0x20, 0x54, 0x15, 0x06
    permit, refuse = 0x7FFF0000, 0x00050000 | 1
    code = [(load, 0, 0, 4), (equal, 1, 0, machine), (back, 0, 0, refuse), (load, 0, 0, 0)]
    for rule in rules:
        answer = permit if rule["action"] == "SCMP_ACT_ALLOW" else 0x00050000 | rule["errnoRet"]
        then = [(back, 0, 0, answer)]
        # A condition on an argument looks at its lower half, which has all of these flags.
        for arg in rule.get("args", []):
            bits, wanted = {"SCMP_CMP_MASKED_EQ": (arg["value"], arg.get("valueTwo")), "SCMP_CMP_EQ": (0xFFFFFFFF, arg["value"])}[arg["op"]]
            number = (load, 0, 0, 0)
            then = [(load, 0, 0, 16 + 8 * arg["index"]), (mask, 0, 0, bits), (equal, 0, len(then), wanted), *then, number]
        for name in sorted(set(rule["names"]) & numbers.keys()):
            code += [(equal, 0, len(then), int(numbers[name])), *then]
    code.append((back, 0, 0, refuse))
    return b"".join(struct.pack("HBBI", *line) for line in code)


def enter(code):
    """Puts the calling process, and what it becomes, under the filter."""
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privs, set_seccomp, mode_filter = 38, 22, 2
    lines = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    filter = Program(len(code) // 8, ctypes.addressof(lines))

    def run():
        done = libc.prctl(no_new_privs, 1, 0, 0, 0) == 0 and libc.prctl(set_seccomp, mode_filter, ctypes.byref(filter), 0, 0) == 0
        if not done:
            raise OSError(ctypes.get_errno(), "the filter was refused")

    # The buffer lives as long as the function.
    run.lines = lines
    return run


def recipe():
    """The instructions of the Containerfile: (word, rest)."""
    text = (CONTAINER / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]


def command(senko, folder):
    """The container's command, with the folder in place of its volume, and other ports."""
    said = dict(recipe())
    words = json.loads(said["ENTRYPOINT"]) + json.loads(said["CMD"])
    assert words[:2] == ["/usr/bin/senko", "serve"]
    words = [word.replace("/data", str(folder)) for word in words[1:]]
    words[words.index("0.0.0.0")] = "127.0.0.1"
    words[words.index("0.0.0.0:11212")] = "127.0.0.1:0"
    words = [word.replace("flash:4g", "flash:256m") for word in words]
    return [senko, *words, "-p", "0", "-m", "64m", "--keep-dram", "--json"]


def start(senko, folder, without):
    process = subprocess.Popen(
        command(senko, folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=enter(program(rules(without)))
    )
    line = process.stdout.readline()
    assert line, process.stderr.read()
    said = json.loads(line)
    address = said["listen"][0].rsplit(":", 1)
    return servers.Server("flash", ("127.0.0.1", int(address[1])), process), said


def stop(server):
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("ring", [True, False])
def test_the_command_under_its_profile(senko, tmp_path, ring):
    """Stores on both tiers, stops, and comes back, with io_uring and under a profile that refuses
    it as Docker's own does.
    """
    without = frozenset() if ring else RING
    server, said = start(senko, tmp_path, without)
    try:
        if ring and said["io"] != "io_uring":
            missing("io_uring: %s" % said["io_fallback"])
        assert ring or (said["io"] == "posix" and "Operation not permitted" in said["io_fallback"]), said
        stores = b"".join(b"set k%d 0 0 4000 noreply\r\n%4000d\r\n" % (n, n) for n in range(20000))
        server.ask(stores + b"mn\r\n", b"MN\r\n")
        assert b"VALUE k19999 0 4000\r\n" in server.ask(b"get k19999\r\n")
        assert int(server.stats()["flash_items"]) > 0
    finally:
        stop(server)
    server, said = start(senko, tmp_path, without)
    try:
        assert said["warm"]["flash_items"] > 0
        assert b"VALUE k19999 0 4000\r\n" in server.ask(b"get k19999\r\n")
    finally:
        stop(server)


def test_the_profile_permits_no_more_than_the_default_and_io_uring():
    """It replaces Docker's default profile, and used to permit calls that this one refuses: new
    namespaces, and reading the memory of other processes.
    """
    refused = "add_key bpf delete_module finit_module get_mempolicy init_module kcmp kexec_load keyctl lookup_dcookie mbind mount"
    refused += " move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root"
    refused += " process_madvise process_vm_readv process_vm_writev ptrace quotactl reboot request_key set_mempolicy setns swapoff swapon"
    refused += " syslog umount2 unshare userfaultfd vhangup vm86 chroot iopl ioperm acct settimeofday clock_settime adjtimex personality"
    named = {name: rule for rule in rules() for name in rule["names"]}
    assert not set(refused.split()) & named.keys()
    assert RING <= named.keys()
    # A new process may share all namespaces only, and a socket is of a few families.
    assert named["clone"]["args"] == [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    assert named["clone3"]["action"] == "SCMP_ACT_ERRNO" and named["clone3"]["errnoRet"] == 38
    assert all("args" in rule for rule in rules() if "socket" in rule["names"])


def test_the_recipe_is_whole():
    """What an image's build would trip over: words that are none, files that are not there, a
    context with what was built before.
    """
    lines = recipe()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in lines} <= known
    for word, rest in lines:
        if word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(part, str) for part in json.loads(rest)), rest
        if word == "FROM":
            # A version, so that the same recipe is the same system.
            assert re.fullmatch(r"docker\.io/library/[a-z]+:[\w.-]+( AS \w+)?", rest), rest
    # It serves as somebody who is not root, and what that user owns is made before.
    words = [word for word, _ in lines]
    user = dict(lines)["USER"]
    assert words.index("USER") > max(n for n, word in enumerate(words) if word in ("RUN", "COPY"))
    assert any(word == "RUN" and "useradd" in rest and rest.split("&&")[0].split()[-1] == user for word, rest in lines)
    # A build copies the whole folder, so what git leaves out must be left out here too, and git's
    # own folder.
    ignored = (PROJECT / ".dockerignore").read_text().split()
    for line in (PROJECT / ".gitignore").read_text().split():
        assert line.strip("/") in {name.strip("/").removeprefix("**/") for name in ignored}, line
    assert ".git" in ignored


def test_the_page_runs_the_recipe():
    """The page's commands name files that are there, and the container's ports."""
    page = (PROJECT / "docs" / "cache" / "packaging.md").read_text()
    block = re.search(r"```sh\n(podman.*?)```", page, re.DOTALL)[1].replace("\\\n", " ")
    build, run = [shlex.split(line) for line in block.strip().splitlines()]
    assert (PROJECT / build[build.index("-f") + 1]).is_file()
    option = run[run.index("--security-opt") + 1]
    assert (PROJECT / option.removeprefix("seccomp=")).is_file()
    exposed = dict(recipe())["EXPOSE"].split()
    published = run[run.index("-p") + 1].rsplit(":", 1)[1]
    assert published in exposed
    volume = run[run.index("-v") + 1].split(":")[1]
    assert json.loads(dict(recipe())["CMD"])[-1].startswith(volume) and dict(recipe())["VOLUME"] == volume
