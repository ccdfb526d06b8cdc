# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster that is killed and started again where it was: for the tests of an absence
behind a proxy and behind clients.
"""

import json
import signal
import subprocess

import servers

# Seconds for what takes as long as the machine likes.
PATIENCE = 180


class Node:
    """A senko that can be killed and started again where it was."""

    def __init__(self, senko, folder, options):
        folder.mkdir()
        port = servers.free_port()
        self.command = [
            senko, "serve", "-p", str(port), "--memory", "32m", "--policy", "lru", "--json",
            "--data-dir", str(folder / "data"), "--flash", "%s:512m" % (folder / "flash"), *options,
        ]  # fmt: skip
        self.server = servers.Server("flash", ("127.0.0.1", port))
        self.start()

    def start(self):
        """What its start says."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=servers.PATIENT
        )
        self.server.process = self.process
        line = self.process.stdout.readline()
        assert line, "the node did not start"
        return json.loads(line)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)
