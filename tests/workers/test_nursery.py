"""Workers that are forked from a process that has imported torch: each is as fresh as one that was started."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loop.base.processes import run_to_end
from loop.calls.call import FunctionTerms, Refused
from loop.workers.messages import Load
from loop.workers.nursery import Nursery
from loop.workers.program import Worker, thread_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked workers need Linux")
MODULE = """
import os, subprocess, sys
if "told" in sys.modules: raise ValueError("loaded before")
sys.modules["told"] = sys
if os.environ.get("START"): subprocess.Popen(["sleep", "60"], start_new_session=True)
raise ValueError(f"{os.getcwd()} {os.environ.get('ONLY')}")
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One for all tests of this file: it imports torch once."""
    started = Nursery(thread_environment(1))
    yield started
    started.close()


def load_message(nursery: Nursery | None, folder: Path, **environment: str) -> tuple[str, Worker]:
    """The message of a worker that loads the module, and the ended worker."""
    (folder / "telling.py").write_text(MODULE)
    load = Load(FunctionTerms("telling:tell"), str(folder), 1, "cpu")
    child = Worker(1, environment=environment, nursery=nursery)
    with child as worker, pytest.raises(Refused) as caught:
        run_to_end(worker.ask(load, limit_s=60.0, note="loading"))
    return str(caught.value), worker


def test_each_is_fresh(nursery: Nursery, tmp_path: Path) -> None:
    """Modules and variables of one worker do not reach the next."""
    first, _ = load_message(nursery, tmp_path, ONLY="the first")
    second, _ = load_message(nursery, tmp_path)
    here = os.getcwd()
    assert f"{here} the first" in first
    assert f"{here} None" in second


@pytest.mark.slow
def test_the_next_is_started_where_the_nursery_was_killed(tmp_path: Path) -> None:
    """The next worker starts as a new process instead."""
    with_one = Nursery(thread_environment(1))
    older = set(psutil.Process().children())
    with_one.warm_up()
    for child in set(psutil.Process().children()) - older:
        child.send_signal(signal.SIGKILL)
    try:
        _, worker = load_message(with_one, tmp_path)
    finally:
        with_one.close()
    assert "worker_program" in " ".join(worker.child.command)
