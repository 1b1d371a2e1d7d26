"""An OpenSSH server on a loopback port, with keys, configuration and a home of its own in a test's folder."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

import loop
from loop.jobs import ssh

PROGRAMS = ("/usr/sbin/sshd", "rsync", "ssh-keygen")
RUN = Path("/run/sshd")
"""An empty folder that sshd wants where root starts it; Debian's service makes it when the machine starts."""


def missing() -> str:
    """Why no server can be started here; empty where one can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (apt-get install openssh-server rsync)"
    if os.geteuid() == 0:
        RUN.mkdir(mode=0o755, exist_ok=True)
    return ""


class Server:
    """A machine that is reached by ssh; its home is a folder of the test."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True, mode=0o700)
        folder.chmod(0o700)
        self.port = _free_port()
        self.variables = dict(variables or {})
        self.noise("")
        self.key("host")
        self.key("user")
        shutil.copy(folder / "user.pub", folder / "authorized")
        (folder / "authorized").chmod(0o600)
        self.trust_key()
        self.client = folder / "ssh_config"
        self.client.write_text(self.called("there"))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def called(self, name: str) -> str:
        """The client's configuration of this host under a name."""
        return (
            f"Host {name}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known\n"
            "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  IdentityAgent none\n"
        )

    def install(self) -> None:
        """Have it run this very `loop`: by its sources, not by a copy."""
        place = self.home / ssh.LOOP_FOLDER / "venv" / "bin"
        place.mkdir(parents=True)
        python = place / "python"
        root = Path(loop.__file__).parents[1]
        python.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (self.home / ssh.DIGEST).write_text(ssh.hash_package(ssh.list_package_files()))

    def left(self) -> list[str]:
        return sorted(os.listdir(self.home / ssh.LOOP_FOLDER / "jobs"))

    def noise(self, text: str) -> None:
        """Have the login shell print something before anything else."""
        (self.folder / "noise").write_text(text)

    def key(self, name: str) -> None:
        """Make a new pair of keys."""
        for path in (self.folder / name, self.folder / f"{name}.pub"):
            path.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(self.folder / name)]
        subprocess.run(command, check=True)

    def trust_key(self) -> None:
        """Have the client know the server's key."""
        public = (self.folder / "host.pub").read_text()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {public}")

    def start(self) -> None:
        sets = " ".join(f'"{name}={value}"' for name, value in {"HOME": str(self.home), **self.variables}.items())
        config = self.folder / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nPidFile none\nUsePAM no\nStrictModes no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
            f"MaxStartups 200\nMaxSessions 200\nSetEnv {sets}\n"
            f'ForceCommand cat {self.folder}/noise; cd "$HOME" && exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=log)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text())

    def cut(self) -> int:
        """Close every connection, as a network failure does; return their count. Detached processes continue."""
        if self.process is None:
            return 0
        children = psutil.Process(self.process.pid).children()
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        return len(children)

    def stop(self) -> None:
        """End the server and its connections."""
        if self.process is not None:
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
