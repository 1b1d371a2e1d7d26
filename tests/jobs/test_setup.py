"""`loop` for another machine: a copy of what runs here, and what a machine lacks."""

import subprocess
from pathlib import Path

import pytest

from loop.base.errors import UsageError
from loop.jobs import remote
from loop.jobs.hosts import Host, HostEntry
from loop.jobs.remote import Connection

FIT = {
    "free_kb": "20000000", "python": "3.12.1", "venv": "yes", "torch": "2.9", "gcc": "g++ 12",
    "nvcc": "release 13.0", "gpus": "NVIDIA L4", "driver": "580", "rsync": "rsync 3", "setsid": "/usr/bin/setsid",
}  # fmt: skip


def connection(**fields: object) -> Connection:
    """A machine that nobody talks to."""
    return Connection(HostEntry("l4", Host.model_validate({"ssh": "me@there", **fields}), Path("hosts.yaml")))


def test_two_machines_know_that_they_run_the_same_loop(tmp_path: Path) -> None:
    """By all that it is made of, but for its kernels: those are sent with the checkout."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    names = ("loop/a.py", "kernels/attention/x.h", "kernels/include/y.h")
    files = dict.fromkeys(names, one)
    same = remote.hash_package(files)
    assert same == remote.hash_package({f"loop/_data/{n}" if n[0] == "k" else n: one for n in names})
    assert same == remote.hash_package({**files, "kernels/attention/x.h": two})
    for name in ("loop/a.py", "kernels/include/y.h"):
        assert same != remote.hash_package({**files, name: two})


def test_the_torch_of_our_own_environment_there_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second setup downloads none, as long as the environment is that of the interpreter that is named."""

    def run(self: Connection, script: str, **_: object) -> bytes:
        return subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=True).stdout

    ours = tmp_path / remote.PYTHON
    ours.parent.mkdir(parents=True)
    ours.symlink_to("/bin/echo")  # It prints what it is given, so it "has" a torch.
    monkeypatch.setattr(Connection, "run_script", run)
    assert "" == remote.ask_facts(connection(python="/no/python"))["torch"]
    (tmp_path / remote.MADE_BY).write_text("/no/python")
    assert "" != remote.ask_facts(connection(python="/no/python"))["torch"]


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
    """With what mends it; `loop` runs all the same."""
    (line,) = remote.list_missing_tools(connection(gpus=[0]), {**FIT, **facts})
    assert says in line
    remote.refuse_unfit_machine(connection(), {**FIT, **facts})


@pytest.mark.parametrize(
    ("facts", "says", "mend"),
    [
        ({"python": ""}, "l4 has no `python3`", "python: in hosts.yaml"),
        ({"python": "3.9.2"}, "Python 3.9.2 as `python3`; loop needs 3.11 or newer", "python: in hosts.yaml"),
        ({"rsync": ""}, "l4 has no rsync", "ssh me@there 'sudo apt-get install -y rsync'"),
        ({"venv": ""}, "that makes no environments", "install -y python3-venv"),
        ({"free_kb": "100000"}, "l4 has 0.1 GB free", "du -xh"),
    ],
)
def test_a_machine_on_which_nothing_can_run_is_refused(facts: dict[str, str], says: str, mend: str) -> None:
    """Before anything is sent there."""
    with pytest.raises(UsageError) as wrong:
        remote.refuse_unfit_machine(connection(), {**FIT, **facts})
    assert says in wrong.value.message
    assert mend in (wrong.value.hint or "")
