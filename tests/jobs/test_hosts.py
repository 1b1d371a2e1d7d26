"""`hosts.yaml`, each mistake at its line; a copy of `loop` there, and what a machine lacks."""

import subprocess
from pathlib import Path

import pytest

from loop.base.errors import DefinitionError, UsageError
from loop.cloud import hosts as hosts_yaml
from loop.cloud.hosts import Host
from loop.jobs import ssh
from loop.jobs.ssh import Connection

TEXT = """format: 1
hosts:
  l4:
    ssh: me@34.1.2.3:2222
    usd_per_hour: 0.7
    stop: gcloud stop l4
  h100: {ssh: h100, usd_per_hour: 3, gpus: [0, 1]}
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / "hosts.yaml").write_text(text)
    return folder / "hosts.yaml"


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    """The user's own file."""
    return write(tmp_path / ".config" / "loop", TEXT)


def test_hosts_are_named(hosts_file: Path) -> None:
    """Each name has its address and port for ssh, and its price."""
    hosts = hosts_yaml.read_hosts()
    assert ("me@34.1.2.3", "2222") == (hosts["l4"].ssh_address, hosts["l4"].port)
    assert ("h100", "") == (hosts["h100"].ssh_address, hosts["h100"].port)
    assert (0.7, 3) == (hosts["l4"].usd_per_hour, hosts["h100"].usd_per_hour)
    assert hosts["l4"] == hosts_yaml.find_host("l4")
    with pytest.raises(UsageError) as wrong:
        hosts_yaml.find_host("h10")
    assert "did you mean 'h100'?" == wrong.value.hint


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("hosts: {l4: {shh: a}}", "2:14", "did you mean 'ssh'?"),
        ("hosts: {l4: {ssh: -oProxyCommand=x}}", "2:19", "[user@]address[:port]"),
        ("hosts: {l4: {ssh: a, usd_per_hour: 700}}", "2:36", "less than 500"),
        ("hosts: {}", "2:8", "at least 1"),
    ],
)
def test_a_misspelt_file_is_refused_at_its_line(tmp_path: Path, text: str, place: str, says: str) -> None:
    """The message has file, line, column and the nearest right word."""
    path = write(tmp_path / ".config" / "loop", f"format: 1\n{text}\n")
    with pytest.raises(DefinitionError) as wrong:
        hosts_yaml.read_hosts()
    assert f"{path}:{place}: " in wrong.value.message
    assert says in wrong.value.message


def test_a_file_that_others_can_change_is_refused(hosts_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names commands that run as its user."""
    monkeypatch.setattr(hosts_yaml, "explain_foreign_access", lambda path: f"everybody can write {path}")
    with pytest.raises(UsageError) as wrong:
        hosts_yaml.read_hosts()
    assert f"chmod go-w {hosts_file}" == wrong.value.hint


FIT = {
    "free_kb": "20000000", "python": "3.12.1", "venv": "yes", "torch": "2.9", "gcc": "g++ 12",
    "nvcc": "release 13.0", "gpus": "NVIDIA L4", "driver": "580", "rsync": "rsync 3", "setsid": "/usr/bin/setsid",
}  # fmt: skip


def connection(**fields: object) -> Connection:
    """A connection that is never opened."""
    return Connection(Host.model_validate({"name": "l4", "ssh": "me@there", **fields}))


def test_two_machines_know_that_they_run_the_same_loop(tmp_path: Path) -> None:
    """By a hash of all its files but the kernels, which are sent with the checkout."""
    first, second = tmp_path / "one", tmp_path / "two"
    first.write_text("1")
    second.write_text("2")
    names = ("loop/a.py", "kernels/attention/x.h", "kernels/include/y.h")
    files = dict.fromkeys(names, first)
    digest = ssh.hash_package(files)
    assert digest == ssh.hash_package({f"loop/_data/{n}" if n[0] == "k" else n: first for n in names})
    assert digest == ssh.hash_package({**files, "kernels/attention/x.h": second})
    for name in ("loop/a.py", "kernels/include/y.h"):
        assert digest != ssh.hash_package({**files, name: second})


def test_the_torch_of_our_own_environment_there_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second setup installs no torch, unless the host's `python` is another interpreter."""

    def run(self: Connection, command: object, limit_s: float, script: bytes) -> tuple[int, bytes, bytes]:
        return 0, subprocess.run(["sh"], input=script, capture_output=True, check=True).stdout, b""

    ours = tmp_path / ssh.PYTHON
    ours.parent.mkdir(parents=True)
    ours.symlink_to("/bin/echo")  # It prints its arguments, so it "has" a torch.
    monkeypatch.setattr(Connection, "_run", run)
    assert "" == ssh.ask_facts(connection(python="/no/python"))["torch"]
    (tmp_path / ssh.MADE_BY).write_text("/no/python")
    assert "" != ssh.ask_facts(connection(python="/no/python"))["torch"]


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (
            {"gcc": ""},
            "no compiler: kernels in C and C++ cannot be built; ssh me@there 'sudo apt-get install -y g++'",
        ),
        ({"gpus": "", "nvcc": ""}, "no NVIDIA driver answers"),
        ({"torch": ""}, "no torch for `python3`"),
    ],
)
def test_what_is_missing_is_named(facts: dict[str, str], says: str) -> None:
    """The message names the remedy; `loop` runs all the same."""
    (line,) = ssh.list_lacks(connection(gpus=[0]), {**FIT, **facts})
    assert says in line


@pytest.mark.parametrize(
    ("facts", "says", "mend"),
    [
        ({"python": ""}, "l4 has no `python3`", "python: in "),
        ({"python": "3.9.2"}, "Python 3.9.2 as `python3`; loop needs 3.11 or newer", "python: in "),
        ({"rsync": ""}, "l4 has no rsync", "ssh me@there 'sudo apt-get install -y rsync'"),
        ({"venv": ""}, "that makes no environments", "install -y python3-venv"),
        ({"free_kb": "100000"}, "l4 has 0.1 GB free", "du -xh"),
    ],
)
def test_a_machine_on_which_nothing_can_run_is_refused(facts: dict[str, str], says: str, mend: str) -> None:
    """The error comes before anything is sent there."""
    with pytest.raises(UsageError) as wrong:
        ssh.list_lacks(connection(), {**FIT, **facts})
    assert says in wrong.value.message
    assert mend in (wrong.value.hint or "")
