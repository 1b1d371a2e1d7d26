"""A machine that is reached by ssh: an OpenSSH server on a loopback port, cut, with other keys, and full."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loop.base.errors import MachineFailure, UsageError
from loop.cloud.hosts import Host, hosts_path
from loop.jobs import ssh
from loop.jobs.ssh import Connection, Unreachable
from tests.jobs.sshd import Server, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A machine that listens."""
    with Server(tmp_path_factory.mktemp("machine")) as server:
        yield server


@pytest.fixture
def there(machine: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A connection to it."""
    monkeypatch.setenv("LOOP_SSH", f"ssh -F {machine.client}")
    with Connection(Host(name="l4", ssh="there")) as connection:
        yield connection


def test_the_users_own_configuration_does_not_take_the_master_away(
    machine: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many keep connections open, and some have a command of their own run."""
    config = tmp_path / "config"
    config.write_text(
        f"{machine.client.read_text()}  ControlMaster auto\n  ControlPersist 10m\n  RemoteCommand true\n"
    )
    monkeypatch.setenv("LOOP_SSH", f"ssh -F {config}")
    with Connection(Host(name="l4", ssh="there")) as connection:
        assert ["ours", ""] == connection.run_script("echo ours")
        assert connection._socket.exists()


def test_a_cut_connection_is_made_anew(there: Connection, machine: Server) -> None:
    """A call after a cut succeeds, perhaps after retries; a cut during a script is reported as a cut."""
    there.run_script("true")
    assert machine.cut()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with contextlib.suppress(Unreachable):
            assert ["again", ""] == there.run_script("echo again")
            return
    pytest.fail("it never answered again")


@pytest.mark.parametrize("change", ["changed", "unknown", "refused", "nowhere"])
def test_what_a_person_has_to_mend_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A changed or unknown key, a password prompt and an unknown name each have a command as remedy."""
    says = {
        "changed": ("REMOTE HOST IDENTIFICATION HAS CHANGED", "ssh there true"),
        "unknown": ("Host key verification failed", "accept it: ssh there true"),
        "refused": ("Permission denied", "ssh-copy-id there"),
        "nowhere": ("Could not resolve hostname", f"mend `ssh:` of l4 in {hosts_path()}"),
    }
    with Server(tmp_path / "machine") as server:
        if change == "changed":
            server.stop()
            server.key("host")
            server.start()
        elif change == "unknown":
            (server.folder / "known").write_text("")
        elif change == "refused":
            (server.folder / "authorized").write_text("")
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {server.client}")
        address = "no-such-name.invalid" if change == "nowhere" else "there"
        with Connection(Host(name="l4", ssh=address)) as connection, pytest.raises(UsageError) as wrong:
            connection.run_script("true")
    assert says[change][0] in wrong.value.message
    assert says[change][1] in (wrong.value.hint or "")


def test_files_go_there_and_come_back(
    there: Connection, machine: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only plain files with requested names are copied; no links, and none above the size limit."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in" / "a b.txt").write_text("ours")
    (root / "left").write_text("out")
    place = machine.home / "place"
    place.mkdir()
    for name in ("#1", ";2"):
        (root / name).write_text("ours")
    there.send(root, ["in/a b.txt", "#1", ";2"], "place")
    assert ["#1", ";2", "in/a b.txt"] == sorted(
        str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()
    )
    (place / "in" / "link").symlink_to("/etc/passwd")
    (place / "in" / "large").write_bytes(bytes(5000))
    (place / "other").write_text("not asked for")
    back = tmp_path / "back"
    back.mkdir()
    monkeypatch.setattr(ssh, "MAX_FILE_BYTES", 1000)
    there.fetch("place", back, "in")
    assert ["in", "in/a b.txt"] == sorted(str(path.relative_to(back)) for path in back.rglob("*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_there_is_a_failure_of_the_machine(there: Connection, machine: Server, tmp_path: Path) -> None:
    """The message names the host's full disk and a remedy; it is neither a cut nor a bug."""
    place = machine.home / "small"
    place.mkdir(exist_ok=True)
    if os.system(f"mount -t tmpfs -o size=64k none {place} 2>/dev/null"):
        pytest.skip("nothing may be mounted here")
    try:
        (tmp_path / "large").write_bytes(os.urandom(1 << 20))
        with pytest.raises(MachineFailure, match="the disk of l4 is full") as failed:
            there.send(tmp_path, ["large"], "small")
        assert not isinstance(failed.value, Unreachable)
    finally:
        os.system(f"umount -l {place}")  # Lazily: a writer there may still be ending.


def test_nothing_of_ssh_is_left(machine: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master ends with its connection."""
    monkeypatch.setenv("LOOP_SSH", f"ssh -F {machine.client}")
    with Connection(Host(name="l4", ssh="there")) as connection:
        connection.run_script("true")
        assert connection._socket.exists()
    end, place = time.monotonic() + 20, str(connection._socket)
    while any(place in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < end
        time.sleep(0.05)
