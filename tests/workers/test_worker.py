"""A worker replies, or its end is reported; it never ends the parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.errors import MachineFailure
from loop.base.processes import run_to_end
from loop.calls.call import FunctionTerms, Refused
from loop.workers.messages import Load, Unstage
from loop.workers.program import Worker, WorkerLost


def test_a_killed_or_silent_worker_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is told the signal or the limit; a request sent to the dead is no error. Where CPU time is
    limited, it is no fault of the kernel."""
    with Worker(1) as worker:
        os.kill(worker.child.process.pid, signal.SIGKILL)
        worker.child.process.wait()
        worker.send(Unstage())
        with pytest.raises(WorkerLost, match="crashed with SIGKILL") as caught:
            run_to_end(worker.receive(5.0, "waiting"))
    assert "crashed" == caught.value.kind
    with Worker(1) as worker, pytest.raises(WorkerLost, match=r"no answer for 0\.2 s: killed") as caught:
        run_to_end(worker.receive(0.2, "waiting"))
    assert "hung" == caught.value.kind
    monkeypatch.setattr("resource.getrlimit", lambda _: (2, 2))
    with Worker(1) as worker:
        os.kill(worker.child.process.pid, signal.SIGXCPU)
        with pytest.raises(MachineFailure, match="SIGXCPU: its CPU time is limited"):
            run_to_end(worker.receive(5.0, "waiting"))


def test_a_reply_is_never_taken_for_that_of_another_request(tmp_path: Path) -> None:
    """A request that was sent early and then not asked for is answered, and its reply is dropped."""
    early = Load(FunctionTerms("gone:f"), str(tmp_path), 1, "cpu")
    with Worker(1) as worker:
        worker.send(early)
        assert run_to_end(worker.ask(Unstage(), limit_s=20.0, note="asking")) is None
        worker.send(early)
        with pytest.raises(Refused, match="gone"):
            run_to_end(worker.ask(early, limit_s=20.0, note="asking"))


def test_a_worker_starts_without_torch_and_pydantic() -> None:
    """Each takes longer to import than a compiled variant takes to load and to answer."""
    code = "import sys, loop.workers.worker_program; print(*{'torch', 'numpy', 'pydantic'} & {*sys.modules})"
    assert "\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_no_descriptor_is_leaked() -> None:
    """A session opens hundreds of workers."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Worker(1).close()
    assert before == len(os.listdir("/proc/self/fd"))


def test_a_long_message_is_cut_where_it_is_made(tmp_path: Path) -> None:
    """An exception with a whole tensor becomes one line, and is not taken for a forged reply."""
    (tmp_path / "loud.py").write_text("raise ValueError('x' * 34_000_000)\n")
    with Worker(1) as worker, pytest.raises(Refused) as caught:
        run_to_end(worker.ask(Load(FunctionTerms("loud:f"), str(tmp_path), 1, "cpu"), limit_s=20.0, note="asking"))
    assert len(str(caught.value)) < 1200
    assert "ValueError" in str(caught.value)
